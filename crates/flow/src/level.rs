// SPDX-License-Identifier: Apache-2.0
//! The state of a flow at levels below the host: the counts of each level, and the entry that one level has
//! for the flow.
//!
//! The table keeps this beside the flow's own entry, and only for flows that were ever offloaded; packets at
//! the host read and write one byte more, the [`Step`]. [`crate::table::removal`] describes the transitions
//! between steps.
//!
//! Devices and the choice of flows to offload are up to the flow manager.

use crate::entry::EndReason;
use bartizan_base::{Direction, FlowId, Generation, Level, PacketDuration, PerDirection, Timestamp};

/// The step of a flow's offload to a level and its return. In every step, the host handles the packets that
/// reach it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// At the host, never offloaded.
    #[default]
    Host = 0,
    /// Back at the host; some level has counted packets of the flow.
    Back = 1,
    /// A level was ordered to take the flow and has not answered.
    Installing = 2,
    /// A level handles the flow's packets.
    Active = 3,
    /// The flow is to leave a level that has not answered yet whether it took the flow.
    Withdrawing = 4,
    /// The level is ordered to pass the flow's packets up.
    Marking = 5,
    /// Waiting for packets that were under way when the level began to pass packets up.
    Grace = 6,
    /// The level is ordered to report its last counters.
    Reading = 7,
    /// The level is ordered to delete its entry.
    Deleting = 8,
    /// The level has no entry any more, and the flow is over.
    Left = 9,
}

impl Step {
    /// All, in the order of their numbers.
    pub(crate) const ALL: [Step; 10] = [
        Step::Host,
        Step::Back,
        Step::Installing,
        Step::Active,
        Step::Withdrawing,
        Step::Marking,
        Step::Grace,
        Step::Reading,
        Step::Deleting,
        Step::Left,
    ];

    /// No level holds an entry for the flow.
    #[must_use]
    pub const fn at_host(self) -> bool {
        matches!(self, Step::Host | Step::Back)
    }

    /// Whether the flow is leaving its level or has left it permanently.
    #[must_use]
    pub const fn in_removal(self) -> bool {
        !self.at_host() && !matches!(self, Step::Installing | Step::Active)
    }
}

/// Names one stay of a flow at a level, uniquely: a device keeps the name with its entry and returns it with
/// every answer and every credit, even when the flow has continued or ended since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SunkId {
    pub(crate) serial: u64,
    pub(crate) id: FlowId,
    pub(crate) turn: u16,
    pub(crate) level: Level,
    /// The flow was reversed when it was offloaded. The level keeps counting in the directions given then.
    pub(crate) turned: bool,
}

impl SunkId {
    /// The flow's entry, as long as the flow exists.
    #[must_use]
    pub const fn flow(self) -> FlowId {
        self.id
    }

    /// The level.
    #[must_use]
    pub const fn level(self) -> Level {
        self.level
    }
}

/// An order to a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Pass the flow's packets up from now on, without counting them.
    Mark,
    /// Credit the amounts that are not credited yet.
    Read,
    /// Delete the entry.
    Delete,
}

/// A level's answer. Its counts until then are credited first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelReply {
    /// The entry is installed: the level handles the flow's packets.
    Installed,
    /// The entry was refused: no room, an entry of the same key, or a flow that the level cannot handle.
    Refused,
    /// The flow's packets are passed up.
    Marked,
    /// The counters are credited.
    Read,
    /// The entry is deleted. Also sent without an order, when a level goes away.
    Deleted,
}

/// The next task for offloaded flows: the result of `FlowTable::next_task`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Send an order to the level.
    Tell {
        /// The stay.
        sunk: SunkId,
        /// The order.
        command: Command,
    },
    /// The flow is over and all its packets are counted: finish and remove it, as one of
    /// `FlowTable::next_due`.
    End {
        /// The flow.
        id: FlowId,
        /// The reason of its end.
        reason: EndReason,
    },
}

/// Time limits on the packet clock for answers of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelWaits {
    /// Time between a level's confirmation that it passes packets up and the reading of its counters. Packets
    /// that had found the entry before are counted by then.
    pub grace: PacketDuration,
    /// Time limit for each answer during a removal. After it the flow continues, or ends, without the answer.
    pub answer: PacketDuration,
}

impl Default for LevelWaits {
    /// 10 ms: longer than an XDP program or a pipeline holds a packet. A second: longer than a device needs
    /// for a batch of orders.
    fn default() -> Self {
        Self { grace: PacketDuration::from_millis(10), answer: PacketDuration::from_secs(1) }
    }
}

/// The amounts that one level has counted for a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowLevelCounts {
    /// Packets.
    pub packets: PerDirection<u64>,
    /// Bytes of whole frames.
    pub bytes: PerDirection<u64>,
    /// Time of the latest packet; zero if there was none. The host does not distinguish directions here.
    pub last_seen: PerDirection<Timestamp>,
}

/// A flow's stay at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// The name of the stay.
    pub sunk: SunkId,
    /// The step of the removal.
    pub step: Step,
    /// The generation that allowed the offload.
    pub generation: Generation,
    /// Time of the order to take the flow.
    pub since: Timestamp,
}

/// The reason why a flow is not offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// The flow does not exist.
    #[error("offload: there is no such flow; choose a flow of the table")]
    NoFlow,
    /// The host is no level below itself.
    #[error("offload: the host is not a level below itself; name a level below the host")]
    Host,
    /// A level has an entry for the flow already: one entry per flow.
    #[error(
        "offload: a level already holds an entry for the flow; remove that entry first and wait until \
         it is gone"
    )]
    There,
    /// A level did not answer when the flow was to leave it, and may still have an entry for the flow.
    #[error(
        "offload: a level did not answer when the flow left it; the flow stays at the host until it ends"
    )]
    Unanswered,
}

/// Counters of a table about levels. All only grow, except `sunk`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounters {
    /// Flows for which a level has an entry now, or may have one.
    pub sunk: u64,
    /// Stays begun.
    pub begun: u64,
    /// Stays that a level refused.
    pub refused: u64,
    /// Stays after which the flow continued at the host.
    pub back: u64,
    /// Stays of flows that seemed to have timed out, until their last counters were read.
    pub revived: u64,
    /// Stays after which the flow was over.
    pub ended: u64,
    /// Stays whose level did not answer in time.
    pub unanswered: u64,
    /// Flows removed while a level had an entry for them.
    pub cut: u64,
    /// Answers without an order, or too late.
    pub strays: u64,
    /// Packets credited to a flow that no longer existed.
    pub orphan_packets: u64,
    /// Bytes of these packets.
    pub orphan_bytes: u64,
}

/// A table's state of a flow below the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    /// Counts by level, without the host, in the directions of the opener: reversing the flow does not swap
    /// them.
    pub counted: [FlowLevelCounts; 2],
    /// Time of the latest packet at the host.
    pub host_seen: Timestamp,
    pub generation: Generation,
    /// Time of the order to take the flow, or, at the host, of the flow's return; zero if a level has refused
    /// the flow since.
    pub since: Timestamp,
    pub turn: u16,
    pub level: Level,
    /// The flow was reversed when it was offloaded.
    pub turned: bool,
    /// The order of the current step was sent.
    pub ordered: bool,
    /// A level did not answer.
    pub unanswered: bool,
    /// The flow's key belongs to another flow.
    pub unlisted: bool,
    /// The flow is over once it has left the level.
    pub ending: Option<EndReason>,
}

impl Levels {
    /// The state of a flow whose latest packet at the host was at `host_seen`.
    pub(crate) fn new(host_seen: Timestamp) -> Self {
        Self {
            counted: [FlowLevelCounts::default(); 2],
            host_seen,
            generation: Generation(0),
            since: Timestamp::ZERO,
            turn: 0,
            level: Level::Host,
            turned: false,
            ordered: false,
            unanswered: false,
            unlisted: false,
            ending: None,
        }
    }

    /// The counts of a level; none for the host.
    pub(crate) fn of(&self, level: Level) -> Option<&FlowLevelCounts> {
        self.counted.get((level as usize).checked_sub(1)?)
    }

    pub(crate) fn of_mut(&mut self, level: Level) -> Option<&mut FlowLevelCounts> {
        self.counted.get_mut((level as usize).checked_sub(1)?)
    }
}

impl FlowLevelCounts {
    pub(crate) fn add(&mut self, direction: Direction, packets: u64, bytes: u64, last_seen: Timestamp) {
        self.packets[direction] = self.packets[direction].saturating_add(packets);
        self.bytes[direction] = self.bytes[direction].saturating_add(bytes);
        self.last_seen[direction] = self.last_seen[direction].max(last_seen);
    }

    pub(crate) fn turned(mut self) -> Self {
        self.packets.swap();
        self.bytes.swap();
        self.last_seen.swap();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_dense_numbers_and_one_place_each() {
        for (number, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, number);
            let below = matches!(step, Step::Installing | Step::Active);
            assert_eq!(
                u8::from(step.at_host()) + u8::from(below) + u8::from(step.in_removal()),
                1,
                "{step:?}"
            );
        }
    }

    #[test]
    fn what_levels_need_of_a_flow_is_small() {
        assert_eq!((size_of::<SunkId>(), size_of::<FlowLevelCounts>()), (16, 48));
        assert!(size_of::<Levels>() <= 128, "{}", size_of::<Levels>());
    }
}

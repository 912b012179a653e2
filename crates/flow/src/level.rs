// SPDX-License-Identifier: Apache-2.0
//! What a flow has below the host: what each level has counted of it, and the one entry that a level holds
//! for it.
//!
//! The table keeps this beside the flow's own entry, and only for flows that have ever sunk; what a packet at
//! the host reads and writes is one byte longer, the [`Step`]. [`crate::table::removal`] says how a flow goes
//! from step to step.
//!
//! Not done here: devices, and the choice of what sinks. Both are the flow manager's.

use crate::entry::EndReason;
use bartizan_base::{Direction, FlowId, Generation, Level, PacketDuration, PerDirection, Timestamp};

/// Where a flow stands on its way down to a level and up again. In every step a packet that comes up is the
/// host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// At the host, as ever.
    #[default]
    Host = 0,
    /// At the host again; some level has counted of it before.
    Back = 1,
    /// A level was told to take it, and has not answered.
    Installing = 2,
    /// A level handles its packets.
    Active = 3,
    /// It is to leave a level that has not answered yet whether it took it.
    Withdrawing = 4,
    /// The level is told to pass its packets up.
    Marking = 5,
    /// What was under way when the level began to pass packets up is waited for.
    Grace = 6,
    /// The level is told to give its last counters.
    Reading = 7,
    /// The level is told to delete its entry.
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

    /// The flow leaves its level, or has left it for good.
    #[must_use]
    pub const fn in_removal(self) -> bool {
        !self.at_host() && !matches!(self, Step::Installing | Step::Active)
    }
}

/// Names one stay of a flow at a level, for good: a device keeps it beside its entry and gives it back with
/// every answer and every credit, also when the flow has gone on or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SunkId {
    pub(crate) serial: u64,
    pub(crate) id: FlowId,
    pub(crate) turn: u16,
    pub(crate) level: Level,
    /// The flow was turned when it sank. The level goes on to count as it was told then.
    pub(crate) turned: bool,
}

impl SunkId {
    /// The flow's entry, as long as the flow is there.
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

/// What a level is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Pass the flow's packets up from now on, and count none of them.
    Mark,
    /// Credit what is not credited yet.
    Read,
    /// Delete the entry.
    Delete,
}

/// What a level answers. What it has counted until then is credited first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The entry is there: it handles the flow's packets.
    Installed,
    /// There is no entry: no room, an entry of the same key, or nothing that the level can do.
    Refused,
    /// Packets are passed up.
    Marked,
    /// The counters are credited.
    Read,
    /// There is no entry any more. Also unasked, where a level was taken away.
    Deleted,
}

/// What is to be done next for flows that have sunk: the answer of `FlowTable::next_task`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Tell the level.
    Tell {
        /// The stay.
        sunk: SunkId,
        /// What to do.
        command: Command,
    },
    /// The flow is over and all of it is counted: finish it and remove it, as one of `FlowTable::next_due`.
    End {
        /// The flow.
        id: FlowId,
        /// Why it ends.
        reason: EndReason,
    },
}

/// How long the packet clock waits for levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelWaits {
    /// From the level's word that it passes packets up until its counters are read. What had found the entry
    /// before is counted by then.
    pub grace: PacketDuration,
    /// For each answer during a removal. After it the flow goes on, or ends, without.
    pub answer: PacketDuration,
}

impl Default for LevelWaits {
    /// 10 ms: longer than an XDP program or a pipeline holds a packet. A second: longer than a device needs
    /// for a batch of commands.
    fn default() -> Self {
        Self { grace: PacketDuration::from_millis(10), answer: PacketDuration::from_secs(1) }
    }
}

/// What one level has counted of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Packets.
    pub packets: PerDirection<u64>,
    /// Bytes of whole frames.
    pub bytes: PerDirection<u64>,
    /// When the latest was seen; zero if none was. The host does not tell directions apart here.
    pub last_seen: PerDirection<Timestamp>,
}

/// A flow's stay at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Its name.
    pub sunk: SunkId,
    /// How far it has come.
    pub step: Step,
    /// The generation by which the level handles it.
    pub generation: Generation,
    /// When it was told to.
    pub since: Timestamp,
}

/// Why a flow does not sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// There is no such flow.
    #[error("sink: there is no such flow; choose among the flows of the table")]
    NoFlow,
    /// The host is no level to sink to.
    #[error("sink: the host is where flows are handled anyway; name a level below it")]
    Host,
    /// A level has an entry for it already: one entry per flow.
    #[error("sink: a level holds an entry for the flow; raise it first and wait until that is done")]
    There,
    /// A level did not answer when the flow was to leave it, and may hold an entry for it to this day.
    #[error("sink: a level has not answered when the flow left it; the flow stays at the host until it ends")]
    Unanswered,
}

/// What a table counts of levels. All only grow, except `sunk`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounters {
    /// Flows for which a level holds an entry, or may, now.
    pub sunk: u64,
    /// Stays begun.
    pub begun: u64,
    /// Stays that a level refused.
    pub refused: u64,
    /// Stays after which the flow went on at the host.
    pub back: u64,
    /// Of those: it had been silent for its timeout, until its last counters were read.
    pub revived: u64,
    /// Stays after which the flow was over.
    pub ended: u64,
    /// Stays whose level did not answer in time.
    pub unanswered: u64,
    /// Flows taken out while a level held an entry for them.
    pub cut: u64,
    /// Answers that nobody waited for (any more).
    pub strays: u64,
    /// Packets credited to a flow that was not there any more.
    pub orphan_packets: u64,
    /// Their bytes.
    pub orphan_bytes: u64,
}

/// What a table keeps of a flow below the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    /// By level, without the host, as its opener was seen: a flow that is turned turns none of it.
    pub counted: [Amounts; 2],
    /// When the host saw its latest packet.
    pub host_seen: Timestamp,
    pub generation: Generation,
    /// When it was told to take the flow, or, at the host, when the flow came back; zero if a level has
    /// refused it since.
    pub since: Timestamp,
    pub turn: u16,
    pub level: Level,
    /// The flow was turned when it sank.
    pub turned: bool,
    /// What the step wants was said to the level.
    pub told: bool,
    /// A level did not answer.
    pub unanswered: bool,
    /// Its key belongs to another flow.
    pub unlisted: bool,
    /// The flow is over once it has left the level.
    pub ending: Option<EndReason>,
}

impl Levels {
    /// Of a flow that the host saw last at `host_seen`.
    pub(crate) fn new(host_seen: Timestamp) -> Self {
        Self {
            counted: [Amounts::default(); 2],
            host_seen,
            generation: Generation(0),
            since: Timestamp::ZERO,
            turn: 0,
            level: Level::Host,
            turned: false,
            told: false,
            unanswered: false,
            unlisted: false,
            ending: None,
        }
    }

    /// What a level has counted; nothing of the host.
    pub(crate) fn of(&self, level: Level) -> Option<&Amounts> {
        self.counted.get((level as usize).checked_sub(1)?)
    }

    pub(crate) fn of_mut(&mut self, level: Level) -> Option<&mut Amounts> {
        self.counted.get_mut((level as usize).checked_sub(1)?)
    }
}

impl Amounts {
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
        assert_eq!((size_of::<SunkId>(), size_of::<Amounts>()), (16, 48));
        assert!(size_of::<Levels>() <= 128, "{}", size_of::<Levels>());
    }
}

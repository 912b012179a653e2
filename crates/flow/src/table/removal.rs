// SPDX-License-Identifier: Apache-2.0
//! Offload of a flow to a level below the host, and its removal from there.
//!
//! ```text
//!   at the host --sink--> Installing --Installed--> Active
//!        ^                 |     |                    |
//!        |<----Refused-----+     | it is to leave     | it is to leave
//!        |                       v                    v
//!        |                  Withdrawing --Installed--> Marking --Marked--> Grace
//!        |                       |                                           | time
//!        |                       | Refused                                   v
//!        |                       v                     Deleting <--Read-- Reading
//!        +<---it goes on--- it has left <---Deleted-------+
//!                                |
//!                                +---it is over---> Left ---> Task::End
//! ```
//!
//! **One entry** at one level for a flow, of both directions, which only the host removes. The flow leaves
//! when it is raised, or when it is to end: silent for its timeout, to make room, at the end of the program,
//! for a new connection of its ports. The removal has steps. *Mark*: the level passes packets up. *Grace*:
//! packets that had found the entry before are counted. *Read*: the last counters are credited. *Delete*: the
//! entry is gone. Only then is an ended flow returned ([`Task::End`]): its record has every packet. Each
//! packet is counted by exactly one level.
//!
//! **At the host** nothing changes: the flow keeps its state, and packets that are passed up are found,
//! judged and counted as usual, in every step. Packets counted at a level are credited in every step as well,
//! also after a removal, as long as the flow exists. A later credit is an *orphan*: it is refused and
//! counted.
//!
//! **Silence.** The latest packet at any level counts. A flow that has timed out by the credits so far leaves
//! its level, and continues at the host if its last counters, or a packet that was passed up, show that it
//! was not silent.
//!
//! **New connections.** A flow that is replaced by a new connection of the same ports, or by one of the other
//! side that had not been allowed to open one, leaves its key to the new flow at once, and its entry once it
//! has left the level. Until then the level refuses the new flow.
//!
//! **A level that does not answer** has a time limit on the packet clock
//! ([`answer`](crate::level::LevelWaits::answer) for each answer). Then the flow continues, or ends, without
//! the answer; this is counted, and the flow is not offloaded again.
//!
//! The driver fetches tasks ([`FlowTable::next_task`]), sends orders to levels, credits their counts
//! ([`FlowTable::credit`]) and passes on their answers ([`FlowTable::answered`]). There is no queue: tasks
//! are timers, and each flow has one.

use super::{FlowTable, wheel_of};
use crate::entry::export::{self, ImportedFlow};
use crate::entry::{EndReason, FlowEntry, FlowFlags, FlowState};
use crate::key::protocol;
use crate::level::{
    Command, FlowLevelCounts, LevelCounters, LevelReply, Levels, SinkError, Stay, Step, SunkId, Task,
};
use crate::timeouts::CLASSES;
use crate::wheel::Tick;
use bartizan_base::{Direction, FlowId, Generation, Level, PacketDuration, PerDirection, Timestamp};

impl<E: Default> FlowTable<E> {
    // --- down --------------------------------------------------------------------------------

    /// Offloads a flow to a level, by the decision of `generation`. The caller sends the order to the level,
    /// with the returned name, and passes on its answer ([`FlowTable::answered`]); until then packets reach
    /// the host.
    ///
    /// # Errors
    /// [`SinkError`] when the flow cannot be offloaded.
    pub fn sink(
        &mut self,
        id: FlowId,
        level: Level,
        generation: Generation,
        now: Timestamp,
    ) -> Result<SunkId, SinkError> {
        let entry = self.get(id).ok_or(SinkError::NoFlow)?;
        if level == Level::Host {
            return Err(SinkError::Host);
        }
        if !entry.step.at_host() {
            return Err(SinkError::There);
        }
        let (turned, last_seen) = (entry.flags.contains(FlowFlags::FLIPPED), entry.last_seen);
        let levels = self.make_levels(id, || Levels::new(last_seen)).ok_or(SinkError::NoFlow)?;
        if levels.unanswered {
            return Err(SinkError::Unanswered);
        }
        levels.turn = levels.turn.wrapping_add(1);
        (levels.level, levels.turned, levels.generation, levels.since) = (level, turned, generation, now);
        self.enter_step(id, Step::Installing, None);
        self.level_counters.sunk += 1;
        self.level_counters.begun += 1;
        self.stay(id).map(|stay| stay.sunk).ok_or(SinkError::NoFlow)
    }

    /// The stay of an offloaded flow, until it has left its level.
    #[must_use]
    pub fn stay(&self, id: FlowId) -> Option<Stay> {
        let (entry, levels) = self.with_levels(id)?;
        if entry.step.at_host() {
            return None;
        }
        let Levels { turn, level, turned, generation, since, .. } = *levels;
        let sunk = SunkId { serial: entry.serial, id, turn, level, turned };
        Some(Stay { sunk, step: entry.step, generation, since })
    }

    /// Time since which a flow is at its level or at the host: of the order to the level, of its return, or
    /// of its beginning. `None`: a level has refused the flow since its return, whose time is forgotten.
    #[must_use]
    pub fn since(&self, id: FlowId) -> Option<Timestamp> {
        let entry = self.get(id)?;
        match self.with_levels(id) {
            Some((_, levels)) if levels.since != Timestamp::ZERO => Some(levels.since),
            Some((_, levels)) if levels.counted != <[FlowLevelCounts; 2]>::default() => None,
            _ => Some(entry.start),
        }
    }

    /// Notes that the level handles a flow by another generation from now on, unchanged. `false`: the stay is
    /// not an active one.
    pub fn renew(&mut self, sunk: SunkId, generation: Generation) -> bool {
        let acts = self.stay(sunk.id).is_some_and(|stay| stay.sunk == sunk && stay.step == Step::Active);
        if let Some((_, levels)) = self.with_levels_mut(sunk.id).filter(|_| acts) {
            levels.generation = generation;
        }
        acts
    }

    /// All stays. Walks the table: for a change of generation.
    pub fn stays(&self) -> impl Iterator<Item = Stay> {
        (0..)
            .zip(&self.below)
            .filter(|(_, levels)| levels.is_some())
            .filter_map(|(id, _)| self.stay(FlowId(id)))
    }

    // --- counting ----------------------------------------------------------------------------

    /// Adds a level's counts since its last report, in a direction as of the offload: a level need not learn
    /// that a flow was reversed. `false`: the flow no longer exists, and the amounts are counted as orphans.
    pub fn credit(
        &mut self,
        sunk: SunkId,
        direction: Direction,
        packets: u64,
        bytes: u64,
        last_seen: Timestamp,
    ) -> bool {
        let (id, level) = (sunk.id, sunk.level);
        let Some((entry, levels)) = self.with_levels_mut(id).filter(|(entry, _)| entry.serial == sunk.serial)
        else {
            let LevelCounters { orphan_packets, orphan_bytes, .. } = &mut self.level_counters;
            *orphan_packets = orphan_packets.saturating_add(packets);
            *orphan_bytes = orphan_bytes.saturating_add(bytes);
            return false;
        };
        let opened = if sunk.turned { direction.flip() } else { direction };
        let last_seen = if packets > 0 { last_seen } else { Timestamp::ZERO };
        if let Some(counted) = levels.of_mut(level) {
            counted.add(opened, packets, bytes, last_seen);
        }
        let direction = if entry.flags.contains(FlowFlags::FLIPPED) { opened.flip() } else { opened };
        entry.packets[direction] = entry.packets[direction].saturating_add(packets);
        entry.bytes[direction] = entry.bytes[direction].saturating_add(bytes);
        // As at the host: refused packets keep no flow.
        if !entry.is_unopened() {
            entry.last_seen = entry.last_seen.max(last_seen);
        }
        if packets > 0 {
            entry.flags.insert(FlowFlags::seen(direction));
        }
        let opening = entry.state == FlowState::New && entry.key.protocol() != protocol::TCP;
        if opening && entry.both_seen() {
            self.set_state(id, FlowState::Established);
        }
        true
    }

    /// The amounts that one level, including the host, has counted for a flow. The entry has the sums over
    /// all levels.
    #[must_use]
    pub fn amounts(&self, id: FlowId, level: Level) -> Option<FlowLevelCounts> {
        let entry = self.get(id)?;
        let turned = entry.flags.contains(FlowFlags::FLIPPED);
        let below = |level: Level| {
            let counted = self.with_levels(id).and_then(|(_, levels)| levels.of(level)).copied();
            let counted = counted.unwrap_or_default();
            if turned { counted.turned() } else { counted }
        };
        if level != Level::Host {
            return Some(below(level));
        }
        let seen = self.with_levels(id).map_or(entry.last_seen, |(_, levels)| levels.host_seen);
        let lower = [below(Level::Xdp), below(Level::Rtl)];
        let rest = |all: &PerDirection<u64>, of: fn(&FlowLevelCounts) -> &PerDirection<u64>, direction| {
            lower.iter().fold(all[direction], |rest, level| rest.saturating_sub(of(level)[direction]))
        };
        let mut host =
            FlowLevelCounts { last_seen: PerDirection::new(seen, seen), ..FlowLevelCounts::default() };
        for direction in Direction::BOTH {
            host.packets[direction] = rest(&entry.packets, |level| &level.packets, direction);
            host.bytes[direction] = rest(&entry.bytes, |level| &level.bytes, direction);
        }
        Some(host)
    }

    /// Whether a level below the host has ever had an entry for the flow.
    #[must_use]
    pub fn was_below(&self, id: FlowId) -> bool {
        self.with_levels(id).is_some()
    }

    /// The counters about levels.
    #[must_use]
    pub const fn level_counters(&self) -> &LevelCounters {
        &self.level_counters
    }

    #[cold]
    pub(super) fn note_host_packet(&mut self, id: FlowId, now: Timestamp) {
        if let Some((_, levels)) = self.with_levels_mut(id) {
            levels.host_seen = levels.host_seen.max(now);
        }
    }

    // --- up ----------------------------------------------------------------------------------

    /// Takes a flow back to the host: starts its removal from the level. `false` if no level has it.
    pub fn raise(&mut self, id: FlowId, now: Timestamp) -> bool {
        let sunk = self.get(id).is_some_and(|entry| !entry.step.at_host());
        if sunk {
            self.leave(id, now);
        }
        sunk
    }

    /// Prepares the end of a flow. `true`: no level has it, and the caller finishes and removes it. `false`:
    /// the flow begins to leave its level, and follows as [`Task::End`]; a new connection of its ports
    /// ([`EndReason::TcpReuse`]) may have its key now.
    pub fn begin_end(&mut self, id: FlowId, reason: EndReason, now: Timestamp) -> bool {
        let Some(entry) = self.get_mut(id) else { return false };
        if entry.step.at_host() {
            return true;
        }
        if entry.step == Step::Left {
            return true;
        }
        let Some((_, levels)) = self.with_levels_mut(id) else { return true };
        // A flow that was only silent so far may still turn out not to be.
        let decided = levels.ending.is_some_and(|ending| ending != EndReason::Timeout);
        if !decided {
            levels.ending = Some(reason);
        }
        if reason == EndReason::TcpReuse {
            self.leave_key(id);
        }
        if reason == EndReason::Forced && !decided {
            self.room_coming += 1;
        }
        self.leave(id, now);
        false
    }

    /// Leaves the key of a flow that is to end, and has not left its level yet, to another flow: packets with
    /// the key belong to the other flow from now on.
    pub fn leave_key(&mut self, id: FlowId) {
        let Some(hash) = self.get(id).filter(|entry| !entry.step.at_host()).map(|entry| entry.hash) else {
            return;
        };
        if let Some((_, levels)) = self.with_levels_mut(id)
            && !core::mem::replace(&mut levels.unlisted, true)
        {
            self.index.remove(hash, id.0);
        }
    }

    /// The end reason of a flow that has left its level and was not returned yet. `None`: the flow has no
    /// reason to end.
    #[must_use]
    pub fn over_for(&self, id: FlowId) -> Option<EndReason> {
        let (entry, levels) = self.with_levels(id)?;
        levels.ending.filter(|_| entry.step == Step::Left)
    }

    /// Starts a removal, unless one has started.
    fn leave(&mut self, id: FlowId, now: Timestamp) {
        match self.get(id).map(|entry| entry.step) {
            Some(Step::Installing) => {
                self.enter_step(id, Step::Withdrawing, Some((now, self.waits.answer)));
            }
            Some(Step::Active) => self.enter_ordered_step(id, Step::Marking, now),
            _ => {}
        }
    }

    /// Takes a level's answer. `false`: no answer was expected, and this one is counted.
    pub fn answered(&mut self, sunk: SunkId, answer: LevelReply, now: Timestamp) -> bool {
        let id = sunk.id;
        let stay = self.stay(id).filter(|stay| stay.sunk == sunk && stay.step != Step::Left);
        let told = self.with_levels(id).is_some_and(|(_, levels)| levels.ordered);
        match (stay.map(|stay| stay.step), answer) {
            (Some(Step::Installing), LevelReply::Installed) => {
                self.set_level(id, sunk.level);
                self.enter_step(id, Step::Active, None);
            }
            (Some(Step::Withdrawing), LevelReply::Installed) => {
                self.set_level(id, sunk.level);
                self.enter_ordered_step(id, Step::Marking, now);
            }
            (Some(Step::Installing | Step::Withdrawing), LevelReply::Refused) => {
                self.level_counters.refused += 1;
                self.left(id, now);
            }
            (Some(Step::Marking), LevelReply::Marked) if told => {
                self.enter_step(id, Step::Grace, Some((now, self.waits.grace)));
            }
            (Some(Step::Reading), LevelReply::Read) if told => {
                self.enter_ordered_step(id, Step::Deleting, now)
            }
            (Some(_), LevelReply::Deleted) => self.left(id, now),
            _ => {
                self.level_counters.strays += 1;
                return false;
            }
        }
        true
    }

    /// The next task at `now`. `None` once there is none, or `budget` (number of timers checked) is used up.
    pub fn next_task(&mut self, now: Timestamp, budget: &mut u32) -> Option<Task> {
        loop {
            let due = Tick::passed(now);
            let id = FlowId(self.wheels.get_mut(CLASSES)?.next(&mut self.links, due, budget)?);
            if let Some(reason) = self.end_of(id, now) {
                return Some(Task::End { id, reason });
            }
            let Some((entry, levels)) = self.with_levels_mut(id) else { continue };
            let command = match entry.step {
                // A packet was passed up at the last moment.
                Step::Back => continue,
                Step::Marking if !levels.ordered => Some(Command::Mark),
                Step::Deleting if !levels.ordered => Some(Command::Delete),
                Step::Grace => Some(Command::Read),
                _ => None,
            };
            let Some(command) = command else {
                levels.unanswered = true;
                self.level_counters.unanswered += 1;
                self.left(id, now);
                continue;
            };
            let step = if command == Command::Read { Step::Reading } else { entry.step };
            levels.ordered = true;
            self.enter_step(id, step, Some((now, self.waits.answer)));
            if let Some(Stay { sunk, .. }) = self.stay(id) {
                return Some(Task::Tell { sunk, command });
            }
        }
    }

    /// Ends a stay: the level has no entry any more, or its time limit has passed.
    fn left(&mut self, id: FlowId, now: Timestamp) {
        if self.continues_at_host(id, now) {
            self.back(id, now);
        } else {
            self.enter_step(id, Step::Left, Some((now, PacketDuration::ZERO)));
        }
    }

    /// The end reason of a flow that has left its level for good. `None`: it has not, or continues after all.
    fn end_of(&mut self, id: FlowId, now: Timestamp) -> Option<EndReason> {
        self.get(id).filter(|entry| entry.step == Step::Left)?;
        if self.continues_at_host(id, now) {
            self.back(id, now);
            return None;
        }
        let (_, levels) = self.with_levels_mut(id)?;
        let reason = levels.ending?;
        self.counters.mgr_timeout += u64::from(reason == EndReason::Timeout);
        Some(reason)
    }

    /// Whether a flow that leaves its level continues at the host: it is not to end, or only for a silence
    /// that was interrupted.
    fn continues_at_host(&self, id: FlowId, now: Timestamp) -> bool {
        self.with_levels(id).is_none_or(|(entry, levels)| match levels.ending {
            None => true,
            Some(EndReason::Timeout) => !self.is_due(entry, now),
            Some(_) => false,
        })
    }

    fn back(&mut self, id: FlowId, now: Timestamp) {
        let Some((entry, levels)) = self.with_levels_mut(id) else { return };
        let refused = entry.level == Level::Host;
        levels.since = if refused { Timestamp::ZERO } else { now };
        entry.level = Level::Host;
        let revived = levels.ending.take().is_some();
        self.enter_step(id, Step::Back, None);
        self.level_counters.sunk = self.level_counters.sunk.saturating_sub(1);
        self.level_counters.back += 1;
        self.level_counters.revived += u64::from(revived);
    }

    /// Counts the removal of a flow that was ever offloaded, and drops its state below. Returns whether
    /// packets find the flow.
    pub(super) fn forget_levels(&mut self, id: FlowId, step: Step) -> bool {
        let Some(levels) = self.below.get_mut(id.0 as usize).and_then(Option::take) else { return true };
        self.kept_below = self.kept_below.saturating_sub(1);
        if !step.at_host() {
            self.level_counters.sunk = self.level_counters.sunk.saturating_sub(1);
            if step == Step::Left {
                self.level_counters.ended += 1;
            } else {
                self.level_counters.cut += 1;
            }
        }
        if levels.ending == Some(EndReason::Forced) {
            self.room_coming = self.room_coming.saturating_sub(1);
        }
        !levels.unlisted
    }

    // --- moving ------------------------------------------------------------------------------

    /// Appends this crate's part of a flow in the current version (see [`export`]). Nothing if the flow does
    /// not exist.
    pub fn export(&self, id: FlowId, out: &mut Vec<u8>) {
        if let Some(entry) = self.get(id) {
            export::write(entry, self.with_levels(id).map(|(_, levels)| levels), out);
        }
    }

    /// Adds a flow that another instance exported. `None` when the table is full or has a flow of this key. A
    /// stay that continues has a new name ([`FlowTable::stay`]).
    pub fn adopt(&mut self, flow: ImportedFlow<E>, now: Timestamp) -> Option<FlowId> {
        let ImportedFlow { mut entry, levels } = flow;
        entry.hash = self.hash(&entry.key);
        let listed = !levels.as_ref().is_some_and(|levels| levels.unlisted);
        let is_it = |id| self.entries.get(id as usize).is_some_and(|e: &FlowEntry<E>| e.key == entry.key);
        if self.is_full() || listed && self.index.find(entry.hash, is_it).is_some() {
            return None;
        }
        let step = core::mem::take(&mut entry.step);
        let id = self.place(entry, listed)?;
        let Some(levels) = levels else { return Some(id) };
        self.room_coming += u32::from(levels.ending == Some(EndReason::Forced));
        self.make_levels(id, || *levels);
        self.level_counters.sunk += u64::from(!step.at_host());
        self.level_counters.begun += u64::from(!step.at_host());
        match step {
            Step::Host | Step::Back | Step::Active => self.enter_step(id, step, None),
            Step::Left => self.enter_step(id, step, Some((now, PacketDuration::ZERO))),
            Step::Installing | Step::Withdrawing => {
                self.enter_step(id, Step::Withdrawing, Some((now, self.waits.answer)));
            }
            Step::Marking | Step::Grace | Step::Reading | Step::Deleting => {
                self.enter_ordered_step(id, Step::Marking, now);
            }
        }
        Some(id)
    }

    // --- inside ------------------------------------------------------------------------------

    fn with_levels(&self, id: FlowId) -> Option<(&FlowEntry<E>, &Levels)> {
        Some((self.get(id)?, self.below.get(id.0 as usize)?.as_deref()?))
    }

    fn with_levels_mut(&mut self, id: FlowId) -> Option<(&mut FlowEntry<E>, &mut Levels)> {
        let index = id.0 as usize;
        let entry = self.entries.get_mut(index).filter(|entry| entry.serial != 0)?;
        Some((entry, self.below.get_mut(index)?.as_deref_mut()?))
    }

    /// A flow's state at levels, made if it does not exist.
    fn make_levels(&mut self, id: FlowId, make: impl FnOnce() -> Levels) -> Option<&mut Levels> {
        if self.below.is_empty() {
            // Zeroed by the system: pages are touched as flows are offloaded.
            self.below = vec![None; self.capacity as usize];
        }
        let slot = self.below.get_mut(id.0 as usize)?;
        self.kept_below += usize::from(slot.is_none());
        Some(slot.get_or_insert_with(|| Box::new(make())))
    }

    /// Upper bound of the bytes of the flows' state at levels.
    pub(super) const fn bytes_below(&self) -> usize {
        self.below.capacity() * size_of::<Option<Box<Levels>>>() + self.kept_below * size_of::<Levels>()
    }

    fn set_level(&mut self, id: FlowId, level: Level) {
        if let Some(entry) = self.get_mut(id) {
            entry.level = level;
        }
    }

    /// Enters a step that begins with an order to the level.
    fn enter_ordered_step(&mut self, id: FlowId, step: Step, now: Timestamp) {
        if let Some((_, levels)) = self.with_levels_mut(id) {
            levels.ordered = false;
        }
        self.enter_step(id, step, Some((now, PacketDuration::ZERO)));
    }

    /// Enters a step and arms its timer: that of a removal fires after `wait`, others at the flow's timeout.
    fn enter_step(&mut self, id: FlowId, step: Step, wait: Option<(Timestamp, PacketDuration)>) {
        let Some(entry) = self.entries.get_mut(id.0 as usize) else { return };
        let from = wheel_of(entry);
        entry.step = step;
        let into = wheel_of(entry);
        if let Some(wheel) = self.wheels.get_mut(from) {
            wheel.disarm(&mut self.links, id.0);
        }
        match (wait, self.wheels.get_mut(into)) {
            (Some((now, wait)), Some(wheel)) => {
                let passed = Tick::passed(now);
                let at = if wait == PacketDuration::ZERO { passed } else { Tick::after(now + wait) };
                wheel.arm(&mut self.links, id.0, at, passed);
            }
            _ => self.arm(id.0),
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The flow manager of one worker: hands decided flows to a device, credits to the flow table what the device counts of them, and takes them up again.
//!
//! A flow goes down when the data plane offers it ([`FlowManager::offer`]): its next packet's fate is known, and a packet has come since, so it is not silent. It comes up
//! again when it is to end, when another generation begins ([`FlowManager::enter_generation`]), and when the run ends ([`FlowManager::close`]). How it goes from step to step
//! is the flow table's ([`bartizan_flow::table::removal`]).
//!
//! **Counting.** Counts of all entries are read once in [`READ_EVERY`], a few at a turn, and once more when an entry goes. What came since is credited to the flow, so
//! timeouts, records and rules see sums over all levels. What the device did with them is counted here ([`ManagerCounters`]).
//!
//! **Turns.** The work of one turn is bounded. What it leaves undone it owes ([`FlowManager::owes`]): who drives it comes back soon then, also where no packets come. More than one
//! round of readings is not made up for: what is left out is counted.
//!
//! **Generations.** A device passes up what belongs to another generation at once; the flow is judged anew at the host, and offered again. Its old entry is taken
//! away meanwhile, [`RAISES_PER_TURN`] at a turn. Another generation that comes before all are gone lets the sweep go on for one round from where it is, so each entry is met whatever the
//! pace of generations.
//!
//! **Short of places.** A flow that finds none takes that of a silent one: of [`LOOKS`] entries the one that handled least between its latest two readings comes up, if the
//! flow is expected to bring more than [`GAIN`] times as much in the next second. What is expected of a flow is what it has brought in a second so far; the length of a flow is
//! no better guess than that (Lindy's law). The place is free after the steps of a removal, for who asks then.

use crate::device::{Action, Answered, Counts, Device, Install, Request, Said, Sides, Wish};
use crate::key::{DeviceKey, directions};
use crate::places::{Place, Places};
use crate::stays::Stays;
use bartizan_base::{FlowId, Generation, Level, PacketDuration, Path, Reason, Timestamp};
use bartizan_flow::level::{Answer, Command, SinkError, SunkId, Task};
use bartizan_flow::{EndReason, FlowTable};
use bartizan_packet::windows::Windows;
use bartizan_xdp::Mark;
use std::collections::VecDeque;

/// In this time the counts of all entries are read once.
pub const READ_EVERY: PacketDuration = PacketDuration::from_secs(1);
/// Counts that are read in one turn, at most.
pub const READS_PER_TURN: u32 = 4096;
/// Flows of another generation that begin to come up in one turn, at most.
pub const RAISES_PER_TURN: u32 = 1024;
/// Entries that are looked at for one that gives way.
pub const LOOKS: u32 = 8;
/// A flow has to be expected to bring so many times what the entry that gives way handles.
pub const GAIN: u32 = 2;
/// Entries that give way in one turn, at most.
pub const GIVE_WAY_PER_TURN: u32 = 64;
/// Timers that are looked at in one turn, at most.
const TIMERS_PER_TURN: u32 = 4096;

/// What a flow is offered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What becomes of its packets.
    pub action: Action,
    /// By which generation.
    pub generation: Generation,
    /// Packets that are expected of it in the next second.
    pub expected: u32,
    /// It was offered before, and found no place.
    pub again: bool,
    /// Of TCP: only segments that plainly go on with these numbers are forwarded; others come up. By the lower endpoint of the key, and by the higher one.
    pub windows: Option<Windows>,
}

/// Something that the data plane has to do, or to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The level has handled so many more packets of a flow. They are credited to it.
    Counted {
        /// The flow.
        id: FlowId,
        /// What was done with them.
        action: Action,
        /// Packets.
        packets: u64,
        /// Bytes of their frames.
        bytes: u64,
        /// Of those, packets and bytes that were dropped because what they carry is refused ([`Reason::TunnelInner`]).
        refused_inside: (u64, u64),
        /// How far its sides have come, of a TCP connection, if that was not said yet.
        sides: Sides,
        /// The numbers of a connection whose segments are compared with them, if they were not said yet. Instead of `sides`.
        windows: Option<Windows>,
    },
    /// The device does not take a flow.
    Stays {
        /// The flow.
        id: FlowId,
        /// Why.
        why: Stays,
    },
    /// Packets of flows at the host have gone on without it, all before this time: sessions are taken up with what comes from then on.
    Missed(Timestamp),
}

/// A flow is over and all of it is counted: to be finished and removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The flow.
    pub id: FlowId,
    /// Why it ends.
    pub reason: EndReason,
}

/// Packets with their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

impl Handled {
    const fn add(&mut self, packets: u64, bytes: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What a flow manager counts. All only grow, except `entries`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerCounters {
    /// Entries of the device in use.
    pub entries: u64,
    /// Flows offered that went on to the device.
    pub offered: u64,
    /// Offers that came to nothing, by their reason.
    pub stayed: [u64; Stays::ALL.len()],
    /// Flows that came up because another generation began.
    pub outdated: u64,
    /// Flows that came up because a function of theirs does not look after them any more, or begins anew.
    pub left: u64,
    /// Flows that came up so that busier ones find a place.
    pub gave_way: u64,
    /// What the device said of entries that are not there any more.
    pub strays: u64,
    /// Times that packets have gone on without the host, since it gave no sign of life.
    pub missed: u64,
    /// Readings of counts that were left out, since [`READ_EVERY`] was too short for all.
    pub unread: u64,
    /// Packets that the device forwarded.
    pub forwarded: Handled,
    /// Packets that the device dropped, by their reason; those without a flow as well.
    pub dropped: [Handled; Reason::COUNT],
    /// Those of them that had no flow.
    pub early: Handled,
    /// Packets that the device dropped for what they carry, which is among `dropped`: they are of the same frames.
    pub around: Handled,
}

impl Default for ManagerCounters {
    fn default() -> Self {
        ManagerCounters {
            entries: 0,
            offered: 0,
            stayed: [0; Stays::ALL.len()],
            outdated: 0,
            left: 0,
            gave_way: 0,
            strays: 0,
            missed: 0,
            unread: 0,
            forwarded: Handled::default(),
            dropped: [Handled::default(); Reason::COUNT],
            early: Handled::default(),
            around: Handled::default(),
        }
    }
}

impl ManagerCounters {
    fn stays(&mut self, why: Stays) {
        if let Some(count) = self.stayed.get_mut(why as usize) {
            *count += 1;
        }
    }

    fn handled(&mut self, action: Action, packets: u64, bytes: u64) {
        match action {
            Action::Forward | Action::Redirect(_) => self.forwarded.add(packets, bytes),
            Action::Drop(reason) => {
                if let Some(dropped) = self.dropped.get_mut(reason as usize) {
                    dropped.add(packets, bytes);
                }
            }
        }
    }
}

/// Of each side what was not told before. How a connection ends both say together.
fn news(told: Sides, now: Sides) -> Sides {
    let ([told_low, told_high], [low, high]) = (told, now);
    if told != now && now.iter().flatten().any(|side| side.fin.is_some()) {
        return now;
    }
    [low.filter(|_| low != told_low), high.filter(|_| high != told_high)]
}

/// Of so many packets in a time those in [`READ_EVERY`]. In a shorter time it is what came: that says little of the rest.
fn in_a_second(packets: u64, since: PacketDuration) -> u32 {
    let every = u128::from(READ_EVERY.as_nanos());
    let packets = u128::from(packets) * every / every.max(since.as_nanos().into());
    u32::try_from(packets).unwrap_or(u32::MAX)
}

/// Of so many more packets and bytes those that were dropped for what they carry. A device counts that first: what is counted of a packet that itself is not waits for the next time.
fn refused_of(now: (u64, u64), had: (u64, u64), more: (u64, u64)) -> (u64, u64) {
    (now.0.saturating_sub(had.0).min(more.0), now.1.saturating_sub(had.1).min(more.1))
}

/// A way once through all places, some at a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Sweep {
    next: u32,
    /// Places that have still to be looked at.
    owed: u32,
}

impl Sweep {
    /// All places are to be looked at from now on. One that is under way goes on from where it is: begun anew each time it would never come to the last ones.
    const fn begin(&mut self, known: u32) {
        self.owed = known;
    }

    /// The next place, of so many.
    fn step(&mut self, known: u32) -> Option<u32> {
        self.owed = self.owed.checked_sub(1)?;
        let at = self.next.checked_rem(known)?;
        self.next = at + 1;
        Some(at)
    }
}

/// See the module.
pub struct FlowManager {
    device: Box<dyn Device>,
    places: Places,
    requests: Vec<Request>,
    said: Vec<(u32, SunkId, Said)>,
    done: VecDeque<Done>,
    ended: VecDeque<Ended>,
    counters: ManagerCounters,
    generation: Generation,
    /// Where the next reads begin, until when their time is used, and whether a turn has left some.
    next_read: u32,
    read_until: Option<Timestamp>,
    reads_owed: bool,
    /// A turn has left timers.
    tasks_owed: bool,
    /// Where the next entry is looked for that gives way, and how many may in this turn.
    next_look: u32,
    give_way: u32,
    /// Looks for entries of other generations.
    outdated: Sweep,
    /// Functions whose flows come up, and looks for these.
    left: Path,
    leaving: Sweep,
    closed: bool,
}

impl FlowManager {
    /// For flows that a device holds, in a generation.
    #[must_use]
    pub fn new(device: Box<dyn Device>, generation: Generation) -> Self {
        let mut manager = FlowManager {
            places: Places::new(device.capabilities().entries),
            device,
            requests: Vec::new(),
            said: Vec::new(),
            done: VecDeque::new(),
            ended: VecDeque::new(),
            counters: ManagerCounters::default(),
            generation,
            next_read: 0,
            read_until: None,
            reads_owed: false,
            tasks_owed: false,
            next_look: 0,
            give_way: GIVE_WAY_PER_TURN,
            outdated: Sweep::default(),
            left: Path::EMPTY,
            leaving: Sweep::default(),
            closed: false,
        };
        manager.device.enter_generation(generation);
        manager
    }

    /// The level of its device.
    #[must_use]
    pub fn level(&self) -> Level {
        self.device.capabilities().level
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &ManagerCounters {
        &self.counters
    }

    /// Bytes of memory, in use and at most, without the device's. (What waits for a turn is in both: it is as much as a turn brings.)
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        let waiting = self.waiting();
        (self.places.bytes() + waiting, self.places.bytes_max() + waiting)
    }

    fn waiting(&self) -> usize {
        self.requests.capacity() * size_of::<Request>()
            + self.said.capacity() * size_of::<(u32, SunkId, Said)>()
            + self.done.capacity() * size_of::<Done>()
            + self.ended.capacity() * size_of::<Ended>()
    }

    /// Hands a flow that is at the host to the device. It goes on to come up until the device has answered.
    ///
    /// # Errors
    /// Why it stays; that is counted.
    pub fn offer<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        id: FlowId,
        offer: Offer,
        now: Timestamp,
    ) -> Result<(), Stays> {
        let result = self.try_offer(table, id, offer, now);
        match result {
            Ok(()) => self.counters.offered += 1,
            // A flow is counted once, however often it asks.
            Err(Stays::Full) if offer.again => {}
            Err(why) => self.counters.stays(why),
        }
        result
    }

    /// Counts a flow that ends without ever having been offered.
    pub fn never_offered(&mut self, why: Stays) {
        self.counters.stays(why);
    }

    fn try_offer<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        id: FlowId,
        Offer { action, generation, expected, windows, .. }: Offer,
        now: Timestamp,
    ) -> Result<(), Stays> {
        if self.closed {
            return Err(Stays::Ending);
        }
        let Some(key) = table.get(id).map(|entry| *entry.key()) else { return Err(Stays::Closed) };
        if let Some(why) = self.device.capabilities().refuses(&key, action) {
            return Err(why);
        }
        if windows.is_some() && !self.device.capabilities().windows {
            return Err(Stays::Window);
        }
        let Some(at) = self.places.reserve() else {
            self.make_room(table, expected, now);
            return Err(Stays::Full);
        };
        let sunk = match table.sink(id, self.level(), generation, now) {
            Ok(sunk) => sunk,
            Err(error) => {
                self.places.give_back(at);
                return Err(match error {
                    SinkError::Unanswered => Stays::Unanswered,
                    SinkError::There | SinkError::NoFlow | SinkError::Host => Stays::Taken,
                });
            }
        };
        let directions = directions(&key);
        let (credited, recent) = (Counts::default(), None);
        self.places.take(
            at,
            Place { sunk, action, generation, directions, windows, credited, read_at: now, recent },
        );
        let install = Install { key: DeviceKey::of(&key), action, generation, windows };
        self.requests.push(Request { place: at, sunk, wish: Wish::Install(install) });
        Ok(())
    }

    /// A flow of which so much is expected has found no place: one that handles little begins to come up.
    fn make_room<E: Default>(&mut self, table: &mut FlowTable<E>, expected: u32, now: Timestamp) {
        let known = self.places.known();
        if self.give_way == 0 || known == 0 {
            return;
        }
        let mut least: Option<(u32, SunkId)> = None;
        for _ in 0..LOOKS.min(known) {
            self.next_look = (self.next_look + 1) % known;
            // Of an entry that was not read yet nothing is known.
            let Some(Place { sunk, recent: Some(recent), .. }) = self.places.get(self.next_look) else {
                continue;
            };
            let settled =
                table.stay(sunk.flow()).is_some_and(|stay| stay.sunk == *sunk && !stay.step.in_removal());
            if settled && least.is_none_or(|(fewest, _)| *recent < fewest) {
                least = Some((*recent, *sunk));
            }
        }
        if let Some((recent, sunk)) = least
            && expected > recent.saturating_mul(GAIN)
            && table.raise(sunk.flow(), now)
        {
            self.give_way -= 1;
            self.counters.gave_way += 1;
        }
    }

    /// Entries of other generations are of no use any more.
    pub fn enter_generation(&mut self, generation: Generation) {
        if self.generation != generation {
            self.generation = generation;
            self.device.enter_generation(generation);
            self.outdated.begin(self.places.known());
        }
    }

    /// These functions do not look after their flows any more, or begin anew: flows on whose path one of them is come up, [`RAISES_PER_TURN`] entries at a turn. Until then their packets are
    /// handled as it had decided.
    pub fn leave(&mut self, functions: Path) {
        if !functions.is_empty() {
            self.left = self.left.or(functions);
            self.leaving.begin(self.places.known());
        }
    }

    /// How far the sides of a connection that is below have come, each if that was not said yet; `None`: it is not there. What was said is not repeated: the host may have got further since, by more
    /// than can be told from the numbers having gone round.
    pub fn sides<E: Default>(&mut self, table: &FlowTable<E>, id: FlowId) -> Option<Sides> {
        let sunk = table.stay(id)?.sunk;
        let at = self.places.of(sunk)?;
        let sides = self.device.sides(at, sunk)?;
        let told = &mut self.places.get_mut(at)?.credited.sides;
        Some(news(core::mem::replace(told, sides), sides))
    }

    /// The same of a connection whose segments are compared with its numbers. `None` as well if it is not compared.
    pub fn windows<E: Default>(&mut self, table: &FlowTable<E>, id: FlowId) -> Option<Windows> {
        let sunk = table.stay(id)?.sunk;
        let at = self.places.of(sunk)?;
        let windows = self.device.windows(at, sunk)?;
        let told = self.places.get_mut(at)?.credited.windows.replace(windows);
        (told != Some(windows)).then_some(windows)
    }

    /// Whether segments of a connection that is below are compared with its numbers.
    #[must_use]
    pub fn compares<E: Default>(&self, table: &FlowTable<E>, id: FlowId) -> bool {
        let place = table.stay(id).and_then(|stay| self.places.get(self.places.of(stay.sunk)?));
        place.is_some_and(|place| place.windows.is_some())
    }

    /// The host has judged a segment of such a connection that came up, and these are its numbers now: those below go forward to them, so that what answers the segment is
    /// compared with what it was.
    pub fn publish<E: Default>(&mut self, table: &FlowTable<E>, id: FlowId, windows: &Windows) {
        let Some(sunk) = table.stay(id).map(|stay| stay.sunk) else { return };
        let Some(at) = self.places.of(sunk) else { return };
        if let Some(known) = self.places.get_mut(at).and_then(|place| place.windows.as_mut()) {
            *known = *windows;
            self.device.publish(at, sunk, windows);
        }
    }

    /// Whether the device refuses packets without a flow.
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.device.is_early()
    }

    /// The host lets packets of a flow go on: see [`Device::mark`].
    #[must_use]
    pub fn mark(&self, key: &bartizan_flow::FlowKey) -> Option<Mark> {
        self.device.mark(&DeviceKey::of(key))
    }

    /// What was refused of packets without a flow by the list of a generation, since the last call for this or an earlier one. `reason`: of an outcome, by its number.
    pub fn early(
        &mut self,
        generation: Generation,
        outcomes: u32,
        reason: impl Fn(u32) -> Option<Reason>,
        each: &mut dyn FnMut(u32, u64, u64),
    ) {
        let FlowManager { device, counters, .. } = self;
        device.early(generation, outcomes, &mut |outcome, packets, bytes| {
            if let Some(reason) = reason(outcome) {
                counters.handled(Action::Drop(reason), packets, bytes);
                counters.early.add(packets, bytes);
            }
            each(outcome, packets, bytes);
        });
    }

    /// One turn: what is due of removals, counts, and generations goes to the device; what it has said is done. Then [`FlowManager::next_done`] and
    /// [`FlowManager::next_ended`] have what the data plane is to do.
    pub fn turn<E: Default>(&mut self, table: &mut FlowTable<E>, now: Timestamp) {
        self.give_way = GIVE_WAY_PER_TURN;
        self.raise_outdated(table, now);
        self.raise_left(table, now);
        self.take_tasks(table, now);
        self.read_some(table, now);
        self.submit(now);
        self.hear(table, now);
        if self.device.has_missed() {
            self.counters.missed += 1;
            self.done.push_back(Done::Missed(now));
        }
    }

    fn submit(&mut self, now: Timestamp) {
        if !self.requests.is_empty() {
            for Request { place, wish, .. } in &mut self.requests {
                // Segments have come since the flow was offered.
                if let Wish::Install(install) = wish {
                    install.windows = self.places.get(*place).and_then(|place| place.windows);
                }
            }
            self.device.submit(&self.requests, now);
            self.requests.clear();
        }
    }

    /// Takes a flow up before the packet in hand goes on: what answers that packet is the host's. With a device that does at once what it is asked (XDP) its packets go
    /// up when this returns. Flows that have ended meanwhile can wait for the next turn.
    pub fn raise_now<E: Default>(&mut self, table: &mut FlowTable<E>, id: FlowId, now: Timestamp) {
        // An entry that is being made is there first, and is marked then.
        self.submit(now);
        self.hear(table, now);
        if table.raise(id, now) {
            self.take_tasks(table, now);
            self.submit(now);
            self.hear(table, now);
        }
    }

    /// What the data plane is to know. To be asked until there is nothing, after each call that talks to the device.
    pub fn next_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Flows that are to be finished, when no packet is in hand. To be asked until there is nothing, after each turn, when there is nothing more to know.
    pub fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Takes all flows up: the run is about to end. What the device has counted of them is credited, and none is offered any more. The host goes on with them.
    pub fn close<E: Default>(&mut self, table: &mut FlowTable<E>, now: Timestamp) {
        self.closed = true;
        self.submit(now);
        self.device.close(now);
        self.hear(table, now);
    }

    fn take_tasks<E: Default>(&mut self, table: &mut FlowTable<E>, now: Timestamp) {
        let mut budget = TIMERS_PER_TURN;
        while let Some(task) = table.next_task(now, &mut budget) {
            match task {
                Task::End { id, reason } => self.ended.push_back(Ended { id, reason }),
                Task::Tell { sunk, command } => {
                    let Some(place) = self.places.of(sunk) else { continue };
                    let wish = match command {
                        Command::Mark => Wish::Mark,
                        Command::Read => Wish::Last,
                        Command::Delete => Wish::Delete,
                    };
                    self.requests.push(Request { place, sunk, wish });
                }
            }
        }
        self.tasks_owed = budget == 0;
    }

    /// Whether a turn has left something undone that is due. Who drives it is to come back soon, also where no packets come.
    #[must_use]
    pub const fn owes(&self) -> bool {
        self.reads_owed || self.tasks_owed || self.outdated.owed > 0 || self.leaving.owed > 0
    }

    /// How many entries' counts are to be read in this turn: as many as the time has room for that no readings were asked for yet. Sets what is owed then.
    fn reads_due(&mut self, known: u32, now: Timestamp) -> u32 {
        let until = *self.read_until.get_or_insert(now);
        let (since, every) = (u128::from(now.since(until).as_nanos()), u128::from(READ_EVERY.as_nanos()));
        self.reads_owed = false;
        if known == 0 || since == 0 {
            self.read_until = Some(now);
            return 0;
        }
        let owed = since * u128::from(known) / every;
        let unread = owed.saturating_sub(known.into());
        self.counters.unread = self.counters.unread.saturating_add(u64::try_from(unread).unwrap_or(u64::MAX));
        let owed = u32::try_from(owed - unread).unwrap_or(known);
        let reads = owed.min(READS_PER_TURN);
        // Only the time of those that are asked for is used.
        let used = (u128::from(reads) + unread) * every / u128::from(known);
        self.read_until = Some(until + PacketDuration::from_nanos(u64::try_from(used).unwrap_or(u64::MAX)));
        self.reads_owed = reads < owed;
        reads
    }

    /// Asks for the counts of the entries that are due. An entry whose flow the table has given up, because the device did
    /// not answer in time, is told to go until it does: else it would handle packets for good that nobody decides on.
    fn read_some<E: Default>(&mut self, table: &FlowTable<E>, now: Timestamp) {
        let known = self.places.known();
        for _ in 0..self.reads_due(known, now) {
            let at = self.next_read % known;
            self.next_read = at + 1;
            if let Some(Place { sunk, .. }) = self.places.get(at).copied() {
                let is_known = table.stay(sunk.flow()).is_some_and(|stay| stay.sunk == sunk);
                let wish = if is_known { Wish::Read } else { Wish::Delete };
                self.requests.push(Request { place: at, sunk, wish });
            }
        }
    }

    fn raise_outdated<E: Default>(&mut self, table: &mut FlowTable<E>, now: Timestamp) {
        for _ in 0..RAISES_PER_TURN {
            let Some(at) = self.outdated.step(self.places.known()) else { return };
            if let Some(place) = self.places.get(at)
                && place.generation != self.generation
                && table
                    .stay(place.sunk.flow())
                    .is_some_and(|stay| stay.sunk == place.sunk && !stay.step.in_removal())
                && table.raise(place.sunk.flow(), now)
            {
                self.counters.outdated += 1;
            }
        }
    }

    fn raise_left<E: Default>(&mut self, table: &mut FlowTable<E>, now: Timestamp) {
        for _ in 0..RAISES_PER_TURN {
            let Some(at) = self.leaving.step(self.places.known()) else {
                self.left = Path::EMPTY;
                return;
            };
            if let Some(sunk) = self.places.get(at).map(|place| place.sunk)
                && table.stay(sunk.flow()).is_some_and(|stay| stay.sunk == sunk && !stay.step.in_removal())
                && table.get(sunk.flow()).is_some_and(|entry| !entry.path.and(self.left).is_empty())
                && table.raise(sunk.flow(), now)
            {
                self.counters.left += 1;
            }
        }
    }

    fn hear<E: Default>(&mut self, table: &mut FlowTable<E>, now: Timestamp) {
        let mut said = core::mem::take(&mut self.said);
        self.device.poll(now, &mut said);
        for (at, sunk, what) in said.drain(..) {
            if self.places.get(at).is_none_or(|place| place.sunk != sunk) {
                self.counters.strays += 1;
                continue;
            }
            match what {
                Said::Counts(counts) => self.credit(table, at, &counts, now),
                Said::Answer(Answered::Done(answer)) => {
                    table.answered(sunk, answer, now);
                    if answer == Answer::Installed
                        && let Some(windows) = self.places.get(at).and_then(|place| place.windows)
                    {
                        // And since it was asked for.
                        self.device.publish(at, sunk, &windows);
                    }
                    if matches!(answer, Answer::Deleted | Answer::Refused) {
                        self.places.clear(at);
                    }
                }
                Said::Answer(Answered::Refused(why)) => {
                    table.answered(sunk, Answer::Refused, now);
                    self.places.clear(at);
                    self.counters.stays(why);
                    self.done.push_back(Done::Stays { id: sunk.flow(), why });
                }
            }
        }
        self.said = said;
        self.counters.entries = self.places.used() as u64;
    }

    /// Credits what an entry has counted since the last time.
    fn credit<E: Default>(&mut self, table: &mut FlowTable<E>, at: u32, counts: &Counts, now: Timestamp) {
        let Some(place) = self.places.get_mut(at) else { return };
        let Place { sunk, action, directions, .. } = *place;
        let before = core::mem::replace(&mut place.credited, *counts);
        let (told, told_windows) = (before.sides, before.windows);
        let refused_before = before.refused_inside;
        let (mut packets, mut bytes, mut known) = (0u64, 0u64, true);
        let ends = counts.packets.iter().zip(&counts.bytes).zip(&counts.last_seen);
        let before = before.packets.iter().zip(&before.bytes);
        for (direction, (((now_packets, now_bytes), seen), (had_packets, had_bytes))) in
            directions.into_iter().zip(ends.zip(before))
        {
            let more = now_packets.saturating_sub(*had_packets);
            let more_bytes = now_bytes.saturating_sub(*had_bytes);
            if more > 0 {
                known &= table.credit(sunk, direction, more, more_bytes, *seen);
                packets += more;
                bytes += more_bytes;
            }
        }
        if let Some(place) = self.places.get_mut(at) {
            let since = now.since(core::mem::replace(&mut place.read_at, now));
            place.recent = Some(in_a_second(packets, since));
        }
        if packets == 0 {
            // A packet that is not counted yet may have brought some already: it is told of with that.
            if let Some(place) = self.places.get_mut(at) {
                (place.credited.sides, place.credited.windows) = (told, told_windows);
                place.credited.refused_inside = refused_before;
            }
            return;
        }
        let refused_inside = refused_of(counts.refused_inside, refused_before, (packets, bytes));
        if let Some(place) = self.places.get_mut(at) {
            let (packets, bytes) = refused_inside;
            place.credited.refused_inside = (refused_before.0 + packets, refused_before.1 + bytes);
        }
        self.counters.handled(action, packets - refused_inside.0, bytes - refused_inside.1);
        self.counters.around.add(refused_inside.0, refused_inside.1);
        if known {
            let sides = news(told, counts.sides);
            let windows = counts.windows.filter(|windows| told_windows != Some(*windows));
            self.done.push_back(Done::Counted {
                id: sunk.flow(),
                action,
                packets,
                bytes,
                refused_inside,
                sides,
                windows,
            });
        }
    }
}

#[cfg(test)]
mod tests;

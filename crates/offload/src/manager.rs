// SPDX-License-Identifier: Apache-2.0
//! The flow manager of one worker: hands decided flows to a device, credits the device's counts to the flow
//! table, and takes flows up again. Where a link has several devices, a flow that one refuses is offered to
//! the next.
//!
//! A flow goes down when the data plane offers it ([`FlowManager::offer`]): its next packet's verdict is
//! known, and a packet has come since, so it is not silent. It comes up again when it ends, when another
//! generation begins ([`FlowManager::enter_generation`]), and when the run ends ([`FlowManager::close`]). The
//! flow table keeps its steps ([`bartizan_flow::table::removal`]).
//!
//! **Counting.** Counts of all entries are read once in [`READ_EVERY`], a few at a turn, and once more when
//! an entry goes. The difference is credited to the flow, so timeouts, records and rules see sums over all
//! levels. The actions of the device on these packets are counted here ([`ManagerCounters`]).
//!
//! **Turns.** The work of one turn is bounded. Work left undone is due ([`FlowManager::has_due_work`]): the
//! caller then takes the next turn soon, even without packets. At most one round of readings is made up for:
//! those left out are counted.
//!
//! **Generations.** A device passes up packets whose entry is of another generation at once; the flow is
//! judged anew at the host, and offered again. Its old entry is removed meanwhile, [`RAISES_PER_TURN`] at a
//! turn. If another generation comes before all are gone, the sweep goes on for one round from its present
//! place, so each entry is met whatever the pace of generations.
//!
//! An entry whose flow was decided as before goes on in place instead, where the device can do that
//! ([`FlowManager::renew`]): it has [`RENEW_FOR`] for that.
//!
//! **Several levels.** A flow goes to the first device that takes it, in their order: those nearest to the
//! wire first. A flow that one refuses for its own reasons ([`OffloadDenied::is_of_device`]), at once or
//! later, is offered to the next one. The flow table ensures that a flow has one entry, at one level. A flow
//! stays at its level, even when there is room nearer to the wire later.
//!
//! **Short of places.** A flow that finds no place, at any level, takes that of a silent one: of [`LOOKS`]
//! entries the one with the least traffic between its latest two readings comes up, if the flow is expected
//! to bring more than [`GAIN`] times as much in the next second. The expectation is the flow's traffic per
//! second so far; its age is no better estimate than that (Lindy's law). An entry that its device has
//! reported as silent is taken without a search. The place is free after the steps of a removal, for the next
//! flow offered then.

mod backend;
mod counters;
mod credit;

use crate::device::{Action, Device, Sides, Wish};
use crate::key::DeviceKey;
use crate::marks::Mark;
use crate::stays::OffloadDenied;
use backend::Backend;
use bartizan_base::{FlowId, Generation, Level, PacketDuration, Path, Reason, Timestamp};
use bartizan_flow::level::{Command, SunkId, Task};
use bartizan_flow::{EndReason, FlowKey, FlowTable};
use bartizan_packet::windows::Windows;
pub use counters::{LevelFacts, ManagerCounters, PacketTotals};
use credit::{CreditLedger, OfferRefusal};
use std::collections::VecDeque;

/// The time in which the counts of all entries are read once.
pub const READ_EVERY: PacketDuration = PacketDuration::from_secs(1);
/// The most counts that are read in one turn.
pub const READS_PER_TURN: u32 = 4096;
/// Maximum number of flows of another generation that begin to return to the host in one turn.
pub const RAISES_PER_TURN: u32 = 1024;
/// The time that entries of another generation wait for a packet of their flows, which may renew them in
/// place, before they begin to return to the host; if the device supports renewal.
pub const RENEW_FOR: PacketDuration = PacketDuration::from_secs(1);
/// Entries examined to find one to evict.
pub const LOOKS: u32 = 8;
/// The factor by which a flow's expected traffic has to exceed that of the entry that it evicts.
pub const GAIN: u32 = 2;
/// The most entries that are evicted in one turn.
pub const GIVE_WAY_PER_TURN: u32 = 64;
/// The number of entries reported as silent that are remembered, the latest.
pub const IDLE_KEPT: usize = 1024;
/// The most timers that are handled in one turn.
const TIMERS_PER_TURN: u32 = 4096;

/// An offer of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The handling of its packets.
    pub action: Action,
    /// The generation that decided.
    pub generation: Generation,
    /// Number of the flow's packets expected in the next second.
    pub expected: u32,
    /// It was offered before, and found no place.
    pub again: bool,
    /// For TCP, of the lower endpoint of the key, and of the higher one: only segments that continue these
    /// sequence numbers are forwarded; others are handed up.
    pub windows: Option<Windows>,
}

/// A result for the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The level has handled so many more packets of a flow, which are credited to it.
    Counted {
        /// The flow.
        id: FlowId,
        /// The action on them.
        action: Action,
        /// Packets.
        packets: u64,
        /// Bytes of their frames.
        bytes: u64,
        /// Packets and bytes among those, dropped because their inner packet is refused
        /// ([`Reason::TunnelInner`]).
        refused_inside: (u64, u64),
        /// The progress of its sides, of a TCP connection, if it was not reported yet.
        sides: Sides,
        /// The numbers of a connection whose segments are compared with them, if they were not reported yet.
        /// Instead of `sides`.
        windows: Option<Windows>,
    },
    /// No device accepts a flow.
    Stays {
        /// The flow.
        id: FlowId,
        /// The reason.
        why: OffloadDenied,
    },
    /// Packets of flows at the host have passed without it, all before this time: sessions are picked up with
    /// the packets that follow.
    Missed(Timestamp),
}

/// A flow that is over and fully counted: the data plane has to finish and remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The flow.
    pub id: FlowId,
    /// The reason of its end.
    pub reason: EndReason,
}

/// The error that a level already has a device, or is the host's: a manager has one device at each other
/// level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelTaken(pub Level);

impl core::fmt::Display for LevelTaken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "flow manager: there is a device at level `{}` already; give it devices of different levels below the host",
            self.0.name()
        )
    }
}

impl core::error::Error for LevelTaken {}

/// The flow manager of one worker: hands decided flows to devices, credits the devices' counts to the flow
/// table, and takes flows up again.
pub struct FlowManager {
    /// The level nearest to the wire comes first.
    levels: Vec<Backend>,
    ledger: CreditLedger,
    ended: VecDeque<Ended>,
    generation: Generation,
    /// Whether the last turn left timers.
    tasks_owed: bool,
    /// The number of entries that may still be evicted in this turn.
    give_way: u32,
    /// Functions whose flows have to come up.
    left: Path,
    closed: bool,
}

impl FlowManager {
    /// A manager for one device, in a generation.
    #[must_use]
    pub fn new(device: Box<dyn Device>, generation: Generation) -> Self {
        FlowManager {
            levels: vec![Backend::new(device, generation)],
            ledger: CreditLedger::default(),
            ended: VecDeque::new(),
            generation,
            tasks_owed: false,
            give_way: GIVE_WAY_PER_TURN,
            left: Path::EMPTY,
            closed: false,
        }
    }

    /// Adds a device for flows that the devices so far refuse.
    ///
    /// # Errors
    /// There is a device at its level already.
    pub fn spilling_to(mut self, device: Box<dyn Device>) -> Result<Self, LevelTaken> {
        let level = device.capabilities().level;
        if level == Level::Host || self.levels.iter().any(|other| other.level() == level) {
            return Err(LevelTaken(level));
        }
        self.levels.push(Backend::new(device, self.generation));
        Ok(self)
    }

    /// The manager's levels, the nearest to the wire first.
    pub fn levels(&self) -> impl Iterator<Item = LevelFacts<'_>> {
        self.levels.iter().map(Backend::facts)
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &ManagerCounters {
        &self.ledger.counters
    }

    /// Bytes of memory, in use and at most, without the devices'. (Both include requests and reports that
    /// wait for a turn: as many as a turn brings.)
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        let waiting = self.ledger.done.capacity() * size_of::<Done>()
            + self.ledger.refused.capacity() * size_of::<OfferRefusal>()
            + self.ended.capacity() * size_of::<Ended>();
        self.levels.iter().fold((waiting, waiting), |(now, most), level| {
            let waiting = level.waiting();
            (now + level.places.bytes() + waiting, most + level.places.bytes_max() + waiting)
        })
    }

    /// The level of a stay.
    fn level_of(&mut self, sunk: SunkId) -> Option<&mut Backend> {
        self.levels.iter_mut().find(|level| level.level() == sunk.level())
    }

    // --- down --------------------------------------------------------------------------------

    /// Hands a flow that is at the host to a device. Its packets are handed up until the device has
    /// replied.
    ///
    /// # Errors
    /// The reason why it stays, which is counted.
    pub fn offer<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        id: FlowId,
        offer: Offer,
        now: Timestamp,
    ) -> Result<(), OffloadDenied> {
        let result = match table.get(id).map(|entry| *entry.key()) {
            _ if self.closed => Err(OffloadDenied::Ending),
            None => Err(OffloadDenied::Closed),
            Some(key) => self.offload_flow(table, id, &key, &offer, 0, now),
        };
        match result {
            Ok(()) => self.ledger.counters.offered += 1,
            // A flow is counted once, however often it is offered.
            Err(OffloadDenied::Full) if offer.again => {}
            Err(why) => self.ledger.counters.stays(why),
        }
        result
    }

    /// Counts a flow that ends without ever having been offered.
    pub fn never_offered(&mut self, why: OffloadDenied) {
        self.ledger.counters.stays(why);
    }

    /// Hands a flow to the first device that takes it, from number `first` on. If none does because it is
    /// full, an entry with little traffic is evicted.
    fn offload_flow<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        id: FlowId,
        key: &FlowKey,
        offer: &Offer,
        first: usize,
        now: Timestamp,
    ) -> Result<(), OffloadDenied> {
        let mut stays = None;
        for (number, level) in self.levels.iter_mut().enumerate().skip(first) {
            match level.take(table, id, key, offer, now) {
                Ok(()) => {
                    self.ledger.counters.spilled += u64::from(number > 0);
                    return Ok(());
                }
                Err(why) if !why.is_of_device() => return Err(why),
                Err(why) => stays = Some(stays.map_or(why, |before| of_both(before, why))),
            }
        }
        if stays == Some(OffloadDenied::Full) {
            self.make_room(table, offer.expected, now);
        }
        Err(stays.unwrap_or(OffloadDenied::NoDevice))
    }

    fn make_room<E: Default>(&mut self, table: &mut FlowTable<E>, expected: u32, now: Timestamp) {
        if self.give_way > 0 && self.levels.iter_mut().any(|level| level.make_room(table, expected, now)) {
            self.give_way -= 1;
            self.ledger.counters.gave_way += 1;
        }
    }

    /// Offers a flow that a device was requested to take and has refused to the next one, with the same
    /// decision.
    fn spill<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        OfferRefusal { place, why, wanted }: OfferRefusal,
        now: Timestamp,
    ) {
        let id = place.sunk.flow();
        let next = self.levels.iter().position(|level| level.level() == place.sunk.level());
        let next = next.map_or(self.levels.len(), |number| number + 1);
        let holds = wanted && why.is_of_device() && place.generation == self.generation && !self.closed;
        let key = table.get(id).map(|entry| *entry.key()).filter(|_| holds && next < self.levels.len());
        let result = key.map_or(Err(why), |key| {
            let (action, generation, windows) = (place.action, place.generation, place.windows);
            let offer = Offer { action, generation, expected: 0, again: false, windows };
            self.offload_flow(table, id, &key, &offer, next, now).map_err(|later| of_both(why, later))
        });
        if let Err(why) = result {
            self.ledger.counters.stays(why);
            self.ledger.done.push_back(Done::Stays { id, why });
        }
    }

    // --- while it is there -------------------------------------------------------------------

    /// Whether the entry of a flow is of another generation, and can be renewed in place.
    #[must_use]
    pub fn is_outdated<E: Default>(&self, table: &FlowTable<E>, id: FlowId) -> bool {
        let Some(sunk) = table.stay(id).map(|stay| stay.sunk) else { return false };
        let level = self.levels.iter().find(|level| level.level() == sunk.level());
        level.is_some_and(|level| level.is_outdated(table, sunk))
    }

    /// Renews the entry of an offloaded flow in place after this generation has evaluated the flow, if its
    /// action is the same. `false`: it differs, and the flow begins to return to the host.
    pub fn renew<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        id: FlowId,
        offer: &Offer,
        now: Timestamp,
    ) -> bool {
        let Some(sunk) = table.stay(id).map(|stay| stay.sunk) else { return false };
        if self.closed || offer.generation != self.generation || !self.is_outdated(table, id) {
            return false;
        }
        let renewed = self.level_of(sunk).is_some_and(|level| level.renew(table, sunk, offer));
        let raised = !renewed && table.raise(id, now);
        self.ledger.counters.renewed += u64::from(renewed);
        self.ledger.counters.outdated += u64::from(raised);
        renewed
    }

    /// Enters a generation: entries of others become useless.
    pub fn enter_generation(&mut self, generation: Generation) {
        if self.generation != generation {
            self.generation = generation;
            self.levels.iter_mut().for_each(|level| level.enter_generation(generation));
        }
    }

    /// Returns flows with one of these functions on their path to the host, because the functions leave or
    /// restart: [`RAISES_PER_TURN`] entries at a turn. Until then their packets are handled by the old
    /// decision.
    pub fn leave(&mut self, functions: Path) {
        if !functions.is_empty() {
            self.left = self.left.or(functions);
            self.levels.iter_mut().for_each(|level| level.leaving.begin(level.places.known()));
        }
    }

    /// The progress of the sides of a connection that is below, each if it was not reported yet; `None`: it
    /// is not below. A report is not repeated: the host may have advanced since, by so much that the
    /// difference of wrapped numbers is ambiguous.
    pub fn sides<E: Default>(&mut self, table: &FlowTable<E>, id: FlowId) -> Option<Sides> {
        let sunk = table.stay(id)?.sunk;
        self.level_of(sunk)?.sides(sunk)
    }

    /// The TCP window state of a connection whose segments are compared with it, if it was not reported yet.
    /// `None` also if segments are not compared.
    pub fn windows<E: Default>(&mut self, table: &FlowTable<E>, id: FlowId) -> Option<Windows> {
        let sunk = table.stay(id)?.sunk;
        self.level_of(sunk)?.windows(sunk)
    }

    /// Whether segments of a connection that is below are compared with its TCP window state.
    #[must_use]
    pub fn compares<E: Default>(&self, table: &FlowTable<E>, id: FlowId) -> bool {
        let Some(sunk) = table.stay(id).map(|stay| stay.sunk) else { return false };
        let place = self.levels.iter().find_map(|level| level.place_of(sunk));
        place.is_some_and(|place| place.windows.is_some())
    }

    /// Advances the TCP window state below to `windows`, after the host has judged a segment of such a
    /// connection, so that the replies to it are compared with the new state.
    pub fn publish<E: Default>(&mut self, table: &FlowTable<E>, id: FlowId, windows: &Windows) {
        let Some(sunk) = table.stay(id).map(|stay| stay.sunk) else { return };
        if let Some(level) = self.level_of(sunk) {
            level.publish(sunk, windows);
        }
    }

    /// Whether a device refuses packets without a flow.
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.levels.iter().any(|level| level.device.is_early())
    }

    /// Marks a flow whose packets the host passes: see [`Device::mark`].
    #[must_use]
    pub fn mark(&self, key: &FlowKey) -> Option<Mark> {
        self.levels.iter().find(|level| level.device.is_early())?.device.mark(&DeviceKey::of(key))
    }

    /// Calls `each` for the packets without a flow that the list of a generation has refused since the last
    /// call for this or an earlier one. `reason` returns that of an outcome, by its number.
    pub fn early(
        &mut self,
        generation: Generation,
        outcomes: u32,
        reason: impl Fn(u32) -> Option<Reason>,
        each: &mut dyn FnMut(u32, u64, u64),
    ) {
        let FlowManager { levels, ledger: CreditLedger { counters, .. }, .. } = self;
        for level in levels {
            level.device.early(generation, outcomes, &mut |outcome, packets, bytes| {
                if let Some(reason) = reason(outcome) {
                    counters.handled(Action::Drop(reason), packets, bytes);
                    counters.early.add(packets, bytes);
                }
                each(outcome, packets, bytes);
            });
        }
    }

    // --- turns -------------------------------------------------------------------------------

    /// One turn: due removals, readings, and generations go to the devices; their reports are handled. Then
    /// [`FlowManager::next_done`] and [`FlowManager::next_ended`] have the results for the data plane.
    pub fn turn<E: Default>(&mut self, table: &mut FlowTable<E>, now: Timestamp) {
        self.give_way = GIVE_WAY_PER_TURN;
        for level in &mut self.levels {
            self.ledger.counters.outdated += level.raise_outdated(table, now);
            self.ledger.counters.left += level.raise_left(table, self.left, now);
        }
        if self.levels.iter().all(|level| level.leaving.owed == 0) {
            self.left = Path::EMPTY;
        }
        self.take_tasks(table, now);
        for level in &mut self.levels {
            let unread = &mut self.ledger.counters.unread;
            *unread = unread.saturating_add(level.read_some(table, now));
        }
        self.poll_devices(table, now);
        let missed = self.levels.iter_mut().fold(false, |missed, level| level.device.has_missed() | missed);
        if missed {
            self.ledger.counters.missed += 1;
            self.ledger.done.push_back(Done::Missed(now));
        }
    }

    /// Sends the requests to the devices, and handles their reports. A flow that one refuses at once is
    /// offered to another at once, so a caller waits for a flow's entry for one call only.
    fn poll_devices<E: Default>(&mut self, table: &mut FlowTable<E>, now: Timestamp) {
        for _ in 0..self.levels.len() {
            for level in &mut self.levels {
                level.submit(now);
                level.poll_replies(table, now, &mut self.ledger);
            }
            if self.ledger.refused.is_empty() {
                break;
            }
            while let Some(refused) = self.ledger.refused.pop() {
                self.spill(table, refused, now);
            }
        }
        self.ledger.counters.entries = self.levels.iter().map(|level| level.places.used() as u64).sum();
    }

    /// Takes a flow up before the current packet leaves: the packets that answer it are the host's. With a
    /// device that handles requests at once (XDP) its packets go up when this returns. Flows that have ended
    /// meanwhile can wait for the next turn.
    pub fn raise_now<E: Default>(&mut self, table: &mut FlowTable<E>, id: FlowId, now: Timestamp) {
        // An entry that is being made has to exist before it is marked.
        self.poll_devices(table, now);
        if table.raise(id, now) {
            self.take_tasks(table, now);
            self.poll_devices(table, now);
        }
    }

    /// The next result for the data plane. Call it until there is none, after each call that talks to the
    /// device.
    pub fn next_done(&mut self) -> Option<Done> {
        self.ledger.done.pop_front()
    }

    /// The next flow to finish. Call it while no packet is being handled, until there is none, after each
    /// turn, when [`FlowManager::next_done`] has no more.
    pub fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Returns all flows to the host before the end of the run. Their counters on the devices are credited,
    /// and no flow is offered any more.
    pub fn close<E: Default>(&mut self, table: &mut FlowTable<E>, now: Timestamp) {
        self.closed = true;
        for level in &mut self.levels {
            level.submit(now);
            level.device.close(now);
        }
        self.poll_devices(table, now);
    }

    fn take_tasks<E: Default>(&mut self, table: &mut FlowTable<E>, now: Timestamp) {
        let mut budget = TIMERS_PER_TURN;
        while let Some(task) = table.next_task(now, &mut budget) {
            match task {
                Task::End { id, reason } => self.ended.push_back(Ended { id, reason }),
                Task::Tell { sunk, command } => {
                    let wish = match command {
                        Command::Mark => Wish::Mark,
                        Command::Read => Wish::Last,
                        Command::Delete => Wish::Delete,
                    };
                    if let Some(level) = self.level_of(sunk) {
                        level.queue_request(sunk, wish);
                    }
                }
            }
        }
        self.tasks_owed = budget == 0;
    }

    /// Whether a turn has left due work undone. The caller should take the next turn soon, even without
    /// packets.
    #[must_use]
    pub fn has_due_work(&self) -> bool {
        self.tasks_owed || self.levels.iter().any(Backend::has_due_work)
    }
}

/// Chooses between the reasons of two devices: the one that allows another attempt.
const fn of_both(before: OffloadDenied, later: OffloadDenied) -> OffloadDenied {
    if before.is_lasting() { later } else { before }
}

// SPDX-License-Identifier: Apache-2.0
//! The flow table of one worker: a fixed number of entries, reserved at start, touched as it fills.
//!
//! Entries, timers and index are three arrays whose address space is reserved when the table is made; pages
//! are touched only as flows use them and nothing is allocated per flow. A [`FlowId`] is the entry's index.
//! Ended entries are reused, last ended first, while they are in the cache.
//!
//! **Timeouts** use timer wheels, one per protocol and state, with more for unopened and for offloaded flows.
//! A packet only writes `last_seen`; when the timer fires and the flow was used since, the timer is armed
//! again. (The exception are TCP connections that are not established: they have few packets, and their
//! timers are kept in the order of use.) A flow that has timed out is not found by a packet either
//! ([`Find::Stale`]), so results do not depend on the frequency of [`FlowTable::expire`]. In emergency mode
//! the wheels are read ahead by the difference of both timeouts, without touching a timer.
//!
//! **Policy of a full table** ([`WhenFull`]): refuse new flows, or end the flow nearest to its timeout, first
//! among unopened ones, then closed, new, established, bypassed ones, so a flood of first packets evicts
//! itself before it evicts a connection, its oldest first: a client that just opens a connection is not
//! affected. The search visits at most [`EVICTION_SCAN`] entries. Either way emergency mode begins, and ends
//! when enough room is free. All of this is counted.
//!
//! **Levels** below the host have entries for offloaded flows ([`FlowTable::sink`]); see [`removal`].
//!
//! The caller handles the end of a flow (logs, reassembly, rules at the end of a stream): the table names the
//! flow ([`Find::Stale`], [`Insert::Evict`], [`FlowTable::next_due`]), the caller finishes it and calls
//! [`FlowTable::remove`]. [`FlowTable::find_or_insert`] and [`FlowTable::expire`] wrap this for callers that
//! need only a closure.

pub(crate) mod ending;
mod interface;
pub mod moving;
pub mod removal;

pub use interface::{
    Accounted, EVICTION_SCAN, Find, FlowTableConfig, Insert, Lookup, MAX_CAPACITY, TableError, TableMemory,
    WhenFull,
};

use crate::counters::FlowTableCounters;
use crate::entry::{EndReason, FlowEntry, FlowFlags, FlowState};
use crate::index::Index;
use crate::key::{FlowHash, FlowHasher, FlowKey, protocol};
use crate::level::{LevelCounters, LevelWaits, Levels, Step};
use crate::prefetch::prefetch_lines;
use crate::timeouts::{CLASSES, class, sunk_class, unopened_class};
use crate::wheel::{Tick, TimerLink, TimerWheel};
use bartizan_base::{
    Direction, Fid, FlowId, Generation, Level, PacketDuration, Path, PerDirection, Timestamp,
};

/// The flow table of one worker; `E` is the data plane's state of a flow.
pub struct FlowTable<E> {
    entries: Vec<FlowEntry<E>>,
    links: Vec<TimerLink>,
    /// Stack of ended entries. Room for `capacity` is reserved with the rest.
    free: Vec<u32>,
    index: Index,
    /// One wheel for each class, and one for removals from levels.
    wheels: Box<[TimerWheel]>,
    timeouts: [(PacketDuration, PacketDuration); CLASSES],
    /// The tick up to which timers have been checked, if no earlier one was armed since.
    looked_at: Option<Tick>,
    /// The class whose wheel `next_due` reads first, so that a small budget starves none.
    turn: usize,
    hasher: FlowHasher,
    when_full: WhenFull,
    recovery: u32,
    capacity: u32,
    /// Part of the capacity kept for flows that moved to other tables and may return.
    kept_room: u32,
    emergency: bool,
    serial: u64,
    counters: FlowTableCounters,
    /// The state of offloaded flows at lower levels, by entry. Empty until the first offload, which reserves
    /// its address space; pages are touched as flows are offloaded.
    below: Vec<Option<Box<Levels>>>,
    /// Number of flows in it.
    kept_below: usize,
    waits: LevelWaits,
    level_counters: LevelCounters,
    /// Number of flows that leave a level to make room.
    room_coming: u32,
}

impl<E> core::fmt::Debug for FlowTable<E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FlowTable")
            .field("capacity", &self.capacity)
            .field("active", &self.counters.active)
            .field("emergency", &self.emergency)
            .finish_non_exhaustive()
    }
}

impl<E: Default> FlowTable<E> {
    /// Reserves the table.
    ///
    /// # Errors [`TableError`] when the capacity is out of range or the address space is exhausted.
    pub fn new(config: &FlowTableConfig) -> Result<Self, TableError> {
        let capacity = config.capacity;
        if capacity == 0 || capacity > MAX_CAPACITY {
            return Err(TableError::Capacity { capacity });
        }
        let room = capacity as usize;
        let each = size_of::<FlowEntry<E>>() + size_of::<TimerLink>() + size_of::<u32>();
        let no_memory = |_| TableError::Memory { capacity, bytes: room.saturating_mul(each) };
        let mut entries = Vec::new();
        entries.try_reserve_exact(room).map_err(no_memory)?;
        let mut links = Vec::new();
        links.try_reserve_exact(room).map_err(no_memory)?;
        let mut free = Vec::new();
        free.try_reserve_exact(room).map_err(no_memory)?;
        Ok(Self {
            entries,
            links,
            free,
            index: Index::new(capacity),
            wheels: (0..=CLASSES).map(|_| TimerWheel::default()).collect(),
            timeouts: config.timeouts.by_class(),
            looked_at: None,
            turn: 0,
            hasher: config.hasher,
            when_full: config.when_full,
            recovery: (u64::from(capacity) * u64::from(config.emergency_recovery.min(100)) / 100) as u32,
            capacity,
            kept_room: 0,
            emergency: false,
            serial: 0,
            counters: FlowTableCounters::default(),
            below: Vec::new(),
            kept_below: 0,
            waits: config.waits,
            level_counters: LevelCounters::default(),
            room_coming: 0,
        })
    }

    // --- finding -----------------------------------------------------------------------------

    /// Hash of a key under this instance's secret.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> FlowHash {
        self.hasher.hash(key)
    }

    /// Prefetches the cache lines that the lookups of a batch will read: first all index buckets, then all
    /// entries to which they refer. Called once for a batch, before the lookups. More than some twenty hashes
    /// exceed the loads that a processor keeps in flight, and its nearest cache.
    pub fn prefetch_batch(&self, hashes: &[FlowHash]) {
        for hash in hashes {
            self.index.prefetch(*hash);
        }
        for hash in hashes {
            if let Some(entry) = self.index.guess(*hash).and_then(|id| self.entries.get(id as usize)) {
                prefetch_lines(entry);
            }
        }
    }

    /// Finds the flow of a packet that arrived at `now`. An offloaded flow is found however long it was
    /// silent at the host, since its level may have seen packets.
    #[must_use]
    pub fn find(&self, key: &FlowKey, now: Timestamp) -> Find {
        self.find_hashed(self.hash(key), key, now)
    }

    /// [`FlowTable::find`] with a hash that [`FlowTable::hash`] has computed.
    #[must_use]
    pub fn find_hashed(&self, hash: FlowHash, key: &FlowKey, now: Timestamp) -> Find {
        let found = self.index.find(hash, |id| self.entries.get(id as usize).is_some_and(|e| e.key == *key));
        let Some((id, entry)) = found.and_then(|id| Some((FlowId(id), self.entries.get(id as usize)?)))
        else {
            return Find::Missing;
        };
        if entry.step.at_host() && self.is_due(entry, now) {
            Find::Stale { id }
        } else {
            Find::Found { id, direction: key.direction_in(&entry.key) }
        }
    }

    fn timeout(&self, entry: &FlowEntry<E>) -> (PacketDuration, PacketDuration) {
        self.timeouts.get(class_of(entry)).copied().unwrap_or_default()
    }

    fn is_due(&self, entry: &FlowEntry<E>, now: Timestamp) -> bool {
        let (normal, emergency) = self.timeout(entry);
        now >= entry.last_seen + if self.emergency { emergency } else { normal }
    }

    /// The flow of an entry, if the entry has one.
    #[inline]
    #[must_use]
    pub fn get(&self, id: FlowId) -> Option<&FlowEntry<E>> {
        self.entries.get(id.0 as usize).filter(|e| e.serial != 0)
    }

    /// The flow of an entry, if the entry has one.
    #[inline]
    pub fn get_mut(&mut self, id: FlowId) -> Option<&mut FlowEntry<E>> {
        self.entries.get_mut(id.0 as usize).filter(|e| e.serial != 0)
    }

    // --- making ------------------------------------------------------------------------------

    /// Makes the flow that a packet opens. The caller has looked for it: [`FlowTable::find`] returned
    /// [`Find::Missing`], or the stale flow was removed.
    pub fn insert(&mut self, key: &FlowKey, now: Timestamp) -> Insert {
        self.insert_hashed(self.hash(key), key, now)
    }

    /// [`FlowTable::insert`] with a hash that was computed before.
    pub fn insert_hashed(&mut self, hash: FlowHash, key: &FlowKey, now: Timestamp) -> Insert {
        if self.is_full() {
            return self.make_room(now);
        }
        let flags = if self.emergency { FlowFlags::EMERGENCY } else { FlowFlags::empty() };
        let entry = FlowEntry {
            key: *key,
            last_seen: now,
            packets: PerDirection::default(),
            bytes: PerDirection::default(),
            hash,
            path: Path::EMPTY,
            fid: Fid(0),
            flags,
            state: FlowState::New,
            level: Level::Host,
            step: Step::Host,
            start: now,
            generation: Generation(0),
            serial: 0,
            ext: E::default(),
        };
        match self.place(entry, true) {
            Some(id) => Insert::Created { id },
            None => {
                self.counters.memcap += 1;
                Insert::Full
            }
        }
    }

    fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Number of flows for which there is room.
    fn room(&self) -> u64 {
        u64::from(self.capacity).saturating_sub(self.counters.active).saturating_sub(self.kept_room.into())
    }

    /// Gives a new flow an entry. Packets do not find a flow that is not `listed`.
    fn place(&mut self, entry: FlowEntry<E>, listed: bool) -> Option<FlowId> {
        let ip_protocol = entry.key.protocol();
        let id = self.allocate(entry, listed).ok()?;
        self.counters.created(ip_protocol);
        Some(id)
    }

    /// Gives a flow an entry and counts it as active. Returns the flow if there is no entry.
    #[allow(clippy::result_large_err)] // Nobody but who moves flows looks at it, and there it must not be lost.
    fn allocate(&mut self, mut entry: FlowEntry<E>, listed: bool) -> Result<FlowId, FlowEntry<E>> {
        let hash = entry.hash;
        let within = self.entries.len() < self.capacity as usize;
        let Some(id) = self.free.last().copied().or(within.then_some(self.entries.len() as u32)) else {
            return Err(entry);
        };
        // Never refused: the index has room for all entries.
        if listed && !self.index.insert(hash, id) {
            return Err(entry);
        }
        self.serial += 1;
        entry.serial = self.serial;
        match self.entries.get_mut(id as usize) {
            Some(free) => {
                self.free.pop();
                *free = entry;
            }
            None => {
                // Within the reserved room: touches the next page, allocates nothing.
                self.entries.push(entry);
                self.links.push(TimerLink::default());
            }
        }
        self.counters.active += 1;
        self.arm(id);
        Ok(FlowId(id))
    }

    /// Finds the flow of a packet or makes it. `ended` is called for a flow that ends to make room, before
    /// its entry is reused.
    pub fn find_or_insert(
        &mut self,
        key: &FlowKey,
        now: Timestamp,
        mut ended: impl FnMut(FlowId, &mut FlowEntry<E>, EndReason),
    ) -> Lookup {
        let hash = self.hash(key);
        match self.find_hashed(hash, key, now) {
            Find::Found { id, direction } => return Lookup::Found { id, direction },
            Find::Stale { id } => {
                self.counters.wrk_evicted += 1;
                self.end(id, EndReason::Timeout, &mut ended);
            }
            Find::Missing => {}
        }
        for _ in 0..2 {
            match self.insert_hashed(hash, key, now) {
                Insert::Created { id } => return Lookup::Created { id },
                Insert::Evict { id } => self.end(id, EndReason::Forced, &mut ended),
                Insert::Full => return Lookup::Full,
            }
        }
        Lookup::Full
    }

    /// Ends a flow because a new TCP connection uses its ports, and makes the new flow. The TCP module
    /// decides this when a SYN matches a closed connection; `ended` is called with the old flow, unless the
    /// old flow is offloaded and leaves its level first. `None` if the flow does not exist.
    pub fn replace(
        &mut self,
        id: FlowId,
        key: &FlowKey,
        now: Timestamp,
        mut ended: impl FnMut(FlowId, &mut FlowEntry<E>, EndReason),
    ) -> Option<FlowId> {
        self.get(id).filter(|entry| entry.key == *key)?;
        if self.begin_end(id, EndReason::TcpReuse, now) {
            self.end(id, EndReason::TcpReuse, &mut ended);
        }
        // An offloaded flow keeps its entry until it has left its level, so another flow may have to make
        // room.
        for _ in 0..2 {
            match self.insert(key, now) {
                Insert::Created { id } => return Some(id),
                Insert::Evict { id } => self.end(id, EndReason::Forced, &mut ended),
                Insert::Full => return None,
            }
        }
        None
    }

    // --- using -------------------------------------------------------------------------------

    /// Counts a packet of a flow. `bytes` is its length; `proves_direction` is false for ICMP errors about
    /// the flow, which do not prove that its ends talk to each other.
    ///
    /// A flow of a protocol other than TCP becomes established once both directions were seen; a TCP flow by
    /// the TCP module.
    pub fn account(
        &mut self,
        id: FlowId,
        direction: Direction,
        bytes: u32,
        now: Timestamp,
        proves_direction: bool,
    ) -> Accounted {
        let Some(entry) = self.get_mut(id) else { return Accounted::default() };
        let mut next = None;
        // Refused packets keep no flow: the first forwarded one counts (`note_opened`).
        if !entry.is_unopened() {
            entry.last_seen = entry.last_seen.max(now);
        }
        entry.packets[direction] += 1;
        entry.bytes[direction] += u64::from(bytes);
        let seen = FlowFlags::seen(direction);
        let first_in_direction = proves_direction && !entry.flags.contains(seen);
        if first_in_direction {
            entry.flags.insert(seen);
        }
        if entry.state == FlowState::New && entry.key.protocol() != protocol::TCP && entry.both_seen() {
            next = Some(FlowState::Established);
        }
        let established = next.unwrap_or(entry.state) == FlowState::Established;
        let opening = entry.state == FlowState::New && entry.key.protocol() == protocol::TCP;
        if entry.step != Step::Host {
            self.note_host_packet(id, now);
        }
        if let Some(state) = next {
            self.set_state(id, state);
        } else if opening {
            self.keep_order(id.0);
        }
        Accounted { first_in_direction, established }
    }

    /// Notes a packet from the other side of a flow that is counted in one direction
    /// ([`FlowKey::direction_in`]), which makes the flow established. Returns whether it does.
    pub fn note_answer(&mut self, id: FlowId) -> bool {
        let Some(entry) = self.get_mut(id) else { return false };
        entry.flags.insert(FlowFlags::TO_CLIENT_SEEN);
        if entry.state == FlowState::New && entry.key.protocol() != protocol::TCP && entry.both_seen() {
            self.set_state(id, FlowState::Established);
            return true;
        }
        entry.state == FlowState::Established
    }

    /// Marks a flow as unopened: a packet was refused by its headers, and none was forwarded before. Packets
    /// do not extend the flow's life, and it is the first to make room.
    pub fn note_unopened(&mut self, id: FlowId) {
        self.mark_unopened(id, true);
    }

    /// Marks a flow as opened, when its first packet is forwarded.
    pub fn note_opened(&mut self, id: FlowId, now: Timestamp) {
        if self.get(id).is_some_and(FlowEntry::is_unopened) {
            if let Some(entry) = self.get_mut(id) {
                entry.last_seen = entry.last_seen.max(now);
            }
            self.mark_unopened(id, false);
        }
    }

    fn mark_unopened(&mut self, id: FlowId, unopened: bool) {
        let Some(entry) = self.get_mut(id).filter(|e| e.is_unopened() != unopened) else { return };
        let old = wheel_of(entry);
        entry.flags.set(FlowFlags::UNOPENED, unopened);
        if wheel_of(entry) == old {
            return;
        }
        if let Some(wheel) = self.wheels.get_mut(old) {
            wheel.disarm(&mut self.links, id.0);
        }
        self.arm(id.0);
    }

    /// Takes back the effect of a counted packet on the flow's life, as its headers were refused. `before`:
    /// time of the flow's previous packet.
    pub fn revert_last_seen(&mut self, id: FlowId, before: Timestamp) {
        if let Some(entry) = self.get_mut(id) {
            entry.last_seen = entry.last_seen.min(before);
        }
    }

    /// Changes a flow's state and with it its timeout.
    pub fn set_state(&mut self, id: FlowId, state: FlowState) {
        let Some(entry) = self.get_mut(id).filter(|e| e.state != state) else { return };
        let old = class_of(entry);
        let in_removal = entry.step.in_removal();
        entry.state = state;
        // During a removal the timer belongs to the removal.
        if in_removal {
            return;
        }
        if let Some(wheel) = self.wheels.get_mut(old) {
            wheel.disarm(&mut self.links, id.0);
        }
        self.arm(id.0);
    }

    /// Arms the timer of a flow outside removal, which must not be armed.
    fn arm(&mut self, id: u32) {
        let Some(entry) = self.entries.get(id as usize) else { return };
        let due = entry.last_seen + self.timeout(entry).0;
        if let Some(wheel) = self.wheels.get_mut(class_of(entry)) {
            let tick = Tick::after(due);
            wheel.arm(&mut self.links, id, tick, Tick::passed(entry.last_seen));
            self.looked_at = self.looked_at.filter(|looked_at| *looked_at < tick);
        }
    }

    /// Arms the timer of a flow at the host for a tick, whatever its timeout.
    fn arm_at(&mut self, id: u32, tick: Tick) {
        let Some(entry) = self.entries.get(id as usize) else { return };
        if let Some(wheel) = self.wheels.get_mut(class_of(entry)) {
            wheel.disarm(&mut self.links, id);
            wheel.arm(&mut self.links, id, tick, Tick::passed(entry.last_seen));
            self.looked_at = self.looked_at.filter(|looked_at| *looked_at < tick);
        }
    }

    // --- about -------------------------------------------------------------------------------

    /// All flows in the order of creation. Allocates: for the end of a run and for exports.
    #[must_use]
    pub fn ids(&self) -> Vec<FlowId> {
        let mut all: Vec<(u64, u32)> = (0_u32..)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.serial != 0)
            .map(|(id, entry)| (entry.serial, id))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| FlowId(id)).collect()
    }

    /// All flows in the order of creation, with [`FlowTable::ids`]'s cost.
    pub fn iter(&self) -> impl Iterator<Item = (FlowId, &FlowEntry<E>)> {
        self.ids().into_iter().filter_map(|id| Some((id, self.get(id)?)))
    }

    /// The flows in `entries` entries from one on, and the entry to continue at; `None` at the end. The table
    /// may change between the steps: a flow that exists all the time is visited once, one that begins or ends
    /// meanwhile perhaps.
    pub fn part(
        &self,
        from: u32,
        entries: u32,
    ) -> (impl Iterator<Item = (FlowId, &FlowEntry<E>)>, Option<u32>) {
        let end = from.saturating_add(entries);
        let part = self.entries.get(from as usize..).unwrap_or_default();
        let part = part.get(..entries as usize).unwrap_or(part);
        let flows =
            (from..).zip(part).filter(|(_, entry)| entry.serial != 0).map(|(id, entry)| (FlowId(id), entry));
        (flows, ((end as usize) < self.entries.len()).then_some(end))
    }

    /// Whether the emergency timeouts apply. A caller that wants to save entries then opens TCP flows only
    /// for SYNs.
    #[must_use]
    pub const fn in_emergency(&self) -> bool {
        self.emergency
    }

    /// Number of flows in the table.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.counters.active as usize
    }

    /// Whether the table has no flow.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.counters.active == 0
    }

    /// Maximum number of flows.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &FlowTableCounters {
        &self.counters
    }

    /// The counters, for those that the caller maintains (`end_tcp_state`, and `wrk_evicted` if the caller
    /// uses [`FlowTable::find`]).
    pub const fn counters_mut(&mut self) -> &mut FlowTableCounters {
        &mut self.counters
    }

    /// Visits every statistic by its dotted EVE name: the counters, and values that only the table knows.
    pub fn visit_stats(&self, mut each: impl FnMut(&'static str, u64)) {
        self.counters.visit(&mut each);
        each("flow.room", self.room());
        each("flow.memuse", self.memory().touched as u64);
    }

    /// Most flows that were in the table at a time: an entry is reused before another one is begun.
    #[must_use]
    pub fn most_entries(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Bytes reserved and touched.
    #[must_use]
    pub fn memory(&self) -> TableMemory {
        let each = size_of::<FlowEntry<E>>() + size_of::<TimerLink>() + size_of::<u32>();
        let fixed = self.index.bytes() + self.bytes_below() + size_of_val(&*self.wheels) + size_of::<Self>();
        TableMemory {
            reserved: each * self.capacity as usize + fixed,
            touched: each * self.entries.len() + fixed,
        }
    }
}

/// The timer class of a flow; offloaded flows have classes of their own.
const fn class_of<E>(entry: &FlowEntry<E>) -> usize {
    if entry.step.at_host() {
        match entry.state {
            FlowState::New if entry.is_unopened() => unopened_class(entry.key.protocol()),
            state => class(entry.key.protocol(), state),
        }
    } else {
        sunk_class(entry.key.protocol(), entry.state)
    }
}

/// The wheel of a flow's timer.
const fn wheel_of<E>(entry: &FlowEntry<E>) -> usize {
    if entry.step.in_removal() { CLASSES } else { class_of(entry) }
}

#[cfg(test)]
mod levels_tests;
#[cfg(test)]
mod mock_level;
#[cfg(test)]
mod moving_tests;
#[cfg(test)]
mod removal_tests;
#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0
//! A device of tests: it holds entries, handles and counts packets, and executes requests with a delay that a
//! seed determines.
//!
//! It keeps the contract of [`bartizan_offload::device`] as a slow pipeline would: requests about one place
//! take effect in their order, each after so many polls; a packet that has found an entry is counted later as
//! well. It also counts packets whose entry was gone before they could be counted ([`MockCounters::lost`]).

mod driver;

pub use driver::{MockDriver, MockLevelState};

use bartizan_base::{Generation, Level, PacketDuration, Timestamp};
use bartizan_flow::level::{LevelReply, SunkId};
use bartizan_flow::tcp::{Fin, Seq, TcpProgress};
use bartizan_offload::device::{
    Action, Actions, Answered, Capabilities, Counting, Counts, Device, DeviceReply, DeviceRequest, Install,
    Sides, Wish,
};
use bartizan_offload::key::{DeviceKey, Fields};
use bartizan_offload::marks::{FlowMarks, Mark};
use bartizan_offload::stays::OffloadDenied;
use bartizan_packet::TunnelKind;
use bartizan_packet::windows::{Line, WINDOW_WORDS, WindowSegment, Windows};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// It decodes the tunnels that the host's decoder does, so it supports all with an outer flow.
const TUNNELS: [TunnelKind; 5] =
    [TunnelKind::Ip, TunnelKind::Teredo, TunnelKind::Vxlan, TunnelKind::Geneve, TunnelKind::Gtp];

/// The delays of the device, and its capacity and capabilities.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// The most entries.
    pub entries: u32,
    /// The most polls until a request takes effect.
    pub late: u32,
    /// The longest delay until packets are counted. Longer than the table's grace loses counts.
    pub flight: PacketDuration,
    /// One of so many installs is refused; 0: none.
    pub refuses: u32,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether it holds the numbers of connections.
    pub windows: bool,
    /// Whether it refuses packets without a flow by the list that it gets.
    pub early: bool,
    /// Its level.
    pub level: Level,
    /// Fields of the key that it holds.
    pub fields: Fields,
    /// The actions on packets that it can do.
    pub actions: Actions,
    /// Whether it supports [`Wish::Update`].
    pub updates: bool,
    /// It reports entries that were silent for so long.
    pub ageing: Option<PacketDuration>,
}

impl Default for Habits {
    /// No delays.
    fn default() -> Self {
        Habits {
            entries: 1 << 20,
            late: 0,
            flight: PacketDuration::ZERO,
            refuses: 0,
            seed: 1,
            windows: true,
            early: false,
            level: Level::Rtl,
            fields: Fields::ALL,
            actions: Actions::ALL,
            updates: false,
            ageing: None,
        }
    }
}

/// The counts of packets that it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MockCounters {
    /// Frames that it forwarded.
    pub forwarded: u64,
    /// Frames among those with a packet in a tunnel: two packets that it has counted.
    pub in_tunnels: u64,
    /// Frames that it dropped.
    pub dropped: u64,
    /// Frames among those with a packet in a tunnel.
    pub dropped_in_tunnels: u64,
    /// Frames that it passed up.
    pub up: u64,
    /// Entries removed.
    pub deleted: u64,
    /// Entries removed or marked while a packet that had found them was not counted yet.
    pub in_flight: u64,
    /// Packets whose entry was gone before they were counted.
    pub lost: u64,
    /// Entries that went on in another generation.
    pub updated: u64,
}

struct Entry {
    sunk: SunkId,
    install: Install,
    marked: bool,
    counts: Counts,
    /// The progress by the packets that have left, counted or not.
    sides: Sides,
    /// The numbers of a connection whose segments are compared.
    line: Option<[AtomicU64; WINDOW_WORDS]>,
    /// Packets that have found it and are not counted yet.
    under_way: u32,
    /// The time when the latest packet found it, or it was made; and whether its silence was reported since.
    busy: Timestamp,
    told: bool,
}

impl Entry {
    /// Whether a FIN begins where its sender's segments have ended, or came before.
    fn ends_plainly(&self, packet: &MockPacket) -> bool {
        let side = self.sides.get(usize::from(!packet.from_low)).copied().flatten();
        let (Some(side), Some(segment), None) = (side, packet.segment, &self.line) else { return false };
        match side.fin {
            Some(fin) => fin.number == Seq(segment.end),
            None => side.sent == Seq(segment.sequence),
        }
    }

    fn note_fin(&mut self, end: usize, number: Seq) {
        let second = self.sides.get(1 - end).copied().flatten().is_some_and(|other| other.fin.is_some());
        if let Some(Some(side)) = self.sides.get_mut(end) {
            side.fin.get_or_insert(Fin { number, second });
        }
    }

    fn windows(&self) -> Option<Windows> {
        self.line.as_ref().map(|line| Line::new(line).read())
    }
}

struct Packet {
    place: u32,
    sunk: SunkId,
    end: usize,
    bytes: u64,
    /// Whether it was dropped because of its inner packet.
    refused_inside: bool,
    when: Timestamp,
    /// The time when it is counted.
    lands: Timestamp,
}

struct Core {
    habits: Habits,
    random: u64,
    generation: Generation,
    by_key: HashMap<DeviceKey, u32>,
    entries: Vec<Option<Entry>>,
    work: VecDeque<(u64, DeviceRequest)>,
    said: Vec<(u32, SunkId, DeviceReply)>,
    polls: u64,
    flight: VecDeque<Packet>,
    missed: bool,
    /// The known flows, and the refusals of packets without one.
    marks: Arc<FlowMarks>,
    early: Vec<Refused>,
    away: bool,
    /// The latest time that a caller passed.
    now: Timestamp,
    counters: MockCounters,
}

/// The device's wire side: tests send packets through it.
#[derive(Clone)]
pub struct MockWire(Arc<Mutex<Core>>);

/// The properties of a packet that the device reads.
#[derive(Clone, Copy, Debug)]
pub struct MockPacket {
    /// Whether it is from the lower endpoint of its key.
    pub from_low: bool,
    /// Length of its frame.
    pub bytes: u64,
    /// The numbers of a TCP segment.
    pub segment: Option<WindowSegment>,
}

/// A packet without an entry that a list refuses.
#[derive(Clone, Copy, Debug)]
pub struct MockStranger {
    /// The key of its flow.
    pub key: DeviceKey,
    /// Its length.
    pub bytes: u64,
    /// The generation of the list.
    pub generation: Generation,
    /// The number of the outcome.
    pub outcome: u32,
    /// The outer packet, if it is in a tunnel.
    pub around: Option<(DeviceKey, MockPacket)>,
}

/// A packet without an entry that was refused.
struct Refused {
    generation: Generation,
    outcome: u32,
    bytes: u64,
}

/// See the module.
pub struct MockDevice {
    core: Arc<Mutex<Core>>,
    capabilities: Capabilities,
}

impl MockDevice {
    /// Makes a device, and its wire.
    #[must_use]
    pub fn new(habits: Habits) -> (Self, MockWire) {
        let core = Core {
            habits,
            random: habits.seed | 1,
            generation: Generation(0),
            by_key: HashMap::new(),
            entries: Vec::new(),
            work: VecDeque::new(),
            said: Vec::new(),
            polls: 0,
            flight: VecDeque::new(),
            missed: false,
            marks: FlowMarks::new(u64::from(habits.entries.min(1 << 16)), habits.seed),
            early: Vec::new(),
            away: false,
            now: Timestamp::ZERO,
            counters: MockCounters::default(),
        };
        let core = Arc::new(Mutex::new(core));
        let capabilities = Capabilities {
            level: habits.level,
            entries: habits.entries,
            ipv4: true,
            ipv6: true,
            protocols: &[6, 17],
            fields: habits.fields,
            tunnels: &TUNNELS,
            windows: habits.windows,
            actions: habits.actions,
            exits: u64::MAX,
            counting: Counting::ALL,
            updates: habits.updates,
            ageing: habits.ageing,
            insert_rate: None,
        };
        (MockDevice { core: Arc::clone(&core), capabilities }, MockWire(core))
    }
}

fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MockWire {
    /// Notes that packets have passed without the host.
    pub fn miss(&self) {
        lock(&self.0).missed = true;
    }

    /// Handles a packet that arrives; returns the action, or `None` if it goes up.
    pub fn packet(&self, key: &DeviceKey, packet: MockPacket, now: Timestamp) -> Option<Action> {
        lock(&self.0).packet(key, packet, now)
    }

    /// Handles a segment with FIN, which follows the segment's end. As [`MockWire::packet`].
    pub fn fin(&self, key: &DeviceKey, packet: MockPacket, now: Timestamp) -> Option<Action> {
        lock(&self.0).fin(key, packet, now)
    }

    /// Handles a packet inside another one; the outer one is first in `packets`. Returns the action on the
    /// frame, which is counted for both, or `None` if it goes up.
    pub fn in_tunnel(&self, packets: [(&DeviceKey, MockPacket); 2], now: Timestamp) -> Option<Action> {
        lock(&self.0).in_tunnel(packets, now)
    }

    /// Handles a packet without an entry that the list refuses: returns whether it is dropped. A packet of a
    /// flow that the host knows goes up, and so does one in a tunnel if the outer packet has no entry that
    /// forwards.
    pub fn refuses(&self, packet: &MockStranger, now: Timestamp) -> bool {
        lock(&self.0).refuses(packet, now)
    }

    /// Counts a packet that a device never handles, which goes up.
    pub fn went_up(&self) {
        lock(&self.0).counters.up += 1;
    }

    /// Takes the device away: packets pass without it, and it reports this for each entry. Packets under way
    /// are counted before.
    pub fn detach(&self) {
        let mut core = lock(&self.0);
        core.away = true;
        core.end_all();
    }

    /// Brings the device back, without entries.
    pub fn attach(&self) {
        lock(&self.0).away = false;
    }

    /// The counts of packets seen.
    #[must_use]
    pub fn counters(&self) -> MockCounters {
        lock(&self.0).counters
    }

    /// The number of entries that it holds.
    #[must_use]
    pub fn entries(&self) -> usize {
        lock(&self.0).by_key.len()
    }
}

impl Core {
    /// A random number below `most`, 0 if that is 0 (xorshift).
    fn draw(&mut self, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.checked_rem(most).unwrap_or(0)
    }

    /// The place and the action of an entry that acts.
    fn acting(&self, key: &DeviceKey) -> Option<(u32, Action)> {
        let place = *self.by_key.get(key)?;
        let entry = self.entries.get(place as usize)?.as_ref()?;
        let acts = !entry.marked && entry.install.generation == self.generation;
        acts.then_some((place, entry.install.action))
    }

    fn packet(&mut self, key: &DeviceKey, packet: MockPacket, now: Timestamp) -> Option<Action> {
        let MockPacket { from_low, segment, .. } = packet;
        let acts = self.acting(key).filter(|(place, action)| {
            action.is_for(from_low) && self.goes_on(*place, from_low, segment.as_ref())
        });
        let Some((place, action)) = acts else {
            self.counters.up += 1;
            return None;
        };
        self.handle(place, packet, now, false);
        match action {
            Action::Forward | Action::Redirect(_) => self.counters.forwarded += 1,
            Action::Drop(_) | Action::DropFrom(..) => self.counters.dropped += 1,
        }
        Some(action)
    }

    fn fin(&mut self, key: &DeviceKey, packet: MockPacket, now: Timestamp) -> Option<Action> {
        let ends = self.acting(key).filter(|(place, action)| {
            let entry = self.entries.get(*place as usize).and_then(Option::as_ref);
            *action == Action::Forward && entry.is_some_and(|entry| entry.ends_plainly(&packet))
        });
        let Some((place, _)) = ends else {
            self.counters.up += 1;
            return None;
        };
        let action = self.packet(key, packet, now)?;
        let entry = self.entries.get_mut(place as usize).and_then(Option::as_mut);
        if let (Some(entry), Some(segment)) = (entry, packet.segment) {
            entry.note_fin(usize::from(!packet.from_low), Seq(segment.end));
        }
        Some(action)
    }

    /// Whether a segment plainly goes on with a connection whose segments are compared with its windows.
    fn goes_on(&self, place: u32, from_low: bool, segment: Option<&WindowSegment>) -> bool {
        let entry = self.entries.get(place as usize).and_then(Option::as_ref);
        let line = entry.and_then(|entry| entry.line.as_ref()).map(Line::new);
        line.is_none_or(|line| segment.is_some_and(|segment| line.advance(!from_low, segment)))
    }

    fn in_tunnel(
        &mut self,
        [(key_around, around), (key, inside)]: [(&DeviceKey, MockPacket); 2],
        now: Timestamp,
    ) -> Option<Action> {
        let acts = (self.acting(key_around), self.acting(key));
        let (Some((place_around, Action::Forward)), Some((place, action))) = acts else {
            self.counters.up += 1;
            return None;
        };
        // Only a packet that leaves advances an entry.
        let leaves =
            action == Action::Forward && self.goes_on(place, inside.from_low, inside.segment.as_ref());
        let drops = matches!(action, Action::Drop(_));
        if !leaves && !drops {
            self.counters.up += 1;
            return None;
        }
        self.handle(place, inside, now, false);
        self.handle(place_around, around, now, drops);
        if drops {
            self.counters.dropped += 1;
            self.counters.dropped_in_tunnels += 1;
        } else {
            self.counters.forwarded += 1;
            self.counters.in_tunnels += 1;
        }
        Some(action)
    }

    fn refuses(&mut self, packet: &MockStranger, now: Timestamp) -> bool {
        let MockStranger { key, bytes, generation, outcome, around } = *packet;
        if generation != self.generation || self.by_key.contains_key(&key) || self.marks.has(&key.0) {
            return false;
        }
        if let Some((key, packet)) = around {
            let Some((place, Action::Forward)) = self.acting(&key) else { return false };
            self.handle(place, packet, now, true);
        }
        self.early.push(Refused { generation, outcome, bytes });
        true
    }

    /// Handles a packet that has found its entry; `refused_inside`: it is dropped because of its inner
    /// packet.
    fn handle(&mut self, place: u32, packet: MockPacket, now: Timestamp, refused_inside: bool) {
        let MockPacket { from_low, bytes, segment } = packet;
        let Some(entry) = self.entries.get_mut(place as usize).and_then(Option::as_mut) else { return };
        let leaves = entry.install.action.drops().is_none();
        let progress = segment.filter(|_| leaves).map(|segment| TcpProgress {
            sent: Seq(segment.end),
            acknowledged: Seq(segment.acknowledged),
            fin: None,
        });
        let sunk = entry.sunk;
        entry.under_way += 1;
        (entry.busy, entry.told) = (now, false);
        if let (Some(side), Some(new)) = (entry.sides.get_mut(usize::from(!from_low)), progress) {
            let had = side.unwrap_or(new);
            *side = Some(TcpProgress {
                sent: if new.sent.after(had.sent) { new.sent } else { had.sent },
                acknowledged: if new.acknowledged.after(had.acknowledged) {
                    new.acknowledged
                } else {
                    had.acknowledged
                },
                fin: had.fin,
            });
        }
        let stay = PacketDuration::from_nanos(self.draw(self.habits.flight.as_nanos().saturating_add(1)));
        // Packets do not overtake each other.
        let lands = self.flight.back().map_or(now, |last| last.lands).max(now + stay);
        let end = usize::from(!from_low);
        self.flight.push_back(Packet { place, sunk, end, bytes, refused_inside, when: now, lands });
        self.land(now);
    }

    /// Counts packets whose time has come.
    fn land(&mut self, now: Timestamp) {
        while let Some(packet) = self.flight.pop_front_if(|packet| packet.lands <= now) {
            self.count(&packet);
        }
    }

    fn count(&mut self, packet: &Packet) {
        let entry = self.entries.get_mut(packet.place as usize).and_then(Option::as_mut);
        let Some(entry) = entry.filter(|entry| entry.sunk == packet.sunk) else {
            self.counters.lost += 1;
            return;
        };
        entry.under_way -= 1;
        let Counts { packets, bytes, last_seen, refused_inside, .. } = &mut entry.counts;
        if packet.refused_inside {
            refused_inside.0 += 1;
            refused_inside.1 += packet.bytes;
        }
        if let (Some(packets), Some(bytes), Some(seen)) =
            (packets.get_mut(packet.end), bytes.get_mut(packet.end), last_seen.get_mut(packet.end))
        {
            *packets += 1;
            *bytes += packet.bytes;
            *seen = packet.when.max(*seen);
        }
    }

    fn entry(&mut self, request: &DeviceRequest) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(request.place as usize)?.as_mut()?;
        (entry.sunk == request.sunk).then_some(entry)
    }

    fn say(&mut self, request: &DeviceRequest, what: DeviceReply) {
        self.said.push((request.place, request.sunk, what));
    }

    fn say_counts(&mut self, request: &DeviceRequest) {
        let counts = |entry: &mut Entry| match entry.windows() {
            windows @ Some(_) => Counts { windows, ..entry.counts },
            None => Counts { sides: entry.sides, ..entry.counts },
        };
        if let Some(counts) = self.entry(request).map(counts) {
            self.say(request, DeviceReply::Counts(counts));
        }
    }

    fn do_one(&mut self, request: &DeviceRequest) {
        let done = |answer| DeviceReply::Answer(Answered::Done(answer));
        if let Wish::Install(install) = request.wish {
            let answer = self.install(request, install);
            self.say(request, DeviceReply::Answer(answer));
            return;
        }
        let Some(entry) = self.entry(request) else {
            self.say(request, done(LevelReply::Deleted));
            return;
        };
        let under_way = u64::from(entry.under_way > 0);
        match request.wish {
            Wish::Mark => {
                entry.marked = true;
                self.counters.in_flight += under_way;
                self.say(request, done(LevelReply::Marked));
            }
            Wish::Update { generation, windows } => {
                entry.install.generation = generation;
                if let (Some(line), Some(windows)) = (&entry.line, &windows) {
                    Line::new(line).publish(windows);
                }
                self.counters.updated += 1;
            }
            Wish::Read => self.say_counts(request),
            Wish::Last => {
                self.say_counts(request);
                self.say(request, done(LevelReply::Read));
            }
            Wish::Delete => self.delete(request),
            Wish::Install(_) => {}
        }
    }

    fn delete(&mut self, request: &DeviceRequest) {
        self.say_counts(request);
        if let Some(entry) = self.entries.get_mut(request.place as usize).and_then(Option::take) {
            self.by_key.remove(&entry.install.key);
            self.counters.deleted += 1;
        }
        self.say(request, DeviceReply::Answer(Answered::Done(LevelReply::Deleted)));
    }

    fn install(&mut self, request: &DeviceRequest, install: Install) -> Answered {
        if self.away {
            return Answered::Refused(OffloadDenied::Away);
        }
        if self.by_key.contains_key(&install.key) {
            return Answered::Refused(OffloadDenied::Taken);
        }
        if self.habits.refuses > 0 && self.draw(self.habits.refuses.into()) == 0 {
            return Answered::Refused(OffloadDenied::Refused);
        }
        let at = request.place as usize;
        if self.entries.len() <= at {
            self.entries.resize_with(at + 1, || None);
        }
        if let Some(slot) = self.entries.get_mut(at) {
            let (sunk, counts, busy) = (request.sunk, Counts::default(), self.now);
            let sides = Sides::default();
            let line = install.windows.map(|windows| {
                let line = Default::default();
                Line::new(&line).write(&windows);
                line
            });
            let (marked, under_way, told) = (false, 0, false);
            *slot = Some(Entry { sunk, install, marked, counts, sides, line, under_way, busy, told });
            self.by_key.insert(install.key, request.place);
        }
        Answered::Done(LevelReply::Installed)
    }

    /// Reports entries that were silent for long enough, in bulk.
    fn age(&mut self, now: Timestamp) {
        let Some(after) = self.habits.ageing else { return };
        for (place, entry) in (0u32..).zip(&mut self.entries) {
            let Some(entry) = entry.as_mut().filter(|entry| !entry.told) else { continue };
            if now.since(entry.busy) >= after {
                entry.told = true;
                self.said.push((place, entry.sunk, DeviceReply::Idle(entry.busy)));
            }
        }
    }

    /// Removes all entries, and counts the packets under way.
    fn end_all(&mut self) {
        self.work(true);
        while let Some(packet) = self.flight.pop_front() {
            self.count(&packet);
        }
        let entries: Vec<DeviceRequest> = (0u32..)
            .zip(&self.entries)
            .filter_map(|(place, entry)| {
                Some(DeviceRequest { place, sunk: entry.as_ref()?.sunk, wish: Wish::Delete })
            })
            .collect();
        entries.iter().for_each(|request| self.delete(request));
    }

    /// Executes requests whose time has come, in order: each waits for all before it.
    fn work(&mut self, all: bool) {
        while let Some((when, request)) = self.work.front().copied()
            && (all || when <= self.polls)
        {
            self.work.pop_front();
            self.do_one(&request);
        }
    }
}

impl Device for MockDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, requests: &[DeviceRequest], _now: Timestamp) {
        let mut core = lock(&self.core);
        for request in requests {
            let late = core.habits.late;
            let when = core.polls + core.draw(u64::from(late) + 1);
            core.work.push_back((when, *request));
        }
    }

    fn poll(&mut self, now: Timestamp, said: &mut Vec<(u32, SunkId, DeviceReply)>) {
        let mut core = lock(&self.core);
        core.polls += 1;
        core.now = now;
        core.land(now);
        core.work(false);
        core.age(now);
        said.append(&mut core.said);
    }

    fn sides(&self, place: u32, sunk: SunkId) -> Option<Sides> {
        let core = lock(&self.core);
        let entry = core.entries.get(place as usize)?.as_ref()?;
        (entry.sunk == sunk && entry.line.is_none()).then_some(entry.sides)
    }

    fn windows(&self, place: u32, sunk: SunkId) -> Option<Windows> {
        let core = lock(&self.core);
        let entry = core.entries.get(place as usize)?.as_ref()?;
        entry.windows().filter(|_| entry.sunk == sunk)
    }

    fn publish(&mut self, place: u32, sunk: SunkId, windows: &Windows) {
        let core = lock(&self.core);
        let entry = core.entries.get(place as usize).and_then(Option::as_ref);
        let line = entry.filter(|entry| entry.sunk == sunk).and_then(|entry| entry.line.as_ref());
        if let Some(line) = line {
            Line::new(line).publish(windows);
        }
    }

    fn has_missed(&mut self) -> bool {
        core::mem::take(&mut lock(&self.core).missed)
    }

    fn is_early(&self) -> bool {
        lock(&self.core).habits.early
    }

    fn mark(&self, key: &DeviceKey) -> Option<Mark> {
        let core = lock(&self.core);
        if core.habits.early { Mark::new(&core.marks, &key.0) } else { None }
    }

    fn early(&mut self, generation: Generation, _outcomes: u32, each: &mut dyn FnMut(u32, u64, u64)) {
        let refused = core::mem::take(&mut lock(&self.core).early);
        let (own, others): (Vec<Refused>, _) =
            refused.into_iter().partition(|refused| refused.generation == generation);
        own.iter().for_each(|Refused { outcome, bytes, .. }| each(*outcome, 1, *bytes));
        lock(&self.core).early.extend(others);
    }

    fn enter_generation(&mut self, generation: Generation) {
        lock(&self.core).generation = generation;
    }

    fn close(&mut self, _now: Timestamp) {
        lock(&self.core).end_all();
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Levels under random traffic: random flows are offloaded, raised, reversed, replaced and evicted and time
//! out while their packets arrive. A generator records each packet; the sums over all flows must equal the
//! generator's.

use super::mock_level::{Habits, MockLevel, MockReply};
use super::tests::{at, config, key};
use super::*;
use crate::entry::export::ImportedFlow;
use crate::level::{Command, FlowLevelCounts, Stay, SunkId, Task};
use crate::timeouts::{FlowTimeouts, StateTimeouts};
use bartizan_testkit::random::Random;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Silence after which a flow ends, in any state: short, so that many end.
const SILENCE: u64 = 2_000;
const LEVELS: [Level; 3] = [Level::Host, Level::Xdp, Level::Rtl];

/// Packets and bytes by direction and the latest packet.
type LevelSums = (PerDirection<u64>, PerDirection<u64>, u64);

/// The generator's record of a flow.
#[derive(Default)]
struct LevelsTestFlow {
    /// By level, in the directions of the opener.
    levels: [LevelSums; 3],
}

struct World {
    random: Random,
    table: FlowTable<u32>,
    devices: [MockLevel; 2],
    now: u64,
    generation: u64,
    /// Packets that a level passed up and that have not reached the host yet, by time and number.
    up: BTreeMap<(u64, usize), (FlowKey, u64)>,
    /// Number of times that each packet was handled: at the host, or by a level's entry.
    handled: Vec<u8>,
    generated: (u64, u64),
    /// Packets and bytes that found the table full.
    without_flow: (u64, u64),
    /// Credits that arrived too late.
    orphans: (u64, u64),
    known: HashMap<u64, LevelsTestFlow>,
    /// Packets and bytes of ended flows.
    ended: (u64, u64),
    ends: [u64; EndReason::COUNT],
    /// Ends of flows that were at a level until then.
    ends_of_sunk: [u64; EndReason::COUNT],
    /// Stays during whose removal a packet was passed up, or counted below, by the move and their name.
    crossed: HashSet<(u64, SunkId)>,
    /// Flows that ended with less than the generator's record; `None` where that is a fault.
    short: Option<u64>,
    /// Counts of earlier tables.
    past: (LevelCounters, [u64; EndReason::COUNT]),
    moves: u64,
    settings: FlowTableConfig,
}

const FAITHFUL: Habits = Habits { work: 200, flight: 150, refuses: 5, forgets: 0, lags: 0, room: 48 };

fn settings(capacity: u32, grace: u64) -> FlowTableConfig {
    let mut settings = config(capacity);
    let all = PacketDuration::from_millis(SILENCE);
    let states = StateTimeouts { new: all, established: all, closed: all, bypassed: all };
    let FlowTimeouts { tcp, udp, icmp, other } = &mut settings.timeouts;
    for group in [tcp, udp, icmp, other] {
        (group.normal, group.emergency) = (states, states);
    }
    settings.waits.grace = PacketDuration::from_millis(grace);
    settings
}

impl World {
    fn new(seed: u64, capacity: u32, habits: Habits, grace: u64) -> Self {
        let settings = settings(capacity, grace);
        Self {
            random: Random::new(seed),
            table: FlowTable::new(&settings).unwrap(),
            devices: [MockLevel::new(habits, seed + 1), MockLevel::new(habits, seed + 2)],
            now: 0,
            generation: 1,
            up: BTreeMap::new(),
            handled: Vec::new(),
            generated: (0, 0),
            without_flow: (0, 0),
            orphans: (0, 0),
            known: HashMap::new(),
            ended: (0, 0),
            ends: [0; EndReason::COUNT],
            ends_of_sunk: [0; EndReason::COUNT],
            crossed: HashSet::new(),
            short: None,
            past: Default::default(),
            moves: 0,
            settings,
        }
    }

    fn device(&mut self, level: Level) -> &mut MockLevel {
        &mut self.devices[level as usize - 1]
    }

    /// Sends a packet in at the lowest level; unhandled packets are passed up, some of them late.
    fn packet(&mut self, key: FlowKey) {
        let bytes = self.random.within(60, 1514) as u64;
        let number = self.handled.len();
        self.handled.push(0);
        self.generated = (self.generated.0 + 1, self.generated.1 + bytes);
        for level in [Level::Rtl, Level::Xdp] {
            let now = self.now;
            if let Some((sunk, direction)) = self.device(level).packet(now, &key, bytes) {
                self.handled[number] += 1;
                let opened = if sunk.turned { direction.flip() } else { direction };
                self.know(sunk.serial, level, opened, bytes, now);
                return;
            }
        }
        let wait = self.random.below(40) as u64;
        self.up.insert((self.now + wait, number), (key, bytes));
    }

    fn know(&mut self, serial: u64, level: Level, opened: Direction, bytes: u64, now: u64) {
        let (packets, sum, last) = &mut self.known.entry(serial).or_default().levels[level as usize];
        packets[opened] += 1;
        sum[opened] += bytes;
        *last = (*last).max(now);
    }

    /// Handles a packet that reaches the host, as a data plane does.
    fn at_host(&mut self, number: usize, key: FlowKey, bytes: u64) {
        self.handled[number] += 1;
        let mut ended = Vec::new();
        let now = at(self.now);
        let end = |id, flow: &mut FlowEntry<u32>, why| ended.push((id, flow.clone(), why));
        let (id, direction) = match self.table.find_or_insert(&key, now, end) {
            Lookup::Created { id } => (Some(id), Direction::ToServer),
            // A SYN on a connection for which a level may still have an entry.
            Lookup::Found { id, .. } if key.protocol() == 6 && self.random.percent(2) => {
                let opened = self.table.get(id).unwrap().key;
                let end = |id, flow: &mut FlowEntry<u32>, why| ended.push((id, flow.clone(), why));
                (self.table.replace(id, &opened, now, end), key.direction_in(&opened))
            }
            Lookup::Found { id, direction } => (Some(id), direction),
            Lookup::Full => (None, Direction::ToServer),
        };
        for (id, flow, why) in ended {
            self.check(id, &flow, why, None);
        }
        let Some(id) = id else {
            self.without_flow = (self.without_flow.0 + 1, self.without_flow.1 + bytes);
            return;
        };
        self.crossed
            .extend(self.table.stay(id).filter(|s| s.step.in_removal()).map(|s| (self.moves, s.sunk)));
        self.table.account(id, direction, bytes as u32, now, true);
        let flow = self.table.get(id).unwrap();
        let turned = flow.flags.contains(FlowFlags::FLIPPED);
        self.know(
            flow.serial(),
            Level::Host,
            if turned { direction.flip() } else { direction },
            bytes,
            self.now,
        );
    }

    /// Checks that an ended flow has exactly the generator's amounts.
    fn check(
        &mut self,
        id: FlowId,
        flow: &FlowEntry<u32>,
        why: EndReason,
        amounts: Option<[FlowLevelCounts; 3]>,
    ) {
        let known = self.known.remove(&flow.serial()).unwrap_or_default();
        self.ends[why as usize] += 1;
        let turned = flow.flags.contains(FlowFlags::FLIPPED);
        let seen_as = |(mut packets, mut bytes, last): LevelSums| {
            if turned {
                packets.swap();
                bytes.swap();
            }
            (packets, bytes, last)
        };
        let mut sums = LevelSums::default();
        for (level, known) in known.levels.into_iter().map(seen_as).enumerate() {
            for direction in Direction::BOTH {
                sums.0[direction] += known.0[direction];
                sums.1[direction] += known.1[direction];
            }
            sums.2 = sums.2.max(known.2);
            if let Some(amounts) = amounts
                && self.short.is_none()
            {
                let FlowLevelCounts { packets, bytes, last_seen } = amounts[level];
                assert_eq!((packets, bytes), (known.0, known.1), "{id:?} {why:?} level {level}");
                let last = last_seen.to_server.max(last_seen.to_client);
                // A level reports the time of counting, which may be a little later.
                assert!(last >= at(known.2) || known.2 == 0, "{last:?} {}", known.2);
            }
        }
        self.ended.0 += flow.packets.to_server + flow.packets.to_client;
        self.ended.1 += flow.bytes.to_server + flow.bytes.to_client;
        if (flow.packets, flow.bytes) != (sums.0, sums.1) {
            assert!(flow.packets.to_server + flow.packets.to_client <= sums.0.to_server + sums.0.to_client);
            let short = self.short.as_mut();
            *short.unwrap_or_else(|| panic!("{id:?} {why:?}: {flow:?} {sums:?}")) += 1;
        } else if why == EndReason::Timeout {
            assert!(self.now - sums.2 >= SILENCE, "not silent: {flow:?} now {}, last {}", self.now, sums.2);
        }
    }

    fn amounts(&self, id: FlowId) -> [FlowLevelCounts; 3] {
        LEVELS.map(|level| self.table.amounts(id, level).unwrap())
    }

    /// Advances time: packets are passed up, levels work and report, flows end, orders go down.
    fn go_on(&mut self, millis: u64) {
        self.now += millis;
        while let Some(((when, number), (key, bytes))) = self.up.first_key_value().map(|(k, v)| (*k, *v))
            && when <= self.now
        {
            self.up.remove(&(when, number));
            self.at_host(number, key, bytes);
        }
        let mut said = Vec::new();
        let report = self.random.percent(4);
        for device in &mut self.devices {
            device.run(self.now, &mut said);
            if report {
                device.report(60, &mut said);
            }
        }
        self.hear(said);
        let mut budget = 50;
        while let Some(id) = self.table.next_due(at(self.now), &mut budget) {
            self.end(id, EndReason::Timeout);
        }
        self.tasks();
    }

    fn end(&mut self, id: FlowId, reason: EndReason) {
        let (flow, amounts) = (self.table.get(id).unwrap().clone(), self.amounts(id));
        self.check(id, &flow, reason, Some(amounts));
        self.table.remove(id, reason).unwrap();
    }

    fn hear(&mut self, said: Vec<MockReply>) {
        for said in said {
            let (packets, bytes) = said.to(&mut self.table, self.now);
            self.orphans = (self.orphans.0 + packets, self.orphans.1 + bytes);
        }
    }

    fn tasks(&mut self) {
        let mut budget = 1_000;
        while let Some(task) = self.table.next_task(at(self.now), &mut budget) {
            match task {
                Task::Tell { sunk, command } => {
                    let (now, key) = (self.now, self.table.get(sunk.flow()).unwrap().key);
                    if command == Command::Mark && self.device(sunk.level()).in_flight().any(|s| s == sunk) {
                        self.crossed.insert((self.moves, sunk));
                    }
                    self.device(sunk.level()).send_command(now, sunk, key, command);
                }
                Task::End { id, reason } => {
                    self.ends_of_sunk[reason as usize] += 1;
                    assert!(self.table.begin_end(id, reason, at(self.now)));
                    self.end(id, reason);
                }
            }
        }
    }

    fn stays(&self) -> Vec<Stay> {
        self.table.stays().collect()
    }

    /// Acts as a flow manager, at random.
    fn manage(&mut self) {
        let now = at(self.now);
        let n = self.random.below(140) as u16;
        let Find::Found { id, .. } = self.table.find(&key(n, false), now) else { return };
        let sunk = !self.table.get(id).unwrap().step().at_host();
        match self.random.below(100) {
            0..70 if !sunk => {
                let level = *self.random.pick(&[Level::Xdp, Level::Rtl]);
                let key = self.table.get(id).unwrap().key;
                if let Ok(sunk) = self.table.sink(id, level, Generation(self.generation), now) {
                    let now = self.now;
                    self.device(level).install(now, sunk, key);
                }
            }
            70..80 => assert_eq!(self.table.raise(id, now), sunk),
            80..88 => self.table.get_mut(id).unwrap().flip(),
            88..98 => {
                let state = *self.random.pick(&[FlowState::New, FlowState::Established, FlowState::Closed]);
                self.table.set_state(id, state);
            }
            98 if self.random.percent(5) => {
                // A swap: flows of an earlier generation are raised.
                self.generation += 1;
                for stay in self.stays() {
                    assert!(stay.generation < Generation(self.generation));
                    self.table.raise(stay.sunk.flow(), now);
                }
            }
            _ => {}
        }
    }

    /// Moves all flows to another table; levels learn the new names.
    fn move_all(&mut self) {
        let counted = *self.table.level_counters();
        assert_eq!(counted.begun, counted.back + counted.ended + counted.sunk);
        self.past = self.totals();
        self.moves += 1;
        let hasher = FlowHasher::new([self.moves, 7]);
        let mut new: FlowTable<u32> = FlowTable::new(&FlowTableConfig { hasher, ..self.settings }).unwrap();
        let mut names = HashMap::new();
        for id in self.table.ids() {
            let mut bytes = Vec::new();
            self.table.export(id, &mut bytes);
            let (flow, used) = ImportedFlow::read(&bytes, 0).unwrap();
            assert_eq!(used, bytes.len());
            let (serial, stay) = (self.table.get(id).unwrap().serial(), self.table.stay(id));
            let amounts = self.amounts(id);
            let id = new.adopt(flow, at(self.now)).unwrap();
            assert_eq!(LEVELS.map(|level| new.amounts(id, level).unwrap()), amounts);
            assert_eq!(new.stay(id).map(|stay| stay.since), stay.map(|stay| stay.since));
            if let (Some(old), Some(new)) = (stay, new.stay(id)) {
                names.insert(old.sunk, new.sunk);
            }
            if let Some(known) = self.known.remove(&serial) {
                // Serials of both tables may be equal: those of the new one are moved above all others.
                self.known.insert(new.get(id).unwrap().serial() | 1 << 63, known);
            }
        }
        // Flows that ended short may leave a record.
        let gone: Vec<u64> = self.known.keys().copied().filter(|serial| serial >> 63 == 0).collect();
        assert!(gone.is_empty() || self.short.is_some(), "{gone:?}");
        self.known.retain(|serial, _| serial >> 63 == 1);
        self.known = self.known.drain().map(|(serial, known)| (serial & !(1 << 63), known)).collect();
        self.devices.iter_mut().for_each(|device| device.rename(&names));
        self.table = new;
    }

    fn totals(&self) -> (LevelCounters, [u64; EndReason::COUNT]) {
        let (mut sum, now) = (self.past.0, self.table.level_counters());
        sum.begun += now.begun - now.sunk;
        sum.refused += now.refused;
        sum.back += now.back;
        sum.revived += now.revived;
        sum.ended += now.ended;
        sum.unanswered += now.unanswered;
        sum.strays += now.strays;
        sum.orphan_packets += now.orphan_packets;
        sum.orphan_bytes += now.orphan_bytes;
        let ends = self.table.counters().end_reason;
        (sum, core::array::from_fn(|reason| self.past.1[reason] + ends[reason]))
    }

    fn run(&mut self, packets: usize, managed: usize) {
        for _ in 0..packets {
            // Some flows are busy, some are rare; at times all are silent.
            let n =
                if self.random.percent(60) { self.random.below(30) } else { self.random.below(140) } as u16;
            let reply = self.random.percent(45);
            self.packet(key(n, reply));
            for _ in 0..managed {
                self.manage();
            }
            let wait = if self.random.percent(80) { self.random.below(6) } else { self.random.below(25) };
            self.go_on(wait as u64);
            if self.random.below(4_000) == 0 {
                self.go_on(SILENCE / 2);
                self.go_on(SILENCE);
            }
            if self.random.below(10_000) == 0 {
                self.move_all();
            }
        }
        // The end: packets under way arrive, then all flows end.
        for _ in 0..20 {
            self.go_on(20);
        }
        assert!(self.up.is_empty());
        let mut ended = Vec::new();
        self.table
            .drain(EndReason::Shutdown, at(self.now), |id, flow, why| ended.push((id, flow.clone(), why)));
        for (id, flow, why) in ended {
            self.check(id, &flow, why, None);
        }
        for _ in 0..400 {
            self.go_on(20);
        }
        assert!(self.table.is_empty() && self.stays().is_empty());
        let mut said = Vec::new();
        for device in &mut self.devices {
            device.report(100, &mut said);
        }
        self.hear(said);
    }

    /// Checks, for any behaviour of levels, that no packet was handled twice or never, or is unaccounted.
    fn check_sums(&self) {
        assert!(self.handled.iter().all(|times| *times == 1));
        let sum = |of: fn((u64, u64)) -> u64| {
            let lost = self.devices.iter().map(|device| of(device.lost)).sum::<u64>();
            of(self.ended) + of(self.without_flow) + of(self.orphans) + lost
        };
        assert_eq!((sum(|of| of.0), sum(|of| of.1)), self.generated);
        let (counted, ends) = self.totals();
        assert_eq!((counted.orphan_packets, counted.orphan_bytes), self.orphans);
        assert_eq!(counted.begun, counted.back + counted.ended);
        assert_eq!((self.table.len(), ends), (0, self.ends));
        let now = self.table.level_counters();
        assert_eq!((now.sunk, now.cut, self.table.kept_below, self.table.room_coming), (0, 0, 0, 0));
    }
}

impl World {
    /// Checks, for reliable levels, that nothing is an orphan and flows have every packet and byte.
    fn check_exact(&self) {
        self.check_sums();
        let (counted, _) = self.totals();
        assert_eq!((counted.unanswered, counted.orphan_packets), (0, 0));
        let (ended, without) = (self.ended, self.without_flow);
        assert_eq!((ended.0 + without.0, ended.1 + without.1), self.generated);
        assert!(self.devices.iter().all(|d| d.lost == (0, 0) && d.len() == 0));
    }
}

#[test]
fn sums_are_the_generators_under_ten_thousand_removals() {
    let mut world = World::new(1, 96, FAITHFUL, 150);
    world.run(300_000, 1);
    world.check_exact();
    let (counted, ends) = world.totals();
    let removals = counted.back + counted.ended - counted.refused;
    assert!(removals > 20_000 && world.crossed.len() > 10_000, "{counted:?} {}", world.crossed.len());
    assert!(counted.ended > 1_000 && counted.revived > 1_000 && counted.refused > 1_000, "{counted:?}");
    assert!(ends.iter().all(|ends| *ends > 50) && world.moves > 10, "{ends:?}");
    assert!(world.devices.iter().all(|d| d.counted_late > 500));
}

#[test]
fn a_table_full_of_flows_that_have_sunk_makes_room() {
    let mut world = World::new(2, 24, Habits { refuses: 0, ..FAITHFUL }, 150);
    world.run(100_000, 8);
    world.check_exact();
    let (counted, _) = world.totals();
    assert!(world.ends_of_sunk[EndReason::Forced as usize] > 1_000, "{counted:?}");
    assert!(world.without_flow.0 > 1_000);
}

#[test]
fn without_grace_packets_under_way_are_lost() {
    // Earlier tests would detect this.
    let mut world = World::new(3, 96, Habits { work: 40, flight: 600, ..FAITHFUL }, 0);
    world.short = Some(0);
    world.run(20_000, 1);
    world.check_sums();
    assert!(world.short > Some(0) && world.devices.iter().any(|d| d.lost.0 > 0));
}

#[test]
fn levels_that_do_not_answer_hold_nothing_up_and_what_they_say_late_is_counted() {
    let mut world = World::new(4, 96, Habits { forgets: 1, lags: 10, ..FAITHFUL }, 150);
    world.short = Some(0);
    world.run(40_000, 1);
    world.check_sums();
    let (counted, _) = world.totals();
    assert!(counted.unanswered > 200 && counted.strays > 100 && counted.orphan_packets > 500, "{counted:?}");
    assert!(world.short > Some(0) && world.moves > 0);
}

// SPDX-License-Identifier: Apache-2.0
//! Moves of flows from table to table: against a map with each flow's table and amounts.

use super::moving::TakeError;
use super::tests::{at, config, key};
use super::*;
use bartizan_base::Level;
use proptest::prelude::*;
use std::collections::HashMap;

const TABLES: usize = 4;
/// Flows of the test: more than the tables hold.
const FLOWS: u16 = 48;
const CAPACITY: u32 = 8;

/// The test's record of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MoveTestFlow {
    table: usize,
    packets: u64,
    bytes: u64,
    start: Timestamp,
    last_seen: Timestamp,
    state: FlowState,
    ext: u32,
    /// Time of its last move, in milliseconds.
    moved: u64,
}

struct MoveTestTables {
    tables: Vec<FlowTable<u32>>,
    known: HashMap<u16, MoveTestFlow>,
    /// Flows, packets and bytes of those that ended.
    ended: [u64; 3],
    now: u64,
}

const fn home(flow: u16) -> usize {
    flow as usize % TABLES
}

fn number_of(ext: u32) -> u16 {
    (ext >> 16) as u16
}

impl MoveTestTables {
    fn new() -> Self {
        MoveTestTables {
            tables: (0..TABLES).map(|_| FlowTable::new(&config(CAPACITY)).unwrap()).collect(),
            known: HashMap::new(),
            ended: [0; 3],
            now: 0,
        }
    }

    /// Checks flows that a table ended against the records; their home does not keep room for them any more.
    fn note_ends(&mut self, table: usize, ends: Vec<FlowEntry<u32>>) {
        for entry in ends {
            let flow = number_of(entry.ext);
            let known = self.known.remove(&flow).unwrap();
            assert_eq!(known.table, table);
            assert_same(&entry, &known);
            self.ended[0] += 1;
            self.ended[1] += known.packets;
            self.ended[2] += known.bytes;
            if table != home(flow) {
                self.tables[home(flow)].release_room();
            }
        }
    }

    fn packet(&mut self, flow: u16, bytes: u32, reply: bool) {
        let now = at(self.now);
        let table = self.known.get(&flow).map_or(home(flow), |known| known.table);
        let mut ends = Vec::new();
        let lookup =
            self.tables[table].find_or_insert(&key(flow, reply), now, |_, e, _| ends.push(e.clone()));
        self.note_ends(table, ends);
        let (id, direction) = match lookup {
            Lookup::Found { id, direction } => (id, direction),
            Lookup::Created { id } => {
                let ext = u32::from(flow) << 16 | 7;
                self.tables[table].get_mut(id).unwrap().ext = ext;
                let known = MoveTestFlow {
                    table,
                    packets: 0,
                    bytes: 0,
                    start: now,
                    last_seen: now,
                    state: FlowState::New,
                    ext,
                    moved: self.now,
                };
                assert_eq!(self.known.insert(flow, known), None);
                if table != home(flow) {
                    // The flow ended while it was a guest here, and begins anew here.
                    self.tables[home(flow)].kept_room += 1;
                }
                (id, Direction::ToServer)
            }
            // All the room is kept for flows that are elsewhere.
            Lookup::Full => return,
        };
        self.tables[table].account(id, direction, bytes, now, true);
        let entry = self.tables[table].get(id).unwrap();
        let known = self.known.get_mut(&flow).unwrap();
        known.packets += 1;
        known.bytes += u64::from(bytes);
        known.last_seen = now;
        known.state = entry.state();
    }

    fn move_flow(&mut self, flow: u16, to: usize) {
        let Some(known) = self.known.get(&flow).copied().filter(|known| known.table != to) else { return };
        let from = known.table;
        let found = self.tables[from].find(&key(flow, false), at(self.now));
        let (Find::Found { id, .. } | Find::Stale { id }) = found else {
            panic!("{flow} is not where it should be");
        };
        let before = *self.tables[from].counters();
        let moved = self.tables[from].take(id, from == home(flow)).unwrap();
        assert_same(moved.entry(), &known);
        assert_eq!(self.tables[from].find(&key(flow, false), at(self.now)), Find::Missing);
        assert_eq!(self.tables[from].counters().active + 1, before.active);
        // A flow that moves home has its room there; elsewhere other flows may have taken it.
        let taken = if to == home(flow) {
            Ok(self.tables[to].take_back(moved).unwrap())
        } else {
            self.tables[to].take_in(moved)
        };
        match taken {
            Ok(id) => {
                assert_same(self.tables[to].get(id).unwrap(), &known);
                let known = self.known.get_mut(&flow).unwrap();
                (known.table, known.moved) = (to, self.now);
            }
            Err(moved) => {
                assert_eq!(self.tables[to].room(), 0);
                assert_same(moved.entry(), &known);
                let back = if from == home(flow) {
                    self.tables[from].take_back(moved)
                } else {
                    self.tables[from].take_in(moved)
                };
                back.unwrap();
                assert_eq!(*self.tables[from].counters(), before, "nothing is counted");
            }
        }
    }

    fn check(&self) {
        let sum = |of: fn(&FlowTable<u32>) -> u64| self.tables.iter().map(of).sum::<u64>();
        assert_eq!(sum(|t| t.len() as u64), self.known.len() as u64);
        let ended = sum(|t| t.counters().end_reason.iter().sum());
        assert_eq!(ended, self.ended[0]);
        assert_eq!(sum(|t| t.counters().total), ended + sum(|t| t.counters().active));
        let away = |table: usize| {
            self.known.iter().filter(|(flow, k)| home(**flow) == table && k.table != table).count() as u32
        };
        for (index, table) in self.tables.iter().enumerate() {
            assert_eq!(table.kept_room(), away(index));
            assert!(table.len() as u32 + table.kept_room() <= CAPACITY);
            assert_eq!(table.wheels.iter().map(|w| w.armed() as usize).sum::<usize>(), table.len());
            assert_eq!(table.free.len() + table.len(), table.entries.len());
        }
    }
}

fn assert_same(entry: &FlowEntry<u32>, known: &MoveTestFlow) {
    let of = |amounts: &PerDirection<u64>| amounts.to_server + amounts.to_client;
    assert_eq!(
        (of(&entry.packets), of(&entry.bytes), entry.start, entry.last_seen, entry.state(), entry.ext),
        (known.packets, known.bytes, known.start, known.last_seen, known.state, known.ext)
    );
}

#[derive(Clone, Copy, Debug)]
enum MoveTestStep {
    Packet { flow: u16, bytes: u32, reply: bool, wait: u64 },
    Move { flow: u16, to: usize },
    State { flow: u16, state: usize },
    Expire { table: usize, wait: u64 },
    Remove { flow: u16 },
}

fn steps() -> impl Strategy<Value = MoveTestStep> {
    prop_oneof![
        6 => (0..FLOWS, 60_u32..1500, any::<bool>(), 0_u64..500)
            .prop_map(|(flow, bytes, reply, wait)| MoveTestStep::Packet { flow, bytes, reply, wait }),
        6 => (0..FLOWS, 0..TABLES).prop_map(|(flow, to)| MoveTestStep::Move { flow, to }),
        1 => (0..FLOWS, 0..4_usize).prop_map(|(flow, state)| MoveTestStep::State { flow, state }),
        1 => (0..TABLES, 0_u64..40_000).prop_map(|(table, wait)| MoveTestStep::Expire { table, wait }),
        1 => (0..FLOWS).prop_map(|flow| MoveTestStep::Remove { flow }),
    ]
}

proptest! {
    #[test]
    fn flows_that_move_lose_nothing(steps in prop::collection::vec(steps(), 1..300)) {
        let mut all = MoveTestTables::new();
        for step in steps {
            match step {
                MoveTestStep::Packet { flow, bytes, reply, wait } => {
                    all.now += wait;
                    all.packet(flow, bytes, reply);
                }
                MoveTestStep::Move { flow, to } => all.move_flow(flow, to),
                MoveTestStep::State { flow, state } => {
                    if let Some(known) = all.known.get_mut(&flow) {
                        let table = &mut all.tables[known.table];
                        if let Find::Found { id, .. } | Find::Stale { id } =
                            table.find(&key(flow, true), at(all.now))
                        {
                            table.set_state(id, FlowState::ALL[state]);
                            known.state = FlowState::ALL[state];
                        }
                    }
                }
                MoveTestStep::Expire { table, wait } => {
                    all.now += wait;
                    let mut ends = Vec::new();
                    all.tables[table].expire(at(all.now), u32::MAX, |_, e, _| ends.push(e.clone()));
                    all.note_ends(table, ends);
                    // The remaining flows are not due, in any table.
                    let late = PacketDuration::from_millis(135);
                    let was_full = all.tables[table].counters().emerg_mode_entered > 0;
                    for (_, entry) in all.tables[table].iter() {
                        let (normal, emergency) = all.tables[table].timeout(entry);
                        // In emergency mode wheels are read ahead by the difference; a timer armed after that
                        // fires as late, once it is over: also one that was due long ago, in a table without
                        // checks, and has moved here since.
                        let ahead = if was_full { normal.as_nanos() - emergency.as_nanos() } else { 0 };
                        let moved = all.known.values().find(|known| known.ext == entry.ext).map(|known| at(known.moved));
                        let due = (entry.last_seen + normal).max(moved.unwrap());
                        let ends = due + late + PacketDuration::from_nanos(ahead);
                        prop_assert!(ends > at(all.now), "left over: {entry:?}");
                    }
                }
                MoveTestStep::Remove { flow } => {
                    let Some(known) = all.known.get(&flow).copied() else { continue };
                    let found = all.tables[known.table].find(&key(flow, false), at(all.now));
                    let (Find::Found { id, .. } | Find::Stale { id }) = found else {
                        panic!("{flow} is not where it should be");
                    };
                    let entry = all.tables[known.table].get(id).unwrap().clone();
                    prop_assert_eq!(all.tables[known.table].remove(id, EndReason::Forced), Some(known.ext));
                    all.note_ends(known.table, vec![entry]);
                }
            }
            all.check();
        }
        // All packets of all flows, each once.
        let sums = all.known.values().fold(all.ended, |[f, p, b], k| [f + 1, p + k.packets, b + k.bytes]);
        for table in 0..TABLES {
            let mut ends = Vec::new();
            all.tables[table].drain(EndReason::Shutdown, at(all.now), |_, e, _| ends.push(e.clone()));
            all.note_ends(table, ends);
        }
        prop_assert!(all.known.is_empty());
        prop_assert_eq!(all.ended, sums);
        all.check();
    }
}

#[test]
fn a_flow_that_comes_expires_by_its_own_time() {
    for (used, expired) in [(0, true), (40_000, false)] {
        let mut from: FlowTable<u32> = FlowTable::new(&config(4)).unwrap();
        let mut to: FlowTable<u32> = FlowTable::new(&config(4)).unwrap();
        let Lookup::Created { id } = from.find_or_insert(&key(4, false), at(0), super::tests::none) else {
            panic!("not created");
        };
        from.account(id, Direction::ToServer, 60, at(used), true);
        // The other table is ahead: its wheels have been read.
        let other = super::tests::created(to.find_or_insert(&key(5, false), at(50_000), super::tests::none));
        to.expire(at(50_000), 100, super::tests::none);
        let moved = from.take(id, true).unwrap();
        to.take_in(moved).unwrap();
        let mut ended = Vec::new();
        to.expire(at(50_000), 100, |_, e, _| ended.push(e.key().source_port()));
        assert_eq!(!ended.is_empty(), expired, "used at {used}");
        assert!(to.get(other).is_some());
    }
}

#[test]
fn a_timer_fires_when_it_would_have_fired() {
    // Used after its timer was armed: the timer fires once without effect, in either table.
    let run = |moves: &[u64]| {
        let mut tables: [FlowTable<u32>; 2] = core::array::from_fn(|_| FlowTable::new(&config(4)).unwrap());
        let mut here = 0;
        let id = super::tests::created(tables[0].find_or_insert(&key(4, false), at(0), super::tests::none));
        tables[0].account(id, Direction::ToServer, 60, at(250), true);
        for millis in 250..40_000 {
            if moves.contains(&millis) {
                let found = tables[here].find(&key(4, false), Timestamp::ZERO);
                let Find::Found { id, .. } = found else { panic!("{found:?}") };
                let moved = tables[here].take(id, false).unwrap();
                here = 1 - here;
                tables[here].take_in(moved).unwrap();
            }
            for table in &mut tables {
                if table.expire(at(millis), 100, |_, _, _| ()) > 0 {
                    let checked = tables.iter().map(|t| t.counters().mgr_checked).sum::<u64>();
                    return (millis, checked);
                }
            }
        }
        panic!("it does not end");
    };
    let alone = run(&[]);
    for moves in [&[260][..], &[29_990], &[300, 30_050], &[30_100, 30_200]] {
        assert_eq!(run(moves), alone, "{moves:?}");
    }
}

#[test]
fn room_that_is_kept_is_nobodys_and_a_full_table_gives_a_flow_back() {
    let mut from: FlowTable<u32> = FlowTable::new(&config(1)).unwrap();
    let mut to: FlowTable<u32> = FlowTable::new(&config(1)).unwrap();
    let id = super::tests::created(from.find_or_insert(&key(4, false), at(0), super::tests::none));
    let guest = super::tests::created(to.find_or_insert(&key(5, false), at(0), super::tests::none));
    let moved = from.take(id, true).unwrap();
    assert_eq!((from.len(), from.kept_room()), (0, 1));
    // A newcomer finds no room, and no flow that could make room.
    assert_eq!(from.insert(&key(8, false), at(1)), Insert::Full);
    let moved = to.take_in(moved).unwrap_err();
    assert!(to.get(guest).is_some());
    let back = from.take_back(moved).unwrap();
    assert_eq!((from.len(), from.kept_room()), (1, 0));
    let moved = from.take(back, true).unwrap();
    to.remove(guest, EndReason::Forced).unwrap();
    to.take_in(moved).unwrap();
    from.release_room();
    assert!(matches!(from.insert(&key(8, false), at(1)), Insert::Created { .. }));
}

#[test]
fn what_levels_know_stays() {
    let mut table: FlowTable<u32> = FlowTable::new(&config(4)).unwrap();
    let id = super::tests::created(table.find_or_insert(&key(4, false), at(0), super::tests::none));
    table.sink(id, Level::Xdp, Generation(1), at(0)).unwrap();
    assert_eq!(table.take(id, true).unwrap_err(), TakeError::Below);
    assert_eq!((table.len(), table.kept_room()), (1, 0));
    assert_eq!(table.take(FlowId(3), true).unwrap_err(), TakeError::NoFlow);
}

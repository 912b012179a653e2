// SPDX-License-Identifier: Apache-2.0
//! Tests of the flow table: against a map with a plain list of timeouts, and case by case.

use super::*;
use crate::entry::export::ImportedFlow;
use crate::key::FlowScope;
use crate::timeouts::FlowTimeouts;
use bartizan_base::{LinkId, TenantId};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

pub(super) fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(1_600_000_000_000_000_000 + millis * 1_000_000)
}

fn address(v6: bool, n: u8) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)).into()
    } else {
        Ipv4Addr::new(10, 0, 0, n).into()
    }
}

/// Flow `n`: its protocol, family and tenant vary with its number.
pub(super) fn key(n: u16, reply: bool) -> FlowKey {
    let scope = FlowScope { tenant: TenantId(n % 2), link: LinkId(1), ..FlowScope::default() };
    let v6 = n.is_multiple_of(3);
    let (mut a, mut b) = ((address(v6, 1), 1000 + n / 2), (address(v6, 2), 80));
    if reply {
        core::mem::swap(&mut a, &mut b);
    }
    let protocol = [6, 17, 132][usize::from(n / 4 % 3)];
    FlowKey::ported(&scope, protocol, a, b)
}

pub(super) fn config(capacity: u32) -> FlowTableConfig {
    FlowTableConfig::new(capacity, FlowHasher::new([11, 12]))
}

fn table(capacity: u32) -> FlowTable<u32> {
    FlowTable::new(&config(capacity)).unwrap()
}

pub(super) fn created(lookup: Lookup) -> FlowId {
    match lookup {
        Lookup::Created { id } => id,
        other => panic!("not created: {other:?}"),
    }
}

pub(super) fn none(_: FlowId, _: &mut FlowEntry<u32>, reason: EndReason) {
    panic!("a flow ended: {reason:?}");
}

#[test]
fn both_directions_meet_in_one_flow_and_become_established() {
    for v6 in [false, true] {
        let mut t = table(10);
        let n = if v6 { 6 } else { 4 };
        let id = created(t.find_or_insert(&key(n, false), at(0), none));
        let first = t.account(id, Direction::ToServer, 60, at(0), true);
        assert_eq!(first, Accounted { first_in_direction: true, established: false });
        let found = t.find_or_insert(&key(n, true), at(5), none);
        assert_eq!(found, Lookup::Found { id, direction: Direction::ToClient });
        let answer = t.account(id, Direction::ToClient, 70, at(5), true);
        assert_eq!(answer, Accounted { first_in_direction: true, established: true });
        let flow = t.get(id).unwrap();
        assert_eq!(flow.key().is_ipv6(), v6);
        assert_eq!(flow.key().source_port(), 1000 + n / 2);
        assert_eq!(flow.state(), FlowState::Established);
        assert_eq!((flow.packets, flow.bytes), (PerDirection::new(1, 1), PerDirection::new(60, 70)));
        assert_eq!((flow.start, flow.last_seen), (at(0), at(5)));
    }
}

#[test]
fn tenants_with_equal_addresses_never_meet() {
    for v6 in [false, true] {
        let mut t = table(10);
        let of = |tenant| {
            FlowKey::ported(
                &FlowScope { tenant: TenantId(tenant), ..FlowScope::default() },
                17,
                (address(v6, 1), 53),
                (address(v6, 2), 53),
            )
        };
        let first = created(t.find_or_insert(&of(1), at(0), none));
        let second = created(t.find_or_insert(&of(2), at(0), none));
        assert_ne!(first, second);
        assert_eq!(t.get(first).unwrap().tenant(), TenantId(1));
        assert_eq!(t.get(second).unwrap().tenant(), TenantId(2));
        t.remove(first, EndReason::Shutdown);
        assert_eq!(t.find(&of(1), at(0)), Find::Missing);
        assert!(matches!(t.find(&of(2), at(0)), Find::Found { .. }));
    }
}

#[test]
fn icmp_errors_do_not_establish_and_tcp_waits_for_its_tracker() {
    let mut t = table(10);
    let udp = created(t.find_or_insert(&key(4, false), at(0), none));
    t.account(udp, Direction::ToServer, 60, at(0), true);
    let error = t.account(udp, Direction::ToClient, 60, at(1), false);
    assert_eq!(error, Accounted::default());
    assert_eq!(t.get(udp).unwrap().packets.to_client, 1);
    let tcp = created(t.find_or_insert(&key(0, false), at(0), none));
    t.account(tcp, Direction::ToServer, 60, at(0), true);
    t.account(tcp, Direction::ToClient, 60, at(0), true);
    assert_eq!(t.get(tcp).unwrap().state(), FlowState::New);
    t.set_state(tcp, FlowState::Established);
    assert!(t.account(tcp, Direction::ToServer, 60, at(0), true).established);
}

#[test]
fn a_packet_after_the_timeout_opens_a_new_flow_whether_or_not_timers_ran() {
    // UDP, one direction: 30 s.
    for (millis, same) in [(29_999, true), (30_000, false)] {
        let mut t = table(10);
        let id = created(t.find_or_insert(&key(4, false), at(0), none));
        t.get_mut(id).unwrap().ext = 7;
        let mut ended = Vec::new();
        let now = t.find_or_insert(&key(4, true), at(millis), |_, flow, why| ended.push((flow.ext, why)));
        if same {
            assert_eq!(now, Lookup::Found { id, direction: Direction::ToClient });
            assert!(ended.is_empty());
        } else {
            let id = created(now);
            assert_eq!(ended, [(7, EndReason::Timeout)]);
            assert_eq!(t.counters().wrk_evicted, 1);
            let flow = t.get(id).unwrap();
            assert_eq!((flow.ext, flow.serial(), flow.key().source_port()), (0, 2, 80));
        }
    }
}

#[test]
fn a_closed_tcp_flow_stays_for_its_timeout_and_can_be_replaced() {
    let mut t = table(10);
    let id = created(t.find_or_insert(&key(0, false), at(0), none));
    t.set_state(id, FlowState::Established);
    t.set_state(id, FlowState::Closed);
    assert!(matches!(t.find(&key(0, false), at(59_000)), Find::Found { .. }));
    assert_eq!(t.find(&key(0, false), at(60_000)), Find::Stale { id });
    let mut ended = Vec::new();
    let new = t.replace(id, &key(0, true), at(1_000), |_, f, why| ended.push((f.serial(), why))).unwrap();
    assert_eq!(ended, [(1, EndReason::TcpReuse)]);
    assert_eq!(t.get(new).unwrap().key().source_port(), 80);
    assert_eq!((t.counters().tcp_reuse, t.counters().total, t.len()), (1, 2, 1));
    assert_eq!(t.replace(new, &key(1, true), at(1_000), none), None, "another key's flow stays");

    let mut settings = config(10);
    settings.timeouts = FlowTimeouts::BUILT_IN;
    let mut t: FlowTable<u32> = FlowTable::new(&settings).unwrap();
    let id = created(t.find_or_insert(&key(0, false), at(0), none));
    t.set_state(id, FlowState::Closed);
    assert_eq!(t.find(&key(0, false), at(0)), Find::Stale { id }, "0 s: the next packet is a new flow's");
}

#[test]
fn a_flood_that_is_answered_always_makes_room() {
    // Both families; all flows are used once after their timers were armed. TCP is answered; UDP goes on one
    // way, and its timers stay as they are.
    for (first, kept) in
        [(0, FlowState::Established), (4, FlowState::LocalBypassed), (4, FlowState::Established)]
    {
        let flood = |n: u16| key(first + n * 12, false);
        let mut t = table(100);
        let connection = created(t.find_or_insert(&flood(0), at(0), none));
        t.set_state(connection, kept);
        let mut forced = 0;
        for n in 1..1_000 {
            let now = u64::from(n) * 10;
            let id = created(t.find_or_insert(&flood(n), at(now), |_, _, why| {
                assert_eq!(why, EndReason::Forced);
                forced += 1;
            }));
            t.account(id, Direction::ToServer, 60, at(now), true);
            if let Some(answered) = n.checked_sub(50)
                && let Find::Found { id, direction } = t.find(&flood(answered), at(now))
            {
                let tcp = first == 0;
                t.account(id, if tcp { direction.flip() } else { direction }, 60, at(now), true);
            }
        }
        assert_eq!((t.len(), t.counters().get_used, forced), (100, 900, 900));
        assert_eq!((t.counters().get_used_failed, t.counters().memcap), (0, 0));
        assert_eq!(t.get(connection).unwrap().state(), kept);
        if first == 0 {
            // Among half-open flows the one that was silent longest goes, to within a tick.
            let seen = t.iter().filter(|(_, f)| f.state() == FlowState::New).map(|(_, f)| f.last_seen);
            let quietest = seen.min().unwrap();
            let victim = t.session_to_end(at(10_000)).unwrap();
            assert!(t.get(victim).unwrap().last_seen.since(quietest) < PacketDuration::from_millis(135));
        }
    }
    let mut t = table(4);
    let connection = created(t.find_or_insert(&key(0, false), at(0), none));
    t.set_state(connection, FlowState::Established);
    assert_eq!(t.session_to_end(at(1)), None);
    t.set_state(connection, FlowState::Closed);
    assert_eq!(t.session_to_end(at(1)), Some(connection));
}

#[test]
fn a_full_table_refuses_or_evicts_by_policy_and_counts_it() {
    let mut settings = config(4);
    settings.when_full = WhenFull::Refuse;
    let mut t: FlowTable<u32> = FlowTable::new(&settings).unwrap();
    for n in 0..4 {
        created(t.find_or_insert(&key(n, false), at(0), none));
    }
    assert_eq!(t.find_or_insert(&key(9, false), at(0), none), Lookup::Full);
    assert_eq!((t.counters().memcap, t.counters().emerg_mode_entered), (1, 1));
    assert!(t.in_emergency());

    let mut t = table(4);
    for n in 0..4 {
        created(t.find_or_insert(&key(n * 12, false), at(u64::from(n)), none)); // all TCP
    }
    // 0 established, 1 new and used last, 2 new, 3 closed just now.
    t.set_state(FlowId(0), FlowState::Established);
    t.account(FlowId(1), Direction::ToServer, 1, at(900), true);
    t.set_state(FlowId(3), FlowState::Closed);
    let mut order = Vec::new();
    for n in 10..14 {
        created(t.find_or_insert(&key(n * 12 + 240, false), at(1_000), |id, _, why| order.push((id.0, why))));
        // Excludes the newcomers from the choice.
        let new = t.find(&key(n * 12 + 240, false), at(1_000));
        if let Find::Found { id, .. } = new {
            t.set_state(id, FlowState::LocalBypassed);
        }
    }
    assert_eq!(order, [3, 2, 1, 0].map(|id| (id, EndReason::Forced)), "closed, new by silence, established");
    assert_eq!((t.counters().get_used, t.counters().memcap, t.len()), (4, 0, 4));

    let mut settings = config(1);
    settings.when_full = WhenFull::Evict { quiet: PacketDuration::from_secs(1) };
    let mut t: FlowTable<u32> = FlowTable::new(&settings).unwrap();
    created(t.find_or_insert(&key(0, false), at(0), none));
    assert_eq!(t.find_or_insert(&key(1, false), at(999), none), Lookup::Full);
    assert_eq!((t.counters().get_used_failed, t.counters().get_used_eval_reject), (1, 1));
    assert!(matches!(t.find_or_insert(&key(1, false), at(1_000), |_, _, _| ()), Lookup::Created { .. }));
}

#[test]
fn a_flood_of_first_packets_evicts_itself_not_connections() {
    let mut t = table(100);
    for n in 0..50 {
        let id = created(t.find_or_insert(&key(n * 12, false), at(0), none));
        t.set_state(id, FlowState::Established);
    }
    for n in 50..5_000 {
        let lookup = t.find_or_insert(&key(n * 12, false), at(u64::from(n)), |_, flow, _| {
            assert_eq!(flow.state(), FlowState::New);
        });
        assert!(matches!(lookup, Lookup::Created { .. }));
    }
    assert!((0..50).all(|n| matches!(t.find(&key(n * 12, true), at(5_000)), Find::Found { .. })));
    let c = t.counters();
    assert_eq!(c.total - c.active, c.end_reason.iter().sum());
}

#[test]
fn emergency_mode_shortens_timeouts_until_enough_is_free() {
    let mut t = table(10);
    for n in 0..10 {
        created(t.find_or_insert(&key(n * 12, false), at(0), none)); // TCP new: 60 s, emergency 5 s
    }
    assert_eq!(t.expire(at(6_000), 100, none), 0);
    let mut settings = config(10);
    settings.when_full = WhenFull::Refuse;
    let mut t: FlowTable<u32> = FlowTable::new(&settings).unwrap();
    for n in 0..10 {
        created(t.find_or_insert(&key(n * 12, false), at(u64::from(n) * 1000), none));
    }
    assert_eq!(t.find_or_insert(&key(999, false), at(9_100), none), Lookup::Full);
    let mut ended = 0;
    t.expire(at(9_200), 1000, |_, flow, why| {
        assert_eq!(why, EndReason::Timeout);
        assert!(flow.flags.contains(FlowFlags::EMERGENCY));
        ended += 1;
    });
    assert_eq!(ended, 3, "three are enough: 30 % of ten");
    assert!(!t.in_emergency());
    assert_eq!(t.counters().emerg_mode_over, 1);
    // The wheels were read ahead; a timer armed now still fires, and not early.
    let id = created(t.find_or_insert(&key(504, false), at(9_300), none));
    let mut late = Vec::new();
    t.expire(at(9_300 + 59_000), 1000, |id, _, _| late.push(id));
    assert!(!late.contains(&id));
    t.expire(at(9_300 + 61_000), 1000, |id, _, _| late.push(id));
    assert!(late.contains(&id));
    assert!(t.is_empty());
}

#[test]
fn a_small_budget_gets_everything_in_the_end() {
    let mut t = table(1000);
    for n in 0..900 {
        created(t.find_or_insert(&key(n, false), at(0), none));
    }
    let mut rounds = 0;
    while !t.is_empty() {
        assert!(t.expire(at(100_000), 7, |_, _, _| ()) <= 7);
        rounds += 1;
        assert!(rounds < 2_000);
    }
    assert_eq!(t.counters().mgr_timeout, 900);
}

#[test]
fn flows_come_in_the_order_of_creation_and_drain_in_it() {
    let mut t = table(8);
    for n in 0..5 {
        created(t.find_or_insert(&key(n, false), at(0), none));
    }
    t.remove(FlowId(1), EndReason::Timeout);
    created(t.find_or_insert(&key(7, false), at(0), none));
    let serials: Vec<u64> = t.iter().map(|(_, flow)| flow.serial()).collect();
    assert_eq!(serials, [1, 3, 4, 5, 6]);
    assert_eq!(t.ids().last(), Some(&FlowId(1)), "the entry ended last is used first");
    let mut drained = Vec::new();
    t.drain(EndReason::Shutdown, at(0), |_, flow, _| drained.push(flow.serial()));
    assert_eq!(drained, serials);
    let mut stats = BTreeMap::new();
    t.visit_stats(|name, value| {
        stats.insert(name, value);
    });
    assert_eq!((stats["flow.total"], stats["flow.active"], stats["flow.room"]), (6, 0, 8));
    assert_eq!(stats["flow.end.state.new"], 6);
    assert_eq!(stats["flow.end.reason.shutdown"], 5);
}

#[test]
fn a_table_is_walked_in_parts() {
    let mut t = table(64);
    let ids: Vec<FlowId> = (0..20).map(|n| created(t.find_or_insert(&key(n, false), at(0), none))).collect();
    t.remove(ids[7], EndReason::Timeout);
    for size in [1, 3, 7, 20, 64] {
        let (mut met, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let (flows, then) = t.part(from, size);
            met.extend(flows.map(|(id, _)| id.0));
            next = then;
        }
        met.sort_unstable();
        let expected: Vec<u32> = ids.iter().map(|id| id.0).filter(|id| *id != ids[7].0).collect();
        assert_eq!(met, expected, "{size}");
    }
    let (mut beyond, next) = t.part(1_000, 5);
    assert!(beyond.next().is_none() && next.is_none());
}

#[test]
fn a_table_moves_to_another_instance() {
    let mut old = table(8);
    for n in 0..4 {
        let id = created(old.find_or_insert(&key(n, false), at(u64::from(n)), none));
        old.account(id, Direction::ToServer, 100, at(50), true);
    }
    let mut bytes = Vec::new();
    old.ids().into_iter().for_each(|id| old.export(id, &mut bytes));
    let mut settings = config(3);
    settings.hasher = FlowHasher::new([77, 78]);
    let mut new: FlowTable<u32> = FlowTable::new(&settings).unwrap();
    let mut rest = &bytes[..];
    let mut adopted = 0;
    while !rest.is_empty() {
        let (flow, used) = ImportedFlow::read(rest, 5).unwrap();
        assert!(new.adopt(flow.clone(), at(50)).is_some() == (adopted < 3));
        assert!(new.adopt(flow, at(50)).is_none(), "twice, or full");
        adopted += 1;
        rest = &rest[used..];
    }
    for n in 0..3 {
        let Find::Found { id, .. } = new.find(&key(n, true), at(60)) else { panic!("flow {n} is lost") };
        let flow = new.get(id).unwrap();
        assert_eq!((flow.start, flow.bytes.to_server, flow.ext), (at(u64::from(n)), 100, 5));
    }
    assert_eq!(new.expire(at(700_000), 100, |_, _, _| ()), 3, "adopted flows have timers");
}

/// An extension so large that no address space holds a billion of it.
struct Huge {
    _bytes: [u64; 1 << 20],
}

impl Default for Huge {
    fn default() -> Self {
        Self { _bytes: [0; 1 << 20] }
    }
}

#[test]
fn bad_sizes_are_refused_and_memory_is_reserved_not_touched() {
    assert_eq!(FlowTable::<u32>::new(&config(0)).err(), Some(TableError::Capacity { capacity: 0 }));
    assert!(matches!(FlowTable::<Huge>::new(&config(MAX_CAPACITY)).err(), Some(TableError::Memory { .. })));
    let t = table(1_000_000);
    assert!(t.memory().reserved > 100_000_000);
    let entries = t.entries.as_ptr();
    let mut t = t;
    for n in 0..10_000 {
        created(t.find_or_insert(&key(n, false), at(0), none));
    }
    assert_eq!(t.entries.as_ptr(), entries, "never moved, never allocated again");
    assert!(t.memory().touched < 25_000_000);
    assert!(t.get(FlowId(10_000)).is_none());
}

/// A straightforward table, as a model.
#[derive(Default)]
struct TableModel {
    flows: HashMap<FlowKey, (FlowState, Timestamp, u64, FlowKey)>,
    serial: u64,
}

fn timeout(key: &FlowKey, state: FlowState) -> u64 {
    match (key.protocol(), state) {
        (6, FlowState::New | FlowState::Closed) => 60_000,
        (6, FlowState::Established) => 600_000,
        (_, FlowState::New) => 30_000,
        (_, FlowState::Established) => 300_000,
        (_, FlowState::Closed) => 0,
        _ => 100_000,
    }
}

impl TableModel {
    fn due(&self, key: &FlowKey) -> Option<Timestamp> {
        let (state, last, _, opener) = self.flows.get(key)?;
        Some(*last + PacketDuration::from_millis(timeout(opener, *state)))
    }
}

#[derive(Clone, Debug)]
enum TableTestStep {
    Packet { flow: u16, reply: bool, wait: u64 },
    State { flow: u16, state: usize },
    Expire { wait: u64, budget: u32 },
    Remove { flow: u16 },
}

fn steps() -> impl Strategy<Value = Vec<TableTestStep>> {
    let wait = || prop_oneof![5 => 0_u64..50, 3 => 0_u64..40_000, 1 => 0_u64..1_000_000];
    let flow = || 0_u16..40;
    prop::collection::vec(
        prop_oneof![
            8 => (flow(), any::<bool>(), wait()).prop_map(|(flow, reply, wait)| TableTestStep::Packet { flow, reply, wait }),
            2 => (flow(), 0_usize..5).prop_map(|(flow, state)| TableTestStep::State { flow, state }),
            2 => (wait(), 0_u32..60).prop_map(|(wait, budget)| TableTestStep::Expire { wait, budget }),
            1 => flow().prop_map(|flow| TableTestStep::Remove { flow }),
        ],
        1..300,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn behaves_like_a_map_with_a_list_of_timeouts(steps in steps()) {
        let mut t = table(64);
        let mut model = TableModel::default();
        let mut now = 0_u64;
        for step in steps {
            match step {
                TableTestStep::Packet { flow, reply, wait } => {
                    now += wait;
                    let key = key(flow, reply);
                    let stale = model.due(&key).is_some_and(|due| at(now) >= due);
                    let mut ended = Vec::new();
                    let lookup = t.find_or_insert(&key, at(now), |_, f, _| ended.push(f.serial()));
                    if stale {
                        let old = model.flows.remove(&key).unwrap();
                        prop_assert_eq!(&ended, &[old.2]);
                    } else {
                        prop_assert!(ended.is_empty());
                    }
                    let (id, direction) = match (lookup, model.flows.get(&key)) {
                        (Lookup::Found { id, direction }, Some(old)) => {
                            let expected = if key.is_reply_to(&old.3) { Direction::ToClient } else { Direction::ToServer };
                            prop_assert_eq!(direction, expected);
                            (id, direction)
                        }
                        (Lookup::Created { id }, None) => {
                            model.serial += 1;
                            model.flows.insert(key, (FlowState::New, at(now), model.serial, key));
                            (id, Direction::ToServer)
                        }
                        other => panic!("table and model differ: {other:?}"),
                    };
                    t.account(id, direction, 1, at(now), true);
                    let state = t.get(id).unwrap().state();
                    let known = model.flows.get_mut(&key).unwrap();
                    known.1 = at(now);
                    known.0 = state;
                }
                TableTestStep::State { flow, state } => {
                    if let Find::Found { id, .. } | Find::Stale { id } = t.find(&key(flow, false), at(now)) {
                        t.set_state(id, FlowState::ALL[state]);
                        model.flows.get_mut(&key(flow, false)).unwrap().0 = FlowState::ALL[state];
                    }
                }
                TableTestStep::Expire { wait, budget } => {
                    now += wait;
                    let mut ended = Vec::new();
                    t.expire(at(now), budget, |_, f, _| ended.push(*f.key()));
                    for key in ended {
                        prop_assert!(model.due(&key).is_some_and(|due| at(now) >= due), "ended early");
                        model.flows.remove(&key);
                    }
                    if budget == 59 {
                        // A generous budget leaves nothing that was due a tick ago.
                        t.expire(at(now), 10_000, |_, f, _| { model.flows.remove(f.key()); });
                        let tick = PacketDuration::from_millis(135);
                        for key in model.flows.keys() {
                            prop_assert!(model.due(key).unwrap() + tick > at(now), "left over");
                        }
                    }
                }
                TableTestStep::Remove { flow } => {
                    if let Find::Found { id, .. } | Find::Stale { id } = t.find(&key(flow, true), at(now)) {
                        prop_assert!(t.remove(id, EndReason::Forced).is_some());
                        prop_assert!(t.remove(id, EndReason::Forced).is_none());
                        prop_assert!(model.flows.remove(&key(flow, true)).is_some());
                    }
                }
            }
            prop_assert_eq!(t.len(), model.flows.len());
            let c = t.counters();
            prop_assert_eq!(c.total - c.active, c.end_reason.iter().sum::<u64>());
            prop_assert_eq!(c.end_state.iter().sum::<u64>(), c.end_reason.iter().sum::<u64>());
        }
        let mut serials: Vec<u64> = model.flows.values().map(|f| f.2).collect();
        serials.sort_unstable();
        prop_assert_eq!(t.iter().map(|(_, f)| f.serial()).collect::<Vec<_>>(), serials);
    }

    #[test]
    fn a_full_table_keeps_its_promises(packets in prop::collection::vec((0_u16..200, 0_u64..2_000), 1..400)) {
        let mut t = table(16);
        let mut now = 0;
        for (flow, wait) in packets {
            now += wait;
            let lookup = t.find_or_insert(&key(flow, false), at(now), |_, _, _| ());
            match lookup {
                Lookup::Created { id } | Lookup::Found { id, .. } => {
                    t.account(id, Direction::ToServer, 1, at(now), true);
                }
                Lookup::Full => prop_assert!(false, "with quiet = 0 there is always one to evict"),
            }
            prop_assert!(t.len() <= 16);
            prop_assert_eq!(t.wheels.iter().map(|w| w.armed() as usize).sum::<usize>(), t.len());
            prop_assert_eq!(t.free.len() + t.len(), t.entries.len());
        }
    }
}

#[test]
fn what_nobody_has_opened_is_not_kept_and_makes_room_first() {
    for n in [0, 4, 8] {
        let mut t = table(3);
        let id = created(t.find_or_insert(&key(n, false), at(0), none));
        t.account(id, Direction::ToServer, 60, at(0), true);
        t.note_unopened(id);
        let new = t.timeouts[class(key(n, false).protocol(), FlowState::New)].0.as_nanos() / 1_000_000;
        // Refused packets keep arriving.
        for millis in [new / 2, new - 1] {
            t.account(id, Direction::ToServer, 60, at(millis), true);
        }
        assert_eq!(t.get(id).unwrap().packets.to_server, 3);
        assert_eq!(t.find(&key(n, false), at(new)), Find::Stale { id });
        // The first forwarded packet keeps the flow.
        t.note_opened(id, at(new - 1));
        assert_eq!(t.find(&key(n, false), at(new)), Find::Found { id, direction: Direction::ToServer });
        // A closed flow that is older than all others stays, as an unopened one makes room.
        t.set_state(id, FlowState::Closed);
        let refused = created(t.find_or_insert(&key(n + 100, false), at(new), none));
        t.note_unopened(refused);
        let other = created(t.find_or_insert(&key(n + 200, false), at(new), none));
        let mut ended = Vec::new();
        created(t.find_or_insert(&key(n + 300, false), at(new), |id, _, reason| ended.push((id, reason))));
        assert_eq!(ended, [(refused, EndReason::Forced)]);
        assert!(t.get(other).is_some() && t.get(id).is_some());
    }
}

#[test]
fn answers_of_protocols_without_ports_establish_a_flow() {
    let mut t = table(4);
    let scope = FlowScope::default();
    let (ask, answer) = (
        FlowKey::other(&scope, 47, address(false, 1), address(false, 2)),
        FlowKey::other(&scope, 47, address(false, 2), address(false, 1)),
    );
    let id = created(t.find_or_insert(&ask, at(0), none));
    t.account(id, Direction::ToServer, 60, at(0), true);
    assert_eq!(t.find(&answer, at(1)), Find::Found { id, direction: Direction::ToServer });
    assert!(answer.is_reply_to(t.get(id).unwrap().key()));
    t.account(id, Direction::ToServer, 60, at(1), true);
    assert_eq!(t.get(id).unwrap().state(), FlowState::New);
    assert!(t.note_answer(id));
    assert_eq!(t.get(id).unwrap().state(), FlowState::Established);
}

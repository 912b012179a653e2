// SPDX-License-Identifier: Apache-2.0
//! The flow manager with the mock device.

use bartizan_base::{FlowId, Generation, Level, PacketDuration, Reason, Timestamp};
use bartizan_flow::level::LevelWaits;
use bartizan_flow::tcp::{Fin, Seq, TcpProgress};
use bartizan_flow::{FlowHasher, FlowKey, FlowScope, FlowTable, FlowTableConfig, Insert};
use bartizan_offload::manager::{PacketTotals, RAISES_PER_TURN, READS_PER_TURN};
use bartizan_offload::{Action, DeviceKey, Done, FlowManager, Offer, OffloadDenied, Sides};
use bartizan_packet::windows::{WindowSegment, WindowSide, Windows};
use bartizan_testkit_device::{Habits, MockDevice, MockPacket, MockWire};
use core::net::{IpAddr, Ipv4Addr};

mod levels;

struct Rig {
    table: FlowTable<()>,
    manager: FlowManager,
    wire: MockWire,
    now: Timestamp,
}

fn key(port: u16) -> FlowKey {
    let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    FlowKey::ported(&FlowScope::default(), 6, (address(1), port), (address(2), 80))
}

impl Rig {
    fn new(habits: Habits) -> Self {
        Rig::waiting(habits, LevelWaits::default())
    }

    fn waiting(habits: Habits, waits: LevelWaits) -> Self {
        Rig::with_room(habits, waits, 64)
    }

    fn with_room(habits: Habits, waits: LevelWaits, flows: u32) -> Self {
        let (device, wire) = MockDevice::new(habits);
        let config = FlowTableConfig { waits, ..FlowTableConfig::new(flows, FlowHasher::new([1, 2])) };
        let table = FlowTable::new(&config).unwrap();
        let manager = FlowManager::new(Box::new(device), Generation(1));
        Rig { table, manager, wire, now: Timestamp::from_parts(100, 0) }
    }

    fn flow(&mut self, port: u16) -> FlowId {
        match self.table.insert(&key(port), self.now) {
            Insert::Created { id } => id,
            other => panic!("{other:?}"),
        }
    }

    fn offer(&mut self, id: FlowId, action: Action) -> Result<(), OffloadDenied> {
        let offer = Offer { action, generation: Generation(1), expected: 0, again: false, windows: None };
        self.manager.offer(&mut self.table, id, offer, self.now)
    }

    fn packet(&mut self, port: u16) -> Option<Action> {
        let packet = MockPacket { from_low: true, bytes: 100, segment: None };
        self.wire.packet(&DeviceKey::of(&key(port)), packet, self.now)
    }

    /// Takes turns over so many milliseconds.
    fn pass(&mut self, millis: u64) -> Vec<Done> {
        let mut done = Vec::new();
        for _ in 0..millis.div_ceil(50) {
            self.now = self.now + PacketDuration::from_millis(50);
            self.manager.turn(&mut self.table, self.now);
            done.extend(std::iter::from_fn(|| self.manager.next_done()));
        }
        done
    }
}

#[test]
fn a_flow_goes_down_is_counted_and_comes_up_in_another_generation() {
    let mut rig = Rig::new(Habits::default());
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    assert_eq!(rig.packet(1_000), None, "the device does not know it yet");
    rig.pass(50);
    assert_eq!(rig.packet(1_000), Some(Action::Forward));
    assert_eq!(rig.offer(id, Action::Forward), Err(OffloadDenied::Taken));
    let done = rig.pass(2_000);
    let sides = Sides::default();
    assert_eq!(
        done,
        [Done::Counted {
            id,
            action: Action::Forward,
            packets: 1,
            bytes: 100,
            refused_inside: (0, 0),
            sides,
            windows: None
        }]
    );
    assert_eq!(rig.table.get(id).unwrap().packets.to_server, 1);
    rig.manager.enter_generation(Generation(2));
    assert_eq!(rig.packet(1_000), None, "at once");
    rig.pass(1_000);
    assert!(rig.table.get(id).unwrap().is_at_host());
    assert_eq!((rig.wire.entries(), rig.manager.counters().outdated), (0, 1));
}

/// Makes so many flows that are below.
fn many(flows: u16) -> Rig {
    let mut rig = Rig::with_room(Habits::default(), LevelWaits::default(), flows.into());
    for port in 1..=flows {
        let id = rig.flow(port);
        rig.offer(id, Action::Forward).unwrap();
    }
    rig.pass(50);
    rig
}

/// Each change comes when the sweep for the one before has met a third of the entries.
#[test]
fn a_sweep_comes_to_its_end_however_fast_generations_follow_each_other() {
    let mut rig = many(6 * RAISES_PER_TURN as u16);
    for generation in 2..12 {
        rig.manager.enter_generation(Generation(generation));
        rig.pass(100);
        assert!(rig.manager.has_due_work());
    }
    rig.pass(2_000);
    assert!(!rig.manager.has_due_work());
    assert_eq!((rig.wire.entries(), rig.manager.counters().outdated), (0, 6 * u64::from(RAISES_PER_TURN)));
}

#[test]
fn most_are_up_before_the_last_of_many_generations() {
    let mut rig = many(6 * RAISES_PER_TURN as u16);
    for generation in 2..12 {
        rig.manager.enter_generation(Generation(generation));
        rig.pass(100);
    }
    assert_eq!(rig.manager.counters().outdated, 6 * u64::from(RAISES_PER_TURN));
}

/// A worker without packets sleeps a tenth of a second, and a thousandth while work is owed.
#[test]
fn all_counts_are_read_once_a_second_also_by_an_idle_worker() {
    let flows = 60_000;
    assert!(u32::from(flows) > 11 * READS_PER_TURN, "more than ten turns can read");
    let mut rig = many(flows);
    for port in 1..=flows {
        assert!(rig.packet(port).is_some());
    }
    let (begun, mut told, mut turns) = (rig.now, 0, 0);
    while told < flows {
        let sleep = if rig.manager.has_due_work() { 1 } else { 100 };
        rig.now = rig.now + PacketDuration::from_millis(sleep);
        rig.manager.turn(&mut rig.table, rig.now);
        told += std::iter::from_fn(|| rig.manager.next_done()).count() as u16;
        turns += 1;
    }
    let took = rig.now.since(begun);
    assert!(took <= PacketDuration::from_millis(1_100), "{took:?}");
    assert!(turns <= 40, "it is not busy: {turns} turns");
    assert_eq!(rig.manager.counters().unread, 0);
}

#[test]
fn rounds_of_which_nobody_read_anything_are_counted() {
    let mut rig = Rig::new(Habits::default());
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    rig.pass(1_050);
    for _ in 0..40 {
        rig.packet(1_000);
    }
    // The worker had no time.
    rig.now = rig.now + PacketDuration::from_secs(10);
    rig.pass(50);
    assert_eq!(rig.manager.counters().unread, 9);
}

#[test]
fn who_finds_no_place_stays_and_is_counted() {
    let mut rig = Rig::new(Habits { entries: 2, ..Habits::default() });
    let ids: Vec<_> = (0..3).map(|n| rig.flow(1_000 + n)).collect();
    let answers: Vec<_> = ids.iter().map(|id| rig.offer(*id, Action::Forward)).collect();
    assert_eq!(answers, [Ok(()), Ok(()), Err(OffloadDenied::Full)]);
    assert_eq!(rig.manager.counters().stayed[OffloadDenied::Full as usize], 1);
    rig.table.raise(ids[0], rig.now);
    rig.pass(1_000);
    assert_eq!(rig.offer(ids[2], Action::Drop(Reason::IdsFlow)), Ok(()));
    rig.pass(50);
    assert_eq!(rig.packet(1_002), Some(Action::Drop(Reason::IdsFlow)));
    rig.pass(1_500);
    assert_eq!(
        rig.manager.counters().dropped[Reason::IdsFlow as usize],
        PacketTotals { packets: 1, bytes: 100 }
    );
}

#[test]
fn how_far_a_connection_has_come_is_said_once() {
    let mut rig = Rig::new(Habits::default());
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    rig.pass(50);
    let segment = |rig: &mut Rig, sent: u32| {
        let progress = Some(TcpProgress { sent: Seq(sent), acknowledged: Seq(7), fin: None });
        let segment = Some(WindowSegment { end: sent, acknowledged: 7, ..WindowSegment::default() });
        let packet = MockPacket { from_low: true, bytes: 100, segment };
        assert!(rig.wire.packet(&DeviceKey::of(&key(1_000)), packet, rig.now).is_some());
        [progress, None]
    };
    let said = segment(&mut rig, 100);
    assert_eq!(rig.manager.sides(&rig.table, id), Some(said));
    assert_eq!(rig.manager.sides(&rig.table, id), Some([None, None]));
    // Nor with the counts of the same packets, which come later.
    let sides = Sides::default();
    let counted = Done::Counted {
        id,
        action: Action::Forward,
        packets: 1,
        bytes: 100,
        refused_inside: (0, 0),
        sides,
        windows: None,
    };
    assert_eq!(rig.pass(1_500), [counted]);
    let said = segment(&mut rig, 200);
    let counted = Done::Counted {
        id,
        action: Action::Forward,
        packets: 1,
        bytes: 100,
        refused_inside: (0, 0),
        sides: said,
        windows: None,
    };
    assert_eq!(rig.pass(1_500), [counted]);
    assert_eq!(rig.manager.sides(&rig.table, id), Some([None, None]));
}

#[test]
fn how_a_connection_ends_both_sides_say_together() {
    let mut rig = Rig::new(Habits::default());
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    rig.pass(50);
    let segment = |rig: &mut Rig, from_low, sequence: u32, acknowledged, fin: bool| {
        let segment = WindowSegment {
            sequence,
            end: sequence + u32::from(fin),
            acknowledged,
            ..WindowSegment::default()
        };
        let packet = MockPacket { from_low, bytes: 100, segment: Some(segment) };
        let key = DeviceKey::of(&key(1_000));
        let handled =
            if fin { rig.wire.fin(&key, packet, rig.now) } else { rig.wire.packet(&key, packet, rig.now) };
        handled.is_some()
    };
    assert!(!segment(&mut rig, true, 100, 7, true), "nothing of that side came");
    assert!(segment(&mut rig, true, 100, 7, false) && segment(&mut rig, false, 7, 100, false));
    assert!(!segment(&mut rig, true, 99, 7, true) && !segment(&mut rig, true, 101, 7, true));
    assert!(segment(&mut rig, true, 100, 7, true) && segment(&mut rig, true, 100, 7, true));
    assert!(!segment(&mut rig, true, 101, 7, true), "another end");
    let side = |sent, acknowledged, fin: Option<(u32, bool)>| {
        let fin = fin.map(|(number, second)| Fin { number: Seq(number), second });
        Some(TcpProgress { sent: Seq(sent), acknowledged: Seq(acknowledged), fin })
    };
    let low = side(101, 7, Some((101, false)));
    assert_eq!(rig.manager.sides(&rig.table, id), Some([low, side(7, 100, None)]));
    assert!(segment(&mut rig, false, 7, 101, true));
    let sides = [low, side(8, 101, Some((8, true)))];
    assert_eq!(rig.manager.sides(&rig.table, id), Some(sides));
    assert_eq!(rig.manager.sides(&rig.table, id), Some([None, None]));
}

#[test]
fn a_connection_begins_below_with_what_the_host_knows_by_then_and_is_said_once() {
    let mut rig = Rig::new(Habits::default());
    let id = rig.flow(1_000);
    let side = |sent| WindowSide { sent, acknowledged: 50, edge: 900, ..WindowSide::default() };
    let at = |sent| Windows { sides: [side(sent), side(70)], timestamps: false };
    let (action, generation) = (Action::Forward, Generation(1));
    let offer = Offer { action, generation, expected: 0, again: false, windows: Some(at(100)) };
    rig.manager.offer(&mut rig.table, id, offer, rig.now).unwrap();
    rig.manager.publish(&rig.table, id, &at(200));
    rig.pass(50);
    assert!(rig.manager.compares(&rig.table, id) && rig.manager.sides(&rig.table, id).is_none());
    assert_eq!(rig.manager.windows(&rig.table, id), Some(at(200)));
    assert_eq!(rig.manager.windows(&rig.table, id), None);
    // Numbers further back move nothing.
    rig.manager.publish(&rig.table, id, &at(150));
    assert_eq!(rig.manager.windows(&rig.table, id), None);
    let segment =
        |end| WindowSegment { sequence: 200, end, acknowledged: 60, window: 100, ..WindowSegment::default() };
    let packet = |end| MockPacket { from_low: true, bytes: 100, segment: Some(segment(end)) };
    assert_eq!(rig.wire.packet(&DeviceKey::of(&key(1_000)), packet(901), rig.now), None, "out of window");
    assert_eq!(rig.wire.packet(&DeviceKey::of(&key(1_000)), packet(300), rig.now), Some(action));
    let mut expected = at(300);
    expected.sides[1].acknowledged = 60;
    assert_eq!(rig.manager.windows(&rig.table, id), Some(expected));

    let mut none = Rig::new(Habits { windows: false, ..Habits::default() });
    let id = none.flow(1_000);
    assert_eq!(none.manager.offer(&mut none.table, id, offer, none.now), Err(OffloadDenied::Window));
}

#[test]
fn where_places_are_short_a_silent_flow_gives_way_to_a_busy_one() {
    let mut rig = Rig::new(Habits { entries: 4, ..Habits::default() });
    let ids: Vec<_> = (0..5).map(|n| rig.flow(1_000 + n)).collect();
    for id in &ids[..4] {
        rig.offer(*id, Action::Forward).unwrap();
    }
    rig.pass(50);
    let ask = |rig: &mut Rig, expected: u32, again: bool| {
        let offer =
            Offer { action: Action::Forward, generation: Generation(1), expected, again, windows: None };
        rig.manager.offer(&mut rig.table, ids[4], offer, rig.now)
    };
    assert_eq!(ask(&mut rig, 1_000, false), Err(OffloadDenied::Full));
    rig.pass(1_000);
    assert_eq!(rig.manager.counters().gave_way, 0, "nothing is known of the entries yet");
    // All but the third handle ten packets a second.
    for _ in 0..30 {
        for port in [1_000, 1_001, 1_003] {
            assert_eq!(rig.packet(port), Some(Action::Forward));
        }
        rig.pass(100);
    }
    assert_eq!(ask(&mut rig, 0, true), Err(OffloadDenied::Full), "it is expected to bring nothing");
    assert_eq!(rig.manager.counters().gave_way, 0);
    assert_eq!(ask(&mut rig, 5, true), Err(OffloadDenied::Full));
    assert_eq!(rig.manager.counters().gave_way, 1);
    rig.pass(1_000);
    assert_eq!(rig.packet(1_002), None, "it has come up");
    assert_eq!(ask(&mut rig, 5, true), Ok(()));
    assert_eq!(
        rig.manager.counters().stayed[OffloadDenied::Full as usize],
        1,
        "one flow, however often it asks"
    );
    // Against those that are busy five packets more are not enough.
    rig.pass(50);
    for _ in 0..30 {
        for port in [1_000, 1_001, 1_003, 1_004] {
            assert_eq!(rig.packet(port), Some(Action::Forward));
        }
        rig.pass(100);
    }
    let other = rig.flow(2_000);
    let offer = Offer {
        action: Action::Forward,
        generation: Generation(1),
        expected: 15,
        again: false,
        windows: None,
    };
    assert_eq!(rig.manager.offer(&mut rig.table, other, offer, rig.now), Err(OffloadDenied::Full));
    assert_eq!(rig.manager.counters().gave_way, 1);
}

#[test]
fn an_entry_that_nobody_waits_for_any_more_is_taken_away() {
    let waits = LevelWaits { answer: PacketDuration::from_millis(100), ..LevelWaits::default() };
    let mut rig = Rig::waiting(Habits { late: 200, ..Habits::default() }, waits);
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    rig.pass(50);
    // It is to leave before the device has ever answered.
    rig.table.raise(id, rig.now);
    rig.pass(20_000);
    assert_eq!(rig.table.level_counters().unanswered, 1);
    assert_eq!(rig.offer(id, Action::Forward), Err(OffloadDenied::Unanswered));
    rig.pass(60_000);
    assert_eq!((rig.wire.entries(), rig.manager.counters().entries), (0, 0));
}

#[test]
fn a_flow_is_up_before_the_packet_that_raised_it_goes_on() {
    for turns in [0, 50] {
        let mut rig = Rig::new(Habits::default());
        let id = rig.flow(1_000);
        rig.offer(id, Action::Forward).unwrap();
        rig.pass(turns);
        rig.manager.raise_now(&mut rig.table, id, rig.now);
        assert_eq!(rig.packet(1_000), None, "after {turns} ms");
    }
}

#[test]
fn at_the_end_all_is_credited_and_nothing_goes_down_any_more() {
    let mut rig = Rig::new(Habits { flight: PacketDuration::from_secs(1), ..Habits::default() });
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    rig.pass(50);
    rig.packet(1_000);
    rig.packet(1_000);
    rig.manager.close(&mut rig.table, rig.now);
    assert_eq!(rig.table.get(id).unwrap().packets.to_server, 2);
    assert!(rig.table.get(id).unwrap().is_at_host());
    assert_eq!(rig.offer(id, Action::Forward), Err(OffloadDenied::Ending));
}

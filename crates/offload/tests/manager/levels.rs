// SPDX-License-Identifier: Apache-2.0
//! Several levels, entries that go on in place, and entries that are reported as silent.

use super::*;
use bartizan_flow::EndReason;
use bartizan_offload::manager::LevelTaken;
use bartizan_offload::{Actions, Fields, KeyField};

const XDP: Habits = Habits {
    entries: 64,
    late: 0,
    flight: PacketDuration::ZERO,
    refuses: 0,
    seed: 1,
    windows: true,
    early: false,
    level: Level::Xdp,
    fields: Fields::ALL,
    actions: Actions::ALL,
    updates: true,
    ageing: None,
};
const RTL: Habits = Habits { level: Level::Rtl, ..XDP };

/// A rig with a second device, and that device's wire.
fn two(first: Habits, second: Habits) -> (Rig, MockWire) {
    let mut rig = Rig::new(first);
    let (device, wire) = MockDevice::new(second);
    rig.manager = rig.manager.spilling_to(Box::new(device)).unwrap();
    (rig, wire)
}

fn level_of(rig: &Rig, id: FlowId) -> Level {
    rig.table.get(id).unwrap().level()
}

fn refused(rig: &Rig, why: OffloadDenied) -> Vec<u64> {
    rig.manager.levels().map(|level| level.refused[why as usize]).collect()
}

#[test]
fn what_finds_no_place_at_one_level_goes_to_the_next() {
    let (mut rig, _next) = two(Habits { entries: 2, ..RTL }, Habits { entries: 2, ..XDP });
    let ids: Vec<_> = (0..5).map(|n| rig.flow(1_000 + n)).collect();
    let answers: Vec<_> = ids.iter().map(|id| rig.offer(*id, Action::Forward)).collect();
    assert_eq!(answers, [Ok(()), Ok(()), Ok(()), Ok(()), Err(OffloadDenied::Full)]);
    rig.pass(50);
    let levels: Vec<_> = ids.iter().map(|id| level_of(&rig, *id)).collect();
    assert_eq!(levels, [Level::Rtl, Level::Rtl, Level::Xdp, Level::Xdp, Level::Host]);
    let counters = rig.manager.counters();
    assert_eq!((counters.offered, counters.spilled, counters.entries), (4, 2, 4));
    assert_eq!(counters.stayed[OffloadDenied::Full as usize], 1, "a flow that found no place at any level");
    assert_eq!(refused(&rig, OffloadDenied::Full), [3, 1]);
    let facts: Vec<_> = rig.manager.levels().map(|level| (level.entries, level.offered)).collect();
    assert_eq!(facts, [(2, 5), (2, 3)]);
    // One that leaves makes room where it was.
    rig.table.raise(ids[0], rig.now);
    rig.pass(1_000);
    assert_eq!(rig.offer(ids[4], Action::Forward), Ok(()));
    rig.pass(50);
    assert_eq!(level_of(&rig, ids[4]), Level::Rtl);
}

#[test]
fn what_one_level_cannot_hold_goes_to_the_next() {
    let (mut rig, next) = two(Habits { fields: Fields::ALL.without(KeyField::Ports), ..RTL }, XDP);
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    rig.pass(50);
    assert_eq!((level_of(&rig, id), rig.packet(1_000)), (Level::Xdp, None));
    let packet = MockPacket { from_low: true, bytes: 100, segment: None };
    assert_eq!(next.packet(&DeviceKey::of(&key(1_000)), packet, rig.now), Some(Action::Forward));
    rig.pass(1_500);
    let at = |level| rig.table.amounts(id, level).unwrap().packets.to_server;
    assert_eq!((at(Level::Xdp), at(Level::Rtl), at(Level::Host)), (1, 0, 0));
    assert_eq!(refused(&rig, OffloadDenied::Key), [1, 0]);

    let mut alone = Rig::new(Habits { fields: Fields::ALL.without(KeyField::Ports), ..RTL });
    let id = alone.flow(1_000);
    assert_eq!(alone.offer(id, Action::Forward), Err(OffloadDenied::Key));
}

#[test]
fn what_one_level_cannot_do_the_next_one_does_or_the_host() {
    use bartizan_base::{PortIndex, Reason};
    let drop = Action::Drop(Reason::PfwRule);
    for (action, actions) in [
        (Action::Forward, Actions { forward: false, ..Actions::ALL }),
        (drop, Actions { drop: false, ..Actions::ALL }),
    ] {
        let (mut rig, next) = two(Habits { actions, ..RTL }, XDP);
        let id = rig.flow(1_000);
        rig.offer(id, action).unwrap();
        rig.pass(50);
        assert_eq!((level_of(&rig, id), next.entries(), rig.wire.entries()), (Level::Xdp, 1, 0));
        assert_eq!(refused(&rig, OffloadDenied::Action), [1, 0]);

        let mut alone = Rig::new(Habits { actions, ..RTL });
        let ids = [1_000, 1_001, 1_002].map(|port| alone.flow(port));
        let answers = [Action::Forward, drop, Action::Redirect(PortIndex(1))];
        let answers = ids.iter().zip(answers).map(|(id, other)| (other, alone.offer(*id, other)));
        for (other, answer) in answers.collect::<Vec<_>>() {
            assert_eq!(
                answer,
                if other == action { Err(OffloadDenied::Action) } else { Ok(()) },
                "{other:?}"
            );
        }
        assert_eq!(alone.manager.counters().stayed[OffloadDenied::Action as usize], 1);
    }
}

#[test]
fn what_a_device_refuses_when_it_was_asked_goes_to_the_next_at_once() {
    let (mut rig, next) = two(Habits { refuses: 1, ..RTL }, XDP);
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    assert_eq!(rig.pass(50), [], "nobody is told that it stays");
    assert_eq!((level_of(&rig, id), next.entries()), (Level::Xdp, 1));
    let counters = rig.manager.counters();
    assert_eq!((counters.offered, counters.spilled), (1, 1));
    assert_eq!(counters.stayed, [0; OffloadDenied::ALL.len()]);
    // A flow that another generation has decided meanwhile, or that is to end, is offered to no other device.
    let late = Habits { refuses: 1, late: 40, ..RTL };
    for outdated in [true, false] {
        let (mut rig, next) = two(Habits { seed: 7, ..late }, XDP);
        let id = rig.flow(1_000);
        rig.offer(id, Action::Forward).unwrap();
        rig.manager.turn(&mut rig.table, rig.now);
        if outdated {
            rig.manager.enter_generation(Generation(2));
        } else {
            rig.table.raise(id, rig.now);
        }
        let done = rig.pass(3_000);
        assert_eq!(done, [Done::Stays { id, why: OffloadDenied::Refused }], "{outdated}");
        assert_eq!((next.entries(), level_of(&rig, id)), (0, Level::Host));
    }
}

/// The first device still has an entry with these addresses and ports, which handles its packets: at another
/// level none would reach the new entry.
#[test]
fn a_flow_whose_key_a_level_still_has_goes_to_none() {
    let (mut rig, next) = two(RTL, XDP);
    let old = rig.flow(1_000);
    rig.offer(old, Action::Forward).unwrap();
    rig.pass(50);
    assert!(!rig.table.begin_end(old, EndReason::TcpReuse, rig.now));
    let new = rig.flow(1_000);
    rig.offer(new, Action::Forward).unwrap();
    assert!(rig.pass(50).contains(&Done::Stays { id: new, why: OffloadDenied::Taken }));
    assert_eq!((next.entries(), rig.manager.counters().spilled), (0, 0));
}

#[test]
fn a_level_that_is_taken_away_gives_its_counts_and_its_flows_go_to_the_next() {
    let (mut rig, next) = two(RTL, XDP);
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    rig.pass(50);
    assert_eq!(rig.packet(1_000), Some(Action::Forward));
    rig.wire.detach();
    assert_eq!(rig.packet(1_000), None);
    rig.pass(50);
    assert!(rig.table.get(id).unwrap().is_at_host());
    assert_eq!(rig.table.amounts(id, Level::Rtl).unwrap().packets.to_server, 1);
    rig.offer(id, Action::Forward).unwrap();
    rig.pass(50);
    assert_eq!((level_of(&rig, id), next.entries()), (Level::Xdp, 1));
    assert_eq!(refused(&rig, OffloadDenied::Away), [1, 0]);
    rig.wire.attach();
    let other = rig.flow(1_001);
    rig.offer(other, Action::Forward).unwrap();
    rig.pass(50);
    assert_eq!((level_of(&rig, other), level_of(&rig, id)), (Level::Rtl, Level::Xdp), "who is there stays");
}

/// A flow that goes to another device with the call that takes it up is up when that call returns.
#[test]
fn a_flow_on_its_way_to_the_next_level_is_up_before_the_packet_that_raised_it_goes_on() {
    let (mut rig, next) = two(Habits { refuses: 1, ..RTL }, XDP);
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    rig.manager.raise_now(&mut rig.table, id, rig.now);
    let packet = MockPacket { from_low: true, bytes: 100, segment: None };
    assert_eq!(next.packet(&DeviceKey::of(&key(1_000)), packet, rig.now), None);
}

#[test]
fn each_level_has_one_device() {
    let manager = || FlowManager::new(Box::new(MockDevice::new(RTL).0), Generation(1));
    for level in [Level::Rtl, Level::Host] {
        let other = MockDevice::new(Habits { level, ..XDP }).0;
        let error = manager().spilling_to(Box::new(other)).err().unwrap();
        assert!(error == LevelTaken(level) && error.to_string().contains(level.name()), "{error}");
    }
    assert_eq!(manager().spilling_to(Box::new(MockDevice::new(XDP).0)).unwrap().levels().count(), 2);
}

/// Offers a flow that is below, with another generation's decision.
fn renew(rig: &mut Rig, id: FlowId, action: Action, generation: u64) -> bool {
    let generation = Generation(generation);
    let offer = Offer { action, generation, expected: 0, again: false, windows: None };
    rig.manager.is_outdated(&rig.table, id) && rig.manager.renew(&mut rig.table, id, &offer, rig.now)
}

#[test]
fn an_entry_goes_on_in_place_if_another_generation_decides_the_same() {
    let mut rig = Rig::new(RTL);
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    assert!(!renew(&mut rig, id, Action::Forward, 2), "it is not there yet");
    rig.pass(50);
    assert!(!renew(&mut rig, id, Action::Forward, 1), "it is as it should be");
    assert_eq!(rig.packet(1_000), Some(Action::Forward));
    rig.manager.enter_generation(Generation(2));
    assert_eq!(rig.packet(1_000), None, "nobody has decided that yet");
    assert!(!renew(&mut rig, id, Action::Forward, 1), "late");
    assert!(renew(&mut rig, id, Action::Forward, 2));
    assert!(!renew(&mut rig, id, Action::Forward, 2), "once");
    rig.pass(50);
    assert_eq!(rig.packet(1_000), Some(Action::Forward));
    rig.pass(1_500);
    let counters = rig.manager.counters();
    assert_eq!((counters.renewed, counters.outdated, counters.forwarded.packets), (1, 0, 2));
    assert_eq!(rig.wire.counters().deleted, 0);
    assert_eq!(rig.table.stay(id).unwrap().generation, Generation(2));
    // Packets under way would count for the other action: the entry comes up, at once.
    rig.manager.enter_generation(Generation(3));
    assert!(!renew(&mut rig, id, Action::Drop(Reason::IdsFlow), 3));
    assert!(!renew(&mut rig, id, Action::Forward, 3), "who leaves is not held back");
    rig.pass(200);
    assert_eq!((rig.manager.counters().outdated, rig.wire.entries()), (1, 0));
}

#[test]
fn entries_that_cannot_go_on_in_place_come_up() {
    let mut rig = Rig::new(Habits { updates: false, ..RTL });
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    rig.pass(50);
    rig.manager.enter_generation(Generation(2));
    assert!(!renew(&mut rig, id, Action::Forward, 2));
    rig.pass(1_000);
    assert_eq!((rig.manager.counters().outdated, rig.wire.entries()), (1, 0));
}

/// Silent flows come up when the busy ones had their time, and generations in quick succession do not delay
/// that.
#[test]
fn entries_without_packets_come_up_a_while_after_another_generation_began() {
    for fast in [false, true] {
        let mut rig = Rig::new(RTL);
        let id = rig.flow(1_000);
        rig.offer(id, Action::Forward).unwrap();
        rig.pass(50);
        for generation in 2..11 {
            if fast || generation == 2 {
                rig.manager.enter_generation(Generation(generation));
            }
            rig.pass(100);
            assert!(!rig.manager.has_due_work() && rig.manager.counters().outdated == 0, "nothing is due");
        }
        rig.pass(1_000);
        assert_eq!((rig.manager.counters().outdated, rig.wire.entries()), (1, 0), "{fast}");
    }
}

/// A late device is at another generation again when it handles a renewal: then the entry does not act, and
/// comes up.
#[test]
fn an_update_that_comes_late_lets_nothing_go_on() {
    let mut rig = Rig::new(Habits { late: 10, seed: 3, ..RTL });
    let id = rig.flow(1_000);
    rig.offer(id, Action::Forward).unwrap();
    rig.pass(1_000);
    rig.manager.enter_generation(Generation(2));
    assert!(renew(&mut rig, id, Action::Forward, 2));
    rig.manager.enter_generation(Generation(3));
    for _ in 0..80 {
        assert_eq!(rig.packet(1_000), None);
        rig.pass(50);
    }
    assert_eq!((rig.manager.counters().outdated, rig.wire.entries()), (1, 0));
}

/// The entry of 64 that the device reports is evicted, not one of the eight that a search examines.
#[test]
fn an_entry_that_is_told_to_be_silent_gives_way_first() {
    let ageing = Some(PacketDuration::from_millis(800));
    let mut rig = Rig::with_room(Habits { ageing, entries: 64, ..RTL }, LevelWaits::default(), 128);
    let ids: Vec<_> = (0..65).map(|n| rig.flow(1_000 + n)).collect();
    for id in &ids[..64] {
        rig.offer(*id, Action::Forward).unwrap();
    }
    rig.pass(50);
    // The 41st is silent, and the 42nd was, but is not any more.
    for turn in 0..30 {
        for port in (1_000..1_064).filter(|port| *port != 1_040 && (*port != 1_041 || turn > 15)) {
            assert_eq!(rig.packet(port), Some(Action::Forward));
        }
        rig.pass(100);
    }
    let ask = |rig: &mut Rig, expected: u32| {
        let offer = Offer {
            action: Action::Forward,
            generation: Generation(1),
            expected,
            again: false,
            windows: None,
        };
        rig.manager.offer(&mut rig.table, ids[64], offer, rig.now)
    };
    assert_eq!(ask(&mut rig, 0), Err(OffloadDenied::Full));
    assert_eq!(rig.manager.counters().gave_way, 0);
    // Fewer packets than the busy ones have: for none of these an entry would give way.
    assert_eq!(ask(&mut rig, 5), Err(OffloadDenied::Full));
    assert_eq!(rig.manager.counters().gave_way, 1);
    rig.pass(1_000);
    assert!(rig.table.get(ids[40]).unwrap().is_at_host() && !rig.table.get(ids[41]).unwrap().is_at_host());
    assert_eq!(ask(&mut rig, 5), Ok(()));
    assert_eq!(rig.manager.counters().gave_way, 1);
}

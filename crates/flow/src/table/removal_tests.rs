// SPDX-License-Identifier: Apache-2.0
//! Levels step by step: the conditions of each step, and the flows that may end.

use super::tests::{at, config, created, key, none};
use super::*;
use crate::entry::export::ImportedFlow;
use crate::level::{Command, FlowLevelCounts, LevelReply, SinkError, SunkId, Task};

const FIRST: Generation = Generation(1);
/// More than a tick, the longest delay of a timer.
const TICK: u64 = 135;

/// A table with a UDP flow of one packet to the server, or with a TCP connection.
fn with_flow(n: u16) -> (FlowTable<u32>, FlowId) {
    let mut t: FlowTable<u32> = FlowTable::new(&config(4)).unwrap();
    let id = created(t.find_or_insert(&key(n, false), at(0), none));
    t.account(id, Direction::ToServer, 100, at(0), true);
    (t, id)
}

const TCP: u16 = 0;
const UDP: u16 = 4;

fn tasks(t: &mut FlowTable<u32>, millis: u64) -> Vec<Task> {
    let mut budget = 100;
    core::iter::from_fn(|| t.next_task(at(millis), &mut budget)).collect()
}

fn tell(sunk: SunkId, command: Command) -> Vec<Task> {
    vec![Task::Tell { sunk, command }]
}

/// Offloads a flow, confirmed by the level.
fn sink(t: &mut FlowTable<u32>, id: FlowId, level: Level, millis: u64) -> SunkId {
    let sunk = t.sink(id, level, FIRST, at(millis)).unwrap();
    assert!(t.answered(sunk, LevelReply::Installed, at(millis)));
    sunk
}

/// The level carries out a removal. Returns the time of its end.
fn remove_below(t: &mut FlowTable<u32>, sunk: SunkId, millis: u64) -> u64 {
    assert_eq!(tasks(t, millis), tell(sunk, Command::Mark));
    assert!(t.answered(sunk, LevelReply::Marked, at(millis)));
    assert_eq!(tasks(t, millis), [], "grace");
    let read = millis + 10 + TICK;
    assert_eq!(tasks(t, read), tell(sunk, Command::Read));
    assert!(t.answered(sunk, LevelReply::Read, at(read)));
    assert_eq!(tasks(t, read), tell(sunk, Command::Delete));
    assert!(t.answered(sunk, LevelReply::Deleted, at(read)));
    read
}

fn step(t: &FlowTable<u32>, id: FlowId) -> Step {
    t.get(id).unwrap().step()
}

#[test]
fn a_flow_sinks_and_comes_back_in_steps() {
    let (mut t, id) = with_flow(UDP);
    let sunk = t.sink(id, Level::Xdp, FIRST, at(10)).unwrap();
    assert_eq!((sunk.flow(), sunk.level(), step(&t, id)), (id, Level::Xdp, Step::Installing));
    assert_eq!(t.get(id).unwrap().level(), Level::Host, "as long as the level has not answered");
    assert_eq!(t.sink(id, Level::Rtl, FIRST, at(10)), Err(SinkError::There));
    assert!(t.answered(sunk, LevelReply::Installed, at(20)));
    let stay = t.stay(id).unwrap();
    assert_eq!((stay.sunk, stay.step, stay.generation, stay.since), (sunk, Step::Active, FIRST, at(10)));
    assert_eq!((t.get(id).unwrap().level(), t.since(id)), (Level::Xdp, Some(at(10))));
    assert!(t.credit(sunk, Direction::ToServer, 3, 300, at(900)));
    assert!(t.credit(sunk, Direction::ToClient, 2, 2_000, at(800)));
    // A packet that is passed up is found, and handled at the host.
    let Find::Found { direction, .. } = t.find(&key(UDP, true), at(950)) else { panic!() };
    t.account(id, direction, 50, at(950), true);
    assert!(t.raise(id, at(1_000)));
    assert_eq!(step(&t, id), Step::Marking);
    assert!(!t.answered(sunk, LevelReply::Marked, at(1_000)), "it was not told yet");
    assert_eq!(tasks(&mut t, 1_000), tell(sunk, Command::Mark));
    assert!(!t.answered(sunk, LevelReply::Read, at(1_000)), "out of turn");
    assert!(t.answered(sunk, LevelReply::Marked, at(1_001)));
    // Within the grace, and after it until the last answer, the level's counts are credited.
    assert!(t.credit(sunk, Direction::ToServer, 1, 100, at(1_001)));
    let over = 1_011 + TICK;
    assert_eq!(tasks(&mut t, over), tell(sunk, Command::Read));
    assert!(t.credit(sunk, Direction::ToServer, 1, 100, at(1_002)));
    assert!(t.answered(sunk, LevelReply::Read, at(over)));
    assert_eq!(tasks(&mut t, over), tell(sunk, Command::Delete));
    assert!(t.answered(sunk, LevelReply::Deleted, at(over)));
    assert_eq!((step(&t, id), t.stay(id), tasks(&mut t, over + 5_000)), (Step::Back, None, vec![]));
    assert_eq!(t.since(id), Some(at(over)), "it came back");
    let flow = t.get(id).unwrap();
    assert_eq!((flow.level(), flow.state()), (Level::Host, FlowState::Established));
    assert_eq!((flow.packets, flow.bytes), (PerDirection::new(6, 3), PerDirection::new(600, 2_050)));
    assert_eq!(flow.last_seen, at(1_002));
    let [host, xdp, rtl] = [Level::Host, Level::Xdp, Level::Rtl].map(|level| t.amounts(id, level).unwrap());
    assert_eq!((host.packets, host.bytes), (PerDirection::new(1, 1), PerDirection::new(100, 50)));
    assert_eq!(host.last_seen, PerDirection::new(at(950), at(950)));
    assert_eq!((xdp.packets, xdp.bytes), (PerDirection::new(5, 2), PerDirection::new(500, 2_000)));
    assert_eq!(xdp.last_seen, PerDirection::new(at(1_002), at(800)));
    assert_eq!(rtl, FlowLevelCounts::default());
    let counted = t.level_counters();
    assert_eq!((counted.begun, counted.back, counted.sunk, counted.strays), (1, 1, 0, 2));
    assert!(!t.raise(id, at(2_000)), "no level has it");
    // The timeout at the host runs from the latest packet: UDP, established, 300 s.
    assert_eq!(t.expire(at(300_000), 100, none), 0);
    assert_eq!(t.expire(at(301_002 + TICK), 100, |_, _, _| ()), 1);
}

#[test]
fn a_refused_flow_stays_at_the_host() {
    let (mut t, id) = with_flow(TCP);
    assert_eq!(t.sink(id, Level::Host, FIRST, at(0)), Err(SinkError::Host));
    assert_eq!(t.sink(FlowId(3), Level::Xdp, FIRST, at(0)), Err(SinkError::NoFlow));
    let first = t.sink(id, Level::Rtl, FIRST, at(0)).unwrap();
    assert!(t.answered(first, LevelReply::Refused, at(1)));
    assert_eq!(
        (step(&t, id), t.since(id)),
        (Step::Back, Some(t.get(id).unwrap().start)),
        "it was never away"
    );
    // To the next level; the flow is to leave it before the level answers.
    let second = t.sink(id, Level::Xdp, FIRST, at(2)).unwrap();
    assert_ne!(first, second);
    assert!(!t.answered(first, LevelReply::Installed, at(2)), "that stay is over");
    assert!(t.raise(id, at(3)));
    assert_eq!((step(&t, id), tasks(&mut t, 4)), (Step::Withdrawing, vec![]));
    assert!(t.answered(second, LevelReply::Refused, at(5)));
    assert_eq!((step(&t, id), t.level_counters().refused), (Step::Back, 2));
    let third = t.sink(id, Level::Xdp, FIRST, at(6)).unwrap();
    assert!(!t.begin_end(id, EndReason::Shutdown, at(7)));
    assert!(t.answered(third, LevelReply::Installed, at(8)));
    let over = remove_below(&mut t, third, 8);
    assert_eq!(tasks(&mut t, over), [Task::End { id, reason: EndReason::Shutdown }]);
    assert_eq!(t.get(id).unwrap().level(), Level::Xdp);
}

#[test]
fn a_silent_flow_ends_when_its_last_counters_are_read_and_one_that_was_not_silent_goes_on() {
    // The time of the last packet, by the last counters or by a packet that was passed up.
    for (seen, by_level) in [(None, false), (Some(60_200), true), (Some(60_200), false)] {
        let (mut t, id) = with_flow(TCP);
        let sunk = sink(&mut t, id, Level::Xdp, 0);
        // The level's reports keep the flow.
        t.credit(sunk, Direction::ToClient, 1, 60, at(100));
        assert_eq!(t.expire(at(60_000), 100, none), 0);
        assert_eq!(step(&t, id), Step::Active);
        // 60 s, as at the host. No packet finds the flow stale.
        let due = 60_100 + TICK;
        assert!(matches!(t.find(&key(TCP, false), at(due)), Find::Found { .. }));
        assert_eq!(t.expire(at(due), 100, none), 0);
        assert_eq!(tasks(&mut t, due), tell(sunk, Command::Mark));
        assert!(t.answered(sunk, LevelReply::Marked, at(due)));
        assert_eq!(tasks(&mut t, due + 10 + TICK), tell(sunk, Command::Read));
        match seen {
            Some(seen) if by_level => assert!(t.credit(sunk, Direction::ToServer, 1, 60, at(seen))),
            Some(seen) => drop(t.account(id, Direction::ToServer, 60, at(seen), true)),
            None => {}
        }
        assert!(t.answered(sunk, LevelReply::Read, at(due + 500)));
        assert_eq!(tasks(&mut t, due + 500), tell(sunk, Command::Delete));
        assert!(t.answered(sunk, LevelReply::Deleted, at(due + 500)));
        let over = tasks(&mut t, due + 500);
        if seen.is_some() {
            assert_eq!((over, step(&t, id)), (vec![], Step::Back));
            assert_eq!((t.level_counters().revived, t.counters().mgr_timeout), (1, 0));
            continue;
        }
        assert_eq!(over, [Task::End { id, reason: EndReason::Timeout }]);
        let flow = t.get(id).unwrap();
        assert_eq!(flow.level(), Level::Xdp);
        assert!(t.begin_end(id, EndReason::Timeout, at(due + 500)), "it may end now");
        assert!(t.remove(id, EndReason::Timeout).is_some());
        assert_eq!((t.len(), t.level_counters().ended, t.level_counters().sunk), (0, 1, 0));
        assert_eq!(t.counters().end_state[FlowState::CaptureBypassed as usize], 0, "who bypassed it says so");
        assert_eq!(t.counters().mgr_timeout, 1);
        // Later credits are orphans, even if the entry has another flow.
        assert!(!t.credit(sunk, Direction::ToServer, 7, 700, at(due + 600)));
        let next = created(t.find_or_insert(&key(TCP, false), at(due + 600), none));
        assert_eq!(next, id);
        assert!(!t.credit(sunk, Direction::ToServer, 1, 100, at(due + 600)));
        assert!(!t.answered(sunk, LevelReply::Deleted, at(due + 600)));
        let counted = t.level_counters();
        assert_eq!((counted.orphan_packets, counted.orphan_bytes, counted.strays), (8, 800, 1));
        assert_eq!(t.get(next).unwrap().packets, PerDirection::new(0, 0));
    }
}

#[test]
fn a_packet_in_the_last_moment_keeps_a_silent_flow() {
    for (reason, kept) in [(EndReason::Timeout, true), (EndReason::Forced, false)] {
        let (mut t, id) = with_flow(UDP);
        let sunk = sink(&mut t, id, Level::Xdp, 0);
        assert!(!t.begin_end(id, reason, at(200_000)));
        assert!(t.answered(sunk, LevelReply::Deleted, at(200_000)));
        assert_eq!(step(&t, id), Step::Left);
        t.account(id, Direction::ToServer, 60, at(200_000), true);
        let over = if kept { vec![] } else { vec![Task::End { id, reason }] };
        assert_eq!(tasks(&mut t, 200_000), over);
        assert_eq!(step(&t, id).at_host(), kept);
    }
}

#[test]
fn a_level_that_does_not_answer_is_waited_for_by_the_clock() {
    for answers in 0..4 {
        for ends in [false, true] {
            let (mut t, id) = with_flow(UDP);
            let sunk = t.sink(id, Level::Xdp, FIRST, at(0)).unwrap();
            let mut now = 0;
            if answers > 0 {
                t.answered(sunk, LevelReply::Installed, at(0));
            }
            if ends {
                assert!(!t.begin_end(id, EndReason::Shutdown, at(0)));
            } else {
                t.raise(id, at(0));
            }
            for (answer, command) in [(LevelReply::Marked, Command::Mark), (LevelReply::Read, Command::Read)]
                .iter()
                .take(answers.max(1) - 1)
            {
                assert_eq!(tasks(&mut t, now), tell(sunk, *command));
                assert!(t.answered(sunk, *answer, at(now)));
                now += 10 + TICK;
            }
            // The order is sent once.
            assert_eq!(tasks(&mut t, now).len(), usize::from(answers > 0));
            assert_eq!(tasks(&mut t, now + 999), []);
            assert_eq!(t.level_counters().unanswered, 0);
            let over = tasks(&mut t, now + 1_000 + TICK);
            assert_eq!(t.level_counters().unanswered, 1);
            if ends {
                assert_eq!(over, [Task::End { id, reason: EndReason::Shutdown }], "{answers}");
                continue;
            }
            assert_eq!((over, step(&t, id), t.get(id).unwrap().level()), (vec![], Step::Back, Level::Host));
            assert_eq!(t.sink(id, Level::Rtl, FIRST, at(now + 2_000)), Err(SinkError::Unanswered));
            // Late counts are credited, late answers have no effect.
            assert!(t.credit(sunk, Direction::ToServer, 1, 10, at(now)));
            assert!(!t.answered(sunk, LevelReply::Deleted, at(now + 2_000)));
            assert_eq!(t.get(id).unwrap().bytes.to_server, 110);
        }
    }
}

#[test]
fn a_level_that_is_taken_away_gives_its_flows_back() {
    let (mut t, id) = with_flow(UDP);
    let sunk = sink(&mut t, id, Level::Rtl, 0);
    assert!(t.answered(sunk, LevelReply::Deleted, at(5)));
    assert_eq!((step(&t, id), t.level_counters().back), (Step::Back, 1));
    let again = sink(&mut t, id, Level::Xdp, 6);
    assert_eq!(t.stay(id).unwrap().sunk, again);
    assert!(t.credit(sunk, Direction::ToServer, 1, 10, at(7)), "of the level that it was at");
    assert_eq!(t.amounts(id, Level::Rtl).unwrap().packets.to_server, 1);
}

#[test]
fn sunk_flows_make_room_last_and_as_many_as_are_wanted() {
    let (mut t, first) = with_flow(UDP);
    let ids: Vec<FlowId> = (1..4)
        .map(|n| created(t.find_or_insert(&key(UDP + n * 12, false), at(u64::from(n)), none)))
        .collect();
    for id in [first, ids[0], ids[1]] {
        sink(&mut t, id, Level::Xdp, 10);
    }
    t.set_state(ids[2], FlowState::Established);
    // The flow at the host goes first, and at once.
    let mut ended = Vec::new();
    let new = created(t.find_or_insert(&key(100, false), at(20), |id, _, why| ended.push((id, why))));
    assert_eq!(ended, [(ids[2], EndReason::Forced)]);
    let sunk = sink(&mut t, new, Level::Xdp, 20);
    // All flows are offloaded: the packet finds no room, the flow that was silent longest begins to leave.
    assert_eq!(t.find_or_insert(&key(200, false), at(30), none), Lookup::Full);
    assert_eq!((step(&t, first), t.room_coming, t.counters().get_used_failed), (Step::Marking, 1, 1));
    let leaving = t.stay(first).unwrap().sunk;
    let over = remove_below(&mut t, leaving, 30);
    assert_eq!(tasks(&mut t, over), [Task::End { id: first, reason: EndReason::Forced }]);
    t.remove(first, EndReason::Forced);
    assert_eq!((t.room_coming, t.counters().get_used), (0, 2));
    assert_eq!(created(t.find_or_insert(&key(200, false), at(over), none)), first);
    // A flow that was used since stays longer than the others.
    sink(&mut t, first, Level::Rtl, over);
    t.credit(sunk, Direction::ToServer, 1, 1, at(over + 5_000));
    for left in [ids[0], ids[1], first, new] {
        assert_eq!(t.find_or_insert(&key(300, false), at(over + 6_000), none), Lookup::Full);
        assert_eq!(step(&t, left), Step::Marking);
    }
    // No flow is left to choose.
    assert_eq!(t.find_or_insert(&key(300, false), at(over + 6_000), none), Lookup::Full);
    assert_eq!(t.room_coming, 4);
}

#[test]
fn a_new_connection_has_the_key_while_the_old_one_leaves_its_level() {
    let (mut t, old) = with_flow(TCP);
    let sunk = sink(&mut t, old, Level::Xdp, 0);
    // The other end opens it, in the other direction.
    let new = t.replace(old, &key(TCP, true), at(10), none).unwrap();
    assert_ne!(new, old);
    assert_eq!(t.find(&key(TCP, true), at(10)), Find::Found { id: new, direction: Direction::ToServer });
    t.account(new, Direction::ToServer, 60, at(10), true);
    // The old entry may still count the first packets of the new connection for the old flow.
    assert!(t.credit(sunk, Direction::ToClient, 1, 60, at(11)));
    assert!(!t.begin_end(old, EndReason::TcpReuse, at(12)), "it leaves already");
    let over = remove_below(&mut t, sunk, 12);
    assert_eq!(tasks(&mut t, over), [Task::End { id: old, reason: EndReason::TcpReuse }]);
    assert_eq!(t.get(old).unwrap().packets, PerDirection::new(1, 1));
    t.remove(old, EndReason::TcpReuse);
    assert!(matches!(t.find(&key(TCP, false), at(over)), Find::Found { id, .. } if id == new));
    assert_eq!((t.len(), t.counters().tcp_reuse), (1, 1));
}

#[test]
fn a_turned_flow_turns_what_all_levels_counted() {
    let (mut t, id) = with_flow(TCP);
    let first = sink(&mut t, id, Level::Rtl, 0);
    t.credit(first, Direction::ToServer, 5, 500, at(1));
    t.get_mut(id).unwrap().flip();
    // The level keeps counting in the directions of its order.
    t.credit(first, Direction::ToServer, 1, 100, at(2));
    t.credit(first, Direction::ToClient, 1, 10, at(3));
    let flow = t.get(id).unwrap();
    assert_eq!((flow.packets, flow.bytes), (PerDirection::new(1, 7), PerDirection::new(10, 700)));
    let rtl = t.amounts(id, Level::Rtl).unwrap();
    assert_eq!((rtl.packets, rtl.last_seen), (PerDirection::new(1, 6), PerDirection::new(at(3), at(2))));
    assert_eq!(t.amounts(id, Level::Host).unwrap().packets, PerDirection::new(0, 1));
    assert!(t.answered(first, LevelReply::Deleted, at(4)));
    let second = sink(&mut t, id, Level::Xdp, 5);
    t.credit(second, Direction::ToServer, 2, 20, at(6));
    assert_eq!(t.amounts(id, Level::Xdp).unwrap().packets, PerDirection::new(2, 0));
    t.get_mut(id).unwrap().flip();
    t.credit(second, Direction::ToServer, 1, 10, at(7));
    assert_eq!(t.amounts(id, Level::Xdp).unwrap().packets, PerDirection::new(0, 3));
    assert_eq!(t.get(id).unwrap().packets, PerDirection::new(7, 4));
}

#[test]
fn a_stay_goes_with_its_flow_to_another_table() {
    let moved = |t: &FlowTable<u32>, id| {
        let mut bytes = Vec::new();
        t.export(id, &mut bytes);
        let mut new: FlowTable<u32> = FlowTable::new(&config(4)).unwrap();
        created(new.find_or_insert(&key(100, false), at(0), none)); // so that serials differ
        let id = new.adopt(ImportedFlow::read(&bytes, 7).unwrap().0, at(5)).unwrap();
        (new, id)
    };
    let (mut t, id) = with_flow(TCP);
    let old = t.sink(id, Level::Xdp, FIRST, at(1)).unwrap();
    // Without an answer so far: the flow is to leave once the level answers.
    let (mut new, to) = moved(&t, id);
    assert_eq!((step(&new, to), new.level_counters().sunk), (Step::Withdrawing, 1));
    assert!(!new.answered(old, LevelReply::Installed, at(6)), "the old name is no name here");
    let sunk = new.stay(to).unwrap().sunk;
    assert!(new.answered(sunk, LevelReply::Installed, at(6)));
    assert_eq!(tasks(&mut new, 6), tell(sunk, Command::Mark));
    // At the level: the stay continues.
    t.answered(old, LevelReply::Installed, at(1));
    t.credit(old, Direction::ToServer, 1, 50, at(2));
    let (mut new, to) = moved(&t, id);
    let stay = new.stay(to).unwrap();
    assert_eq!((stay.step, stay.generation, new.get(to).unwrap().level()), (Step::Active, FIRST, Level::Xdp));
    assert!(new.credit(stay.sunk, Direction::ToServer, 1, 50, at(3)));
    assert_eq!(new.amounts(to, Level::Xdp).unwrap().packets.to_server, 2);
    assert_eq!(tasks(&mut new, 6), []);
    // In removal: starts again from the mark.
    t.begin_end(id, EndReason::TcpReuse, at(3));
    tasks(&mut t, 3);
    t.answered(old, LevelReply::Marked, at(3));
    let (mut new, to) = moved(&t, id);
    assert_eq!(new.find(&key(TCP, false), at(5)), Find::Missing, "its key was given up");
    let sunk = new.stay(to).unwrap().sunk;
    let over = remove_below(&mut new, sunk, 5);
    assert_eq!(tasks(&mut new, over), [Task::End { id: to, reason: EndReason::TcpReuse }]);
    // Over, and moved back.
    t.answered(old, LevelReply::Deleted, at(4));
    assert_eq!(step(&t, id), Step::Left);
    let (mut new, to) = moved(&t, id);
    assert_eq!(tasks(&mut new, 5), [Task::End { id: to, reason: EndReason::TcpReuse }]);
    let (mut t, id) = with_flow(UDP);
    let sunk = sink(&mut t, id, Level::Xdp, 0);
    t.answered(sunk, LevelReply::Deleted, at(1));
    let (new, to) = moved(&t, id);
    assert_eq!((step(&new, to), new.level_counters().sunk), (Step::Back, 0));
}

#[test]
fn the_end_of_a_run_waits_for_levels_or_cuts() {
    let (mut t, first) = with_flow(UDP);
    let sunk = sink(&mut t, first, Level::Xdp, 0);
    let cut = created(t.find_or_insert(&key(TCP, false), at(0), none));
    sink(&mut t, cut, Level::Rtl, 0);
    created(t.find_or_insert(&key(100, false), at(0), none));
    let mut ended = 0;
    t.drain(EndReason::Shutdown, at(1), |_, _, _| ended += 1);
    assert_eq!((ended, t.len(), t.stays().count()), (1, 2, 2));
    assert!(t.remove(cut, EndReason::Shutdown).is_some());
    assert_eq!((t.level_counters().cut, t.level_counters().sunk), (1, 1));
    let over = remove_below(&mut t, sunk, 1);
    assert_eq!(tasks(&mut t, over), [Task::End { id: first, reason: EndReason::Shutdown }]);
    t.drain(EndReason::Shutdown, at(over), |_, _, _| ended += 1);
    assert_eq!((ended, t.len(), t.stays().count(), t.kept_below), (2, 0, 0, 0));
    assert!(t.wheels.iter().all(|wheel| wheel.armed() == 0));
}

#[test]
fn flows_that_never_sink_cost_what_they_did() {
    let mut t: FlowTable<u32> = FlowTable::new(&config(1_000_000)).unwrap();
    let id = created(t.find_or_insert(&key(UDP, false), at(0), none));
    let before = t.memory();
    let entry = size_of::<FlowEntry<u32>>() + size_of::<TimerLink>() + size_of::<u32>();
    let wheels = size_of_val(&*t.wheels);
    assert_eq!(before.touched, entry + t.index.bytes() + wheels + size_of::<FlowTable<u32>>());
    let sunk = sink(&mut t, id, Level::Xdp, 0);
    assert_eq!(t.memory().touched - before.touched, 8 * 1_000_000 + 128);
    assert!(t.answered(sunk, LevelReply::Deleted, at(1)));
    t.remove(id, EndReason::Shutdown);
    assert_eq!(t.memory().touched - before.touched, 8 * 1_000_000);
}

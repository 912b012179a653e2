// SPDX-License-Identifier: Apache-2.0
//! Flows that the packet filter refuses are refused below.

use super::{Bench, OTHER, POLICY, RULES};
use bartizan_offload::{Actions, OffloadDenied};
use bartizan_testkit_device::Habits;

/// Datagrams to the port that the packet filter of [`OTHER`] refuses, in both directions; how many of them
/// the level dropped.
fn refused_by_the_filter(bench: &mut Bench, port: u16, datagrams: usize) -> u64 {
    let before = bench.wire.counters().dropped;
    for number in 0..datagrams {
        let side = number % 2;
        let (from, to) = if side == 0 { ((1, port), (30, 668)) } else { ((30, 668), (1, port)) };
        bench.datagram(side, from, to);
        bench.turn();
    }
    bench.wire.counters().dropped - before
}

#[test]
fn what_the_packet_filter_refuses_is_refused_below_and_counted_for_its_rule() {
    let counts = |worker: &bartizan_dataplane::worker::Worker| {
        let mut counted = [0; 2];
        worker.visit_functions_by_name(&mut |function, name, value| {
            if function == "pfw" {
                counted[0] += value * u64::from(name == "dropped");
            }
        });
        worker.visit_rules(&mut |_, rule| counted[1] += rule.packets * u64::from(rule.place == 1));
        counted
    };
    let mut told = Vec::new();
    for level in [true, false] {
        let mut bench = Bench::new(1, level.then(Habits::default), &format!("filter-{level}"));
        bench.stack.swap(OTHER, "");
        let below = refused_by_the_filter(&mut bench, 10_000, 100);
        // The third one finds the entry that the second one had made.
        assert_eq!(below, if level { 98 } else { 0 });
        // Another generation allows it: the same addresses and ports go on, and are refused again by the next
        // one.
        bench.stack.swap(POLICY, RULES);
        let passed = bench.fate[0];
        assert_eq!(refused_by_the_filter(&mut bench, 10_000, 10), 0);
        assert_eq!(bench.fate[0], passed + 10);
        bench.stack.swap(OTHER, "");
        // The entry of the first generation is gone by then.
        for _ in 0..20 {
            bench.nanos += 100_000_000;
            bench.turn();
        }
        assert!(refused_by_the_filter(&mut bench, 10_000, 20) >= if level { 17 } else { 0 });
        assert_eq!(bench.fate, [10, 120]);
        let (worker, events) = bench.stack.finish();
        let mut counted = counts(&worker);
        if level {
            // Counts that come with the next generation have no rule any more.
            assert!((120 - 98..=120).contains(&counted[0]), "{counted:?}");
            counted = [120, 20];
        }
        // What the rule counted before it was gone for a generation went with it.
        assert_eq!(counted, [120, 20], "{level}");
        let flow = events.iter().find(|event| event["event_type"] == "flow").expect("a record");
        told.push([&flow["flow"]["pkts_toserver"], &flow["flow"]["pkts_toclient"]].map(Clone::clone));
    }
    assert_eq!(told[0], told[1]);
}

/// A device that cannot drop has the forwarded flows; refused flows stay at the host, are refused there, and
/// report it once per flow.
#[test]
fn a_device_that_cannot_drop_leaves_refused_flows_to_the_host() {
    let habits = Habits { actions: Actions { drop: false, ..Actions::ALL }, ..Habits::default() };
    let mut bench = Bench::new(1, Some(habits), "cannot-drop");
    bench.stack.swap(OTHER, "");
    assert_eq!(refused_by_the_filter(&mut bench, 10_000, 100), 0);
    let host = bench.stack.worker.counters().refused.iter().sum::<u64>();
    let stayed =
        |bench: &Bench| bench.stack.worker.level_counters().unwrap().stayed[OffloadDenied::Action as usize];
    assert_eq!((bench.fate, host, stayed(&bench)), ([0, 100], 100, 1));
    // What rules of detection refuse as well.
    bench.stack.swap(POLICY, RULES);
    bench.run(5_000);
    let counters = bench.wire.counters();
    assert!(counters.forwarded > 50 && counters.dropped == 0, "{counters:?}");
    assert!(stayed(&bench) > 5, "{}", stayed(&bench));
    let mut told = 0;
    bench.stack.worker.visit_stats(|name, value| told += value * u64::from(name == "offload.stays.action"));
    assert_eq!(told, stayed(&bench));
    bench.check();
}

/// Each packet of some traffic gets the same verdict, whatever a device supports.
#[test]
fn what_a_device_cannot_do_changes_no_fate() {
    for (seed, actions) in [
        (51, Actions { drop: false, ..Actions::ALL }),
        (52, Actions { forward: false, ..Actions::ALL }),
        (53, Actions { forward: false, drop: false }),
    ] {
        let mut bench = Bench::new(seed, Some(Habits { actions, ..super::slow() }), &format!("acts-{seed}"));
        let mut alone = Bench::new(seed, None, &format!("acts-alone-{seed}"));
        [&mut bench, &mut alone].into_iter().for_each(|bench| bench.run(10_000));
        assert!(bench.fates == alone.fates, "seed {seed}");
        alone.stack.finish();
        let counters = bench.wire.counters();
        assert_eq!((counters.forwarded > 0, counters.dropped > 0), (actions.forward, actions.drop));
        bench.check();
    }
}

#[test]
fn who_opens_what_the_other_side_was_refused_is_answered_at_once() {
    // Only host 1 may open.
    let first = bartizan_testkit::hosts::address(false, 1);
    let policy = format!(
        "chain: [pfw], pfw: {{default: drop, rules: [{{allow: udp, from: {first}, to-ports: 700}}]}}"
    );
    for level in [false, true] {
        let mut bench = Bench::new(1, level.then(Habits::default), &format!("opener-{level}"));
        bench.stack.swap(&policy, "");
        let (inside, outside) = ((1, 9_000), (30, 700));
        for _ in 0..4 {
            bench.datagram(1, outside, inside);
            bench.turn();
        }
        assert_eq!(
            (bench.fate[0], bench.wire.counters().dropped > 0),
            (0, level),
            "refused, at the level too"
        );
        bench.datagram(0, inside, outside);
        assert_eq!(bench.fate[0], 1, "{level}: the inside opens");
        // The level has not answered yet that the entry of what was refused is gone.
        for answer in 0..8 {
            bench.datagram(1, outside, inside);
            assert_eq!(bench.fate[0], 2 + answer, "{level}: answer {answer}");
            if answer > 3 {
                bench.turn();
            }
        }
        bench.stack.finish();
    }
}

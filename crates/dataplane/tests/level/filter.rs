// SPDX-License-Identifier: Apache-2.0
//! What the packet filter refuses is refused below.

use super::{Bench, OTHER, POLICY, RULES};
use bartizan_offload::devices::mock::Habits;

/// Datagrams to the port that the packet filter of [`OTHER`] refuses, in both directions; how many of them the level dropped.
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
                counted[1] += value * u64::from(name.starts_with("rule.") && name.ends_with(".1"));
            }
        });
        counted
    };
    let mut told = Vec::new();
    for level in [true, false] {
        let mut bench = Bench::new(1, level.then(Habits::default), &format!("filter-{level}"));
        bench.stack.swap(OTHER, "");
        let below = refused_by_the_filter(&mut bench, 10_000, 100);
        // The third one finds the entry that the second one had made.
        assert_eq!(below, if level { 98 } else { 0 });
        // Another generation allows it: the same addresses and ports go on, and are refused again by the next one.
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
            counted = [120; 2];
        }
        assert_eq!(counted, [120; 2], "{level}");
        let flow = events.iter().find(|event| event["event_type"] == "flow").expect("a record");
        told.push([&flow["flow"]["pkts_toserver"], &flow["flow"]["pkts_toclient"]].map(Clone::clone));
    }
    assert_eq!(told[0], told[1]);
}

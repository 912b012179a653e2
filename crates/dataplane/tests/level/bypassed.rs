// SPDX-License-Identifier: Apache-2.0
//! EVE's counters of bypassed flows.

use super::Bench;
use bartizan_testkit_device::Habits;

/// EVE's counters of bypassed packets name the place that handled a packet: the host alone, the host although
/// a level had the flow (or was about to), or that level. Without a level the first counter has all.
#[test]
fn packets_of_bypassed_flows_are_counted_by_who_had_them() {
    let late = Habits { late: 3, ..Habits::default() };
    for (habits, expected) in [(Some(late), true), (Some(Habits::default()), true), (None, false)] {
        let mut bench = Bench::new(1, habits, "bypassed");
        let client_sends = |bench: &mut Bench, packets: u64| {
            (0..packets).for_each(|_| bench.datagram(0, (1, 10_000), (30, 80)));
        };
        // The first one is inspected; with the second one, bypassed, the flow is handed over. The level has
        // not taken it yet.
        client_sends(&mut bench, 6);
        // It answers after some turns.
        for _ in 0..late.late + 1 {
            bench.turn();
        }
        client_sends(&mut bench, 10);
        // Silent for so long that it ends where it is.
        for _ in 0..400 {
            bench.nanos += 1_000_000_000;
            bench.turn();
            let now = bench.now();
            bench.stack.worker.idle(now, &mut bench.stack.recorder);
        }
        let (worker, events) = bench.stack.finish();
        let mut counted = std::collections::BTreeMap::new();
        worker.visit_stats(|name, value| {
            counted.extend(name.strip_prefix("flow_bypassed.").map(|name| (name, value)));
        });
        let size = events.iter().find(|event| event["event_type"] == "flow").expect("a record");
        let size = size["flow"]["bytes_toserver"].as_u64().unwrap() / 16;
        let [local, came_up, below] = if expected { [1, 4, 10] } else { [15, 0, 0] };
        let all = [
            ("bytes", below * size),
            ("closed", u64::from(expected)),
            ("local_bytes", local * size),
            ("local_capture_bytes", came_up * size),
            ("local_capture_pkts", came_up),
            ("local_pkts", local),
            ("pkts", below),
        ];
        assert_eq!(counted, all.into(), "{habits:?}");
    }
}

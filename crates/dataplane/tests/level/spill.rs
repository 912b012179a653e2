// SPDX-License-Identifier: Apache-2.0
//! Two levels below the host: what the first one does not take the second one does, and each packet is counted in one place.

use super::{Bench, slow};
use bartizan_base::{Level, PacketDuration};
use bartizan_offload::devices::mock::{Habits, MockDevice};
use bartizan_offload::{Field, Fields, FlowManager, Stays};

/// A small one that knows no tunnels, and behind it a larger one.
fn two(seed: u64, first: Habits, name: &str) -> Bench {
    let mut bench = Bench::new(seed, None, name);
    let (device, wire) = MockDevice::new(Habits { seed, ..first });
    let habits = Habits { seed: seed + 1, level: Level::Xdp, ..slow() };
    let (second, next) = MockDevice::new(habits);
    let manager = FlowManager::new(Box::new(device), bench.stack.worker.generation());
    bench.stack.worker.set_level(manager.spilling_to(Box::new(second)).unwrap());
    (bench.wire, bench.next) = (wire, Some((Level::Xdp, next)));
    bench
}

fn small() -> Habits {
    let fields = Fields::ALL.without(Field::Tunnel);
    Habits { entries: 12, fields, ageing: Some(PacketDuration::from_millis(500)), ..slow() }
}

/// Flows refused by each level, by reason.
fn refused(bench: &Bench, why: Stays) -> Vec<u64> {
    let manager = bench.stack.worker.flow_manager().unwrap();
    manager.levels().map(|level| level.refused[why as usize]).collect()
}

fn fates_are_those_without_a_level(bench: &Bench, seed: u64, name: &str, run: impl Fn(&mut Bench)) {
    let mut alone = Bench::new(seed, None, &format!("{name}-alone-{seed}"));
    run(&mut alone);
    let differs = bench.fates.iter().zip(&alone.fates).position(|(with, without)| with != without);
    assert_eq!((differs, bench.fates.len()), (None, alone.fates.len()), "seed {seed}");
    alone.stack.finish();
}

#[test]
fn what_the_first_level_does_not_take_the_next_one_does_and_all_is_counted_once() {
    for seed in 1..=3 {
        let name = format!("spill-{seed}");
        let mut bench = two(seed, small(), &name);
        bench.run(20_000);
        fates_are_those_without_a_level(&bench, seed, "spill", |bench| bench.run(20_000));
        let counters: Vec<_> = bench.wires().map(|wire| wire.counters()).collect();
        for counters in &counters {
            assert!(
                counters.forwarded > 200 && counters.dropped > 50 && counters.updated > 5,
                "{counters:?}"
            );
        }
        assert!(counters[0].in_tunnels == 0, "it holds none: {counters:?}");
        assert!(refused(&bench, Stays::Full)[0] > 100 && refused(&bench, Stays::Key)[0] > 50);
        assert!(refused(&bench, Stays::Refused).iter().all(|refused| *refused > 5));
        assert_eq!(refused(&bench, Stays::Key)[1], 0);
        let manager = bench.stack.worker.level_counters().unwrap();
        assert!(manager.spilled > 200, "{manager:?}");
        let (removed, _) = bench.check();
        assert!(removed > 300, "{removed}");
    }
}

/// The first device is taken away under traffic and comes again; its flows go to the other one meanwhile.
#[test]
fn a_level_that_is_taken_away_loses_no_packet_and_no_count() {
    let run = |bench: &mut Bench| {
        for _ in 0..15 {
            bench.run(600);
            bench.wire.detach();
            bench.run(400);
            bench.wire.attach();
        }
    };
    for seed in 21..=23 {
        let name = format!("away-{seed}");
        let mut bench = two(seed, Habits { entries: 48, ..small() }, &name);
        bench.pauses = false;
        run(&mut bench);
        fates_are_those_without_a_level(&bench, seed, "away", |bench| {
            bench.pauses = false;
            run(bench);
        });
        let counters: Vec<_> = bench.wires().map(|wire| wire.counters()).collect();
        assert!(counters.iter().all(|counters| counters.forwarded > 200), "{counters:?}");
        assert!(refused(&bench, Stays::Away)[0] > 50);
        assert_eq!(refused(&bench, Stays::Away)[1], 0);
        bench.check();
    }
}

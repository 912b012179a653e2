// SPDX-License-Identifier: Apache-2.0
//! Two levels below the host: what the first one does not take the second one does, and each packet is
//! counted in one place.

use super::{Bench, slow};
use bartizan_base::{Level, PacketDuration};
use bartizan_offload::{Fields, FlowManager, KeyField, OffloadDenied};
use bartizan_testkit_device::{Habits, MockDevice};

/// A small level that knows no tunnels, and a larger one above it.
fn two(seed: u64, first: Habits, second: Habits, name: &str) -> Bench {
    let mut bench = Bench::new(seed, None, name);
    let (device, wire) = MockDevice::new(Habits { seed, ..first });
    let habits = Habits { seed: seed + 1, level: Level::Xdp, ..second };
    let (second, next) = MockDevice::new(habits);
    let manager = FlowManager::new(Box::new(device), bench.stack.worker.generation());
    bench.stack.worker.set_level(manager.spilling_to(Box::new(second)).unwrap());
    (bench.wire, bench.next) = (wire, Some(next));
    bench
}

fn small() -> Habits {
    let (fields, ageing) = (Fields::ALL.without(KeyField::Tunnel), Some(PacketDuration::from_millis(500)));
    Habits { entries: 12, fields, ageing, updates: true, ..slow() }
}

/// Flows refused by each level, by reason.
fn refused(bench: &Bench, why: OffloadDenied) -> Vec<u64> {
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
    let (mut updated, mut spilled) = ([0, 0], 0);
    for (seed, late) in [(1, 3), (2, 0), (3, 3), (4, 0)] {
        let run = |bench: &mut Bench| {
            bench.pauses = late == 0;
            bench.run(15_000);
        };
        let (first, second) = (Habits { late, ..small() }, Habits { late, updates: true, ..slow() });
        let mut bench = two(seed, first, second, &format!("spill-{seed}"));
        run(&mut bench);
        fates_are_those_without_a_level(&bench, seed, "spill", run);
        let counters: Vec<_> = bench.wires().map(|wire| wire.counters()).collect();
        for (counters, updated) in counters.iter().zip(&mut updated) {
            assert!(counters.forwarded > 50 && counters.dropped > 50, "{counters:?}");
            *updated += counters.updated;
        }
        assert!(counters[0].in_tunnels == 0, "it holds none: {counters:?}");
        assert!(refused(&bench, OffloadDenied::Full)[0] > 20 && refused(&bench, OffloadDenied::Key)[0] > 20);
        assert_eq!(refused(&bench, OffloadDenied::Key)[1], 0);
        spilled += bench.stack.worker.level_counters().unwrap().spilled;
        let (removed, _) = bench.check();
        assert!(removed > 100, "{removed}");
    }
    assert!(updated.iter().all(|updated| *updated > 0) && spilled > 200, "{updated:?}, {spilled}");
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
    for (seed, late) in [(21, 0), (22, 3), (23, 0)] {
        let name = format!("away-{seed}");
        let (first, second) =
            (Habits { entries: 48, late, ..small() }, Habits { late, updates: true, ..slow() });
        let mut bench = two(seed, first, second, &name);
        bench.pauses = false;
        run(&mut bench);
        fates_are_those_without_a_level(&bench, seed, "away", |bench| {
            bench.pauses = false;
            run(bench);
        });
        let counters: Vec<_> = bench.wires().map(|wire| wire.counters()).collect();
        assert!(counters.iter().all(|counters| counters.forwarded > 50), "{counters:?}");
        assert!(refused(&bench, OffloadDenied::Away)[0] > 20);
        assert_eq!(refused(&bench, OffloadDenied::Away)[1], 0);
        bench.check();
    }
}

/// One level whose entries go on in place: each packet has the fate that it has without a level.
#[test]
fn entries_that_go_on_in_place_change_no_fate() {
    for seed in 31..=33 {
        let run = |bench: &mut Bench| {
            bench.swaps = 250;
            bench.run(15_000);
        };
        let habits = Habits { late: (seed % 4) as u32, updates: true, ..slow() };
        let mut bench = Bench::new(seed, Some(habits), &format!("in-place-{seed}"));
        run(&mut bench);
        fates_are_those_without_a_level(&bench, seed, "in-place", run);
        // What was asked last.
        bench.turn();
        let updated = bench.wire.counters().updated;
        let renewed = bench.stack.worker.level_counters().unwrap().renewed;
        assert!(updated > 100 && updated == renewed, "{updated} of {renewed}");
        bench.check();
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Several ports watched as one: order, bound of waiting, and that no frame is lost, whatever arrives when.

use bartizan_base::{PacketDuration, Timestamp};
use bartizan_ports::{MergedTap, Port, TestClock, TestPort, Woke};
use bartizan_testkit::random::Random;
use std::time::Duration;

const WAIT: PacketDuration = PacketDuration::from_millis(10);
const CAPACITY: usize = 8_192;

fn micros(micros: u64) -> PacketDuration {
    PacketDuration::from_nanos(micros * 1_000)
}

fn start() -> Timestamp {
    Timestamp::from_parts(1_000, 0)
}

/// A frame with the number of its source.
fn frame(source: u32, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 52];
    frame.extend_from_slice(&source.to_be_bytes());
    frame.extend_from_slice(&number.to_be_bytes());
    frame
}

/// A tap of so many test ports. The far ends inject.
struct Bench {
    clock: TestClock,
    far: Vec<TestPort>,
    tap: MergedTap,
}

/// A frame handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Out {
    source: usize,
    number: u32,
    time: Timestamp,
    duplicate: bool,
}

impl Bench {
    fn new(sources: usize, batch: usize, capacity: usize, window: Option<PacketDuration>) -> Self {
        let clock = TestClock::starting_at(start());
        let (mut far, mut near): (Vec<_>, Vec<Box<dyn Port>>) = (Vec::new(), Vec::new());
        for source in 0..sources {
            let (a, b) = TestPort::pair(["far", &format!("near{source}")], 1500, capacity, &clock).unwrap();
            far.push(a);
            near.push(Box::new(b));
        }
        Bench { clock, far, tap: MergedTap::new(near, WAIT, batch, window) }
    }

    /// Makes the ring of an interface show a frame.
    fn show(&self, source: usize, number: u32, time: Timestamp) {
        self.far[source].deliver(&frame(source as u32, number), time);
    }

    /// The frames handed out after the clock advanced.
    fn turn(&mut self, all: bool) -> Vec<Out> {
        self.tap.begin_turn();
        let mut out = Vec::new();
        while let Some(taken) = self.tap.next(all, &mut |_| {}) {
            let batch = self.tap.batch(taken.source).unwrap();
            let (bytes, info) = (batch.bytes(taken.index).unwrap(), batch.info(taken.index).unwrap());
            let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
            assert_eq!(word(52) as usize, taken.source);
            let (time, duplicate) = (info.timestamp, taken.duplicate);
            out.push(Out { source: taken.source, number: word(56), time, duplicate });
        }
        out
    }

    /// Frames that waited, came late, did not wait since a ring was half full.
    fn counted(&mut self) -> [u64; 3] {
        let mut sum = [0; 3];
        self.tap.each_stats(|_, stats| {
            for (sum, (_, frames)) in sum.iter_mut().zip(stats.merged()) {
                *sum += frames;
            }
        });
        sum
    }
}

/// Frames of one interface: number, timestamp, time when the ring shows it.
type Plan = Vec<(u32, Timestamp, Timestamp)>;

/// Traffic of seeded rates, shown in blocks up to `delay` late.
fn plan(random: &mut Random, delay: u64, end: u64) -> Plan {
    let gap = *random.pick(&[20, 200, 3_000]);
    let (mut at, mut shown, mut plan) = (0, 0, Vec::new());
    for number in 0.. {
        at += random.within(1, 2 * gap) as u64;
        if at > end {
            break;
        }
        if at > shown {
            // The block is open until then.
            shown = at + random.below(delay as usize) as u64;
        }
        plan.push((number, start() + micros(at), start() + micros(shown)));
    }
    plan
}

/// Runs seeded traffic through a tap, a turn every 500 microseconds. Returns the frames handed out with the
/// clock at that time, and the counters.
fn run(seed: u64, delay: u64) -> (Vec<Plan>, Vec<(Out, Timestamp)>, [u64; 3]) {
    const STEP: u64 = 500;
    let mut random = Random::new(seed);
    let sources = random.within(2, 4);
    let plans: Vec<Plan> = (0..sources).map(|_| plan(&mut random, delay, 60_000)).collect();
    let mut bench = Bench::new(sources, random.within(1, 40), CAPACITY, None);
    let mut next = vec![0; sources];
    let mut out = Vec::new();
    for _ in 0..(60_000 + delay + 20_000) / STEP {
        bench.clock.advance(micros(STEP));
        let now = bench.clock.now();
        for (source, plan) in plans.iter().enumerate() {
            while let Some((number, time, _)) = plan.get(next[source]).filter(|(_, _, shown)| *shown <= now) {
                bench.show(source, *number, *time);
                next[source] += 1;
            }
        }
        out.extend(bench.turn(false).into_iter().map(|frame| (frame, now)));
    }
    (plans, out, bench.counted())
}

/// Checks that each frame came out once, those of an interface in order, none later than allowed.
fn check(plans: &[Plan], out: &[(Out, Timestamp)], seed: u64) {
    for (source, plan) in plans.iter().enumerate() {
        let numbers = out.iter().filter(|(frame, _)| frame.source == source).map(|(frame, _)| frame.number);
        assert!(numbers.eq(plan.iter().map(|(number, ..)| *number)), "seed {seed}, interface {source}");
    }
    for (frame, at) in out {
        let (_, time, shown) = plans[frame.source][frame.number as usize];
        let bound = shown.max(time + WAIT) + micros(500);
        assert!(*at <= bound, "seed {seed}: {frame:?} at {at:?}, not later than {bound:?}");
    }
}

#[test]
fn frames_come_in_the_order_of_their_timestamps() {
    let mut waited = 0;
    for seed in 0..60 {
        let (plans, out, counted) = run(seed, 9_000);
        check(&plans, &out, seed);
        assert!(out.windows(2).all(|pair| pair[0].0.time <= pair[1].0.time), "seed {seed}");
        assert_eq!(counted[1..], [0, 0], "seed {seed}: none is late, and no ring fills");
        waited += counted[0];
    }
    assert!(waited > 1_000, "{waited}");
}

#[test]
fn late_frames_are_counted_and_handed_out() {
    let mut late = 0;
    for seed in 0..60 {
        let (plans, out, counted) = run(seed, 40_000);
        check(&plans, &out, seed);
        // The frame comes after a newer one of another interface.
        let behind = |(at, (frame, _)): &(usize, &(Out, Timestamp))| {
            out[..*at].iter().any(|(other, _)| other.source != frame.source && other.time > frame.time)
        };
        let expected = out.iter().enumerate().filter(behind).count() as u64;
        assert_eq!(counted[1..], [expected, 0], "seed {seed}");
        late += expected;
    }
    assert!(late > 1_000, "{late}");
}

#[test]
fn one_that_is_quiet_delays_the_other_by_the_wait_and_no_more() {
    let mut bench = Bench::new(2, 4, CAPACITY, None);
    // More than a batch: each frame waits from its own timestamp on, not from when those before it went.
    for number in 0..20 {
        bench.show(0, number, start() + micros(u64::from(number)));
    }
    bench.clock.advance(WAIT);
    assert_eq!(bench.turn(false).len(), 1, "the first has waited enough");
    assert_eq!(bench.tap.now(), start() + micros(1), "the clock is not beyond a frame that waits");
    bench.clock.advance(micros(18));
    assert_eq!(bench.turn(false).len(), 18);
    bench.clock.advance(micros(1));
    assert_eq!(bench.turn(false).len(), 1);
    let waited = bench.counted();
    assert_eq!((waited[0] > 0, &waited[1..]), (true, &[0, 0][..]));
    // Both have frames: a frame waits only if it is newer than the last of the other.
    for (source, number, at) in [(0, 20, 5), (1, 0, 0), (1, 1, 7), (0, 21, 9)] {
        bench.show(source, number, bench.clock.now() + micros(at));
    }
    let of = |out: &[Out]| out.iter().map(|frame| (frame.source, frame.number)).collect::<Vec<_>>();
    assert_eq!(of(&bench.turn(false)), [(1, 0), (0, 20), (1, 1)]);
    // The end: nothing waits.
    assert_eq!(of(&bench.turn(true)), [(0, 21)]);
}

#[test]
fn a_ring_that_fills_waits_for_nobody() {
    let mut bench = Bench::new(2, 4, 40, None);
    for number in 0..30 {
        bench.show(0, number, start());
    }
    // Until less than half of the ring is left.
    let out = bench.turn(false);
    assert_eq!(out.len(), 8, "with two batches and the one in hand, 18 are left");
    let [_, late, pressed] = bench.counted();
    assert_eq!((late, pressed), (0, out.len() as u64));
    bench.show(1, 0, start() - micros(1));
    assert_eq!(bench.turn(false)[0].source, 1, "late, and there all the same");
    assert_eq!(bench.counted()[1], 1);
}

#[test]
fn a_port_that_goes_loses_no_frame_and_another_one_takes_its_place() {
    let mut bench = Bench::new(2, 4, CAPACITY, None);
    for number in 0..10 {
        bench.show(0, number, start() + micros(u64::from(number)));
    }
    assert_eq!(bench.turn(false).len(), 0);
    bench.tap.leave(0);
    bench.tap.leave(1);
    // The quiet one goes at once, so nothing has to be waited for; the other one when its frames were handed
    // out.
    assert_eq!(bench.turn(false).len(), 10);
    assert!(!bench.tap.has_port(0) && !bench.tap.has_port(1));
    assert!(matches!(bench.tap.take_left(0), Some(None)));
    assert!(bench.tap.take_left(0).is_none(), "told once");
    let (far, near) = TestPort::pair(["far", "near0"], 1500, CAPACITY, &bench.clock).unwrap();
    bench.tap.attach(0, Box::new(near));
    bench.far[0] = far;
    bench.show(0, 10, start() + micros(20));
    assert_eq!(bench.turn(false)[0].number, 10);
    let mut received = Vec::new();
    bench.tap.each_stats(|name, stats| received.push((name.to_owned(), stats.received)));
    assert_eq!(received, [("near0".to_owned(), 11), ("near1".to_owned(), 0)]);
}

#[test]
fn the_second_of_a_pair_may_come_by_another_interface() {
    let mut bench = Bench::new(2, 4, CAPACITY, Some(micros(100)));
    let mut seen = Vec::new();
    for (source, at) in [(0, 0), (1, 10), (1, 200), (0, 290), (0, 291)] {
        bench.far[source].deliver(&[9; 60], start() + micros(at));
    }
    bench.tap.begin_turn();
    while let Some(taken) = bench.tap.next(true, &mut |_| {}) {
        seen.push((taken.source, taken.duplicate));
    }
    assert_eq!(seen, [(0, false), (1, true), (1, false), (0, true), (0, false)]);
}

#[test]
fn a_sleep_ends_when_what_waits_has_waited_enough() {
    let mut bench = Bench::new(2, 4, CAPACITY, None);
    assert_eq!(bench.tap.wait(None, Duration::from_millis(1)).unwrap(), Woke::Timeout);
    bench.show(0, 0, start());
    // Nothing was taken yet: the frame is news.
    assert_eq!(bench.tap.wait(None, Duration::from_secs(5)).unwrap(), Woke::Packets);
    assert!(bench.tap.busy_poll(&|| false, Duration::ZERO));
    assert_eq!(bench.turn(false).len(), 0);
    // The frame was taken and waits: it wakes no thread, and the sleep is a short one.
    assert!(!bench.tap.busy_poll(&|| false, Duration::ZERO));
    let begun = std::time::Instant::now();
    assert_eq!(bench.tap.wait(None, Duration::from_secs(5)).unwrap(), Woke::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(4));
    bench.show(1, 0, start() - micros(1));
    assert_eq!(bench.tap.wait(None, Duration::from_secs(5)).unwrap(), Woke::Packets);
    assert_eq!(bench.turn(true).iter().map(|frame| frame.source).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn the_backlog_is_that_of_the_fullest_interface() {
    let mut bench = Bench::new(3, 8, 80, None);
    assert_eq!(bench.tap.backlog(), 0);
    for (source, frames, expected) in [(0, 10, 0), (1, 41, 4), (2, 31, 4), (2, 49, 7)] {
        (0..frames).for_each(|number| bench.show(source, number, start()));
        assert_eq!(bench.tap.backlog(), expected);
    }
    // Of one that is gone nothing waits.
    bench.tap.leave(2);
    bench.tap.begin_turn();
    while bench.tap.next(true, &mut |_| ()).is_some() {}
    assert_eq!((bench.tap.has_port(2), bench.tap.backlog()), (false, 0));
}

// SPDX-License-Identifier: Apache-2.0
//! A function that panics again and again, and orders about it, under inline traffic of live workers in
//! threads.

use bartizan_base::{PacketDuration, Reason, Timestamp};
use bartizan_dataplane::driver::inquiry::Question;
use bartizan_dataplane::driver::{Control, Driver, LiveOptions, run_drivers};
use bartizan_dataplane::source::InlineSource;
use bartizan_function::{FunctionModel, FunctionSpec, PacketContext};
use bartizan_ports::{InlinePair, Port, TestClock, TestPort};
use bartizan_stages::lifecycle::{FunctionCondition, LifecycleCommand};
use bartizan_stages::settings::EngineSettings;
use bartizan_testkit::hosts::{ethernet, ip, udp};
use bartizan_testkit::random::Random;
use bartizan_testkit_worker::{Made, Nothing, Stack, header_function};
use std::time::{Duration, Instant};

/// Longest time that anything here may take.
const LIMIT: Duration = Duration::from_secs(60);

static SPEC: FunctionSpec = FunctionSpec {
    name: "fragile",
    summary: "Panics with packets that say so.",
    model: FunctionModel::StatefulHeaders,
    runs_after: &["gate"],
    runs_before: &["sfw", "ids"],
    header_half: None,
    host_slot: None,
    counters: &[],
};

/// Panics with packets that say so.
fn fragile(context: &mut PacketContext<'_>) {
    let payload = context.facts.packet.map(|packet| packet.payload()).unwrap_or_default();
    assert!(!payload.starts_with(b"panic"), "a defect, made by the test");
}

fn tune(settings: &mut EngineSettings) {
    settings.restarts.attempts = u32::MAX;
    settings.restarts.first = PacketDuration::ZERO;
    settings.flow_capacity = 4_096;
}

struct Rig {
    stack: Stack,
    drivers: Vec<Driver<Box<Nothing>>>,
    outside: Vec<[TestPort; 2]>,
    control: Control,
    clock: TestClock,
}

impl Rig {
    fn new(name: &str, count: usize, policy: &str) -> Self {
        let rules = "alert udp any any -> any any (content:\"seen\"; sid:1;)";
        let made = Made { name, policy, set: &[], tune, rules, thresholds: "" };
        let stack = Stack::with_functions(&made, vec![header_function(&SPEC, fragile)]);
        let clock = TestClock::starting_at(Timestamp::from_nanos(1_000_000_000));
        let (mut drivers, mut outside) = (Vec::new(), Vec::new());
        for station in stack.stations(count) {
            let (client, a) = TestPort::pair(["client", "a"], 1500, 1 << 16, &clock).unwrap();
            let (server, b) = TestPort::pair(["server", "b"], 1500, 1 << 16, &clock).unwrap();
            outside.push([client, server]);
            let source =
                Box::new(InlineSource::new(InlinePair::new(Box::new(a), Box::new(b), false).unwrap()));
            drivers.push(Driver::new(station, source, Box::new(Nothing)));
        }
        Rig { stack, drivers, outside, control: Control::for_workers(count as u16).unwrap(), clock }
    }

    fn stat(&self, name: &str) -> u64 {
        let mut sum = 0;
        for driver in &self.drivers {
            driver.station.worker().visit_stats(|of, value| sum += if of == name { value } else { 0 });
        }
        sum
    }

    fn refused(&self, reason: Reason) -> u64 {
        self.drivers.iter().map(|driver| driver.station.worker().counters().refused[reason as usize]).sum()
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Frames that have left at the servers' side.
fn left(outside: &mut [[TestPort; 2]]) -> u64 {
    outside.iter_mut().map(|[_, server]| std::iter::from_fn(|| server.take()).count() as u64).sum()
}

fn send(outside: &mut [[TestPort; 2]], clock: &TestClock, (port, payload): (u16, &[u8])) {
    clock.advance(PacketDuration::from_nanos(1_000));
    // The kernel would give a flow to one worker; here any frame comes anywhere, and is handed over.
    let at = usize::from(port) % outside.len();
    let client = &mut outside[at][0];
    client
        .transmit_frame(&ethernet(port % 2 == 0, &ip(port % 2 == 0, (1, 2), 17, &udp((port, 53), payload))))
        .unwrap();
    client.flush().unwrap();
}

/// Traffic with this number of panics, each from a flow of its own.
fn traffic(panics: u16) -> Vec<(u16, &'static [u8])> {
    let mut random = Random::new(3);
    let mut all: Vec<(u16, &[u8])> = Vec::new();
    for number in 0..panics {
        all.push((10_000 + number, b"panic, seen"));
        for _ in 0..10 {
            let payload: &[u8] = if random.percent(50) { b"seen" } else { b"nothing" };
            all.push((1 + random.below(300) as u16, payload));
        }
    }
    all
}

#[test]
fn traffic_goes_on_through_a_hundred_failures() {
    for count in [1, 2] {
        let policy = "chain: [fragile, sfw, ids], ids: {}, on-failure: {fragile: pass}";
        let mut rig = Rig::new(&format!("live-open-{count}"), count, policy);
        let frames = traffic(100);
        let seen = frames.iter().filter(|(_, payload)| payload.ends_with(b"seen")).count() as u64;
        let options =
            LiveOptions { batch: 16, spin: Duration::ZERO, awake: false, tick: Duration::from_millis(5) };
        let (outside, control, clock) = (&mut rig.outside, &rig.control, &rig.clock);
        let mut news = 0;
        run_drivers(&mut rig.drivers, &options, control, |_| {
            let mut out = 0;
            for (sent, frame) in (1u64..).zip(&frames) {
                send(outside, clock, *frame);
                // No more under way than a ring to the other worker takes.
                until("frames leave", || {
                    out += left(outside);
                    out + 32 >= sent
                });
                news += control.take_events().len();
            }
            until("all frames leave", || {
                out += left(outside);
                out >= frames.len() as u64
            });
            // They are told of at the next look.
            until("all is told", || {
                clock.advance(PacketDuration::from_millis(1));
                news += control.take_events().len();
                news > 0
            });
            control.stop();
        })
        .unwrap();
        assert_eq!(rig.stat("detect.alert"), seen, "{count} workers: detection has seen all");
        assert_eq!(rig.stat("function.failures"), 100);
        assert_eq!(rig.refused(Reason::FunctionFailed), 0);
        drop(rig.stack);
    }
}

#[test]
fn orders_act_under_traffic_and_what_is_refused_is_counted() {
    for count in [1, 2] {
        let mut rig = Rig::new(&format!("live-closed-{count}"), count, "chain: [fragile, sfw, ids], ids: {}");
        let frames = traffic(20);
        let options =
            LiveOptions { batch: 16, spin: Duration::ZERO, awake: false, tick: Duration::from_millis(5) };
        let (outside, control, clock) = (&mut rig.outside, &rig.control, &rig.clock);
        let mut out = 0;
        run_drivers(&mut rig.drivers, &options, control, |_| {
            for (number, frame) in frames.iter().enumerate() {
                send(outside, clock, *frame);
                out += left(outside);
                if number % 50 == 20 {
                    let act =
                        if number % 100 == 20 { LifecycleCommand::Stop } else { LifecycleCommand::Restart };
                    let mut asked = control.query(Question::Order("fragile".into(), act)).unwrap();
                    assert!(asked.collect(|| LIMIT));
                    let (answer, late) = asked.finish();
                    assert!(late.is_empty() && answer.functions.len() == count, "{answer:?}");
                    let wanted = if act == LifecycleCommand::Stop {
                        FunctionCondition::Stopped
                    } else {
                        FunctionCondition::Running
                    };
                    assert!(answer.functions.iter().all(|(_, now)| now.condition == wanted), "{answer:?}");
                }
            }
            control.stop();
        })
        .unwrap();
        out += left(&mut rig.outside);
        let (stopped, failed) = (rig.refused(Reason::FunctionStopped), rig.refused(Reason::FunctionFailed));
        assert!(stopped > 0, "{stopped} {failed}");
        let came: u64 = rig.drivers.iter().map(|driver| driver.station.worker().counters().forwarded).sum();
        assert_eq!(out, came, "what was forwarded has left");
        assert!(out + stopped + failed <= frames.len() as u64);
        drop(rig.stack);
    }
}

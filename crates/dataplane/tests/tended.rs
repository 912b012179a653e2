// SPDX-License-Identifier: Apache-2.0
//! Over captures time advances for several workers as for one: values per host expire at the same frame, a
//! failed function is restarted, and recorders receive these events at the right time.

use crate::common::{self, address, bench, ethernet, ip, tcp, udp};

use bartizan_base::{Decision, FunctionId, Generation, Spread};
use bartizan_dataplane::captures::{Pool, PoolOptions};
use bartizan_dataplane::worker::Worker;
use bartizan_function::{
    Finding, FindingAction, Function, FunctionModel, FunctionSpec, PacketContext, RuleInfo,
};
use bartizan_stages::chain::Chains;
use bartizan_stages::record::{Recorder, RecorderEvent};
use bartizan_testkit_worker::{Captured, Made, Stack};
use std::sync::{Arc, Mutex};

/// Events that the recorders of all workers receive, in order.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn say(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn sorted(&self) -> Vec<String> {
        let mut lines = self.0.lock().unwrap().clone();
        lines.sort();
        lines
    }
}

impl Recorder for Told {
    fn record(&mut self, event: RecorderEvent<'_>) {
        match event {
            RecorderEvent::Alert { occasion, finding, .. } => {
                let context = finding.context.as_deref().unwrap_or_default();
                let (sid, context) = (finding.rule.id.sid, String::from_utf8_lossy(context));
                self.say(format!("{} alert {sid} {context}", occasion.now.as_nanos()));
            }
            RecorderEvent::Notice { now, notice, .. } => {
                self.say(format!("{} {notice:?}", now.as_nanos()));
            }
            _ => {}
        }
    }
}

/// The recorders' events, and the counters whose names begin so. 0 workers: a single one without a pool.
fn run(
    chains: &Arc<Chains>,
    frames: &[Captured],
    workers: usize,
    names: &[&str],
) -> (Told, Vec<(&'static str, u64)>) {
    let bench = bench(false, "no");
    let mut told = Told::default();
    let stats = if workers == 0 {
        let mut worker =
            Worker::new(bench.engine_settings, Arc::clone(&bench.engine), Arc::clone(chains)).unwrap();
        for (number, frame) in (1..).zip(frames) {
            worker.frame(&frame.frame(number), &mut told);
        }
        worker.shutdown(&mut told);
        bartizan_dataplane::driver::stats_of(&worker)
    } else {
        let options = PoolOptions { rounds: 4, frames: 7, bytes: 1 << 16, moves: None };
        let recorders = vec![told.clone(); workers];
        let mut pool =
            Pool::start(&bench.engine_settings, &bench.engine, chains, recorders, options).unwrap();
        for (number, frame) in (1..).zip(frames) {
            pool.frame(&frame.frame(number)).unwrap();
        }
        pool.finish().unwrap().stats
    };
    let of_names = |(name, _): &(&'static str, u64)| names.iter().any(|begin| name.starts_with(begin));
    (told, stats.into_iter().filter(of_names).collect())
}

/// Panics with datagrams that say `panic`, and reports those that say `evil`.
struct Brittle(Arc<RuleInfo>);

static SPEC: FunctionSpec = common::spec("brittle", FunctionModel::Payload);

impl Function for Brittle {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        FunctionId(0)
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let Some(packet) = context.facts.packet else { return Decision::CONTINUE };
        assert!(!packet.payload().starts_with(b"panic"), "a defect, made by the test");
        if packet.payload().starts_with(b"evil") {
            context.findings.push(Finding::new(Arc::clone(&self.0), FindingAction::Allowed));
        }
        Decision::CONTINUE
    }
}

fn brittle() -> Arc<Chains> {
    Arc::new(Chains::one(Generation(1), vec![Arc::new(Brittle(common::evil()))]))
}

fn datagram(millis: u64, v6: bool, port: u16, payload: &[u8]) -> Captured {
    Captured::at_millis(millis, ethernet(v6, &ip(v6, (1, 2), 17, &udp((port, 53), payload))))
}

#[test]
fn a_function_that_fails_once_is_there_again_whatever_the_number_of_workers() {
    for v6 in [false, true] {
        let mut frames = vec![datagram(0, v6, 1, b"panic")];
        // In the second in which it is away nothing is there to be found: only its own worker is without it.
        frames.extend((0..10).map(|n| datagram(50 * n, v6, 7, b"nothing")));
        frames.extend((0..40).map(|n| datagram(1_000 + 10 * n, v6, 100 + n as u16, b"evil")));
        let one = run(&brittle(), &frames, 0, &["function."]);
        let lines = one.0.sorted();
        assert_eq!(lines.iter().filter(|line| line.contains(" alert 9 ")).count(), 40, "{lines:#?}");
        assert!(lines[0].contains("Failed") && lines[1].starts_with("2000000000 "), "{lines:#?}");
        assert_eq!(
            one.1,
            [("function.failures", 1), ("function.restarts", 1), ("function.failed", 0)],
            "v6 {v6}"
        );
        for workers in [1, 2, 4] {
            let many = run(&brittle(), &frames, workers, &["function."]);
            assert_eq!(many.0.sorted(), lines, "{workers} workers");
            assert_eq!(many.1, one.1, "{workers} workers");
        }
    }
}

#[test]
fn what_happened_to_a_function_is_told_when_it_happens() {
    let mut frames = vec![datagram(0, false, 1, b"panic")];
    frames.extend((1..2_000).map(|n| datagram(n, false, 1, b"evil")));
    // The flow in whose packet it fell goes on without it; another flow of the same worker ends the capture.
    frames.push(datagram(2_500, false, 1, b"nothing"));
    let owner = Spread::new([11, 22], 2).worker(
        address(false, 1),
        address(false, 2),
        bartizan_base::spread::SpreadPorts::Ports(1, 53),
    );
    let same = (100u16..).find(|port| {
        let ports = bartizan_base::spread::SpreadPorts::Ports(*port, 53);
        Spread::new([11, 22], 2).worker(address(false, 1), address(false, 2), ports) == owner
    });
    frames.push(datagram(2_500, false, same.unwrap(), b"evil"));
    let (told, _) = run(&brittle(), &frames, 2, &[]);
    let lines = told.0.lock().unwrap().clone();
    let place = |word: &str| lines.iter().position(|line| line.contains(word)).expect(word);
    assert!(place("Failed") < place("Started") && place("Started") < place(" alert 9 "), "{lines:#?}");
}

/// A segment of a client or of its server.
fn segment(millis: u64, v6: bool, ends: (u8, u8), ports: (u16, u16), flags: u8) -> Captured {
    Captured::at_millis(millis, ethernet(v6, &ip(v6, ends, 6, &tcp(ports, 100, 101, flags, b""))))
}

const SYN: u8 = 2;
const RST_ACK: u8 = 20;

/// Sources that try ports in vain, some of them often enough for a scan, with gaps after which their state
/// has expired.
fn scans(v6: bool) -> Vec<Captured> {
    let (mut frames, mut millis) = (Vec::new(), 0);
    for round in 0..6u16 {
        for source in 1..=30u8 {
            let ports = if source % 10 == 0 { 12 } else { 2 };
            for port in 0..ports {
                let own = (40_000 + 100 * round + port, 1_000 + port);
                frames.push(segment(millis, v6, (source, 200), own, SYN));
                frames.push(segment(millis + 1, v6, (200, source), (own.1, own.0), RST_ACK));
                millis += 7;
            }
        }
        // One that is heard of all the time; the others are over in the gap, or in the middle of the next
        // round.
        for n in 0..20u16 {
            frames.push(segment(millis, v6, (99, 200), (50_000 + 100 * round + n, 80), SYN));
            millis += if round % 2 == 0 { 170 } else { 30 };
        }
    }
    frames
}

#[test]
fn values_per_host_expire_at_the_same_frame_whatever_the_number_of_workers() {
    let policy = "chain: [portscan], portscan: {ports: 10, hosts: 10, window: 1s}";
    let made = Made { name: "tended", policy, set: &[], tune: |_| (), rules: "", thresholds: "" };
    for v6 in [false, true] {
        let frames = scans(v6);
        // The values are the generation's: each run has its own.
        let of = |workers| {
            let stack = Stack::new(&made);
            run(stack.worker.chains(), &frames, workers, &["host.", "flow."])
        };
        let one = of(0);
        let ended = one.1.iter().find(|(name, _)| *name == "host.ended").unwrap().1;
        let lines = one.0.sorted();
        assert!(ended > 60 && lines.len() >= 6, "{ended} ended, {lines:#?}");
        for workers in [1, 2, 4] {
            let many = of(workers);
            assert_eq!(many.0.sorted(), lines, "{workers} workers");
            let host = |counters: &[(&'static str, u64)]| -> Vec<(&'static str, u64)> {
                counters.iter().filter(|(name, _)| name.starts_with("host.")).copied().collect()
            };
            assert_eq!(host(&many.1), host(&one.1), "{workers} workers");
        }
    }
}

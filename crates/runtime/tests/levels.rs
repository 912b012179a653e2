// SPDX-License-Identifier: Apache-2.0
//! A kind of level that the runtime does not have: a program adds it by its driver, a host file names it, and
//! decided flows of an inline link go to its devices, or to those of the next level of the link.

use bartizan_base::Level;
use bartizan_offload::level::{Fail, PortSide};
use bartizan_ports::{Batch, InlineOptions, InlinePort, Port as _, wait_any};
use bartizan_runtime::error::Failure;
use bartizan_runtime::generation::BuildOptions;
use bartizan_runtime::levels::Levels;
use bartizan_runtime::plan::RunOptions;
use bartizan_runtime::requests::Requests;
use bartizan_runtime::run;
use bartizan_testkit::{namespace, packet};
use bartizan_testkit_device::MockDriver;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The host file of a link with these levels.
fn host(offload: &str) -> String {
    format!(
        "links: [{{name: wan, inline: {{a: a1, b: b1, offload: {offload}}}}}]\n\
         workers: 1\nsave-power: true\ncontrol: {{socket: none}}\ncache: none\n"
    )
}

/// The first packet decides a flow.
const POLICY: &str = "default: {action: allow, chain: [pfw], pfw: {default: allow}}\n";

/// Longest wait for flows to reach the level.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run on a link between two interfaces, `a0` and `b0`, with flows of one packet each.
struct Run {
    folder: PathBuf,
    running: JoinHandle<Result<run::RunOutcome, Failure>>,
    client: InlinePort,
    server: InlinePort,
    batch: Batch,
}

impl Run {
    fn begin(name: &str, offload: &str, levels: Levels, requests: &'static Requests) -> Self {
        for (outer, inner) in [("a0", "a1"), ("b0", "b1")] {
            namespace::run("ip", &format!("link add {outer} type veth peer name {inner}"));
            for name in [outer, inner] {
                namespace::run("ip", &format!("link set {name} up"));
            }
        }
        let folder = std::env::temp_dir().join(format!("bartizan-levels-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, policy) = (folder.join("host.yaml"), folder.join("policy.yaml"));
        std::fs::write(&file, host(offload)).unwrap();
        std::fs::write(&policy, POLICY).unwrap();
        let options = RunOptions {
            config: Some(file),
            options: BuildOptions { policy: Some(policy), ..BuildOptions::default() },
            levels,
            out: Some(folder.join("out")),
            ..RunOptions::default()
        };
        let running = std::thread::spawn(move || run::run(&options, requests));
        let inline = InlineOptions { frames: 256, ..InlineOptions::default() };
        let open = |name| InlinePort::open(name, &inline).unwrap();
        Run { folder, running, client: open("a0"), server: open("b0"), batch: Batch::with_capacity(256) }
    }

    /// Sends one packet of each of these flows; returns how many packets have arrived.
    fn send(&mut self, ports: std::ops::Range<u16>) -> usize {
        for port in ports {
            let from = (Ipv4Addr::new(10, 0, 0, 1).into(), port);
            let frame = packet::udp(from, (Ipv4Addr::new(10, 0, 0, 2).into(), 4789), b"x").frame();
            let _ = self.client.transmit_frame(&frame);
        }
        let _ = self.client.flush();
        wait_any(&mut [&mut self.server], None, Duration::ZERO, Duration::from_millis(50)).unwrap();
        self.server.receive(&mut self.batch).unwrap();
        let batch = &self.batch;
        batch.indices().filter(|at| batch.bytes(*at).is_some_and(|bytes| bytes.ends_with(b"x"))).count()
    }

    /// Sends packets of flows until this holds, with the number of packets that have arrived.
    fn send_until(&mut self, ports: std::ops::Range<u16>, mut holds: impl FnMut(usize) -> bool) {
        let (begun, mut came) = (Instant::now(), 0);
        while !holds(came) {
            assert!(
                !self.running.is_finished() && begun.elapsed() < PATIENCE,
                "it does not hold; {came} packets came"
            );
            came += self.send(ports.clone());
        }
    }

    fn end(self, requests: &Requests) {
        requests.stop();
        let outcome = self.running.join().unwrap().unwrap();
        assert!(outcome.failure.is_none() && outcome.is_complete, "{}", outcome.summary);
        std::fs::remove_dir_all(self.folder).unwrap();
    }
}

#[test]
fn decided_flows_go_to_the_devices_of_a_level_that_a_program_adds() {
    static REQUESTS: Requests = Requests::new();
    if !namespace::inside("decided_flows_go_to_the_devices_of_a_level_that_a_program_adds") {
        return;
    }
    let driver: &'static MockDriver = Box::leak(Box::default());
    let offload = "{level: mock, entries: 64, fail: open, stale: 3s}";
    let mut run = Run::begin("one", offload, Levels::default().with(driver), &REQUESTS);
    run.send_until(4001..4004, |came| driver.entries() >= 3 && came >= 3);
    run.end(&REQUESTS);
    let state = driver.state();
    let [first, second] = state.attached.as_slice() else { panic!("{:?}", state.attached) };
    assert_eq!((first.side, first.index, first.pair), (PortSide::First, 0, 1));
    assert_eq!((second.side, second.index, second.pair), (PortSide::Second, 1, 0));
    assert!([first, second].iter().all(|port| port.watch.is_some_and(|watch| watch.fail == Fail::Open)));
    assert_eq!((state.devices.len(), state.devices[0].entries, state.generation), (1, 64, 1));
    assert!(state.options.is_some_and(|options| options.flows == 64 && options.workers == 1));
    // The end was requested: no worker is watched any more, and no state remains.
    assert_eq!((state.watch_ended, state.ended), (true, Some(false)));
}

#[test]
fn flows_that_the_nearest_level_cannot_hold_go_to_the_next() {
    static REQUESTS: Requests = Requests::new();
    if !namespace::inside("flows_that_the_nearest_level_cannot_hold_go_to_the_next") {
        return;
    }
    let near: &'static MockDriver = Box::leak(Box::new(MockDriver::named("near", Level::Rtl)));
    let far: &'static MockDriver = Box::leak(Box::new(MockDriver::named("far", Level::Xdp)));
    let levels = Levels::default().with(far).with(near);
    let offload = "[{level: near, entries: 64}, {level: far, entries: 128, fail: open}]";
    let mut run = Run::begin("two", offload, levels, &REQUESTS);
    run.send_until(4001..4101, |_| near.entries() + far.entries() >= 100);
    assert_eq!((near.entries(), far.entries()), (64, 36));
    run.end(&REQUESTS);
    for (driver, entries, fail) in [(near, 64, Fail::Closed), (far, 128, Fail::Open)] {
        let state = driver.state();
        assert_eq!(state.attached.len(), 2);
        assert!(state.attached.iter().all(|port| port.watch.is_some_and(|watch| watch.fail == fail)));
        assert_eq!((state.devices.len(), state.devices[0].entries, state.generation), (1, entries, 1));
        assert_eq!((state.watch_ended, state.ended), (true, Some(false)));
    }
}

#[test]
fn two_kinds_of_level_with_devices_of_one_level_are_refused() {
    static REQUESTS: Requests = Requests::new();
    if !namespace::inside("two_kinds_of_level_with_devices_of_one_level_are_refused") {
        return;
    }
    let one: &'static MockDriver = Box::leak(Box::new(MockDriver::named("one", Level::Rtl)));
    let other: &'static MockDriver = Box::leak(Box::new(MockDriver::named("other", Level::Rtl)));
    let levels = Levels::default().with(one).with(other);
    let run = Run::begin("same", "[{level: one}, {level: other}]", levels, &REQUESTS);
    let message = run.running.join().unwrap().err().map(|failure| failure.to_string()).unwrap_or_default();
    assert!(message.contains("there is a device at level `rtl` already"), "{message}");
    std::fs::remove_dir_all(run.folder).unwrap();
}

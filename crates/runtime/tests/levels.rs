// SPDX-License-Identifier: Apache-2.0
//! A kind of level that the runtime does not have: a program adds it by its driver, a host file names it, and
//! decided flows of an inline link go to its devices.

use bartizan_offload::level::{Fail, PortSide};
use bartizan_ports::{Batch, InlineOptions, InlinePort, Port as _, wait_any};
use bartizan_runtime::generation::BuildOptions;
use bartizan_runtime::levels::Levels;
use bartizan_runtime::plan::RunOptions;
use bartizan_runtime::requests::Requests;
use bartizan_runtime::run;
use bartizan_testkit::{namespace, packet};
use bartizan_testkit_device::MockDriver;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const HOST: &str = "\
links: [{name: wan, inline: {a: a1, b: b1, offload: {level: mock, entries: 64, fail: open, stale: 3s}}}]
workers: 1
save-power: true
control: {socket: none}
cache: none
";

/// The first packet decides a flow.
const POLICY: &str = "default: {action: allow, chain: [pfw], pfw: {default: allow}}\n";

/// Longest wait for flows to reach the level.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn decided_flows_go_to_the_devices_of_a_level_that_a_program_adds() {
    static REQUESTS: Requests = Requests::new();
    if !namespace::inside("decided_flows_go_to_the_devices_of_a_level_that_a_program_adds") {
        return;
    }
    for (outer, inner) in [("a0", "a1"), ("b0", "b1")] {
        namespace::run("ip", &format!("link add {outer} type veth peer name {inner}"));
        for name in [outer, inner] {
            namespace::run("ip", &format!("link set {name} up"));
        }
    }
    let folder = std::env::temp_dir().join(format!("bartizan-levels-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (host, policy) = (folder.join("host.yaml"), folder.join("policy.yaml"));
    std::fs::write(&host, HOST).unwrap();
    std::fs::write(&policy, POLICY).unwrap();
    let driver: &'static MockDriver = Box::leak(Box::default());
    let options = RunOptions {
        config: Some(host),
        options: BuildOptions { policy: Some(policy), ..BuildOptions::default() },
        levels: Levels::default().with(driver),
        out: Some(folder.join("out")),
        ..RunOptions::default()
    };
    let running = std::thread::spawn(move || run::run(&options, &REQUESTS));
    let inline = InlineOptions { frames: 256, ..InlineOptions::default() };
    let mut client = InlinePort::open("a0", &inline).unwrap();
    let mut server = InlinePort::open("b0", &inline).unwrap();
    let frame = |port: u16| {
        let from = (Ipv4Addr::new(10, 0, 0, 1).into(), port);
        packet::udp(from, (Ipv4Addr::new(10, 0, 0, 2).into(), 4789), b"x").frame()
    };
    let mut batch = Batch::with_capacity(256);
    let (begun, mut came) = (Instant::now(), 0);
    while driver.entries() < 3 || came < 3 {
        assert!(
            !running.is_finished() && begun.elapsed() < PATIENCE,
            "{} entries, {came} frames",
            driver.entries()
        );
        for port in [4001, 4002, 4003] {
            let _ = client.transmit_frame(&frame(port));
        }
        let _ = client.flush();
        wait_any(&mut [&mut server], None, Duration::ZERO, Duration::from_millis(50)).unwrap();
        server.receive(&mut batch).unwrap();
        came +=
            batch.indices().filter(|at| batch.bytes(*at).is_some_and(|bytes| bytes.ends_with(b"x"))).count();
    }
    REQUESTS.stop();
    let outcome = running.join().unwrap().unwrap();
    assert!(outcome.failure.is_none() && outcome.is_complete, "{}", outcome.summary);
    let state = driver.state();
    let [first, second] = state.attached.as_slice() else { panic!("{:?}", state.attached) };
    assert_eq!((first.side, first.index, first.pair), (PortSide::First, 0, 1));
    assert_eq!((second.side, second.index, second.pair), (PortSide::Second, 1, 0));
    assert!([first, second].iter().all(|port| port.watch.is_some_and(|watch| watch.fail == Fail::Open)));
    assert_eq!((state.devices.len(), state.devices[0].entries, state.generation), (1, 64, 1));
    assert!(state.options.is_some_and(|options| options.flows == 64 && options.workers == 1));
    // The end was requested: no worker is watched any more, and no state remains.
    assert_eq!((state.watch_ended, state.ended), (true, Some(false)));
    std::fs::remove_dir_all(folder).unwrap();
}

// SPDX-License-Identifier: Apache-2.0
//! A link with the XDP level below it: two hosts, traffic between them, and the program's counters.
#![allow(dead_code)]

pub mod exchange;
pub mod stream;
pub mod traffic;

use crate::common::{Ended, Folder, Running, get, udp, until, value};
use crate::namespace::{in_namespace, ip, up, veth_down};
use bartizan_ports::{Batch, InlineOptions, InlinePort, Port, wait_any};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The folder where attachments are pinned.
const PINS: &str = "/sys/fs/bpf/bartizan";

/// Runs a program, which must succeed.
pub fn tool(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split_whitespace()).output().expect("it can be run");
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Client a0 and server b0, with the program between a1 and b1, whose offloads are off. The far ends poll,
/// so that redirected frames reach them.
pub fn network(mtu: u32) -> [InlinePort; 2] {
    ip("link set dev lo up");
    ends(["a", "b"], mtu)
}

/// Runs a test in several ways in parallel, each in a network namespace of its own: they wait for most of
/// their time.
pub fn beside_each_other<W: Send + 'static>(
    ways: impl IntoIterator<Item = W>,
    test: impl Fn(W) + Copy + Send + 'static,
) {
    std::thread::scope(|scope| {
        for way in ways {
            scope.spawn(move || in_namespace(move || test(way)));
        }
    });
}

/// The far ends of two pairs, whose near ends are made ready for the program.
pub fn ends(names: [&str; 2], mtu: u32) -> [InlinePort; 2] {
    names.map(|name| {
        let (far, near) = (format!("{name}0"), format!("{name}1"));
        veth_down(&far, &near, mtu);
        // A program that waits for the interface does not see it before.
        tool("ethtool", &format!("-K {near} tx off tso off gso off gro off rxvlan off"));
        tool("ethtool", &format!("-K {far} tx off tso off gso off gro on"));
        up([&far, &near]);
        let options = InlineOptions { frames: 4096, ..InlineOptions::default() };
        InlinePort::open(&far, &options).unwrap()
    })
}

/// Sends frames.
pub fn send(from: &mut InlinePort, frames: &[Vec<u8>]) {
    for frame in frames {
        from.transmit_frame(frame).unwrap();
        from.flush().unwrap();
    }
}

/// The longest wait for a frame that must come: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// The wait for a frame that must not come. A passed frame needs milliseconds even on a busy machine.
const QUIET: Duration = Duration::from_millis(700);

/// Receives frames of the test until so many came; returns the number.
pub fn take(to: &mut InlinePort, expected: usize) -> usize {
    take_within(to, expected, PATIENCE)
}

/// Receives frames of the test until no more come; returns the number.
pub fn take_what_comes(to: &mut InlinePort) -> usize {
    take_within(to, usize::MAX, QUIET)
}

/// Whether no frame of the test comes.
pub fn quiet(to: &mut InlinePort) -> bool {
    take_within(to, 1, QUIET) == 0
}

fn take_within(to: &mut InlinePort, expected: usize, pause: Duration) -> usize {
    let mut batch = Batch::with_capacity(256);
    let (mut came, mut last) = (0, Instant::now());
    while came < expected && last.elapsed() < pause {
        to.receive(&mut batch).unwrap();
        let ours = |at: &usize| batch.bytes(*at).is_some_and(|bytes| bytes.starts_with(&[2, 0, 0, 0, 0, 2]));
        let more = batch.indices().filter(ours).count();
        came += more;
        if more > 0 {
            last = Instant::now();
        } else {
            wait_any(&mut [&mut *to], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
        }
    }
    came
}

/// Waits until so many flows are below, according to the program's metrics. A worker takes its turn within a
/// second, on a busy machine later.
pub fn gone_below(flows: u64) {
    let entries = || value(&get("/metrics"), "bartizan_stats", &["name=\"offload.entries\""]);
    until(&format!("{flows} flows below"), || entries() >= flows);
}

/// Datagrams of some flows of both versions, one of each after the other.
pub fn datagrams(port: u16, payload: &[u8]) -> Vec<Vec<u8>> {
    (0..8u16).map(|flow| udp(flow % 2 == 0, 40_000 + flow, port, payload)).collect()
}

/// A number, 0 if the member is absent.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Counter of this program's own in the `stats.json` of a run.
pub fn counter(folder: &Folder, name: &str) -> u64 {
    let text = folder.read("out/stats.json");
    let stats: Value = serde_json::from_str(&text).unwrap();
    number(&stats[name])
}

/// The frames of a port in the final `stats.json`: unicast, multicast, broadcast.
pub fn casts(folder: &Folder, port: &str, direction: &str) -> [u64; 3] {
    let stats: Value = serde_json::from_str(&folder.read("out/stats.json")).unwrap();
    ["unicast", "multicast", "broadcast"]
        .map(|cast| number(&stats["ports"][port][format!("{direction}.{cast}")]))
}

/// Stops the program, and checks its sums.
pub fn ends_well(running: Running) -> Ended {
    let ended = running.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stdout.contains("do not agree"), "{}", ended.stdout);
    ended
}

/// Attachments that are pinned.
pub fn pins() -> BTreeSet<PathBuf> {
    let files = std::fs::read_dir(PINS).into_iter().flatten();
    files.map(|file| file.unwrap().path()).collect()
}

/// The pin of an interface.
pub fn pin_of(interface: &str) -> PathBuf {
    let number = std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex"));
    // The folder may be that of another namespace.
    let number = match number {
        Ok(text) => text.trim().to_owned(),
        Err(_) => {
            let output = Command::new("ip").args(["-o", "link", "show", interface]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).split(':').next().unwrap().trim().to_owned()
        }
    };
    let end = format!("_if{number}");
    pins().into_iter().find(|pin| pin.to_string_lossy().ends_with(&end)).expect("it is pinned")
}

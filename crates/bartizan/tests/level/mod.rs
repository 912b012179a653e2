// SPDX-License-Identifier: Apache-2.0
//! A link with the XDP level below it: two hosts, traffic between them, and what the program has counted.
#![allow(dead_code)]

pub mod stream;

use crate::common::{Ended, Folder, Running, udp};
use crate::namespace::{ip, veth};
use bartizan_ports::{Batch, InlineOptions, InlinePort, Port, wait_any};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Where attachments are pinned.
const PINS: &str = "/sys/fs/bpf/bartizan";

/// Runs a program, which must succeed.
pub fn tool(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split_whitespace()).output().expect("it can be run");
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Client a0 and server b0, with the program between a1 and b1, whose offloads are off. The far ends poll, so that they take what is redirected.
pub fn network(mtu: u32) -> [InlinePort; 2] {
    ip("link set dev lo up");
    ends(["a", "b"], mtu)
}

/// The far ends of two pairs, whose near ends are made ready for the program.
pub fn ends(names: [&str; 2], mtu: u32) -> [InlinePort; 2] {
    names.map(|name| {
        veth(&format!("{name}0"), &format!("{name}1"), mtu);
        tool("ethtool", &format!("-K {name}1 tx off tso off gso off gro off rxvlan off"));
        tool("ethtool", &format!("-K {name}0 tx off tso off gso off gro on"));
        let options = InlineOptions { frames: 4096, ..InlineOptions::default() };
        InlinePort::open(&format!("{name}0"), &options).unwrap()
    })
}

/// Sends frames.
pub fn send(from: &mut InlinePort, frames: &[Vec<u8>]) {
    for frame in frames {
        from.transmit_frame(frame).unwrap();
        from.flush().unwrap();
    }
}

/// Takes frames of the test until so many came, or none come any more for some time. Gives how many.
pub fn take(to: &mut InlinePort, expected: usize) -> usize {
    let mut batch = Batch::with_capacity(256);
    let (mut came, mut last) = (0, Instant::now());
    while came < expected && last.elapsed() < Duration::from_secs(3) {
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

/// Datagrams of some flows of both versions, one of each after the other.
pub fn datagrams(port: u16, payload: &[u8]) -> Vec<Vec<u8>> {
    (0..8u16).map(|flow| udp(flow % 2 == 0, 40_000 + flow, port, payload)).collect()
}

/// A number, 0 where there is none.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Counter of this program's own in the `stats.json` of a run.
pub fn counter(folder: &Folder, name: &str) -> u64 {
    let text = folder.read("out/stats.json");
    let stats: Value = serde_json::from_str(&text).unwrap();
    number(&stats[name])
}

/// Stops the program: nothing of its sums is wrong.
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

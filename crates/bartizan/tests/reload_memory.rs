// SPDX-License-Identifier: Apache-2.0
//! Reloads share unchanged parts and free those no longer used (needs root; without, it prints so and
//! returns). With Emerging Threats Open: `make bench NAME=reloads`.

use crate::common;
use crate::namespace;

use bartizan_ports::{InlineOptions, InlinePort, Port};
use common::{Folder, PROGRAM, Running, udp, until};
use namespace::{in_namespace, ip, veth};
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

const RULES: usize = 10_000;
const RELOADS: usize = 8;

/// Realistic rules: contents, an expression, and some text. One in a hundred is of revision `rev`. All have
/// the same fast pattern, so that the pattern library does not matter.
fn rules(rev: usize) -> String {
    let mut text = String::new();
    for n in 0..RULES {
        let rev = if n % 100 == 0 { rev } else { 1 };
        let _ = writeln!(
            text,
            "alert http any any -> any any (msg:\"rule number {n}\"; http.uri; content:\"/a/path/that/all/of/them/have\"; content:\"{n}/x\"; http.header; content:\"{:x}\"; nocase; \
             pcre:\"/a{n}[0-9]+b/R\"; http.user_agent; content:\"agent {n}\"; reference:url,example.com/{n}/a/long/path/to/some/text; \
             metadata:created_at 2020_01_01,deployment Perimeter,severity Major,number n{n}; sid:{}; rev:{rev};)",
            n * 7919,
            n + 1
        );
    }
    text
}

/// A line of a process' status, in KiB.
fn memory(id: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn reloads_take_the_memory_of_what_changed() {
    in_namespace(|| {
        let folder = Folder::new();
        folder.write("r.rules", rules(1));
        ip("link set dev lo up");
        veth("a0", "a1", 1500);
        let mut sender = InlinePort::open("a0", &InlineOptions::default()).unwrap();
        let arguments = ["run", "--tap", "a1", "--rules", "r.rules", "--cache", "none", "--out", "out"];
        let running = Running::start(Command::new(PROGRAM).args(arguments).current_dir(&folder.0));
        running.until("running on");
        std::thread::sleep(Duration::from_millis(500));
        let before = memory(running.id(), "VmRSS");
        // From here on the peak is that of the reloads.
        std::fs::write(format!("/proc/{}/clear_refs", running.id()), "5").unwrap();
        for number in 0..RELOADS {
            sender.transmit_frame(&udp(number % 2 == 0, 50_000, 4000, b"something")).unwrap();
            sender.flush().unwrap();
            folder.write("r.rules", rules(1 + (number + 1) % 2));
            running.signal("USR2");
            running.until(&format!("generation {}: {RULES} rules loaded", number + 2));
        }
        let (peak, mut after) = (memory(running.id(), "VmHWM"), 0);
        // It was 1.9 times when each load compiled all rules.
        assert!(peak * 10 < before * 15, "{before} KiB before, {peak} at most");
        until("memory goes back", || {
            after = memory(running.id(), "VmRSS");
            after * 100 < before * 115
        });
        let ended = running.stop();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    });
}

// SPDX-License-Identifier: Apache-2.0
//! The state that a killed run left in the kernel for a level that fails open, where the next run has other
//! links; and the level while a reload is built. In a network namespace and with a bpf file system of its
//! own (needs root; without, it prints so and returns).

use crate::common;
use crate::level;
use crate::namespace;

use bartizan_ports::InlinePort;
use bartizan_testkit::pipe::make_pipe;
use common::{Folder, PROGRAM, Running, until};
use level::{datagrams, ends, ends_well, network, pin_of, pins, quiet, send, take};
use namespace::{detach_pinned, in_namespace, own_bpf_file_system};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

const POLICY: &str = "policies: [{name: all, from: any, to: any, chain: [pfw, ids], pfw: {default: allow}, ids: {rules: [local.rules]}}]\ndefault: {action: drop}\n";
const RULES: &str = "drop udp any any -> any 666 (msg:\"no\"; sid:1;)\n";
const PORT: u16 = 5000;
/// The time after which a worker has certainly failed (`stale`, 1 s).
const SURELY_STALE: Duration = Duration::from_millis(1_500);

/// A run with these links.
fn start(folder: &Folder, links: &str) -> Running {
    folder.write("policy.yaml", POLICY);
    if !folder.path("local.rules").exists() {
        folder.write("local.rules", RULES);
    }
    folder.write(
        "bartizan.yaml",
        format!(
            "links: [{links}]\npolicy: policy.yaml\ncache: none\noutputs: {{eve: {{dir: out}}}}\nreload: {{max-loss: 100%}}\n"
        ),
    );
    let mut command = Command::new(PROGRAM);
    let arguments = ["run", "-c", "bartizan.yaml", "--control", "none"];
    Running::start(command.args(arguments).current_dir(&folder.0))
}

/// An inline link whose level fails open.
fn open_link(a: &str, b: &str) -> String {
    format!(
        "{{name: wan, inline: {{a: {a}, b: {b}, offload: {{level: xdp, entries: 1024, fail: open, stale: 1s}}}}, workers: 1}}"
    )
}

fn pinned(running: &Running, count: usize) {
    until(&format!("{count} pins: {}", running.stderr()), || pins().len() == count);
}

fn kill(running: Running) {
    running.signal("KILL");
    assert_eq!(running.wait().code, None);
}

/// Whether all datagrams of 8 flows arrive.
fn arrives([from, to]: [&mut InlinePort; 2]) -> bool {
    send(from, &datagrams(PORT, b"load"));
    take(to, 8) == 8
}

/// Whether no datagram of these arrives.
fn nothing_arrives([from, to]: [&mut InlinePort; 2]) -> bool {
    send(from, &datagrams(PORT, b"load"));
    quiet(to)
}

/// A run on a1 and b1 that is killed, after which its link is open.
fn left_open(ports: &mut [InlinePort; 2]) {
    let folder = Folder::new();
    let running = start(&folder, &open_link("a1", "b1"));
    pinned(&running, 2);
    kill(running);
    std::thread::sleep(SURELY_STALE);
    let [a, b] = ports;
    assert!(arrives([a, b]), "the link is open");
}

#[test]
fn what_was_left_on_interfaces_that_are_no_link_now_is_taken_away_and_told() {
    in_namespace(|| {
        own_bpf_file_system();
        let mut ports = network(1500);
        let [mut c0, _d0] = ends(["c", "d"], 1500);
        for (links, left, told) in [
            (open_link("a1", "c1"), 2, &["`b1`"][..]),
            ("{name: watch, tap: {interface: a1}}".to_owned(), 0, &["`a1`", "`b1`"]),
            (open_link("c1", "d1"), 2, &["`a1`", "`b1`"]),
        ] {
            left_open(&mut ports);
            let folder = Folder::new();
            let running = start(&folder, &links);
            running.until("running on");
            pinned(&running, left);
            for interface in told {
                running.until(&format!("that a killed run left on {interface} is removed, since"));
            }
            let [a, b] = &mut ports;
            assert!(nothing_arrives([b, a]), "{links}: nothing is forwarded from b1");
            assert!(nothing_arrives([a, b]), "{links}: nor from a1");
            if links == open_link("a1", "c1") {
                // What comes by a1 leaves by c1 now.
                assert_eq!(take(&mut c0, 8), 8);
            }
            ends_well(running);
            assert!(pins().is_empty());
        }
    });
}

/// Two links of one run, so that one program was on all four interfaces.
#[test]
fn what_was_left_on_interfaces_that_are_paired_otherwise_now_is_taken_away_and_told() {
    in_namespace(|| {
        own_bpf_file_system();
        let [mut a, mut b] = network(1500);
        let [mut c, mut d] = ends(["c", "d"], 1500);
        let two = |[first, second]: [[&str; 2]; 2]| {
            let second = open_link(second[0], second[1]).replace("name: wan", "name: lan");
            format!("{}, {second}", open_link(first[0], first[1]))
        };
        let before = [["a1", "b1"], ["c1", "d1"]];
        for (now, otherwise) in
            [(before, false), ([["b1", "a1"], ["c1", "d1"]], false), ([["a1", "c1"], ["d1", "b1"]], true)]
        {
            let folder = Folder::new();
            let running = start(&folder, &two(before));
            pinned(&running, 4);
            kill(running);
            std::thread::sleep(SURELY_STALE);
            assert!(arrives([&mut a, &mut b]) && arrives([&mut d, &mut c]), "both links are open");
            let folder = Folder::new();
            let running = start(&folder, &two(now));
            running.until("running on");
            pinned(&running, 4);
            if otherwise {
                assert!(arrives([&mut a, &mut c]) && arrives([&mut b, &mut d]));
                assert!(quiet(&mut a) && quiet(&mut b));
            } else {
                assert!(arrives([&mut a, &mut b]) && arrives([&mut d, &mut c]));
            }
            let said = ends_well(running).stderr;
            for interface in ["a1", "b1", "c1", "d1"] {
                let told = format!("left on `{interface}` is removed, since it did not belong to this link");
                assert_eq!(said.contains(&told), otherwise, "{interface}: {said}");
            }
        }
    });
}

#[test]
fn what_lives_on_other_interfaces_is_left_alone() {
    in_namespace(|| {
        own_bpf_file_system();
        let mut ports = network(1500);
        let _others = ends(["c", "d"], 1500);
        let folders = [Folder::new(), Folder::new()];
        let first = start(&folders[0], &open_link("a1", "b1"));
        pinned(&first, 2);
        let of_first = pins();
        let second = start(&folders[1], &open_link("c1", "d1"));
        pinned(&second, 4);
        assert!(of_first.is_subset(&pins()));
        let [a, b] = &mut ports;
        assert!(arrives([a, b]));
        // Also one that hangs lives.
        ends_well(second);
        first.signal("STOP");
        std::thread::sleep(SURELY_STALE);
        let second = start(&folders[1], &open_link("c1", "d1"));
        pinned(&second, 4);
        assert!(arrives([a, b]), "it is open");
        first.signal("CONT");
        let ended = ends_well(second);
        assert!(!ended.stderr.contains("taken away"), "{}", ended.stderr);
        assert_eq!(pins(), of_first);
        ends_well(first);
    });
}

/// Rules come through a pipe here: a build lasts until they are written.
#[test]
fn the_level_is_looked_after_while_a_reload_is_built() {
    in_namespace(|| {
        own_bpf_file_system();
        let mut ports = network(1500);
        left_open(&mut ports);
        let folder = Folder::new();
        let rules = folder.path("local.rules");
        make_pipe(&rules);
        let running = start(&folder, &open_link("a1", "b1"));
        // Both opens wait for who reads.
        let mut pipe = OpenOptions::new().write(true).open(&rules).unwrap();
        running.signal("USR2");
        pipe.write_all(RULES.as_bytes()).unwrap();
        drop(pipe);
        // The first order is a reload, which waits for its rules.
        running.until("that a killed run left is replaced");
        assert!(!running.stderr().contains("generation 2"), "{}", running.stderr());
        detach_pinned(&pin_of("a1"));
        running.until("another program detached the XDP program from `a1`; it is attached again");
        running.until("link `wan` uses its XDP level again");
        pinned(&running, 2);
        assert!(!running.stderr().contains("generation 2"), "{}", running.stderr());
        std::fs::write(&rules, RULES).unwrap();
        running.until("generation 2: ");
        let [a, b] = &mut ports;
        assert!(arrives([a, b]));
        ends_well(running);
        assert!(pins().is_empty());
    });
}

// SPDX-License-Identifier: Apache-2.0
//! Common code of tests with real network interfaces: a network namespace that ends with the test, hand-made
//! frames, a TCP sender that breaks the rules, and receivers of the kernel.
//!
//! The namespace belongs to a child process (`unshare -n`): the test runs itself again in it. Nothing has a
//! name on the host, so nothing can remain there.
#![allow(dead_code)] // Not every test uses everything.

pub mod receiver;
pub mod sender;
pub mod wire;

use bartizan_testkit::namespace::{only, ran_one};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Set in the child.
const INSIDE: &str = "BARTIZAN_TEST_NAMESPACE";
/// Seconds after which a test in a namespace is ended.
const LIMIT: &str = "60";

/// Role of this process in a namespace, set by the test that started it.
pub fn role() -> Option<String> {
    std::env::var(INSIDE).ok()
}

/// Runs `test`, which is the test function `name`, as root in a network namespace of its own. Says in one
/// line why not, where that is not possible.
#[track_caller]
pub fn in_namespace(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        run("ip link set dev lo up");
        test();
        return;
    }
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0);
    let lacks = ["ip", "ethtool", "unshare", "timeout"].into_iter().find(|program| !is_there(program));
    let why = match lacks {
        _ if !root => "needs root for network namespaces and packet sockets".to_owned(),
        Some(program) => format!("needs the program {program}"),
        None if !namespaces() => "this system makes no network namespaces".to_owned(),
        None => String::new(),
    };
    if !why.is_empty() {
        // Not by `eprintln!`: what a test that passes prints is not shown.
        let _ =
            std::io::Write::write_all(&mut std::io::stderr(), format!("{name}: not run, {why}\n").as_bytes());
        return;
    }
    let program = std::env::current_exe().unwrap();
    // A test that hangs is ended, and with it its threads; the namespace goes with its processes.
    let output = Command::new("timeout")
        .args(["-k", "5", LIMIT, "unshare", "-n"])
        .arg(program)
        .args(only(name))
        .env(INSIDE, "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    eprint!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the test in the namespace failed; its output is above");
    assert!(ran_one(&output.stdout), "{name} is no test of this program, or not of the file that calls");
}

fn is_there(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/sbin", "/usr/sbin"]).any(|dir| std::path::Path::new(dir).join(program).exists())
}

fn namespaces() -> bool {
    Command::new("unshare").args(["-n", "true"]).status().is_ok_and(|status| status.success())
}

/// Runs a command that must succeed.
pub fn run(command: &str) {
    let mut words = command.split_whitespace();
    let mut process = Command::new(words.next().unwrap());
    let path = std::env::var("PATH").unwrap_or_default();
    process.env("PATH", format!("{path}:/sbin:/usr/sbin"));
    let output = process.args(words).output().unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Writes a setting of the kernel for this namespace.
pub fn sysctl(name: &str, value: &str) {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Address of the kernel's side.
pub const SERVER: (&str, &str) = ("10.66.0.2", "fd66::2");
/// MAC address of the kernel's side.
pub const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// MAC address that the sender, which is no host, pretends to have.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The link: frames are sent at `a0`; the program under test stands between `a1` and `b1`; the kernel's
/// addresses are on `b0`. The sender's addresses (10.66.0.1 and others of the network) belong to no host:
/// their neighbours are fixed.
pub fn link(clients: std::ops::RangeInclusive<u8>) {
    sysctl("net.ipv6.conf.default.accept_dad", "0");
    sysctl("net.ipv6.conf.default.router_solicitations", "0");
    run("ip link add a0 type veth peer name a1");
    run("ip link add b0 address 02:00:00:00:00:02 type veth peer name b1");
    for end in ["a0", "a1", "b1"] {
        // No frames of the kernel's own at the other ends.
        sysctl(&format!("net.ipv6.conf.{end}.disable_ipv6"), "1");
    }
    for end in ["a0", "a1", "b1", "b0"] {
        run(&format!("ethtool -K {end} rx off tx off sg off tso off gso off gro off"));
        run(&format!("ip link set dev {end} arp off multicast off up"));
    }
    run(&format!("ip address add {}/24 dev b0", SERVER.0));
    run(&format!("ip address add {}/64 dev b0 nodad", SERVER.1));
    for client in clients {
        for address in [format!("10.66.0.{client}"), format!("fd66::{client:x}")] {
            run(&format!("ip neighbour replace {address} lladdr 02:00:00:00:00:01 dev b0 nud permanent"));
        }
    }
}

/// Runs something at the end of a scope, also when the test fails in it.
pub struct AtEnd<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

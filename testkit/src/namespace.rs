// SPDX-License-Identifier: Apache-2.0
//! A test in a network namespace of its own: it runs itself again as a child of unshare(1). The namespace has no name and ends with the child, however that
//! ends, so nothing can be left behind.

use std::process::Command;

/// Set in the child.
const INSIDE: &str = "BARTIZAN_TEST_INSIDE";

/// Runs a program with these words, and gives what it wrote.
///
/// # Panics
/// It cannot be run, or fails.
#[must_use]
pub fn said(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split_whitespace()).output();
    let output = output.unwrap_or_else(|error| panic!("{program} {words}: {error} (scripts/needs.sh test)"));
    assert!(output.status.success(), "{program} {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a program with these words.
///
/// # Panics
/// It cannot be run, or fails.
pub fn run(program: &str, words: &str) {
    let _ = said(program, words);
}

/// Number of an interface.
///
/// # Panics
/// There is none of this name.
#[must_use]
pub fn number(interface: &str) -> u32 {
    let line = said("ip", &format!("-o link show dev {interface}"));
    line.split(':').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// Runs the test of this name again, as root in an empty namespace; `true`: this is that run. Without root it says so and runs nothing.
///
/// # Panics
/// The test fails there.
#[must_use]
pub fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if said("id", "-u").trim() != "0" {
        eprintln!("needs root: not run (network namespaces and BPF programs)");
        return false;
    }
    let program = std::env::current_exe().expect("this program has a path");
    let mut again = Command::new("unshare");
    again.arg("--net").arg(program).args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    assert!(again.status().expect("unshare can be run").success(), "{test} failed in its namespace");
    false
}

/// Two ports of a link, each with a far end that takes what is redirected to it; all are up and have no offloads that the XDP level refuses.
///
/// # Panics
/// iproute2 or ethtool is missing, or the names are taken.
pub fn ports(names: [&str; 2]) {
    for port in names {
        let end = format!("{port}-end");
        run("ip", &format!("link add {port} type veth peer name {end}"));
        run("ip", &format!("link set dev {port} arp off up"));
        run("ip", &format!("link set dev {end} arp off up"));
        run("ethtool", &format!("-K {port} tx off tso off gso off gro off rxvlan off"));
        run("ethtool", &format!("-K {end} gro on"));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A test in a network namespace of its own: it runs itself again as a child of unshare(1). The namespace has
//! no name and ends with the child, however that ends, so no state is left.

use std::panic::Location;
use std::process::Command;

/// Set in the child.
const INSIDE: &str = "BARTIZAN_TEST_INSIDE";

/// Runs a program with these arguments; returns its output.
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

/// Runs a program with these arguments.
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

/// The arguments by which a test program runs only the test `test` of the calling file. The files of `tests/`
/// are modules of one program, or programs of their own: both names are given, and one exists.
#[must_use]
#[track_caller]
pub fn only(test: &str) -> [String; 5] {
    let whole = format!("{}::{test}", module(Location::caller().file()));
    ["--exact".to_owned(), test.to_owned(), whole, "--nocapture".to_owned(), "--test-threads=1".to_owned()]
}

/// The module of a file of `tests/`.
fn module(file: &str) -> String {
    let below = file.rsplit_once("tests/").map_or(file, |(_, below)| below).trim_end_matches(".rs");
    below.trim_end_matches("/main").replace('/', "::")
}

/// Whether the output of a test program has one test that ran. A program that finds no test of the name
/// succeeds, too.
#[must_use]
pub fn ran_one(stdout: &[u8]) -> bool {
    String::from_utf8_lossy(stdout).contains("test result: ok. 1 passed; 0 failed;")
}

/// Runs the test of this name in the calling file again, as root in an empty network namespace with mounts of
/// its own; `true`: this is that run. Without root this prints so and runs nothing.
///
/// # Panics
/// The test fails in the child.
#[must_use]
#[track_caller]
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
    again.args(["--net", "--mount"]).arg(program).args(only(test)).env(INSIDE, "1");
    let output = again.output().expect("unshare can be run");
    eprint!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test} failed in its namespace");
    assert!(ran_one(&output.stdout), "{test} is no test of this program, or not of the file that calls");
    false
}

/// Makes two ports of a link, each with a far end that takes redirected frames; all are up and have no
/// offloads that the XDP level refuses.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_module() {
        for (file, named) in [
            ("crates/bartizan/tests/inline.rs", "inline"),
            ("crates/agent/tests/conformance/levels.rs", "conformance::levels"),
            ("tests/southbound/tests/planes/main.rs", "planes"),
        ] {
            assert_eq!(module(file), named);
        }
    }

    #[test]
    fn a_run_without_tests_is_none() {
        assert!(ran_one(b"\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out"));
        assert!(!ran_one(b"\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out"));
    }
}

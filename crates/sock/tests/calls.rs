// SPDX-License-Identifier: Apache-2.0
//! Calls and orders of calls (calls.py), compared with plain sockets: between streams of the guest without
//! TCP, and by TCP. The names of all cases are in docs/stream-calls.md.

use crate::common::{Host, beside};
use bartizan_testkit::namespace::{inside, run};
use std::collections::BTreeSet;
use std::process::Command;

/// Cases at least, on IPv4 and IPv6 together.
const CASES_LEAST: usize = 290;

fn results(mut python: Command) -> Vec<String> {
    let output = python.arg(beside("calls.py")).output().expect("python3 can be run");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn calls_return_as_with_plain_sockets() {
    if !inside("calls_return_as_with_plain_sockets") {
        return;
    }
    run("ip", "link set lo up");
    let plain = results(Command::new("python3"));
    assert!(plain.len() >= CASES_LEAST, "{} cases", plain.len());
    assert!(!plain.iter().any(|line| line.contains("hangs")), "{plain:#?}");
    let host = Host::start();
    for (number, always_tcp) in [(0, false), (1, true)] {
        let guest = host.guest(number, always_tcp);
        let streams = results(guest.command("python3"));
        let differing: Vec<_> =
            plain.iter().zip(&streams).filter(|(plain, stream)| plain != stream).collect();
        assert!(differing.is_empty(), "(plain, stream), by TCP {always_tcp}: {differing:#?}");
        assert_eq!(plain.len(), streams.len());
        let report = host.wait_until_empty(&guest);
        // Nothing went round the engine.
        assert!(report.connections >= 400 && report.received > 10_000_000, "{report:?}");
        assert_eq!(report.local_connections == 0, always_tcp, "{report:?}");
    }
    check_page(&plain);
}

/// The page has all cases and no others.
fn check_page(lines: &[String]) {
    let names: BTreeSet<_> = lines.iter().filter_map(|line| line.split('/').next()).collect();
    let page = beside("../../../docs/stream-calls.md");
    let (begin, end) = ("<!-- cases -->\n", "<!-- end of cases -->\n");
    let text = std::fs::read_to_string(&page).expect("the page");
    let (before, rest) = text.split_once(begin).expect("the mark");
    let (_, after) = rest.split_once(end).expect("the mark");
    let rows: String =
        names.iter().map(|name| format!("| {} | yes | yes |\n", name.replace('_', " "))).collect();
    let table = format!("| case | without TCP | by TCP |\n|---|---|---|\n{rows}");
    let wanted = format!("{before}{begin}{table}{end}{after}");
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&page, wanted).unwrap();
    } else {
        assert!(text == wanted, "docs/stream-calls.md differs: set UPDATE_PAGES=1 to write it");
    }
}

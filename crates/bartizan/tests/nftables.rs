// SPDX-License-Identifier: Apache-2.0
//! docs/nftables.md: each row of its tables on a worker, its recommended policy, and the policies beside the
//! statements of nftables.

use crate::nftables_rows::trial::{In, Out, stack};
use crate::nftables_rows::{POLICY, Row, Trial, differ, same};
use bartizan_testkit::generated;

use bartizan_testkit::packet::{ACK, Datagram, FIN, Ip, SYN, UDP};
use bartizan_testkit_worker::Captured;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/nftables.md")
}

fn rows() -> impl Iterator<Item = &'static Row> {
    same::SECTIONS.iter().chain(differ::SECTIONS).flat_map(|(_, rows)| *rows)
}

#[test]
fn each_row_has_its_verdict_with_both_versions_of_ip() {
    let mut wrong = String::new();
    for row in rows() {
        for v6 in row.versions.each() {
            let mut trial = Trial::new(POLICY, *v6);
            (row.run)(&mut trial);
            let outcome = trial.outcome();
            if outcome != row.bartizan {
                let version = if *v6 { 6 } else { 4 };
                let _ = writeln!(wrong, "{} (IPv{version}): {:?}", row.packets, trial.steps);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A verdict without its reasons, so that those of both can be compared.
fn plain(verdict: &str) -> String {
    verdict.split('`').step_by(2).collect::<String>().replace(" ;", ";").trim().to_owned()
}

#[test]
fn rows_that_are_the_same_say_the_same() {
    for (_, rows) in same::SECTIONS {
        for row in *rows {
            assert_eq!(plain(row.bartizan), row.nftables, "{}", row.packets);
        }
    }
    for row in differ::SECTIONS.iter().flat_map(|(_, rows)| *rows) {
        assert!(plain(row.bartizan) != row.nftables && !row.why.is_empty(), "{}", row.packets);
    }
}

fn tables() -> String {
    let mut text = String::new();
    for (title, rows) in same::SECTIONS.iter().chain(differ::SECTIONS) {
        let why = rows.iter().any(|row| !row.why.is_empty());
        let _ = writeln!(
            text,
            "\n### {title}\n\n| packets | nftables | Bartizan |{}",
            if why { " why |" } else { "" }
        );
        let _ = writeln!(text, "|---|---|---|{}", if why { "---|" } else { "" });
        for row in *rows {
            let of = match row.versions.each() {
                [false] => " (IPv4)",
                [true] => " (IPv6)",
                _ => "",
            };
            let why = if why { format!(" {} |", row.why) } else { String::new() };
            let _ = writeln!(text, "| {}{of} | {} | {} |{why}", row.packets, row.nftables, row.bartizan);
        }
    }
    text
}

#[test]
fn the_tables_of_the_page_are_those_of_the_rows() {
    generated::check_section("docs/nftables.md", "what each meets", &(tables() + "\n"));
}

/// The YAML blocks of the page: the first is a whole policy file, the others are parts of a policy.
fn blocks() -> Vec<String> {
    let text = std::fs::read_to_string(path()).expect("the page");
    text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Datagrams with other addresses than those of a [`Trial`].
fn udp(from: (&str, u16), to: (&str, u16)) -> Vec<u8> {
    let ip = Ip::new(from.0.parse().unwrap(), to.0.parse().unwrap(), UDP);
    ip.frame(&Datagram::new((from.1, to.1), b"?").bytes(&ip), None)
}

fn icmpv6(trial: &Trial, from: &str, to: &str, kind: u8) -> Vec<u8> {
    let [from, to] = [from, to].map(|address| address.parse::<IpAddr>().unwrap());
    trial.icmp_between(from, to, (0, kind), 0, &[0; 20])
}

#[test]
fn the_policy_of_the_page_lets_hosts_find_neighbours_and_addresses_and_nobody_else_in() {
    let policy = &blocks()[0];
    let v6 = &mut Trial::new(policy, true);
    let messages = [
        ("fe80::1", "ff02::2", 133),
        ("fe80::2", "ff02::1", 134),
        ("fd00::1", "ff02::1:ff00:2", 135),
        ("2001:db8::2", "fd00::1", 136),
        ("fe80::2", "fd00::1", 136),
        ("fe80::2", "ff02::1:ff00:1", 135),
        ("2001:db8::2", "ff02::1:ff00:1", 135),
        ("::", "ff02::1:ff00:1", 135),
        ("fe80::2", "fd00::1", 137),
        ("fe80::2", "ff02::1", 130),
        ("fe80::1", "ff02::16", 143),
        ("fe80::1", "ff02::fb", 131),
        ("fe80::1", "ff02::2", 132),
    ];
    for (from, to, kind) in messages {
        let frame = icmpv6(v6, from, to, kind);
        v6.judge(frame);
        assert_eq!(v6.outcome(), "pass", "{kind} of {from} to {to}");
    }
    for frame in [
        udp(("fe80::1", 546), ("ff02::1:2", 547)),
        udp(("fe80::2", 547), ("fe80::1", 546)),
        udp(("0.0.0.0", 68), ("255.255.255.255", 67)),
        udp(("198.51.100.1", 67), ("255.255.255.255", 68)),
        udp(("10.0.0.1", 68), ("198.51.100.1", 67)),
        udp(("198.51.100.1", 67), ("10.0.0.1", 68)),
        udp(("10.0.0.1", 5000), ("198.51.100.2", 53)),
        udp(("198.51.100.2", 53), ("10.0.0.1", 5000)),
    ] {
        v6.judge(frame);
        assert_eq!(v6.outcome(), "pass");
    }
    for ipv6 in [false, true] {
        let trial = &mut Trial::new(policy, ipv6);
        trial.open();
        trial.set(trial.echo(In, false, 7, 1));
        trial.set(trial.echo(Out, true, 7, 1));
        // Unsolicited packets.
        let unasked = [
            trial.echo(Out, false, 9, 1),
            trial.udp_between(Out, (53, 6000), b"!"),
            trial.udp_between(Out, (9, 68), b"!"),
            trial.frame_of(Out, &bartizan_testkit::packet::Segment::new((5, 80), (1, 0), SYN, b"")),
            trial.udp_between(In, (5000, 9), b"?"),
        ];
        for frame in unasked {
            trial.judge(frame);
            assert!(
                trial.outcome().starts_with("drop") && !trial.outcome().contains("pass"),
                "{}",
                trial.outcome()
            );
        }
        trial.set(trial.tcp(In, (1, 1), ACK, b"data"));
    }
}

#[test]
fn policies_beside_statements_are_policies() {
    let blocks = blocks();
    assert!(blocks.len() > 1);
    for block in &blocks {
        // Rules of detection stand in files, which are not there.
        assert!(!block.contains("ids"), "{block}");
        let mut stack = stack(block, None);
        let frame = Captured::at_millis(0, udp(("10.0.0.1", 1), ("198.51.100.2", 9)));
        assert!(stack.worker.frame(&frame.frame(1), &mut stack.recorder).is_some());
    }
}

/// The statements of docs/open.md about sfw and the standards are true.
#[test]
fn data_behind_its_own_fin_goes_on_and_acknowledgements_of_unsent_data_are_refused() {
    let with_detection = POLICY.replace("chain: [pfw, sfw],", "chain: [pfw, sfw, ids], ids: {rules: [r]},");
    for (policy, reason) in [(POLICY, "sfw_window"), (&with_detection, "stream_error")] {
        for v6 in [false, true] {
            let trial = &mut Trial::new(policy, v6);
            trial.open();
            trial.set(trial.tcp(In, (1, 1), FIN | ACK, b""));
            trial.set(trial.tcp(Out, (1, 2), ACK, b""));
            trial.judge(trial.tcp(In, (2, 1), ACK, b"behind"));
            trial.open();
            trial.judge(trial.tcp(In, (1, 90_000), ACK, b""));
            trial.judge(trial.tcp(Out, (1, 90_000), ACK, b"data"));
            let refused = format!("drop `{reason}`");
            assert_eq!(trial.steps, ["pass", &*refused, &*refused], "{policy}");
        }
    }
}

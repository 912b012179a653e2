// SPDX-License-Identifier: Apache-2.0
//! Traffic of every IP protocol between an inside and an outside, under policies with different `initiate`:
//! the packets, and those that have to pass.

use bartizan_testkit::packet::{Datagram, Ip, Segment};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A policy of the matrix.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its functions.
    pub chain: &'static str,
    /// The `initiate` setting of `sfw`; `None`: unset.
    pub initiate: Option<&'static str>,
    /// Whether the inside may open, and whether the outside may.
    pub may_open: [bool; 2],
}

const fn case(chain: &'static str, initiate: Option<&'static str>, may_open: [bool; 2]) -> Case {
    Case { chain, initiate, may_open }
}

/// All policies. Rules of `pfw` allow the inside's own openings.
pub const CASES: [Case; 10] = [
    case("sfw", Some("from"), [true, false]),
    case("sfw", Some("to"), [false, true]),
    case("sfw", Some("both"), [true, true]),
    case("sfw", None, [true, false]),
    case("pfw, sfw", Some("from"), [true, false]),
    case("pfw, sfw", Some("to"), [false, false]),
    case("pfw, sfw", Some("both"), [true, false]),
    case("pfw, sfw", None, [true, false]),
    case("pfw", None, [true, false]),
    case("sfw, ids", Some("from"), [true, false]),
];

/// The policy file of the matrix, and a policy that passes all packets between its own addresses.
pub fn policies() -> String {
    let mut groups = String::from("groups: {");
    let mut policies = String::from("policies:\n");
    for (number, case) in CASES.iter().enumerate() {
        let _ = write!(groups, "inside-{number}: [10.{number}.0.0/16, 'fd00:{number:x}::/32'], ");
        let sfw = case.initiate.map(|side| format!(", sfw: {{initiate: {side}}}")).unwrap_or_default();
        let pfw =
            if case.chain.contains("pfw") { ", pfw: {default: drop, rules: [{allow: any}]}" } else { "" };
        let ids = if case.chain.contains("ids") { ", ids: {rules: [none.rules]}" } else { "" };
        let _ = writeln!(
            policies,
            "  - {{name: p{number}, from: [inside-{number}], to: any, chain: [{}]{sfw}{pfw}{ids}}}",
            case.chain
        );
    }
    let _ = writeln!(
        policies,
        "  - {{name: signal, from: [192.0.2.0/24], to: any, chain: [sfw], sfw: {{initiate: both}}}}"
    );
    format!("{groups}}}\n{policies}default: {{action: drop}}\n")
}

/// The side that sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum First {
    Inside,
    Outside,
}

/// The exchange of two hosts: three packets, the second one by the side that did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exchange {
    pub case: usize,
    pub v6: bool,
    pub protocol: u8,
    pub first: First,
}

impl Exchange {
    /// All exchanges.
    pub fn all() -> impl Iterator<Item = Exchange> {
        (0..CASES.len()).flat_map(|case| {
            [First::Inside, First::Outside].into_iter().flat_map(move |first| {
                [false, true]
                    .into_iter()
                    .flat_map(move |v6| (0..=255).map(move |protocol| Exchange { case, v6, protocol, first }))
            })
        })
    }

    fn address(self, outside: bool) -> IpAddr {
        let host = match self.first {
            First::Inside => 1,
            First::Outside => 2,
        };
        let (case, protocol) = (self.case as u8, self.protocol);
        match (self.v6, outside) {
            (false, false) => Ipv4Addr::new(10, case, protocol, host).into(),
            (false, true) => Ipv4Addr::new(198, case, protocol, host).into(),
            (true, false) => {
                Ipv6Addr::new(0xfd00, case.into(), protocol.into(), 0, 0, 0, 0, host.into()).into()
            }
            (true, true) => {
                Ipv6Addr::new(0x2001, case.into(), protocol.into(), 0, 0, 0, 0, host.into()).into()
            }
        }
    }

    /// Whether the outside sends a packet (counted from 0).
    pub fn is_by_outside(self, packet: usize) -> bool {
        (self.first == First::Outside) != (packet == 1)
    }

    /// Whether each of its packets passes: none until a side that may open has sent, then all.
    pub fn passes(self) -> [bool; 3] {
        let [inside, outside] = CASES[self.case].may_open;
        let mut open = false;
        [0, 1, 2].map(|packet| {
            open |= if self.is_by_outside(packet) { outside } else { inside };
            open
        })
    }

    /// The frame of a packet after `passed` earlier ones have passed.
    pub fn frame(self, packet: usize, passed: usize) -> Vec<u8> {
        let outside = self.is_by_outside(packet);
        let (from, to) = (self.address(outside), self.address(!outside));
        let ip = Ip::new(from, to, self.protocol);
        ip.frame(&ip.summed(&self.body(outside, passed)), None)
    }

    fn body(self, outside: bool, passed: usize) -> Vec<u8> {
        let ports = if outside { (7000, 6000) } else { (6000, 7000) };
        match (self.protocol, self.v6) {
            (1, false) | (58, true) => {
                let (question, answer) = if self.v6 { (128, 129) } else { (8, 0) };
                vec![if passed == 1 { answer } else { question }, 0, 0, 0, 0, 7, 0, 1]
            }
            (6, _) => {
                let (mine, other) = if outside { (7000, 6000) } else { (6000, 7000) };
                let numbers = match passed {
                    0 => (mine, 0),
                    1 => (mine, other + 1),
                    _ => (mine + 1, other + 1),
                };
                let flags = [0x02, 0x12, 0x10][passed.min(2)];
                Segment::new(ports, numbers, flags, b"").unsummed()
            }
            (17, _) => Datagram::new(ports, b"?").unsummed(),
            // Tunnels: a datagram of the same hosts, or of their namesakes of the other version.
            (4 | 41, _) => {
                let inner = Exchange { v6: self.protocol == 41, ..self };
                let ip = Ip::new(inner.address(outside), inner.address(!outside), 17);
                ip.packet(&ip.summed(&Datagram::new(ports, b"?").unsummed()), None)
            }
            (47, _) => vec![0, 0, 0x99, 0x99, 1, 2, 3, 4],
            (51, _) => vec![59, 1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1],
            // Each end has an SPI of its own.
            (50, _) => vec![0, 0, 0, u8::from(outside), 0, 0, 0, 1, 1, 2, 3, 4],
            (132, _) => {
                let [(a, b), (c, d)] =
                    [ports.0, ports.1].map(|port: u16| (port.to_be_bytes()[0], port.to_be_bytes()[1]));
                vec![a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 4]
            }
            (0 | 60, true) => vec![59, 0, 1, 4, 0, 0, 0, 0],
            (43, true) => vec![59, 0, 4, 0, 0, 0, 0, 0],
            (44, true) => vec![59, 0, 0, 0, 0, 0, 0, 9],
            (135 | 139 | 140, true) => vec![59, 0, 0, 0, 0, 0, 0, 0],
            (59, true) => Vec::new(),
            _ => (1..=16).collect(),
        }
    }

    /// The exchange of a frame.
    pub fn of_frame(frame: &[u8]) -> Option<Exchange> {
        let octets = |at: usize| frame.get(at..at + 16);
        let (v6, protocol, ends) = match frame.get(12..14)? {
            [8, 0] => {
                let address = |at: usize| Some([*frame.get(at)?, *frame.get(at + 1)?, *frame.get(at + 3)?]);
                (false, *frame.get(23)?, [address(26)?, address(30)?])
            }
            [0x86, 0xdd] => {
                let address =
                    |at: usize| octets(at).map(|a| [if a[0] == 0xfd { 10 } else { 198 }, a[3], a[15]]);
                (true, *frame.get(20)?, [address(22)?, address(38)?])
            }
            _ => return None,
        };
        let [_, case, host] = *ends.iter().find(|end| end[0] == 10)?;
        let first = match host {
            1 => First::Inside,
            2 => First::Outside,
            _ => return None,
        };
        (usize::from(case) < CASES.len() && ends.iter().any(|end| end[0] == 198)).then_some(Exchange {
            case: case.into(),
            v6,
            protocol,
            first,
        })
    }
}

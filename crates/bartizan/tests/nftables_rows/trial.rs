// SPDX-License-Identifier: Apache-2.0
//! One row of the comparison on a worker: an inside that may open, an outside that may not, and the verdict
//! on each packet.

use bartizan_testkit::packet::{ACK, Datagram, ICMP, ICMPV6, Ip, SYN, Segment, TCP, UDP};
use bartizan_testkit_worker::{Captured, Made, Nothing, Stack};
use std::net::IpAddr;

/// The policy of the rows: the inside may open anything.
pub const POLICY: &str = "groups: {inside: [10.0.0.0/8, 'fd00::/16']}\n\
    policies: [{name: lan, from: [inside], to: any, chain: [pfw, sfw], pfw: {default: drop, rules: [{allow: any}]}, sfw: {initiate: from}}]\n\
    default: {action: drop}\n";

/// A side of the firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    In,
    Out,
}

pub use Side::{In, Out};

impl Side {
    pub fn other(self) -> Side {
        if self == In { Out } else { In }
    }
}

/// A worker that a row's packets go through.
pub struct Trial {
    pub v6: bool,
    /// The inside's port, different for each connection of a row.
    pub port: u16,
    stack: Stack,
    policy: String,
    millis: u64,
    outcomes: Vec<String>,
    /// The verdict on each packet.
    pub steps: Vec<String>,
}

/// A worker in prevention with a policy file, and with a live link's checks of packets.
pub fn stack(policy: &str, flows: Option<u32>) -> Stack {
    let mut stack = Stack::new(&Made {
        name: "nftables",
        policy: "chain: [sfw]",
        set: &[("pcap-file.checksum-checks", "yes")],
        tune: if flows.is_some() { |settings| settings.flow_capacity = 64 } else { |_| () },
        rules: "",
        thresholds: "",
    });
    stack.swap_file(policy, "");
    stack
}

impl Trial {
    pub fn new(policy: &str, v6: bool) -> Self {
        let stack = stack(policy, None);
        Trial {
            v6,
            port: 40_000,
            stack,
            policy: policy.to_owned(),
            millis: 0,
            outcomes: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Starts again, as after a start of the program.
    pub fn restart(&mut self) {
        self.stack = stack(&self.policy, None);
    }

    /// Starts again with room for 64 flows.
    pub fn with_little_room(&mut self) {
        self.stack = stack(&self.policy, Some(64));
    }

    /// Advances the time.
    pub fn wait(&mut self, millis: u64) {
        self.millis += millis;
    }

    fn hand_in(&mut self, bytes: Vec<u8>) -> Option<String> {
        self.millis += 1;
        let frame = Captured::at_millis(self.millis, bytes);
        let decision = self.stack.worker.frame(&frame.frame(1), &mut Nothing)?;
        Some(match decision.reason {
            _ if decision.verdict.forwards() => "pass".to_owned(),
            Some(reason) => format!("drop `{}`", reason.name()),
            None => panic!("a refusal has a reason"),
        })
    }

    fn note(&mut self, outcome: String) {
        self.steps.push(outcome.clone());
        if self.outcomes.last() != Some(&outcome) {
            self.outcomes.push(outcome);
        }
    }

    /// A preparing packet, which has to pass.
    #[track_caller]
    pub fn set(&mut self, frame: Vec<u8>) {
        assert_eq!(self.hand_in(frame).as_deref(), Some("pass"), "what prepares a row has to pass");
    }

    /// A packet whose verdict is part of the row.
    #[track_caller]
    pub fn judge(&mut self, frame: Vec<u8>) {
        let outcome = self.hand_in(frame).expect("no fragment");
        self.note(outcome);
    }

    /// A packet that arrives twice.
    #[track_caller]
    pub fn judge_twice(&mut self, frame: Vec<u8>) {
        self.judge(frame.clone());
        self.judge(frame);
    }

    /// A datagram in fragments; those that wait have to leave if the last one does.
    #[track_caller]
    pub fn judge_fragments(&mut self, frames: Vec<Vec<u8>>) {
        let (mut waiting, mut last) = (0, String::new());
        for frame in frames {
            match self.hand_in(frame) {
                Some(outcome) => {
                    self.note(outcome.clone());
                    last = outcome;
                }
                None => waiting += 1,
            }
        }
        let mut released = 0;
        while self.stack.worker.take_released(&mut Vec::new()).is_some() {
            released += 1;
        }
        assert!(last != "pass" || waiting == released, "{waiting} waited, {released} left");
    }

    /// The verdicts on the row's packets, without repetitions of neighbours.
    pub fn outcome(&self) -> String {
        self.outcomes.join("; ")
    }

    pub fn host(&self, side: Side) -> IpAddr {
        let text = match (side, self.v6) {
            (In, false) => "10.0.0.1",
            (In, true) => "fd00::1",
            (Out, false) => "198.51.100.2",
            (Out, true) => "2001:db8::2",
        };
        text.parse().unwrap()
    }

    /// An address other than the hosts': a router, or another outside host.
    pub fn stranger(&self) -> IpAddr {
        if self.v6 { "2001:db8:9::9" } else { "203.0.113.9" }.parse().unwrap()
    }

    pub fn ip(&self, by: Side, protocol: u8) -> Ip {
        Ip::new(self.host(by), self.host(by.other()), protocol)
    }

    /// Ports of a packet of the connection, to port 80 outside.
    pub fn ports(&self, by: Side) -> (u16, u16) {
        if by == In { (self.port, 80) } else { (80, self.port) }
    }

    /// A segment of the connection; numbers count from those of the SYNs.
    pub fn segment(&self, by: Side, (seq, ack): (u32, u32), flags: u16, load: &[u8]) -> Segment {
        const FIRST: [u32; 2] = [1_000, 9_000_000];
        let [own, others] = if by == In { FIRST } else { [FIRST[1], FIRST[0]] };
        let ack = if flags & ACK == 0 { 0 } else { others.wrapping_add(ack) };
        Segment::new(self.ports(by), (own.wrapping_add(seq), ack), flags, load)
    }

    pub fn frame_of(&self, by: Side, segment: &Segment) -> Vec<u8> {
        let ip = self.ip(by, TCP);
        ip.frame(&segment.bytes(&ip), None)
    }

    pub fn tcp(&self, by: Side, numbers: (u32, u32), flags: u16, load: &[u8]) -> Vec<u8> {
        self.frame_of(by, &self.segment(by, numbers, flags, load))
    }

    /// Another connection, not yet begun.
    pub fn next(&mut self) {
        self.port += 1;
    }

    /// Another connection, with its handshake.
    #[track_caller]
    pub fn open(&mut self) {
        self.next();
        self.set(self.tcp(In, (0, 0), SYN, b""));
        self.set(self.tcp(Out, (0, 1), SYN | ACK, b""));
        self.set(self.tcp(In, (1, 1), ACK, b""));
    }

    pub fn udp(&self, by: Side, load: &[u8]) -> Vec<u8> {
        self.udp_between(by, self.ports(by), load)
    }

    pub fn udp_between(&self, by: Side, ports: (u16, u16), load: &[u8]) -> Vec<u8> {
        self.raw(by, UDP, &Datagram::new(ports, load).unsummed())
    }

    /// A packet of any protocol, with its right checksum.
    pub fn raw(&self, by: Side, protocol: u8, body: &[u8]) -> Vec<u8> {
        let ip = self.ip(by, protocol);
        ip.frame(&ip.summed(body), None)
    }

    /// A message of ICMP: its type in both versions, and all bytes after the checksum.
    pub fn icmp(&self, by: Side, kind: (u8, u8), code: u8, rest: &[u8]) -> Vec<u8> {
        self.icmp_between(self.host(by), self.host(by.other()), kind, code, rest)
    }

    pub fn icmp_between(&self, from: IpAddr, to: IpAddr, kind: (u8, u8), code: u8, rest: &[u8]) -> Vec<u8> {
        let (protocol, kind) = if self.v6 { (ICMPV6, kind.1) } else { (ICMP, kind.0) };
        let ip = Ip { ttl: 255, ..Ip::new(from, to, protocol) };
        ip.frame(&ip.summed(&[&[kind, code, 0, 0], rest].concat()), None)
    }

    pub fn echo(&self, by: Side, answer: bool, id: u16, number: u8) -> Vec<u8> {
        let [a, b] = id.to_be_bytes();
        let kind = if answer { (0, 129) } else { (8, 128) };
        self.icmp(by, kind, 0, &[a, b, 0, number, b'p', b'i', b'n', b'g'])
    }

    /// An ICMP error of a router about a frame, to its sender, with a quote of so many bytes.
    pub fn error(&self, about: &[u8], (kind, code): (u8, u8), bytes: usize) -> Vec<u8> {
        let source = if self.v6 {
            IpAddr::from(<[u8; 16]>::try_from(&about[22..38]).unwrap())
        } else {
            IpAddr::from(<[u8; 4]>::try_from(&about[26..30]).unwrap())
        };
        self.error_to(self.stranger(), source, about, (kind, code), bytes)
    }

    pub fn error_to(
        &self,
        from: IpAddr,
        to: IpAddr,
        about: &[u8],
        (kind, code): (u8, u8),
        bytes: usize,
    ) -> Vec<u8> {
        let packet = &about[14..];
        let rest = [&[0, 0, 5, 0], &packet[..packet.len().min(bytes)]].concat();
        self.icmp_between(from, to, (kind, kind), code, &rest)
    }

    /// Types and codes of errors in both versions; those that only one version has are left out.
    pub fn errors(&self) -> &'static [(u8, u8)] {
        if self.v6 {
            &[
                (1, 0),
                (1, 1),
                (1, 3),
                (1, 4),
                (1, 7),
                (1, 8),
                (2, 0),
                (2, 1),
                (3, 0),
                (3, 1),
                (4, 0),
                (4, 3),
                (4, 10),
            ]
        } else {
            &[
                (3, 0),
                (3, 1),
                (3, 3),
                (3, 4),
                (3, 13),
                (3, 15),
                (4, 0),
                (5, 1),
                (11, 0),
                (11, 1),
                (12, 0),
                (12, 1),
                (12, 2),
            ]
        }
    }

    /// The least bytes of a packet that an error quotes: IP header and 8 bytes.
    pub fn least_quote(&self) -> usize {
        if self.v6 { 48 } else { 28 }
    }
}

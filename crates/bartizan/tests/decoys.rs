// SPDX-License-Identifier: Apache-2.0
//! Datagrams that a receiver discards, or does not answer, decide nothing for those after them: a forbidden
//! query is refused whatever came before it.

use bartizan_base::{Reason, Timestamp};
use bartizan_testkit::hosts::{ethernet, ip, tcp, udp};
use bartizan_testkit::packet::sum_ipv4_header;
use bartizan_testkit_worker::{Captured, Made, Stack};

const RULES: &str = "drop dns any any -> any 53 (msg:\"query\"; dns.query; content:\"evil\"; sid:1;)\n\
drop udp any any -> any 9000 (msg:\"to the server\"; flow:to_server; content:\"evil\"; sid:2;)\n\
drop http any any -> any any (msg:\"path\"; flow:established,to_server; http.uri; content:\"evil\"; sid:4;)\n\
drop udp any any -> any 9001 (msg:\"answered\"; flow:established; content:\"good\"; sid:3;)\n";

fn message(name: &[u8; 4], answer: bool) -> Vec<u8> {
    let mut bytes = vec![7, 7, if answer { 0x81 } else { 1 }, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4];
    bytes.extend(name);
    bytes.extend(b"\x04test\0\0\x01\0\x01");
    bytes
}

/// A datagram with a right checksum.
fn datagram(v6: bool, ends: (u8, u8), ports: (u16, u16), load: &[u8]) -> Vec<u8> {
    ethernet(v6, &ip(v6, ends, 17, &udp(ports, load)))
}

/// Offset of UDP's checksum in a frame.
const fn sum_at(v6: bool) -> usize {
    14 + if v6 { 40 } else { 20 } + 6
}

struct Gate {
    stack: Stack,
    millis: u64,
}

impl Gate {
    fn new(name: &str, set: &[(&str, &str)]) -> Self {
        let mut with_checks = vec![("pcap-file.checksum-checks", "yes")];
        with_checks.extend(set);
        let made = Made {
            name,
            policy: "chain: [ids], ids: {rules: r}",
            set: &with_checks,
            tune: |settings| *settings = settings.clone().between_two_sides(),
            rules: RULES,
            thresholds: "",
        };
        Gate { stack: Stack::new(&made), millis: 0 }
    }

    /// The reason why a frame of the client's side was refused.
    fn refused(&mut self, bytes: Vec<u8>) -> Option<Reason> {
        self.refused_from(0, bytes)
    }

    /// The reason why a frame of one side was refused.
    fn refused_from(&mut self, side: u32, bytes: Vec<u8>) -> Option<Reason> {
        self.stack.worker.arrives_by(side);
        self.millis += 1;
        let now = Timestamp::from_nanos(1_000_000_000 + self.millis * 1_000_000);
        let frame = Captured { now, bytes };
        let decision = self.stack.worker.frame(&frame.frame(self.millis), &mut self.stack.recorder);
        decision.filter(|decision| !decision.verdict.forwards()).and_then(|decision| decision.reason)
    }

    fn end(self) {
        let _ = self.stack.finish();
    }
}

const ENDS: (u8, u8) = (1, 2);

/// Decoys: a name, and a change that makes the receiver discard the frame.
type Spoil = fn(bool, &mut Vec<u8>);
const FAULTS: &[(&str, Spoil)] = &[
    ("a wrong checksum", |v6, frame| frame[sum_at(v6)] ^= 1),
    ("a foreign hardware address", |_, frame| frame[5] = 99),
    ("few hops left", |v6, frame| {
        if v6 {
            frame[21] = 1;
        } else {
            frame[22] = 1;
            sum_ipv4_header(&mut frame[14..]);
        }
    }),
    ("nothing", |_, _| ()),
];

#[test]
fn a_query_is_one_whatever_came_before_it() {
    let texts: [(&str, Vec<u8>); 3] = [
        ("letters", b"something that nobody knows".to_vec()),
        ("an answer", message(b"fine", true)),
        ("a query", message(b"fine", false)),
    ];
    let mut gate = Gate::new("decoys", &[]);
    let mut port = 2_000;
    for v6 in [false, true] {
        for (fault, spoil) in FAULTS {
            for (what, text) in &texts {
                port += 1;
                let mut decoy = datagram(v6, ENDS, (port, 53), text);
                spoil(v6, &mut decoy);
                assert_eq!(gate.refused(decoy.clone()), None, "{what}, {fault}");
                assert_eq!(gate.refused(decoy), None, "{what}, {fault}");
                let evil = datagram(v6, ENDS, (port, 53), &message(b"evil", false));
                assert_eq!(gate.refused(evil), Some(Reason::IdsRule), "{what}, {fault}, v6 {v6}");
            }
        }
    }
    gate.end();
}

/// A client that sends an answer does not become a server, even from a server's port.
#[test]
fn an_answer_to_nothing_turns_no_flow() {
    let mut gate = Gate::new("answers", &[]);
    for v6 in [false, true] {
        let answer = datagram(v6, ENDS, (53, 9000), &message(b"fine", true));
        assert_eq!(gate.refused(answer), None);
        let evil = datagram(v6, ENDS, (53, 9000), b"evil");
        assert_eq!(gate.refused(evil), Some(Reason::IdsRule), "v6 {v6}");
    }
    gate.end();
}

/// A discarded frame begins no flow, and answers none.
#[test]
fn wrong_checksums_say_nothing_of_a_flow() {
    let mut gate = Gate::new("unproved", &[]);
    for v6 in [false, true] {
        let mut backwards = datagram(v6, (2, 1), (9000, 3000), b"nothing");
        backwards[sum_at(v6)] ^= 1;
        assert_eq!(gate.refused_from(1, backwards), None);
        let evil = datagram(v6, ENDS, (3000, 9000), b"evil");
        assert_eq!(gate.refused(evil), Some(Reason::IdsRule), "v6 {v6}");
        // Nothing answered: the rule on established flows has nothing to say.
        assert_eq!(gate.refused(datagram(v6, ENDS, (3001, 9001), b"first")), None);
        let mut answer = datagram(v6, (2, 1), (9001, 3001), b"nothing");
        answer[sum_at(v6)] ^= 1;
        assert_eq!(gate.refused_from(1, answer), None);
        assert_eq!(gate.refused(datagram(v6, ENDS, (3001, 9001), b"good")), None, "v6 {v6}");
        assert_eq!(gate.refused_from(1, datagram(v6, (2, 1), (9001, 3001), b"nothing")), None);
        assert_eq!(gate.refused(datagram(v6, ENDS, (3001, 9001), b"good")), Some(Reason::IdsRule), "v6 {v6}");
    }
    gate.end();
}

/// Bytes that a client sends in its server's name arrive on the wrong side. Otherwise bytes that the server
/// has "acknowledged" without having them would be a gap for the parser, and could still be sent.
#[test]
fn a_client_does_not_speak_for_its_server() {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let mut gate = Gate::new("forged", &[("capture.checksum-validation", "none")]);
    for v6 in [false, true] {
        let client = |seq, ack, flags, load: &[u8]| {
            ethernet(v6, &ip(v6, ENDS, 6, &tcp((4000, 80), seq, ack, flags, load)))
        };
        let server =
            |seq, ack, flags| ethernet(v6, &ip(v6, (2, 1), 6, &tcp((80, 4000), seq, ack, flags, b"")));
        assert_eq!(gate.refused(client(100, 0, SYN, b"")), None);
        assert_eq!(gate.refused_from(1, server(500, 101, SYN | ACK)), None);
        assert_eq!(gate.refused(client(101, 501, ACK, b"")), None);
        // The server "acknowledges" a byte that was never sent to it, then some that it discards after a
        // gap.
        gate.refused(server(501, 102, ACK));
        gate.refused(client(111, 501, ACK, b"letters, and more of them"));
        gate.refused(server(501, 136, ACK));
        let request = b"GET /evil.php HTTP/1.1\r\nHost: a\r\nX: some letters to fill it\r\n\r\n";
        let refused = gate.refused(client(101, 501, ACK, request));
        let left = gate.stack.worker.take_rewrite().map_or(request.to_vec(), |change| change.bytes);
        let says_evil = left.windows(4).any(|word| word == b"evil");
        assert!(refused.is_some() || !says_evil, "v6 {v6}: it leaves: {:?}", String::from_utf8_lossy(&left));
    }
    gate.end();
}

/// A RST with the right number that the server never gets: it does not end the stream for its readers.
#[test]
fn a_rst_hides_nothing_that_comes_behind_it() {
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
    let mut gate = Gate::new("reset", &[("capture.checksum-validation", "none")]);
    for v6 in [false, true] {
        for (port, before) in [(4000, &b""[..]), (4001, b"GET /e")] {
            let client = |seq, ack, flags, load: &[u8]| {
                ethernet(v6, &ip(v6, ENDS, 6, &tcp((port, 80), seq, ack, flags, load)))
            };
            assert_eq!(gate.refused(client(100, 0, SYN, b"")), None);
            let answer = ethernet(v6, &ip(v6, (2, 1), 6, &tcp((80, port), 500, 101, SYN | ACK, b"")));
            assert_eq!(gate.refused_from(1, answer), None);
            assert_eq!(gate.refused(client(101, 501, ACK, b"")), None);
            let mut next = 101;
            if !before.is_empty() {
                assert_eq!(gate.refused(client(next, 501, ACK, before)), None);
                next += before.len() as u32;
            }
            let mut reset = client(next, 0, RST, b"");
            reset[5] = 99;
            assert_eq!(gate.refused(reset), None);
            let request = b"GET /evil.php HTTP/1.1\r\nHost: a\r\n\r\n";
            let rest = client(next, 501, ACK, &request[before.len()..]);
            assert_eq!(gate.refused(rest), Some(Reason::IdsRule), "v6 {v6}, {} bytes before", before.len());
        }
    }
    gate.end();
}

/// Settings that accept TCP segments with wrong checksums have that effect here.
#[test]
fn checksums_count_as_the_settings_say() {
    for (name, set) in [
        ("unchecked", ("stream.checksum-validation", "no")),
        ("offloaded", ("capture.checksum-validation", "none")),
        ("checked", ("stream.checksum-validation", "yes")),
    ] {
        let mut gate = Gate::new(name, &[set]);
        for v6 in [false, true] {
            let mut evil = datagram(v6, ENDS, (3000, 53), &message(b"evil", false));
            evil[sum_at(v6)] ^= 1;
            let counts = name != "checked";
            // Discarded bytes are not parsed.
            assert_eq!(gate.refused(evil).is_some(), counts, "{name}, v6 {v6}");
        }
        gate.end();
    }
}

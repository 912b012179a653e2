// SPDX-License-Identifier: Apache-2.0
//! A policy is staged and enforced under live flows: the functions' state of a flow is kept, and shows in
//! verdicts. IPv4 and IPv6.

use bartizan_base::{Reason, Timestamp};
use bartizan_testkit::hosts::{ethernet, ip, tcp, udp};
use bartizan_testkit_worker::{Captured, Made, Stack, events};

const RULES: &str = "\
alert ip any any -> any any (msg:\"login\"; content:\"login\"; flowbits:set,in; sid:1;)
drop ip any any -> any any (msg:\"evil\"; flowbits:isset,in; content:\"evil\"; sid:2;)
drop ip any any -> any any (msg:\"bad\"; content:\"bad\"; sid:3;)
";
const STAGED: &str = "chain: [sfw, ids], ids: {rules: r}, staged: true";
const ENFORCED: &str = "chain: [sfw, ids], ids: {rules: r}";

struct Bench {
    stack: Stack,
    v6: bool,
    millis: u64,
}

impl Bench {
    fn new(name: &str, v6: bool, policy: &str) -> Self {
        let name = format!("staged-{name}-{v6}");
        let made = Made { name: &name, policy, set: &[], tune: |_| (), rules: RULES, thresholds: "" };
        Bench { stack: Stack::new(&made), v6, millis: 0 }
    }

    fn frame(&mut self, ends: (u8, u8), proto: u8, body: &[u8]) -> Option<Reason> {
        self.millis += 10;
        let now = Timestamp::from_nanos(1_000_000_000 + self.millis * 1_000_000);
        let frame = Captured { now, bytes: ethernet(self.v6, &ip(self.v6, ends, proto, body)) };
        self.stack
            .worker
            .frame(&frame.frame(self.millis), &mut self.stack.recorder)
            .expect("no fragment")
            .reason
    }

    fn datagram(&mut self, payload: &[u8]) -> Option<Reason> {
        self.frame((1, 2), 17, &udp((1000, 7), payload))
    }

    fn segment(&mut self, seq: u32, payload: &[u8]) -> Option<Reason> {
        self.frame((1, 2), 6, &tcp((1000, 80), seq, 501, 16, payload))
    }

    fn connect(&mut self) {
        assert_eq!(self.frame((1, 2), 6, &tcp((1000, 80), 100, 0, 2, b"")), None);
        assert_eq!(self.frame((2, 1), 6, &tcp((80, 1000), 500, 101, 18, b"")), None);
        assert_eq!(self.segment(101, b""), None);
        assert_eq!(self.frame((2, 1), 6, &tcp((80, 1000), 501, 101, 16, b"")), None);
    }
}

#[test]
fn state_of_detection_goes_from_staged_to_enforced_and_back() {
    for v6 in [false, true] {
        let mut bench = Bench::new("udp", v6, STAGED);
        assert_eq!(bench.datagram(b"login"), None);
        // A would-be drop: its flow keeps its state all the same.
        assert_eq!(bench.datagram(b"bad"), None);
        assert_eq!(bench.datagram(b"evil"), None);
        bench.stack.swap(ENFORCED, RULES);
        assert_eq!(bench.datagram(b"evil"), Some(Reason::IdsRule), "the bit is still set");
        assert_eq!(bench.datagram(b"bad"), Some(Reason::IdsRule));
        assert_eq!(bench.datagram(b"good"), None);
        bench.stack.swap(STAGED, RULES);
        assert_eq!(bench.datagram(b"evil"), None);
        bench.stack.swap(ENFORCED, RULES);
        assert_eq!(bench.datagram(b"evil"), Some(Reason::IdsRule));
        let (_, events) = bench.stack.finish();
        let evil: Vec<_> = events.iter().filter(|e| e["alert"]["signature_id"] == 2).collect();
        let actions: Vec<_> = evil.iter().map(|e| e["alert"]["action"].as_str().unwrap()).collect();
        assert_eq!(actions, ["allowed", "blocked", "allowed", "blocked"]);
        for event in &evil {
            assert_eq!(event["metadata"]["flowbits"][0], "in", "{event}");
        }
        // Reported once for the flow.
        let would = events.iter().filter(|e| e["alert"]["gid"] == 9000).count();
        assert!(would <= 1, "{would}");
        let flow = events::first(&events, "flow");
        assert_eq!(flow["metadata"]["flowbits"][0], "in", "{flow}");
    }
}

#[test]
fn a_connection_that_would_have_been_refused_is_refused_once_the_policy_is_enforced() {
    for v6 in [false, true] {
        let mut bench = Bench::new("tcp", v6, STAGED);
        bench.connect();
        assert_eq!(bench.segment(101, b"bad"), None);
        assert_eq!(bench.segment(104, b"more"), None);
        bench.stack.swap(ENFORCED, RULES);
        assert_eq!(bench.segment(108, b"more"), Some(Reason::IdsFlow));
        assert_eq!(bench.segment(108, b"more"), Some(Reason::IdsFlow));
        bench.stack.swap(STAGED, RULES);
        assert_eq!(bench.segment(108, b"more"), None, "nothing is dropped");
        assert_eq!(bench.segment(112, b"bad"), None);
        let (_, events) = bench.stack.finish();
        // What comes after the first refusal would have been refused as well, and says so once.
        let of_flow = |e: &&serde_json::Value| e["alert"]["signature_id"] == Reason::IdsFlow as u32 + 1;
        let would: Vec<_> = events.iter().filter(|e| e["alert"]["gid"] == 9000).filter(of_flow).collect();
        assert_eq!(would.len(), 1, "{would:?}");
    }
}

/// The receiver has only inspected bytes of a connection, also when a policy refused a part of them for a
/// while and other bytes come in its place.
#[test]
fn bytes_that_a_policy_refused_hide_nothing_from_the_next() {
    const OPEN: &str = "chain: [pfw, ids], pfw: {default: allow}, ids: {rules: r}";
    const CLOSED: &str = "chain: [pfw, ids], pfw: {default: drop}, ids: {rules: r}";
    const ATTACK: &str = "drop tcp any any -> any any (msg:\"attack\"; content:\"attack me\"; sid:1;)\n";
    for v6 in [false, true] {
        for (refused, again) in
            [("lost", "ack me"), ("lost", "ack "), ("l", "ack me"), ("lost and more", "ack me")]
        {
            let mut bench = Bench::new("refused", v6, OPEN);
            bench.stack.swap(OPEN, ATTACK);
            bench.connect();
            let mut received = Vec::new();
            let mut send = |bench: &mut Bench, seq: u32, payload: &[u8]| {
                let reason = bench.segment(seq, payload);
                let change = bench.stack.worker.take_rewrite();
                if reason.is_none() {
                    let (front, bytes) = change.map_or((0, payload.to_vec()), |c| {
                        (c.resize.front.len(), [&c.resize.front[..], &c.bytes[..]].concat())
                    });
                    let at = seq as usize - 101 - front;
                    received.resize(received.len().max(at + bytes.len()), 0);
                    received[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                reason
            };
            assert_eq!(send(&mut bench, 101, b"att"), None);
            bench.stack.swap(CLOSED, ATTACK);
            assert_eq!(send(&mut bench, 104, refused.as_bytes()), Some(Reason::PfwDefault));
            bench.stack.swap(OPEN, ATTACK);
            let first = send(&mut bench, 104, again.as_bytes());
            let second = send(&mut bench, 104 + again.len() as u32, b"me, too");
            let shown = String::from_utf8_lossy(&received).into_owned();
            eprintln!("IPv6 {v6}, {refused:?} then {again:?}: {first:?}, {second:?}: {shown:?}");
            assert!(!shown.contains("attack me"), "{shown:?}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A disposition decided beforehand (the flow is bypassed, passed, refused) holds as long as its basis:
//! policies and rules of a generation, or the flow's own bytes. Each in IPv4 and IPv6.

use bartizan_base::{Reason, Timestamp};
use bartizan_flow::FlowState;
use bartizan_testkit::hosts::{ethernet, ip, tcp, udp};
use bartizan_testkit_worker::{Captured, Made, Stack, events};

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;

const BYPASS: &str = "alert ip any any -> any any (msg:\"enough\"; content:\"enough\"; bypass; sid:1;)\n";
const DROP: &str = "drop ip any any -> any any (msg:\"evil\"; content:\"evil\"; sid:2;)\n";
const IDS: &str = "chain: [ids], ids: {rules: r}";
const SFW_IDS: &str = "chain: [sfw, ids], ids: {rules: r}";
const BLOCK: &str = "chain: [pfw], pfw: {default: drop}";

/// A flow through a stack: the bytes of its ends, in order.
struct Talk {
    stack: Stack,
    v6: bool,
    millis: u64,
    /// Next sequence numbers of client and server.
    next: [u32; 2],
    port: u16,
}

impl Talk {
    fn new(name: &str, v6: bool, policy: &str, set: &[(&str, &str)], rules: &str) -> Self {
        let name = format!("{name}-{v6}");
        let made = Made { name: &name, policy, set, tune: |_| (), rules, thresholds: "" };
        Talk { stack: Stack::new(&made), v6, millis: 0, next: [101, 501], port: 1000 }
    }

    fn frame(&mut self, ends: (u8, u8), proto: u8, body: &[u8]) -> Option<Reason> {
        self.millis += 10;
        let now = Timestamp::from_nanos(1_000_000_000 + self.millis * 1_000_000);
        let frame = Captured { now, bytes: ethernet(self.v6, &ip(self.v6, ends, proto, body)) };
        let decision = self
            .stack
            .worker
            .frame(&frame.frame(self.millis), &mut self.stack.recorder)
            .expect("no fragment");
        assert_eq!(decision.verdict.forwards(), decision.reason.is_none());
        decision.reason
    }

    fn datagram(&mut self, payload: &[u8]) -> Option<Reason> {
        self.frame((1, 2), 17, &udp((self.port, 7), payload))
    }

    /// A segment of the client's (0) or the server's (1), out of order by `off`.
    fn segment(&mut self, side: usize, flags: u8, off: u32, payload: &[u8]) -> Option<Reason> {
        let (ends, ports) = [((1, 2), (self.port, 80)), ((2, 1), (80, self.port))][side];
        let seq = self.next[side].wrapping_add(off);
        let ack = if flags & ACK > 0 { self.next[1 - side] } else { 0 };
        self.frame(ends, 6, &tcp(ports, seq, ack, flags, payload))
    }

    fn connect(&mut self) {
        let seqs = self.next.map(|n| n.wrapping_sub(1));
        for (side, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let kept = self.next;
            if flags & SYN > 0 {
                self.next[side] = seqs[side];
            }
            assert_eq!(self.segment(side, flags, 0, b""), None);
            self.next = kept;
        }
    }

    /// Sends bytes, and acknowledges them if they pass.
    fn say(&mut self, side: usize, payload: &[u8]) -> Option<Reason> {
        let refused = self.segment(side, ACK, 0, payload);
        if refused.is_none() {
            self.next[side] = self.next[side].wrapping_add(payload.len() as u32);
            assert_eq!(self.segment(1 - side, ACK, 0, b""), None, "the acknowledgement");
        }
        refused
    }

    fn state(&self) -> FlowState {
        let flows = self.stack.worker.flows();
        let id = *flows.ids().last().unwrap();
        flows.get(id).unwrap().state()
    }
}

fn versions() -> [bool; 2] {
    [false, true]
}

#[test]
fn a_bypassed_flow_is_judged_by_the_next_policy() {
    for v6 in versions() {
        let mut udp = Talk::new("bypass-udp", v6, IDS, &[], &[BYPASS, DROP].concat());
        assert_eq!(udp.datagram(b"enough"), None);
        assert_eq!(udp.state(), FlowState::LocalBypassed);
        assert_eq!(udp.datagram(b"evil"), None);
        udp.stack.swap(BLOCK, "");
        assert_eq!(udp.datagram(b"more"), Some(Reason::PfwDefault));
        assert_eq!(udp.datagram(b"more"), Some(Reason::PfwDefault));
        udp.stack.swap("chain: []", "");
        assert_eq!(udp.datagram(b"more"), None);
        udp.stack.swap(IDS, DROP);
        assert_eq!((udp.datagram(b"more"), udp.state()), (None, FlowState::New));
        assert_eq!(udp.datagram(b"evil"), Some(Reason::IdsRule));

        let mut tcp = Talk::new("bypass-tcp", v6, IDS, &[], &[BYPASS, DROP].concat());
        tcp.connect();
        assert_eq!(tcp.say(0, b"enough"), None);
        assert_eq!(tcp.state(), FlowState::LocalBypassed);
        for _ in 0..30 {
            assert_eq!(tcp.say(0, &[b'c'; 1000]), None);
            assert_eq!(tcp.say(1, &[b's'; 1400]), None);
        }
        assert_eq!(tcp.say(1, b"evil"), None);
        assert_eq!(tcp.state(), FlowState::LocalBypassed);
        tcp.stack.swap(BLOCK, "");
        assert_eq!(tcp.segment(0, ACK, 0, b"more"), Some(Reason::PfwDefault));
        assert_eq!(tcp.segment(1, ACK, 0, b"more"), Some(Reason::PfwDefault));
        // Detection comes back where the connection is, and refuses nothing good.
        tcp.stack.swap(IDS, DROP);
        assert_eq!(tcp.say(0, b"more"), None);
        assert_eq!(tcp.state(), FlowState::Established);
        for _ in 0..10 {
            assert_eq!(tcp.say(1, &[b's'; 1400]), None);
        }
        assert_eq!(tcp.say(0, b"ev"), None);
        assert_eq!(tcp.say(0, b"il"), Some(Reason::IdsRule));
        let (worker, events) = tcp.stack.finish();
        assert_eq!(worker.counters().refused[Reason::StreamError as usize], 0);
        let anomalies = events::of_type(&events, "anomaly");
        assert_eq!(anomalies.filter(|e| e["anomaly"]["type"] == "stream").count(), 0);
    }
}

#[test]
fn functions_that_join_a_connection_find_it_where_it_is() {
    for v6 in versions() {
        for chain in [SFW_IDS, "chain: [sfw]"] {
            let mut tcp = Talk::new("join", v6, IDS, &[], BYPASS);
            tcp.connect();
            assert_eq!(tcp.say(0, b"enough"), None);
            for _ in 0..100 {
                assert_eq!(tcp.say(1, &[b's'; 1400]), None);
            }
            tcp.stack.swap(chain, DROP);
            assert_eq!(tcp.say(1, b"more"), None, "{chain}");
            assert!(tcp.segment(1, ACK, 500_000, b"far").is_some(), "{chain}");
            assert_eq!(tcp.say(0, b"good"), None, "{chain}");
            let evil = tcp.say(0, b"evil");
            assert_eq!(evil, if chain == SFW_IDS { Some(Reason::IdsRule) } else { None });
        }
    }
}

#[test]
fn reassembly_ends_with_the_last_payload_function_and_begins_anew_with_the_next() {
    for v6 in versions() {
        let mut tcp = Talk::new("reading", v6, SFW_IDS, &[], DROP);
        tcp.connect();
        assert_eq!(tcp.say(0, b"good"), None);
        let used = |tcp: &Talk| {
            let mut used = None;
            tcp.stack.worker.visit_stats(|name, value| {
                if name == "tcp.reassembly_memuse" {
                    used = Some(value);
                }
            });
            used.unwrap()
        };
        assert_eq!(tcp.segment(0, ACK, 4, b"behind a gap"), None);
        assert!(used(&tcp) > 0);
        tcp.stack.swap("chain: [sfw]", "");
        for _ in 0..50 {
            assert_eq!(tcp.say(0, &[b'e'; 1400]), None);
        }
        assert_eq!(used(&tcp), 0, "nobody reads, nothing is held");
        tcp.stack.swap(SFW_IDS, DROP);
        assert_eq!(tcp.say(0, b"e"), None);
        assert_eq!(tcp.say(0, b"vil"), Some(Reason::IdsRule));
    }
}

#[test]
fn a_new_connection_on_the_ports_of_a_bypassed_one_is_inspected() {
    for v6 in versions() {
        let mut tcp = Talk::new("reuse", v6, IDS, &[], &[BYPASS, DROP].concat());
        tcp.connect();
        assert_eq!(tcp.say(0, b"enough"), None);
        for side in [0, 1] {
            assert_eq!(tcp.segment(side, FIN | ACK, 0, b""), None);
            tcp.next[side] += 1;
        }
        assert_eq!(tcp.segment(0, ACK, 0, b""), None);
        assert_eq!(tcp.state(), FlowState::LocalBypassed);
        tcp.next = [900_001, 700_001];
        tcp.connect();
        assert_eq!(tcp.say(0, b"evil"), Some(Reason::IdsRule));
    }
}

/// A bypassed connection that its server has abandoned: a new connection on its ports is not bypassed.
#[test]
fn a_connection_whose_server_has_forgotten_the_bypassed_one_is_inspected() {
    for v6 in versions() {
        for early in [b"".as_slice(), b"GET /evil"] {
            let mut tcp =
                Talk::new(&format!("forgotten-{}", early.len()), v6, IDS, &[], &[BYPASS, DROP].concat());
            tcp.connect();
            assert_eq!(tcp.say(0, b"enough"), None);
            assert_eq!((tcp.say(0, b"evil"), tcp.state()), (None, FlowState::LocalBypassed));
            let kept = core::mem::replace(&mut tcp.next, [900_000, 700_000]);
            // A server that has the connection answers a SYN without data with an acknowledgement.
            let refused = (!early.is_empty()).then_some(Reason::StreamError);
            assert_eq!(tcp.segment(0, SYN, 0, early), refused);
            tcp.next[0] = 900_001;
            assert_eq!(tcp.segment(1, SYN | ACK, 0, b""), refused, "it answers the SYN that has gone on");
            if !early.is_empty() {
                tcp.next = kept;
                assert_eq!(
                    (tcp.say(1, b"evil"), tcp.state()),
                    (None, FlowState::LocalBypassed),
                    "it goes on"
                );
                continue;
            }
            tcp.next = [900_001, 700_001];
            assert_eq!(tcp.segment(0, ACK, 0, b""), None);
            assert_eq!(tcp.say(0, b"evil"), Some(Reason::IdsRule));
        }
    }
}

/// The depth of the stream with `stream.bypass`, and exception policies, apply to payload functions only.
#[test]
fn header_functions_go_on_when_nobody_needs_the_payload() {
    let depth = [("stream.bypass", "yes"), ("stream.reassembly.depth", "2000")];
    let errors = [("app-layer.error-policy", "bypass")];
    let hello: &[u8] = b"\x16\x03\x03\0\x04\x10\0\0\0";
    let broken: &[u8] = b"\x19\x03\x03\0\x01\0";
    for v6 in versions() {
        for (name, set, pieces) in [
            ("depth", &depth[..], vec![vec![b'a'; 1000]; 3]),
            ("error", &errors[..], vec![hello.to_vec(), broken.to_vec()]),
        ] {
            // No other function on the path: the flow is bypassed.
            let mut alone = Talk::new(&format!("{name}-alone"), v6, IDS, set, DROP);
            alone.connect();
            pieces.iter().for_each(|piece| assert_eq!(alone.say(0, piece), None));
            assert_eq!(alone.state(), FlowState::LocalBypassed, "{name}");
            assert_eq!(alone.say(0, b"evil"), None);
            assert_eq!(alone.stack.worker.counters().bypassed_flows, 1);
            // Its bytes are what they are, also for the next generation; its header is judged.
            alone.stack.swap(IDS, DROP);
            assert_eq!((alone.say(0, b"evil"), alone.state()), (None, FlowState::LocalBypassed));
            alone.stack.swap(BLOCK, DROP);
            assert_eq!(alone.segment(0, ACK, 0, b"x"), Some(Reason::PfwDefault));

            let mut both = Talk::new(&format!("{name}-both"), v6, SFW_IDS, set, DROP);
            both.connect();
            pieces.iter().for_each(|piece| assert_eq!(both.say(0, piece), None));
            assert_eq!(both.state(), FlowState::Established, "{name}");
            assert_eq!(both.say(0, b"evil"), None, "{name}");
            // Beyond the window, not so far that tracking refuses it.
            assert_eq!(both.segment(0, ACK, 40_000, b"far"), Some(Reason::SfwWindow), "{name}");
            // A reset with an unused sequence number.
            assert!(both.segment(0, 4, 50_000, b"").is_some(), "{name}: a reset");
            assert_eq!(both.stack.worker.counters().bypassed_flows, 0);
            both.stack.swap(SFW_IDS, DROP);
            assert_eq!(both.say(0, b"evil"), None, "{name}");
            assert_eq!(both.segment(0, ACK, 40_000, b"far"), Some(Reason::SfwWindow), "{name}");
        }
        // A connection picked up midstream, with the policy to bypass such: pfw judges it all the same.
        let set = [("stream.midstream-policy", "bypass")];
        let policy =
            "chain: [pfw, ids], ids: {rules: r}, pfw: {default: allow, rules: [{drop: tcp, to-ports: 80}]}";
        let mut picked = Talk::new("picked", v6, policy, &set, DROP);
        for _ in 0..2 {
            assert_eq!(picked.segment(0, ACK, 0, b"x"), Some(Reason::PfwRule));
        }
        let mut alone = Talk::new("picked-alone", v6, IDS, &set, DROP);
        assert_eq!((alone.segment(0, ACK, 0, b"x"), alone.state()), (None, FlowState::LocalBypassed));
    }
}

#[test]
fn what_a_rule_decided_of_a_flow_stands_while_the_rule_does() {
    let pass = "pass ip [10.0.0.1,2001:db8::1] any -> any any (msg:\"known\"; sid:3;)\n";
    let block = "drop ip [10.0.0.1,2001:db8::1] any -> any any (msg:\"bad host\"; sid:4;)\n";
    for v6 in versions() {
        let mut passed = Talk::new("pass", v6, IDS, &[], &[pass, DROP].concat());
        assert_eq!(passed.datagram(b"evil"), None);
        passed.stack.swap(IDS, &[pass, DROP].concat());
        assert_eq!(passed.datagram(b"evil"), None);
        passed.stack.swap(IDS, DROP);
        assert_eq!(passed.datagram(b"evil"), Some(Reason::IdsRule));
        passed.stack.swap(IDS, &[pass, DROP].concat());
        assert_eq!(passed.datagram(b"evil"), None);

        let mut dropped = Talk::new("drop", v6, IDS, &[], block);
        assert_eq!(dropped.datagram(b"x"), Some(Reason::IdsRule));
        assert_eq!(dropped.datagram(b"x"), Some(Reason::IdsFlow));
        dropped.stack.swap(IDS, &[block, DROP].concat());
        assert_eq!(dropped.datagram(b"x"), Some(Reason::IdsFlow));
        dropped.stack.swap(IDS, &block.replace("drop", "alert"));
        assert_eq!(dropped.datagram(b"x"), None);
        dropped.stack.swap(IDS, DROP);
        assert_eq!(dropped.datagram(b"x"), None);
    }
}

#[test]
fn a_refused_connection_stays_refused_while_its_bytes_would_be_inspected() {
    for v6 in versions() {
        for (next, rules, expected) in [
            (IDS, DROP, Some(Reason::IdsFlow)),
            (SFW_IDS, BYPASS, Some(Reason::IdsFlow)),
            ("chain: [sfw]", "", None),
            ("chain: []", "", None),
            ("chain: [ids], ids: {rules: r}, staged: true", DROP, None),
            (BLOCK, "", Some(Reason::PfwDefault)),
        ] {
            let mut tcp = Talk::new("refused", v6, IDS, &[], DROP);
            tcp.connect();
            assert_eq!(tcp.say(0, b"evil"), Some(Reason::IdsRule));
            assert_eq!(tcp.say(0, b"evil"), Some(Reason::IdsFlow));
            tcp.stack.swap(next, rules);
            assert_eq!(tcp.segment(0, ACK, 0, b"evil"), expected, "{next}");
            assert_eq!(tcp.segment(0, ACK, 0, b"evil"), expected, "{next}");
        }
        // An exception policy applies to inspection.
        let broken = [&b"\x16\x03\x03\0\x04\x10\0\0\0"[..], b"\x19\x03\x03\0\x01\0"];
        for (next, expected) in [(SFW_IDS, Some(Reason::ExceptionFlow)), ("chain: [sfw]", None)] {
            let mut tcp = Talk::new("exception", v6, IDS, &[], DROP);
            tcp.connect();
            assert_eq!(tcp.say(0, broken[0]), None);
            assert_eq!(tcp.say(0, broken[1]), Some(Reason::AppLayerError));
            assert_eq!(tcp.say(0, broken[1]), Some(Reason::ExceptionFlow));
            tcp.stack.swap(next, DROP);
            assert_eq!(tcp.segment(0, ACK, 0, broken[1]), expected, "{next}");
        }
    }
}

/// A policy file that names none of these flows: its default applies.
fn default_of(action: &str) -> String {
    format!(
        "policies: [{{name: elsewhere, to: [192.0.2.9, '2001:db8:9::9'], chain: [ids], ids: {{rules: r}}}}]\n\
         default: {{action: {action}}}\n"
    )
}

/// A flow that no policy names passes without inspection until the default changes. The flow is bypassed
/// before, or no policy has ever named it.
#[test]
fn what_the_default_let_go_is_judged_by_the_next_default() {
    let rules = [BYPASS, DROP].concat();
    for (v6, bypassed) in versions().into_iter().flat_map(|v6| [(v6, true), (v6, false)]) {
        let mut udp = Talk::new("default-udp", v6, IDS, &[], &rules);
        if bypassed {
            assert_eq!((udp.datagram(b"enough"), udp.state()), (None, FlowState::LocalBypassed));
        }
        udp.stack.swap_file(&default_of("allow"), &rules);
        assert_eq!([udp.datagram(b"evil"), udp.datagram(b"more")], [None; 2]);
        udp.stack.swap_file(&default_of("drop"), &rules);
        assert_eq!([udp.datagram(b"more"), udp.datagram(b"more")], [Some(Reason::PolicyDefault); 2]);
        udp.stack.swap_file(&default_of("allow"), &rules);
        assert_eq!(udp.datagram(b"more"), None);
        udp.stack.swap(IDS, DROP);
        assert_eq!((udp.datagram(b"more"), udp.datagram(b"evil")), (None, Some(Reason::IdsRule)));

        let mut tcp = Talk::new("default-tcp", v6, IDS, &[], &rules);
        if !bypassed {
            tcp.stack.swap_file(&default_of("allow"), &rules);
        }
        tcp.connect();
        assert_eq!(tcp.say(0, b"enough"), None);
        if bypassed {
            assert_eq!(tcp.state(), FlowState::LocalBypassed);
            tcp.stack.swap_file(&default_of("allow"), &rules);
        }
        for _ in 0..30 {
            assert_eq!(tcp.say(1, &[b's'; 1400]), None);
        }
        assert_eq!(tcp.say(0, b"evil"), None);
        tcp.stack.swap_file(&default_of("drop"), &rules);
        for side in [0, 1] {
            assert_eq!(tcp.segment(side, ACK, 0, b"more"), Some(Reason::PolicyDefault), "{bypassed}: {side}");
        }
        tcp.stack.swap(IDS, DROP);
        assert_eq!((tcp.say(0, b"ev"), tcp.say(0, b"il")), (None, Some(Reason::IdsRule)), "{bypassed}");
    }
}

/// The `initiate` setting is checked again for open flows: bypassed ones, which no firewall saw, and ones
/// that it passed and detection had finished with.
#[test]
fn a_firewall_with_another_initiator_refuses_what_is_open() {
    const OF: &str = "from: [10.0.0.1, '2001:db8::1'], chain: [sfw, ids], ids: {rules: r}, sfw: ";
    let may = |side: &str| format!("{OF}{{initiate: {side}}}");
    let (rules, refused) = ([BYPASS, DROP].concat(), Some(Reason::SfwInitiator));
    for (v6, before) in versions().into_iter().flat_map(|v6| [(v6, may("from")), (v6, IDS.to_owned())]) {
        let mut udp = Talk::new("initiator-udp", v6, &before, &[], &rules);
        assert_eq!([udp.datagram(b"enough"), udp.datagram(b"evil")], [None; 2]);
        assert_eq!(udp.state() == FlowState::LocalBypassed, before == IDS);
        udp.stack.swap(&may("to"), &rules);
        assert_eq!([udp.datagram(b"more"), udp.datagram(b"more")], [refused; 2], "{before}");
        udp.stack.swap(&may("both"), DROP);
        assert_eq!((udp.datagram(b"more"), udp.datagram(b"evil")), (None, Some(Reason::IdsRule)));

        let mut tcp = Talk::new("initiator-tcp", v6, &before, &[], &rules);
        tcp.connect();
        assert_eq!([tcp.say(0, b"enough"), tcp.say(0, b"evil"), tcp.say(1, b"evil")], [None; 3]);
        assert_eq!(tcp.state() == FlowState::LocalBypassed, before == IDS);
        tcp.stack.swap(&may("to"), &rules);
        for side in [0, 1] {
            assert_eq!(tcp.segment(side, ACK, 0, b"more"), refused, "{before}: {side}");
        }
        tcp.stack.swap(&may("both"), DROP);
        // The refused bytes are sent again; other bytes in their place would not reach the server.
        assert_eq!([tcp.say(0, b"more"), tcp.say(1, b"more")], [None; 2]);
        assert_eq!((tcp.say(0, b"ev"), tcp.say(0, b"il")), (None, Some(Reason::IdsRule)), "{before}");
    }
}

/// A limit counts flows from the time that they meet it: of two that were bypassed before, one is too many.
#[test]
fn a_firewall_with_a_limit_refuses_one_of_two_open_flows() {
    for v6 in versions() {
        let mut udp = Talk::new("limit", v6, IDS, &[], BYPASS);
        for port in [1000, 1001] {
            udp.port = port;
            assert_eq!((udp.datagram(b"enough"), udp.state()), (None, FlowState::LocalBypassed));
        }
        udp.stack.swap("chain: [sfw], sfw: {max-connections: 1}", "");
        for (port, expected) in [(1000, None), (1001, Some(Reason::SfwConnectionLimit))].repeat(2) {
            udp.port = port;
            assert_eq!(udp.datagram(b"more"), expected, "{port}");
        }
    }
}

/// Flows that the firewall itself admitted before it had a limit stay, and count for their source.
#[test]
fn a_limit_counts_flows_that_were_let_in_before() {
    for v6 in versions() {
        let mut udp = Talk::new("limit-later", v6, "chain: [sfw]", &[], "");
        let at = |udp: &mut Talk, port| {
            udp.port = port;
            udp.datagram(b"more")
        };
        for port in [1000, 1001] {
            assert_eq!(at(&mut udp, port), None);
        }
        udp.stack.swap("chain: [sfw], sfw: {max-connections: 2}", "");
        let refused = Some(Reason::SfwConnectionLimit);
        for (port, expected) in [(1000, None), (1001, None), (1002, refused), (1000, None)] {
            assert_eq!(at(&mut udp, port), expected, "{port}");
        }
        udp.stack.swap("chain: [sfw], sfw: {max-connections: 1}", "");
        for (port, expected) in [(1000, None), (1001, None), (1003, refused)] {
            assert_eq!(at(&mut udp, port), expected, "{port}");
        }
        udp.stack.swap("chain: [sfw], sfw: {max-connections: 3}", "");
        for (port, expected) in [(1000, None), (1002, None), (1003, refused)] {
            assert_eq!(at(&mut udp, port), expected, "{port}");
        }
    }
}

/// Numbers beyond the window, and a connection whose beginning was not seen, pass a firewall whose settings
/// allow them.
#[test]
fn a_firewall_that_checks_more_refuses_what_passed() {
    const LENIENT: &str =
        "chain: [sfw, ids], ids: {rules: r}, sfw: {window-check: false, midstream: allow, initiate: both}";
    for v6 in versions() {
        let rules = [BYPASS, DROP].concat();
        let mut tcp = Talk::new("window", v6, LENIENT, &[], &rules);
        tcp.connect();
        assert_eq!([tcp.say(0, b"enough"), tcp.say(0, b"evil")], [None; 2], "detection has left it");
        assert_eq!(tcp.segment(0, ACK, 40_000, b"far"), None);
        tcp.stack.swap("chain: [sfw]", "");
        assert_eq!(tcp.segment(0, ACK, 40_000, b"far"), Some(Reason::SfwWindow));
        assert_eq!(tcp.say(0, b"near"), None);

        let set = [("stream.midstream", "yes")];
        let mut picked = Talk::new("picked-up", v6, LENIENT, &set, &rules);
        assert_eq!([picked.say(0, b"enough"), picked.say(1, b"answer"), picked.say(0, b"evil")], [None; 3]);
        picked.stack.swap("chain: [sfw]", "");
        for side in [0, 1] {
            let reason = picked.segment(side, ACK, 0, b"more");
            assert_eq!(reason, Some(Reason::SfwNoConnection), "{side}");
        }
    }
}

/// Segments that no receiver takes hide nothing where no payload function reads the connection: functions of
/// headers decide. One that has gone on keeps a payload function that comes later from what it cannot know.
#[test]
fn the_engine_refuses_segments_only_where_payload_functions_read() {
    const FAR: u32 = 3 << 20;
    let pfw = "chain: [pfw], pfw: {default: allow}";
    let unchecked = "chain: [sfw], sfw: {window-check: false}";
    let window = Some(Reason::SfwWindow);
    for v6 in versions() {
        for (number, (chain, far, unsent)) in [
            (pfw, None, None),
            ("chain: [portscan]", None, None),
            ("chain: [portscan, pfw], pfw: {default: allow}", None, None),
            (unchecked, None, None),
            ("chain: [sfw]", window, window),
            ("chain: [portscan, sfw]", window, window),
            (IDS, Some(Reason::StreamError), Some(Reason::StreamError)),
            ("chain: [portscan, ids], ids: {rules: r}", Some(Reason::StreamError), Some(Reason::StreamError)),
        ]
        .into_iter()
        .enumerate()
        {
            let mut tcp = Talk::new(&format!("unread-{number}"), v6, chain, &[], DROP);
            tcp.connect();
            assert_eq!(tcp.say(0, b"hello"), None, "{chain}");
            for side in [0, 1] {
                assert_eq!(tcp.segment(side, ACK, FAR, b"far"), far, "{chain}, {side}");
                tcp.next[1 - side] += FAR;
                assert_eq!(tcp.segment(side, ACK, 0, b""), unsent, "{chain}, {side}");
                tcp.next[1 - side] -= FAR;
            }
            // Nothing of that has moved the connection.
            for side in [0, 1] {
                assert_eq!(tcp.say(side, b"goes on"), None, "{chain}, {side}");
            }
            tcp.stack.swap(IDS, DROP);
            let later = far.is_none().then_some(Reason::ExceptionFlow);
            assert_eq!(tcp.say(0, b"inspected"), later, "{chain}");
        }
    }
}

/// `ids` is done with a connection, and a function of headers goes on with it.
#[test]
fn where_detection_is_done_functions_of_headers_decide_of_numbers() {
    for v6 in versions() {
        for (number, (chain, far)) in
            [("chain: [portscan, ids], ids: {rules: r}", None), (SFW_IDS, Some(Reason::SfwWindow))]
                .into_iter()
                .enumerate()
        {
            let mut tcp = Talk::new(&format!("done-{number}"), v6, chain, &[], &[BYPASS, DROP].concat());
            tcp.connect();
            assert_eq!(tcp.segment(0, ACK, 3 << 20, b"far"), Some(Reason::StreamError), "{chain}");
            assert_eq!(tcp.say(0, b"enough"), None);
            assert_eq!(tcp.segment(0, ACK, 3 << 20, b"far"), far, "{chain}");
            // What could open another connection stays refused.
            assert_eq!(tcp.segment(1, SYN, 900, b"x"), Some(Reason::StreamError), "{chain}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The engine's own refusals under staged policies, which forward everything, and under enforced policies
//! beside these. IPv4 and IPv6.

use bartizan_base::{Reason, Timestamp};
use bartizan_testkit::hosts::{ethernet, fragments, ip, tcp, udp};
use bartizan_testkit_worker::{Captured, Made, Stack, events};
use serde_json::Value;

const STAGED: &str = "chain: [sfw, ids], ids: {rules: r}, staged: true";
const ENFORCED: &str = "chain: [sfw, ids], ids: {rules: r}";
const EMPTY: &str = "chain: []";
const RULES: &str = "drop ip any any -> any any (msg:\"bad\"; content:\"bad\"; sid:1;)\n";

struct Bench {
    stack: Stack,
    v6: bool,
    millis: u64,
}

/// The outcome of a frame: held, forwarded, or refused.
#[derive(Debug, PartialEq, Eq)]
enum Became {
    Held,
    GoesOn,
    Refused(Reason),
}

impl Bench {
    fn new(name: &str, v6: bool, policy: &str) -> Self {
        let name = format!("engine-{name}-{v6}");
        let made = Made { name: &name, policy, set: &[], tune: |_| (), rules: RULES, thresholds: "" };
        Bench { stack: Stack::new(&made), v6, millis: 0 }
    }

    fn of_file(name: &str, v6: bool, file: &str) -> Self {
        let mut bench = Bench::new(name, v6, EMPTY);
        bench.stack.swap_file(file, RULES);
        bench
    }

    fn swap(&mut self, policy: &str) {
        self.stack.swap(policy, RULES);
    }

    fn raw(&mut self, bytes: Vec<u8>) -> Became {
        self.millis += 10;
        let now = Timestamp::from_nanos(1_000_000_000 + self.millis * 1_000_000);
        let frame = Captured { now, bytes };
        match self.stack.worker.frame(&frame.frame(self.millis), &mut self.stack.recorder) {
            None => Became::Held,
            Some(decision) if decision.verdict.forwards() => Became::GoesOn,
            Some(decision) => Became::Refused(decision.reason.expect("no refusal without a reason")),
        }
    }

    fn packet(&mut self, packet: &[u8]) -> Became {
        self.raw(ethernet(self.v6, packet))
    }

    fn client(&mut self, (seq, ack): (u32, u32), flags: u8, payload: &[u8]) -> Became {
        self.packet(&ip(self.v6, (1, 2), 6, &tcp((1000, 80), seq, ack, flags, payload)))
    }

    fn server(&mut self, (seq, ack): (u32, u32), flags: u8, payload: &[u8]) -> Became {
        self.packet(&ip(self.v6, (2, 1), 6, &tcp((80, 1000), seq, ack, flags, payload)))
    }

    fn connect(&mut self) {
        assert_eq!(self.client((100, 0), 2, b""), Became::GoesOn);
        assert_eq!(self.server((500, 101), 18, b""), Became::GoesOn);
        assert_eq!(self.client((101, 501), 16, b""), Became::GoesOn);
        assert_eq!(self.server((501, 101), 16, b""), Became::GoesOn);
    }

    fn finish(self) -> Vec<Value> {
        self.stack.finish().1
    }
}

/// Reasons of would-be refusals, in order.
fn would_be(events: &[Value]) -> Vec<&'static str> {
    let staged = events.iter().filter(|event| event["alert"]["gid"] == 9_000);
    staged
        .map(|event| Reason::ALL[event["alert"]["signature_id"].as_u64().unwrap() as usize - 1].name())
        .collect()
}

#[test]
fn a_connection_without_a_beginning_goes_on_while_staged_and_is_refused_once_enforced() {
    for v6 in [false, true] {
        let mut bench = Bench::new("midstream", v6, STAGED);
        assert_eq!(bench.client((101, 501), 24, b"good"), Became::GoesOn);
        assert_eq!(bench.server((501, 105), 24, b"good"), Became::GoesOn);
        assert_eq!(bench.client((105, 505), 24, b"good"), Became::GoesOn);
        bench.swap(ENFORCED);
        assert_eq!(bench.client((109, 505), 24, b"good"), Became::Refused(Reason::ExceptionFlow));
        bench.swap(STAGED);
        assert_eq!(bench.client((109, 505), 24, b"good"), Became::GoesOn);
        // The next connection of these ports is judged from its beginning.
        let events = bench.finish();
        assert_eq!(would_be(&events), ["stream_midstream", "exception_flow"]);
        let flow = events::first(&events, "flow");
        assert_eq!(flow["bartizan"]["staged"], true, "{flow}");
        let would_be =
            serde_json::json!({"function": "engine", "verdict": "drop", "reason": "stream_midstream"});
        assert_eq!(flow["bartizan"]["would_be"], would_be, "the first: {flow}");
    }
}

/// The receiver may have accepted bytes that prevention would have refused, so its next bytes are unknown.
#[test]
fn a_connection_whose_refused_data_went_on_is_refused_once_enforced() {
    for v6 in [false, true] {
        // Of a segment without data the receiver has taken nothing.
        for (payload, after, told) in [
            (&b"gap"[..], Became::Refused(Reason::ExceptionFlow), "stream_error"),
            (b"", Became::GoesOn, "sfw_window"),
        ] {
            let mut bench = Bench::new("stray", v6, STAGED);
            bench.connect();
            // Far beyond the window.
            assert_eq!(bench.client((101 + 9_000_000, 501), 16, payload), Became::GoesOn);
            assert_eq!(bench.client((101, 501), 24, b"good"), Became::GoesOn);
            bench.swap(ENFORCED);
            assert_eq!(bench.client((105, 501), 24, b"good"), after, "{payload:?}");
            bench.swap(EMPTY);
            assert_eq!(bench.client((109, 501), 24, b"good"), Became::GoesOn);
            let events = bench.finish();
            assert_eq!(would_be(&events), [told], "{payload:?}");
        }
    }
}

#[test]
fn an_empty_chain_forwards_connections_without_a_beginning_and_says_nothing() {
    for v6 in [false, true] {
        for file in [
            "policies: []\ndefault: {action: allow}\n",
            "policies: [{name: p, chain: []}]\ndefault: {action: drop}\n",
        ] {
            let mut bench = Bench::of_file("empty", v6, file);
            assert_eq!(bench.client((101, 501), 24, b"bad"), Became::GoesOn);
            assert_eq!(bench.server((501, 104), 24, b"bad"), Became::GoesOn);
            assert_eq!(bench.client((90_000_000, 1), 24, b"bad"), Became::GoesOn);
            assert_eq!(bench.client((104, 504), 4, b""), Became::GoesOn);
            assert_eq!(
                bench.packet(&fragments(v6, (1, 2), 17, 9, &udp((1, 2), &[1; 64]), 24)[1]),
                Became::GoesOn
            );
            bench.swap(ENFORCED);
            assert_eq!(bench.client((104, 504), 24, b"good"), Became::Refused(Reason::StreamMidstream));
            let (worker, events) = bench.stack.finish();
            assert!(would_be(&events).is_empty());
            assert_eq!(worker.counters().forwarded, 5);
            assert_eq!(events::of_type(&events, "drop").count(), 1);
        }
    }
}

/// A packet whose policy is unknown is judged by the strictest policy that traffic can have.
#[test]
fn what_has_no_policy_is_judged_as_by_the_strictest() {
    let staged = "{name: one, from: [10.0.0.1, '2001:db8::1'], chain: [ids], ids: {rules: r}, staged: true}";
    let all = "{name: all, chain: [ids], ids: {rules: r}, staged: true}";
    let enforced = "{name: two, from: [10.0.0.9, '2001:db8::9'], chain: [ids], ids: {rules: r}}";
    let refused = Became::Refused(Reason::Unreadable);
    for (policies, default, expected) in [
        (vec![staged], "allow", Became::GoesOn),
        (vec![staged], "drop", refused),
        (vec![all], "drop", Became::GoesOn),
        (vec![all, enforced], "drop", Became::GoesOn),
        (vec![enforced, all], "allow", Became::Refused(Reason::Unreadable)),
    ] {
        let file = format!("policies: [{}]\ndefault: {{action: {default}}}\n", policies.join(", "));
        for v6 in [false, true] {
            let mut bench = Bench::of_file("strictest", v6, &file);
            // An option, or a header, that reaches beyond its place.
            let mut packet = ip(v6, (1, 2), if v6 { 60 } else { 17 }, &udp((17, 9999), b"x"));
            if v6 {
                packet[41] = 9;
            } else {
                packet[0] = 0x46;
                packet[20..22].copy_from_slice(&[7, 99]);
            }
            assert_eq!(bench.packet(&packet), expected, "{file}");
            // Nothing waits where nothing can be refused.
            let held = if expected == Became::GoesOn { Became::GoesOn } else { Became::Held };
            let parts = fragments(v6, (1, 2), 17, 9, &udp((1000, 53), &[1; 64]), 24);
            for part in &parts[..parts.len() - 1] {
                assert_eq!(bench.packet(part), held, "{file}");
            }
            assert_eq!(bench.packet(&parts[parts.len() - 1]), Became::GoesOn, "{file}");
            let events = bench.finish();
            let told = (expected == Became::GoesOn).then_some("unreadable");
            assert_eq!(would_be(&events), told.into_iter().collect::<Vec<_>>(), "{file}");
        }
    }
}

/// The outer flow of a refused packet has a verdict in its record.
#[test]
fn the_record_of_a_refused_tunnel_says_so() {
    for (policy, reason) in [(ENFORCED, Some("tunnel_inner")), (STAGED, None)] {
        for v6 in [false, true] {
            let mut bench = Bench::new("carrier", v6, policy);
            let inner = ethernet(v6, &ip(v6, (1, 2), 17, &udp((1000, 53), b"bad")));
            let outer = bartizan_testkit::layers::vxlan(7, &inner);
            let became = bench.packet(&ip(v6, (3, 4), 17, &udp((5000, 4789), &outer)));
            assert_eq!(became == Became::GoesOn, reason.is_none(), "{became:?}");
            let events = bench.finish();
            let carrier = events.iter().find(|e| e["event_type"] == "flow" && e["dest_port"] == 4789);
            let own = &carrier.expect("a record of the carrier")["bartizan"];
            match reason {
                Some(reason) => {
                    assert_eq!((&own["verdict"], &own["reason"]), (&"drop".into(), &reason.into()))
                }
                None => {
                    assert_eq!(own["allowed_by"], "default");
                    assert_eq!(would_be(&events), ["tunnel_inner"]);
                }
            }
        }
    }
}

/// No policy selects frames that are not IP: they pass whatever the default is, and are counted.
#[test]
fn frames_that_are_not_ip_are_counted() {
    for v6 in [false, true] {
        let mut bench = Bench::of_file("not-ip", v6, "policies: []\ndefault: {action: drop}\n");
        // EAPOL, PPPoE discovery, MACsec, IPX, a length as in 802.3, an unknown type.
        for kind in [0x888e, 0x8863, 0x88e5, 0x8137, 38, 0x9999] {
            assert_eq!(
                bench.raw(bartizan_testkit::layers::ethernet(kind, &[1; 50])),
                Became::GoesOn,
                "{kind:#x}"
            );
        }
        let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[2; 20]].concat();
        assert_eq!(bench.raw(bartizan_testkit::layers::ethernet(0x0806, &arp)), Became::GoesOn);
        let datagram = ip(v6, (1, 2), 17, &udp((1000, 53), b"x"));
        assert_eq!(bench.packet(&datagram), Became::Refused(Reason::PolicyDefault));
        let (worker, _) = bench.stack.finish();
        assert_eq!(worker.counters().not_ip, 6);
    }
}

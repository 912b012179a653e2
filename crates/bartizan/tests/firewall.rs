// SPDX-License-Identifier: Apache-2.0
//! Firewall mode over packets: the verdict of each, in IPv4 and IPv6. The expected verdicts in the tables
//! are Suricata 8.0.8's for the same rules and conversations.

use bartizan_base::{Reason, Timestamp, Verdict};
use bartizan_testkit::hosts::{ethernet, fragments, ip, tcp, udp};
use bartizan_testkit_worker::{Captured, FIREWALL, Made, Stack, events};

const SYN: u8 = 2;
const ACK: u8 = 16;
const PSH_ACK: u8 = 24;
const FIN_ACK: u8 = 17;
const IDS: &str = "chain: [ids], ids: {rules: r}";
const REQUEST: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: example.org\r\nUser-Agent: curl\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: nginx\r\n\r\nhello";
/// Every packet continues with the next table.
const ALL: &str = "accept:hook ip:all any any -> any any (sid:1;)\n";

/// A conversation, packet by packet: side, flags, payload.
type Packets = Vec<(usize, u8, Vec<u8>)>;

fn opening() -> Packets {
    vec![(0, SYN, vec![]), (1, SYN | ACK, vec![]), (0, ACK, vec![])]
}

fn http(requests: &[&[u8]], responses: &[&[u8]]) -> Packets {
    let mut all = opening();
    for part in requests {
        all.push((0, PSH_ACK, part.to_vec()));
        all.push((1, ACK, vec![]));
    }
    for part in responses {
        all.push((1, PSH_ACK, part.to_vec()));
        all.push((0, ACK, vec![]));
    }
    all.extend([(0, FIN_ACK, vec![]), (1, FIN_ACK, vec![]), (0, ACK, vec![])]);
    all
}

fn plain() -> Packets {
    http(&[REQUEST], &[RESPONSE])
}

/// Request and response in two parts each, cut in the middle of a header and of the first line.
fn cut() -> Packets {
    http(&[&REQUEST[..30], &REQUEST[30..]], &[&RESPONSE[..20], &RESPONSE[20..]])
}

/// One letter for each packet: its verdict.
fn letter(reason: Option<Reason>) -> char {
    match reason {
        None => '.',
        Some(Reason::FirewallRule) => 'r',
        Some(Reason::FirewallPacketPolicy) => 'p',
        Some(Reason::FirewallAppPolicy) => 'a',
        Some(Reason::FirewallFlow) => 'f',
        Some(Reason::IdsRule) => 'R',
        Some(Reason::IdsFlow) => 'F',
        Some(other) => panic!("{}", other.name()),
    }
}

struct Run {
    stack: Stack,
    v6: bool,
    next: [u32; 2],
    millis: u64,
}

impl Run {
    fn new(name: &str, v6: bool, set: &[(&str, &str)], firewall: &str, detection: &str) -> Self {
        let rules = format!("{detection}{FIREWALL}{firewall}");
        let set = [&[("firewall.enabled", "yes")], set].concat();
        let name = format!("firewall-{name}-{v6}");
        let made = Made { name: &name, policy: IDS, set: &set, tune: |_| (), rules: &rules, thresholds: "" };
        Run { stack: Stack::new(&made), v6, next: [1000, 5000], millis: 0 }
    }

    fn frame(&mut self, ends: (u8, u8), protocol: u8, body: &[u8]) -> Option<Reason> {
        self.millis += 1;
        let now = Timestamp::from_nanos(1_000_000_000 + self.millis * 1_000_000);
        let frame = Captured { now, bytes: ethernet(self.v6, &ip(self.v6, ends, protocol, body)) };
        let decision = self
            .stack
            .worker
            .frame(&frame.frame(self.millis), &mut self.stack.recorder)
            .expect("no fragment");
        assert_eq!(decision.verdict.forwards(), decision.reason.is_none());
        if decision.verdict == Verdict::Reject {
            assert!(decision.reason.is_some_and(Reason::is_firewall));
        }
        decision.reason
    }

    fn segment(&mut self, side: usize, flags: u8, payload: &[u8]) -> Option<Reason> {
        let (ends, ports) = [((1, 2), (40_000, 80)), ((2, 1), (80, 40_000))][side];
        let ack = if flags & ACK > 0 { self.next[1 - side] } else { 0 };
        let reason = self.frame(ends, 6, &tcp(ports, self.next[side], ack, flags, payload));
        self.next[side] = self.next[side].wrapping_add(payload.len() as u32 + u32::from(flags & 3 != 0));
        reason
    }

    fn play(&mut self, packets: &Packets) -> String {
        packets.iter().map(|(side, flags, payload)| letter(self.segment(*side, *flags, payload))).collect()
    }

    fn datagram(&mut self, side: usize, payload: &[u8]) -> Option<Reason> {
        let (ends, ports) = [((1, 2), (35_353, 53)), ((2, 1), (53, 35_353))][side];
        self.frame(ends, 17, &udp(ports, payload))
    }
}

/// Runs the packets under the rules, in both versions of IP; returns the common verdicts, and the alerts: sid
/// and packet.
fn outcome(
    name: &str,
    set: &[(&str, &str)],
    firewall: &str,
    detection: &str,
    packets: &Packets,
) -> (String, Vec<(u64, u64)>) {
    let [four, six] = [false, true].map(|v6| {
        let mut run = Run::new(name, v6, set, firewall, detection);
        let said = run.play(packets);
        let (worker, events) = run.stack.finish();
        let refused: u64 = worker.counters().refused.iter().sum();
        assert_eq!(refused, said.chars().filter(|c| *c != '.').count() as u64, "{name}: each has a reason");
        let alerts: Vec<(u64, u64)> = events::of_type(&events, "alert")
            .map(|e| (e["alert"]["signature_id"].as_u64().unwrap(), e["pcap_cnt"].as_u64().unwrap_or(0)))
            .collect();
        (said, alerts)
    });
    assert_eq!(four, six, "{name}: IPv4 and IPv6");
    four
}

#[test]
fn packets_are_judged_table_by_table() {
    let rows: &[(&str, &str, &str)] = &[
        ("nothing is accepted", "", "pppppppppp"),
        ("the next table refuses", ALL, "...affffff"),
        ("packets as they are", "accept:packet tcp:all any any -> any any (sid:1;)", ".........."),
        (
            "the flow by its first packet",
            "accept:flow tcp:flow_start any any -> any 80 (sid:1;)",
            "..........",
        ),
        ("the first packet alone", "accept:hook tcp:flow_start any any -> any 80 (sid:1;)", ".ppppppppp"),
        (
            "a rule refuses a packet",
            "drop:packet tcp:all any any -> any any (flags:SA; sid:1;)\naccept:flow tcp:all any any -> any any (flags:A,SF; sid:2;)\naccept:packet tcp:all any any -> any any (sid:3;)",
            ".r........",
        ),
        (
            "a rule refuses the flow",
            "drop:flow tcp:all any any -> any any (flags:SA; sid:1;)\naccept:hook tcp:all any any -> any any (sid:2;)",
            ".rffffffff",
        ),
        (
            "a rule rejects the flow",
            "reject:flow tcp:all any any -> any any (flags:SA; sid:1;)\naccept:hook tcp:all any any -> any any (sid:2;)",
            ".rffffffff",
        ),
        (
            "the first that matches decides",
            "accept:packet tcp:all any any -> any any (sid:1;)\ndrop:flow tcp:all any any -> any any (sid:2;)",
            "..........",
        ),
        ("another port", "accept:packet tcp:all any any <> any 81 (sid:1;)", "pppppppppp"),
        ("another protocol", "accept:packet udp:all any any -> any any (sid:1;)", "pppppppppp"),
    ];
    for (name, rules, want) in rows {
        assert_eq!(outcome("tables", &[], rules, "", &plain()).0, *want, "{name}");
    }
}

#[test]
fn states_of_transactions_are_judged_one_by_one() {
    let host = "(http.host; content:\"example\"; sid:10;)";
    let every = |acts: &str| -> String {
        let sides = ["request", "response"];
        let states = ["started", "line", "headers", "body", "trailer", "complete"];
        let mut rules = ALL.to_owned();
        for (n, (side, state)) in sides.iter().flat_map(|s| states.map(|t| (*s, t))).enumerate() {
            rules.push_str(&format!("{acts} http1:{side}_{state} any any -> any any (sid:{};)\n", 20 + n));
        }
        rules
    };
    let rows: &[(&str, String, Packets, &str)] = &[
        ("every state", every("accept:hook"), plain(), ".........."),
        ("every state, cut", every("accept:hook"), cut(), ".............."),
        (
            "the transaction, both directions",
            format!("{ALL}accept:tx http1:request_started any any -> any any (sid:9;)"),
            plain(),
            "..........",
        ),
        (
            "up to a state, and no further",
            format!("{ALL}accept:hook http1:<request_headers any any -> any any {host}"),
            cut(),
            ".....affffffff",
        ),
        (
            "up to a state: it waits",
            format!("{ALL}accept:tx http1:<request_headers any any -> any any {host}"),
            cut(),
            "..............",
        ),
        (
            "without `<` it does not wait",
            format!(
                "{ALL}accept:hook http1:request_started any any -> any any (sid:7;)\naccept:hook http1:request_line any any -> any any (sid:8;)\naccept:tx http1:request_headers any any -> any any {host}"
            ),
            cut(),
            "...affffffffff",
        ),
        (
            "not what is asked for",
            format!(
                "{ALL}accept:hook http1:<request_headers any any -> any any (http.host; content:\"nothere\"; sid:10;)"
            ),
            cut(),
            ".....affffffff",
        ),
        (
            "a state is missing",
            format!(
                "{ALL}accept:hook http1:request_started any any -> any any (sid:9;)\naccept:tx http1:request_headers any any -> any any (sid:10;)"
            ),
            plain(),
            "...affffff",
        ),
        (
            "`<` behind a rule that accepted",
            format!(
                "{ALL}accept:hook http1:request_started any any -> any any (sid:9;)\naccept:tx http1:<request_headers any any -> any any {host}"
            ),
            plain(),
            "...affffff",
        ),
        (
            "the flow, by what is asked for",
            format!(
                "{ALL}accept:flow http1:<request_line any any -> any any (http.uri; content:\"index\"; sid:9;)"
            ),
            plain(),
            "..........",
        ),
        (
            "a rule refuses",
            format!(
                "{ALL}accept:hook http1:request_started any any -> any any (sid:9;)\ndrop:flow http1:request_line any any -> any any (http.uri; content:\"index\"; sid:10;)\naccept:tx http1:request_line any any -> any any (sid:11;)"
            ),
            plain(),
            "...rffffff",
        ),
        (
            "the order of states, not of the file",
            format!(
                "{ALL}accept:tx http1:request_headers any any -> any any {host}\naccept:hook http1:request_line any any -> any any (sid:11;)\naccept:hook http1:request_started any any -> any any (sid:12;)"
            ),
            plain(),
            "..........",
        ),
        (
            "the response has no rule",
            format!("{ALL}accept:hook http1:<request_complete any any -> any any (sid:9;)"),
            plain(),
            ".....affff",
        ),
    ];
    for (name, rules, packets, want) in rows {
        assert_eq!(outcome("states", &[], rules, "", packets).0, *want, "{name}");
    }
}

#[test]
fn policies_decide_where_no_rule_does() {
    let app = |key: &'static str, value: &'static str| vec![(key, value)];
    type Row<'r> = (&'r str, Vec<(&'r str, &'r str)>, &'r str, &'r str);
    let rows: &[Row<'_>] = &[
        ("packets", vec![("firewall.policies.packet.filter.0", "accept:packet")], "", ".........."),
        (
            "packets refuse the flow",
            vec![("firewall.policies.packet.filter.0", "drop:flow")],
            "",
            "pfffffffff",
        ),
        ("all", vec![("firewall.policies.default-policy.0", "accept:hook")], "", ".........."),
        (
            "all, packets apart",
            vec![
                ("firewall.policies.default-policy.0", "accept:hook"),
                ("firewall.policies.packet.default-policy.0", "drop:packet"),
            ],
            "",
            "pppppppppp",
        ),
        ("states", app("firewall.policies.app.default-policy.0", "accept:hook"), ALL, ".........."),
        ("a protocol", app("firewall.policies.app.http1.default-policy.0", "accept:hook"), ALL, ".........."),
        (
            "another protocol",
            app("firewall.policies.app.tls.default-policy.0", "accept:hook"),
            ALL,
            "...affffff",
        ),
        (
            "one state",
            vec![
                ("firewall.policies.app.default-policy.0", "accept:hook"),
                ("firewall.policies.app.http1.response-line.0", "drop:flow"),
            ],
            ALL,
            ".....affff",
        ),
        (
            "a transaction",
            app("firewall.policies.app.http1.request-started.0", "accept:tx"),
            ALL,
            "..........",
        ),
        (
            "before the flow, without rules there",
            app("firewall.policies.packet.pre-flow.0", "drop:packet"),
            "accept:packet tcp:all any any -> any any (sid:1;)",
            "..........",
        ),
    ];
    for (name, set, rules, want) in rows {
        assert_eq!(outcome("policies", set, rules, "", &plain()).0, *want, "{name}");
    }
}

#[test]
fn detection_sees_what_the_firewall_accepts() {
    const TX: &str = "accept:tx http1:request_started any any -> any any (sid:8;)";
    let curl = "alert tcp any any -> any any (content:\"curl\"; sid:100;)\n";
    let uri = "alert http any any -> any any (http.uri; content:\"index\"; sid:101;)\n";
    let syn = "alert tcp any any -> any any (flags:S; sid:102;)\n";
    let both = [ALL, TX].concat();
    let flow = "accept:flow tcp:all any any -> any any (sid:1;)";
    let packet = "accept:packet tcp:all any any -> any any (sid:1;)";
    type Row<'r> = (&'r str, &'r str, String, &'r str, &'r [(u64, u64)]);
    let rows: &[Row<'_>] = &[
        ("accepted", &both, [syn, curl, uri].concat(), "..........", &[(102, 1), (100, 4), (101, 4)]),
        ("the flow", flow, [syn, uri].concat(), "..........", &[(102, 1), (101, 4)]),
        // What a packet that is accepted as it is brings to transactions is not looked at.
        ("the packet", packet, [syn, uri].concat(), "..........", &[(102, 1)]),
        ("refused by packet", "", [syn, curl, uri].concat(), "pppppppppp", &[]),
        ("refused by state", ALL, [syn, uri].concat(), "...affffff", &[(102, 1)]),
        ("detection drops", &both, uri.replace("alert", "drop"), "...RFFFFFF", &[(101, 4)]),
        ("detection drops an accepted flow", flow, uri.replace("alert", "drop"), "...RFFFFFF", &[(101, 4)]),
        (
            "detection passes: the firewall does not",
            ALL,
            "pass tcp any any -> any any (sid:103;)\n".to_owned(),
            "...affffff",
            &[],
        ),
        (
            "the firewall passes the flow",
            "accept:flow,pass:flow tcp:all any any -> any any (flags:S; sid:1;)",
            [curl, uri].concat(),
            "..........",
            &[],
        ),
        (
            "the firewall passes a packet",
            "accept:packet,pass:packet tcp:all any any -> any any (flags:S; sid:1;)\naccept:flow tcp:all any any -> any any (sid:2;)",
            [syn, uri].concat(),
            "..........",
            &[(101, 4)],
        ),
        (
            "a bypass is no acceptance",
            ALL,
            "alert tcp any any -> any any (flags:SA; bypass; sid:104;)\n".to_owned(),
            "...affffff",
            &[(104, 2)],
        ),
    ];
    for (name, firewall, detection, want, alerts) in rows {
        let got = outcome("detection", &[], firewall, detection, &plain());
        assert_eq!((got.0.as_str(), got.1.as_slice()), (*want, *alerts), "{name}");
    }
}

#[test]
fn alerts_and_drops_name_the_firewall() {
    let firewall = format!(
        "{ALL}accept:hook,alert http1:request_started any any -> any any (sid:8;)\nreject:flow,alert http1:request_line any any -> any any (msg:\"no\"; http.uri; content:\"index\"; sid:9;)"
    );
    let named = [("outputs.1.eve-log.types.34.drop.alerts", "yes")];
    let mut run =
        Run::new("events", false, &named, &firewall, "alert tcp any any -> any any (flags:S; sid:100;)\n");
    assert_eq!(run.play(&plain()), "...rffffff");
    let (worker, events) = run.stack.finish();
    let alerts: Vec<_> = events::of_type(&events, "alert").collect();
    let engine: Vec<_> = alerts.iter().map(|e| e["alert"]["engine"].as_str().unwrap()).collect();
    assert_eq!(engine, ["td", "fw", "fw"]);
    assert_eq!(alerts[1]["firewall"]["hook"], "http:request_started");
    assert_eq!(alerts[2]["firewall"]["policy"], "rejectsrc:flow,alert");
    assert_eq!((&alerts[2]["alert"]["action"], &alerts[2]["tx_id"]), (&"blocked".into(), &0.into()));
    let drops: Vec<_> = events::of_type(&events, "drop").collect();
    assert_eq!(drops[0]["drop"]["reason"], "firewall rules");
    assert_eq!(drops[0]["alert"]["signature_id"], 9);
    assert!(drops.len() > 1 && drops.iter().skip(1).all(|d| d["drop"]["reason"] == "firewall flow drop"));
    let flow = events::first(&events, "flow");
    assert_eq!(flow["flow"]["action"], "drop");
    let mut stats = std::collections::BTreeMap::new();
    worker.visit_stats(|name, value| {
        stats.insert(name, value);
    });
    let of = |name: &str| stats.get(name).copied().unwrap_or(u64::MAX);
    assert_eq!((of("firewall.accepted"), of("firewall.blocked"), of("firewall.rejected")), (3, 6, 1));
    assert_eq!((of("firewall.drop_reason.rules"), of("firewall.drop_reason.flow_drop")), (1, 6));
    assert_eq!((of("ips.accepted"), of("ips.blocked"), of("ips.rejected")), (3, 0, 0));
}

#[test]
fn a_refused_packet_that_comes_again_is_judged_again() {
    // The request comes while no packet with payload is accepted; an acknowledgement in between lifts
    // nothing.
    for v6 in [false, true] {
        let firewall = "accept:packet tcp:all any any -> any any (flow:not_established; sid:1;)\naccept:hook tcp:all any any -> any any (dsize:0; sid:2;)\naccept:hook tcp:all any any -> any any (dsize:<30; sid:3;)\naccept:tx http1:<request_line any any -> any any (http.uri; content:\"good\"; sid:4;)";
        let mut run = Run::new("again", v6, &[], firewall, "");
        assert_eq!(run.play(&opening()), "...");
        let whole = b"GET /evil HTTP/1.1\r\nHost: example.org\r\n\r\n";
        assert_eq!(run.segment(0, PSH_ACK, whole), Some(Reason::FirewallPacketPolicy), "too long");
        // The sender sends it again in pieces that the filter accepts: the transaction is judged before any
        // of them leaves.
        run.next[0] -= whole.len() as u32;
        assert_eq!(run.segment(0, PSH_ACK, &whole[..20]), Some(Reason::FirewallAppPolicy));
        assert_eq!(run.segment(0, PSH_ACK, &whole[20..]), Some(Reason::FirewallFlow));
    }
}

#[test]
fn an_accepted_flow_is_judged_by_the_next_rules() {
    for v6 in [false, true] {
        let accept = format!("{FIREWALL}accept:flow udp:all any any -> any 53 (sid:1;)");
        let mut run = Run::new("reload", v6, &[], "accept:flow udp:all any any -> any 53 (sid:1;)", "");
        assert_eq!((run.datagram(0, b"x"), run.datagram(1, b"y")), (None, None));
        // The same rule: the flow stays accepted, also where the rule itself would not match.
        run.stack.swap(IDS, &accept);
        assert_eq!(run.datagram(1, b"y"), None);
        run.stack.swap(IDS, &format!("{FIREWALL}accept:flow udp:all any any -> any 54 (sid:2;)"));
        assert_eq!(run.datagram(1, b"y"), Some(Reason::FirewallPacketPolicy));
        assert_eq!(run.datagram(0, b"x"), Some(Reason::FirewallPacketPolicy));
    }
}

#[test]
fn fragments_leave_when_their_datagram_is_accepted() {
    for v6 in [false, true] {
        let body = udp((35_353, 53), &[b'x'; 100]);
        for (port, want) in [(53, None), (54, Some(Reason::FirewallPacketPolicy))] {
            let accept = format!("accept:packet udp:all any any -> any {port} (sid:1;)");
            let mut run = Run::new("fragments", v6, &[], &accept, "");
            let parts = fragments(v6, (1, 2), 17, 9, &body, 64);
            let mut last = None;
            for (n, part) in (1..).zip(&parts) {
                let now = Timestamp::from_nanos(1_000_000_000 + n);
                let frame = Captured { now, bytes: ethernet(v6, part) };
                last = run.stack.worker.frame(&frame.frame(n), &mut run.stack.recorder);
                assert_eq!(last.is_none(), n < parts.len() as u64, "they wait");
            }
            assert_eq!(last.unwrap().reason, want, "{v6} {port}");
            assert_eq!(run.stack.worker.has_released(), want.is_none(), "{v6} {port}");
        }
    }
}

#[test]
fn what_is_not_ip_needs_the_policy_of_arp() {
    let arp = || {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        frame.resize(60, 0);
        Captured { now: Timestamp::from_nanos(1_000_000_000), bytes: frame }
    };
    for (set, want) in
        [(&[][..], Some(Reason::FirewallPacketPolicy)), (&[("firewall.policies.accept-arp", "yes")], None)]
    {
        let mut run = Run::new("arp", false, set, "accept:packet ip:all any any -> any any (sid:1;)", "");
        let decision = run.stack.worker.frame(&arp().frame(1), &mut run.stack.recorder).unwrap();
        assert_eq!(decision.reason, want);
    }
}

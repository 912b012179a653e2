// SPDX-License-Identifier: Apache-2.0
//! Results of the one lookup reach the packet filter in a worker: for flows, packets without a flow, ICMP,
//! reversed flows, and other generations.

use crate::common;

use bartizan_agent::Agent;
use bartizan_base::{Decision, LinkId, Reason, SettingsMap, Timestamp};
use bartizan_dataplane::explain::first::Nobody;
use bartizan_dataplane::worker::{Frame, Worker};
use bartizan_packet::LinkType;
use bartizan_testkit::packet;
use common::{agent, engine, read};
use std::sync::Arc;

const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;

/// Every test runs with both IP versions: client, server, another host.
const ENDS: [[&str; 3]; 2] =
    [["10.0.0.1", "192.0.2.1", "172.16.0.9"], ["2001:db8::1", "fd00::1", "2001:db8:ffff::9"]];

struct Bench {
    agent: Agent,
    worker: Worker,
}

impl Bench {
    fn new(text: &str) -> Self {
        let mut agent = agent();
        let chains = Bench::chains(&mut agent, text);
        let mut settings = SettingsMap::default();
        settings.set("stream.midstream", "true");
        settings.set("stream.midstream-policy", "ignore");
        settings.set("pcap-file.checksum-checks", "no");
        let (settings, engine) = engine(&settings);
        Bench { agent, worker: Worker::new(settings, engine, chains).expect("a worker") }
    }

    fn chains(agent: &mut Agent, text: &str) -> Arc<bartizan_stages::chain::Chains> {
        let file = read(agent, text);
        Arc::new(agent.prepare(&file, &[]).expect("a generation").chains)
    }

    fn swap(&mut self, text: &str) {
        let chains = Bench::chains(&mut self.agent, text);
        self.worker.enter_generation(chains);
    }

    fn decide(&mut self, bytes: &[u8]) -> Decision {
        self.worker
            .frame(
                &Frame {
                    now: Timestamp::from_parts(1, 0),
                    bytes,
                    wire_len: bytes.len() as u32,
                    link_type: LinkType::RAW,
                    link: LinkId(1),
                    number: None,
                },
                &mut Nobody,
            )
            .unwrap()
    }

    /// Reason of the drop, and number of the rule.
    fn refused(&mut self, bytes: &[u8]) -> Option<(Reason, u32)> {
        let decision = self.decide(bytes);
        let rule = decision.rule.map_or(0, core::num::NonZeroU32::get);
        (!decision.verdict.forwards()).then(|| (decision.reason.expect("a reason"), rule))
    }
}

fn end((address, port): (&str, u16)) -> packet::End {
    (address.parse().unwrap(), port)
}

fn tcp(from: (&str, u16), to: (&str, u16), flags: u8) -> Vec<u8> {
    packet::tcp(end(from), end(to), (9, 10), flags, &[]).bytes()
}

fn udp(from: (&str, u16), to: (&str, u16)) -> Vec<u8> {
    packet::udp(end(from), end(to), b"x").bytes()
}

/// An ICMP message; `kind`: the types for ICMP and ICMPv6.
fn icmp(from: &str, to: &str, kind: (u8, u8), code: u8, rest: &[u8]) -> Vec<u8> {
    packet::icmp(end((from, 0)).0, end((to, 0)).0, kind, code, rest).bytes()
}

const WEB: &str = "\
policies:
  - name: web
    from: [10.0.0.0/8, \"2001:db8::/48\"]
    to: [192.0.2.0/24, \"fd00::/16\"]
    chain: [pfw]
    pfw: {default: drop, rules: [{drop: tcp, to-ports: 23}, {allow: tcp, to-ports: 80}]}
  - {name: rest, chain: [pfw], pfw: {default: allow, rules: [{reject: [icmp, icmpv6], type: [1, 3]}]}}
default: {action: allow}
";

#[test]
fn flows_get_the_rule_of_their_policy() {
    for [client, server, other] in ENDS {
        let mut bench = Bench::new(WEB);
        assert_eq!(bench.refused(&tcp((client, 4_000), (server, 80), SYN)), None);
        for _ in 0..2 {
            // A flow that is refused stays so, by the same rule, in both directions.
            assert_eq!(bench.refused(&tcp((client, 4_000), (server, 23), SYN)), Some((Reason::PfwRule, 1)));
            assert_eq!(
                bench.refused(&tcp((server, 23), (client, 4_000), SYN_ACK)),
                Some((Reason::PfwRule, 1))
            );
        }
        assert_eq!(bench.refused(&udp((client, 4_000), (server, 53))), Some((Reason::PfwDefault, 0)));
        // Of the other policy, whose default is another.
        assert_eq!(bench.refused(&udp((client, 4_000), (other, 53))), None);
    }
}

#[test]
fn a_flow_that_is_turned_is_judged_by_the_side_that_opened_it() {
    for [client, server, _] in ENDS {
        let mut bench = Bench::new(WEB);
        assert_eq!(bench.refused(&tcp((server, 80), (client, 4_000), SYN_ACK)), None);
        assert_eq!(bench.refused(&tcp((server, 23), (client, 4_000), SYN_ACK)), Some((Reason::PfwRule, 1)));
    }
}

#[test]
fn an_error_about_an_unknown_flow_is_of_the_policy_of_its_own_addresses() {
    for [client, server, other] in ENDS {
        let mut bench = Bench::new(WEB);
        // It quotes a packet that `web` would be about, which anyone can write.
        let quoted = udp((client, 4_000), (server, 53));
        let error = icmp(other, client, (3, 1), 3, &[&[0; 4], quoted.as_slice()].concat());
        assert_eq!(bench.refused(&error), Some((Reason::PfwRule, 1)));
    }
}

#[test]
fn icmp_is_judged_by_the_type_and_code_of_the_packet() {
    let text = "policies: [{name: p, chain: [pfw], pfw: {default: drop, \
                rules: [{allow: [icmp, icmpv6], type: [8, 128, 13], code: 0}]}}]\ndefault: {action: allow}\n";
    for [client, server, _] in ENDS {
        let mut bench = Bench::new(text);
        for _ in 0..2 {
            assert_eq!(bench.refused(&icmp(client, server, (8, 128), 0, &[0, 1, 0, 1])), None);
            assert_eq!(bench.refused(&icmp(server, client, (0, 129), 0, &[0, 1, 0, 1])), None);
            let odd = icmp(client, server, (8, 128), 1, &[0, 1, 0, 1]);
            assert_eq!(bench.refused(&odd), Some((Reason::PfwDefault, 0)));
        }
    }
}

#[test]
fn another_generation_looks_flows_up_again() {
    let deny = WEB.replace("allow: tcp, to-ports: 80", "drop: tcp, to-ports: 80");
    for [client, server, _] in ENDS {
        let mut bench = Bench::new(&deny);
        let syn = tcp((client, 4_000), (server, 80), SYN);
        assert_eq!(bench.refused(&syn), Some((Reason::PfwRule, 2)));
        bench.swap(WEB);
        assert_eq!(bench.refused(&syn), None);
        bench.swap(&deny);
        assert_eq!(bench.refused(&syn), Some((Reason::PfwRule, 2)));
    }
}

#[test]
fn what_a_staged_policy_would_refuse_goes_on() {
    let staged = WEB.replace("name: web\n", "name: web\n    staged: true\n");
    for [client, server, other] in ENDS {
        let mut bench = Bench::new(&staged);
        assert_eq!(bench.refused(&udp((client, 4_000), (server, 53))), None);
        assert_eq!(bench.refused(&icmp(other, client, (3, 1), 0, &[0; 4])), Some((Reason::PfwRule, 1)));
    }
}

#[test]
fn tenants_with_equal_addresses_have_their_own_rules_also_without_a_flow() {
    let text = "\
tenants: [{name: a, select: {vlan: 1}}, {name: b, select: {vlan: 2}}]
policies:
  - {name: all, tenant: any, chain: [pfw], pfw: {default: drop, rules: [{allow: any, tenant: b}]}}
default: {action: allow}
";
    for [client, server, other] in ENDS {
        let mut bench = Bench::new(text);
        let quoted = udp((client, 4_000), (server, 53));
        let error = icmp(other, client, (3, 1), 3, &[&[0; 4], quoted.as_slice()].concat());
        for packet in [udp((client, 4_000), (server, 53)), error] {
            let kind: [u8; 2] = if client.contains(':') { [0x86, 0xdd] } else { [8, 0] };
            let tagged = |vlan: u8| [&[2; 12][..], &[0x81, 0, 0, vlan], &kind, &packet].concat();
            let decisions = [1, 2].map(|vlan| {
                let bytes = tagged(vlan);
                let frame = Frame {
                    now: Timestamp::from_parts(1, 0),
                    bytes: &bytes,
                    wire_len: bytes.len() as u32,
                    link_type: LinkType::ETHERNET,
                    link: LinkId(1),
                    number: None,
                };
                bench.worker.frame(&frame, &mut Nobody).unwrap().reason
            });
            assert_eq!(decisions, [Some(Reason::PfwDefault), None]);
        }
    }
}

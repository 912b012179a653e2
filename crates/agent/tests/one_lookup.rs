// SPDX-License-Identifier: Apache-2.0
//! The one lookup for policies and packet filters agrees with a linear search for the policy and then for its
//! rule, whether the rules share one structure or each policy has its own.

use crate::common;

use bartizan_agent::{Agent, PolicyEntries, Prepared, TOGETHER_MAX};
use bartizan_base::{LinkId, TenantId, Timestamp};
use bartizan_classify::{Classifier, Header, Linear};
use bartizan_config::policy::Prefix;
use bartizan_stages::chain::HeaderRuleMatches;
use common::{agent, links, read};
use core::net::IpAddr;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::fmt::Write;

const NETS: [&str; 10] = [
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.0/24",
    "10.1.2.3",
    "192.0.2.0/24",
    "192.0.2.128/25",
    "2001:db8::/32",
    "2001:db8:1::/48",
    "2001:db8:1::7",
    "any",
];
const V4: [&str; 7] =
    ["10.0.0.1", "10.1.0.1", "10.1.2.4", "10.1.2.3", "192.0.2.1", "192.0.2.200", "203.0.113.1"];
const V6: [&str; 4] = ["2001:db8::1", "2001:db8:1::7", "2001:db8:1::8", "fe80::1"];
const TENANTS: [&str; 3] = ["default", "a", "b"];
const LINKS: [&str; 2] = ["wan", "dmz"];
const PORTS: [(u16, u16); 5] = [(80, 80), (443, 443), (53, 53), (20, 90), (1024, 65535)];

#[derive(Clone, Debug)]
struct Rule {
    action: &'static str,
    protocols: Vec<(&'static str, Option<u8>)>,
    from: Vec<&'static str>,
    to: Vec<&'static str>,
    /// Ports for TCP and UDP; type and code for ICMP.
    first: Vec<(u16, u16)>,
    second: Vec<(u16, u16)>,
    tenants: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Policy {
    /// Tenants; empty for all.
    tenants: Vec<usize>,
    links: Vec<usize>,
    from: Vec<&'static str>,
    to: Vec<&'static str>,
    staged: bool,
    rules: Option<Vec<Rule>>,
}

fn lies(targets: &[&str], address: IpAddr) -> bool {
    targets.iter().any(|t| *t == "any" || t.parse::<Prefix>().unwrap().contains(address))
}

fn ports(list: &[(u16, u16)], port: u16) -> bool {
    list.is_empty() || list.iter().any(|(first, last)| (*first..=*last).contains(&port))
}

impl Rule {
    fn matches(&self, policy: &Policy, header: &Header) -> bool {
        let side = |own: &[&str], of_policy: &[&str], address| {
            lies(if own.is_empty() { of_policy } else { own }, address)
        };
        self.protocols.iter().any(|(_, p)| p.is_none_or(|p| p == header.protocol))
            && side(&self.from, &policy.from, header.source)
            && side(&self.to, &policy.to, header.destination)
            && ports(&self.first, header.source_port)
            && ports(&self.second, header.destination_port)
            && (self.tenants.is_empty() || self.tenants.contains(&usize::from(header.tenant.0)))
    }

    fn text(&self) -> String {
        let names: Vec<&str> = self.protocols.iter().map(|(name, _)| *name).collect();
        let mut text = format!("{{{}: [{}]", self.action, names.join(", "));
        let icmp = names[0] == "icmp";
        let keys = if icmp { ["type", "code"] } else { ["from-ports", "to-ports"] };
        for (key, list) in keys.iter().zip([&self.first, &self.second]) {
            let list: Vec<String> = list.iter().map(|(a, b)| format!("\"{a}-{b}\"")).collect();
            if !list.is_empty() {
                write!(text, ", {key}: [{}]", list.join(", ")).unwrap();
            }
        }
        for (key, list) in [("from", &self.from), ("to", &self.to)] {
            if !list.is_empty() {
                write!(text, ", {key}: [{}]", quoted(list)).unwrap();
            }
        }
        if !self.tenants.is_empty() {
            write!(text, ", tenant: [{}]", named(&self.tenants, &TENANTS)).unwrap();
        }
        text + "}"
    }
}

fn quoted(list: &[&str]) -> String {
    list.iter().map(|t| format!("\"{t}\"")).collect::<Vec<_>>().join(", ")
}

fn named(numbers: &[usize], names: &[&str]) -> String {
    numbers.iter().map(|n| names[*n]).collect::<Vec<_>>().join(", ")
}

impl Policy {
    fn selects(&self, header: &Header) -> bool {
        let way = |a, b| lies(&self.from, a) && lies(&self.to, b);
        (self.tenants.is_empty() || self.tenants.contains(&usize::from(header.tenant.0)))
            && (self.links.is_empty() || self.links.contains(&usize::from(header.link.0)))
            && (way(header.source, header.destination) || way(header.destination, header.source))
    }

    fn chain(&self) -> String {
        match &self.rules {
            None => "chain: []".to_owned(),
            Some(rules) => {
                let rules: Vec<String> = rules.iter().map(Rule::text).collect();
                format!(
                    "chain: [pfw], staged: {}, pfw: {{default: drop, rules: [{}]}}",
                    self.staged,
                    rules.join(", ")
                )
            }
        }
    }
}

/// The file of some policies; the last is the default.
fn text(policies: &[Policy]) -> String {
    let mut text = String::from(
        "tenants: [{name: a, select: {vlan: 1}}, {name: b, select: {vlan: 2}}]\n\
         rule-groups: {}\npolicies:\n",
    );
    let (default, named_ones) = policies.split_last().unwrap();
    for (number, policy) in named_ones.iter().enumerate() {
        write!(text, "  - {{name: p{number}, from: [{}], to: [{}]", quoted(&policy.from), quoted(&policy.to))
            .unwrap();
        let tenants = named(&policy.tenants, &TENANTS);
        write!(text, ", tenant: [{}]", if tenants.is_empty() { "any" } else { &tenants }).unwrap();
        if !policy.links.is_empty() {
            write!(text, ", link: [{}]", named(&policy.links, &LINKS)).unwrap();
        }
        writeln!(text, ", {}}}", policy.chain()).unwrap();
    }
    writeln!(text, "default: {{action: allow, {}}}", default.chain()).unwrap();
    text
}

/// Targets of both IP versions, or none, so that two lists always have a version in common: rules that never
/// match are errors. No header has the addresses that are added for it.
fn nets(least: usize) -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(NETS.to_vec(), least..=3).prop_map(|mut nets| {
        for (version, filler) in [('.', "203.0.113.7"), (':', "2001:db8:ffff::7")] {
            let has = nets.iter().any(|net| *net == "any" || net.contains(version));
            if !nets.is_empty() && !has {
                nets.push(filler);
            }
        }
        nets
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let with_ports = subsequence(vec![("tcp", Some(6)), ("udp", Some(17)), ("sctp", Some(132))], 1..=2)
        .prop_flat_map(|p| (Just(p), subsequence(PORTS.to_vec(), 0..=2), subsequence(PORTS.to_vec(), 0..=2)));
    let icmp = subsequence(vec![("icmp", Some(1)), ("icmpv6", Some(58))], 1..=2)
        .prop_filter("icmp first", |p| p[0].0 == "icmp");
    let icmp = icmp.prop_flat_map(|p| {
        (
            Just(p),
            subsequence(vec![(8, 8), (128, 128), (3, 5)], 0..=2),
            subsequence(vec![(0, 0), (1, 3)], 0..=1),
        )
    });
    let others = select(vec![("any", None), ("47", Some(47)), ("tcp", Some(6))])
        .prop_map(|p| (vec![p], Vec::new(), Vec::new()));
    let tenants = prop_oneof![3 => Just(Vec::new()), 1 => subsequence(vec![0, 1, 2], 1..=2)];
    let what = prop_oneof![3 => with_ports, 1 => icmp, 1 => others];
    (select(vec!["allow", "drop", "reject"]), what, nets(0), nets(0), tenants).prop_map(
        |(action, (protocols, first, second), from, to, tenants)| Rule {
            action,
            protocols,
            from,
            to,
            first,
            second,
            tenants,
        },
    )
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let tenants = prop_oneof![2 => Just(Vec::new()), 2 => subsequence(vec![0, 1, 2], 1..=3)];
    let links = prop_oneof![3 => Just(Vec::new()), 1 => subsequence(vec![0, 1], 1..=1)];
    let rules = proptest::option::weighted(0.8, proptest::collection::vec(rule(), 0..6));
    (tenants, links, nets(1), nets(1), any::<bool>(), rules).prop_map(
        |(tenants, links, from, to, staged, rules)| Policy { tenants, links, from, to, staged, rules },
    )
}

fn header() -> impl Strategy<Value = Header> {
    let pair = prop_oneof![
        3 => (select(V4.to_vec()), select(V4.to_vec())),
        2 => (select(V6.to_vec()), select(V6.to_vec())),
    ];
    let flow = prop_oneof![
        4 => (select(vec![6u8, 17, 132]), select(vec![53u16, 5_000]), select(vec![53u16, 80, 443, 8_080])),
        1 => (select(vec![1u8, 58]), select(vec![0u16, 3, 8, 128]), select(vec![0u16, 1, 4])),
        1 => (Just(47u8), Just(0), Just(0)),
    ];
    (pair, flow, 0u16..3, 0u16..2).prop_map(
        |((source, destination), (protocol, source_port, destination_port), tenant, link)| Header {
            tenant: TenantId(tenant),
            link: LinkId(link),
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol,
            source_port,
            destination_port,
        },
    )
}

fn prepare(text: &str, together_max: usize) -> (Agent, Prepared, PolicyEntries) {
    let mut agent = agent();
    agent.set_together_max(together_max);
    let (file, links) = (read(&agent, text), links(&LINKS));
    let before = format!("{agent:?}");
    let entries = agent.policy_entries(&file, &links).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(format!("{agent:?}"), before, "entries by themselves change nothing");
    let prepared = agent.prepare(&file, &links).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (agent, prepared, entries)
}

/// The number of the policy, and of its rule, by linear search.
fn search(policies: &[Policy], header: &Header) -> (usize, Option<u32>) {
    let last = policies.len() - 1;
    let chosen = policies[..last].iter().position(|p| p.selects(header)).unwrap_or(last);
    let policy = &policies[chosen];
    let rules = policy.rules.as_deref().unwrap_or_default();
    let rule = rules.iter().position(|rule| rule.matches(policy, header));
    (chosen, rule.map(|rule| rule as u32))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn one_lookup_answers_as_choosing_the_policy_and_then_its_rule(
        policies in proptest::collection::vec(any_policy(), 0..6),
        default in any_policy(),
        headers in proptest::collection::vec(header(), 60),
    ) {
        let default = Policy { tenants: vec![], links: vec![], from: vec!["any"], to: vec!["any"], ..default };
        let policies: Vec<Policy> = policies.into_iter().chain([default]).collect();
        let text = text(&policies);
        for together_max in [TOGETHER_MAX, 0] {
            let (agent, prepared, alone) = prepare(&text, together_max);
            prop_assert_eq!(&alone.tenants, &agent.tenants());
            let mut numbers = Linear::new(1);
            numbers.insert(0, &alone.entries).expect("one set");
            let pfw = agent.function_id("pfw").expect("a filter");
            // Earlier content must be cleared.
            let mut matches: HeaderRuleMatches = [(pfw, 99)].into_iter().collect();
            for header in &headers {
                let class = prepared.chains.classifier.classify(header, Timestamp::ZERO, &mut matches);
                let info = prepared.classes.iter().find(|c| c.fid == class.fid).expect("a class");
                let (policy, rule) = search(&policies, header);
                let name = (policy + 1 < policies.len()).then(|| format!("p{policy}"));
                prop_assert_eq!(&info.policy, &name, "{:?}\n{}", header, text);
                let mut number = [None];
                numbers.lookup(header, &mut number);
                let number = number[0].map_or(policies.len() - 1, |m| m.fid.0 as usize);
                prop_assert_eq!(number, policy, "{:?}\n{}", header, text);
                prop_assert_eq!(&info.tenant, TENANTS[usize::from(header.tenant.0)]);
                let told = prepared.chains.classifier.explain(header, Timestamp::ZERO).expect("an explanation");
                let of = |name| told.sets.iter().find(|s| s.set == name).map(|s| s.matching.clone());
                let (last, selecting) = (policies.len() - 1, policies[..policies.len() - 1].iter().enumerate());
                let selecting: Vec<_> =
                    selecting.filter(|(_, p)| p.selects(header)).map(|(n, _)| format!("p{n}")).collect();
                prop_assert_eq!(of("policies"), Some(selecting));
                let chosen = &policies[policy.min(last)];
                let fitting = chosen.rules.as_ref().map(|rules| {
                    let fitting = rules.iter().zip(1..).filter(|(r, _)| r.matches(chosen, header));
                    fitting.map(|(_, number)| format!("rule {number}")).collect::<Vec<_>>()
                });
                prop_assert_eq!(of("pfw"), fitting, "{:?} of {}\n{}", header, together_max, text);
                let found: Vec<_> = matches.iter().copied().collect();
                let expected: Vec<_> = rule.map(|rule| (pfw, rule)).into_iter().collect();
                prop_assert_eq!(found, expected, "{:?} of {}\n{}", header, together_max, text);
            }
        }
    }
}

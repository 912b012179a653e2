// SPDX-License-Identifier: Apache-2.0
//! Signature groups: never fewer heads than a flow can meet, and as few as the bounds allow.

use bartizan_base::{Direction, LinkId, SettingsMap, TenantId};
use bartizan_classify::Header;
use bartizan_detect::groups::{Groups, HeadGroup, RULES_MAX};
use bartizan_detect::header::Ends;
use bartizan_detect::heads::{Heads, RuleHead};
use bartizan_detect::ruleset::{LoadInput, load};
use bartizan_detect::signature::Family;
use bartizan_pattern::{Compiler, Config};
use bartizan_rules::RuleVariables;
use core::net::IpAddr;
use proptest::prelude::*;
use proptest::sample::select;

/// The tenant that has variables of its own.
const OWN: TenantId = TenantId(7);

/// Addresses of several networks.
const MANY: &str = "[192.0.2.1,192.0.2.7,198.51.100.0/24]";

fn variables(home: &str, server_ports: &str) -> RuleVariables {
    let mut variables = RuleVariables::new();
    variables.set_address("HOME_NET", home).unwrap();
    variables.set_address("EXTERNAL_NET", "!$HOME_NET").unwrap();
    variables.set_port("SERVER_PORTS", server_ports).unwrap();
    variables
}

/// Heads of rules, in the order of the rules; equal ones are one.
fn heads(rules: &[String]) -> Heads {
    let text: Vec<String> =
        rules.iter().enumerate().map(|(i, head)| format!("alert {head} (sid:{};)", i + 1)).collect();
    let own = [(OWN, variables("[172.16.0.0/12,2001:db8:7::/48]", "[22,8000:8100]"))];
    let input = LoadInput {
        settings: &SettingsMap::new(),
        variables: &variables("[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]", "[80,443]"),
        classifications: None,
        references: None,
        shared: &Default::default(),
        compiler: &Compiler::new(Config::default()).unwrap(),
        tenants: &own,
        known: None,
    };
    let loaded = load(&mut [bartizan_rules::parse_file(text.join("\n").as_bytes(), "r")], &input).unwrap();
    assert!(loaded.diagnostics.is_empty(), "{:?}", loaded.diagnostics);
    loaded.rules.heads
}

/// The group of a header, by linear search.
fn group<'g>(groups: &'g Groups, set: usize, header: &Header, direction: Direction) -> Option<HeadGroup<'g>> {
    let matching = groups.header_rules().iter().filter(|(_, rule)| rule.matches(header));
    groups.find(matching.map(|(number, _)| *number).min()?, set, header.source_port, direction)
}

/// Whether packets of a flow in a direction meet a head.
fn meets(head: &RuleHead, header: &Header, direction: Direction) -> bool {
    let client = Some((header.source, Some(header.source_port)));
    let server = Some((header.destination, Some(header.destination_port)));
    let ends = Ends { source: client, destination: server };
    let ends = if direction == Direction::ToServer { ends } else { ends.turned() };
    let family = match head.family {
        Family::Any => true,
        Family::V4 => header.source.is_ipv4(),
        Family::V6 => header.source.is_ipv6(),
    };
    family && (head.protocols.is_empty() || head.protocols.contains(&header.protocol)) && head.holds(ends)
}

fn head() -> impl Strategy<Value = String> {
    let addresses = select(vec![
        "any",
        "$HOME_NET",
        "$EXTERNAL_NET",
        "!$HOME_NET",
        "10.1.0.0/16",
        "[10.0.0.0/8,!10.1.0.0/16]",
        MANY,
        "2001:db8::/32",
        "[$HOME_NET,2001:db8:7::1]",
        "!2001:db8:7::/48",
    ]);
    let ports = select(vec![
        "any",
        "any",
        "80",
        "[80,443]",
        "$SERVER_PORTS",
        "!$SERVER_PORTS",
        "0:",
        "[!80,!53]",
        "1024:",
        "[1:100,!50]",
        "53",
        "8080",
        "65535",
    ]);
    let protocol = select(vec!["tcp", "tcp", "udp", "ip", "icmp", "ipv4", "ipv6", "tcp-pkt", "http", "dns"]);
    (protocol, addresses.clone(), ports.clone(), select(vec!["->", "->", "<>"]), addresses, ports).prop_map(
        |(protocol, source, sports, way, destination, dports)| {
            format!("{protocol} {source} {sports} {way} {destination} {dports}")
        },
    )
}

fn header() -> impl Strategy<Value = Header> {
    let v4 = prop_oneof![
        select(vec![
            "10.1.2.3",
            "10.9.9.9",
            "192.168.1.1",
            "172.16.0.1",
            "192.0.2.1",
            "192.0.2.2",
            "0.0.0.0"
        ])
        .prop_map(|a| a.parse::<IpAddr>().unwrap()),
        any::<u32>().prop_map(|a| IpAddr::V4(a.into())),
    ];
    let v6 = prop_oneof![
        select(vec!["2001:db8::1", "2001:db8:7::1", "2001:db8:7::2", "::", "fe80::1"])
            .prop_map(|a| a.parse::<IpAddr>().unwrap()),
        any::<u128>().prop_map(|a| IpAddr::V6(a.into())),
    ];
    let pair = prop_oneof![(v4.clone(), v4), (v6.clone(), v6)];
    let port = || {
        prop_oneof![
            select(vec![0u16, 22, 49, 50, 53, 80, 100, 101, 443, 1023, 1024, 8080, 65535]),
            any::<u16>()
        ]
    };
    let tenant = select(vec![TenantId(0), OWN, TenantId(9)]);
    (pair, port(), port(), select(vec![6u8, 17]), tenant).prop_map(
        |((source, destination), source_port, destination_port, protocol, tenant)| Header {
            tenant,
            link: LinkId(3),
            source,
            destination,
            protocol,
            source_port,
            destination_port,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// With any limit of header rules, all heads that a packet meets are in its flow's group.
    #[test]
    fn no_head_that_is_met_is_missing(
        first in prop::collection::vec(head(), 1..40),
        second in prop::collection::vec(head(), 0..20),
        headers in prop::collection::vec(header(), 40),
        most in select(vec![RULES_MAX, 600, 60, 20, 6, 1]),
    ) {
        let sets = [heads(&first), heads(&second)];
        let groups = Groups::new(&[&sets[0], &sets[1]], most);
        prop_assert!(groups.header_rules().len() <= most.max(1));
        for header in &headers {
            for (set, heads) in sets.iter().enumerate() {
                for direction in Direction::BOTH {
                    let Some(group) = group(&groups, set, header, direction) else { continue };
                    for (number, head) in heads.of(header.tenant).iter().enumerate() {
                        let met = head.as_ref().is_some_and(|head| meets(head, header, direction));
                        let number = number as u32;
                        prop_assert!(!met || group.has(number), "{head:?} {header:?} {direction:?}");
                        prop_assert_eq!(group.word(number / 64) >> (number % 64) & 1 == 1, group.has(number));
                    }
                }
            }
        }
    }

    /// If nothing is left out, a group has exactly the heads that are met.
    #[test]
    fn groups_of_few_heads_are_exact(
        mut rules in prop::collection::vec(head(), 2..8),
        headers in prop::collection::vec(header(), 60),
    ) {
        // One direction only, since a group treats ends and client port of the other direction separately;
        // and few networks.
        let fewer = [("<>", "->"), ("!2001:db8:7::/48", "any"), ("[$HOME_NET,2001:db8:7::1]", "any"), (MANY, "any")];
        for head in &mut rules {
            *head = fewer.iter().fold(head.clone(), |head, (from, to)| head.replace(from, to));
        }
        // Two heads that no flow meets together, so that a look-up is needed.
        rules.extend(["tcp any any -> any 80".to_owned(), "tcp any any -> any 443".to_owned()]);
        let heads = heads(&rules);
        let groups = Groups::new(&[&heads], RULES_MAX);
        for header in &headers {
            for direction in Direction::BOTH {
                let found = group(&groups, 0, header, direction).expect("all of TCP and UDP have a group");
                for (number, head) in heads.of(header.tenant).iter().enumerate() {
                    let met = head.as_ref().is_some_and(|head| meets(head, header, direction));
                    prop_assert_eq!(found.has(number as u32), met, "{:?} {:?} {:?}", head, header, direction);
                }
            }
        }
    }
}

#[test]
fn rules_that_all_flows_meet_need_no_lookup() {
    let both = heads(&["tcp any any -> any any".to_owned(), "ip any any -> any any".to_owned()]);
    // TCP's flows meet both, UDP's one.
    assert!(!Groups::new(&[&both], RULES_MAX).header_rules().is_empty());
    let any = heads(&["ip any any -> any any".to_owned()]);
    assert!(Groups::new(&[&any], RULES_MAX).header_rules().is_empty());
}

#[test]
fn many_ports_share_header_rules_and_each_flow_meets_few() {
    let rules: Vec<String> = (1..=5_000).map(|port| format!("tcp any any -> any {port}")).collect();
    let heads = heads(&rules);
    let groups = Groups::new(&[&heads], RULES_MAX);
    assert!(groups.header_rules().len() <= RULES_MAX, "{}", groups.header_rules().len());
    let header = Header {
        tenant: TenantId(0),
        link: LinkId(0),
        source: IpAddr::from([192, 0, 2, 1]),
        destination: IpAddr::from([192, 0, 2, 2]),
        protocol: 6,
        source_port: 40_000,
        destination_port: 2_500,
    };
    let to_server = group(&groups, 0, &header, Direction::ToServer).unwrap();
    let met = (0..heads.len() as u32).filter(|head| to_server.has(*head)).count();
    assert!((1..=8).contains(&met), "{met} of 5,000");
    let to_client = group(&groups, 0, &header, Direction::ToClient).unwrap();
    let met = (0..heads.len() as u32).filter(|head| to_client.has(*head)).count();
    assert!(met <= 8, "{met} of 5,000");
}

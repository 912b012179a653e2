// SPDX-License-Identifier: Apache-2.0
//! Tables compared with the lists that they are made from.

use super::{EarlyKey, EarlyLevel, EarlyReach, EarlyRules, EarlyTenant, Protocol, Unknown, outcome};
use crate::header::{Header, HeaderRule, NameId, Net, Range};
use bartizan_base::{LinkId, TenantId};
use bartizan_packet::VlanIds;
use bartizan_testkit::random::Random;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU32;

const LINKS: [LinkId; 2] = [LinkId(3), LinkId(0)];

/// A level that judges the packets of both links, in tunnels as well.
const fn level(outcomes: u32) -> EarlyLevel<'static> {
    EarlyLevel { links: &LINKS, outcomes, tunnels: true }
}

fn address(random: &mut Random, v6: bool) -> IpAddr {
    // Few networks, so that rules overlap.
    let (a, b) = (random.below(3) as u8, random.below(4) as u8 * 64 + random.below(2) as u8);
    if v6 {
        let mut bytes = [0; 16];
        (bytes[0], bytes[7], bytes[8], bytes[15]) = (0x20, a, a, b);
        IpAddr::V6(Ipv6Addr::from(bytes))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, a, 0, b))
    }
}

fn net(random: &mut Random, v6: bool) -> Net {
    let lengths: &[u8] = if v6 { &[0, 8, 60, 64, 70, 121, 128] } else { &[0, 8, 15, 16, 24, 26, 32] };
    Net { address: address(random, v6), length: *random.pick(lengths) }
}

fn ports(random: &mut Random) -> Range {
    match random.below(4) {
        0 | 1 => Range::ANY,
        2 => Range::one(random.below(4) as u16),
        _ => Range { first: 2, last: *random.pick(&[2, 3, 65_535]) },
    }
}

fn rule(random: &mut Random, tenants: bool) -> HeaderRule {
    let v6 = random.percent(40);
    let side = |random: &mut Random| random.percent(70).then(|| net(random, v6));
    HeaderRule {
        tenant: (tenants && random.percent(40)).then(|| TenantId(random.below(4) as u16)),
        link: random.percent(20).then(|| LinkId(random.below(4) as u16)),
        source: side(random),
        destination: side(random),
        protocol: random.percent(60).then(|| *random.pick(&[6, 17, 1, 132])),
        source_ports: ports(random),
        destination_ports: ports(random),
        destination_name: (tenants && random.percent(10)).then_some(NameId(NonZeroU32::MIN)),
        ..HeaderRule::default()
    }
}

struct Listed {
    within: Vec<HeaderRule>,
    alternatives: Vec<HeaderRule>,
    outcome: Option<u32>,
}

/// Selectors of some tenants, each with random conditions.
fn tenants(random: &mut Random) -> Vec<EarlyTenant> {
    let mut one = |number: u16| {
        let mut pick = |percent: usize, of: &[u32]| {
            let count = 1 + random.below(2);
            random.percent(percent).then(|| (0..count).map(|_| *random.pick(of)).collect::<Vec<u32>>())
        };
        let vlans = pick(35, &[1, 2, 7, 4_094]);
        let tunnels = pick(35, &[0, 1, 5, 6, 0xff_ffff, u32::MAX]);
        let links = pick(30, &[0, 3, 9]);
        let networks =
            random.percent(35).then(|| (0..2).map(|_| net(random, number % 2 == 1)).collect::<Vec<Net>>());
        EarlyTenant {
            tenant: TenantId(number),
            tunnels,
            vlans: vlans.map(|all| all.iter().map(|vlan| *vlan as u16).collect()),
            links: links.map(|all| all.iter().map(|link| LinkId(*link as u16)).collect()),
            networks,
        }
    };
    let mut all: Vec<EarlyTenant> = (1..4).map(&mut one).collect();
    all.rotate_left(random.below(3));
    all
}

/// The tenant of a packet by the rules of the host: the first selector all of whose conditions hold.
fn tenant_of(all: &[EarlyTenant], header: &Header, (vlans, tunnel): (&VlanIds, Option<u32>)) -> TenantId {
    let fits = |own: &&EarlyTenant| {
        let in_network = |address: IpAddr| {
            own.networks.iter().flatten().any(|net| {
                let one = HeaderRule { source: Some(*net), ..HeaderRule::default() };
                one.matches(&Header { source: address, ..*header })
            })
        };
        own.tunnels.as_ref().is_none_or(|all| tunnel.is_some_and(|tunnel| all.contains(&tunnel)))
            && own.vlans.as_ref().is_none_or(|all| vlans.as_slice().iter().any(|vlan| all.contains(vlan)))
            && own.links.as_ref().is_none_or(|all| all.contains(&header.link))
            && (own.networks.is_none() || in_network(header.source) || in_network(header.destination))
    };
    all.iter().find(fits).map_or(TenantId(0), |own| own.tenant)
}

/// Up to three tags, or a tunnel.
fn around(random: &mut Random) -> (VlanIds, Option<u32>) {
    let mut vlans = VlanIds::default();
    if random.percent(40) {
        return (vlans, Some(*random.pick(&[0, 1, 2, 5, 6, 7, 0xff_ffff, u32::MAX])));
    }
    (0..random.below(4)).for_each(|_| {
        vlans.push(*random.pick(&[0, 1, 2, 3, 7, 4_094]));
    });
    (vlans, None)
}

/// The outcome of the first rule that certainly matches; `None` where an earlier one may match.
fn expected(list: &[Listed], header: &Header) -> Option<u32> {
    let sure = |rules: &[HeaderRule]| rules.iter().any(|rule| rule.matches(header));
    let may = |rules: &[HeaderRule]| {
        rules.iter().any(|rule| HeaderRule { destination_name: None, ..*rule }.matches(header))
    };
    for listed in list {
        if sure(&listed.within) && sure(&listed.alternatives) {
            return listed.outcome;
        }
        if may(&listed.within) && may(&listed.alternatives) {
            return None;
        }
    }
    None
}

fn header(random: &mut Random) -> Header {
    let v6 = random.percent(40);
    Header {
        tenant: TenantId(0),
        link: *random.pick(&LINKS),
        source: address(random, v6),
        destination: address(random, v6),
        protocol: *random.pick(&[6, 17, 1, 58]),
        source_port: *random.pick(&[0, 1, 2, 3, 4, 65_535]),
        destination_port: *random.pick(&[0, 1, 2, 3, 4, 65_535]),
    }
}

fn question(header: &Header) -> EarlyKey {
    EarlyKey {
        link: LINKS.iter().position(|link| *link == header.link).unwrap() as u32,
        source: header.source,
        destination: header.destination,
        protocol: Protocol::of(header.protocol).unwrap(),
        ports: (header.source_port, header.destination_port),
        vlans: VlanIds::default(),
        tunnel: None,
    }
}

#[test]
fn a_table_says_what_the_first_rule_says_that_matches() {
    let mut random = Random::new(22);
    let (mut met, mut refused_whatever, mut of_tenants) = ([0u32; 2], 0u32, [0u32; 4]);
    for _ in 0..300 {
        let mut list = Vec::new();
        for number in 0..random.below(12) as u32 {
            let some = |most: usize, random: &mut Random| -> Vec<HeaderRule> {
                (0..=random.below(most)).map(|_| rule(random, true)).collect()
            };
            let within = if random.percent(50) { vec![HeaderRule::default()] } else { some(3, &mut random) };
            let alternatives = some(5, &mut random);
            list.push(Listed { within, alternatives, outcome: random.percent(60).then_some(number) });
        }
        let mut rules = EarlyRules::default();
        list.iter().for_each(|listed| rules.push(&listed.within, &listed.alternatives, listed.outcome));
        let tenants = tenants(&mut random);
        rules.set_tenants(tenants.clone());
        let table = rules.table(level(1 << 14));
        assert_eq!(table.reach, EarlyReach { rules: list.len(), tenants: true, tunnels: true });
        for _ in 0..200 {
            let (header, (vlans, tunnel)) = (header(&mut random), around(&mut random));
            let tenant = tenant_of(&tenants, &header, (&vlans, tunnel));
            let (header, question) =
                (Header { tenant, ..header }, EarlyKey { vlans, tunnel, ..question(&header) });
            let said = outcome(&table.words, &question);
            of_tenants[usize::from(tenant.0)] += u32::from(said.is_some());
            assert_eq!(said, expected(&list, &header), "{header:?}");
            met[usize::from(said.is_some())] += 1;
            // A packet that is refused whatever it is, is refused with each protocol and all ports.
            let whatever = EarlyKey { protocol: Protocol::Whatever, ..question };
            if outcome(&table.words, &whatever).is_some() {
                refused_whatever += 1;
                for (protocol, ports) in [(6, 0), (17, 2), (1, 3), (58, 1), (132, 4), (47, 65_535)] {
                    let other =
                        Header { protocol, source_port: ports, destination_port: 5 - ports.min(5), ..header };
                    assert!(expected(&list, &other).is_some(), "{other:?}");
                }
            }
        }
    }
    assert!(met.iter().all(|count| *count > 5_000), "{met:?}");
    assert!(refused_whatever > 1_000, "{refused_whatever}");
    assert!(of_tenants.iter().all(|count| *count > 500), "{of_tenants:?}");
}

#[test]
fn what_has_no_ports_is_refused_by_rules_that_ask_for_none() {
    let whatever = |list: &[(HeaderRule, Option<u32>)]| {
        let mut rules = EarlyRules::default();
        list.iter().for_each(|(rule, outcome)| rules.push(&[HeaderRule::default()], &[*rule], *outcome));
        let (source, destination) = ([11, 0, 1, 9].into(), [5; 4].into());
        let question = EarlyKey {
            link: 0,
            source,
            destination,
            protocol: Protocol::Whatever,
            ports: (0, 0),
            vlans: VlanIds::default(),
            tunnel: None,
        };
        outcome(&rules.table(level(10)).words, &question)
    };
    let host = blocked(1);
    let of = |protocol| HeaderRule { protocol: Some(protocol), ..host };
    let port = HeaderRule { destination_ports: Range::one(53), ..host };
    assert_eq!(whatever(&[(host, Some(0))]), Some(0));
    // A rule that refuses a part of the packets does not decide, one that passes a part does.
    assert_eq!(whatever(&[(of(6), Some(0)), (port, Some(1)), (host, Some(2))]), Some(2));
    assert_eq!(whatever(&[(of(6), Some(0)), (of(17), Some(1)), (of(1), Some(2)), (of(58), Some(3))]), None);
    for exception in [of(6), of(132), port] {
        assert_eq!(whatever(&[(exception, None), (host, Some(1))]), None);
        assert_eq!(whatever(&[(host, Some(1)), (exception, None)]), Some(1));
    }
}

fn blocked(number: u32) -> HeaderRule {
    let address = IpAddr::V4(Ipv4Addr::from(0x0b00_0000 | number << 8));
    HeaderRule { source: Some(Net { address, length: 24 }), ..HeaderRule::default() }
}

#[test]
fn a_rule_of_many_prefixes_and_many_rules_of_one_fit() {
    let everything = [HeaderRule::default()];
    let ask = |words: &[u64], number: u32| {
        let source = IpAddr::V4(Ipv4Addr::from(0x0b00_0007 | number << 8));
        let destination = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        outcome(
            words,
            &EarlyKey {
                link: 0,
                source,
                destination,
                protocol: Protocol::Udp,
                ports: (1, 2),
                vlans: VlanIds::default(),
                tunnel: None,
            },
        )
    };
    // Every second network, so that none touches another.
    let prefixes: Vec<HeaderRule> = (0..10_000).map(|number| blocked(number * 2)).collect();
    let mut rules = EarlyRules::default();
    rules.push(&everything, &prefixes, Some(0));
    let table = rules.table(level(1 << 14));
    assert_eq!(table.reach.rules, 1);
    assert!(table.words.len() < 60_000, "{}", table.words.len());
    let mut rules = EarlyRules::default();
    prefixes.iter().zip(0..).for_each(|(prefix, number)| rules.push(&everything, &[*prefix], Some(number)));
    let each = rules.table(level(1 << 14));
    assert_eq!(each.reach.rules, 10_000);
    for number in (0..20_000).step_by(7) {
        let hit = number % 2 == 0;
        assert_eq!(ask(&table.words, number), hit.then_some(0));
        assert_eq!(ask(&each.words, number), hit.then_some(number / 2));
    }
    // More outcomes than can be counted: packets of the others go up.
    let some = rules.table(level(100));
    assert_eq!(some.reach.rules, 100);
    assert_eq!((ask(&some.words, 198), ask(&some.words, 200)), (Some(99), None));
}

#[test]
fn what_does_not_fit_is_left_out_from_the_end() {
    // Rules that cross in both addresses: as many classes as there are pairs.
    let mut random = Random::new(5);
    let mut rules = EarlyRules::default();
    let mut list = Vec::new();
    for number in 0..3_000u32 {
        let net = |first: u32, random: &mut Random| {
            let address = IpAddr::V4(Ipv4Addr::from(first | (random.draw() as u32 & 0x00ff_ff00)));
            Some(Net { address, length: 24 })
        };
        let source = net(0x0a00_0000, &mut random);
        let destination = net(0x0b00_0000, &mut random);
        let rule = HeaderRule { source, destination, ..HeaderRule::default() };
        rules.push(&[HeaderRule::default()], &[rule], Some(number));
        list.push(rule);
    }
    let table = rules.table(EarlyLevel { links: &LINKS[..1], ..level(1 << 14) });
    assert!(table.reach.rules > 500 && table.reach.rules < 3_000, "{}", table.reach.rules);
    for (rule, number) in list.iter().zip(0u32..) {
        let (source, destination) = (rule.source.unwrap().address, rule.destination.unwrap().address);
        let said = outcome(
            &table.words,
            &EarlyKey {
                link: 0,
                source,
                destination,
                protocol: Protocol::Tcp,
                ports: (1, 2),
                vlans: VlanIds::default(),
                tunnel: None,
            },
        );
        assert_eq!(said, ((number as usize) < table.reach.rules).then_some(number));
    }
}

#[test]
fn what_nobody_refuses_needs_no_words() {
    let mut rules = EarlyRules::default();
    assert_eq!(rules.table(level(10)).words, []);
    rules.push(&[HeaderRule::default()], &[blocked(1)], None);
    assert_eq!((rules.len(), rules.table(level(10)).words), (1, vec![]));
    let question = EarlyKey {
        link: 0,
        source: [1, 2, 3, 4].into(),
        destination: [5; 4].into(),
        protocol: Protocol::Udp,
        ports: (1, 2),
        vlans: VlanIds::default(),
        tunnel: None,
    };
    assert_eq!(outcome(&[], &question), None);
}

#[test]
fn what_is_said_of_rules_is_of_those_that_can_match_on_the_link() {
    let everything = [HeaderRule::default()];
    let (here, there) = (LINKS[0], LINKS[1]);
    let on = |link| HeaderRule { link: Some(link), ..HeaderRule::default() };
    let tenant = HeaderRule { tenant: Some(TenantId(1)), ..HeaderRule::default() };
    let named = HeaderRule { source_name: NonZeroU32::new(1).map(NameId), ..HeaderRule::default() };
    let sctp = HeaderRule { protocol: Some(132), ..HeaderRule::default() };
    let mut rules = EarlyRules::default();
    rules.push(&everything, &[on(there)], Some(0));
    // On the other link, only the alternative with a tenant.
    rules.push(&everything, &[on(here), HeaderRule { link: Some(there), ..tenant }], Some(1));
    rules.push(&[tenant], &everything, Some(2));
    rules.push(&everything, &[named], Some(3));
    rules.push(&everything, &[sctp], Some(4));
    let told = EarlyTenant { tenant: TenantId(1), tunnels: Some(vec![7]), ..EarlyTenant::default() };
    rules.set_tenants(vec![EarlyTenant { links: Some(vec![there]), ..told.clone() }]);
    // No packet matches both.
    rules.push(&[on(here)], &[on(there)], Some(5));
    rules.push(&everything, &everything, None);
    let said = |rules: &EarlyRules, link, tenants, tunnels| {
        let reach = EarlyReach { rules: 9, tenants, tunnels };
        rules.on(link, reach).map(|of| (of.rule, of.unknown)).collect::<Vec<_>>()
    };
    let behind = [(3, Some(Unknown::Name)), (4, Some(Unknown::Protocol)), (6, None)];
    for (tenants, tunnels, unknown) in [
        (true, true, None),
        (true, false, Some(Unknown::Tunnel)),
        (false, true, Some(Unknown::Tenant)),
        (false, false, Some(Unknown::Tenant)),
    ] {
        let of_tenant = [(0, None), (1, unknown), (2, unknown)];
        assert_eq!(said(&rules, there, tenants, tunnels), [&of_tenant[..], &behind].concat());
        // The tenant has no traffic here.
        assert_eq!(said(&rules, here, tenants, tunnels), [&[(1, None)][..], &behind].concat());
    }
}

/// A rule for each tenant, with a VLAN or a tunnel number of its own; and equal addresses.
fn of_many(count: u16) -> EarlyRules {
    let mut rules = EarlyRules::default();
    let everything = [HeaderRule::default()];
    let selector = |number: u16| EarlyTenant {
        tenant: TenantId(number),
        vlans: (number % 2 == 1).then(|| vec![number]),
        tunnels: number.is_multiple_of(2).then(|| vec![u32::from(number) << 8]),
        ..EarlyTenant::default()
    };
    rules.set_tenants((1..=count).map(selector).collect());
    for number in 1..=count {
        let of_tenant = HeaderRule { tenant: Some(TenantId(number)), ..HeaderRule::default() };
        rules.push(&[of_tenant], &[blocked(u32::from(number % 8))], Some(u32::from(number)));
    }
    rules.push(&everything, &everything, None);
    rules
}

#[test]
fn thousands_of_tenants_have_rules_of_their_own() {
    let rules = of_many(4_000);
    let table = rules.table(level(1 << 14));
    assert_eq!(table.reach, EarlyReach { rules: 4_001, tenants: true, tunnels: true });
    for number in 1..=4_000u16 {
        let mut vlans = VlanIds::default();
        let in_tunnel = number % 2 == 0;
        let tunnel = in_tunnel.then(|| u32::from(number) << 8);
        if !in_tunnel {
            vlans.push(number);
        }
        let ask = |of: u32, vlans, tunnel| {
            let source = IpAddr::V4(Ipv4Addr::from(0x0b00_0007 | of << 8));
            let (destination, ports) = ([5; 4].into(), (1, 2));
            let question =
                EarlyKey { link: 1, source, destination, protocol: Protocol::Udp, ports, vlans, tunnel };
            outcome(&table.words, &question)
        };
        let own = u32::from(number % 8);
        assert_eq!(ask(own, vlans, tunnel), Some(number.into()));
        assert_eq!(ask((own + 1) % 8, vlans, tunnel), None, "it is another tenant's");
        assert_eq!(ask(own, VlanIds::default(), tunnel.map(|number| number + 1)), None, "it is nobody's");
    }
    // A level that does not read tunnels refuses no packet in them.
    let none = rules.table(EarlyLevel { tunnels: false, ..level(1 << 14) });
    let source = IpAddr::V4(Ipv4Addr::from(0x0b00_0207));
    let question = EarlyKey {
        link: 1,
        source,
        destination: [5; 4].into(),
        protocol: Protocol::Udp,
        ports: (1, 2),
        vlans: VlanIds::default(),
        tunnel: Some(2 << 8),
    };
    assert_eq!([&table, &none].map(|table| outcome(&table.words, &question)), [Some(2), None]);
}

/// A table without room for the selectors decides nothing for tenants, and nothing after a rule of a tenant
/// that may match.
#[test]
fn what_may_be_a_tenants_goes_up_where_there_is_no_room_to_tell() {
    let mut rules = EarlyRules::default();
    let everything = [HeaderRule::default()];
    let host = |number: u16| Net {
        address: IpAddr::V4(Ipv4Addr::from(0x0b00_0000 + u32::from(number) * 2)),
        length: 32,
    };
    let selector = |number: u16| EarlyTenant {
        tenant: TenantId(number),
        vlans: (number % 2 == 1).then(|| vec![number % 4_000]),
        networks: number.is_multiple_of(2).then(|| vec![host(number)]),
        ..EarlyTenant::default()
    };
    rules.set_tenants((1..=4_000).map(selector).collect());
    let of_tenant = HeaderRule { tenant: Some(TenantId(4_000)), ..blocked(1) };
    rules.push(&everything, &[blocked(3)], Some(0));
    rules.push(&everything, &[of_tenant], Some(1));
    rules.push(&everything, &everything, Some(2));
    let table = rules.table(level(1 << 14));
    assert_eq!(table.reach, EarlyReach { rules: 3, tenants: false, tunnels: true });
    let ask = |number: u32| {
        let source = IpAddr::V4(Ipv4Addr::from(0x0b00_0007 | number << 8));
        let (destination, ports, vlans) = ([5; 4].into(), (1, 2), VlanIds::default());
        let question =
            EarlyKey { link: 0, source, destination, protocol: Protocol::Udp, ports, vlans, tunnel: None };
        outcome(&table.words, &question)
    };
    assert_eq!([1, 2, 3].map(ask), [None, Some(2), Some(0)]);
}

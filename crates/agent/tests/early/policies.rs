// SPDX-License-Identifier: Apache-2.0
//! Random policies with overlapping rules, also for tenants.

use super::LINKS;
use bartizan_testkit::random::Random;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address from a few networks.
pub fn address(random: &mut Random, v6: bool) -> IpAddr {
    let (a, b) = (random.below(3) as u8, random.below(4) as u8 * 60 + 1);
    if v6 {
        IpAddr::V6(Ipv6Addr::new(0xfd00, u16::from(a), 0, 0, 0, 0, 0, b.into()))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, a, 0, b))
    }
}

/// Prefixes of both IP versions, so that two lists always have one in common: rules that never match are
/// errors. No packet has the addresses that are added for it.
fn prefixes(random: &mut Random) -> String {
    let one = |random: &mut Random| {
        let v6 = random.percent(40);
        let lengths: &[u32] = if v6 { &[16, 32, 64, 122, 128] } else { &[8, 16, 24, 26, 32] };
        let length = *random.pick(lengths);
        match address(random, v6) {
            IpAddr::V4(v4) => {
                format!("\"{}/{length}\"", Ipv4Addr::from(u32::from(v4) & u32::MAX << (32 - length)))
            }
            IpAddr::V6(v6) => {
                format!("\"{}/{length}\"", Ipv6Addr::from(u128::from(v6) & u128::MAX << (128 - length)))
            }
        }
    };
    let mut list: Vec<String> = (0..=random.below(3)).map(|_| one(random)).collect();
    for (version, filler) in [('.', "\"203.0.113.7/32\""), (':', "\"fdff:ffff::7/128\"")] {
        if !list.iter().any(|one| one.contains(version)) {
            list.push(filler.to_owned());
        }
    }
    format!("[{}]", list.join(", "))
}

/// `any` or some prefixes.
fn side(random: &mut Random) -> String {
    if random.percent(40) { "any".to_owned() } else { prefixes(random) }
}

/// A random rule; `tenants`: whether rules may name tenants.
fn rule(random: &mut Random, tenants: bool) -> String {
    let action = *random.pick(&["drop", "drop", "allow", "allow", "reject"]);
    let protocol = *random.pick(&["tcp", "udp", "[tcp, udp]", "any", "icmp"]);
    let mut text = format!("{{{action}: {protocol}");
    for key in ["from", "to"] {
        if random.percent(50) {
            text += &format!(", {key}: {}", prefixes(random));
        }
    }
    if !matches!(protocol, "any" | "icmp") {
        if random.percent(40) {
            text += &format!(", to-ports: {}", random.pick(&["80", "[22, 80-443]", "0-1023"]));
        }
        if random.percent(10) {
            text += ", from-ports: 1024-30000";
        }
    }
    if tenants && random.percent(30) {
        text += *random.pick(&[", tenant: [red]", ", tenant: [blue]", ", tenant: [blue, default]"]);
    }
    text + "}"
}

/// The selectors of tenants.
const SELECTORS: [&str; 8] = [
    "vlan: [7]",
    "vlan: [9, 11]",
    "vni: [5]",
    "vni: [6, 0]",
    "link: [one]",
    "prefixes: [\"10.2.0.0/16\", \"fd02::/16\"]",
    "prefixes: [\"10.1.0.61/32\", \"10.0.0.0/24\", \"fd00::/17\"]",
    "vlan: [7, 9], prefixes: [\"10.1.0.0/16\", \"fd01::/16\"]",
];

/// Two tenants, possibly with the same selector; some policies have none.
fn tenants(random: &mut Random) -> String {
    if random.percent(25) {
        return String::new();
    }
    let [red, blue] = [*random.pick(&SELECTORS), *random.pick(&SELECTORS)];
    // No packet may match both tenants by one selector: in that case there is one tenant.
    if red == blue {
        format!("tenants: [{{name: blue, select: {{{blue}}}}}, {{name: red, select: {{vlan: [13]}}}}]\n")
    } else {
        format!("tenants: [{{name: red, select: {{{red}}}}}, {{name: blue, select: {{{blue}}}}}]\n")
    }
}

/// The policy that allows outer packets.
const AROUND: &str =
    "{name: around, from: [192.0.2.1, \"2001:db8::1\"], to: [192.0.2.2, \"2001:db8::2\"], chain: []}";

/// A policy.
pub fn policy(random: &mut Random) -> String {
    let mut text = tenants(random);
    let some = !text.is_empty();
    let pfw = |random: &mut Random| {
        let rules: Vec<String> = (0..random.below(6)).map(|_| rule(random, some)).collect();
        let default = random.pick(&["allow", "allow", "drop", "reject"]);
        format!("{{default: {default}, rules: [{}]}}", rules.join(", "))
    };
    let one = |random: &mut Random, number: usize| {
        let chain =
            *random.pick(&["[pfw]", "[pfw]", "[pfw]", "[pfw, sfw]", "[portscan, pfw]", "[sfw]", "[]"]);
        let mut one =
            format!("{{name: p{number}, from: {}, to: {}, chain: {chain}", side(random), side(random));
        if chain.contains("pfw") {
            one += &format!(", pfw: {}", pfw(random));
        }
        if random.percent(15) {
            one += ", staged: true";
        }
        if random.percent(20) {
            one += &format!(", link: [{}]", random.pick(&LINKS));
        }
        if random.percent(10) {
            one += ", one-sided: drop";
        }
        if some && random.percent(40) {
            one += *random.pick(&[", tenant: [red]", ", tenant: [blue]"]);
        }
        one + "}"
    };
    let policies: Vec<String> = (0..random.below(4)).map(|number| one(random, number)).collect();
    let policies = [AROUND.to_owned()].into_iter().chain(policies).collect::<Vec<_>>();
    text += &format!("policies: [{}]\n", policies.join(", "));
    text += match random.below(3) {
        0 => "default: {action: drop}\n",
        1 => "default: {action: allow, chain: [pfw], pfw: {default: drop}}\n",
        _ => "default: {action: allow}\n",
    };
    text
}

// SPDX-License-Identifier: Apache-2.0
//! Counts the header rules of a packet filter section: one for each combination of its rules' list items.
//! Counts by the lengths of lists, before any rule is built.

use super::sections::{PfwRule, PfwSection};
use super::values::{OneOrMany, Target};

/// Number of members of both sides of a policy.
#[derive(Clone, Copy)]
pub(super) struct SideCounts {
    pub from: usize,
    pub to: usize,
}

/// Number of combinations of a section's rules. `own`: the sides of the policy, for rules without sides;
/// `members` counts those of a list. Pairs of addresses of different versions count as well.
pub(super) fn of_section(
    section: &PfwSection,
    own: SideCounts,
    members: impl Fn(&[Target]) -> usize,
) -> usize {
    let of = |rule: &PfwRule| {
        let side =
            |list: &Option<OneOrMany<Target>>, own: usize| list.as_ref().map_or(own, |list| members(list));
        let sides = side(&rule.from, own.from).saturating_mul(side(&rule.to, own.to));
        lists(rule).into_iter().flatten().fold(sides, usize::saturating_mul)
    };
    section.rules.iter().map(of).fold(0, usize::saturating_add)
}

/// Items of a rule's lists beside addresses. A rule has one of the first four.
fn lists(rule: &PfwRule) -> [Option<usize>; 9] {
    fn items<T>(list: &Option<OneOrMany<T>>) -> Option<usize> {
        list.as_ref().map(|list| list.len())
    }
    let PfwRule { allow, drop, reject, redirect, from_ports, to_ports, r#type, code, tenant, .. } = rule;
    let [allow, drop, reject, redirect] = [allow, drop, reject, redirect].map(items);
    let [from_ports, to_ports, r#type, code] = [from_ports, to_ports, r#type, code].map(items);
    [allow, drop, reject, redirect, from_ports, to_ports, r#type, code, items(tenant)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::read;
    use crate::yaml;

    fn counted(rules: &str) -> usize {
        let section = yaml::parse(&format!("{{default: drop, rules: {rules}}}")).unwrap();
        let section = read::read(&section).unwrap();
        of_section(&section, SideCounts { from: 2, to: 5 }, |targets| 7 * targets.len())
    }

    #[test]
    fn what_rules_list_is_multiplied_and_rules_are_added() {
        assert_eq!(counted("[]"), 0);
        assert_eq!(counted("[{allow: tcp}]"), 10);
        assert_eq!(counted("[{allow: [tcp, udp], to-ports: [80, 443, 8000-8999]}, {drop: any}]"), 70);
        assert_eq!(counted("[{reject: tcp, from: [a, b]}]"), 14 * 5);
        assert_eq!(counted("[{redirect: tcp, egress: x, from: a, to: [b, {label: {k: v}}, any]}]"), 7 * 21);
        assert_eq!(counted("[{allow: icmp, type: [0, 8], code: [0, 1, 2]}]"), 60);
        assert_eq!(counted("[{allow: tcp, tenant: [a, b]}]"), 20);
    }
}

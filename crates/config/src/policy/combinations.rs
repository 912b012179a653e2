// SPDX-License-Identifier: Apache-2.0
//! Counts the header rules of a packet filter section: one for each combination of its rules' list items.
//! Counts by the lengths of lists, before any rule is built.

use super::read;
use super::values::{OneOrMany, Target};
use crate::yaml::{Node, Value};

/// Lists of a rule beside addresses. A rule has one of the first four.
const LISTS: [&str; 9] =
    ["allow", "drop", "reject", "redirect", "from-ports", "to-ports", "type", "code", "tenant"];

/// Number of members of both sides of a policy.
#[derive(Clone, Copy)]
pub(super) struct SideCounts {
    pub from: usize,
    pub to: usize,
}

/// Number of combinations of a section's rules. `own`: the sides of the policy, for rules without sides;
/// `members` counts those of a list. Pairs of addresses of different versions count as well.
pub(super) fn of_section(section: &Node, own: SideCounts, members: impl Fn(&[Target]) -> usize) -> usize {
    let Some(Value::Sequence(rules)) = section.get("rules").map(|rules| &rules.value) else { return 0 };
    let of = |rule: &Node| {
        let side = |key: &str, own: usize| match rule.get(key) {
            // The function reports values that cannot be read.
            Some(said) => read::read::<OneOrMany<Target>>(said).map_or(1, |targets| members(&targets)),
            None => own,
        };
        let sides = side("from", own.from).saturating_mul(side("to", own.to));
        let lists = LISTS.into_iter().filter_map(|key| rule.get(key)).map(items);
        lists.fold(sides, usize::saturating_mul)
    };
    rules.iter().map(of).fold(0, usize::saturating_add)
}

/// Items of a list; a single value counts as one.
fn items(node: &Node) -> usize {
    match &node.value {
        Value::Sequence(items) => items.len(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn counted(rules: &str) -> usize {
        let section = yaml::parse(&format!("{{default: drop, rules: {rules}}}")).unwrap();
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
        // Values that the function refuses are no matter here.
        assert_eq!(counted("[{allow: tcp, from: {odd: 1}}]"), 5);
    }
}

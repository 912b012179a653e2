// SPDX-License-Identifier: Apache-2.0
//! Policies and rules that an earlier one hides: whatever they match, one before them matches first.
//!
//! Not found: what several earlier ones hide only together.

use super::values::EVERYTHING;
use super::{ConfigProblem, DnsName, PolicyDefinition, PolicyFile, Prefix, ResolvedMember, Target};
use core::hash::Hash;
use core::ops::Range;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Comparisons for one list. A list that needs more is compared in part: what is found is a hint.
const COMPARISONS_MAX: usize = 1 << 22;

/// The addresses that one item of a side selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses<N> {
    /// All of both IP versions.
    All,
    /// Those of a prefix.
    Prefix(Prefix),
    /// Those that have a name.
    Name(N),
}

impl<N: Copy + Eq> Addresses<N> {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Addresses::All, _) => true,
            (Addresses::Prefix(own), Addresses::Prefix(other)) => {
                own.length <= other.length && own.contains(other.address)
            }
            (Addresses::Name(own), Addresses::Name(other)) => own == other,
            _ => false,
        }
    }

    fn is_v4(&self) -> Option<bool> {
        if let Addresses::Prefix(prefix) = self { Some(prefix.address.is_ipv4()) } else { None }
    }
}

/// The two sides of a policy or rule.
#[derive(Clone, Debug)]
pub struct ListedSides<N> {
    from: Vec<Addresses<N>>,
    to: Vec<Addresses<N>>,
}

impl<N: Copy + Eq + Hash> ListedSides<N> {
    /// Two sides, without the addresses whose IP version the other side does not have.
    #[must_use]
    pub fn new(from: Vec<Addresses<N>>, to: Vec<Addresses<N>>) -> Self {
        let has = |side: &[Addresses<N>], v4| side.iter().any(|one| one.is_v4().is_none_or(|own| own == v4));
        let (v4, v6) = (has(&from, true) && has(&to, true), has(&from, false) && has(&to, false));
        let kept = |one: &Addresses<N>| one.is_v4().is_none_or(|own| if own { v4 } else { v6 });
        let side = |side: Vec<Addresses<N>>| side.into_iter().filter(kept).collect();
        ListedSides { from: side(from), to: side(to) }
    }

    fn covers(&self, from: &[Addresses<N>], to: &[Addresses<N>]) -> bool {
        let side = |own: &[Addresses<N>], other: &[Addresses<N>]| {
            other.iter().all(|other| own.iter().any(|own| own.covers(other)))
        };
        side(&self.from, from) && side(&self.to, to)
    }
}

/// An item that an earlier one hides, by their places in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadowed {
    /// The item that is never reached.
    pub item: usize,
    /// The first that hides it.
    pub by: usize,
}

/// The items of a list that one earlier item hides.
///
/// `either_way`: an item's sides match in both directions. `rest`: whether the first of two items selects,
/// beside addresses, all that the second one selects. `changed`: pairs of which neither is in this range are
/// left out.
pub fn shadowed<N: Copy + Eq + Hash>(
    items: &[ListedSides<N>],
    either_way: bool,
    rest: impl Fn(usize, usize) -> bool,
    changed: &Range<usize>,
) -> Vec<Shadowed> {
    let mut index = Index::default();
    let (mut found, mut comparisons) = (Vec::new(), 0usize);
    for (item, sides) in items.iter().enumerate() {
        let candidates = index.candidates(sides, either_way);
        comparisons = comparisons.saturating_add(candidates.len());
        if comparisons > COMPARISONS_MAX {
            break;
        }
        let is_hidden = |by: &usize| {
            let Some(earlier) = items.get(*by) else { return false };
            (changed.contains(&item) || changed.contains(by))
                && rest(*by, item)
                && (earlier.covers(&sides.from, &sides.to)
                    || either_way && earlier.covers(&sides.to, &sides.from))
        };
        // What selects nothing yet is said elsewhere.
        let selects = !sides.from.is_empty() && !sides.to.is_empty();
        if let Some(by) = candidates.into_iter().filter(|_| selects).find(is_hidden) {
            found.push(Shadowed { item, by });
        }
        index.add(item, sides);
    }
    found
}

/// Earlier items by one of their sides, so that not all are compared with all.
struct Index<N> {
    /// Those that ask for addresses on their first, or only on their second side.
    sides: [HashMap<Addresses<N>, Vec<usize>>; 2],
    /// Those that ask for none.
    all: Vec<usize>,
    /// Lengths of prefixes that occur, with whether they are of IPv4.
    lengths: BTreeSet<(bool, u8)>,
}

impl<N> Default for Index<N> {
    fn default() -> Self {
        Index { sides: [HashMap::new(), HashMap::new()], all: Vec::new(), lengths: BTreeSet::new() }
    }
}

impl<N: Copy + Eq + Hash> Index<N> {
    fn add(&mut self, item: usize, sides: &ListedSides<N>) {
        let asks = |side: &[Addresses<N>]| !side.contains(&Addresses::All);
        let (map, side) = match (asks(&sides.from), asks(&sides.to)) {
            (true, _) => (&mut self.sides[0], &sides.from),
            (false, true) => (&mut self.sides[1], &sides.to),
            (false, false) => return self.all.push(item),
        };
        for one in side {
            if let Addresses::Prefix(prefix) = one {
                self.lengths.insert((prefix.address.is_ipv4(), prefix.length));
            }
            map.entry(*one).or_default().push(item);
        }
    }

    /// The items that may hide one, in their order: one that does covers the first address of each side.
    fn candidates(&self, sides: &ListedSides<N>, either_way: bool) -> Vec<usize> {
        let mut found = self.all.clone();
        let [by_from, by_to] = &self.sides;
        for (map, other, first) in [(by_from, by_to, sides.from.first()), (by_to, by_from, sides.to.first())]
        {
            let Some(first) = first else { continue };
            for around in self.around(first) {
                found.extend(map.get(&around).into_iter().flatten());
                found.extend(other.get(&around).filter(|_| either_way).into_iter().flatten());
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn around(&self, one: &Addresses<N>) -> Vec<Addresses<N>> {
        let Addresses::Prefix(prefix) = one else { return vec![*one] };
        let v4 = prefix.address.is_ipv4();
        let lengths = self.lengths.range((v4, 0)..=(v4, prefix.length));
        lengths.map(|(_, length)| Addresses::Prefix(Prefix::new(prefix.address, *length))).collect()
    }
}

/// The headers of the conversations that a policy selects.
#[derive(Clone, Copy, Debug)]
pub struct PolicyHeaders<'p> {
    /// One side.
    pub from: &'p [Target],
    /// The other side.
    pub to: &'p [Target],
    /// Tenants, by name.
    pub tenant: &'p [String],
    /// Links; every one unless given.
    pub link: Option<&'p [String]>,
}

impl<'p> PolicyHeaders<'p> {
    /// The headers of a policy.
    #[must_use]
    pub fn of(policy: &'p PolicyDefinition) -> Self {
        let PolicyDefinition { from, to, tenant, link, .. } = policy;
        PolicyHeaders { from, to, tenant, link: link.as_deref() }
    }

    /// Whether it selects every tenant and link that another one selects.
    fn covers(&self, other: &Self) -> bool {
        let tenants = self.tenant.iter().any(|own| own == "any")
            || other.tenant.iter().all(|name| self.tenant.contains(name));
        let links = match (self.link, other.link) {
            (None, _) => true,
            (Some(own), Some(other)) => other.iter().all(|name| own.contains(name)),
            (Some(_), None) => false,
        };
        tenants && links
    }
}

/// The message about a policy that an earlier one hides.
#[must_use]
pub fn hidden_policy(name: &str, by: &str) -> String {
    format!(
        "policy `{name}` is never reached: policy `{by}`, which is tried before it, has all of its traffic; try this one first, or remove it"
    )
}

impl PolicyFile {
    /// Policies that one earlier policy hides, by their places in `policies`, whose groups and labels are
    /// those of this file. `changed`: pairs of which neither is in this range are left out.
    #[must_use]
    pub fn hidden_among(&self, policies: &[PolicyHeaders<'_>], changed: &Range<usize>) -> Vec<Shadowed> {
        let members: Vec<[Vec<ResolvedMember>; 2]> =
            policies.iter().map(|policy| [policy.from, policy.to].map(|side| self.resolve(side))).collect();
        let sides: Vec<ListedSides<&DnsName>> =
            members.iter().map(|[from, to]| ListedSides::new(addresses(from), addresses(to))).collect();
        let rest = |first: usize, second: usize| match (policies.get(first), policies.get(second)) {
            (Some(first), Some(second)) => first.covers(second),
            _ => false,
        };
        shadowed(&sides, true, rest, changed)
    }

    /// Policies that one earlier policy of the file hides. `before`: the previous file; policies that it
    /// hid already are left out.
    #[must_use]
    pub fn hidden_policies(&self, before: Option<&PolicyFile>) -> Vec<ConfigProblem> {
        let before = before.filter(|before| Arc::ptr_eq(&before.common, &self.common));
        let changed = match before {
            Some(before) => bartizan_base::between(&before.policies, &self.policies, Arc::ptr_eq).1,
            None => 0..self.policies.len(),
        };
        if changed.is_empty() || self.policies.len() < 2 {
            return Vec::new();
        }
        let all: Vec<PolicyHeaders<'_>> =
            self.policies.iter().map(|policy| PolicyHeaders::of(policy)).collect();
        let name = |at: usize| self.policies.get(at).map_or("", |policy| policy.name.as_str());
        let problem = |Shadowed { item, by }: Shadowed| {
            let path = format!("policies/{item}/name");
            ConfigProblem { position: self.locate(&path), path, message: hidden_policy(name(item), name(by)) }
        };
        self.hidden_among(&all, &changed).into_iter().map(problem).collect()
    }
}

/// A side's members; both versions' whole space is no condition.
fn addresses(members: &[ResolvedMember]) -> Vec<Addresses<&DnsName>> {
    if EVERYTHING.iter().all(|all| members.contains(&ResolvedMember::Prefix(*all))) {
        return vec![Addresses::All];
    }
    let mut all = Vec::with_capacity(members.len());
    for member in members {
        all.push(match member {
            ResolvedMember::Prefix(prefix) => Addresses::Prefix(*prefix),
            ResolvedMember::Name(name) => Addresses::Name(name),
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::parse;

    /// Places of the policies that are hidden, and by which.
    fn hidden(policies: &[&str]) -> Vec<(usize, usize)> {
        let list: String = policies
            .iter()
            .enumerate()
            .map(|(n, policy)| format!("  - {{name: p{n}, {policy}, chain: []}}\n"))
            .collect();
        let text = format!(
            "groups: {{lan: [10.0.0.0/8, '2001:db8::/32'], web: [10.1.0.0/16, 10.2.0.7], nobody: [], n: {{dns: a.example}}}}\n\
             dns: {{resolvers: 192.0.2.53}}\ntenants: [{{name: a, select: {{vlan: 1}}}}]\ndefault: {{action: drop}}\npolicies:\n{list}"
        );
        let file = parse("policy.yaml", &text, &[]).unwrap_or_else(|error| panic!("{error}"));
        let problems = file.hidden_policies(None);
        for problem in &problems {
            assert!(problem.message.contains("is never reached"), "{problem:?}");
            assert_ne!(problem.position.line, 0, "{problem:?}");
        }
        let number = |text: &str| text.split('`').nth(1).and_then(|n| n[1..].parse().ok()).expect("a number");
        let of = |problem: &ConfigProblem| {
            let (own, by) = problem.message.split_once(": ").expect("two parts");
            (number(own), number(by))
        };
        problems.iter().map(of).collect()
    }

    #[test]
    fn a_policy_behind_one_that_has_all_of_its_traffic_is_found() {
        for (first, second, expected) in [
            ("from: any", "from: lan, to: web", true),
            ("from: lan", "from: web", true),
            ("from: lan, to: any", "from: any, to: web", true),
            ("from: web", "from: lan", false),
            ("from: 10.0.0.0/8", "from: lan", false),
            ("from: lan, to: 192.0.2.0/24", "from: 10.3.0.1, to: 192.0.2.9", true),
            ("from: lan, to: 192.0.2.0/24", "from: 192.0.2.9, to: 10.3.0.1", true),
            ("from: lan, to: 192.0.2.0/24", "from: 10.3.0.1, to: 192.0.3.9", false),
            // Of the second one only IPv4 can match.
            ("from: 10.0.0.0/8", "from: lan, to: 192.0.2.9", true),
            ("from: '2001:db8::/32'", "from: '2001:db8:1::/48', to: any", true),
            ("from: n", "from: [n, 192.0.2.1]", false),
            ("from: [n, 192.0.2.0/24]", "from: [n, 192.0.2.1]", true),
            ("from: 0.0.0.0/0", "from: n", false),
            ("from: any", "from: nobody", false),
            ("tenant: a", "tenant: any", false),
            ("tenant: any", "tenant: a", true),
            ("tenant: [a, default]", "tenant: a", true),
            ("from: any", "tenant: a", false),
            ("link: x", "link: [x, y]", false),
            ("link: [x, y]", "link: x", true),
            ("from: any", "link: x", true),
            ("link: x", "from: any", false),
        ] {
            let found = hidden(&[first, second]);
            assert_eq!(found, if expected { vec![(1, 0)] } else { vec![] }, "{first} before {second}");
        }
        // The first that hides it; what several hide only together is not found.
        assert_eq!(hidden(&["from: web", "from: lan", "to: lan", "from: 10.1.2.3"]), [(2, 1), (3, 0)]);
        assert_eq!(hidden(&["from: 10.0.0.0/9", "from: 10.128.0.0/9", "from: 10.0.0.0/8"]), []);
    }

    #[test]
    fn many_policies_are_compared_in_moments_and_what_was_said_is_not_said_again() {
        use crate::policy::{Parts, PolicyText, from_parts};
        use serde_json::json;
        let policy = |n: u32| {
            let from = std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string();
            Arc::new(PolicyText::new(json!({"name": format!("p{n}"), "from": [from], "chain": []})))
        };
        let mut parts = Parts {
            common: Arc::new(json!({"default": {"action": "drop"}})),
            policies: (0..20_000).map(policy).collect(),
        };
        parts
            .policies
            .push(Arc::new(PolicyText::new(json!({"name": "all", "from": ["10.0.0.0/8"], "chain": []}))));
        parts
            .policies
            .push(Arc::new(PolicyText::new(json!({"name": "late", "to": ["10.9.9.9"], "chain": []}))));
        let before = from_parts("x", &parts, &[], None).unwrap();
        let messages = |file: &PolicyFile, before| {
            file.hidden_policies(before).into_iter().map(|problem| problem.message).collect::<Vec<_>>()
        };
        assert_eq!(messages(&before, None), [hidden_policy("late", "all")]);
        let lines: Vec<_> =
            before.hidden_policies(None).iter().map(|problem| before.line_of(problem)).collect();
        assert_eq!(lines, [format!("x: {}", hidden_policy("late", "all"))], "JSON has no lines");
        // One that changes, hidden by one that stays; then one that hides others that stay.
        let by_first = PolicyText::new(json!({"name": "p7", "to": ["10.0.0.1"], "chain": []}));
        parts.policies[7] = Arc::new(by_first);
        let changed = from_parts("x", &parts, &[], Some(&before)).unwrap();
        assert_eq!(messages(&changed, Some(&before)), [hidden_policy("p7", "p1")]);
        assert_eq!(messages(&changed, Some(&changed)), [""; 0]);
        parts.policies[0] =
            Arc::new(PolicyText::new(json!({"name": "p0", "from": ["10.0.0.0/30"], "chain": []})));
        let changed = from_parts("x", &parts, &[], Some(&before)).unwrap();
        let expected = ["p1", "p2", "p3", "p7"].map(|name| hidden_policy(name, "p0"));
        assert_eq!(messages(&changed, Some(&before)), expected);
    }
}

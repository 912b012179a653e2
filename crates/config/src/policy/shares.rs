// SPDX-License-Identifier: Apache-2.0
//! Shares of a device's bounds: usage by policies and groups, its owner, and the most that an owner may use.
//!
//! New flows find their policy by a rule for each pair of a member of one side and a member of the other, so
//! long lists on both sides multiply: two of 40,000 addresses each would be 1.6 billion pairs. Pairs are
//! counted before any rule is built. A device has a bound for the total, and each tenant a part of it, so
//! that no tenant can fill a device. If several fill it together, the largest user of those that have grown
//! since the previous file is at fault: parts that run already stay. Rules of the packet filter multiply in
//! the same way, and are counted as well.

use super::combinations::SideCounts;
use super::sections::PfwSection;
use super::values::EVERYTHING;
use super::{
    ConfigProblem, DEFAULT_TENANT, FunctionSection, PolicyDefinition, PolicyFile, PolicyFileBuilder,
    ResolvedMember, ServiceLevel, SharedPolicyParts, Target, combinations, resolve, section_of,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most members of all groups of a file together, inner groups resolved: a few groups that contain each other
/// could mean billions.
pub const MEMBERS_MAX: usize = 1 << 22;
/// Most members of a tenant's groups.
pub const TENANT_MEMBERS_MAX: usize = 1 << 20;
/// Most DNS names among the members.
pub const DNS_NAMES_MAX: usize = 1 << 20;
/// Most DNS names in a tenant's groups.
pub const TENANT_DNS_NAMES_MAX: usize = 1 << 16;
/// Most pairs of members of the two sides of policies and service levels, for each tenant and link that they
/// name.
pub const PAIRS_MAX: usize = 1 << 20;
/// Most pairs of a tenant's policies: for example a list of this many addresses on one side, and one network
/// on the other.
pub const TENANT_PAIRS_MAX: usize = 1 << 18;

/// Most combinations of addresses, ports and protocols in rules of the packet filter, of all policies and the
/// default.
pub const COMBINATIONS_MAX: usize = 1 << 22;
/// Most combinations of a tenant's policies.
pub const TENANT_COMBINATIONS_MAX: usize = 1 << 18;

/// A bounded quantity.
pub(super) struct QuantityBound {
    what: &'static str,
    all: usize,
    tenant: usize,
    advice: &'static str,
}

/// See [`MEMBERS_MAX`].
pub(super) const MEMBERS: QuantityBound = QuantityBound {
    what: "members of groups, including nested ones",
    all: MEMBERS_MAX,
    tenant: TENANT_MEMBERS_MAX,
    advice: "write larger networks, or name groups in policies instead of in groups",
};
/// See [`DNS_NAMES_MAX`].
pub(super) const NAMES: QuantityBound = QuantityBound {
    what: "DNS names in groups, including nested ones",
    all: DNS_NAMES_MAX,
    tenant: TENANT_DNS_NAMES_MAX,
    advice: "write `*.` and the common end of the names",
};
/// See [`PAIRS_MAX`].
pub(super) const PAIRS: QuantityBound = QuantityBound {
    what: "pairs of members of `from` and `to`, counted for each tenant and link",
    all: PAIRS_MAX,
    tenant: TENANT_PAIRS_MAX,
    advice: "write larger networks on one side, or `any`",
};
/// See [`COMBINATIONS_MAX`].
const COMBINATIONS: QuantityBound = QuantityBound {
    what: "combinations of addresses, ports and protocols in rules of `pfw`",
    all: COMBINATIONS_MAX,
    tenant: TENANT_COMBINATIONS_MAX,
    advice: "use fewer or coarser ones: larger networks, ranges of ports",
};

/// A bounded quantity of policies.
struct PolicyQuantity {
    bound: &'static QuantityBound,
    /// Place within a policy, for messages.
    place: &'static str,
    of: fn(&PolicyFile, &PolicyDefinition) -> usize,
}

/// The bounded quantities of policies.
const COUNTED: [PolicyQuantity; 2] = [
    PolicyQuantity { bound: &PAIRS, place: "from", of: pairs_of },
    PolicyQuantity { bound: &COMBINATIONS, place: "pfw/rules", of: combinations_of },
];

/// Usage by policies of each quantity in [`COUNTED`].
pub(super) type PolicyUsage = [QuantityUsage; COUNTED.len()];

/// Usage of a quantity: in total, and by each tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QuantityUsage {
    all: usize,
    of: BTreeMap<String, usize>,
}

impl QuantityUsage {
    fn of(&self, tenant: &str) -> usize {
        self.of.get(tenant).copied().unwrap_or(0)
    }

    fn add(&mut self, owner: Option<&str>, more: usize) {
        self.all = self.all.saturating_add(more);
        let Some(owner) = owner else { return };
        match self.of.get_mut(owner) {
            Some(own) => *own = own.saturating_add(more),
            None => drop(self.of.insert(owner.to_owned(), more)),
        }
    }

    fn remove(&mut self, owner: Option<&str>, less: usize) {
        self.all = self.all.saturating_sub(less);
        if let Some(own) = owner.and_then(|owner| self.of.get_mut(owner)) {
            *own = own.saturating_sub(less);
        }
    }

    fn keeps_to(&self, bound: &QuantityBound) -> bool {
        self.all <= bound.all && self.of.values().all(|own| *own <= bound.tenant)
    }
}

/// Usage of a quantity while it is counted.
pub(super) struct QuantityTally {
    bound: &'static QuantityBound,
    used: QuantityUsage,
    /// The largest item of each owner, with its size.
    largest: BTreeMap<Option<String>, (usize, String)>,
    over: BTreeSet<String>,
}

impl QuantityTally {
    pub(super) fn of(bound: &'static QuantityBound) -> Self {
        QuantityTally {
            bound,
            used: QuantityUsage::default(),
            largest: BTreeMap::new(),
            over: BTreeSet::new(),
        }
    }

    /// Counts an item. Returns a message, once per owner, if its owner exceeds a tenant's share with it.
    pub(super) fn add(&mut self, owner: Option<&str>, item: &str, more: usize) -> Option<String> {
        self.used.add(owner, more);
        let largest = self.largest.entry(owner.map(str::to_owned)).or_default();
        if more > largest.0 || largest.1.is_empty() {
            *largest = (more, item.to_owned());
        }
        let owner = owner.filter(|owner| self.used.of(owner) > self.bound.tenant)?;
        let QuantityBound { what, tenant, advice, .. } = self.bound;
        let message = format!("with this tenant `{owner}` has more than {tenant} {what}; {advice}");
        self.over.insert(owner.to_owned()).then_some(message)
    }

    /// Whether an owner exceeds a tenant's share, so that its other items need not be counted.
    pub(super) fn is_over(&self, owner: Option<&str>) -> bool {
        owner.is_some_and(|owner| self.over.contains(owner))
    }

    /// Whether the total exceeds the bound.
    pub(super) fn is_full(&self) -> bool {
        self.used.all > self.bound.all
    }

    /// The item at fault if the total exceeds the bound, with a message. `before`: usage in the previous
    /// file.
    pub(super) fn blamed(&self, before: Option<&QuantityUsage>) -> Option<(&str, String)> {
        if !self.is_full() {
            return None;
        }
        let was = |tenant: &str| before.map_or(0, |before| before.of(tenant));
        let grown = self.used.of.iter().filter(|(tenant, own)| **own > was(tenant));
        let most = grown.max_by_key(|(_, own)| **own).map(|(tenant, own)| (tenant.clone(), *own));
        let QuantityBound { what, all, advice, .. } = self.bound;
        // Usage of no tenant is the fault of the file's author.
        let owned = self.used.of.values().fold(0usize, |sum, own| sum.saturating_add(*own));
        let most = most.filter(|(_, own)| *own >= self.used.all.saturating_sub(owned));
        let item = self.largest.get(&most.as_ref().map(|(tenant, _)| tenant.clone()));
        let item = item.map_or("", |(_, item)| item.as_str());
        let whose = match most {
            Some((tenant, own)) => format!(", and tenant `{tenant}` has {own} of them"),
            None => String::new(),
        };
        Some((item, format!("there are more than {all} {what}{whose}; {advice}")))
    }
}

/// The tenant that owns a group: a controller appends `@` and the tenant to the names of its groups. Others
/// belong to the file.
pub(super) fn owner_of_group(name: &str) -> Option<&str> {
    name.rsplit_once('@').map(|(_, tenant)| tenant)
}

/// The tenant that owns a policy: the only one that it applies to. A policy for several tenants, or for the
/// default tenant, belongs to the file.
fn owner_of_policy(policy: &PolicyDefinition) -> Option<&str> {
    match &*policy.tenant {
        [one] if one != DEFAULT_TENANT && one != "any" => Some(one),
        _ => None,
    }
}

/// Usage of a quantity by groups.
pub(super) fn used_by_groups(
    groups: &BTreeMap<String, Vec<ResolvedMember>>,
    of: fn(&[ResolvedMember]) -> usize,
) -> QuantityUsage {
    let mut used = QuantityUsage::default();
    groups.iter().for_each(|(name, members)| used.add(owner_of_group(name), of(members)));
    used
}

/// Number of DNS names among members.
pub(super) fn names_among(members: &[ResolvedMember]) -> usize {
    members.iter().filter(|member| matches!(member, ResolvedMember::Name(_))).count()
}

/// Number of members of a side; the whole space of both IP versions counts as one.
fn members_of(file: &SharedPolicyParts, targets: &[Target]) -> usize {
    let count = |members: &[ResolvedMember]| {
        if *members == EVERYTHING.map(ResolvedMember::Prefix) { 1 } else { members.len() }
    };
    match targets {
        [Target::Any] | [Target::Prefix(_)] => 1,
        [Target::Group(name)] => file.groups.get(name).map_or(0, |members| count(members)),
        _ => count(&resolve::targets(&file.groups, &file.labels, targets)),
    }
}

fn tenants_of(file: &SharedPolicyParts, names: Option<&[String]>) -> usize {
    match names {
        Some(names) if !names.iter().any(|name| name == "any") => names.iter().collect::<BTreeSet<_>>().len(),
        _ => file.tenants.len().saturating_add(1),
    }
}

fn pairs_of(file: &PolicyFile, policy: &PolicyDefinition) -> usize {
    let sides = members_of(file, &policy.from).saturating_mul(members_of(file, &policy.to));
    let links = policy.link.as_ref().map_or(1, |links| links.len());
    sides.saturating_mul(links).saturating_mul(tenants_of(file, Some(&policy.tenant)))
}

fn pairs_of_level(file: &SharedPolicyParts, level: &ServiceLevel) -> usize {
    let tenants = level.tenant.as_ref().map_or(1, |names| tenants_of(file, Some(names)));
    members_of(file, &level.hosts).saturating_mul(tenants)
}

fn combinations_of(file: &PolicyFile, policy: &PolicyDefinition) -> usize {
    combinations_in(file, &policy.sections, &policy.from, &policy.to)
}

fn combinations_in(
    file: &SharedPolicyParts,
    sections: &[FunctionSection],
    from: &[Target],
    to: &[Target],
) -> usize {
    // The function reports the problems of a section that cannot be read.
    let Some(Ok(section)) = section_of::<PfwSection>(sections) else { return 0 };
    let own = SideCounts { from: members_of(file, from), to: members_of(file, to) };
    combinations::of_section(&section, own, |targets| members_of(file, targets))
}

/// Counts the usage by a file's policies. Reports excesses to the builder.
pub(super) fn taken(builder: &mut PolicyFileBuilder<'_>, file: &PolicyFile) -> Arc<PolicyUsage> {
    let [mut pairs, mut combinations] = COUNTED.map(|counted| QuantityTally::of(counted.bound));
    for (index, level) in file.service_levels.iter().enumerate() {
        let path = format!("service-levels/{index}/hosts");
        pairs.add(None, &path, pairs_of_level(file, level));
    }
    let any = [Target::Any];
    combinations.add(None, "default/pfw/rules", combinations_in(file, &file.default.sections, &any, &any));
    let mut shares = [pairs, combinations];
    for (number, (counted, share)) in COUNTED.iter().zip(&mut shares).enumerate() {
        let mut wrong: Vec<(String, String)> = Vec::new();
        for (index, policy) in file.policies.iter().enumerate() {
            let owner = owner_of_policy(policy);
            if share.is_over(owner) {
                continue;
            }
            let path = format!("policies/{index}/{}", counted.place);
            let said = share.add(owner, &path, (counted.of)(file, policy));
            wrong.extend(said.map(|message| (path, message)));
        }
        let before = builder.before.and_then(|before| before.taken.get(number));
        wrong.extend(share.blamed(before).map(|(path, message)| (path.to_owned(), message)));
        for (path, message) in wrong {
            builder.problem(file.locate(&path), &path, message);
        }
    }
    Arc::new(shares.map(|share| share.used))
}

/// The policies in which two files differ.
#[derive(Clone, Copy)]
pub(super) struct ChangedPolicies<'p> {
    /// Policies of the previous file that the new file does not have.
    pub gone: &'p [Arc<PolicyDefinition>],
    /// Policies of the new file that the previous file does not have.
    pub new: &'p [Arc<PolicyDefinition>],
}

/// Counts the usage of a file that differs from the previous one in some policies: only these are counted.
pub(super) fn taken_behind(
    builder: &mut PolicyFileBuilder<'_>,
    before: &PolicyFile,
    changed: ChangedPolicies<'_>,
    file: &PolicyFile,
) -> Arc<PolicyUsage> {
    let mut taken = Arc::clone(&before.taken);
    for (number, counted) in COUNTED.iter().enumerate() {
        let count = |policies: &[Arc<PolicyDefinition>]| -> Vec<(Option<String>, usize)> {
            let of = |policy: &Arc<PolicyDefinition>| {
                (owner_of_policy(policy).map(str::to_owned), (counted.of)(file, policy))
            };
            policies.iter().map(of).collect()
        };
        let (gone, new) = (count(changed.gone), count(changed.new));
        if gone != new
            && let Some(used) = Arc::make_mut(&mut taken).get_mut(number)
        {
            gone.iter().for_each(|(owner, less)| used.remove(owner.as_deref(), *less));
            new.iter().for_each(|(owner, more)| used.add(owner.as_deref(), *more));
        }
    }
    // Finding the policy at fault needs a full count.
    let keeps = taken.iter().zip(&COUNTED).all(|(used, counted)| used.keeps_to(counted.bound));
    if keeps { taken } else { self::taken(builder, file) }
}

impl PolicyFile {
    /// Errors of a file whose groups all belong to one tenant: the checks that a controller makes before a
    /// device does.
    #[must_use]
    pub fn beyond_a_tenant(&self, tenant: &str) -> Vec<ConfigProblem> {
        let mut shares = [
            (QuantityTally::of(&MEMBERS), <[ResolvedMember]>::len as fn(&[ResolvedMember]) -> usize),
            (QuantityTally::of(&NAMES), names_among),
        ];
        let mut problems = Vec::new();
        for (name, members) in &self.groups {
            for (share, count) in &mut shares {
                if let Some(message) = share.add(Some(tenant), name, count(members)) {
                    let path = format!("groups/{name}");
                    problems.push(ConfigProblem { position: self.locate(&path), path, message });
                }
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Parts, PolicyError, PolicyText, from_parts};
    use serde_json::{Value, json};

    /// A common part with a tenant of each name; `groups`: sizes by name.
    fn common(tenants: &[&str], groups: &[(&str, u32)]) -> Arc<Value> {
        let tenants = (1..).zip(tenants).map(|(vni, name)| json!({"name": name, "select": {"vni": vni}}));
        let scattered = |n: u32| std::net::Ipv4Addr::from(n.reverse_bits() | 1).to_string();
        let members = |size: u32| (0..size).map(scattered).collect::<Vec<_>>();
        let groups: serde_json::Map<_, _> =
            groups.iter().map(|(name, size)| ((*name).to_owned(), json!(members(*size)))).collect();
        let tenants: Vec<_> = tenants.collect();
        Arc::new(json!({"tenants": tenants, "groups": groups, "default": {"action": "drop"}}))
    }

    fn policy(name: &str, tenant: &str, from: &str, to: &str) -> Arc<PolicyText> {
        let policy = json!({"name": name, "tenant": [tenant], "from": [from], "to": [to], "chain": ["sfw"]});
        Arc::new(PolicyText::new(policy))
    }

    fn read(parts: &Parts, before: Option<&PolicyFile>) -> Result<PolicyFile, String> {
        from_parts("x", parts, &["sfw"], before).map_err(|error| error.to_string())
    }

    #[test]
    fn long_lists_stand_on_one_side_and_are_not_multiplied() {
        let most = TENANT_PAIRS_MAX as u32;
        let common = common(&["a"], &[("long@a", most), ("other@a", 40_000), ("two@a", 2)]);
        let parts = |from: &str, to: &str| Parts {
            common: Arc::clone(&common),
            policies: vec![policy("small", "a", "10.0.0.1", "two@a"), policy("p", "a", from, to)],
        };
        let file = read(&parts("other@a", "any"), None).unwrap();
        assert_eq!((file.taken[0].all, file.taken[0].of("a")), (40_002, 40_002));
        // The same for a new file and for a successor.
        for before in [None, Some(&file)] {
            for (from, to) in [("other@a", "other@a"), ("long@a", "10.0.0.1"), ("two@a", "long@a")] {
                let wrong = read(&parts(from, to), before).unwrap_err();
                assert!(wrong.contains("with this tenant `a` has more than 262144 pairs"), "{wrong}");
            }
        }
        // A policy of no single tenant may use as much as a device takes.
        let mut parts = parts("long@a", "10.0.0.1");
        parts.policies.truncate(1);
        parts.policies.push(policy("own", "default", "long@a", "two@a"));
        assert!(read(&parts, Some(&file)).is_ok());
        parts.policies.push(policy("more", "any", "long@a", "10.0.0.1"));
        let wrong = read(&parts, Some(&file)).unwrap_err();
        assert!(wrong.contains("there are more than 1048576 pairs"), "{wrong}");
    }

    /// A policy with a packet filter of this many rules.
    fn filter(name: &str, tenant: &str, group: &str, rules: usize) -> Arc<PolicyText> {
        let rule = json!({"allow": ["tcp", "udp"], "from": group, "to-ports": [80, 443]});
        let filter = json!({"default": "drop", "rules": vec![rule; rules]});
        let policy =
            json!({"name": name, "tenant": [tenant], "to": ["10.0.0.1"], "chain": ["pfw"], "pfw": filter});
        Arc::new(PolicyText::new(policy))
    }

    #[test]
    fn rules_of_the_packet_filter_are_multiplied_and_a_tenant_has_its_bound() {
        let tenants = ["a", "b"];
        let common = common(&tenants, &[("g", 1 << 14)]);
        let of = |policies: Vec<Arc<PolicyText>>| Parts { common: Arc::clone(&common), policies };
        let read = |parts: &Parts, before| from_parts("x", parts, &["pfw"], before);
        // 16,384 addresses, two protocols, two ports: 65,536 combinations per rule.
        let full = of(vec![filter("p", "a", "g", 4), filter("q", "b", "g", 1)]);
        let before = read(&full, None).unwrap();
        let [pairs, combinations] = &*before.taken;
        assert_eq!((pairs.all, combinations.of("a"), combinations.of("b")), (2, 1 << 18, 1 << 16));
        let more =
            of(vec![full.policies[0].clone(), full.policies[1].clone(), filter("r", "a", "10.0.0.1", 1)]);
        let said = "policies/2/pfw/rules: with this tenant `a` has more than 262144 combinations of addresses, ports and protocols";
        for before in [None, Some(&before)] {
            let wrong = read(&more, before).unwrap_err();
            let PolicyError::Wrong { problems, .. } = &wrong else { panic!("{wrong}") };
            let told: Vec<_> = problems.iter().map(|p| format!("{}: {}", p.path, p.message)).collect();
            assert!(told.len() == 1 && told[0].starts_with(said), "{told:?}");
        }
        // One rule less makes room, and the usage falls with it.
        let less =
            of(vec![filter("p", "a", "g", 3), full.policies[1].clone(), filter("r", "a", "10.0.0.1", 1)]);
        let next = read(&less, Some(&before)).unwrap();
        assert_eq!(next.taken[1].of("a"), 3 * (1 << 16) + 4);
        // The default's rules belong to no tenant, and count for the device.
        let mut own = (*common).clone();
        let rule = json!({"allow": "tcp", "from": "g", "to": ["g"]});
        own["default"] =
            json!({"action": "drop", "chain": ["pfw"], "pfw": {"default": "drop", "rules": [rule]}});
        let wrong = read(&Parts { common: Arc::new(own), policies: Vec::new() }, None).unwrap_err();
        assert!(wrong.to_string().contains("there are more than 4194304 combinations"), "{wrong}");
    }

    #[test]
    fn links_and_tenants_are_counted() {
        let common = common(&["a", "b"], &[("g", 100)]);
        let one =
            json!({"name": "p", "tenant": "any", "from": "g", "link": ["wan", "wan"], "chain": ["sfw"]});
        let parts = Parts { common, policies: vec![Arc::new(PolicyText::new(one))] };
        assert_eq!(read(&parts, None).unwrap().taken[0].all, 100 * 2 * 3);
    }

    #[test]
    fn who_has_taken_most_is_blamed_and_what_was_there_stays() {
        let tenants = ["a", "b", "c", "d", "e", "f"];
        let most = TENANT_PAIRS_MAX as u32;
        let common = common(&tenants, &[("full", most), ("half", most / 2), ("few", 10)]);
        let of = |said: &[(&str, &str)]| Parts {
            common: Arc::clone(&common),
            policies: said
                .iter()
                .map(|(tenant, group)| policy(&format!("{tenant}-{group}"), tenant, group, "any"))
                .collect(),
        };
        // `a` to `c` use their full shares, which leaves room for one more.
        let three = [("a", "full"), ("b", "full"), ("c", "full")];
        let before = read(&of(&three), None).unwrap();
        assert_eq!((before.taken[0].all, before.taken[0].of("b")), (3 * TENANT_PAIRS_MAX, TENANT_PAIRS_MAX));
        let more = [&three[..], &[("d", "few"), ("e", "half"), ("f", "half")]].concat();
        let wrong = read(&of(&more), Some(&before)).unwrap_err();
        assert!(
            wrong.contains("and tenant `f` has 131072 of them")
                || wrong.contains("and tenant `e` has 131072 of them"),
            "{wrong}"
        );
        // Without the policy at fault the others fit.
        let without = [&three[..], &[("d", "few"), ("e", "half")]].concat();
        let next = read(&of(&without), Some(&before)).unwrap();
        // A smaller file leaves no trace of earlier usage.
        let back = read(&of(&three), Some(&next)).unwrap();
        assert_eq!((back.taken[0].all, back.taken[0].of("e")), (before.taken[0].all, 0));
    }

    #[test]
    fn members_of_a_tenant_leave_room_for_others() {
        // A group of groups counts its members again: few letters, many members.
        let many: Vec<String> =
            (0..150_000u32).map(|n| std::net::Ipv4Addr::from(n << 8).to_string()).collect();
        let file = |groups: usize| {
            let mut all: serde_json::Map<_, _> =
                (0..groups).map(|n| (format!("g{n}@a"), json!(["many"]))).collect();
            all.insert("many".to_owned(), json!(many));
            all.insert("g@b".to_owned(), json!(["many"]));
            let common = Arc::new(json!({"groups": all, "default": {"action": "drop"}}));
            read(&Parts { common, policies: Vec::new() }, None)
        };
        let six = file(6).unwrap();
        assert_eq!(six.groups["g5@a"].len(), 150_000);
        let wrong = file(8).unwrap_err();
        assert!(wrong.contains("with this tenant `a` has more than 1048576 members"), "{wrong}");
        assert!(!wrong.contains("`b`") && wrong.lines().count() == 1, "{wrong}");
        // A controller has the groups of one tenant, under the tenant's own names.
        let wrong = six.beyond_a_tenant("z");
        assert!(
            matches!(wrong.as_slice(), [one] if one.message.contains("tenant `z` has more than 1048576 members"))
        );
    }

    #[test]
    fn where_several_fill_a_file_the_largest_that_has_grown_is_blamed() {
        static BOUND: QuantityBound =
            QuantityBound { what: "things", all: 10, tenant: 6, advice: "use fewer" };
        let counted = |said: &[(&str, usize)]| {
            let mut share = QuantityTally::of(&BOUND);
            let wrong: Vec<_> = said
                .iter()
                .filter_map(|(owner, n)| share.add(Some(owner), &format!("of-{owner}"), *n))
                .collect();
            (share, wrong)
        };
        let (before, wrong) = counted(&[("a", 6), ("b", 2)]);
        assert!(wrong.is_empty() && before.blamed(None).is_none());
        let blamed = |said: &[(&str, usize)], before: Option<&QuantityUsage>| {
            counted(said).0.blamed(before).map(|(item, message)| (item.to_owned(), message))
        };
        let told = |tenant: &str, own: usize| {
            let message =
                format!("there are more than 10 things, and tenant `{tenant}` has {own} of them; use fewer");
            Some((format!("of-{tenant}"), message))
        };
        let all = [("a", 6), ("b", 3), ("c", 2)];
        assert_eq!(blamed(&all, Some(&before.used)), told("b", 3));
        assert_eq!(blamed(&all, None), told("a", 6));
        assert_eq!(blamed(&all[..2], Some(&before.used)), None);
        assert_eq!(blamed(&[("a", usize::MAX), ("b", usize::MAX)], None), told("b", usize::MAX));
        let (_, wrong) = counted(&[("a", 5), ("a", 2), ("a", 9), ("b", 1)]);
        assert_eq!(wrong, ["with this tenant `a` has more than 6 things; use fewer"]);
    }

    #[test]
    fn dns_names_of_a_tenant_leave_room_for_others() {
        let names = |n: usize| (0..n).map(|n| json!({"dns": format!("n{n}.example")})).collect::<Vec<_>>();
        let common = json!({"groups": {"g@a": names(TENANT_DNS_NAMES_MAX + 1), "g@b": names(3)}, "default": {"action": "drop"}});
        let wrong = read(&Parts { common: Arc::new(common), policies: Vec::new() }, None).unwrap_err();
        assert!(wrong.contains("tenant `a` has more than 65536 DNS names"), "{wrong}");
    }
}

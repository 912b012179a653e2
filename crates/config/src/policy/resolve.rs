// SPDX-License-Identifier: Apache-2.0
//! Resolves the names of a policy file: groups to prefixes; checks that every used name is defined, and that
//! selectors can match.

use super::sections::PfwSection;
use super::shares::{self, QuantityTally};
use super::values::{EVERYTHING, carries};
use super::{
    ADDRESSES_MAX, ConfigProblem, DEFAULT_TENANT, GroupMember, IpVersions, Labels, OneOrMany,
    PolicyDefinition, PolicyFile, PolicyFileBuilder, Prefix, ResolvedMember, Select, Target, did_you_mean,
    locate, section_of,
};
use crate::yaml::Node;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Deepest nesting of groups.
pub(crate) const GROUP_DEPTH_MAX: usize = 64;

/// Members of a list whose groups exist; sorted and distinct.
pub(super) fn targets(
    groups: &BTreeMap<String, Vec<ResolvedMember>>,
    labels: &BTreeMap<String, Labels>,
    targets: &[Target],
) -> Vec<ResolvedMember> {
    let mut members = Vec::new();
    // A group that is named repeatedly contributes its members once.
    let mut named = BTreeSet::new();
    for target in targets {
        match target {
            Target::Any => return EVERYTHING.map(ResolvedMember::Prefix).to_vec(),
            Target::Prefix(prefix) => members.push(ResolvedMember::Prefix(*prefix)),
            Target::Group(name) => drop(named.insert(name)),
            Target::Label(asked) => {
                let meant = labels.iter().filter(|(_, carried)| carries(carried, asked));
                named.extend(meant.map(|(name, _)| name));
            }
        }
    }
    members.extend(named.into_iter().filter_map(|name| groups.get(name)).flatten().cloned());
    each_once(members)
}

fn each_once(mut members: Vec<ResolvedMember>) -> Vec<ResolvedMember> {
    let everything = EVERYTHING.map(ResolvedMember::Prefix);
    if everything.iter().all(|all| members.contains(all)) {
        return everything.to_vec();
    }
    members.sort_unstable();
    members.dedup();
    members
}

/// Resolves groups within groups.
pub(super) fn groups(
    builder: &mut PolicyFileBuilder<'_>,
    root: &Node,
    raw: &BTreeMap<String, super::OneOrMany<GroupMember>>,
) -> BTreeMap<String, Vec<ResolvedMember>> {
    let (done, depths) = (BTreeMap::new(), BTreeMap::new());
    let (members, names) = (QuantityTally::of(&shares::MEMBERS), QuantityTally::of(&shares::NAMES));
    let mut following = Following { builder, root, raw, done, depths, members, names };
    for name in raw.keys() {
        if name == "any" || name == "none" {
            following.problem(name, format!("`{name}` cannot be the name of a group; rename it"));
        }
        following.follow(name, &mut Vec::new());
    }
    following.report_excess();
    following.done
}

/// The resolution of groups to members.
struct Following<'f, 'b> {
    builder: &'f mut PolicyFileBuilder<'b>,
    root: &'f Node,
    raw: &'f BTreeMap<String, super::OneOrMany<GroupMember>>,
    done: BTreeMap<String, Vec<ResolvedMember>>,
    /// Depth of nesting of each resolved group.
    depths: BTreeMap<String, usize>,
    /// Usage of members by the resolved groups.
    members: QuantityTally,
    names: QuantityTally,
}

impl Following<'_, '_> {
    fn problem(&mut self, path: &str, message: String) {
        let path = format!("groups/{path}");
        self.builder.problem(locate(self.root, &path), &path, message);
    }

    fn too_deep(&mut self, name: &str) {
        self.problem(
            name,
            format!("at `{name}` groups nest deeper than {GROUP_DEPTH_MAX}; name members directly"),
        );
    }

    /// Resolves a group; `open`: the groups on the way to it. Returns the depth of nesting from it on; 0 if
    /// that is too deep.
    fn follow(&mut self, name: &str, open: &mut Vec<String>) -> usize {
        let raw = self.raw;
        let Some(members) = raw.get(name) else { return 0 };
        if let Some(depth) = self.depths.get(name) {
            return *depth;
        }
        if open.len() >= GROUP_DEPTH_MAX {
            self.too_deep(name);
            return 0;
        }
        open.push(name.to_owned());
        let mut depth = 1;
        for (index, member) in members.iter().enumerate() {
            depth = depth.max(1 + self.inner(&format!("{name}/{index}"), member, open));
        }
        open.pop();
        if depth > GROUP_DEPTH_MAX {
            self.too_deep(name);
            depth = 0;
        }
        self.depths.insert(name.to_owned(), depth);
        self.collect(name, members);
        depth
    }

    /// Resolves a member of a group: a group is resolved first.
    fn inner(&mut self, path: &str, member: &GroupMember, open: &mut Vec<String>) -> usize {
        let inner = match member {
            GroupMember::Target(Target::Group(inner)) => inner,
            GroupMember::Target(Target::Label(_)) => {
                self.problem(path, "a group cannot have labels as members; name the groups".to_owned());
                return 0;
            }
            _ => return 0,
        };
        if open.contains(inner) {
            let way = open.join(" > ");
            self.problem(path, format!("group `{inner}` contains itself ({way} > {inner}); remove it here"));
        } else if self.raw.contains_key(inner) {
            return self.follow(inner, open);
        } else {
            let hint = did_you_mean(inner, self.raw.keys().map(String::as_str));
            self.problem(path, format!("there is no group `{inner}`; {hint}"));
        }
        0
    }

    /// Collects the members of a group whose inner groups are resolved. A group with too many members gets
    /// none.
    fn collect(&mut self, name: &str, members: &[GroupMember]) {
        let owner = shares::owner_of_group(name);
        if self.members.is_over(owner) || self.names.is_over(owner) {
            self.done.insert(name.to_owned(), Vec::new());
            return;
        }
        let (mut named, mut all) = (Vec::new(), Vec::new());
        for member in members {
            match member {
                GroupMember::Target(target) => named.push(target.clone()),
                GroupMember::Names(names) => all.extend(names.iter().cloned().map(ResolvedMember::Name)),
            }
        }
        all.extend(targets(&self.done, &BTreeMap::new(), &named));
        let mut all = each_once(all);
        let said = self.members.add(owner, name, all.len());
        let said = said.or(self.names.add(owner, name, shares::names_among(&all)));
        let is_kept = said.is_none() && !self.members.is_full() && !self.names.is_full();
        said.into_iter().for_each(|message| self.problem(name, message));
        if !is_kept {
            all = Vec::new();
        }
        self.done.insert(name.to_owned(), all);
    }

    /// Reports the group at fault if all groups together have too many members.
    fn report_excess(&mut self) {
        let before = self.builder.before.map(|before| &before.groups);
        let used = |count| before.map(|groups| shares::used_by_groups(groups, count));
        let members = self.members.blamed(used(<[ResolvedMember]>::len).as_ref());
        let names = self.names.blamed(used(shares::names_among).as_ref());
        let wrong: Vec<_> =
            members.into_iter().chain(names).map(|(name, what)| (name.to_owned(), what)).collect();
        wrong.into_iter().for_each(|(name, what)| self.problem(&name, what));
    }
}

/// Checks every name in a file against its definitions.
pub(super) fn check(builder: &mut PolicyFileBuilder<'_>, file: &PolicyFile) {
    tenants(builder, file);
    hidden_tenants(builder, file);
    dns(builder, file);
    let unknown = |group: &&String| !builder.is_unread("groups") && !file.groups.contains_key(*group);
    for group in file.labels.keys().filter(unknown).collect::<Vec<_>>() {
        let path = format!("labels/{group}");
        let hint = did_you_mean(group, file.groups.keys().map(String::as_str));
        builder.problem(
            file.locate(&path),
            &path,
            format!("there is no group `{group}` for these labels; {hint}"),
        );
    }
    policy_names(builder, file);
    policies(builder, file, 0..file.policies.len());
    let known = known_tenants(file);
    for (index, level) in file.service_levels.iter().enumerate() {
        let path = format!("service-levels/{index}");
        members(builder, file, &format!("{path}/hosts"), &level.hosts);
        if let Some(names) = &level.tenant {
            tenant_names(builder, file, &known, &format!("{path}/tenant"), names);
        }
        let is_known = level.level == "none" || file.rule_groups.contains_key(&level.level);
        if !is_known && !builder.is_unread("rule-groups") {
            let known = file.rule_groups.keys().map(String::as_str).chain(["none"]);
            let hint = did_you_mean(&level.level, known.collect::<Vec<_>>());
            let message = format!("there is no rule group `{}`; {hint}", level.level);
            builder.problem(file.locate(&format!("{path}/level")), &path, message);
        }
    }
}

/// Checks that the names of policies are distinct.
pub(super) fn policy_names(builder: &mut PolicyFileBuilder<'_>, file: &PolicyFile) {
    let mut names = HashSet::new();
    for (index, policy) in file.policies.iter().enumerate() {
        if !names.insert(&policy.name) {
            let path = format!("policies/{index}");
            let message = format!("two policies are called `{}`; rename one", policy.name);
            builder.problem(file.locate(&format!("{path}/name")), &path, message);
        }
    }
}

/// Checks the names in some policies.
pub(super) fn policies(builder: &mut PolicyFileBuilder<'_>, file: &PolicyFile, some: Range<usize>) {
    let known = known_tenants(file);
    for (index, policy) in file.policies.iter().enumerate().take(some.end).skip(some.start) {
        let path = format!("policies/{index}");
        members(builder, file, &format!("{path}/from"), &policy.from);
        members(builder, file, &format!("{path}/to"), &policy.to);
        sides(builder, file, &path, policy);
        links(builder, file, &format!("{path}/link"), policy.link.as_ref());
        tenant_names(builder, file, &known, &format!("{path}/tenant"), &policy.tenant);
    }
}

/// Reports a policy that no packet can match, since its sides have no IP version in common.
fn sides(builder: &mut PolicyFileBuilder<'_>, file: &PolicyFile, path: &str, policy: &PolicyDefinition) {
    let versions =
        |targets: &[Target]| IpVersions::of(file.resolve(targets).iter().map(ResolvedMember::address));
    if let Some(why) = versions(&policy.from).apart(versions(&policy.to)) {
        let path = format!("{path}/to");
        builder.problem(file.locate(&path), &path, format!("this policy never matches: {why}"));
    }
}

/// Reports links without a name.
fn links(
    builder: &mut PolicyFileBuilder<'_>,
    file: &PolicyFile,
    path: &str,
    links: Option<&OneOrMany<String>>,
) {
    for (item, _) in links.iter().flat_map(|list| list.iter()).enumerate().filter(|(_, l)| l.is_empty()) {
        let path = format!("{path}/{item}");
        let message = "the name of a link is empty, so it selects nothing; name a link of the host file, or remove the key";
        builder.problem(file.locate(&path), &path, message.to_owned());
    }
}

fn tenants(builder: &mut PolicyFileBuilder<'_>, file: &PolicyFile) {
    let mut names = HashSet::from([DEFAULT_TENANT, "any"]);
    for (index, tenant) in file.tenants.iter().enumerate() {
        let path = format!("tenants/{index}");
        if !names.insert(&tenant.name) {
            let message = format!("the name `{}` is taken; give this tenant another", tenant.name);
            builder.problem(file.locate(&format!("{path}/name")), &path, message);
        }
        let select = &tenant.select;
        if select.vni.is_none() && select.vlan.is_none() && select.link.is_none() && select.prefixes.is_none()
        {
            let message = "the tenant selects no traffic; add `vni`, `vlan`, `link` or `prefixes`";
            builder.problem(file.locate(&format!("{path}/select")), &path, message.to_owned());
        }
        if let Some(prefixes) = &select.prefixes {
            let path = format!("{path}/select/prefixes");
            members(builder, file, &path, prefixes);
            without_names(builder, file, &path, prefixes, "whose traffic it is");
        }
        let path_of_resolvers = format!("{path}/resolvers");
        members(builder, file, &path_of_resolvers, &tenant.resolvers);
        without_names(builder, file, &path_of_resolvers, &tenant.resolvers, "whose answers count");
        links(builder, file, &format!("{path}/select/link"), select.link.as_ref());
        for (item, vlan) in select.vlan.iter().flat_map(|l| l.iter()).enumerate() {
            if !(1..=4094).contains(vlan) {
                let path = format!("{path}/select/vlan/{item}");
                builder.problem(
                    file.locate(&path),
                    &path,
                    format!("VLAN {vlan} does not exist; give an id from 1 to 4094"),
                );
            }
        }
    }
}

/// Reports parts of tenants' selectors that no packet reaches, because earlier tenants take their traffic.
fn hidden_tenants(builder: &mut PolicyFileBuilder<'_>, file: &PolicyFile) {
    builder.problems.extend(hidden_in(file));
}

fn dns(builder: &mut PolicyFileBuilder<'_>, file: &PolicyFile) {
    let section = &file.dns;
    members(builder, file, "dns/resolvers", &section.resolvers);
    without_names(builder, file, "dns/resolvers", &section.resolvers, "whose answers count");
    if section.ttl_min > section.ttl_max {
        let message = format!(
            "`ttl-min` ({}) is longer than `ttl-max` ({}); make it shorter",
            section.ttl_min, section.ttl_max
        );
        builder.problem(file.locate("dns/ttl-min"), "dns/ttl-min", message);
    }
    if !(1..=ADDRESSES_MAX).contains(&section.addresses) {
        let message = format!("`addresses` is out of range; give 1 to {ADDRESSES_MAX}");
        builder.problem(file.locate("dns/addresses"), "dns/addresses", message);
    }
}

/// Reports DNS names where the lists determine trusted answers: names have no addresses before answers are
/// seen.
fn without_names(
    builder: &mut PolicyFileBuilder<'_>,
    file: &PolicyFile,
    path: &str,
    list: &[Target],
    what: &str,
) {
    for (index, target) in list.iter().enumerate() {
        let members = file.resolve(core::slice::from_ref(target));
        if let Some(ResolvedMember::Name(name)) =
            members.iter().find(|m| matches!(m, ResolvedMember::Name(_)))
        {
            let path = format!("{path}/{index}");
            let message =
                format!("DNS names cannot determine {what}, and `{target}` has `{name}`; write addresses");
            builder.problem(file.locate(&path), &path, message);
        }
    }
}

fn members(builder: &mut PolicyFileBuilder<'_>, file: &PolicyFile, path: &str, targets: &[Target]) {
    for (index, target) in targets.iter().enumerate() {
        if let Target::Label(asked) = target
            && !builder.is_unread("groups")
            && !builder.is_unread("labels")
            && !file.labels.values().any(|carried| carries(carried, asked))
        {
            let path = format!("{path}/{index}");
            let known = file.labels.values().flatten().map(|(key, value)| format!("{key}={value}"));
            let known: Vec<String> = known.collect();
            let hint = did_you_mean(&target.to_string(), known.iter().map(String::as_str));
            builder.problem(file.locate(&path), &path, format!("no group has the label {target}; {hint}"));
        }
        if let Target::Group(name) = target
            && !builder.is_unread("groups")
            && !file.groups.contains_key(name)
        {
            let path = format!("{path}/{index}");
            let hint = did_you_mean(name, file.groups.keys().map(String::as_str));
            builder.problem(file.locate(&path), &path, format!("there is no group `{name}`; {hint}"));
        }
    }
}

/// Names that may stand for tenants.
fn known_tenants(file: &PolicyFile) -> HashSet<&str> {
    file.tenants.iter().map(|t| t.name.as_str()).chain([DEFAULT_TENANT, "any"]).collect()
}

fn tenant_names(
    builder: &mut PolicyFileBuilder<'_>,
    file: &PolicyFile,
    known: &HashSet<&str>,
    path: &str,
    names: &[String],
) {
    for (index, name) in names.iter().enumerate().filter(|(_, name)| !known.contains(name.as_str())) {
        let path = format!("{path}/{index}");
        let told = file.tenants.iter().map(|t| t.name.as_str()).chain([DEFAULT_TENANT]);
        let hint = did_you_mean(name, told.collect::<Vec<_>>());
        builder.problem(file.locate(&path), &path, format!("there is no tenant `{name}`; {hint}"));
    }
}

/// The tenants' selectors with their groups resolved.
struct Resolved<'f> {
    select: &'f Select,
    prefixes: Option<Vec<Prefix>>,
}

/// An item of a tenant's selector that never matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// Index of the tenant in the list.
    pub tenant: usize,
    /// Index of the earlier tenant that takes its traffic.
    pub by: usize,
    /// The path within the selector: `vlan/2`.
    pub path: String,
    /// The fault, and how to correct it.
    pub message: String,
}

/// A single item of a selector, in place of the list of its key.
#[derive(Clone, Copy)]
enum SelectorItem<'f> {
    Vni(u32),
    Vlan(u16),
    Link(&'f str),
    Target(&'f Target),
}

impl core::fmt::Display for SelectorItem<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SelectorItem::Vni(vni) => write!(f, "VNI {vni}"),
            SelectorItem::Vlan(vlan) => write!(f, "VLAN {vlan}"),
            SelectorItem::Link(link) => write!(f, "link `{link}`"),
            SelectorItem::Target(target) => write!(f, "`{target}`"),
        }
    }
}

/// Items of tenants' selectors that no packet reaches. A packet must match all keys of a selector, and
/// belongs to the first tenant that it matches: so an item is hidden if an earlier tenant has no key that
/// this one lacks, and each of its lists covers this one's, reduced to the item.
///
/// `tenants`: names and selectors in the order in which they are tried; `prefixes`: resolves targets.
pub fn hidden(tenants: &[(&str, &Select)], prefixes: impl Fn(&[Target]) -> Vec<Prefix>) -> Vec<Hidden> {
    let resolved = |(_, select): &(&str, &'_ Select)| select.prefixes.as_ref().map(|own| prefixes(own));
    let all: Vec<Resolved<'_>> =
        tenants.iter().map(|tenant| Resolved { select: tenant.1, prefixes: resolved(tenant) }).collect();
    let first = Firsts::of(&all);
    let mut found = Vec::new();
    for (index, own) in all.iter().enumerate() {
        for (key, place, item) in items(own.select) {
            let meant = match item {
                SelectorItem::Target(target) => prefixes(core::slice::from_ref(target)),
                _ => own.prefixes.clone().unwrap_or_default(),
            };
            let reduced = ReducedItem { item, prefixes: &meant };
            let earlier = first.candidates(index, own.select, reduced);
            let covers = |at: &usize| all.get(*at).is_some_and(|first| covers(first, own, reduced));
            let Some(by) = earlier.into_iter().find(covers) else { continue };
            let name = |at: usize| tenants.get(at).map_or("", |(name, _)| *name);
            let message = format!(
                "{item} of tenant `{}` never matches: its traffic belongs to tenant `{}`, which is tried first; remove it from one of them",
                name(index),
                name(by)
            );
            found.push(Hidden { tenant: index, by, path: format!("{key}/{place}"), message });
        }
    }
    found
}

/// Problems of a file's selectors that never match.
pub(super) fn hidden_in(file: &PolicyFile) -> Vec<ConfigProblem> {
    let tenants: Vec<(&str, &Select)> =
        file.tenants.iter().map(|tenant| (tenant.name.as_str(), &tenant.select)).collect();
    let problem = |hidden: Hidden| {
        let path = format!("tenants/{}/select/{}", hidden.tenant, hidden.path);
        ConfigProblem { position: file.locate(&path), path, message: hidden.message }
    };
    hidden(&tenants, |targets| file.prefixes(targets)).into_iter().map(problem).collect()
}

fn items(select: &Select) -> Vec<(&'static str, usize, SelectorItem<'_>)> {
    fn each<'f, T>(
        key: &'static str,
        list: Option<&'f OneOrMany<T>>,
        item: impl Fn(&'f T) -> SelectorItem<'f>,
    ) -> impl Iterator<Item = (&'static str, usize, SelectorItem<'f>)> {
        let all = list.map(|list| &**list).unwrap_or_default();
        all.iter().enumerate().map(move |(place, one)| (key, place, item(one)))
    }
    let Select { vni, vlan, link, prefixes } = select;
    each("vni", vni.as_ref(), |vni| SelectorItem::Vni(*vni))
        .chain(each("vlan", vlan.as_ref(), |vlan| SelectorItem::Vlan(*vlan)))
        .chain(each("link", link.as_ref(), |link| SelectorItem::Link(link)))
        .chain(each("prefixes", prefixes.as_ref(), SelectorItem::Target))
        .collect()
}

/// An item of a tenant's selector.
#[derive(Clone, Copy)]
struct ReducedItem<'i> {
    item: SelectorItem<'i>,
    /// The tenant's prefixes, reduced to the item.
    prefixes: &'i [Prefix],
}

/// Whether a tenant takes all traffic that another one selects by an item.
fn covers(first: &Resolved<'_>, own: &Resolved<'_>, reduced: ReducedItem<'_>) -> bool {
    fn within<T: PartialEq>(
        first: Option<&OneOrMany<T>>,
        own: Option<&OneOrMany<T>>,
        item: Option<&T>,
    ) -> bool {
        let Some(first) = first else { return true };
        match (item, own) {
            (Some(item), _) => first.contains(item),
            (None, Some(own)) => own.iter().all(|one| first.contains(one)),
            (None, None) => false,
        }
    }
    let ReducedItem { item, prefixes: meant } = reduced;
    let (a, b) = (first.select, own.select);
    let vni = if let SelectorItem::Vni(vni) = &item { Some(vni) } else { None };
    let vlan = if let SelectorItem::Vlan(vlan) = &item { Some(vlan) } else { None };
    let link = if let SelectorItem::Link(link) = &item { Some((*link).to_owned()) } else { None };
    let prefixes = || {
        let Some(theirs) = &first.prefixes else { return true };
        let inside = |prefix: &Prefix| {
            theirs.iter().any(|one| one.length <= prefix.length && one.contains(prefix.address))
        };
        !meant.is_empty() && meant.iter().all(inside)
    };
    within(a.vni.as_ref(), b.vni.as_ref(), vni)
        && within(a.vlan.as_ref(), b.vlan.as_ref(), vlan)
        && within(a.link.as_ref(), b.link.as_ref(), link.as_ref())
        && prefixes()
}

/// Candidates for hiding an item of a later tenant, so that not all pairs are compared: tenants with the same
/// number or link, and of tenants with prefixes alone, those whose prefixes contain its first prefix.
struct Firsts<'f> {
    vnis: HashMap<u32, Vec<usize>>,
    vlans: HashMap<u16, Vec<usize>>,
    links: HashMap<&'f str, Vec<usize>>,
    prefixes: HashMap<Prefix, Vec<usize>>,
}

impl<'f> Firsts<'f> {
    fn of(all: &[Resolved<'f>]) -> Self {
        let (mut vnis, mut vlans, mut links) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut prefixes = HashMap::new();
        for (index, Resolved { select, prefixes: own }) in all.iter().enumerate() {
            // Listed under one of its keys, which every selector that it hides has as well.
            if let Some(list) = &select.vni {
                list.iter().for_each(|vni| vnis.entry(*vni).or_insert_with(Vec::new).push(index));
            } else if let Some(list) = &select.vlan {
                list.iter().for_each(|vlan| vlans.entry(*vlan).or_insert_with(Vec::new).push(index));
            } else if let Some(list) = &select.link {
                list.iter().for_each(|link| links.entry(link.as_str()).or_insert_with(Vec::new).push(index));
            } else {
                let own = own.iter().flatten();
                own.for_each(|prefix| prefixes.entry(*prefix).or_insert_with(Vec::new).push(index));
            }
        }
        Firsts { vnis, vlans, links, prefixes }
    }

    /// The candidates before a tenant, in order.
    fn candidates(&self, before: usize, own: &Select, reduced: ReducedItem<'_>) -> Vec<usize> {
        let ReducedItem { item, prefixes: meant } = reduced;
        let Select { vni, vlan, link, .. } = own;
        let mut found = Vec::new();
        let mut add = |some: Option<&Vec<usize>>| found.extend(some.into_iter().flatten().copied());
        match item {
            SelectorItem::Vni(vni) => add(self.vnis.get(&vni)),
            _ => vni.iter().flat_map(|list| list.first()).for_each(|vni| add(self.vnis.get(vni))),
        }
        match item {
            SelectorItem::Vlan(vlan) => add(self.vlans.get(&vlan)),
            _ => vlan.iter().flat_map(|list| list.first()).for_each(|vlan| add(self.vlans.get(vlan))),
        }
        match item {
            SelectorItem::Link(link) => add(self.links.get(link)),
            _ => {
                link.iter().flat_map(|list| list.first()).for_each(|link| add(self.links.get(link.as_str())))
            }
        }
        if let Some(prefix) = meant.first() {
            let around = (0..=prefix.length).map(|length| Prefix::new(prefix.address, length));
            around.for_each(|around| add(self.prefixes.get(&around)));
        }
        found.retain(|at| *at < before);
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Warnings about lists whose groups have no members: they select nothing.
pub(super) fn empty_selections(file: &PolicyFile) -> Vec<String> {
    let mut warnings = Vec::new();
    if file.groups.values().all(|members| !members.is_empty()) {
        return warnings;
    }
    let mut look = |path: String, list: Option<&[Target]>, whose: &str| {
        if let Some(list) = list.filter(|list| file.resolve(list).is_empty()) {
            let names: Vec<String> = list.iter().map(|target| format!("`{target}`")).collect();
            warnings.push(format!(
                "{}: {whose} selects nothing: {} has no members; it selects them once there are some",
                file.place(&path),
                names.join(", "),
            ));
        }
    };
    for (index, tenant) in file.tenants.iter().enumerate() {
        let list = tenant.select.prefixes.as_deref();
        look(format!("tenants/{index}/select/prefixes"), list, &format!("tenant `{}`", tenant.name));
    }
    for (index, level) in file.service_levels.iter().enumerate() {
        look(format!("service-levels/{index}/hosts"), Some(&level.hosts), "this service level");
    }
    for (index, policy) in file.policies.iter().enumerate() {
        let whose = format!("policy `{}`", policy.name);
        look(format!("policies/{index}/from"), Some(&policy.from), &whose);
        look(format!("policies/{index}/to"), Some(&policy.to), &whose);
        if let Some(Ok(section)) = section_of::<PfwSection>(&policy.sections) {
            for (number, rule) in section.rules.iter().enumerate() {
                let path = format!("policies/{index}/pfw/rules/{number}");
                look(format!("{path}/from"), rule.from.as_deref(), "this rule");
                look(format!("{path}/to"), rule.to.as_deref(), "this rule");
            }
        }
    }
    warnings
}

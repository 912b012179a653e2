// SPDX-License-Identifier: Apache-2.0
//! Names of a policy file: groups down to prefixes, and whether every name that is used is defined.

use super::shares::{self, Share};
use super::values::carries;
use super::{
    ADDRESSES_MAX, Builder, DEFAULT_TENANT, GroupMember, Labels, Member, PolicyFile, Prefix, Target,
    did_you_mean, locate,
};
use crate::yaml::Node;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Every address of IPv4, every address of IPv6.
pub(super) const EVERYTHING: [Prefix; 2] = [
    Prefix { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), length: 0 },
    Prefix { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), length: 0 },
];

/// Groups in each other.
pub(crate) const GROUP_DEPTH_MAX: usize = 64;

/// Members of a list whose groups are known to exist; sorted, each once.
pub(super) fn targets(
    (groups, labels): (&BTreeMap<String, Vec<Member>>, &BTreeMap<String, Labels>),
    targets: &[Target],
) -> Vec<Member> {
    let mut members = Vec::new();
    // A group that is named again and again brings its members once.
    let mut named = BTreeSet::new();
    for target in targets {
        match target {
            Target::Any => return EVERYTHING.map(Member::Prefix).to_vec(),
            Target::Prefix(prefix) => members.push(Member::Prefix(*prefix)),
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

fn each_once(mut members: Vec<Member>) -> Vec<Member> {
    let everything = EVERYTHING.map(Member::Prefix);
    if everything.iter().all(|all| members.contains(all)) {
        return everything.to_vec();
    }
    members.sort_unstable();
    members.dedup();
    members
}

/// Follows groups within groups.
pub(super) fn groups(
    builder: &mut Builder<'_>,
    root: &Node,
    raw: &BTreeMap<String, super::List<GroupMember>>,
) -> BTreeMap<String, Vec<Member>> {
    let (done, depths) = (BTreeMap::new(), BTreeMap::new());
    let (members, names) = (Share::of(&shares::MEMBERS), Share::of(&shares::NAMES));
    let mut following = Following { builder, root, raw, done, depths, members, names };
    for name in raw.keys() {
        if name == "any" || name == "none" {
            following.problem(name, format!("`{name}` cannot be the name of a group"));
        }
        following.follow(name, &mut Vec::new());
    }
    following.blame();
    following.done
}

/// Groups on their way to their members.
struct Following<'f, 'b> {
    builder: &'f mut Builder<'b>,
    root: &'f Node,
    raw: &'f BTreeMap<String, super::List<GroupMember>>,
    done: BTreeMap<String, Vec<Member>>,
    /// How many groups lie in each other, of those that are done.
    depths: BTreeMap<String, usize>,
    /// What they have.
    members: Share,
    names: Share,
}

impl Following<'_, '_> {
    fn problem(&mut self, path: &str, message: String) {
        let path = format!("groups/{path}");
        self.builder.problem(locate(self.root, &path), &path, message);
    }

    fn too_deep(&mut self, name: &str) {
        self.problem(
            name,
            format!("at `{name}` more than {GROUP_DEPTH_MAX} groups lie in each other; make it flatter"),
        );
    }

    /// Follows a group; `open`: those that it is followed for. How many groups lie in each other from it on; 0 where that was too many.
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

    /// A member of a group: if it is one itself, that is followed first.
    fn inner(&mut self, path: &str, member: &GroupMember, open: &mut Vec<String>) -> usize {
        let inner = match member {
            GroupMember::Target(Target::Group(inner)) => inner,
            GroupMember::Target(Target::Label(_)) => {
                self.problem(
                    path,
                    "groups carry labels and are not made of them; name the groups".to_owned(),
                );
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

    /// The members of a group whose groups are done. Where there are too many it has none.
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
                GroupMember::Names(names) => all.extend(names.iter().cloned().map(Member::Name)),
            }
        }
        all.extend(targets((&self.done, &BTreeMap::new()), &named));
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

    /// If all groups together have too much, whose fault that is.
    fn blame(&mut self) {
        let before = self.builder.before.map(|before| &before.groups);
        let used = |count| before.map(|groups| shares::used_by_groups(groups, count));
        let members = self.members.blamed(used(<[Member]>::len).as_ref());
        let names = self.names.blamed(used(shares::names_among).as_ref());
        let wrong: Vec<_> =
            members.into_iter().chain(names).map(|(name, what)| (name.to_owned(), what)).collect();
        wrong.into_iter().for_each(|(name, what)| self.problem(&name, what));
    }
}

/// Checks every name that is used in a file against what it defines.
pub(super) fn check(builder: &mut Builder<'_>, file: &PolicyFile) {
    tenants(builder, file);
    dns(builder, file);
    for group in file.labels.keys().filter(|group| !file.groups.contains_key(*group)) {
        let path = format!("labels/{group}");
        let hint = did_you_mean(group, file.groups.keys().map(String::as_str));
        builder.problem(
            file.locate(&path),
            &path,
            format!("there is no group `{group}` to carry labels; {hint}"),
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
        if level.level != "none" && !file.rule_groups.contains_key(&level.level) {
            let known = file.rule_groups.keys().map(String::as_str).chain(["none"]);
            let hint = did_you_mean(&level.level, known.collect::<Vec<_>>());
            let message = format!("there is no rule group `{}`; {hint}", level.level);
            builder.problem(file.locate(&format!("{path}/level")), &path, message);
        }
    }
}

/// Whether each policy has a name of its own.
pub(super) fn policy_names(builder: &mut Builder<'_>, file: &PolicyFile) {
    let mut names = HashSet::new();
    for (index, policy) in file.policies.iter().enumerate() {
        if !names.insert(&policy.name) {
            let path = format!("policies/{index}");
            let message = format!("two policies are called `{}`; rename one", policy.name);
            builder.problem(file.locate(&format!("{path}/name")), &path, message);
        }
    }
}

/// Checks the names that some policies use.
pub(super) fn policies(builder: &mut Builder<'_>, file: &PolicyFile, some: Range<usize>) {
    let known = known_tenants(file);
    for (index, policy) in file.policies.iter().enumerate().take(some.end).skip(some.start) {
        let path = format!("policies/{index}");
        members(builder, file, &format!("{path}/from"), &policy.from);
        members(builder, file, &format!("{path}/to"), &policy.to);
        tenant_names(builder, file, &known, &format!("{path}/tenant"), &policy.tenant);
    }
}

fn tenants(builder: &mut Builder<'_>, file: &PolicyFile) {
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
            let message = "nothing selects this tenant's traffic; add `vni`, `vlan`, `link` or `prefixes`";
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
        for (item, vlan) in select.vlan.iter().flat_map(|l| l.iter()).enumerate() {
            if !(1..=4094).contains(vlan) {
                let path = format!("{path}/select/vlan/{item}");
                builder.problem(file.locate(&path), &path, format!("VLAN {vlan}: an id is 1 to 4094"));
            }
        }
    }
}

fn dns(builder: &mut Builder<'_>, file: &PolicyFile) {
    let section = &file.dns;
    members(builder, file, "dns/resolvers", &section.resolvers);
    without_names(builder, file, "dns/resolvers", &section.resolvers, "whose answers count");
    if section.ttl_min > section.ttl_max {
        let message =
            format!("`ttl-min` ({}) is longer than `ttl-max` ({})", section.ttl_min, section.ttl_max);
        builder.problem(file.locate("dns/ttl-min"), "dns/ttl-min", message);
    }
    if !(1..=ADDRESSES_MAX).contains(&section.addresses) {
        let message = format!("`addresses` has to be 1 to {ADDRESSES_MAX}");
        builder.problem(file.locate("dns/addresses"), "dns/addresses", message);
    }
}

/// Names have no addresses before answers are seen, so nothing that answers rest on may be said by them.
fn without_names(builder: &mut Builder<'_>, file: &PolicyFile, path: &str, list: &[Target], what: &str) {
    for (index, target) in list.iter().enumerate() {
        let members = file.resolve(core::slice::from_ref(target));
        if let Some(Member::Name(name)) = members.iter().find(|m| matches!(m, Member::Name(_))) {
            let path = format!("{path}/{index}");
            let message =
                format!("DNS names cannot say {what}, and `{target}` has `{name}`; write addresses");
            builder.problem(file.locate(&path), &path, message);
        }
    }
}

fn members(builder: &mut Builder<'_>, file: &PolicyFile, path: &str, targets: &[Target]) {
    for (index, target) in targets.iter().enumerate() {
        if let Target::Label(asked) = target
            && !file.labels.values().any(|carried| carries(carried, asked))
        {
            let path = format!("{path}/{index}");
            let known = file.labels.values().flatten().map(|(key, value)| format!("{key}={value}"));
            let known: Vec<String> = known.collect();
            let hint = did_you_mean(&target.to_string(), known.iter().map(String::as_str));
            builder.problem(
                file.locate(&path),
                &path,
                format!("no group carries the label {target}; {hint}"),
            );
        }
        if let Target::Group(name) = target
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
    builder: &mut Builder<'_>,
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

// SPDX-License-Identifier: Apache-2.0
//! Names of a policy file: groups down to prefixes, and whether every name that is used is defined.

use super::values::carries;
use super::{
    ADDRESSES_MAX, Builder, DEFAULT_TENANT, GroupMember, Labels, Member, PolicyFile, Prefix, Target,
    did_you_mean, locate,
};
use crate::yaml::Node;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, HashSet};

/// Every address of IPv4, every address of IPv6.
pub(super) const EVERYTHING: [Prefix; 2] = [
    Prefix { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), length: 0 },
    Prefix { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), length: 0 },
];

/// Members of a list whose groups are known to exist; sorted, each once.
pub(super) fn targets(
    (groups, labels): (&BTreeMap<String, Vec<Member>>, &BTreeMap<String, Labels>),
    targets: &[Target],
) -> Vec<Member> {
    let mut members = Vec::new();
    for target in targets {
        match target {
            Target::Any => return EVERYTHING.map(Member::Prefix).to_vec(),
            Target::Prefix(prefix) => members.push(Member::Prefix(*prefix)),
            Target::Group(name) => members.extend(groups.get(name).into_iter().flatten().cloned()),
            Target::Label(asked) => {
                let meant = labels.iter().filter(|(_, carried)| carries(carried, asked));
                members.extend(meant.filter_map(|(name, _)| groups.get(name)).flatten().cloned());
            }
        }
    }
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
    let mut done = BTreeMap::new();
    for name in raw.keys() {
        let mut open = Vec::new();
        if name == "any" || name == "none" {
            builder.problem(
                locate(root, &format!("groups/{name}")),
                "groups",
                format!("`{name}` cannot be the name of a group"),
            );
        }
        follow(builder, root, raw, name, &mut done, &mut open);
    }
    done
}

fn follow(
    builder: &mut Builder<'_>,
    root: &Node,
    raw: &BTreeMap<String, super::List<GroupMember>>,
    name: &str,
    done: &mut BTreeMap<String, Vec<Member>>,
    open: &mut Vec<String>,
) {
    let Some(members) = raw.get(name) else { return };
    if done.contains_key(name) {
        return;
    }
    open.push(name.to_owned());
    for (index, member) in members.iter().enumerate() {
        let path = format!("groups/{name}/{index}");
        if let GroupMember::Target(Target::Label(_)) = member {
            let message = "groups carry labels and are not made of them; name the groups";
            builder.problem(locate(root, &path), &path, message.to_owned());
        }
        let GroupMember::Target(Target::Group(inner)) = member else { continue };
        if open.contains(inner) {
            let message =
                format!("group `{inner}` contains itself ({} > {inner}); remove it here", open.join(" > "));
            builder.problem(locate(root, &path), &path, message);
        } else if raw.contains_key(inner) {
            follow(builder, root, raw, inner, done, open);
        } else {
            let hint = did_you_mean(inner, raw.keys().map(String::as_str));
            builder.problem(locate(root, &path), &path, format!("there is no group `{inner}`; {hint}"));
        }
    }
    let mut all = Vec::new();
    for member in members.iter() {
        match member {
            GroupMember::Target(target) => {
                all.extend(targets((done, &BTreeMap::new()), core::slice::from_ref(target)))
            }
            GroupMember::Names(names) => all.extend(names.iter().cloned().map(Member::Name)),
        }
    }
    done.insert(name.to_owned(), each_once(all));
    open.pop();
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
    let mut names = HashSet::new();
    for (index, policy) in file.policies.iter().enumerate() {
        let path = format!("policies/{index}");
        if !names.insert(&policy.name) {
            let message = format!("two policies are called `{}`; rename one", policy.name);
            builder.problem(file.locate(&format!("{path}/name")), &path, message);
        }
        members(builder, file, &format!("{path}/from"), &policy.from);
        members(builder, file, &format!("{path}/to"), &policy.to);
        tenant_names(builder, file, &format!("{path}/tenant"), &policy.tenant, true);
    }
    for (index, level) in file.service_levels.iter().enumerate() {
        let path = format!("service-levels/{index}");
        members(builder, file, &format!("{path}/hosts"), &level.hosts);
        if let Some(names) = &level.tenant {
            tenant_names(builder, file, &format!("{path}/tenant"), names, true);
        }
        if level.level != "none" && !file.rule_groups.contains_key(&level.level) {
            let known = file.rule_groups.keys().map(String::as_str).chain(["none"]);
            let hint = did_you_mean(&level.level, known.collect::<Vec<_>>());
            let message = format!("there is no rule group `{}`; {hint}", level.level);
            builder.problem(file.locate(&format!("{path}/level")), &path, message);
        }
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

fn tenant_names(builder: &mut Builder<'_>, file: &PolicyFile, path: &str, names: &[String], any: bool) {
    for (index, name) in names.iter().enumerate() {
        let known = file.tenants.iter().map(|t| t.name.as_str()).chain([DEFAULT_TENANT]);
        if known.clone().any(|k| k == name) || any && name == "any" {
            continue;
        }
        let path = format!("{path}/{index}");
        let hint = did_you_mean(name, known.collect::<Vec<_>>());
        builder.problem(file.locate(&path), &path, format!("there is no tenant `{name}`; {hint}"));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Names of a policy file: groups down to prefixes, and whether every name that is used is defined.

use super::{Builder, DEFAULT_TENANT, PolicyFile, Prefix, Target, did_you_mean, locate};
use crate::yaml::Node;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::{BTreeMap, HashSet};

/// Every address of IPv4, every address of IPv6.
pub(super) const EVERYTHING: [Prefix; 2] = [
    Prefix { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), length: 0 },
    Prefix { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), length: 0 },
];

/// Prefixes of a list whose groups are known to exist; sorted, each once.
pub(super) fn targets(groups: &BTreeMap<String, Vec<Prefix>>, targets: &[Target]) -> Vec<Prefix> {
    let mut prefixes = Vec::new();
    for target in targets {
        match target {
            Target::Any => return EVERYTHING.to_vec(),
            Target::Prefix(prefix) => prefixes.push(*prefix),
            Target::Group(name) => prefixes.extend(groups.get(name).into_iter().flatten()),
        }
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes
}

/// Follows groups within groups.
pub(super) fn groups(
    builder: &mut Builder<'_>,
    root: &Node,
    raw: &BTreeMap<String, super::List<Target>>,
) -> BTreeMap<String, Vec<Prefix>> {
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
    raw: &BTreeMap<String, super::List<Target>>,
    name: &str,
    done: &mut BTreeMap<String, Vec<Prefix>>,
    open: &mut Vec<String>,
) {
    let Some(members) = raw.get(name) else { return };
    if done.contains_key(name) {
        return;
    }
    open.push(name.to_owned());
    for (index, member) in members.iter().enumerate() {
        let path = format!("groups/{name}/{index}");
        let Target::Group(inner) = member else { continue };
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
    let prefixes = targets(done, members);
    done.insert(name.to_owned(), prefixes);
    open.pop();
}

/// Checks every name that is used in a file against what it defines.
pub(super) fn check(builder: &mut Builder<'_>, file: &PolicyFile) {
    tenants(builder, file);
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
            members(builder, file, &format!("{path}/select/prefixes"), prefixes);
        }
        for (item, vlan) in select.vlan.iter().flat_map(|l| l.iter()).enumerate() {
            if !(1..=4094).contains(vlan) {
                let path = format!("{path}/select/vlan/{item}");
                builder.problem(file.locate(&path), &path, format!("VLAN {vlan}: an id is 1 to 4094"));
            }
        }
    }
}

fn members(builder: &mut Builder<'_>, file: &PolicyFile, path: &str, targets: &[Target]) {
    for (index, target) in targets.iter().enumerate() {
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

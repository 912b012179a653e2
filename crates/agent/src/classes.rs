// SPDX-License-Identifier: Apache-2.0
//! Which class a new flow gets, and what functions' rules on headers say of it: one lookup.

use crate::lookup::{Lookup, Places};
use crate::tenants::{TenantQuestion, TenantSelector};
use bartizan_base::{LinkId, TenantId};
use bartizan_classify::{Header, HeaderRule, Match, Net};
use bartizan_config::policy::Prefix;
use bartizan_dataplane::chain::{Class, ClassNames, FlowClassifier, Matches, PolicyMap};
use bartizan_packet::Decoded;
use std::collections::HashMap;
use std::sync::Arc;

/// The classes of a policy for one tenant: by the service level of the flow's hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variants {
    /// Without a service level.
    pub(crate) plain: Class,
    /// By the index of the service level.
    pub(crate) by_level: Vec<Class>,
    /// Where the policy's rules on headers are found.
    pub(crate) places: Places,
}

impl Variants {
    fn of(&self, level: Option<Match>) -> Class {
        level.and_then(|m| self.by_level.get(m.fid.0 as usize)).copied().unwrap_or(self.plain)
    }
}

/// See the module.
#[derive(Debug)]
pub struct PolicyClassifier {
    pub(crate) lookup: Lookup,
    /// By the fid that the policies' rule set answers with.
    pub(crate) classes: HashMap<u32, Variants>,
    /// What traffic gets that no policy names, by tenant.
    pub(crate) defaults: HashMap<TenantId, Variants>,
    /// Whose traffic a packet is.
    pub(crate) tenants: TenantSelector,
    /// Which policy a class belongs to.
    pub(crate) policies: Arc<PolicyMap>,
    /// What the classes are called.
    pub(crate) names: ClassNames,
}

impl FlowClassifier for PolicyClassifier {
    fn policies(&self) -> Arc<PolicyMap> {
        Arc::clone(&self.policies)
    }

    fn classify(&self, header: &Header, matches: &mut Matches) -> Class {
        let found = self.lookup.find(header);
        let variants = match found.policy {
            Some(policy) => self.classes.get(&policy.fid.0),
            None => self.defaults.get(&header.tenant),
        };
        match variants {
            Some(variants) => {
                found.matches(&variants.places, header, matches);
                variants.of(found.level)
            }
            // A flow of a tenant that is gone, which no packet belongs to any more.
            None => {
                matches.clear();
                self.defaults.get(&TenantId(0)).map(|v| v.plain).unwrap_or_default()
            }
        }
    }

    fn tenant_of(&self, packet: &Decoded, link: LinkId) -> TenantId {
        if self.tenants.is_trivial() {
            return TenantId(0);
        }
        self.tenants.select(&TenantQuestion {
            tunnel: packet.tunnel,
            vlans: packet.vlan.as_slice(),
            link,
            addresses: packet.src().zip(packet.dst()),
        })
    }

    fn names(&self) -> ClassNames {
        std::sync::Arc::clone(&self.names)
    }
}

/// A pair of sides, both ways round.
pub(crate) fn both_ways(
    from: &[Prefix],
    to: &[Prefix],
    tenant: Option<TenantId>,
    links: &[Option<LinkId>],
) -> Vec<HeaderRule> {
    let mut rules = Vec::new();
    let (from, to) = (nets(from), nets(to));
    for (a, b) in from.iter().flat_map(|a| to.iter().map(move |b| (*a, *b))) {
        if matches!((a, b), (Some(a), Some(b)) if a.address.is_ipv4() != b.address.is_ipv4()) {
            continue;
        }
        for link in links {
            let rule = HeaderRule { tenant, link: *link, source: a, destination: b, ..HeaderRule::default() };
            rules.push(rule);
            if a != b {
                rules.push(HeaderRule { source: b, destination: a, ..rule });
            }
        }
    }
    rules
}

/// Both versions' whole space is no condition at all.
fn nets(prefixes: &[Prefix]) -> Vec<Option<Net>> {
    let all = |v4: bool| prefixes.iter().any(|p| p.length == 0 && p.address.is_ipv4() == v4);
    if all(true) && all(false) {
        return vec![None];
    }
    prefixes.iter().map(|p| Some(Net { address: p.address, length: p.length })).collect()
}

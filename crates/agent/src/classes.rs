// SPDX-License-Identifier: Apache-2.0
//! Which class a new flow gets: one lookup for policies and service levels.

use crate::tenants::{TenantQuestion, TenantSelector};
use bartizan_base::{LinkId, TenantId};
use bartizan_classify::{Classifier, Entry, Header, HeaderRule, Match, Net};
use bartizan_config::policy::Prefix;
use bartizan_dataplane::chain::{Class, ClassNames, FlowClassifier, PolicyMap};
use bartizan_flow::FlowKey;
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
}

impl Variants {
    fn of(&self, level: Option<Match>) -> Class {
        level.and_then(|m| self.by_level.get(m.fid.0 as usize)).copied().unwrap_or(self.plain)
    }
}

/// See the module.
#[derive(Debug)]
pub struct PolicyClassifier {
    pub(crate) classifier: Box<dyn Classifier>,
    /// By the fid that the policies' rule set answers with.
    pub(crate) classes: HashMap<u32, Variants>,
    /// What traffic gets that no policy names, by tenant.
    pub(crate) defaults: HashMap<TenantId, Variants>,
    pub(crate) fallback: Class,
    /// Whose traffic a packet is.
    pub(crate) tenants: TenantSelector,
    /// Which policy a class belongs to.
    pub(crate) policies: Arc<PolicyMap>,
    /// What the classes are called.
    pub(crate) names: ClassNames,
}

/// A flow's header as its first packet has it.
#[must_use]
pub fn header_of(tenant: TenantId, key: &FlowKey) -> Header {
    let (source_port, destination_port) = match key.icmp_types() {
        Some((kind, _)) => (u16::from(kind), 0),
        None => (key.source_port(), key.destination_port()),
    };
    Header {
        tenant,
        link: key.scope().link,
        source: key.source(),
        destination: key.destination(),
        protocol: key.protocol(),
        source_port,
        destination_port,
    }
}

impl FlowClassifier for PolicyClassifier {
    fn policies(&self) -> Arc<PolicyMap> {
        Arc::clone(&self.policies)
    }

    fn classify(&self, tenant: TenantId, key: &FlowKey) -> Class {
        let mut results = [None; 2];
        self.classifier.lookup(&header_of(tenant, key), &mut results);
        let [policy, level] = results;
        let variants = match policy {
            Some(found) => self.classes.get(&found.fid.0),
            None => self.defaults.get(&tenant),
        };
        variants.map_or(self.fallback, |v| v.of(level))
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
    mut make: impl FnMut(HeaderRule) -> Entry,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    let (from, to) = (nets(from), nets(to));
    for (a, b) in from.iter().flat_map(|a| to.iter().map(move |b| (*a, *b))) {
        if matches!((a, b), (Some(a), Some(b)) if a.address.is_ipv4() != b.address.is_ipv4()) {
            continue;
        }
        for link in links {
            let rule = HeaderRule { tenant, link: *link, source: a, destination: b, ..HeaderRule::default() };
            entries.push(make(rule));
            if a != b {
                entries.push(make(HeaderRule { source: b, destination: a, ..rule }));
            }
        }
    }
    entries
}

/// Both versions' whole space is no condition at all.
fn nets(prefixes: &[Prefix]) -> Vec<Option<Net>> {
    let all = |v4: bool| prefixes.iter().any(|p| p.length == 0 && p.address.is_ipv4() == v4);
    if all(true) && all(false) {
        return vec![None];
    }
    prefixes.iter().map(|p| Some(Net { address: p.address, length: p.length })).collect()
}

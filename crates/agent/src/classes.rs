// SPDX-License-Identifier: Apache-2.0
//! Which class a new flow gets, and what functions' rules on headers say of it: one lookup.

use crate::lookup::{Found, Lookup, Places, PolicyRules, TOGETHER_MAX};
use crate::tenants::{TenantQuestion, TenantSelector};
use bartizan_base::{Fid, FunctionId, Generation, LinkId, Path, TenantId};
use bartizan_classify::{Header, HeaderRule, InsertError, Match, Net};
use bartizan_config::policy::Prefix;
use bartizan_dataplane::chain::{
    Chains, Class, FlowClassifier, LookupExplained, Matches, PolicyMap, SegmentExplained, SetExplained,
};
use bartizan_function::{Function, HeaderRules};
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
    /// What the functions are called, and what their rules on headers.
    pub(crate) functions: Vec<(FunctionId, &'static str, &'static str)>,
    /// The service levels, in their order.
    pub(crate) levels: Vec<String>,
    /// Whose traffic a packet is.
    pub(crate) tenants: TenantSelector,
    /// Which policy a class belongs to.
    pub(crate) policies: Arc<PolicyMap>,
}

/// Matching rules that are listed.
const LISTED_MAX: usize = 50;

fn explained(set: &'static str, numbers: &[u32], name: impl Fn(u32) -> String) -> SetExplained {
    SetExplained {
        set,
        matching: numbers.iter().take(LISTED_MAX).map(|n| name(*n)).collect(),
        omitted: numbers.len().saturating_sub(LISTED_MAX),
    }
}

impl PolicyClassifier {
    fn variants(&self, found: &Found, tenant: TenantId) -> Option<&Variants> {
        match found.policy {
            Some(policy) => self.classes.get(&policy.fid.0),
            None => self.defaults.get(&tenant),
        }
    }
}

impl FlowClassifier for PolicyClassifier {
    fn policies(&self) -> Arc<PolicyMap> {
        Arc::clone(&self.policies)
    }

    fn classify(&self, header: &Header, matches: &mut Matches) -> Class {
        let found = self.lookup.find(header);
        match self.variants(&found, header.tenant) {
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

    fn explain(&self, header: &Header) -> Option<LookupExplained> {
        let variants = self.variants(&self.lookup.find(header), header.tenant);
        let met = self.lookup.explain(header, &variants.map(|v| v.places.clone()).unwrap_or_default());
        let policy = |fid: u32| self.policies.name(self.policies.number(Fid(fid))).to_owned();
        let level = |number: u32| self.levels.get(number as usize).cloned().unwrap_or_default();
        let mut sets = vec![
            explained("policies", &met.policies, policy),
            explained("service-levels", &met.levels, level),
        ];
        sets.extend(met.rules.iter().map(|(id, rules)| {
            let known = self.functions.iter().find(|(of, ..)| of == id);
            let (name, called) = known.map_or(("?", "rule"), |(_, name, called)| (*name, *called));
            explained(name, rules, |number| format!("{called} {}", u64::from(number) + 1))
        }));
        let segments = met.segments.texts().map(|(field, values)| SegmentExplained { field, values });
        Some(LookupExplained { segments: segments.collect(), sets })
    }

    fn tenant_of(&self, packet: &Decoded, link: LinkId) -> TenantId {
        if self.tenants.is_trivial() {
            return TenantId(0);
        }
        self.tenants.select(&TenantQuestion {
            tunnel: packet.tunnel,
            vlans: packet.vlan.as_slice(),
            link,
            // An ICMP error is of the tenant whose packet it quotes, whichever router sent it.
            addresses: match packet.about() {
                Some(quoted) => Some((quoted.src, quoted.dst)),
                None => packet.src().zip(packet.dst()),
            },
        })
    }

    fn tells_tenants_by_vlan(&self) -> bool {
        self.tenants.ask_for_vlans()
    }

    fn tells_tenants_by_tunnel(&self) -> bool {
        self.tenants.ask_for_tunnels()
    }
}

/// A generation without policies: all functions in one chain for every flow, with one lookup for their rules on headers.
///
/// # Errors
/// The classifier cannot be built.
pub fn one_chain(generation: Generation, functions: Vec<Box<dyn Function>>) -> Result<Chains, InsertError> {
    let mut rules = Vec::new();
    let mut names = Vec::new();
    let mut path = Path::EMPTY;
    let mut shared: Vec<Arc<dyn Function>> = Vec::new();
    for mut function in functions {
        let id = function.id();
        path = path.with(id);
        // All flows are of one class, so a function has one list of rules at most.
        if let Some(HeaderRules { called, rules: list, .. }) = function.take_header_rules().into_iter().next()
        {
            names.push((id, function.spec().name, called));
            rules.push(PolicyRules { function: id, called, policies: vec![0], rules: list });
        }
        shared.push(Arc::from(function));
    }
    let lookup = Lookup::new(Vec::new(), Vec::new(), &[], rules, TOGETHER_MAX)?;
    let plain = Class { fid: Fid(0), path };
    let variants = Variants { plain, by_level: Vec::new(), places: lookup.places(0) };
    let classifier = PolicyClassifier {
        lookup,
        classes: HashMap::new(),
        defaults: HashMap::from([(TenantId(0), variants)]),
        functions: names,
        levels: Vec::new(),
        tenants: TenantSelector::default(),
        policies: Arc::default(),
    };
    Ok(Chains::new(generation, shared, Box::new(classifier)))
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

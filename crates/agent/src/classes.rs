// SPDX-License-Identifier: Apache-2.0
//! The classifier: one lookup gives a new flow its class and the matching header rules of all functions.

use crate::lookup::{HeaderMatches, KeptLookup, Lookup, PolicyRules, TOGETHER_MAX};
use crate::tenants::{TenantQuestion, TenantSelector};
use bartizan_base::Timestamp;
use bartizan_base::turns::wait_for_turn;
use bartizan_base::{Fid, FunctionId, Generation, LinkId, Path, TenantId};
use bartizan_classify::names::Lease;
use bartizan_classify::{Header, HeaderNames, HeaderRule, InsertError, List, Match, NameTable};
use bartizan_config::policy::Prefix;
use bartizan_function::classes::SideCondition;
use bartizan_function::header::{CLIENT_NAME, SERVER_NAME};
use bartizan_function::{Function, HeaderRules, names_among};
use bartizan_packet::Decoded;
use bartizan_stages::chain::{
    Chains, Class, FlowClassifier, HeaderRuleMatches, LookupExplained, NameExplained, PolicyMap,
    SegmentExplained, SetExplained,
};
use bartizan_stages::quotas::Quotas;
use std::collections::HashMap;
use std::sync::Arc;

/// The classes of a policy for one tenant, by the service level of the flow's hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variants {
    /// The class without a service level.
    pub(crate) plain: Class,
    /// The classes by index of the service level.
    pub(crate) by_level: Option<Arc<[Class]>>,
    /// The policy's place among all, by which its header rules are found; the number after the last policy is
    /// the default.
    pub(crate) owner: usize,
}

impl Variants {
    fn of(&self, level: Option<Match>) -> Class {
        let by_level = self.by_level.as_deref().unwrap_or_default();
        level.and_then(|m| by_level.get(m.fid.0 as usize)).copied().unwrap_or(self.plain)
    }
}

/// The classifier of a generation; see the module.
#[derive(Debug)]
pub struct PolicyClassifier {
    pub(crate) lookup: Lookup,
    /// Classes by the fid that the policies' rule set returns.
    pub(crate) classes: Vec<Option<Variants>>,
    /// Classes of the default, by tenant.
    pub(crate) defaults: HashMap<TenantId, Variants>,
    /// Functions with header rules: id, name, and the name of their rules.
    pub(crate) functions: Vec<(FunctionId, &'static str, &'static str)>,
    /// The service levels, in order.
    pub(crate) levels: Vec<String>,
    /// Assigns packets to tenants.
    pub(crate) tenants: TenantSelector,
    /// Maps classes to their policies.
    pub(crate) policies: Arc<PolicyMap>,
    /// The tenants' quotas in the data plane.
    pub(crate) quotas: Quotas,
    /// Data for groups by DNS name, if there are some.
    pub(crate) by_name: Option<ByName>,
}

/// Data for groups by DNS name.
#[derive(Debug)]
pub(crate) struct ByName {
    pub(crate) names: Arc<NameTable>,
    /// The function that reads resolvers' answers.
    pub(crate) reader: FunctionId,
    /// Trusted resolvers, each for the traffic of one tenant, or of all (`None`).
    pub(crate) resolvers: Vec<(Option<TenantId>, Prefix)>,
    /// Keeps the names' numbers while this classifier is in use.
    pub(crate) _lease: Arc<Lease>,
}

/// Port of DNS servers.
const DNS_PORT: u16 = 53;

impl ByName {
    /// The current names of a header's addresses, plus those by which its flow was found before.
    fn of(&self, header: &Header, now: Timestamp, before: &HeaderRuleMatches) -> HeaderNames {
        let mut names = names_among(before);
        // Captures: workers access shared state in the order of packets.
        wait_for_turn();
        let sides = [(&mut names.source, header.source), (&mut names.destination, header.destination)];
        for (known, address) in sides {
            let new = self.names.of(header.tenant, address, now);
            new.into_iter().for_each(|id| {
                if !known.contains(&id) {
                    known.push(id)
                }
            });
        }
        names
    }

    /// Whether a flow is a query to a trusted resolver.
    fn is_asking(&self, header: &Header) -> bool {
        header.destination_port == DNS_PORT
            && matches!(header.protocol, 6 | 17)
            && self.resolvers.iter().any(|(whose, prefix)| {
                whose.is_none_or(|tenant| tenant == header.tenant) && prefix.contains(header.destination)
            })
    }

    fn explain(&self, header: &Header, now: Timestamp) -> Vec<NameExplained> {
        let mut told = Vec::new();
        for address in [header.source, header.destination] {
            let own = self.names.memberships(header.tenant, address, now);
            told.extend(own.into_iter().map(|membership| NameExplained {
                address,
                name: self.names.text(membership.id).unwrap_or_default().to_string(),
                asked: membership.queried_name.to_string(),
                until: membership.until.as_secs(),
            }));
        }
        told
    }
}

/// Most matching rules that are listed.
pub(crate) const LISTED_MAX: usize = 50;

fn explained(set: &'static str, numbers: &[u32], name: impl Fn(u32) -> String) -> SetExplained {
    SetExplained {
        set,
        matching: numbers.iter().take(LISTED_MAX).map(|n| name(*n)).collect(),
        omitted: numbers.len().saturating_sub(LISTED_MAX),
    }
}

impl PolicyClassifier {
    fn variants(&self, found: &HeaderMatches, tenant: TenantId) -> Option<&Variants> {
        match found.policy {
            Some(policy) => self.classes.get(policy.fid.0 as usize)?.as_ref(),
            None => self.defaults.get(&tenant),
        }
    }
}

impl FlowClassifier for PolicyClassifier {
    fn policies(&self) -> Arc<PolicyMap> {
        Arc::clone(&self.policies)
    }

    fn classify(&self, header: &Header, now: Timestamp, matches: &mut HeaderRuleMatches) -> Class {
        let names = self.by_name.as_ref().map(|by| by.of(header, now, matches)).unwrap_or_default();
        let found = self.lookup.find(header, &names);
        let class = match self.variants(&found, header.tenant) {
            Some(variants) => {
                found.matches(self.lookup.places(variants.owner), header, &names, matches);
                variants.of(found.level)
            }
            // The flow's tenant was removed: no packet belongs to it any more.
            None => {
                matches.clear();
                self.defaults.get(&TenantId(0)).map(|v| v.plain).unwrap_or_default()
            }
        };
        let sides = [(CLIENT_NAME, &names.source), (SERVER_NAME, &names.destination)];
        matches.extend(sides.iter().flat_map(|(side, ids)| ids.iter().map(|id| (*side, id.0.get()))));
        match &self.by_name {
            Some(by) if by.is_asking(header) => Class { path: class.path.with(by.reader), ..class },
            _ => class,
        }
    }

    fn quotas(&self) -> Quotas {
        self.quotas.clone()
    }

    fn names(&self, header: &Header, now: Timestamp) -> Vec<NameExplained> {
        self.by_name.as_ref().map(|by| by.explain(header, now)).unwrap_or_default()
    }

    fn explain(&self, header: &Header, now: Timestamp) -> Option<LookupExplained> {
        let names =
            self.by_name.as_ref().map(|by| by.of(header, now, &HeaderRuleMatches::new())).unwrap_or_default();
        let variants = self.variants(&self.lookup.find(header, &names), header.tenant);
        let places = variants.map(|v| self.lookup.places(v.owner)).unwrap_or_default();
        let met = self.lookup.explain(header, &names, places);
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
        Some(LookupExplained { segments: segments.collect(), sets, names: self.names(header, now) })
    }

    fn tenant_of(&self, packet: &Decoded, link: LinkId) -> TenantId {
        if self.tenants.is_trivial() {
            return TenantId(0);
        }
        self.tenants.select(&TenantQuestion {
            tunnel: packet.tunnel,
            vlans: packet.vlan.as_slice(),
            link,
            // An ICMP error belongs to the tenant of the packet that it quotes, whichever router sent it.
            addresses: match packet.about() {
                Some(quoted) => Some((quoted.src, quoted.dst)),
                None => packet.src().zip(packet.dst()),
            },
        })
    }

    fn selects_tenants_by_vlan(&self) -> bool {
        self.tenants.select_by_vlan()
    }

    fn selects_tenants_by_tunnel(&self) -> bool {
        self.tenants.select_by_tunnel()
    }
}

/// A generation without policies: all functions in one chain for every flow, with one lookup for their header
/// rules.
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
        // All flows are of one class, so a function has at most one list of rules.
        if let Some(HeaderRules { called, rules: list, .. }) = function.take_header_rules().into_iter().next()
        {
            names.push((id, function.spec().name, called));
            rules.push(PolicyRules { function: id, called, policies: vec![0], rules: list });
        }
        shared.push(Arc::from(function));
    }
    let lookup =
        Lookup::new(List::default(), List::default(), &[], rules, TOGETHER_MAX, &KeptLookup::default())?;
    let plain = Class { fid: Fid(0), path };
    let variants = Variants { plain, by_level: None, owner: 0 };
    let classifier = PolicyClassifier {
        lookup,
        classes: Vec::new(),
        defaults: HashMap::from([(TenantId(0), variants)]),
        functions: names,
        levels: Vec::new(),
        tenants: TenantSelector::default(),
        policies: Arc::default(),
        quotas: Quotas::default(),
        by_name: None,
    };
    Ok(Chains::new(generation, shared, Box::new(classifier)))
}

/// The rules of a pair of sides, for both directions.
pub(crate) fn both_ways(
    from: &[SideCondition],
    to: &[SideCondition],
    tenant: Option<TenantId>,
    links: &[Option<LinkId>],
) -> Vec<HeaderRule> {
    let mut rules = Vec::new();
    for (a, b) in from.iter().flat_map(|a| to.iter().map(move |b| (*a, *b))) {
        if matches!((a.net, b.net), (Some(a), Some(b)) if a.address.is_ipv4() != b.address.is_ipv4()) {
            continue;
        }
        for link in links {
            let rule = between(a, b, HeaderRule { tenant, link: *link, ..HeaderRule::default() });
            rules.push(rule);
            if a != b {
                rules.push(between(b, a, rule));
            }
        }
    }
    rules
}

/// A rule with these sides.
fn between(source: SideCondition, destination: SideCondition, rule: HeaderRule) -> HeaderRule {
    HeaderRule {
        source: source.net,
        destination: destination.net,
        source_name: source.name,
        destination_name: destination.name,
        ..rule
    }
}

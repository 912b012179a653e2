// SPDX-License-Identifier: Apache-2.0
//! Addresses and ports of rules' heads: each different one once, and what it comes to for each tenant.
//!
//! Rules are compiled once for all tenants. Only their heads depend on variables (`$HOME_NET`), and there are few hundred
//! different ones among tens of thousands of rules: for a tenant with variables of its own those are resolved once more,
//! and a rule finds its head by number.

use crate::engine::header::Ends;
use crate::model::signature::{Family, ProtocolMatch};
use bartizan_base::TenantId;
use bartizan_rules::{
    AddressExpr, AddressSet, PortExpr, PortSet, ResolveError, Resolver, Rule, RuleDirection, Variables,
};
use core::net::IpAddr;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What a rule's head asks of the two ends of a packet; `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Source addresses.
    pub source: Option<Arc<AddressSet>>,
    /// Destination addresses.
    pub destination: Option<Arc<AddressSet>>,
    /// Source ports.
    pub source_ports: Option<Arc<PortSet>>,
    /// Destination ports.
    pub destination_ports: Option<Arc<PortSet>>,
    /// `<>`: either way round.
    pub bidirectional: bool,
    /// IP protocols of the rules with this head; empty for all.
    pub protocols: Vec<u8>,
    /// IP versions of these rules.
    pub family: Family,
}

impl Head {
    /// Whether any ends will do.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.source.is_none()
            && self.destination.is_none()
            && self.source_ports.is_none()
            && self.destination_ports.is_none()
    }

    /// Whether addresses and ports are as asked for.
    #[must_use]
    pub fn holds(&self, ends: Ends) -> bool {
        self.is_any() || self.one_way(ends) || self.bidirectional && self.one_way(ends.turned())
    }

    fn one_way(&self, ends: Ends) -> bool {
        let address = |set: &Option<Arc<AddressSet>>, end: Option<(IpAddr, u16)>| match (set, end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(set), Some((address, _))) => set.contains(address),
        };
        let port = |set: &Option<Arc<PortSet>>, end: Option<(IpAddr, u16)>| match (set, end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(set), Some((_, port))) => set.contains(port),
        };
        address(&self.source, ends.source)
            && address(&self.destination, ends.destination)
            && port(&self.source_ports, ends.source)
            && port(&self.destination_ports, ends.destination)
    }
}

/// A head as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Written {
    source: Arc<AddressExpr>,
    destination: Arc<AddressExpr>,
    source_ports: Arc<PortExpr>,
    destination_ports: Arc<PortExpr>,
    bidirectional: bool,
    protocols: Vec<u8>,
    family: Family,
}

/// A part of a head that comes to nothing.
#[derive(Clone, Debug)]
pub struct BadHead {
    /// What is wrong.
    pub error: ResolveError,
    /// Where the part begins in the rule file.
    pub place: bartizan_rules::Span,
}

impl Written {
    fn of(rule: &Rule, protocol: &ProtocolMatch) -> Self {
        Written {
            source: rule.src.expr.clone(),
            destination: rule.dst.expr.clone(),
            source_ports: rule.src_port.expr.clone(),
            destination_ports: rule.dst_port.expr.clone(),
            bidirectional: rule.direction == RuleDirection::Both,
            protocols: protocol.ip.clone(),
            family: protocol.family,
        }
    }

    /// What it comes to; an error says which of the four parts it is in.
    fn resolve(&self, resolver: &mut Resolver<'_>) -> Result<Head, (usize, ResolveError)> {
        let source = resolver.address_set(&self.source).map_err(|e| (0, e))?;
        let source_ports = resolver.port_set(&self.source_ports).map_err(|e| (1, e))?;
        let destination = resolver.address_set(&self.destination).map_err(|e| (2, e))?;
        let destination_ports = resolver.port_set(&self.destination_ports).map_err(|e| (3, e))?;
        Ok(Head {
            source: (!source.is_all()).then_some(source),
            destination: (!destination.is_all()).then_some(destination),
            source_ports: (!source_ports.is_all()).then_some(source_ports),
            destination_ports: (!destination_ports.is_all()).then_some(destination_ports),
            bidirectional: self.bidirectional,
            protocols: self.protocols.clone(),
            family: self.family,
        })
    }
}

/// Heads while rules are read.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    numbers: HashMap<Written, u32>,
    heads: Vec<Head>,
}

impl Collector {
    /// The number of a rule's head.
    pub fn add(
        &mut self,
        rule: &Rule,
        protocol: &ProtocolMatch,
        resolver: &mut Resolver<'_>,
    ) -> Result<u32, BadHead> {
        let written = Written::of(rule, protocol);
        if let Some(number) = self.numbers.get(&written) {
            return Ok(*number);
        }
        let head = written.resolve(resolver).map_err(|(part, error)| {
            let places = [rule.src.span, rule.src_port.span, rule.dst.span, rule.dst_port.span];
            BadHead { error, place: places.get(part).copied().unwrap_or(rule.span) }
        })?;
        let number = u32::try_from(self.heads.len()).unwrap_or(u32::MAX);
        self.heads.push(head);
        self.numbers.insert(written, number);
        Ok(number)
    }

    /// All heads, and what they come to for tenants that have variables of their own.
    pub fn finish(self, tenants: &[(TenantId, Variables)]) -> Heads {
        let mut written: Vec<_> = self.numbers.into_iter().collect();
        written.sort_unstable_by_key(|(_, number)| *number);
        let of_tenants = tenants.iter().map(|(tenant, variables)| {
            let mut resolver = variables.resolver();
            // What comes to nothing with a tenant's variables can match nothing of the tenant's.
            let heads = written.iter().map(|(head, _)| head.resolve(&mut resolver).ok());
            (*tenant, heads.collect())
        });
        Heads { of_tenants: of_tenants.collect(), common: self.heads.into_iter().map(Some).collect() }
    }
}

/// The heads of a rule set.
#[derive(Clone, Debug, Default)]
pub struct Heads {
    /// With the variables of the settings.
    common: Vec<Option<Head>>,
    /// With the variables of a tenant that has some.
    of_tenants: BTreeMap<TenantId, Vec<Option<Head>>>,
}

impl Heads {
    /// The heads for a tenant, by their numbers; one that comes to nothing with the tenant's variables is `None`.
    #[must_use]
    pub fn of(&self, tenant: TenantId) -> &[Option<Head>] {
        if self.of_tenants.is_empty() {
            return &self.common;
        }
        self.of_tenants.get(&tenant).unwrap_or(&self.common)
    }

    /// A head for a tenant. `None`: rules with this head match nothing of the tenant's.
    #[must_use]
    pub fn get(&self, tenant: TenantId, number: u32) -> Option<&Head> {
        self.of(tenant).get(number as usize)?.as_ref()
    }

    /// The heads for tenants without variables of their own.
    #[must_use]
    pub fn common(&self) -> &[Option<Head>] {
        &self.common
    }

    /// The tenants that have variables of their own.
    pub fn tenants(&self) -> impl Iterator<Item = TenantId> + '_ {
        self.of_tenants.keys().copied()
    }

    /// How many different ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.common.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.common.is_empty()
    }
}

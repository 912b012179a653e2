// SPDX-License-Identifier: Apache-2.0
//! Numbers the heads of rules while rules are read, and resolves each head for all tenants.

use crate::model::heads::{Heads, RuleHead};
use crate::model::signature::{Family, ProtocolMatch};
use bartizan_base::TenantId;
use bartizan_rules::{
    AddressExpr, ExprKind, PortExpr, ResolveError, Resolver, Rule, RuleDirection, RuleVariables,
};
use std::collections::HashMap;
use std::sync::Arc;

/// A head as the rule writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HeadExpr {
    source: Arc<AddressExpr>,
    destination: Arc<AddressExpr>,
    source_ports: Arc<PortExpr>,
    destination_ports: Arc<PortExpr>,
    bidirectional: bool,
    protocols: Vec<u8>,
    family: Family,
}

/// A part of a head that resolves to nothing.
#[derive(Clone, Debug)]
pub struct BadHead {
    /// The reason why the part does not resolve.
    pub error: ResolveError,
    /// Position of the part in the rule file.
    pub place: bartizan_rules::Span,
}

impl HeadExpr {
    fn of(rule: &Rule, protocol: &ProtocolMatch) -> Self {
        HeadExpr {
            source: rule.src.expr.clone(),
            destination: rule.dst.expr.clone(),
            source_ports: rule.src_port.expr.clone(),
            destination_ports: rule.dst_port.expr.clone(),
            bidirectional: rule.direction == RuleDirection::Both,
            protocols: protocol.ip.clone(),
            family: protocol.family,
        }
    }

    /// Resolves the head; an error carries the index of the failing part (source, its ports, destination, its
    /// ports).
    fn resolve(&self, resolver: &mut Resolver<'_>) -> Result<RuleHead, (usize, ResolveError)> {
        let source = resolver.address_set(&self.source).map_err(|e| (0, e))?;
        let source_ports = resolver.port_set(&self.source_ports).map_err(|e| (1, e))?;
        let destination = resolver.address_set(&self.destination).map_err(|e| (2, e))?;
        let destination_ports = resolver.port_set(&self.destination_ports).map_err(|e| (3, e))?;
        Ok(RuleHead {
            source: (!source.is_all()).then_some(source),
            destination: (!destination.is_all()).then_some(destination),
            source_ports: (!is_any(&self.source_ports)).then_some(source_ports),
            destination_ports: (!is_any(&self.destination_ports)).then_some(destination_ports),
            bidirectional: self.bidirectional,
            protocols: self.protocols.clone(),
            family: self.family,
        })
    }
}

/// Whether ports are written `any`. As in Suricata, a list or variable that resolves to all ports differs:
/// the packet must have a port.
fn is_any(ports: &PortExpr) -> bool {
    !ports.negated && matches!(ports.kind, ExprKind::Any)
}

/// Collects heads while rules are read.
#[derive(Debug, Default)]
pub(crate) struct HeadCollector {
    numbers: HashMap<HeadExpr, u32>,
    heads: Vec<RuleHead>,
}

impl HeadCollector {
    /// Adds a rule's head and returns its number.
    pub fn add(
        &mut self,
        rule: &Rule,
        protocol: &ProtocolMatch,
        resolver: &mut Resolver<'_>,
    ) -> Result<u32, BadHead> {
        let written = HeadExpr::of(rule, protocol);
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

    /// All heads, resolved for each tenant that has variables of its own.
    pub fn finish(self, tenants: &[(TenantId, RuleVariables)]) -> Heads {
        let mut written: Vec<_> = self.numbers.into_iter().collect();
        written.sort_unstable_by_key(|(_, number)| *number);
        let of_tenants = tenants.iter().map(|(tenant, variables)| {
            let mut resolver = variables.resolver();
            // A head that does not resolve with a tenant's variables matches none of the tenant's traffic.
            let heads = written.iter().map(|(head, _)| head.resolve(&mut resolver).ok());
            (*tenant, heads.collect())
        });
        Heads { of_tenants: of_tenants.collect(), common: self.heads.into_iter().map(Some).collect() }
    }
}

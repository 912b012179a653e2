// SPDX-License-Identifier: Apache-2.0
//! Heads: addresses and ports of rules. Each different head is kept once, resolved for each tenant.
//!
//! Rules are compiled once for all tenants. Only their heads depend on variables (`$HOME_NET`), and tens of
//! thousands of rules have few different ones. For a tenant with variables of its own the heads are resolved
//! once more, and a rule refers to its head by number.

use crate::model::ends::Ends;
use crate::model::signature::Family;
use bartizan_base::TenantId;
use bartizan_rules::{AddressSet, PortSet};
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Conditions of a rule's head on the two ends of a packet; `None` is any. Ports that are not written `any`,
/// even if they include all ports, need a packet with ports: no other packet meets the head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleHead {
    /// Source addresses.
    pub source: Option<Arc<AddressSet>>,
    /// Destination addresses.
    pub destination: Option<Arc<AddressSet>>,
    /// Source ports.
    pub source_ports: Option<Arc<PortSet>>,
    /// Destination ports.
    pub destination_ports: Option<Arc<PortSet>>,
    /// `<>`: source and destination may be exchanged.
    pub bidirectional: bool,
    /// IP protocols of the rules with this head; empty for all.
    pub protocols: Vec<u8>,
    /// IP versions of these rules.
    pub family: Family,
}

impl RuleHead {
    /// Whether the head accepts any ends.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.source.is_none()
            && self.destination.is_none()
            && self.source_ports.is_none()
            && self.destination_ports.is_none()
    }

    /// Whether addresses and ports meet the head.
    #[must_use]
    pub fn holds(&self, ends: Ends) -> bool {
        self.is_any() || self.one_way(ends) || self.bidirectional && self.one_way(ends.turned())
    }

    fn one_way(&self, ends: Ends) -> bool {
        let address = |set: &Option<Arc<AddressSet>>, end: Option<(IpAddr, Option<u16>)>| match (set, end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(set), Some((address, _))) => set.contains(address),
        };
        let port = |set: &Option<Arc<PortSet>>, end: Option<(IpAddr, Option<u16>)>| match (set, end) {
            (None, _) => true,
            (Some(set), Some((_, Some(port)))) => set.contains(port),
            (Some(_), _) => false,
        };
        address(&self.source, ends.source)
            && address(&self.destination, ends.destination)
            && port(&self.source_ports, ends.source)
            && port(&self.destination_ports, ends.destination)
    }
}

/// The heads of a rule set.
#[derive(Clone, Debug, Default)]
pub struct Heads {
    /// Resolved with the variables of the settings.
    pub(crate) common: Vec<Option<RuleHead>>,
    /// Resolved with the variables of each tenant that has some.
    pub(crate) of_tenants: BTreeMap<TenantId, Vec<Option<RuleHead>>>,
}

impl Heads {
    /// The heads for a tenant, by their numbers; `None` for a head that does not resolve with the tenant's
    /// variables.
    #[must_use]
    pub fn of(&self, tenant: TenantId) -> &[Option<RuleHead>] {
        if self.of_tenants.is_empty() {
            return &self.common;
        }
        self.of_tenants.get(&tenant).unwrap_or(&self.common)
    }

    /// A head for a tenant. `None`: rules with this head match none of the tenant's traffic.
    #[must_use]
    pub fn get(&self, tenant: TenantId, number: u32) -> Option<&RuleHead> {
        self.of(tenant).get(number as usize)?.as_ref()
    }

    /// The heads for tenants without variables of their own.
    #[must_use]
    pub fn common(&self) -> &[Option<RuleHead>] {
        &self.common
    }

    /// The tenants that have variables of their own.
    pub fn tenants(&self) -> impl Iterator<Item = TenantId> + '_ {
        self.of_tenants.keys().copied()
    }

    /// Number of different heads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.common.len()
    }

    /// Whether there are no heads.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.common.is_empty()
    }
}

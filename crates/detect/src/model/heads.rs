// SPDX-License-Identifier: Apache-2.0
//! Addresses and ports of rules' heads: each different one once, and what it comes to for each tenant.
//!
//! Rules are compiled once for all tenants. Only their heads depend on variables (`$HOME_NET`), and there are
//! few hundred different ones among tens of thousands of rules: for a tenant with variables of its own those
//! are resolved once more, and a rule finds its head by number.

use crate::model::ends::Ends;
use crate::model::signature::Family;
use bartizan_base::TenantId;
use bartizan_rules::{AddressSet, PortSet};
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a rule's head asks of the two ends of a packet; `None` is any. Ports that are given in another way
/// than `any`, all of them included,
/// are asked of packets that have ports: no other packet meets the head.
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
    /// With the variables of the settings.
    pub(crate) common: Vec<Option<Head>>,
    /// With the variables of a tenant that has some.
    pub(crate) of_tenants: BTreeMap<TenantId, Vec<Option<Head>>>,
}

impl Heads {
    /// The heads for a tenant, by their numbers; one that comes to nothing with the tenant's variables is
    /// `None`.
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

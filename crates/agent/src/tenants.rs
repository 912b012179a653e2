// SPDX-License-Identifier: Apache-2.0
//! Assigns packets to tenants.
//!
//! Selectors are tried in the order of the policy file; traffic that none selects belongs to tenant 0. All
//! selected properties are the same for both directions of a flow: tunnel id, VLAN ids, link, and the
//! unordered pair of addresses.

use bartizan_base::{LinkId, TenantId};
use bartizan_config::policy::Prefix;
use bartizan_packet::{TunnelKind, TunnelTag};
use core::net::IpAddr;
use std::sync::Arc;

/// The properties of a packet that determine its tenant.
#[derive(Clone, Copy, Debug)]
pub struct TenantQuestion<'q> {
    /// The innermost tunnel around the packet.
    pub tunnel: TunnelTag,
    /// VLAN ids of the packet.
    pub vlans: &'q [u16],
    /// The link on which the packet arrived.
    pub link: LinkId,
    /// Source and destination address of an IP packet.
    pub addresses: Option<(IpAddr, IpAddr)>,
}

/// Selector of one tenant's traffic. An absent key matches all packets; an empty list matches none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    pub(crate) tenant: TenantId,
    pub(crate) vnis: Option<Vec<u32>>,
    pub(crate) vlans: Option<Vec<u16>>,
    pub(crate) links: Option<Vec<LinkId>>,
    pub(crate) prefixes: Option<Vec<Prefix>>,
}

impl Selector {
    fn selects(&self, question: &TenantQuestion<'_>) -> bool {
        let tunnel = question.tunnel;
        let of_vni = |all: &Vec<u32>| tunnel.kind != TunnelKind::None && all.contains(&tunnel.id);
        let of_vlan = |all: &Vec<u16>| question.vlans.iter().any(|vlan| all.contains(vlan));
        let of_prefix = |all: &Vec<Prefix>| {
            let contains = |address: IpAddr| all.iter().any(|prefix| prefix.contains(address));
            question.addresses.is_some_and(|(a, b)| contains(a) || contains(b))
        };
        self.vnis.as_ref().is_none_or(of_vni)
            && self.vlans.as_ref().is_none_or(of_vlan)
            && self.links.as_ref().is_none_or(|all| all.contains(&question.link))
            && self.prefixes.as_ref().is_none_or(of_prefix)
    }
}

/// The selectors of all tenants; see the module.
#[derive(Clone, Debug, Default)]
pub struct TenantSelector {
    pub(crate) selectors: Arc<[Selector]>,
}

impl TenantSelector {
    /// The tenant of a packet.
    #[must_use]
    pub fn select(&self, question: &TenantQuestion<'_>) -> TenantId {
        self.selectors.iter().find(|s| s.selects(question)).map_or(TenantId(0), |s| s.tenant)
    }

    /// Whether there is only one tenant, so that no selection is needed.
    #[must_use]
    pub fn is_trivial(&self) -> bool {
        self.selectors.is_empty()
    }

    /// Whether some selector uses VLAN ids.
    #[must_use]
    pub fn select_by_vlan(&self) -> bool {
        self.selectors.iter().any(|selector| selector.vlans.is_some())
    }

    /// Whether some selector uses tunnel identifiers.
    #[must_use]
    pub fn select_by_tunnel(&self) -> bool {
        self.selectors.iter().any(|selector| selector.vnis.is_some())
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Whose traffic a packet is.
//!
//! Selectors are tried in the order of the policy file; traffic that none selects is tenant 0's. Everything
//! that they look at is the same for both directions of a flow: tunnel id, VLAN ids, link, and the addresses
//! of both sides taken together.

use bartizan_base::{LinkId, TenantId};
use bartizan_config::policy::Prefix;
use bartizan_packet::{TunnelKind, TunnelTag};
use core::net::IpAddr;
use std::sync::Arc;

/// What is known of a packet when its tenant is asked for.
#[derive(Clone, Copy, Debug)]
pub struct TenantQuestion<'q> {
    /// The innermost tunnel around it.
    pub tunnel: TunnelTag,
    /// Its VLAN ids.
    pub vlans: &'q [u16],
    /// What it came in by.
    pub link: LinkId,
    /// Source and destination address, if it is IP.
    pub addresses: Option<(IpAddr, IpAddr)>,
}

/// Selector of one tenant's traffic. A key that is absent asks for nothing; an empty list fits no packet.
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

/// See the module.
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

    /// Whether there is only one tenant, so that nobody needs to ask.
    #[must_use]
    pub fn is_trivial(&self) -> bool {
        self.selectors.is_empty()
    }

    /// Whether VLAN ids tell tenants apart.
    #[must_use]
    pub fn ask_for_vlans(&self) -> bool {
        self.selectors.iter().any(|selector| selector.vlans.is_some())
    }

    /// Whether numbers of tunnels tell tenants apart.
    #[must_use]
    pub fn ask_for_tunnels(&self) -> bool {
        self.selectors.iter().any(|selector| selector.vnis.is_some())
    }
}

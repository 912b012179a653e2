// SPDX-License-Identifier: Apache-2.0
//! A flow's identity as a device makes it from a frame and from the port that it came in by: the first 56 bytes of `bartizan_flow_entry`.
//!
//! It is the host's key without the tenant. A tenant follows from link, tunnel, VLANs and addresses, and all of these stand in the key, so two tenants never
//! share one; with one exception: tenants that are told by VLAN while flows are not. Such flows stay at the host ([`crate::Stays::Tenant`]).

use bartizan_base::Direction;
use bartizan_flow::FlowKey;
use bartizan_packet::TunnelKind;

/// Where the tenant stands in the key's words.
const TENANT: u64 = 0xffff << 32;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceKey(pub [u64; 7]);

impl DeviceKey {
    /// Of a flow of the host.
    #[must_use]
    pub const fn of(key: &FlowKey) -> Self {
        let [a, b, c, d, tunnel, ports, rest] = *key.words();
        DeviceKey([a, b, c, d, tunnel, ports & !TENANT, rest])
    }

    /// Whether it is in a tunnel.
    #[must_use]
    pub const fn is_in_tunnel(&self) -> bool {
        let [_, _, _, _, tunnel, _, rest] = self.0;
        tunnel != 0 || rest >> 8 & 0xff != 0
    }

    /// Whether it is in one tunnel, and of this kind.
    #[must_use]
    pub const fn is_in(&self, kind: TunnelKind) -> bool {
        let [_, _, _, _, tunnel, _, rest] = self.0;
        tunnel >> 32 == kind as u64 && rest >> 8 & 0xff == 1
    }
}

/// The direction of what the lower endpoint of a key sends, in a flow that is seen as the key says.
#[must_use]
pub const fn direction_from_low(key: &FlowKey) -> Direction {
    if key.is_reversed() { Direction::ToClient } else { Direction::ToServer }
}

/// The directions in which is counted what both endpoints of a key send, the lower one's first. Flows of protocols without ports have one direction, whoever sends.
#[must_use]
pub const fn directions(key: &FlowKey) -> [Direction; 2] {
    if !key.has_ports() {
        return [Direction::ToServer; 2];
    }
    match direction_from_low(key) {
        Direction::ToServer => [Direction::ToServer, Direction::ToClient],
        Direction::ToClient => [Direction::ToClient, Direction::ToServer],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_base::{LinkId, TenantId};
    use bartizan_flow::FlowScope;
    use bartizan_packet::TunnelTag;
    use core::net::{IpAddr, Ipv4Addr};

    fn key(scope: &FlowScope, (from, to): ((u8, u16), (u8, u16))) -> FlowKey {
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        FlowKey::ported(scope, 6, (address(from.0), from.1), (address(to.0), to.1))
    }

    #[test]
    fn it_is_the_hosts_key_without_the_tenant() {
        let scope = FlowScope { tenant: TenantId(7), link: LinkId(3), ..FlowScope::default() };
        let ends = ((1, 40_000), (2, 443));
        let ours = DeviceKey::of(&key(&scope, ends));
        let of_no_tenant = FlowScope { tenant: TenantId(0), ..scope };
        assert_eq!(ours.0, *key(&of_no_tenant, ends).words());
        assert_ne!(ours.0, *key(&scope, ends).words());
        assert!(!ours.is_in_tunnel());
        let inner = FlowScope { level: 1, ..scope };
        assert!(DeviceKey::of(&key(&inner, ends)).is_in_tunnel());
        let named = FlowScope { tunnel: 9, ..scope };
        assert!(DeviceKey::of(&key(&named, ends)).is_in_tunnel());
        let vxlan = TunnelTag::new(TunnelKind::Vxlan, 0xff_ffff).key();
        let of = |level| DeviceKey::of(&key(&FlowScope { tunnel: vxlan, level, ..scope }, ends));
        assert!(of(1).is_in(TunnelKind::Vxlan) && !of(1).is_in(TunnelKind::Geneve));
        assert!(!of(2).is_in(TunnelKind::Vxlan) && !ours.is_in(TunnelKind::None));
    }

    #[test]
    fn a_flow_without_ports_has_one_direction() {
        let scope = FlowScope::default();
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        for (from, to) in [(1, 2), (2, 1)] {
            let key = FlowKey::other(&scope, 4, address(from), address(to));
            assert_eq!(directions(&key), [Direction::ToServer; 2]);
            assert_eq!(key.direction_in(&key.flipped()), Direction::ToServer);
        }
        let opened = key(&scope, ((1, 40_000), (2, 443)));
        assert_eq!(directions(&opened), [Direction::ToServer, Direction::ToClient]);
        assert_eq!(directions(&opened.flipped()), [Direction::ToClient, Direction::ToServer]);
    }

    #[test]
    fn the_lower_endpoint_sends_to_the_server_if_it_opened() {
        let scope = FlowScope::default();
        let opened = key(&scope, ((1, 40_000), (2, 443)));
        assert_eq!(direction_from_low(&opened), Direction::ToServer);
        assert_eq!(direction_from_low(&opened.flipped()), Direction::ToClient);
        assert_eq!(direction_from_low(&key(&scope, ((2, 443), (1, 40_000)))), Direction::ToClient);
    }
}

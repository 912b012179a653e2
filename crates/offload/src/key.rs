// SPDX-License-Identifier: Apache-2.0
//! A flow's identity as a device makes it from a frame and from its ingress port: the first 56 bytes of
//! `bartizan_flow_entry`.
//!
//! It is the host's key without the tenant. A tenant follows from link, tunnel, VLANs and addresses, and the
//! key has all of these, so two tenants never share one; with one exception: tenants selected by VLAN while
//! flow keys have no VLANs. Such flows stay at the host ([`crate::OffloadDenied::Tenant`]).
//!
//! The parts of the key are data ([`KeyField`]): a device declares the fields that it holds. It holds flows
//! in whose keys all other fields are 0, and passes up packets in whose keys another field is not.

use bartizan_base::Direction;
use bartizan_flow::FlowKey;
use bartizan_packet::TunnelKind;

/// The bits of the tenant in the key's words.
const TENANT: u64 = 0xffff << 32;

/// Three VLAN ids begin here in the last word, 12 bits each.
const VLANS: u32 = 24;

macro_rules! fields {
    ($($(#[$meta:meta])* $name:ident = $text:literal, [$a:expr, $b:expr, $c:expr, $d:expr, $tunnel:expr, $ports:expr, $rest:expr];)*) => {
        /// A part of the key that separates flows. Together the fields are the whole key, and none has bits
        /// of another one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum KeyField {
            $($(#[$meta])* $name,)*
        }

        impl KeyField {
            /// All fields.
            pub const ALL: &'static [KeyField] = &[$(KeyField::$name),*];

            /// The name for people.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(KeyField::$name => $text,)* }
            }

            /// The bits of the field in the words of the key.
            #[must_use]
            pub const fn mask(self) -> [u64; 7] {
                match self { $(KeyField::$name => [$a, $b, $c, $d, $tunnel, $ports, $rest],)* }
            }
        }
    };
}

fields! {
    /// Both addresses, and whether they are of IPv6.
    Addresses = "addresses", [u64::MAX, u64::MAX, u64::MAX, u64::MAX, 0, 0, 1 << 16];
    /// Both ports.
    Ports = "ports", [0, 0, 0, 0, 0, 0xffff_ffff, 0];
    /// The IP protocol.
    Protocol = "protocol", [0, 0, 0, 0, 0, 0, 0xff];
    /// The link that its packets enter by.
    Link = "link", [0, 0, 0, 0, 0, 0xffff << 48, 0];
    /// The side of the link on which each endpoint is.
    Sides = "sides", [0, 0, 0, 0, 0, 0, 3 << 19];
    /// The mark of a one-way flow, and its direction.
    OneWay = "one_way", [0, 0, 0, 0, 0, 0, 3 << 17];
    /// Kind and number of the innermost tunnel.
    Tunnel = "tunnel", [0, 0, 0, 0, u64::MAX, 0, 0];
    /// The number of IP headers before the one that counts.
    Depth = "depth", [0, 0, 0, 0, 0, 0, 0xff << 8];
    /// The outermost VLAN id.
    Vlan = "vlan", [0, 0, 0, 0, 0, 0, 0xfff << VLANS];
    /// The second one.
    SecondVlan = "second_vlan", [0, 0, 0, 0, 0, 0, 0xfff << (VLANS + 12)];
    /// The third one.
    ThirdVlan = "third_vlan", [0, 0, 0, 0, 0, 0, 0xffff << (VLANS + 24)];
}

/// The fields of the key that a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields(u16);

impl Fields {
    /// The whole key.
    pub const ALL: Fields = Fields((1 << KeyField::ALL.len()) - 1);

    /// All of these fields but one.
    #[must_use]
    pub const fn without(self, field: KeyField) -> Self {
        Fields(self.0 & !(1 << field as u8))
    }

    /// Whether the set contains a field.
    #[must_use]
    pub const fn contains(self, field: KeyField) -> bool {
        self.0 >> field as u8 & 1 == 1
    }

    /// Each of these fields.
    pub fn each(self) -> impl Iterator<Item = KeyField> {
        KeyField::ALL.iter().copied().filter(move |field| self.contains(*field))
    }

    /// The bits of the key that are in none of these fields.
    fn others(self) -> [u64; 7] {
        let mut bits = [0; 7];
        for field in KeyField::ALL.iter().filter(|field| !self.contains(**field)) {
            bits.iter_mut().zip(field.mask()).for_each(|(bits, mask)| *bits |= mask);
        }
        bits
    }
}

/// The key of a flow as a device derives it from a frame and its ingress port: the first 56 bytes of
/// `bartizan_flow_entry`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceKey(pub [u64; 7]);

impl DeviceKey {
    /// The key of a flow of the host.
    #[must_use]
    pub const fn of(key: &FlowKey) -> Self {
        let [a, b, c, d, tunnel, ports, rest] = *key.words();
        DeviceKey([a, b, c, d, tunnel, ports & !TENANT, rest])
    }

    /// Whether a device that has these fields can identify the flow: no other bit of the key is set.
    #[must_use]
    pub fn is_within(&self, fields: Fields) -> bool {
        fields == Fields::ALL || self.0.iter().zip(fields.others()).all(|(word, others)| word & others == 0)
    }

    /// Whether the flow is in a tunnel.
    #[must_use]
    pub const fn is_in_tunnel(&self) -> bool {
        let [_, _, _, _, tunnel, _, rest] = self.0;
        tunnel != 0 || rest >> 8 & 0xff != 0
    }

    /// Whether the flow is in exactly one tunnel, of this kind.
    #[must_use]
    pub const fn is_in(&self, kind: TunnelKind) -> bool {
        let [_, _, _, _, tunnel, _, rest] = self.0;
        tunnel >> 32 == kind as u64 && rest >> 8 & 0xff == 1
    }
}

/// The direction of packets of the lower endpoint of a key, in the flow's view.
#[must_use]
pub const fn direction_from_low(key: &FlowKey) -> Direction {
    if key.is_reversed() { Direction::ToClient } else { Direction::ToServer }
}

/// The directions in which packets of both endpoints of a key count, the lower endpoint's first. Flows of
/// protocols without ports have one direction for both senders.
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
    use bartizan_flow::{FlowScope, FlowSide};
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

    /// Each bit of the key but the tenant's is in one field, and the bits of a field are those of its values
    /// only.
    #[test]
    fn fields_are_the_whole_key_and_none_has_bits_of_another_one() {
        let mut all = [0u64; 7];
        for field in KeyField::ALL {
            for (all, mask) in all.iter_mut().zip(field.mask()) {
                assert_eq!(*all & mask, 0, "{field:?}");
                *all |= mask;
            }
        }
        // Five of the flags are used.
        let unused = 0b1110_0000 << 16;
        assert_eq!(all, [u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX, !TENANT, !unused]);
        assert_eq!(Fields::ALL.each().count(), KeyField::ALL.len());
        assert_eq!(Fields::ALL.others(), [0; 7]);
    }

    #[test]
    fn a_flow_is_held_where_nothing_of_its_key_is_missing() {
        let ends = ((1, 40_000), (2, 443));
        let of = |scope: &FlowScope| DeviceKey::of(&key(scope, ends));
        let plain = FlowScope::default();
        let side = FlowSide::First;
        let with = [
            (KeyField::Link, FlowScope { link: LinkId(0xffff), ..plain }),
            (KeyField::Sides, FlowScope { side, ..plain }),
            (KeyField::Tunnel, FlowScope { tunnel: u64::MAX, ..plain }),
            (KeyField::Depth, FlowScope { level: 0xff, ..plain }),
            (KeyField::Vlan, FlowScope { vlans: [0xfff, 0, 0], ..plain }),
            (KeyField::SecondVlan, FlowScope { vlans: [0, 0xfff, 0], ..plain }),
            (KeyField::ThirdVlan, FlowScope { vlans: [0, 0, 0xfff], ..plain }),
        ];
        for (field, scope) in &with {
            for missing in KeyField::ALL {
                let fields = Fields::ALL.without(*missing);
                let always = [KeyField::Addresses, KeyField::Ports, KeyField::Protocol];
                let holds = missing != field && !always.contains(missing);
                assert_eq!(of(scope).is_within(fields), holds, "{field:?} without {missing:?}");
                assert!(!fields.contains(*missing) && of(scope).is_within(Fields::ALL));
            }
            // No other bit of the key has changed.
            let (one, other) = (of(scope).0, of(&plain).0);
            let changed = one.iter().zip(other).map(|(a, b)| a ^ b);
            assert!(changed.zip(field.mask()).all(|(changed, mask)| changed & !mask == 0), "{field:?}");
        }
        let esp = FlowKey::esp(
            &plain,
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
            0,
        );
        assert!(!DeviceKey::of(&esp).is_within(Fields::ALL.without(KeyField::OneWay)));
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

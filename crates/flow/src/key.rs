// SPDX-License-Identifier: Apache-2.0
//! The identity of a flow: tenant, link, tunnel, VLANs, protocol and both endpoints.
//!
//! A key is stored normalised (the lower endpoint first), so both directions compare and hash equal; one bit
//! holds the direction of the packet. The rules of flow identity are those that EVE consumers know from
//! Suricata 8 (read as facts in its `flow-hash.c`, `flow.c`, `decode-icmpv4.c`, `decode-icmpv6.c`):
//!
//! * TCP, UDP, SCTP: addresses and ports;
//! * ICMP: addresses and the type with its counterpart (echo with echo reply, ...), not the id; ICMPv6 also
//!   the code of the first packet;
//! * ESP: one direction only, with the SPI; or by addresses, where a firewall has to recognise replies
//!   ([`EspFlows`]): each end of a tunnel chooses the SPI that it receives (RFC 4303 section 2.1);
//! * any other protocol: addresses. (Suricata keeps flows of IP in IP only; whether others have flows is the
//!   caller's choice.)
//!
//! An ICMP error belongs to the flow that it quotes ([`FlowKey::of_quoted`]). (Suricata does so for ICMPv4
//! destination unreachable, makes no flow for the other ICMPv4 errors, and gives ICMPv6 errors flows of their
//! own. The caller decides on errors about unknown flows.)
//!
//! The hash is a keyed multiply-and-fold over the key's words (the construction of wyhash, with every
//! constant derived from the secret seed), so that traffic cannot be crafted for one bucket or worker. Not
//! part of the key: IPv6 flow labels, and the protocol of a tunnel (the caller folds kind and VNI into
//! `tunnel`).

use bartizan_base::{Direction, LinkId, TenantId};
use bartizan_packet::{Decoded, QuotedPacket, TransportLayer};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IP protocol numbers that this crate treats differently from others.
pub mod protocol {
    /// ICMP of IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// Encapsulating security payload.
    pub const ESP: u8 = 50;
    /// ICMP of IPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
}

/// The part of a flow's identity that does not come from the innermost IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowScope {
    /// The tenant. Part of every key: tenants never meet.
    pub tenant: TenantId,
    /// The link on which the packet arrived.
    pub link: LinkId,
    /// Kind and number (VNI, TEID, ...) of the innermost tunnel, 0 outside of tunnels.
    pub tunnel: u64,
    /// Number of IP headers before this one.
    pub level: u8,
    /// VLAN ids, outermost first, 0 for none. Zeros unless the policy keys on VLANs.
    pub vlans: [u16; 3],
    /// The side of the link on which the packet's source is.
    pub side: FlowSide,
}

/// The side of an inline link on which the source of a packet is. Replies arrive on the other side; packets
/// that a host spoofs in its peer's name arrive on the host's own side and belong to another flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlowSide {
    /// The side is unknown or does not matter.
    #[default]
    Unknown,
    /// The side of the link's first port.
    First,
    /// The side of its second port.
    Second,
}

impl FlowSide {
    /// The opposite side of the link.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            FlowSide::Unknown => FlowSide::Unknown,
            FlowSide::First => FlowSide::Second,
            FlowSide::Second => FlowSide::First,
        }
    }
}

/// The part of a packet that distinguishes flows of ESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EspFlows {
    /// Source, destination and SPI: each direction of a tunnel is a flow, as in Suricata.
    #[default]
    BySpi,
    /// Both addresses: a reply belongs to the flow of the packet that it answers, whatever its SPI.
    ByAddresses,
}

const FAMILY_V6: u64 = 1 << 16;
/// A flow of one direction, sent by the lower or by the higher endpoint.
const ONE_WAY_FROM_LOW: u64 = 1 << 17;
const ONE_WAY_FROM_HIGH: u64 = 1 << 18;
/// The sides of both endpoints are known: the lower one is on the first or the second side.
const LOW_ON_FIRST: u64 = 1 << 19;
const LOW_ON_SECOND: u64 = 1 << 20;
const KNOWN_FLAGS: u64 = FAMILY_V6 | ONE_WAY_FROM_LOW | ONE_WAY_FROM_HIGH | LOW_ON_FIRST | LOW_ON_SECOND;

/// The identity of a flow, with the direction of the packet from which the key was made.
///
/// `==`, `Hash` and [`FlowHasher`] ignore that direction. 64 bytes: one cache line.
#[derive(Clone, Copy, Default)]
pub struct FlowKey {
    /// 0-1 lower address, 2-3 higher address, 4 tunnel,
    /// 5 lower port | higher port << 16 | tenant << 32 | link << 48,
    /// 6 protocol | level << 8 | flags (family, one way, sides) << 16 | three VLAN ids of 12 bits << 24.
    words: [u64; 7],
    /// The packet went from the higher to the lower endpoint.
    reversed: bool,
}

fn address_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// An end of a flow: address and port, or the identifier that a protocol has instead of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEnd {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
}

impl From<(IpAddr, u16)> for FlowEnd {
    fn from((address, port): (IpAddr, u16)) -> Self {
        FlowEnd { address, port }
    }
}

impl FlowKey {
    fn build(
        scope: &FlowScope,
        protocol: u8,
        source: impl Into<FlowEnd>,
        destination: impl Into<FlowEnd>,
    ) -> Self {
        let (source, destination) = (source.into(), destination.into());
        let from = (address_number(source.address), source.port);
        let to = (address_number(destination.address), destination.port);
        let reversed = from > to;
        let (low, high) = if reversed { (to, from) } else { (from, to) };
        // A packet has one family; if a caller mixes them, the key is IPv6, which keeps both addresses.
        let v6 = source.address.is_ipv6() || destination.address.is_ipv6();
        let [a, b, c] = scope.vlans.map(|id| u64::from(id & 0xfff));
        let words = [
            (low.0 >> 64) as u64,
            low.0 as u64,
            (high.0 >> 64) as u64,
            high.0 as u64,
            scope.tunnel,
            u64::from(low.1)
                | u64::from(high.1) << 16
                | u64::from(scope.tenant.0) << 32
                | u64::from(scope.link.0) << 48,
            u64::from(protocol)
                | u64::from(scope.level) << 8
                | if v6 { FAMILY_V6 } else { 0 }
                | match if reversed { scope.side.other() } else { scope.side } {
                    FlowSide::Unknown => 0,
                    FlowSide::First => LOW_ON_FIRST,
                    FlowSide::Second => LOW_ON_SECOND,
                }
                | (a | b << 12 | c << 24) << 24,
        ];
        Self { words, reversed }
    }

    /// A flow of a protocol with ports: TCP, UDP, SCTP.
    #[must_use]
    pub fn ported(
        scope: &FlowScope,
        protocol: u8,
        source: impl Into<FlowEnd>,
        destination: impl Into<FlowEnd>,
    ) -> Self {
        Self::build(scope, protocol, source, destination)
    }

    /// A flow of ICMP messages: query and reply share one. `protocol` is 1 or 58.
    #[must_use]
    pub fn icmp(
        scope: &FlowScope,
        protocol: u8,
        source: IpAddr,
        destination: IpAddr,
        kind: u8,
        code: u8,
    ) -> Self {
        let (own, other) = if protocol == protocol::ICMPV6 {
            // ICMPv6 keys include the code, as in Suricata.
            (u16::from(kind) | u16::from(code) << 8, icmpv6_counterpart(kind))
        } else {
            (u16::from(kind), icmpv4_counterpart(kind))
        };
        Self::build(scope, protocol, (source, own), (destination, u16::from(other.unwrap_or(0))))
    }

    /// One direction of a security association: source, destination and SPI.
    #[must_use]
    pub fn esp(scope: &FlowScope, source: IpAddr, destination: IpAddr, spi: u32) -> Self {
        let mut key = Self::build(scope, protocol::ESP, (source, 0), (destination, 0));
        key.words[5] |= u64::from(spi);
        key.words[6] |= if key.reversed { ONE_WAY_FROM_HIGH } else { ONE_WAY_FROM_LOW };
        key
    }

    /// A flow of any other protocol: all packets between two addresses.
    #[must_use]
    pub fn other(scope: &FlowScope, protocol: u8, source: IpAddr, destination: IpAddr) -> Self {
        Self::build(scope, protocol, (source, 0), (destination, 0))
    }

    /// The flow of a packet by its own header; `None`: the packet is not IP.
    #[must_use]
    pub fn of_packet(scope: &FlowScope, packet: &Decoded, esp_flows: EspFlows) -> Option<Self> {
        let (src, dst, protocol) = (packet.src()?, packet.dst()?, packet.carried_protocol()?);
        Some(match &packet.transport {
            TransportLayer::Tcp(tcp) => Self::ported(scope, protocol, (src, tcp.sport), (dst, tcp.dport)),
            TransportLayer::Udp(udp) => Self::ported(scope, protocol, (src, udp.sport), (dst, udp.dport)),
            TransportLayer::Sctp(sctp) => Self::ported(scope, protocol, (src, sctp.sport), (dst, sctp.dport)),
            TransportLayer::Icmp(icmp) | TransportLayer::Icmpv6(icmp) => {
                Self::icmp(scope, protocol, src, dst, icmp.kind, icmp.code)
            }
            TransportLayer::Esp(esp) if esp_flows == EspFlows::BySpi => Self::esp(scope, src, dst, esp.spi),
            _ => Self::other(scope, protocol, src, dst),
        })
    }

    /// The flow that an ICMP error is about: that of the quoted packet ([`Decoded::about`]).
    #[must_use]
    pub fn of_quoted(scope: &FlowScope, quoted: &QuotedPacket, esp_flows: EspFlows) -> Self {
        let QuotedPacket { src, dst, proto, .. } = *quoted;
        match (quoted.ports, quoted.icmp, quoted.spi) {
            (Some((source, destination)), ..) => {
                Self::ported(scope, proto, (src, source), (dst, destination))
            }
            (_, Some(icmp), _) => Self::icmp(scope, proto, src, dst, icmp.kind, icmp.code),
            (.., Some(spi)) if esp_flows == EspFlows::BySpi => Self::esp(scope, src, dst, spi),
            _ => Self::other(scope, proto, src, dst),
        }
    }

    fn address(&self, high: bool) -> IpAddr {
        let [a, b, c, d, ..] = self.words;
        let number =
            if high { u128::from(c) << 64 | u128::from(d) } else { u128::from(a) << 64 | u128::from(b) };
        if self.is_ipv6() {
            IpAddr::V6(Ipv6Addr::from(number))
        } else {
            IpAddr::V4(Ipv4Addr::from(number as u32))
        }
    }

    const fn port(&self, high: bool) -> u16 {
        if high { (self.words[5] >> 16) as u16 } else { self.words[5] as u16 }
    }

    /// Source address of the packet from which the key was made.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.address(self.reversed)
    }

    /// Destination address of that packet.
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        self.address(!self.reversed)
    }

    /// Source port of that packet, 0 if the protocol has no ports.
    #[must_use]
    pub const fn source_port(&self) -> u16 {
        if self.has_ports() { self.port(self.reversed) } else { 0 }
    }

    /// Destination port of that packet, 0 if the protocol has no ports.
    #[must_use]
    pub const fn destination_port(&self) -> u16 {
        if self.has_ports() { self.port(!self.reversed) } else { 0 }
    }

    /// ICMP type of that packet and the type of its reply (0 if there is none).
    #[must_use]
    pub const fn icmp_types(&self) -> Option<(u8, u8)> {
        if self.is_icmp() {
            Some((self.port(self.reversed) as u8, self.port(!self.reversed) as u8))
        } else {
            None
        }
    }

    /// Security parameter index of an ESP flow.
    #[must_use]
    pub const fn spi(&self) -> Option<u32> {
        if self.is_one_way() { Some(self.words[5] as u32) } else { None }
    }

    /// IP protocol number.
    #[must_use]
    pub const fn protocol(&self) -> u8 {
        self.words[6] as u8
    }

    /// Tenant, link, tunnel, IP nesting depth and VLAN ids.
    #[must_use]
    pub const fn scope(&self) -> FlowScope {
        let vlans = self.words[6] >> 24;
        let low = match self.words[6] & (LOW_ON_FIRST | LOW_ON_SECOND) {
            LOW_ON_FIRST => FlowSide::First,
            LOW_ON_SECOND => FlowSide::Second,
            _ => FlowSide::Unknown,
        };
        FlowScope {
            side: if self.reversed { low.other() } else { low },
            tenant: self.tenant(),
            link: LinkId((self.words[5] >> 48) as u16),
            tunnel: self.words[4],
            level: (self.words[6] >> 8) as u8,
            vlans: [(vlans & 0xfff) as u16, (vlans >> 12 & 0xfff) as u16, (vlans >> 24 & 0xfff) as u16],
        }
    }

    /// The tenant of the flow.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        TenantId((self.words[5] >> 32) as u16)
    }

    /// Whether the addresses are IPv6.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.words[6] & FAMILY_V6 != 0
    }

    /// Whether the protocol has ports (TCP, UDP, SCTP).
    #[must_use]
    pub const fn has_ports(&self) -> bool {
        matches!(self.protocol(), protocol::TCP | protocol::UDP | protocol::SCTP)
    }

    /// Whether it is ICMP of either version.
    #[must_use]
    pub const fn is_icmp(&self) -> bool {
        matches!(self.protocol(), protocol::ICMP | protocol::ICMPV6)
    }

    const fn is_one_way(&self) -> bool {
        self.words[6] & (ONE_WAY_FROM_LOW | ONE_WAY_FROM_HIGH) != 0
    }

    const fn same_addresses(&self) -> bool {
        let [a, b, c, d, ..] = self.words;
        a == c && b == d
    }

    /// Whether this packet goes in the opposite direction of the one from which `opener` was made. Of two
    /// packets with both endpoints equal (a host that talks to its own port), neither is a reply to the
    /// other.
    #[must_use]
    pub const fn is_reply_to(&self, opener: &FlowKey) -> bool {
        self.reversed != opener.reversed
    }

    /// The direction in which this packet is counted, in a flow that `opener` opened.
    ///
    /// As in EVE: protocols without ports other than ICMP have one direction only (everything is to the
    /// server), and so has ICMP of a host with itself. [`FlowKey::is_reply_to`] tells the packet's real
    /// direction.
    #[must_use]
    pub const fn direction_in(&self, opener: &FlowKey) -> Direction {
        let directed = self.has_ports() || (self.is_icmp() && !self.same_addresses());
        if directed && self.is_reply_to(opener) { Direction::ToClient } else { Direction::ToServer }
    }

    /// This flow from the other side, for a flow that was picked up in the wrong direction.
    #[must_use]
    pub const fn flipped(mut self) -> Self {
        self.reversed = !self.reversed;
        self
    }

    /// The normalised identity, for export and for other keyed tables.
    #[must_use]
    pub const fn words(&self) -> &[u64; 7] {
        &self.words
    }

    /// Whether the packet went from the higher to the lower endpoint.
    #[must_use]
    pub const fn is_reversed(&self) -> bool {
        self.reversed
    }

    /// Rebuilds a key from [`FlowKey::words`] and [`FlowKey::is_reversed`]. `None` if the words are not
    /// normalised or have undefined bits set.
    #[must_use]
    pub fn from_words(words: [u64; 7], reversed: bool) -> Option<Self> {
        let key = Self { words, reversed };
        let [a, b, c, d, _, _, flags] = words;
        let known = flags & !(0xffff | KNOWN_FLAGS | 0xf_ffff_ffff << 24) == 0;
        let low = ((a, b), if key.is_one_way() { 0 } else { key.port(false) });
        let high = ((c, d), if key.is_one_way() { 0 } else { key.port(true) });
        let fits = key.is_ipv6() || (a == 0 && c == 0 && b >> 32 == 0 && d >> 32 == 0);
        (known && fits && low <= high).then_some(key)
    }
}

impl PartialEq for FlowKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl Eq for FlowKey {}

impl core::hash::Hash for FlowKey {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.words.hash(state);
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowKey")
            .field("protocol", &self.protocol())
            .field("source", &(self.source(), self.port(self.reversed)))
            .field("destination", &(self.destination(), self.port(!self.reversed)))
            .field("scope", &self.scope())
            .finish()
    }
}

/// The ICMP (IPv4) type of the reply to `kind`, or of the query. Source: RFC 792, 950, 1256, 8335.
#[must_use]
pub const fn icmpv4_counterpart(kind: u8) -> Option<u8> {
    Some(match kind {
        8 => 0,
        0 => 8,
        9 => 10,
        10 => 9,
        13 => 14,
        14 => 13,
        15 => 16,
        16 => 15,
        17 => 18,
        18 => 17,
        42 => 43,
        43 => 42,
        _ => return None,
    })
}

/// The ICMPv6 type of the reply to `kind`, or of the query. Source: RFC 4443, 4861, 2710, 4620, 6275, 3971,
/// 4286, 6775, 8335.
#[must_use]
pub const fn icmpv6_counterpart(kind: u8) -> Option<u8> {
    Some(match kind {
        128 | 133 | 135 | 139 | 144 | 146 | 148 | 151 | 157 | 160 => kind + 1,
        129 | 134 | 136 | 140 | 145 | 147 | 149 | 152 | 158 | 161 => kind - 1,
        130 => 131,
        131 => 130,
        _ => return None,
    })
}

/// Whether an ICMP (IPv4) type is an error message, which quotes a packet and opens no flow.
#[must_use]
pub const fn icmpv4_is_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// Keyed hash of a flow, equal for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowHash(pub u64);

impl FlowHash {
    /// The worker among `workers` that owns the flow. 0 workers count as one.
    #[must_use]
    pub const fn owner(self, workers: u16) -> u16 {
        // Multiply and shift: even shares without a division.
        (((self.0 >> 32) * workers as u64) >> 32) as u16
    }
}

/// Hashes keys under a secret. All workers of an instance share one, since the hash chooses the owner.
#[derive(Clone, Copy)]
pub struct FlowHasher {
    secrets: [u64; 8],
}

impl fmt::Debug for FlowHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowHasher(secret)")
    }
}

const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ (product >> 64) as u64
}

impl FlowHasher {
    /// A hasher from 128 secret random bits. Equal seeds give equal hashes, for tests and replays.
    #[must_use]
    pub fn new(seed: [u64; 2]) -> Self {
        let [mut state, other] = seed;
        // splitmix64 (Vigna), twice seeded: spreads the seed over all constants.
        let secrets = core::array::from_fn(|round| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state ^ other.rotate_left((round as u32) * 8);
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        });
        Self { secrets }
    }

    /// Hash of a flow.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> FlowHash {
        FlowHash(self.hash_words(&key.words))
    }

    /// Hash of any seven words, for other keyed tables.
    #[inline]
    #[must_use]
    pub fn hash_words(&self, words: &[u64; 7]) -> u64 {
        let [a, b, c, d, e, f, g] = *words;
        let [s0, s1, s2, s3, s4, s5, s6, s7] = self.secrets;
        let left = fold(a ^ s0, b ^ s1) ^ fold(e ^ s4, f ^ s5);
        let right = fold(c ^ s2, d ^ s3).rotate_left(29) ^ (g ^ s6);
        fold(left ^ s7, right ^ s3.rotate_left(17))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(v6: bool, number: u8) -> IpAddr {
        if v6 {
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)))
        } else {
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, number))
        }
    }

    #[test]
    fn both_directions_are_one_flow_and_keep_their_own_view() {
        let hasher = FlowHasher::new([1, 2]);
        for v6 in [false, true] {
            let side = FlowSide::Second;
            let scope = FlowScope { vlans: [7, 0xfff, 1], tunnel: 99, side, ..FlowScope::default() };
            let across = FlowScope { side: FlowSide::First, ..scope };
            let (a, b) = ((address(v6, 9), 40_000), (address(v6, 3), 80));
            let there = FlowKey::ported(&scope, protocol::TCP, a, b);
            let back = FlowKey::ported(&across, protocol::TCP, b, a);
            let forged = FlowKey::ported(&scope, protocol::TCP, b, a);
            assert_ne!(there, forged, "an answer does not come from where the question came from");
            assert_eq!(back.scope(), across);
            assert_eq!(there, back);
            assert_eq!(hasher.hash(&there), hasher.hash(&back));
            assert_eq!((there.source(), there.source_port()), a);
            assert_eq!((back.source(), back.source_port()), b);
            assert_eq!((back.destination(), back.destination_port()), a);
            assert_eq!(back.direction_in(&there), Direction::ToClient);
            assert_eq!(there.direction_in(&there), Direction::ToServer);
            assert_eq!(there.scope(), scope);
            assert_eq!(there.is_ipv6(), v6);
        }
    }

    #[test]
    fn every_part_of_the_scope_separates() {
        let base = FlowScope::default();
        let scopes = [
            base,
            FlowScope { tenant: TenantId(1), ..base },
            FlowScope { link: LinkId(1), ..base },
            FlowScope { tunnel: 1, ..base },
            FlowScope { level: 1, ..base },
            FlowScope { vlans: [1, 0, 0], ..base },
            FlowScope { vlans: [0, 1, 0], ..base },
            FlowScope { vlans: [0, 0, 1], ..base },
            FlowScope { side: FlowSide::First, ..base },
            FlowScope { side: FlowSide::Second, ..base },
        ];
        let keys = scopes
            .map(|s| FlowKey::ported(&s, protocol::UDP, (address(false, 1), 5), (address(false, 2), 6)));
        let hasher = FlowHasher::new([3, 4]);
        for (i, a) in keys.iter().enumerate() {
            for b in keys.iter().skip(i + 1) {
                assert_ne!(a, b);
                assert_ne!(hasher.hash(a), hasher.hash(b));
            }
        }
    }

    #[test]
    fn an_ipv4_address_is_not_its_ipv6_number() {
        let scope = FlowScope::default();
        let v4 = FlowKey::other(&scope, 47, IpAddr::V4(Ipv4Addr::from(1)), IpAddr::V4(Ipv4Addr::from(2)));
        let v6 = FlowKey::other(&scope, 47, IpAddr::V6(Ipv6Addr::from(1)), IpAddr::V6(Ipv6Addr::from(2)));
        assert_ne!(v4, v6);
    }

    #[test]
    fn icmp_query_and_answer_share_a_flow_of_either_version() {
        let scope = FlowScope::default();
        for (v6, proto, ask, answer, alone) in
            [(false, protocol::ICMP, 8, 0, 40), (true, protocol::ICMPV6, 128, 129, 143)]
        {
            let (a, b) = (address(v6, 1), address(v6, 2));
            let query = FlowKey::icmp(&scope, proto, b, a, ask, 0);
            let reply = FlowKey::icmp(&scope, proto, a, b, answer, 0);
            assert_eq!(query, reply);
            assert_eq!(reply.direction_in(&query), Direction::ToClient);
            assert_eq!(query.icmp_types(), Some((ask, answer)));
            assert_eq!(query.source_port(), 0);
            // Without a counterpart each direction is a flow of its own.
            let one = FlowKey::icmp(&scope, proto, a, b, alone, 0);
            assert_ne!(one, FlowKey::icmp(&scope, proto, b, a, alone, 0));
            // A host that pings itself has one direction.
            let query = FlowKey::icmp(&scope, proto, a, a, ask, 0);
            let reply = FlowKey::icmp(&scope, proto, a, a, answer, 0);
            assert_eq!(query, reply);
            assert_eq!(reply.direction_in(&query), Direction::ToServer);
        }
    }

    #[test]
    fn esp_is_one_way_and_other_protocols_count_one_way() {
        let scope = FlowScope::default();
        let (a, b) = (address(true, 1), address(true, 2));
        let there = FlowKey::esp(&scope, a, b, 0xdead_beef);
        assert_eq!(there.spi(), Some(0xdead_beef));
        assert_ne!(there, FlowKey::esp(&scope, b, a, 0xdead_beef));
        assert_ne!(there, FlowKey::esp(&scope, a, b, 1));
        let gre = FlowKey::other(&scope, 47, a, b);
        let back = FlowKey::other(&scope, 47, b, a);
        assert_eq!(gre, back);
        assert!(back.is_reply_to(&gre));
        assert_eq!(back.direction_in(&gre), Direction::ToServer);
    }

    #[test]
    fn esp_by_addresses_is_one_flow_whatever_the_spi() {
        let scope = FlowScope { side: FlowSide::First, ..FlowScope::default() };
        let across = FlowScope { side: FlowSide::Second, ..scope };
        for v6 in [false, true] {
            let (a, b) = (address(v6, 1), address(v6, 2));
            let quoted = |src, dst, spi| QuotedPacket {
                src,
                dst,
                proto: protocol::ESP,
                ports: None,
                tcp_seq: None,
                icmp: None,
                spi: Some(spi),
                offset: 0,
            };
            let by = |scope: &FlowScope, src, dst, spi, how| {
                FlowKey::of_quoted(scope, &quoted(src, dst, spi), how)
            };
            let (there, back) =
                (by(&scope, a, b, 1, EspFlows::ByAddresses), by(&across, b, a, 2, EspFlows::ByAddresses));
            assert_eq!(there, back);
            assert!(back.is_reply_to(&there) && there.spi().is_none());
            let one_way = by(&scope, a, b, 1, EspFlows::BySpi);
            assert_ne!(one_way, by(&across, b, a, 1, EspFlows::BySpi));
            assert_eq!(one_way.spi(), Some(1));
        }
    }

    #[test]
    fn owners_get_even_shares() {
        let hasher = FlowHasher::new([5, 6]);
        let mut shares = [0_u32; 7];
        for port in 0..7_000 {
            let key = FlowKey::ported(
                &FlowScope::default(),
                protocol::TCP,
                (address(false, 1), port),
                (address(false, 2), 80),
            );
            shares[usize::from(hasher.hash(&key).owner(7))] += 1;
        }
        assert!(shares.iter().all(|n| (800..1200).contains(n)), "{shares:?}");
        assert_eq!(FlowHash(u64::MAX).owner(0), 0);
    }

    proptest! {
        #[test]
        fn words_round_trip(
            v6: bool, a: u8, b: u8, ports: (u16, u16), proto: u8,
            tenant: u16, link: u16, tunnel: u64, level: u8, vlans in prop::array::uniform3(0_u16..4096),
            side in prop::sample::select(vec![FlowSide::Unknown, FlowSide::First, FlowSide::Second]),
        ) {
            let scope = FlowScope { tenant: TenantId(tenant), link: LinkId(link), tunnel, level, vlans, side };
            let key = FlowKey::ported(&scope, proto, (address(v6, a), ports.0), (address(v6, b), ports.1));
            let again = FlowKey::from_words(*key.words(), key.is_reversed()).expect("normalised");
            prop_assert_eq!(again, key);
            prop_assert_eq!(again.source(), address(v6, a));
            prop_assert_eq!(again.destination(), address(v6, b));
            prop_assert_eq!(again.scope(), scope);
            prop_assert_eq!(again.protocol(), proto);
        }

        #[test]
        fn arbitrary_words_make_a_sound_key_or_none(words: [u64; 7], reversed: bool) {
            if let Some(key) = FlowKey::from_words(words, reversed) {
                prop_assert_eq!(key.words(), &words);
            }
        }
    }
}

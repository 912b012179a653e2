// SPDX-License-Identifier: Apache-2.0
//! The input of classification: headers and header rules.

use bartizan_base::{LinkId, TenantId};
use core::net::IpAddr;
use core::num::NonZeroU32;
use smallvec::SmallVec;

/// The key of a lookup: the 5-tuple with tenant and link. ICMP has its type in `source_port` and its code
/// in `destination_port`; other protocols without ports have zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The tenant of the packet.
    pub tenant: TenantId,
    /// The link that the packet arrived by.
    pub link: LinkId,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Source port or ICMP type.
    pub source_port: u16,
    /// Destination port or ICMP code.
    pub destination_port: u16,
}

/// Addresses with common leading bits. The host bits of `address` are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Net {
    /// An address of the network.
    pub address: IpAddr,
    /// The number of leading bits.
    pub length: u8,
}

impl Net {
    /// First and last address, as numbers, after whether it is IPv6.
    #[must_use]
    pub fn range(self) -> (bool, u128, u128) {
        let (v6, bits, number) = match self.address {
            IpAddr::V4(v4) => (false, 32, u128::from(u32::from(v4))),
            IpAddr::V6(v6) => (true, 128, u128::from(v6)),
        };
        let host = bits - u32::from(self.length).min(bits);
        let low = u128::MAX.checked_shl(host).map_or(u128::MAX, |high| !high);
        (v6, number & !low, number | if host == 0 { 0 } else { low })
    }

    /// The intersection of two networks: the longer one, or none.
    #[must_use]
    pub fn and(self, other: Net) -> Option<Net> {
        let (long, short) = if self.length >= other.length { (self, other) } else { (other, self) };
        short.contains(long.address).then_some(long)
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        let (v6, first, last) = self.range();
        let (other_v6, number) = number(address);
        v6 == other_v6 && (first..=last).contains(&number)
    }
}

/// An address as (is IPv6, number).
pub(crate) fn number(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(v4) => (false, u128::from(u32::from(v4))),
        IpAddr::V6(v6) => (true, u128::from(v6)),
    }
}

/// Numbers from a first to a last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// First.
    pub first: u16,
    /// Last.
    pub last: u16,
}

impl Range {
    /// Every number.
    pub const ANY: Range = Range { first: 0, last: u16::MAX };

    /// One number.
    #[must_use]
    pub const fn one(number: u16) -> Self {
        Range { first: number, last: number }
    }

    /// The intersection of two ranges.
    #[must_use]
    pub fn and(self, other: Range) -> Option<Range> {
        let both = Range { first: self.first.max(other.first), last: self.last.min(other.last) };
        (both.first <= both.last).then_some(both)
    }

    /// Whether a number is in it.
    #[must_use]
    pub const fn contains(self, number: u16) -> bool {
        self.first <= number && number <= self.last
    }
}

impl Default for Range {
    fn default() -> Self {
        Range::ANY
    }
}

/// Number of a name of a policy. It is the same in all generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub NonZeroU32);

/// Names of one address.
pub type NameIds = SmallVec<[NameId; 2]>;

/// The names of a header's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderNames {
    /// The names that the source address matches.
    pub source: NameIds,
    /// The names of its destination.
    pub destination: NameIds,
}

impl HeaderNames {
    /// Whether neither address has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.source.is_empty() && self.destination.is_empty()
    }
}

/// The condition on a header; a field that is `None` matches anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeaderRule {
    /// The tenant of the packet.
    pub tenant: Option<TenantId>,
    /// The link that the packet arrived by.
    pub link: Option<LinkId>,
    /// Source addresses.
    pub source: Option<Net>,
    /// Destination addresses.
    pub destination: Option<Net>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Source ports or ICMP types.
    pub source_ports: Range,
    /// Destination ports or ICMP codes.
    pub destination_ports: Range,
    /// A name that the source must have now. Headers have no names: classifiers refuse such rules, and the
    /// caller with the names splits them off.
    pub source_name: Option<NameId>,
    /// The name that the destination must have.
    pub destination_name: Option<NameId>,
}

impl HeaderRule {
    /// Whether it has a condition on names, which a header alone cannot satisfy.
    #[must_use]
    pub const fn is_named(&self) -> bool {
        self.source_name.is_some() || self.destination_name.is_some()
    }

    /// Whether the rule matches a header. A rule with a name matches none.
    #[must_use]
    pub fn matches(&self, header: &Header) -> bool {
        !self.is_named() && self.matches_named(header, &HeaderNames::default())
    }

    /// Whether the rule matches a header whose addresses have these names.
    #[must_use]
    pub fn matches_named(&self, header: &Header, names: &HeaderNames) -> bool {
        self.source_name.is_none_or(|n| names.source.contains(&n))
            && self.destination_name.is_none_or(|n| names.destination.contains(&n))
            && self.matches_fields(header)
    }

    fn matches_fields(&self, header: &Header) -> bool {
        self.tenant.is_none_or(|t| t == header.tenant)
            && self.link.is_none_or(|l| l == header.link)
            && self.protocol.is_none_or(|p| p == header.protocol)
            && self.source_ports.contains(header.source_port)
            && self.destination_ports.contains(header.destination_port)
            && self.source.is_none_or(|n| n.contains(header.source))
            && self.destination.is_none_or(|n| n.contains(header.destination))
    }

    /// Whether both have a name for the same side, and different ones: their intersection is no single rule.
    #[must_use]
    pub fn names_differ(&self, other: &HeaderRule) -> bool {
        let differ = |a: Option<NameId>, b: Option<NameId>| a.zip(b).is_some_and(|(a, b)| a != b);
        differ(self.source_name, other.source_name) || differ(self.destination_name, other.destination_name)
    }

    /// The intersection of both; `None` if it is empty, or is no single rule
    /// ([`HeaderRule::names_differ`]).
    #[must_use]
    pub fn and(&self, other: &HeaderRule) -> Option<HeaderRule> {
        let net = |a: Net, b: Net| a.and(b);
        Some(HeaderRule {
            tenant: both(self.tenant, other.tenant, equal)?,
            link: both(self.link, other.link, equal)?,
            source: both(self.source, other.source, net)?,
            destination: both(self.destination, other.destination, net)?,
            protocol: both(self.protocol, other.protocol, equal)?,
            source_ports: self.source_ports.and(other.source_ports)?,
            destination_ports: self.destination_ports.and(other.destination_ports)?,
            source_name: both(self.source_name, other.source_name, equal)?,
            destination_name: both(self.destination_name, other.destination_name, equal)?,
        })
    }
}

/// The intersection of two optional conditions; `None` if it is empty.
fn both<T: Copy>(a: Option<T>, b: Option<T>, and: impl FnOnce(T, T) -> Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) => and(a, b).map(Some),
        (one, other) => Some(one.or(other)),
    }
}

fn equal<T: PartialEq>(a: T, b: T) -> Option<T> {
    (a == b).then_some(a)
}

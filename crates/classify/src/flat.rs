// SPDX-License-Identifier: Apache-2.0
//! Headers for batched lookups: one IP version, fixed size, no optional parts.
//!
//! 16 bytes for IPv4, so that four of them fill a cache line and a vector register; 40 for IPv6. Numbers are
//! in the machine's byte order. The link has 8 bits, as in the metadata before a packet; headers of later
//! links are looked up one by one ([`crate::Classifier::lookup`]).

use crate::header::Header;
use bartizan_base::{LinkId, TenantId};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 header to look up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(16))]
pub struct FlatV4 {
    /// Source address.
    pub source: u32,
    /// Destination address.
    pub destination: u32,
    /// Source port or ICMP type.
    pub source_port: u16,
    /// Destination port or ICMP code.
    pub destination_port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// The link that the packet arrived by.
    pub link: u8,
    /// The tenant of the packet.
    pub tenant: u16,
}

/// An IPv6 header to look up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(8))]
pub struct FlatV6 {
    /// Source address: its high and its low half.
    pub source: [u64; 2],
    /// Destination address: its high and its low half.
    pub destination: [u64; 2],
    /// Source port or ICMP type.
    pub source_port: u16,
    /// Destination port or ICMP code.
    pub destination_port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// The link that the packet arrived by.
    pub link: u8,
    /// The tenant of the packet.
    pub tenant: u16,
}

/// A header of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flat {
    /// IPv4.
    V4(FlatV4),
    /// IPv6.
    V6(FlatV6),
}

pub(crate) fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

pub(crate) fn whole([high, low]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// The last link that a flat form can hold.
pub(crate) const LINK_MAX: u8 = u8::MAX;

impl Flat {
    /// The flat form; `None` for a later link than the last and for addresses of different versions.
    #[must_use]
    pub fn new(header: &Header) -> Option<Self> {
        let link = u8::try_from(header.link.0).ok()?;
        let (source_port, destination_port) = (header.source_port, header.destination_port);
        let (protocol, tenant) = (header.protocol, header.tenant.0);
        match (header.source, header.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Flat::V4(FlatV4 {
                source: source.into(),
                destination: destination.into(),
                source_port,
                destination_port,
                protocol,
                link,
                tenant,
            })),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Flat::V6(FlatV6 {
                source: halves(source.into()),
                destination: halves(destination.into()),
                source_port,
                destination_port,
                protocol,
                link,
                tenant,
            })),
            _ => None,
        }
    }
}

impl From<&FlatV4> for Header {
    fn from(flat: &FlatV4) -> Self {
        Header {
            tenant: TenantId(flat.tenant),
            link: LinkId(u16::from(flat.link)),
            source: Ipv4Addr::from(flat.source).into(),
            destination: Ipv4Addr::from(flat.destination).into(),
            protocol: flat.protocol,
            source_port: flat.source_port,
            destination_port: flat.destination_port,
        }
    }
}

impl From<&FlatV6> for Header {
    fn from(flat: &FlatV6) -> Self {
        Header {
            tenant: TenantId(flat.tenant),
            link: LinkId(u16::from(flat.link)),
            source: Ipv6Addr::from(whole(flat.source)).into(),
            destination: Ipv6Addr::from(whole(flat.destination)).into(),
            protocol: flat.protocol,
            source_port: flat.source_port,
            destination_port: flat.destination_port,
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! One fragment, the fields that it shares with those of its datagram, and its validity.

use super::counters::DropReason;
use bartizan_base::{LinkId, TenantId};
use core::net::IpAddr;

/// The most data of a datagram: that of IPv6, and that of IPv4 including the header.
pub(super) const MAX_DATAGRAM: u32 = 65_535;

pub(super) const IPV6_HEADER: usize = 40;

/// The identity that the fragments of one datagram share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// The tenant of the traffic.
    pub tenant: TenantId,
    /// The link that it arrived by, where links are kept apart.
    pub link: Option<LinkId>,
    /// VLAN ids from the outermost, 0 where there is none.
    pub vlans: [u16; 3],
    /// The identity of the tunnel (VNI, TEID, hash of the outer addresses), 0 outside.
    pub tunnel: u64,
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same version.
    pub dst: IpAddr,
    /// Identification: 16 bits for IPv4, 32 for IPv6.
    pub id: u32,
    /// IPv4: the protocol. Not used for IPv6, where the fragments of a datagram may differ in it.
    pub protocol: u8,
    /// The number of IP headers around this one.
    pub recursion: u8,
}

impl FragmentKey {
    /// The key as the table stores it.
    pub(super) const fn normal(mut self) -> Self {
        if !self.is_ipv4() {
            self.protocol = 0;
        }
        self
    }

    pub(super) const fn is_ipv4(&self) -> bool {
        matches!(self.dst, IpAddr::V4(_))
    }
}

/// One fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The offset of its data in the datagram, in bytes.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// The IP header: for IPv4 with its options; for IPv6 with the extension headers before the fragment
    /// header, and without that one.
    pub header: &'a [u8],
    /// Time to live, or hop limit, on arrival.
    pub hop_limit: u8,
    /// Further properties of its path that a receiver may check (port, hardware address, tags), which all
    /// fragments of a datagram share.
    pub path: [u64; 2],
    /// A bit that has to be zero is set: in the flags of IPv4, in the fragment header of IPv6.
    pub reserved: bool,
    /// IPv6: the next header that the fragment header names. Not used for IPv4.
    pub next_header: u8,
    /// The data after the header, or after the fragment header, without link-layer padding.
    pub payload: &'a [u8],
}

/// Position of the byte that names the fragment header, which follows `header`; `None` when the extension
/// headers do not end there.
pub(super) fn announcing_byte(header: &[u8]) -> Option<usize> {
    let mut at = IPV6_HEADER;
    let mut byte = 6;
    while at < header.len() {
        let len = usize::from(*header.get(at.checked_add(1)?)?);
        let size = match *header.get(byte)? {
            // Hop-by-hop, routing, destination, mobility, HIP, shim6.
            0 | 43 | 60 | 135 | 139 | 140 => len.checked_add(1)?.checked_mul(8)?,
            // Authentication.
            51 => len.checked_add(2)?.checked_mul(4)?,
            _ => return None,
        };
        byte = at;
        at = at.checked_add(size)?;
    }
    (at == header.len()).then_some(byte)
}

/// Returns the end of the fragment in its datagram, or the reason why it cannot be one.
pub(super) fn check(key: &FragmentKey, fragment: &Fragment<'_>) -> Result<u32, DropReason> {
    let same_version = key.src.is_ipv4() == key.dst.is_ipv4();
    let header = fragment.header;
    let proper = match header.first().map(|byte| byte >> 4) {
        Some(4) => key.is_ipv4() && (20..=60).contains(&header.len()),
        Some(6) => !key.is_ipv4() && (fragment.offset != 0 || announcing_byte(header).is_some()),
        _ => false,
    };
    if !same_version || !proper || header.len() > MAX_DATAGRAM as usize {
        return Err(DropReason::BadHeader);
    }
    let end =
        u32::try_from(fragment.payload.len()).unwrap_or(u32::MAX).saturating_add(u32::from(fragment.offset));
    // The minimal header of IPv4 counts towards its limit, that of IPv6 does not.
    let limit = if key.is_ipv4() { MAX_DATAGRAM - 20 } else { MAX_DATAGRAM };
    if end > limit {
        Err(DropReason::TooLarge)
    } else if fragment.payload.is_empty() {
        Err(DropReason::Empty)
    } else {
        Ok(end)
    }
}

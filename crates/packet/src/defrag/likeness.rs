// SPDX-License-Identifier: Apache-2.0
//! The fields that a receiver checks before it accepts a fragment: strict mode wants each fragment sound by
//! itself, and equal fields in all fragments of a datagram, so that a receiver accepts all of them or none.
//!
//! Sources: RFC 791, 815, 1858 and 3128 (first fragments without the whole header), 3168 section 5.3 (ECN),
//! 7112 and 8200 section 4.5 (the header chain is in the first fragment). Reasons and the fields left out:
//! docs/design/0011-what-the-receiver-reads.md.

use super::fragment::{Fragment, FragmentKey};
use crate::InternetChecksum;
use core::hash::BuildHasher;

/// Hash, under the instance's secret, of the fields that have to be the same in all fragments of a datagram.
pub(super) type Likeness = u64;

/// Hashes the fields by which receivers, and devices before them, decide whether to accept a fragment, as far
/// as a sender sets them equally in all fragments.
///
/// Left out, since they differ between good fragments: lengths, offset, "more fragments", header checksum;
/// the differentiated services code point (policers remark single packets) and the choice among the
/// ECN-capable marks (routers note congestion in single packets); the flow label; the source's hardware
/// address (two routers may share the work).
pub(super) fn likeness(hasher: &impl BuildHasher, key: &FragmentKey, fragment: &Fragment<'_>) -> Likeness {
    let header = fragment.header;
    let byte = |at: usize| header.get(at).copied().unwrap_or(0);
    if key.is_ipv4() {
        let ecn_capable = byte(1) & 3 != 0;
        let flags = byte(6) & 0xc0;
        let options = header.get(20..).unwrap_or_default();
        hasher.hash_one((fragment.path, ecn_capable, flags, options))
    } else {
        let ecn_capable = byte(1) & 0x30 != 0;
        let extensions = header.get(40..).unwrap_or_default();
        hasher.hash_one((fragment.path, ecn_capable, byte(6), fragment.next_header, extensions))
    }
}

/// Whether no common receiver discards the fragment by itself. Lengths have been checked.
pub(super) fn is_sound(key: &FragmentKey, fragment: &Fragment<'_>) -> bool {
    if fragment.reserved {
        return false;
    }
    if key.is_ipv4() && !InternetChecksum::new().with(fragment.header).is_valid() {
        return false;
    }
    let next = if key.is_ipv4() { key.protocol } else { fragment.next_header };
    fragment.offset != 0 || holds_headers(key.is_ipv4(), next, fragment.payload)
}

/// The length of a TCP header without options, in bytes.
const TCP_HEADER: usize = 20;

/// Whether a first fragment holds all headers up to the transport protocol's.
fn holds_headers(v4: bool, next: u8, payload: &[u8]) -> bool {
    let (mut next, mut rest) = (next, payload);
    loop {
        let byte = |at: usize| rest.get(at).copied().map(usize::from);
        let length = match next {
            _ if v4 => None,
            // Hop-by-hop, routing, destination, mobility, HIP, shim6.
            0 | 43 | 60 | 135 | 139 | 140 => byte(1).map(|units| units.saturating_add(1).saturating_mul(8)),
            // Another fragment header; authentication.
            44 => Some(8),
            51 => byte(1).map(|units| units.saturating_add(2).saturating_mul(4)),
            _ => None,
        };
        let extension = !v4 && matches!(next, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140);
        if !extension {
            break;
        }
        let (Some(after), Some(named)) = (length.and_then(|length| rest.get(length..)), rest.first()) else {
            return false;
        };
        (next, rest) = (*named, after);
    }
    let least = match next {
        // IPv4: at the minimal MTU a sender cannot get all options into one fragment, but can fit the fixed
        // header.
        6 if v4 => TCP_HEADER,
        6 => rest.get(12).map_or(TCP_HEADER, |byte| usize::from(byte >> 4).saturating_mul(4).max(TCP_HEADER)),
        1 | 17 | 50 | 58 | 136 => 8,
        132 => 12,
        // "No next header".
        59 => 0,
        _ => 1,
    };
    rest.len() >= least
}

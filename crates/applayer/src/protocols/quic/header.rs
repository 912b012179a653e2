// SPDX-License-Identifier: Apache-2.0
//! Packet headers: QUIC's invariants (RFC 8999), versions 1 and 2 (RFC 9000 section 17, RFC 9369), Google's
//! versions Q043 to Q046 and the short headers before those.
//!
//! As in Suricata, a short header without the fixed bit is one of Google's: it may name its version.

use bartizan_base::Cursor;

/// QUIC version 1 (RFC 9000).
pub(super) const V1: u32 = 1;
/// QUIC version 2 (RFC 9369).
pub(super) const V2: u32 = 0x6b33_43cf;
/// Google's versions with parsed long headers, and the older one that only has a name.
const Q039: u32 = 0x5130_3339;
const Q043: u32 = 0x5130_3433;
const Q044: u32 = 0x5130_3434;
const Q045: u32 = 0x5130_3435;
const Q046: u32 = 0x5130_3436;

/// Bits of the first byte.
const LONG: u8 = 0x80;
const FIXED: u8 = 0x40;
/// Bits of the first byte of Google's short headers.
const GOOGLE_VERSION: u8 = 0x01;
const GOOGLE_NONCE: u8 = 0x04;
const GOOGLE_CONNECTION_ID: u8 = 0x08;

/// Bytes of the authentication hash before the frames of Google's versions.
const GOOGLE_HASH: usize = 12;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketKind {
    Initial,
    ZeroRtt,
    Handshake,
    Retry,
    VersionNegotiation,
    Short,
}

/// The header of a packet, and the bytes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketHeader<'a> {
    pub(super) kind: PacketKind,
    /// The version, if the header has one.
    pub(super) version: Option<u32>,
    /// The receiver's connection id.
    pub(super) destination: &'a [u8],
    /// Length of the header without the packet number, in bytes.
    pub(super) length: usize,
    /// The packet after its header: in protected packets, packet number and payload.
    pub(super) payload: &'a [u8],
    /// The next packets of the datagram.
    pub(super) rest: &'a [u8],
}

/// Whether the first byte of a datagram is that of a short header of versions 1 and 2.
pub(super) const fn is_protected(first: u8) -> bool {
    first & (LONG | FIXED) == FIXED
}

/// Whether a version is one of Google's, with unprotected frames.
pub(super) const fn is_google(version: u32) -> bool {
    matches!(version, Q043 | Q044 | Q045 | Q046)
}

/// The version as EVE names it; `None`: in hexadecimal digits.
pub(super) const fn version_name(version: u32) -> Option<&'static str> {
    Some(match version {
        V2 => "v2",
        Q039 => "Q039",
        Q043 => "Q043",
        Q044 => "Q044",
        Q045 => "Q045",
        Q046 => "Q046",
        _ => return None,
    })
}

/// The version as fingerprints of Google's client hellos name it.
pub(super) const fn fingerprint_version(version: u32) -> Option<&'static str> {
    Some(match version {
        Q043 => "43",
        Q044 | Q045 => "44",
        Q046 => "46",
        _ => return None,
    })
}

/// Reads an integer of variable length (RFC 9000 section 16).
pub(super) fn varint(cursor: &mut Cursor<'_>) -> Option<u64> {
    let first = cursor.u8()?;
    let more = (1usize << (first >> 6)).saturating_sub(1);
    let rest = cursor.take(more)?;
    Some(rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)))
}

impl<'a> PacketHeader<'a> {
    /// Reads the header of the first packet. `lengths`: all packets of versions 1 and 2 end at their length,
    /// as receivers read them; else only Initial packets do, and others fill the datagram, as in Suricata.
    pub(super) fn read(bytes: &'a [u8], lengths: bool) -> Option<PacketHeader<'a>> {
        let mut cursor = Cursor::new(bytes);
        let first = cursor.u8()?;
        let header = if first & LONG != 0 {
            long(first, &mut cursor, lengths)
        } else if first & FIXED != 0 {
            Some(Head { kind: PacketKind::Short, version: None, destination: &[], payload: None })
        } else {
            google_short(first, &mut cursor)
        }?;
        let length = cursor.position();
        let (payload, rest) = match header.payload {
            Some(payload) => cursor.rest().split_at_checked(payload)?,
            None => (cursor.rest(), &[][..]),
        };
        // Suricata counts a packet's bytes in 16 bits.
        u16::try_from(payload.len()).ok()?;
        let Head { kind, version, destination, .. } = header;
        Some(PacketHeader { kind, version, destination, length, payload, rest })
    }
}

/// The fields of a header.
struct Head<'a> {
    kind: PacketKind,
    version: Option<u32>,
    destination: &'a [u8],
    /// Bytes after the header; `None`: all of the datagram.
    payload: Option<usize>,
}

fn google_short<'a>(first: u8, cursor: &mut Cursor<'a>) -> Option<Head<'a>> {
    let has_id = first & GOOGLE_CONNECTION_ID != 0;
    let destination = cursor.take(if has_id { 8 } else { 0 })?;
    if first & GOOGLE_NONCE != 0 && !has_id {
        cursor.skip(32)?;
    }
    let version = if first & GOOGLE_VERSION != 0 { Some(cursor.u32()?) } else { None };
    cursor.skip(usize::from(1 + (first >> 4 & 3)))?;
    if has_id {
        cursor.skip(GOOGLE_HASH)?;
    }
    let kind = if version.is_some() { PacketKind::Initial } else { PacketKind::Short };
    Some(Head { kind, version, destination, payload: None })
}

fn long<'a>(first: u8, cursor: &mut Cursor<'a>, lengths: bool) -> Option<Head<'a>> {
    let version = cursor.u32()?;
    let kind = kind(first, version)?;
    let google = is_google(version);
    let destination = if google { google_ids(cursor)? } else { ids(cursor)? };
    let mut payload = None;
    match kind {
        PacketKind::Initial if google => cursor.skip(4 + GOOGLE_HASH)?,
        PacketKind::Initial => {
            let token = usize::try_from(varint(cursor)?).ok()?;
            cursor.skip(token)?;
            payload = Some(usize::try_from(varint(cursor)?).ok()?);
        }
        PacketKind::ZeroRtt | PacketKind::Handshake if lengths && !google => {
            payload = Some(usize::try_from(varint(cursor)?).ok()?);
        }
        _ => {}
    }
    Some(Head { kind, version: Some(version), destination, payload })
}

fn kind(first: u8, version: u32) -> Option<PacketKind> {
    use PacketKind::{Handshake, Initial, Retry, VersionNegotiation, ZeroRtt};
    if version == 0 {
        return Some(VersionNegotiation);
    }
    if is_google(version) && version != Q046 {
        return match first & 0x7f {
            0x7f => Some(Initial),
            0x7e => Some(Retry),
            0x7d => Some(Handshake),
            0x7c => Some(ZeroRtt),
            _ => None,
        };
    }
    let kinds = if version == V2 {
        [Retry, Initial, ZeroRtt, Handshake]
    } else {
        [Initial, ZeroRtt, Handshake, Retry]
    };
    kinds.get(usize::from(first >> 4 & 3)).copied()
}

/// Skips both connection ids; the receiver's.
fn ids<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let length = usize::from(cursor.u8()?);
    let destination = cursor.take(length)?;
    let length = usize::from(cursor.u8()?);
    cursor.skip(length)?;
    Some(destination)
}

/// Skips both connection ids of Google's versions, whose lengths share a byte; the receiver's.
fn google_ids<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let lengths = cursor.u8()?;
    let length = |nibble: u8| if nibble == 0 { 0 } else { usize::from(nibble).saturating_add(3) };
    let destination = cursor.take(length(lengths >> 4))?;
    cursor.skip(length(lengths & 15))?;
    Some(destination)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_the_rfc() {
        // RFC 9000 section A.1.
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(varint(&mut Cursor::new(bytes)), Some(value));
            for end in 0..bytes.len() {
                assert_eq!(varint(&mut Cursor::new(&bytes[..end])), None);
            }
        }
    }

    #[test]
    fn kinds_by_version() {
        use PacketKind::{Handshake, Initial, Retry, VersionNegotiation, ZeroRtt};
        for (version, expected) in [
            (V1, [Some(Initial), Some(ZeroRtt), Some(Handshake), Some(Retry)]),
            (V2, [Some(Retry), Some(Initial), Some(ZeroRtt), Some(Handshake)]),
            (Q046, [Some(Initial), Some(ZeroRtt), Some(Handshake), Some(Retry)]),
            (Q044, [None, None, None, None]),
            (0, [Some(VersionNegotiation); 4]),
        ] {
            assert_eq!([0xc0, 0xd0, 0xe0, 0xf0].map(|first| kind(first, version)), expected, "{version:x}");
        }
        let google = [0xff, 0xfe, 0xfd, 0xfc].map(|first| kind(first, Q043));
        assert_eq!(google, [Some(Initial), Some(Retry), Some(Handshake), Some(ZeroRtt)]);
    }

    #[test]
    fn headers_end_where_they_must() {
        let initial =
            [&[0xc3, 0, 0, 0, 1, 2, 7, 8, 1, 9, 2, 0xaa, 0xbb, 3, 1, 2, 3][..], &[0x40; 5]].concat();
        let header = PacketHeader::read(&initial, false).expect("a header");
        assert_eq!((header.kind, header.version, header.length), (PacketKind::Initial, Some(V1), 14));
        assert_eq!(
            (header.destination, header.payload, header.rest),
            (&[7, 8][..], &[1, 2, 3][..], &[0x40; 5][..])
        );
        for end in 0..17 {
            assert_eq!(PacketHeader::read(&initial[..end], false), None, "{end}");
        }
        let handshake = [&[0xe3, 0, 0, 0, 1, 0, 0, 2, 1, 2][..], &initial].concat();
        let whole = PacketHeader::read(&handshake, false).expect("a header");
        assert_eq!((whole.payload.len(), whole.rest.len()), (handshake.len() - 7, 0));
        let bounded = PacketHeader::read(&handshake, true).expect("a header");
        assert_eq!((bounded.payload, bounded.rest), (&[1, 2][..], &initial[..]));
    }

    #[test]
    fn short_headers_of_google_name_a_version() {
        let named = [&[0x09][..], &[5; 8], b"Q043", &[1], &[0; 12], b"frames"].concat();
        let header = PacketHeader::read(&named, false).expect("a header");
        assert_eq!((header.kind, header.version), (PacketKind::Initial, Some(Q043)));
        assert_eq!((header.destination, header.payload), (&[5; 8][..], &b"frames"[..]));
        let nonce = [&[0x34][..], &[0; 32], &[1, 2, 3, 4], b"rest"].concat();
        let header = PacketHeader::read(&nonce, false).expect("a header");
        assert_eq!((header.kind, header.version, header.payload), (PacketKind::Short, None, &b"rest"[..]));
        assert_eq!(PacketHeader::read(&nonce[..30], false), None);
        assert_eq!(PacketHeader::read(&[0x40], false).map(|header| header.kind), Some(PacketKind::Short));
    }
}

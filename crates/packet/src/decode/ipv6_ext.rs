// SPDX-License-Identifier: Apache-2.0
//! IPv6 extension headers (RFC 8200 4, RFC 4302, 5533, 6275, 7401): walked to the transport header.
//!
//! Tunnels after extension headers (the Linux end of a tunnel inserts a destination header, RFC 2473
//! section 5.1) are decoded. Suricata does not decode them, and its event is raised here as well.
//!
//! Not done: payloads encrypted by ESP.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, esp, ipv6, ipv6_options, proto};
use crate::{DecodeEvent, Decoded, Ipv6, Ipv6ExtHeaders, Ipv6Fragment, PacketFlags};

const FRAGMENT_LEN: usize = 8;
const AUTH_MIN_LEN: usize = 12;

/// State of the walk from header to header.
struct ExtensionWalk {
    ip: Ipv6,
    next: u8,
    rest: DecodeSpan,
    /// The offset of the byte that names the header at `rest`.
    named_at: u32,
    destination_headers: u8,
}

/// The step after one extension header.
enum Next {
    /// Another header.
    Header,
    /// The end: no further header to decode.
    End,
}

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, ip: Ipv6, data: DecodeSpan) -> LayerResult {
    // The fixed header's next header field is its seventh byte.
    let named_at = p.l3.saturating_add(6);
    let mut walk = ExtensionWalk {
        ip: Ipv6 { proto: 0, ..ip },
        next: ip.next_header,
        rest: data,
        named_at,
        destination_headers: 0,
    };
    let result = headers(cx, p, &mut walk, data);
    let taken = data.len().saturating_sub(walk.rest.len());
    walk.ip.ext_len = u16::try_from(taken).unwrap_or(u16::MAX);
    ipv6::set(p, walk.ip);
    p.l4 = walk.rest.start();
    p.payload = walk.rest.start();
    let Some(next) = result? else {
        return Ok(());
    };
    if next == proto::ESP { esp::decode(cx, p, walk.rest) } else { ipv6::transport(cx, p, next, walk.rest) }
}

/// Walks to the transport protocol, if one is to be decoded.
fn headers(
    cx: &mut DecodeContext<'_>,
    p: &mut Decoded,
    walk: &mut ExtensionWalk,
    data: DecodeSpan,
) -> Result<Option<u8>, DecodeStop> {
    // Each header is at least eight bytes, so the walk ends; the bound states this.
    for _ in 0..=data.len() {
        if walk.next == proto::NONE {
            walk.ip.ext_headers |= Ipv6ExtHeaders::NONE;
            if walk.rest.len() > 0 {
                p.event(DecodeEvent::Ipv6DataAfterNoneHeader);
            }
            return Ok(None);
        }
        if walk.rest.len() < 2 {
            p.unreadable(DecodeEvent::Ipv6TruncExthdr);
            return Err(DecodeStop);
        }
        if walk.next != proto::ICMP {
            walk.ip.proto = walk.next;
        }
        let step = match walk.next {
            next if ipv6::is_transport(next) => {
                if matches!(next, proto::IPV6 | proto::GRE) {
                    p.event(DecodeEvent::Ipv6UnknownNextHeader);
                }
                let is_packet =
                    || cx.head::<{ ipv6::HEADER_LEN }>(walk.rest).is_some_and(|[first, ..]| first >> 4 == 6);
                if next == proto::IPV6 && !is_packet() {
                    return Err(DecodeStop);
                }
                return Ok(Some(next));
            }
            proto::ESP => {
                walk.ip.ext_headers |= Ipv6ExtHeaders::ESP;
                return Ok(Some(proto::ESP));
            }
            proto::ROUTING => routing(cx, p, walk)?,
            proto::HOP_BY_HOP | proto::DESTINATION => options(cx, p, walk)?,
            proto::FRAGMENT => fragment(cx, p, walk)?,
            proto::AH => authentication(cx, p, walk)?,
            proto::MOBILITY => skip(cx, p, walk, Ipv6ExtHeaders::MOBILITY)?,
            proto::HIP => skip(cx, p, walk, Ipv6ExtHeaders::HIP)?,
            proto::SHIM6 => skip(cx, p, walk, Ipv6ExtHeaders::SHIM6)?,
            proto::ICMP => {
                p.event(DecodeEvent::Ipv6Icmpv4);
                return Err(DecodeStop);
            }
            _ => {
                p.event(DecodeEvent::Ipv6UnknownNextHeader);
                return Err(DecodeStop);
            }
        };
        if matches!(step, Next::End) {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Takes a header of `len` bytes: its first byte names the next one.
fn take<'a>(
    cx: &DecodeContext<'a>,
    p: &mut Decoded,
    walk: &mut ExtensionWalk,
    len: usize,
) -> Result<&'a [u8], DecodeStop> {
    let bytes = cx.slice(walk.rest);
    let (Some(header), Some(next)) = (bytes.get(..len), bytes.first()) else {
        p.unreadable(DecodeEvent::Ipv6TruncExthdr);
        return Err(DecodeStop);
    };
    walk.named_at = walk.rest.start();
    walk.next = *next;
    walk.rest = walk.rest.skip(len);
    Ok(header)
}

/// Length of a header that counts in units of eight bytes, the first not included.
fn length_in_8(cx: &DecodeContext<'_>, walk: &ExtensionWalk) -> usize {
    cx.head::<2>(walk.rest).map_or(8, |[_, units]| (usize::from(*units) + 1) * 8)
}

/// Marks a header as seen; `false` when it was already.
fn first(walk: &mut ExtensionWalk, header: Ipv6ExtHeaders) -> bool {
    let first = !walk.ip.ext_headers.contains(header);
    walk.ip.ext_headers |= header;
    first
}

fn skip(
    cx: &DecodeContext<'_>,
    p: &mut Decoded,
    walk: &mut ExtensionWalk,
    header: Ipv6ExtHeaders,
) -> Result<Next, DecodeStop> {
    let len = length_in_8(cx, walk);
    take(cx, p, walk, len)?;
    walk.ip.ext_headers |= header;
    Ok(Next::Header)
}

fn routing(cx: &DecodeContext<'_>, p: &mut Decoded, walk: &mut ExtensionWalk) -> Result<Next, DecodeStop> {
    let len = length_in_8(cx, walk);
    let header = take(cx, p, walk, len)?;
    if !first(walk, Ipv6ExtHeaders::ROUTING) {
        p.event(DecodeEvent::Ipv6ExthdrDuplRh);
        return Ok(Next::Header);
    }
    let kind = header.get(2).copied();
    if kind == Some(0) {
        p.event(DecodeEvent::Ipv6RhType0);
    }
    walk.ip.routing_type = kind;
    Ok(Next::Header)
}

fn options(cx: &DecodeContext<'_>, p: &mut Decoded, walk: &mut ExtensionWalk) -> Result<Next, DecodeStop> {
    let hop_by_hop = walk.next == proto::HOP_BY_HOP;
    let len = length_in_8(cx, walk);
    let header = take(cx, p, walk, len)?;
    if hop_by_hop {
        if !first(walk, Ipv6ExtHeaders::HOP_BY_HOP) {
            p.event(DecodeEvent::Ipv6ExthdrDuplHh);
            return Ok(Next::Header);
        }
    } else {
        walk.ip.ext_headers |= Ipv6ExtHeaders::DESTINATION;
        // One before a routing header and one after it are allowed.
        if walk.destination_headers >= 2 {
            p.event(DecodeEvent::Ipv6ExthdrDuplDh);
            return Ok(Next::Header);
        }
        walk.destination_headers += 1;
    }
    ipv6_options::decode(p, header.get(2..).unwrap_or(&[]), hop_by_hop);
    Ok(Next::Header)
}

fn fragment(cx: &DecodeContext<'_>, p: &mut Decoded, walk: &mut ExtensionWalk) -> Result<Next, DecodeStop> {
    let (header_at, named_at, len_with_header) = (walk.rest.start(), walk.named_at, walk.rest.len());
    let header = take(cx, p, walk, FRAGMENT_LEN)?;
    let Some([next, reserved, o0, o1, i0, i1, i2, i3]) = header.first_chunk::<FRAGMENT_LEN>() else {
        return Err(DecodeStop);
    };
    if *reserved != 0 {
        p.event(DecodeEvent::Ipv6FhNonZeroReservedField);
    }
    if !first(walk, Ipv6ExtHeaders::FRAGMENT) {
        p.event(DecodeEvent::Ipv6ExthdrDuplFh);
        walk.ip.ext_headers |= Ipv6ExtHeaders::FRAGMENT_AGAIN;
        return Ok(Next::Header);
    }
    let field = u16::from_be_bytes([*o0, *o1]);
    let fragment = Ipv6Fragment {
        offset: field & 0xfff8,
        more: field & 1 != 0,
        id: u32::from_be_bytes([*i0, *i1, *i2, *i3]),
        next_header: *next,
        header: header_at,
        next_header_field: named_at,
        data: walk.rest.start(),
        data_len: walk.rest.len_u32(),
    };
    walk.ip.fragment = Some(fragment);
    if fragment.offset == 0 && !fragment.more {
        p.event(DecodeEvent::Ipv6ExthdrUselessFh);
        return Ok(Next::Header);
    }
    if fragment.more && !len_with_header.is_multiple_of(8) {
        p.event(DecodeEvent::Ipv6FragInvalidLength);
    }
    p.flags |= PacketFlags::FRAGMENT;
    Ok(Next::End)
}

fn authentication(
    cx: &DecodeContext<'_>,
    p: &mut Decoded,
    walk: &mut ExtensionWalk,
) -> Result<Next, DecodeStop> {
    // Its length counts units of four bytes, the first two not included; the fixed part holds three.
    let len = cx
        .head::<2>(walk.rest)
        .map_or(AUTH_MIN_LEN, |[_, units]| AUTH_MIN_LEN + usize::from(units.saturating_sub(1)) * 4);
    let header = take(cx, p, walk, len)?;
    if header.get(2..4) != Some(&[0, 0]) {
        p.event(DecodeEvent::Ipv6ExthdrAhResNotNull);
    }
    if !first(walk, Ipv6ExtHeaders::AUTHENTICATION) {
        p.event(DecodeEvent::Ipv6ExthdrDuplAh);
    }
    Ok(Next::Header)
}

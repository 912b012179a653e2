// SPDX-License-Identifier: Apache-2.0
//! GRE: version 0 (RFC 1701, 2784, 2890), version 1 for PPTP (RFC 2637), NVGRE (RFC 7637) and, inside,
//! ERSPAN.

use super::{
    DecodeContext, DecodeSpan, DecodeStop, LayerResult, Tunnel, arp, erspan, ether_type, ethernet, ipv4,
    ipv6, ppp, vlan,
};
use crate::{DecodeEvent, Decoded, Gre, PacketSource, TransportLayer, TunnelKind, TunnelTag};

const HEADER_LEN: usize = 4;
const WORD: usize = 4;

const CHECKSUM: u8 = 0x80;
const ROUTING: u8 = 0x40;
const KEY: u8 = 0x20;
const SEQUENCE: u8 = 0x10;
const STRICT_ROUTE: u8 = 0x08;
const RECURSION: u8 = 0x07;
const V1_ACK: u8 = 0x80;
const RESERVED: u8 = 0x78;

/// The four bytes that every GRE header has.
#[derive(Clone, Copy)]
struct GreHeader {
    flags: u8,
    flags_version: u8,
    protocol: u16,
}

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.gre += 1;
    let Some([flags, flags_version, a, b]) = cx.head::<HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::GrePktTooSmall);
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    let head =
        GreHeader { flags: *flags, flags_version: *flags_version, protocol: u16::from_be_bytes([*a, *b]) };
    let version = head.flags_version & 0x07;
    let key = key(cx, head, span);
    p.transport = TransportLayer::Gre(Gre { version, protocol: head.protocol, key });
    p.l4 = span.start();
    let header_len = match version {
        0 => version_0(cx, head, span),
        1 => version_1(cx, head, span),
        _ => Err(DecodeEvent::GreWrongVersion),
    };
    match header_len {
        Ok(len) => inner(cx, p, head, key, span.skip(len)),
        Err(event) => p.unreadable(event),
    }
    Ok(())
}

fn key(cx: &DecodeContext<'_>, head: GreHeader, span: DecodeSpan) -> Option<u32> {
    let before = if head.flags & (CHECKSUM | ROUTING) == 0 { HEADER_LEN } else { HEADER_LEN + WORD };
    if head.flags & KEY == 0 {
        return None;
    }
    cx.head::<WORD>(span.skip(before)).map(|key| u32::from_be_bytes(*key))
}

fn version_0(cx: &DecodeContext<'_>, head: GreHeader, span: DecodeSpan) -> Result<usize, DecodeEvent> {
    if head.flags & RECURSION != 0 {
        return Err(DecodeEvent::GreVersion0Recur);
    }
    if head.flags_version & RESERVED != 0 {
        return Err(DecodeEvent::GreVersion0Flags);
    }
    let mut len = HEADER_LEN;
    for flag in [KEY, SEQUENCE] {
        if head.flags & flag != 0 {
            len += WORD;
        }
    }
    if head.flags & (CHECKSUM | ROUTING) != 0 {
        len += WORD;
    }
    if len > cx.slice(span).len() {
        return Err(DecodeEvent::GreVersion0HdrTooBig);
    }
    if head.flags & ROUTING == 0 {
        return Ok(len);
    }
    // Source route entries: address family, offset, length, then that many bytes; one of all zeros ends them.
    loop {
        let Some([f0, f1, _, entry_len]) = cx.head::<WORD>(span.skip(len)) else {
            return Err(DecodeEvent::GreVersion0MalformedSreHdr);
        };
        len += WORD;
        if [*f0, *f1, *entry_len] == [0, 0, 0] {
            return Ok(len);
        }
        len += usize::from(*entry_len);
        if len > cx.slice(span).len() {
            return Err(DecodeEvent::GreVersion0MalformedSreHdr);
        }
    }
}

fn version_1(cx: &DecodeContext<'_>, head: GreHeader, span: DecodeSpan) -> Result<usize, DecodeEvent> {
    let refused = [
        (CHECKSUM, DecodeEvent::GreVersion1Chksum),
        (ROUTING, DecodeEvent::GreVersion1Route),
        (STRICT_ROUTE, DecodeEvent::GreVersion1Ssr),
        (RECURSION, DecodeEvent::GreVersion1Recur),
    ];
    for (flag, event) in refused {
        if head.flags & flag != 0 {
            return Err(event);
        }
    }
    if head.flags_version & RESERVED != 0 {
        return Err(DecodeEvent::GreVersion1Flags);
    }
    if head.protocol != ether_type::PPP {
        return Err(DecodeEvent::GreVersion1WrongProtocol);
    }
    if head.flags & KEY == 0 {
        return Err(DecodeEvent::GreVersion1NoKey);
    }
    let mut len = HEADER_LEN + WORD;
    if head.flags & SEQUENCE != 0 {
        len += WORD;
    }
    if head.flags_version & V1_ACK != 0 {
        len += WORD;
    }
    if len > cx.slice(span).len() {
        return Err(DecodeEvent::GreVersion1HdrTooBig);
    }
    Ok(len)
}

fn inner(cx: &mut DecodeContext<'_>, p: &mut Decoded, head: GreHeader, key: Option<u32>, span: DecodeSpan) {
    let key = key.unwrap_or(0);
    let pptp = head.flags_version & 0x07 == 1;
    // PPTP's key is payload length and call id; a length of 0 is a bare acknowledgement.
    if pptp && key >> 16 == 0 {
        return;
    }
    let decode: fn(&mut DecodeContext<'_>, &mut Decoded, DecodeSpan) -> LayerResult = match head.protocol {
        ether_type::IPV4 => ipv4::decode,
        ether_type::IPV6 => ipv6::decode,
        ether_type::PPP => ppp::decode,
        ether_type::VLAN => vlan::decode,
        ether_type::ARP => arp::decode,
        ether_type::BRIDGE => ethernet::decode,
        ether_type::ERSPAN if head.flags & SEQUENCE == 0 => erspan::decode_type_1,
        ether_type::ERSPAN => erspan::decode_type_2,
        _ => return,
    };
    let tag = match head.protocol {
        _ if pptp => TunnelTag::new(TunnelKind::Pptp, key & 0xffff),
        // RFC 7637: 24 bits of virtual subnet, 8 of flow.
        ether_type::BRIDGE if head.flags & KEY != 0 => TunnelTag::new(TunnelKind::Nvgre, key >> 8),
        ether_type::ERSPAN => {
            TunnelTag::new(TunnelKind::Erspan, erspan::session(cx, head.flags & SEQUENCE != 0, span))
        }
        _ => TunnelTag::new(TunnelKind::Gre, key),
    };
    // An inner packet that cannot be decoded leaves the outer one unchanged.
    let _ = cx.tunnel(p, span, Tunnel::new(PacketSource::Gre, tag), decode);
}

// SPDX-License-Identifier: Apache-2.0
//! ICMP (RFC 792, 950, 1256).

use super::quoted::{self, QuoteError};
use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult};
use crate::{DecodeEvent, Decoded, Icmp, PacketFlags, TransportLayer};

const HEADER_LEN: usize = 8;
const TIMESTAMPS_LEN: usize = 12;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.icmpv4 += 1;
    let Some([kind, code, _, _, a, b, c, d]) = cx.head::<HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::Icmpv4PktTooSmall);
        return Err(DecodeStop);
    };
    let mut icmp = Icmp { kind: *kind, code: *code, ..Icmp::default() };
    let mut header_len = HEADER_LEN;
    match icmp.kind {
        // Errors: unreachable, source quench, redirect, time exceeded, parameter problem. The codes are those
        // that Suricata knows.
        3 => error(cx, p, span, &mut icmp, 15),
        4 | 12 => error(cx, p, span, &mut icmp, 0),
        5 => error(cx, p, span, &mut icmp, 3),
        11 => error(cx, p, span, &mut icmp, 1),
        // Queries: echo, timestamp, information, address mask.
        0 | 8 | 13..=18 => {
            icmp.id = Some(u16::from_be_bytes([*a, *b]));
            icmp.seq = Some(u16::from_be_bytes([*c, *d]));
            if icmp.code != 0 {
                p.event(DecodeEvent::Icmpv4UnknownCode);
            }
            if matches!(icmp.kind, 13 | 14) {
                header_len += body(p, span, TIMESTAMPS_LEN);
            }
        }
        // Router advertisement: number of addresses and words for each.
        9 => header_len += body(p, span, usize::from(*a) * usize::from(*b) * 4),
        _ => p.event(DecodeEvent::Icmpv4UnknownType),
    }
    if icmp.kind == 3 && icmp.code == 4 {
        icmp.mtu = Some(u32::from(u16::from_be_bytes([*c, *d])));
    }
    let payload = span.skip(header_len);
    p.transport = TransportLayer::Icmp(icmp);
    p.l4 = span.start();
    p.payload = payload.start();
    p.payload_len = payload.len_u32();
    p.flags |= PacketFlags::WANTS_FLOW;
    Ok(())
}

/// Length of a body that belongs to the header, 0 with an event when it is cut off.
fn body(p: &mut Decoded, span: DecodeSpan, len: usize) -> usize {
    if span.len() < HEADER_LEN + len {
        p.event(DecodeEvent::Icmpv4Ipv4TruncPkt);
        0
    } else {
        len
    }
}

fn error(cx: &DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan, icmp: &mut Icmp, max_code: u8) {
    let known_code = icmp.code <= max_code;
    if !known_code {
        p.event(DecodeEvent::Icmpv4UnknownCode);
    }
    let quote = span.skip(HEADER_LEN);
    // A source quench always has to quote; the other errors may have no quote.
    if quote.len() == 0 && icmp.kind != 4 {
        return;
    }
    match quoted::ipv4(cx, quote) {
        Ok(packet) => icmp.quoted = Some(packet),
        // The meaning of an unassigned code is unknown, so no quote is missing.
        Err(_) if !known_code => {}
        // The sender's quote was whole; the quoted packet is unknown.
        Err(QuoteError::Truncated) if cx.is_cut(quote) => {}
        Err(QuoteError::Truncated) => p.invalid(DecodeEvent::Icmpv4Ipv4TruncPkt),
        Err(QuoteError::Version) => p.invalid(DecodeEvent::Icmpv4Ipv4UnknownVer),
    }
}

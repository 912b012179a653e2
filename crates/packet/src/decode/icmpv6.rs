// SPDX-License-Identifier: Apache-2.0
//! ICMPv6 (RFC 4443) and the messages that use it; types as IANA's registry has them.

use super::quoted::{self, QuoteError};
use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult};
use crate::{DecodeEvent, Decoded, Icmp, PacketFlags, TransportLayer};

const HEADER_LEN: usize = 8;
/// The header length of messages that define their second word themselves, in bytes.
const SHORT_HEADER_LEN: usize = 4;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.icmpv6 += 1;
    let Some([kind, code, _, _, a, b, c, d]) = cx.head::<HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::Icmpv6PktTooSmall);
        return Err(DecodeStop);
    };
    let mut icmp = Icmp { kind: *kind, code: *code, ..Icmp::default() };
    let known_code = code_is_known(icmp.kind, icmp.code);
    if !known_code {
        p.event(DecodeEvent::Icmpv6UnknownCode);
    }
    let mut header_len = SHORT_HEADER_LEN;
    match icmp.kind {
        1..=4 => {
            // Of an error with another code, rules see all bytes after its first word, as in Suricata.
            if known_code {
                header_len = HEADER_LEN;
            }
            if icmp.kind == 2 && known_code {
                icmp.mtu = Some(u32::from_be_bytes([*a, *b, *c, *d]));
            }
            let quote = span.skip(HEADER_LEN);
            match quoted::ipv6(cx, quote) {
                Ok(packet) => icmp.quoted = Some(packet),
                // The meaning of an unassigned code is unknown, so no quote is missing.
                Err(_) if !known_code => {}
                // The sender's quote was whole; the quoted packet is unknown.
                Err(QuoteError::Truncated) if cx.is_cut(quote) => {}
                Err(QuoteError::Truncated) => p.invalid(DecodeEvent::Icmpv6Ipv6TruncPkt),
                Err(QuoteError::Version) => p.invalid(DecodeEvent::Icmpv6Ipv6UnknownVersion),
            }
        }
        128 | 129 if known_code => {
            header_len = HEADER_LEN;
            icmp.id = Some(u16::from_be_bytes([*a, *b]));
            icmp.seq = Some(u16::from_be_bytes([*c, *d]));
        }
        // RFC 2710: multicast listener messages must not leave the link.
        130..=132 if p.ttl() != Some(1) => p.event(DecodeEvent::Icmpv6MldMessageWithInvalidHl),
        128..=159 => {}
        100 | 101 | 200 | 201 => p.event(DecodeEvent::Icmpv6ExperimentationType),
        5..=126 | 160..=255 => p.event(DecodeEvent::Icmpv6UnassignedType),
        0 | 127 => p.event(DecodeEvent::Icmpv6UnknownType),
    }
    let payload = span.skip(header_len);
    p.transport = TransportLayer::Icmpv6(icmp);
    p.l4 = span.start();
    p.payload = payload.start();
    p.payload_len = payload.len_u32();
    p.flags |= PacketFlags::WANTS_FLOW;
    Ok(())
}

/// Whether a type has a code; unknown types have any.
const fn code_is_known(kind: u8, code: u8) -> bool {
    match kind {
        1 => code <= 6,
        3 => code <= 1,
        4 => code <= 2,
        138 => code <= 2 || code == 255,
        139 | 140 => code <= 2,
        // RPL: four messages, each also in a secure form.
        155 => code <= 3 || (code >= 128 && code <= 132),
        150..=153 => true,
        2 | 128..=149 | 154 | 156..=159 => code == 0,
        _ => true,
    }
}

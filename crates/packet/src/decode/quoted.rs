// SPDX-License-Identifier: Apache-2.0
//! The packet that an ICMP error quotes: the fields that identify its flow, as far as they are quoted.

use super::{DecodeContext, DecodeSpan, ipv4, ipv6, proto};
use crate::decoded::is_message;
use crate::{QuotedIcmp, QuotedPacket};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most extension headers of a quoted IPv6 packet that are walked; an error with a longer chain quotes no
/// flow.
pub(crate) const EXTENSIONS_MAX: usize = 8;

/// The reason why a quoted packet cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuoteError {
    /// Its IP header is cut off.
    Truncated,
    /// It is of another IP version.
    Version,
}

pub(super) fn ipv4(cx: &DecodeContext<'_>, span: DecodeSpan) -> Result<QuotedPacket, QuoteError> {
    let Some([version_len, _, _, _, _, _, fragment, fragment_low, _, next, _, _, addresses @ ..]) =
        cx.head::<{ ipv4::HEADER_LEN }>(span)
    else {
        return Err(QuoteError::Truncated);
    };
    if version_len >> 4 != 4 {
        return Err(QuoteError::Version);
    }
    let [s0, s1, s2, s3, d0, d1, d2, d3] = *addresses;
    let header_len = usize::from(version_len & 0x0f) * 4;
    let quoted = QuotedPacket {
        src: IpAddr::V4(Ipv4Addr::new(s0, s1, s2, s3)),
        dst: IpAddr::V4(Ipv4Addr::new(d0, d1, d2, d3)),
        proto: *next,
        ports: None,
        tcp_seq: None,
        icmp: None,
        spi: None,
        offset: span.start(),
    };
    // A later fragment has no transport header.
    let first = u16::from_be_bytes([*fragment, *fragment_low]) & 0x1fff == 0;
    let body = span.skip(header_len.max(ipv4::HEADER_LEN));
    Ok(if first { transport(cx, quoted, body) } else { quoted })
}

pub(super) fn ipv6(cx: &DecodeContext<'_>, span: DecodeSpan) -> Result<QuotedPacket, QuoteError> {
    let Some([version, _, _, _, _, _, next, _, addresses @ ..]) = cx.head::<{ ipv6::HEADER_LEN }>(span)
    else {
        return Err(QuoteError::Truncated);
    };
    if version >> 4 != 6 {
        return Err(QuoteError::Version);
    }
    let (Some(src), Some(dst)) = (addresses.first_chunk::<16>(), addresses.last_chunk::<16>()) else {
        return Err(QuoteError::Truncated);
    };
    let (next, body) = extensions(cx, *next, span.skip(ipv6::HEADER_LEN));
    let quoted = QuotedPacket {
        src: IpAddr::V6(Ipv6Addr::from(*src)),
        dst: IpAddr::V6(Ipv6Addr::from(*dst)),
        proto: next,
        ports: None,
        tcp_seq: None,
        icmp: None,
        spi: None,
        offset: span.start(),
    };
    Ok(body.map_or(quoted, |body| transport(cx, quoted, body)))
}

/// Walks extension headers; returns the protocol after them, as
/// [`Decoded::carried_protocol`](crate::Decoded::carried_protocol) numbers it, and the span of its header:
/// `None` in a later fragment or where the quote is cut.
fn extensions(cx: &DecodeContext<'_>, mut next: u8, mut span: DecodeSpan) -> (u8, Option<DecodeSpan>) {
    let mut last = proto::NONE;
    for _ in 0..EXTENSIONS_MAX {
        let length = match next {
            proto::NONE => return (if is_message(last) { last } else { next }, None),
            proto::HOP_BY_HOP
            | proto::ROUTING
            | proto::DESTINATION
            | proto::MOBILITY
            | proto::HIP
            | proto::SHIM6 => {
                let Some([_, words]) = cx.head::<2>(span) else { return (next, None) };
                (usize::from(*words) + 1) * 8
            }
            proto::AH => {
                let Some([_, words]) = cx.head::<2>(span) else { return (next, None) };
                (usize::from(*words) + 2) * 4
            }
            proto::FRAGMENT => {
                let Some([after, _, offset, offset_low]) = cx.head::<4>(span) else { return (next, None) };
                if u16::from_be_bytes([*offset, *offset_low]) & 0xfff8 != 0 {
                    return (*after, None);
                }
                8
            }
            _ => return (next, Some(span)),
        };
        let Some([after]) = cx.head::<1>(span) else { return (next, None) };
        last = next;
        next = *after;
        span = span.skip(length);
    }
    (next, None)
}

/// Reads the quoted part of the transport header. Routers quote at least eight bytes after the IP header
/// (RFC 792).
fn transport(cx: &DecodeContext<'_>, quoted: QuotedPacket, span: DecodeSpan) -> QuotedPacket {
    let word = |at: usize| cx.head::<4>(span.skip(at)).map(|word| u32::from_be_bytes(*word));
    let ports =
        cx.head::<4>(span).map(|[a, b, c, d]| (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])));
    match quoted.proto {
        proto::TCP => QuotedPacket { ports, tcp_seq: word(4), ..quoted },
        proto::UDP | proto::SCTP => QuotedPacket { ports, ..quoted },
        next if next == if quoted.src.is_ipv4() { proto::ICMP } else { proto::ICMPV6 } => {
            let icmp = cx.head::<2>(span).map(|[kind, code]| QuotedIcmp {
                kind: *kind,
                code: *code,
                id: word(4).map(|word| (word >> 16) as u16),
            });
            QuotedPacket { icmp, ..quoted }
        }
        proto::ESP => QuotedPacket { spi: word(0), ..quoted },
        _ => quoted,
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The packet that an ICMP error quotes: its addresses, protocol and ports, as far as they are there.
//!
//! Not done: extension headers of a quoted IPv6 packet are not walked.

use super::{Context, Span, ipv4, ipv6, proto};
use crate::QuotedPacket;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a quoted packet cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuoteError {
    /// Its IP header is cut off.
    Truncated,
    /// It is of another IP version.
    Version,
}

pub(super) fn ipv4(cx: &Context<'_>, span: Span) -> Result<QuotedPacket, QuoteError> {
    let Some([version_len, _, _, _, _, _, _, _, _, next, _, _, addresses @ ..]) =
        cx.head::<{ ipv4::HEADER_LEN }>(span)
    else {
        return Err(QuoteError::Truncated);
    };
    if version_len >> 4 != 4 {
        return Err(QuoteError::Version);
    }
    let [s0, s1, s2, s3, d0, d1, d2, d3] = *addresses;
    let header_len = usize::from(version_len & 0x0f) * 4;
    let (ports, tcp_seq) = transport(cx, *next, span.skip(header_len.max(ipv4::HEADER_LEN)));
    Ok(QuotedPacket {
        src: IpAddr::V4(Ipv4Addr::new(s0, s1, s2, s3)),
        dst: IpAddr::V4(Ipv4Addr::new(d0, d1, d2, d3)),
        proto: *next,
        ports,
        tcp_seq,
        offset: span.start(),
    })
}

pub(super) fn ipv6(cx: &Context<'_>, span: Span) -> Result<QuotedPacket, QuoteError> {
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
    let (ports, tcp_seq) = transport(cx, *next, span.skip(ipv6::HEADER_LEN));
    Ok(QuotedPacket {
        src: IpAddr::V6(Ipv6Addr::from(*src)),
        dst: IpAddr::V6(Ipv6Addr::from(*dst)),
        proto: *next,
        ports,
        tcp_seq,
        offset: span.start(),
    })
}

/// Ports and TCP sequence number. Routers quote at least eight bytes behind the IP header (RFC 792).
fn transport(cx: &Context<'_>, next: u8, span: Span) -> (Option<(u16, u16)>, Option<u32>) {
    if !matches!(next, proto::TCP | proto::UDP | proto::SCTP) {
        return (None, None);
    }
    let ports =
        cx.head::<4>(span).map(|[a, b, c, d]| (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])));
    let seq = cx.head::<4>(span.skip(4)).map(|seq| u32::from_be_bytes(*seq));
    (ports, if next == proto::TCP { seq } else { None })
}

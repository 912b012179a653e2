// SPDX-License-Identifier: Apache-2.0
//! Raw IP: the version nibble selects IPv4 or IPv6.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, ipv4, ipv6};
use crate::{DecodeEvent, Decoded};

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.raw += 1;
    decode_version(cx, p, span)
}

/// As [`decode`], not counted as a raw frame.
pub(super) fn decode_version(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    let Some([first, ..]) = cx.head::<{ ipv4::HEADER_LEN }>(span) else {
        p.invalid(DecodeEvent::Ipv4PktTooSmall);
        return Err(DecodeStop);
    };
    match first >> 4 {
        4 => ipv4::decode(cx, p, span),
        6 => ipv6::decode(cx, p, span),
        _ => {
            p.event(DecodeEvent::IprawInvalidIpVersion);
            Ok(())
        }
    }
}

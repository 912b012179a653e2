// SPDX-License-Identifier: Apache-2.0
//! MPLS label stacks (RFC 3032) and the guess at their payload: IP by its version nibble (RFC 4928),
//! Ethernet after a pseudowire control word (RFC 4448).

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, ethernet, ipv4, ipv6};
use crate::{DecodeEvent, Decoded};

const ENTRY_LEN: usize = 4;
const CONTROL_WORD_LEN: usize = 4;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.mpls += 1;
    cx.layer(p)?;
    let mut span = span;
    let label = loop {
        let Some(entry) = cx.head::<ENTRY_LEN>(span) else {
            p.invalid(DecodeEvent::MplsHeaderTooSmall);
            return Err(DecodeStop);
        };
        let entry = u32::from_be_bytes(*entry);
        span = span.skip(ENTRY_LEN);
        if entry & 0x100 != 0 {
            break entry >> 12;
        }
    };
    let event = match label {
        0 => return ipv4::decode(cx, p, span),
        2 => return ipv6::decode(cx, p, span),
        1 => Some(DecodeEvent::MplsBadLabelRouterAlert),
        3 => Some(DecodeEvent::MplsBadLabelImplicitNull),
        4..15 => Some(DecodeEvent::MplsBadLabelReserved),
        _ => None,
    };
    if let Some(event) = event {
        p.event(event);
        return Ok(());
    }
    let Some([first, ..]) = cx.head::<CONTROL_WORD_LEN>(span) else {
        p.invalid(DecodeEvent::MplsPktTooSmall);
        return Err(DecodeStop);
    };
    // The result of a guess does not stop this layer.
    let _ = match first >> 4 {
        4 => ipv4::decode(cx, p, span),
        6 => ipv6::decode(cx, p, span),
        0 => ethernet::decode(cx, p, span.skip(CONTROL_WORD_LEN)),
        _ => {
            p.invalid(DecodeEvent::MplsUnknownPayloadType);
            Ok(())
        }
    };
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! PPP over Ethernet (RFC 2516): discovery and session.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, ppp};
use crate::{DecodeEvent, Decoded};

const HEADER_LEN: usize = 6;
/// Header and the shortest protocol field.
const SESSION_MIN_LEN: usize = 7;

pub(super) fn decode_discovery(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.pppoe += 1;
    let Some([_, code, _, _, a, b]) = cx.head::<HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::PppoePktTooSmall);
        return Err(DecodeStop);
    };
    // PADI, PADO, PADR, PADS, PADT.
    if !matches!(code, 0x09 | 0x07 | 0x19 | 0x65 | 0xa7) {
        p.invalid(DecodeEvent::PppoeWrongCode);
        return Ok(());
    }
    if usize::from(u16::from_be_bytes([*a, *b])) > span.skip(HEADER_LEN).len() {
        p.invalid(DecodeEvent::PppoeMalformedTags);
    }
    Ok(())
}

pub(super) fn decode_session(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.pppoe += 1;
    let Some([_, _, _, _, a, b, _]) = cx.head::<SESSION_MIN_LEN>(span) else {
        p.invalid(DecodeEvent::PppoePktTooSmall);
        return Err(DecodeStop);
    };
    if [*a, *b] == [0, 0] {
        return Ok(());
    }
    let data = span.skip(HEADER_LEN);
    let Some((protocol, len)) = ppp::protocol(cx, data) else {
        p.invalid(DecodeEvent::PppoePktTooSmall);
        return Err(DecodeStop);
    };
    ppp::payload(cx, p, protocol, data.skip(len))
}

// SPDX-License-Identifier: Apache-2.0
//! Network service header (RFC 8300). Not done: metadata is skipped, not read.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, ethernet, ipv4, ipv6, mpls};
use crate::{DecodeEvent, Decoded};

const HEADER_LEN: usize = 8;
const MD_TYPE_1_LEN: usize = 24;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.nsh += 1;
    let Some([a, b, md_type, next, ..]) = cx.head::<HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::NshHeaderTooSmall);
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    let word = u16::from_be_bytes([*a, *b]);
    if word >> 14 != 0 {
        p.event(DecodeEvent::NshUnsupportedVersion);
        return Ok(());
    }
    let len = usize::from(word & 0x3f) * 4;
    if len >= span.len() {
        p.invalid(DecodeEvent::NshBadHeaderLength);
        return Err(DecodeStop);
    }
    match md_type {
        0 | 0xf => {
            p.event(DecodeEvent::NshReservedType);
            return Ok(());
        }
        1 if len != MD_TYPE_1_LEN => {
            p.invalid(DecodeEvent::NshBadHeaderLength);
            return Err(DecodeStop);
        }
        1 | 2 => {}
        _ => {
            p.event(DecodeEvent::NshUnsupportedType);
            return Ok(());
        }
    }
    let inner = span.skip(len);
    match next {
        1 => ipv4::decode(cx, p, inner),
        2 => ipv6::decode(cx, p, inner),
        3 => ethernet::decode(cx, p, inner),
        5 => mpls::decode(cx, p, inner),
        _ => {
            p.event(DecodeEvent::NshUnknownPayload);
            Ok(())
        }
    }
}

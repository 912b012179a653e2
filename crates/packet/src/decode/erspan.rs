// SPDX-License-Identifier: Apache-2.0
//! ERSPAN types I and II (draft-foschiano-erspan). Not done: type III.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, ethernet};
use crate::{DecodeEvent, Decoded, VlanIds};

const HEADER_LEN: usize = 8;

/// Decodes type I, which has no header of its own.
pub(super) fn decode_type_1(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.erspan += 1;
    ethernet::decode(cx, p, span)
}

pub(super) fn decode_type_2(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.erspan += 1;
    let Some([a, b, ..]) = cx.head::<HEADER_LEN>(span) else {
        p.event(DecodeEvent::ErspanHeaderTooSmall);
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    let word = u16::from_be_bytes([*a, *b]);
    if word >> 12 != 1 {
        p.event(DecodeEvent::ErspanUnsupportedVersion);
        return Err(DecodeStop);
    }
    let vlan = word & 0x0fff;
    if vlan > 0 {
        if p.vlan.len() >= VlanIds::CAPACITY {
            p.event(DecodeEvent::ErspanTooManyVlanLayers);
            return Err(DecodeStop);
        }
        p.vlan.push(vlan);
    }
    ethernet::decode(cx, p, span.skip(HEADER_LEN))
}

/// The session id of a type II header, 0 of type I.
pub(super) fn session(cx: &DecodeContext<'_>, type_2: bool, span: DecodeSpan) -> u32 {
    match cx.head::<4>(span) {
        Some([_, _, a, b]) if type_2 => u32::from(u16::from_be_bytes([*a, *b]) & 0x03ff),
        _ => 0,
    }
}

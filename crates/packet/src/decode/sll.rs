// SPDX-License-Identifier: Apache-2.0
//! Linux cooked capture, versions 1 and 2 (LINKTYPE_LINUX_SLL, LINKTYPE_LINUX_SLL2 of tcpdump.org).

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, link};
use crate::{DecodeEvent, Decoded};

const HEADER_LEN: usize = 16;
const V2_HEADER_LEN: usize = 20;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.sll += 1;
    let Some([.., a, b]) = cx.head::<HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::SllPktTooSmall);
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    link::network(cx, p, u16::from_be_bytes([*a, *b]), span.skip(HEADER_LEN));
    Ok(())
}

pub(super) fn decode_v2(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.sll2 += 1;
    let Some([a, b, ..]) = cx.head::<V2_HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::Sll2PktTooSmall);
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    link::network(cx, p, u16::from_be_bytes([*a, *b]), span.skip(V2_HEADER_LEN));
    Ok(())
}

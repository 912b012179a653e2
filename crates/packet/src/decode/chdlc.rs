// SPDX-License-Identifier: Apache-2.0
//! Cisco HDLC: address, control, then an EtherType.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, link};
use crate::{DecodeEvent, Decoded};

const HEADER_LEN: usize = 4;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.chdlc += 1;
    let Some([_, _, a, b]) = cx.head::<HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::ChdlcPktTooSmall);
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    link::network(cx, p, u16::from_be_bytes([*a, *b]), span.skip(HEADER_LEN));
    Ok(())
}

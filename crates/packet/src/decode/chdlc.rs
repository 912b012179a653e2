// SPDX-License-Identifier: Apache-2.0
//! Cisco HDLC: address, control, then an EtherType.

use super::{Context, Span, Step, Stop, link};
use crate::{DecodeEvent, Decoded};

const HEADER_LEN: usize = 4;

pub(super) fn decode(cx: &mut Context<'_>, p: &mut Decoded, span: Span) -> Step {
    cx.counters.chdlc += 1;
    let Some([_, _, a, b]) = cx.head::<HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::ChdlcPktTooSmall);
        return Err(Stop);
    };
    cx.layer(p)?;
    link::network(cx, p, u16::from_be_bytes([*a, *b]), span.skip(HEADER_LEN));
    Ok(())
}

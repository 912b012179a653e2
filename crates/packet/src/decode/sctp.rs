// SPDX-License-Identifier: Apache-2.0
//! SCTP's common header (RFC 9260). Not done: chunks.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult};
use crate::{DecodeEvent, Decoded, PacketFlags, Sctp, TransportLayer};

const HEADER_LEN: usize = 12;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.sctp += 1;
    let Some([s0, s1, d0, d1, t0, t1, t2, t3, ..]) = cx.head::<HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::SctpPktTooSmall);
        p.clear_transport();
        return Err(DecodeStop);
    };
    p.transport = TransportLayer::Sctp(Sctp {
        sport: u16::from_be_bytes([*s0, *s1]),
        dport: u16::from_be_bytes([*d0, *d1]),
        tag: u32::from_be_bytes([*t0, *t1, *t2, *t3]),
    });
    let payload = span.skip(HEADER_LEN);
    p.l4 = span.start();
    p.payload = payload.start();
    p.payload_len = payload.len_u32();
    p.flags |= PacketFlags::WANTS_FLOW;
    Ok(())
}

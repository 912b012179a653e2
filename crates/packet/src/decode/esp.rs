// SPDX-License-Identifier: Apache-2.0
//! IPsec: ESP (RFC 4303) and the authentication header over IPv4 (RFC 4302).
//!
//! Not done: decryption; the payload of an authentication header over IPv4.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult};
use crate::{Ah, DecodeEvent, Decoded, Esp, PacketFlags, TransportLayer};

const ESP_LEN: usize = 8;
const AH_LEN: usize = 12;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.esp += 1;
    cx.layer(p)?;
    let Some([s0, s1, s2, s3, n0, n1, n2, n3]) = cx.head::<ESP_LEN>(span) else {
        p.invalid(DecodeEvent::EspPktTooSmall);
        p.clear_transport();
        return Err(DecodeStop);
    };
    p.transport = TransportLayer::Esp(Esp {
        spi: u32::from_be_bytes([*s0, *s1, *s2, *s3]),
        seq: u32::from_be_bytes([*n0, *n1, *n2, *n3]),
    });
    let payload = span.skip(ESP_LEN);
    p.l4 = span.start();
    p.payload = payload.start();
    p.payload_len = payload.len_u32();
    p.flags |= PacketFlags::WANTS_FLOW;
    Ok(())
}

/// Decodes the authentication header over IPv4: no event and no flow, as in Suricata.
pub(super) fn decode_ah(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    let Some([next_header, _, _, _, s0, s1, s2, s3, n0, n1, n2, n3]) = cx.head::<AH_LEN>(span) else {
        return Err(DecodeStop);
    };
    p.transport = TransportLayer::Ah(Ah {
        spi: u32::from_be_bytes([*s0, *s1, *s2, *s3]),
        seq: u32::from_be_bytes([*n0, *n1, *n2, *n3]),
        next_header: *next_header,
    });
    p.l4 = span.start();
    p.payload = span.skip(AH_LEN).start();
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! Teredo (RFC 4380): IPv6 in UDP. No field identifies it, so the inner packet must have no fault.
//!
//! Not done: authentication headers (they are not followed by tunnelled packets in practice).

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, Tunnel, ipv6, proto};
use crate::{Decoded, PacketSource, TunnelKind, TunnelTag};

const ORIGIN_LEN: usize = 8;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    let inner = match cx.slice(span) {
        [0, 0, ..] => span.skip(ORIGIN_LEN),
        [0, ..] => return Err(DecodeStop),
        _ => span,
    };
    let Some([version, _, _, _, l0, l1, next, hop_limit, ..]) = cx.head::<{ ipv6::HEADER_LEN }>(inner) else {
        return Err(DecodeStop);
    };
    let payload_len = usize::from(u16::from_be_bytes([*l0, *l1]));
    let plausible = version >> 4 == 6
        && *hop_limit != 0
        && (*next != proto::HOP_BY_HOP || payload_len >= 8)
        && inner.len() == ipv6::HEADER_LEN + payload_len;
    if !plausible {
        return Err(DecodeStop);
    }
    let tunnel =
        Tunnel { source: PacketSource::Teredo, tag: TunnelTag::new(TunnelKind::Teredo, 0), strict: true };
    cx.tunnel(p, inner, tunnel, ipv6::decode)?;
    cx.counters.teredo += 1;
    Ok(())
}

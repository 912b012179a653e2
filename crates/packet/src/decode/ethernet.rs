// SPDX-License-Identifier: Apache-2.0
//! Ethernet II (IEEE 802.3) and Cisco FabricPath (DCE).
//!
//! Not done: 802.2 LLC and SNAP; such frames count as frames of an unknown EtherType.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, link};
use crate::{DecodeEvent, Decoded};

/// Length of an Ethernet header, in bytes.
pub(super) const HEADER_LEN: usize = 14;
const FABRIC_PATH_TAG_LEN: usize = 2;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.ethernet += 1;
    let Some([_, _, _, _, _, _, _, _, _, _, _, _, a, b]) = cx.head::<HEADER_LEN>(span) else {
        p.invalid(DecodeEvent::EthernetPktTooSmall);
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    p.ethernet = Some(span.start());
    link::network(cx, p, u16::from_be_bytes([*a, *b]), span.skip(HEADER_LEN));
    Ok(())
}

/// Decodes FabricPath: two bytes of tag, then the encapsulated Ethernet frame.
pub(super) fn decode_fabric_path(
    cx: &mut DecodeContext<'_>,
    p: &mut Decoded,
    span: DecodeSpan,
) -> LayerResult {
    if span.len() < FABRIC_PATH_TAG_LEN + HEADER_LEN {
        p.invalid(DecodeEvent::DcePktTooSmall);
        return Err(DecodeStop);
    }
    decode(cx, p, span.skip(FABRIC_PATH_TAG_LEN))
}

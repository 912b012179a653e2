// SPDX-License-Identifier: Apache-2.0
//! VN-Tag (Cisco, IEEE 802.1Qbh draft): four bytes of tag, then an EtherType.

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, link};
use crate::{DecodeEvent, Decoded};

const TAG_LEN: usize = 6;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.vntag += 1;
    let Some([_, _, _, _, a, b]) = cx.head::<TAG_LEN>(span) else {
        p.invalid(DecodeEvent::VntagHeaderTooSmall);
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    if !link::network(cx, p, u16::from_be_bytes([*a, *b]), span.skip(TAG_LEN)) {
        p.invalid(DecodeEvent::VntagUnknownType);
        return Err(DecodeStop);
    }
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! VLAN tags: IEEE 802.1Q, 802.1ad (QinQ, up to three tags) and 802.1ah (MAC in MAC).

use super::{DecodeContext, DecodeSpan, DecodeStop, LayerResult, link};
use crate::{DecodeEvent, Decoded, PacketFlags, VlanIds};

const TAG_LEN: usize = 4;
const BACKBONE_LEN: usize = 18;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    match p.vlan.len() {
        0 => cx.counters.vlan += 1,
        1 => cx.counters.vlan_qinq += 1,
        2 => cx.counters.vlan_qinqinq += 1,
        _ => {}
    }
    if p.vlan.len() >= VlanIds::CAPACITY {
        p.event(DecodeEvent::VlanTooManyLayers);
        // Linux removes all tags of VLAN 0.
        p.flags |= PacketFlags::UNREADABLE;
        return Err(DecodeStop);
    }
    let Some([a, b, c, d]) = cx.head::<TAG_LEN>(span) else {
        p.invalid(DecodeEvent::VlanHeaderTooSmall);
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    p.vlan.push(u16::from_be_bytes([*a, *b]) & 0x0fff);
    if !link::network(cx, p, u16::from_be_bytes([*c, *d]), span.skip(TAG_LEN)) {
        p.invalid(DecodeEvent::VlanUnknownType);
        return Err(DecodeStop);
    }
    Ok(())
}

/// 802.1ah: four bytes of service tag, the customer's addresses, then the customer's EtherType.
pub(super) fn decode_backbone(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    cx.counters.ieee8021ah += 1;
    let Some([.., a, b]) = cx.head::<BACKBONE_LEN>(span) else {
        p.invalid(DecodeEvent::Ieee8021ahHeaderTooSmall);
        return Err(DecodeStop);
    };
    // Counted as a layer here, unlike in Suricata: otherwise only the frame's length would bound the nesting.
    cx.layer(p)?;
    link::network(cx, p, u16::from_be_bytes([*a, *b]), span.skip(BACKBONE_LEN));
    Ok(())
}

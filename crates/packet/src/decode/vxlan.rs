// SPDX-License-Identifier: Apache-2.0
//! VXLAN (RFC 7348). The inner descriptor starts after the inner Ethernet header, as in Suricata.

use super::{
    DecodeContext, DecodeSpan, DecodeStop, LayerResult, Tunnel, ether_type, ethernet, ipv4, ipv6, vlan,
};
use crate::{DecodeEvent, Decoded, PacketSource, TunnelKind, TunnelTag, VxlanReservedBits};

const HEADER_LEN: usize = 8;

pub(super) fn decode(cx: &mut DecodeContext<'_>, p: &mut Decoded, span: DecodeSpan) -> LayerResult {
    let Some([flags, reserved, g0, g1, v0, v1, v2, last]) = cx.head::<HEADER_LEN>(span) else {
        return Err(DecodeStop);
    };
    let frame = span.skip(HEADER_LEN);
    let Some([.., a, b]) = cx.head::<{ ethernet::HEADER_LEN }>(frame) else {
        return Err(DecodeStop);
    };
    cx.layer(p)?;
    let strict = cx.config.vxlan_reserved == VxlanReservedBits::Strict;
    let reserved_set = flags & 0xf7 != 0 || [*reserved, *g0, *g1, *last] != [0; 4];
    if flags & 0x08 == 0 || (strict && reserved_set) {
        return Err(DecodeStop);
    }
    cx.counters.vxlan += 1;
    let decode: fn(&mut DecodeContext<'_>, &mut Decoded, DecodeSpan) -> LayerResult =
        match u16::from_be_bytes([*a, *b]) {
            ether_type::IPV4 => ipv4::decode,
            ether_type::IPV6 => ipv6::decode,
            ether_type::VLAN | ether_type::PROVIDER_BRIDGE | ether_type::QINQ => vlan::decode,
            ether_type::ARP => return Ok(()),
            _ => {
                p.invalid(DecodeEvent::VxlanUnknownPayloadType);
                return Ok(());
            }
        };
    let tag = TunnelTag::new(TunnelKind::Vxlan, u32::from_be_bytes([0, *v0, *v1, *v2]));
    // An inner packet that cannot be decoded leaves the outer one unchanged.
    let _ = cx.tunnel(p, frame.skip(ethernet::HEADER_LEN), Tunnel::new(PacketSource::Vxlan, tag), decode);
    Ok(())
}

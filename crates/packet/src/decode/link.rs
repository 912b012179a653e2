// SPDX-License-Identifier: Apache-2.0
//! The first layer of a frame, and the layers after an EtherType.

use super::{
    DecodeContext, DecodeSpan, LayerResult, arp, chdlc, ether_type, ethernet, ipv4, ipv6, mpls, nsh, null,
    ppp, pppoe, raw, sll, vlan, vntag,
};
use crate::{DecodeEvent, Decoded, LinkType};

/// Decodes a frame of a link type; a frame of an unsupported one stays undecoded.
pub(super) fn decode(
    cx: &mut DecodeContext<'_>,
    p: &mut Decoded,
    span: DecodeSpan,
    link_type: LinkType,
) -> LayerResult {
    match link_type {
        LinkType::ETHERNET => ethernet::decode(cx, p, span),
        LinkType::LINUX_SLL => sll::decode(cx, p, span),
        LinkType::LINUX_SLL2 => sll::decode_v2(cx, p, span),
        LinkType::PPP | LinkType::PPP_SERIAL => ppp::decode(cx, p, span),
        LinkType::PPP_ETHER => pppoe::decode_session(cx, p, span),
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => raw::decode(cx, p, span),
        LinkType::NULL => null::decode(cx, p, span, null::FamilyOrder::Host),
        LinkType::LOOP => null::decode(cx, p, span, null::FamilyOrder::Network),
        LinkType::C_HDLC => chdlc::decode(cx, p, span),
        _ => Ok(()),
    }
}

/// Decodes the layer that an EtherType names; `false` when it is unknown. `p` has the result of decoding.
pub(super) fn network(cx: &mut DecodeContext<'_>, p: &mut Decoded, kind: u16, span: DecodeSpan) -> bool {
    p.ether_type = kind;
    // The layer's result does not matter to the layers before it: its events record it.
    let _ = match kind {
        ether_type::IPV4 => ipv4::decode(cx, p, span),
        ether_type::IPV6 => ipv6::decode(cx, p, span),
        ether_type::PPPOE_SESSION => pppoe::decode_session(cx, p, span),
        ether_type::PPPOE_DISCOVERY => pppoe::decode_discovery(cx, p, span),
        ether_type::VLAN | ether_type::PROVIDER_BRIDGE | ether_type::QINQ => vlan::decode(cx, p, span),
        ether_type::BACKBONE_BRIDGE => vlan::decode_backbone(cx, p, span),
        ether_type::ARP => arp::decode(cx, p, span),
        ether_type::MPLS | ether_type::MPLS_MULTICAST => mpls::decode(cx, p, span),
        ether_type::FABRIC_PATH => ethernet::decode_fabric_path(cx, p, span),
        ether_type::VN_TAG => vntag::decode(cx, p, span),
        ether_type::NSH => nsh::decode(cx, p, span),
        _ => {
            cx.counters.unknown_ethertype += 1;
            p.event(DecodeEvent::EthernetUnknownEthertype);
            return false;
        }
    };
    true
}

// SPDX-License-Identifier: Apache-2.0
//! A frame: the first byte chooses the link type, and whether the frame is cut; the rest is the frame.

use crate::planted::planted;
use bartizan_packet::{
    DecodeOutput, Decoder, DecoderConfig, LinkType, PacketView, PortList, TransportLayer, TunnelPorts,
    VxlanReservedBits,
};

/// Every tunnel on every port, so that arbitrary bytes nest as deep as possible.
pub fn open_config() -> DecoderConfig {
    let any = TunnelPorts { enabled: true, ports: PortList::ANY };
    DecoderConfig {
        teredo: any,
        vxlan: any,
        geneve: any,
        gtp: any,
        vxlan_reserved: VxlanReservedBits::Permissive,
        ..DecoderConfig::default()
    }
}

/// Decodes the frame, and reads everything of every packet in it.
pub fn run(data: &[u8]) {
    let Some((selector, frame)) = data.split_first() else { return };
    let link = LinkType::SUPPORTED[usize::from(*selector) % LinkType::SUPPORTED.len()];
    // The second choice in the same byte: whether the frame is cut, by a length that its last byte gives.
    let is_cut = usize::from(*selector) / LinkType::SUPPORTED.len() % 2 == 1;
    let missing = frame.last().map_or(0, |last| usize::from(*last) * 16);
    let wire_len = frame.len() + if is_cut { missing } else { 0 };
    let mut out = DecodeOutput::new();
    let config = DecoderConfig { cut_frames: is_cut, ..open_config() };
    Decoder::new(config).decode(link, frame, wire_len as u32, &mut out);
    for packet in out.packets() {
        assert!(packet.start <= packet.end && packet.end as usize <= wire_len);
        assert!(packet.payload + packet.payload_len <= packet.end);
        let view = PacketView::new(frame, packet);
        if is_cut {
            assert!(view.payload().len() <= packet.payload_len as usize);
            assert!(view.is_payload_cut() || view.payload().len() == packet.payload_len as usize);
        } else {
            assert_eq!(view.payload().len(), packet.payload_len as usize);
            assert!(!view.is_fragment_cut());
        }
        let _ = (view.ethernet(), view.ethernet_type(), view.mac_addresses(), view.fragment_data());
        let _ = (view.ip_header(), view.ip_extensions(), view.l4_header());
        let _ = (view.ip_checksum_ok(), view.l4_checksum_ok());
        assert!(view.tcp_options().count() <= 40);
        let _ = view.sack_blocks().count();
        let v6 = packet.src().is_some_and(|address| address.is_ipv6());
        planted(v6 && matches!(packet.transport, TransportLayer::Udp(_)) && !view.payload().is_empty());
    }
}

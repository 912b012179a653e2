// SPDX-License-Identifier: Apache-2.0
//! A frame: the first byte chooses the link type, the rest is the frame.

use crate::planted::planted;
use bartizan_packet::{
    DecodeOutput, Decoder, DecoderConfig, LinkType, PacketView, PortList, Transport, TunnelPorts,
    VxlanReservedBits,
};

/// Every tunnel on every port, so that arbitrary bytes get as deep as they can.
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

/// Decodes it, and looks at everything of every packet in it.
pub fn run(data: &[u8]) {
    let Some((selector, frame)) = data.split_first() else { return };
    let link = LinkType::SUPPORTED[usize::from(*selector) % LinkType::SUPPORTED.len()];
    let mut out = DecodeOutput::new();
    Decoder::new(open_config()).decode(link, frame, frame.len() as u32, &mut out);
    for packet in out.packets() {
        assert!(packet.start <= packet.end && packet.end as usize <= frame.len());
        assert!(packet.payload + packet.payload_len <= packet.end);
        let view = PacketView::new(frame, packet);
        assert_eq!(view.payload().len(), packet.payload_len as usize);
        let _ = (view.ethernet(), view.ethernet_type(), view.mac_addresses(), view.fragment_data());
        let _ = (view.ip_header(), view.ip_extensions(), view.l4_header());
        let _ = (view.ip_checksum_ok(), view.l4_checksum_ok());
        assert!(view.tcp_options().count() <= 40);
        let _ = view.sack_blocks().count();
        let v6 = packet.src().is_some_and(|address| address.is_ipv6());
        planted(v6 && matches!(packet.transport, Transport::Udp(_)) && !view.payload().is_empty());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Link layers and the headers between them and IP, with hand-made frames.
use crate::build;

use bartizan_packet::DecodeEvent as E;
use bartizan_packet::{DecoderConfig, LinkType, Network, PacketView, TransportLayer};
use bartizan_testkit::packet::{CLIENT_MAC, SERVER_MAC};
use build::*;

fn udp4() -> Vec<u8> {
    ipv4(17, &udp(1000, 2000, b"hi"))
}

fn udp6() -> Vec<u8> {
    ipv6(17, &udp(1000, 2000, b"hi"))
}

#[track_caller]
fn is_udp(packet: &bartizan_packet::Decoded) {
    assert_eq!(packet.ports(), Some((1000, 2000)), "{packet:#?}");
    assert!(packet.events.is_empty() && packet.wants_flow(), "{packet:#?}");
}

#[test]
fn ethernet_carries_both_versions() {
    for (kind, ip) in [(0x0800, udp4()), (0x86dd, udp6())] {
        let frame = eth(kind, &ip);
        let packet = one(&frame);
        is_udp(&packet);
        assert_eq!((packet.l3, packet.ethernet, packet.ether_type), (14, Some(0), kind));
        let view = PacketView::new(&frame, &packet);
        assert_eq!(view.payload(), b"hi");
        assert_eq!(view.mac_addresses(), Some((CLIENT_MAC, SERVER_MAC)));
        assert_eq!(view.packet(), frame);
    }
}

#[test]
fn broken_ethernet() {
    assert_eq!(events(&one(&eth(0x0800, &[])[..13])), [E::EthernetPktTooSmall]);
    let unknown = one(&eth(0x1234, &[]));
    assert_eq!((events(&unknown), unknown.is_invalid()), (vec![E::EthernetUnknownEthertype], false));
    // 802.3 with a length where the EtherType would be.
    assert_eq!(events(&one(&eth(0x0026, &[0x42, 0x42, 3]))), [E::EthernetUnknownEthertype]);
}

#[test]
fn vlan_tags_up_to_three() {
    for kind in [0x8100, 0x88a8, 0x9100] {
        let packet = one(&eth(kind, &vlan(0xe007, 0x0800, &udp4())));
        is_udp(&packet);
        assert_eq!(packet.vlan.as_slice(), [7]);
    }
    let three = vlan(1, 0x8100, &vlan(2, 0x8100, &vlan(3, 0x86dd, &udp6())));
    let packet = one(&eth(0x88a8, &three));
    is_udp(&packet);
    assert_eq!(packet.vlan.as_slice(), [1, 2, 3]);
    let packet = one(&eth(0x8100, &vlan(9, 0x8100, &three)));
    assert_eq!(events(&packet), [E::VlanTooManyLayers]);
    assert_eq!(events(&one(&eth(0x8100, &[0, 1, 8]))), [E::VlanHeaderTooSmall]);
    assert_eq!(
        events(&one(&eth(0x8100, &vlan(1, 0x1234, &[])))),
        [E::EthernetUnknownEthertype, E::VlanUnknownType]
    );
}

#[test]
fn other_tags() {
    let backbone = join(&[&[0; 16], &[0x08, 0x00], &udp4()]);
    is_udp(&one(&eth(0x88e7, &backbone)));
    assert_eq!(events(&one(&eth(0x88e7, &[0; 17]))), [E::Ieee8021ahHeaderTooSmall]);
    is_udp(&one(&eth(0x8926, &join(&[&[0; 4], &[0x86, 0xdd], &udp6()]))));
    assert_eq!(events(&one(&eth(0x8926, &[0; 5]))), [E::VntagHeaderTooSmall]);
    assert_eq!(events(&one(&eth(0x8926, &[0; 6]))), [E::EthernetUnknownEthertype, E::VntagUnknownType]);
    let fabric = one(&eth(0x8903, &join(&[&[0, 0], &eth(0x0800, &udp4())])));
    is_udp(&fabric);
    assert_eq!(fabric.ethernet, Some(16));
    assert_eq!(events(&one(&eth(0x8903, &[0; 15]))), [E::DcePktTooSmall]);
}

#[test]
fn arp() {
    let good = join(&[&[0, 1, 8, 0, 6, 4, 0, 1], &[2, 0, 0, 0, 0, 1], &SRC4, &[0; 6], &DST4]);
    let packet = one(&eth(0x0806, &good));
    let Network::Arp(arp) = packet.network else { panic!("{packet:#?}") };
    assert_eq!((arp.operation, arp.sender.octets(), arp.target.octets()), (1, SRC4, DST4));
    assert!(!packet.wants_flow());
    for (at, value, event) in [
        (1, 2, E::ArpUnsupportedHardware),
        (2, 9, E::ArpUnsupportedProtocol),
        (4, 5, E::ArpInvalidHardwareSize),
        (5, 5, E::ArpInvalidProtocolSize),
        (7, 9, E::ArpUnsupportedOpcode),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        let packet = one(&eth(0x0806, &bad));
        assert_eq!((events(&packet), packet.network), (vec![event], Network::None));
    }
    assert_eq!(events(&one(&eth(0x0806, &good[..7]))), [E::ArpPktTooSmall]);
    assert_eq!(events(&one(&eth(0x0806, &good[..27]))), [E::ArpInvalidPkt]);
}

#[test]
fn mpls() {
    let entry = |label: u32, bottom: bool| (label << 12 | u32::from(bottom) << 8 | 64).to_be_bytes();
    is_udp(&one(&eth(0x8847, &join(&[&entry(100, false), &entry(0, true), &udp4()]))));
    is_udp(&one(&eth(0x8848, &join(&[&entry(2, true), &udp6()]))));
    is_udp(&one(&eth(0x8847, &join(&[&entry(100, true), &udp4()]))));
    is_udp(&one(&eth(0x8847, &join(&[&entry(100, true), &udp6()]))));
    is_udp(&one(&eth(0x8847, &join(&[&entry(100, true), &[0; 4], &eth(0x0800, &udp4())]))));
    for (label, event) in [
        (1, E::MplsBadLabelRouterAlert),
        (3, E::MplsBadLabelImplicitNull),
        (4, E::MplsBadLabelReserved),
        (14, E::MplsBadLabelReserved),
    ] {
        assert_eq!(events(&one(&eth(0x8847, &join(&[&entry(label, true), &udp4()])))), [event]);
    }
    assert_eq!(events(&one(&eth(0x8847, &entry(100, false)))), [E::MplsHeaderTooSmall]);
    assert_eq!(events(&one(&eth(0x8847, &join(&[&entry(100, true), &[0x45, 0, 0]])))), [E::MplsPktTooSmall]);
    assert_eq!(
        events(&one(&eth(0x8847, &join(&[&entry(100, true), &[0x10; 4]])))),
        [E::MplsUnknownPayloadType]
    );
}

#[test]
fn network_service_header() {
    let nsh = |word: u16, md: u8, next: u8, rest: &[u8]| {
        eth(0x894f, &join(&[&word.to_be_bytes(), &[md, next, 0, 0, 1, 255], rest]))
    };
    is_udp(&one(&nsh(2, 2, 1, &udp4())));
    is_udp(&one(&nsh(2, 2, 2, &udp6())));
    is_udp(&one(&nsh(2, 2, 3, &eth(0x0800, &udp4()))));
    is_udp(&one(&nsh(6, 1, 1, &join(&[&[0; 16], &udp4()]))));
    is_udp(&one(&nsh(2, 2, 5, &join(&[&[0, 0, 1, 64], &udp4()]))));
    assert_eq!(events(&one(&eth(0x894f, &[0; 7]))), [E::NshHeaderTooSmall]);
    assert_eq!(events(&one(&nsh(0x4002, 2, 1, &udp4()))), [E::NshUnsupportedVersion]);
    assert_eq!(events(&one(&nsh(2, 2, 1, &[]))), [E::NshBadHeaderLength]);
    assert_eq!(events(&one(&nsh(2, 1, 1, &udp4()))), [E::NshBadHeaderLength]);
    assert_eq!(events(&one(&nsh(2, 0, 1, &udp4()))), [E::NshReservedType]);
    assert_eq!(events(&one(&nsh(2, 3, 1, &udp4()))), [E::NshUnsupportedType]);
    assert_eq!(events(&one(&nsh(2, 2, 4, &udp4()))), [E::NshUnknownPayload]);
}

#[track_caller]
fn linked(link: LinkType, bytes: &[u8]) -> bartizan_packet::Decoded {
    let mut packets = decode_with(DecoderConfig::default(), link, bytes);
    assert_eq!(packets.len(), 1);
    packets.remove(0)
}

#[test]
fn raw_ip() {
    for link in [LinkType::RAW, LinkType(101), LinkType(14), LinkType::IPV4, LinkType::IPV6] {
        is_udp(&linked(link, &udp4()));
        is_udp(&linked(link, &udp6()));
    }
    assert_eq!(events(&linked(LinkType::RAW, &udp4()[..19])), [E::Ipv4PktTooSmall]);
    assert_eq!(events(&linked(LinkType::RAW, &[0x75; 20])), [E::IprawInvalidIpVersion]);
}

#[test]
fn loopback() {
    is_udp(&linked(LinkType::NULL, &join(&[&[2, 0, 0, 0], &udp4()])));
    is_udp(&linked(LinkType::NULL, &join(&[&[0, 0, 0, 2], &udp4()])));
    is_udp(&linked(LinkType::LOOP, &join(&[&[0, 0, 0, 2], &udp4()])));
    for family in [10, 23, 24, 26, 28, 30] {
        is_udp(&linked(LinkType::NULL, &join(&[&[family, 0, 0, 0], &udp6()])));
        is_udp(&linked(LinkType::LOOP, &join(&[&[0, 0, 0, family], &udp6()])));
    }
    assert_eq!(events(&linked(LinkType::NULL, &[2, 0, 0])), [E::LtnullPktTooSmall]);
    assert_eq!(events(&linked(LinkType::NULL, &[7, 0, 0, 0, 0])), [E::LtnullUnsupportedType]);
}

#[test]
fn cooked_and_hdlc() {
    is_udp(&linked(LinkType::LINUX_SLL, &join(&[&[0; 14], &[8, 0], &udp4()])));
    is_udp(&linked(LinkType::LINUX_SLL2, &join(&[&[0x86, 0xdd], &[0; 18], &udp6()])));
    is_udp(&linked(LinkType::C_HDLC, &join(&[&[0x0f, 0, 8, 0], &udp4()])));
    assert_eq!(events(&linked(LinkType::LINUX_SLL, &[0; 15])), [E::SllPktTooSmall]);
    assert_eq!(events(&linked(LinkType::LINUX_SLL2, &[0; 19])), [E::Sll2PktTooSmall]);
    assert_eq!(events(&linked(LinkType::C_HDLC, &[0; 3])), [E::ChdlcPktTooSmall]);
}

#[test]
fn ppp() {
    let ppp = |head: &[u8], rest: &[u8]| linked(LinkType::PPP, &join(&[head, rest]));
    is_udp(&ppp(&[0xff, 3, 0, 0x21], &udp4()));
    is_udp(&ppp(&[0xff, 3, 0, 0x57], &udp6()));
    is_udp(&ppp(&[0, 0x21], &udp4()));
    is_udp(&ppp(&[0x21], &udp4()));
    is_udp(&ppp(&[0x57], &udp6()));
    // Van Jacobson uncompressed: the protocol field holds a connection number, here 0.
    let vj = ppp(&[0xff, 3, 0, 0x2f], &ipv4(0, &tcp(&[], b"x")));
    assert!(matches!(vj.transport, TransportLayer::Tcp(_)));
    assert_eq!(events(&ppp(&[], &[])), [E::PppPktTooSmall]);
    assert_eq!(events(&ppp(&[0xff, 3], &[])), [E::PppPktTooSmall]);
    assert_eq!(events(&ppp(&[0xff, 3, 0], &[])), [E::PppPktTooSmall]);
    assert_eq!(events(&ppp(&[0, 0x21], &[0x45])), [E::PppIp4PktTooSmall]);
    assert_eq!(events(&ppp(&[0, 0x57], &[0x60])), [E::PppIp6PktTooSmall]);
    assert_eq!(events(&ppp(&[0, 0x2f], &[0x45])), [E::PppVjuPktTooSmall]);
    assert_eq!(events(&ppp(&[0, 0x2b], &[0x45])), [E::PppUnsupProto]);
    assert_eq!(events(&ppp(&[0x12, 0x34], &[0x45])), [E::PppWrongType]);
    assert!(events(&ppp(&[0xc0, 0x21], &[1, 1, 0, 4])).is_empty());
}

#[test]
fn pppoe() {
    let session = |len: u16, rest: &[u8]| eth(0x8864, &join(&[&[0x11, 0, 0, 1], &len.to_be_bytes(), rest]));
    is_udp(&one(&session(32, &join(&[&[0, 0x21], &udp4()]))));
    is_udp(&one(&session(31, &join(&[&[0x21], &udp4()]))));
    is_udp(&one(&session(52, &join(&[&[0, 0x57], &udp6()]))));
    assert_eq!(events(&one(&session(1, &[]))), [E::PppoePktTooSmall]);
    assert_eq!(events(&one(&session(1, &[0]))), [E::PppoePktTooSmall]);
    assert_eq!(events(&one(&session(4, &[0, 0x21, 0x45]))), [E::PppIp4PktTooSmall]);
    assert_eq!(events(&one(&session(4, &[0xc0, 0x21, 1, 1]))), [E::PppUnsupProto]);
    assert!(events(&one(&session(0, &[0xc0, 0x21, 1, 1]))).is_empty());
    let discovery = |code: u8, len: u16, rest: &[u8]| {
        eth(0x8863, &join(&[&[0x11, code, 0, 0], &len.to_be_bytes(), rest]))
    };
    for code in [0x09, 0x07, 0x19, 0x65, 0xa7] {
        assert!(events(&one(&discovery(code, 4, &[1, 1, 0, 0]))).is_empty());
    }
    assert_eq!(events(&one(&discovery(0xbb, 4, &[1, 1, 0, 0]))), [E::PppoeWrongCode]);
    assert_eq!(events(&one(&discovery(0x09, 5, &[1, 1, 0, 0]))), [E::PppoeMalformedTags]);
    assert_eq!(events(&one(&eth(0x8863, &[0; 5]))), [E::PppoePktTooSmall]);
}

// SPDX-License-Identifier: Apache-2.0
//! Frames whose end was not captured, decoded as such ([`DecoderConfig::cut_frames`]): as far as headers are
//! captured, the descriptor is that of the whole frame.
use crate::build;

use bartizan_packet::DecodeEvent as E;
use bartizan_packet::{
    DecodeOutput, Decoded, Decoder, DecoderConfig, LinkType, PacketView, TransportLayer, TunnelPorts,
};
use bartizan_testkit::packet::{ACK, Datagram, Ip, Segment, icmp};
use build::*;
use core::net::IpAddr;
use proptest::collection::vec;
use proptest::prelude::*;

/// The events of headers whose end is missing.
const OF_HEADERS: [E; 16] = [
    E::EthernetPktTooSmall,
    E::VlanHeaderTooSmall,
    E::Ipv4PktTooSmall,
    E::Ipv4TruncPkt,
    E::Ipv6PktTooSmall,
    E::Ipv6TruncExthdr,
    E::Ipv6Ipv6InIpv6TooSmall,
    E::TcpPktTooSmall,
    E::TcpHlenTooSmall,
    E::UdpHlenTooSmall,
    E::Icmpv4PktTooSmall,
    E::Icmpv6PktTooSmall,
    E::GrePktTooSmall,
    E::GreVersion0HdrTooBig,
    E::SctpPktTooSmall,
    E::VlanUnknownType,
];

fn config(cut_frames: bool) -> DecoderConfig {
    DecoderConfig { cut_frames, ..DecoderConfig::default() }
}

fn decode_cut(config: DecoderConfig, bytes: &[u8], wire_len: usize) -> Vec<Decoded> {
    let mut out = DecodeOutput::new();
    Decoder::new(config).decode(LinkType::ETHERNET, bytes, wire_len as u32, &mut out);
    out.packets().to_vec()
}

fn addresses(v6: bool) -> (IpAddr, IpAddr) {
    if v6 { (SRC6.into(), DST6.into()) } else { (SRC4.into(), DST4.into()) }
}

fn around(v6: bool, rest: &[u8]) -> Vec<u8> {
    eth(if v6 { 0x86dd } else { 0x0800 }, rest)
}

/// TCP with timestamps and selective acknowledgements, and a right checksum.
fn segment(v6: bool) -> Vec<u8> {
    let (from, to) = addresses(v6);
    let ip = Ip::new(from, to, 6);
    let raw_options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 5, 10, 0, 0, 0, 3, 0, 0, 0, 4];
    let segment = Segment::new((40_000, 80), (1, 2), ACK, &[7; 400]);
    ip.packet(&Segment { raw_options, ..segment }.bytes(&ip), None)
}

fn datagram(v6: bool) -> Vec<u8> {
    let (from, to) = addresses(v6);
    let ip = Ip::new(from, to, 17);
    ip.packet(&Datagram::new((4_000, 5_000), &[9; 300]).bytes(&ip), None)
}

/// Packets of many kinds, well-formed and with data after their headers.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let mut frames = Vec::new();
    for v6 in [false, true] {
        let kind = if v6 { 0x86dd } else { 0x0800 };
        let (from, to) = addresses(v6);
        let tagged = eth(0x88a8, &vlan(5, 0x8100, &vlan(6, kind, &segment(v6))));
        let in_vxlan = around(
            v6,
            &if v6 {
                ipv6(17, &udp(9, 4789, &vxlan(5, &around(v6, &segment(v6)))))
            } else {
                ipv4(17, &udp(9, 4789, &vxlan(5, &around(v6, &segment(v6)))))
            },
        );
        let gre = gre([0x20, 0], kind, &[0, 0, 1, 0], &datagram(v6));
        let in_gre = around(false, &ipv4(47, &gre));
        let echo = icmp(from, to, if v6 { (128, 128) } else { (8, 8) }, 0, &[3; 200]).frame();
        frames.extend([
            ("TCP", around(v6, &segment(v6))),
            ("UDP", around(v6, &datagram(v6))),
            ("tagged", tagged),
            ("VXLAN", in_vxlan),
            ("GRE", in_gre),
            ("ICMP", echo),
        ]);
    }
    let options = [0x94, 4, 0, 0, 1, 1, 1, 0];
    frames.push(("IPv4 options", eth(0x0800, &ipv4_with(6, &options, 0, &tcp(&[2, 4, 5, 0xb4], &[1; 99])))));
    let extended = join(&[&[60, 0, 5, 2, 0, 0, 1, 0], &[6, 0, 1, 4, 0, 0, 0, 0], &tcp(&[], &[1; 99])]);
    frames.push(("extension headers", eth(0x86dd, &ipv6(0, &extended))));
    frames.push(("SCTP", eth(0x0800, &ipv4(132, &[5; 90]))));
    frames.push(("padded", join(&[&eth(0x0800, &ipv4(17, &udp(7, 8, b"x"))), &[0; 40]])));
    frames
}

#[test]
fn every_beginning_of_a_frame_is_decoded_as_far_as_its_headers_are_there() {
    for (name, frame) in frames() {
        let whole = decode_cut(config(true), &frame, frame.len());
        assert_eq!(whole, decode(&frame), "{name}: a whole frame is decoded as ever");
        assert!(whole.iter().all(|packet| !packet.is_invalid()), "{name}: {whole:#?}");
        let headers = whole.iter().map(|packet| packet.payload as usize).max().unwrap();
        let known: Vec<E> = whole.iter().flat_map(events).collect();
        for captured in 0..frame.len() {
            let bytes = &frame[..captured];
            let packets = decode_cut(config(true), bytes, frame.len());
            if captured >= headers {
                assert_eq!(packets, whole, "{name}, {captured} bytes");
            }
            for event in packets.iter().flat_map(events) {
                let fits = known.contains(&event) || captured < headers && OF_HEADERS.contains(&event);
                assert!(fits, "{name}, {captured} bytes: {event:?}");
            }
            assert_eq!(packets[0].length() as usize, frame.len(), "{name}, {captured} bytes");
            for (packet, all) in packets.iter().zip(&whole) {
                let view = PacketView::new(bytes, packet);
                let expected = PacketView::new(&frame, all);
                assert!(expected.packet().starts_with(view.packet()), "{name}, {captured} bytes");
                if packet.transport == TransportLayer::None {
                    continue;
                }
                assert!(expected.payload().starts_with(view.payload()), "{name}, {captured} bytes");
                assert_eq!(packet.payload_len, all.payload_len, "{name}, {captured} bytes");
                assert_eq!(view.is_payload_cut(), view.payload().len() < expected.payload().len());
                assert_eq!(view.ip_checksum_ok(), expected.ip_checksum_ok(), "{name}, {captured} bytes");
                // The missing bytes may be right; only a checksum of zero is right whatever they are.
                let told = view.l4_checksum_ok();
                let unknown =
                    view.is_payload_cut() && expected.l4_header().unwrap().get(6..8) != Some(&[0, 0]);
                assert_eq!(
                    told,
                    if unknown { None } else { expected.l4_checksum_ok() },
                    "{name}, {captured}"
                );
            }
        }
    }
}

#[test]
fn without_the_setting_a_cut_frame_is_malformed() {
    for (name, frame) in frames() {
        for captured in 0..frame.len() {
            let told = decode_cut(config(false), &frame[..captured], frame.len());
            let untold = decode_cut(config(false), &frame[..captured], captured);
            assert_eq!(told.len(), untold.len());
            for (told, untold) in told.iter().zip(untold) {
                assert_eq!(*told, Decoded { wire_len: told.wire_len, ..untold }, "{name}, {captured} bytes");
            }
        }
    }
    let frame = around(false, &segment(false));
    assert_eq!(events(&decode_cut(config(false), &frame[..96], frame.len())[0]), [E::Ipv4TruncPkt]);
}

#[test]
fn lengths_are_compared_with_the_frame_on_the_wire() {
    // Longer than the wire allows: malformed as in a whole frame.
    for (v6, event) in [(false, E::Ipv4TruncPkt), (true, E::Ipv6TruncPkt)] {
        let frame = around(v6, &segment(v6));
        let packet = &decode_cut(config(true), &frame[..100], frame.len() - 1)[0];
        assert_eq!(events(packet), [event]);
    }
    let longer = Datagram { len: Some(60), ..Datagram::new((7, 8), &[1; 51]) }.unsummed();
    let frame = eth(0x0800, &ipv4(17, &longer));
    assert_eq!(events(&decode_cut(config(true), &frame[..60], frame.len())[0]), [E::UdpPktTooSmall]);
}

#[test]
fn a_quote_whose_end_is_missing_is_no_fault() {
    for v6 in [false, true] {
        let (from, to) = addresses(v6);
        let quote = if v6 { datagram(true) } else { datagram(false) };
        let rest = join(&[&[0; 4], &quote]);
        let frame = icmp(from, to, (3, 3), 1, &rest).frame();
        let whole = decode_cut(config(true), &frame, frame.len());
        let headers = whole[0].payload as usize;
        for captured in headers..frame.len() {
            let packet = &decode_cut(config(true), &frame[..captured], frame.len())[0];
            assert_eq!((events(packet), packet.is_invalid()), (vec![], false), "{captured} bytes");
            let quoted = packet.transport.icmp().unwrap().quoted;
            let all = whole[0].transport.icmp().unwrap().quoted;
            assert!(quoted.is_none() || quoted.unwrap().src == all.unwrap().src);
        }
    }
}

#[test]
fn a_cut_fragment_is_told_as_one() {
    let v4 = eth(0x0800, &ipv4_with(17, &[], 0x2000, &[5; 64]));
    let v6 = eth(0x86dd, &ipv6(44, &join(&[&[17, 0, 0, 1, 0, 0, 0, 9], &[5; 64]])));
    for frame in [v4, v6] {
        for captured in frame.len() - 64..=frame.len() {
            let bytes = &frame[..captured];
            let packet = &decode_cut(config(true), bytes, frame.len())[0];
            assert!(packet.is_fragment() && events(packet).is_empty(), "{packet:#?}");
            let view = PacketView::new(bytes, packet);
            assert_eq!(view.is_fragment_cut(), captured < frame.len(), "{captured} bytes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_cut_frames_never_panic(bytes in vec(any::<u8>(), 0..200), more in 0u32..70_000, v6 in any::<bool>()) {
        let any_port = TunnelPorts { enabled: true, ports: bartizan_packet::PortList::ANY };
        let config = DecoderConfig { teredo: any_port, vxlan: any_port, geneve: any_port, gtp: any_port, ..config(true) };
        for frame in [bytes.clone(), around(v6, &bytes), around(v6, &join(&[if v6 { &[0x60, 0] } else { &[0x45, 0] }, &bytes]))] {
            let wire_len = frame.len() + more as usize;
            for packet in decode_cut(config, &frame, wire_len) {
                prop_assert!(packet.start <= packet.end && packet.end as usize <= wire_len);
                prop_assert!(packet.payload + packet.payload_len <= packet.end);
                let view = PacketView::new(&frame, &packet);
                prop_assert!(view.payload().len() <= packet.payload_len as usize);
                let _ = (view.ethernet(), view.mac_addresses(), view.fragment_data(), view.is_fragment_cut());
                let _ = (view.ip_header(), view.ip_extensions(), view.packet());
                let _ = (view.ip_checksum_ok(), view.l4_checksum_ok(), view.l4_checksum_is_due());
                // Headers are there as a whole.
                let header = (packet.payload - packet.l4) as usize;
                if packet.transport.tcp().is_some() {
                    prop_assert_eq!(view.l4_header().map(<[u8]>::len), Some(header));
                }
                let sack = packet.transport.tcp().map_or(0, |tcp| usize::from(tcp.options.sack_blocks));
                prop_assert_eq!(view.sack_blocks().count(), sack);
            }
        }
    }
}

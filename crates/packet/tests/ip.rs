// SPDX-License-Identifier: Apache-2.0
//! IPv4, IPv6 and transport headers, with hand-made packets.
use crate::build;

use bartizan_packet::DecodeEvent as E;
use bartizan_packet::{
    DecodeOutput, Decoded, Decoder, IpOptions, Ipv6ExtHeaders, PacketSource, PacketView, TcpFlags,
    TransportLayer,
};
use build::*;
use core::net::IpAddr;

fn v4(bytes: &[u8]) -> Decoded {
    one(&eth(0x0800, bytes))
}

fn v6(bytes: &[u8]) -> Decoded {
    one(&eth(0x86dd, bytes))
}

#[test]
fn ipv4_fields() {
    let bytes = eth(0x0800, &join(&[&ipv4(6, &tcp(&[], b"data")), b"ethernet padding"]));
    let packet = one(&bytes);
    let ip = packet.ipv4().unwrap();
    assert_eq!((ip.proto, ip.ttl, ip.tos, ip.id, ip.header_len, ip.total_len), (6, 64, 0x10, 0x1234, 20, 44));
    assert!(ip.fragment.dont && !ip.fragment.more && ip.fragment.offset == 0);
    assert_eq!(packet.src(), Some(IpAddr::from(SRC4)));
    assert_eq!(packet.dst(), Some(IpAddr::from(DST4)));
    let view = PacketView::new(&bytes, &packet);
    assert_eq!(view.payload(), b"data");
    assert_eq!(view.ip_checksum_ok(), Some(true));
    assert_eq!(view.ip_header().map(<[u8]>::len), Some(20));
}

#[test]
fn ipv4_headers_that_cannot_be() {
    let good = ipv4(6, &tcp(&[], &[]));
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        v4(&bytes)
    };
    for (packet, event) in [
        (v4(&good[..19]), E::Ipv4PktTooSmall),
        (with(0, 0x55), E::Ipv4WrongIpVersion),
        (with(0, 0x44), E::Ipv4HlenTooSmall),
        (with(3, 19), E::Ipv4IplenSmallerThanHlen),
        (with(3, 41), E::Ipv4TruncPkt),
    ] {
        assert_eq!((events(&packet), packet.is_invalid(), packet.src()), (vec![event], true, None));
        assert!(!packet.wants_flow());
    }
    assert_eq!(events(&v4(&ipv4(58, &[0; 8]))), [E::Ipv4Icmpv6]);
}

#[test]
fn ipv4_options_reach_the_descriptor() {
    let packet = v4(&ipv4_with(17, &[0x94, 4, 0, 0, 1, 1, 1, 0], 0, &udp(1, 2, &[])));
    let ip = packet.ipv4().unwrap();
    assert_eq!(ip.options, IpOptions::ROUTER_ALERT | IpOptions::NOP | IpOptions::EOL);
    assert_eq!((ip.option_count, ip.header_len), (5, 28));
    assert_eq!(packet.ports(), Some((1, 2)));
    // A list that cannot be walked makes the whole header invalid.
    let packet =
        v4(&ipv4_with(17, &[0x82, 2, 0xf1, 0x35, 0, 0, 0xde, 0xad, 0xbe, 0xef, 0xaa, 0], 0, &udp(1, 2, &[])));
    assert_eq!(events(&packet), [E::Ipv4OptPadRequired, E::Ipv4OptInvalidLen, E::Ipv4OptInvalidLen]);
    assert_eq!(packet.src(), None);
}

#[test]
fn ipv4_fragments_are_left_to_be_reassembled() {
    for (field, offset, more) in [(0x2000u16, 0, true), (0x2001, 8, true), (0x0003, 24, false)] {
        let bytes = eth(0x0800, &ipv4_with(17, &[], field, b"12345678"));
        let packet = one(&bytes);
        assert!(packet.is_fragment() && !packet.wants_flow());
        let fragment = packet.ipv4().unwrap().fragment;
        assert_eq!((fragment.offset, fragment.more), (offset, more));
        assert_eq!(PacketView::new(&bytes, &packet).fragment_data(), Some(&b"12345678"[..]));
        assert_eq!((packet.transport, packet.payload_len), (TransportLayer::None, 0));
    }
}

#[test]
fn a_reassembled_datagram_keeps_what_surrounds_its_fragments() {
    let mut decoder = Decoder::default();
    let mut out = DecodeOutput::new();
    let frame = eth(0x8100, &vlan(5, 0x0800, &ipv4_with(17, &[], 0x2000, &[0; 8])));
    decoder.decode(bartizan_packet::LinkType::ETHERNET, &frame, 60, &mut out);
    let fragment = out.outer().unwrap().clone();
    let whole = [&frame[..18], &ipv4_with(17, &[], 0, &udp(7, 9, b"rebuilt"))].concat();
    decoder.decode_reassembled(&fragment, &whole, &mut out);
    let packet = out.outer().unwrap();
    assert_eq!((packet.source, packet.ports(), packet.recursion), (PacketSource::Defrag, Some((7, 9)), 0));
    assert_eq!(packet.vlan.as_slice(), [5]);
    assert_eq!(decoder.counters().pkts, 1, "only frames count as packets");
    assert_eq!(decoder.counters().ipv4, 2);
}

#[test]
fn ipv6_fields() {
    let bytes = eth(0x86dd, &ipv6(6, &tcp(&[], b"data")));
    let packet = one(&bytes);
    let ip = packet.ipv6().unwrap();
    assert_eq!((ip.proto, ip.hop_limit, ip.traffic_class, ip.flow_label), (6, 64, 0x12, 0x34567));
    assert_eq!(packet.src(), Some(IpAddr::from(SRC6)));
    assert_eq!(PacketView::new(&bytes, &packet).payload(), b"data");
    assert_eq!(PacketView::new(&bytes, &packet).ip_extensions(), Some(&[][..]));
}

#[test]
fn ipv6_headers_that_cannot_be() {
    let good = ipv6(6, &tcp(&[], &[]));
    let mut version = good.clone();
    version[0] = 0x51;
    for (packet, event) in [
        (v6(&good[..39]), E::Ipv6PktTooSmall),
        (v6(&version), E::Ipv6WrongIpVersion),
        (v6(&good[..59]), E::Ipv6TruncPkt),
    ] {
        assert_eq!((events(&packet), packet.is_invalid(), packet.src()), (vec![event], true, None));
    }
    assert_eq!(events(&v6(&ipv6(1, &[0; 8]))), [E::Ipv6Icmpv4]);
    assert_eq!(events(&v6(&ipv6(200, &[0; 8]))), [E::Ipv6UnknownNextHeader]);
    assert_eq!(v6(&ipv6(200, &[0; 8])).proto(), Some(200));
}

/// An extension header of 8 bytes.
fn ext(next: u8, body: [u8; 6]) -> Vec<u8> {
    join(&[&[next, 0], &body])
}

const ALERT: [u8; 6] = [5, 2, 0, 0, 0, 0];

#[test]
fn ipv6_extension_headers_are_walked() {
    let auth = |next: u8| join(&[&[next, 1, 0, 0], &[0, 0, 0, 1, 0, 0, 0, 2]]);
    let bytes = eth(
        0x86dd,
        &ipv6(
            0,
            &join(&[
                &ext(60, ALERT),
                &ext(43, ALERT),
                &ext(60, [2, 0, 0, 0, 0, 0]),
                &ext(135, ALERT),
                &ext(139, [0; 6]),
                &ext(140, [0; 6]),
                &ext(51, [0; 6]),
                &auth(17),
                &udp(5, 6, b"deep"),
            ]),
        ),
    );
    let packet = one(&bytes);
    assert!(events(&packet).is_empty(), "{:?}", events(&packet));
    let ip = packet.ipv6().unwrap();
    assert_eq!(
        ip.ext_headers,
        Ipv6ExtHeaders::HOP_BY_HOP
            | Ipv6ExtHeaders::DESTINATION
            | Ipv6ExtHeaders::ROUTING
            | Ipv6ExtHeaders::MOBILITY
            | Ipv6ExtHeaders::HIP
            | Ipv6ExtHeaders::SHIM6
            | Ipv6ExtHeaders::AUTHENTICATION
    );
    assert_eq!((ip.proto, ip.ext_len, ip.routing_type), (17, 68, Some(2)));
    let view = PacketView::new(&bytes, &packet);
    assert_eq!(view.payload(), b"deep");
    assert_eq!(view.ip_extensions().map(<[u8]>::len), Some(68));
}

#[test]
fn ipv6_extension_headers_that_are_odd() {
    let udp = udp(5, 6, b"deep");
    let cases: &[(u8, Vec<u8>, &[E])] = &[
        (0, join(&[&ext(0, ALERT), &ext(17, ALERT), &udp]), &[E::Ipv6ExthdrDuplHh]),
        (43, join(&[&ext(43, [2; 6]), &ext(17, [2; 6]), &udp]), &[E::Ipv6ExthdrDuplRh]),
        (43, join(&[&ext(17, [0; 6]), &udp]), &[E::Ipv6RhType0]),
        (60, join(&[&ext(60, ALERT), &ext(60, ALERT), &ext(17, ALERT), &udp]), &[E::Ipv6ExthdrDuplDh]),
        (60, join(&[&ext(17, [1, 4, 0, 0, 0, 0]), &udp]), &[E::Ipv6DstoptsOnlyPadding]),
        (60, join(&[&ext(17, [0x1e, 4, 0, 0, 0, 0]), &udp]), &[E::Ipv6DstoptsUnknownOpt]),
        (0, join(&[&ext(17, [5, 2, 0, 0, 1, 9]), &udp]), &[E::Ipv6ExthdrInvalidOptlen]),
        (44, join(&[&[17, 0, 0, 0, 0, 0, 0, 1], &udp]), &[E::Ipv6ExthdrUselessFh]),
        (
            44,
            join(&[&[17, 3, 0, 0, 0, 0, 0, 1], &udp]),
            &[E::Ipv6FhNonZeroReservedField, E::Ipv6ExthdrUselessFh],
        ),
        (
            44,
            join(&[&[44, 0, 0, 0, 0, 0, 0, 1], &[17, 0, 0, 9, 0, 0, 0, 1], &udp]),
            &[E::Ipv6ExthdrUselessFh, E::Ipv6ExthdrDuplFh],
        ),
        (51, join(&[&[17, 1, 9, 0], &[0; 8], &udp]), &[E::Ipv6ExthdrAhResNotNull]),
    ];
    for (next, rest, expected) in cases {
        let packet = v6(&ipv6(*next, rest));
        assert_eq!(events(&packet), *expected, "{next}");
        assert_eq!(packet.ports(), Some((5, 6)), "{next}");
    }
}

#[test]
fn ipv6_extension_headers_that_end_the_packet() {
    assert_eq!(events(&v6(&ipv6(59, &[]))), []);
    assert_eq!(events(&v6(&ipv6(59, &[1]))), [E::Ipv6DataAfterNoneHeader]);
    for (next, rest) in
        [(0, &[17, 1, 0, 0, 0, 0, 0, 0][..]), (43, &[17]), (44, &[17, 0, 0, 0]), (51, &[17, 9, 0, 0])]
    {
        let packet = v6(&ipv6(next, rest));
        assert_eq!((events(&packet), packet.is_invalid()), (vec![E::Ipv6TruncExthdr], true), "{next}");
    }
    assert_eq!(events(&v6(&ipv6(60, &join(&[&ext(41, ALERT), &[0; 8]])))), [E::Ipv6UnknownNextHeader]);
}

#[test]
fn ipv6_fragments_say_where_their_pieces_lie() {
    let rest = join(&[&ext(44, ALERT), &[17, 0, 0x05, 0x01, 1, 2, 3, 4], b"12345678"]);
    let bytes = eth(0x86dd, &ipv6(0, &rest));
    let packet = one(&bytes);
    assert!(packet.is_fragment() && events(&packet).is_empty());
    let fragment = packet.ipv6().unwrap().fragment.unwrap();
    assert_eq!(
        (fragment.offset, fragment.more, fragment.id, fragment.next_header),
        (0x500, true, 0x0102_0304, 17)
    );
    assert_eq!((fragment.header, fragment.next_header_field), (14 + 48, 14 + 40));
    assert_eq!(bytes[fragment.next_header_field as usize], 44);
    assert_eq!(PacketView::new(&bytes, &packet).fragment_data(), Some(&b"12345678"[..]));
    // The fixed header names the fragment header when no other is in between.
    let bytes = eth(0x86dd, &ipv6(44, &[17, 0, 0, 1, 0, 0, 0, 1, 9, 9, 9]));
    let packet = one(&bytes);
    assert_eq!(events(&packet), [E::Ipv6FragInvalidLength]);
    assert_eq!(packet.ipv6().unwrap().fragment.unwrap().next_header_field, 14 + 6);
}

#[test]
fn tcp_fields_are_the_same_over_both_versions() {
    let segment = tcp(&[2, 4, 5, 0xb4, 3, 3, 7, 0], b"GET /");
    for (kind, ip) in [(0x0800, ipv4(6, &segment)), (0x86dd, ipv6(6, &segment))] {
        let bytes = eth(kind, &ip);
        let packet = one(&bytes);
        let tcp = packet.transport.tcp().unwrap();
        assert_eq!((tcp.sport, tcp.dport, tcp.seq, tcp.ack), (0xc001, 80, 0x0102_0304, 0x0506_0708));
        assert_eq!((tcp.flags, tcp.window, tcp.urgent), (TcpFlags::PSH | TcpFlags::ACK, 0x2000, 9));
        assert_eq!((tcp.options.mss, tcp.options.wscale, tcp.header_len), (Some(1460), Some(7), 28));
        let view = PacketView::new(&bytes, &packet);
        assert_eq!(view.payload(), b"GET /");
        let kinds: Vec<u8> = view.tcp_options().map(|option| option.kind).collect();
        assert_eq!(kinds, [2, 3]);
        assert_eq!(packet.l4_len(), 33);
    }
}

#[test]
fn broken_tcp_and_udp() {
    let segment = tcp(&[], &[]);
    let with = |at: usize, value: u8| {
        let mut bytes = segment.clone();
        bytes[at] = value;
        bytes
    };
    for wrap in [|rest: &[u8]| v4(&ipv4(6, rest)), |rest: &[u8]| v6(&ipv6(6, rest))] {
        for (bytes, event) in [
            (segment[..19].to_vec(), E::TcpPktTooSmall),
            (with(12, 0x60), E::TcpHlenTooSmall),
            (with(12, 0x40), E::TcpInvalidOptlen),
        ] {
            let packet = wrap(&bytes);
            assert_eq!((events(&packet), packet.is_invalid(), packet.ports()), (vec![event], true, None));
            assert!(packet.src().is_some(), "the network layer stays");
        }
    }
    for wrap in [|rest: &[u8]| v4(&ipv4(17, rest)), |rest: &[u8]| v6(&ipv6(17, rest))] {
        assert_eq!(events(&wrap(&[0; 7])), [E::UdpHlenTooSmall]);
        assert_eq!(events(&wrap(&[0, 1, 0, 2, 0, 9, 0, 0])), [E::UdpPktTooSmall]);
        assert_eq!(events(&wrap(&[0, 1, 0, 2, 0, 7, 0, 0])), [E::UdpLenInvalid]);
        // Bytes after UDP's length are no payload.
        let packet = wrap(&[0, 1, 0, 2, 0, 9, 0, 0, b'x', b'y']);
        assert_eq!((events(&packet), packet.payload_len), (vec![], 1));
    }
}

#[test]
fn sctp_esp_and_ah() {
    let packet = v4(&ipv4(132, &[0, 1, 0, 2, 9, 8, 7, 6, 0, 0, 0, 0, 1]));
    assert_eq!((packet.ports(), packet.payload_len), (Some((1, 2)), 1));
    assert_eq!(events(&v6(&ipv6(132, &[0; 11]))), [E::SctpPktTooSmall]);
    for packet in [v4(&ipv4(50, &[0, 0, 0, 7, 0, 0, 0, 8, 9])), v6(&ipv6(50, &[0, 0, 0, 7, 0, 0, 0, 8, 9]))] {
        let TransportLayer::Esp(esp) = packet.transport else { panic!("{packet:#?}") };
        assert_eq!((esp.spi, esp.seq, packet.payload_len, packet.wants_flow()), (7, 8, 1, true));
    }
    assert_eq!(events(&v4(&ipv4(50, &[0; 7]))), [E::EspPktTooSmall]);
    let packet = v4(&ipv4(51, &[6, 4, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8]));
    let TransportLayer::Ah(ah) = packet.transport else { panic!("{packet:#?}") };
    assert_eq!((ah.spi, ah.seq, ah.next_header), (7, 8, 6));
    assert!(events(&packet).is_empty());
}

#[test]
fn icmp_messages() {
    let packet = v4(&ipv4(1, &[8, 0, 0, 0, 0x12, 0x34, 0, 7, b'p']));
    let icmp = packet.transport.icmp().unwrap();
    assert_eq!((icmp.kind, icmp.id, icmp.seq, packet.payload_len), (8, Some(0x1234), Some(7), 1));
    assert_eq!(events(&v4(&ipv4(1, &[8, 1, 0, 0, 0, 0, 0, 0]))), [E::Icmpv4UnknownCode]);
    assert_eq!(events(&v4(&ipv4(1, &[99, 0, 0, 0, 0, 0, 0, 0]))), [E::Icmpv4UnknownType]);
    assert_eq!(events(&v4(&ipv4(1, &[8, 0, 0]))), [E::Icmpv4PktTooSmall]);
    assert_eq!(events(&v4(&ipv4(1, &[13, 0, 0, 0, 0, 0, 0, 0]))), [E::Icmpv4Ipv4TruncPkt]);
    let timestamps = v4(&ipv4(1, &[13, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!((events(&timestamps), timestamps.payload_len), (vec![], 0));
    assert_eq!(events(&v4(&ipv4(1, &[9, 0, 0, 0, 1, 2, 0, 0]))), [E::Icmpv4Ipv4TruncPkt]);
}

#[test]
fn icmp_errors_quote_a_packet() {
    let quoted = ipv4_with(6, &[1, 1, 1, 0], 0, &tcp(&[], &[]));
    let packet = v4(&ipv4(1, &join(&[&[3, 4, 0, 0, 0, 0, 5, 0xdc], &quoted[..32]])));
    let icmp = packet.transport.icmp().unwrap();
    let quote = icmp.quoted.unwrap();
    assert_eq!((quote.ports, quote.tcp_seq, icmp.mtu), (Some((0xc001, 80)), Some(0x0102_0304), Some(1500)));
    assert_eq!((quote.src, quote.dst, quote.proto), (IpAddr::from(SRC4), IpAddr::from(DST4), 6));
    assert_eq!(quote.offset, 14 + 20 + 8);
    let error =
        |kind: u8, code: u8, rest: &[u8]| v4(&ipv4(1, &join(&[&[kind, code, 0, 0, 0, 0, 0, 0], rest])));
    assert_eq!(events(&error(3, 16, &quoted)), [E::Icmpv4UnknownCode]);
    assert_eq!(events(&error(5, 4, &quoted)), [E::Icmpv4UnknownCode]);
    assert_eq!(events(&error(11, 2, &quoted)), [E::Icmpv4UnknownCode]);
    assert_eq!(events(&error(11, 0, &quoted[..19])), [E::Icmpv4Ipv4TruncPkt]);
    assert_eq!(events(&error(12, 0, &ipv6(6, &[]))), [E::Icmpv4Ipv4UnknownVer]);
    assert_eq!(events(&error(3, 0, &[])), []);
    assert_eq!(events(&error(4, 0, &[])), [E::Icmpv4Ipv4TruncPkt]);
}

#[test]
fn icmpv6_messages() {
    let message = |hops: u8, bytes: &[u8]| v6(&ipv6_hops(58, hops, bytes));
    let packet = message(64, &[128, 0, 0, 0, 0x12, 0x34, 0, 7, b'p']);
    let icmp = packet.transport.icmp().unwrap();
    assert_eq!((icmp.kind, icmp.id, icmp.seq, packet.payload_len), (128, Some(0x1234), Some(7), 1));
    let solicitation = message(255, &[135, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!((events(&solicitation), solicitation.payload_len), (vec![], 6));
    assert_eq!(events(&message(64, &[128, 0, 0])), [E::Icmpv6PktTooSmall]);
    for (kind, code, event) in [
        (128, 1, E::Icmpv6UnknownCode),
        (1, 7, E::Icmpv6UnknownCode),
        (138, 3, E::Icmpv6UnknownCode),
        (155, 4, E::Icmpv6UnknownCode),
        (155, 133, E::Icmpv6UnknownCode),
        (5, 0, E::Icmpv6UnassignedType),
        (100, 0, E::Icmpv6ExperimentationType),
        (201, 0, E::Icmpv6ExperimentationType),
        (127, 0, E::Icmpv6UnknownType),
        (160, 0, E::Icmpv6UnassignedType),
        (255, 0, E::Icmpv6UnassignedType),
        (130, 0, E::Icmpv6MldMessageWithInvalidHl),
    ] {
        assert_eq!(events(&message(64, &[kind, code, 0, 0, 0, 0, 0, 0])), [event], "{kind} {code}");
    }
    assert_eq!(events(&message(1, &[131, 0, 0, 0, 0, 0, 0, 0])), []);
    assert_eq!(events(&message(64, &[155, 129, 0, 0, 0, 0, 0, 0])), []);
}

#[test]
fn icmpv6_errors_quote_a_packet() {
    let quoted = ipv6(17, &udp(5, 6, &[]));
    let error = |head: [u8; 8], rest: &[u8]| v6(&ipv6(58, &join(&[&head, rest])));
    let packet = error([2, 0, 0, 0, 0, 0, 5, 0], &quoted);
    let icmp = packet.transport.icmp().unwrap();
    let quote = icmp.quoted.unwrap();
    assert_eq!((quote.ports, quote.proto, icmp.mtu), (Some((5, 6)), 17, Some(1280)));
    assert_eq!(quote.src, IpAddr::from(SRC6));
    assert_eq!(events(&error([1, 0, 0, 0, 0, 0, 0, 0], &quoted[..39])), [E::Icmpv6Ipv6TruncPkt]);
    assert_eq!(events(&error([3, 0, 0, 0, 0, 0, 0, 0], &ipv4(6, &[0; 40]))), [E::Icmpv6Ipv6UnknownVersion]);
}

#[test]
fn quoted_packets_say_which_flow_they_are_of() {
    let error = |quoted: &[u8]| v6(&ipv6(58, &join(&[&[2, 0, 0, 0, 0, 0, 5, 0], quoted])));
    let quoted = |packet: &bartizan_packet::Decoded| packet.transport.icmp().unwrap().quoted.unwrap();
    // After extension headers: hop-by-hop, destination options, a first fragment.
    let body = join(&[
        &[60, 0, 1, 4, 0, 0, 0, 0],
        &[44, 0, 1, 4, 0, 0, 0, 0],
        &[17, 0, 0, 1, 0, 0, 0, 9],
        &udp(5, 6, &[]),
    ]);
    let quote = quoted(&error(&ipv6(0, &body)));
    assert_eq!((quote.proto, quote.ports), (17, Some((5, 6))));
    // A later fragment has no ports, and neither has a quote that is cut before them.
    let later = quoted(&error(&ipv6(44, &join(&[&[17, 0, 0, 8, 0, 0, 0, 9], &udp(5, 6, &[])]))));
    assert_eq!((later.proto, later.ports), (17, None));
    assert_eq!(quoted(&error(&ipv6(0, &[17]))).ports, None);
    let v4_error = |quoted: &[u8]| v4(&ipv4(1, &join(&[&[11, 0, 0, 0, 0, 0, 0, 0], quoted])));
    let later = quoted(&v4_error(&ipv4_with(17, &[], 5, &udp(5, 6, &[]))));
    assert_eq!((later.proto, later.ports), (17, None));
    // Echoes and ESP.
    let ping = quoted(&v4_error(&ipv4(1, &[8, 0, 0, 0, 0x12, 0x34, 0, 1]))).icmp.unwrap();
    assert_eq!((ping.kind, ping.code, ping.id), (8, 0, Some(0x1234)));
    let ping = quoted(&error(&ipv6(58, &[128, 0, 0, 0, 0x12, 0x34, 0, 1]))).icmp.unwrap();
    assert_eq!((ping.kind, ping.id), (128, Some(0x1234)));
    assert_eq!(quoted(&v4_error(&ipv4(50, &[0, 0, 1, 0, 0, 0, 0, 1]))).spi, Some(256));
}

#[test]
fn an_error_quotes_a_packet_whatever_its_code() {
    let quoted = |packet: &Decoded| packet.transport.icmp().unwrap().quoted.map(|quoted| quoted.ports);
    let (ask4, ask6) = (ipv4(17, &udp(5, 6, &[])), ipv6(17, &udp(5, 6, &[])));
    for kind in [3, 4, 5, 11, 12] {
        for code in 0..=255 {
            let error = v4(&ipv4(1, &join(&[&[kind, code, 0, 0, 0, 0, 0, 0], &ask4])));
            assert_eq!(quoted(&error), Some(Some((5, 6))), "{kind} {code}");
        }
        // No quote is missing where the meaning of the code is unknown.
        let error = v4(&ipv4(1, &[kind, 200, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!((quoted(&error), error.is_invalid()), (None, false));
    }
    for kind in 1..=4 {
        for code in 0..=255 {
            let error = v6(&ipv6(58, &join(&[&[kind, code, 0, 0, 0, 0, 0, 0], &ask6])));
            assert_eq!(quoted(&error), Some(Some((5, 6))), "{kind} {code}");
        }
        let error = v6(&ipv6(58, &[kind, 200, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!((quoted(&error), error.is_invalid()), (None, false));
    }
}

#[test]
fn a_packet_and_its_quote_have_one_protocol() {
    let nothing = |header: u8| [header, 0, 0, 0, 0, 0, 0, 0];
    let bodies: [(u8, Vec<u8>, u8); 12] = [
        (59, Vec::new(), 59),
        (0, nothing(59).to_vec(), 59),
        (60, nothing(59).to_vec(), 59),
        (43, nothing(59).to_vec(), 59),
        (44, nothing(59).to_vec(), 59),
        (51, [59, 1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1].to_vec(), 59),
        (135, nothing(59).to_vec(), 135),
        (139, nothing(59).to_vec(), 139),
        (140, nothing(17).iter().copied().chain(udp(5, 6, &[])).collect(), 17),
        (60, nothing(97).iter().copied().chain([0x30, 0, 1, 2]).collect(), 97),
        (1, [8, 0, 0, 0, 0, 0, 0, 0].to_vec(), 1),
        (115, [0; 8].to_vec(), 115),
    ];
    for (first, body, protocol) in bodies {
        let packet = ipv6(first, &body);
        assert_eq!(v6(&packet).carried_protocol(), Some(protocol), "{first}");
        assert!(v6(&packet).can_have_flow());
        let error = v6(&ipv6(58, &join(&[&[2, 0, 0, 0, 0, 0, 5, 0], &packet])));
        assert_eq!(error.transport.icmp().unwrap().quoted.unwrap().proto, protocol, "{first}");
    }
    for protocol in 0..=255 {
        let packet = v4(&ipv4(protocol, &[0x45; 40]));
        assert_eq!(packet.carried_protocol(), Some(protocol));
    }
}

#[test]
fn an_error_is_about_a_packet_of_its_receiver() {
    let back = ipv4_with(6, &[], 0, &tcp(&[], &[]));
    let error = v4(&ipv4(1, &join(&[&[3, 1, 0, 0, 0, 0, 0, 0], &back])));
    assert!(error.transport.icmp().unwrap().quoted.is_some() && error.about().is_none());
    let mut turned = back.clone();
    turned[12..16].copy_from_slice(&DST4);
    turned[16..20].copy_from_slice(&SRC4);
    for kind in [3, 4, 5, 11, 12] {
        let error = v4(&ipv4(1, &join(&[&[kind, 0, 0, 0, 0, 0, 0, 0], &turned])));
        assert_eq!(error.about().map(|quoted| quoted.src), Some(IpAddr::from(DST4)));
    }
    assert!(v4(&ipv4(1, &join(&[&[8, 0, 0, 0, 0, 0, 0, 0], &turned]))).about().is_none());
}

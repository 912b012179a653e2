// SPDX-License-Identifier: Apache-2.0
//! Properties of the decoder on arbitrary bytes, and agreement with an independent decoder on well-formed
//! packets.
use crate::build;

use bartizan_packet::{
    DecodeOutput, Decoded, Decoder, DecoderConfig, LinkType, PacketView, TransportLayer, TunnelPorts,
    VxlanReservedBits,
};
use etherparse::{PacketBuilder, SlicedPacket};
use proptest::collection::vec;
use proptest::prelude::*;

/// Every tunnel, on every port, so that arbitrary bytes nest as deep as possible.
fn open_config() -> DecoderConfig {
    let any = TunnelPorts { enabled: true, ports: bartizan_packet::PortList::ANY };
    DecoderConfig {
        teredo: any,
        vxlan: any,
        geneve: any,
        gtp: any,
        vxlan_reserved: VxlanReservedBits::Permissive,
        ..DecoderConfig::default()
    }
}

/// Checks the invariants of any descriptor.
fn check(bytes: &[u8], packet: &Decoded) -> Result<(), TestCaseError> {
    prop_assert!(packet.start <= packet.end && packet.end as usize <= bytes.len());
    prop_assert!(packet.layers <= 16);
    let end = packet.payload + packet.payload_len;
    prop_assert!(end <= packet.end, "payload ends at {} of {}", end, packet.end);
    if packet.src().is_some() {
        prop_assert!(packet.start <= packet.l3);
        if packet.transport != TransportLayer::None {
            prop_assert!(packet.l3 < packet.l4 && packet.l4 <= packet.payload);
        }
    }
    let view = PacketView::new(bytes, packet);
    prop_assert_eq!(view.payload().len(), packet.payload_len as usize);
    prop_assert_eq!(view.packet().len(), packet.length() as usize);
    let _ = (view.ethernet(), view.ethernet_type(), view.mac_addresses(), view.fragment_data());
    let _ = (view.ip_header(), view.ip_extensions(), view.l4_header());
    let _ = (view.ip_checksum_ok(), view.l4_checksum_ok());
    prop_assert!(view.tcp_options().count() <= 40);
    let sack = packet.transport.tcp().map_or(0, |tcp| usize::from(tcp.options.sack_blocks));
    prop_assert_eq!(view.sack_blocks().count(), sack);
    Ok(())
}

fn run(link: LinkType, bytes: &[u8]) -> Vec<Decoded> {
    let mut out = DecodeOutput::new();
    Decoder::new(open_config()).decode(link, bytes, bytes.len() as u32, &mut out);
    out.packets().to_vec()
}

/// Bytes that often continue as a header: arbitrary ones after the beginning of a known one.
fn seeded() -> impl Strategy<Value = Vec<u8>> {
    let starts: Vec<Vec<u8>> = vec![
        vec![],
        build::eth(0x0800, &[0x45, 0]),
        build::eth(0x86dd, &[0x60, 0]),
        build::eth(0x8100, &[]),
        build::eth(0x8847, &[]),
        build::eth(0x8864, &[]),
        build::eth(0x894f, &[]),
        build::eth(0x8903, &[]),
        build::ipv4(47, &[]),
        build::ipv4(17, &[]),
        build::ipv6(0, &[]),
        vec![0x45],
        vec![0x60],
        vec![2, 0, 0, 0, 0x45],
        vec![0xff, 3, 0, 0x21, 0x45],
    ];
    (prop::sample::select(starts), vec(any::<u8>(), 0..200))
        .prop_map(|(start, rest)| build::join(&[&start, &rest]))
}

/// A valid frame with tunnels, as input for damage.
fn nested_frame() -> Vec<u8> {
    use build::*;
    let tcp = tcp(&[2, 4, 5, 0xb4, 1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2], b"payload");
    let deep = ipv6(0, &join(&[&[60, 0, 5, 2, 0, 0, 1, 0], &[6, 0, 1, 4, 0, 0, 0, 0], &tcp]));
    let gre = gre([0x20, 0], 0x6558, &[0, 0, 1, 0], &eth(0x8100, &vlan(9, 0x86dd, &deep)));
    let inner = ipv4_with(47, &[0x94, 4, 0, 0, 1, 1, 1, 0], 0, &gre);
    eth(0x0800, &ipv4(17, &udp(7, 4789, &vxlan(5, &eth(0x0800, &inner)))))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in seeded(), wire_len in any::<u32>()) {
        let mut out = DecodeOutput::new();
        let mut decoder = Decoder::new(open_config());
        for link in LinkType::SUPPORTED.iter().copied().chain([LinkType(147)]) {
            decoder.decode(link, &bytes, wire_len, &mut out);
            prop_assert!(!out.packets().is_empty() && out.packets().len() <= 16);
            for packet in out.packets() {
                check(&bytes, packet)?;
            }
            // Nothing of the frame before is left: a fresh decoder and output find the same.
            let mut fresh = DecodeOutput::new();
            Decoder::new(open_config()).decode(link, &bytes, wire_len, &mut fresh);
            prop_assert_eq!(out.packets(), fresh.packets());
        }
    }

    #[test]
    fn damaged_frames_never_panic(at in 0usize..200, value in any::<u8>(), cut in 0usize..200) {
        let mut bytes = nested_frame();
        let len = bytes.len();
        bytes[at % len] = value;
        bytes.truncate(len - cut % len);
        for packet in run(LinkType::ETHERNET, &bytes) {
            check(&bytes, &packet)?;
        }
    }
}

#[test]
fn the_nested_frame_is_decoded_to_its_end() {
    let bytes = nested_frame();
    let packets = run(LinkType::ETHERNET, &bytes);
    assert_eq!(packets.len(), 3);
    assert_eq!(PacketView::new(&bytes, &packets[2]).payload(), b"payload");
    assert_eq!(PacketView::new(&bytes, &packets[2]).sack_blocks().collect::<Vec<_>>(), [(1, 2)]);
}

/// A transport layer to build.
#[derive(Clone, Debug)]
enum L4 {
    Tcp { seq: u32, ack: Option<u32>, window: u16, syn: bool, scale: u8 },
    Udp,
    Icmp { id: u16, seq: u16 },
}

fn l4() -> impl Strategy<Value = L4> {
    prop_oneof![
        (any::<u32>(), any::<Option<u32>>(), any::<u16>(), any::<bool>(), 0u8..15)
            .prop_map(|(seq, ack, window, syn, scale)| L4::Tcp { seq, ack, window, syn, scale }),
        Just(L4::Udp),
        (any::<u16>(), any::<u16>()).prop_map(|(id, seq)| L4::Icmp { id, seq }),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    v6: bool,
    src: [u8; 16],
    dst: [u8; 16],
    ttl: u8,
    vlan: Option<(u16, Option<u16>)>,
    ports: (u16, u16),
    l4: L4,
    payload: Vec<u8>,
}

fn case() -> impl Strategy<Value = Case> {
    (
        (any::<bool>(), any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u8>()),
        any::<Option<(u16, Option<u16>)>>(),
        any::<(u16, u16)>(),
        l4(),
        vec(any::<u8>(), 0..1200),
    )
        .prop_map(|((v6, src, dst, ttl), vlan, ports, l4, payload)| Case {
            v6,
            src,
            dst,
            ttl,
            vlan: vlan.map(|(outer, inner)| (outer & 0xfff, inner.map(|id| id & 0xfff))),
            ports,
            l4,
            payload,
        })
}

/// Builds the frame with the other library.
fn build_case(case: &Case) -> Vec<u8> {
    let mut bytes = Vec::new();
    let eth = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let id = |id: u16| etherparse::VlanId::try_new(id).unwrap();
    let head = |part: &[u8; 16]| [part[0], part[1], part[2], part[3]];
    macro_rules! finish {
        ($link:expr) => {{
            let ip = if case.v6 {
                $link.ipv6(case.src, case.dst, case.ttl)
            } else {
                $link.ipv4(head(&case.src), head(&case.dst), case.ttl)
            };
            match case.l4 {
                L4::Tcp { seq, ack, window, syn, scale } => {
                    use etherparse::TcpOptionElement as O;
                    let mut tcp = ip.tcp(case.ports.0, case.ports.1, seq, window);
                    if let Some(ack) = ack {
                        tcp = tcp.ack(ack);
                    }
                    if syn {
                        tcp = tcp.syn();
                    }
                    let options = [
                        O::MaximumSegmentSize(1234),
                        O::SelectiveAcknowledgementPermitted,
                        O::Timestamp(seq, window.into()),
                        O::WindowScale(scale),
                    ];
                    tcp.options(&options).unwrap().write(&mut bytes, &case.payload).unwrap();
                }
                L4::Udp => ip.udp(case.ports.0, case.ports.1).write(&mut bytes, &case.payload).unwrap(),
                L4::Icmp { id, seq } if case.v6 => {
                    ip.icmpv6_echo_request(id, seq).write(&mut bytes, &case.payload).unwrap();
                }
                L4::Icmp { id, seq } => {
                    ip.icmpv4_echo_request(id, seq).write(&mut bytes, &case.payload).unwrap()
                }
            }
        }};
    }
    match case.vlan {
        None => finish!(eth),
        Some((outer, None)) => finish!(eth.single_vlan(id(outer))),
        Some((outer, Some(inner))) => finish!(eth.double_vlan(id(outer), id(inner))),
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn agrees_with_etherparse(case in case(), flip in any::<prop::sample::Index>()) {
        let bytes = build_case(&case);
        let mut out = DecodeOutput::new();
        // No tunnels: the other library does not open them.
        let config = DecoderConfig {
            teredo: TunnelPorts::on(&[]),
            vxlan: TunnelPorts::on(&[]),
            geneve: TunnelPorts::on(&[]),
            ..DecoderConfig::default()
        };
        Decoder::new(config).decode(LinkType::ETHERNET, &bytes, 0, &mut out);
        let packet = out.outer().unwrap().clone();
        let theirs = SlicedPacket::from_ethernet(&bytes).unwrap();
        prop_assert!(packet.events.is_empty(), "{:?}", packet.events);
        let ids: Vec<u16> = theirs.vlan_ids().iter().map(|id| id.value()).collect();
        prop_assert_eq!(packet.vlan.as_slice(), ids.as_slice());
        match theirs.net.as_ref().unwrap() {
            etherparse::NetSlice::Ipv4(ip) => {
                let mine = packet.ipv4().unwrap();
                prop_assert_eq!(mine.src, ip.header().source_addr());
                prop_assert_eq!(mine.dst, ip.header().destination_addr());
                prop_assert_eq!((mine.ttl, mine.total_len), (ip.header().ttl(), ip.header().total_len()));
                prop_assert_eq!(mine.proto, ip.header().protocol().0);
            }
            etherparse::NetSlice::Ipv6(ip) => {
                let mine = packet.ipv6().unwrap();
                prop_assert_eq!(mine.src, ip.header().source_addr());
                prop_assert_eq!(mine.dst, ip.header().destination_addr());
                prop_assert_eq!((mine.hop_limit, mine.payload_len), (ip.header().hop_limit(), ip.header().payload_length()));
                prop_assert_eq!(mine.proto, ip.header().next_header().0);
            }
            etherparse::NetSlice::Arp(_) => prop_assert!(false),
        }
        let view = PacketView::new(&bytes, &packet);
        match theirs.transport.as_ref().unwrap() {
            etherparse::TransportSlice::Tcp(tcp) => {
                let mine = packet.transport.tcp().unwrap();
                prop_assert_eq!((mine.sport, mine.dport), (tcp.source_port(), tcp.destination_port()));
                prop_assert_eq!((mine.seq, mine.ack), (tcp.sequence_number(), tcp.acknowledgment_number()));
                prop_assert_eq!(mine.window, tcp.window_size());
                prop_assert_eq!(mine.options.mss, Some(1234));
                let L4::Tcp { seq, window, scale, .. } = case.l4 else { unreachable!() };
                prop_assert_eq!(mine.options.timestamps, Some((seq, u32::from(window))));
                prop_assert_eq!(mine.options.wscale, Some(scale));
                prop_assert!(mine.options.sack_ok);
            }
            etherparse::TransportSlice::Udp(udp) => {
                prop_assert_eq!(packet.ports(), Some((udp.source_port(), udp.destination_port())));
            }
            etherparse::TransportSlice::Igmp(_) => prop_assert!(false),
            etherparse::TransportSlice::Icmpv4(_) | etherparse::TransportSlice::Icmpv6(_) => {
                let L4::Icmp { id, seq } = case.l4 else { unreachable!() };
                let mine = packet.transport.icmp().unwrap();
                prop_assert_eq!((mine.id, mine.seq), (Some(id), Some(seq)));
            }
        }
        prop_assert_eq!(view.payload(), case.payload.as_slice());
        prop_assert_eq!(view.l4_checksum_ok(), Some(true));
        prop_assert_eq!(view.ip_checksum_ok(), if case.v6 { None } else { Some(true) });
        // One flipped bit of the payload is found.
        if !case.payload.is_empty() {
            let at = packet.payload as usize + flip.index(case.payload.len());
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            prop_assert_eq!(PacketView::new(&damaged, &packet).l4_checksum_ok(), Some(false));
        }
    }
}

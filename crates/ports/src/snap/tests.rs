// SPDX-License-Identifier: Apache-2.0
//! The ends of headers are compared with those of the decoder, and with those of the packets' builders.

use super::*;
use crate::bpf::tests::{Received, run_at};
use bartizan_packet::{DecodeOutput, Decoder, LinkType};
use bartizan_testkit::layers::{ethernet, ethernet_ip, gre, gre_with, tagged, vlan, vxlan};
use bartizan_testkit::packet::{ACK, Datagram, Ip, Piece, Segment, address};
use bartizan_testkit::tunnels::Tunnel;
use proptest::collection::vec;
use proptest::prelude::*;

const LAYERS: [HeaderLayer; 3] = [HeaderLayer::Link, HeaderLayer::Network, HeaderLayer::Transport];

fn tunnels() -> DecoderConfig {
    let mut config = DecoderConfig::default();
    config.gtp.enabled = true;
    config
}

fn program(layer: HeaderLayer, bytes: u32, max: Option<u32>, link_layer: LinkLayer) -> Vec<sock_filter> {
    let after = AfterHeaders { layer, bytes, max, tunnels: tunnels() };
    steps(&SnapLength::Headers(after), link_layer).unwrap()
}

fn kept(program: &[sock_filter], frame: &[u8]) -> u32 {
    run_at(program, Received::default(), frame)
}

/// The ends of the headers of each layer; `None`: the frame is taken whole.
fn ends(frame: &[u8], link_layer: LinkLayer) -> [Option<usize>; 3] {
    LAYERS.map(|layer| {
        let kept = kept(&program(layer, 1_000, None, link_layer), frame);
        (kept != WHOLE).then(|| kept as usize - 1_000)
    })
}

/// The innermost packet of a frame, by the decoder: IP header, transport header, payload.
fn decoded(frame: &[u8], link_type: LinkType) -> [Option<usize>; 3] {
    let mut out = DecodeOutput::new();
    Decoder::new(tunnels()).decode(link_type, frame, frame.len() as u32, &mut out);
    let packet = out.packets().last().unwrap();
    assert!(!packet.is_invalid() && packet.ports().is_some(), "{packet:?}");
    [packet.l3, packet.l4, packet.payload].map(|at| Some(at as usize))
}

/// TCP with options, UDP: as packets of both versions, plain, with IP options or extension headers, and a
/// first fragment that is the only one.
fn packets() -> Vec<(bool, Vec<u8>)> {
    let mut packets = Vec::new();
    for v6 in [false, true] {
        let plain = Ip::new(address(v6, 1), address(v6, 2), 6);
        let options = match v6 {
            false => Ip { options: [1; 40].to_vec(), ..plain.clone() },
            true => {
                let extension = |number| (number, vec![1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                let alone = (44, vec![0, 0, 0, 0, 0, 0, 7]);
                let extensions = vec![extension(0), extension(60), extension(43), alone];
                Ip { extensions, ..plain.clone() }
            }
        };
        for ip in [plain, options] {
            let raw_options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
            let segment = Segment { raw_options, ..Segment::new((40_000, 80), (1, 2), ACK, &[7; 300]) };
            packets.push((v6, ip.packet(&segment.bytes(&ip), None)));
            let ip = Ip { protocol: 17, ..ip };
            packets.push((v6, ip.packet(&Datagram::new((4_000, 5_000), &[9; 300]).bytes(&ip), None)));
        }
    }
    packets
}

#[test]
fn headers_end_where_the_decoder_finds_that_they_do() {
    let mut frames = 0;
    for (v6, packet) in packets() {
        let raw = ends(&packet, LinkLayer::RawIp);
        assert_eq!(raw, decoded(&packet, LinkType::RAW));
        assert_eq!(raw[0], Some(0));
        let mut inside = vec![(v6, packet.clone())];
        for outer6 in [false, true] {
            let end = |host| (address(outer6, host), 9_999);
            for tunnel in Tunnel::ALL {
                let around = tunnel.around((end(3), end(4)), v6, &packet).bytes();
                // Once more: the deepest one that is read.
                let twice = tunnel.around((end(5), end(6)), outer6, &around).bytes();
                inside.extend([(outer6, around), (outer6, twice)]);
            }
            let ip = Ip::new(address(outer6, 3), address(outer6, 4), 47);
            let frame = ethernet_ip(v6, &packet);
            let kind = if v6 { 0x86dd } else { 0x0800 };
            for load in [
                gre(v6, &packet),
                gre_with([0xb0, 0], kind, &[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1], &packet),
                gre_with([0x20, 0], 0x6558, &[0, 0, 0, 7], &frame),
                gre_with([0, 0], 0x88be, &[], &frame),
                gre_with([0x10, 0], 0x88be, &[0, 0, 0, 9, 0x10, 0, 0, 1, 0, 0, 0, 0], &frame),
            ] {
                inside.push((outer6, ip.packet(&load, None)));
            }
            let tagged_inside = vxlan(5, &tagged(7, frame));
            let ip = Ip { protocol: 17, ..ip };
            inside.push((outer6, ip.packet(&Datagram::new((9, 4_789), &tagged_inside).bytes(&ip), None)));
        }
        for (v6, packet) in inside {
            let kind = if v6 { 0x86dd } else { 0x0800 };
            let ppp = if v6 { 0x57 } else { 0x21 };
            let length = (packet.len() as u16 + 2).to_be_bytes();
            let session = [&[0x11, 0, 0, 1][..], &length, &[0, ppp], &packet].concat();
            let labels = [&[0, 1, 0x00, 64][..], &[0, 1, 0x01, 64], &packet].concat();
            for frame in [
                ethernet(kind, &packet),
                tagged(5, ethernet(kind, &packet)),
                ethernet(0x88a8, &vlan(5, 0x8100, &vlan(6, kind, &packet))),
                tagged(5, tagged(6, tagged(7, ethernet(kind, &packet)))),
                ethernet(0x9100, &vlan(5, 0x8847, &labels)),
                ethernet(0x8847, &labels),
                ethernet(0x8864, &session),
            ] {
                frames += 1;
                assert_eq!(
                    ends(&frame, LinkLayer::Ethernet),
                    decoded(&frame, LinkType::ETHERNET),
                    "{frame:02x?}"
                );
            }
        }
    }
    assert!(frames > 2_000, "{frames}");
}

#[test]
fn of_other_protocols_and_of_fragments() {
    let at = |link, network, transport| [Some(link), Some(network), Some(transport)];
    for v6 in [false, true] {
        let (from, to) = (address(v6, 1), address(v6, 2));
        let network = 14 + if v6 { 40 } else { 20 };
        let of = |protocol: u8, load: &[u8]| Ip::new(from, to, protocol).frame(load, None);
        let kinds = if v6 { (58, 128, 1) } else { (1, 8, 3) };
        let (icmp, echo, unreachable) = kinds;
        let quoted = Ip { options: if v6 { vec![] } else { vec![1; 8] }, ..Ip::new(to, from, 17) };
        let quoted = quoted.packet(&[1; 100], None);
        let error = [&[unreachable, 0, 0, 0, 0, 0, 0, 0][..], &quoted].concat();
        let quoted_header = if v6 { 40 } else { 28 };
        for (frame, transport) in [
            (of(132, &[1; 100]), 12),
            (of(50, &[1; 100]), 8),
            // The rest is of an unknown protocol.
            (of(89, &[1; 100]), 0),
            (of(icmp, &[&[echo][..], &[0; 99]].concat()), 8),
            (of(icmp, &error), 8 + quoted_header + 8),
            (of(47, &[0x40, 0, 8, 0, 0x45, 1, 1, 1]), 4),
            (of(47, &[0x20, 0, 0x88, 0x99, 1, 1, 1, 1, 1]), 8),
        ] {
            assert_eq!(
                ends(&frame, LinkLayer::Ethernet),
                at(14, network, network + transport),
                "{frame:02x?}"
            );
        }
        let later = Piece { offset: 1_480, more: false };
        let first = Piece { offset: 0, more: true };
        let header = if v6 { 8 } else { 0 };
        let ip = Ip { id: 77, ..Ip::new(from, to, 17) };
        let datagram = Datagram::new((4_000, 5_000), &[9; 300]).bytes(&ip);
        let end = network + header;
        assert_eq!(ends(&ip.frame(&[5; 400], Some(later)), LinkLayer::Ethernet), at(14, end, end));
        assert_eq!(ends(&ip.frame(&datagram, Some(first)), LinkLayer::Ethernet), at(14, end, end + 8));
    }
    // Over IPv6 this is an extension header.
    let signed = Ip::new(address(false, 1), address(false, 2), 51).frame(&[6; 100], None);
    assert_eq!(ends(&signed, LinkLayer::Ethernet), at(14, 34, 46));
    // A datagram to a tunnel's port that is no tunnel; a tunnel without an IP packet.
    let (from, to) = (address(false, 1), address(false, 2));
    for load in [[0; 60].to_vec(), vxlan(5, &ethernet(0x0806, &[1; 28])), vec![8; 5]] {
        let ip = Ip::new(from, to, 17);
        let frame = ip.frame(&Datagram::new((9, 4_789), &load).bytes(&ip), None);
        assert_eq!(ends(&frame, LinkLayer::Ethernet), at(14, 34, 42));
    }
}

#[test]
fn what_has_no_headers_to_count_from_is_taken_whole() {
    let ip = Ip::new(address(false, 1), address(false, 2), 6);
    let segment = Segment::new((1, 2), (3, 4), ACK, &[7; 300]).bytes(&ip);
    let good = ip.frame(&segment, None);
    let with = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    let many = Ip {
        extensions: (0..5).map(|_| (60, vec![0, 1, 4, 0, 0, 0, 0])).collect(),
        ..Ip::new(address(true, 1), address(true, 2), 6)
    };
    for frame in [
        ethernet(0x0806, &[1; 28]),
        ethernet(0x88cc, &[1; 300]),
        // 802.2 has a length in place of a type.
        ethernet(100, &[0x42; 100]),
        tagged(1, tagged(2, tagged(3, tagged(4, good.clone())))),
        with(14, 0x44),
        with(14, 0x55),
        good[..33].to_vec(),
        good[..13].to_vec(),
        Vec::new(),
        many.frame(&segment, None),
    ] {
        assert_eq!(ends(&frame, LinkLayer::Ethernet), [None; 3], "{frame:02x?}");
        let most = kept(&program(HeaderLayer::Transport, 9, Some(128), LinkLayer::Ethernet), &frame);
        assert_eq!(most, 128);
    }
    // Only the requested header is broken.
    assert_eq!(ends(&with(46, 0x40), LinkLayer::Ethernet), [Some(14), Some(34), None]);
    assert_eq!(ends(&good[..50], LinkLayer::Ethernet), [Some(14), Some(34), None]);
}

#[test]
fn a_bound_holds_for_all_frames() {
    let ip = Ip { options: vec![1; 40], ..Ip::new(address(false, 1), address(false, 2), 6) };
    let frame = ip.frame(&Segment::new((1, 2), (3, 4), ACK, &[7; 300]).bytes(&ip), None);
    let kept = |bytes, max| kept(&program(HeaderLayer::Transport, bytes, max, LinkLayer::Ethernet), &frame);
    assert_eq!([kept(0, None), kept(64, None), kept(65_535, None)], [94, 158, 94 + 65_535]);
    assert_eq!([kept(64, Some(157)), kept(64, Some(158)), kept(64, Some(159))], [157, 158, 158]);
}

/// Kernels before 6.7 give a socket's filter 20,480 bytes by default; eight for each step of the program that
/// they make of it, in which a load takes nine at most (`convert_bpf_ld_abs`).
#[test]
fn a_program_fits_into_what_kernels_give() {
    for layer in LAYERS {
        let program = program(layer, 64, Some(256), LinkLayer::Ethernet);
        let steps_of = |step: &sock_filter| if matches!(step.code, LD_H_IND | LD_B_IND) { 9 } else { 1 };
        let bytes = program.iter().map(steps_of).sum::<usize>() * 8;
        assert!(program.len() < 2_000 && bytes < 19_800, "{layer:?}: {bytes}, {} steps", program.len());
    }
}

proptest! {
    /// No frame is lost, and none cut shorter than the bytes after its link header.
    #[test]
    fn arbitrary_frames_are_kept(bytes in vec(any::<u8>(), 0..200), kind in 0usize..8) {
        let kinds: [u16; 8] = [0x0800, 0x86dd, 0x8100, 0x8847, 0x8864, 0x0800, 0x86dd, 0x0806];
        let mut packet = bytes;
        if let (Some(first), true) = (packet.first_mut(), kind < 2) {
            *first = if kind == 0 { 0x45 | *first & 0x0f } else { 0x60 };
        }
        let frame = ethernet(kinds[kind], &packet);
        for layer in LAYERS {
            let kept = kept(&program(layer, 7, None, LinkLayer::Ethernet), &frame);
            prop_assert!(kept == WHOLE || kept >= 14 + 7 && kept as usize <= frame.len() + 7);
            prop_assert!(super::tests::kept(&program(layer, 7, None, LinkLayer::RawIp), &packet) >= 7);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Tunnels: the inner packets, their tags and depths, and where tunnels end.
use crate::build;

use bartizan_packet::DecodeEvent as E;
use bartizan_packet::{
    DecodeOutput, Decoded, Decoder, DecoderConfig, LinkType, PacketFlags, PacketSource, PacketView,
    TunnelKind, TunnelPorts, TunnelTag, VxlanReservedBits,
};
use build::*;

fn inner4() -> Vec<u8> {
    ipv4(17, &udp(1000, 2000, b"inner"))
}

fn inner6() -> Vec<u8> {
    ipv6(17, &udp(1000, 2000, b"inner"))
}

/// Decodes a frame that carries one inner packet.
#[track_caller]
fn pair(config: DecoderConfig, frame: &[u8]) -> (Decoded, Decoded) {
    let mut packets = decode_with(config, LinkType::ETHERNET, frame);
    assert_eq!(packets.len(), 2, "{packets:#?}");
    let inner = packets.remove(1);
    assert_eq!(PacketView::new(frame, &inner).payload(), b"inner");
    assert_eq!((inner.recursion, inner.link_type), (1, LinkType::RAW));
    assert!(packets[0].flags.contains(PacketFlags::HAS_INNER));
    (packets.remove(0), inner)
}

#[track_caller]
fn tunnelled(frame: &[u8], source: PacketSource, tag: TunnelTag) -> (Decoded, Decoded) {
    let (outer, inner) = pair(DecoderConfig::default(), frame);
    assert_eq!((inner.source, inner.tunnel, inner.ports()), (source, tag, Some((1000, 2000))));
    assert!(outer.events.is_empty() && inner.events.is_empty());
    (outer, inner)
}

#[test]
fn ip_in_ip_in_all_pairs() {
    let tag = TunnelTag::new(TunnelKind::Ip, 0);
    for (proto, inner) in [(4, inner4()), (41, inner6())] {
        let (outer, _) = tunnelled(&eth(0x0800, &ipv4(proto, &inner)), PacketSource::Ipv4, tag);
        assert!(outer.wants_flow());
        let (outer, _) = tunnelled(&eth(0x86dd, &ipv6(proto, &inner)), PacketSource::Ipv6, tag);
        assert!(outer.wants_flow());
    }
    assert_eq!(events(&one(&eth(0x86dd, &ipv6(4, &[0x45; 19])))), [E::Ipv6Ipv4InIpv6TooSmall]);
    assert_eq!(events(&one(&eth(0x86dd, &ipv6(4, &[0x65; 20])))), [E::Ipv6Ipv4InIpv6WrongVersion]);
    assert_eq!(events(&one(&eth(0x86dd, &ipv6(41, &[0x65; 39])))), [E::Ipv6Ipv6InIpv6TooSmall]);
    assert_eq!(events(&one(&eth(0x86dd, &ipv6(41, &[0x45; 40])))), [E::Ipv6Ipv6InIpv6WrongVersion]);
}

#[test]
fn gre_version_0() {
    let gre_tag = |key| TunnelTag::new(TunnelKind::Gre, key);
    for outer in [|rest: &[u8]| eth(0x0800, &ipv4(47, rest)), |rest: &[u8]| eth(0x86dd, &ipv6(47, rest))] {
        tunnelled(&outer(&gre([0, 0], 0x0800, &[], &inner4())), PacketSource::Gre, gre_tag(0));
        let keyed = gre([0xb0, 0], 0x86dd, &[0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1], &inner6());
        tunnelled(&outer(&keyed), PacketSource::Gre, gre_tag(7));
        let routed = gre([0x40, 0], 0x0800, &[0, 0, 0, 0, 8, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 0], &inner4());
        tunnelled(&outer(&routed), PacketSource::Gre, gre_tag(0));
        let (_, inner) = tunnelled(
            &outer(&gre([0, 0], 0x8100, &[], &vlan(3, 0x0800, &inner4()))),
            PacketSource::Gre,
            gre_tag(0),
        );
        assert_eq!(inner.vlan.as_slice(), [3]);
        tunnelled(
            &outer(&gre([0, 0], 0x880b, &[], &join(&[&[0, 0x21], &inner4()]))),
            PacketSource::Gre,
            gre_tag(0),
        );
        tunnelled(&outer(&gre([0, 0], 0x6558, &[], &eth(0x0800, &inner4()))), PacketSource::Gre, gre_tag(0));
        let nvgre = gre([0x20, 0], 0x6558, &[0, 0x12, 0x34, 9], &eth(0x86dd, &inner6()));
        tunnelled(&outer(&nvgre), PacketSource::Gre, TunnelTag::new(TunnelKind::Nvgre, 0x1234));
        for (flags, optional, event) in [
            ([1, 0], &[][..], E::GreVersion0Recur),
            ([0, 8], &[], E::GreVersion0Flags),
            ([0x20, 0], &[0, 0], E::GreVersion0HdrTooBig),
            ([0x40, 0], &[0, 0, 0, 0, 1, 0], E::GreVersion0MalformedSreHdr),
            ([0x40, 0], &[0, 0, 0, 0, 1, 0, 0, 9, 1], E::GreVersion0MalformedSreHdr),
            ([0, 2], &[], E::GreWrongVersion),
        ] {
            let packet = one(&outer(&gre(flags, 0x0800, optional, &[])));
            assert_eq!((events(&packet), packet.is_invalid()), (vec![event], true), "{flags:x?}");
        }
        assert_eq!(events(&one(&outer(&[0, 0, 8]))), [E::GrePktTooSmall]);
        assert!(events(&one(&outer(&gre([0, 0], 0x1234, &[], &[])))).is_empty());
    }
}

#[test]
fn gre_version_1_is_pptp() {
    let wrap = |flags: [u8; 2], kind: u16, optional: &[u8], rest: &[u8]| {
        eth(0x0800, &ipv4(47, &gre(flags, kind, optional, rest)))
    };
    let ppp = join(&[&[0xff, 3, 0, 0x21], &inner4()]);
    let frame = wrap([0x30, 0x81], 0x880b, &[0, 99, 0, 42, 0, 0, 0, 1, 0, 0, 0, 2], &ppp);
    tunnelled(&frame, PacketSource::Gre, TunnelTag::new(TunnelKind::Pptp, 42));
    // A bare acknowledgement.
    assert!(events(&one(&wrap([0x20, 0x81], 0x880b, &[0, 0, 0, 42, 0, 0, 0, 2], &[]))).is_empty());
    for (flags, kind, event) in [
        ([0x80, 1], 0x880b, E::GreVersion1Chksum),
        ([0x40, 1], 0x880b, E::GreVersion1Route),
        ([0x08, 1], 0x880b, E::GreVersion1Ssr),
        ([0x01, 1], 0x880b, E::GreVersion1Recur),
        ([0x20, 0x41], 0x880b, E::GreVersion1Flags),
        ([0x20, 1], 0x0800, E::GreVersion1WrongProtocol),
        ([0x00, 1], 0x880b, E::GreVersion1NoKey),
        ([0x30, 1], 0x880b, E::GreVersion1HdrTooBig),
    ] {
        assert_eq!(events(&one(&wrap(flags, kind, &[0, 9, 0, 1], &[]))), [event], "{flags:x?}");
    }
}

#[test]
fn erspan() {
    let wrap = |flags: u8, optional: &[u8], rest: &[u8]| {
        eth(0x0800, &ipv4(47, &gre([flags, 0], 0x88be, optional, rest)))
    };
    let frame = eth(0x0800, &inner4());
    tunnelled(&wrap(0, &[], &frame), PacketSource::Gre, TunnelTag::new(TunnelKind::Erspan, 0));
    let head = [0x10, 0x07, 0x00, 0x65, 0, 0, 0, 0];
    let (_, inner) = tunnelled(
        &wrap(0x10, &[0, 0, 0, 1], &join(&[&head, &frame])),
        PacketSource::Gre,
        TunnelTag::new(TunnelKind::Erspan, 0x65),
    );
    assert_eq!(inner.vlan.as_slice(), [7]);
    // Broken ones leave the outer packet alone.
    assert!(events(&one(&wrap(0x10, &[0, 0, 0, 1], &head[..7]))).is_empty());
    assert!(events(&one(&wrap(0x10, &[0, 0, 0, 1], &join(&[&[0x20], &head[1..], &frame])))).is_empty());
}

#[test]
fn vxlan_by_destination_port() {
    let wrap = |port: u16, payload: &[u8]| eth(0x0800, &ipv4(17, &udp(40000, port, payload)));
    let tag = TunnelTag::new(TunnelKind::Vxlan, 0x01_0203);
    for (kind, inner) in [(0x0800, inner4()), (0x86dd, inner6()), (0x8100, vlan(4, 0x0800, &inner4()))] {
        let (outer, _) =
            tunnelled(&wrap(4789, &vxlan(0x01_0203, &eth(kind, &inner))), PacketSource::Vxlan, tag);
        assert_eq!(outer.ports(), Some((40000, 4789)));
    }
    let frame = vxlan(5, &eth(0x0800, &inner4()));
    assert_eq!(decode(&wrap(4790, &frame)).len(), 1);
    assert_eq!(decode(&eth(0x0800, &ipv4(17, &udp(4789, 40000, &frame)))).len(), 1);
    assert_eq!(events(&one(&wrap(4789, &vxlan(5, &eth(0x1234, &[]))))), [E::VxlanUnknownPayloadType]);
    assert!(events(&one(&wrap(4789, &vxlan(5, &eth(0x0806, &[]))))).is_empty());
    // Group policy bits: reserved ones are ignored, unless they have to be zero.
    let mut policy = frame.clone();
    policy[0] = 0x88;
    policy[3] = 9;
    let tag = TunnelTag::new(TunnelKind::Vxlan, 5);
    assert_eq!(pair(DecoderConfig::default(), &wrap(4789, &policy)).1.tunnel, tag);
    let strict = DecoderConfig { vxlan_reserved: VxlanReservedBits::Strict, ..DecoderConfig::default() };
    let mut output = DecodeOutput::new();
    let frame = wrap(4789, &policy);
    let len = u32::try_from(frame.len()).unwrap();
    Decoder::new(strict).decode(LinkType::ETHERNET, &frame, len, &mut output);
    assert_eq!(output.packets().len(), 1);
    let frame = vxlan(5, &eth(0x0800, &inner4()));
    let mut no_vni = frame.clone();
    no_vni[0] = 0;
    assert_eq!(decode(&wrap(4789, &no_vni)).len(), 1);
}

#[test]
fn geneve_with_options() {
    let wrap = |payload: &[u8]| eth(0x86dd, &ipv6(17, &udp(40000, 6081, payload)));
    let tag = TunnelTag::new(TunnelKind::Geneve, 77);
    let options = [1, 8, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0];
    for (kind, inner) in [(0x0800, inner4()), (0x86dd, inner6()), (0x6558, eth(0x0800, &inner4()))] {
        tunnelled(&wrap(&geneve(77, kind, &[], &inner)), PacketSource::Geneve, tag);
        tunnelled(&wrap(&geneve(77, kind, &options, &inner)), PacketSource::Geneve, tag);
    }
    assert_eq!(events(&one(&wrap(&geneve(1, 0x1234, &[], &[])))), [E::GeneveUnknownPayloadType]);
    let good = geneve(1, 0x0800, &options, &inner4());
    for (at, value) in [(0, 0x43), (1, 1), (7, 1), (0, 2), (0, 4), (11, 0x1f)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(decode(&wrap(&bad)).len(), 1, "byte {at}");
    }
}

#[test]
fn teredo_only_if_the_inner_packet_is_faultless() {
    let wrap = |payload: &[u8]| eth(0x0800, &ipv4(17, &udp(40000, 3544, payload)));
    let tag = TunnelTag::new(TunnelKind::Teredo, 0);
    tunnelled(&wrap(&inner6()), PacketSource::Teredo, tag);
    tunnelled(&wrap(&join(&[&[0; 8], &inner6()])), PacketSource::Teredo, tag);
    let broken_inside = ipv6(17, &[0; 7]);
    for payload in [
        inner6()[..39].to_vec(),
        join(&[&inner6(), &[0]]),
        join(&[&[0, 1, 0, 0, 0, 0, 0, 0], &inner6()]),
        ipv6_hops(17, 0, &udp(1, 2, &[])),
        inner4(),
        broken_inside,
    ] {
        let packet = one(&wrap(&payload));
        assert!(events(&packet).is_empty() && !packet.flags.contains(PacketFlags::HAS_INNER));
    }
    let other_port = eth(0x0800, &ipv4(17, &udp(40000, 3545, &inner6())));
    assert_eq!(decode(&other_port).len(), 1);
    assert_eq!(decode_with(DecoderConfig::built_in(), LinkType::ETHERNET, &other_port).len(), 2);
}

#[test]
fn gtp_only_if_asked_for() {
    let gtp = |flags: u8, optional: &[u8], rest: &[u8]| {
        let len = ((optional.len() + rest.len()) as u16).to_be_bytes();
        let head = join(&[&[flags, 0xff], &len, &[0, 0, 1, 2]]);
        eth(0x0800, &ipv4(17, &udp(2152, 2152, &join(&[&head, optional, rest]))))
    };
    let config = DecoderConfig { gtp: TunnelPorts::on(&[2152]), ..DecoderConfig::default() };
    assert_eq!(decode(&gtp(0x30, &[], &inner4())).len(), 1);
    for frame in [
        gtp(0x30, &[], &inner4()),
        gtp(0x32, &[0, 1, 0, 0], &inner6()),
        gtp(0x34, &[0, 1, 0, 0x85, 1, 0, 9, 0], &inner4()),
    ] {
        let (_, inner) = pair(config, &frame);
        assert_eq!((inner.source, inner.tunnel), (PacketSource::Gtp, TunnelTag::new(TunnelKind::Gtp, 0x102)));
    }
    assert_eq!(
        decode_with(config, LinkType::ETHERNET, &gtp(0x34, &[0, 1, 0, 0x85, 0, 0, 9, 0], &inner4())).len(),
        1
    );
}

#[test]
fn nested_tunnels_come_out_in_order_and_are_inspected_innermost_first() {
    let frame = eth(
        0x0800,
        &ipv4(
            4,
            &ipv4(
                17,
                &udp(9, 4789, &vxlan(3, &eth(0x0800, &ipv4(47, &gre([0, 0], 0x86dd, &[], &inner6()))))),
            ),
        ),
    );
    let mut out = DecodeOutput::new();
    let mut decoder = Decoder::default();
    decoder.decode(LinkType::ETHERNET, &frame, 0, &mut out);
    let sources: Vec<PacketSource> = out.packets().iter().map(|p| p.source).collect();
    use PacketSource as S;
    assert_eq!(sources, [S::Wire, S::Ipv4, S::Vxlan, S::Gre]);
    let depths: Vec<u8> = out.in_inspection_order().map(|p| p.recursion).collect();
    assert_eq!(depths, [3, 2, 1, 0]);
    let starts: Vec<u32> = out.packets().iter().map(|p| p.start).collect();
    assert!(starts.is_sorted() && starts[0] == 0);
    assert_eq!(decoder.counters().ipv4_in_ipv4, 1);
    assert_eq!((decoder.counters().vxlan, decoder.counters().gre, decoder.counters().pkts), (1, 1, 1));
}

#[test]
fn layers_are_bounded() {
    // An odd and an even number of layers at the start: the bound is met in and between packets.
    for tags in 0..2 {
        let mut packet = inner4();
        for _ in 0..40 {
            packet = ipv4(4, &packet);
        }
        let frame = if tags == 0 { eth(0x0800, &packet) } else { eth(0x8100, &vlan(1, 0x0800, &packet)) };
        let packets = decode(&frame);
        assert!(packets.len() < 16, "{}", packets.len());
        assert!(packets.last().is_some_and(|p| p.events.contains(E::TooManyLayers)));
    }
    let mut fabric = eth(0x0800, &inner4());
    for _ in 0..40 {
        fabric = eth(0x8903, &join(&[&[0, 0], &fabric]));
    }
    let packet = one(&fabric);
    assert_eq!((events(&packet), packet.is_invalid()), (vec![E::TooManyLayers], true));
    let mut backbone = join(&[&[0; 16], &[8, 0]]);
    for _ in 0..40 {
        backbone = join(&[&[0; 16], &[0x88, 0xe7], &backbone]);
    }
    assert!(one(&eth(0x88e7, &backbone)).events.contains(E::TooManyLayers));
}

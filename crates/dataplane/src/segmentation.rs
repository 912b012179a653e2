// SPDX-License-Identifier: Apache-2.0
//! Frames that are larger than the egress port carries, because a sender on this host left segmentation to a
//! device (TSO), or because the kernel merged received segments (GRO). They are inspected whole and leave as
//! the segments that a device would have made.
//!
//! Source: RFC 9293; Linux `tcp_gso_segment`, `skb_udp_tunnel_segment`, `gre_gso_segment`. Supported is TCP
//! over IPv4 or IPv6 in an Ethernet frame, or in tunnels whose segmentation Linux leaves to devices: IP in
//! IP, GRE without checksum and sequence, VXLAN, GENEVE. The segment size is the sender's own, where the
//! kernel reports it, and no larger than the egress MTU allows.
//!
//! UDP differs, since the receiver reads whole datagrams: see [`split`].

pub(crate) mod datagrams;

pub use datagrams::split;

use bartizan_packet::{
    DecodeOutput, Decoded, Decoder, LinkType, PacketFlags, PacketSource, TcpFlags, TransportLayer,
    renew_around,
};

/// Least payload of a segment: a smaller MTU is none (RFC 791 requires 68 bytes of every link).
const LEAST: usize = 8;
/// Least segment size of a sender that is respected: Linux has none below (`tcp_min_snd_mss`), and one frame
/// would become thousands.
const LEAST_TOLD: usize = 48;

/// Cuts a TCP frame into segments that fit a network-layer MTU; `each` receives each segment. `packets`: the
/// decoded packets of the frame, outermost first. `segment_size`: payload bytes of the sender's segments, 0
/// if unknown. `None`: the frame cannot be cut, and `each` was not called.
pub fn cut(
    frame: &[u8],
    packets: &[Decoded],
    mtu: u32,
    segment_size: u16,
    mut each: impl FnMut(&[u8]),
) -> Option<()> {
    SegmentationPlan::of_tcp(frame, packets, mtu, segment_size)?.carry_out(frame, &mut each)
}

/// The packet inside a UDP tunnel that the decoder does not recognise, since its port is not a usual one.
/// `header`: offset of the TCP header, as the kernel reports it. Linux leaves to devices only those tunnels
/// whose own header may be repeated unchanged.
pub fn hidden_in_tunnel(
    frame: &[u8],
    packets: &[Decoded],
    header: usize,
    decoder: &mut Decoder,
) -> Option<Decoded> {
    let outer = packets.last().filter(|outer| matches!(outer.transport, TransportLayer::Udp(_)))?;
    let before = |bytes: usize| header.checked_sub(bytes).filter(|start| *start >= outer.payload as usize);
    let begins = |start: &usize, version: u8| frame.get(*start).is_some_and(|byte| byte >> 4 == version);
    let start = before(20)
        .filter(|start| begins(start, 4))
        .or_else(|| before(40).filter(|start| begins(start, 6)))?;
    let packet = frame.get(start..)?;
    let mut output = DecodeOutput::new();
    decoder.decode(LinkType::RAW, packet, u32::try_from(packet.len()).ok()?, &mut output);
    let mut inner = output.outer()?.clone();
    let by = u32::try_from(start).ok()?;
    for offset in [&mut inner.start, &mut inner.end, &mut inner.l3, &mut inner.l4, &mut inner.payload] {
        *offset = offset.checked_add(by)?;
    }
    (inner.transport.tcp().is_some() && inner.l4 as usize == header).then_some(inner)
}

/// Offsets and lengths of a frame to be cut.
struct SegmentationPlan<'p> {
    /// The packet with the TCP segment, and the packets around it.
    inner: &'p Decoded,
    outer: &'p [Decoded],
    payload: usize,
    /// Payload bytes of the frame, and of a segment.
    length: usize,
    size: usize,
}

impl<'p> SegmentationPlan<'p> {
    fn of_tcp(frame: &[u8], packets: &'p [Decoded], mtu: u32, segment_size: u16) -> Option<Self> {
        let (inner, outer) = packets.split_last()?;
        let TransportLayer::Tcp(tcp) = &inner.transport else { return None };
        let plain = are_plain(frame, inner, outer)
            && !tcp.flags.intersects(TcpFlags::URG | TcpFlags::SYN | TcpFlags::RST)
            && !tcp.options.md5
            && !tcp.options.ao;
        let payload = inner.payload as usize;
        let first = packets.first()?.l3 as usize;
        let size = (mtu as usize).checked_sub(payload.checked_sub(first)?)?;
        let size = if usize::from(segment_size) >= LEAST_TOLD { size.min(segment_size.into()) } else { size };
        let length = inner.payload_len as usize;
        (plain && size >= LEAST).then_some(SegmentationPlan { inner, outer, payload, length, size })
    }

    /// Makes the segments.
    fn carry_out(&self, frame: &[u8], each: &mut dyn FnMut(&[u8])) -> Option<()> {
        let head = frame.get(..self.payload)?;
        let data = frame.get(self.payload..)?.get(..self.length)?;
        let pieces = data.len().div_ceil(self.size);
        let mut segment = Vec::with_capacity(self.payload + self.size);
        // All segments are alike: a failure occurs with the first or not at all.
        for (number, piece) in data.chunks(self.size).enumerate() {
            segment.clear();
            segment.extend_from_slice(head);
            segment.extend_from_slice(piece);
            self.finish(&mut segment, number, number + 1 == pieces)?;
            each(&segment);
        }
        Some(())
    }

    /// Updates the headers of a segment.
    fn finish(&self, segment: &mut [u8], number: usize, last: bool) -> Option<()> {
        let index = u16::try_from(number).ok()?;
        self.inner.renew_network(segment, index)?;
        match &self.inner.transport {
            TransportLayer::Tcp(_) => self.finish_tcp(segment, number, last)?,
            _ => self.inner.renew_udp(segment)?,
        }
        renew_around(self.outer, segment, index)
    }

    fn finish_tcp(&self, segment: &mut [u8], number: usize, last: bool) -> Option<()> {
        let offset = u32::try_from(number.checked_mul(self.size)?).ok()?;
        let tcp = segment.get_mut(self.inner.l4 as usize..)?;
        let seq = tcp.get_mut(4..8)?;
        let first = u32::from_be_bytes(<[u8; 4]>::try_from(&*seq).ok()?);
        seq.copy_from_slice(&first.wrapping_add(offset).to_be_bytes());
        let flags = tcp.get_mut(13)?;
        if !last {
            *flags &= !(TcpFlags::FIN.bits() | TcpFlags::PSH.bits());
        }
        if number > 0 {
            *flags &= !TcpFlags::CWR.bits();
        }
        self.inner.renew_sum(6, tcp, 16)
    }
}

/// Whether the packet to be cut and its outer packets allow it.
fn are_plain(frame: &[u8], inner: &Decoded, outer: &[Decoded]) -> bool {
    is_plain(inner) && outer.iter().all(|packet| is_plain(packet) && packet.may_be_repeated(frame))
}

/// Whether a packet lies in the frame as it is, whole and without decode errors.
fn is_plain(packet: &Decoded) -> bool {
    use PacketSource::{Geneve, Gre, Ipv4, Ipv6, Vxlan, Wire};
    matches!(packet.source, Wire | Gre | Ipv4 | Ipv6 | Vxlan | Geneve)
        && !packet.is_fragment()
        && !packet.flags.intersects(PacketFlags::REBUILT | PacketFlags::INVALID)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use bartizan_packet::PacketView;
    use bartizan_testkit::packet::{Datagram, Ip, Segment, address};

    /// An Ethernet frame with a TCP segment whose checksum is not filled in.
    pub(crate) fn frame(v6: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
        let segment = Segment::new((0x1234, 80), (0xffff_fff0, 1), flags.into(), payload);
        // Timestamps.
        let raw_options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        around(v6, 6, &Segment { window: 0x100, raw_options, ..segment }.unsummed())
    }

    fn around(v6: bool, protocol: u8, body: &[u8]) -> Vec<u8> {
        let ip = Ip::new(address(v6, 1), address(v6, 2), protocol);
        Ip { id: 0xfffe, ..ip }.frame(body, None)
    }

    pub(crate) fn decode(frame: &[u8]) -> DecodeOutput {
        let mut output = DecodeOutput::new();
        Decoder::default().decode(LinkType::ETHERNET, frame, frame.len() as u32, &mut output);
        output
    }

    #[test]
    fn a_large_frame_leaves_as_segments_that_read_the_same() {
        for v6 in [false, true] {
            let payload: Vec<u8> = (0..5_000u32).flat_map(u32::to_be_bytes).collect();
            // FIN, PSH, ACK, CWR.
            let large = frame(v6, 0x99, &payload);
            let mut segments = Vec::new();
            cut(&large, decode(&large).packets(), 1_500, 0, |segment| segments.push(segment.to_vec()))
                .expect("it can be cut");
            assert_eq!(segments.len(), payload.len().div_ceil(1_500 - 32 - if v6 { 40 } else { 20 }));
            let (mut read, mut next) = (Vec::new(), 0xffff_fff0u32);
            for (number, segment) in segments.iter().enumerate() {
                let output = decode(segment);
                let packet = output.outer().expect("a packet");
                let view = PacketView::new(segment, packet);
                assert_eq!((view.l4_checksum_ok(), packet.events.as_slice()), (Some(true), &[][..]));
                assert!(segment.len() <= 1_514 && view.ip_checksum_ok() != Some(false));
                let tcp = packet.transport.tcp().expect("TCP");
                assert_eq!(tcp.seq, next);
                next = next.wrapping_add(view.payload().len() as u32);
                let last = number + 1 == segments.len();
                let flags = if last { 0x19 } else { 0x10 } | if number == 0 { 0x80 } else { 0 };
                assert_eq!(tcp.flags.bits(), flags, "{number}");
                if let Some(ip) = packet.ipv4() {
                    assert_eq!(ip.id, 0xfffeu16.wrapping_add(number as u16));
                }
                read.extend_from_slice(view.payload());
            }
            assert_eq!(read, payload);
        }
    }

    /// A frame in a tunnel: headers of Ethernet and IP, and the tunnel's own header.
    fn tunnel(v6: bool, protocol: u8, kind: &[u8], inside: &[u8]) -> Vec<u8> {
        around(v6, protocol, &[kind, inside].concat())
    }

    /// [`tunnel`] over UDP, with a checksum that is wrong until the frame leaves, or without one.
    pub(crate) fn udp_tunnel(v6: bool, ports: (u16, u16), sum: bool, kind: &[u8], inside: &[u8]) -> Vec<u8> {
        let datagram = Datagram::new(ports, &[kind, inside].concat());
        around(v6, 17, &Datagram { chksum: Some(if sum { 0x101 } else { 0 }), ..datagram }.unsummed())
    }

    pub(crate) const VXLAN: ((u16, u16), &[u8]) = ((12_345, 4789), &[8, 0, 0, 0, 0, 0, 5, 0]);
    const GENEVE: ((u16, u16), &[u8]) = ((12_345, 6081), &[0, 0, 0x65, 0x58, 0, 0, 5, 0]);

    #[test]
    fn a_large_segment_in_a_tunnel_leaves_as_segments_in_tunnels() {
        let payload: Vec<u8> = (0..5_000u32).flat_map(u32::to_be_bytes).collect();
        for (outer6, inner6) in [(false, false), (false, true), (true, false), (true, true)] {
            let inner = frame(inner6, 0x18, &payload);
            let ip = &inner[14..];
            let ether_type: [u8; 2] = [inner[12], inner[13]];
            let gre = [&[0x20, 0][..], &ether_type, &[0, 0, 0, 9]].concat();
            let bridged = [0, 0, 0x65, 0x58];
            let in_ip = if inner6 { 41 } else { 4 };
            let tunnels = [
                udp_tunnel(outer6, VXLAN.0, true, VXLAN.1, &inner),
                udp_tunnel(outer6, VXLAN.0, outer6, VXLAN.1, &inner),
                udp_tunnel(outer6, GENEVE.0, true, GENEVE.1, &inner),
                tunnel(outer6, 47, &gre, ip),
                tunnel(outer6, 47, &bridged, &inner),
                tunnel(outer6, in_ip, &[], ip),
            ];
            for (kind, large) in tunnels.iter().enumerate() {
                let (mut read, mut number) = (Vec::new(), 0);
                let done = cut(large, decode(large).packets(), 1_450, 0, |segment| {
                    let output = decode(segment);
                    let packets = output.packets();
                    assert_eq!(packets.len(), 2, "{kind}");
                    for packet in packets {
                        let view = PacketView::new(segment, packet);
                        assert!(view.ip_checksum_ok() != Some(false) && packet.events.as_slice().is_empty());
                        assert!(view.l4_checksum_ok() != Some(false), "{kind} {outer6} {inner6}");
                        if let Some(ip) = packet.ipv4() {
                            assert_eq!(ip.id, 0xfffeu16.wrapping_add(number));
                        }
                    }
                    assert!(segment.len() <= 1_464);
                    read.extend_from_slice(PacketView::new(segment, &packets[1]).payload());
                    number += 1;
                });
                assert_eq!(done, Some(()), "{kind} {outer6} {inner6}");
                assert_eq!(read, payload, "{kind}");
            }
            for flags in [0x80, 0x10] {
                let checked = [&[flags, 0][..], &ether_type, &[0, 0, 0, 0]].concat();
                let large = tunnel(outer6, 47, &checked, ip);
                assert_eq!(cut(&large, decode(&large).packets(), 1_450, 0, |_| panic!("given")), None);
            }
        }
    }

    #[test]
    fn a_tunnel_that_the_decoder_does_not_know_is_cut_where_the_kernel_says_that_tcp_begins() {
        let payload: Vec<u8> = (0..5_000u32).flat_map(u32::to_be_bytes).collect();
        for (outer6, inner6) in [(false, false), (false, true), (true, false), (true, true)] {
            let inside = frame(inner6, 0x18, &payload);
            let large = udp_tunnel(outer6, (12_345, 8472), true, VXLAN.1, &inside);
            let output = decode(&large);
            assert_eq!(output.packets().len(), 1);
            let around = large.len() - inside.len();
            let header = around + 14 + if inner6 { 40 } else { 20 };
            let hidden = |at| hidden_in_tunnel(&large, output.packets(), at, &mut Decoder::default());
            assert!(hidden(header + 1).is_none() && hidden(20).is_none() && hidden(large.len()).is_none());
            let packets = [output.packets(), &[hidden(header).unwrap()]].concat();
            let mut read = Vec::new();
            let done = cut(&large, &packets, 1_450, 1_000, |segment| {
                let output = decode(segment);
                let view = PacketView::new(segment, output.outer().unwrap());
                assert_eq!((view.ip_checksum_ok() != Some(false), view.l4_checksum_ok()), (true, Some(true)));
                let inside = &segment[around..];
                let output = decode(inside);
                let view = PacketView::new(inside, output.outer().unwrap());
                assert_eq!((view.ip_checksum_ok() != Some(false), view.l4_checksum_ok()), (true, Some(true)));
                assert!(view.payload().len() <= 1_000);
                read.extend_from_slice(view.payload());
            });
            assert_eq!((done, read == payload), (Some(()), true), "{outer6} {inner6}");
        }
    }

    #[test]
    fn segments_have_the_size_that_the_sender_chose_where_it_fits() {
        let large = frame(false, 0x10, &[7; 5_000]);
        for (told, size) in
            [(0, 1_448), (1_000, 1_000), (1_001, 1_001), (1_448, 1_448), (9_000, 1_448), (8, 1_448)]
        {
            let mut sizes = Vec::new();
            cut(&large, decode(&large).packets(), 1_500, told, |segment| sizes.push(segment.len() - 66))
                .expect("cut");
            let mut expected = vec![size; 5_000 / size];
            expected.extend((5_000 % size != 0).then_some(5_000 % size));
            assert_eq!(sizes, expected, "{told}");
        }
    }

    #[test]
    fn what_cannot_be_cut_is_left_alone() {
        let never = |frame: &[u8], mtu| {
            assert_eq!(cut(frame, decode(frame).packets(), mtu, 0, |_| panic!("given")), None);
        };
        let urgent = frame(false, 0x30, &[0; 4_000]);
        never(&urgent, 1_500);
        never(&frame(true, 0x10, &[0; 4_000]), 60);
        let mut udp = frame(false, 0x10, &[0; 4_000]);
        udp[23] = 17;
        never(&udp, 1_500);
    }
}

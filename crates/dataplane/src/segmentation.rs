// SPDX-License-Identifier: Apache-2.0
//! Frames that are larger than the egress port carries, since a sender on this host left segmentation to a device that does not exist, or
//! the kernel merged what arrived: they are inspected whole and leave as the segments that the device would have made.
//!
//! Source: RFC 9293; Linux `tcp_gso_segment`. TCP over IPv4 or IPv6 in an Ethernet frame, nothing around it. The size of the segments is that of
//! the egress MTU: the sender's own is not handed over with the frame.
//!
//! Not done: UDP (`UDP_SEGMENT`), tunnels; these are refused as too large (`egress_mtu`).

use bartizan_packet::{
    DecodeOutput, Decoded, InternetChecksum, Network, PacketFlags, PacketSource, TcpFlags, Transport,
    pseudo_header,
};

/// Least payload of a segment: a smaller MTU is none (RFC 791 asks for 68 bytes of every link).
const LEAST: usize = 8;

/// Cuts a frame into segments that fit a network-layer MTU; each is given to `each`. `None`: it cannot be cut, and nothing was given.
pub fn cut(frame: &[u8], output: &DecodeOutput, mtu: u32, mut each: impl FnMut(&[u8])) -> Option<()> {
    let [packet] = output.packets() else { return None };
    let plan = Plan::of(packet, mtu)?;
    let head = frame.get(..plan.payload)?;
    let data = frame.get(plan.payload..)?.get(..packet.payload_len as usize)?;
    let pieces = data.len().div_ceil(plan.size);
    let mut segment = Vec::with_capacity(plan.payload + plan.size);
    // All are made alike: what can fail fails with the first.
    for (number, piece) in data.chunks(plan.size).enumerate() {
        segment.clear();
        segment.extend_from_slice(head);
        segment.extend_from_slice(piece);
        plan.finish(&mut segment, number, number + 1 == pieces)?;
        each(&segment);
    }
    Some(())
}

/// Where things stand in the frame.
struct Plan<'p> {
    packet: &'p Decoded,
    l3: usize,
    l4: usize,
    payload: usize,
    /// Payload of a segment.
    size: usize,
}

impl<'p> Plan<'p> {
    fn of(packet: &'p Decoded, mtu: u32) -> Option<Self> {
        let Transport::Tcp(tcp) = &packet.transport else { return None };
        let plain = packet.source == PacketSource::Wire
            && packet.recursion == 0
            && !packet.is_fragment()
            && !packet.flags.intersects(PacketFlags::REBUILT | PacketFlags::INVALID)
            && !tcp.flags.intersects(TcpFlags::URG | TcpFlags::SYN | TcpFlags::RST)
            && !tcp.options.md5
            && !tcp.options.ao;
        let (l3, l4, payload) = (packet.l3 as usize, packet.l4 as usize, packet.payload as usize);
        let size = (mtu as usize).checked_sub(payload.checked_sub(l3)?)?;
        (plain && size >= LEAST).then_some(Plan { packet, l3, l4, payload, size })
    }

    /// Makes the headers of a segment right.
    fn finish(&self, segment: &mut [u8], number: usize, last: bool) -> Option<()> {
        let offset = u32::try_from(number.checked_mul(self.size)?).ok()?;
        let length = segment.len().checked_sub(self.l3)?;
        let ip = segment.get_mut(self.l3..self.l4)?;
        match &self.packet.network {
            Network::Ipv4(header) => {
                let words = usize::from(header.header_len);
                let ip = ip.get_mut(..words)?;
                ip.get_mut(2..4)?.copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
                let id = header.id.wrapping_add(u16::try_from(number).ok()?);
                ip.get_mut(4..6)?.copy_from_slice(&id.to_be_bytes());
                ip.get_mut(10..12)?.fill(0);
                let sum = InternetChecksum::new().with(ip).finish();
                ip.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
            }
            Network::Ipv6(_) => {
                let length = u16::try_from(length.checked_sub(40)?).ok()?;
                ip.get_mut(4..6)?.copy_from_slice(&length.to_be_bytes());
            }
            _ => return None,
        }
        let tcp = segment.get_mut(self.l4..)?;
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
        tcp.get_mut(16..18)?.fill(0);
        let length = u32::try_from(tcp.len()).ok()?;
        let sum = pseudo_header(self.packet.src()?, self.packet.dst()?, 6, length)?.with(tcp).finish();
        tcp.get_mut(16..18)?.copy_from_slice(&sum.to_be_bytes());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_packet::{Decoder, LinkType, PacketView};

    /// An Ethernet frame with a TCP segment, its checksum not filled in.
    fn frame(v6: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut tcp =
            vec![0x12, 0x34, 0, 80, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0x80, flags, 1, 0, 0, 0, 0, 0];
        // Timestamps.
        tcp.extend_from_slice(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        tcp.extend_from_slice(payload);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let length = tcp.len() as u16;
        if v6 {
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend_from_slice(&length.to_be_bytes());
            frame.extend_from_slice(&[6, 64]);
            for host in [1, 2] {
                frame.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
            }
        } else {
            let mut head = vec![0x45, 0];
            head.extend_from_slice(&(length + 20).to_be_bytes());
            head.extend_from_slice(&[0xff, 0xfe, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            let sum = InternetChecksum::new().with(&head).finish();
            head[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend_from_slice(&[8, 0]);
            frame.extend_from_slice(&head);
        }
        frame.extend_from_slice(&tcp);
        frame
    }

    fn decode(frame: &[u8]) -> DecodeOutput {
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
            cut(&large, &decode(&large), 1_500, |segment| segments.push(segment.to_vec()))
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

    #[test]
    fn what_cannot_be_cut_is_left_alone() {
        let never = |frame: &[u8], mtu| {
            assert_eq!(cut(frame, &decode(frame), mtu, |_| panic!("given")), None);
        };
        let urgent = frame(false, 0x30, &[0; 4_000]);
        never(&urgent, 1_500);
        never(&frame(true, 0x10, &[0; 4_000]), 60);
        let mut udp = frame(false, 0x10, &[0; 4_000]);
        udp[23] = 17;
        never(&udp, 1_500);
    }
}

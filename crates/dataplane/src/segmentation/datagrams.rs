// SPDX-License-Identifier: Apache-2.0
//! Combined UDP datagrams: the sender left segmentation to a device (`UDP_SEGMENT`, as used by QUIC), or the
//! kernel merged received datagrams (GRO). They are split before anything else, so that each datagram is
//! inspected, counted and decided as its receiver reads it.
//!
//! Source: Linux `__udp_gso_segment`, `inet_gso_segment` (IPv4 ids count up; only TCP has another rule),
//! `UDP_MAX_SEGMENTS`, udp(7). The kernel reports the size with the frame; no header contains it. Datagrams
//! in tunnels of the kinds that are cut for TCP are split too.

use super::{SegmentationPlan, are_plain};
use bartizan_packet::{DecodeOutput, Decoded, Decoder, LinkType, TransportLayer};
use bartizan_ports::{Batch, Segmentation, Split};

/// Most datagrams of one frame; a frame with more is not split. Linux makes no more of one call.
pub const MOST: usize = 128;
/// Bytes of the UDP header.
const HEADER: usize = 8;

/// Splits combined datagrams. A frame that cannot be split stays as it is, and no port sends it.
pub fn split(batch: &mut Batch, decoder: &mut Decoder, output: &mut DecodeOutput) -> Split {
    batch.split(|info, frame, each| {
        let length = u32::try_from(frame.len()).ok()?;
        decoder.decode(LinkType::ETHERNET, frame, length, output);
        take_apart(frame, output, info.segmentation, each)
    })
}

/// Passes each datagram of a frame to `each`. `None`: the frame cannot be split, and `each` was not called.
fn take_apart(
    frame: &[u8],
    output: &DecodeOutput,
    given: Segmentation,
    each: &mut dyn FnMut(&[u8]),
) -> Option<()> {
    SegmentationPlan::of_udp(frame, output.packets(), given)?.carry_out(frame, each)
}

impl<'p> SegmentationPlan<'p> {
    fn of_udp(frame: &[u8], packets: &'p [Decoded], given: Segmentation) -> Option<Self> {
        // A datagram's payload may look like a tunnel, and a tunnel may carry datagrams: the kernel reports
        // the offset of the UDP header.
        let is_meant = |packet: &Decoded| given.header == 0 || packet.l4 == u32::from(given.header);
        let at = packets.iter().position(is_meant)?;
        let (outer, inner) = (packets.get(..at)?, packets.get(at)?);
        let TransportLayer::Udp(_) = &inner.transport else { return None };
        let header = inner.l4 as usize;
        let said = frame.get(header.checked_add(4)?..)?.first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(*said)).checked_sub(HEADER)?;
        let size = usize::from(given.size);
        let fits = size > 0 && length.div_ceil(size) <= MOST && length > 0;
        (fits && are_plain(frame, inner, outer)).then_some(SegmentationPlan {
            inner,
            outer,
            payload: header.checked_add(HEADER)?,
            length,
            size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{VXLAN, decode, frame, udp_tunnel};
    use super::*;
    use bartizan_packet::{DecoderConfig, PacketView};
    use bartizan_ports::{FrameFlags, FrameInfo};

    /// An Ethernet frame with a UDP datagram whose checksum is left to a device.
    fn datagram(v6: bool, payload: &[u8]) -> Vec<u8> {
        udp_tunnel(v6, (0x1234, 443), true, payload, &[])
    }

    fn header_of(v6: bool) -> u16 {
        if v6 { 54 } else { 34 }
    }

    fn apart(frame: &[u8], size: u16, header: u16) -> Option<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        take_apart(frame, &decode(frame), Segmentation { size, header }, &mut |one| all.push(one.to_vec()))?;
        Some(all)
    }

    /// Checks all checksums and lengths of a frame; returns the payload of its packet number `at`.
    fn read(frame: &[u8], at: usize, number: usize) -> Vec<u8> {
        let output = decode(frame);
        for packet in output.packets().iter().take(at + 1) {
            let view = PacketView::new(frame, packet);
            assert!(packet.events.as_slice().is_empty(), "{:?}", packet.events.as_slice());
            assert!(view.ip_checksum_ok() != Some(false));
            assert!(view.l4_checksum_ok() != Some(false));
            if let Some(ip) = packet.ipv4() {
                assert_eq!(ip.id, 0xfffeu16.wrapping_add(number as u16));
            }
        }
        let packet = &output.packets()[at];
        assert_eq!(packet.payload as usize + packet.payload_len as usize, frame.len());
        PacketView::new(frame, packet).payload().to_vec()
    }

    #[test]
    fn each_datagram_is_what_its_sender_made_it() {
        let bytes: Vec<u8> = (0..16_000u32).flat_map(u32::to_be_bytes).collect();
        // (bytes, size): full datagrams, a shorter last one, odd sizes, one byte each, all in one, a size
        // larger than the payload.
        let shapes =
            [(12_000, 1_200), (11_001, 1_200), (997, 333), (7, 1), (900, 900), (900, 1_200), (61_440, 480)];
        for v6 in [false, true] {
            for (length, size) in shapes {
                let payload = &bytes[..length];
                for header in [header_of(v6), 0] {
                    let all = apart(&datagram(v6, payload), size, header).expect("it can be taken apart");
                    assert_eq!(all.len(), length.div_ceil(size.into()), "{length} {size}");
                    let parts: Vec<_> = all.iter().enumerate().map(|(n, one)| read(one, 0, n)).collect();
                    let expected: Vec<_> = payload.chunks(size.into()).map(<[u8]>::to_vec).collect();
                    assert_eq!(parts, expected, "{length} {size}");
                }
            }
        }
    }

    #[test]
    fn in_tunnels_the_header_that_the_kernel_names_is_repeated() {
        let payload: Vec<u8> = (0..1_000u32).flat_map(u32::to_be_bytes).collect();
        for (outer6, inner6) in [(false, false), (false, true), (true, false), (true, true)] {
            let inner = datagram(inner6, &payload);
            for sum in [true, outer6] {
                let large = udp_tunnel(outer6, VXLAN.0, sum, VXLAN.1, &inner);
                let outer = header_of(outer6);
                let all = apart(&large, 999, outer + 16 + header_of(inner6)).expect("it can be taken apart");
                let parts: Vec<_> = all.iter().enumerate().flat_map(|(n, one)| read(one, 1, n)).collect();
                assert_eq!((all.len(), &parts), (5, &payload));
                // A program that builds tunnels itself: the tunnel's content is the payload.
                let all = apart(&large, 999, outer).expect("it can be taken apart");
                let parts: Vec<_> = all.iter().map(|one| one[usize::from(outer) + 8..].to_vec()).collect();
                assert_eq!(parts.concat(), large[usize::from(outer) + 8..]);
                assert!(parts.iter().rev().skip(1).all(|one| one.len() == 999));
                // The offset is that of neither header.
                assert_eq!(apart(&large, 999, outer + 2), None);
            }
        }
    }

    #[test]
    fn a_datagram_without_a_checksum_stays_without() {
        let mut large = datagram(false, &[5; 1_000]);
        large[40..42].fill(0);
        for one in apart(&large, 300, 34).expect("it can be taken apart") {
            assert_eq!(one[40..42], [0, 0]);
        }
    }

    #[test]
    fn what_cannot_be_taken_apart_is_left_alone() {
        let large = datagram(false, &[1; 4_000]);
        assert_eq!(apart(&large, 0, 34), None, "no size");
        assert_eq!(apart(&large, 31, 34), None, "130 datagrams");
        assert!(apart(&large, 32, 34).is_some(), "125 datagrams");
        assert_eq!(apart(&datagram(false, &[]), 100, 34), None, "nothing in it");
        assert_eq!(apart(&frame(true, 0x10, &[0; 4_000]), 1_000, 54), None, "TCP");
        let mut fragment = large.clone();
        fragment[20] |= 0x20;
        assert_eq!(apart(&fragment, 1_000, 34), None, "a fragment");
        assert_eq!(apart(&large[..2_000], 1_000, 34), None, "not all is here");
        let mut short = large.clone();
        short[38..40].copy_from_slice(&[0, 7]);
        assert_eq!(apart(&short, 1_000, 34), None, "a length below the header's");
    }

    #[test]
    fn a_batch_holds_datagrams_in_the_place_of_their_frame() {
        let joined = FrameInfo {
            flags: FrameFlags::JOINED.with(FrameFlags::CHECKSUM_PENDING),
            segmentation: Segmentation { size: 1_000, header: 34 },
            ..FrameInfo::default()
        };
        let mut batch = Batch::with_capacity(3);
        batch.push_copy(&frame(false, 0x10, b"before"), FrameInfo::default());
        batch.push_copy(&datagram(false, &[3; 2_500]), joined);
        batch.push_copy(&frame(false, 0x10, b"behind"), joined);
        let done = split(&mut batch, &mut Decoder::default(), &mut DecodeOutput::new());
        assert_eq!((done, batch.len()), (Split { datagrams: 2, left: 1 }, 5));
        let lengths: Vec<_> = batch.indices().map(|at| batch.bytes(at).unwrap().len()).collect();
        assert_eq!(lengths, [72, 1_042, 1_042, 542, 72]);
        let refused: Vec<_> = batch.indices().map(|at| batch.info(at).unwrap().refusal().is_err()).collect();
        assert_eq!(refused, [false, false, false, false, true]);
    }

    #[test]
    fn a_frame_that_a_snap_length_cut_stays_one() {
        let large = datagram(false, &[3; 2_500]);
        let info = FrameInfo {
            flags: FrameFlags::JOINED.with(FrameFlags::TRUNCATED),
            segmentation: Segmentation { size: 1_000, header: 34 },
            wire_length: large.len() as u32,
            ..FrameInfo::default()
        };
        let config = DecoderConfig { cut_frames: true, ..DecoderConfig::default() };
        for captured in [128, 1_042, large.len() - 1] {
            let mut batch = Batch::with_capacity(1);
            batch.push_copy(&large[..captured], info);
            let done = split(&mut batch, &mut Decoder::new(config), &mut DecodeOutput::new());
            assert_eq!((done, batch.len()), (Split { datagrams: 0, left: 1 }, 1));
            assert_eq!((batch.bytes(0), batch.info(0)), (Some(&large[..captured]), Some(&info)));
        }
    }
}

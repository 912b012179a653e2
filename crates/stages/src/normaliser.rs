// SPDX-License-Identifier: Apache-2.0
//! The normaliser: the one place where packets are changed or made. Each change is counted with its reason.
//!
//! Changes: restoring the inspected bytes in a retransmission that differs; bytes that a rule replaces
//! (keyword `replace`); clearing the urgent flag, so that the receiver reads the byte in its place, as it was
//! inspected (RFC 6093: receivers differ in the bytes they take out of the stream, and Linux's choice depends
//! on the speed of the application); removing the options of Multipath TCP, so that the receiver reads the
//! stream as it was inspected, and not in the order of their mappings (RFC 8684 section 3.7: both sides fall
//! back to one path); putting the first bytes of a stream in front of a segment that a server with SYN
//! cookies could take for the beginning; trimming old bytes from a segment that such a server could take for
//! the beginning of another connection. Made: the RST or ICMP message that answers a rejected packet (RFC
//! 9293 section 3.5.2, RFC 1812 section 4.3.3.1, RFC 4443 section 3.1).

mod rejection;

pub use rejection::{Silence, rejection};

use bartizan_packet::{Decoded, InternetChecksum, PacketView, TcpFlags, pseudo_header, renew_around};
use core::net::IpAddr;
use smallvec::SmallVec;

/// Counters of the normaliser's changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NormaliserCounters {
    /// Segments in which the inspected bytes were restored.
    pub rewritten: u64,
    /// Segments whose urgent flag was cleared.
    pub urgent_cleared: u64,
    /// Segments whose Multipath TCP options were removed.
    pub multipath_cleared: u64,
    /// Segments to which the preceding bytes of the stream were added in front.
    pub completed: u64,
    /// Segments that left without old bytes that could not be compared any more.
    pub trimmed: u64,
    /// Packets in which a rule replaced bytes.
    pub replaced: u64,
    /// Packets whose transport checksum the sender left to hardware and the normaliser computed.
    pub checksums: u64,
    /// Frames that exceeded the egress port's limit and left as segments.
    pub cut: u64,
    /// Additional frames that this made.
    pub pieces: u64,
    /// Additional datagrams from splitting those that arrived as one, before inspection.
    pub datagrams: u64,
    /// Frames of several datagrams that could not be split: inspected as one, and not sent.
    pub joined: u64,
    /// RST segments made.
    pub resets: u64,
    /// ICMP messages made.
    pub unreachables: u64,
    /// Rejected packets that are not answered, by the number of the reason ([`Silence`]).
    pub silent: [u64; Silence::ALL.len()],
}

impl NormaliserCounters {
    /// The counters of two workers together.
    #[must_use]
    pub fn plus(self, other: NormaliserCounters) -> NormaliserCounters {
        let NormaliserCounters {
            rewritten,
            replaced,
            urgent_cleared,
            multipath_cleared,
            completed,
            trimmed,
            checksums,
            cut,
            pieces,
            datagrams,
            joined,
            resets,
            unreachables,
            silent,
        } = other;
        NormaliserCounters {
            rewritten: self.rewritten + rewritten,
            replaced: self.replaced + replaced,
            urgent_cleared: self.urgent_cleared + urgent_cleared,
            multipath_cleared: self.multipath_cleared + multipath_cleared,
            completed: self.completed + completed,
            trimmed: self.trimmed + trimmed,
            checksums: self.checksums + checksums,
            cut: self.cut + cut,
            pieces: self.pieces + pieces,
            datagrams: self.datagrams + datagrams,
            joined: self.joined + joined,
            resets: self.resets + resets,
            unreachables: self.unreachables + unreachables,
            silent: Silence::sum(self.silent, silent),
        }
    }

    /// Each counter by name.
    pub fn for_each(&self, mut each: impl FnMut(&'static str, u64)) {
        each("normaliser.rewritten", self.rewritten);
        each("normaliser.urgent_cleared", self.urgent_cleared);
        each("normaliser.multipath_cleared", self.multipath_cleared);
        each("normaliser.completed", self.completed);
        each("normaliser.trimmed", self.trimmed);
        each("normaliser.replaced", self.replaced);
        each("normaliser.checksums", self.checksums);
        each("normaliser.cut", self.cut);
        each("normaliser.pieces", self.pieces);
        each("normaliser.datagrams", self.datagrams);
        each("normaliser.joined", self.joined);
        each("normaliser.resets", self.resets);
        each("normaliser.unreachables", self.unreachables);
        for (silence, count) in Silence::ALL.into_iter().zip(self.silent) {
            each(silence.counter(), count);
        }
    }
}

/// A change of a TCP segment.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Offset of the payload in the frame.
    pub payload: usize,
    /// Depth of the packet in tunnels, 0 on the wire.
    pub recursion: u8,
    /// Offset of the TCP header.
    pub header: usize,
    /// The new payload, of the same length.
    pub bytes: Vec<u8>,
    /// The urgent flag and pointer are cleared.
    pub urgent: bool,
    /// The options of Multipath TCP are removed.
    pub multipath: bool,
    /// Source and destination address, for the checksum.
    pub ends: Option<(IpAddr, IpAddr)>,
    /// IP protocol: TCP, UDP, ICMP or ICMPv6.
    pub protocol: u8,
    /// Inspected bytes are restored.
    pub restored: bool,
    /// Whether a rule replaces bytes.
    pub replaced: bool,
    /// The sender left the checksum to hardware; the normaliser computes it.
    pub due: bool,
    /// The change of the payload's beginning.
    pub resize: Resize,
}

/// A change of the beginning of a segment's payload.
#[derive(Clone, Debug, Default)]
pub struct Resize {
    /// Bytes of the stream put in front, by whose number the sequence number decreases.
    pub front: SmallVec<[u8; 8]>,
    /// Number of leading bytes that do not leave.
    pub trim: usize,
}

impl Rewrite {
    /// Makes this a change that leaves the packet's payload as it is.
    pub fn reset_to(&mut self, view: &PacketView<'_>) {
        let packet = view.decoded();
        self.payload = packet.payload as usize;
        (self.recursion, self.header) = (packet.recursion, packet.l4 as usize);
        self.bytes.clear();
        self.bytes.extend_from_slice(view.payload());
        self.ends = packet.src().zip(packet.dst());
        self.protocol = packet.proto().unwrap_or(0);
        self.resize = Resize::default();
        (self.restored, self.replaced, self.due) = (false, false, false);
        (self.urgent, self.multipath) = (false, false);
    }

    /// Whether the frame leaves with another length.
    #[must_use]
    pub fn resizes(&self) -> bool {
        !self.resize.front.is_empty() || self.resize.trim > 0
    }
}

/// Applies a change and corrects the checksums. `packets`: the decoded packets of the frame, outermost first;
/// needed if its length changes ([`Rewrite::resizes`]). `longer`: gets the frame then, and stays empty
/// otherwise. `false`: the change does not fit the frame, which is unchanged.
///
/// Outer checksums cover an inner segment of the same length too, and stay right: its own checksum makes up
/// for each change of its bytes.
pub fn rewrite(
    frame: &mut [u8],
    change: &Rewrite,
    packets: &[Decoded],
    longer: &mut Vec<u8>,
    counters: &mut NormaliserCounters,
) -> bool {
    longer.clear();
    let done = if change.resizes() { resize(frame, change, packets, longer) } else { apply(frame, change) };
    if done.is_none() {
        longer.clear();
        return false;
    }
    counters.completed += u64::from(!change.resize.front.is_empty());
    counters.trimmed += u64::from(change.resize.trim > 0);
    counters.rewritten += u64::from(change.restored);
    counters.replaced += u64::from(change.replaced);
    counters.checksums += u64::from(change.due);
    counters.urgent_cleared += u64::from(change.urgent);
    counters.multipath_cleared += u64::from(change.multipath);
    true
}

fn apply(frame: &mut [u8], change: &Rewrite) -> Option<()> {
    let (src, dst) = change.ends?;
    let end = change.payload.checked_add(change.bytes.len())?;
    let at = change.header.checked_add(match change.protocol {
        6 => 16,
        17 => 6,
        1 | 58 => 2,
        _ => return None,
    })?;
    let field = at..at.checked_add(2)?;
    // Every step that can fail comes before the first byte is changed.
    frame.get(change.header..end)?;
    let had = frame.get(field.clone())? != [0, 0];
    frame.get_mut(change.payload..end)?.copy_from_slice(&change.bytes);
    if change.urgent {
        // Flags, window (2), checksum (2), urgent pointer (2).
        let [flags, _, _, _, _, high, low, ..] = frame.get_mut(change.header..end)?.get_mut(13..)? else {
            return None;
        };
        *flags &= !TcpFlags::URG.bits();
        (*high, *low) = (0, 0);
    }
    if change.multipath {
        take_out_multipath(frame.get_mut(change.header..change.payload)?);
    }
    // A datagram over IPv4 without a checksum keeps none.
    if change.protocol == 17 && src.is_ipv4() && !had {
        return Some(());
    }
    frame.get_mut(field.clone())?.fill(0);
    let segment = frame.get(change.header..end)?;
    let sum = match change.protocol {
        1 => InternetChecksum::new().with(segment).finish(),
        protocol => l4_checksum(src, dst, protocol, segment)?,
    };
    // Zero means "no checksum" in UDP (RFC 768).
    let sum = if change.protocol == 17 && sum == 0 { 0xffff } else { sum };
    frame.get_mut(field)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Overwrites a TCP header's Multipath TCP options with no-operations.
fn take_out_multipath(header: &mut [u8]) {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    let mut rest = header.get_mut(20..).unwrap_or_default();
    while let [kind, tail @ ..] = rest {
        let length = match (*kind, tail.first()) {
            (END, _) => return,
            (NO_OPERATION, _) => 1,
            (_, Some(length)) if *length >= 2 => usize::from(*length),
            _ => return,
        };
        let Some((option, after)) = rest.split_at_mut_checked(length) else { return };
        if option.first() == Some(&bartizan_packet::MULTIPATH) {
            option.fill(NO_OPERATION);
        }
        rest = after;
    }
}

/// Whether a TCP segment may get or lose bytes at the front: the headers of IP, and of tunnels around it, can
/// take another length, and no signature covers all bytes.
pub fn can_resize(view: &PacketView<'_>) -> bool {
    let packet = view.decoded();
    let plain = packet.transport.tcp().is_some_and(|tcp| !tcp.options.md5 && !tcp.options.ao);
    plain && packet.may_be_resized(view.frame())
}

/// Writes the frame with bytes in front of its payload, or without its first ones, and without link padding.
/// A segment that loses all its data keeps its sequence number, so that the receiver answers as to old data;
/// a FIN keeps its own number. `packets`: the decoded packets of the frame, outermost first.
fn resize(frame: &[u8], change: &Rewrite, packets: &[Decoded], out: &mut Vec<u8>) -> Option<()> {
    let Resize { front, trim } = &change.resize;
    let (packet, outer) = packets.get(..=usize::from(change.recursion))?.split_last()?;
    let mut bytes = front.to_vec();
    bytes.extend_from_slice(change.bytes.get(*trim..)?);
    out.extend_from_slice(frame.get(..change.payload)?);
    out.extend_from_slice(&bytes);
    packet.renew_network(out, 0)?;
    let more = u32::try_from(front.len()).ok()?;
    let less = u32::try_from(*trim).ok()?;
    // Ports (4), sequence number, acknowledgement (4), offset, flags, window (2), checksum (2), urgent
    // pointer (2).
    let [_, _, _, _, s0, s1, s2, s3, _, _, _, _, _, flags, _, _, _, _, high, low, ..] =
        out.get_mut(change.header..)?
    else {
        return None;
    };
    let old = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
    let mut seq = old.wrapping_sub(more);
    if !bytes.is_empty() || *flags & TcpFlags::FIN.bits() != 0 {
        seq = seq.wrapping_add(less);
    }
    [*s0, *s1, *s2, *s3] = seq.to_be_bytes();
    if bytes.is_empty() {
        *flags &= !(TcpFlags::PSH | TcpFlags::URG).bits();
        (*high, *low) = (0, 0);
    }
    let whole = Rewrite { bytes, resize: Resize::default(), ..change.clone() };
    apply(out, &whole)?;
    renew_around(outer, out, 0)
}

fn l4_checksum(src: IpAddr, dst: IpAddr, protocol: u8, segment: &[u8]) -> Option<u16> {
    let length = u32::try_from(segment.len()).ok()?;
    Some(pseudo_header(src, dst, protocol, length)?.with(segment).finish())
}

fn put_checksum(out: &mut [u8], at: usize, sum: u16) -> Option<()> {
    out.get_mut(at..at.checked_add(2)?)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_packet::{DecodeOutput, Decoder, LinkType, TransportLayer};
    use bartizan_testkit::hosts;
    use bartizan_testkit::packet::{self, Datagram, End, Ip, Packet, Segment, address};

    /// A packet with hardware addresses of its own.
    fn frame(packet: Packet) -> Vec<u8> {
        Packet { ip: Ip { mac: [1; 6], from_mac: [2; 6], ..packet.ip }, ..packet }.frame()
    }

    fn ends(v6: bool, ports: (u16, u16)) -> (End, End) {
        ((address(v6, 1), ports.0), (address(v6, 2), ports.1))
    }

    fn syn_v4() -> Vec<u8> {
        let (from, to) = ends(false, (0x1000, 80));
        frame(packet::tcp(from, to, (9, 0), 2, b""))
    }

    fn packets_of(frame: &[u8]) -> Vec<Decoded> {
        let mut output = DecodeOutput::new();
        Decoder::default().decode(LinkType::ETHERNET, frame, frame.len() as u32, &mut output);
        output.packets().to_vec()
    }

    fn decode(frame: &[u8], check: impl FnOnce(&PacketView<'_>)) {
        check(&PacketView::new(frame, &packets_of(frame)[0]));
    }

    #[test]
    fn inspected_bytes_are_put_back_with_a_right_checksum() {
        let mut frame = syn_v4();
        frame[17] = 44;
        frame[47] |= TcpFlags::URG.bits();
        frame[53] = 3;
        frame.extend_from_slice(b"evil");
        let change = Rewrite {
            payload: 54,
            header: 34,
            bytes: b"good".to_vec(),
            urgent: true,
            ends: Some(("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())),
            protocol: 6,
            restored: true,
            ..Rewrite::default()
        };
        let mut counters = NormaliserCounters::default();
        assert!(rewrite(&mut frame, &change, &[], &mut Vec::new(), &mut counters));
        decode(&frame, |view| {
            assert_eq!(view.payload(), b"good");
            let TransportLayer::Tcp(tcp) = &view.decoded().transport else { panic!("no TCP") };
            assert_eq!((tcp.flags, tcp.urgent), (TcpFlags::SYN, 0));
            assert_eq!(view.l4_checksum_ok(), Some(true));
        });
        let long = Rewrite { bytes: vec![0; 5], ..change };
        assert!(!rewrite(&mut frame, &long, &[], &mut Vec::new(), &mut counters));
        assert_eq!((counters.rewritten, counters.urgent_cleared), (1, 1));
    }

    #[test]
    fn options_of_multipath_are_taken_out_and_nothing_else() {
        let options = vec![
            (2, vec![5, 0xb4]),
            (30, vec![1, 0x81]),
            (3, vec![7]),
            (30, vec![0x10, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (30, vec![]),
        ];
        let after = [&[2, 4, 5, 0xb4, 1, 1, 1, 1, 3, 3, 7][..], &[1; 14]].concat();
        for v6 in [false, true] {
            let segment = Segment { options: options.clone(), ..Segment::new((9, 9), (2, 0), 2, b"body") };
            let mut frame = hosts::ethernet(v6, &hosts::ip(v6, (1, 2), 6, &segment.unsummed()));
            let (mut change, mut from) = (Rewrite::default(), 0);
            decode(&frame, |view| {
                assert!(view.decoded().transport.tcp().unwrap().options.multipath);
                change.reset_to(view);
                from = change.header + 20;
            });
            change.multipath = true;
            let mut counters = NormaliserCounters::default();
            assert!(rewrite(&mut frame, &change, &[], &mut Vec::new(), &mut counters));
            assert_eq!(frame[from..from + after.len()], after);
            decode(&frame, |view| {
                let options = view.decoded().transport.tcp().unwrap().options;
                assert_eq!((options.multipath, options.mss, options.wscale), (false, Some(1460), Some(7)));
                assert_eq!((view.l4_checksum_ok(), view.payload()), (Some(true), &b"body"[..]));
            });
            assert_eq!(counters.multipath_cleared, 1);
        }
        // After the end of the list, and after a malformed option, receivers read nothing.
        for list in [[0, 30, 4, 1], [3, 1, 30, 2], [30, 9, 1, 1], [8, 0, 30, 2]] {
            let mut header = [&[7; 20][..], &list].concat();
            take_out_multipath(&mut header);
            assert_eq!(header, [&[7; 20][..], &list].concat());
        }
    }

    #[test]
    fn a_segment_gets_the_bytes_before_it_in_front() {
        for v6 in [false, true] {
            let segment = Segment::new((9, 9), (2, 0), 0x18, b"body");
            let segment = Segment { chksum: Some(0x1234), ..segment };
            let mut frame = hosts::ethernet(v6, &hosts::ip_as_is(v6, (1, 2), 6, &segment.unsummed()));
            // Link padding is no payload.
            frame.extend_from_slice(&[0; 2]);
            let (packets, mut change) = (packets_of(&frame), Rewrite::default());
            decode(&frame, |view| {
                assert!(can_resize(view));
                change.reset_to(view);
            });
            change.resize.front.extend_from_slice(b"head");
            let (mut counters, mut longer) = (NormaliserCounters::default(), vec![9]);
            assert!(rewrite(&mut frame, &change, &packets, &mut longer, &mut counters));
            decode(&longer, |view| {
                let TransportLayer::Tcp(tcp) = &view.decoded().transport else { panic!("no TCP") };
                // Over the wrap of the numbers.
                assert_eq!((tcp.seq, view.payload()), (u32::MAX - 1, &b"headbody"[..]));
                assert_eq!((view.l4_checksum_ok(), view.decoded().events.as_slice()), (Some(true), &[][..]));
                if !v6 {
                    assert_eq!(packet::sum(0, &longer[14..34]), 0xffff);
                }
            });
            assert_eq!(counters, NormaliserCounters { completed: 1, ..NormaliserCounters::default() });
        }
    }

    #[test]
    fn a_segment_loses_its_first_bytes() {
        const FIN: u8 = 1;
        const ALL: u8 = 0x38;
        // Bytes that go, flags, and the number and flags that are left.
        let rows = [
            (4, ALL, 7, 0x10),
            (4, ALL | FIN, 11, 0x10 | FIN),
            (3, 0x18, 10, 0x18),
            (1, 0x18 | FIN, 8, 0x19),
        ];
        for (v6, (trim, flags, seq, left)) in
            [false, true].into_iter().flat_map(|v6| rows.map(|row| (v6, row)))
        {
            let segment = Segment::new((9, 9), (7, 0), u16::from(flags), b"body");
            let segment = Segment { chksum: Some(0x1234), ..segment };
            let mut frame = hosts::ethernet(v6, &hosts::ip_as_is(v6, (1, 2), 6, &segment.unsummed()));
            frame.extend_from_slice(&[0; 2]);
            let (packets, mut change) = (packets_of(&frame), Rewrite::default());
            decode(&frame, |view| {
                assert!(can_resize(view));
                change.reset_to(view);
            });
            change.resize.trim = trim;
            let (mut counters, mut shorter) = (NormaliserCounters::default(), vec![9]);
            assert!(rewrite(&mut frame, &change, &packets, &mut shorter, &mut counters));
            decode(&shorter, |view| {
                let TransportLayer::Tcp(tcp) = &view.decoded().transport else { panic!("no TCP") };
                assert_eq!((tcp.seq, view.payload()), (seq, &b"body"[trim..]));
                assert_eq!((tcp.flags.bits(), tcp.urgent), (left, 0));
                assert_eq!((view.l4_checksum_ok(), view.decoded().events.as_slice()), (Some(true), &[][..]));
                if !v6 {
                    assert_eq!(packet::sum(0, &shorter[14..34]), 0xffff);
                }
            });
            assert_eq!(counters, NormaliserCounters { trimmed: 1, ..NormaliserCounters::default() });
            change.resize.trim = 5;
            assert!(
                !rewrite(&mut frame, &change, &packets, &mut shorter, &mut counters) && shorter.is_empty()
            );
        }
    }

    /// Frames with a segment in tunnels of all kinds, and of two kinds at once; whether it may be resized.
    fn in_tunnels(outer6: bool, v6: bool, segment: &[u8]) -> Vec<(&'static str, bool, Vec<u8>)> {
        let ip = hosts::ip(v6, (1, 2), 6, segment);
        let inner = hosts::ethernet(v6, &ip);
        let ether_type = [inner[12], inner[13]];
        let datagram = |port: u16, sum: bool, kind: &[u8], inside: &[u8]| {
            let udp = Datagram::new((4_097, port), &[kind, inside].concat());
            let udp = Datagram { chksum: Some(0), ..udp }.unsummed();
            let ip = if sum { hosts::ip } else { hosts::ip_as_is };
            hosts::ethernet(outer6, &ip(outer6, (7, 8), 17, &udp))
        };
        let in_ip = |protocol: u8, head: &[u8], inside: &[u8]| {
            hosts::ethernet(outer6, &hosts::ip(outer6, (7, 8), protocol, &[head, inside].concat()))
        };
        let vxlan = [8, 0, 0, 0, 0, 0, 5, 0];
        let geneve = [0, 0, 0x65, 0x58, 0, 0, 5, 0];
        let gre = |flags: [u8; 2], tail: &[u8]| [&flags[..], &ether_type, tail].concat();
        let number = if v6 { 41 } else { 4 };
        let twice = datagram(4789, true, &vxlan, &in_ip(47, &gre([0x20, 0], &[0, 0, 0, 9]), &ip));
        vec![
            ("vxlan with a checksum", true, datagram(4789, true, &vxlan, &inner)),
            ("vxlan without", true, datagram(4789, false, &vxlan, &inner)),
            ("geneve", true, datagram(6081, true, &geneve, &inner)),
            ("gre", true, in_ip(47, &gre([0x20, 0], &[0, 0, 0, 9]), &ip)),
            ("ip in ip", true, in_ip(number, &[], &ip)),
            ("two tunnels", true, twice),
            ("gre with a checksum", false, in_ip(47, &gre([0x80, 0], &[0, 0, 0, 0]), &ip)),
            ("gre with a sequence", false, in_ip(47, &gre([0x10, 0], &[0, 0, 0, 9]), &ip)),
        ]
    }

    #[test]
    fn a_segment_in_a_tunnel_loses_its_first_bytes_and_all_headers_around_it_agree() {
        let tunnels = |outer6: bool, v6: bool, seq: u32, payload: &[u8]| {
            let segment = Segment::new((9, 9), (seq, 0), 0x18, payload).unsummed();
            in_tunnels(outer6, v6, &segment)
        };
        for (outer6, v6) in [(false, false), (false, true), (true, false), (true, true)] {
            let wanted = tunnels(outer6, v6, 9, b"dy");
            let rows = tunnels(outer6, v6, 7, b"body");
            for ((name, fits, mut frame), (_, _, wanted)) in rows.into_iter().zip(wanted) {
                // Link padding does not leave.
                frame.extend_from_slice(&[0; 3]);
                let packets = packets_of(&frame);
                let view = PacketView::new(&frame, packets.last().unwrap());
                assert_eq!(view.payload(), b"body", "{name} {outer6} {v6}");
                assert_eq!(can_resize(&view), fits, "{name} {outer6} {v6}");
                if !fits {
                    continue;
                }
                let mut change = Rewrite::default();
                change.reset_to(&view);
                change.resize.trim = 2;
                let mut shorter = Vec::new();
                let counters = &mut NormaliserCounters::default();
                assert!(rewrite(&mut frame, &change, &packets, &mut shorter, counters));
                assert_eq!(shorter, wanted, "{name} {outer6} {v6}");
            }
        }
    }

    #[test]
    fn replaced_bytes_have_a_right_checksum_in_every_transport() {
        for v6 in [false, true] {
            let wrong = Some(0x1234);
            let datagram = Datagram { chksum: wrong, ..Datagram::new((9, 9), b"evil") };
            let segment = Segment { chksum: wrong, ..Segment::new((9, 9), (9, 0), 0x10, b"evil") };
            let echo = [&[if v6 { 128 } else { 8 }, 0, 0x12, 0x34, 0, 1, 0, 2], &b"evil"[..]].concat();
            for (protocol, body) in
                [(17, datagram.unsummed()), (6, segment.unsummed()), (if v6 { 58 } else { 1 }, echo)]
            {
                let mut frame = hosts::ethernet(v6, &hosts::ip_as_is(v6, (1, 2), protocol, &body));
                let at = frame.len() - body.len();
                let mut change = Rewrite::default();
                decode(&frame, |view| {
                    let packet = view.decoded();
                    change.payload = packet.payload as usize;
                    change.header = packet.l4 as usize;
                    change.ends = packet.src().zip(packet.dst());
                });
                assert_eq!(change.header, at);
                (change.bytes, change.protocol, change.replaced) = (b"good".to_vec(), protocol, true);
                let mut counters = NormaliserCounters::default();
                assert!(rewrite(&mut frame, &change, &[], &mut Vec::new(), &mut counters));
                decode(&frame, |view| {
                    assert_eq!(view.payload(), b"good");
                    assert_eq!(view.l4_checksum_ok(), Some(true), "{protocol} {v6}");
                });
                assert_eq!((counters.replaced, counters.rewritten), (1, 0));
            }
        }
    }

    #[test]
    fn a_datagram_without_a_checksum_stays_without_one() {
        let mut frame =
            hosts::ethernet(false, &hosts::ip_as_is(false, (1, 2), 17, &hosts::udp((9, 9), b"evil")));
        let ends = Some(("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()));
        let mut change = Rewrite {
            payload: 42,
            header: 34,
            bytes: b"good".to_vec(),
            ends,
            protocol: 17,
            ..Rewrite::default()
        };
        let mut counters = NormaliserCounters::default();
        assert!(rewrite(&mut frame, &change, &[], &mut Vec::new(), &mut counters));
        assert_eq!((&frame[40..42], &frame[42..]), (&[0, 0][..], &b"good"[..]));
        // A protocol without a known checksum is left unchanged.
        change.protocol = 132;
        let before = frame.clone();
        assert!(!rewrite(&mut frame, &change, &[], &mut Vec::new(), &mut counters));
        assert_eq!(frame, before);
    }
}

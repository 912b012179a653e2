// SPDX-License-Identifier: Apache-2.0
//! The RST or ICMP message that answers the sender of a rejected packet, and the packets that get no answer
//! (RFC 1122 sections 3.2.2 and 4.2.3.10, RFC 1812 section 4.3.2.7, RFC 4443 section 2.4 e).
//!
//! Directed broadcasts look like any other address, since the prefix length of the receiver's network is
//! unknown: they are answered unless their frame is a broadcast as well, as it is on the receiver's own link.

use super::{NormaliserCounters, l4_checksum, put_checksum};
use bartizan_packet::{Decoded, InternetChecksum, Network, PacketView, TcpFlags, TransportLayer};
use core::net::IpAddr;

/// The reason why a rejected packet is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It is not IP, or its headers do not allow an answer.
    Unanswerable,
    /// It is in a tunnel, whose outer header only the tunnel's ends may make.
    Tunnel,
    /// It went to a multicast or broadcast address, of the network or of the link: an answer would bear that
    /// address as its source.
    Group,
    /// Its source is no single host: unspecified, loopback, multicast, broadcast or reserved.
    NoHost,
    /// It is a fragment other than the first.
    Fragment,
    /// It is a RST.
    Reset,
    /// It is an ICMP error or redirect, or an ICMP message that cannot be read.
    IcmpError,
}

impl Silence {
    /// All, in the order of their numbers.
    pub const ALL: [Silence; 7] = [
        Silence::Unanswerable,
        Silence::Tunnel,
        Silence::Group,
        Silence::NoHost,
        Silence::Fragment,
        Silence::Reset,
        Silence::IcmpError,
    ];

    /// The name of its counter.
    #[must_use]
    pub const fn counter(self) -> &'static str {
        match self {
            Silence::Unanswerable => "normaliser.silent_unanswerable",
            Silence::Tunnel => "normaliser.silent_tunnel",
            Silence::Group => "normaliser.silent_group",
            Silence::NoHost => "normaliser.silent_no_host",
            Silence::Fragment => "normaliser.silent_fragment",
            Silence::Reset => "normaliser.silent_reset",
            Silence::IcmpError => "normaliser.silent_icmp_error",
        }
    }

    /// The counters of two workers together.
    pub(super) fn sum(one: [u64; 7], other: [u64; 7]) -> [u64; 7] {
        let mut sum = one;
        sum.iter_mut().zip(other).for_each(|(sum, more)| *sum += more);
        sum
    }
}

/// The frame that answers a rejected packet: a RST for TCP, else ICMP "administratively prohibited".
pub fn rejection(view: &PacketView<'_>, counters: &mut NormaliserCounters) -> Option<Vec<u8>> {
    let made = silence(view).map_or_else(|| answer(view).ok_or(Silence::Unanswerable), Err);
    match &made {
        Err(silence) => {
            if let Some(count) = counters.silent.get_mut(*silence as usize) {
                *count += 1;
            }
        }
        Ok(_) if view.decoded().transport.tcp().is_some() => counters.resets += 1,
        Ok(_) => counters.unreachables += 1,
    }
    made.ok()
}

/// The reason why a packet must not be answered.
fn silence(view: &PacketView<'_>) -> Option<Silence> {
    let packet = view.decoded();
    let Some((src, dst)) = packet.src().zip(packet.dst()) else { return Some(Silence::Unanswerable) };
    let is_later_fragment = match &packet.network {
        Network::Ipv4(ip) => ip.fragment.offset != 0,
        Network::Ipv6(ip) => ip.fragment.is_some_and(|part| part.offset != 0),
        _ => false,
    };
    let is_group = |address: [u8; 6]| address.first().is_some_and(|first| first & 1 != 0);
    let (to_group, from_group) =
        view.mac_addresses().map_or((false, false), |(from, to)| (is_group(to), is_group(from)));
    match &packet.transport {
        _ if packet.recursion != 0 => Some(Silence::Tunnel),
        _ if to_group || !is_host(dst) => Some(Silence::Group),
        _ if from_group || !is_host(src) => Some(Silence::NoHost),
        _ if is_later_fragment => Some(Silence::Fragment),
        TransportLayer::Tcp(tcp) if tcp.flags.contains(TcpFlags::RST) => Some(Silence::Reset),
        TransportLayer::Icmp(_) if packet.is_icmpv4_error() => Some(Silence::IcmpError),
        TransportLayer::Icmpv6(icmp) if icmp.kind < 128 || icmp.kind == ICMPV6_REDIRECT => {
            Some(Silence::IcmpError)
        }
        TransportLayer::Icmp(_) | TransportLayer::Icmpv6(_) => None,
        _ if matches!(packet.proto(), Some(1 | 58)) => Some(Silence::IcmpError),
        _ => None,
    }
}

/// RFC 4443 section 2.4 e: a redirect is not answered, though it is no error.
const ICMPV6_REDIRECT: u8 = 137;

/// Whether an address belongs to a single host that is reachable over a link (RFC 1122 section 3.2.1.3, RFC
/// 4291 section 2).
fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !matches!(address.octets(), [0 | 127 | 224.., ..]),
        IpAddr::V6(address) => {
            let is_mapped = address.to_ipv4_mapped().is_some();
            !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_mapped)
        }
    }
}

fn answer(view: &PacketView<'_>) -> Option<Vec<u8>> {
    let packet = view.decoded();
    let (src, dst) = (packet.src()?, packet.dst()?);
    let (protocol, body) = match &packet.transport {
        TransportLayer::Tcp(tcp) => (6, reset(view, tcp, src, dst)?),
        _ => unreachable_message(view, src, dst)?,
    };
    let mut frame = link_header(view, packet)?;
    ip_header(&mut frame, packet, protocol, dst, src, &body)?;
    frame.extend_from_slice(&body);
    Some(frame)
}

/// The link header with swapped addresses; VLAN tags are kept.
fn link_header(view: &PacketView<'_>, packet: &Decoded) -> Option<Vec<u8>> {
    let header = view.frame().get(..packet.l3 as usize)?;
    let (destination, rest) = header.split_first_chunk::<6>()?;
    let (source, rest) = rest.split_first_chunk::<6>()?;
    let mut out = Vec::with_capacity(header.len() + 100);
    out.extend_from_slice(source);
    out.extend_from_slice(destination);
    out.extend_from_slice(rest);
    Some(out)
}

fn ip_header(
    out: &mut Vec<u8>,
    packet: &Decoded,
    protocol: u8,
    from: IpAddr,
    to: IpAddr,
    body: &[u8],
) -> Option<()> {
    let length = u16::try_from(body.len()).ok()?;
    match (&packet.network, from, to) {
        (Network::Ipv4(_), IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let total = length.checked_add(20)?.to_be_bytes();
            header[2..4].copy_from_slice(&total);
            header[12..16].copy_from_slice(&from.octets());
            header[16..20].copy_from_slice(&to.octets());
            let sum = InternetChecksum::new().with(&header).finish();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            out.extend_from_slice(&header);
        }
        (Network::Ipv6(_), IpAddr::V6(from), IpAddr::V6(to)) => {
            out.extend_from_slice(&[0x60, 0, 0, 0]);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&[protocol, 64]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        _ => return None,
    }
    Some(())
}

/// A RST that the sender of `tcp` accepts.
fn reset(view: &PacketView<'_>, tcp: &bartizan_packet::Tcp, src: IpAddr, dst: IpAddr) -> Option<Vec<u8>> {
    let has_ack = tcp.flags.contains(TcpFlags::ACK);
    let length = u32::try_from(view.payload().len()).ok()?;
    let counted = u32::from(tcp.flags.contains(TcpFlags::SYN)) + u32::from(tcp.flags.contains(TcpFlags::FIN));
    let (seq, ack, flags) = if has_ack {
        (tcp.ack, 0, TcpFlags::RST)
    } else {
        (0, tcp.seq.wrapping_add(length).wrapping_add(counted), TcpFlags::RST | TcpFlags::ACK)
    };
    let mut out = Vec::with_capacity(20);
    out.extend_from_slice(&tcp.dport.to_be_bytes());
    out.extend_from_slice(&tcp.sport.to_be_bytes());
    out.extend_from_slice(&seq.to_be_bytes());
    out.extend_from_slice(&ack.to_be_bytes());
    out.extend_from_slice(&[0x50, flags.bits(), 0, 0, 0, 0, 0, 0]);
    let sum = l4_checksum(dst, src, 6, &out)?;
    put_checksum(&mut out, 16, sum)?;
    Some(out)
}

/// ICMP "communication administratively prohibited" with the beginning of the packet.
fn unreachable_message(view: &PacketView<'_>, src: IpAddr, dst: IpAddr) -> Option<(u8, Vec<u8>)> {
    let packet = view.decoded();
    let quoted = view.frame().get(packet.l3 as usize..packet.end as usize)?;
    match (src, dst) {
        (IpAddr::V4(_), IpAddr::V4(_)) => {
            // Header and 8 bytes at least; 548 bytes keep the message within 576 (RFC 1812 section 4.3.2.3).
            let quoted = quoted.get(..quoted.len().min(548))?;
            let mut out = vec![3, 13, 0, 0, 0, 0, 0, 0];
            out.extend_from_slice(quoted);
            let sum = InternetChecksum::new().with(&out).finish();
            put_checksum(&mut out, 2, sum)?;
            Some((1, out))
        }
        (IpAddr::V6(_), IpAddr::V6(_)) => {
            // As much as fits the minimum MTU of 1280 (RFC 4443 section 3.1).
            let quoted = quoted.get(..quoted.len().min(1232))?;
            let mut out = vec![1, 1, 0, 0, 0, 0, 0, 0];
            out.extend_from_slice(quoted);
            let sum = l4_checksum(dst, src, 58, &out)?;
            put_checksum(&mut out, 2, sum)?;
            Some((58, out))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_packet::{DecodeOutput, Decoder, LinkType};
    use bartizan_testkit::hosts;
    use bartizan_testkit::packet::{self, End, Ip, Packet, address};

    /// A packet with hardware addresses of its own.
    fn frame(packet: Packet) -> Vec<u8> {
        Packet { ip: Ip { mac: [2; 6], from_mac: [4; 6], ..packet.ip }, ..packet }.frame()
    }

    fn ends(v6: bool, ports: (u16, u16)) -> (End, End) {
        ((address(v6, 1), ports.0), (address(v6, 2), ports.1))
    }

    fn decode(frame: &[u8], check: impl FnOnce(&PacketView<'_>)) {
        let mut output = DecodeOutput::new();
        Decoder::default().decode(LinkType::ETHERNET, frame, frame.len() as u32, &mut output);
        check(&PacketView::new(frame, output.outer().unwrap()));
    }

    /// The results for packets of all kinds between two addresses.
    fn silences(from: &str, to: &str, macs: ([u8; 6], [u8; 6])) -> Vec<Option<Silence>> {
        let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
        let packets = [
            packet::tcp((from, 7), (to, 80), (9, 0), 2, b""),
            packet::udp((from, 7), (to, 53), b"x"),
            packet::icmp(from, to, (8, 128), 0, &[0, 1, 0, 1]),
        ];
        let of = |packet: Packet| {
            let frame = Packet { ip: Ip { mac: macs.1, from_mac: macs.0, ..packet.ip }, ..packet }.frame();
            let mut counters = NormaliserCounters::default();
            let mut is_answered = false;
            decode(&frame, |view| is_answered = rejection(view, &mut counters).is_some());
            let silent: u64 = counters.silent.iter().sum();
            assert_eq!(silent + counters.resets + counters.unreachables, 1);
            assert_eq!(is_answered, silent == 0);
            Silence::ALL.into_iter().find(|silence| counters.silent[*silence as usize] > 0)
        };
        packets.into_iter().map(of).collect()
    }

    #[test]
    fn what_went_to_many_or_came_from_no_host_is_not_answered() {
        let host = ([2; 6], [4; 6]);
        let cases = [
            ("192.0.2.1", "198.51.100.2", None),
            ("192.0.2.1", "224.0.0.251", Some(Silence::Group)),
            ("192.0.2.1", "239.255.255.250", Some(Silence::Group)),
            ("192.0.2.1", "255.255.255.255", Some(Silence::Group)),
            ("192.0.2.1", "0.0.0.0", Some(Silence::Group)),
            ("0.0.0.0", "198.51.100.2", Some(Silence::NoHost)),
            ("127.0.0.1", "198.51.100.2", Some(Silence::NoHost)),
            ("224.0.0.1", "198.51.100.2", Some(Silence::NoHost)),
            ("240.0.0.1", "198.51.100.2", Some(Silence::NoHost)),
            ("255.255.255.255", "198.51.100.2", Some(Silence::NoHost)),
            ("2001:db8::1", "2001:db8::2", None),
            ("fe80::1", "2001:db8::2", None),
            ("2001:db8::1", "ff02::fb", Some(Silence::Group)),
            ("::", "2001:db8::2", Some(Silence::NoHost)),
            ("::1", "2001:db8::2", Some(Silence::NoHost)),
            ("ff02::1", "2001:db8::2", Some(Silence::NoHost)),
            ("::ffff:192.0.2.1", "2001:db8::2", Some(Silence::NoHost)),
        ];
        for (from, to, silence) in cases {
            assert_eq!(silences(from, to, host), [silence; 3], "{from} to {to}");
        }
        for (from, to) in [("192.0.2.1", "198.51.100.2"), ("2001:db8::1", "2001:db8::2")] {
            let group = Some(Silence::Group);
            assert_eq!(silences(from, to, ([2; 6], [0xff; 6])), [group; 3]);
            assert_eq!(silences(from, to, ([2; 6], [1, 0, 0x5e, 0, 0, 1])), [group; 3]);
            assert_eq!(silences(from, to, ([0xff; 6], [4; 6])), [Some(Silence::NoHost); 3]);
        }
    }

    #[test]
    fn errors_and_later_fragments_are_not_answered() {
        let silence = |frame: &[u8]| {
            let mut found = None;
            decode(frame, |view| found = silence(view));
            found
        };
        for v6 in [false, true] {
            let (from, to) = (address(v6, 1), address(v6, 2));
            let kinds: &[u8] = if v6 { &[1, 2, 3, 4, 127, 137] } else { &[3, 4, 5, 11, 12] };
            for kind in kinds {
                let error = frame(packet::icmp(from, to, (*kind, *kind), 0, &[0; 4]));
                assert_eq!(silence(&error), Some(Silence::IcmpError), "IPv6 {v6}, type {kind}");
            }
            let parts = hosts::fragments(v6, (1, 2), 17, 9, &hosts::udp((7, 53), &[7; 64]), 32);
            assert!(parts.len() > 1);
            for (number, part) in parts.iter().enumerate() {
                let expected = (number > 0).then_some(Silence::Fragment);
                assert_eq!(silence(&hosts::ethernet(v6, part)), expected, "IPv6 {v6}, fragment {number}");
            }
        }
    }

    #[test]
    fn a_syn_is_answered_with_a_reset_that_its_sender_accepts() {
        let (from, to) = ends(false, (0x1000, 80));
        let frame = frame(packet::tcp(from, to, (9, 0), 2, b""));
        let mut counters = NormaliserCounters::default();
        let mut made = Vec::new();
        decode(&frame, |view| made = rejection(view, &mut counters).unwrap());
        decode(&made, |view| {
            assert_eq!(view.ip_checksum_ok(), Some(true));
            assert_eq!(view.l4_checksum_ok(), Some(true));
            let TransportLayer::Tcp(tcp) = &view.decoded().transport else { panic!("no TCP") };
            assert_eq!((tcp.sport, tcp.dport, tcp.ack), (80, 0x1000, 10));
            assert_eq!(tcp.flags, TcpFlags::RST | TcpFlags::ACK);
            assert_eq!(view.mac_addresses(), Some(([2; 6], [4; 6])));
        });
        // A reset is not answered.
        decode(&made, |view| assert!(rejection(view, &mut counters).is_none()));
        assert_eq!((counters.resets, counters.silent[Silence::Reset as usize]), (1, 1));
    }

    #[test]
    fn a_datagram_is_answered_with_unreachable_in_both_versions() {
        let mut counters = NormaliserCounters::default();
        for (v6, kind, code) in [(false, 3, 13), (true, 1, 1)] {
            let (from, to) = ends(v6, (0x1000, 53));
            let frame = frame(packet::udp(from, to, b"x"));
            let mut made = Vec::new();
            decode(&frame, |view| made = rejection(view, &mut counters).unwrap());
            decode(&made, |view| {
                assert_eq!(view.l4_checksum_ok(), Some(true));
                let (TransportLayer::Icmp(icmp) | TransportLayer::Icmpv6(icmp)) = &view.decoded().transport
                else {
                    panic!("no ICMP")
                };
                assert_eq!((icmp.kind, icmp.code), (kind, code));
                assert_eq!(icmp.quoted.unwrap().ports, Some((0x1000, 53)));
            });
        }
        assert_eq!(counters.unreachables, 2);
    }
}

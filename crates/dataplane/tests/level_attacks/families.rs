// SPDX-License-Identifier: Apache-2.0
//! Families of odd frames, each made of a plain packet of a flow.

use super::{EVIL, Flow};
use bartizan_testkit::packet::{
    ACK, Datagram, FIN, Layer, PSH, Packet, Piece, RST, SYN, Segment, TCP, UDP, URG,
};

/// Frames of a family, made of a plain packet of a side (0) of a flow with a load that is refused where it is
/// inspected.
pub(super) type Family = (&'static str, fn(&Flow) -> Vec<Vec<u8>>);

/// The packet, changed.
fn changed(flow: &Flow, change: impl Fn(&mut Packet)) -> Vec<Vec<u8>> {
    let mut packet = flow.packet(0, ACK | PSH, EVIL);
    change(&mut packet);
    vec![flow.wrap.frame(&packet, 0)]
}

/// The segment, changed; of a datagram none.
fn segment(flow: &Flow, change: impl Fn(&mut Segment)) -> Vec<Vec<u8>> {
    if flow.protocol == UDP {
        return Vec::new();
    }
    changed(flow, |packet| {
        if let Layer::Tcp(segment) = &mut packet.layer {
            change(segment);
        }
    })
}

/// The datagram, changed; of a segment none.
fn datagram(flow: &Flow, change: impl Fn(&mut Datagram)) -> Vec<Vec<u8>> {
    if flow.protocol == TCP {
        return Vec::new();
    }
    changed(flow, |packet| {
        if let Layer::Udp(datagram) = &mut packet.layer {
            change(datagram);
        }
    })
}

/// A part of the packet's payload, as a fragment.
fn part(flow: &Flow, from: usize, to: usize, more: bool) -> Vec<u8> {
    let packet = flow.packet(0, ACK | PSH, EVIL);
    let whole = packet.payload();
    let bytes = whole[from..to.min(whole.len())].to_vec();
    let mut ip = packet.ip.clone();
    ip.id = u32::from(flow.ends[0].1);
    flow.wrap.frame(&Packet { ip, layer: Layer::Part(bytes), piece: Some(Piece { offset: from, more }) }, 0)
}

/// With IPv6 extension headers; nothing for IPv4.
fn extended(flow: &Flow, headers: &[(u8, &[u8])]) -> Vec<Vec<u8>> {
    if flow.ends[0].0.is_ipv4() {
        return Vec::new();
    }
    changed(flow, |packet| {
        packet.ip.extensions = headers.iter().map(|(kind, bytes)| (*kind, bytes.to_vec())).collect();
    })
}

/// With IPv4 options; nothing for IPv6.
fn optioned(flow: &Flow, options: &[u8]) -> Vec<Vec<u8>> {
    if flow.ends[0].0.is_ipv6() {
        return Vec::new();
    }
    changed(flow, |packet| packet.ip.options = options.to_vec())
}

/// The frame itself, changed.
fn raw(flow: &Flow, change: impl Fn(&mut Vec<u8>)) -> Vec<Vec<u8>> {
    let mut frames = changed(flow, |_| ());
    frames.iter_mut().for_each(change);
    frames
}

const PADDING: &[u8] = &[0, 1, 4, 0, 0, 0, 0];

/// Never handled below.
pub(super) const UP: &[Family] = &[
    ("a first fragment", |f| vec![part(f, 0, 40, true)]),
    ("a later fragment", |f| vec![part(f, 40, 999, false)]),
    ("all fragments", |f| vec![part(f, 0, 40, true), part(f, 40, 999, false)]),
    ("all fragments, the last one first", |f| vec![part(f, 40, 999, false), part(f, 0, 40, true)]),
    ("fragments that overlap", |f| {
        vec![part(f, 0, 48, true), part(f, 24, 56, true), part(f, 48, 999, false)]
    }),
    ("a first fragment without ports", |f| vec![part(f, 0, 0, true), part(f, 8, 16, true)]),
    ("a whole fragment", |f| if f.ends[0].0.is_ipv6() { vec![part(f, 0, 999, false)] } else { Vec::new() }),
    ("hop-by-hop options", |f| extended(f, &[(0, PADDING)])),
    ("destination options", |f| extended(f, &[(60, PADDING)])),
    ("a routing header", |f| extended(f, &[(43, PADDING)])),
    ("two extension headers", |f| extended(f, &[(0, PADDING), (60, PADDING)])),
    ("an authentication header", |f| extended(f, &[(51, &[1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1])])),
    ("hop-by-hop options behind others", |f| extended(f, &[(60, PADDING), (0, PADDING)])),
    ("nothing behind the header", |f| changed(f, |p| p.ip.fixed.proto = Some(59))),
    ("options of IPv4", |f| optioned(f, &[1, 1, 1, 0])),
    ("router alert", |f| optioned(f, &[148, 4, 0, 0])),
    ("record route", |f| optioned(f, &[7, 7, 4, 0, 0, 0, 0, 0])),
    ("an option without length", |f| optioned(f, &[7, 0, 0, 0])),
    ("a header of 4 words", |f| optioned_fixed(f, 4)),
    ("a header of 15 words", |f| optioned_fixed(f, 15)),
    ("one byte longer than the frame", |f| changed(f, |p| p.ip.fixed.len = Some(length(p) + 1))),
    ("of no length", |f| changed(f, |p| p.ip.fixed.len = Some(0))),
    ("as long as its header", |f| {
        changed(f, |p| p.ip.fixed.len = Some(length(p) - p.payload().len() as u16))
    }),
    ("another version", |f| changed(f, |p| p.ip.fixed.version = Some(5))),
    ("the other version", |f| {
        changed(f, |p| p.ip.fixed.version = Some(if p.ip.src.is_ipv4() { 6 } else { 4 }))
    }),
    ("a wrong IPv4 checksum", |f| {
        if f.ends[0].0.is_ipv4() { changed(f, |p| p.ip.fixed.chksum = Some(1)) } else { Vec::new() }
    }),
    ("the reserved flag", |f| {
        if f.ends[0].0.is_ipv4() { changed(f, |p| p.ip.fixed.flags = Some(6)) } else { Vec::new() }
    }),
    ("a datagram of no length", |f| datagram(f, |d| d.len = Some(0))),
    ("a datagram of 7 bytes", |f| datagram(f, |d| d.len = Some(7))),
    ("a short datagram", |f| datagram(f, |d| d.len = Some(8))),
    ("a long datagram", |f| datagram(f, |d| d.len = Some(9 + d.load.len() as u16))),
    ("data offset 0", |f| segment(f, |s| s.dataofs = Some(0))),
    ("data offset 4", |f| segment(f, |s| s.dataofs = Some(4))),
    ("data offset behind the packet", |f| segment(f, |s| (s.dataofs, s.load) = (Some(15), vec![1; 20]))),
    ("no flags", |f| segment(f, |s| s.flags = 0)),
    ("all flags", |f| segment(f, |s| s.flags = 0x1ff)),
    ("SYN and FIN", |f| segment(f, |s| s.flags = SYN | FIN)),
    ("without ACK", |f| segment(f, |s| s.flags = FIN | PSH | URG)),
    ("SYN and RST", |f| segment(f, |s| s.flags = SYN | RST)),
    ("a RST beside the window", |f| segment(f, |s| (s.seq, s.flags) = (s.seq.wrapping_sub(9_999), RST))),
    ("a RST in the window", |f| segment(f, |s| (s.seq, s.flags) = (s.seq.wrapping_add(99), RST | ACK))),
    ("a SYN in the window", |f| segment(f, |s| (s.flags, s.load) = (SYN, Vec::new()))),
    ("a SYN and ACK with data", |f| segment(f, |s| s.flags = SYN | ACK)),
    ("a FIN beside the window", |f| {
        segment(f, |s| (s.seq, s.flags) = (s.seq.wrapping_sub(9_999), FIN | ACK))
    }),
    ("odd options", |f| segment(f, |s| s.raw_options = vec![2, 4, 5, 180])),
    ("broken options", |f| segment(f, |s| s.raw_options = vec![1, 1, 8, 11, 0, 0, 0, 1, 0, 0, 0, 2])),
    ("a MAC control frame's type", |f| raw(f, |b| b[12..14].copy_from_slice(&[0x88, 8]))),
    ("EtherType 0x9100", |f| raw(f, |b| b[12..14].copy_from_slice(&[0x91, 0]))),
    ("the other version's EtherType", |f| {
        raw(f, |b| match [b[12], b[13]] {
            [8, 0] => b[12..14].copy_from_slice(&[0x86, 0xdd]),
            [0x86, 0xdd] => b[12..14].copy_from_slice(&[8, 0]),
            _ => b[12] = 0x99,
        })
    }),
    ("cut off", |f| {
        let frame = raw(f, |_| ()).remove(0);
        (14..frame.len()).step_by(3).map(|length| frame[..length].to_vec()).collect()
    }),
];

fn optioned_fixed(flow: &Flow, words: u8) -> Vec<Vec<u8>> {
    if flow.ends[0].0.is_ipv6() {
        return Vec::new();
    }
    changed(flow, |packet| packet.ip.fixed.ihl = Some(words))
}

/// Length of a packet by its IP header.
pub(super) fn length(packet: &Packet) -> u16 {
    let payload = packet.payload().len() as u16;
    if packet.ip.src.is_ipv4() { 20 + payload } else { payload }
}

/// May be handled below, and is as at the host.
pub(super) const EITHER: &[Family] = &[
    ("TTL 0", |f| changed(f, |p| p.ip.ttl = 0)),
    ("TTL 1", |f| changed(f, |p| p.ip.ttl = 1)),
    ("a group's MAC address", |f| changed(f, |p| p.ip.mac = [1, 0, 0x5e, 0, 0, 1])),
    ("the broadcast address", |f| changed(f, |p| p.ip.mac = [0xff; 6])),
    ("one MAC address", |f| changed(f, |p| p.ip.from_mac = p.ip.mac)),
    ("data behind the packet", |f| changed(f, |p| p.ip.trailer = 20)),
    ("shorter, with data behind it", |f| changed(f, |p| p.ip.fixed.len = Some(length(p) - 9))),
    ("a wrong UDP checksum", |f| datagram(f, |d| d.chksum = Some(0x1234))),
    ("no UDP checksum", |f| datagram(f, |d| d.chksum = Some(0))),
    ("a wrong TCP checksum", |f| segment(f, |s| s.chksum_error = 1)),
    ("urgent data", |f| segment(f, |s| (s.flags, s.urgptr) = (ACK | URG, 3))),
    ("an urgent pointer without its flag", |f| segment(f, |s| s.urgptr = 3)),
    ("congestion flags", |f| segment(f, |s| s.flags |= 0x1c0)),
    ("reserved bits", |f| segment(f, |s| s.reserved = 5)),
    ("sent again", |f| segment(f, |s| s.seq = s.seq.wrapping_sub(4))),
    ("far ahead", |f| segment(f, |s| s.seq = s.seq.wrapping_add(1 << 30))),
    ("far behind", |f| {
        segment(f, |s| (s.seq, s.ack) = (s.seq.wrapping_sub(1 << 30), s.ack.wrapping_sub(1 << 30)))
    }),
    ("a FIN", |f| segment(f, |s| (s.flags, s.load) = (FIN | ACK, Vec::new()))),
    ("a FIN with data", |f| segment(f, |s| s.flags = FIN | ACK)),
    ("a FIN with a wrong checksum", |f| {
        segment(f, |s| (s.flags, s.load, s.chksum_error) = (FIN | ACK, Vec::new(), 1))
    }),
    ("a FIN that does not come far", |f| {
        changed(f, |p| {
            p.ip.ttl = 1;
            if let Layer::Tcp(segment) = &mut p.layer {
                (segment.flags, segment.load) = (FIN | ACK, Vec::new());
            }
        })
    }),
];

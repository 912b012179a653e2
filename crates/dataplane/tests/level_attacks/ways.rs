// SPDX-License-Identifier: Apache-2.0
//! Encapsulations that lead to the same inner packet: tags, tunnels, and headers beside them.

use super::families::length;
use super::{Flow, WRAPS, Wrap, around, xdp_address};
use crate::xdp_program::{Setting, decode, key};
use bartizan_testkit::layers;
use bartizan_testkit::packet::{Datagram, Ip, Layer, Packet, Piece, udp};
use bartizan_testkit::tunnels::Tunnel;

/// Whether the host finds a packet of a client's port in a frame.
pub(super) fn carries(frame: &[u8], flow: &Flow) -> bool {
    let setting = Setting { sides: false, vlans: true };
    let keys = decode(frame).into_iter().filter_map(|packet| key(&packet, setting, false, 0));
    keys.into_iter().any(|key| key.source_port() == flow.ends[0].1)
}

/// A packet by each way that there is in [`WRAPS`], and by some that lie beside.
pub(super) fn other_ways(packet: &Packet) -> Vec<(String, Vec<u8>)> {
    let mut ways: Vec<(String, Vec<u8>)> =
        WRAPS.into_iter().map(|wrap| (format!("{wrap:?}"), wrap.frame(packet, 0))).collect();
    let tags: [&[u16]; 9] =
        [&[0], &[0, 0], &[0, 7], &[7, 0], &[0x7007], &[8, 7], &[7, 8, 0], &[7, 8, 9], &[7, 8, 0, 0]];
    for tags in tags {
        let mut tagged = packet.clone();
        tagged.ip.tags = tags.to_vec();
        ways.push((format!("tags {tags:?}"), tagged.frame()));
    }
    for wrap in WRAPS {
        if let Wrap::Tunnel(tunnel, v6) = wrap {
            by_tunnel(packet, (tunnel, v6), &mut ways);
        }
    }
    by_others(packet, &mut ways);
    ways
}

/// By a tunnel with something odd around, or in another tunnel.
fn by_tunnel(packet: &Packet, (tunnel, v6): (Tunnel, bool), ways: &mut Vec<(String, Vec<u8>)>) {
    let [from, to] = around(v6, 0);
    let way = tunnel.around((from, to), packet.ip.src.is_ipv6(), &packet.bytes());
    let mut add = |what: &str, change: &dyn Fn(&mut Packet)| {
        let mut way = way.clone();
        change(&mut way);
        ways.push((format!("{what} around, {tunnel:?}, IPv6 {v6}"), way.frame()));
    };
    add("other hosts", &|p| p.ip.src = xdp_address(v6, 9, 3));
    add("a tag", &|p| p.ip.tags = vec![7]);
    add("a priority tag", &|p| p.ip.tags = vec![0x6000]);
    add("a fragment", &|p| p.piece = Some(Piece { offset: 0, more: true }));
    add("a trailer", &|p| p.ip.trailer = 9);
    add("shorter", &|p| p.ip.fixed.len = Some(length(p) - 1));
    add("another protocol", &|p| p.ip.fixed.proto = Some(47));
    for (what, change) in AROUND {
        add(what, &|p| {
            if let Layer::Udp(datagram) = &mut p.layer {
                change(datagram);
            }
        });
    }
    let [from, to] = around(false, 0);
    for outside in [Tunnel::Vxlan(5), Tunnel::Ip, Tunnel::Geneve(5, 1)] {
        let nested = outside.around((from, to), v6, &way.bytes());
        ways.push((format!("{tunnel:?}, IPv6 {v6}, in {outside:?}"), nested.frame()));
    }
}

/// By tunnels of other numbers, by GRE, by ports that are of no tunnel or of two, and with a tag inside.
fn by_others(packet: &Packet, ways: &mut Vec<(String, Vec<u8>)>) {
    let (v6_inside, [from, to]) = (packet.ip.src.is_ipv6(), around(false, 0));
    for tunnel in [
        Tunnel::Vxlan(6),
        Tunnel::Geneve(6, 0),
        Tunnel::Geneve(5, 4),
        Tunnel::GeneveBridge(6),
        Tunnel::Gtp(6, false, 0),
        Tunnel::Gtp(5, false, 2),
    ] {
        ways.push((format!("{tunnel:?}"), tunnel.around((from, to), v6_inside, &packet.bytes()).frame()));
    }
    let with: [([u8; 2], &[u8]); 3] =
        [([0, 0], &[]), ([0x20, 0], &[0, 0, 0, 5]), ([0x30, 0], &[0, 0, 0, 5, 0, 0, 0, 1])];
    for (flags, optional) in with {
        let kind = if v6_inside { 0x86dd } else { 0x0800 };
        let load = layers::gre_with(flags, kind, optional, &packet.bytes());
        let gre = Packet { ip: Ip::new(from.0, to.0, 47), layer: Layer::Part(load), piece: None };
        ways.push((format!("GRE {flags:?}"), gre.frame()));
    }
    let vxlan = layers::vxlan(5, &packet.frame());
    for (source, destination) in [(20_000, 4_790), (4_789, 20_000), (4_789, 6_081), (2_152, 4_789)] {
        let way = udp((from.0, source), (to.0, destination), &vxlan);
        ways.push((format!("VXLAN from {source} to {destination}"), way.frame()));
    }
    let tagged = layers::vxlan(5, &layers::tagged(7, packet.frame()));
    ways.push(("tags in VXLAN".to_owned(), udp(from, (to.0, 4_789), &tagged).frame()));
}

/// Variants of an outer datagram.
type Change = (&'static str, fn(&mut Datagram));
const AROUND: [Change; 7] = [
    ("no checksum", |d| d.chksum = Some(0)),
    ("a wrong checksum", |d| d.chksum = Some(0x1234)),
    ("another source port", |d| d.sport += 7),
    ("a short datagram", |d| d.len = Some(8 + d.load.len() as u16 - 1)),
    ("an odd first byte", |d| d.load[0] ^= 1),
    ("an odd second byte", |d| d.load[1] ^= 1),
    ("an odd eighth byte", |d| d.load[7] ^= 1),
];

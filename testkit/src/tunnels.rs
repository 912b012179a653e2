// SPDX-License-Identifier: Apache-2.0
//! Packets in tunnels whose outer packets have flows: each function puts a packet into an outer one.

use crate::layers;
use crate::packet::{End, Ip, Layer, Packet, udp};

/// A kind of tunnel, with its number and variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// IP in IP, any pair of versions.
    Ip,
    /// VXLAN of a VNI.
    Vxlan(u32),
    /// GENEVE of a VNI, with so many options of eight bytes, directly around an IP packet.
    Geneve(u32, u8),
    /// GENEVE of a VNI around an Ethernet frame.
    GeneveBridge(u32),
    /// GTP-U of a tunnel endpoint; with a sequence number, or with so many extension headers.
    Gtp(u32, bool, u8),
}

impl Tunnel {
    /// One of each variant.
    pub const ALL: [Tunnel; 9] = [
        Tunnel::Ip,
        Tunnel::Vxlan(5),
        Tunnel::Geneve(5, 0),
        Tunnel::Geneve(5, 1),
        Tunnel::Geneve(5, 4),
        Tunnel::GeneveBridge(5),
        Tunnel::Gtp(5, false, 0),
        Tunnel::Gtp(5, true, 0),
        Tunnel::Gtp(5, false, 2),
    ];

    /// The tunnel's UDP port; `None`: it is not over UDP.
    #[must_use]
    pub const fn port(self) -> Option<u16> {
        match self {
            Tunnel::Ip => None,
            Tunnel::Vxlan(_) => Some(4789),
            Tunnel::Geneve(..) | Tunnel::GeneveBridge(_) => Some(6081),
            Tunnel::Gtp(..) => Some(2152),
        }
    }

    /// The tunnel's header and its payload: an IP packet, without a frame.
    #[must_use]
    pub fn load(self, v6_inside: bool, packet: &[u8]) -> Vec<u8> {
        let kind = if v6_inside { 0x86dd } else { 0x0800 };
        match self {
            Tunnel::Ip => packet.to_vec(),
            Tunnel::Vxlan(vni) => layers::vxlan(vni, &layers::ethernet(kind, packet)),
            Tunnel::Geneve(vni, options) => {
                let option = [1, 2, 3, 1, 9, 9, 9, 9];
                layers::geneve(vni, kind, &option.repeat(options.into()), packet)
            }
            Tunnel::GeneveBridge(vni) => layers::geneve(vni, 0x6558, &[], &layers::ethernet(kind, packet)),
            Tunnel::Gtp(end, sequence, extensions) => {
                let extended = [1, 7, 7, 0x85].repeat(extensions.into());
                let mut optional = [&[0, 1, 0, 0x85], &extended[..]].concat();
                match optional.last_mut() {
                    Some(next) if extensions > 0 => *next = 0,
                    _ => optional[3] = 0,
                }
                let flags = u8::from(sequence) << 1 | u8::from(extensions > 0) << 2;
                layers::gtp(end, flags, if flags == 0 { &[] } else { &optional }, packet)
            }
        }
    }

    /// The outer packet around another one, from an endpoint to a host. Its ports are the source's, and the
    /// tunnel's.
    #[must_use]
    pub fn around(self, (from, to): (End, End), v6_inside: bool, packet: &[u8]) -> Packet {
        let load = self.load(v6_inside, packet);
        match self.port() {
            Some(port) => udp(from, (to.0, port), &load),
            None => {
                let ip = Ip::new(from.0, to.0, if v6_inside { 41 } else { 4 });
                Packet { ip, layer: Layer::Part(load), piece: None }
            }
        }
    }
}

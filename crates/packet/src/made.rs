// SPDX-License-Identifier: Apache-2.0
//! A packet that the engine makes to show what is left of a flow: headers of the flow's addresses and ports, without payload. It is no
//! traffic, so nothing of it is counted, and nobody decodes what is known.

use crate::{
    Decoded, Fragment, IpOptions, Ipv4, Ipv6, Ipv6ExtHeaders, Network, PacketFlags, PacketSource, PacketView,
    Tcp, TcpFlags, Transport, Udp, VlanIds,
};
use core::net::{IpAddr, Ipv6Addr};

/// An IPv6 header and one of TCP.
const BYTES_MAX: usize = 60;
const TTL: u8 = 64;
const WINDOW: u16 = 2_560;
/// ACK alone.
const ACK: u8 = 0x10;
/// Header length 20 (five words), no reserved bit.
const TCP_LENGTH: u8 = 0x50;

/// See the module.
#[derive(Clone, Debug)]
pub struct MadePacket {
    bytes: [u8; BYTES_MAX],
    decoded: Decoded,
}

impl MadePacket {
    /// A packet from one end to the other: TCP with sequence and acknowledgement number 0 and ACK for protocol 6, else UDP's header for
    /// `protocol`. Two addresses of different versions are written as IPv6.
    #[must_use]
    pub fn new(
        (from, from_port): (IpAddr, u16),
        (to, to_port): (IpAddr, u16),
        protocol: u8,
        source: PacketSource,
    ) -> Self {
        let transport_len: u8 = if protocol == 6 { 20 } else { 8 };
        let mut decoded = Decoded { source, layers: 1, ..Decoded::default() };
        decoded.flags |= PacketFlags::WANTS_FLOW;
        let mut writer = Writer::default();
        let ip_len: u8 = if let (IpAddr::V4(src), IpAddr::V4(dst)) = (from, to) {
            let total_len = u16::from(20 + transport_len);
            writer.put(&[0x45, 0]);
            writer.put(&total_len.to_be_bytes());
            writer.put(&[0, 0, 0, 0, TTL, protocol, 0, 0]);
            writer.put(&src.octets());
            writer.put(&dst.octets());
            decoded.network = Network::Ipv4(Ipv4 {
                src,
                dst,
                proto: protocol,
                ttl: TTL,
                tos: 0,
                header_len: 20,
                total_len,
                id: 0,
                fragment: Fragment::default(),
                options: IpOptions::empty(),
                option_count: 0,
            });
            20
        } else {
            let (src, dst) = (as_v6(from), as_v6(to));
            writer.put(&[0x60, 0, 0, 0, 0, transport_len, protocol, TTL]);
            writer.put(&src.octets());
            writer.put(&dst.octets());
            decoded.network = Network::Ipv6(Ipv6 {
                src,
                dst,
                proto: protocol,
                next_header: protocol,
                hop_limit: TTL,
                traffic_class: 0,
                flow_label: 0,
                payload_len: u16::from(transport_len),
                ext_headers: Ipv6ExtHeaders::empty(),
                ext_len: 0,
                routing_type: None,
                fragment: None,
            });
            40
        };
        writer.put(&from_port.to_be_bytes());
        writer.put(&to_port.to_be_bytes());
        decoded.transport = if protocol == 6 {
            writer.put(&[0, 0, 0, 0, 0, 0, 0, 0, TCP_LENGTH, ACK]);
            writer.put(&WINDOW.to_be_bytes());
            writer.put(&[0, 0, 0, 0]);
            Transport::Tcp(Tcp {
                sport: from_port,
                dport: to_port,
                window: WINDOW,
                flags: TcpFlags::ACK,
                header_len: 20,
                ..Tcp::default()
            })
        } else {
            writer.put(&[0, 8, 0, 0]);
            Transport::Udp(Udp { sport: from_port, dport: to_port, len: 8 })
        };
        let len = u32::from(ip_len + transport_len);
        (decoded.l4, decoded.payload) = (u32::from(ip_len), len);
        (decoded.end, decoded.wire_len) = (len, len);
        MadePacket { bytes: writer.bytes, decoded }
    }

    /// The same packet as the packets of its flow came: with VLAN tags around it, and at a depth of tunnels.
    #[must_use]
    pub const fn inside(mut self, vlan: VlanIds, recursion: u8) -> Self {
        self.decoded.vlan = vlan;
        self.decoded.recursion = recursion;
        self
    }

    /// The packet.
    #[must_use]
    pub fn view(&self) -> PacketView<'_> {
        let len = self.decoded.end as usize;
        PacketView::new(self.bytes.get(..len).unwrap_or(&self.bytes), &self.decoded)
    }
}

/// Writes one part behind the other.
struct Writer {
    bytes: [u8; BYTES_MAX],
    at: usize,
}

impl Default for Writer {
    fn default() -> Self {
        Writer { bytes: [0; BYTES_MAX], at: 0 }
    }
}

impl Writer {
    fn put(&mut self, part: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.at..self.at + part.len()) {
            place.copy_from_slice(part);
            self.at += part.len();
        }
    }
}

const fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeOutput, Decoder, DecoderConfig, LinkType};

    #[test]
    fn it_is_what_decoding_its_bytes_gives() {
        let (v4, other) = ("192.0.2.1".parse().unwrap(), "198.51.100.7".parse().unwrap());
        let (v6, other6) = ("2001:db8::1".parse().unwrap(), "2001:db8:1::7".parse().unwrap());
        for (from, to) in [(v4, other), (v6, other6), (v4, v6)] {
            for protocol in [6, 17] {
                let made = MadePacket::new((from, 40_000), (to, 443), protocol, PacketSource::FlowTimeout);
                let view = made.view();
                let mut output = DecodeOutput::new();
                let len = u32::try_from(view.frame().len()).unwrap();
                Decoder::new(DecoderConfig::default()).decode(LinkType::RAW, view.frame(), len, &mut output);
                let decoded =
                    Decoded { source: PacketSource::FlowTimeout, ..output.outer().unwrap().clone() };
                assert_eq!(made.decoded, decoded, "{from} {to} {protocol}");
                assert!(view.payload().is_empty());
                assert_eq!(view.l4_header().map(<[u8]>::len), Some(if protocol == 6 { 20 } else { 8 }));
            }
        }
    }

    #[test]
    fn it_lies_where_the_packets_of_its_flow_did() {
        let ends = (("192.0.2.1".parse().unwrap(), 1), ("192.0.2.2".parse().unwrap(), 2));
        let mut vlan = VlanIds::default();
        assert!(vlan.push(7));
        let made = MadePacket::new(ends.0, ends.1, 6, PacketSource::StreamFlush).inside(vlan, 2);
        assert_eq!((made.decoded.vlan, made.decoded.recursion), (vlan, 2));
        assert!(made.decoded.source.is_made());
    }
}

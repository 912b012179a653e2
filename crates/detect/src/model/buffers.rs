// SPDX-License-Identifier: Apache-2.0
//! The buffers that rules can inspect, by name.

use crate::model::condition::ConditionContext;
use bartizan_applayer::protocol::{BufferSpec, ProtocolId};
use bartizan_applayer::protocols;
use bartizan_base::PerDirection;
use bartizan_packet::{PacketView, TransportLayer};
use core::net::IpAddr;

/// A buffer of a packet, or of its flow if there is no packet.
pub struct PacketBuffer {
    /// Name of the keyword, `tcp.hdr`.
    pub name: &'static str,
    /// The value is the same for all packets of a flow and direction, so a match does not concern a single
    /// packet.
    pub of_flow: bool,
    /// Returns the buffer's bytes; `None`: the packet lacks the buffer.
    pub get: for<'p> fn(&ConditionContext<'p>) -> Option<PacketBufferValue<'p>>,
}

/// Bytes of a packet buffer: part of a packet, or an address, which a flow has without a packet.
pub enum PacketBufferValue<'p> {
    /// Bytes of a packet or stream.
    Bytes(&'p [u8]),
    /// An IPv4 address.
    V4([u8; 4]),
    /// An IPv6 address.
    V6([u8; 16]),
}

impl From<IpAddr> for PacketBufferValue<'_> {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => PacketBufferValue::V4(address.octets()),
            IpAddr::V6(address) => PacketBufferValue::V6(address.octets()),
        }
    }
}

impl core::ops::Deref for PacketBufferValue<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            PacketBufferValue::Bytes(bytes) => bytes,
            PacketBufferValue::V4(octets) => octets,
            PacketBufferValue::V6(octets) => octets,
        }
    }
}

/// The value on which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BufferRef {
    /// The packet's payload, and for TCP the reassembled stream (no sticky buffer, or `pkt_data`).
    Payload,
    /// A packet buffer: index into [`PACKET_BUFFERS`].
    Packet(u16),
    /// A transaction buffer: index into [`Buffers`].
    Tx(u16),
    /// Frames of a kind: index into [`Buffers`].
    Frame(u16),
}

/// Frames of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameBuffer {
    /// The protocol.
    pub protocol: ProtocolId,
    /// Index into the protocol's list.
    pub kind: u8,
    /// Name in that list.
    pub name: &'static str,
}

/// A transaction buffer with all protocols that offer it.
#[derive(Clone, Debug)]
pub struct TxBuffer {
    /// Name of the keyword.
    pub name: &'static str,
    /// The protocols that offer the buffer, each with its entry in the protocol's table.
    pub providers: Vec<(ProtocolId, &'static BufferSpec)>,
}

impl TxBuffer {
    /// The buffer's entry in a protocol's table.
    #[must_use]
    pub fn of(&self, protocol: ProtocolId) -> Option<&'static BufferSpec> {
        self.providers.iter().find(|(p, _)| *p == protocol).map(|(_, s)| *s)
    }

    /// Directions in which some protocol has the buffer.
    #[must_use]
    pub fn directions(&self) -> PerDirection<bool> {
        let mut all = PerDirection::default();
        for (_, spec) in &self.providers {
            all.to_server |= spec.directions.to_server;
            all.to_client |= spec.directions.to_client;
        }
        all
    }

    /// Whether a transaction can have several values of the buffer.
    #[must_use]
    pub fn is_multi(&self) -> bool {
        self.providers.iter().any(|(_, s)| s.kind.is_multi())
    }
}

/// All transaction buffers, gathered from the protocol table.
#[derive(Clone, Debug)]
pub struct Buffers {
    list: Vec<TxBuffer>,
    frames: Vec<FrameBuffer>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new()
    }
}

impl Buffers {
    /// Gathers the buffers of all protocols.
    #[must_use]
    pub fn new() -> Self {
        let mut list: Vec<TxBuffer> = Vec::new();
        for (index, spec) in protocols::TABLE.iter().enumerate() {
            let protocol = ProtocolId(index as u8);
            for buffer in spec.buffers {
                match list.iter_mut().find(|b| b.name == buffer.name) {
                    Some(known) => known.providers.push((protocol, buffer)),
                    None => list.push(TxBuffer { name: buffer.name, providers: vec![(protocol, buffer)] }),
                }
            }
        }
        let mut frames = Vec::new();
        for (index, spec) in protocols::TABLE.iter().enumerate() {
            for (kind, name) in spec.frames.iter().enumerate() {
                frames.push(FrameBuffer { protocol: ProtocolId(index as u8), kind: kind as u8, name });
            }
        }
        Buffers { list, frames }
    }

    /// Frames of a kind.
    #[must_use]
    pub fn frame(&self, index: u16) -> Option<&FrameBuffer> {
        self.frames.get(usize::from(index))
    }

    /// Finds frames by protocol and name.
    #[must_use]
    pub fn find_frame(&self, protocol: ProtocolId, name: &str) -> Option<BufferRef> {
        let at = self.frames.iter().position(|f| f.protocol == protocol && f.name == name)?;
        Some(BufferRef::Frame(at as u16))
    }

    /// Finds a buffer by name, packet buffers first.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<BufferRef> {
        if let Some(index) = PACKET_BUFFERS.iter().position(|b| b.name == name) {
            return Some(BufferRef::Packet(index as u16));
        }
        self.list.iter().position(|b| b.name == name).map(|index| BufferRef::Tx(index as u16))
    }

    /// A transaction buffer.
    #[must_use]
    pub fn tx(&self, index: u16) -> Option<&TxBuffer> {
        self.list.get(usize::from(index))
    }

    /// All transaction buffers.
    pub fn iter(&self) -> impl Iterator<Item = &TxBuffer> {
        self.list.iter()
    }

    /// Name of a buffer, for messages.
    #[must_use]
    pub fn name(&self, buffer: BufferRef) -> &'static str {
        match buffer {
            BufferRef::Payload => "payload",
            BufferRef::Packet(index) => PACKET_BUFFERS.get(usize::from(index)).map_or("?", |b| b.name),
            BufferRef::Tx(index) => self.tx(index).map_or("?", |b| b.name),
            BufferRef::Frame(index) => self.frame(index).map_or("?", |b| b.name),
        }
    }
}

/// The packet buffers.
pub const PACKET_BUFFERS: &[PacketBuffer] = &[
    PacketBuffer {
        name: "ip.src",
        of_flow: true,
        get: |scene| scene.addresses().map(|(source, _)| source.into()),
    },
    PacketBuffer {
        name: "ip.dst",
        of_flow: true,
        get: |scene| scene.addresses().map(|(_, destination)| destination.into()),
    },
    PacketBuffer {
        name: "ipv4.hdr",
        of_flow: false,
        get: |scene| header(scene, |p| p.decoded().ipv4().and_then(|_| p.ip_header())),
    },
    PacketBuffer { name: "ipv6.hdr", of_flow: false, get: |scene| header(scene, ipv6_header) },
    PacketBuffer {
        name: "tcp.hdr",
        of_flow: false,
        get: |scene| l4(scene, |t| matches!(t, TransportLayer::Tcp(_))),
    },
    PacketBuffer {
        name: "udp.hdr",
        of_flow: false,
        get: |scene| l4(scene, |t| matches!(t, TransportLayer::Udp(_))),
    },
    PacketBuffer {
        name: "icmpv4.hdr",
        of_flow: false,
        get: |scene| l4(scene, |t| matches!(t, TransportLayer::Icmp(_))),
    },
    PacketBuffer {
        name: "icmpv6.hdr",
        of_flow: false,
        get: |scene| l4(scene, |t| matches!(t, TransportLayer::Icmpv6(_))),
    },
    PacketBuffer {
        name: "ether.hdr",
        of_flow: false,
        get: |scene| header(scene, |p| p.ethernet().map(|header| header.as_slice())),
    },
];

impl BufferRef {
    /// Whether the value belongs to a single packet: a rule on this buffer is evaluated for packets, not for
    /// data that several packets bring together.
    #[must_use]
    pub fn is_of_one_packet(self) -> bool {
        let BufferRef::Packet(index) = self else { return false };
        PACKET_BUFFERS.get(usize::from(index)).is_some_and(|buffer| !buffer.of_flow)
    }
}

/// The bytes of a packet buffer, by its index in [`PACKET_BUFFERS`].
pub(crate) fn packet_buffer<'p>(index: u16, scene: &ConditionContext<'p>) -> Option<PacketBufferValue<'p>> {
    PACKET_BUFFERS.get(usize::from(index)).and_then(|buffer| (buffer.get)(scene))
}

/// A header of the packet.
fn header<'p>(
    scene: &ConditionContext<'p>,
    cut: impl FnOnce(&'p PacketView<'p>) -> Option<&'p [u8]>,
) -> Option<PacketBufferValue<'p>> {
    scene.facts.packet.and_then(cut).map(PacketBufferValue::Bytes)
}

/// The fixed header with the extension headers. For a fragment, only the headers before its fragment header:
/// the others belong to the datagram.
fn ipv6_header<'p>(packet: &'p PacketView<'p>) -> Option<&'p [u8]> {
    let decoded = packet.decoded();
    let ip = decoded.ipv6()?;
    let start = usize::try_from(decoded.l3).ok()?;
    let rest = packet.frame().get(start..)?;
    let fragment = ip.fragment.filter(|_| decoded.is_fragment());
    let length = match fragment {
        Some(fragment) => usize::try_from(fragment.header.checked_sub(decoded.l3)?).ok()?,
        None => 40 + usize::from(ip.ext_len),
    };
    Some(rest.get(..length).unwrap_or(rest))
}

fn l4<'p>(
    scene: &ConditionContext<'p>,
    is: impl FnOnce(&TransportLayer) -> bool,
) -> Option<PacketBufferValue<'p>> {
    header(scene, |packet| if is(&packet.decoded().transport) { packet.l4_header() } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::testing::{
        LinkFrame, both, ethernet, icmp, ipv4, ipv6, on_scene, tcp, tcp_with_options, udp,
    };

    /// The value of a packet buffer.
    fn value(name: &str, frame: &LinkFrame) -> Option<Vec<u8>> {
        let buffer = PACKET_BUFFERS.iter().find(|b| b.name == name).unwrap();
        on_scene(frame, |scene| (buffer.get)(scene).map(|bytes| bytes.to_vec()))
    }

    #[test]
    fn headers_and_addresses() {
        let segment = tcp_with_options(2, &[2, 4, 5, 0xb4]);
        for packet in both(6, &segment) {
            assert_eq!(value("tcp.hdr", &packet).as_ref(), Some(&segment));
            assert_eq!(value("udp.hdr", &packet), None);
        }
        let [v4, v6] = both(6, &tcp(2, 1, 1, 1, b"payload"));
        assert_eq!(value("ip.src", &v4), Some(vec![192, 0, 2, 1]));
        assert_eq!(value("ip.dst", &v4), Some(vec![198, 51, 100, 2]));
        assert_eq!(value("ip.dst", &v6).as_deref(), v6.bytes.get(24..40));
        assert_eq!(value("ipv4.hdr", &v4).as_deref(), v4.bytes.get(..20));
        assert_eq!((value("ipv4.hdr", &v6), value("ipv6.hdr", &v4)), (None, None));
        for packet in both(17, &udp(b"abc")) {
            assert_eq!(value("udp.hdr", &packet), Some(udp(b"abc")[..8].to_vec()));
        }
        let echo = icmp(8, 0, [0, 1, 0, 2], b"data");
        assert_eq!(value("icmpv4.hdr", &ipv4(1, &echo)).as_deref(), echo.get(..8));
        let echo = icmp(128, 0, [0, 1, 0, 2], b"data");
        assert_eq!(value("icmpv6.hdr", &ipv6(58, &echo)).as_deref(), echo.get(..8));
        let frame = ethernet(&[]);
        assert_eq!(value("ether.hdr", &frame).as_deref(), frame.bytes.get(..14));
        assert_eq!(value("ether.hdr", &v4), None);
    }

    #[test]
    fn extension_headers_belong_to_the_header() {
        // Destination options (one PadN of 6 bytes), then UDP.
        let mut body = vec![17, 0, 1, 4, 0, 0, 0, 0];
        body.extend_from_slice(&udp(b"x"));
        let packet = ipv6(60, &body);
        assert_eq!(value("ipv6.hdr", &packet).as_deref(), packet.bytes.get(..48));
    }

    #[test]
    fn the_fragment_header_is_none_of_a_fragment() {
        let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
        let fragment = |next: u8, place: u16| {
            let [high, low] = place.to_be_bytes();
            [next, 0, high, low, 0, 0, 0, 7]
        };
        let data = [0u8; 16];
        for (next, headers, length) in [
            // The first fragment, and one that is not: the fixed header.
            (44, fragment(17, 1).to_vec(), 40),
            (44, fragment(17, 16).to_vec(), 40),
            // Headers before the fragment header belong to each fragment, headers after it to the datagram.
            (0, [options(44), fragment(17, 1)].concat(), 48),
            (44, [fragment(60, 1), options(17)].concat(), 40),
            (60, [options(44), fragment(60, 1), options(17)].concat(), 48),
            // A datagram in one piece.
            (44, fragment(59, 0).to_vec(), 48),
        ] {
            let packet = ipv6(next, &[headers.as_slice(), &data].concat());
            assert_eq!(value("ipv6.hdr", &packet).as_deref(), packet.bytes.get(..length), "{headers:?}");
        }
    }
}

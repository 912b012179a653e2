// SPDX-License-Identifier: Apache-2.0
//! The decoder: from captured bytes to descriptors, one module for each protocol.
//!
//! Errors, their events and the places where decoding stops follow Suricata 8, so that its rules for decode
//! events work unchanged; facts of the protocols are from the RFCs that the modules name.

mod arp;
mod chdlc;
mod erspan;
mod esp;
mod ethernet;
mod geneve;
mod gre;
mod gtp;
mod icmpv4;
mod icmpv6;
mod ipv4;
mod ipv4_options;
mod ipv6;
mod ipv6_ext;
mod ipv6_options;
mod link;
mod mpls;
mod nsh;
mod null;
mod ppp;
mod pppoe;
pub(crate) mod quoted;
mod raw;
mod sctp;
mod sll;
mod tcp;
mod teredo;
mod udp;
mod vlan;
mod vntag;
mod vxlan;

use crate::{
    Checksums, DecodeEvent, Decoded, DecoderConfig, DecoderCounters, LinkType, PacketFlags, PacketSource,
    TunnelTag,
};

/// IP protocol numbers (IANA) that the decoder uses.
pub(crate) mod proto {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IPIP: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6: u8 = 41;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const GRE: u8 = 47;
    pub const ESP: u8 = 50;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const NONE: u8 = 59;
    pub const DESTINATION: u8 = 60;
    pub const SCTP: u8 = 132;
    pub const MOBILITY: u8 = 135;
    pub const HIP: u8 = 139;
    pub const SHIM6: u8 = 140;
}

/// EtherTypes (IEEE) that the decoder uses.
pub(crate) mod ether_type {
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const BRIDGE: u16 = 0x6558;
    pub const VLAN: u16 = 0x8100;
    pub const IPV6: u16 = 0x86dd;
    pub const MPLS: u16 = 0x8847;
    pub const MPLS_MULTICAST: u16 = 0x8848;
    pub const PPPOE_DISCOVERY: u16 = 0x8863;
    pub const PPPOE_SESSION: u16 = 0x8864;
    pub const PPP: u16 = 0x880b;
    pub const PROVIDER_BRIDGE: u16 = 0x88a8;
    pub const ERSPAN: u16 = 0x88be;
    pub const BACKBONE_BRIDGE: u16 = 0x88e7;
    pub const FABRIC_PATH: u16 = 0x8903;
    pub const VN_TAG: u16 = 0x8926;
    pub const NSH: u16 = 0x894f;
    pub const QINQ: u16 = 0x9100;
}

/// Decoding of this packet ended early; the reason is among its events (or a guessed protocol was wrong).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeStop;

/// Result of one layer.
pub(crate) type LayerResult = Result<(), DecodeStop>;

/// A range of the frame's bytes. In a cut frame ([`DecoderConfig::cut_frames`]) it may end beyond the
/// captured bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodeSpan {
    at: usize,
    end: usize,
}

impl DecodeSpan {
    pub const fn len(self) -> usize {
        self.end.saturating_sub(self.at)
    }

    /// The span without its first `n` bytes.
    pub const fn skip(self, n: usize) -> DecodeSpan {
        let at = self.at.saturating_add(n);
        DecodeSpan { at: if at < self.end { at } else { self.end }, end: self.end }
    }

    /// At most the first `n` bytes of the span.
    pub const fn first(self, n: usize) -> DecodeSpan {
        let end = self.at.saturating_add(n);
        DecodeSpan { at: self.at, end: if end < self.end { end } else { self.end } }
    }

    pub const fn start(self) -> u32 {
        self.at as u32
    }

    pub const fn end(self) -> u32 {
        self.end as u32
    }

    /// The length as descriptors store it (the input is clipped to 4 GiB).
    pub const fn len_u32(self) -> u32 {
        self.len() as u32
    }
}

/// The state that all layers share while one frame is decoded.
pub(crate) struct DecodeContext<'a> {
    bytes: &'a [u8],
    config: &'a DecoderConfig,
    counters: &'a mut DecoderCounters,
    packets: &'a mut Vec<Decoded>,
}

impl<'a> DecodeContext<'a> {
    /// The bytes of a span, as far as they were captured.
    fn slice(&self, span: DecodeSpan) -> &'a [u8] {
        match self.bytes.get(span.at..span.end) {
            Some(bytes) => bytes,
            // Only a cut frame has spans that end beyond its bytes.
            None => self.bytes.get(span.at..).unwrap_or(&[]),
        }
    }

    /// Whether bytes of a span were not captured.
    fn is_cut(&self, span: DecodeSpan) -> bool {
        self.slice(span).len() < span.len()
    }

    /// The first `N` bytes of a span.
    fn head<const N: usize>(&self, span: DecodeSpan) -> Option<&'a [u8; N]> {
        self.slice(span).first_chunk::<N>()
    }

    /// Counts a layer; too many stop the packet.
    fn layer(&self, p: &mut Decoded) -> LayerResult {
        p.layers = p.layers.saturating_add(1);
        if p.layers >= self.config.max_layers {
            p.unreadable(DecodeEvent::TooManyLayers);
            return Err(DecodeStop);
        }
        Ok(())
    }

    /// Decodes a tunnelled packet with `decode` into a descriptor of its own. `Ok` when it was kept.
    ///
    /// A packet that `decode` stops is dropped with its events (as in Suricata); so is one that is merely
    /// invalid when `strict` is set, for protocols that can only be guessed.
    fn tunnel(
        &mut self,
        p: &mut Decoded,
        span: DecodeSpan,
        tunnel: Tunnel,
        decode: fn(&mut DecodeContext<'_>, &mut Decoded, DecodeSpan) -> LayerResult,
    ) -> LayerResult {
        if p.layers.saturating_add(1) >= self.config.max_layers {
            p.unreadable(DecodeEvent::TooManyLayers);
            return Err(DecodeStop);
        }
        let mut inner = Decoded {
            source: tunnel.source,
            tunnel: tunnel.tag,
            recursion: p.recursion.saturating_add(1),
            layers: p.layers.saturating_add(1),
            start: span.start(),
            end: span.end(),
            wire_len: p.wire_len,
            flags: self.flags_inside(p),
            ..Decoded::default()
        };
        // Packets deeper inside come after this one.
        let place = self.packets.len();
        if decode(self, &mut inner, span).is_err() {
            // The event of too deep nesting must not be lost with the inner packet: that packet's content
            // stays uninspected.
            if inner.events.contains(DecodeEvent::TooManyLayers) {
                p.unreadable(DecodeEvent::TooManyLayers);
            }
            // Nor must the fact that it is unreadable, unless the inner packet was only a guess.
            if inner.is_unreadable() && !tunnel.strict {
                p.flags |= PacketFlags::UNREADABLE;
            }
            return Err(DecodeStop);
        }
        if tunnel.strict && inner.is_invalid() {
            return Err(DecodeStop);
        }
        p.flags |= PacketFlags::HAS_INNER;
        self.packets.insert(place, inner);
        Ok(())
    }

    /// The flags that a packet in a tunnel has from its outer packet.
    fn flags_inside(&self, outer: &Decoded) -> PacketFlags {
        let mut flags = outer.flags & (PacketFlags::IN_REBUILT | PacketFlags::FIXED_LENGTH);
        if outer.flags.contains(PacketFlags::REBUILT) {
            flags |= PacketFlags::IN_REBUILT;
        }
        if !outer.may_be_resized(self.bytes) || !outer.may_be_repeated(self.bytes) {
            flags |= PacketFlags::FIXED_LENGTH;
        }
        flags
    }
}

/// The marks of a tunnelled packet.
#[derive(Clone, Copy)]
struct Tunnel {
    source: PacketSource,
    tag: TunnelTag,
    strict: bool,
}

impl Tunnel {
    const fn new(source: PacketSource, tag: TunnelTag) -> Self {
        Tunnel { source, tag, strict: false }
    }
}

/// The descriptors of one frame; reused for each frame, so that its vector is allocated once.
#[derive(Clone, Debug, Default)]
pub struct DecodeOutput {
    packets: Vec<Decoded>,
    /// Packets in tunnels, while the outer packet is decoded.
    inner: Vec<Decoded>,
}

impl DecodeOutput {
    /// An output without packets.
    #[must_use]
    pub const fn new() -> Self {
        DecodeOutput { packets: Vec::new(), inner: Vec::new() }
    }

    /// All packets, the outer one first, then each tunnelled one after the packet that carries it.
    #[must_use]
    pub fn packets(&self) -> &[Decoded] {
        &self.packets
    }

    /// As [`DecodeOutput::packets`], mutable (defragmentation adds events).
    pub fn packets_mut(&mut self) -> &mut [Decoded] {
        &mut self.packets
    }

    /// Takes over the knowledge of the port about the frame's checksums. The pending checksum may be an
    /// inner packet's; only the outer one's is verified.
    pub fn trust_checksums(&mut self, checksums: Checksums) {
        let (flag, packets) = match checksums {
            Checksums::Unknown => return,
            Checksums::Pending => (PacketFlags::CHECKSUM_PENDING, usize::MAX),
            Checksums::Filled => (PacketFlags::CHECKSUM_FILLED, usize::MAX),
            Checksums::Valid => (PacketFlags::CHECKSUM_VALID, 1),
        };
        self.packets.iter_mut().take(packets).for_each(|packet| packet.flags.insert(flag));
    }

    /// The outer packet.
    #[must_use]
    pub fn outer(&self) -> Option<&Decoded> {
        self.packets.first()
    }

    /// The packets in the order in which they are inspected: innermost first, the outer one last.
    pub fn in_inspection_order(&self) -> impl Iterator<Item = &Decoded> {
        self.packets.iter().rev()
    }
}

/// The decoder of one worker: settings and counters.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    config: DecoderConfig,
    counters: DecoderCounters,
}

impl Decoder {
    /// A decoder with these settings, and counters of zero.
    #[must_use]
    pub fn new(config: DecoderConfig) -> Self {
        Decoder { config, counters: DecoderCounters::default() }
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// The counts so far.
    #[must_use]
    pub const fn counters(&self) -> &DecoderCounters {
        &self.counters
    }

    /// The counters, to add events that later stages find (defragmentation).
    pub fn counters_mut(&mut self) -> &mut DecoderCounters {
        &mut self.counters
    }

    /// Decodes a captured frame. `wire_len` is its length on the wire; `bytes` may be only its beginning.
    /// Missing bytes make its packet malformed, unless frames may be cut ([`DecoderConfig::cut_frames`]).
    ///
    /// `out` holds at least the outer packet afterwards, which has no layers if the link type is not
    /// supported.
    pub fn decode(&mut self, link_type: LinkType, bytes: &[u8], wire_len: u32, out: &mut DecodeOutput) {
        let link_type = LinkType::from_capture(link_type.0);
        self.counters.frame(bytes.len());
        let begin = |packet: &mut Decoded| (packet.link_type, packet.wire_len) = (link_type, wire_len);
        let is_cut = self.config.cut_frames && bytes.len() < wire_len as usize;
        let length = if is_cut { wire_len as usize } else { bytes.len() };
        self.run(begin, bytes, length, out, |cx, p, span| link::decode(cx, p, span, link_type));
        if out.outer().is_some_and(Decoded::is_invalid) {
            self.counters.invalid += 1;
        }
    }

    /// Decodes a whole IP packet that was reassembled from `fragment` and others. The link header of the
    /// fragment comes before its IP header. VLAN ids, tunnel, link type and depth are the fragment's.
    pub fn decode_reassembled(&mut self, fragment: &Decoded, bytes: &[u8], out: &mut DecodeOutput) {
        let link = fragment.l3.saturating_sub(fragment.start) as usize;
        let begin = |packet: &mut Decoded| {
            packet.flags = PacketFlags::REBUILT;
            packet.source = PacketSource::Defrag;
            packet.link_type = fragment.link_type;
            packet.recursion = fragment.recursion;
            packet.layers = fragment.layers;
            packet.vlan = fragment.vlan;
            packet.tunnel = fragment.tunnel;
            packet.wire_len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        };
        self.run(begin, bytes, bytes.len(), out, |cx, p, span| raw::decode_version(cx, p, span.skip(link)));
    }

    /// Decodes a frame of `length` bytes; `bytes` may be only its beginning. `begin` sets the fields of the
    /// outer packet that are known before it is read.
    fn run(
        &mut self,
        begin: impl FnOnce(&mut Decoded),
        bytes: &[u8],
        length: usize,
        out: &mut DecodeOutput,
        decode: impl FnOnce(&mut DecodeContext<'_>, &mut Decoded, DecodeSpan) -> LayerResult,
    ) {
        let DecodeOutput { packets, inner } = out;
        inner.clear();
        packets.truncate(1);
        // Written in place from the beginning: a descriptor that is written byte by byte is not copied.
        match packets.first_mut() {
            Some(packet) => *packet = Decoded::default(),
            None => packets.push(Decoded::default()),
        }
        let Some(packet) = packets.first_mut() else { return };
        begin(packet);
        // Offsets are 32 bits wide: no byte beyond is decoded.
        let bytes = bytes.get(..u32::MAX as usize).unwrap_or(bytes);
        let span = DecodeSpan { at: 0, end: length.min(u32::MAX as usize) };
        packet.end = span.end();
        let mut cx =
            DecodeContext { bytes, config: &self.config, counters: &mut self.counters, packets: inner };
        // The events hold the reason why it stopped.
        let _ = decode(&mut cx, packet, span);
        packets.append(inner);
        for packet in &out.packets {
            for event in packet.events.as_slice() {
                self.counters.event(*event);
            }
            self.counters.events_lost += u64::from(packet.events.lost());
        }
    }
}

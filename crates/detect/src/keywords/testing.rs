// SPDX-License-Identifier: Apache-2.0
//! Helpers for tests of keywords: packets built by hand, and conditions evaluated on them.

use crate::compile::builder::{Environment, SignatureBuilder};
use crate::compile::keyword::{KeywordError, RefusalCode};
use crate::keywords;
use crate::model::buffers::Buffers;
use crate::model::condition::{ConditionContext, PacketCondition};
use crate::model::signature::{ProtocolMatch, ValueCheck};
use crate::state::shared::Shared;
use bartizan_applayer::file::FileTrack;
use bartizan_applayer::protocol::NumberId;
use bartizan_applayer::transaction::{BufferQuery, BufferView, Files, LogOptions, Transaction, TxCommon};
use bartizan_base::{Direction, PerDirection, RuleId, SettingsMap, Timestamp};
use bartizan_events::JsonWriter;
use bartizan_function::PacketFacts;
use bartizan_packet::{DecodeOutput, Decoder, LinkType, PacketView};
use bartizan_testkit::layers;
use bartizan_testkit::packet::{Datagram, Ip, IpFixed, Segment, sum_ipv4_header};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a packet with their link type.
#[derive(Clone)]
pub(crate) struct LinkFrame {
    pub link: LinkType,
    pub bytes: Vec<u8>,
}

impl LinkFrame {
    /// Changes one byte.
    pub fn with(mut self, at: usize, value: u8) -> Self {
        self.bytes[at] = value;
        self
    }

    /// Changes two bytes, big endian.
    pub fn with16(mut self, at: usize, value: u16) -> Self {
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        self
    }

    /// Copies a range to another place.
    pub fn copying(mut self, from: core::ops::Range<usize>, to: usize) -> Self {
        self.bytes.copy_within(from, to);
        self
    }

    /// Sets the checksums of IPv4 and of the transport (raw IP only).
    pub fn fix_checksums(mut self) -> Self {
        let (src, dst) = if self.bytes[0] >> 4 == 4 { ADDRESSES_V4 } else { ADDRESSES_V6 };
        let (header, protocol) = if src.is_ipv4() {
            sum_ipv4_header(&mut self.bytes);
            (usize::from(self.bytes[0] & 15) * 4, self.bytes[9])
        } else {
            (40, self.bytes[6])
        };
        let segment = Ip::new(src, dst, protocol).summed(&self.bytes[header..]);
        self.bytes[header..].copy_from_slice(&segment);
        self
    }
}

const ADDRESSES_V4: (IpAddr, IpAddr) =
    (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2)));
const ADDRESSES_V6: (IpAddr, IpAddr) = (
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
);

/// An IPv4 packet from 192.0.2.1 to 198.51.100.2, without a header checksum.
pub(crate) fn ipv4(proto: u8, body: &[u8]) -> LinkFrame {
    ipv4_with_options(proto, &[], body)
}

/// An IPv4 packet with options, which fill a multiple of 4 bytes.
pub(crate) fn ipv4_with_options(proto: u8, options: &[u8], body: &[u8]) -> LinkFrame {
    let fixed = IpFixed { flags: Some(0), chksum: Some(0), ..IpFixed::default() };
    let ip = Ip::new(ADDRESSES_V4.0, ADDRESSES_V4.1, proto);
    let ip = Ip { id: 1, options: options.to_vec(), fixed, ..ip };
    LinkFrame { link: LinkType::RAW, bytes: ip.packet(body, None) }
}

/// An IPv6 packet from 2001:db8::1 to 2001:db8::2.
pub(crate) fn ipv6(next: u8, body: &[u8]) -> LinkFrame {
    let bytes = Ip::new(ADDRESSES_V6.0, ADDRESSES_V6.1, next).packet(body, None);
    LinkFrame { link: LinkType::RAW, bytes }
}

/// One body in an IPv4 and in an IPv6 packet.
pub(crate) fn both(proto: u8, body: &[u8]) -> [LinkFrame; 2] {
    [ipv4(proto, body), ipv6(proto, body)]
}

/// An Ethernet frame with VLAN tags, outermost first, and an IPv4 datagram.
pub(crate) fn ethernet(tags: &[u16]) -> LinkFrame {
    let frame = layers::ethernet_ip(false, &ipv4(17, &udp(b"x")).bytes);
    let bytes = tags.iter().rev().fold(frame, |frame, tag| layers::tagged(*tag, frame));
    LinkFrame { link: LinkType::ETHERNET, bytes }
}

/// A UDP datagram from port 1024 to 9, without a checksum.
pub(crate) fn udp(payload: &[u8]) -> Vec<u8> {
    Datagram::new((1024, 9), payload).unsummed()
}

/// A TCP segment from port 1024 to 80, without a checksum.
pub(crate) fn tcp(flags: u8, seq: u32, ack: u32, window: u16, payload: &[u8]) -> Vec<u8> {
    Segment { window, ..Segment::new((1024, 80), (seq, ack), flags.into(), payload) }.unsummed()
}

/// A TCP segment with options, which fill a multiple of 4 bytes.
pub(crate) fn tcp_with_options(flags: u8, options: &[u8]) -> Vec<u8> {
    let segment = Segment::new((1024, 80), (1, 0), flags.into(), &[]);
    Segment { window: 100, raw_options: options.to_vec(), ..segment }.unsummed()
}

/// An ICMP or ICMPv6 message.
pub(crate) fn icmp(kind: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, code, 0, 0];
    bytes.extend_from_slice(&rest);
    bytes.extend_from_slice(payload);
    bytes
}

/// The parts that options of a rule add to its signature.
pub(crate) struct SignatureParts {
    pub protocol: ProtocolMatch,
    pub packet: Vec<Box<dyn PacketCondition>>,
    pub values: Vec<ValueCheck>,
}

impl core::fmt::Debug for SignatureParts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Built").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

/// Builds options, as a rule with this protocol would.
pub(crate) fn build(protocol: &str, options: &[(&str, &str)]) -> Result<SignatureParts, KeywordError> {
    build_with(&SettingsMap::new(), Path::new(""), protocol, options)
}

/// Does as [`build`], with settings and the folder of the rule file.
pub(crate) fn build_with(
    settings: &SettingsMap,
    folder: &Path,
    protocol: &str,
    options: &[(&str, &str)],
) -> Result<SignatureParts, KeywordError> {
    build_in(&Arc::new(Shared::default()), settings, folder, protocol, options)
}

/// Does as [`build_with`], with shared state that outlives the call.
pub(crate) fn build_in(
    shared: &Arc<Shared>,
    settings: &SettingsMap,
    folder: &Path,
    protocol: &str,
    options: &[(&str, &str)],
) -> Result<SignatureParts, KeywordError> {
    let buffers = Buffers::new();
    let environment = Environment::new(&buffers, settings, shared, folder);
    let protocol = crate::compile::protocol::parse(protocol)?;
    let mut builder = SignatureBuilder::new(&environment, RuleId::default(), protocol);
    for (name, value) in options {
        if let Some(keyword) = keywords::find(name) {
            keyword.apply(&mut builder, value.as_bytes())?;
            builder.seen.push(keyword.name);
        } else {
            let sticky = keywords::sticky::find(name, &buffers).expect(name);
            sticky.apply(&mut builder, value.as_bytes())?;
        }
    }
    let values = builder.finish_values()?;
    Ok(SignatureParts { protocol: builder.protocol, packet: builder.packet, values })
}

/// Decodes a frame and passes its scene to `look`.
pub(crate) fn on_scene<R>(frame: &LinkFrame, look: impl FnOnce(&ConditionContext<'_>) -> R) -> R {
    on_changed_scene(frame, |_| {}, look)
}

/// Decodes a frame, changes the facts about it, and passes its scene to `look`.
pub(crate) fn on_changed_scene<R>(
    frame: &LinkFrame,
    change: impl FnOnce(&mut PacketFacts<'_>),
    look: impl FnOnce(&ConditionContext<'_>) -> R,
) -> R {
    let mut output = DecodeOutput::new();
    Decoder::default().decode(frame.link, &frame.bytes, frame.bytes.len() as u32, &mut output);
    let packet = PacketView::new(&frame.bytes, output.outer().unwrap());
    let now = Timestamp::from_parts(1_000_000_000, 0);
    let mut facts = PacketFacts::of(now, Direction::ToServer, Some(&packet), false);
    change(&mut facts);
    look(&ConditionContext {
        facts: &facts,
        payload: packet.payload(),
        state: None,
        left: &[],
        function: bartizan_base::FunctionId(0),
        tenant: bartizan_base::TenantId::default(),
        shared: &Shared::default(),
    })
}

/// Whether an option of an `ip` rule that makes conditions on packets holds for a packet.
pub(crate) fn matches(keyword: &str, argument: &str, frame: &LinkFrame) -> bool {
    let built = build("ip", &[(keyword, argument)]).unwrap();
    on_scene(frame, |scene| built.packet.iter().all(|c| c.matches(scene)))
}

/// The code with which an option of an `ip` rule is refused.
pub(crate) fn refused(keyword: &str, argument: &str) -> Option<RefusalCode> {
    refused_all(&[(keyword, argument)])
}

/// The code with which options of an `ip` rule are refused.
pub(crate) fn refused_all(options: &[(&str, &str)]) -> Option<RefusalCode> {
    refused_in("ip", options)
}

/// The code with which options of a rule with this protocol are refused.
pub(crate) fn refused_in(protocol: &str, options: &[(&str, &str)]) -> Option<RefusalCode> {
    build(protocol, options).err().map(|e| e.code)
}

/// A transaction made of plain values.
#[derive(Default)]
pub(crate) struct FakeTx {
    pub common: TxCommon,
    pub progress: PerDirection<u8>,
    pub numbers: Vec<(NumberId, u64)>,
    pub files: Vec<FileTrack>,
}

impl Transaction for FakeTx {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, direction: Direction) -> u8 {
        self.progress[direction]
    }

    fn held(&self) -> usize {
        0
    }

    fn buffer<'a>(&'a self, _: BufferQuery, _: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        None
    }

    fn number(&self, id: NumberId, _: Direction) -> Option<u64> {
        self.numbers.iter().find(|(n, _)| *n == id).map(|(_, v)| *v)
    }

    fn files(&self) -> Option<Files<'_>> {
        Some(Files::new(&self.files, &[]))
    }

    fn log(&self, _: &mut JsonWriter, _: &LogOptions, _: bool) {}
}

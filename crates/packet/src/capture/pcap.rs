// SPDX-License-Identifier: Apache-2.0
//! Classic pcap.
//!
//! Source: draft-ietf-opsawg-pcap; the older versions and the modified magic as libpcap reads them
//! (before 2.3 the two lengths of a record are exchanged, in 2.3 perhaps). A fraction of a second that
//! is a second or more is carried over. A captured length above the header's snapshot length is
//! delivered whole, up to [`MAX_PACKET_LEN`]: the header's value is often wrong.

use super::{CaptureEnd, CaptureError, CaptureStep, InputWindow, Located, MAX_PACKET_LEN, failure};
use bartizan_base::Timestamp;

const FILE_HEADER: usize = 24;
/// The bits of the link type field that are the link type; the others describe a frame check sequence.
const LINK_TYPE_BITS: u32 = 0x03ff_ffff;

/// The properties that the magic number tells.
#[derive(Clone, Copy)]
pub(super) struct Magic {
    big_endian: bool,
    nanos_per_tick: u64,
    /// Bytes of a record's header.
    record_header: usize,
}

impl Magic {
    pub(super) fn find(start: [u8; 4]) -> Option<Self> {
        let kind = |number| {
            let (nanos_per_tick, record_header) = match number {
                0xa1b2_c3d4_u32 => (1_000, 16),
                0xa1b2_3c4d => (1, 16),
                // Kuznetzov's: interface index, protocol and packet type follow the lengths.
                0xa1b2_cd34 => (1_000, 24),
                _ => return None,
            };
            Some((nanos_per_tick, record_header))
        };
        let (big_endian, found) = match kind(u32::from_be_bytes(start)) {
            Some(found) => (true, found),
            None => (false, kind(u32::from_le_bytes(start))?),
        };
        Some(Self { big_endian, nanos_per_tick: found.0, record_header: found.1 })
    }
}

/// The order of the two lengths, which depends on the version.
#[derive(Clone, Copy, PartialEq)]
enum Lengths {
    Normal,
    Exchanged,
    /// The smaller of the two lengths is the captured one.
    Unknown,
}

pub(super) struct Pcap {
    magic: Magic,
    lengths: Lengths,
    link_type: u32,
    /// Bytes of the record handed out last.
    done: usize,
}

impl Pcap {
    pub(super) fn open(magic: Magic, input: &mut InputWindow, name: &str) -> Result<Self, CaptureError> {
        if !input.want(FILE_HEADER).map_err(|stop| failure(stop, name, input))? {
            let have = input.available() as u64;
            return Err(CaptureError::HeaderCut {
                name: name.into(),
                format: "pcap",
                have,
                need: FILE_HEADER as u64,
            });
        }
        let u16_at = |at| {
            let bytes = input.peek::<2>(at).unwrap_or_default();
            if magic.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
        };
        let (major, minor) = (u16_at(4), u16_at(6));
        let lengths = match (major, minor) {
            (2, 0..3) => Lengths::Exchanged,
            (2, 3) => Lengths::Unknown,
            (2, 4) => Lengths::Normal,
            _ => {
                return Err(CaptureError::UnsupportedVersion {
                    name: name.into(),
                    format: "pcap",
                    offset: 0,
                    major,
                    minor,
                    supported: "2.0 to 2.4",
                });
            }
        };
        let bytes = input.peek::<4>(20).unwrap_or_default();
        let link_type = if magic.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        input.advance(FILE_HEADER);
        Ok(Self { magic, lengths, link_type: link_type & LINK_TYPE_BITS, done: 0 })
    }

    pub(super) fn step(
        &mut self,
        input: &mut InputWindow,
        name: &str,
        number: u64,
    ) -> Result<CaptureStep, CaptureError> {
        input.advance(core::mem::take(&mut self.done));
        let header = self.magic.record_header;
        if !input.want(header).map_err(|stop| failure(stop, name, input))? {
            return Ok(cut_or_end(input, "a record header", header));
        }
        let Some(words) = input.peek::<16>(0) else { return Ok(CaptureStep::End) };
        let word = |at: usize| {
            let bytes = words.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied().unwrap_or_default();
            if self.magic.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        };
        let (seconds, fraction) = (word(0), word(4));
        let (mut captured, mut wire_len) = (word(8), word(12));
        if self.lengths == Lengths::Exchanged || self.lengths == Lengths::Unknown && captured > wire_len {
            core::mem::swap(&mut captured, &mut wire_len);
        }
        if captured > MAX_PACKET_LEN {
            return Err(CaptureError::RecordLength {
                name: name.into(),
                number,
                offset: input.offset(),
                length: u64::from(captured),
                limit: u64::from(MAX_PACKET_LEN),
            });
        }
        let len = captured as usize;
        if !input.want(header.saturating_add(len)).map_err(|stop| failure(stop, name, input))? {
            return Ok(cut_or_end(input, "a packet's record", header.saturating_add(len)));
        }
        self.done = header.saturating_add(len);
        let nanos = u64::from(seconds)
            .saturating_mul(1_000_000_000)
            .saturating_add(u64::from(fraction).saturating_mul(self.magic.nanos_per_tick));
        Ok(CaptureStep::Record(Located {
            timestamp: Timestamp::from_nanos(nanos),
            at: header,
            len,
            wire_len,
            link_type: self.link_type,
            interface: 0,
        }))
    }
}

/// The stream ended where `need` bytes of an item were expected: an end without any of them is a proper one.
pub(super) fn cut_or_end(input: &InputWindow, what: &'static str, need: usize) -> CaptureStep {
    match input.available() as u64 {
        0 => CaptureStep::End,
        have => {
            CaptureStep::Cut(CaptureEnd::BrokeOff { offset: input.offset(), what, have, need: need as u64 })
        }
    }
}

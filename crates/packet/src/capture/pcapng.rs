// SPDX-License-Identifier: Apache-2.0
//! pcapng: sections, interfaces and the three kinds of packet blocks.
//!
//! Source: draft-ietf-opsawg-pcapng. A packet is delivered as soon as its bytes are loaded; the options
//! after it are skipped, so a block may be longer than the window. Not done: options of packets (comments,
//! flags, drop counts), interface names, `if_fcslen`.

use super::pcap::cut_or_end;
use super::{
    CaptureEnd, CaptureError, CaptureStatus, CaptureStep, InputWindow, Located, MAX_PACKET_LEN, failure,
};
use bartizan_base::Timestamp;

/// Type of a section header block: the same in both byte orders.
pub(super) const SECTION_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// libpcap's limit for a block; a longer one is damaged.
const MAX_BLOCK: u32 = 16 * 1024 * 1024;
/// The most bytes of an interface's options that are read.
const MAX_INTERFACE_BLOCK: u32 = 64 * 1024;
const MAX_INTERFACES: usize = 65_536;

/// Unit of an interface's timestamps.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Resolution {
    /// Nanoseconds per tick.
    Times(u64),
    /// Ticks per nanosecond.
    Divided(u64),
    /// Seconds are split into 2^n.
    Binary(u8),
}

impl Resolution {
    /// From option `if_tsresol`.
    fn new(value: u8) -> Self {
        let exponent = u32::from(value & 0x7f);
        if value & 0x80 != 0 {
            Resolution::Binary(value & 0x7f)
        } else if exponent <= 9 {
            Resolution::Times(10_u64.pow(9_u32.saturating_sub(exponent)))
        } else {
            Resolution::Divided(10_u64.checked_pow(exponent.saturating_sub(9)).unwrap_or(u64::MAX))
        }
    }

    fn nanos(self, ticks: u64) -> u64 {
        match self {
            Resolution::Times(factor) => ticks.saturating_mul(factor),
            Resolution::Divided(divisor) => ticks.checked_div(divisor).unwrap_or(0),
            Resolution::Binary(bits) => {
                let scaled = u128::from(ticks).saturating_mul(1_000_000_000) >> bits;
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u32,
    snap_len: u32,
    resolution: Resolution,
    /// Seconds to add to every timestamp.
    offset: i64,
}

impl Interface {
    fn timestamp(&self, high: u32, low: u32) -> Timestamp {
        let nanos = i128::from(self.resolution.nanos(u64::from(high) << 32 | u64::from(low)))
            .saturating_add(i128::from(self.offset).saturating_mul(1_000_000_000));
        Timestamp::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

pub(super) struct PcapNg {
    big_endian: bool,
    interfaces: Vec<Interface>,
    /// The block whose packet was handed out last: its beginning, type, length, and bytes left to skip.
    open: Option<Open>,
    last: Timestamp,
}

#[derive(Clone, Copy)]
struct Open {
    offset: u64,
    kind: u32,
    length: u32,
}

impl PcapNg {
    /// Reads the first section's header.
    pub(super) fn open(input: &mut InputWindow, name: &str) -> Result<Self, CaptureError> {
        let mut new = Self { big_endian: false, interfaces: Vec::new(), open: None, last: Timestamp::ZERO };
        if !new.section(input, name)? {
            let have = input.available() as u64;
            return Err(CaptureError::HeaderCut { name: name.into(), format: "pcapng", have, need: 28 });
        }
        Ok(new)
    }

    fn u16_at(&self, input: &InputWindow, at: usize) -> u16 {
        let bytes = input.peek::<2>(at).unwrap_or_default();
        if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    fn u32_at(&self, input: &InputWindow, at: usize) -> u32 {
        let bytes = input.peek::<4>(at).unwrap_or_default();
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// Reads a section header's fixed part and leaves the rest to be skipped. False when it is cut.
    fn section(&mut self, input: &mut InputWindow, name: &str) -> Result<bool, CaptureError> {
        if !input.want(24).map_err(|stop| failure(stop, name, input))? {
            return Ok(false);
        }
        let offset = input.offset();
        let mark = input.peek::<4>(8).unwrap_or_default();
        self.big_endian = match (u32::from_be_bytes(mark), u32::from_le_bytes(mark)) {
            (BYTE_ORDER, _) => true,
            (_, BYTE_ORDER) => false,
            (mark, _) => return Err(CaptureError::SectionHeader { name: name.into(), offset, mark }),
        };
        let (major, minor) = (self.u16_at(input, 12), self.u16_at(input, 14));
        // 1.2 was written by some programs and is the same as 1.0.
        if major != 1 || !matches!(minor, 0 | 2) {
            return Err(CaptureError::UnsupportedVersion {
                name: name.into(),
                format: "pcapng",
                offset,
                major,
                minor,
                supported: "1.0",
            });
        }
        let length = self.u32_at(input, 4);
        check_length(name, SECTION, offset, length, 28, MAX_BLOCK)?;
        self.interfaces.clear();
        self.open = Some(Open { offset, kind: SECTION, length });
        Ok(true)
    }

    pub(super) fn step(
        &mut self,
        input: &mut InputWindow,
        name: &str,
        number: u64,
        status: &mut CaptureStatus,
    ) -> Result<CaptureStep, CaptureError> {
        loop {
            if let Some(open) = self.open.take()
                && let Some(cut) = self.close(open, input, name)?
            {
                return Ok(cut);
            }
            if !input.want(12).map_err(|stop| failure(stop, name, input))? {
                return Ok(cut_or_end(input, "a block header", 12));
            }
            if input.peek::<4>(0) == Some(SECTION_MAGIC) {
                if !self.section(input, name)? {
                    return Ok(cut_or_end(input, "a section header", 28));
                }
                continue;
            }
            let open =
                Open { offset: input.offset(), kind: self.u32_at(input, 0), length: self.u32_at(input, 4) };
            let minimum = match open.kind {
                INTERFACE => 20,
                SIMPLE_PACKET => 16,
                ENHANCED_PACKET | OBSOLETE_PACKET => 32,
                _ => 12,
            };
            let limit = if open.kind == INTERFACE { MAX_INTERFACE_BLOCK } else { MAX_BLOCK };
            check_length(name, open.kind, open.offset, open.length, minimum, limit)?;
            self.open = Some(open);
            let step = match open.kind {
                INTERFACE => self.interface(open, input, name)?,
                SIMPLE_PACKET => Some(self.simple(open, input, name, number)?),
                ENHANCED_PACKET | OBSOLETE_PACKET => Some(self.packet(open, input, name, number)?),
                _ => {
                    status.skipped_blocks = status.skipped_blocks.saturating_add(1);
                    None
                }
            };
            match step {
                Some(CaptureStep::Record(found)) => {
                    self.last = found.timestamp;
                    return Ok(CaptureStep::Record(found));
                }
                Some(other) => return Ok(other),
                None => {}
            }
        }
    }

    /// Skips the block up to its second length field, which must equal the first.
    fn close(
        &self,
        open: Open,
        input: &mut InputWindow,
        name: &str,
    ) -> Result<Option<CaptureStep>, CaptureError> {
        let whole = u64::from(open.length);
        let cut = |have: u64| {
            Some(CaptureStep::Cut(CaptureEnd::BrokeOff {
                offset: open.offset,
                what: "a block",
                have,
                need: whole,
            }))
        };
        let passed = input.skip(whole.saturating_sub(4)).map_err(|stop| failure(stop, name, input))?;
        if !passed || !input.want(4).map_err(|stop| failure(stop, name, input))? {
            return Ok(cut(input.read_offset().saturating_sub(open.offset)));
        }
        if self.u32_at(input, 0) != open.length {
            return Err(CaptureError::BlockLength {
                name: name.into(),
                kind: open.kind,
                offset: open.offset,
                length: open.length,
                problem: "but another length at its end",
            });
        }
        input.advance(4);
        Ok(None)
    }

    fn interface(
        &mut self,
        open: Open,
        input: &mut InputWindow,
        name: &str,
    ) -> Result<Option<CaptureStep>, CaptureError> {
        let length = open.length as usize;
        if !input.want(length).map_err(|stop| failure(stop, name, input))? {
            return Ok(Some(cut_or_end(input, "an interface block", length)));
        }
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(CaptureError::TooManyInterfaces {
                name: name.into(),
                offset: open.offset,
                limit: MAX_INTERFACES,
            });
        }
        let mut interface = Interface {
            link_type: u32::from(self.u16_at(input, 8)),
            snap_len: self.u32_at(input, 12),
            resolution: Resolution::Times(1_000),
            offset: 0,
        };
        let mut at = 16_usize;
        let end = length.saturating_sub(4);
        while at.saturating_add(4) <= end {
            let (code, len) = (self.u16_at(input, at), usize::from(self.u16_at(input, at.saturating_add(2))));
            let value = at.saturating_add(4);
            if code == 0 || value.saturating_add(len) > end {
                break;
            }
            match (code, len) {
                (9, 1..) => {
                    let [exponent] = input.peek::<1>(value).unwrap_or([6]);
                    interface.resolution = Resolution::new(exponent);
                }
                (14, 8..) => {
                    let bytes = input.peek::<8>(value).unwrap_or_default();
                    interface.offset =
                        if self.big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
                }
                _ => {}
            }
            at = value.saturating_add(len.next_multiple_of(4));
        }
        self.interfaces.push(interface);
        Ok(None)
    }

    /// An enhanced packet block, or the obsolete one it replaced: they differ in the interface's width.
    fn packet(
        &self,
        open: Open,
        input: &mut InputWindow,
        name: &str,
        number: u64,
    ) -> Result<CaptureStep, CaptureError> {
        const HEADER: usize = 28;
        if !input.want(HEADER).map_err(|stop| failure(stop, name, input))? {
            return Ok(cut_or_end(input, "a packet block", open.length as usize));
        }
        let interface = match open.kind {
            OBSOLETE_PACKET => u32::from(self.u16_at(input, 8)),
            _ => self.u32_at(input, 8),
        };
        let about = *self.known(interface, open, name)?;
        let captured = self.u32_at(input, 20);
        let limit = open.length.saturating_sub(32).min(MAX_PACKET_LEN);
        if captured > limit {
            return Err(CaptureError::RecordLength {
                name: name.into(),
                number,
                offset: open.offset,
                length: u64::from(captured),
                limit: u64::from(limit),
            });
        }
        let located = Located {
            timestamp: about.timestamp(self.u32_at(input, 12), self.u32_at(input, 16)),
            at: HEADER,
            len: captured as usize,
            wire_len: self.u32_at(input, 24),
            link_type: about.link_type,
            interface,
        };
        self.whole(located, open, input, name)
    }

    /// A simple packet block: no time, no interface (the section's first), no captured length.
    fn simple(
        &self,
        open: Open,
        input: &mut InputWindow,
        name: &str,
        number: u64,
    ) -> Result<CaptureStep, CaptureError> {
        let about = *self.known(0, open, name)?;
        let wire_len = self.u32_at(input, 8);
        let snap_len = if about.snap_len == 0 { u32::MAX } else { about.snap_len };
        let captured = wire_len.min(snap_len).min(open.length.saturating_sub(16));
        if captured > MAX_PACKET_LEN {
            return Err(CaptureError::RecordLength {
                name: name.into(),
                number,
                offset: open.offset,
                length: u64::from(captured),
                limit: u64::from(MAX_PACKET_LEN),
            });
        }
        let located = Located {
            timestamp: self.last,
            at: 12,
            len: captured as usize,
            wire_len,
            link_type: about.link_type,
            interface: 0,
        };
        self.whole(located, open, input, name)
    }

    fn known(&self, interface: u32, open: Open, name: &str) -> Result<&Interface, CaptureError> {
        self.interfaces.get(interface as usize).ok_or_else(|| CaptureError::UnknownInterface {
            name: name.into(),
            offset: open.offset,
            interface,
            known: self.interfaces.len() as u32,
        })
    }

    /// Hands the packet out if its bytes are present.
    fn whole(
        &self,
        found: Located,
        open: Open,
        input: &mut InputWindow,
        name: &str,
    ) -> Result<CaptureStep, CaptureError> {
        let need = found.at.saturating_add(found.len);
        if input.want(need).map_err(|stop| failure(stop, name, input))? {
            Ok(CaptureStep::Record(found))
        } else {
            Ok(cut_or_end(input, "a packet block", open.length as usize))
        }
    }
}

fn check_length(
    name: &str,
    kind: u32,
    offset: u64,
    length: u32,
    minimum: u32,
    limit: u32,
) -> Result<(), CaptureError> {
    let problem = if length < minimum {
        "less than such a block needs"
    } else if length > limit {
        "more than any real block has"
    } else if !length.is_multiple_of(4) {
        "which is no multiple of four"
    } else {
        return Ok(());
    };
    Err(CaptureError::BlockLength { name: name.into(), kind, offset, length, problem })
}

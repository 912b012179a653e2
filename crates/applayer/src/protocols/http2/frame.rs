// SPDX-License-Identifier: Apache-2.0
//! Frames of HTTP/2 (RFC 9113 sections 4 and 6): headers, and payloads but for blocks of fields.

use super::hpack::HeaderField;
use bartizan_base::Cursor;

/// Length of a frame's header, in bytes.
pub(super) const HEAD: usize = 9;

/// The frame ends the stream in its direction (DATA, HEADERS).
pub(super) const END_STREAM: u8 = 1;
/// The frame ends a block of fields.
pub(super) const END_HEADERS: u8 = 4;
/// The payload is padded.
pub(super) const PADDED: u8 = 8;
/// The payload begins with a priority (HEADERS).
pub(super) const PRIORITISED: u8 = 0x20;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Names of the types of frames, by number, as rules write them.
pub const FRAME_TYPES: [&str; 10] = [
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RSTSTREAM",
    "SETTINGS",
    "PUSHPROMISE",
    "PING",
    "GOAWAY",
    "WINDOWUPDATE",
    "CONTINUATION",
];

/// Names of the error codes (RFC 9113 section 7), by number, as rules write them.
pub const ERROR_CODES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

/// Names of the settings (RFC 9113 section 6.5.2, RFC 8441, RFC 9218), from number 1 on, as rules write them;
/// number 7 has none.
pub const SETTING_NAMES: [&str; 9] = [
    "SETTINGS_HEADER_TABLE_SIZE",
    "SETTINGS_ENABLE_PUSH",
    "SETTINGS_MAX_CONCURRENT_STREAMS",
    "SETTINGS_INITIAL_WINDOW_SIZE",
    "SETTINGS_MAX_FRAME_SIZE",
    "SETTINGS_MAX_HEADER_LIST_SIZE",
    "",
    "SETTINGS_ENABLE_CONNECT_PROTOCOL",
    "SETTINGS_NO_RFC7540_PRIORITIES",
];
/// Number of the setting of the largest frame.
pub(super) const MAX_FRAME_SIZE: u16 = 5;

/// The header of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHead {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(data);
        let length = usize::try_from(cursor.u24()?).ok()?;
        let (kind, flags) = (cursor.u8()?, cursor.u8()?);
        Some(FrameHead { length, kind, flags, stream: cursor.u32()? & 0x7fff_ffff })
    }

    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The frame ends its stream in the sender's direction.
    pub(super) const fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.has(END_STREAM)
    }
}

/// A setting of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Number.
    pub id: u16,
    /// Value.
    pub value: u32,
}

/// The part of a frame that rules and records read.
#[derive(Clone, Debug)]
pub enum FramePayload {
    /// The reason of an error (RST_STREAM, GOAWAY).
    Error(u32),
    /// A weight (PRIORITY).
    Priority(u8),
    /// Settings.
    Settings(Vec<Setting>),
    /// The growth of a window (WINDOW_UPDATE).
    Window(u32),
    /// Fields, with the weight of their stream (HEADERS, PUSH_PROMISE, CONTINUATION).
    Fields {
        /// Weight.
        weight: Option<u8>,
        /// Fields.
        fields: Vec<HeaderField>,
    },
    /// Nothing of it is read (DATA, PING, unknown and broken frames).
    Other,
}

/// A frame that a transaction holds.
#[derive(Clone, Debug)]
pub struct HttpFrame {
    /// Type.
    pub kind: u8,
    /// Payload.
    pub payload: FramePayload,
}

/// The frames of a direction, as rules on single frames see them.
#[derive(Clone, Copy, Debug)]
pub struct HttpFrames<'a> {
    /// The frames.
    pub list: &'a [HttpFrame],
    /// Rules inspect them once, whatever comes later.
    pub is_final: bool,
}

/// The reason why a payload is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadFailure {
    Length,
    Data,
}

/// Reads the payload of a frame of fixed form. Other frames give [`FramePayload::Other`].
pub(super) fn payload(head: FrameHead, data: &[u8]) -> Result<FramePayload, PayloadFailure> {
    let length = head.length;
    let number = |at: usize| {
        let bytes = data.get(at..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or(PayloadFailure::Data)
    };
    let of_length = |wanted: usize| if length == wanted { Ok(()) } else { Err(PayloadFailure::Length) };
    match head.kind {
        GOAWAY if length < 8 => Err(PayloadFailure::Length),
        GOAWAY => Ok(FramePayload::Error(number(4)?)),
        RST_STREAM => of_length(4).and_then(|()| Ok(FramePayload::Error(number(0)?))),
        WINDOW_UPDATE => of_length(4).and_then(|()| Ok(FramePayload::Window(number(0)? & 0x7fff_ffff))),
        PRIORITY => {
            of_length(5)?;
            data.get(4).map(|weight| FramePayload::Priority(*weight)).ok_or(PayloadFailure::Data)
        }
        SETTINGS => {
            let read = |entry: &[u8]| {
                let (id, value) = entry.split_first_chunk::<2>()?;
                Some(Setting {
                    id: u16::from_be_bytes(*id),
                    value: u32::from_be_bytes(*value.first_chunk::<4>()?),
                })
            };
            let list: Vec<Setting> = data.chunks(6).map_while(read).collect();
            // Bytes behind the last whole setting are passed over, as in Suricata.
            Ok(FramePayload::Settings(list))
        }
        _ => Ok(FramePayload::Other),
    }
}

/// The content of a padded payload. `None`: the padding is longer than the payload.
pub(super) fn without_padding(head: FrameHead, data: &[u8]) -> Option<&[u8]> {
    if !head.has(PADDED) {
        return Some(data);
    }
    let (padding, rest) = data.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_without_its_reserved_bit() {
        let head = FrameHead::read(&[1, 2, 3, 1, 5, 0x80, 0, 0, 7]).expect("a header");
        assert_eq!((head.length, head.kind, head.flags, head.stream), (0x01_0203, HEADERS, 5, 7));
        assert!(head.ends_stream() && FrameHead::read(&[0; 8]).is_none());
    }

    #[test]
    fn padding_is_taken_off() {
        let head = FrameHead { length: 4, kind: DATA, flags: PADDED, stream: 1 };
        assert_eq!(without_padding(head, &[1, 7, 8, 0]), Some(&[7, 8][..]));
        assert_eq!(without_padding(head, &[3, 0, 0, 0]), Some(&[][..]));
        assert_eq!(without_padding(head, &[4, 0, 0, 0]), None);
        assert_eq!(without_padding(FrameHead { flags: 0, ..head }, &[4, 0]), Some(&[4, 0][..]));
    }

    #[test]
    fn false_lengths_are_refused() {
        for (kind, length) in [(RST_STREAM, 5), (PRIORITY, 4), (WINDOW_UPDATE, 3), (GOAWAY, 7)] {
            let head = FrameHead { length, kind, flags: 0, stream: 0 };
            assert_eq!(payload(head, &[0; 8]).err(), Some(PayloadFailure::Length), "{kind}");
        }
    }
}

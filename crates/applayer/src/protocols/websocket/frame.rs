// SPDX-License-Identifier: Apache-2.0
//! Headers of WebSocket frames (RFC 6455 section 5.2).

/// Bits of the first byte: the last frame of a message, and the three reserved bits.
pub(super) const FIN: u8 = 0x80;
/// RSV1: the message is compressed (RFC 7692 section 6).
pub(super) const COMPRESSED: u8 = 0x40;
/// RSV2 and RSV3, which no registered extension uses.
pub(super) const RESERVED: u8 = 0x30;
/// The first byte without the opcode.
const FLAGS: u8 = 0xf0;

/// Names of opcodes, with the numbers that rules compare.
pub const OPCODES: &[(&str, u64)] =
    &[("continuation", 0), ("text", 1), ("binary", 2), ("close", 8), ("ping", 9), ("pong", 10)];

/// Names of flags, with their bits.
pub const FLAG_NAMES: &[(&str, u8)] = &[("fin", FIN), ("comp", COMPRESSED)];

pub(super) const CONTINUATION: u8 = 0;
pub(super) const BINARY: u8 = 2;
/// Opcodes from here on are of control frames.
const CONTROL: u8 = 8;
pub(super) const PONG: u8 = 10;
/// Length of the longest payload of a control frame, in bytes.
pub(super) const CONTROL_MAX: u64 = 125;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// FIN and the reserved bits, at their places in the first byte.
    pub flags: u8,
    pub opcode: u8,
    /// The masking key.
    pub mask: Option<[u8; 4]>,
    /// Length of the payload, in bytes.
    pub length: u64,
    /// Length of the header itself, in bytes.
    pub size: usize,
}

impl FrameHeader {
    /// Reads a header from the front of the data. `Err`: the number of bytes that are needed.
    pub(super) fn read(data: &[u8]) -> Result<Self, usize> {
        let [first, second, rest @ ..] = data else { return Err(2) };
        let (extended, masked) = (second & 0x7f, second & 0x80 != 0);
        let width = match extended {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let size = 2 + width + if masked { 4 } else { 0 };
        let Some((number, key)) = rest.get(..size - 2).and_then(|rest| rest.split_at_checked(width)) else {
            return Err(size);
        };
        let length = match width {
            0 => u64::from(extended),
            _ => number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        let mask = key.try_into().ok();
        Ok(FrameHeader { flags: first & FLAGS, opcode: first & !FLAGS, mask, length, size })
    }

    pub(super) fn is_final(self) -> bool {
        self.flags & FIN != 0
    }

    pub(super) fn is_compressed(self) -> bool {
        self.flags & COMPRESSED != 0
    }

    pub(super) fn is_control(self) -> bool {
        self.opcode >= CONTROL
    }

    /// Whether every receiver that keeps to RFC 6455 (sections 5.2, 5.4, 5.5) and RFC 7692 (section 6) fails
    /// the connection at this frame. `within`: a message is open, of which this is not the first frame.
    pub(super) fn is_refused(self, within: bool) -> bool {
        let is_known = matches!(self.opcode, CONTINUATION..=BINARY | CONTROL..=PONG);
        let misplaced = if self.is_control() {
            !self.is_final() || self.length > CONTROL_MAX || self.is_compressed()
        } else {
            within != (self.opcode == CONTINUATION) || within && self.is_compressed()
        };
        !is_known || misplaced || self.flags & RESERVED != 0 || self.length > u64::MAX / 2
    }
}

/// Appends masked or plain bytes of a payload as they are without the mask; `at`: position in the payload of
/// the first of them.
pub(super) fn unmask(data: &[u8], mask: Option<[u8; 4]>, at: u64, out: &mut Vec<u8>) {
    let Some(mut key) = mask else {
        out.extend_from_slice(data);
        return;
    };
    key.rotate_left((at % 4) as usize);
    let start = out.len();
    out.extend_from_slice(data);
    for piece in out.get_mut(start..).unwrap_or_default().chunks_mut(key.len()) {
        for (byte, key) in piece.iter_mut().zip(key) {
            *byte ^= key;
        }
    }
}

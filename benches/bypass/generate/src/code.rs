// SPDX-License-Identifier: Apache-2.0
//! Encodes instructions of bpf(2), as far as programs of this crate use them (Linux
//! `Documentation/bpf/standardization/instruction-set.rst`).

/// An instruction: operation code, destination register, source register, jump or memory offset, and
/// immediate.
pub(crate) const fn word(code: u8, to: u8, from: u8, offset: i16, number: i32) -> u64 {
    let registers = to | from << 4;
    let offset = offset as u16;
    code as u64 | (registers as u64) << 8 | (offset as u64) << 16 | (number as u32 as u64) << 32
}

/// Loads two bytes at an offset of a packet socket's frame.
pub(crate) const LOAD_HALF: u8 = 0x28;
/// Copies one register to another.
pub(crate) const COPY: u8 = 0xbf;
pub(crate) const SET: u8 = 0xb7;
pub(crate) const ADD: u8 = 0x07;
pub(crate) const MULTIPLY: u8 = 0x27;
pub(crate) const AND: u8 = 0x57;
pub(crate) const XOR: u8 = 0xa7;
pub(crate) const SHIFT_RIGHT: u8 = 0x77;
/// Converts to big endian; the immediate is the width in bits.
pub(crate) const TO_BIG: u8 = 0xdc;
pub(crate) const JUMP: u8 = 0x05;
pub(crate) const IF_EQUAL: u8 = 0x15;
/// Compares two registers; jumps if the destination is greater.
pub(crate) const IF_ABOVE: u8 = 0x2d;
pub(crate) const STORE_HALF: u8 = 0x6b;
pub(crate) const STORE_WORD: u8 = 0x63;
pub(crate) const STORE_LONG: u8 = 0x7b;
pub(crate) const LOAD_WORD: u8 = 0x61;
pub(crate) const LOAD_LONG: u8 = 0x79;
pub(crate) const ADD_ATOMICALLY: u8 = 0xdb;
/// Takes two instructions: the second one has the upper half of the immediate.
pub(crate) const LOAD_MAP: u8 = 0x18;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;
/// The helper `bpf_map_lookup_elem`.
pub(crate) const LOOKUP: i32 = 1;
/// The helper `bpf_redirect`.
pub(crate) const REDIRECT: i32 = 23;

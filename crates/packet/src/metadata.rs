// SPDX-License-Identifier: Apache-2.0
//! The metadata block before a packet: 32 generic bytes and 32 extended ones, little endian.
//!
//! No existing level writes one: the XDP program hands plain frames up, and the host decodes them. It is the
//! interface for a device before a host (a SmartNIC's logic) and for other programs; a C compiler, Verilator
//! and Rust agree on each byte of it (`tests/metadata_headers.rs`), so that no side can drift before they
//! meet.
//!
//! Source: UniSec's packet metadata; the layout is a contract with the XDP program and the SmartNIC's logic,
//! so Rust, C (`ebpf/`) and SystemVerilog (`hw/rtl/`) are generated from one table ([`FIELDS`], [`FLAGS`]):
//! `cargo xtask generate`, `tests/metadata_headers.rs`.

pub use crate::layout::Field;

use bartizan_base::{MetadataAction, Path, PortIndex};

/// Length of the generic part, in bytes: all that a level writes if it has no room for more.
pub const GENERIC_LEN: usize = 32;
/// Length of the extended part, in bytes.
pub const EXTENDED_LEN: usize = 32;
/// Length of both, in bytes.
pub const LEN: usize = GENERIC_LEN + EXTENDED_LEN;
/// Bytes of the extended part that functions fill.
pub const FUNCTION_LEN: usize = 24;

macro_rules! fields {
    ($($name:ident: $len:literal @ $offset:literal, $what:literal;)+) => {
        /// Every field, in the order of the bytes.
        pub const FIELDS: &[Field] =
            &[$(Field { name: stringify!($name), offset: $offset, len: $len, what: $what },)+];

        mod at { $(pub const $name: core::ops::Range<usize> = $offset..$offset + $len;)+ }
    };
}

fields! {
    FID: 4 @ 0, "Flow class.";
    PATH: 4 @ 4, "Functions that the packet still visits, a bit each.";
    FLOW_HASH: 4 @ 8, "Keyed hash of the flow.";
    GENERATION: 1 @ 12, "Low 8 bits of the generation.";
    ACTION: 1 @ 13, "What to do with the packet.";
    INGRESS: 1 @ 14, "Port it came in by.";
    EGRESS: 1 @ 15, "Port it leaves by.";
    TENANT: 2 @ 16, "Whose it is.";
    FLAGS: 2 @ 18, "What has been done with it.";
    L3: 2 @ 20, "Offset of the network header, from the start of the frame.";
    L4: 2 @ 22, "Offset of the transport header.";
    PAYLOAD: 2 @ 24, "Offset of the payload.";
    LENGTH: 2 @ 26, "Length of the frame.";
    TIMESTAMP_US: 4 @ 28, "Microseconds of the port's epoch.";
    TIMESTAMP_NS: 8 @ 32, "Nanoseconds since 1970-01-01T00:00:00Z.";
    FUNCTIONS: 24 @ 40, "Left by functions for those after them.";
}

macro_rules! flags {
    ($($(#[doc = $doc:literal])+ $name:ident = $bit:literal,)+) => {
        bitflags::bitflags! {
            /// The processing that the packet has had.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct MetadataFlags: u16 { $($(#[doc = $doc])+ const $name = 1 << $bit;)+ }
        }

        /// Every flag with its meaning.
        pub const FLAGS: &[(MetadataFlags, &str, &str)] =
            &[$((MetadataFlags::$name, stringify!($name), concat!($($doc),+).trim_ascii()),)+];
    };
}

flags! {
    /// Headers are parsed: the offsets count.
    PARSED = 0,
    /// Flow class and path are known.
    CLASSIFIED = 1,
    /// Header halves on the path have run.
    HEADER_HALVES_DONE = 2,
    /// The extended part is present.
    EXTENDED = 3,
    /// IP version 6.
    IPV6 = 4,
    /// A fragment.
    FRAGMENT = 5,
    /// The transport checksum was found right.
    CHECKSUM_OK = 6,
    /// A header is broken.
    INVALID = 7,
}

/// The generic part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generic {
    /// Flow class.
    pub fid: u32,
    /// Functions that the packet still visits.
    pub path: Path,
    /// Keyed hash of the flow.
    pub flow_hash: u32,
    /// Low 8 bits of the generation.
    pub generation: u8,
    /// The action for the packet.
    pub action: MetadataAction,
    /// The ingress port.
    pub ingress: PortIndex,
    /// The egress port.
    pub egress: PortIndex,
    /// The tenant of the packet.
    pub tenant: u16,
    /// Processing stages that the packet has passed, as flags.
    pub flags: MetadataFlags,
    /// Offset of the network header, in bytes from the start of the frame.
    pub l3: u16,
    /// Offset of the transport header.
    pub l4: u16,
    /// Offset of the payload.
    pub payload: u16,
    /// Length of the frame.
    pub length: u16,
    /// Microseconds of the port's epoch.
    pub timestamp_us: u32,
}

/// The extended part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    pub timestamp_ns: u64,
    /// Bytes that functions leave for those after them.
    pub functions: [u8; FUNCTION_LEN],
}

fn get<const N: usize>(block: &[u8], range: core::ops::Range<usize>) -> Option<[u8; N]> {
    block.get(range)?.first_chunk::<N>().copied()
}

fn put(block: &mut [u8], range: core::ops::Range<usize>, bytes: &[u8]) {
    if let Some(place) = block.get_mut(range)
        && place.len() == bytes.len()
    {
        place.copy_from_slice(bytes);
    }
}

impl Generic {
    /// Reads the part from the start of a block; `None` when it is too short or holds an unknown action.
    #[must_use]
    pub fn read(block: &[u8]) -> Option<Self> {
        Some(Generic {
            fid: u32::from_le_bytes(get(block, at::FID)?),
            path: Path(u32::from_le_bytes(get(block, at::PATH)?)),
            flow_hash: u32::from_le_bytes(get(block, at::FLOW_HASH)?),
            generation: u8::from_le_bytes(get(block, at::GENERATION)?),
            action: match u8::from_le_bytes(get(block, at::ACTION)?) {
                0 => MetadataAction::ToCpu,
                1 => MetadataAction::ToPort,
                2 => MetadataAction::Drop,
                _ => return None,
            },
            ingress: PortIndex(u8::from_le_bytes(get(block, at::INGRESS)?)),
            egress: PortIndex(u8::from_le_bytes(get(block, at::EGRESS)?)),
            tenant: u16::from_le_bytes(get(block, at::TENANT)?),
            flags: MetadataFlags::from_bits_retain(u16::from_le_bytes(get(block, at::FLAGS)?)),
            l3: u16::from_le_bytes(get(block, at::L3)?),
            l4: u16::from_le_bytes(get(block, at::L4)?),
            payload: u16::from_le_bytes(get(block, at::PAYLOAD)?),
            length: u16::from_le_bytes(get(block, at::LENGTH)?),
            timestamp_us: u32::from_le_bytes(get(block, at::TIMESTAMP_US)?),
        })
    }

    /// Writes the part.
    pub fn write(&self, block: &mut [u8; GENERIC_LEN]) {
        put(block, at::FID, &self.fid.to_le_bytes());
        put(block, at::PATH, &self.path.0.to_le_bytes());
        put(block, at::FLOW_HASH, &self.flow_hash.to_le_bytes());
        put(block, at::GENERATION, &[self.generation]);
        put(block, at::ACTION, &[self.action as u8]);
        put(block, at::INGRESS, &[self.ingress.0]);
        put(block, at::EGRESS, &[self.egress.0]);
        put(block, at::TENANT, &self.tenant.to_le_bytes());
        put(block, at::FLAGS, &self.flags.bits().to_le_bytes());
        put(block, at::L3, &self.l3.to_le_bytes());
        put(block, at::L4, &self.l4.to_le_bytes());
        put(block, at::PAYLOAD, &self.payload.to_le_bytes());
        put(block, at::LENGTH, &self.length.to_le_bytes());
        put(block, at::TIMESTAMP_US, &self.timestamp_us.to_le_bytes());
    }
}

impl Extended {
    /// Reads the part from a whole block; `None` when it is too short.
    #[must_use]
    pub fn read(block: &[u8]) -> Option<Self> {
        Some(Extended {
            timestamp_ns: u64::from_le_bytes(get(block, at::TIMESTAMP_NS)?),
            functions: get(block, at::FUNCTIONS)?,
        })
    }

    /// Writes the part into a whole block.
    pub fn write(&self, block: &mut [u8; LEN]) {
        put(block, at::TIMESTAMP_NS, &self.timestamp_ns.to_le_bytes());
        put(block, at::FUNCTIONS, &self.functions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_fill_the_block_without_gap_or_overlap() {
        let mut end = 0;
        for field in FIELDS {
            assert_eq!(field.offset, end, "{}", field.name);
            end += field.len;
        }
        assert_eq!(end, LEN);
        let generic: usize = FIELDS.iter().filter(|f| f.offset < GENERIC_LEN).map(|f| f.len).sum();
        assert_eq!(generic, GENERIC_LEN);
    }

    #[test]
    fn the_layout_is_the_contract() {
        let generic = Generic {
            fid: 0x0403_0201,
            path: Path(0x0807_0605),
            flow_hash: 0x0c0b_0a09,
            generation: 0x0d,
            action: MetadataAction::Drop,
            ingress: PortIndex(0x0f),
            egress: PortIndex(0x10),
            tenant: 0x1211,
            flags: MetadataFlags::from_bits_retain(0x1413),
            l3: 0x1615,
            l4: 0x1817,
            payload: 0x1a19,
            length: 0x1c1b,
            timestamp_us: 0x201f_1e1d,
        };
        let mut block = [0; GENERIC_LEN];
        generic.write(&mut block);
        let mut expected: Vec<u8> = (1..=32).collect();
        expected[13] = 2;
        assert_eq!(block.as_slice(), expected);
        let mut whole = [0; LEN];
        Extended { timestamp_ns: 0x0807_0605_0403_0201, functions: [9; FUNCTION_LEN] }.write(&mut whole);
        assert_eq!(&whole[..32], [0; 32]);
        assert_eq!(&whole[32..40], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(&whole[40..], [9; 24]);
    }

    #[test]
    fn what_is_too_short_or_unknown_is_refused() {
        assert_eq!(Generic::read(&[0; 31]), None);
        assert_eq!(Extended::read(&[0; 63]), None);
        let mut block = [0; 32];
        block[13] = 3;
        assert_eq!(Generic::read(&block), None);
    }

    proptest! {
        #[test]
        fn reading_gives_what_was_written(mut bytes in proptest::array::uniform32(any::<u8>()), action in 0u8..3) {
            bytes[13] = action;
            let mut again = [0; GENERIC_LEN];
            Generic::read(&bytes).unwrap().write(&mut again);
            prop_assert_eq!(bytes, again);
        }
    }
}

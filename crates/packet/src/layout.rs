// SPDX-License-Identifier: Apache-2.0
//! Generation of a Rust type from the description of a block's bytes: one table of fields gives the
//! structure, its reader and writer, and the list from which headers in other languages are generated.
//!
//! All numbers are little endian, at the offsets of the description, so that a compiler's padding does not
//! matter.

/// One field of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, in every language.
    pub name: &'static str,
    /// First byte, from the start of the block.
    pub offset: usize,
    /// Length, in bytes.
    pub len: usize,
    /// The field's content.
    pub what: &'static str,
}

/// A block of fixed length, as other levels read and write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Name, in every language.
    pub name: &'static str,
    /// The block's meaning, one sentence.
    pub what: &'static str,
    /// Length, in bytes.
    pub len: usize,
    /// Every field, in the order of the bytes.
    pub fields: &'static [Field],
}

/// A number, the type of a field.
pub(crate) trait LayoutNumber: Copy {
    /// Reads the number from its bytes; zero if there are too few.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the bytes of the number.
    fn put(self, bytes: &mut [u8]);
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl LayoutNumber for $number {
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0, |bytes| <$number>::from_le_bytes(*bytes))
            }

            #[inline]
            fn put(self, bytes: &mut [u8]) {
                if let Some(place) = bytes.first_chunk_mut() {
                    *place = self.to_le_bytes();
                }
            }
        })+
    };
}

numbers!(u8, u16, u32, u64);

/// A structure of numbers with its bytes: `name: type @ offset, "what it holds";`.
macro_rules! layout {
    (
        $(#[doc = $doc:literal])+
        $type:ident, $name:literal, $len:literal {
            $($field:ident: $number:ty [$upper:literal] @ $offset:literal, $what:literal;)+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type { $(#[doc = $what] pub $field: $number,)+ }

        impl $type {
            /// Length, in bytes.
            pub const LEN: usize = $len;

            /// The offsets and meanings of its fields.
            pub const LAYOUT: $crate::layout::Layout = $crate::layout::Layout {
                name: $name,
                what: concat!($($doc,)+).trim_ascii(),
                len: $len,
                fields: &[$($crate::layout::Field {
                    name: $upper,
                    offset: $offset,
                    len: size_of::<$number>(),
                    what: $what,
                },)+],
            };

            /// Reads a block.
            #[inline]
            #[must_use]
            pub fn read(bytes: &[u8; $len]) -> Self {
                $type {
                    $($field: bytes
                        .get($offset..$offset + size_of::<$number>())
                        .map_or(0, $crate::layout::LayoutNumber::get),)+
                }
            }

            /// The bytes of the block; bytes without a field are zero.
            #[must_use]
            pub fn write(&self) -> [u8; $len] {
                let mut bytes = [0; $len];
                $(if let Some(place) = bytes.get_mut($offset..$offset + size_of::<$number>()) {
                    $crate::layout::LayoutNumber::put(self.$field, place);
                })+
                bytes
            }
        }
    };
}

pub(crate) use layout;

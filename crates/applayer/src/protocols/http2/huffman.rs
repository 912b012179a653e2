// SPDX-License-Identifier: Apache-2.0
//! The Huffman code of HPACK (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: codes of a length are consecutive in the order of their symbols. So the lengths are
//! all that has to be held.

use std::sync::LazyLock;

/// Length of each symbol's code in bits; the last symbol ends a string.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];
/// The symbol that ends a string, which no string contains.
const END: u16 = 256;
const SHORTEST: u32 = 5;
const LONGEST: u32 = 30;
/// Longest padding in bits.
const PADDING: u32 = 7;

/// The codes of a length: the first code behind them, and the place of the code 0 of this length in
/// [`HuffmanTable::symbols`].
#[derive(Clone, Copy)]
struct CodeLength {
    end: u32,
    base: i32,
}

/// The code, by lengths.
struct HuffmanTable {
    /// From length 0 on.
    lengths: Vec<CodeLength>,
    /// Symbols in the order of their codes.
    symbols: Vec<u16>,
}

static TABLE: LazyLock<HuffmanTable> = LazyLock::new(|| {
    let mut table = HuffmanTable { lengths: vec![CodeLength { end: 0, base: 0 }], symbols: Vec::new() };
    let mut code = 0u32;
    for length in 1..=LONGEST {
        code <<= 1;
        let base = table.symbols.len() as i32 - code as i32;
        let of_length = (0u16..).zip(LENGTHS).filter(|(_, bits)| u32::from(*bits) == length);
        table.symbols.extend(of_length.map(|(symbol, _)| symbol));
        code = (table.symbols.len() as i32 - base) as u32;
        table.lengths.push(CodeLength { end: code, base });
    }
    table
});

/// Decodes a string of at most `most` bytes. `None`: it is no string of this code, or too long.
pub(super) fn decode(data: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity((data.len().saturating_mul(8) / SHORTEST as usize).min(most));
    let (mut bits, mut held) = (0u64, 0u32);
    for byte in data {
        bits = bits << 8 | u64::from(*byte);
        held += 8;
        while let Some((symbol, length)) = first(bits, held)? {
            if symbol == END || out.len() >= most {
                return None;
            }
            out.push(symbol as u8);
            held -= length;
            bits &= (1 << held) - 1;
        }
    }
    // The rest is the beginning of the code that ends strings: ones.
    (held <= PADDING && bits == (1 << held) - 1).then_some(out)
}

/// The first symbol of the lowest `held` bits, with the length of its code; the inner `None`: more bits are
/// needed. The outer one: no symbol has this code.
fn first(bits: u64, held: u32) -> Option<Option<(u16, u32)>> {
    for length in SHORTEST..=LONGEST {
        if held < length {
            return Some(None);
        }
        let code = u32::try_from(bits >> (held - length)).ok()?;
        let of_length = TABLE.lengths.get(length as usize)?;
        if code < of_length.end {
            let place = usize::try_from(of_length.base.checked_add_unsigned(code)?).ok()?;
            return Some(Some((*TABLE.symbols.get(place)?, length)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_the_rfc_decode() {
        // RFC 7541 appendix C.4 and C.6.
        let strings: [(&[u8], &[u8]); 4] = [
            (b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff", b"www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", b"no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", b"custom-value"),
            (
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
                b"Mon, 21 Oct 2013 20:13:21 GMT",
            ),
        ];
        for (coded, text) in strings {
            assert_eq!(decode(coded, 100).as_deref(), Some(text));
            assert_eq!(decode(coded, text.len() - 1), None, "too long");
        }
    }

    #[test]
    fn every_symbol_has_its_code() {
        let mut code = [0u32; 257];
        let mut next = 0u32;
        for length in 1..=LONGEST as u8 {
            next <<= 1;
            for symbol in (0..257).filter(|symbol| LENGTHS[*symbol] == length) {
                code[symbol] = next;
                next += 1;
            }
        }
        assert_eq!(u64::from(next), 1 << LONGEST, "the code is complete");
        for symbol in 0..256usize {
            let length = u32::from(LENGTHS[symbol]);
            let fill = (8 - length % 8) % 8;
            let bits = u64::from(code[symbol]) << fill | ((1 << fill) - 1);
            let bytes = ((length + fill) / 8) as usize;
            assert_eq!(decode(&bits.to_be_bytes()[8 - bytes..], 1), Some(vec![symbol as u8]), "{symbol}");
        }
    }

    #[test]
    fn the_end_and_false_padding_are_refused() {
        assert_eq!(decode(&[0xff; 4], 10), None, "the end of a string");
        assert_eq!(decode(&[0xff], 10), None, "a byte of padding");
        assert_eq!(decode(&[0x00], 10), None, "zeros as padding");
        assert_eq!(decode(&[0x07], 10).as_deref(), Some(&b"0"[..]));
        assert_eq!(decode(&[], 10).as_deref(), Some(&b""[..]));
    }
}

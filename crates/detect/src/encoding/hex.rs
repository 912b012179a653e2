// SPDX-License-Identifier: Apache-2.0
//! Hexadecimal digits, two a byte.

/// Decodes hexadecimal digits; `None` for any other character or an odd number of digits.
pub(crate) fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |b: u8| char::from(b).to_digit(16);
    pairs.iter().map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()).collect()
}

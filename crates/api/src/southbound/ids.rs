// SPDX-License-Identifier: Apache-2.0
//! Device ids, and content hashes.

use super::limits;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// A device's id: lower-case letters, digits, `-`, `.` and `_`, beginning with a letter or digit. The
/// device's certificate has it as `bartizan:device:ID`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceId(String);

/// Why a text is not a device id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a device id: it has 1 to {max} lower-case letters, digits, `-`, `.`, `_`, and begins with a letter or digit",
    max = limits::NAME_LETTERS
)]
pub struct IdError(String);

impl DeviceId {
    /// Checks a text as an id.
    ///
    /// # Errors
    /// The text has invalid characters, or is too long.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        let text = text.into();
        let letter = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let good = text.bytes().next().is_some_and(letter)
            && text.len() <= limits::NAME_LETTERS
            && text.bytes().all(|c| letter(c) || matches!(c, b'-' | b'.' | b'_'));
        if good {
            Ok(DeviceId(text))
        } else {
            Err(IdError(text.chars().take(limits::NAME_LETTERS).collect()))
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `Device_ID` of rule messages: the first eight bytes of the id's SHA-256.
    #[must_use]
    pub fn number(&self) -> u64 {
        let digest = Sha256::digest(self.0.as_bytes());
        digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for DeviceId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        DeviceId::new(text)
    }
}

impl From<DeviceId> for String {
    fn from(id: DeviceId) -> String {
        id.0
    }
}

/// A SHA-256; 64 hexadecimal digits in bodies.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash(pub [u8; 32]);

/// The text is not a SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 hexadecimal digits")]
pub struct HashError;

/// Formats all digits, or with a precision the first ones.
impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = f.precision().unwrap_or(digits.len());
        f.write_str(digits.get(..shown).unwrap_or(&digits))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for Hash {
    type Error = HashError;
    fn try_from(text: String) -> Result<Self, HashError> {
        let mut bytes = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(HashError);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Ok(Hash(bytes))
    }
}

fn nibble(digit: u8) -> Result<u8, HashError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(HashError),
    }
}

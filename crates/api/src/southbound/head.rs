// SPDX-License-Identifier: Apache-2.0
//! The general head: version u8, type u8, flags u16, length u32, in network order.

use super::error::DecodeError;
use super::limits;

/// Bytes of the general head.
pub const HEAD: usize = 8;

/// Supported versions, the best last.
pub const VERSIONS: &[u8] = &[1, 2, 3, 4, 5, 6];

/// The version of `hello` and of all messages before a version is negotiated; it never changes.
pub const FIRST_VERSION: u8 = 1;

/// Flag: the body is compressed with zlib (RFC 1950).
pub const COMPRESSED: u16 = 1;

/// The highest version that both sides support.
#[must_use]
pub fn common_version(ours: &[u8], theirs: &[u8]) -> Option<u8> {
    ours.iter().copied().filter(|version| theirs.contains(version)).max()
}

/// The six sub-protocols, by the type in the general head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SubProtocol {
    /// Begin and end of a session, keep-alive messages, certificates.
    Session = 1,
    /// Policies and generations.
    Policy = 2,
    /// Rules, or identifiers of rules, in groups.
    Rule = 3,
    /// Life cycle of functions.
    Function = 4,
    /// Counters.
    Statistics = 5,
    /// Alerts.
    Alert = 6,
}

impl SubProtocol {
    /// The sub-protocol of a type.
    ///
    /// # Errors
    /// The type is none of the six.
    pub fn of(kind: u8) -> Result<Self, DecodeError> {
        Ok(match kind {
            1 => SubProtocol::Session,
            2 => SubProtocol::Policy,
            3 => SubProtocol::Rule,
            4 => SubProtocol::Function,
            5 => SubProtocol::Statistics,
            6 => SubProtocol::Alert,
            other => return Err(DecodeError::Type(other)),
        })
    }

    /// Name in messages and the specification.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SubProtocol::Session => "session",
            SubProtocol::Policy => "policy",
            SubProtocol::Rule => "rule",
            SubProtocol::Function => "function",
            SubProtocol::Statistics => "statistics",
            SubProtocol::Alert => "alert",
        }
    }
}

/// A valid general head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHead {
    /// Version of the message.
    pub version: u8,
    /// The message's sub-protocol.
    pub sub: SubProtocol,
    /// Whether the body is compressed.
    pub compressed: bool,
    /// Bytes after the general head.
    pub length: usize,
}

impl MessageHead {
    /// Parses a head.
    ///
    /// # Errors
    /// A version other than the negotiated one, an unknown type or flag, a length beyond the bound.
    pub fn read(bytes: [u8; HEAD], agreed: u8) -> Result<Self, DecodeError> {
        let [version, kind, f1, f0, l3, l2, l1, l0] = bytes;
        if version != agreed {
            return Err(DecodeError::Version { got: version, agreed });
        }
        let sub = SubProtocol::of(kind)?;
        let flags = u16::from_be_bytes([f1, f0]);
        if flags & !COMPRESSED != 0 {
            return Err(DecodeError::Flags(flags));
        }
        let length = u32::from_be_bytes([l3, l2, l1, l0]);
        match usize::try_from(length) {
            Ok(length) if length <= limits::MESSAGE_BYTES => {
                Ok(MessageHead { version, sub, compressed: flags & COMPRESSED != 0, length })
            }
            _ => Err(DecodeError::TooLong(length)),
        }
    }

    /// The bytes of the head.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEAD] {
        let [f1, f0] = (if self.compressed { COMPRESSED } else { 0 }).to_be_bytes();
        let [l3, l2, l1, l0] = u32::try_from(self.length).unwrap_or(u32::MAX).to_be_bytes();
        [self.version, self.sub as u8, f1, f0, l3, l2, l1, l0]
    }
}

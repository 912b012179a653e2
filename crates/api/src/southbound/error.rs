// SPDX-License-Identifier: Apache-2.0
//! Errors of malformed messages. Receivers count them by [`ErrorKind`].

use super::limits;

/// Why bytes are not a message. The connection has to end: the start of the next message is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The head has another version than the negotiated one.
    #[error("version {got} in the head of a message, but version {agreed} was agreed on")]
    Version {
        /// The version in the head.
        got: u8,
        /// The negotiated version.
        agreed: u8,
    },
    /// Unknown sub-protocol.
    #[error("unknown message type {0}; types are 1 (session) to 6 (alert)")]
    Type(u8),
    /// Unknown operation of this sub-protocol.
    #[error("unknown operation {op} of sub-protocol {sub}")]
    Op {
        /// The sub-protocol.
        sub: &'static str,
        /// The operation.
        op: u8,
    },
    /// Flags that are undefined in this version.
    #[error("unknown flags {0:#06x}")]
    Flags(u16),
    /// The message exceeds the bound of bytes.
    #[error("a message of {0} bytes; {max} are allowed", max = limits::MESSAGE_BYTES)]
    TooLong(u32),
    /// The message ends within the head of its sub-protocol.
    #[error("the message ends within the head of sub-protocol {0}")]
    Short(&'static str),
    /// A reserved byte is not 0.
    #[error("a reserved byte of the {0} head is not 0")]
    Reserved(&'static str),
    /// The body cannot be decompressed, or is larger than allowed.
    #[error("the compressed body is damaged, or larger than {max} bytes", max = limits::INFLATED_BYTES)]
    Compression,
    /// Objects and arrays are nested too deeply.
    #[error("objects and arrays nest deeper than {max} levels", max = limits::JSON_DEPTH)]
    Depth,
    /// The body does not have the format of the operation.
    #[error("the body of {message} is wrong: {what}")]
    Body {
        /// The message.
        message: &'static str,
        /// The error, with line and column of the body.
        what: String,
    },
    /// A number of items exceeds its bound.
    #[error("{message}: more {what} than {most}")]
    TooMany {
        /// The message.
        message: &'static str,
        /// The items.
        what: &'static str,
        /// The bound.
        most: usize,
    },
}

/// Kinds of errors, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// [`DecodeError::Version`].
    Version,
    /// [`DecodeError::Type`] and [`DecodeError::Op`].
    Unknown,
    /// [`DecodeError::Flags`] and [`DecodeError::Reserved`].
    Flags,
    /// Bounds: [`DecodeError::TooLong`], [`DecodeError::Depth`], [`DecodeError::TooMany`].
    Bounds,
    /// [`DecodeError::Short`], [`DecodeError::Compression`] and [`DecodeError::Body`].
    Malformed,
}

impl ErrorKind {
    /// The name in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ErrorKind::Version => "version",
            ErrorKind::Unknown => "unknown",
            ErrorKind::Flags => "flags",
            ErrorKind::Bounds => "bounds",
            ErrorKind::Malformed => "malformed",
        }
    }
}

impl DecodeError {
    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            DecodeError::Version { .. } => ErrorKind::Version,
            DecodeError::Type(_) | DecodeError::Op { .. } => ErrorKind::Unknown,
            DecodeError::Flags(_) | DecodeError::Reserved(_) => ErrorKind::Flags,
            DecodeError::TooLong(_) | DecodeError::Depth | DecodeError::TooMany { .. } => ErrorKind::Bounds,
            DecodeError::Short(_) | DecodeError::Compression | DecodeError::Body { .. } => {
                ErrorKind::Malformed
            }
        }
    }
}

/// Why a message cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The message exceeds the bound of bytes.
    #[error("the message would have {0} bytes; {max} are allowed: split it", max = limits::MESSAGE_BYTES)]
    TooLong(usize),
    /// The negotiated version has no such message.
    #[error("there is no `{0}` in version {1}")]
    Version(&'static str, u8),
    /// The body cannot be serialized.
    #[error("the body cannot be written: {0}")]
    Body(String),
}

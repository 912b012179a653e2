// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with a message. Receivers count errors by [`ErrorKind`].

use super::limits;

/// Why bytes are no message. The connection has to end: where the next message begins is not known any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The head has another version than the one agreed on.
    #[error("version {got} in the head of a message, but version {agreed} was agreed on")]
    Version {
        /// What the head says.
        got: u8,
        /// What it has to say.
        agreed: u8,
    },
    /// No such sub-protocol.
    #[error("unknown message type {0}; types are 1 (session) to 6 (alert)")]
    Type(u8),
    /// No such message in this sub-protocol.
    #[error("unknown operation {op} of sub-protocol {sub}")]
    Op {
        /// The sub-protocol.
        sub: &'static str,
        /// The operation.
        op: u8,
    },
    /// Bits that mean nothing in this version.
    #[error("unknown flags {0:#06x}")]
    Flags(u16),
    /// More bytes than a message may have.
    #[error("a message of {0} bytes; {max} are allowed", max = limits::MESSAGE_BYTES)]
    TooLong(u32),
    /// The message ends within the head of its sub-protocol.
    #[error("the message ends within the head of sub-protocol {0}")]
    Short(&'static str),
    /// A reserved byte that is not 0.
    #[error("a reserved byte of the {0} head is not 0")]
    Reserved(&'static str),
    /// The compressed body cannot be read, or is larger than allowed.
    #[error("the compressed body is damaged, or larger than {max} bytes", max = limits::INFLATED_BYTES)]
    Compression,
    /// Objects and arrays too deep in each other.
    #[error("objects and arrays lie deeper in each other than {max} levels", max = limits::JSON_DEPTH)]
    Depth,
    /// The body is not what the operation asks for.
    #[error("the body of {message} is wrong: {what}")]
    Body {
        /// The message.
        message: &'static str,
        /// What is wrong, with line and column of the body.
        what: String,
    },
    /// A number of things beyond its bound.
    #[error("{message}: more {what} than {most}")]
    TooMany {
        /// The message.
        message: &'static str,
        /// What there is too much of.
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
    /// Name in counters.
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
    /// Its kind.
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
    /// More bytes than a message may have.
    #[error("the message would have {0} bytes; {max} are allowed. Split it", max = limits::MESSAGE_BYTES)]
    TooLong(usize),
    /// The version that was agreed on has no such message.
    #[error("there is no `{0}` in version {1}")]
    Version(&'static str, u8),
    /// It cannot be written as JSON.
    #[error("the body cannot be written: {0}")]
    Body(String),
}

// SPDX-License-Identifier: Apache-2.0
//! A message of any sub-protocol.

use super::alert::AlertMessage;
use super::body;
use super::error::{DecodeError, EncodeError};
use super::function::FunctionMessage;
use super::head::{HEAD, MessageHead, SubProtocol};
use super::limits;
use super::policy::PolicyMessage;
use super::rule::RuleMessage;
use super::session::SessionMessage;
use super::statistics::{self, StatisticsMessage};
use std::borrow::Cow;

/// Size in bytes from which bodies of statistics and alerts are compressed.
const COMPRESS_BEYOND: usize = 512;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SouthboundMessage {
    /// Sub-protocol 1.
    Session(SessionMessage),
    /// Sub-protocol 2: generation and message.
    Policy(u64, PolicyMessage),
    /// Sub-protocol 3.
    Rule(RuleMessage),
    /// Sub-protocol 4: number of the request, and message.
    Function(u32, FunctionMessage),
    /// Sub-protocol 5: sequence and message.
    Statistics(u64, StatisticsMessage),
    /// Sub-protocol 6: sequence and message.
    Alert(u64, AlertMessage),
}

impl SouthboundMessage {
    /// The message's sub-protocol.
    #[must_use]
    pub const fn sub(&self) -> SubProtocol {
        match self {
            SouthboundMessage::Session(_) => SubProtocol::Session,
            SouthboundMessage::Policy(..) => SubProtocol::Policy,
            SouthboundMessage::Rule(_) => SubProtocol::Rule,
            SouthboundMessage::Function(..) => SubProtocol::Function,
            SouthboundMessage::Statistics(..) => SubProtocol::Statistics,
            SouthboundMessage::Alert(..) => SubProtocol::Alert,
        }
    }

    /// Encodes the message in a negotiated version.
    ///
    /// # Errors
    /// The message exceeds the bound of bytes.
    pub fn encode(&self, version: u8) -> Result<Vec<u8>, EncodeError> {
        let (head, mut body) = match self {
            SouthboundMessage::Session(message) => message.encode(version)?,
            SouthboundMessage::Policy(generation, message) => message.encode(*generation, version)?,
            SouthboundMessage::Rule(message) => message.encode()?,
            SouthboundMessage::Function(request, message) => message.encode(*request)?,
            SouthboundMessage::Statistics(sequence, message) => message.encode(*sequence)?,
            SouthboundMessage::Alert(sequence, message) => message.encode(*sequence)?,
        };
        let reports = matches!(self, SouthboundMessage::Statistics(..) | SouthboundMessage::Alert(..));
        let compressed = reports && body.len() > COMPRESS_BEYOND;
        if compressed {
            if body.len() > limits::INFLATED_BYTES {
                return Err(EncodeError::TooLong(body.len()));
            }
            body = body::compress(&body)?;
        }
        let length = head.len() + body.len();
        if length > limits::MESSAGE_BYTES {
            return Err(EncodeError::TooLong(length));
        }
        let mut bytes = Vec::with_capacity(HEAD + length);
        bytes.extend(MessageHead { version, sub: self.sub(), compressed, length }.bytes());
        bytes.extend(head);
        bytes.extend(body);
        Ok(bytes)
    }

    /// Decodes the message after a general head.
    ///
    /// # Errors
    /// The message is malformed, or exceeds a bound.
    pub fn decode(head: MessageHead, bytes: &[u8]) -> Result<Self, DecodeError> {
        let open = |body| {
            if head.compressed { body::inflate(body).map(Cow::Owned) } else { Ok(Cow::Borrowed(body)) }
        };
        Ok(match head.sub {
            SubProtocol::Session => {
                let version = head.version;
                let (head, body) = SessionMessage::split(bytes)?;
                SouthboundMessage::Session(SessionMessage::decode(version, head, &open(body)?)?)
            }
            SubProtocol::Policy => {
                let version = head.version;
                let (head, body) = PolicyMessage::split(bytes)?;
                let (generation, message) = PolicyMessage::decode(version, head, &open(body)?)?;
                SouthboundMessage::Policy(generation, message)
            }
            SubProtocol::Rule => {
                let (head, body) = RuleMessage::split(bytes)?;
                SouthboundMessage::Rule(RuleMessage::decode(head, &open(body)?)?)
            }
            SubProtocol::Function => {
                let (head, body) = FunctionMessage::split(bytes)?;
                let (request, message) = FunctionMessage::decode(head, &open(body)?)?;
                SouthboundMessage::Function(request, message)
            }
            SubProtocol::Statistics => {
                let (head, body) = statistics::split("statistics", bytes)?;
                let (sequence, message) = StatisticsMessage::decode(head, &open(body)?)?;
                SouthboundMessage::Statistics(sequence, message)
            }
            SubProtocol::Alert => {
                let (head, body) = statistics::split("alert", bytes)?;
                let (sequence, message) = AlertMessage::decode(head, &open(body)?)?;
                SouthboundMessage::Alert(sequence, message)
            }
        })
    }
}

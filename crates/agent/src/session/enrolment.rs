// SPDX-License-Identifier: Apache-2.0
//! A device's first certificate: one request, one answer, on a connection of its own.

use bartizan_api::southbound::{
    Enrol, Enrolled, FIRST_VERSION, MessageDecoder, Now, Refuse, SessionMessage, SouthboundMessage,
};

/// Time limit of the answer, in milliseconds.
const ANSWER: u64 = 30_000;

/// Why a device got no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrolError {
    /// The controller refused.
    #[error("the controller refused to enrol the device: {}", .0.message)]
    Refused(Refuse),
    /// No answer came.
    #[error("the controller did not answer within {} s; try again with the same token", ANSWER / 1_000)]
    Silent,
    /// The message was not an answer.
    #[error("this is not an answer to an enrolment: {0}")]
    Protocol(String),
}

/// An enrolment.
#[derive(Debug)]
pub struct Enrolment {
    ask: Option<Enrol>,
    decoder: MessageDecoder,
    until: u64,
}

impl Enrolment {
    /// An enrolment on an open connection.
    #[must_use]
    pub fn new(now: Now, ask: Enrol) -> Self {
        Enrolment { ask: Some(ask), decoder: MessageDecoder::default(), until: now.ms.saturating_add(ANSWER) }
    }

    /// The bytes of the request, once.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        SouthboundMessage::Session(SessionMessage::Enrol(self.ask.take()?)).encode(FIRST_VERSION).ok()
    }

    /// Takes bytes; returns the certificate once it is complete.
    ///
    /// # Errors
    /// The controller refused, or the message is not an answer.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<Enrolled>, EnrolError> {
        self.decoder.push(bytes);
        match self.decoder.next_message() {
            Ok(None) => Ok(None),
            Ok(Some(SouthboundMessage::Session(SessionMessage::Enrolled(enrolled)))) => Ok(Some(enrolled)),
            Ok(Some(SouthboundMessage::Session(SessionMessage::Refuse(refuse)))) => {
                Err(EnrolError::Refused(refuse))
            }
            Ok(Some(other)) => Err(EnrolError::Protocol(format!("a {} message", other.sub().name()))),
            Err(error) => Err(EnrolError::Protocol(error.to_string())),
        }
    }

    /// Checks the time limit.
    ///
    /// # Errors
    /// The answer did not come in time.
    pub fn tick(&self, now: Now) -> Result<(), EnrolError> {
        if now.ms < self.until { Ok(()) } else { Err(EnrolError::Silent) }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Sub-protocol 6: alerts, each once with a count. Head: operation u8, three reserved bytes, sequence u64.

use super::body;
use super::error::{DecodeError, EncodeError};
use super::limits;
use super::statistics::{HEAD, head};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Alerts with one key within a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alert {
    /// What makes alerts the same: as a rule tenant, rule, source and destination.
    pub key: String,
    /// Whose traffic it was.
    pub tenant: u16,
    /// The rule, `gid:sid:rev`.
    pub rule: String,
    /// The rule's message.
    pub message: String,
    /// How many there were.
    pub count: u64,
    /// The first of them, nanoseconds since 1970.
    pub first: u64,
    /// The last of them.
    pub last: u64,
    /// The first of them as an EVE object: `timestamp`, addresses, ports, `proto`, `link`, `alert`; no
    /// payload and no packet. As JSON at most [`limits::EVENT_BYTES`].
    pub event: Map<String, Value>,
}

impl Alert {
    /// Bytes of the event as JSON, which have a bound: [`limits::EVENT_BYTES`].
    #[must_use]
    pub fn event_bytes(&self) -> usize {
        let mut bytes = Count(0);
        // Objects with text keys can always be written, and counting does not fail.
        let _ = serde_json::to_writer(&mut bytes, &self.event);
        bytes.0
    }
}

/// Counts what is written.
struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raise<T> {
    alerts: T,
    lost: u64,
}

/// A message of the sub-protocol, without its sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlertMessage {
    /// Agent: operation 1.
    Raise {
        /// The alerts.
        alerts: Vec<Alert>,
        /// Alerts (by their counts) that were thrown away since the start of the agent, because nobody took
        /// them.
        lost: u64,
    },
    /// Controller: operation 2, without a body. All up to this sequence came.
    Received,
}

impl AlertMessage {
    pub(super) fn encode(&self, sequence: u64) -> Result<(Vec<u8>, Vec<u8>), EncodeError> {
        Ok(match self {
            AlertMessage::Raise { alerts, lost } => {
                (head(1, sequence), body::write(&Raise { alerts, lost: *lost })?)
            }
            AlertMessage::Received => (head(2, sequence), Vec::new()),
        })
    }

    pub(super) fn decode(head: [u8; HEAD], bytes: &[u8]) -> Result<(u64, Self), DecodeError> {
        let [op, _, _, _, sequence @ ..] = head;
        let message = match op {
            1 => {
                let Raise { alerts, lost } = body::read::<Raise<Vec<Alert>>>("raise", bytes)?;
                body::bound("raise", "alerts", alerts.len(), limits::ALERTS)?;
                let longest = alerts.iter().map(Alert::event_bytes).max().unwrap_or(0);
                body::bound("raise", "bytes of an event", longest, limits::EVENT_BYTES)?;
                AlertMessage::Raise { alerts, lost }
            }
            2 => body::none("received", bytes, AlertMessage::Received)?,
            op => return Err(DecodeError::Op { sub: "alert", op }),
        };
        Ok((u64::from_be_bytes(sequence), message))
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Sub-protocol 6: alerts with counts. Head: operation u8, three reserved bytes, sequence u64.

use super::body;
use super::error::{DecodeError, EncodeError};
use super::limits;
use super::statistics::{HEAD, head};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Alerts with one key in a span of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertAggregate {
    /// The key that equal alerts share: usually tenant, rule, source and destination.
    pub key: String,
    /// The tenant of the traffic.
    pub tenant: u16,
    /// The rule, `gid:sid:rev`.
    pub rule: String,
    /// The rule's message.
    pub message: String,
    /// Number of alerts.
    pub count: u64,
    /// Time of the first alert, in nanoseconds since 1970.
    pub first: u64,
    /// Time of the last alert, in nanoseconds since 1970.
    pub last: u64,
    /// The first alert as an EVE object: `timestamp`, addresses, ports, `proto`, `link`, `alert`; without
    /// payload and packet. As JSON at most [`limits::EVENT_BYTES`].
    pub event: Map<String, Value>,
}

impl AlertAggregate {
    /// Bytes of the event as JSON; at most [`limits::EVENT_BYTES`] are valid.
    #[must_use]
    pub fn event_bytes(&self) -> usize {
        let mut bytes = Count(0);
        // Objects with text keys can always be serialized, and counting does not fail.
        let _ = serde_json::to_writer(&mut bytes, &self.event);
        bytes.0
    }
}

/// A writer that only counts bytes.
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
        alerts: Vec<AlertAggregate>,
        /// Alerts (by their counts) discarded since the start of the agent, because its queue was full.
        lost: u64,
    },
    /// Controller: operation 2, without a body. All alerts up to this sequence have arrived.
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
                let Raise { alerts, lost } = body::read::<Raise<Vec<AlertAggregate>>>("raise", bytes)?;
                body::bound("raise", "alerts", alerts.len(), limits::ALERTS)?;
                let longest = alerts.iter().map(AlertAggregate::event_bytes).max().unwrap_or(0);
                body::bound("raise", "bytes of an event", longest, limits::EVENT_BYTES)?;
                AlertMessage::Raise { alerts, lost }
            }
            2 => body::none("received", bytes, AlertMessage::Received)?,
            op => return Err(DecodeError::Op { sub: "alert", op }),
        };
        Ok((u64::from_be_bytes(sequence), message))
    }
}

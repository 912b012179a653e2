// SPDX-License-Identifier: Apache-2.0
//! Sub-protocol 5: counter increments. Head: operation u8, three reserved bytes, sequence u64.

use super::body;
use super::error::{DecodeError, EncodeError};
use super::limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Increments of counters in a span of time. Unchanged counters are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delta {
    /// Begin of the span, in nanoseconds since 1970.
    pub from: u64,
    /// End of the span, in nanoseconds since 1970.
    pub to: u64,
    /// Messages of this kind discarded since the start of the agent, because its queue was full.
    pub lost: u64,
    /// Increments by name.
    pub counters: BTreeMap<String, u64>,
}

/// A message of the sub-protocol, without its sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatisticsMessage {
    /// Agent: operation 1.
    Delta(Delta),
    /// Controller: operation 2, without a body. All messages up to this sequence have arrived.
    Received,
}

/// Bytes of the heads of statistics and alerts.
pub(super) const HEAD: usize = 12;

/// Encodes the head of a message with a sequence.
pub(super) fn head(op: u8, sequence: u64) -> Vec<u8> {
    let mut head = vec![op, 0, 0, 0];
    head.extend(sequence.to_be_bytes());
    head
}

/// Splits off a head with a sequence.
pub(super) fn split<'b>(name: &'static str, bytes: &'b [u8]) -> Result<([u8; HEAD], &'b [u8]), DecodeError> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(DecodeError::Short(name))?;
    match head {
        [_, 0, 0, 0, ..] => Ok((*head, rest)),
        _ => Err(DecodeError::Reserved(name)),
    }
}

impl StatisticsMessage {
    pub(super) fn encode(&self, sequence: u64) -> Result<(Vec<u8>, Vec<u8>), EncodeError> {
        Ok(match self {
            StatisticsMessage::Delta(delta) => (head(1, sequence), body::write(delta)?),
            StatisticsMessage::Received => (head(2, sequence), Vec::new()),
        })
    }

    pub(super) fn decode(head: [u8; HEAD], bytes: &[u8]) -> Result<(u64, Self), DecodeError> {
        let [op, _, _, _, sequence @ ..] = head;
        let message = match op {
            1 => {
                let delta: Delta = body::read("delta", bytes)?;
                body::bound("delta", "counters", delta.counters.len(), limits::COUNTERS)?;
                StatisticsMessage::Delta(delta)
            }
            2 => body::none("received", bytes, StatisticsMessage::Received)?,
            op => return Err(DecodeError::Op { sub: "statistics", op }),
        };
        Ok((u64::from_be_bytes(sequence), message))
    }
}

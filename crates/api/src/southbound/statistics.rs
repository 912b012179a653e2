// SPDX-License-Identifier: Apache-2.0
//! Sub-protocol 5: counters, as what they rose by. Head: operation u8, three reserved bytes, sequence u64.

use super::body;
use super::error::{DecodeError, EncodeError};
use super::limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What counters rose by within a time. Those that did not rise are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delta {
    /// Beginning of the time, nanoseconds since 1970.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// Messages of this kind that were thrown away since the start of the agent, because nobody took them.
    pub lost: u64,
    /// By name.
    pub counters: BTreeMap<String, u64>,
}

/// A message of the sub-protocol, without its sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatisticsMessage {
    /// Agent: operation 1.
    Delta(Delta),
    /// Controller: operation 2, without a body. All up to this sequence came.
    Received,
}

/// Bytes of the heads of statistics and alerts.
pub(super) const HEAD: usize = 12;

/// The head of a message with a sequence.
pub(super) fn head(op: u8, sequence: u64) -> Vec<u8> {
    let mut head = vec![op, 0, 0, 0];
    head.extend(sequence.to_be_bytes());
    head
}

/// Takes a head with a sequence off.
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

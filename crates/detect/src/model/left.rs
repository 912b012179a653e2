// SPDX-License-Identifier: Apache-2.0
//! Values that matches of a packet leave behind: for other rules on it, and for its alerts.

use bartizan_applayer::transaction::TxId;

/// A value that a match leaves for alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The rule, by its position.
    pub rule: u32,
    /// The transaction of the match.
    pub tx: Option<TxId>,
    /// Interned name.
    pub name: u32,
    /// What it is.
    pub kind: LeftKind,
    /// Bytes, or JSON.
    pub value: Vec<u8>,
}

/// What a value is that a match leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftKind {
    /// A variable of the packet, shown in all its alerts.
    PacketVariable,
    /// Bytes for the alert of the match.
    Text,
    /// JSON for the alert of the match.
    Json,
}

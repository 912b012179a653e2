// SPDX-License-Identifier: Apache-2.0
//! Values that matches on a packet capture for other rules on the packet and for its alerts.

use bartizan_applayer::transaction::TxId;

/// A value that a match captured for alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertContext {
    /// Position of the rule.
    pub rule: u32,
    /// The transaction of the match.
    pub tx: Option<TxId>,
    /// Interned name.
    pub name: u32,
    /// Kind of the value.
    pub kind: LeftKind,
    /// Bytes, or JSON.
    pub value: Vec<u8>,
}

/// The kind of a captured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftKind {
    /// A variable of the packet, shown in all its alerts.
    PacketVariable,
    /// Bytes for the alert of the match.
    Text,
    /// JSON for the alert of the match.
    Json,
}

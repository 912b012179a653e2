// SPDX-License-Identifier: Apache-2.0
//! Results of protocol detection, of a direction and of a flow.

use crate::protocol::ProtocolId;
use bartizan_base::PerDirection;

/// The result of protocol detection for one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// Not looked at, or not enough bytes yet.
    #[default]
    Pending,
    /// Certain.
    Protocol(ProtocolId),
    /// No protocol of ours.
    Failed,
}

impl Known {
    /// The protocol, if one is known.
    #[must_use]
    pub const fn protocol(self) -> Option<ProtocolId> {
        match self {
            Known::Protocol(id) => Some(id),
            _ => None,
        }
    }
}

/// The application protocol of a flow, as plain values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppSummary {
    /// The flow's protocol.
    pub protocol: Known,
    /// By direction, where both were looked at.
    pub by_direction: PerDirection<Known>,
    /// The protocol before a switch.
    pub original: Option<ProtocolId>,
}

impl AppSummary {
    /// The protocol of the transactions that the flow holds now.
    #[must_use]
    pub fn current(&self) -> Option<ProtocolId> {
        self.protocol.protocol().or(self.original)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Results of protocol detection, of a direction and of a flow.

use crate::protocol::ProtocolId;
use bartizan_base::PerDirection;

/// The result of protocol detection for one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DetectedProtocol {
    /// Detection has not begun, or needs more bytes.
    #[default]
    Pending,
    /// The protocol is certain.
    Protocol(ProtocolId),
    /// No protocol that this engine knows.
    Failed,
}

impl DetectedProtocol {
    /// The protocol, if one is known.
    #[must_use]
    pub const fn protocol(self) -> Option<ProtocolId> {
        match self {
            DetectedProtocol::Protocol(id) => Some(id),
            _ => None,
        }
    }
}

/// The application protocol of a flow, as plain values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppSummary {
    /// The flow's protocol.
    pub protocol: DetectedProtocol,
    /// Results by direction, where both were inspected.
    pub by_direction: PerDirection<DetectedProtocol>,
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

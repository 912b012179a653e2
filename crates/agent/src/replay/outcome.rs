// SPDX-License-Identifier: Apache-2.0
//! The outcome of a flow, and its identification.

use core::fmt;
use core::net::IpAddr;
use serde::Serialize;

/// The outcome of a flow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum ReplayVerdict {
    /// The flow is forwarded.
    Forwarded,
    /// The flow is dropped, or packets of it are.
    Refused {
        /// The function; empty if the record does not name one.
        function: String,
        /// The reason.
        reason: String,
        /// Number of the function's rule.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<u32>,
    },
    /// A staged policy would drop the flow, which is forwarded.
    Staged {
        /// The reason.
        reason: String,
    },
    /// Headers do not decide: these functions need data that is not recorded.
    Undecided {
        /// Functions that need state or payload, or the missing parts of the record.
        by: Vec<String>,
    },
}

impl ReplayVerdict {
    /// Whether the flow is forwarded; `None`: unknown.
    #[must_use]
    pub const fn forwards(&self) -> Option<bool> {
        match self {
            ReplayVerdict::Forwarded | ReplayVerdict::Staged { .. } => Some(true),
            ReplayVerdict::Refused { .. } => Some(false),
            ReplayVerdict::Undecided { .. } => None,
        }
    }
}

impl fmt::Display for ReplayVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayVerdict::Forwarded => write!(f, "goes on"),
            ReplayVerdict::Refused { function, reason, .. } if function.is_empty() => {
                write!(f, "refused {reason}")
            }
            ReplayVerdict::Refused { function, reason, .. } => write!(f, "refused by {function}: {reason}"),
            ReplayVerdict::Staged { reason } => write!(f, "goes on, staged: {reason}"),
            ReplayVerdict::Undecided { by } => write!(f, "undecided: {}", by.join(", ")),
        }
    }
}

/// The outcome of a flow, and the policy that applies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ReplayOutcome {
    /// The tenant of the traffic; empty if unknown.
    pub tenant: String,
    /// The policy.
    pub policy: String,
    /// The outcome.
    #[serde(flatten)]
    pub verdict: ReplayVerdict,
}

/// Identification of a flow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FlowName {
    /// IP protocol.
    pub protocol: u8,
    /// Address of the initiator.
    pub src_ip: IpAddr,
    /// Port of the initiator; 0 without ports.
    pub src_port: u16,
    /// Address of the responder.
    pub dest_ip: IpAddr,
    /// Port of the responder.
    pub dest_port: u16,
    /// Time of the first packet, in the format of events.
    pub start: String,
}

/// Counts of flows, packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// Number of flows.
    pub flows: u64,
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Amounts {
    /// Adds other amounts.
    pub fn add(&mut self, other: &Amounts) {
        self.flows = self.flows.saturating_add(other.flows);
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

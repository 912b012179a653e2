// SPDX-License-Identifier: Apache-2.0
//! What becomes of a flow, and of which.

use core::fmt;
use core::net::IpAddr;
use serde::Serialize;

/// What becomes of a flow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Fate {
    /// It goes on.
    Forwarded,
    /// It is refused, or packets of it are.
    Refused {
        /// By which function; nothing where the record does not say.
        function: String,
        /// Why.
        reason: String,
        /// The function's rule.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<u32>,
    },
    /// A staged policy would refuse it; it goes on.
    Staged {
        /// Why.
        reason: String,
    },
    /// Headers do not say: these have to see what is not there.
    Undecided {
        /// Functions that need state or payload, or what of the record is missing.
        by: Vec<String>,
    },
}

impl Fate {
    /// Whether it goes on; `None`: that is not known.
    #[must_use]
    pub const fn goes_on(&self) -> Option<bool> {
        match self {
            Fate::Forwarded | Fate::Staged { .. } => Some(true),
            Fate::Refused { .. } => Some(false),
            Fate::Undecided { .. } => None,
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Forwarded => write!(f, "goes on"),
            Fate::Refused { function, reason, .. } if function.is_empty() => write!(f, "refused {reason}"),
            Fate::Refused { function, reason, .. } => write!(f, "refused by {function}: {reason}"),
            Fate::Staged { reason } => write!(f, "goes on, staged: {reason}"),
            Fate::Undecided { by } => write!(f, "undecided: {}", by.join(", ")),
        }
    }
}

/// What becomes of a flow, and by which policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Outcome {
    /// Whose traffic it is; nothing where that is not known.
    pub tenant: String,
    /// The policy.
    pub policy: String,
    /// What becomes of it.
    #[serde(flatten)]
    pub fate: Fate,
}

/// Which flow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FlowName {
    /// IP protocol.
    pub protocol: u8,
    /// Address of the side that opened it.
    pub src_ip: IpAddr,
    /// Its port; 0 without ports.
    pub src_port: u16,
    /// Address of the other side.
    pub dest_ip: IpAddr,
    /// Its port.
    pub dest_port: u16,
    /// When it began, as events have it.
    pub start: String,
}

/// How much it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// Flows.
    pub flows: u64,
    /// Their packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amounts {
    /// With others.
    pub fn add(&mut self, other: &Amounts) {
        self.flows = self.flows.saturating_add(other.flows);
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

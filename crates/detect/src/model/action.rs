// SPDX-License-Identifier: Apache-2.0
//! What a rule does when it matches.

/// What a rule does when it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleAction {
    /// Report.
    Alert,
    /// Report and refuse (inline), report only (passive).
    Drop,
    /// Like drop, and tell the sides that are named.
    Reject(RejectSide),
    /// Inspect no further.
    Pass,
    /// Change logging or inspection of the flow or transaction.
    Config,
    /// Let go on (firewall).
    Accept,
}

/// Who is told of a rejected connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RejectSide {
    /// The sender of the packet (`reject`, `rejectsrc`).
    Source,
    /// The receiver (`rejectdst`).
    Destination,
    /// Both (`rejectboth`).
    Both,
}

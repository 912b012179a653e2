// SPDX-License-Identifier: Apache-2.0
//! Actions of rules.

/// The action of a rule when it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleAction {
    /// Report.
    Alert,
    /// Report and refuse (inline), report only (passive).
    Drop,
    /// As drop, with a reset or ICMP message to the given sides.
    Reject(RejectSide),
    /// Inspect no further.
    Pass,
    /// Change logging or inspection of the flow or transaction.
    Config,
    /// Accept the traffic (firewall).
    Accept,
}

/// The receivers of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RejectSide {
    /// The sender of the packet (`reject`, `rejectsrc`).
    Source,
    /// The receiver (`rejectdst`).
    Destination,
    /// Both (`rejectboth`).
    Both,
}

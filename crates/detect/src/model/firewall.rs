// SPDX-License-Identifier: Apache-2.0
//! Values of firewall mode: acts, hooks and states of firewall rules, and the firewall's decision on a
//! packet. See `compile::firewall`.

use crate::model::action::RejectSide;
use bartizan_applayer::protocol::ProtocolId;
use bartizan_base::{Direction, RuleId};

/// The firewall's act on traffic that a rule or policy applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Accepts the traffic; see [`Reach`].
    Accept(Reach),
    /// Refuses the traffic.
    Refuse {
        /// All later packets of the flow are refused, too.
        flow: bool,
        /// Receivers of a rejection.
        reject: Option<RejectSide>,
    },
    /// Decides nothing: only changes a setting (`config`).
    Nothing,
}

/// The reach of an acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// This table; the next table is evaluated.
    Hook,
    /// The transaction, in both directions.
    Tx,
    /// The packet; no further table is evaluated, for transactions neither.
    Packet,
    /// The packet and all later packets of the flow.
    Flow,
}

/// The firewall's part of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallRule {
    /// The rule's act.
    pub act: Act,
    /// Detection skips the accepted packet or flow.
    pub pass: bool,
    /// The rule also accepts the states before its own (`<`).
    pub covers_earlier: bool,
    /// The hook or state at which the rule is evaluated.
    pub at: At,
    /// The hook's name in events; `None` for protocols without states of their own.
    pub hook: Option<String>,
    /// The rule's actions, as events show them.
    pub policy: String,
}

/// The hook or state at which a rule is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// On packets, at a hook.
    Packet(PacketHook),
    /// At a state of a protocol's transactions.
    State(ProtocolId, Direction, u8),
}

/// The tables of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketHook {
    /// Before the packet's flow is looked up.
    PreFlow,
    /// Before the packet's stream is advanced.
    PreStream,
    /// For each packet.
    Filter,
}

impl PacketHook {
    /// Name in events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PacketHook::PreFlow => "packet:pre_flow",
            PacketHook::PreStream => "packet:pre_stream",
            PacketHook::Filter => "packet:filter",
        }
    }
}

impl Act {
    /// Whether the packet continues, at least to the next table.
    #[must_use]
    pub const fn accepts(self) -> bool {
        matches!(self, Act::Accept(_))
    }

    /// Whether the act accepts the whole flow.
    #[must_use]
    pub const fn accepts_flow(self) -> bool {
        matches!(self, Act::Accept(Reach::Flow))
    }
}

/// The firewall's decision on the current packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// All evaluated tables accept the packet.
    #[default]
    Open,
    /// The packet is accepted, and its transaction data is not judged.
    Packet,
    /// The packet is refused.
    Refused(FirewallDrop),
}

impl Gate {
    /// Whether the packet is refused.
    #[must_use]
    pub const fn refuses(self) -> bool {
        matches!(self, Gate::Refused(_))
    }
}

/// The refusal of a packet with its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirewallDrop {
    /// The cause.
    pub cause: FirewallDropCause,
    /// The rest of the flow is refused, too.
    pub flow: bool,
    /// Receivers of a rejection.
    pub reject: Option<RejectSide>,
    /// The rule, if one decided.
    pub rule: Option<RuleId>,
}

/// The cause of a packet's refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirewallDropCause {
    /// A rule of the filter or of a state.
    Rule,
    /// The policy of packets.
    PacketPolicy,
    /// The policy of a state.
    AppPolicy,
    /// A rule of the table before the flow look-up.
    PreFlow,
    /// A rule of the table before the stream.
    PreStream,
}

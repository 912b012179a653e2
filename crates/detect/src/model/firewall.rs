// SPDX-License-Identifier: Apache-2.0
//! Firewall mode in values: what a rule of the firewall says and where, and what the firewall says of a
//! packet. See `compile::firewall`.

use crate::model::action::RejectSide;
use bartizan_applayer::protocol::ProtocolId;
use bartizan_base::{Direction, RuleId};

/// What the firewall does with what a rule or a policy is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// It goes on; see [`Reach`].
    Accept(Reach),
    /// It does not go on; `flow`: nor does anything of the flow from here on.
    Refuse {
        /// All of the flow.
        flow: bool,
        /// Who is told.
        reject: Option<RejectSide>,
    },
    /// Nothing is decided: only a setting is changed (`config`).
    Nothing,
}

/// How far an acceptance reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// This table; the next one is asked.
    Hook,
    /// The transaction, in both directions.
    Tx,
    /// The packet; no further table is asked, of transactions neither.
    Packet,
    /// The packet and all of the flow behind it.
    Flow,
}

/// The firewall's part of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallRule {
    /// What it does.
    pub act: Act,
    /// Detection passes over what it accepts: the packet, or the flow.
    pub pass: bool,
    /// The states before its own are accepted as well (`<`).
    pub covers_earlier: bool,
    /// Where it is evaluated.
    pub at: At,
    /// What events call its hook; of protocols without states of their own they name none.
    pub hook: Option<String>,
    /// Its actions, as events show them.
    pub policy: String,
}

/// Where a rule is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// On packets.
    Packet(PacketHook),
    /// At a state of a protocol's transactions.
    State(ProtocolId, Direction, u8),
}

/// The tables of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketHook {
    /// Before the packet's flow is looked up.
    PreFlow,
    /// Before its stream is advanced.
    PreStream,
    /// Each packet.
    Filter,
}

impl PacketHook {
    /// As events name it.
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
    /// Whether it lets the packet go on, at least to the next table.
    #[must_use]
    pub const fn accepts(self) -> bool {
        matches!(self, Act::Accept(_))
    }

    /// Whether it accepts all of the flow.
    #[must_use]
    pub const fn accepts_flow(self) -> bool {
        matches!(self, Act::Accept(Reach::Flow))
    }
}

/// What the firewall says of the packet in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// It goes on, as far as was asked.
    #[default]
    Open,
    /// It goes on, and what it brings to transactions is not asked about.
    Packet,
    /// It does not go on.
    Refused(Refusal),
}

impl Gate {
    /// Whether the packet does not go on.
    #[must_use]
    pub const fn refuses(self) -> bool {
        matches!(self, Gate::Refused(_))
    }
}

/// Why a packet does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What decided.
    pub cause: Cause,
    /// Nothing of the flow goes on.
    pub flow: bool,
    /// Who is told.
    pub reject: Option<RejectSide>,
    /// The rule, where one decided.
    pub rule: Option<RuleId>,
}

/// What decided against a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A rule of the filter or of a state.
    Rule,
    /// The policy of packets.
    PacketPolicy,
    /// The policy of a state.
    AppPolicy,
    /// A rule before the flow.
    PreFlow,
    /// A rule before the stream.
    PreStream,
}

// SPDX-License-Identifier: Apache-2.0
//! Firewall mode: rules that say what may go on, and policies for all else. Source: Suricata 8's user guide, "Firewall Mode Design", and
//! what 8.0.8 was seen to do; where both differ, docs/firewall.md says which holds here.
//!
//! The firewall judges each packet before detection does, table by table: `packet:pre_flow`, `packet:pre_stream` (both only if they have
//! rules), `packet:filter`, then one table for each state that the packet's transactions have come to. In a table the first rule that
//! matches decides, in the order of the files; where none does, the table's policy decides. What the firewall refuses detection does not see.
//!
//! [`crate::engine::inspect`] runs it (`inspect/gate.rs`).

mod policies;
mod rules;

use crate::model::signature::{Member, RejectSide};
use bartizan_applayer::protocol::ProtocolId;
use bartizan_applayer::protocols;
use bartizan_base::{Direction, PerDirection, RuleId};
use std::collections::HashMap;

pub(crate) use policies::POLICY_SIDS;
pub use policies::{Policies, is_enabled};
pub(crate) use rules::{check_detection, check_firewall};

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

/// What a table does where no rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What is done.
    pub act: Act,
    /// Detection passes over what it accepts.
    pub pass: bool,
    /// The rule in whose name it is reported, by its position; `None`: it is not reported.
    pub report: Option<u32>,
}

/// A table of packets.
#[derive(Clone, Debug)]
pub struct Table {
    /// Which one.
    pub hook: PacketHook,
    /// Its rules, by position in the rule set, in the order of evaluation.
    pub rules: Vec<u32>,
    /// IP protocols that its rules are about; empty: all.
    protocols: Vec<u8>,
    /// Where none decides.
    pub policy: Policy,
}

impl Table {
    /// Whether it is asked about packets of this IP protocol. The filter always is; the others only where they have rules.
    #[must_use]
    pub fn is_asked(&self, protocol: Option<u8>) -> bool {
        self.hook == PacketHook::Filter
            || !self.rules.is_empty()
                && (self.protocols.is_empty() || protocol.is_some_and(|p| self.protocols.contains(&p)))
    }
}

/// The tables of a direction of a protocol's transactions.
#[derive(Clone, Debug, Default)]
pub struct States {
    /// State and rule, by state, then in the order of evaluation.
    pub rules: Vec<(u8, u32)>,
    /// By state, where no rule decides.
    pub policies: Vec<Policy>,
}

/// All tables.
#[derive(Clone, Debug)]
pub struct Firewall {
    /// Those of packets, in the order in which they are asked.
    pub packets: [Table; 3],
    /// Those of transactions.
    states: HashMap<ProtocolId, PerDirection<States>>,
    /// ARP goes on without being asked about.
    pub accepts_arp: bool,
}

impl Firewall {
    /// Sorts rules into tables. `signatures`: all rules of the set; those of the firewall have their part ([`crate::model::signature::Signature::firewall`]).
    pub(crate) fn new(signatures: &[Member], policies: &Policies) -> Self {
        let report = |policy: &policies::Written, sid: u32| {
            let named = |s: &Member| {
                s.id.sid == sid
                    && s.firewall
                        .as_ref()
                        .is_some_and(|f| (&f.policy, &f.hook) == (&policy.text, &policy.hook))
            };
            let at = policy.alert.then(|| signatures.iter().position(named)).flatten();
            Policy { act: policy.act, pass: policy.pass, report: at.and_then(|at| u32::try_from(at).ok()) }
        };
        let of_firewall = || {
            let own = |s: &Member| !POLICY_SIDS.contains(&s.id.sid) || s.id.gid != 1;
            let all = signatures.iter().zip(0u32..).filter(move |(s, _)| own(s));
            all.filter_map(|(s, index)| Some((s, s.firewall.as_deref()?, index)))
        };
        let packets = [PacketHook::PreFlow, PacketHook::PreStream, PacketHook::Filter].map(|hook| {
            let own = || of_firewall().filter(move |(_, f, _)| f.at == At::Packet(hook));
            let any = own().any(|(s, ..)| s.protocol.ip.is_empty());
            let ip = own().flat_map(|(s, ..)| s.protocol.ip.iter().copied());
            Table {
                hook,
                rules: own().map(|(.., index)| index).collect(),
                protocols: if any { Vec::new() } else { ip.collect() },
                policy: report(policies.of_packets(hook), POLICY_SIDS[0]),
            }
        });
        let mut states: HashMap<ProtocolId, PerDirection<States>> = HashMap::new();
        for (id, _) in protocols::TABLE.iter().filter_map(|spec| protocols::by_name(spec.name)) {
            let mut both = PerDirection::<States>::default();
            for direction in Direction::BOTH {
                let written = policies.of_states(id, direction).iter();
                both[direction].policies = written.map(|p| report(p, POLICY_SIDS[1])).collect();
            }
            states.insert(id, both);
        }
        for (_, rule, index) in of_firewall() {
            if let At::State(protocol, direction, state) = rule.at
                && let Some(both) = states.get_mut(&protocol)
            {
                both[direction].rules.push((state, index));
            }
        }
        for both in states.values_mut() {
            Direction::BOTH.into_iter().for_each(|direction| both[direction].rules.sort_unstable());
        }
        Firewall { packets, states, accepts_arp: policies.accepts_arp }
    }

    /// The tables of a direction of a protocol's transactions.
    #[must_use]
    pub fn states(&self, protocol: ProtocolId, direction: Direction) -> Option<&States> {
        self.states.get(&protocol).map(|both| &both[direction])
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

// SPDX-License-Identifier: Apache-2.0
//! The firewall's tables: the rules of each hook and state, and the policy where none decides.

use super::policies::{FirewallPolicySpec, POLICY_SIDS, Policies};
use crate::model::firewall::{Act, At, PacketHook};
use crate::model::signature::Member;
use bartizan_applayer::protocol::ProtocolId;
use bartizan_applayer::protocols;
use bartizan_base::{Direction, PerDirection};
use std::collections::HashMap;

/// The decision of a table where no rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirewallPolicy {
    /// The act that applies.
    pub act: Act,
    /// Detection skips packets that this policy accepts.
    pub pass: bool,
    /// Position of the rule under which the policy is reported; `None`: the policy is not reported.
    pub report: Option<u32>,
}

/// A table of packets.
#[derive(Clone, Debug)]
pub struct Table {
    /// The table's hook.
    pub hook: PacketHook,
    /// The table's rules, by position in the rule set, in the order of evaluation.
    pub rules: Vec<u32>,
    /// IP protocols of the table's rules; empty: all.
    protocols: Vec<u8>,
    /// The policy where no rule decides.
    pub policy: FirewallPolicy,
}

impl Table {
    /// Whether the table applies to packets of this IP protocol: the filter always does, the others only
    /// where they have rules.
    #[must_use]
    pub fn is_asked(&self, protocol: Option<u8>) -> bool {
        self.hook == PacketHook::Filter
            || !self.rules.is_empty()
                && (self.protocols.is_empty() || protocol.is_some_and(|p| self.protocols.contains(&p)))
    }
}

/// The tables for one direction of a protocol's transactions.
#[derive(Clone, Debug, Default)]
pub struct States {
    /// State and rule, by state, then in the order of evaluation.
    pub rules: Vec<(u8, u32)>,
    /// By state: the policy where no rule decides.
    pub policies: Vec<FirewallPolicy>,
}

/// All tables.
#[derive(Clone, Debug)]
pub struct Firewall {
    /// Tables of packets, in the order of evaluation.
    pub packets: [Table; 3],
    /// Tables of transactions.
    states: HashMap<ProtocolId, PerDirection<States>>,
    /// ARP is accepted without evaluation.
    pub accepts_arp: bool,
}

impl Firewall {
    /// Sorts rules into tables. `signatures`: all rules of the set; firewall rules have their part in
    /// [`crate::model::signature::Signature::firewall`].
    pub(crate) fn new(signatures: &[Member], policies: &Policies) -> Self {
        let report = |policy: &FirewallPolicySpec, sid: u32| {
            let named = |s: &Member| {
                s.id.sid == sid
                    && s.firewall
                        .as_ref()
                        .is_some_and(|f| (&f.policy, &f.hook) == (&policy.text, &policy.hook))
            };
            let at = policy.alert.then(|| signatures.iter().position(named)).flatten();
            FirewallPolicy {
                act: policy.act,
                pass: policy.pass,
                report: at.and_then(|at| u32::try_from(at).ok()),
            }
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
        for (id, _) in protocols::all() {
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

    /// The tables for one direction of a protocol's transactions.
    #[must_use]
    pub fn states(&self, protocol: ProtocolId, direction: Direction) -> Option<&States> {
        self.states.get(&protocol).map(|both| &both[direction])
    }
}

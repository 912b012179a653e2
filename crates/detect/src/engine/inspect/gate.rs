// SPDX-License-Identifier: Apache-2.0
//! Evaluates the firewall ([`crate::compile::firewall`]): judges the packet, then each transaction that the
//! packet changed, state by state.
//!
//! The state in which a transaction stays is judged at each inspection; a state that the transaction has
//! left, once. So a rule that accepts the middle of a state does not accept the rest, and later data of the
//! state is judged as well.

use super::{Hit, InspectionRun};
use crate::compile::firewall::{
    Act, Firewall, FirewallDrop, FirewallDropCause, FirewallPolicy, Gate, PacketHook, Reach,
};
use crate::engine::txstate::{GateState, RuleProgress, Side};
use crate::model::condition::Answer;
use crate::model::signature::Member;
use bartizan_applayer::protocol::ProtocolId;
use bartizan_applayer::transaction::{Transaction, TxId};
use bartizan_packet::{Network, PacketView};

/// The decision of a table.
struct Decided {
    act: Act,
    /// Detection skips the packet or transaction.
    pass: bool,
    /// The rule's position; `None`: the policy decided.
    rule: Option<u32>,
}

impl InspectionRun<'_, '_> {
    /// Judges the packet itself.
    pub(super) fn gate_packet(&mut self, packet: &PacketView<'_>) -> Gate {
        let rules = self.rules;
        let Some(firewall) = &rules.firewall else { return Gate::Open };
        // All packets of an accepted flow pass.
        if self.flow.state.accepted.is_some() {
            return Gate::Open;
        }
        if firewall.accepts_arp && matches!(packet.decoded().network, Network::Arp(_)) {
            return Gate::Packet;
        }
        let gate = self.packet_tables(firewall, packet);
        if matches!(gate, Gate::Refused(_)) && !packet.payload().is_empty() {
            self.flow.withhold(self.scene.facts.direction);
        }
        gate
    }

    fn packet_tables(&mut self, firewall: &Firewall, packet: &PacketView<'_>) -> Gate {
        for table in firewall.packets.iter().filter(|table| table.is_asked(packet.decoded().proto())) {
            let mut decided = None;
            for index in table.rules.iter().copied() {
                if !self.due().has(index) {
                    continue;
                }
                let Some(signature) = self.rules.signatures.get(index as usize) else { continue };
                // Rules apply to IP only; policies cover other packets.
                if packet.decoded().src().is_none() {
                    continue;
                }
                if !self.header_holds(signature) || !self.packet_values_hold(signature, packet) {
                    continue;
                }
                if let Some(found) = self.gate_hit(index, signature, None) {
                    decided = Some(found);
                    break;
                }
            }
            let decided = decided.unwrap_or_else(|| self.by_policy(&table.policy, None));
            let by_rule = decided.rule.is_some();
            let cause = match table.hook {
                _ if !by_rule => FirewallDropCause::PacketPolicy,
                PacketHook::PreFlow => FirewallDropCause::PreFlow,
                PacketHook::PreStream => FirewallDropCause::PreStream,
                PacketHook::Filter => FirewallDropCause::Rule,
            };
            match self.carry(&decided, cause) {
                Carried::On | Carried::Tx => {}
                Carried::Packet => return Gate::Packet,
                Carried::Flow => return Gate::Open,
                Carried::Refused(refusal) => return Gate::Refused(refusal),
            }
        }
        Gate::Open
    }

    /// Whether a rule's values hold, on the packet's own payload or on the stream that is inspected with the
    /// packet.
    fn packet_values_hold(&mut self, signature: &Member, packet: &PacketView<'_>) -> bool {
        if signature.values.is_empty() {
            return true;
        }
        let own = self.values_hold(signature, packet.payload());
        own || !signature.protocol.packet_only
            && self.stream.is_some_and(|data| self.values_hold(signature, data))
    }

    /// Judges a transaction at each state that it has reached in the packet's direction.
    pub(super) fn gate_tx(&mut self, protocol: ProtocolId, tx: &dyn Transaction, id: TxId) -> Gate {
        let rules = self.rules;
        let direction = self.scene.facts.direction;
        let Some(states) = rules.firewall.as_ref().and_then(|f| f.states(protocol, direction)) else {
            return Gate::Open;
        };
        if self.flow.state.accepted.is_some() {
            return Gate::Open;
        }
        // Data of the direction was judged when it was parsed, or is judged when its packet comes again.
        if !self.fresh || self.flow.is_tx_accepted(id) {
            return Gate::Open;
        }
        let mut known = self.flow.gate(id, direction);
        let progress = crate::model::hook::progress(tx, direction);
        let last = states.policies.len().saturating_sub(1);
        while usize::from(known.from) <= usize::from(progress).min(last) {
            let decided = match self.at_state(&states.rules, known, progress, protocol, tx, id) {
                AtState::Rule(decided, state) => {
                    known.from = state;
                    known.ruled = true;
                    decided
                }
                // A rule that accepts all states up to its own may still match.
                AtState::Waits => break,
                AtState::None { covered } => {
                    known.from = covered.unwrap_or(known.from);
                    match states.policies.get(usize::from(known.from)) {
                        Some(policy) => self.by_policy(policy, Some(id)),
                        None => break,
                    }
                }
            };
            let cause =
                if decided.rule.is_some() { FirewallDropCause::Rule } else { FirewallDropCause::AppPolicy };
            let carried = self.carry(&decided, cause);
            self.flow.set_gate(id, direction, known);
            match carried {
                Carried::On if known.from < progress => known.from = known.from.saturating_add(1),
                Carried::On => break,
                Carried::Tx => {
                    self.flow.accept_tx(id);
                    return Gate::Open;
                }
                Carried::Flow => return Gate::Open,
                Carried::Packet => return Gate::Packet,
                Carried::Refused(refusal) => return Gate::Refused(refusal),
            }
        }
        self.flow.set_gate(id, direction, known);
        Gate::Open
    }

    /// Evaluates the rules at the state that is judged. A rule with `<` at a later state decides this state,
    /// too, as long as no rule has accepted an earlier one; a rule of a later state that matches first leaves
    /// this state to its policy (as in Suricata).
    fn at_state(
        &mut self,
        rules: &[(u8, u32)],
        known: GateState,
        progress: u8,
        protocol: ProtocolId,
        tx: &dyn Transaction,
        id: TxId,
    ) -> AtState {
        let mut waits = false;
        let mut covered = None;
        let first = rules.partition_point(|(state, _)| *state < known.from);
        for (state, index) in rules.get(first..).unwrap_or_default().iter().copied() {
            let later = state > known.from;
            if later && known.ruled {
                break;
            }
            let Some(signature) = self.rules.signatures.get(index as usize) else { continue };
            let Some(own) = &signature.firewall else { continue };
            if !self.due().has(index) || !self.header_holds(signature) {
                continue;
            }
            if state > progress {
                if own.covers_earlier {
                    return AtState::Waits;
                }
                continue;
            }
            self.worker.variables = [0; crate::model::content::VARIABLES_MAX];
            self.worker.captured.clear();
            let mut entry = RuleProgress {
                rule: index,
                side: Side::Of(self.scene.facts.direction),
                ..RuleProgress::default()
            };
            if self.tx_checks(signature, protocol, tx, &mut entry) != Answer::Yes {
                waits |= own.covers_earlier && state == progress;
                // The rule accepts the states before its own, and no rule accepts its own state.
                if own.covers_earlier && later && covered.is_none() {
                    covered = Some(state);
                }
                continue;
            }
            if later && !own.covers_earlier {
                return AtState::None { covered: None };
            }
            if let Some(decided) = self.gate_hit(index, signature, Some(id)) {
                return AtState::Rule(decided, state);
            }
        }
        if waits { AtState::Waits } else { AtState::None { covered } }
    }

    /// Applies a matching rule: its effects, its requests and its report. `None`: the rule decides nothing.
    fn gate_hit(&mut self, index: u32, signature: &Member, tx: Option<TxId>) -> Option<Decided> {
        let own = signature.firewall.as_deref()?;
        let scene = *self.scene;
        self.worker.acted = true;
        self.take_captured(index, tx);
        for effect in &signature.effects {
            let state = self.has_flow.then_some(&mut self.flow.state);
            if !effect.apply(signature.id, &scene, state) {
                return None;
            }
        }
        self.record_requests(index, signature, tx);
        if own.act == Act::Nothing {
            return None;
        }
        self.report(index, signature, tx);
        Some(Decided { act: own.act, pass: own.pass, rule: Some(index) })
    }

    /// Reports the policy of a table and returns its decision.
    fn by_policy(&mut self, policy: &FirewallPolicy, tx: Option<TxId>) -> Decided {
        if let Some(index) = policy.report
            && let Some(signature) = self.rules.signatures.get(index as usize)
        {
            self.report(index, signature, tx);
        }
        Decided { act: policy.act, pass: policy.pass, rule: None }
    }

    /// Records the match for the recorder.
    fn report(&mut self, index: u32, signature: &Member, tx: Option<TxId>) {
        let hit = Hit {
            rule: index,
            tx,
            guess: None,
            frame: None,
            stream: false,
            alert: signature.reports(),
            action: signature.action,
            for_flow: false,
            by_limit: false,
        };
        // Thresholds limit reports; the firewall's decision does not depend on them.
        let judged = if hit.alert { self.limit(signature, hit) } else { None };
        let alert = judged.is_some_and(|judged| judged.alert);
        self.flow.state.alerted |= alert;
        self.worker.gate_hits.push(Hit { alert, ..hit });
    }

    /// Applies a decision to the flow and returns its consequence for the packet.
    fn carry(&mut self, decided: &Decided, cause: FirewallDropCause) -> Carried {
        let id = decided.rule.and_then(|rule| self.rules.signatures.get(rule as usize)).map(|s| s.id);
        match decided.act {
            Act::Nothing => Carried::On,
            Act::Accept(reach) => {
                let of_flow = reach == Reach::Flow && self.worker.decides_flow;
                if decided.pass && of_flow && self.flow.state.passed.is_none() {
                    self.flow.state.passed = Some(id.unwrap_or_default());
                }
                self.passes |= decided.pass;
                match reach {
                    Reach::Hook => Carried::On,
                    Reach::Tx => Carried::Tx,
                    Reach::Packet => Carried::Packet,
                    Reach::Flow => {
                        if of_flow {
                            self.flow.state.accepted = Some(id.unwrap_or_default());
                        }
                        Carried::Flow
                    }
                }
            }
            Act::Refuse { flow, reject } => Carried::Refused(FirewallDrop {
                cause,
                flow: flow && self.worker.decides_flow,
                reject,
                rule: id,
            }),
        }
    }
}

/// The result of the rules at one state.
enum AtState {
    /// A rule decides, at this state.
    Rule(Decided, u8),
    /// No rule decides yet, and a rule that accepts the states before its own still can.
    Waits,
    /// No rule decides; the policy of the covered state applies, else that of the judged state.
    None {
        /// The state of a rule that accepts all states before its own.
        covered: Option<u8>,
    },
}

/// The consequence of a decision for the packet.
enum Carried {
    /// The next table is evaluated.
    On,
    /// The transaction is accepted without further tables.
    Tx,
    /// The packet is accepted without further tables.
    Packet,
    /// The packet and all later packets of the flow are accepted.
    Flow,
    /// The packet is refused.
    Refused(FirewallDrop),
}

// SPDX-License-Identifier: Apache-2.0
//! A worker's counters by policy.

use crate::chain::{Chains, PolicyMap};
use bartizan_base::{Decision, Fid, FunctionId, Reason, Verdict};
use bartizan_function::contain::contained;
use bartizan_function::{FindingAction, Function, WorkerState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The key under which decisions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DecisionKey {
    /// The policy's number.
    pub policy: u32,
    /// The function that decided.
    pub function: FunctionId,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason.
    pub reason: Reason,
}

/// Packets with their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Captured bytes of these packets.
    pub bytes: u64,
}

impl Amount {
    const fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }
}

/// A worker's counters by policy. Every packet is counted once: forwarded ones by policy, refused ones also
/// by function, verdict and reason.
#[derive(Debug, Default)]
pub struct Tally {
    /// The policies of the running generation.
    pub policies: Arc<PolicyMap>,
    /// Forwarded packets, by the policy's number.
    pub passed: Vec<Amount>,
    /// Alerts by the policy's number: of allowed packets, and of blocked ones.
    pub alerts: Vec<[u64; 2]>,
    /// Flows that began, by the policy's number; a flow that another policy takes over later stays with the
    /// first.
    pub flows: Vec<u64>,
    /// Refused packets. The number of keys is bounded by the operators' policies.
    pub refused: BTreeMap<DecisionKey, Amount>,
    /// Would-be refusals, where nothing is refused.
    pub would: BTreeMap<DecisionKey, Amount>,
    /// Would-be refusals of staged policies that freed states had counted.
    pub staged: BTreeMap<(&'static str, DecisionKey), u64>,
}

impl Tally {
    /// All counters at zero.
    pub fn new(chains: &Chains) -> Self {
        let mut tally = Tally::default();
        tally.enter(chains);
        tally
    }

    /// Enters another generation's policies; numbers stay.
    pub fn enter(&mut self, chains: &Chains) {
        self.policies = chains.classifier.policies();
        let policies = self.policies.len().max(self.passed.len());
        self.passed.resize(policies, Amount::default());
        self.alerts.resize(policies, [0; 2]);
        self.flows.resize(policies, 0);
    }

    /// Stores the would-be refusals of staged policies from states that are about to be freed.
    pub fn leave(&mut self, chains: &Chains, states: &[WorkerState]) {
        let Tally { staged, policies, .. } = self;
        staged_of(chains, states, policies, |function, key, value| {
            *staged.entry((function, key)).or_default() += value;
        });
    }

    /// As [`Tally::leave`], for one function.
    pub fn leave_one(&mut self, function: &dyn Function, state: &WorkerState) {
        let Tally { staged, policies, .. } = self;
        staged_of_one(function, state, policies, &mut |function, key, value| {
            *staged.entry((function, key)).or_default() += value;
        });
    }

    /// Subtracts the counts of states that are in use again, which include them.
    pub fn discount(&mut self, chains: &Chains, states: &[WorkerState]) {
        let Tally { staged, policies, .. } = self;
        staged_of(chains, states, policies, |function, key, value| {
            let kept = staged.entry((function, key)).or_default();
            *kept = kept.saturating_sub(value);
        });
    }

    /// Counts a flow that begins.
    pub fn flow(&mut self, fid: Fid) {
        if let Some(flows) = self.flows.get_mut(self.policies.number(fid) as usize) {
            *flows += 1;
        }
    }

    /// Counts an alert.
    pub fn alert(&mut self, fid: Fid, action: FindingAction) {
        let policy = self.policies.number(fid) as usize;
        if let Some([allowed, blocked]) = self.alerts.get_mut(policy) {
            *(if action == FindingAction::Blocked { blocked } else { allowed }) += 1;
        }
    }

    /// Counts a packet. `acts`: refused packets are dropped (prevention).
    #[inline]
    pub fn count(&mut self, fid: Fid, decision: &Decision, bytes: u32, acts: bool) {
        self.count_many(fid, decision, 1, bytes.into(), acts);
    }

    /// Counts several packets at once.
    #[inline]
    pub fn count_many(&mut self, fid: Fid, decision: &Decision, packets: u64, bytes: u64, acts: bool) {
        let policy = self.policies.number(fid);
        let mut refused = false;
        if let Some(key) = key_of(policy, decision) {
            let counts = if acts { &mut self.refused } else { &mut self.would };
            counts.entry(key).or_default().add(packets, bytes);
            refused = acts;
        }
        if !refused && let Some(passed) = self.passed.get_mut(policy as usize) {
            passed.add(packets, bytes);
        }
    }

    /// Counts the refusal that a staged policy would enforce on a packet counted as forwarded.
    pub fn would_be(&mut self, fid: Fid, decision: &Decision, bytes: u32) {
        if let Some(key) = key_of(self.policies.number(fid), decision) {
            self.would.entry(key).or_default().add(1, bytes.into());
        }
    }
}

/// The key of a refusal; none for a forwarded packet.
fn key_of(policy: u32, decision: &Decision) -> Option<DecisionKey> {
    let reason = decision.reason.filter(|_| !decision.verdict.forwards())?;
    Some(DecisionKey { policy, function: decision.function, verdict: decision.verdict, reason })
}

/// Would-be refusals of staged policies.
pub fn staged_of(
    chains: &Chains,
    states: &[WorkerState],
    policies: &PolicyMap,
    mut each: impl FnMut(&'static str, DecisionKey, u64),
) {
    for function in &chains.functions {
        let Some(state) = states.get(usize::from(function.id().0)) else { continue };
        // A function that panics here reports nothing.
        let _ = contained(|| staged_of_one(function.as_ref(), state, policies, &mut each));
    }
}

fn staged_of_one(
    function: &dyn Function,
    state: &WorkerState,
    policies: &PolicyMap,
    each: &mut dyn FnMut(&'static str, DecisionKey, u64),
) {
    let (name, id) = (function.spec().name, function.id());
    function.staged(state, &mut |fid, verdict, reason, value| {
        each(name, DecisionKey { policy: policies.number(fid), function: id, verdict, reason }, value);
    });
}

// SPDX-License-Identifier: Apache-2.0
//! What a worker counts by policy.

use crate::chain::{Chains, PolicyMap};
use bartizan_base::{Decision, Fid, FunctionId, Reason, Verdict};
use bartizan_function::contain::contained;
use bartizan_function::{FindingAction, Function, WorkerState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which decisions are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DecisionKey {
    /// The policy's number.
    pub policy: u32,
    /// Who decided.
    pub function: FunctionId,
    /// The verdict.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
}

/// Packets with their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
}

impl Amount {
    const fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }
}

/// What a worker counts by policy. Every packet that it handles is counted once: those that go on by policy,
/// those that do not also by function, verdict and reason.
#[derive(Debug, Default)]
pub struct Tally {
    /// The policies that are counted.
    pub policies: Arc<PolicyMap>,
    /// Packets that go on, by the policy's number.
    pub passed: Vec<Amount>,
    /// Alerts by the policy's number: of packets that were allowed, and that were blocked.
    pub alerts: Vec<[u64; 2]>,
    /// Flows that began, by the policy's number; one that another policy takes over later stays where it
    /// began.
    pub flows: Vec<u64>,
    /// As many as policies have decisions: bounded by what operators write.
    pub refused: BTreeMap<DecisionKey, Amount>,
    /// The same where nothing is refused: what would have been.
    pub would: BTreeMap<DecisionKey, Amount>,
    /// What states that are gone had counted of staged policies.
    pub staged: BTreeMap<(&'static str, DecisionKey), u64>,
}

impl Tally {
    /// All counters at zero.
    pub fn new(chains: &Chains) -> Self {
        let mut tally = Tally::default();
        tally.enter(chains);
        tally
    }

    /// Takes the policies of another generation; numbers stay.
    pub fn enter(&mut self, chains: &Chains) {
        self.policies = chains.classifier.policies();
        let policies = self.policies.len().max(self.passed.len());
        self.passed.resize(policies, Amount::default());
        self.alerts.resize(policies, [0; 2]);
        self.flows.resize(policies, 0);
    }

    /// States are left: what they counted of staged policies is kept.
    pub fn leave(&mut self, chains: &Chains, states: &[WorkerState]) {
        let Tally { staged, policies, .. } = self;
        staged_of(chains, states, policies, |function, key, value| {
            *staged.entry((function, key)).or_default() += value;
        });
    }

    /// The same of one function.
    pub fn leave_one(&mut self, function: &dyn Function, state: &WorkerState) {
        let Tally { staged, policies, .. } = self;
        staged_of_one(function, state, policies, &mut |function, key, value| {
            *staged.entry((function, key)).or_default() += value;
        });
    }

    /// States that were left are taken up again: what they counted is in them.
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

    /// Counts a packet. `acts`: what is refused does not go on (prevention).
    #[inline]
    pub fn count(&mut self, fid: Fid, decision: &Decision, bytes: u32, acts: bool) {
        self.count_many(fid, decision, (1, bytes.into()), acts);
    }

    /// Counts so many packets with so many bytes together.
    #[inline]
    pub fn count_many(&mut self, fid: Fid, decision: &Decision, (packets, bytes): (u64, u64), acts: bool) {
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

    /// Counts what a staged policy would have made of a packet that is counted as going on.
    pub fn would_be(&mut self, fid: Fid, decision: &Decision, bytes: u32) {
        if let Some(key) = key_of(self.policies.number(fid), decision) {
            self.would.entry(key).or_default().add(1, bytes.into());
        }
    }
}

/// With which decisions a refusal is counted; none for what goes on.
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
        // Of one that cannot say it nothing is known.
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

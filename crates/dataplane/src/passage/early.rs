// SPDX-License-Identifier: Apache-2.0
//! Early refusals: a level below the host refuses packets without a flow, where a link has it
//! ([0022](../../../../docs/design/0022-early.md)). This module marks the flows whose packets must not be
//! refused, and credits the refused packets to their rules.

use super::Passage;
use bartizan_base::{Decision, FlowId, Generation};
use bartizan_offload::FlowManager;
use bartizan_stages::account::Account;
use bartizan_stages::early::Early;
use bartizan_stages::flows::Flows;
use bartizan_stages::runner::Runner;

impl Passage<'_> {
    /// After a packet of a flow was judged: the answer must not be refused for lack of a flow, so the flow is
    /// marked before the packet leaves. A flow whose packet is refused by the first function of its path has
    /// no mark.
    #[inline]
    pub(super) fn mark(&mut self, id: FlowId, decision: &Decision) {
        if self.flows.manager.as_deref().is_some_and(FlowManager::is_early) {
            self.mark_flow(id, decision);
        }
    }

    /// [`Passage::mark`] for a packet that is forwarded although the engine would refuse it under
    /// enforcement: its answer is forwarded as well.
    pub(super) fn mark_unenforced(&mut self, id: FlowId) {
        if !self.cx.enforces(self.runner.chains()) {
            self.mark(id, &Decision::CONTINUE);
        }
    }

    fn mark_flow(&mut self, id: FlowId, decision: &Decision) {
        let Some(entry) = self.flows.get(id) else { return };
        let refused = !decision.verdict.forwards()
            && self.runner.chains().header_part(entry.path).functions().next() == Some(decision.function);
        // Rules with ICMP codes may refuse one message: others of its flow are forwarded.
        let alone = refused && !decision.repeats && matches!(entry.key().protocol(), 1 | 58);
        if entry.ext.mark.is_none() == refused || alone {
            return;
        }
        let key = *entry.key();
        let manager = self.flows.manager.as_deref().filter(|_| !refused);
        let mark = manager.and_then(|manager| manager.mark(&key));
        if let Some(entry) = self.flows.get_mut(id) {
            entry.ext.mark = mark;
        }
    }

    /// Credits early refusals to their rules.
    pub(super) fn credit_early(&mut self) {
        credit_early(self.flows, self.runner, self.cx.account, self.cx.settings.prevention);
    }
}

/// Credits the packets that the early lists of the running and of the previous generation refused. `acts`:
/// refusals are enforced.
pub(crate) fn credit_early(flows: &mut Flows, runner: &mut Runner, account: &mut Account, acts: bool) {
    let before = flows.early.before();
    let (now, early) = (runner.generation(), runner.chains().early.clone());
    let Some(manager) = flows.manager.as_deref_mut() else { return };
    let mut credit = |generation: Generation, early: &Early, runs: bool| {
        let outcomes = u32::try_from(early.outcomes.len()).unwrap_or(u32::MAX);
        let of = |outcome: u32| early.outcomes.get(outcome as usize);
        let reason = |outcome| of(outcome).and_then(|(_, decision)| decision.reason);
        manager.early(generation, outcomes, reason, &mut |outcome, packets, bytes| {
            let Some((fid, decision)) = of(outcome) else { return };
            if runs {
                runner.repeated(*fid, decision, packets);
            }
            account.tally.count_many(*fid, decision, packets, bytes, acts);
        });
    };
    if let Some((generation, early)) = before {
        // The list's rules are different in this generation, or gone.
        credit(generation, &early, false);
    }
    if let Some(early) = early {
        credit(now, &early, true);
    }
}

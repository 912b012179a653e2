// SPDX-License-Identifier: Apache-2.0
//! Packets without a flow that a level below refuses, where a link has that
//! ([0022](../../../../docs/design/0022-early.md)): which flows there are, so that their packets are not
//! refused, and the credit for what was.

use super::Passage;
use bartizan_base::{Decision, FlowId, Generation};
use bartizan_offload::FlowManager;
use bartizan_stages::account::Account;
use bartizan_stages::early::Early;
use bartizan_stages::flows::Flows;
use bartizan_stages::runner::Runner;

impl Passage<'_> {
    /// A packet of a flow was judged. What answers it must not be refused for being of no flow, so the flow
    /// is marked before the packet leaves; but where the first function of its path refuses it, it is to be
    /// as if there were no flow.
    #[inline]
    pub(super) fn mark(&mut self, id: FlowId, decision: &Decision) {
        if self.flows.manager.as_deref().is_some_and(FlowManager::is_early) {
            self.mark_flow(id, decision);
        }
    }

    /// The same for a packet that goes on although the engine would have refused it: what answers it goes on
    /// as well.
    pub(super) fn mark_unenforced(&mut self, id: FlowId) {
        if !self.cx.enforces(self.runner.chains()) {
            self.mark(id, &Decision::CONTINUE);
        }
    }

    fn mark_flow(&mut self, id: FlowId, decision: &Decision) {
        let Some(entry) = self.flows.get(id) else { return };
        let refused = !decision.verdict.forwards()
            && self.runner.chains().header_part(entry.path).functions().next() == Some(decision.function);
        // Where rules have codes a message of ICMP may be refused alone: others of its flow go on.
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

    /// Credits what was refused.
    pub(super) fn credit_early(&mut self) {
        credit_early(self.flows, self.runner, self.cx.account, self.cx.settings.prevention);
    }
}

/// Credits what was refused by the list of the generation that runs, and by that before. `acts`: refusals are
/// done.
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
            account.tally.count_many(*fid, decision, (packets, bytes), acts);
        });
    };
    if let Some((generation, early)) = before {
        // Its rules are others now, or gone.
        credit(generation, &early, false);
    }
    if let Some(early) = early {
        credit(now, &early, true);
    }
}

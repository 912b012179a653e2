// SPDX-License-Identifier: Apache-2.0
//! Staged policies: verdicts are computed and reported, and nothing is dropped.
//!
//! A [`Staged`] wraps a function and knows the classes of staged policies. For their flows a drop becomes
//! `Continue`; it is counted, and reported once per flow and reason as a finding of its own with the class
//! `staged` (the gid is [`STAGED_GID`], the sid the reason's number plus 1). Detection's own alerts then have
//! the action `allowed`. The function's state per flow evolves as if the packet had been dropped, so a
//! stateful function decides as it would when enforced. The state stays the function's own: a policy is
//! staged and enforced under live flows, whose state (flowbits, initiator) is kept.

use bartizan_base::{Decision, Fid, FunctionId, Reason, Verdict};
use bartizan_function::{
    Finding, FindingAction, Function, FunctionSpec, HandsUp, PacketContext, RejectTo, RuleCount, RuleInfo,
    WorkerState, would_refuse,
};
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

pub use bartizan_function::STAGED_GID;

/// A function whose verdicts are staged for some classes; see the module.
pub struct Staged {
    inner: Box<dyn Function>,
    fids: HashSet<Fid>,
    infos: Vec<Arc<RuleInfo>>,
}

struct StagedWorkerState {
    inner: WorkerState,
    refusals: u64,
    /// Counts of would-be drops by class, verdict and reason.
    by_class: BTreeMap<(Fid, Verdict, Reason), u64>,
}

impl Staged {
    /// Marks a function as staged for the classes `fids`.
    #[must_use]
    pub fn new(inner: Box<dyn Function>, fids: HashSet<Fid>) -> Self {
        let name = inner.spec().name;
        let info = |reason: &Reason| would_refuse(Some(name), *reason);
        Staged { inner, fids, infos: Reason::ALL.iter().map(info).collect() }
    }

    fn run(
        &self,
        context: &mut PacketContext<'_>,
        callback: impl Fn(&dyn Function, &mut PacketContext<'_>) -> Decision,
    ) -> Decision {
        // Passes the function its own worker state for the call (a box of a zero-sized type does not
        // allocate).
        let outer = core::mem::replace(context.worker, Box::new(()));
        let mut worker = match outer.downcast::<StagedWorkerState>() {
            Ok(worker) => worker,
            Err(outer) => {
                *context.worker = outer;
                return Decision::CONTINUE;
            }
        };
        core::mem::swap(context.worker, &mut worker.inner);
        let staged = self.fids.contains(&context.notes.fid);
        let (before, edits) = (context.findings.len(), context.edits.len());
        let called = catch_unwind(AssertUnwindSafe(|| callback(self.inner.as_ref(), context)));
        core::mem::swap(context.worker, &mut worker.inner);
        let mut decision = match called {
            Ok(decision) => decision,
            Err(panicked) => {
                // The function's counters are still read later.
                *context.worker = worker;
                resume_unwind(panicked)
            }
        };
        if staged {
            // A staged policy changes no packet.
            context.edits.truncate(edits);
            decision.egress = None;
        }
        if staged && !decision.verdict.forwards() {
            // Only the first drop of a packet counts: by the engine, or by an earlier function.
            let is_first = context.notes.decision.reason.is_none();
            if let Some(reason) = decision.reason.filter(|_| is_first) {
                worker.refusals += 1;
                *worker.by_class.entry((context.notes.fid, decision.verdict, reason)).or_default() += 1;
                if decision.verdict == Verdict::Reject {
                    // The packet is forwarded, so the report of a reject names the side that would get the
                    // answer.
                    context.reject.get_or_insert(RejectTo::Source);
                }
            }
            self.report(&decision, context.staged, before, is_first, context.findings);
            // The function would drop the next packet too, so it must see that one.
            decision = Decision {
                // The reason stays, so that an outer packet is reported as it would be dropped for it.
                verdict: Verdict::Continue,
                done: false,
                repeats: false,
                ..decision
            };
        }
        *context.worker = worker;
        decision
    }

    /// Reports a would-be drop; `before`: number of earlier findings; `is_first`: the packet had no would-be
    /// drop before.
    fn report(
        &self,
        decision: &Decision,
        reported: &mut u64,
        before: usize,
        is_first: bool,
        findings: &mut Vec<Finding>,
    ) {
        let mut own = false;
        for finding in findings.iter_mut().skip(before).filter(|f| f.action == FindingAction::Blocked) {
            own = true;
            finding.action = FindingAction::Allowed;
        }
        // Nothing is dropped, so no drop record names the rule.
        let mut place = 0;
        findings.retain(|finding| {
            place += 1;
            place <= before || finding.action != FindingAction::Refusing
        });
        let Some(reason) = decision.reason.filter(|_| is_first) else { return };
        let bit = 1u64.checked_shl(reason as u32).unwrap_or(1 << 63);
        let new = *reported & bit == 0;
        *reported |= bit;
        if new
            && !own
            && let Some(info) = self.infos.get(reason as usize)
        {
            findings.push(Finding::new(Arc::clone(info), FindingAction::Allowed));
        }
    }
}

impl Function for Staged {
    fn spec(&self) -> &'static FunctionSpec {
        self.inner.spec()
    }

    fn id(&self) -> FunctionId {
        self.inner.id()
    }

    fn inner(&self) -> Option<&dyn Function> {
        Some(self.inner.as_ref())
    }

    fn worker(&self) -> WorkerState {
        Box::new(StagedWorkerState { inner: self.inner.worker(), refusals: 0, by_class: BTreeMap::new() })
    }

    fn packet(&self, context: &mut PacketContext<'_>) -> Decision {
        self.run(context, |function, context| function.packet(context))
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        self.run(context, |function, context| function.payload(context))
    }

    fn refuses(&self, fid: Fid, matched: Option<u32>) -> Result<Decision, HandsUp> {
        if self.fids.contains(&fid) { Err(HandsUp::Staged) } else { self.inner.refuses(fid, matched) }
    }

    fn repeated(&self, worker: &mut WorkerState, fid: Fid, decision: &Decision, packets: u64) {
        if let Some(worker) = worker.downcast_mut::<StagedWorkerState>() {
            self.inner.repeated(&mut worker.inner, fid, decision, packets);
        }
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        if let Some(worker) = worker.downcast_ref::<StagedWorkerState>() {
            self.inner.log(&worker.inner, each);
            each("staged_refusals", worker.refusals);
        }
    }

    fn log_rules(&self, worker: &WorkerState, each: &mut dyn FnMut(RuleCount<'_>)) {
        if let Some(worker) = worker.downcast_ref::<StagedWorkerState>() {
            self.inner.log_rules(&worker.inner, each);
        }
    }

    fn staged(&self, worker: &WorkerState, each: &mut dyn FnMut(Fid, Verdict, Reason, u64)) {
        if let Some(worker) = worker.downcast_ref::<StagedWorkerState>() {
            for ((fid, verdict, reason), packets) in &worker.by_class {
                each(*fid, *verdict, *reason, *packets);
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The treatment of functions that panic or that are stopped and started again: of the current packet, the
//! state of the function, and other functions (which are unaffected). docs/design/0023-life-of-functions.md.
//!
//! The flow in whose packet a function panics continues without that function for as long as its generation
//! lasts, or is refused, by policy: the cause of a panic would cause it again. Other flows have the function
//! back when it is started.

use super::Runner;
use super::effects::Effects;
use super::in_hand::PacketInspection;
use crate::chain::Chains;
use crate::context::FrameContext;
use crate::flow_ext::{FlowExt, FunctionSlot};
use crate::lifecycle::{FunctionNow, LifecycleCommand};
use crate::notice::{Notice, QuotaKind};
use crate::record::{Cause, Entry, EventContext};
use crate::tally::Tally;
use bartizan_base::{Decision, Fid, FunctionId, Path, Reason, TenantId, Timestamp, Verdict};
use bartizan_function::contain::{Panicked, contained, drop_contained};
use bartizan_function::{Edit, Finding, RejectTo};
use bartizan_packet::Decoded;

/// A function that has panicked with the current packet.
pub(super) struct FailedFunction {
    pub id: FunctionId,
    pub panicked: Box<Panicked>,
    /// A staged policy would refuse the packet for this reason.
    pub would_refuse: bool,
}

impl FailedFunction {
    /// A function that panicked after the decision `before`; `without`: the decision without it.
    pub fn new(id: FunctionId, panicked: Box<Panicked>, before: &Decision, without: &Decision) -> Self {
        FailedFunction { id, panicked, would_refuse: is_would_be(before, without) }
    }
}

/// Whether a function's answer is the packet's first refusal that a staged policy does not enforce.
pub(super) fn is_would_be(before: &Decision, decision: &Decision) -> bool {
    let goes_on = decision.verdict == Verdict::Continue && before.verdict.forwards();
    goes_on && decision.reason.is_some() && before.reason.is_none()
}

/// The packet's first refusal that a staged policy does not enforce, if a function's answer is that, with the
/// verdict that it would have.
pub(super) fn would_be_of(
    before: &Decision,
    decision: Decision,
    reject: Option<RejectTo>,
) -> Option<(Decision, Verdict)> {
    let verdict = if reject.is_some() { Verdict::Reject } else { Verdict::Drop };
    is_would_be(before, &decision).then_some((decision, verdict))
}

/// The answer to an order to start or stop a function.
pub struct LifecycleAnswer {
    /// The function's condition.
    pub now: FunctionNow,
    /// Flows that a lower level handles for the function must return to the host.
    pub effects: Effects,
}

/// The refusal of a packet for want of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanting {
    /// The packet is refused.
    Refuses(Decision),
    /// A staged policy would refuse the packet.
    WouldRefuse(Decision),
}

impl Wanting {
    /// The function that is unavailable.
    #[must_use]
    pub const fn function(self) -> FunctionId {
        match self {
            Wanting::Refuses(decision) | Wanting::WouldRefuse(decision) => decision.function,
        }
    }
}

/// The results of functions for a packet before one more is called: if that function panics, its own results
/// are discarded.
pub(super) struct Checkpoint {
    findings: usize,
    edits: usize,
    reject: Option<RejectTo>,
}

impl Checkpoint {
    pub(super) fn before(findings: &[Finding], edits: &[Edit], reject: Option<RejectTo>) -> Self {
        Checkpoint { findings: findings.len(), edits: edits.len(), reject }
    }

    #[cold]
    pub(super) fn restore(
        self,
        findings: &mut Vec<Finding>,
        edits: &mut Vec<Edit>,
        reject: &mut Option<RejectTo>,
    ) {
        findings.truncate(self.findings);
        edits.truncate(self.edits);
        *reject = self.reject;
    }
}

/// Frees the state that a function kept for a flow.
pub(super) fn clear(slot: &mut FunctionSlot) {
    if let Some(own) = slot.own.take() {
        drop_contained(own);
    }
    slot.staged = 0;
}

/// The decision on the current packet, and on its flow if there is one, when a function panics. If a staged
/// policy would refuse the packet, it is forwarded with the reason.
#[cold]
pub(super) fn decision_without(chains: &Chains, id: FunctionId, prevention: bool, fid: Fid) -> Decision {
    let refused = Decision::refuse(Verdict::Drop, Reason::FunctionFailed, id);
    let decision = match prevention && !chains.fail_open_functions(fid).contains(id) {
        true if chains.is_staged(fid) => Decision { verdict: Verdict::Continue, ..refused },
        true => refused,
        false => Decision::CONTINUE,
    };
    Decision { done: true, ..decision }
}

impl Runner {
    /// Functions whose absence refuses packets of a class. Empty where nothing is refused.
    #[cold]
    pub(super) fn refusing(&self, prevention: bool, fid: Fid) -> Path {
        match prevention && !self.chains.is_staged(fid) {
            true => self.lifecycle.away().and_not(self.chains.fail_open_functions(fid)),
            false => Path::EMPTY,
        }
    }

    /// The decision to refuse a packet for want of a function.
    #[cold]
    pub(super) fn for_want_of(&self, id: FunctionId) -> Decision {
        let stopped = self.lifecycle.is_stopped(id);
        let reason = if stopped { Reason::FunctionStopped } else { Reason::FunctionFailed };
        Decision::refuse(Verdict::Drop, reason, id)
    }

    /// Whether a packet of a class is refused, or would be, because a function of its path is unavailable.
    #[inline]
    pub fn refused_for_want(&self, path: Path, fid: Fid, prevention: bool) -> Option<Wanting> {
        let away = path.and(self.lifecycle.away());
        if away.is_empty() || !prevention {
            return None;
        }
        let first = away.and_not(self.chains.fail_open_functions(fid)).functions().next()?;
        let refused = self.for_want_of(first);
        let staged = self.chains.is_staged(fid);
        Some(if staged { Wanting::WouldRefuse(refused) } else { Wanting::Refuses(refused) })
    }

    /// As [`Runner::refusing`] for the current packet. At the end of a flow nothing can be refused any more.
    #[cold]
    pub(super) fn refusing_now(
        &self,
        cx: &FrameContext<'_>,
        hand: &PacketInspection<'_, '_>,
        fid: Fid,
    ) -> Path {
        let refuses = cx.settings.prevention && !matches!(hand.occasion.cause, Cause::FlowEnd);
        self.refusing(refuses, fid)
    }

    /// Handles the functions that panicked with the current packet, after all functions have run. Called for
    /// each packet.
    #[inline]
    pub(super) fn handle_failed(
        &mut self,
        cx: &mut FrameContext<'_>,
        occasion: &EventContext<'_>,
        entry: Option<&mut Entry>,
    ) -> Effects {
        if self.fallen.is_empty() { Effects::NONE } else { self.stop_failed(cx, occasion, entry) }
    }

    #[cold]
    fn stop_failed(
        &mut self,
        cx: &mut FrameContext<'_>,
        occasion: &EventContext<'_>,
        mut entry: Option<&mut Entry>,
    ) -> Effects {
        let mut effects = Effects::NONE;
        for FailedFunction { id, panicked, would_refuse } in core::mem::take(&mut self.fallen) {
            if would_refuse {
                let refused = Decision::refuse(Verdict::Drop, Reason::FunctionFailed, id);
                self.would_refuse_for_want(cx, occasion, entry.as_deref_mut(), &refused);
                cx.account.would_be(&refused, occasion.decoded().map_or(0, Decoded::length));
            }
            self.free_state(id, &mut cx.account.tally);
            let name = self.chains.function(id).map_or("unknown", |function| function.spec().name);
            self.lifecycle.failed(id, name, *panicked, cx.position.clock);
            effects.left = effects.left.with(id);
        }
        effects
    }

    /// Reports that a staged policy would refuse a packet for want of a function.
    #[cold]
    pub fn would_refuse_for_want(
        &self,
        cx: &mut FrameContext<'_>,
        occasion: &EventContext<'_>,
        entry: Option<&mut Entry>,
        refused: &Decision,
    ) {
        match entry {
            Some(entry) => cx.would_refuse(&self.chains, occasion, entry, refused),
            None => cx.report_would_be(&self.chains, occasion, None, refused),
        }
    }

    /// Reports that a tenant's quota has caused a refusal, omission or eviction; at most once per interval.
    #[cold]
    pub fn report_exceeded(&self, cx: &mut FrameContext<'_>, tenant: TenantId, quota: QuotaKind) {
        let now = cx.position.clock;
        if let Some(exceeded) = self.chains.quotas.exceeded(tenant, quota, now) {
            cx.recorder.notice(now, self.generation(), Notice::Quota(&exceeded));
        }
    }

    /// Frees the state of a function for the worker and keeps its counts. Does nothing while the worker is in
    /// another generation; the next start of the function frees the state.
    fn free_state(&mut self, id: FunctionId, tally: &mut Tally) {
        if self.past.is_visiting() {
            return;
        }
        self.keep_counts_of(id, tally);
        if let Some(state) = self.states.get_mut(usize::from(id.0)) {
            drop_contained(core::mem::replace(state, Box::new(())));
        }
        self.past.forget_visited(id);
    }

    /// Makes the state of a function for the worker. `false`: the function has panicked and has failed.
    fn create_state(&mut self, id: FunctionId, now: Timestamp) -> bool {
        let Some(function) = self.chains.function(id) else { return false };
        let name = function.spec().name;
        match contained(|| function.worker()) {
            Ok(made) => {
                if let Some(state) = self.states.get_mut(usize::from(id.0)) {
                    drop_contained(core::mem::replace(state, made));
                }
                true
            }
            Err(panicked) => {
                self.lifecycle.failed(id, name, *panicked, now);
                false
            }
        }
    }

    /// Starts the functions whose restart is due. Called between frames; costs a comparison.
    #[inline]
    pub fn start_due(&mut self, now: Timestamp, tally: &mut Tally) {
        if self.lifecycle.is_due(now) && !self.past.is_visiting() {
            self.start_all_due(now, tally);
        }
    }

    #[cold]
    fn start_all_due(&mut self, now: Timestamp, tally: &mut Tally) {
        for id in self.lifecycle.due(now).functions() {
            self.start(id, now, tally, false);
        }
    }

    fn start(&mut self, id: FunctionId, now: Timestamp, tally: &mut Tally, forgives: bool) {
        self.free_state(id, tally);
        if self.create_state(id, now) {
            let name = self.chains.function(id).map_or("unknown", |function| function.spec().name);
            self.lifecycle.started(id, name, now, forgives);
        }
    }

    /// Starts failed functions in a new generation, which may bring other rules; stopped functions stay
    /// stopped.
    pub(super) fn begin_generation(&mut self, now: Timestamp, tally: &mut Tally) {
        if self.lifecycle.away().is_empty() {
            return;
        }
        for id in self.lifecycle.away().functions() {
            if !self.lifecycle.is_stopped(id) {
                match self.chains.function(id) {
                    Some(_) => self.start(id, now, tally, true),
                    None => self.lifecycle.forget(id),
                }
            } else if let Some(state) = self.states.get_mut(usize::from(id.0)) {
                drop_contained(core::mem::replace(state, Box::new(())));
            }
        }
    }

    /// Carries out an order, between two frames. `None`: no chain of the running generation has the function.
    pub fn order(
        &mut self,
        name: &str,
        act: LifecycleCommand,
        now: Timestamp,
        tally: &mut Tally,
    ) -> Option<LifecycleAnswer> {
        let (id, name) =
            self.chains.functions.iter().map(|f| (f.id(), f.spec().name)).find(|(_, n)| *n == name)?;
        let is_away = self.lifecycle.away().contains(id);
        let mut effects = Effects::NONE;
        match act {
            LifecycleCommand::Start if !is_away => {}
            LifecycleCommand::Stop if self.lifecycle.is_stopped(id) => {}
            LifecycleCommand::Stop => {
                self.free_state(id, tally);
                self.lifecycle.stopped(id, name, now);
                effects.left = effects.left.with(id);
            }
            LifecycleCommand::Start | LifecycleCommand::Restart => {
                self.start(id, now, tally, true);
                effects.left = effects.left.with(id);
            }
        }
        Some(LifecycleAnswer { now: self.lifecycle.now(id, name), effects })
    }

    /// The conditions of the functions of the running generation, by their bit.
    pub fn functions_now(&self) -> impl Iterator<Item = FunctionNow> {
        self.chains.functions.iter().map(|f| self.lifecycle.now(f.id(), f.spec().name))
    }

    /// Frees the slots in a flow of functions that have been started since, and of functions that are away.
    /// Called for each packet of a flow. Returns whether the flow's memory may have changed.
    #[inline]
    pub(super) fn renew_slots(&self, ext: &mut FlowExt) -> bool {
        let is_due = ext.begun != self.lifecycle.begun();
        if is_due {
            self.clear_old_slots(ext);
        }
        is_due
    }

    #[cold]
    fn clear_old_slots(&self, ext: &mut FlowExt) {
        for (bit, slot) in (0u8..).map(FunctionId).zip(&mut ext.slots) {
            if self.lifecycle.has_begun_since(bit, ext.begun) {
                clear(slot);
            }
        }
        ext.begun = self.lifecycle.begun();
    }

    /// Prepares a flow for its move to another worker, whose functions have starts of their own: frees slots
    /// that are out of date.
    pub fn prepare_move(&self, ext: &mut FlowExt) {
        self.renew_slots(ext);
        for (bit, slot) in (0u8..).map(FunctionId).zip(&mut ext.slots) {
            if self.lifecycle.away().contains(bit) {
                clear(slot);
            }
        }
    }

    /// Accepts a flow from another worker.
    pub const fn accept_flow(&self, ext: &mut FlowExt) {
        ext.begun = self.lifecycle.begun();
    }
}

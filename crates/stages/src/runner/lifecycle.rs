// SPDX-License-Identifier: Apache-2.0
//! Functions that panic, and those that are stopped and started again: what becomes of packets, of what the
//! functions kept, and of the others (which notice nothing). docs/design/0023-life-of-functions.md.
//!
//! The flow in whose packet a function panics goes on without that function for as long as its generation, or
//! is refused, as its policy says: what has led to a panic once would lead to it again. Other flows have the
//! function back when it is started.

use super::Runner;
use super::in_hand::InHand;
use crate::chain::Chains;
use crate::context::Context;
use crate::flow_ext::{FlowExt, FunctionSlot};
use crate::lifecycle::{Act, FunctionNow};
use crate::notice::{Notice, QuotaKind};
use crate::record::{Cause, Entry, Occasion};
use crate::tally::Tally;
use bartizan_base::{Decision, Fid, FunctionId, Path, Reason, TenantId, Timestamp, Verdict};
use bartizan_function::contain::{Panicked, contained, throw_away};
use bartizan_function::{Edit, Finding, RejectTo};
use bartizan_packet::Decoded;

/// A function that has panicked with the packet in hand.
pub(super) struct Fallen {
    pub id: FunctionId,
    pub panicked: Box<Panicked>,
    /// A staged policy would refuse the packet for it.
    pub would_refuse: bool,
}

/// Whether a packet is refused for want of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanting {
    /// It is.
    Refuses(Decision),
    /// A staged policy would refuse it.
    WouldRefuse(Decision),
}

impl Wanting {
    /// The function that is away.
    #[must_use]
    pub const fn function(self) -> FunctionId {
        match self {
            Wanting::Refuses(decision) | Wanting::WouldRefuse(decision) => decision.function,
        }
    }
}

/// What functions have said of a packet before one of them is called: where that one panics, what it said is
/// taken back.
pub(super) struct Said {
    findings: usize,
    edits: usize,
    reject: Option<RejectTo>,
}

impl Said {
    pub(super) fn before(findings: &[Finding], edits: &[Edit], reject: Option<RejectTo>) -> Self {
        Said { findings: findings.len(), edits: edits.len(), reject }
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

/// Frees what a function kept of a flow.
pub(super) fn clear(slot: &mut FunctionSlot) {
    if let Some(own) = slot.own.take() {
        throw_away(own);
    }
    slot.staged = 0;
}

/// What becomes of the packet in hand and, where it has one, of its flow when a function panics. Where a
/// staged policy would refuse it, it goes on with the reason.
#[cold]
pub(super) fn fate_without(chains: &Chains, id: FunctionId, (prevention, fid): (bool, Fid)) -> Decision {
    let refused = Decision::refuse(Verdict::Drop, Reason::FunctionFailed, id);
    let decision = match prevention && !chains.goes_on_without(fid).contains(id) {
        true if chains.is_staged(fid) => Decision { verdict: Verdict::Continue, ..refused },
        true => refused,
        false => Decision::CONTINUE,
    };
    Decision { done: true, ..decision }
}

impl Runner {
    /// Those functions whose absence refuses packets of a class. Empty where nothing is refused.
    #[cold]
    pub(super) fn refusing(&self, prevention: bool, fid: Fid) -> Path {
        match prevention && !self.chains.is_staged(fid) {
            true => self.lifecycle.away().and_not(self.chains.goes_on_without(fid)),
            false => Path::EMPTY,
        }
    }

    /// What becomes of a packet for want of a function.
    #[cold]
    pub(super) fn for_want_of(&self, id: FunctionId) -> Decision {
        let stopped = self.lifecycle.is_stopped(id);
        let reason = if stopped { Reason::FunctionStopped } else { Reason::FunctionFailed };
        Decision::refuse(Verdict::Drop, reason, id)
    }

    /// Whether a packet of a class is refused, or would be, because a function of its path is away.
    #[inline]
    pub fn refused_for_want(&self, path: Path, fid: Fid, prevention: bool) -> Option<Wanting> {
        let away = path.and(self.lifecycle.away());
        if away.is_empty() || !prevention {
            return None;
        }
        let first = away.and_not(self.chains.goes_on_without(fid)).functions().next()?;
        let refused = self.for_want_of(first);
        let staged = self.chains.is_staged(fid);
        Some(if staged { Wanting::WouldRefuse(refused) } else { Wanting::Refuses(refused) })
    }

    /// The same for a packet in hand. Of what is left of a flow nothing can be refused any more.
    #[cold]
    pub(super) fn refusing_now(&self, cx: &Context<'_>, hand: &InHand<'_>, fid: Fid) -> Path {
        let refuses = cx.settings.prevention && !matches!(hand.occasion.cause, Cause::FlowEnd);
        self.refusing(refuses, fid)
    }

    /// The packet in hand was shown to all: what is to be done for those that fell. Asked of each packet.
    #[inline]
    pub(super) fn settle_fallen(
        &mut self,
        cx: &mut Context<'_>,
        occasion: &Occasion<'_>,
        entry: Option<&mut Entry>,
    ) {
        if !self.fallen.is_empty() {
            self.bury(cx, occasion, entry);
        }
    }

    #[cold]
    fn bury(&mut self, cx: &mut Context<'_>, occasion: &Occasion<'_>, mut entry: Option<&mut Entry>) {
        for Fallen { id, panicked, would_refuse } in core::mem::take(&mut self.fallen) {
            if would_refuse {
                let refused = Decision::refuse(Verdict::Drop, Reason::FunctionFailed, id);
                self.would_refuse_for_want(cx, occasion, entry.as_deref_mut(), &refused);
                cx.account.would_be(&refused, occasion.decoded().map_or(0, Decoded::length));
            }
            self.lay_down(id, &mut cx.account.tally);
            let name = self.chains.function(id).map_or("unknown", |function| function.spec().name);
            self.lifecycle.failed((id, name), *panicked, cx.position.clock);
            self.effects.left = self.effects.left.with(id);
        }
    }

    /// Reports that a staged policy would refuse a packet for want of a function.
    #[cold]
    pub fn would_refuse_for_want(
        &self,
        cx: &mut Context<'_>,
        occasion: &Occasion<'_>,
        entry: Option<&mut Entry>,
        refused: &Decision,
    ) {
        match entry {
            Some(entry) => cx.would_refuse(&self.chains, occasion, entry, refused),
            None => cx.report_would_be(&self.chains, occasion, None, refused),
        }
    }

    /// Something was refused, left out or ended for a tenant's quota: told once in a while.
    #[cold]
    pub fn tell_exceeded(&self, cx: &mut Context<'_>, tenant: TenantId, quota: QuotaKind) {
        let now = cx.position.clock;
        if let Some(exceeded) = self.chains.quotas.exceeded(tenant, quota, now) {
            cx.recorder.notice(now, self.generation(), Notice::Quota(&exceeded));
        }
    }

    /// What a function kept for the worker goes; what it has counted stays. For a frame of another generation
    /// it is not asked for before that one is left.
    fn lay_down(&mut self, id: FunctionId, tally: &mut Tally) {
        if self.past.is_visiting() {
            return;
        }
        self.keep_counts_of(id, tally);
        if let Some(state) = self.states.get_mut(usize::from(id.0)) {
            throw_away(core::mem::replace(state, Box::new(())));
        }
        self.past.forget_visited(id);
    }

    /// Makes what a function keeps for the worker. `false`: it cannot, and has failed.
    fn take_up_again(&mut self, id: FunctionId, now: Timestamp) -> bool {
        let Some(function) = self.chains.function(id) else { return false };
        let name = function.spec().name;
        match contained(|| function.worker()) {
            Ok(made) => {
                if let Some(state) = self.states.get_mut(usize::from(id.0)) {
                    throw_away(core::mem::replace(state, made));
                }
                true
            }
            Err(panicked) => {
                self.lifecycle.failed((id, name), *panicked, now);
                false
            }
        }
    }

    /// Starts functions again whose time has come. To be called between frames: it costs a comparison.
    #[inline]
    pub fn start_due(&mut self, now: Timestamp, tally: &mut Tally) {
        if self.lifecycle.is_due(now) && !self.past.is_visiting() {
            self.start_all_due(now, tally);
        }
    }

    #[cold]
    fn start_all_due(&mut self, now: Timestamp, tally: &mut Tally) {
        for id in self.lifecycle.due(now).functions() {
            self.start(id, (now, tally), false);
        }
    }

    fn start(&mut self, id: FunctionId, (now, tally): (Timestamp, &mut Tally), forgives: bool) {
        self.lay_down(id, tally);
        if self.take_up_again(id, now) {
            let name = self.chains.function(id).map_or("unknown", |function| function.spec().name);
            self.lifecycle.started((id, name), now, forgives);
        }
    }

    /// Another generation brings functions with other rules: those that have failed begin anew with it; those
    /// that are stopped stay so.
    pub(super) fn begin_generation(&mut self, now: Timestamp, tally: &mut Tally) {
        if self.lifecycle.away().is_empty() {
            return;
        }
        for id in self.lifecycle.away().functions() {
            if !self.lifecycle.is_stopped(id) {
                match self.chains.function(id) {
                    Some(_) => self.start(id, (now, tally), true),
                    None => self.lifecycle.forget(id),
                }
            } else if let Some(state) = self.states.get_mut(usize::from(id.0)) {
                throw_away(core::mem::replace(state, Box::new(())));
            }
        }
    }

    /// Carries out an order, between two frames. The flows that a lower level has for the function's sake are
    /// to come up where `effects.left` says so. `None`: no chain of the running generation has it.
    pub fn order(&mut self, name: &str, act: Act, now: Timestamp, tally: &mut Tally) -> Option<FunctionNow> {
        let (id, name) =
            self.chains.functions.iter().map(|f| (f.id(), f.spec().name)).find(|(_, n)| *n == name)?;
        let is_away = self.lifecycle.away().contains(id);
        match act {
            Act::Start if !is_away => {}
            Act::Stop if self.lifecycle.is_stopped(id) => {}
            Act::Stop => {
                self.lay_down(id, tally);
                self.lifecycle.stopped((id, name), now);
                self.effects.left = self.effects.left.with(id);
            }
            Act::Start | Act::Restart => {
                self.start(id, (now, tally), true);
                self.effects.left = self.effects.left.with(id);
            }
        }
        Some(self.lifecycle.now(id, name))
    }

    /// How the functions of the running generation stand, by their bit.
    pub fn functions_now(&self) -> impl Iterator<Item = FunctionNow> {
        self.chains.functions.iter().map(|f| self.lifecycle.now(f.id(), f.spec().name))
    }

    /// Frees what functions that have begun anew kept of a flow before, and what those kept that are away.
    /// Asked of each packet of a flow.
    #[inline]
    pub(super) fn renew_slots(&mut self, ext: &mut FlowExt) {
        if ext.begun != self.lifecycle.begun() {
            self.clear_old_slots(ext);
        }
    }

    #[cold]
    fn clear_old_slots(&mut self, ext: &mut FlowExt) {
        self.effects.touched = true;
        for (bit, slot) in (0u8..).map(FunctionId).zip(&mut ext.slots) {
            if self.lifecycle.has_begun_since(bit, ext.begun) {
                clear(slot);
            }
        }
        ext.begun = self.lifecycle.begun();
    }

    /// A flow goes to another worker, whose functions have beginnings of their own: what has to be freed is
    /// freed here.
    pub fn let_flow_go(&mut self, ext: &mut FlowExt) {
        self.renew_slots(ext);
        for (bit, slot) in (0u8..).map(FunctionId).zip(&mut ext.slots) {
            if self.lifecycle.away().contains(bit) {
                clear(slot);
            }
        }
    }

    /// A flow comes from another worker.
    pub const fn let_flow_in(&self, ext: &mut FlowExt) {
        ext.begun = self.lifecycle.begun();
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The passage of a frame through the stages: intake, flows, chain runner, account. This module defines their
//! order; each stage works on its own state and its arguments, and knows no other stage but the account.

mod arrival;
mod declared;
mod early;
mod ending;
mod level;
mod overload;
mod packet;
mod shedding;
mod way;

pub(crate) use early::credit_early;
pub(crate) use ending::{ENDS_WHEN_IDLE, TIMERS_PER_PACKET};
pub(crate) use overload::{CLOSINGS, LOOKED_AT, SESSIONS_ENDED};

use bartizan_base::{Decision, FlowId, FunctionId, Reason, TenantId, Verdict};
use bartizan_packet::Decoded;
use bartizan_stages::chain::Chains;
use bartizan_stages::context::FrameContext;
use bartizan_stages::flows::Flows;
use bartizan_stages::frame::{Frame, next_frame};
use bartizan_stages::identity::PacketOrigin;
use bartizan_stages::intake::Intake;
use bartizan_stages::intake::fragment::Settled;
use bartizan_stages::runner::{Effects, Runner};

/// The stages and the context of the current frame; see the module.
pub(crate) struct Passage<'w> {
    /// Frames to packets.
    pub intake: &'w mut Intake,
    /// Packets to flows.
    pub flows: &'w mut Flows,
    /// Flows to decisions.
    pub runner: &'w mut Runner,
    /// The context that every stage receives.
    pub cx: FrameContext<'w>,
}

impl Passage<'_> {
    /// Begins a frame: counts it, advances the clock, ends due flows.
    pub(crate) fn begin(&mut self, frame: &Frame<'_>, follows: bool) {
        self.cx.account.counters.count_arrival(frame.bytes.len());
        self.cx.position.advance(frame.now);
        self.cx.position.place = next_frame(self.cx.position.place);
        self.cx.leaving.change = None;
        self.intake.begin();
        self.runner.train.begin(follows && self.cx.settings.prevention);
        // A flow whose segments wait must not end before they are inspected.
        if !self.runner.train.is_waiting() {
            self.expire(frame.now);
        }
    }

    /// Settles a frame's fragments, once all its packets are handled.
    pub(crate) fn finish_frame(&mut self, frame: &Frame<'_>, decision: Decision) -> Settled {
        self.intake.finish_frame(&mut self.cx, self.runner.chains(), frame, decision)
    }

    /// Closes the train: payload functions inspect the queued segments now, unless this frame has already
    /// carried them.
    pub(crate) fn close_train(&mut self) {
        let Some((id, direction)) = self.runner.train.uninspected() else { return };
        // Segments that cannot be inspected are not forwarded.
        let mut decision = Decision::refuse(Verdict::Drop, Reason::StreamReassembly, FunctionId::ENGINE);
        if let Some(entry) = self.flows.get_mut(id) {
            let judged = self.runner.show_waiting(&mut self.cx, entry, direction);
            decision = judged.decision;
            self.apply(id, judged.effects);
        }
        self.runner.train.decided(decision);
    }

    /// Counts and records the decision on a frame that waited; returns the decision.
    pub(crate) fn release(&mut self, frame: &Frame<'_>) -> Decision {
        let (fid, decision) = self.runner.train.release();
        let length = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        let before = core::mem::replace(&mut self.cx.account.fid, fid);
        let chains = self.runner.chains();
        if !decision.verdict.forwards()
            && let Some((id, direction)) = self.runner.train.flow()
        {
            let entry = self.flows.get_mut(id);
            self.intake.redecode_outermost(chains, frame, |occasion| {
                self.cx.refused(chains, &occasion.with_direction(direction), entry, &decision.into(), &[]);
            });
        }
        let decision = self.cx.enforced(chains, decision, length);
        self.cx.account.fid = before;
        self.cx.decided(&decision)
    }

    /// Announces the generation of the next events to the recorder, if it has changed.
    pub(crate) fn announce(&mut self) {
        let generation = self.runner.generation();
        if self.cx.position.announced != Some(generation) {
            self.cx.position.announced = Some(generation);
            self.cx.recorder.enter_generation(self.runner.chains());
        }
    }

    /// Applies the effects of running functions to a flow's table entry and memory, and to the level below.
    #[inline]
    pub(crate) fn apply(&mut self, id: FlowId, effects: Effects) {
        self.flows.leave_below(effects.left);
        if effects.bypassed && self.flows.bypass(id) {
            self.cx.account.counters.bypassed_flows += 1;
        }
        if effects.touched {
            self.cx.account.measure(self.flows, id);
        }
    }

    /// The tenant of a packet.
    pub(crate) fn tenant_of(&self, frame: &Frame<'_>, packet: &Decoded) -> TenantId {
        self.chains().classifier.tenant_of(packet, frame.link)
    }

    fn packet_origin(&self, frame: &Frame<'_>, packet: &Decoded) -> PacketOrigin {
        PacketOrigin {
            tenant: self.tenant_of(frame, packet),
            link: frame.link,
            arrived_by: self.intake.arrived_by(),
            esp_flows: self.chains().esp_flows(),
        }
    }

    fn chains(&self) -> &Chains {
        self.runner.chains()
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The way of a frame through the stages: intake, flows, chain runner, account. Here stands their order; each stage works on its own
//! state and on what it is handed, and knows no other one but the account.

mod early;
mod ending;
mod level;
mod overload;
mod packet;
mod shedding;

pub(crate) use early::credit_early;
pub(crate) use ending::{ENDS_WHEN_IDLE, TIMERS_PER_PACKET};
pub(crate) use overload::{CLOSINGS, LOOKED_AT};
pub(crate) use packet::SESSIONS_ENDED;

use bartizan_base::{Decision, FlowId, FunctionId, Reason, TenantId, Verdict};
use bartizan_packet::{DecodeOutput, Decoded};
use bartizan_stages::chain::Chains;
use bartizan_stages::context::Context;
use bartizan_stages::flows::Flows;
use bartizan_stages::frame::{Around, Frame, MAX_DEPTH, Place, next_frame};
use bartizan_stages::identity::Whence;
use bartizan_stages::intake::Intake;
use bartizan_stages::intake::fragment::{Fragmented, Settled, refused_as_it_is};
use bartizan_stages::runner::Runner;

/// See the module.
pub(crate) struct Passage<'w> {
    /// Frames to packets.
    pub intake: &'w mut Intake,
    /// Packets to flows.
    pub flows: &'w mut Flows,
    /// Flows to decisions.
    pub runner: &'w mut Runner,
    /// What every stage is given.
    pub cx: Context<'w>,
}

impl Passage<'_> {
    /// A frame has come.
    pub(crate) fn begin(&mut self, frame: &Frame<'_>, follows: bool) {
        self.cx.account.counters.came(frame.bytes.len());
        self.cx.position.advance(frame.now);
        self.cx.position.place = next_frame(self.cx.position.place);
        self.cx.leaving.change = None;
        self.intake.begin();
        self.runner.train.begin(follows && self.cx.settings.prevention);
        // A flow whose segments wait must not end under them.
        if !self.runner.train.is_waiting() {
            self.expire(frame.now);
        }
    }

    /// A frame, from its first byte to what becomes of it. `None`: it waits for the one behind it, or with its datagram.
    pub(crate) fn frame(&mut self, frame: &Frame<'_>) -> Option<Decision> {
        let mut output = self.intake.decode(frame);
        let decision = self.packets(frame, frame.bytes, &mut output, (0, None));
        self.intake.done(output);
        if self.runner.train.took() {
            return None;
        }
        self.close_train();
        match self.settle(frame, decision) {
            Settled::Decided(decision) => Some(self.cx.decided(&decision)),
            Settled::Held => None,
        }
    }

    /// All packets of a frame or reassembled datagram, innermost first.
    fn packets(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        output: &mut DecodeOutput,
        (depth, outermost): (u8, Option<&Around>),
    ) -> Decision {
        let mut decision = Decision::CONTINUE;
        // Only what lies in another packet is told of it.
        let outer = if output.packets().len() > 1 && outermost.is_none() {
            output.packets().first().and_then(|packet| Around::of(packet, frame.number))
        } else {
            None
        };
        let first = outermost.or(outer.as_ref());
        let count = output.packets().len();
        for index in (0..count).rev() {
            let Some(packet) = output.packets_mut().get_mut(index) else { continue };
            let refused;
            if packet.is_fragment() && depth < MAX_DEPTH {
                let own = if outermost.is_none() { Around::of(packet, frame.number) } else { None };
                let outermost = outermost.or(own.as_ref());
                let (inner, fragment) = self.fragment(frame, bytes, packet, (depth, outermost));
                decision = decision.strictest(inner);
                refused = fragment;
            } else {
                refused = refused_as_it_is(self.cx.settings, packet);
            }
            let place = Place {
                made: depth > 0 || packet.recursion > 0,
                around: if index > 0 { first } else { outermost },
                carries: index + 1 < count,
                inside: decision.into(),
                refused,
            };
            decision = decision.strictest(self.packet(frame, bytes, packet, &place));
        }
        decision
    }

    /// Puts a fragment to its datagram; a datagram that becomes whole is handled at once. Returns what was decided of that, and
    /// why the fragment must not go on.
    fn fragment(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        packet: &mut Decoded,
        (depth, outermost): (u8, Option<&Around>),
    ) -> (Decision, Option<Reason>) {
        let tenant = self.tenant_of(frame, packet);
        let mut datagram = self.intake.room();
        let fragmented = self.intake.defragment(
            (self.cx.settings, self.runner.chains()),
            (frame, tenant),
            bytes,
            packet,
            &mut datagram,
        );
        let mut decision = Decision::CONTINUE;
        let mut refused = None;
        if let Fragmented::Refused(reason) = fragmented {
            refused = Some(reason);
        }
        if fragmented == Fragmented::Whole {
            let mut output = self.intake.output();
            self.intake.decode_datagram(packet, &datagram, &mut output);
            decision = self.packets(frame, &datagram, &mut output, (depth + 1, outermost));
            self.intake.done(output);
        }
        self.intake.done_with(datagram);
        (decision, refused)
    }

    /// What became of a frame's fragments, once all packets are handled.
    pub(crate) fn settle(&mut self, frame: &Frame<'_>, decision: Decision) -> Settled {
        self.intake.settle(&mut self.cx, self.runner.chains(), frame, decision)
    }

    /// A frame that does not wait was handled: what waits was shown with it, or is shown now.
    pub(crate) fn close_train(&mut self) {
        let Some((id, direction)) = self.runner.train.unshown() else { return };
        // What cannot be inspected does not go on.
        let mut decision = Decision::refuse(Verdict::Drop, Reason::StreamReassembly, FunctionId::ENGINE);
        if let Some(entry) = self.flows.get_mut(id) {
            decision = self.runner.show_waiting(&mut self.cx, entry, direction);
            self.apply_effects(id);
        }
        self.runner.train.decided(decision);
    }

    /// Counts and records what was decided of a frame that waited, and says it.
    pub(crate) fn release(&mut self, frame: &Frame<'_>) -> Decision {
        let (fid, decision) = self.runner.train.release();
        let length = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        let before = core::mem::replace(&mut self.cx.account.fid, fid);
        let chains = self.runner.chains();
        if !decision.verdict.forwards()
            && let Some((id, direction)) = self.runner.train.flow()
        {
            let entry = self.flows.get_mut(id);
            self.intake.occasion_of(chains, frame, |occasion| {
                self.cx.refused(chains, &occasion.going(direction), entry, &decision.into(), &[]);
            });
        }
        let decision = self.cx.enforced(chains, decision, length);
        self.cx.account.fid = before;
        self.cx.decided(&decision)
    }

    /// Tells the recorder of the generation in which the next events are, if it is another one.
    pub(crate) fn announce(&mut self) {
        let generation = self.runner.generation();
        if self.cx.position.announced != Some(generation) {
            self.cx.position.announced = Some(generation);
            self.cx.recorder.enter_generation(self.runner.chains());
        }
    }

    /// Does for a flow's place in the table and its memory what the chain runner asked for.
    #[inline]
    pub(crate) fn apply_effects(&mut self, id: FlowId) {
        let effects = self.runner.take_effects();
        if !effects.left.is_empty()
            && let Some(manager) = self.flows.manager.as_deref_mut()
        {
            manager.leave(effects.left);
        }
        if effects.bypassed && self.flows.bypass(id) {
            self.cx.account.counters.bypassed_flows += 1;
        }
        if effects.touched {
            self.cx.account.measure(self.flows, id);
        }
    }

    /// Whose traffic a packet is.
    pub(crate) fn tenant_of(&self, frame: &Frame<'_>, packet: &Decoded) -> TenantId {
        self.chains().classifier.tenant_of(packet, frame.link)
    }

    fn whence(&self, frame: &Frame<'_>, packet: &Decoded) -> Whence {
        Whence {
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

// SPDX-License-Identifier: Apache-2.0
//! A flow's disposition: the verdict that applies to its next packet without running any function. The chain,
//! trains, the end of a flow, overload and records use [`FlowDisposition::course`], and so does the offload
//! of flows: a lower level forwards bypassed flows and drops refused ones.
//!
//! The path (the functions that are left) and its generation are in the flow table's part of the entry.
//! `settled.rs` renews the disposition in another generation.

use bartizan_base::{Decision, Direction, FunctionId, PortIndex, Reason, Verdict};
use bartizan_flow::FlowState;
use core::num::NonZeroU32;

/// The disposition of a flow's next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketDisposition {
    /// The functions of the path judge it.
    Judged,
    /// An exception policy exempts the flow from inspection: header functions judge it, payload functions do
    /// not run.
    Uninspected,
    /// No function is left: the packet is forwarded.
    Bypassed,
    /// The packet is refused with its flow.
    Refused(Decision),
}

/// The origin of the decision to allow all further packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The function; `None`: the default, since packets that no function refuses are forwarded.
    pub function: Option<FunctionId>,
    /// The function's rule, numbered as in [`Decision::rule`]; `None`: its default.
    pub rule: Option<NonZeroU32>,
}

/// The functions that are done with a flow and allow it, collected while one packet passes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChainCompletion {
    /// The last answer that decides on the flow.
    allowed: Option<Decision>,
    /// The last answer that only needs no more packets, without a decision on the flow.
    finished: Option<Decision>,
}

impl ChainCompletion {
    /// Notes that a function is done. An answer with the function's name decides.
    pub fn note(&mut self, function: FunctionId, decision: Decision) {
        let of = if decision.function == function { &mut self.allowed } else { &mut self.finished };
        *of = Some(Decision { function, ..decision });
    }
}

/// The first refusal of a flow that a staged policy did not enforce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagedRefusal {
    /// The function that would have refused it.
    pub function: FunctionId,
    /// The verdict that was not enforced.
    pub verdict: Verdict,
    /// The reason of the refusal.
    pub reason: Reason,
    /// The function's rule, numbered as in [`Decision::rule`].
    pub rule: Option<NonZeroU32>,
}

/// The effect of a refusal on the packets that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Behind {
    /// None: the refusal was for one packet.
    #[default]
    Nothing,
    /// They get the same refusal.
    Same,
    /// They are dropped, since the function refused the whole flow.
    OfFlow,
    /// They are dropped, since an exception policy refused the whole flow.
    ByException,
}

/// Flags of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DispositionFlags(u8);

impl DispositionFlags {
    /// A refusal was recorded in this direction since the flow is refused.
    const TOLD_TO_SERVER: u8 = 1;
    const TOLD_TO_CLIENT: u8 = 1 << 1;
    /// An exception policy exempts the flow from inspection.
    const PASSED: u8 = 1 << 2;
    /// The rest of the payload needs no inspection: no generation puts payload functions onto the path again.
    const PAYLOAD_ENDED: u8 = 1 << 3;
    /// A staged policy forwarded a segment that the engine would have refused: the bytes that its receiver
    /// has read are unknown.
    const STRAY: u8 = 1 << 4;
    /// The refusal that a staged policy did not enforce was a reject.
    const WOULD_REJECT: u8 = 1 << 5;

    const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    const fn with(self, flag: u8) -> Self {
        DispositionFlags(self.0 | flag)
    }

    const fn without(self, flags: u8) -> Self {
        DispositionFlags(self.0 & !flags)
    }

    const fn reported_flag(direction: Direction) -> u8 {
        match direction {
            Direction::ToServer => DispositionFlags::TOLD_TO_SERVER,
            Direction::ToClient => DispositionFlags::TOLD_TO_CLIENT,
        }
    }
}

/// The disposition of one flow: refusals, allowances and exemptions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowDisposition {
    /// The latest refusal, of the flow or of one of its packets.
    refused: Option<Decision>,
    /// The function that allowed the flow for good; `allowed_rule`: its rule. (Separate fields save padding
    /// in the flow's entry.)
    allowed_by: Option<Option<FunctionId>>,
    allowed_rule: Option<NonZeroU32>,
    /// The named port by which the flow's packets leave; `None`: the other port of their link.
    egress: Option<PortIndex>,
    /// The effect of the latest refusal on further packets.
    behind: Behind,
    flags: DispositionFlags,
    /// Reasons of the engine that were reported as would-be, a bit each ([`Reason`]'s number).
    reported: [u32; 2],
    /// The first refusal that a staged policy did not enforce: function and reason; `would_be_rule`: the
    /// rule.
    would_be: Option<(FunctionId, Reason)>,
    would_be_rule: Option<NonZeroU32>,
}

impl FlowDisposition {
    /// The disposition of the next packet of a flow in this state.
    #[inline]
    #[must_use]
    pub fn course(&self, state: FlowState) -> PacketDisposition {
        if state == FlowState::LocalBypassed {
            return PacketDisposition::Bypassed;
        }
        match self.refusal() {
            Some(decision) => PacketDisposition::Refused(decision),
            None if self.flags.has(DispositionFlags::PASSED) => PacketDisposition::Uninspected,
            None => PacketDisposition::Judged,
        }
    }

    /// Whether payload functions still inspect the packets of a flow in this state.
    #[must_use]
    pub fn is_read(&self, state: FlowState) -> bool {
        self.course(state) == PacketDisposition::Judged && !self.is_payload_ended()
    }

    /// Whether all further packets are refused.
    #[inline]
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        !matches!(self.behind, Behind::Nothing)
    }

    /// The decision that refuses all further packets.
    #[inline]
    #[must_use]
    pub fn refusal(&self) -> Option<Decision> {
        let decision = self.refused?;
        let dropped = |reason| Decision { reason, verdict: Verdict::Drop, ..decision };
        match self.behind {
            Behind::Nothing => None,
            Behind::Same => Some(decision),
            Behind::OfFlow => Some(dropped(decision.reason.map(Reason::of_flow))),
            Behind::ByException => Some(dropped(Some(Reason::ExceptionFlow))),
        }
    }

    /// Refuses all further packets.
    pub const fn refuse(&mut self, decision: Decision) {
        (self.refused, self.behind) = (Some(decision), Behind::Same);
    }

    /// Refuses all packets after the current one, with which a function refuses the whole flow.
    pub const fn refuse_behind(&mut self, decision: &Decision) {
        (self.refused, self.behind) = (Some(*decision), Behind::OfFlow);
    }

    /// Refuses the packets after one that an exception policy refused with its flow.
    pub const fn refuse_by_exception(&mut self, decision: &Decision) {
        (self.refused, self.behind) = (Some(*decision), Behind::ByException);
    }

    /// Lifts the refusal of a flow in another generation.
    pub const fn lift(&mut self) {
        self.behind = Behind::Nothing;
        self.flags = self.flags.without(DispositionFlags::TOLD_TO_SERVER | DispositionFlags::TOLD_TO_CLIENT);
    }

    /// Exempts the flow from inspection.
    pub const fn pass(&mut self) {
        self.flags = self.flags.with(DispositionFlags::PASSED);
    }

    /// Whether an exception policy exempts the flow from inspection.
    #[must_use]
    pub const fn is_passed(&self) -> bool {
        self.flags.has(DispositionFlags::PASSED)
    }

    /// Ends inspection of the payload permanently.
    pub const fn end_payload(&mut self) {
        self.flags = self.flags.with(DispositionFlags::PAYLOAD_ENDED);
    }

    /// Whether inspection of the payload has ended permanently.
    #[must_use]
    pub const fn is_payload_ended(&self) -> bool {
        self.flags.has(DispositionFlags::PAYLOAD_ENDED)
    }

    /// Stores the refusal of a packet for the flow's record. A refusal that applies to each packet is kept,
    /// even if one packet gets another.
    pub fn note_refusal(&mut self, decision: &Decision) {
        let repeats = self.repeated_refusal().is_some();
        if !self.is_refused() && (decision.repeats || !repeats) {
            self.refused = Some(*decision);
        }
    }

    /// Notes that a segment was forwarded that the engine would have refused.
    pub const fn note_stray(&mut self) {
        self.flags = self.flags.with(DispositionFlags::STRAY);
    }

    /// Whether segments were forwarded that the engine would have refused.
    #[must_use]
    pub const fn is_stray(&self) -> bool {
        self.flags.has(DispositionFlags::STRAY)
    }

    /// Notes that a would-be refusal of the engine is reported. Returns whether it is the flow's first for
    /// this reason.
    pub fn note_reported(&mut self, reason: Reason) -> bool {
        let number = reason as usize;
        let Some(word) = self.reported.get_mut(number / 32) else { return true };
        let bit = 1 << (number % 32);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Stores the first refusal that a staged policy does not enforce, for the flow's record. `verdict`: the
    /// verdict that the policy would have enforced, even if the decision forwards the packet.
    pub fn note_would_be(&mut self, decision: &Decision, verdict: Verdict) {
        let Decision { reason: Some(reason), function, rule, .. } = *decision else { return };
        if self.would_be.is_none() {
            (self.would_be, self.would_be_rule) = (Some((function, reason)), rule);
            if verdict == Verdict::Reject {
                self.flags = self.flags.with(DispositionFlags::WOULD_REJECT);
            }
        }
    }

    /// The first refusal of the flow that a staged policy did not enforce.
    #[must_use]
    pub fn would_be(&self) -> Option<StagedRefusal> {
        let (function, reason) = self.would_be?;
        let verdict =
            if self.flags.has(DispositionFlags::WOULD_REJECT) { Verdict::Reject } else { Verdict::Drop };
        Some(StagedRefusal { function, verdict, reason, rule: self.would_be_rule })
    }

    /// The refusal that a function repeats for each packet of the flow.
    #[must_use]
    pub fn repeated_refusal(&self) -> Option<Decision> {
        self.refused.filter(|decision| decision.repeats && !self.is_refused())
    }

    /// Clears decisions that another generation must make again: repeated refusals, the origin of an
    /// allowance, and a named port.
    pub const fn forget_repeated(&mut self) {
        (self.allowed_by, self.allowed_rule, self.egress) = (None, None, None);
        if let Some(decision) = &mut self.refused {
            decision.repeats = false;
        }
    }

    /// The refusal for the flow's record: that of the flow, or else the latest one of a packet.
    #[must_use]
    pub fn last_refusal(&self) -> Option<Decision> {
        self.refusal().or(self.refused)
    }

    /// Notes what a round of functions has decided: those that are done, and the first refusal that a staged
    /// policy does not enforce, with its verdict.
    pub fn note_round(&mut self, done: &ChainCompletion, would_be: Option<(Decision, Verdict)>) {
        self.note_done(done);
        if let Some((decision, verdict)) = would_be {
            self.note_would_be(&decision, verdict);
        }
    }

    /// Stores the answers of functions that are done with the flow and allow it. The first answer with a port
    /// decides on the port.
    pub fn note_done(&mut self, done: &ChainCompletion) {
        for decision in [&done.allowed, &done.finished].into_iter().flatten() {
            self.egress = self.egress.or(decision.egress);
        }
        let allowed = |decision: Decision| Allowed { function: Some(decision.function), rule: decision.rule };
        let known = self.allowed_before();
        let now = done.allowed.map(allowed).or(known).or(done.finished.map(allowed));
        (self.allowed_by, self.allowed_rule) = (now.map(|by| by.function), now.and_then(|by| by.rule));
    }

    /// The origin of the decision to allow all further packets: the last function that decided, else one that
    /// was done with the flow. If no function is left to judge a packet (`is_judged`) and none was refused,
    /// the default. `None`: no decision.
    #[must_use]
    pub fn allowed(&self, is_judged: bool) -> Option<Allowed> {
        let is_left = !is_judged && self.last_refusal().is_none();
        self.allowed_before().or_else(|| is_left.then(Allowed::default))
    }

    /// The function and rule that allowed the flow for good.
    fn allowed_before(&self) -> Option<Allowed> {
        Some(Allowed { function: self.allowed_by?, rule: self.allowed_rule })
    }

    /// Keeps the origin of an allowance over a generation, for a flow without further packets to judge.
    pub const fn keep_allowed(&mut self, before: &FlowDisposition) {
        (self.allowed_by, self.allowed_rule) = (before.allowed_by, before.allowed_rule);
    }

    /// Notes that a refusal in a direction was recorded: in a flow refused as a whole, the direction has its
    /// record.
    pub fn note_told(&mut self, direction: Direction) {
        if self.is_refused() {
            self.flags = self.flags.with(DispositionFlags::reported_flag(direction));
        }
    }

    /// The named port through which packets of the flow leave, set by a function that is done with the flow;
    /// `None`: the other port of their link.
    #[inline]
    #[must_use]
    pub const fn egress(&self) -> Option<PortIndex> {
        self.egress
    }

    /// The decision for a packet that no function judges.
    #[inline]
    #[must_use]
    pub const fn unjudged_decision(&self) -> Decision {
        Decision { egress: self.egress, ..Decision::CONTINUE }
    }

    /// Whether a refusal in a direction was recorded since the flow is refused.
    #[must_use]
    pub fn is_told(&self, direction: Direction) -> bool {
        self.flags.has(DispositionFlags::reported_flag(direction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> Decision {
        Decision::refuse(Verdict::Reject, Reason::IdsRule, FunctionId(3))
    }

    #[test]
    fn each_fact_decides_of_the_next_packet() {
        let new = FlowDisposition::default();
        assert_eq!(new.course(FlowState::Established), PacketDisposition::Judged);
        assert_eq!(new.course(FlowState::LocalBypassed), PacketDisposition::Bypassed);
        assert!(new.is_read(FlowState::New) && !new.is_read(FlowState::LocalBypassed));
        let mut ended = new;
        ended.end_payload();
        assert_eq!(ended.course(FlowState::Established), PacketDisposition::Judged, "header functions go on");
        assert!(!ended.is_read(FlowState::Established));
        let mut passed = new;
        passed.pass();
        assert_eq!(passed.course(FlowState::Established), PacketDisposition::Uninspected);
        assert!(!passed.is_read(FlowState::Established));
        passed.refuse(refusal());
        assert_eq!(
            passed.course(FlowState::Established),
            PacketDisposition::Refused(refusal()),
            "a refusal is stronger"
        );
    }

    #[test]
    fn who_decides_is_named_before_who_only_needs_no_more() {
        let of = |said: &[(u8, Decision)]| {
            let mut done = ChainCompletion::default();
            said.iter().for_each(|(function, decision)| done.note(FunctionId(*function), *decision));
            done
        };
        let by = |standing: &FlowDisposition| {
            standing.allowed(false).map(|by| (by.function.map(|id| id.0), by.rule.map(NonZeroU32::get)))
        };
        let rule = Decision { function: FunctionId(1), rule: NonZeroU32::new(2), ..Decision::CONTINUE };
        // A packet filter's rule, followed by a firewall that does not track the flow; and one packet later.
        let mut standing = FlowDisposition::default();
        standing.note_done(&of(&[(1, rule), (2, Decision::CONTINUE)]));
        assert_eq!(by(&standing), Some((Some(1), Some(2))));
        standing.note_done(&of(&[(3, Decision::CONTINUE)]));
        assert_eq!(by(&standing), Some((Some(1), Some(2))));
        // No other function has decided; a later decision is named.
        let mut standing = FlowDisposition::default();
        standing.note_done(&of(&[(2, Decision::CONTINUE)]));
        assert_eq!(by(&standing), Some((Some(2), None)));
        standing.note_done(&of(&[]));
        standing.note_done(&of(&[(3, Decision { function: FunctionId(3), ..Decision::CONTINUE })]));
        assert_eq!(by(&standing), Some((Some(3), None)));
    }

    #[test]
    fn what_nobody_decided_and_nobody_refused_goes_on_by_default() {
        let mut standing = FlowDisposition::default();
        assert_eq!(standing.allowed(true), None, "functions still look");
        assert_eq!(standing.allowed(false), Some(Allowed { function: None, rule: None }));
        let mut packet = standing;
        packet.note_refusal(&refusal());
        standing.refuse_behind(&refusal());
        assert_eq!([standing, packet].map(|standing| standing.allowed(false)), [None; 2]);
    }

    #[test]
    fn the_first_refusal_that_is_not_carried_out_is_kept() {
        let mut standing = FlowDisposition::default();
        assert_eq!(standing.would_be(), None);
        let rule = NonZeroU32::new(7);
        let goes_on = Decision { verdict: Verdict::Continue, rule, ..refusal() };
        standing.note_would_be(&Decision::CONTINUE, Verdict::Drop);
        assert_eq!(standing.would_be(), None, "without a reason nobody would refuse it");
        standing.note_would_be(&goes_on, Verdict::Reject);
        let first = StagedRefusal {
            function: FunctionId(3),
            verdict: Verdict::Reject,
            reason: Reason::IdsRule,
            rule,
        };
        standing.note_would_be(
            &Decision::refuse(Verdict::Drop, Reason::StreamError, FunctionId::ENGINE),
            Verdict::Drop,
        );
        standing.lift();
        assert_eq!(standing.would_be(), Some(first));
    }

    #[test]
    fn what_comes_behind_is_dropped_for_the_flow() {
        let mut standing = FlowDisposition::default();
        standing.refuse_behind(&refusal());
        let decision = standing.refusal().unwrap();
        assert_eq!((decision.verdict, decision.reason), (Verdict::Drop, Some(Reason::IdsFlow)));
        standing.refuse_by_exception(&refusal());
        let decision = standing.refusal().unwrap();
        assert_eq!((decision.verdict, decision.reason), (Verdict::Drop, Some(Reason::ExceptionFlow)));
    }

    #[test]
    fn a_direction_is_told_once_until_the_refusal_is_lifted() {
        let mut standing = FlowDisposition::default();
        standing.note_told(Direction::ToServer);
        assert!(!standing.is_told(Direction::ToServer), "a packet's refusal is not the flow's");
        standing.refuse(refusal());
        standing.note_told(Direction::ToServer);
        assert!(standing.is_told(Direction::ToServer) && !standing.is_told(Direction::ToClient));
        standing.lift();
        assert!(!standing.is_told(Direction::ToServer) && !standing.is_refused());
    }

    #[test]
    fn the_record_tells_of_the_flows_refusal_before_a_packets() {
        let mut standing = FlowDisposition::default();
        let packet = Decision::refuse(Verdict::Drop, Reason::StreamError, FunctionId::ENGINE);
        standing.note_refusal(&packet);
        assert_eq!(standing.last_refusal(), Some(packet));
        standing.refuse(refusal());
        standing.note_refusal(&packet);
        assert_eq!(standing.last_refusal(), Some(refusal()));
        standing.lift();
        assert_eq!((standing.refusal(), standing.last_refusal()), (None, Some(refusal())));
        standing.note_refusal(&packet);
        assert_eq!(standing.last_refusal(), Some(packet));
    }
}

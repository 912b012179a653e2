// SPDX-License-Identifier: Apache-2.0
//! Runs the functions of a flow's path on a packet: header halves, then stream and application layer, then
//! payload halves; records their findings.

use super::Runner;
use super::columns::{FlowColumns, JudgedFlow, slot_of, view};
use super::effects::{Effects, Judgement};
use super::facts::facts_of;
use super::in_hand::{Detection, PacketHandling, PacketInspection, PayloadScope};
use super::lifecycle::{Checkpoint, FailedFunction, clear, decision_without, would_be_of};
use super::reading::StreamReading;
use crate::chain::Enforcement;
use crate::context::FrameContext;
use crate::flow_ext::FlowExt;
use crate::leaving::{has_multipath_to_clear, has_urgent_to_clear, restore};
use crate::normaliser::{self, Resize};
use crate::notice::QuotaKind;
use crate::record::{Cause, Entry, EventContext, PacketVerdict};
use crate::settings::EngineSettings;
use crate::standing::ChainCompletion;
use bartizan_applayer::flow::{AppSummary, HoldDecision};
use bartizan_base::{Decision, Direction, FunctionId, Path, Reason, Verdict};
use bartizan_flow::stream::StreamPair;
use bartizan_flow::tcp::{Advice, ExceptionPolicy, ExceptionTarget, Outcome, Seq, StreamEvent};
use bartizan_function::contain::contained;
use bartizan_function::{
    ChainResults, FindingAction, OffloadRequirement, PacketContext, PacketFacts, Together,
};
use bartizan_offload::OffloadDenied;
use bartizan_packet::{Decoded, PacketView, TcpFlags, TransportLayer};
use smallvec::SmallVec;

impl Runner {
    /// Runs the functions of a flow's path on a packet. If inspected bytes are restored in the packet, the
    /// functions see it as it leaves.
    pub fn functions(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        occasion: &EventContext<'_>,
        tcp: Option<&Outcome>,
        events: &[StreamEvent],
        handling: PacketHandling,
    ) -> Judgement {
        let rewrites = matches!(tcp, Some(Outcome { advice: Advice::Rewrite, .. }));
        let Some(packet) = occasion.packet().filter(|_| rewrites) else {
            return self.functions_on(cx, entry, occasion, tcp, events, handling);
        };
        let mut bytes = core::mem::take(&mut self.restored);
        let stream = entry.ext.streams.as_deref().map(|pair| pair.stream(occasion.direction));
        let decision = if stream.is_some_and(|stream| restore(packet, stream, &mut bytes)) {
            let packet = PacketView::new(&bytes, packet.decoded());
            let occasion = EventContext { cause: Cause::Packet(&packet), ..*occasion };
            let handling = PacketHandling { restored: true, ..handling };
            self.functions_on(cx, entry, &occasion, tcp, events, handling)
        } else {
            self.functions_on(cx, entry, occasion, tcp, events, handling)
        };
        self.restored = bytes;
        decision
    }

    fn functions_on(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        occasion: &EventContext<'_>,
        tcp: Option<&Outcome>,
        events: &[StreamEvent],
        handling: PacketHandling,
    ) -> Judgement {
        let mut occasion = *occasion;
        let mut hand = self.begin_packet(cx, entry, &mut occasion, tcp, events, handling);
        let wants_payload = self.chains.wants_payload(entry.path);
        cx.account.counters.spared += u64::from(!wants_payload);
        // The end of a flow has no header to judge.
        if hand.occasion.arrived().is_some() {
            self.run_headers(cx, entry, &mut hand);
        }
        if !hand.occasion.payload().is_empty()
            && hand.notes.decision.verdict.forwards()
            && unexplained(cx.settings, tcp, handling).is_some()
        {
            entry.ext.standing.note_stray();
        }
        if wants_payload && self.queue_segment(cx, entry, &mut hand) {
            hand.effects |= self.handle_failed(cx, hand.occasion, Some(entry));
            return Judgement { decision: Decision::CONTINUE, effects: hand.effects };
        }
        self.inspect(cx, entry, &mut hand, wants_payload);
        self.note_changes(cx, entry, &mut hand, wants_payload);
        self.conclude(cx, entry, &mut hand);
        hand.effects |= self.handle_failed(cx, hand.occasion, Some(entry));
        Judgement { decision: hand.notes.decision, effects: hand.effects }
    }

    /// Collects the state of a flow for a packet.
    fn begin_packet<'o, 'h>(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        occasion: &'o mut EventContext<'h>,
        tcp: Option<&'h Outcome>,
        events: &'h [StreamEvent],
        handling: PacketHandling,
    ) -> PacketInspection<'o, 'h> {
        cx.account.fid = entry.fid;
        self.findings.clear();
        self.edits.clear();
        let mut notes = ChainResults {
            tcp,
            fid: entry.fid,
            tenant: entry.key().tenant(),
            related: handling.related,
            decision: entry.ext.standing.unjudged_decision(),
            ..ChainResults::default()
        };
        if let Some((outcome, reason)) = unexplained(cx.settings, tcp, handling)
            && self.protects(entry, occasion, outcome)
        {
            notes.decision = Decision::refuse(Verdict::Drop, reason, FunctionId::ENGINE);
        }
        if let Some(id) = handling.wanting {
            // The first function for want of which the packet would be refused; further ones are not
            // reported.
            let refused = self.for_want_of(id);
            notes.decision.reason = refused.reason;
            cx.account.would_be(&refused, occasion.decoded().map_or(0, Decoded::length));
        }
        let effects = Effects::touched(self.renew_slots(&mut entry.ext));
        PacketInspection {
            occasion,
            tcp,
            events,
            handling,
            notes,
            reject: None,
            bypass: false,
            scope: PayloadScope::All,
            payload_hidden: !cx.settings.prevention && is_raw_finished(entry),
            effects,
        }
    }

    /// Whether a segment that the stream engine advises to drop could keep something from payload functions.
    ///
    /// Where none reads the connection, a segment that its session does not explain hides nothing: functions
    /// that judge by headers decide, as they do over captures and at levels below. What may open another
    /// connection of these ports stays with the engine while payload functions judge new ones. A policy on
    /// urgent data holds behind every chain that is not empty.
    fn protects(&self, entry: &Entry, occasion: &EventContext<'_>, outcome: &Outcome) -> bool {
        let opens = || occasion.decoded().is_some_and(opens);
        self.chains.wants_payload(entry.path)
            || entry.ext.by_content && opens()
            || !outcome.rejected && !self.chains.forwards_all(entry.fid)
    }

    /// Queues a segment for the one that follows it, if both may be inspected together. Functions that want
    /// each packet see it now.
    fn queue_segment(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        hand: &mut PacketInspection<'_, '_>,
    ) -> bool {
        if hand.notes.decision != Decision::CONTINUE
            || !self.findings.is_empty()
            || !self.may_wait(entry, hand.occasion, hand.tcp, hand.handling)
        {
            return false;
        }
        if self.chains.together(entry.path) == Together::StreamJoined {
            hand.scope = PayloadScope::Packet;
            self.run_payload(cx, entry, hand, &Detection::default());
            hand.scope = PayloadScope::Stream;
        }
        if hand.notes.decision != Decision::CONTINUE || !self.chains.wants_payload(entry.path) {
            return false;
        }
        self.wait(cx, entry, hand.occasion, hand.handling);
        hand.effects |= Effects::TOUCHED;
        if !self.findings.is_empty() {
            let fate = PacketVerdict { decision: hand.notes.decision, reject: hand.reject };
            self.record(cx, entry, hand.occasion, &fate, true);
        }
        true
    }

    /// Runs payload functions on the packet and on the segments queued before it.
    fn inspect(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        hand: &mut PacketInspection<'_, '_>,
        wants_payload: bool,
    ) {
        let (tcp, handling) = (hand.tcp, hand.handling);
        // The bytes of queued segments are judged by themselves: they have passed the header functions.
        let waiting = handling.flow.and_then(|flow| self.train.waits_in(flow));
        let header = hand.notes.decision;
        if waiting.is_some() {
            hand.notes.decision = Decision::CONTINUE;
        }
        let silent = wants_payload && self.brings_nothing(cx.settings, entry, hand.occasion, tcp, handling);
        // Detection forwards the packet whatever header functions decide, so payload functions inspect it
        // nevertheless.
        let goes_on = hand.notes.decision.verdict.forwards() || !cx.settings.prevention;
        if wants_payload && !silent && goes_on {
            self.read_and_show(cx, entry, hand, waiting);
        } else if wants_payload && handling.inspect && is_refused_by_tracking(&hand.notes.decision, tcp) {
            // Rules on stream events and headers explain the refusal. The payload is not inspected.
            hand.scope = PayloadScope::Headers;
            self.run_payload(cx, entry, hand, &Detection::default());
        }
        if waiting.is_some() {
            self.train.decided(hand.notes.decision);
            hand.notes.decision = hand.notes.decision.strictest(header);
        }
        hand.effects.touched |= !silent;
    }

    /// Parses the data of a packet and runs payload functions on it. `waiting`: the direction of the segments
    /// queued before it.
    fn read_and_show(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        hand: &mut PacketInspection<'_, '_>,
        waiting: Option<Direction>,
    ) {
        let PacketInspection { tcp, handling, .. } = *hand;
        let readable = tcp.map(|o| {
            let mut readable = o.readable;
            waiting.into_iter().for_each(|direction| readable[direction] = true);
            readable
        });
        let before = Detection::before(entry.ext.app.as_deref());
        let failed_before = has_failed(entry);
        let unparsed_before = unparsed_policy(cx.settings, entry);
        let StreamReading { bypass, before_switch } = self.advance(cx, entry, hand.occasion, readable);
        hand.bypass = bypass || tcp.is_some_and(|o| o.bypass);
        if !cx.settings.prevention {
            end_raw_if_hidden(entry, hand.occasion.direction);
        }
        hand.notes.decision = hand.notes.decision.strictest(before_switch.decision);
        hand.effects |= before_switch.effects;
        let hold = self.hold(cx.settings, entry, hand.occasion, handling);
        let detection = before.after(entry.ext.app.as_deref_mut(), hand.occasion);
        let mut inspect = handling.inspect;
        let policy = cx.settings.app_error;
        let failed_now = !failed_before && has_failed(entry) && !handling.spared;
        if failed_now {
            entry.ext.exceptions.push((ExceptionTarget::AppLayerError, policy));
        }
        if failed_now && policy != ExceptionPolicy::Ignore {
            // The policy is about inspection: after a failure of the parser there is none.
            inspect = false;
            hand.bypass |= policy == ExceptionPolicy::Bypass;
            let refused = apply_policy(cx.settings, entry, ExceptionTarget::AppLayerError, policy);
            hand.notes.decision = hand.notes.decision.strictest(refused.unwrap_or(Decision::CONTINUE));
        }
        let unparsed = unparsed_policy(cx.settings, entry);
        if let Some(policy) = unparsed.filter(|_| unparsed_before.is_none() && !handling.spared) {
            entry.ext.exceptions.push((ExceptionTarget::Http2, policy));
            let refused = apply_policy(cx.settings, entry, ExceptionTarget::Http2, policy);
            hand.notes.decision = hand.notes.decision.strictest(refused.unwrap_or(Decision::CONTINUE));
        }
        if inspect {
            self.run_payload(cx, entry, hand, &detection);
        }
        if let Some(held) = held(cx.settings, entry, hold) {
            hand.notes.decision = hand.notes.decision.strictest(held);
        }
    }

    /// Notes the changes to the packet before it leaves; if a change is impossible, the packet is dropped.
    fn note_changes(
        &self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        hand: &mut PacketInspection<'_, '_>,
        wants_payload: bool,
    ) {
        // A policy that does not enforce refusals changes no packet either.
        let enforces = self.chains.policies().enforcement(entry.fid) == Enforcement::Enforced;
        let PacketInspection { occasion, tcp, notes, .. } = hand;
        if let Some(bytes) = occasion.bytes().filter(|_| enforces) {
            // They come once and in order: rules may replace some, and nothing else is changed.
            cx.note_edits(&self.edits, bytes, &notes.decision);
        }
        let Some(packet) = occasion.packet() else { return };
        let goes_on = notes.decision.verdict.forwards();
        let rewrite = tcp.is_some_and(|o| o.advice == Advice::Rewrite) && goes_on;
        let urgent = wants_payload && goes_on && has_urgent_to_clear(cx.settings, packet.decoded());
        let multipath = wants_payload && goes_on && has_multipath_to_clear(cx.settings, packet.decoded());
        if (rewrite || urgent || multipath) && cannot_change(packet.decoded(), multipath) {
            notes.decision = Decision::refuse(Verdict::Drop, Reason::StreamOverlap, FunctionId::ENGINE);
        }
        self.note_resize(cx, entry, hand, enforces);
        let PacketInspection { occasion, handling, notes, .. } = hand;
        if !enforces || !notes.decision.verdict.forwards() {
            return;
        }
        if rewrite
            && let TransportLayer::Tcp(tcp) = &packet.decoded().transport
            && let Some(pair) = entry.ext.streams.as_deref()
        {
            let stream = pair.stream(occasion.direction);
            let restore = |payload: &mut [u8]| handling.restored || stream.restore(Seq(tcp.seq), payload);
            cx.leaving.note(packet, restore);
        }
        if urgent {
            cx.leaving.note_urgent(packet);
        }
        if multipath {
            cx.leaving.note_multipath(packet);
        }
        cx.note_edits(&self.edits, packet, &notes.decision);
    }

    /// Notes that the packet leaves with another beginning, if the stream engine advises so; if this is
    /// impossible, the packet is dropped.
    fn note_resize(
        &self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        hand: &mut PacketInspection<'_, '_>,
        enforces: bool,
    ) {
        let PacketInspection { occasion, tcp, handling, notes, .. } = hand;
        let (Some(packet), Some(outcome)) = (occasion.packet(), tcp) else { return };
        if !notes.decision.verdict.forwards() || !cx.settings.prevention || handling.spared {
            return;
        }
        let resize = match outcome.advice {
            Advice::Complete(missing) => {
                beginning(packet, entry.ext.streams.as_deref(), occasion.direction, missing)
            }
            Advice::Trim(front) => trim(packet, cx.settings, front),
            Advice::Forward | Advice::Rewrite | Advice::Drop(_) => return,
        };
        match resize {
            Some(resize) if enforces => cx.leaving.note_resize(packet, resize),
            Some(_) => entry.ext.standing.note_stray(),
            None if self.chains.forwards_all(entry.fid) => {}
            None => {
                notes.decision = Decision::refuse(Verdict::Drop, Reason::StreamError, FunctionId::ENGINE);
            }
        }
    }

    /// Finishes a packet of a flow: records its findings and frees stream data that is no longer needed.
    fn conclude(
        &mut self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        hand: &mut PacketInspection<'_, '_>,
    ) {
        let PacketInspection { occasion, handling, notes, reject, bypass, effects, .. } = hand;
        let decision = notes.decision;
        self.record(cx, entry, occasion, &PacketVerdict { decision, reject: *reject }, handling.inspect);
        if let Some(pair) = entry.ext.streams.as_deref_mut() {
            let before = pair.held();
            pair.end_packet(occasion.direction, occasion.payload(), &mut self.budget);
            effects.touched |= pair.held() != before;
            if !self.chains.wants_payload(entry.path) {
                *effects |= self.stop_reading(entry);
                effects.touched = true;
            }
        }
        // A parser or the depth of the stream has ended the need for payload: payload functions are done.
        if *bypass && decision.verdict.forwards() {
            *effects |= self.end_payload(entry);
        } else if let Some(enough) = self.chains.enough(entry.fid)
            && decision.verdict.forwards()
            && self.chains.wants_payload(entry.path)
            && enough.is_met(&entry.packets, &entry.bytes, entry.ext.app.as_deref())
        {
            *effects |= self.leave_payload(entry);
        }
    }

    /// Whether a segment is held back until its flow's protocol is known: inline, when a function of the path
    /// must decide on the protocol before the bytes reach their receiver. The segment is dropped; its sender
    /// retransmits it.
    fn hold(
        &self,
        settings: &EngineSettings,
        entry: &mut Entry,
        occasion: &EventContext<'_>,
        handling: PacketHandling,
    ) -> HoldDecision {
        if !settings.prevention
            || settings.hold.bytes == 0
            || !handling.inspect
            || occasion.payload().is_empty()
            || !self.chains.waits_for_protocol(entry.path.and_not(self.lifecycle.away()))
        {
            return HoldDecision::No;
        }
        let bounds = &settings.hold;
        let app = entry.ext.app.as_deref_mut();
        app.map_or(HoldDecision::No, |app| app.hold(occasion.direction, occasion.now, bounds))
    }

    /// The part of a flow that a level below must be able to judge, so that it forwards nothing which a
    /// function of the path would refuse. Payload functions need every packet on the host.
    pub fn below(&self, entry: &Entry) -> OffloadRequirement {
        // The decisions of a function that is away cannot be foreseen.
        if self.chains.wants_payload(entry.path) || !entry.path.and(self.lifecycle.away()).is_empty() {
            return OffloadRequirement::Judges;
        }
        let flow = view(entry, AppSummary::default(), entry.both_seen());
        let needs = |bit: FunctionId| {
            let function = self.chains.function(bit)?;
            let slot = entry.ext.slots.get(usize::from(bit.0))?;
            // A function that panics here sees the next packet and judges that.
            Some(
                contained(|| function.below(&flow, entry.fid, &slot.own))
                    .unwrap_or(OffloadRequirement::Judges),
            )
        };
        entry
            .path
            .functions()
            .map(|bit| needs(bit).unwrap_or_default())
            .max()
            .unwrap_or(OffloadRequirement::Nothing)
    }

    /// The reason why a flow was not offered to a level below.
    pub fn offer_denial(&self, entry: &Entry) -> OffloadDenied {
        let decided = entry.ext.standing.is_refused() || self.below(entry) != OffloadRequirement::Judges;
        if decided { OffloadDenied::Short } else { OffloadDenied::Judged }
    }

    /// Runs the header halves, in the order of the path.
    fn run_headers(&mut self, cx: &FrameContext<'_>, entry: &mut Entry, hand: &mut PacketInspection<'_, '_>) {
        let chains = &self.chains;
        let own = chains.header_part(entry.path);
        if own.is_empty() {
            return;
        }
        let away = self.lifecycle.away();
        let refusing =
            if own.and(away).is_empty() { Path::EMPTY } else { self.refusing_now(cx, hand, entry.fid) };
        let PacketInspection { occasion, events, handling, notes, .. } = hand;
        let FlowColumns { app, judged, .. } = FlowColumns::of(entry);
        let view = judged.view(app.as_deref(), handling.established);
        let JudgedFlow { fid, path: visited, standing, matches, slots, .. } = judged;
        let facts = PacketFacts {
            flow: Some(&view),
            stream_events: events,
            ..facts_of(occasion, occasion.arrived(), cx.settings.prevention)
        };
        let mut path = *visited;
        let mut done = ChainCompletion::default();
        let mut reject = None;
        let mut would_be = None;
        let mut noted = ChainResults { matches, ..*notes };
        for bit in own.functions() {
            if away.contains(bit) {
                if refusing.contains(bit) {
                    noted.decision = noted.decision.strictest(self.for_want_of(bit));
                    break;
                }
                continue;
            }
            let Some(function) = chains.function(bit) else { continue };
            let Some(worker) = self.states.get_mut(usize::from(bit.0)) else { continue };
            let Some(slot) = slot_of(slots, bit) else { continue };
            let said = Checkpoint::before(&self.findings, &self.edits, reject);
            let mut context = PacketContext {
                facts: &facts,
                app: None,
                notes: &noted,
                worker,
                slot: &mut slot.own,
                staged: &mut slot.staged,
                reject: &mut reject,
                findings: &mut self.findings,
                edits: &mut self.edits,
            };
            let called = contained(|| function.packet(&mut context));
            let fell = called.is_err();
            let mut decision = called.unwrap_or_else(|panicked| {
                said.restore(&mut self.findings, &mut self.edits, &mut reject);
                clear(slot);
                self.lifecycle.leave(bit);
                let fate = decision_without(chains, bit, cx.settings.prevention, fid);
                self.fallen.push(FailedFunction::new(bit, panicked, &noted.decision, &fate));
                fate
            });
            if !cx.settings.prevention {
                // A policy that only reports refusals redirects no packet either.
                decision.egress = None;
            }
            if decision.done {
                path = path.without(bit);
                if decision.verdict.forwards() && !fell {
                    done.note(bit, decision);
                }
            }
            would_be = would_be_of(&noted.decision, decision, reject).or(would_be);
            noted.decision = noted.decision.strictest(decision);
            if !noted.decision.verdict.forwards() {
                break;
            }
        }
        notes.decision = noted.decision;
        *visited = path;
        standing.note_done(&done);
        if let Some((decision, verdict)) = would_be {
            standing.note_would_be(&decision, verdict);
        }
    }

    /// Records the events of the packet.
    fn record(
        &self,
        cx: &mut FrameContext<'_>,
        entry: &mut Entry,
        occasion: &EventContext<'_>,
        verdict: &PacketVerdict,
        inspected: bool,
    ) {
        let findings = &self.findings;
        let variables = findings.iter().map(|finding| &*finding.variables).find(|set| !set.is_empty());
        let occasion = &EventContext { variables: variables.unwrap_or_default(), ..*occasion };
        let decision = &verdict.decision;
        // A packet that a staged policy forwards is recorded as forwarded.
        let goes_on = PacketVerdict::from(Decision::CONTINUE);
        let shown = if decision.verdict.forwards() || cx.enforces(&self.chains) { verdict } else { &goes_on };
        let readers = if inspected { self.chains.payload_part(entry.path) } else { Path::EMPTY };
        if findings.iter().any(|f| f.action.is_alert()) {
            entry.flags.insert(bartizan_flow::FlowFlags::ALERTED);
        }
        for finding in findings {
            match finding.action {
                FindingAction::Tagged => {
                    cx.recorder.tagged(occasion, Some(entry));
                    continue;
                }
                FindingAction::Variables => {
                    cx.recorder.variables(occasion, Some(entry), finding);
                    continue;
                }
                FindingAction::Refusing => continue,
                FindingAction::Allowed | FindingAction::Blocked => {}
            }
            cx.account.alert(finding.action);
            let app = entry.ext.app.as_deref();
            let tx = finding.tx.and_then(|tx| super::transactions::record_of(app?, tx));
            if !self.chains.quotas.writes_alert(entry.tenant(), occasion.now) {
                self.report_exceeded(cx, entry.tenant(), QuotaKind::Alerts);
                continue;
            }
            cx.recorder.alert(occasion, Some(entry), finding, shown, tx);
        }
        if !decision.verdict.forwards() {
            if cx.enforces(&self.chains) {
                entry.ext.standing.note_refusal(decision);
            }
            cx.refused(&self.chains, occasion, Some(&mut *entry), verdict, findings);
            if decision.done && cx.settings.prevention {
                entry.ext.standing.refuse_behind(decision);
            }
            entry.ext.standing.note_told(occasion.direction);
        }
        super::transactions::log(entry, occasion, readers, cx.recorder);
        let protocol = entry.key().protocol();
        cx.account.app_stats.note(protocol, &mut entry.ext);
    }
}

/// Whether a packet has to leave unchanged: its options are signed, or it is (or lies in) a reassembled
/// datagram, whose bytes are in several frames, of which all but the last have left.
fn cannot_change(packet: &Decoded, options: bool) -> bool {
    let is_signed = packet.transport.tcp().is_some_and(|tcp| tcp.options.md5 || tcp.options.ao);
    packet.is_in_several_frames() || options && is_signed
}

/// The first bytes of a stream, to be put in front of a packet's payload. `None`: they are not buffered, or
/// cannot be put there.
fn beginning(
    packet: &PacketView<'_>,
    streams: Option<&StreamPair>,
    direction: Direction,
    missing: u8,
) -> Option<Resize> {
    let mut front: SmallVec<[u8; 8]> = smallvec::smallvec![0; usize::from(missing)];
    // An urgent pointer counts from the first byte.
    let fits = normaliser::can_resize(packet) && !is_urgent(packet.decoded());
    (fits && streams?.stream(direction).beginning(&mut front)).then_some(Resize { front, trim: 0 })
}

/// The bytes to be trimmed from the front of a packet's payload. `None`: trimming is impossible.
fn trim(packet: &PacketView<'_>, settings: &EngineSettings, front: u32) -> Option<Resize> {
    let trim = usize::try_from(front).ok()?;
    let pointed = is_urgent(packet.decoded()) && !has_urgent_to_clear(settings, packet.decoded());
    let fits = normaliser::can_resize(packet) && (!pointed || trim == packet.payload().len());
    fits.then_some(Resize { trim, ..Resize::default() })
}

fn is_urgent(packet: &Decoded) -> bool {
    packet.transport.tcp().is_some_and(|tcp| tcp.flags.contains(TcpFlags::URG))
}

/// A segment that the stream engine advises to drop, with the reason.
fn unexplained<'o>(
    settings: &EngineSettings,
    tcp: Option<&'o Outcome>,
    handling: PacketHandling,
) -> Option<(&'o Outcome, Reason)> {
    match tcp {
        Some(outcome) if settings.prevention && !handling.spared => match outcome.advice {
            Advice::Drop(reason) => Some((outcome, reason)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a segment opens a connection, or answers one that does.
fn opens(packet: &Decoded) -> bool {
    packet.transport.tcp().is_some_and(|tcp| tcp.flags.contains(TcpFlags::SYN))
}

/// Whether rules see no more bytes of a flow's streams.
fn is_raw_finished(entry: &Entry) -> bool {
    entry.ext.streams.as_deref().is_some_and(StreamPair::is_raw_finished)
}

/// Passively: ends raw inspection of a flow whose later data is hidden from rules (`encryption-handling`).
fn end_raw_if_hidden(entry: &mut Entry, direction: Direction) {
    let FlowExt { streams: Some(pair), app: Some(app), .. } = &mut entry.ext else { return };
    if app.is_encrypted() && !pair.is_raw_finished() && app.hides_payload() {
        pair.raw_finish(direction);
    }
}

/// Whether the parser of a flow has failed.
fn has_failed(entry: &Entry) -> bool {
    entry.ext.app.as_deref().is_some_and(|app| app.failed_parsing)
}

/// The policy that refuses a flow because of its protocol, or of the one that it has negotiated.
fn unparsed_policy(settings: &EngineSettings, entry: &Entry) -> Option<ExceptionPolicy> {
    let app = entry.ext.app.as_deref()?;
    settings.unparsed.iter().find(|of| app.is_or_becomes(of.protocol)).map(|of| of.policy)
}

/// Whether the stream engine refuses a packet.
fn is_refused_by_tracking(decision: &Decision, tcp: Option<&Outcome>) -> bool {
    decision.function == FunctionId::ENGINE && tcp.is_some_and(|o| matches!(o.advice, Advice::Drop(_)))
}

/// Applies an exception policy to a flow and returns its decision on the packet, if it refuses the packet.
pub fn apply_policy(
    settings: &EngineSettings,
    entry: &mut Entry,
    target: ExceptionTarget,
    policy: ExceptionPolicy,
) -> Option<Decision> {
    let reason = match target {
        ExceptionTarget::Midstream => Reason::StreamMidstream,
        ExceptionTarget::SessionMemory => Reason::StreamMemory,
        ExceptionTarget::ReassemblyMemory => Reason::StreamReassembly,
        ExceptionTarget::AppLayerError => Reason::AppLayerError,
        ExceptionTarget::AppLayerMemory => Reason::AppLayerMemory,
        ExceptionTarget::Http2 => Reason::Http2,
        ExceptionTarget::Overload => Reason::Overload,
    };
    if policy.refuses() && settings.prevention {
        let decision = Decision::refuse(verdict_of(policy), reason, FunctionId::ENGINE);
        if policy != ExceptionPolicy::DropPacket {
            entry.ext.standing.refuse_by_exception(&decision);
        }
        return Some(decision);
    }
    if matches!(policy, ExceptionPolicy::PassFlow | ExceptionPolicy::Bypass) {
        entry.ext.standing.pass();
    }
    None
}

/// The verdict of a policy on the current packet.
pub const fn verdict_of(policy: ExceptionPolicy) -> Verdict {
    match policy {
        ExceptionPolicy::Reject | ExceptionPolicy::RejectBoth => Verdict::Reject,
        _ if policy.refuses() => Verdict::Drop,
        _ => Verdict::Continue,
    }
}

/// Applies the result of holding to the flow and returns the decision on the packet, if it is refused.
fn held(settings: &EngineSettings, entry: &mut Entry, hold: HoldDecision) -> Option<Decision> {
    let refused = Decision::refuse(Verdict::Drop, Reason::ProtocolOpen, FunctionId::ENGINE);
    match hold {
        HoldDecision::Yes => Some(refused),
        HoldDecision::Over if settings.hold_refuses => {
            entry.ext.standing.refuse_by_exception(&refused);
            Some(refused)
        }
        HoldDecision::Over | HoldDecision::No => None,
    }
}

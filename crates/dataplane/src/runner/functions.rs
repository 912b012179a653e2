// SPDX-License-Identifier: Apache-2.0
//! The functions of a flow's path look at a packet: header halves, then streams and application layer are advanced and payload
//! halves run; what they found is recorded.

use super::Runner;
use super::parts::{FlowParts, view};
use super::sight::{Hands, Sight, context};
use crate::context::Context;
use crate::leaving::{has_urgent_to_clear, restore};
use crate::normaliser;
use crate::record::{Entry, Fate, Occasion};
use crate::settings::EngineSettings;
use bartizan_applayer::flow::{AppLayer, Hold};
use bartizan_base::{Decision, Direction, FlowId, FunctionId, Path, Reason, Verdict};
use bartizan_flow::stream::{RawChunk, StreamPair};
use bartizan_flow::tcp::{
    Advice, ExceptionPolicy, ExceptionTarget, Outcome, PacketKind, Seq, StreamEvent, TcpState,
};
use bartizan_function::{FindingAction, Notes, RejectTo, Showing, StreamNews, Together};
use bartizan_packet::{PacketFlags, PacketView, TcpFlags, Transport};
use smallvec::SmallVec;

impl Runner {
    /// Runs the functions of a flow's path on a packet: on one into which the inspected bytes are put back, as it leaves. What it asks of
    /// the flow's place in the table is told by [`Runner::take_effects`].
    pub(crate) fn functions(
        &mut self,
        cx: &mut Context<'_>,
        entry: &mut Entry,
        occasion: &Occasion<'_>,
        tcp: Option<&Outcome>,
        events: &[StreamEvent],
        looks: Looks,
    ) -> Decision {
        if !matches!(tcp, Some(Outcome { advice: Advice::Rewrite, .. })) {
            return self.functions_on(cx, entry, occasion, tcp, events, looks);
        }
        let mut bytes = core::mem::take(&mut self.restored);
        let stream = entry.ext.streams.as_deref().map(|pair| pair.stream(occasion.direction));
        let decision = if stream.is_some_and(|stream| restore(occasion.packet, stream, &mut bytes)) {
            let packet = PacketView::new(&bytes, occasion.packet.decoded());
            let occasion = Occasion { packet: &packet, ..*occasion };
            let looks = Looks { restored: true, ..looks };
            self.functions_on(cx, entry, &occasion, tcp, events, looks)
        } else {
            self.functions_on(cx, entry, occasion, tcp, events, looks)
        };
        self.restored = bytes;
        decision
    }

    fn functions_on(
        &mut self,
        cx: &mut Context<'_>,
        entry: &mut Entry,
        occasion: &Occasion<'_>,
        tcp: Option<&Outcome>,
        events: &[StreamEvent],
        looks: Looks,
    ) -> Decision {
        let established = looks.established;
        cx.account.fid = entry.fid;
        let mut parts = FlowParts::take(&mut entry.ext);
        self.findings.clear();
        self.edits.clear();
        let mut notes = Notes {
            tcp,
            fid: entry.fid,
            tenant: entry.key().tenant(),
            related: looks.related,
            ..Notes::default()
        };
        if let Some(Outcome { advice: Advice::Drop(reason), .. }) = tcp
            && cx.settings.prevention
            && !looks.spared
        {
            notes.decision = Decision::refuse(Verdict::Drop, *reason, FunctionId::ENGINE);
        }
        let wants_payload = self.chains.wants_payload(entry.path);
        cx.account.counters.spared += u64::from(!wants_payload);

        // What the engine made to inspect the rest of a flow has no header to be judged.
        if !occasion.packet.decoded().source.is_made() {
            self.run_headers(cx, entry, occasion, &mut parts, &mut notes, (events, established));
        }
        let mut occasion = *occasion;
        let mut reject = None;
        let mut bypass = false;
        let mut shows = Shows::All;
        if wants_payload
            && notes.decision == Decision::CONTINUE
            && self.findings.is_empty()
            && self.may_wait(entry, &occasion, tcp, looks, &parts)
        {
            if self.chains.together(entry.path) == Together::StreamJoined {
                let detection = &Detection::default();
                let news = News { tcp, events, established, detection, shows: Shows::Packet };
                reject = self.run_payload(cx, entry, &occasion, &mut parts, &mut notes, &news);
                shows = Shows::Stream;
            }
            if notes.decision == Decision::CONTINUE && self.chains.wants_payload(entry.path) {
                self.wait(cx, entry, &occasion, parts, looks);
                if !self.findings.is_empty() {
                    let fate = Fate { decision: notes.decision, reject };
                    self.record(cx, entry, &occasion, &fate, true);
                }
                return Decision::CONTINUE;
            }
        }
        // The bytes of segments that wait are judged by themselves: they have passed the header functions.
        let waiting = looks.flow.and_then(|flow| self.train.waits_in(flow));
        let header = notes.decision;
        if waiting.is_some() {
            notes.decision = Decision::CONTINUE;
        }
        let silent = wants_payload && self.brings_nothing(cx.settings, entry, &occasion, tcp, looks, &parts);
        // What the flow holds is measured again where it may have changed.
        let mut touched = !silent;
        // In detection the packet goes on whatever header functions say, so it is inspected all the same.
        if wants_payload && !silent && (notes.decision.verdict.forwards() || !cx.settings.prevention) {
            let readable = tcp.map(|o| {
                let mut readable = o.readable;
                waiting.into_iter().for_each(|direction| readable[direction] = true);
                readable
            });
            let before = Detection::before(parts.app.as_deref());
            let failed_before = has_failed(&parts);
            // What an earlier flow's end left there is no matter of this packet.
            self.before_switch = None;
            bypass =
                self.advance(cx, entry, &mut occasion, &mut parts, readable) || tcp.is_some_and(|o| o.bypass);
            if let Some(decision) = self.before_switch.take() {
                notes.decision = notes.decision.strictest(decision);
            }
            let hold = self.hold(cx.settings, entry, &occasion, &mut parts, looks);
            let detection = before.after(parts.app.as_deref_mut(), occasion.direction);
            let mut inspect = looks.inspect;
            let policy = cx.settings.app_error;
            let failed_now = !failed_before && has_failed(&parts) && !looks.spared;
            if failed_now {
                entry.ext.exceptions.push((ExceptionTarget::AppLayerError, policy));
            }
            if failed_now && policy != ExceptionPolicy::Ignore {
                // The policy speaks about inspection: where the parser failed there is none.
                inspect = false;
                bypass |= policy == ExceptionPolicy::Bypass;
                if let Some(refused) =
                    apply_policy(cx.settings, entry, ExceptionTarget::AppLayerError, policy)
                {
                    notes.decision = notes.decision.strictest(refused);
                }
            }
            if inspect {
                let news = News { tcp, events, established, detection: &detection, shows };
                reject = self.run_payload(cx, entry, &occasion, &mut parts, &mut notes, &news);
            }
            if let Some(held) = held(cx.settings, entry, hold) {
                notes.decision = notes.decision.strictest(held);
            }
        } else if wants_payload && looks.inspect && is_refused_before_the_stream(&notes.decision, tcp) {
            // Rules look at packets until the handshake is complete, also at one that does not go on.
            let news = News { tcp, events, established, detection: &Detection::default(), shows };
            reject = self.run_payload(cx, entry, &occasion, &mut parts, &mut notes, &news);
        }
        if waiting.is_some() {
            self.train.decided(notes.decision);
            notes.decision = notes.decision.strictest(header);
        }
        let occasion = &occasion;
        let rewrite = tcp.is_some_and(|o| o.advice == Advice::Rewrite) && notes.decision.verdict.forwards();
        let urgent = wants_payload
            && notes.decision.verdict.forwards()
            && has_urgent_to_clear(cx.settings, occasion.packet.decoded());
        // The bytes of a datagram that was put together lie in several frames, of which all but the last have gone.
        if (rewrite || urgent) && occasion.packet.decoded().flags.contains(PacketFlags::REBUILT) {
            notes.decision = Decision::refuse(Verdict::Drop, Reason::StreamOverlap, FunctionId::ENGINE);
        }
        let front = if let Some(Outcome { advice: Advice::Complete(missing), .. }) = tcp
            && notes.decision.verdict.forwards()
            && cx.settings.prevention
            && !looks.spared
        {
            let front = beginning(occasion.packet, parts.streams.as_deref(), occasion.direction, *missing);
            if front.is_none() {
                notes.decision = Decision::refuse(Verdict::Drop, Reason::StreamError, FunctionId::ENGINE);
            }
            front
        } else {
            None
        };
        let decision = notes.decision;
        let fate = Fate { decision, reject };
        if let Some(front) = &front {
            cx.leaving.note_completion(occasion.packet, front);
        }
        if rewrite
            && decision.verdict.forwards()
            && let Transport::Tcp(tcp) = &occasion.packet.decoded().transport
            && let Some(pair) = parts.streams.as_deref()
        {
            let stream = pair.stream(occasion.direction);
            let restore = |payload: &mut [u8]| looks.restored || stream.restore(Seq(tcp.seq), payload);
            cx.leaving.note(occasion.packet, restore);
        }
        if urgent && decision.verdict.forwards() {
            cx.leaving.note_urgent(occasion.packet);
        }
        cx.note_edits(&self.edits, occasion.packet, &decision);
        parts.put_back(&mut entry.ext);
        self.record(cx, entry, occasion, &fate, looks.inspect);
        if let Some(pair) = entry.ext.streams.as_deref_mut() {
            let before = pair.held();
            pair.settle(occasion.direction, occasion.packet.payload(), &mut self.budget);
            touched |= pair.held() != before;
            if !self.chains.wants_payload(entry.path) {
                self.stop_reading(entry);
                touched = true;
            }
        }
        self.effects.touched |= touched;
        // A parser or the depth of the stream says that nobody needs the rest: payload functions are done.
        if bypass && decision.verdict.forwards() {
            self.end_payload(entry);
        }
        decision
    }

    /// Whether a segment waits for its flow's protocol: inline, when a function of the path wants to know it before the bytes
    /// reach their receiver. The segment is not kept: its sender sends it again.
    fn hold(
        &self,
        settings: &EngineSettings,
        entry: &Entry,
        occasion: &Occasion<'_>,
        parts: &mut FlowParts,
        looks: Looks,
    ) -> Hold {
        if !settings.prevention
            || settings.hold.bytes == 0
            || !looks.inspect
            || occasion.packet.payload().is_empty()
            || occasion.packet.decoded().source.is_made()
            || !self.chains.waits_for_protocol(entry.path)
        {
            return Hold::No;
        }
        let bounds = &settings.hold;
        parts.app.as_deref_mut().map_or(Hold::No, |app| app.hold(occasion.direction, occasion.now, bounds))
    }

    /// Header halves, in the order of the path.
    fn run_headers(
        &mut self,
        cx: &Context<'_>,
        entry: &mut Entry,
        occasion: &Occasion<'_>,
        parts: &mut FlowParts,
        notes: &mut Notes,
        (events, established): (&[StreamEvent], bool),
    ) {
        let chains = &self.chains;
        let own = chains.header_part(entry.path);
        if own.is_empty() {
            return;
        }
        let summary = parts.app.as_deref().map(AppLayer::summary).unwrap_or_default();
        let flow = view(entry, summary, established);
        let mut path = entry.path;
        let mut allowed = None;
        let mut reject = None;
        let mut noted = Notes { matches: &entry.ext.matches, ..*notes };
        for bit in own.functions() {
            let Some(function) = chains.function(bit) else { continue };
            let (Some(state), Some(slot)) = (self.states.get_mut(usize::from(bit.0)), parts.slot(bit)) else {
                continue;
            };
            let sight = Sight::of(occasion, Some(&flow), events);
            let hands = Hands::of(state, slot, &mut reject, (&mut self.findings, &mut self.edits));
            let mut context = context(sight, &noted, hands, cx.settings.prevention);
            let decision = function.packet(&mut context);
            if decision.done {
                path = path.without(bit);
                allowed = Some(decision).filter(|decision| decision.verdict.forwards()).or(allowed);
            }
            noted.decision = noted.decision.strictest(decision);
            if !noted.decision.verdict.forwards() {
                break;
            }
        }
        notes.decision = noted.decision;
        entry.path = path;
        if let Some(decision) = &allowed {
            entry.ext.standing.note_allowed(decision);
        }
    }

    /// Payload halves, in the order of the path: once for each new piece of the stream, at least once.
    fn run_payload(
        &mut self,
        cx: &mut Context<'_>,
        entry: &mut Entry,
        occasion: &Occasion<'_>,
        parts: &mut FlowParts,
        notes: &mut Notes,
        news: &News<'_>,
    ) -> Option<RejectTo> {
        let mut reject = None;
        let chains = &self.chains;
        let News { tcp, events, established, detection, shows } = *news;
        let mut pair = parts.streams.take();
        let mut app = parts.app.take();
        // Before the handshake is complete rules look at packets, not at the stream.
        // Data with a SYN that leaves is read by a server that takes it at once: there is no later packet to refuse.
        let shown = tcp.is_some_and(|o| is_shown_early(cx.settings, occasion, o));
        let streams =
            shows != Shows::Packet && (shown || tcp.is_none_or(|o| o.state >= TcpState::Established));
        let early = matches!(&occasion.packet.decoded().transport, Transport::Tcp(t) if t.options.fast_open.is_some());
        // The byte of a keep-alive was there before: rules look at it as at a packet that is no part of the stream.
        let keep_alive = tcp.is_some_and(|o| o.kind.contains(PacketKind::KEEP_ALIVE));
        let stored =
            (streams || early || shows == Shows::Packet) && !keep_alive && tcp.is_some_and(|o| o.stored);
        let mut first = shows != Shows::Stream;
        // Transactions are shown with the first piece.
        let mut unshown = shows != Shows::Packet;
        loop {
            let own = occasion.packet.payload();
            let mut news = pair
                .as_deref_mut()
                .filter(|_| streams)
                .and_then(|p| p.stream_mut(occasion.direction).raw(own))
                .map(|chunk| (stream_news(&chunk, false), Some(chunk.end())));
            if news.is_none()
                && first
                && streams
                && stored
                && let Transport::Tcp(tcp) = &occasion.packet.decoded().transport
            {
                // Data of a SYN begins behind it.
                let seq = Seq(tcp.seq).plus(u32::from(tcp.flags.contains(TcpFlags::SYN)));
                let stream = pair.as_deref().map(|p| p.stream(occasion.direction));
                news =
                    stream.and_then(|s| s.raw_about(seq, own)).map(|chunk| (stream_news(&chunk, true), None));
            }
            if !first && news.is_none() {
                break;
            }
            let summary = app.as_deref().map(AppLayer::summary).unwrap_or_default();
            let flow = view(entry, summary, established);
            let mut path = entry.path;
            let all = chains.payload_part(path);
            let functions = if shows == Shows::Packet { chains.each_part(all) } else { all };
            let showing = match app.as_deref_mut() {
                Some(app) if core::mem::take(&mut unshown) => Showing::begin(app, occasion.direction),
                _ => Showing::nothing(occasion.direction),
            };
            let shown = app.as_deref().filter(|_| shows != Shows::Packet);
            let mut allowed = None;
            let mut noted = Notes { matches: &entry.ext.matches, ..*notes };
            for bit in functions.functions() {
                let Some(function) = chains.function(bit) else { continue };
                let (Some(state), Some(slot)) = (self.states.get_mut(usize::from(bit.0)), parts.slot(bit))
                else {
                    continue;
                };
                let sight = Sight {
                    occasion,
                    flow: Some(&flow),
                    app: shown.map(|layer| showing.view(layer, bit, &mut self.marks)),
                    stream: news.as_ref().map(|n| n.0),
                    payload_in_stream: stored,
                    events: if first { events } else { &[] },
                    app_events: if first { &detection.events } else { &[] },
                    again: !first,
                    detection_done: first && detection.done,
                };
                let hands = Hands::of(state, slot, &mut reject, (&mut self.findings, &mut self.edits));
                let mut context = context(sight, &noted, hands, cx.settings.prevention);
                let decision = function.payload(&mut context);
                if decision.done && decision.verdict.forwards() {
                    path = path.without(bit);
                    allowed = Some(decision);
                }
                noted.decision = noted.decision.strictest(decision);
            }
            notes.decision = noted.decision;
            entry.path = path;
            if let Some(decision) = &allowed {
                entry.ext.standing.note_allowed(decision);
            }
            if let Some(app) = app.as_deref_mut() {
                cx.account.memory.counters.holds_refused += showing.end(app, functions, &mut self.marks);
            }
            first = false;
            let Some(end) = news.and_then(|n| n.1) else { break };
            let Some(pair) = pair.as_deref_mut() else { break };
            let stream = pair.stream_mut(occasion.direction);
            let before = stream.raw_progress();
            stream.raw_consume(end);
            // Each round moves on, or it is the last; so is one that came to the end of what there is.
            if stream.raw_progress() == before || stream.raw_progress() == stream.right_edge() {
                break;
            }
        }
        parts.streams = pair;
        parts.app = app;
        self.effects.bypassed |= entry.path == Path::EMPTY && notes.decision.verdict.forwards();
        reject
    }

    /// Writes down what the packet brought.
    fn record(
        &self,
        cx: &mut Context<'_>,
        entry: &mut Entry,
        occasion: &Occasion<'_>,
        fate: &Fate,
        inspected: bool,
    ) {
        let findings = &self.findings;
        let variables = findings.iter().map(|finding| &*finding.variables).find(|set| !set.is_empty());
        let occasion = &Occasion { variables: variables.unwrap_or_default(), ..*occasion };
        let decision = &fate.decision;
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
            cx.recorder.alert(occasion, Some(entry), finding, fate, tx);
        }
        if !decision.verdict.forwards() {
            entry.ext.standing.note_refusal(decision);
            cx.recorder.refused(occasion, Some(entry), fate, findings);
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

/// The first bytes of a stream, to be put in front of a packet's payload. `None`: they are not held, or cannot stand there.
fn beginning(
    packet: &PacketView<'_>,
    streams: Option<&StreamPair>,
    direction: Direction,
    missing: u8,
) -> Option<SmallVec<[u8; 8]>> {
    let mut front: SmallVec<[u8; 8]> = smallvec::smallvec![0; usize::from(missing)];
    (normaliser::can_grow(packet) && streams?.stream(direction).beginning(&mut front)).then_some(front)
}

/// What payload functions are told of a piece of the stream.
fn stream_news<'a>(chunk: &RawChunk<'a>, about_packet: bool) -> StreamNews<'a> {
    StreamNews { bytes: chunk.bytes, offset: chunk.offset, seen: chunk.seen, about_packet }
}

/// Whether the parser of a flow has failed.
fn has_failed(parts: &FlowParts) -> bool {
    parts.app.as_deref().is_some_and(|app| app.failed_parsing)
}

/// Whether it is the stream engine that refuses a packet, and the stream has not begun.
fn is_refused_before_the_stream(decision: &Decision, tcp: Option<&Outcome>) -> bool {
    decision.function == FunctionId::ENGINE
        && tcp.is_some_and(|o| o.state < TcpState::Established && matches!(o.advice, Advice::Drop(_)))
}

/// Whether, before real receivers, a packet of the handshake brings data that readers are shown and that its receiver may take at once (Fast Open,
/// RFC 7413; a server can be told to take data of any SYN). Rules for established flows hold for such data.
pub(crate) fn is_shown_early(settings: &EngineSettings, occasion: &Occasion<'_>, outcome: &Outcome) -> bool {
    settings.has_real_receivers()
        && outcome.stored
        && outcome.state < TcpState::Established
        && !occasion.packet.payload().is_empty()
}

/// What an exception policy makes of a packet, if it refuses it, and of its flow.
pub(crate) fn apply_policy(
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

/// The verdict of a policy on the packet in hand.
pub(crate) const fn verdict_of(policy: ExceptionPolicy) -> Verdict {
    match policy {
        ExceptionPolicy::Reject | ExceptionPolicy::RejectBoth => Verdict::Reject,
        _ if policy.refuses() => Verdict::Drop,
        _ => Verdict::Continue,
    }
}

/// What holding makes of the packet, and of its flow.
fn held(settings: &EngineSettings, entry: &mut Entry, hold: Hold) -> Option<Decision> {
    let refused = Decision::refuse(Verdict::Drop, Reason::ProtocolOpen, FunctionId::ENGINE);
    match hold {
        Hold::Yes => Some(refused),
        Hold::Over if settings.hold_refuses => {
            entry.ext.standing.refuse_by_exception(&refused);
            Some(refused)
        }
        Hold::Over | Hold::No => None,
    }
}

/// How a packet is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looks {
    /// The flow in hand, by its place in the table; `None`: the engine made the packet, which is part of no train.
    pub flow: Option<FlowId>,
    /// An ICMP error: whether it is about a known flow.
    pub related: Option<bool>,
    /// Payload functions run.
    pub inspect: bool,
    /// What the stream engine advises does not count: an exception policy lets the packet go.
    pub spared: bool,
    /// The flow is established for rules.
    pub established: bool,
    /// The packet is shown with the inspected bytes put back.
    pub restored: bool,
}

impl Looks {
    /// What is left of a flow: nothing is refused any more, and nothing shown yet.
    pub(crate) const fn of_what_is_left(established: bool) -> Self {
        Looks { flow: None, related: None, inspect: false, spared: true, established, restored: false }
    }
}

/// What tracking found out about a packet.
#[derive(Clone, Copy)]
struct News<'n> {
    tcp: Option<&'n Outcome>,
    events: &'n [StreamEvent],
    established: bool,
    detection: &'n Detection,
    shows: Shows,
}

/// What payload functions are shown of a packet; more than one part only of segments of a train ([`crate::train`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    /// The packet and what is new in the stream and the application layer.
    All,
    /// The packet; the rest comes with a later one.
    Packet,
    /// The packet was shown.
    Stream,
}

/// What a packet brought to protocol detection.
#[derive(Default)]
struct Detection {
    /// Events that were there before the packet; afterwards those that it raised.
    events: smallvec::SmallVec<[bartizan_applayer::event::EventCode; 4]>,
    seen: usize,
    /// Detection of the packet's direction has ended, and no packet of it came since.
    done: bool,
}

impl Detection {
    fn before(app: Option<&AppLayer>) -> Self {
        Detection { seen: app.map_or(0, |a| a.events.as_slice().len()), ..Detection::default() }
    }

    fn after(mut self, app: Option<&mut AppLayer>, direction: Direction) -> Self {
        let Some(app) = app else { return self };
        self.events.extend(app.events.as_slice().iter().skip(self.seen).copied());
        self.done = app.take_detected(direction);
        self
    }
}

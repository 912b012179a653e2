// SPDX-License-Identifier: Apache-2.0
//! The passage of one decoded packet: its flow, TCP, the functions of its path, the counters.

use super::Passage;
use super::arrival::Arrival;
use super::declared::arp_record;
use super::way::{note_headers, note_way};
use bartizan_base::{Decision, Direction, Fid, FlowId, FunctionId, Reason, Timestamp, Verdict};
use bartizan_flow::tcp::{
    Advice, Checkpoint, ExceptionPolicy, ExceptionTarget, Outcome, Segment, StreamEvent, TcpFlags, TcpState,
};
use bartizan_flow::{EndReason, Find, FlowFlags, FlowKey, FlowState};
use bartizan_packet::{Decoded, Network, PacketSource, PacketView, TransportLayer};
use bartizan_stages::account::UNKNOWN;
use bartizan_stages::class::{renew_matches, reverse};
use bartizan_stages::flow_ext::FlowExt;
use bartizan_stages::flows::{Before, FlowAdmission};
use bartizan_stages::frame::{Frame, Inside, PacketPosition, next_packet};
use bartizan_stages::identity::segment;
use bartizan_stages::notice::QuotaKind;
use bartizan_stages::record::{Anomaly, Entry, EventContext, PacketVerdict};
use bartizan_stages::runner::{
    Effects, Judgement, PacketHandling, Wanting, apply_policy, is_shown_early, verdict_of,
};
use bartizan_stages::settings::EngineSettings;
use bartizan_stages::settled::tcp_state;
use bartizan_stages::standing::PacketDisposition;
use smallvec::SmallVec;
use std::sync::Arc;

/// Result of the flow lookup for a packet.
struct FlowOf {
    id: FlowId,
    direction: Direction,
    /// ICMP errors: whether the flow that the error quotes is known. `None`: the packet is no error.
    related: Option<bool>,
    /// The packet's direction is opposite to that of the packet that opened the flow.
    answers: bool,
}

impl FlowOf {
    /// The flow opened by a packet.
    const fn opened(id: FlowId, related: Option<bool>) -> Self {
        FlowOf { id, direction: Direction::ToServer, related, answers: false }
    }
}

/// A packet after session tracking, if it has a session.
struct Tracked {
    id: FlowId,
    direction: Direction,
    is_tcp: bool,
    before: Option<Connection>,
}

/// A packet in its flow, before functions judge it.
struct FlowPacket {
    id: FlowId,
    /// As in [`FlowOf`].
    related: Option<bool>,
    /// A function of the flow's path that is missing.
    wanting: Option<Wanting>,
    /// The flow counts as established.
    established: bool,
}

/// A connection before a segment that may move it.
struct Connection {
    session: Box<Checkpoint>,
    state: FlowState,
}

/// Reasons why a packet has no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flowless {
    /// Packets of this kind have no flow, or the packet is an error about an unknown one.
    Apart,
    /// The table is full.
    NoRoom,
    /// The packet would open a flow, and new flows of this class are shed.
    Shed(Fid),
}

impl Passage<'_> {
    /// Handles one decoded packet, and counts its decision.
    pub(crate) fn packet(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        packet: &Decoded,
        place: &PacketPosition<'_>,
    ) -> Decision {
        self.cx.account.fid = UNKNOWN;
        self.cx.position.place = next_packet(self.cx.position.place);
        let mut decision = self.judge(frame, bytes, packet, place);
        if !self.runner.train.is_queued() {
            let chains = self.runner.chains();
            decision = match place.inside {
                // The packet is not forwarded, whatever its own policy is.
                Inside::Refused => self.cx.done(decision, packet.length()),
                _ => self.cx.enforced(chains, decision, packet.length()),
            };
        }
        if self.cx.settings.prevention && decision.verdict.forwards() {
            self.cx.leaving.note_checksum(&PacketView::new(bytes, packet));
        }
        self.relieve();
        decision
    }

    fn judge(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        packet: &Decoded,
        place: &PacketPosition<'_>,
    ) -> Decision {
        self.announce();
        let view = PacketView::new(bytes, packet);
        // A packet that was found inside another one has no number in the capture.
        let number = frame.number.filter(|_| !place.made);
        let mut occasion = EventContext::of(&view, number, frame.now, self.runner.generation());
        occasion.around = place.around;
        let has_flow = packet.wants_flow() || packet.is_whole_ip() && self.chains().judges_headers();
        let sheds = self.cx.shedding.is_on() && !place.carries;
        let flow = if has_flow && place.refused.is_none() {
            self.flow_of(frame, packet, sheds)
        } else {
            Err(Flowless::Apart)
        };
        let FlowOf { id, direction, related, answers } = match flow {
            Ok(flow) => flow,
            Err(why) => return self.judge_flowless(frame, &Arrival { packet: &view, occasion }, why, place),
        };
        occasion.direction = direction;
        // Taken before the first event of the packet.
        let before = self.flows.get(id).map(|entry| Before {
            last_seen: entry.last_seen,
            renewed: entry.generation != self.runner.generation(),
        });
        self.cx.account.fid = self.flows.renew(id, self.runner.chains());
        let is_refused = place.inside == Inside::Refused;
        if is_refused || place.inside == Inside::WouldBeRefused && self.cx.is_staged(self.runner.chains()) {
            // Its payload is not forwarded, so the packet is not either.
            self.count_unjudged(&Arrival { packet: &view, occasion }, id, packet.length());
            let decision = Decision::refuse(Verdict::Drop, Reason::TunnelInner, FunctionId::ENGINE);
            if !is_refused {
                let entry = self.flows.get_mut(id);
                self.cx.refused(self.runner.chains(), &occasion, entry, &decision.into(), &[]);
                self.mark_unenforced(id);
                return decision;
            }
            if let Some(entry) = self.flows.get_mut(id) {
                entry.ext.standing.note_refusal(&decision);
            }
            // A level that refuses the inner packet counts it for this flow, so this flow stays at the host
            // as well.
            if self.flows.get(id).is_some_and(|entry| !self.chains().header_part(entry.path).is_empty()) {
                self.flows.note_refused(id, None);
            }
            self.cx.recorder.refused(&occasion, self.flows.get(id), &decision.into(), &[]);
            // If no function judges outer packets, a level can refuse the inner ones by itself.
            self.offer_if_unjudged(id, &Decision::CONTINUE, packet);
            return decision;
        }
        let arrival = &Arrival { packet: &view, occasion };
        let shed = if sheds { self.shed(arrival, id) } else { None };
        let (flow, decision) = match shed {
            Some(decision) => (Some(id), decision),
            None => self.in_flow(frame, arrival, id, related, answers),
        };
        if self.chains().judges_headers()
            && let Some(id) = flow
        {
            self.note_opening(id, frame.now, related, before, &decision);
        }
        if packet.source == PacketSource::Ordered
            && decision.verdict.forwards()
            && let Some(entry) = flow.and_then(|id| self.flows.get_mut(id))
        {
            entry.ext.session.acknowledge(direction);
        }
        decision
    }

    /// After a packet was judged: the first forwarded packet opens its flow. A packet that a function refuses
    /// by its headers does not keep the flow alive, and as long as no packet was forwarded the other side may
    /// open the flow. An ICMP error about the flow does not open it.
    #[inline]
    fn note_opening(
        &mut self,
        id: FlowId,
        now: Timestamp,
        related: Option<bool>,
        before: Option<Before>,
        decision: &Decision,
    ) {
        let is_about = related == Some(true);
        if decision.verdict.forwards() {
            if !is_about {
                self.flows.note_opened(id, now);
            }
        } else if self.is_refused_by_headers(decision) {
            let before = before.map(|before| Before { renewed: before.renewed && !is_about, ..before });
            self.flows.note_refused(id, before);
        }
    }

    /// Whether a function that judges by headers keeps a packet from its receiver.
    fn is_refused_by_headers(&self, decision: &Decision) -> bool {
        let refused = self.cx.settings.prevention && !decision.verdict.forwards();
        refused && self.chains().is_of_headers(decision.function)
    }

    /// Judges a packet without a flow.
    fn judge_flowless(
        &mut self,
        frame: &Frame<'_>,
        arrival: &Arrival<'_>,
        why: Flowless,
        place: &PacketPosition<'_>,
    ) -> Decision {
        let (packet, occasion) = (arrival.decoded(), &arrival.occasion);
        for event in packet.events.as_slice() {
            self.cx.recorder.anomaly(occasion, None, Anomaly::Decode(*event));
        }
        if let Network::Arp(arp) = &packet.network {
            self.cx.recorder.declared(occasion, None, &arp_record(arp));
        }
        // Without the datagram that the packet completed it is not forwarded either.
        let chains = self.runner.chains();
        let with_its_datagram = match place.inside {
            Inside::Passed => None,
            Inside::WouldBeRefused => self.cx.is_staged(chains).then_some(Reason::TunnelInner),
            Inside::Refused => self.cx.settings.prevention.then_some(Reason::TunnelInner),
        };
        if let Some(reason) = place.refused.or(with_its_datagram) {
            if place.inside != Inside::Refused {
                return self.refuse_flowless(occasion, Verdict::Drop, reason);
            }
            let decision = Decision::refuse(Verdict::Drop, reason, FunctionId::ENGINE);
            self.cx.recorder.refused(occasion, None, &decision.into(), &[]);
            return decision;
        }
        let decision = self.without_flow(frame, arrival, why);
        let is_ip = packet.src().is_some() || matches!(packet.network, Network::Arp(_));
        if !is_ip && packet.recursion == 0 && decision.verdict.forwards() {
            self.cx.account.counters.not_ip += 1;
        }
        decision
    }

    fn refuse_flowless(&mut self, occasion: &EventContext<'_>, verdict: Verdict, reason: Reason) -> Decision {
        let decision = Decision::refuse(verdict, reason, FunctionId::ENGINE);
        self.cx.refused(self.runner.chains(), occasion, None, &decision.into(), &[]);
        decision
    }

    fn without_flow(&mut self, frame: &Frame<'_>, arrival: &Arrival<'_>, why: Flowless) -> Decision {
        let policy = self.cx.settings.flow_memory;
        if why == Flowless::NoRoom && self.cx.settings.prevention && policy.refuses() {
            // Without mixed policies the packet's class makes no difference.
            if self.runner.chains().policies().is_mixed() {
                let whence = self.packet_origin(frame, arrival.decoded());
                self.cx.account.fid = self.runner.class_of(&whence, arrival.decoded(), frame.now);
            }
            return self.refuse_flowless(&arrival.occasion, verdict_of(policy), Reason::FlowMemory);
        }
        if let Flowless::Shed(fid) = why {
            self.cx.account.fid = fid;
            return self.decide_shed(&arrival.occasion, None);
        }
        let whence = self.packet_origin(frame, arrival.decoded());
        let judged = self.runner.without_flow(&mut self.cx, &whence, arrival.packet, &arrival.occasion);
        self.flows.leave_below(judged.effects.left);
        judged.decision
    }

    /// Finds or makes the flow of a packet. `sheds`: overload; a packet of a shed class makes none.
    fn flow_of(&mut self, frame: &Frame<'_>, packet: &Decoded, sheds: bool) -> Result<FlowOf, Flowless> {
        // An ICMP error belongs to the flow that it quotes.
        let whence = self.packet_origin(frame, packet);
        self.cx.position.tenant = whence.tenant;
        let about = whence.key_about(self.cx.settings, packet);
        if let Some(key) = about {
            match self.flows.find(&key, frame.now) {
                // An unopened flow has sent no packet that an error could quote.
                Find::Found { id, .. } if self.is_unopened(id) => {}
                Find::Found { id, direction } => {
                    let entry = self.flows.get(id).zip(packet.src());
                    let direction = entry.map_or(direction, |(entry, src)| entry.icmp_error_direction(src));
                    return Ok(FlowOf { id, direction, related: Some(true), answers: false });
                }
                Find::Stale { id } => self.end_stale(id),
                Find::Missing => {}
            }
        }
        // An ICMPv4 error about an unknown flow opens none; an ICMPv6 error has a flow of its own, as in
        // Suricata.
        if packet.is_icmpv4_error() {
            return Err(Flowless::Apart);
        }
        let key = whence.key(self.cx.settings, packet).ok_or(Flowless::Apart)?;
        let related = about.map(|about| about == key);
        match self.flows.find(&key, frame.now) {
            Find::Found { id, direction } => {
                let answers = self.flows.get(id).is_some_and(|entry| key.is_reply_to(entry.key()));
                if !(answers && self.flows.get(id).is_some_and(|entry| self.may_be_opened_by_other(entry))) {
                    return Ok(FlowOf { id, direction, related, answers });
                }
                // The other side's packets were refused: this packet is the first of a flow of its own. No
                // level may refuse its answers.
                if self.flows.get(id).is_some_and(|entry| !entry.is_at_host()) {
                    self.raise(id);
                }
                self.end_flow(id, EndReason::Forced);
                // Frees the key at once, also if the old flow has not left its level yet.
                self.flows.table_mut().leave_key(id);
            }
            Find::Stale { id } => self.end_stale(id),
            Find::Missing => {}
        }
        if sheds && let Some(fid) = self.shed_opening(&whence, packet, frame.now) {
            return Err(Flowless::Shed(fid));
        }
        Ok(FlowOf::opened(self.new_flow(&key, frame, packet)?, related))
    }

    fn is_unopened(&self, id: FlowId) -> bool {
        self.flows.get(id).is_some_and(Entry::is_unopened)
    }

    fn new_flow(&mut self, key: &FlowKey, frame: &Frame<'_>, packet: &Decoded) -> Result<FlowId, Flowless> {
        // Up to two flows end: one of the tenant for its quota, and one of any tenant for the table.
        for _ in 0..3 {
            let place = self.cx.position.place;
            match self.flows.open(key, self.runner.chains(), packet, frame.now, place) {
                FlowAdmission::Flow(id) => {
                    if let Some(entry) = self.flows.get_mut(id) {
                        self.cx.account.tally.flow(entry.fid);
                        if let Some(origin) = &self.cx.position.origin {
                            entry.ext.rare_mut().origin = Some(Arc::clone(origin));
                        }
                    }
                    return Ok(id);
                }
                FlowAdmission::Evict(id) => self.end_flow(id, EndReason::Forced),
                FlowAdmission::OverQuota { gives_way } => {
                    self.runner.chains().quotas.note(key.tenant(), gives_way.is_some());
                    self.runner.report_exceeded(&mut self.cx, key.tenant(), QuotaKind::Flows);
                    let Some(id) = gives_way else { break };
                    self.end_flow(id, EndReason::Forced);
                }
                FlowAdmission::Full => break,
            }
        }
        self.cx.account.counters.no_flow += 1;
        Err(Flowless::NoRoom)
    }

    /// The packet as a TCP segment, the form that the stream engine takes.
    fn segment<'a>(&mut self, view: &PacketView<'a>) -> Option<Segment<'a>> {
        segment(view, || self.cx.checksums.segment_counts(view))
    }

    /// Handles a packet of a flow; `related` and `answers`: as in [`FlowOf`]. Returns the packet's flow,
    /// which may be a new one.
    fn in_flow(
        &mut self,
        frame: &Frame<'_>,
        arrival: &Arrival<'_>,
        mut id: FlowId,
        related: Option<bool>,
        answers: bool,
    ) -> (Option<FlowId>, Decision) {
        let (packet, length) = (arrival.decoded(), arrival.length());
        let opening = if self.may_open_anew(packet, id) { self.segment(arrival.packet) } else { None };
        let came = arrival.occasion.direction;
        let anew = opening.is_some_and(|segment| self.opens_anew(id, &segment, came));
        if anew {
            match self.replace_flow(id, frame, packet) {
                Ok(new) => id = new,
                Err(why) => return (None, self.without_flow(frame, arrival, why)),
            }
        }
        let mut opened = None;
        let arrival = arrival.directed(if anew { Direction::ToServer } else { came }, &mut opened);
        if let Some(decision) = self.handle_decided(arrival, id, length) {
            return (Some(id), decision);
        }
        let wanting = self.wants_function(arrival, id, length);
        if let Some(Wanting::Refuses(decision)) = wanting {
            return (Some(id), decision);
        }
        let mut outcome = Outcome::default();
        let tracked = match self.track_session(frame, arrival, id, opening, &mut outcome) {
            Ok(tracked) => tracked,
            Err(why) => return (None, self.without_flow(frame, arrival, why)),
        };
        let (id, mut direction) = (tracked.id, tracked.direction);
        if related == Some(true) {
            // The quoted packet may have been sent by the level below.
            self.sync_from_level(id);
        }
        let tcp = tracked.is_tcp.then_some(&outcome);
        let mut proves = related != Some(true);
        if tcp.is_none() && proves {
            (direction, proves) = self.direction_of_datagram(arrival.packet, id, direction);
        }
        let mut accounted = self.flows.count(id, direction, length, frame.now, proves);
        if answers
            && packet.ports().is_none()
            && direction == Direction::ToServer
            && self.chains().judges_headers()
        {
            // Protocols whose flows count one direction until an answer comes.
            accounted.established = self.flows.note_answer(id);
        }
        if let Some(state) = tcp.and_then(|o| o.flow_state) {
            self.flows.set_state(id, tcp_state(state));
        }
        let mut turned = None;
        let arrival = arrival.directed(direction, &mut turned);
        let of_flow = FlowPacket { id, related, wanting, established: accounted.established };
        (Some(id), self.judge_tracked(arrival, &of_flow, tcp, tracked.before))
    }

    /// Notes a packet of a flow whose session was tracked, and has functions judge it.
    #[inline]
    fn judge_tracked(
        &mut self,
        arrival: &Arrival<'_>,
        of_flow: &FlowPacket,
        tcp: Option<&Outcome>,
        before: Option<Connection>,
    ) -> Decision {
        let FlowPacket { id, related, wanting, mut established } = *of_flow;
        let (packet, occasion) = (arrival.decoded(), &arrival.occasion);
        let direction = occasion.direction;
        let Some(entry) = self.flows.get_mut(id) else { return Decision::CONTINUE };
        if related != Some(true) {
            renew_matches(self.runner.chains(), entry, packet, direction);
        }
        note_headers(self.cx.settings, entry, arrival, related);
        let mut events: SmallVec<[StreamEvent; 4]> = SmallVec::new();
        if let Some(outcome) = tcp {
            events.extend(outcome.events.iter());
            established = was_established(self.cx.settings, occasion, outcome);
        }
        let forwards_all = self.runner.chains().forwards_all(entry.fid);
        let exception = tcp.and_then(|o| o.exception).filter(|_| !forwards_all);
        if let Some((target, policy)) = exception {
            if !entry.ext.exceptions.contains(&(target, policy)) {
                entry.ext.exceptions.push((target, policy));
            }
            self.cx.account.counters.exceptions.add(target, policy);
        }
        let passed = entry.ext.standing.course(entry.state()) == PacketDisposition::Uninspected;
        for event in packet.events.as_slice() {
            self.cx.recorder.anomaly(occasion, Some(entry), Anomaly::Decode(*event));
        }
        for event in &events {
            if let Some(count) = self.cx.account.counters.stream_events.0.get_mut(*event as usize) {
                *count += 1;
            }
            self.cx.recorder.anomaly(occasion, Some(entry), Anomaly::Stream(*event));
        }
        if let Some((target, policy)) = exception
            && policy != ExceptionPolicy::Ignore
        {
            return self.exception(occasion, id, tcp, target, policy, &events);
        }
        let handling = PacketHandling {
            flow: Some(id),
            inspect: !passed,
            spared: passed,
            established,
            related,
            restored: false,
            wanting: wanting.map(Wanting::function),
        };
        self.judged(arrival, id, tcp, &events, handling, before)
    }

    /// Runs the functions of a flow's path on a packet. Where Suricata has no flow, detection receives the
    /// packet without one.
    fn judged(
        &mut self,
        arrival: &Arrival<'_>,
        id: FlowId,
        tcp: Option<&Outcome>,
        events: &[StreamEvent],
        handling: PacketHandling,
        before: Option<Connection>,
    ) -> Decision {
        let (packet, occasion) = (arrival.decoded(), &arrival.occasion);
        let alone = !packet.wants_flow();
        let handling = PacketHandling { inspect: handling.inspect && !alone, ..handling };
        let Some(entry) = self.flows.get_mut(id) else { return Decision::CONTINUE };
        let mut judged = self.runner.functions(&mut self.cx, entry, occasion, tcp, events, handling);
        if alone && (judged.decision.verdict.forwards() || !self.cx.settings.prevention) {
            let alone = self.runner.payload_alone(&mut self.cx, entry, arrival.packet, occasion);
            if !alone.decision.verdict.forwards() {
                entry.ext.standing.note_refusal(&alone.decision);
            }
            judged.join(alone);
        }
        let Judgement { decision, mut effects } = judged;
        if let Some(before) = before {
            if self.is_refused_by_headers(&decision) {
                self.put_back(id, &before, arrival);
            }
            self.flows.checkpoint = Some(before.session);
        }
        let Some(entry) = self.flows.get_mut(id) else { return decision };
        if tcp.is_some_and(|o| o.state == TcpState::Closed && o.previous != o.state) {
            effects |= self.runner.drop_overlap_if_over(entry);
        }
        self.apply(id, effects);
        self.mark(id, &decision);
        self.offer_if_unjudged(id, &decision, packet);
        decision
    }

    /// Tracks the session of a TCP segment. The packet may begin another connection, or the flow may prove to
    /// be reversed.
    fn track_session(
        &mut self,
        frame: &Frame<'_>,
        arrival: &Arrival<'_>,
        id: FlowId,
        opening: Option<Segment<'_>>,
        outcome: &mut Outcome,
    ) -> Result<Tracked, Flowless> {
        let direction = arrival.occasion.direction;
        let mut tracked = Tracked { id, direction, is_tcp: false, before: None };
        let Some(segment) = opening.or_else(|| self.segment(arrival.packet)) else { return Ok(tracked) };
        if self.flows.get(id).is_none_or(|entry| entry.key().protocol() != 6) {
            return Ok(tracked);
        }
        self.make_session_room(id, &segment);
        self.raise_if_ending(id, &segment);
        self.sync_session(id, &segment, tracked.direction, frame.now);
        tracked.before = self.checkpoint(id, &segment, direction);
        self.track(id, &segment, tracked.direction, frame.now, outcome);
        self.publish(id, outcome);
        // The session of before is not that of this flow any more, or has its sides the other way round.
        if (outcome.reuse || outcome.reverse)
            && let Some(before) = tracked.before.take()
        {
            self.flows.checkpoint = Some(before.session);
        }
        if outcome.reuse {
            (tracked.id, tracked.direction) = self.begin_anew(id, &segment, frame, arrival.decoded())?;
            self.track(tracked.id, &segment, tracked.direction, frame.now, outcome);
        }
        if outcome.reverse {
            self.reverse(tracked.id);
            tracked.direction = tracked.direction.flip();
        }
        tracked.is_tcp = true;
        Ok(tracked)
    }

    /// The connection as it is before a segment that may move it, where a function that judges by headers may
    /// keep the segment from its receiver.
    fn checkpoint(&mut self, id: FlowId, segment: &Segment<'_>, direction: Direction) -> Option<Connection> {
        if !self.cx.settings.prevention || !self.chains().judges_headers() {
            return None;
        }
        let entry = self.flows.get(id).filter(|entry| entry.ext.session.may_be_moved(segment, direction))?;
        if self.chains().header_part(entry.path).is_empty() {
            return None;
        }
        let mut kept = self.flows.checkpoint.take().unwrap_or_default();
        let entry = self.flows.get(id)?;
        entry.ext.session.checkpoint(entry.ext.streams.as_deref(), &mut kept);
        Some(Connection { session: kept, state: entry.state() })
    }

    /// A segment was refused by its headers: its connection is where it was. The flow's record names the
    /// flags.
    fn put_back(&mut self, id: FlowId, before: &Connection, arrival: &Arrival<'_>) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let FlowExt { session, streams, .. } = &mut entry.ext;
        session.restore(&before.session, streams.as_deref_mut());
        if let TransportLayer::Tcp(tcp) = &arrival.decoded().transport {
            entry.ext.refused_flags[arrival.occasion.direction] |= tcp.flags;
        }
        if entry.state() != before.state {
            self.flows.set_state(id, before.state);
        }
    }

    /// The direction of a packet without a session, and whether it proves that its sender speaks. Only such a
    /// packet shows which side begins a flow: earlier ones are ignored by the receiver.
    fn direction_of_datagram(
        &mut self,
        packet: &PacketView<'_>,
        id: FlowId,
        direction: Direction,
    ) -> (Direction, bool) {
        let Some(flags) = self.flows.get(id).map(|entry| entry.flags) else { return (direction, true) };
        let (here, there) = match direction {
            Direction::ToServer => (FlowFlags::TO_SERVER_SEEN, FlowFlags::TO_CLIENT_SEEN),
            Direction::ToClient => (FlowFlags::TO_CLIENT_SEEN, FlowFlags::TO_SERVER_SEEN),
        };
        let proves = flags.contains(here) || !self.cx.checksums.is_thrown_away(self.cx.settings, packet);
        let begins = proves && !flags.intersects(here | there) && direction == Direction::ToClient;
        if !begins || !matches!(packet.decoded().transport, TransportLayer::Udp(_)) {
            return (direction, proves);
        }
        self.reverse(id);
        (direction.flip(), proves)
    }

    /// Counts a packet of a flow that no function judges.
    pub(super) fn count_unjudged(&mut self, arrival: &Arrival<'_>, id: FlowId, length: u32) {
        let occasion = &arrival.occasion;
        self.flows.count(id, occasion.direction, length, occasion.now, true);
        if let Some(entry) = self.flows.get_mut(id) {
            note_way(self.cx.settings, entry, arrival);
        }
    }

    /// Handles a packet of a decided flow: it is counted and gets the flow's decision.
    fn handle_decided(&mut self, arrival: &Arrival<'_>, id: FlowId, length: u32) -> Option<Decision> {
        let occasion = &arrival.occasion;
        let entry = self.flows.get(id)?;
        let decision = match entry.ext.standing.course(entry.state()) {
            PacketDisposition::Judged | PacketDisposition::Uninspected => return None,
            PacketDisposition::Bypassed => return self.bypassed(arrival, id, length),
            PacketDisposition::Refused(decision) => decision,
        };
        self.count_unjudged(arrival, id, length);
        let entry = self.flows.get_mut(id)?;
        for event in arrival.decoded().events.as_slice() {
            self.cx.recorder.anomaly(occasion, Some(entry), Anomaly::Decode(*event));
        }
        if let TransportLayer::Tcp(tcp) = &arrival.decoded().transport
            && entry.ext.session.exists()
        {
            entry.ext.refused_flags[occasion.direction] |= tcp.flags;
        }
        let chains = self.runner.chains();
        self.cx.refused(chains, occasion, Some(&mut *entry), &decision.into(), &[]);
        entry.ext.standing.note_told(occasion.direction);
        self.mark_unenforced(id);
        self.offer(id, PacketDisposition::Refused(decision), arrival.decoded());
        Some(decision)
    }

    /// Handles a packet of a bypassed flow: its session is tracked, and it is forwarded. `None`: the packet
    /// begins another connection.
    ///
    /// With real receivers, a SYN or SYN-ACK that the session refuses is not forwarded, where payload
    /// functions judge new flows of this class: it would open another connection, bypassed with this one.
    fn bypassed(&mut self, arrival: &Arrival<'_>, id: FlowId, length: u32) -> Option<Decision> {
        let occasion = &arrival.occasion;
        let followed = self.follow(arrival, id);
        if followed.as_ref().is_some_and(|outcome| outcome.reuse) {
            return None;
        }
        self.count_unjudged(arrival, id, length);
        let opens = matches!(&arrival.decoded().transport, TransportLayer::Tcp(tcp) if tcp.flags.contains(bartizan_packet::TcpFlags::SYN));
        if opens && followed.is_some_and(|outcome| self.must_not_open(id, &outcome)) {
            let decision = Decision::refuse(Verdict::Drop, Reason::StreamError, FunctionId::ENGINE);
            let entry = self.flows.get_mut(id)?;
            let chains = self.runner.chains();
            if self.cx.enforces(chains) {
                entry.ext.standing.note_refusal(&decision);
            }
            self.cx.refused(chains, occasion, Some(entry), &decision.into(), &[]);
            return Some(decision);
        }
        let entry = self.flows.get(id)?;
        self.cx.account.counters.note_bypassed(entry.is_at_host(), length);
        let decision = entry.ext.standing.unjudged_decision();
        self.mark(id, &decision);
        self.offer(id, PacketDisposition::Bypassed, arrival.decoded());
        Some(decision)
    }

    /// Whether the session of a bypassed flow has refused a segment that opens a connection and that its
    /// receiver may accept all the same.
    fn must_not_open(&self, id: FlowId, outcome: &Outcome) -> bool {
        let refused = outcome.rejected || matches!(outcome.advice, Advice::Drop(_));
        let by_content = || self.flows.get(id).is_some_and(|entry| entry.ext.by_content);
        refused && self.cx.settings.has_real_receivers() && by_content()
    }

    /// Handles a packet of a flow whose policy forwards nothing while a function of its path is missing: the
    /// packet is counted, and refused before its session sees it. So the session continues when the sender
    /// retransmits, and the bytes do not count as inspected. Under a staged policy the refusal is only
    /// reported.
    #[inline]
    fn wants_function(&mut self, arrival: &Arrival<'_>, id: FlowId, length: u32) -> Option<Wanting> {
        if self.runner.lifecycle.away().is_empty() {
            return None;
        }
        let entry = self.flows.get(id)?;
        let chains = self.runner.chains();
        let path = match entry.ext.standing.course(entry.state()) {
            PacketDisposition::Uninspected => chains.header_part(entry.path),
            _ => entry.path,
        };
        let wanting = self.runner.refused_for_want(path, entry.fid, self.cx.settings.prevention)?;
        let occasion = &arrival.occasion;
        let decision = match wanting {
            Wanting::Refuses(decision) => decision,
            Wanting::WouldRefuse(decision) => {
                let entry = self.flows.get_mut(id);
                self.runner.would_refuse_for_want(&mut self.cx, occasion, entry, &decision);
                return Some(wanting);
            }
        };
        self.count_unjudged(arrival, id, length);
        let entry = self.flows.get_mut(id)?;
        entry.ext.standing.note_refusal(&decision);
        self.cx.recorder.refused(occasion, Some(entry), &PacketVerdict { decision, reject: None }, &[]);
        Some(wanting)
    }

    /// Tracks the session of a bypassed flow, if it has one.
    fn follow(&mut self, arrival: &Arrival<'_>, id: FlowId) -> Option<Outcome> {
        self.flows.get(id).filter(|e| e.key().protocol() == 6 && e.ext.session.exists())?;
        let segment = self.segment(arrival.packet)?;
        self.raise_if_ending(id, &segment);
        self.sync_session(id, &segment, arrival.occasion.direction, arrival.occasion.now);
        let entry = self.flows.get_mut(id)?;
        Some(self.runner.follow(self.cx.settings, entry, &segment, &arrival.occasion))
    }

    /// Applies an exception policy. It concerns inspection, so no payload function sees the packet.
    fn exception(
        &mut self,
        occasion: &EventContext<'_>,
        id: FlowId,
        tcp: Option<&Outcome>,
        target: ExceptionTarget,
        policy: ExceptionPolicy,
        events: &[StreamEvent],
    ) -> Decision {
        let Some(entry) = self.flows.get_mut(id) else { return Decision::CONTINUE };
        if let Some(decision) = apply_policy(self.cx.settings, entry, target, policy) {
            let chains = self.runner.chains();
            if self.cx.enforces(chains) {
                entry.ext.standing.note_refusal(&decision);
            }
            self.cx.refused(chains, occasion, Some(&mut *entry), &decision.into(), &[]);
            entry.ext.standing.note_told(occasion.direction);
            self.mark_unenforced(id);
            self.raise_if_refused(id);
            return decision;
        }
        let mut decision = entry.ext.standing.unjudged_decision();
        let mut effects = Effects::NONE;
        if policy == ExceptionPolicy::Bypass {
            effects |= self.runner.end_payload(entry);
        }
        if policy != ExceptionPolicy::Bypass || !entry.path.is_empty() {
            let established = tcp.is_some_and(|o| o.established);
            let handling = PacketHandling {
                flow: Some(id),
                inspect: false,
                spared: true,
                established,
                related: None,
                restored: false,
                wanting: None,
            };
            let judged = self.runner.functions(&mut self.cx, entry, occasion, tcp, events, handling);
            decision = judged.decision;
            effects |= judged.effects;
        }
        self.apply(id, effects);
        self.mark(id, &decision);
        decision
    }

    /// TCP tracking of a segment, with reassembly when a payload function is on the path.
    fn track(
        &mut self,
        id: FlowId,
        segment: &Segment<'_>,
        direction: Direction,
        now: Timestamp,
        outcome: &mut Outcome,
    ) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let effects = self.runner.track(self.cx.settings, entry, segment, direction, now, outcome);
        self.apply(id, effects);
    }

    /// Ends a flow, and begins the one that a packet opens with the same key.
    fn replace_flow(&mut self, id: FlowId, frame: &Frame<'_>, packet: &Decoded) -> Result<FlowId, Flowless> {
        let key = self.packet_origin(frame, packet).key(self.cx.settings, packet).ok_or(Flowless::Apart)?;
        self.replace_flow_by(id, &key, frame, packet)
    }

    fn replace_flow_by(
        &mut self,
        id: FlowId,
        key: &FlowKey,
        frame: &Frame<'_>,
        packet: &Decoded,
    ) -> Result<FlowId, Flowless> {
        self.end_flow(id, EndReason::TcpReuse);
        self.new_flow(key, frame, packet)
    }

    /// Ends a flow in whose place a segment begins another connection, or answers the SYN that has begun one.
    /// Gives the new flow, and the direction of the segment in it.
    fn begin_anew(
        &mut self,
        id: FlowId,
        segment: &Segment<'_>,
        frame: &Frame<'_>,
        packet: &Decoded,
    ) -> Result<(FlowId, Direction), Flowless> {
        let syn = self.flows.get_mut(id).and_then(|entry| entry.ext.session.take_opening_syn(segment));
        let Some(syn) = syn else {
            return Ok((self.replace_flow(id, frame, packet)?, Direction::ToServer));
        };
        let key = self.packet_origin(frame, packet).key(self.cx.settings, packet).ok_or(Flowless::Apart)?;
        let new = self.replace_flow_by(id, &key.flipped(), frame, packet)?;
        self.make_session_room(new, segment);
        if let Some(entry) = self.flows.get_mut(new) {
            self.runner.begin_session(self.cx.settings, entry, &syn);
        }
        Ok((new, Direction::ToClient))
    }

    /// Reverses a flow that was picked up midstream in the wrong direction.
    fn reverse(&mut self, id: FlowId) {
        if let Some(entry) = self.flows.get_mut(id) {
            reverse(self.runner.chains(), entry);
        }
    }

    /// Whether a packet may open a new connection in a flow that has packets but no session, or that was
    /// refused with a connection that is closed. Called for each packet, so the flags are checked first.
    fn may_open_anew(&self, packet: &Decoded, id: FlowId) -> bool {
        let TransportLayer::Tcp(tcp) = &packet.transport else { return false };
        tcp.flags.contains(TcpFlags::SYN)
            && self.flows.get(id).is_some_and(|entry| {
                let came = Direction::BOTH.iter().any(|direction| entry.packets[*direction] > 0);
                let session = &entry.ext.session;
                // A flow's refusal concerns the connection that has ended.
                let is_left = !session.exists()
                    || entry.ext.standing.is_refused() && session.state() == TcpState::Closed;
                entry.key().protocol() == 6 && came && is_left
            })
    }

    /// Whether a segment opens a connection in a flow that began with stray segments, or replaces one that
    /// has ended: segments of no connection, or of another one, decide neither the opening side nor the
    /// flow's disposition.
    fn opens_anew(&self, id: FlowId, segment: &Segment<'_>, direction: Direction) -> bool {
        let config = &self.cx.settings.stream;
        let counts = segment.checksum_ok || !config.checksum_validation;
        counts && self.flows.get(id).is_some_and(|e| e.ext.session.starts_anew(segment, direction, config))
    }
}

/// Whether a connection counts as established for the rules that see a packet: as before the packet, since
/// the one that completes the handshake is not part of the established connection. A FIN can complete it as
/// well, with a request in its payload.
fn was_established(settings: &EngineSettings, occasion: &EventContext<'_>, outcome: &Outcome) -> bool {
    let brings_data = !occasion.payload().is_empty();
    let completes = outcome.previous == TcpState::SynRecv && outcome.state >= TcpState::Established;
    outcome.previous >= TcpState::Established
        || outcome.established_now && (outcome.previous == TcpState::None || brings_data)
        || completes && brings_data
        || is_shown_early(settings, occasion, outcome)
}

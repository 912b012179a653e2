// SPDX-License-Identifier: Apache-2.0
//! One decoded packet: its flow, TCP, application layer, functions, records.

use crate::chain::{Chains, Class, Matches};
use crate::functions::{Looks, is_shown_early};
use crate::identity::{flow_key, icmp_of, key_about, segment};
use crate::record::{Anomaly, Around, Entry, Fate, Occasion, Recorder};
use crate::settled::tcp_state;
use crate::standing::Course;
use crate::worker::{Frame, Worker, next_packet};
use bartizan_base::{Decision, Direction, Fid, FlowId, FunctionId, Reason, Verdict};
use bartizan_flow::tcp::TcpState;
use bartizan_flow::tcp::{
    Arrival, ExceptionPolicy, ExceptionTarget, HostPolicy, Outcome, Segment, StreamConfig, StreamContext,
    StreamEvent, TcpFlags, TcpSession,
};
use bartizan_flow::{EndReason, Find, FlowFlags, FlowKey, Insert};
use bartizan_function::header::{header_of_flow, header_of_packet, icmp_numbers};
use bartizan_function::{Model, Notes, PacketContext};
use bartizan_packet::{Decoded, PacketFlags, PacketView, Transport};

/// The flow of a packet.
struct FlowOf {
    id: FlowId,
    direction: Direction,
    /// Whether an ICMP error came with the flow that it is about; else that flow is not known. `None`: it is no error.
    related: Option<bool>,
}

/// Flows that end to make room for a session, at most: some have none.
pub(crate) const SESSIONS_ENDED: u32 = 4;

impl Worker {
    /// Handles one decoded packet, and counts what became of it.
    pub(crate) fn packet<'a>(
        &mut self,
        frame: &Frame<'_>,
        bytes: &'a [u8],
        packet: &'a Decoded,
        place: impl Into<Place<'a>>,
        recorder: &mut dyn Recorder,
    ) -> Decision {
        self.fid = Fid(0);
        self.place = next_packet(self.place);
        let decision = self.judge(frame, bytes, packet, &place.into(), recorder);
        if self.settings.prevention && decision.verdict.forwards() {
            self.note_checksum(&PacketView::new(bytes, packet));
        }
        if !self.train.took() {
            let acts = self.settings.prevention;
            self.tally.count(self.fid, &decision, packet.captured_len(), acts);
        }
        self.relieve(recorder);
        decision
    }

    fn judge(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        packet: &Decoded,
        place: &Place<'_>,
        recorder: &mut dyn Recorder,
    ) -> Decision {
        self.announce(recorder);
        let view = PacketView::new(bytes, packet);
        let mut occasion = Occasion {
            packet: &view,
            // What was found inside another packet is no packet of the capture.
            number: frame.number.filter(|_| !place.made),
            now: frame.now,
            generation: self.chains.generation,
            direction: Direction::ToServer,
            around: place.around,
            variables: &[],
        };
        let flow = if packet.wants_flow() && place.refused.is_none() {
            self.flow_of(frame, packet, recorder)
        } else {
            Err(Flowless::Apart)
        };
        let FlowOf { id, direction, related } = match flow {
            Ok(flow) => flow,
            Err(why) => return self.judge_flowless(frame, &occasion, why, place, recorder),
        };
        occasion.direction = direction;
        // Before the first event of the packet.
        self.fid = self.renew_class(id);
        if place.inner_refused {
            // What it carries does not go on, so neither does it.
            self.count_packet(id, direction, packet.captured_len(), frame.now, true);
            let decision = Decision::refuse(Verdict::Drop, Reason::TunnelInner, FunctionId::ENGINE);
            recorder.refused(&occasion, self.flows.get(id), &Fate { decision, reject: None }, &[]);
            return decision;
        }
        self.in_flow(frame, &occasion, (id, related), recorder)
    }

    /// Whether the receiver of a datagram or an ICMP message throws it away, as its checksums say: it is inspected and leaves, but nothing
    /// that it says counts for what comes after it. Asked before real receivers only, when their packets are checked
    /// (`stream.checksum-validation`, and what the capture settings say of checksums). For TCP the session says it.
    pub(crate) fn is_thrown_away(&self, view: &PacketView<'_>) -> bool {
        let counts =
            matches!(view.decoded().transport, Transport::Udp(_) | Transport::Icmp(_) | Transport::Icmpv6(_));
        counts
            && self.settings.has_real_receivers()
            && self.settings.stream.checksum_validation
            && self.checks_checksums()
            && (view.l4_checksum_ok() == Some(false)
                || view.ip_checksum_ok() == Some(false)
                    && !view.decoded().flags.contains(PacketFlags::REBUILT))
    }

    /// Judges a packet without a flow.
    fn judge_flowless(
        &mut self,
        frame: &Frame<'_>,
        occasion: &Occasion<'_>,
        why: Flowless,
        place: &Place<'_>,
        recorder: &mut dyn Recorder,
    ) -> Decision {
        let packet = occasion.packet.decoded();
        for event in packet.events.as_slice() {
            recorder.anomaly(occasion, None, Anomaly::Decode(*event));
        }
        if let bartizan_packet::Network::Arp(arp) = &packet.network {
            recorder.arp(occasion, arp);
        }
        if let Some(reason) = place.refused {
            let decision = Decision::refuse(Verdict::Drop, reason, FunctionId::ENGINE);
            recorder.refused(occasion, None, &Fate { decision, reject: None }, &[]);
            return decision;
        }
        if place.inner_refused && self.settings.prevention {
            // The last fragment of a datagram that does not go on.
            let decision = Decision::refuse(Verdict::Drop, Reason::TunnelInner, FunctionId::ENGINE);
            recorder.refused(occasion, None, &Fate { decision, reject: None }, &[]);
            return decision;
        }
        self.without_flow(frame, occasion, why, recorder)
    }

    /// Finds or makes the flow of a packet.
    fn flow_of(
        &mut self,
        frame: &Frame<'_>,
        packet: &Decoded,
        recorder: &mut dyn Recorder,
    ) -> Result<FlowOf, Flowless> {
        // An ICMP error belongs to the flow that it is about.
        let about = key_about(self, frame, packet);
        if let Some(key) = about {
            match self.flows.find(&key, frame.now) {
                Find::Found { id, direction } => {
                    let entry = self.flows.get(id).zip(packet.src());
                    let direction = entry.map_or(direction, |(entry, src)| entry.icmp_error_direction(src));
                    return Ok(FlowOf { id, direction, related: Some(true) });
                }
                Find::Stale { id } => self.end_stale(id, recorder),
                Find::Missing => {}
            }
        }
        // One about a flow that is not there opens none; of IPv6 it has a flow of its own, as in Suricata.
        if packet.is_icmpv4_error() {
            return Err(Flowless::Apart);
        }
        let key = flow_key(self, frame, packet).ok_or(Flowless::Apart)?;
        let related = about.map(|about| about == key);
        match self.flows.find(&key, frame.now) {
            Find::Found { id, direction } => return Ok(FlowOf { id, direction, related }),
            Find::Stale { id } => self.end_stale(id, recorder),
            Find::Missing => {}
        }
        let id = self.new_flow(&key, frame, packet, recorder)?;
        Ok(FlowOf { id, direction: Direction::ToServer, related })
    }

    pub(crate) fn new_flow(
        &mut self,
        key: &FlowKey,
        frame: &Frame<'_>,
        packet: &Decoded,
        recorder: &mut dyn Recorder,
    ) -> Result<FlowId, Flowless> {
        for _ in 0..2 {
            match self.flows.insert(key, frame.now) {
                Insert::Created { id } => {
                    let (number, began) = (self.next_flow, self.place);
                    self.next_flow += 1;
                    let generation = self.chains.generation;
                    let hash = self.flows.hash(key);
                    if let Some(entry) = self.flows.get_mut(id) {
                        entry.ext.matched_icmp = icmp_numbers(packet, Direction::ToServer);
                        let class = look_up(&self.chains, entry);
                        entry.fid = class.fid;
                        entry.path = class.path;
                        entry.generation = generation;
                        entry.ext.event_id = event_id(number, hash.0);
                        entry.ext.began = began;
                        entry.ext.vlan = packet.vlan;
                        entry.ext.icmp = icmp_of(packet);
                    }
                    return Ok(id);
                }
                Insert::Evict { id } => self.end_flow(id, EndReason::Forced, recorder),
                Insert::Full => break,
            }
        }
        self.counters.no_flow += 1;
        Err(Flowless::NoRoom)
    }

    /// A packet of a flow; `related`: as in [`FlowOf`].
    fn in_flow(
        &mut self,
        frame: &Frame<'_>,
        occasion: &Occasion<'_>,
        (id, related): (FlowId, Option<bool>),
        recorder: &mut dyn Recorder,
    ) -> Decision {
        let packet = occasion.packet.decoded();
        let rebuilt = packet.flags.contains(PacketFlags::REBUILT);
        let length = if rebuilt { packet.wire_len } else { packet.captured_len() };
        let mut proves = related != Some(true);
        let mut id = id;
        let mut opening = None;
        if self.may_open_on_strays(occasion, id) {
            opening = segment(self, occasion.packet);
        }
        let anew = opening.is_some_and(|segment| self.opens_on_strays(id, &segment, occasion.direction));
        if anew {
            match self.replace_flow(id, frame, packet, recorder) {
                Ok(new) => id = new,
                Err(why) => return self.without_flow(frame, occasion, why, recorder),
            }
        }
        let mut direction = if anew { Direction::ToServer } else { occasion.direction };
        let occasion = &Occasion { direction, ..*occasion };
        if let Some(decision) = self.settled(frame, occasion, id, length, recorder) {
            return decision;
        }
        // TCP may find that the packet begins another connection, or that the flow is the wrong way round.
        let mut outcome = Outcome::default();
        let mut tcp = None;
        if let Some(segment) = opening.or_else(|| segment(self, occasion.packet))
            && self.flows.get(id).is_some_and(|e| e.key().protocol() == 6)
        {
            self.make_session_room(id, &segment, recorder);
            self.track(id, &segment, direction, frame, &mut outcome);
            if outcome.reuse {
                match self.replace_flow(id, frame, packet, recorder) {
                    Ok(new) => id = new,
                    Err(why) => return self.without_flow(frame, occasion, why, recorder),
                }
                direction = Direction::ToServer;
                self.track(id, &segment, direction, frame, &mut outcome);
            }
            if outcome.reverse {
                self.reverse(id);
                direction = direction.flip();
            }
            tcp = Some(&outcome);
        }
        if let Some(flags) = self.flows.get(id).map(|entry| entry.flags).filter(|_| tcp.is_none() && proves) {
            let (here, there) = match direction {
                Direction::ToServer => (FlowFlags::TO_SERVER_SEEN, FlowFlags::TO_CLIENT_SEEN),
                Direction::ToClient => (FlowFlags::TO_CLIENT_SEEN, FlowFlags::TO_SERVER_SEEN),
            };
            proves = flags.contains(here) || !self.is_thrown_away(occasion.packet);
            // Who really begins it: before it came only what is thrown away.
            let begins = proves && !flags.intersects(here | there) && direction == Direction::ToClient;
            if begins && matches!(packet.transport, Transport::Udp(_)) {
                self.reverse(id);
                direction = direction.flip();
            }
        }
        let accounted = self.count_packet(id, direction, length, frame.now, proves);
        if let Some(state) = tcp.and_then(|o| o.flow_state) {
            self.flows.set_state(id, tcp_state(state));
        }
        let occasion = Occasion { direction, ..*occasion };
        let Some(entry) = self.flows.get_mut(id) else { return Decision::CONTINUE };
        if related != Some(true) {
            renew_matches(&self.chains, entry, packet, direction);
        }
        if let Some(ttl) = packet.ttl() {
            let seen = &mut entry.ext.ttl[direction];
            *seen = Some(seen.map_or((ttl, ttl), |(least, most)| (least.min(ttl), most.max(ttl))));
        }
        if self.settings.keep_macs
            && let Some(macs) = occasion.packet.mac_addresses()
        {
            entry.ext.note_macs(direction, macs);
        }
        if direction == Direction::ToClient && entry.ext.icmp_response.is_none() && related != Some(true) {
            entry.ext.icmp_response = icmp_of(packet);
        }
        let mut events: smallvec::SmallVec<[StreamEvent; 4]> = smallvec::SmallVec::new();
        let mut established = accounted.established;
        if let Some(outcome) = tcp {
            events.extend(outcome.events.iter());
            // As it was before this packet: the one that completes the handshake is not part of what it opens.
            // A FIN can complete it as well, and bring a request along.
            let brings_data = !occasion.packet.payload().is_empty();
            let completes = outcome.previous == TcpState::SynRecv && outcome.state >= TcpState::Established;
            established = outcome.previous >= TcpState::Established
                || outcome.established_now && (outcome.previous == TcpState::None || brings_data)
                || completes && brings_data
                || is_shown_early(&self.settings, &occasion, outcome);
        }
        let exception = tcp.and_then(|o| o.exception);
        if let Some(exception) = exception
            && !entry.ext.exceptions.contains(&exception)
        {
            entry.ext.exceptions.push(exception);
        }
        if let Some(exception) = exception {
            self.counters.exceptions.add(exception);
        }
        let passed = entry.ext.standing.course(entry.state()) == Course::Uninspected;
        for event in packet.events.as_slice() {
            recorder.anomaly(&occasion, Some(entry), Anomaly::Decode(*event));
        }
        for event in &events {
            if let Some(count) = self.counters.stream_events.0.get_mut(*event as usize) {
                *count += 1;
            }
            recorder.anomaly(&occasion, Some(entry), Anomaly::Stream(*event));
        }
        if let Some((target, policy)) = exception
            && policy != ExceptionPolicy::Ignore
        {
            return self.exception(&occasion, id, tcp, (target, policy), &events, recorder);
        }
        let looks = Looks { inspect: !passed, spared: passed, established, related, restored: false };
        self.functions(&occasion, id, tcp, &events, looks, recorder)
    }

    /// Does what an exception policy says. It speaks about inspection, so no payload function looks at the packet.
    fn exception(
        &mut self,
        occasion: &Occasion<'_>,
        id: FlowId,
        tcp: Option<&Outcome>,
        (target, policy): (ExceptionTarget, ExceptionPolicy),
        events: &[StreamEvent],
        recorder: &mut dyn Recorder,
    ) -> Decision {
        if let Some(decision) = self.apply_policy(id, target, policy) {
            recorder.refused(occasion, self.flows.get(id), &Fate { decision, reject: None }, &[]);
            if let Some(entry) = self.flows.get_mut(id) {
                entry.ext.standing.note_told(occasion.direction);
            }
            return decision;
        }
        if policy == ExceptionPolicy::Bypass {
            self.end_payload(id);
            if self.path_of(id).is_empty() {
                return Decision::CONTINUE;
            }
        }
        let established = tcp.is_some_and(|o| o.established);
        let looks = Looks { inspect: false, spared: true, established, related: None, restored: false };
        self.functions(occasion, id, tcp, events, looks, recorder)
    }

    /// What an exception policy makes of a packet, if it refuses it, and of its flow.
    pub(crate) fn apply_policy(
        &mut self,
        id: FlowId,
        target: ExceptionTarget,
        policy: ExceptionPolicy,
    ) -> Option<Decision> {
        let entry = self.flows.get_mut(id)?;
        let reason = match target {
            ExceptionTarget::Midstream => Reason::StreamMidstream,
            ExceptionTarget::SessionMemory => Reason::StreamMemory,
            ExceptionTarget::ReassemblyMemory => Reason::StreamReassembly,
            ExceptionTarget::AppLayerError => Reason::AppLayerError,
            ExceptionTarget::AppLayerMemory => Reason::AppLayerMemory,
        };
        if policy.refuses() && self.settings.prevention {
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

    /// Prevention: where `stream.memcap` has no room for the session that a SYN opens, sessions that are closed or half-open give way, the
    /// oldest first, as in a full flow table; else a flood of SYNs would have everyone else refused.
    fn make_session_room(&mut self, id: FlowId, segment: &Segment<'_>, recorder: &mut dyn Recorder) {
        for _ in 0..SESSIONS_ENDED {
            let opens = segment.has(TcpFlags::SYN)
                && self.flows.get(id).is_some_and(|entry| !entry.ext.session.exists());
            if !opens
                || !self.settings.prevention
                || TcpSession::has_room(&self.settings.stream, &self.stream_counters)
            {
                return;
            }
            match self.flows.session_to_end(self.clock) {
                Some(other) if other != id => self.end_flow(other, EndReason::Forced, recorder),
                _ => return,
            }
        }
    }

    /// TCP tracking of a segment, with reassembly when a payload function is on the path.
    fn track(
        &mut self,
        id: FlowId,
        segment: &Segment<'_>,
        direction: Direction,
        frame: &Frame<'_>,
        outcome: &mut Outcome,
    ) {
        let feeds = self.fit_streams(id, segment, frame.now);
        let policy = self.host_policy(id, direction);
        let Some(entry) = self.flows.get_mut(id) else { return };
        let mut config = &self.settings.stream;
        let one_sided;
        // What a session is taken for is decided at its beginning.
        if config.inline() && !entry.ext.session.is_under_way() && self.chains.allows_one_sided(entry.fid) {
            one_sided = StreamConfig { one_sided: true, ..*config };
            config = &one_sided;
        }
        let mut context =
            StreamContext { config, counters: &mut self.stream_counters, budget: &mut self.budget };
        let arrival = Arrival { direction, now: frame.now, policy };
        let ext = &mut entry.ext;
        let streams = ext.streams.as_deref_mut().filter(|_| feeds);
        ext.session.handle(segment, arrival, streams, &mut context, outcome);
    }

    /// Ends a flow, and begins the one that a packet opens on its tuple.
    fn replace_flow(
        &mut self,
        id: FlowId,
        frame: &Frame<'_>,
        packet: &Decoded,
        recorder: &mut dyn Recorder,
    ) -> Result<FlowId, Flowless> {
        let key = flow_key(self, frame, packet);
        self.end_flow(id, EndReason::TcpReuse, recorder);
        self.new_flow(&key.ok_or(Flowless::Apart)?, frame, packet, recorder)
    }

    /// Whether a flow has no session yet although packets of it came, and this one may open one: asked of each packet, so it looks at the
    /// flags first.
    fn may_open_on_strays(&self, occasion: &Occasion<'_>, id: FlowId) -> bool {
        let Transport::Tcp(tcp) = &occasion.packet.decoded().transport else { return false };
        TcpFlags::from_bits_retain(tcp.flags.bits()).contains(TcpFlags::SYN)
            && self.flows.get(id).is_some_and(|entry| {
                let came = Direction::BOTH.iter().any(|direction| entry.packets[*direction] > 0);
                entry.key().protocol() == 6 && came && !entry.ext.session.exists()
            })
    }

    /// Whether a segment opens a connection in a flow that strays began: what belongs to no connection decides neither which
    /// side opens it, nor what becomes of it.
    fn opens_on_strays(&self, id: FlowId, segment: &Segment<'_>, direction: Direction) -> bool {
        let config = &self.settings.stream;
        let counts = segment.checksum_ok || !config.checksum_validation;
        counts && self.flows.get(id).is_some_and(|e| e.ext.session.starts_anew(segment, direction, config))
    }

    /// How the receiver of a direction of a flow puts overlapping data together.
    pub(crate) fn host_policy(&self, id: FlowId, direction: Direction) -> HostPolicy {
        let Some(entry) = self.flows.get(id) else { return HostPolicy::default() };
        self.settings.hosts.stream(match direction {
            Direction::ToServer => entry.key().destination(),
            Direction::ToClient => entry.key().source(),
        })
    }

    /// Turns a flow that was picked up the wrong way round.
    pub(crate) fn reverse(&mut self, id: FlowId) {
        if let Some(entry) = self.flows.get_mut(id) {
            entry.flip();
            if let Some(rate) = entry.ext.rate.as_deref_mut() {
                rate.turn();
            }
            // Policies hold for both directions, rules for the side that opens a flow.
            look_up(&self.chains, entry);
        }
    }

    /// A packet that belongs to no flow: rules on headers and decode events still look at it.
    ///
    /// What is not IP, and fragments before they are put together, are no matter of header functions: a datagram's
    /// decision is that of its last fragment.
    fn without_flow(
        &mut self,
        frame: &Frame<'_>,
        occasion: &Occasion<'_>,
        why: Flowless,
        recorder: &mut dyn Recorder,
    ) -> Decision {
        let refuses = self.settings.prevention && self.settings.flow_memory.refuses();
        if why == Flowless::NoRoom && refuses {
            let verdict = verdict_of(self.settings.flow_memory);
            let decision = Decision::refuse(verdict, Reason::FlowMemory, FunctionId::ENGINE);
            recorder.refused(occasion, None, &Fate { decision, reject: None }, &[]);
            return decision;
        }
        let chains = std::sync::Arc::clone(&self.chains);
        let packet = occasion.packet.decoded();
        // By its own header, also if it is about a flow that is not known: what it quotes can be made up.
        let mut matches = Matches::new();
        let tenant = self.tenant_of(frame, packet);
        let header = header_of_packet(packet, tenant, frame.link);
        let class = header.map(|header| chains.classifier.classify(&header, &mut matches));
        let headers = class.is_some() && !packet.is_fragment();
        self.fid = class.map(|c| c.fid).unwrap_or_default();
        let related = packet.about().map(|_| false);
        let waits = packet.is_fragment() && self.settings.defrag.hold;
        let mut notes =
            Notes { fid: self.fid, tenant, related, waits, matches: &matches, ..Notes::default() };
        let mut reject = None;
        self.findings.clear();
        self.edits.clear();
        for function in &chains.functions {
            if class.is_some_and(|c| !c.path.contains(function.id()))
                || !headers && function.spec().model != Model::Payload
            {
                continue;
            }
            let Some(state) = self.states.get_mut(usize::from(function.id().0)) else { continue };
            let mut slot = None;
            let mut context = PacketContext {
                now: occasion.now,
                packet: Some(occasion.packet),
                direction: occasion.direction,
                flow: None,
                app: None,
                stream: None,
                payload_in_stream: false,
                stream_events: &[],
                app_events: &[],
                again: false,
                detection_done: false,
                notes: &notes,
                worker: state,
                slot: &mut slot,
                staged: &mut 0,
                reject: &mut reject,
                findings: &mut self.findings,
                edits: &mut self.edits,
                prevention: self.settings.prevention,
            };
            let mut decision = function.packet(&mut context);
            if function.spec().model == Model::Payload {
                decision = decision.strictest(function.payload(&mut context));
            }
            notes.decision = notes.decision.strictest(decision);
        }
        for finding in self.findings.iter().filter(|finding| finding.action.is_alert()) {
            self.counters.alerts += 1;
            self.tally.alert(self.fid, finding.action);
            let fate = Fate { decision: notes.decision, reject };
            recorder.alert(occasion, None, finding, &fate, None);
        }
        if !notes.decision.verdict.forwards() {
            let fate = Fate { decision: notes.decision, reject };
            recorder.refused(occasion, None, &fate, &self.findings);
        }
        self.note_edits(occasion.packet, notes.decision);
        notes.decision
    }
}

/// Looks a flow up: gives its class and keeps what functions' rules on headers say of it.
pub(crate) fn look_up(chains: &Chains, entry: &mut Entry) -> Class {
    let header = header_of_flow(entry.key(), entry.ext.matched_icmp);
    chains.classifier.classify(&header, &mut entry.ext.matches)
}

/// What functions' rules on headers say is that of a flow's first packet, except for ICMP, where it is that of the packet in
/// hand.
fn renew_matches(chains: &Chains, entry: &mut Entry, packet: &Decoded, direction: Direction) {
    if !entry.key().is_icmp() {
        return;
    }
    let numbers = icmp_numbers(packet, direction);
    if entry.ext.matched_icmp != numbers {
        entry.ext.matched_icmp = numbers;
        look_up(chains, entry);
    }
}

/// The verdict of a policy on the packet in hand.
const fn verdict_of(policy: ExceptionPolicy) -> Verdict {
    match policy {
        ExceptionPolicy::Reject | ExceptionPolicy::RejectBoth => Verdict::Reject,
        _ if policy.refuses() => Verdict::Drop,
        _ => Verdict::Continue,
    }
}

/// Why a packet has no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flowless {
    /// Its kind has none, or it is an error about one that is not there.
    Apart,
    /// The table is full.
    NoRoom,
}

/// Where a packet was found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place<'a> {
    /// It is no packet of the capture: it was found in a tunnel or put together from fragments.
    pub made: bool,
    /// The packet around it.
    pub around: Option<&'a Around>,
    /// A packet that it carries was refused.
    pub inner_refused: bool,
    /// A fragment, or what may be one, that must not go on.
    pub refused: Option<Reason>,
}

impl From<bool> for Place<'_> {
    fn from(made: bool) -> Self {
        Place { made, ..Place::default() }
    }
}

/// Number of a flow in events: below 2^53, so that every JSON reader keeps it whole.
fn event_id(number: u64, hash: u64) -> u64 {
    (hash & 0x1f) << 48 | number & 0xffff_ffff_ffff
}

// SPDX-License-Identifier: Apache-2.0
//! The level below the host, where a link has one: which flows are offered to it, and how its results are
//! applied.
//!
//! A flow is offered with a packet whose verdict was known before: bypassed flows, and flows that no function
//! has to judge any more, are forwarded or redirected below; refused ones are dropped there, either as a
//! whole flow or because a header function refuses each packet alike. So a flow that falls silent takes no
//! place. A connection is offered once it is established, and returns when it is over.

use super::Passage;
use bartizan_base::{Decision, Direction, FlowId, FunctionId, PerDirection, Reason, Timestamp, Verdict};
use bartizan_flow::FlowState;
use bartizan_flow::level::Step;
use bartizan_flow::tcp::{Outcome, Segment, SharedWindows, TcpFlags, TcpProgress, TcpState};
use bartizan_function::OffloadRequirement;
use bartizan_function::header::header_of_flow;
use bartizan_offload::{
    Action, DeviceKey, Done, Ended, Endpoint, FlowManager, Offer, OffloadDenied, PacketTotals, Sides,
    direction_from_low,
};
use bartizan_packet::windows::Windows;
use bartizan_packet::{Decoded, PacketFlags, PacketSource, TransportLayer, TunnelKind};
use bartizan_stages::chain::{Enforcement, HeaderRuleMatches};
use bartizan_stages::record::Entry;
use bartizan_stages::settled::tcp_state;
use bartizan_stages::standing::PacketDisposition;

impl Passage<'_> {
    /// After a packet of a decided flow: offers the flow to the level below, unless the level has answered in
    /// this generation.
    #[inline]
    pub(super) fn offer(&mut self, id: FlowId, course: PacketDisposition, packet: &Decoded) {
        if self.flows.manager.is_some() && packet.source != PacketSource::Ordered {
            self.offer_to_level(id, course, packet);
        }
    }

    fn offer_to_level(&mut self, id: FlowId, course: PacketDisposition, packet: &Decoded) {
        let generation = self.runner.generation();
        let Some(entry) = self.flows.get(id) else { return };
        if entry.generation != generation || !is_offered(entry) {
            return;
        }
        if !entry.is_at_host() {
            self.renew_at_level(id, course, packet);
            return;
        }
        let offered = match self.wanted_below(id, course, packet) {
            Ok(offer) => {
                let clock = self.cx.position.clock;
                let Some((table, manager)) = self.flows.with_manager() else { return };
                manager.offer(table, id, offer, clock)
            }
            Err(None) => return,
            Err(Some(why)) => {
                self.note_stay(id, why);
                return;
            }
        };
        if let Some(entry) = self.flows.get_mut(id) {
            entry.ext.stays = offered.err();
        }
    }

    /// Handles a packet that comes up because its flow was offloaded by another generation. If this
    /// generation decides alike, the level's entry is kept and renewed; otherwise the flow leaves the level.
    #[cold]
    fn renew_at_level(&mut self, id: FlowId, course: PacketDisposition, packet: &Decoded) {
        let is_outdated =
            self.flows.manager.as_deref().is_some_and(|manager| manager.is_outdated(self.flows.table(), id));
        if !is_outdated {
            return;
        }
        let clock = self.cx.position.clock;
        if let Ok(offer) = self.wanted_below(id, course, packet)
            && let Some((table, manager)) = self.flows.with_manager()
        {
            manager.renew(table, id, &offer, clock);
        }
    }

    /// The offer for a flow: the action on its packets below. `Err`: the flow stays at the host, for this
    /// reason, or (`None`) is not ready yet.
    fn wanted_below(
        &self,
        id: FlowId,
        course: PacketDisposition,
        packet: &Decoded,
    ) -> Result<Offer, Option<OffloadDenied>> {
        let entry = self.flows.get(id).ok_or(None)?;
        let action = match self.action_below(entry, course) {
            Err(None) => return Err(None),
            action => action,
        };
        let windows = self.windows_of(entry, course)?;
        let action = action?;
        const LEFT: PacketFlags = PacketFlags::CHECKSUM_PENDING.union(PacketFlags::CHECKSUM_FILLED);
        // The payload may be a tunnel that is not decoded: the level verifies the datagram's own checksum
        // only, and the kernel's note about the frame does not reach it.
        let udp = matches!(packet.transport, TransportLayer::Udp(_));
        if action.drops().is_none() && udp && packet.flags.intersects(LEFT) {
            return Err(Some(OffloadDenied::Checksums));
        }
        if !self.key_tells_tenants(id) {
            return Err(Some(OffloadDenied::Tenant));
        }
        let (again, expected) = (entry.ext.stays == Some(OffloadDenied::Full), expected(entry));
        Ok(Offer { action, generation: self.runner.generation(), expected, again, windows })
    }

    /// The action of a level on a flow's packets. `Err`: as in [`Passage::wanted_below`].
    fn action_below(
        &self,
        entry: &Entry,
        course: PacketDisposition,
    ) -> Result<Action, Option<OffloadDenied>> {
        let state = entry.ext.session.state();
        let goes_on = match entry.ext.standing.egress() {
            Some(port) => Action::Redirect(port),
            None => Action::Forward,
        };
        let key = DeviceKey::of(entry.key());
        // All tunnels of these kinds share one key: the flow in one of them says nothing about packets of
        // another.
        let is_shared = key.is_in(TunnelKind::Ip) || key.is_in(TunnelKind::Gtp);
        match course {
            PacketDisposition::Refused(_) if !self.enforces_on(entry) => Err(Some(OffloadDenied::Watched)),
            PacketDisposition::Refused(decision) => match (decision.verdict, decision.reason) {
                // Inside a tunnel a level cannot tell the sides apart.
                (Verdict::Drop, Some(_)) if key.is_in_tunnel() && self.may_be_opened_by_other(entry) => {
                    Err(None)
                }
                (Verdict::Drop, Some(reason)) if self.may_be_opened_by_other(entry) => {
                    let opener = if entry.key().is_reversed() { Endpoint::High } else { Endpoint::Low };
                    Ok(Action::DropFrom(reason, opener))
                }
                (Verdict::Drop, Some(reason)) => Ok(Action::Drop(reason)),
                _ => Err(Some(OffloadDenied::Answered)),
            },
            _ if is_shared && entry.ext.by_content => Err(Some(OffloadDenied::Carrier)),
            // The frame leaves with its outer packet, which would need a redirection of its own.
            _ if key.is_in_tunnel() && goes_on != Action::Forward => Err(Some(OffloadDenied::Tunnel)),
            PacketDisposition::Bypassed if session_is_over(state) => Err(Some(OffloadDenied::Closed)),
            // The server's next segment may begin another connection.
            _ if entry.ext.session.awaits_reopening() => Err(None),
            // Until the flow is open the next packet may be of any kind.
            PacketDisposition::Judged | PacketDisposition::Uninspected if !is_open(entry) => Err(None),
            PacketDisposition::Bypassed | PacketDisposition::Judged | PacketDisposition::Uninspected => {
                Ok(goes_on)
            }
        }
    }

    /// Whether refusals of a flow's packets are enforced; otherwise they are reported one by one.
    fn enforces_on(&self, entry: &Entry) -> bool {
        let chains = self.runner.chains();
        self.cx.settings.prevention && chains.enforcement(entry.fid) == Enforcement::Enforced
    }

    /// Whether a device's key, which has no tenant, distinguishes a flow from those of other tenants.
    fn key_tells_tenants(&self, id: FlowId) -> bool {
        let (settings, classifier) = (self.cx.settings, &self.runner.chains().classifier);
        // Each side of a GTP-U tunnel numbers its own end, so the key does not contain a tunnel number.
        let is_numbered = settings.tunnel_in_key
            && self.flows.get(id).is_some_and(|entry| !DeviceKey::of(entry.key()).is_in(TunnelKind::Gtp));
        (settings.vlan_in_key || !classifier.selects_tenants_by_vlan())
            && (is_numbered || !classifier.selects_tenants_by_tunnel())
    }

    /// The window state that a level needs, if a function of the flow's path checks segments against it.
    /// `Err`: the flow stays at the host, for this reason, or (`None`) is not ready yet.
    fn windows_of(
        &self,
        entry: &Entry,
        course: PacketDisposition,
    ) -> Result<Option<Windows>, Option<OffloadDenied>> {
        if !matches!(course, PacketDisposition::Judged | PacketDisposition::Uninspected) {
            return Ok(None);
        }
        match self.runner.below(entry) {
            OffloadRequirement::Nothing => return Ok(None),
            OffloadRequirement::Judges => return Err(None),
            OffloadRequirement::Windows => {}
        }
        if !self.cx.settings.has_real_receivers() {
            // A refused segment is forwarded and reported, and tracking learns from it as a receiver would
            // not.
            return Err(Some(OffloadDenied::Watched));
        }
        if entry.ext.standing.egress().is_some() {
            // Levels do not check windows of redirected flows.
            return Err(Some(OffloadDenied::Egress));
        }
        let session = &entry.ext.session;
        if session.state() != TcpState::Established {
            // Later segments close the connection.
            return Err(None);
        }
        let windows = session.windows().ok_or(Some(OffloadDenied::Window))?;
        Ok(Some(by_endpoint(entry, &windows)))
    }

    /// After a packet was judged: offers the flow if no function judges the next packet, if a level below
    /// can, or if the first function that sees it refuses each packet alike.
    #[inline]
    pub(super) fn offer_if_unjudged(&mut self, id: FlowId, decision: &Decision, packet: &Decoded) {
        // A level carries packets.
        if self.flows.manager.is_none() || packet.source == PacketSource::Ordered {
            return;
        }
        let Some(entry) = self.flows.get(id) else { return };
        let course = entry.ext.standing.course(entry.state());
        if !matches!(course, PacketDisposition::Judged | PacketDisposition::Uninspected) {
            self.raise_if_refused(id);
            return;
        }
        if decision.verdict.forwards() {
            if !self.runner.chains().wants_payload(entry.path) {
                self.offer_to_level(id, course, packet);
            }
            return;
        }
        let mut judges = self.runner.chains().header_part(entry.path).functions();
        if decision.repeats && is_open(entry) && judges.next() == Some(decision.function) {
            self.offer_to_level(id, PacketDisposition::Refused(*decision), packet);
        }
    }

    /// Whether the flow is unopened and its other side might open it, so that the packets of both sides are
    /// not known to be refused alike.
    #[inline]
    pub(super) fn may_be_opened_by_other(&self, entry: &Entry) -> bool {
        entry.is_unopened() && self.may_open_against(entry)
    }

    #[cold]
    fn may_open_against(&self, entry: &Entry) -> bool {
        let chains = self.runner.chains();
        if entry.key().is_icmp() {
            // The flipped key of an ICMP request does not describe its answer.
            return true;
        }
        let header = header_of_flow(&entry.key().flipped(), (0, 0));
        let mut matches = HeaderRuleMatches::new();
        let class = chains.classifier.classify(&header, self.cx.position.clock, &mut matches);
        let first = chains.header_part(class.path).functions().next();
        let Some(function) = first.and_then(|id| chains.function(id)) else { return true };
        let matched = matches.iter().find(|(id, _)| *id == function.id()).map(|(_, rule)| *rule);
        function.refuses(class.fid, matched).is_err()
    }

    /// Takes a flow up from its level if the host has refused it; it is offered anew as a refused flow.
    pub(super) fn raise_if_refused(&mut self, id: FlowId) {
        let refused = |entry: &Entry| entry.ext.standing.is_refused() && !entry.is_at_host();
        if self.flows.manager.is_some() && self.flows.get(id).is_some_and(refused) {
            self.raise(id);
        }
    }

    fn note_stay(&mut self, id: FlowId, why: OffloadDenied) {
        if let Some((_, manager)) = self.flows.with_manager() {
            manager.never_offered(why);
        }
        if let Some(entry) = self.flows.get_mut(id) {
            entry.ext.stays = Some(why);
        }
    }

    /// At the end of a flow that was never below: notes the reason for its record.
    pub(super) fn note_why_not_below(&mut self, id: FlowId) {
        if self.flows.manager.is_none() || self.flows.table().was_below(id) {
            return;
        }
        let Some(entry) = self.flows.get(id) else { return };
        if entry.ext.stays.is_none() {
            let why = self.runner.offer_denial(entry);
            self.note_stay(id, why);
        }
    }

    /// Drives the level below: called between batches.
    pub(crate) fn drive_level(&mut self, now: Timestamp) {
        self.cx.position.advance(now);
        self.announce();
        if self.flows.early.is_due(now) {
            self.credit_early();
        }
        self.with_level(|manager, passage| manager.turn(passage.flows.table_mut(), now));
    }

    /// At the end of the run: takes all flows and counters up from the level below.
    pub(super) fn leave_level(&mut self) {
        let now = self.cx.position.clock;
        self.credit_early();
        self.with_level(|manager, passage| manager.close(passage.flows.table_mut(), now));
    }

    /// Runs `act` on the flow manager, and applies the results.
    fn with_level(&mut self, act: impl FnOnce(&mut FlowManager, &mut Self)) {
        let Some(mut manager) = self.flows.manager.take() else { return };
        act(&mut manager, self);
        while let Some(done) = manager.next_done() {
            self.note_done(done);
        }
        while let Some(Ended { id, reason }) = manager.next_ended() {
            // The end may have been reported while a packet was in hand, and the flow may have ended since;
            // its slot may hold another flow.
            if self.has_left_level(id) {
                self.end_flow(id, reason);
            }
        }
        self.flows.manager = Some(manager);
    }

    /// Applies a report of the level about a flow.
    fn note_done(&mut self, done: Done) {
        match done {
            Done::Missed(until) => self.flows.missed = Some(until),
            Done::Counted { id, .. } if !self.flows.table().was_below(id) => {}
            Done::Stays { id, why } => {
                if let Some(entry) = self.flows.get_mut(id) {
                    entry.ext.stays = Some(why);
                }
            }
            Done::Counted { id, action, packets, bytes, refused_inside, sides, windows } => {
                match windows {
                    Some(windows) => self.take_over_windows(id, &windows),
                    None => self.resume_session(id, sides),
                }
                let (all, inside) =
                    (PacketTotals::from((packets, bytes)), PacketTotals::from(refused_inside));
                self.counted(id, action, all, inside);
            }
        }
    }

    /// Whether a flow is over and its level has no entry for it.
    fn has_left_level(&self, id: FlowId) -> bool {
        self.flows.table().stay(id).is_some_and(|stay| stay.step == Step::Left)
    }

    /// Counts packets of a flow that the level has handled. `refused_inside`: the packets and bytes among
    /// them that were dropped because of their payload.
    fn counted(&mut self, id: FlowId, action: Action, amount: PacketTotals, refused_inside: PacketTotals) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        let decision = match action {
            Action::Forward | Action::Redirect(_) => Decision::CONTINUE,
            Action::Drop(reason) | Action::DropFrom(reason, _) => {
                let standing = &entry.ext.standing;
                let refusal = standing.last_refusal().filter(|refusal| refusal.reason == Some(reason));
                refusal.unwrap_or(Decision::refuse(Verdict::Drop, reason, FunctionId::ENGINE))
            }
        };
        // In another generation the refusal counts for no rule.
        if decision.repeats {
            self.runner.repeated(entry.fid, &decision, amount.packets);
        }
        let acts = self.cx.settings.prevention;
        let tally = &mut self.cx.account.tally;
        let packets = amount.packets - refused_inside.packets;
        let bytes = amount.bytes - refused_inside.bytes;
        if (packets, bytes) != (0, 0) {
            tally.count_many(entry.fid, &decision, packets, bytes, acts);
        }
        if refused_inside != PacketTotals::default() {
            let decision = Decision::refuse(Verdict::Drop, Reason::TunnelInner, FunctionId::ENGINE);
            entry.ext.standing.note_refusal(&decision);
            tally.count_many(entry.fid, &decision, refused_inside.packets, refused_inside.bytes, acts);
        }
    }

    /// When a segment reaches the host: updates the session of its connection to the state of the level below
    /// that handles or may handle it, or of a connection that continued while this worker was stalled.
    #[inline]
    pub(super) fn sync_session(
        &mut self,
        id: FlowId,
        segment: &Segment<'_>,
        direction: Direction,
        now: Timestamp,
    ) {
        if self.flows.manager.is_none() {
            return;
        }
        self.sync_with_segment(id, segment, direction, now);
        if segment.flags.contains(TcpFlags::FIN)
            && self.flows.table().was_below(id)
            && let Some(entry) = self.flows.get_mut(id)
        {
            entry.ext.session.put_fin_first(segment, direction);
        }
    }

    fn sync_with_segment(&mut self, id: FlowId, segment: &Segment<'_>, direction: Direction, now: Timestamp) {
        let Some(entry) = self.flows.get(id) else { return };
        let last_seen = entry.last_seen;
        if entry.is_at_host() {
            // Packets that arrived before the stall were waiting at the host.
            if self.flows.missed.is_some_and(|until| now >= until && last_seen < until) {
                self.sync_after_stall(id, segment, direction);
            }
            return;
        }
        self.sync_from_level(id);
        if self.compares(id) && self.flows.missed.is_some_and(|until| now >= until && last_seen < until) {
            // Segments checked below were forwarded during the stall, all others without tracking.
            self.sync_after_stall(id, segment, direction);
        }
    }

    /// Updates the session of a connection that a level below handles, or may handle, to the progress that
    /// the level has seen.
    #[inline]
    pub(super) fn sync_from_level(&mut self, id: FlowId) {
        if self.flows.manager.is_none() || self.flows.get(id).is_none_or(|entry| entry.is_at_host()) {
            return;
        }
        let Some((table, manager)) = self.flows.with_manager() else { return };
        let windows = manager.windows(table, id);
        let sides = manager.sides(table, id);
        if let Some(windows) = windows {
            self.take_over_windows(id, &windows);
        } else if let Some(sides) = sides {
            self.resume_session(id, sides);
        }
    }

    /// Whether the level below checks segments of a connection against its windows.
    fn compares(&mut self, id: FlowId) -> bool {
        self.flows.with_manager().is_some_and(|(table, manager)| manager.compares(table, id))
    }

    /// After a segment was tracked at the host whose connection's other segments are checked below: publishes
    /// the new windows to the level before the segment is forwarded and answered. If the segment has ended a
    /// direction of the connection, or the connection, the flow is taken up. (A refused segment does neither:
    /// a forged RST takes nothing up.)
    #[inline]
    pub(super) fn publish(&mut self, id: FlowId, outcome: &Outcome) {
        if self.flows.manager.is_none() || self.flows.get(id).is_none_or(|entry| entry.is_at_host()) {
            return;
        }
        if !self.compares(id) {
            return;
        }
        let Some(entry) = self.flows.get(id) else { return };
        let windows = entry.ext.session.windows().map(|windows| by_endpoint(entry, &windows));
        match (windows, self.flows.with_manager()) {
            (Some(windows), Some((table, manager))) if !outcome.reuse => manager.publish(table, id, &windows),
            _ => self.raise(id),
        }
    }

    /// Updates a session after a stall of this worker, from the only source there is, the segment itself: its
    /// sender has sent everything before its sequence number, and the other side everything that it
    /// acknowledges.
    fn sync_after_stall(&mut self, id: FlowId, segment: &Segment<'_>, direction: Direction) {
        let says = segment.flags.contains(TcpFlags::ACK) && !segment.flags.contains(TcpFlags::SYN);
        let Some(entry) = self.flows.get_mut(id).filter(|entry| entry.ext.session.exists()) else { return };
        if !says || !segment.checksum_ok {
            return;
        }
        let (sent, acknowledged) = (segment.seq, segment.ack);
        let sender = TcpProgress { sent, acknowledged, fin: None };
        let receiver = TcpProgress { sent: acknowledged, acknowledged: sent, fin: None };
        let mut sides = PerDirection::new(Some(sender), Some(receiver));
        if direction == Direction::ToClient {
            sides.swap();
        }
        entry.ext.session.resume(&sides);
    }

    /// Updates a session to the progress that a level below reports. If both sides have ended, the flow is
    /// taken up.
    fn resume_session(&mut self, id: FlowId, [low, high]: Sides) {
        let now = self.cx.position.clock;
        let Some(entry) = self.flows.get_mut(id) else { return };
        if !entry.ext.session.exists() {
            return;
        }
        let mut below = PerDirection::new(low, high);
        if direction_from_low(entry.key()) == Direction::ToClient {
            below.swap();
        }
        let state = self.runner.catch_up(self.cx.settings, entry, &below, now);
        let ended = [low, high].iter().flatten().any(|side| side.fin.is_some());
        let over = ended && session_is_over(entry.ext.session.state());
        let state = state.filter(|_| entry.state() != FlowState::LocalBypassed);
        if let Some(state) = state {
            self.flows.set_state(id, tcp_state(state));
        }
        if over {
            self.flows.table_mut().raise(id, now);
        }
    }

    fn take_over_windows(&mut self, id: FlowId, windows: &Windows) {
        let now = self.cx.position.clock;
        let Some(entry) = self.flows.get_mut(id) else { return };
        let [low, high] = windows.sides;
        let mut sides = PerDirection::new(low, high);
        if direction_from_low(entry.key()) == Direction::ToClient {
            sides.swap();
        }
        entry.ext.session.take_over(&SharedWindows { sides, timestamps: windows.timestamps }, now);
    }

    /// Takes a flow up, before a segment is forwarded and answered that ends a direction of its connection or
    /// opens another connection with its key. If many packets follow, because one side continues, the flow is
    /// offloaded again. (Where segments are checked below, a forged segment is refused first:
    /// [`Passage::publish`].)
    #[inline]
    pub(super) fn raise_if_ending(&mut self, id: FlowId, segment: &Segment<'_>) {
        const ENDS: TcpFlags = TcpFlags::SYN.union(TcpFlags::FIN).union(TcpFlags::RST);
        if self.flows.manager.is_some()
            && segment.flags.intersects(ENDS)
            && self.flows.get(id).is_some_and(|entry| !entry.is_at_host())
            && !self.compares(id)
        {
            self.raise(id);
        }
    }

    /// Takes a flow up before the current packet is forwarded.
    pub(super) fn raise(&mut self, id: FlowId) {
        let now = self.cx.position.clock;
        if let Some((table, manager)) = self.flows.with_manager() {
            manager.raise_now(table, id, now);
        }
        while let Some(done) = self.flows.manager.as_mut().and_then(|manager| manager.next_done()) {
            self.note_done(done);
        }
    }
}

/// A connection's windows by the endpoints of its key.
fn by_endpoint(entry: &Entry, windows: &SharedWindows) -> Windows {
    let SharedWindows { sides, timestamps } = *windows;
    let low = direction_from_low(entry.key());
    Windows { sides: [sides[low], sides[low.flip()]], timestamps }
}

/// Whether a flow is offered with the current packet: it has no answer yet, or the answer may have changed. A
/// flow that found no place is offered with each sixteenth packet.
fn is_offered(entry: &Entry) -> bool {
    match entry.ext.stays {
        Some(OffloadDenied::Full) => {
            entry.packets.to_server.wrapping_add(entry.packets.to_client).is_multiple_of(16)
        }
        why => why.is_none_or(|why| !why.is_lasting()),
    }
}

/// Packets expected of a flow in the next second: its mean rate so far.
fn expected(entry: &Entry) -> u32 {
    let packets = entry.packets.to_server.saturating_add(entry.packets.to_client);
    let seconds = entry.last_seen.since(entry.start).as_nanos() / 1_000_000_000;
    u32::try_from(packets / seconds.max(1)).unwrap_or(u32::MAX)
}

/// Whether a flow that no function judges is open: an established connection, or a flow with more packets
/// than the one that opened it.
fn is_open(entry: &Entry) -> bool {
    if entry.key().protocol() == 6 {
        let state = entry.ext.session.state();
        return state >= TcpState::Established && !session_is_over(state);
    }
    entry.packets.to_server.saturating_add(entry.packets.to_client) > 1
}

/// Whether both sides of a connection have sent a FIN, or one has reset it.
const fn session_is_over(state: TcpState) -> bool {
    matches!(state, TcpState::TimeWait | TcpState::LastAck | TcpState::Closing | TcpState::Closed)
}

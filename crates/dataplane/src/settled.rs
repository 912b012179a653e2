// SPDX-License-Identifier: Apache-2.0
//! What a flow's standing ([`crate::standing`]) rests on, packets of flows whose next packet is decided of, and what happens when that
//! changes. What rests on a generation is judged anew in the next one.
//!
//! | standing | rests on | in another generation |
//! |---|---|---|
//! | class, path without the functions that are done | policies, rules | looked up anew: all functions of the new path judge again |
//! | bypassed: no function is left | the path | ends when the new path has a function |
//! | payload ended: a parser, the depth of the stream or an exception policy says that nobody needs the rest | the flow's bytes, settings | stays: payload functions are not on the new path |
//! | passed by an exception policy | settings | stays |
//! | refused by an exception policy | settings | stays while payload functions are on the path: the policy speaks about inspection |
//! | refused by a function for all of the flow | its rules | TCP: stays while payload functions are on the path and the policy is not staged; others: judged anew |
//!
//! A refused TCP connection is not taken up again under the eyes of a payload function: the refused bytes would come once more, and
//! count as inspected. As in Suricata it stays refused, also when the rule is gone; its ends open another one.
//!
//! Streams are read while a payload function is on the path. When the last one leaves, reassembly ends and memory goes back; when
//! one comes (back), reading begins with the next byte that the session expects, and the parsers are told what they missed. So
//! the session of a bypassed flow is followed, without streams and uncounted: whoever comes onto its path finds it where it is, and a
//! new connection of the same ports is a new flow.

use crate::chain::Chains;
use crate::flow_ext::FlowExt;
use crate::identity::segment;
use crate::packet::look_up;
use crate::record::{Anomaly, Entry, Fate, Occasion, Recorder};
use crate::standing::Course;
use crate::streams;
use crate::worker::{Frame, Worker};
use bartizan_applayer::protocol::Transport as AppTransport;
use bartizan_base::{Decision, Direction, Fid, FlowId, PerDirection, Reason, Timestamp};
use bartizan_flow::FlowState;
use bartizan_flow::tcp::{Arrival, Outcome, Segment, StreamContext, StreamCounters, TcpFlags};
use bartizan_packet::Transport;

impl Worker {
    /// Renews class and standing of a flow that another generation gave; what functions keep of it stays. Gives the class.
    pub(crate) fn renew_class(&mut self, id: FlowId) -> Fid {
        let chains = &self.chains;
        let Some(entry) = self.flows.get_mut(id) else { return Fid(0) };
        if entry.generation == chains.generation {
            return entry.fid;
        }
        // A frame that another worker began in an earlier generation lifts nothing.
        let forward = entry.generation < chains.generation;
        let class = look_up(chains, entry);
        let before = chains.payload_part(entry.path);
        (entry.fid, entry.path, entry.generation) = (class.fid, class.path, chains.generation);
        if forward && entry.ext.standing.refusal().is_some_and(|refused| !stands(&refused, entry, chains)) {
            entry.ext.standing.lift();
        }
        if entry.ext.standing.is_payload_ended() {
            entry.path = chains.header_part(entry.path);
        }
        let joined = chains.payload_part(entry.path).and_not(before);
        if !joined.is_empty()
            && let Some(app) = entry.ext.app.as_deref_mut()
        {
            app.show_to(joined);
        }
        let fid = entry.fid;
        if entry.state() == FlowState::LocalBypassed && !entry.path.is_empty() {
            let state = unbypassed(entry);
            self.flows.set_state(id, state);
        }
        fid
    }

    /// A packet of a flow for which everything is decided: it is counted, and goes the way of the flow.
    pub(crate) fn settled(
        &mut self,
        frame: &Frame<'_>,
        occasion: &Occasion<'_>,
        id: FlowId,
        length: u32,
        recorder: &mut dyn Recorder,
    ) -> Option<Decision> {
        let entry = self.flows.get(id)?;
        let decision = match entry.ext.standing.course(entry.state()) {
            Course::Judged | Course::Uninspected => return None,
            Course::Bypassed if self.follow(frame.now, occasion, id) => return None,
            Course::Bypassed => {
                self.counters.bypassed_packets += 1;
                self.counters.bypassed_bytes += u64::from(length);
                self.count_packet(id, occasion.direction, length, frame.now, true);
                return Some(Decision::CONTINUE);
            }
            Course::Refused(decision) => decision,
        };
        self.count_packet(id, occasion.direction, length, frame.now, true);
        let entry = self.flows.get_mut(id)?;
        for event in occasion.packet.decoded().events.as_slice() {
            recorder.anomaly(occasion, Some(entry), Anomaly::Decode(*event));
        }
        if let Transport::Tcp(tcp) = &occasion.packet.decoded().transport
            && entry.ext.session.exists()
        {
            entry.ext.refused_flags[occasion.direction] |= TcpFlags::from_bits_retain(tcp.flags.bits());
        }
        recorder.refused(occasion, Some(entry), &Fate { decision, reject: None }, &[]);
        entry.ext.standing.note_told(occasion.direction);
        Some(decision)
    }

    /// Keeps the session of a bypassed flow in step. `true`: the segment begins another connection.
    fn follow(&mut self, now: Timestamp, occasion: &Occasion<'_>, id: FlowId) -> bool {
        let follows = |entry: &&Entry| entry.key().protocol() == 6 && entry.ext.session.exists();
        if self.flows.get(id).filter(follows).is_none() {
            return false;
        }
        let Some(segment) = segment(self, occasion.packet) else { return false };
        let policy = self.host_policy(id, occasion.direction);
        let Some(entry) = self.flows.get_mut(id) else { return false };
        // Statistics are about what is inspected.
        let mut uncounted = StreamCounters::default();
        let mut context = StreamContext {
            config: &self.settings.stream,
            counters: &mut uncounted,
            budget: &mut self.budget,
        };
        let arrival = Arrival { direction: occasion.direction, now, policy };
        let mut outcome = Outcome::default();
        entry.ext.session.handle(&segment, arrival, None, &mut context, &mut outcome);
        if outcome.reverse {
            self.reverse(id);
        }
        outcome.reuse
    }

    /// No function is left on the flow's path.
    pub(crate) fn bypass(&mut self, id: FlowId) {
        if self.flows.get(id).is_some_and(|entry| entry.state() != FlowState::LocalBypassed) {
            self.counters.bypassed_flows += 1;
            self.flows.set_state(id, FlowState::LocalBypassed);
        }
    }

    /// Nobody needs the rest of the flow's payload: payload functions are done with it, header functions go on. Who keeps
    /// parts of the flow in hand puts them back first.
    pub(crate) fn end_payload(&mut self, id: FlowId) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        entry.ext.standing.end_payload();
        entry.path = self.chains.header_part(entry.path);
        if entry.path.is_empty() {
            self.bypass(id);
        }
        self.stop_reading(id);
    }

    /// Ends reassembly of a flow whose path has no payload function any more.
    pub(crate) fn stop_reading(&mut self, id: FlowId) {
        let Some(entry) = self.flows.get_mut(id) else { return };
        if let Some(pair) = entry.ext.streams.as_deref_mut()
            && !entry.ext.reading_stopped
        {
            pair.stop(&mut self.budget);
            entry.ext.reading_stopped = true;
            self.account(id);
        }
    }

    /// Makes the streams of a session fit the path of its flow, before a segment is tracked. `true`: they are to be fed.
    ///
    /// There are none until a segment comes that is not part of the opening, or brings data: a flood of SYNs, answered or not, costs no memory
    /// beyond the table's. What they need to know of the opening the session knows.
    pub(crate) fn fit_streams(&mut self, id: FlowId, segment: &Segment<'_>, now: Timestamp) -> bool {
        let Some(entry) = self.flows.get_mut(id) else { return false };
        if !self.chains.wants_payload(entry.path) {
            self.stop_reading(id);
            return false;
        }
        let FlowExt { streams, session, reading_stopped, .. } = &mut entry.ext;
        if streams.is_none() && opens(segment) && !session.has_brought_data() {
            return true;
        }
        let late = core::mem::take(reading_stopped) || streams.is_none() && session.has_brought_data();
        let pair = streams.get_or_insert_default();
        if late {
            let missed = pair.resume(session, &self.settings.stream);
            self.tell_missed(id, missed, now);
        }
        true
    }

    /// Tells the parsers of a flow what was not read. Without a beginning no protocol is detected.
    fn tell_missed(&mut self, id: FlowId, missed: PerDirection<u64>, now: Timestamp) {
        let Some(info) = streams::info_of(self, id, now, AppTransport::Tcp) else { return };
        let Some(entry) = self.flows.get_mut(id) else { return };
        for direction in Direction::BOTH {
            if missed[direction] > 0 {
                let app = entry.ext.app.get_or_insert_default();
                app.pass_over(&self.engine, direction, missed[direction], &info);
            }
        }
    }
}

/// Whether a segment opens a connection, or answers one that does, and brings no data.
fn opens(segment: &Segment<'_>) -> bool {
    segment.has(TcpFlags::SYN) && segment.is_empty()
}

/// Whether a refusal of a flow holds in the generation that has just classified it anew.
fn stands(refused: &Decision, entry: &Entry, chains: &Chains) -> bool {
    if !chains.wants_payload(entry.path) {
        return false;
    }
    let by_exception = refused.reason == Some(Reason::ExceptionFlow);
    let staged = || chains.classifier.policies().class_name(entry.fid).is_some_and(|name| name.staged);
    by_exception || entry.key().protocol() == 6 && !staged()
}

/// The state that a flow would have if it had not been bypassed.
fn unbypassed(entry: &Entry) -> FlowState {
    if entry.key().protocol() == 6 && entry.ext.session.exists() {
        return tcp_state(entry.ext.session.state().flow_state());
    }
    if entry.both_seen() { FlowState::Established } else { FlowState::New }
}

/// The flow state that goes with a TCP session's.
pub(crate) const fn tcp_state(state: bartizan_flow::tcp::FlowState) -> FlowState {
    match state {
        bartizan_flow::tcp::FlowState::New => FlowState::New,
        bartizan_flow::tcp::FlowState::Established => FlowState::Established,
        bartizan_flow::tcp::FlowState::Closed => FlowState::Closed,
    }
}

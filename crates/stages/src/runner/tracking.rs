// SPDX-License-Identifier: Apache-2.0
//! TCP sessions, tracked with each segment, and their streams, read while a payload function is on the path.

use super::Runner;
use super::effects::Effects;
use super::reading::info_of;
use crate::class;
use crate::flow_ext::FlowExt;
use crate::record::{Entry, EventContext};
use crate::settings::EngineSettings;
use bartizan_applayer::protocol::Transport as AppTransport;
use bartizan_base::{Direction, PerDirection, Timestamp};
use bartizan_flow::tcp::{
    Arrival, HostPolicy, OpeningSyn, Outcome, Segment, SessionPhase, StreamConfig, StreamContext,
    StreamCounters, TcpFlags, TcpProgress, TcpState,
};

/// Most segments replayed for a connection at a level below: the ends of both sides, and their
/// acknowledgements.
const UNTOLD_MOST: usize = 4;

impl Runner {
    /// Keeps the session of a bypassed flow up to date.
    pub fn follow(
        &mut self,
        settings: &EngineSettings,
        entry: &mut Entry,
        segment: &Segment<'_>,
        occasion: &EventContext<'_>,
    ) -> Outcome {
        let outcome = self.track_uninspected(settings, entry, segment, occasion.direction, occasion.now);
        if outcome.reverse {
            class::reverse(&self.chains, entry);
        }
        outcome
    }

    /// Advances a session by a segment that is not inspected.
    fn track_uninspected(
        &mut self,
        settings: &EngineSettings,
        entry: &mut Entry,
        segment: &Segment<'_>,
        direction: Direction,
        now: Timestamp,
    ) -> Outcome {
        let policy = host_policy(settings, entry, direction);
        // The statistics count inspected segments only.
        let mut uncounted = StreamCounters::default();
        let mut context =
            StreamContext { config: &settings.stream, counters: &mut uncounted, budget: &mut self.budget };
        let arrival = Arrival { direction, now, policy };
        let mut outcome = Outcome::default();
        entry.ext.session.handle(segment, arrival, None, &mut context, &mut outcome);
        outcome
    }

    /// Advances a session by the segments that a level below has forwarded. Returns the flow's new state, if
    /// it changes.
    pub fn catch_up(
        &mut self,
        settings: &EngineSettings,
        entry: &mut Entry,
        below: &PerDirection<Option<TcpProgress>>,
        now: Timestamp,
    ) -> Option<SessionPhase> {
        let opens = entry.ext.session.state() == TcpState::SynRecv;
        let opened = self.replay_events(settings, entry, below, usize::from(opens), now);
        entry.ext.session.resume(below);
        self.replay_events(settings, entry, below, UNTOLD_MOST, now).or(opened)
    }

    /// Replays the events that sequence numbers do not show, as at most `most` segments.
    fn replay_events(
        &mut self,
        settings: &EngineSettings,
        entry: &mut Entry,
        below: &PerDirection<Option<TcpProgress>>,
        most: usize,
        now: Timestamp,
    ) -> Option<SessionPhase> {
        let (mut last, mut state) = (None, None);
        for _ in 0..most {
            let Some((direction, segment)) = entry.ext.session.next_unreplayed(below) else { break };
            let said = Some((direction, segment.flags, segment.seq, segment.ack));
            // The session refused the segment.
            if said == last {
                break;
            }
            last = said;
            let outcome = self.track_uninspected(settings, entry, &segment, direction, now);
            state = outcome.flow_state.or(state);
        }
        state
    }

    /// Tracks a TCP segment, with reassembly if a payload function is on the path.
    pub fn track(
        &mut self,
        settings: &EngineSettings,
        entry: &mut Entry,
        segment: &Segment<'_>,
        direction: Direction,
        now: Timestamp,
        outcome: &mut Outcome,
    ) -> Effects {
        let mut effects = Effects::NONE;
        let feeds = self.fit_streams(settings, entry, segment, now, &mut effects);
        let policy = host_policy(settings, entry, direction);
        let mut config = &settings.stream;
        let one_sided;
        // The kind of a session is decided at its beginning.
        if config.inline() && !entry.ext.session.is_under_way() && self.chains.allows_one_sided(entry.fid) {
            one_sided = StreamConfig { one_sided: true, ..*config };
            config = &one_sided;
        }
        let mut context =
            StreamContext { config, counters: &mut self.stream_counters, budget: &mut self.budget };
        let arrival = Arrival { direction, now, policy };
        let ext = &mut entry.ext;
        let streams = ext.streams.as_deref_mut().filter(|_| feeds);
        ext.session.handle(segment, arrival, streams, &mut context, outcome);
        effects
    }

    /// Begins a flow with a SYN that was forwarded in the previous flow.
    pub fn begin_session(&mut self, settings: &EngineSettings, entry: &mut Entry, syn: &OpeningSyn) {
        entry.ext.session.begin(syn, &settings.stream, &mut self.stream_counters);
    }

    /// Ends inspection of the flow's payload permanently: payload functions are done, header functions
    /// continue.
    pub fn end_payload(&mut self, entry: &mut Entry) -> Effects {
        entry.ext.standing.end_payload();
        self.leave_payload(entry)
    }

    /// Ends inspection of the flow's payload for as long as its generation lasts, by the bounds of its
    /// policy.
    pub fn leave_payload(&mut self, entry: &mut Entry) -> Effects {
        entry.path = self.chains.header_part(entry.path);
        let mut effects = self.stop_reading(entry);
        effects.bypassed = entry.path.is_empty();
        effects
    }

    /// Ends reassembly of a flow without a payload function on its path.
    pub fn stop_reading(&mut self, entry: &mut Entry) -> Effects {
        if let Some(pair) = entry.ext.streams.as_deref_mut()
            && !entry.ext.reading_stopped
        {
            pair.stop(&mut self.budget);
            entry.ext.reading_stopped = true;
            return Effects::TOUCHED;
        }
        Effects::NONE
    }

    /// Makes the streams of a session fit the path of its flow, before a segment is tracked. Returns whether
    /// the streams take data.
    ///
    /// Streams are made by the first segment that is not part of the handshake or that brings data: a flood
    /// of SYNs, answered or not, costs no memory beyond the table's. The session has what the streams need
    /// from the handshake.
    fn fit_streams(
        &mut self,
        settings: &EngineSettings,
        entry: &mut Entry,
        segment: &Segment<'_>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> bool {
        if !self.chains.wants_payload(entry.path) {
            *effects |= self.stop_reading(entry);
            return false;
        }
        let FlowExt { streams, session, reading_stopped, .. } = &mut entry.ext;
        if streams.is_none() && opens(segment) && !session.has_brought_data() {
            return true;
        }
        let late = core::mem::take(reading_stopped) || streams.is_none() && session.has_brought_data();
        let pair = streams.get_or_insert_default();
        if late {
            let missed = pair.resume(session, &settings.stream);
            self.report_missed(settings, entry, missed, now);
        }
        true
    }

    /// Reports unread bytes to the parsers of a flow. Without a beginning no protocol is detected.
    fn report_missed(
        &self,
        settings: &EngineSettings,
        entry: &mut Entry,
        missed: PerDirection<u64>,
        now: Timestamp,
    ) {
        let info = info_of(settings, entry, now, AppTransport::Tcp);
        for direction in Direction::BOTH {
            if missed[direction] > 0 {
                let app = entry.ext.app.get_or_insert_default();
                app.pass_over(&self.engine, direction, missed[direction], &info);
            }
        }
    }
}

/// Whether a segment opens a connection or replies to one that does, without data.
fn opens(segment: &Segment<'_>) -> bool {
    segment.has(TcpFlags::SYN) && segment.is_empty()
}

/// The policy by which the receiver of a direction reassembles overlapping data.
fn host_policy(settings: &EngineSettings, entry: &Entry, direction: Direction) -> HostPolicy {
    settings.hosts.stream(match direction {
        Direction::ToServer => entry.key().destination(),
        Direction::ToClient => entry.key().source(),
    })
}

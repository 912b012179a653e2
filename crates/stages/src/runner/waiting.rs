// SPDX-License-Identifier: Apache-2.0
//! The segments that are queued for those that follow ([`crate::train`]), and those that need no inspection.

use super::Runner;
use super::in_hand::PacketHandling;
use crate::context::FrameContext;
use crate::record::{Entry, EventContext};
use crate::settings::EngineSettings;
use crate::train::MOST;
use bartizan_flow::stream::Stream;
use bartizan_flow::tcp::{Advice, Outcome, TcpState};
use bartizan_function::Together;
use bartizan_packet::{PacketFlags, PacketSource};

impl Runner {
    /// Whether the current segment may be queued for those that follow.
    pub fn may_wait(
        &self,
        entry: &Entry,
        occasion: &EventContext<'_>,
        tcp: Option<&Outcome>,
        handling: PacketHandling,
    ) -> bool {
        let reads = |outcome: &Outcome| outcome.stored && outcome.readable[occasion.direction];
        self.train.follows()
            && steady(occasion, tcp, handling).is_some_and(reads)
            && self.has_room(occasion, entry)
            && self.chains.together(entry.path) != Together::Apart
    }

    /// Whether a segment is a mere acknowledgement: without data, event, or news for a function, and with
    /// nothing in the application layer that is due with a packet of its direction. Functions that need only
    /// the last segment of a train can skip it.
    pub fn brings_nothing(
        &self,
        settings: &EngineSettings,
        entry: &Entry,
        occasion: &EventContext<'_>,
        tcp: Option<&Outcome>,
        handling: PacketHandling,
    ) -> bool {
        let reads = |o: &Outcome| o.stored || o.readable.to_server || o.readable.to_client;
        let open = || entry.ext.app.as_deref().is_some_and(|app| app.has_uninspected(occasion.direction));
        self.forms_trains(settings)
            && occasion.payload().is_empty()
            && steady(occasion, tcp, handling).is_some_and(|outcome| !reads(outcome))
            && handling.flow.and_then(|flow| self.train.waits_in(flow)).is_none()
            && self.chains.together(entry.path) == Together::Joined
            && !open()
    }

    /// Whether the current segment and another one like it may be queued. If the stream would have to move
    /// the queued bytes, since functions see them in one piece, the train ends: after inspection there is
    /// little to move.
    fn has_room(&self, occasion: &EventContext<'_>, entry: &Entry) -> bool {
        let len = payload_len(occasion);
        let waiting = self.train.bytes();
        let stream = entry.ext.streams.as_deref().map(|pair| pair.stream(occasion.direction));
        let room = stream.map_or(0, Stream::room);
        waiting.saturating_add(len) <= MOST && room >= (len as usize).saturating_mul(2)
    }

    /// Whether segments can form trains: inline, with a function that takes them together.
    pub fn forms_trains(&self, settings: &EngineSettings) -> bool {
        settings.prevention && self.chains.takes_together()
    }

    /// Queues the current segment: its bytes enter the stream, whose memory changes.
    pub fn wait(
        &mut self,
        cx: &FrameContext<'_>,
        entry: &mut Entry,
        occasion: &EventContext<'_>,
        handling: PacketHandling,
    ) {
        if let Some(pair) = entry.ext.streams.as_deref_mut() {
            pair.end_packet(occasion.direction, occasion.payload(), &mut self.budget);
        }
        if let Some(flow) = handling.flow {
            let bytes = payload_len(occasion);
            self.train.take(flow, occasion.direction, cx.account.fid, bytes);
        }
    }
}

/// The outcome of tracking for an unchanged segment that payload functions have to inspect, if it leaves its
/// session's state as it was.
fn steady<'o>(
    occasion: &EventContext<'_>,
    tcp: Option<&'o Outcome>,
    handling: PacketHandling,
) -> Option<&'o Outcome> {
    let is_steady = |outcome: &&Outcome| is_plain(occasion) && is_quiet(outcome);
    tcp.filter(|_| handling.inspect && !handling.spared).filter(is_steady)
}

/// Whether a packet arrived unchanged, leaves unchanged, and is alone in its frame.
fn is_plain(occasion: &EventContext<'_>) -> bool {
    occasion.decoded().is_some_and(|packet| {
        packet.source == PacketSource::Wire
            && packet.recursion == 0
            && !packet.flags.intersects(PacketFlags::REBUILT | PacketFlags::CHECKSUM_PENDING)
            && packet.events.as_slice().is_empty()
            && packet.transport.tcp().is_none_or(|tcp| !tcp.options.multipath)
    })
}

/// Whether a segment leaves its session's state as it was, without events.
fn is_quiet(outcome: &Outcome) -> bool {
    outcome.previous == TcpState::Established
        && outcome.state == TcpState::Established
        && outcome.advice == Advice::Forward
        && outcome.events.iter().next().is_none()
        && outcome.exception.is_none()
        && !(outcome.reverse || outcome.rejected || outcome.bypass)
}

fn payload_len(occasion: &EventContext<'_>) -> u32 {
    u32::try_from(occasion.payload().len()).unwrap_or(u32::MAX)
}

// SPDX-License-Identifier: Apache-2.0
//! Which segments wait for those behind them ([`crate::train`]), and which need not be shown.

use super::Runner;
use super::in_hand::PacketHandling;
use super::parts::FlowParts;
use crate::context::Context;
use crate::record::{Entry, Occasion};
use crate::settings::EngineSettings;
use crate::train::MOST;
use bartizan_flow::stream::Stream;
use bartizan_flow::tcp::{Advice, Outcome, TcpState};
use bartizan_function::Together;
use bartizan_packet::{PacketFlags, PacketSource};

impl Runner {
    /// Whether the segment in hand may wait for those behind it.
    pub fn may_wait(
        &self,
        entry: &Entry,
        occasion: &Occasion<'_>,
        tcp: Option<&Outcome>,
        handling: PacketHandling,
        parts: &FlowParts,
    ) -> bool {
        let reads = |outcome: &Outcome| outcome.stored && outcome.readable[occasion.direction];
        self.train.follows()
            && steady(occasion, tcp, handling).is_some_and(reads)
            && self.has_room(occasion, parts)
            && self.chains.together(entry.path) != Together::Apart
    }

    /// Whether a segment is an acknowledgement and no more: without data, event, or news for a reader, and
    /// nothing of the application layer waits for a packet of its direction. Functions that want to see of a
    /// train only the last need not see it.
    pub fn brings_nothing(
        &self,
        settings: &EngineSettings,
        entry: &Entry,
        occasion: &Occasion<'_>,
        tcp: Option<&Outcome>,
        handling: PacketHandling,
        parts: &FlowParts,
    ) -> bool {
        let reads = |o: &Outcome| o.stored || o.readable.to_server || o.readable.to_client;
        let open = || parts.app.as_deref().is_some_and(|app| app.has_uninspected(occasion.direction));
        self.forms_trains(settings)
            && occasion.payload().is_empty()
            && steady(occasion, tcp, handling).is_some_and(|outcome| !reads(outcome))
            && handling.flow.and_then(|flow| self.train.waits_in(flow)).is_none()
            && self.chains.together(entry.path) == Together::Joined
            && !open()
    }

    /// Whether the segment in hand and one like it behind it may wait. Where the stream would have to move
    /// what waits, because readers see it in one piece, the train ends: after it was shown there is little to
    /// move.
    fn has_room(&self, occasion: &Occasion<'_>, parts: &FlowParts) -> bool {
        let len = payload_len(occasion);
        let waiting = self.train.bytes();
        let stream = parts.streams.as_deref().map(|pair| pair.stream(occasion.direction));
        let room = stream.map_or(0, Stream::room);
        waiting.saturating_add(len) <= MOST && room >= (len as usize).saturating_mul(2)
    }

    /// Whether segments may form trains at all: inline, and some function takes them together.
    pub fn forms_trains(&self, settings: &EngineSettings) -> bool {
        settings.prevention && self.chains.takes_together()
    }

    /// Lets the segment in hand wait: its bytes go into the stream.
    pub fn wait(
        &mut self,
        cx: &Context<'_>,
        entry: &mut Entry,
        occasion: &Occasion<'_>,
        mut parts: FlowParts,
        handling: PacketHandling,
    ) {
        if let Some(pair) = parts.streams.as_deref_mut() {
            pair.settle(occasion.direction, occasion.payload(), &mut self.budget);
        }
        parts.put_back(&mut entry.ext);
        self.effects.touched = true;
        if let Some(flow) = handling.flow {
            let bytes = payload_len(occasion);
            self.train.take((flow, occasion.direction), cx.account.fid, bytes);
        }
    }
}

/// The outcome of a segment that payload functions are to look at and that is as it came, if it leaves its
/// session as it was.
fn steady<'o>(
    occasion: &Occasion<'_>,
    tcp: Option<&'o Outcome>,
    handling: PacketHandling,
) -> Option<&'o Outcome> {
    let is_steady = |outcome: &&Outcome| is_plain(occasion) && is_quiet(outcome);
    tcp.filter(|_| handling.inspect && !handling.spared).filter(is_steady)
}

/// Whether a packet is as it came, leaves so, and is by itself in its frame.
fn is_plain(occasion: &Occasion<'_>) -> bool {
    occasion.decoded().is_some_and(|packet| {
        packet.source == PacketSource::Wire
            && packet.recursion == 0
            && !packet.flags.intersects(PacketFlags::REBUILT | PacketFlags::CHECKSUM_PENDING)
            && packet.events.as_slice().is_empty()
            && packet.transport.tcp().is_none_or(|tcp| !tcp.options.multipath)
    })
}

/// Whether a segment leaves its session as it was, and nothing is to be said of it.
fn is_quiet(outcome: &Outcome) -> bool {
    outcome.previous == TcpState::Established
        && outcome.state == TcpState::Established
        && outcome.advice == Advice::Forward
        && outcome.events.iter().next().is_none()
        && outcome.exception.is_none()
        && !(outcome.reverse || outcome.rejected || outcome.bypass)
}

fn payload_len(occasion: &Occasion<'_>) -> u32 {
    u32::try_from(occasion.payload().len()).unwrap_or(u32::MAX)
}

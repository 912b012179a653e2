// SPDX-License-Identifier: Apache-2.0
//! A packet of a flow while the chain runner has it in hand.

use super::parts::FlowParts;
use crate::record::Occasion;
use crate::settings::EngineSettings;
use bartizan_applayer::event::EventCode;
use bartizan_applayer::flow::AppLayer;
use bartizan_base::{FlowId, FunctionId};
use bartizan_flow::tcp::{Outcome, StreamEvent, TcpState};
use bartizan_function::{Notes, RejectTo};
use smallvec::SmallVec;

/// What is worked on, and what is decided so far.
pub(super) struct InHand<'h> {
    /// The packet; its direction may be turned.
    pub occasion: Occasion<'h>,
    /// What tracking says of it.
    pub tcp: Option<&'h Outcome>,
    pub events: &'h [StreamEvent],
    pub handling: PacketHandling,
    /// Taken out of the flow's entry.
    pub parts: FlowParts,
    /// What functions are told, the decision among it.
    pub notes: Notes<'h>,
    /// Who is told that it is rejected.
    pub reject: Option<RejectTo>,
    /// Nobody needs the rest of the payload.
    pub bypass: bool,
    pub scope: PayloadScope,
}

/// How a packet is looked at.
#[derive(Clone, Copy, Debug)]
pub struct PacketHandling {
    /// The flow in hand, by its place in the table; `None`: nothing of it waits, as there is no packet in
    /// hand.
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
    /// The function for want of which a staged policy would refuse the packet.
    pub wanting: Option<FunctionId>,
}

impl PacketHandling {
    /// What is left of a flow: nothing is refused any more, and nothing shown yet.
    pub const fn of_what_is_left(established: bool) -> Self {
        PacketHandling {
            flow: None,
            related: None,
            inspect: false,
            spared: true,
            established,
            restored: false,
            wanting: None,
        }
    }
}

/// Whether, before real receivers, a packet of the handshake brings data that readers are shown and that its
/// receiver may take at once (Fast Open, RFC 7413; a server can be told to take data of any SYN). Rules for
/// established flows hold for such data.
pub fn is_shown_early(settings: &EngineSettings, occasion: &Occasion<'_>, outcome: &Outcome) -> bool {
    settings.has_real_receivers()
        && outcome.stored
        && outcome.state < TcpState::Established
        && !occasion.payload().is_empty()
}

/// What payload functions are shown of a packet. [`PayloadScope::Packet`] and [`PayloadScope::Stream`]: only
/// of segments of a train ([`crate::train`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadScope {
    /// The packet and what is new in the stream and the application layer.
    All,
    /// The packet; the rest comes with a later one.
    Packet,
    /// The packet was shown.
    Stream,
    /// The headers of a packet that the stream engine refuses, and what it found in them.
    Headers,
}

impl PayloadScope {
    /// Whether the stream and the application layer are shown.
    pub(super) const fn shows_stream(self) -> bool {
        matches!(self, PayloadScope::All | PayloadScope::Stream)
    }
}

/// What a packet brought to protocol detection.
#[derive(Default)]
pub(super) struct Detection {
    /// Events that were there before the packet; afterwards those that it raised.
    pub events: SmallVec<[EventCode; 4]>,
    seen: usize,
    /// Rules on the result of detection are asked with this packet ([`AppLayer::take_detected`]).
    pub done: bool,
}

impl Detection {
    pub(super) fn before(app: Option<&AppLayer>) -> Self {
        Detection { seen: app.map_or(0, |a| a.events.as_slice().len()), ..Detection::default() }
    }

    pub(super) fn after(mut self, app: Option<&mut AppLayer>, occasion: &Occasion<'_>) -> Self {
        let Some(app) = app else { return self };
        self.events.extend(app.events.as_slice().iter().skip(self.seen).copied());
        let decoded = occasion.decoded();
        // An ICMP error about a flow tells nothing of the flow's protocol.
        if decoded.is_none_or(|packet| packet.about().is_none()) {
            let datagram = decoded.is_some_and(|packet| packet.transport.udp().is_some());
            self.done = app.take_detected(occasion.direction, datagram);
        }
        self
    }
}

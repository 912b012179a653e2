// SPDX-License-Identifier: Apache-2.0
//! The state of the chain runner for one packet of a flow.

use super::effects::Effects;
use crate::record::EventContext;
use crate::settings::EngineSettings;
use bartizan_applayer::event::EventCode;
use bartizan_applayer::flow::AppLayer;
use bartizan_base::{FlowId, FunctionId};
use bartizan_flow::tcp::{Outcome, StreamEvent, TcpState};
use bartizan_function::{ChainResults, RejectTo};
use smallvec::SmallVec;

/// The packet in its flow, the decision so far and the effects so far.
pub(super) struct PacketInspection<'o, 'h> {
    /// The packet; its direction may be swapped.
    pub occasion: &'o mut EventContext<'h>,
    /// The result of tracking.
    pub tcp: Option<&'h Outcome>,
    pub events: &'h [StreamEvent],
    pub handling: PacketHandling,
    /// Results that functions see, among them the decision so far.
    pub notes: ChainResults<'h>,
    /// The sides that get an answer if the packet is rejected.
    pub reject: Option<RejectTo>,
    /// The rest of the payload needs no inspection.
    pub bypass: bool,
    pub scope: PayloadScope,
    /// Passively: rules do not see the packet's payload, since the session was encrypted before it.
    pub payload_hidden: bool,
    pub effects: Effects,
}

/// The parameters of a packet's inspection.
#[derive(Clone, Copy, Debug)]
pub struct PacketHandling {
    /// The flow's index in the table; `None`: without a current packet, when no segment of the flow is
    /// queued.
    pub flow: Option<FlowId>,
    /// An ICMP error: whether it is about a known flow.
    pub related: Option<bool>,
    /// Payload functions run.
    pub inspect: bool,
    /// Whether the verdict of the stream engine does not apply, because an exception policy lets the packet
    /// pass.
    pub spared: bool,
    /// The flow is established for rules.
    pub established: bool,
    /// Functions see the packet with the inspected bytes restored.
    pub restored: bool,
    /// The unavailable function because of which a staged policy would refuse the packet.
    pub wanting: Option<FunctionId>,
}

impl PacketHandling {
    /// The parameters for the end of a flow: nothing is refused any more, and nothing inspected yet.
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

/// Whether a packet of the handshake brings data that functions inspect and that its receiver may take at
/// once, with real receivers (Fast Open, RFC 7413; a server can be configured to take data of any SYN). Rules
/// for established flows apply to such data.
pub fn is_shown_early(settings: &EngineSettings, occasion: &EventContext<'_>, outcome: &Outcome) -> bool {
    settings.has_real_receivers()
        && outcome.stored
        && outcome.state < TcpState::Established
        && !occasion.payload().is_empty()
}

/// The part of a packet that payload functions inspect. [`PayloadScope::Packet`] and [`PayloadScope::Stream`]
/// occur only with segments of a train ([`crate::train`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadScope {
    /// The packet and the new data of the stream and the application layer.
    All,
    /// The packet; its stream data is inspected with a later one.
    Packet,
    /// The stream data; the packet itself was inspected before.
    Stream,
    /// The headers of a packet that the stream engine refuses, and its stream events.
    Headers,
}

impl PayloadScope {
    /// Whether the stream and the application layer are inspected.
    pub(super) const fn shows_stream(self) -> bool {
        matches!(self, PayloadScope::All | PayloadScope::Stream)
    }
}

/// The effect of a packet on protocol detection.
#[derive(Default)]
pub(super) struct Detection {
    /// First the events before the packet; afterwards those that the packet raised.
    pub events: SmallVec<[EventCode; 4]>,
    seen: usize,
    /// Rules on the result of detection are evaluated with this packet ([`AppLayer::take_detected`]).
    pub done: bool,
}

impl Detection {
    pub(super) fn before(app: Option<&AppLayer>) -> Self {
        Detection { seen: app.map_or(0, |a| a.events.as_slice().len()), ..Detection::default() }
    }

    pub(super) fn after(mut self, app: Option<&mut AppLayer>, occasion: &EventContext<'_>) -> Self {
        let Some(app) = app else { return self };
        self.events.extend_from_slice(app.events.as_slice().get(self.seen..).unwrap_or_default());
        let decoded = occasion.decoded();
        // An ICMP error about a flow does not carry the flow's protocol.
        if decoded.is_none_or(|packet| packet.about().is_none()) {
            let datagram = decoded.is_some_and(|packet| packet.transport.udp().is_some());
            self.done = app.take_detected(occasion.direction, datagram);
        }
        self
    }
}

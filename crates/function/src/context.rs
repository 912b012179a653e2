// SPDX-License-Identifier: Apache-2.0
//! What a function is given for one packet.

use crate::finding::{Edit, Finding, RejectTo};
use crate::spec::{Slot, WorkerState};
use crate::transactions::AppView;
use crate::view::FlowView;
use bartizan_base::{Decision, Direction, Fid, FunctionId, TenantId, Timestamp};
use bartizan_flow::tcp::{Outcome, StreamEvent};
use bartizan_packet::PacketView;

/// New stream data of the packet's direction, with a window of what came before.
#[derive(Clone, Copy, Debug)]
pub struct StreamNews<'a> {
    /// The bytes: first those seen before, then the new ones.
    pub bytes: &'a [u8],
    /// Offset of the first byte in the stream.
    pub offset: u64,
    /// How many bytes at the beginning were seen before.
    pub seen: usize,
    /// Inline: it is what is held about this packet, whose bytes were shown before or lie behind a hole.
    /// Those behind a hole come again, in order, with what fills it: who follows the stream passes this over,
    /// who judges packets looks at it.
    pub about_packet: bool,
}

impl<'a> StreamNews<'a> {
    /// The new bytes, and so many before them that a pattern of `longest` bytes which ends in the new ones is
    /// whole.
    #[must_use]
    pub fn with_overlap(&self, longest: usize) -> &'a [u8] {
        let start = self.seen.saturating_sub(longest.saturating_sub(1));
        self.bytes.get(start..).unwrap_or_default()
    }
}

/// Results that earlier functions, decoder and flow tracking left for later ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notes<'a> {
    /// The decision so far: the strictest of the functions that ran.
    pub decision: Decision,
    /// What TCP tracking said about the packet.
    pub tcp: Option<&'a Outcome>,
    /// Class of the flow (of a packet without a flow: what classification says of the packet).
    pub fid: Fid,
    /// Whose traffic it is.
    pub tenant: TenantId,
    /// An ICMP error: whether it quotes a packet of a known flow. `None`: it is none, or nobody looked.
    pub related: Option<bool>,
    /// A fragment that does not leave before its datagram is whole: what is decided of that is decided of it.
    pub waits: bool,
    /// What the generation's lookup found among functions' rules on headers: of each function that has one
    /// the number of the first rule that matches the flow. For ICMP it is that of the packet, since types and
    /// codes change within a flow.
    pub matches: &'a [(FunctionId, u32)],
}

impl Notes<'_> {
    /// The first of a function's [header rules](crate::HeaderRules) that matches.
    #[inline]
    #[must_use]
    pub fn matched(&self, function: FunctionId) -> Option<u32> {
        self.matches.iter().find(|(of, _)| *of == function).map(|(_, rule)| *rule)
    }
}

/// One packet, for one function.
pub struct PacketContext<'a> {
    /// Packet clock.
    pub now: Timestamp,
    /// The packet; absent where what is left of a flow, or waits, is shown without one: then the flow and its
    /// application layer say what it is about, and headers hold nothing.
    pub packet: Option<&'a PacketView<'a>>,
    /// The flow ends, and this is what is left of it: nothing of it can be refused any more.
    pub flow_ends: bool,
    /// Direction within the flow.
    pub direction: Direction,
    /// The flow; absent for packets without one.
    pub flow: Option<&'a FlowView<'a>>,
    /// The application layer, and where the function says what it is done with of its transactions. Payload
    /// functions only.
    pub app: Option<AppView<'a>>,
    /// New stream data. Payload functions only; a packet can bring several pieces, each is one call.
    pub stream: Option<StreamNews<'a>>,
    /// The packet's payload went into the stream.
    pub payload_in_stream: bool,
    /// The stream engine refuses the packet: functions look at its headers and at what the engine found, not
    /// at its payload, which belongs
    /// to no stream. Payload functions only.
    pub headers_only: bool,
    /// Events of the stream engine for this packet.
    pub stream_events: &'a [StreamEvent],
    /// Events of protocol detection that this packet raised. Payload functions only.
    pub app_events: &'a [bartizan_applayer::event::EventCode],
    /// The packet was handed in before and only `stream` is new.
    pub again: bool,
    /// With this packet protocol detection of its direction came to an end. Payload functions only.
    pub detection_done: bool,
    /// What others found.
    pub notes: &'a Notes<'a>,
    /// What this function keeps per worker.
    pub worker: &'a mut WorkerState,
    /// What this function keeps per flow.
    pub slot: &'a mut Slot,
    /// The reasons of which it was reported, for this flow and function, that a staged policy would have
    /// refused: a bit each. Apart from `slot`, so that a function finds what it keeps whether its policy is
    /// staged or not.
    pub staged: &'a mut u64,
    /// Rejections that rules ask for; set in detection as well, where they do not act.
    pub reject: &'a mut Option<RejectTo>,
    /// Where matches are reported.
    pub findings: &'a mut Vec<Finding>,
    /// Where bytes are named that are to be replaced in the packet's payload, in the order in which they
    /// apply.
    pub edits: &'a mut Vec<Edit>,
    /// Refusals act (prevention); else they are only reported.
    pub prevention: bool,
}

// SPDX-License-Identifier: Apache-2.0
//! The context of a function for one packet.

use crate::finding::{Edit, Finding, RejectTo};
use crate::spec::{StateSlot, WorkerState};
use crate::transactions::AppView;
use crate::view::FlowView;
use bartizan_base::{Decision, Direction, Fid, FunctionId, TenantId, Timestamp};
use bartizan_flow::tcp::{Outcome, StreamEvent};
use bartizan_packet::PacketView;

/// New stream data of the packet's direction, with a window of earlier data.
#[derive(Clone, Copy, Debug)]
pub struct StreamNews<'a> {
    /// The bytes: first those seen before, then the new ones.
    pub bytes: &'a [u8],
    /// Offset of the first byte in the stream.
    pub offset: u64,
    /// Number of bytes at the beginning that were seen before.
    pub seen: usize,
    /// Inline: the data held around this packet, whose own bytes were inspected before or are after a hole.
    /// Data after a hole comes again, in order, together with the data that fills the hole: a function that
    /// follows the stream ignores this piece, one that judges packets inspects it.
    pub about_packet: bool,
}

impl<'a> StreamNews<'a> {
    /// The new bytes, preceded by enough earlier ones that a pattern of `longest` bytes ending in the new
    /// ones is complete.
    #[must_use]
    pub fn with_overlap(&self, longest: usize) -> &'a [u8] {
        let start = self.seen.saturating_sub(longest.saturating_sub(1));
        self.bytes.get(start..).unwrap_or_default()
    }
}

/// Results of earlier functions, the decoder and flow tracking for later functions.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChainResults<'a> {
    /// The decision so far: the strictest of the functions that ran.
    pub decision: Decision,
    /// The result of TCP tracking for the packet.
    pub tcp: Option<&'a Outcome>,
    /// Class of the flow (of a packet without a flow: the class by its own header).
    pub fid: Fid,
    /// The tenant.
    pub tenant: TenantId,
    /// An ICMP error: whether it quotes a packet of a known flow. `None`: the packet is no ICMP error, or was
    /// not checked.
    pub related: Option<bool>,
    /// A fragment that does not leave before its datagram is complete: the decision on the datagram applies
    /// to it.
    pub waits: bool,
    /// Results of the generation's lookup in the header rules of functions: for each function with a match,
    /// the number of the first rule that matches the flow. For ICMP the packet is looked up, since types and
    /// codes change within a flow.
    pub matches: &'a [(FunctionId, u32)],
}

impl ChainResults<'_> {
    /// The number of the first of a function's [header rules](crate::HeaderRules) that matches.
    #[inline]
    #[must_use]
    pub fn matched(&self, function: FunctionId) -> Option<u32> {
        self.matches.iter().find(|(of, _)| *of == function).map(|(_, rule)| *rule)
    }
}

/// The facts about a packet, or about data of a flow, that functions read: made once, and the same for all
/// functions of a path.
#[derive(Clone, Copy)]
pub struct PacketFacts<'a> {
    /// Packet clock.
    pub now: Timestamp,
    /// The packet; absent when the remaining or queued data of a flow is inspected without a packet: then
    /// flow and application layer are the only inputs, and conditions on headers do not match.
    pub packet: Option<&'a PacketView<'a>>,
    /// Bytes of a connection that arrived in order and without a packet. Payload functions only; header
    /// functions get them as `packet`.
    pub bytes: Option<&'a PacketView<'a>>,
    /// The flow ends, and this is its remaining data, of which nothing can be refused any more.
    pub flow_ends: bool,
    /// Direction within the flow.
    pub direction: Direction,
    /// The flow; absent for packets without one.
    pub flow: Option<&'a FlowView<'a>>,
    /// New stream data. Payload functions only; a packet can bring several pieces, with one call for each.
    pub stream: Option<StreamNews<'a>>,
    /// The packet's payload entered the stream.
    pub payload_in_stream: bool,
    /// The stream engine refuses the packet: functions inspect its headers and stream events, not its
    /// payload, which belongs to no stream. Payload functions only.
    pub headers_only: bool,
    /// Passively: the session is encrypted, so rules do not see the packet's payload. Payload functions only.
    pub payload_hidden: bool,
    /// Events of the stream engine for this packet.
    pub stream_events: &'a [StreamEvent],
    /// Events of protocol detection that this packet raised. Payload functions only.
    pub app_events: &'a [bartizan_applayer::event::EventCode],
    /// The packet was inspected before and only `stream` is new.
    pub again: bool,
    /// Protocol detection of the packet's direction ended with this packet. Payload functions only.
    pub detection_done: bool,
    /// Whether refusals are enforced (prevention); otherwise they are only reported.
    pub prevention: bool,
}

impl<'a> PacketFacts<'a> {
    /// The facts of a packet without flow, stream and events.
    #[must_use]
    pub const fn of(
        now: Timestamp,
        direction: Direction,
        packet: Option<&'a PacketView<'a>>,
        prevention: bool,
    ) -> Self {
        PacketFacts {
            now,
            packet,
            bytes: None,
            flow_ends: false,
            direction,
            flow: None,
            stream: None,
            payload_in_stream: false,
            headers_only: false,
            payload_hidden: false,
            stream_events: &[],
            app_events: &[],
            again: false,
            detection_done: false,
            prevention,
        }
    }
}

/// One packet, for one function.
pub struct PacketContext<'a> {
    /// The packet, its flow and stream.
    pub facts: &'a PacketFacts<'a>,
    /// The application layer, by which the function also reports the transactions with which it is done.
    /// Payload functions only.
    pub app: Option<AppView<'a>>,
    /// Results of other parts and functions.
    pub notes: &'a ChainResults<'a>,
    /// The function's state for the worker.
    pub worker: &'a mut WorkerState,
    /// The function's state for the flow.
    pub slot: &'a mut StateSlot,
    /// The reasons for which a would-be refusal of a staged policy was already reported, for this flow and
    /// function: a bit each. Separate from `slot`, so that the function's own state does not depend on
    /// staging.
    pub staged: &'a mut u64,
    /// Rejections that rules want; set in detection as well, where they have no effect.
    pub reject: &'a mut Option<RejectTo>,
    /// Receives the matches to report.
    pub findings: &'a mut Vec<Finding>,
    /// Receives the replacements in the packet's payload, in the order in which they apply.
    pub edits: &'a mut Vec<Edit>,
}

// SPDX-License-Identifier: Apache-2.0
//! What a function is shown of a packet: the one place where its context is made.

use crate::flow_ext::FunctionSlot;
use crate::record::{Cause, Occasion};
use bartizan_applayer::event::EventCode;
use bartizan_flow::tcp::StreamEvent;
use bartizan_function::view::FlowView;
use bartizan_function::{
    AppView, Edit, Finding, Notes, PacketContext, RejectTo, Slot, StreamNews, WorkerState,
};

/// What there is to see of a packet.
pub struct Sight<'a> {
    /// The packet.
    pub occasion: &'a Occasion<'a>,
    /// Its flow.
    pub flow: Option<&'a FlowView<'a>>,
    /// The flow's application layer.
    pub app: Option<AppView<'a>>,
    /// What is new in the stream.
    pub stream: Option<StreamNews<'a>>,
    /// The packet's payload is part of the stream.
    pub payload_in_stream: bool,
    /// The packet's payload is not looked at.
    pub headers_only: bool,
    /// What tracking found.
    pub events: &'a [StreamEvent],
    /// What protocol detection found.
    pub app_events: &'a [EventCode],
    /// The packet was shown before.
    pub again: bool,
    /// Detection of the packet's direction has ended.
    pub detection_done: bool,
}

impl<'a> Sight<'a> {
    /// Of a packet, and what is known of its flow; nothing beyond its headers.
    pub const fn of(
        occasion: &'a Occasion<'a>,
        flow: Option<&'a FlowView<'a>>,
        events: &'a [StreamEvent],
    ) -> Self {
        Sight {
            occasion,
            flow,
            app: None,
            stream: None,
            payload_in_stream: false,
            headers_only: false,
            events,
            app_events: &[],
            again: false,
            detection_done: false,
        }
    }
}

/// What a function writes to.
pub struct Hands<'a> {
    /// What it keeps for the worker.
    pub worker: &'a mut WorkerState,
    /// What it keeps for the flow.
    pub slot: &'a mut Slot,
    /// See [`PacketContext::staged`].
    pub staged: &'a mut u64,
    /// Who is told that the packet is rejected.
    pub reject: &'a mut Option<RejectTo>,
    /// What it found.
    pub findings: &'a mut Vec<Finding>,
    /// What it wants replaced.
    pub edits: &'a mut Vec<Edit>,
}

impl<'a> Hands<'a> {
    /// With what is kept for a flow.
    pub const fn of(
        worker: &'a mut WorkerState,
        slot: &'a mut FunctionSlot,
        reject: &'a mut Option<RejectTo>,
        (findings, edits): (&'a mut Vec<Finding>, &'a mut Vec<Edit>),
    ) -> Self {
        Hands { worker, slot: &mut slot.own, staged: &mut slot.staged, reject, findings, edits }
    }
}

/// What a function is shown and writes to. `prevention`: refusals are done.
pub fn context<'a>(
    sight: Sight<'a>,
    notes: &'a Notes<'a>,
    hands: Hands<'a>,
    prevention: bool,
) -> PacketContext<'a> {
    let Sight {
        occasion,
        flow,
        app,
        stream,
        payload_in_stream,
        headers_only,
        events,
        app_events,
        again,
        detection_done,
    } = sight;
    let Hands { worker, slot, staged, reject, findings, edits } = hands;
    PacketContext {
        now: occasion.now,
        packet: occasion.packet(),
        flow_ends: matches!(occasion.cause, Cause::FlowEnd),
        direction: occasion.direction,
        flow,
        app,
        stream,
        payload_in_stream,
        headers_only,
        stream_events: events,
        app_events,
        again,
        detection_done,
        notes,
        worker,
        slot,
        staged,
        reject,
        findings,
        edits,
        prevention,
    }
}

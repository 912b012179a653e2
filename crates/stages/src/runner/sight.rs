// SPDX-License-Identifier: Apache-2.0
//! The context of a function for a packet, made in this one place.

use crate::flow_ext::FunctionSlot;
use crate::record::{Cause, EventContext};
use bartizan_applayer::event::EventCode;
use bartizan_flow::tcp::StreamEvent;
use bartizan_function::view::FlowView;
use bartizan_function::{
    AppView, ChainResults, Edit, Finding, PacketContext, RejectTo, StateSlot, StreamNews, WorkerState,
};
use bartizan_packet::PacketView;

/// The readable part of a function's context.
pub struct FunctionInputs<'a> {
    /// The event's context.
    pub occasion: &'a EventContext<'a>,
    /// The packet. Header halves also get the addresses and ports of bytes that arrived without one.
    pub packet: Option<&'a PacketView<'a>>,
    /// Bytes that arrived without a packet.
    pub bytes: Option<&'a PacketView<'a>>,
    /// Its flow.
    pub flow: Option<&'a FlowView<'a>>,
    /// The flow's application layer.
    pub app: Option<AppView<'a>>,
    /// The new data of the stream.
    pub stream: Option<StreamNews<'a>>,
    /// The packet's payload is part of the stream.
    pub payload_in_stream: bool,
    /// Functions must not look at the packet's payload.
    pub headers_only: bool,
    /// Events of tracking.
    pub events: &'a [StreamEvent],
    /// Events of protocol detection.
    pub app_events: &'a [EventCode],
    /// The packet was inspected before.
    pub again: bool,
    /// Detection of the packet's direction has ended.
    pub detection_done: bool,
}

impl<'a> FunctionInputs<'a> {
    /// The context of a packet and its flow, without anything beyond the headers.
    pub const fn of(
        occasion: &'a EventContext<'a>,
        flow: Option<&'a FlowView<'a>>,
        events: &'a [StreamEvent],
    ) -> Self {
        FunctionInputs {
            occasion,
            packet: occasion.packet(),
            bytes: occasion.bytes(),
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

/// The writable part of a function's context.
pub struct FunctionOutputs<'a> {
    /// The function's state for the worker.
    pub worker: &'a mut WorkerState,
    /// The function's state for the flow.
    pub slot: &'a mut StateSlot,
    /// See [`PacketContext::staged`].
    pub staged: &'a mut u64,
    /// The sides that get an answer if the packet is rejected.
    pub reject: &'a mut Option<RejectTo>,
    /// The findings.
    pub findings: &'a mut Vec<Finding>,
    /// The replacements that the function wants.
    pub edits: &'a mut Vec<Edit>,
}

impl<'a> FunctionOutputs<'a> {
    /// The writable part with the state of a flow.
    pub const fn of(
        worker: &'a mut WorkerState,
        slot: &'a mut FunctionSlot,
        reject: &'a mut Option<RejectTo>,
        findings: &'a mut Vec<Finding>,
        edits: &'a mut Vec<Edit>,
    ) -> Self {
        FunctionOutputs { worker, slot: &mut slot.own, staged: &mut slot.staged, reject, findings, edits }
    }
}

/// Joins both parts of a function's context. `prevention`: refusals are enforced.
pub fn context<'a>(
    sight: FunctionInputs<'a>,
    notes: &'a ChainResults<'a>,
    hands: FunctionOutputs<'a>,
    prevention: bool,
) -> PacketContext<'a> {
    let FunctionInputs {
        occasion,
        packet,
        bytes,
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
    let FunctionOutputs { worker, slot, staged, reject, findings, edits } = hands;
    PacketContext {
        now: occasion.now,
        packet,
        bytes,
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

// SPDX-License-Identifier: Apache-2.0
//! Numbers, names and bounds of WebSocket.

use crate::event::EventCode;
use crate::protocol::{BufferKind, BufferSpec, NumberId, NumberSpec, buffer};
use bartizan_base::PerDirection;

/// Progress of a complete frame.
pub(super) const COMPLETE: u8 = 1;

pub(super) const PAYLOAD: u16 = 0;

pub(super) const BUFFERS: &[BufferSpec] =
    &[buffer(PAYLOAD, "websocket.payload", true, true, COMPLETE, BufferKind::Streaming).of_state(0)];

/// FIN and the reserved bits, as in the first byte.
pub(super) const FLAGS: NumberId = 0;
pub(super) const OPCODE: NumberId = 1;
/// The masking key, as a number in network byte order.
pub(super) const MASK: NumberId = 2;

pub(super) const NUMBERS: &[NumberSpec] = &[
    NumberSpec { id: FLAGS, name: "websocket.flags" },
    NumberSpec { id: OPCODE, name: "websocket.opcode" },
    NumberSpec { id: MASK, name: "websocket.mask" },
];

pub(super) const EVENTS: &[&str] = &[
    "skip_end_of_payload",
    "reassembly_limit_reached",
    "decompression_limit_reached",
    "invalid_frame",
    "invalid_compression",
    "flooded",
];
pub(super) const SKIP_END_OF_PAYLOAD: EventCode = 0;
pub(super) const REASSEMBLY_LIMIT_REACHED: EventCode = 1;
pub(super) const DECOMPRESSION_LIMIT_REACHED: EventCode = 2;
pub(super) const INVALID_FRAME: EventCode = 3;
pub(super) const INVALID_COMPRESSION: EventCode = 4;
pub(super) const FLOODED: EventCode = 5;

pub(super) const STATES: PerDirection<&[&str]> = PerDirection {
    to_server: &["request_started", "request_complete"],
    to_client: &["response_started", "response_complete"],
};

/// Limit of a payload, in bytes, if the settings name none: that of Suricata.
pub(super) const PAYLOAD_MAX: usize = 0xffff;
/// Limit of transactions that are held.
pub(super) const TX_MAX: usize = 4_096;

/// Settings that all flows share.
#[derive(Clone, Copy, Debug)]
pub(super) struct WebSocketConfig {
    /// Limit of a payload, in bytes.
    pub(super) payload_max: usize,
}

// SPDX-License-Identifier: Apache-2.0
//! A frame as a transaction.

use super::frame::{FrameHeader, OPCODES};
use super::message::PayloadWindow;
use super::tables::{COMPLETE, FLAGS, MASK, OPCODE, PAYLOAD};
use crate::memory::Held as _;
use crate::protocol::NumberId;
use crate::transaction::{BufferQuery, BufferView, LogOptions, Transaction, TxCommon};
use bartizan_base::{Direction, Path};
use bartizan_events::JsonWriter;

/// A frame.
#[derive(Debug)]
pub(super) struct WebSocketTransaction {
    pub(super) common: TxCommon,
    direction: Direction,
    header: FrameHeader,
    /// The payload that rules see: that of the frame, or of the message that it completes.
    pub(super) payload: PayloadWindow,
    /// The frame is complete.
    pub(super) is_complete: bool,
}

impl WebSocketTransaction {
    pub(super) fn new(direction: Direction, header: FrameHeader) -> Self {
        let mut common = TxCommon::default();
        // The other direction has no part of the frame.
        common.done[direction.flip()] = Path::ALL;
        let payload = PayloadWindow::default();
        WebSocketTransaction { common, direction, header, payload, is_complete: false }
    }

    fn mask(&self) -> Option<u32> {
        self.header.mask.map(u32::from_be_bytes)
    }
}

impl Transaction for WebSocketTransaction {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, direction: Direction) -> u8 {
        if self.is_complete || direction != self.direction { COMPLETE } else { 0 }
    }

    fn buffer<'a>(&'a self, query: BufferQuery, _scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        let is_here = query.id == PAYLOAD && query.index == 0 && query.direction == self.direction;
        let PayloadWindow { bytes, offset } = &self.payload;
        is_here.then_some(BufferView { data: bytes, offset: *offset, complete: self.is_complete })
    }

    fn is_present(&self, query: BufferQuery) -> bool {
        query.id == PAYLOAD && query.direction == self.direction
    }

    fn number(&self, id: NumberId, direction: Direction) -> Option<u64> {
        if direction != self.direction {
            return None;
        }
        match id {
            FLAGS => Some(self.header.flags.into()),
            OPCODE => Some(self.header.opcode.into()),
            MASK => self.mask().map(u64::from),
            _ => None,
        }
    }

    fn message_direction(&self) -> Option<Direction> {
        Some(self.direction)
    }

    fn held(&self) -> usize {
        self.payload.bytes.held()
    }

    fn log(&self, json: &mut JsonWriter, options: &LogOptions, _in_alert: bool) {
        json.bool("fin", self.header.is_final());
        if let Some(mask) = self.mask() {
            json.num("mask", mask);
        }
        let opcode = u64::from(self.header.opcode);
        match OPCODES.iter().find(|(_, number)| *number == opcode) {
            Some((name, _)) => json.str("opcode", name),
            None => json.str("opcode", &format!("unknown-{opcode}")),
        }
        let bytes = &self.payload.bytes;
        if options.bodies.printable {
            json.str("payload_printable", &String::from_utf8_lossy(bytes));
        }
        if options.bodies.base64 {
            json.base64("payload_base64", bytes);
        }
    }
}

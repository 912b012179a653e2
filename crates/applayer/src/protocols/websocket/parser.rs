// SPDX-License-Identifier: Apache-2.0
//! The parser of a WebSocket flow.
//!
//! Passively a frame becomes a transaction when its payload has come, of which the limit is read, as in
//! Suricata. In prevention it does with its header, and rules see the payload as it comes: some receivers
//! read a frame before it is complete. Prevention refuses frames at which receivers fail the connection.

use super::frame::{self, FrameHeader};
use super::inflate::{InflateError, Inflater};
use super::message::{OpenMessage, PayloadWindow};
use super::tables::{
    DECOMPRESSION_LIMIT_REACHED, FLOODED, INVALID_COMPRESSION, INVALID_FRAME, REASSEMBLY_LIMIT_REACHED,
    SKIP_END_OF_PAYLOAD, TX_MAX, WebSocketConfig,
};
use super::tx::WebSocketTransaction;
use crate::event::EventCode;
use crate::frames::{Notes, ProtocolFrameNote};
use crate::memory::Held as _;
use crate::protocol::{Input, ParseContext, Parser, Progress};
use crate::transaction::{TxId, TxList, listed_transactions};
use bartizan_base::{Direction, PerDirection};

const HEADER_FRAME: u8 = 1;
const PDU_FRAME: u8 = 2;
const DATA_FRAME: u8 = 3;

/// A frame of which the payload has not come, in prevention.
#[derive(Clone, Copy, Debug)]
struct OpenFrame {
    header: FrameHeader,
    tx: TxId,
    /// Number of bytes of the payload so far.
    done: u64,
}

/// State of one direction.
#[derive(Debug, Default)]
struct WebSocketReader {
    /// Number of bytes of a payload that are to be skipped.
    skip: u64,
    frame: Option<OpenFrame>,
    message: Option<OpenMessage>,
    /// In prevention: the message of the current data frame is compressed.
    is_compressed: bool,
    inflater: Inflater,
}

/// The result of reading the front of the data.
enum WebSocketStep {
    /// Number of bytes that were consumed.
    Taken(usize),
    /// Number of bytes that are needed from here.
    Needs(usize),
    /// Receivers fail the connection, or read the data in different ways.
    Invalid,
}

/// Data of a direction, at an offset of the stream.
#[derive(Clone, Copy)]
struct WebSocketData<'d> {
    direction: Direction,
    at: u64,
    bytes: &'d [u8],
}

/// The parser of a WebSocket flow.
#[derive(Debug)]
pub(super) struct WebSocketParser {
    config: WebSocketConfig,
    held: TxList<WebSocketTransaction>,
    readers: PerDirection<WebSocketReader>,
    frames: Notes,
    /// Bytes of a payload without its mask.
    plain: Vec<u8>,
}

impl WebSocketParser {
    pub(super) fn new(config: WebSocketConfig) -> Self {
        WebSocketParser {
            config,
            held: TxList::default(),
            readers: PerDirection::default(),
            frames: Notes::default(),
            plain: Vec::new(),
        }
    }

    /// Adds a transaction. `false`: there are too many, and prevention drops none that was not inspected.
    fn push(&mut self, tx: WebSocketTransaction, prevents: bool) -> bool {
        self.held.push(tx);
        if self.held.len() <= TX_MAX {
            return true;
        }
        if !prevents {
            let oldest = self.held.range().start;
            self.held.free(oldest);
        }
        self.raise(FLOODED);
        !prevents
    }

    /// Raises an event of the newest transaction.
    fn raise(&mut self, event: EventCode) {
        if let Some(newest) = self.held.last_mut() {
            newest.common.events.set(event);
        }
    }

    /// Notes the protocol frames of a WebSocket frame at an offset.
    fn note(&mut self, data: WebSocketData<'_>, header: FrameHeader, length: u64) {
        if !self.frames.on {
            return;
        }
        let (size, tx) = (header.size as u64, Some(self.held.next_id()));
        let mut add = |kind, at, len| {
            self.frames.add(data.direction, ProtocolFrameNote::Whole { kind, at, len, tx });
        };
        add(HEADER_FRAME, data.at, size);
        add(PDU_FRAME, data.at, size.saturating_add(length));
        add(DATA_FRAME, data.at.saturating_add(size), length);
    }

    /// Reads a frame with its payload.
    fn read_frame(&mut self, data: WebSocketData<'_>) -> WebSocketStep {
        let skip = &mut self.readers[data.direction].skip;
        if *skip > 0 {
            let length = usize::try_from(*skip).unwrap_or(usize::MAX).min(data.bytes.len());
            *skip = skip.saturating_sub(length as u64);
            return WebSocketStep::Taken(length);
        }
        let header = match FrameHeader::read(data.bytes) {
            Ok(header) => header,
            Err(needed) => return WebSocketStep::Needs(needed),
        };
        let length = header.length.min(self.config.payload_max as u64);
        let end = header.size.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        let Some(payload) = data.bytes.get(header.size..end) else { return WebSocketStep::Needs(end) };
        self.note(data, header, length);
        let mut bytes = Vec::with_capacity(payload.len());
        frame::unmask(payload, header.mask, 0, &mut bytes);
        let mut tx = WebSocketTransaction::new(data.direction, header);
        self.readers[data.direction].skip = header.length.saturating_sub(length);
        if length < header.length {
            tx.common.events.set(SKIP_END_OF_PAYLOAD);
        }
        tx.payload = PayloadWindow { bytes, offset: 0 };
        tx.is_complete = true;
        if !header.is_control() {
            self.readers[data.direction].assemble(header, &mut tx, self.config.payload_max);
        }
        self.push(tx, false);
        WebSocketStep::Taken(end)
    }

    /// Reads a frame's header, or the next bytes of its payload, before a receiver does.
    fn read_part(&mut self, data: WebSocketData<'_>) -> WebSocketStep {
        let direction = data.direction;
        let Some(mut open) = self.readers[direction].frame.take() else {
            return self.open_frame(data);
        };
        let left = usize::try_from(open.header.length.saturating_sub(open.done)).unwrap_or(usize::MAX);
        let part = data.bytes.get(..left).unwrap_or(data.bytes);
        self.plain.clear();
        frame::unmask(part, open.header.mask, open.done, &mut self.plain);
        open.done = open.done.saturating_add(part.len() as u64);
        let is_complete = open.done == open.header.length;
        if let Err(event) = self.add_part(direction, open, is_complete) {
            if let Some(tx) = self.held.get_mut(open.tx) {
                tx.common.events.set(event);
            }
            return WebSocketStep::Invalid;
        }
        if !is_complete {
            self.readers[direction].frame = Some(open);
        }
        WebSocketStep::Taken(part.len())
    }

    /// Begins a frame.
    fn open_frame(&mut self, data: WebSocketData<'_>) -> WebSocketStep {
        let header = match FrameHeader::read(data.bytes) {
            Ok(header) => header,
            Err(needed) => return WebSocketStep::Needs(needed),
        };
        self.note(data, header, header.length);
        let reader = &mut self.readers[data.direction];
        let mut tx = WebSocketTransaction::new(data.direction, header);
        let is_refused = header.is_refused(reader.message.is_some());
        if is_refused {
            tx.common.events.set(INVALID_FRAME);
        } else if !header.is_control() {
            tx.payload = reader.begin(header);
        }
        let id = self.held.next_id();
        if !self.push(tx, true) || is_refused {
            return WebSocketStep::Invalid;
        }
        let open = OpenFrame { header, tx: id, done: 0 };
        if header.length == 0 {
            self.plain.clear();
            if let Err(event) = self.add_part(data.direction, open, true) {
                self.raise(event);
                return WebSocketStep::Invalid;
            }
        } else {
            self.readers[data.direction].frame = Some(open);
        }
        WebSocketStep::Taken(header.size)
    }

    /// Adds a part of a payload, without its mask in `plain`, to its transaction and its message.
    fn add_part(
        &mut self,
        direction: Direction,
        open: OpenFrame,
        is_complete: bool,
    ) -> Result<(), EventCode> {
        let reader = &mut self.readers[direction];
        let Some(tx) = self.held.get_mut(open.tx) else { return Ok(()) };
        if open.header.is_control() {
            tx.is_complete = is_complete;
            tx.payload.push(&self.plain);
            return Ok(());
        }
        let mut decoded = Vec::new();
        let (mut part, mut result) = (&self.plain, Ok(false));
        if reader.is_compressed {
            let is_last = is_complete && open.header.is_final();
            result = reader.inflater.decode(part, is_last, usize::MAX, &mut decoded);
            part = &decoded;
        }
        tx.payload.push(part);
        if let Some(message) = &mut reader.message {
            message.add(part);
        }
        result.map_err(event_of)?;
        tx.is_complete = is_complete;
        Ok(())
    }
}

/// The event of a failure.
const fn event_of(error: InflateError) -> EventCode {
    match error {
        InflateError::TooMuch => DECOMPRESSION_LIMIT_REACHED,
        InflateError::Corrupt | InflateError::Ambiguous => INVALID_COMPRESSION,
    }
}

impl WebSocketReader {
    /// Passively: makes the payload of a frame that completes a message that of the message.
    fn assemble(&mut self, header: FrameHeader, tx: &mut WebSocketTransaction, limit: usize) {
        if !header.is_final() && self.message.is_none() {
            self.message = Some(OpenMessage::new(header.is_compressed()));
        }
        let mut is_compressed = header.is_compressed();
        if let Some(message) = &mut self.message {
            is_compressed = message.is_compressed;
            if !message.add_within(&tx.payload.bytes, limit) {
                tx.common.events.set(REASSEMBLY_LIMIT_REACHED);
            }
        }
        if !header.is_final() {
            return;
        }
        if let Some(message) = self.message.take() {
            tx.payload = message.into_window();
        }
        if is_compressed {
            let mut decoded = Vec::new();
            match self.inflater.decode(&tx.payload.bytes, true, limit, &mut decoded) {
                Ok(false) => {}
                Ok(true) | Err(InflateError::TooMuch) => tx.common.events.set(DECOMPRESSION_LIMIT_REACHED),
                // The payload stays as it came, as in Suricata.
                Err(_) => return tx.common.events.set(INVALID_COMPRESSION),
            }
            tx.payload.bytes = decoded;
        }
    }

    /// In prevention: begins a data frame; returns the bytes that it shows before its own.
    fn begin(&mut self, header: FrameHeader) -> PayloadWindow {
        if self.message.is_none() {
            self.is_compressed = header.is_compressed();
        }
        if header.is_final() {
            return self.message.take().map(OpenMessage::into_window).unwrap_or_default();
        }
        match &mut self.message {
            Some(message) => message.before(header.length),
            None => {
                self.message = Some(OpenMessage::new(self.is_compressed));
                PayloadWindow::default()
            }
        }
    }

    fn held(&self) -> usize {
        self.message.held().saturating_add(self.inflater.held())
    }
}

impl Parser for WebSocketParser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        let mut rest = input.data;
        while !rest.is_empty() {
            let consumed = input.data.len().saturating_sub(rest.len());
            let at = input.offset.saturating_add(consumed as u64);
            let data = WebSocketData { direction, at, bytes: rest };
            let step = if context.prevents { self.read_part(data) } else { self.read_frame(data) };
            match step {
                WebSocketStep::Taken(length) => rest = rest.get(length..).unwrap_or_default(),
                WebSocketStep::Needs(needed) => return Progress::Incomplete { consumed, needed },
                WebSocketStep::Invalid => return Progress::Error,
            }
        }
        Progress::Done
    }

    fn gap(&mut self, direction: Direction, missing: u64, _context: &mut ParseContext<'_>) -> bool {
        // Bytes that are skipped anyway may be missing.
        let skip = &mut self.readers[direction].skip;
        let is_known = missing <= *skip;
        *skip = skip.saturating_sub(missing);
        is_known
    }

    listed_transactions!(held);

    fn frames(&mut self) -> Option<&mut Notes> {
        Some(&mut self.frames)
    }

    fn held(&mut self) -> usize {
        let readers = self.readers.to_server.held().saturating_add(self.readers.to_client.held());
        size_of::<Self>()
            .saturating_add(readers)
            .saturating_add(self.plain.held())
            .saturating_add(self.held.held())
    }

    fn end(&mut self, direction: Direction, _context: &mut ParseContext<'_>) {
        let Some(open) = self.readers[direction].frame.take() else { return };
        if let Some(tx) = self.held.get_mut(open.tx) {
            tx.common.ended[direction] = true;
        }
    }
}

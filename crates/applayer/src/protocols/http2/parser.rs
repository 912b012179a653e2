// SPDX-License-Identifier: Apache-2.0
//! The parser of a connection: the client's preface, and frames of both sides.

use super::PREFACE;
use super::events;
use super::frame::{
    CONTINUATION, DATA, END_HEADERS, FrameHead, FramePayload, HEAD, HEADERS, HttpFrame, MAX_FRAME_SIZE,
    PADDED, PUSH_PROMISE, PayloadFailure, RST_STREAM, SETTINGS, payload,
};
use super::hpack::HeaderTable;
use super::settings::Http2Settings;
use super::strict;
use super::tx::{Http2Tx, StreamState, TxTable};
use crate::content::files::FileContext;
use crate::event::EventCode;
use crate::frames::{Notes, ProtocolFrameNote};
use crate::memory::{Held as _, allocated};
use crate::protocol::{Input, ParseContext, Parser, Progress};
use crate::protocols::http::ranges::PartialFiles;
use crate::transaction::{Transaction, TxId, listed_transactions};
use bartizan_base::{Direction, PerDirection};

/// Limit of a frame that is read whole, in bytes.
pub(super) const WHOLE_MAX: usize = 65_536;
/// Largest frame before a side allows larger ones (RFC 9113 section 6.5.2).
const FRAME_SIZE: usize = 16_384;
/// Numbers of the kinds of protocol frames.
const HDR_FRAME: u8 = 1;
const DATA_FRAME: u8 = 2;
const PDU_FRAME: u8 = 3;

/// A block of fields that is not complete.
pub(super) struct OpenBlock {
    /// The first frame.
    pub(super) head: FrameHead,
    /// The stream that the fields belong to.
    pub(super) stream: u32,
    pub(super) weight: Option<u8>,
    pub(super) data: Vec<u8>,
    /// Number of frames.
    pub(super) frames: u32,
}

/// A frame of data that is read as it comes.
#[derive(Clone, Copy)]
struct OpenData {
    tx: TxId,
    content: usize,
    padding: usize,
    ends: bool,
}

/// The bytes of a side.
pub(super) struct Http2Side {
    /// The preface is read.
    greeted: bool,
    /// The first frame is read.
    begun: bool,
    pub(super) table: HeaderTable,
    pub(super) assembly: Option<Box<OpenBlock>>,
    data: Option<OpenData>,
    /// Bytes of a frame that are passed over.
    skip: usize,
    /// Largest frame that the other side allows.
    largest: usize,
    /// Highest number of a stream that the side has opened.
    pub(super) highest: u32,
}

impl Http2Side {
    fn new(greeted: bool, settings: &Http2Settings) -> Self {
        Http2Side {
            greeted,
            begun: false,
            table: HeaderTable::new(settings.table),
            assembly: None,
            data: None,
            skip: 0,
            largest: FRAME_SIZE,
            highest: 0,
        }
    }

    fn held(&self) -> usize {
        let assembly = |open: &OpenBlock| allocated(size_of::<OpenBlock>()).saturating_add(open.data.held());
        self.table.held().saturating_add(self.assembly.as_deref().map_or(0, assembly))
    }
}

/// The result of reading the front of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http2Step {
    /// Number of bytes that were read.
    Taken(usize),
    /// Number of bytes that are needed.
    Needs(usize),
    Fail,
}

/// The parser of a connection.
pub(super) struct Http2Parser {
    pub(super) settings: Http2Settings,
    pub(super) txs: TxTable,
    pub(super) sides: PerDirection<Http2Side>,
    pub(super) file_context: FileContext,
    pub(super) ranges: PartialFiles,
    frames: Notes,
    /// Frames that stand for the request of HTTP/1 which asked for the upgrade.
    upgraded: Vec<u8>,
    /// These frames are being read.
    pub(super) replays: bool,
    pub(super) strict: bool,
    /// A message of DNS was seen.
    pub(super) has_dns: bool,
}

impl Http2Parser {
    pub(super) fn new(settings: Http2Settings, upgraded: &[u8]) -> Self {
        Http2Parser {
            settings,
            txs: TxTable::default(),
            sides: PerDirection::new(Http2Side::new(false, &settings), Http2Side::new(true, &settings)),
            file_context: FileContext::default(),
            ranges: PartialFiles::default(),
            frames: Notes::default(),
            upgraded: upgraded.to_vec(),
            replays: false,
            strict: false,
            has_dns: false,
        }
    }

    /// Takes the settings of the flow, and reads the request of HTTP/1 before the first frame.
    fn prepare(&mut self, context: &ParseContext<'_>) -> bool {
        self.file_context.begin_call(context.files);
        self.strict |= context.prevents;
        self.file_context.strict = self.strict;
        let upgraded = core::mem::take(&mut self.upgraded);
        let mut rest = upgraded.as_slice();
        self.replays = true;
        while let Some((head, data)) = FrameHead::read(rest).zip(rest.get(HEAD..)) {
            let Some((data, after)) = data.split_at_checked(head.length) else { return false };
            if !self.frame(Direction::ToServer, head, data) {
                return false;
            }
            rest = after;
        }
        self.replays = false;
        true
    }

    /// Raises an event on the newest transaction, as Suricata does with what belongs to no frame.
    pub(super) fn raise(&mut self, code: EventCode) {
        match self.txs.last_mut() {
            Some(tx) => tx.common_mut().events.set(code),
            None => {
                // An event needs a transaction to be seen.
                let id = self.txs.push(Http2Tx { state: StreamState::Connection, ..Http2Tx::default() });
                if let Some(tx) = self.txs.get_mut(id) {
                    tx.common_mut().events.set(code);
                }
            }
        }
    }

    /// Reads the client's preface.
    fn read_preface(&mut self, data: &[u8]) -> Http2Step {
        if data.starts_with(PREFACE) {
            self.sides.to_server.greeted = true;
            return Http2Step::Taken(PREFACE.len());
        }
        if PREFACE.starts_with(data) {
            // Any next byte may show that this is none.
            return Http2Step::Needs(data.len().saturating_add(1));
        }
        self.sides.to_server.greeted = true;
        self.raise(events::INVALID_CLIENT_MAGIC);
        if self.strict { Http2Step::Fail } else { Http2Step::Taken(0) }
    }

    /// Reads the front of the data.
    fn step(&mut self, direction: Direction, data: &[u8], at: u64) -> Http2Step {
        let side = &mut self.sides[direction];
        if !side.greeted {
            return self.read_preface(data);
        }
        if side.skip > 0 {
            let skipped = side.skip.min(data.len());
            side.skip -= skipped;
            return Http2Step::Taken(skipped);
        }
        if side.data.is_some() {
            return self.open_data(direction, data);
        }
        let Some((head, payload)) = FrameHead::read(data).zip(data.get(HEAD..)) else {
            return Http2Step::Needs(HEAD);
        };
        if self.strict && !self.accepts(direction, head) {
            return Http2Step::Fail;
        }
        if head.kind == DATA && head.stream > 0 && (self.strict || head.length >= WHOLE_MAX) {
            return self.begin_data(direction, head, payload, at);
        }
        if head.length >= WHOLE_MAX {
            self.raise(events::LONG_FRAME_DATA);
            let tx = self.deliver(direction, head, FramePayload::Other);
            self.note(direction, head, at, tx);
            if tx.is_none() {
                return Http2Step::Fail;
            }
            self.sides[direction].skip = head.length;
            return Http2Step::Taken(HEAD);
        }
        let Some(payload) = payload.get(..head.length) else {
            return Http2Step::Needs(HEAD.saturating_add(head.length));
        };
        self.sides[direction].begun = true;
        let before = self.txs.range().end;
        if !self.frame(direction, head, payload) {
            return Http2Step::Fail;
        }
        let made = self.txs.range().end;
        let newest = (made > before).then(|| made.saturating_sub(1));
        let tx = newest
            .or_else(|| self.txs.of_stream(head.stream))
            .filter(|_| head.length > 0 || head.kind != SETTINGS);
        self.note(direction, head, at, tx);
        Http2Step::Taken(HEAD.saturating_add(head.length))
    }

    /// Whether prevention lets a frame pass.
    fn accepts(&self, direction: Direction, head: FrameHead) -> bool {
        let side = &self.sides[direction];
        let continues = side.assembly.as_ref().map(|open| open.head.stream);
        let order = match continues {
            Some(stream) => head.kind == CONTINUATION && head.stream == stream,
            None => head.kind != CONTINUATION && (side.begun || head.kind == SETTINGS),
        };
        let opened = self.sides.to_server.highest.max(self.sides.to_client.highest);
        order
            && head.length <= side.largest
            && strict::frame(direction, head)
            && (head.kind != DATA || head.stream <= opened)
    }

    fn note(&mut self, direction: Direction, head: FrameHead, at: u64, tx: Option<TxId>) {
        let (before, length) = (HEAD as u64, head.length as u64);
        for (kind, at, len) in [
            (HDR_FRAME, at, before),
            (DATA_FRAME, at.saturating_add(before), length),
            (PDU_FRAME, at, before.saturating_add(length)),
        ] {
            self.frames.add(direction, ProtocolFrameNote::Whole { kind, at, len, tx });
        }
    }

    /// Begins a frame of data that is read as it comes.
    fn begin_data(&mut self, direction: Direction, head: FrameHead, data: &[u8], at: u64) -> Http2Step {
        let padded = usize::from(head.has(PADDED));
        let padding = match (padded, data.first()) {
            (0, _) => 0,
            (_, None) if head.length > 0 => return Http2Step::Needs(HEAD + 1),
            (_, first) => first.map_or(0, |padding| usize::from(*padding)),
        };
        let content = head.length.checked_sub(padding.saturating_add(padded));
        if self.strict && content.is_none() {
            return Http2Step::Fail;
        }
        if head.length >= WHOLE_MAX {
            self.raise(events::LONG_FRAME_DATA);
        }
        let tx = self.deliver(direction, head, FramePayload::Other);
        self.note(direction, head, at, tx);
        let Some(id) = tx else { return Http2Step::Fail };
        let content = content.unwrap_or(0);
        let padding = head.length.saturating_sub(padded).saturating_sub(content);
        self.sides[direction].data = Some(OpenData { tx: id, content, padding, ends: head.ends_stream() });
        let taken = HEAD + padded.min(head.length);
        if content == 0 && self.open_data(direction, &[]) == Http2Step::Fail {
            return Http2Step::Fail;
        }
        Http2Step::Taken(taken)
    }

    /// Reads on in a frame of data.
    fn open_data(&mut self, direction: Direction, data: &[u8]) -> Http2Step {
        let Some(mut open) = self.sides[direction].data.take() else { return Http2Step::Taken(0) };
        let taken = open.content.min(data.len());
        open.content -= taken;
        let is_over = open.content == 0;
        if is_over {
            self.sides[direction].skip = open.padding;
        } else {
            self.sides[direction].data = Some(open);
        }
        let piece = data.get(..taken).unwrap_or_default();
        if self.body(direction, open.tx, piece, is_over && open.ends) {
            Http2Step::Taken(taken)
        } else {
            Http2Step::Fail
        }
    }

    /// Reads a whole frame. `false`: the connection cannot be read on.
    fn frame(&mut self, direction: Direction, head: FrameHead, data: &[u8]) -> bool {
        match head.kind {
            HEADERS | PUSH_PROMISE | CONTINUATION => return self.block(direction, head, data),
            DATA => return self.whole_data(direction, head, data),
            SETTINGS if head.length == 0 => return true,
            _ => {}
        }
        let (content, failure) = match payload(head, data) {
            Ok(content) => (content, None),
            Err(PayloadFailure::Length) => (FramePayload::Other, Some(events::INVALID_FRAME_LENGTH)),
            Err(PayloadFailure::Data) => (FramePayload::Other, Some(events::INVALID_FRAME_DATA)),
        };
        if let FramePayload::Settings(list) = &content {
            for setting in list.iter().filter(|setting| setting.id == MAX_FRAME_SIZE) {
                let size = usize::try_from(setting.value).unwrap_or(usize::MAX);
                let other = &mut self.sides[direction.flip()];
                other.largest = other.largest.max(size).min(WHOLE_MAX << 8);
            }
        }
        let failure = failure.or_else(|| {
            let is_odd = self.replays && !head.length.is_multiple_of(6);
            is_odd.then_some(events::INVALID_HTTP1_SETTINGS)
        });
        let Some(id) = self.deliver(direction, head, content) else { return false };
        let Some(tx) = self.txs.get_mut(id) else { return false };
        if let Some(code) = failure {
            tx.common_mut().events.set(code);
        }
        // For Suricata the stream stays open; here it would use up the places of others.
        if head.kind == RST_STREAM && self.strict && tx.state < StreamState::Closed {
            tx.state = StreamState::Closed;
            tx.is_reset = true;
            for direction in Direction::BOTH {
                self.abort(direction, id);
            }
        }
        failure.is_none() || !self.strict
    }

    /// Holds a frame in the transaction of its stream. `None`: there are too many transactions.
    pub(super) fn deliver(
        &mut self,
        direction: Direction,
        head: FrameHead,
        content: FramePayload,
    ) -> Option<TxId> {
        let known = self.txs.of_stream(head.stream).filter(|_| head.stream > 0);
        let id = match known {
            Some(id) => id,
            None => self.begin(direction, head)?,
        };
        let limit = self.settings.frames;
        let tx = self.txs.get(id)?;
        let is_closed = tx.state == StreamState::Closed && !tx.is_reset;
        let late = is_closed && matches!(head.kind, DATA | HEADERS | PUSH_PROMISE | CONTINUATION);
        if late && known.is_some() {
            self.raise(events::STREAM_ID_REUSE);
        }
        let tx = self.txs.get_mut(id)?;
        let side = &mut tx.sides[direction];
        if side.count >= limit || !side.push(HttpFrame { kind: head.kind, payload: content }) {
            tx.common_mut().events.set(events::TOO_MANY_FRAMES);
        }
        Some(id)
    }

    /// Begins a transaction.
    fn begin(&mut self, direction: Direction, head: FrameHead) -> Option<TxId> {
        if self.txs.len() > self.settings.streams {
            for id in self.txs.ids() {
                if let Some(tx) = self.txs.get_mut(id) {
                    tx.common_mut().events.set(events::TOO_MANY_STREAMS);
                    tx.state = StreamState::Dropped;
                }
            }
            return None;
        }
        let state = match (head.stream, head.kind) {
            (0, _) => StreamState::Connection,
            (_, PUSH_PROMISE) => StreamState::Reserved,
            _ => StreamState::Open,
        };
        if matches!(head.kind, HEADERS | PUSH_PROMISE) {
            let side = &mut self.sides[direction];
            side.highest = side.highest.max(head.stream);
        }
        let is_pushed = direction == Direction::ToClient && state != StreamState::Connection;
        Some(self.txs.push(Http2Tx {
            stream: head.stream,
            state,
            strict: self.strict,
            is_pushed,
            ..Http2Tx::default()
        }))
    }

    /// Whether a block of fields is complete with a frame.
    pub(super) const fn ends_block(head: FrameHead) -> bool {
        head.has(END_HEADERS)
    }
}

impl Parser for Http2Parser {
    fn parse(&mut self, direction: Direction, input: Input<'_>, context: &mut ParseContext<'_>) -> Progress {
        if !self.prepare(context) {
            return Progress::Error;
        }
        let mut taken = 0usize;
        while let Some(rest) = input.data.get(taken..).filter(|rest| !rest.is_empty()) {
            let at = input.offset.saturating_add(taken as u64);
            match self.step(direction, rest, at) {
                Http2Step::Taken(count) => taken = taken.saturating_add(count),
                Http2Step::Needs(needed) => return Progress::Incomplete { consumed: taken, needed },
                Http2Step::Fail => return Progress::Error,
            }
        }
        Progress::Done
    }

    fn gap(&mut self, _direction: Direction, _missing: u64, context: &mut ParseContext<'_>) -> bool {
        self.prepare(context);
        // Where the next frame begins is not known, nor what the table of fields has.
        false
    }

    listed_transactions!(txs);

    fn frames(&mut self) -> Option<&mut Notes> {
        Some(&mut self.frames)
    }

    fn refined_protocol(&self) -> Option<&'static str> {
        self.has_dns.then_some("doh2")
    }

    fn held(&mut self) -> usize {
        let sides = self.sides.to_server.held().saturating_add(self.sides.to_client.held());
        let own = size_of::<Self>().saturating_add(self.upgraded.held()).saturating_add(self.ranges.held());
        own.saturating_add(sides).saturating_add(self.txs.held())
    }

    fn disrupt(&mut self, direction: Direction, context: &mut ParseContext<'_>) {
        self.prepare(context);
        self.txs.worklist_mut().disrupt(direction);
        for id in self.txs.ids() {
            if let Some(tx) = self.txs.get_mut(id) {
                tx.common_mut().ended[direction] = true;
            }
            self.abort(direction, id);
        }
    }

    fn end(&mut self, direction: Direction, context: &mut ParseContext<'_>) {
        self.prepare(context);
        for id in self.txs.ids() {
            self.abort(direction, id);
        }
    }
}

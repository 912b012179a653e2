// SPDX-License-Identifier: Apache-2.0
//! Messages of streams: blocks of fields, and data.

use super::body::BodyRange;
use super::doh::DnsMessages;
use super::events;
use super::frame::{CONTINUATION, FrameHead, FramePayload, PRIORITISED, PUSH_PROMISE, without_padding};
use super::hpack::{BlockFailure, FieldStatus, HeaderField};
use super::parser::{Http2Parser, OpenBlock};
use super::strict;
use super::tx::Http2Tx;
use crate::content::decompress::Pace;
use crate::content::file::FileState;
use crate::event::Events;
use crate::protocols::http::fields::{ContentRange, content_range};
use crate::transaction::{Transaction as _, TxId};
use bartizan_base::{Cursor, Direction};

/// The beginning of a block, in a HEADERS or PUSH_PROMISE frame.
struct BlockStart<'a> {
    stream: u32,
    weight: Option<u8>,
    data: &'a [u8],
}

impl Http2Parser {
    /// Reads a frame with fields. `false`: the connection cannot be read on.
    pub(super) fn block(&mut self, direction: Direction, head: FrameHead, data: &[u8]) -> bool {
        if head.kind == CONTINUATION {
            return self.continued(direction, head, data);
        }
        let Some(start) = start(head, data) else {
            let Some(id) = self.deliver(direction, head, FramePayload::Other) else { return false };
            self.raise_on(id, events::INVALID_FRAME_DATA);
            return !self.strict;
        };
        let open = OpenBlock {
            head,
            stream: start.stream,
            weight: start.weight,
            data: if Self::ends_block(head) { Vec::new() } else { start.data.to_vec() },
            frames: 1,
        };
        if Self::ends_block(head) {
            return self.fields(direction, &open, head, start.data);
        }
        self.sides[direction].assembly = Some(Box::new(open));
        true
    }

    /// Reads on in a block.
    fn continued(&mut self, direction: Direction, head: FrameHead, data: &[u8]) -> bool {
        let open = self.sides[direction].assembly.take().filter(|open| open.head.stream == head.stream);
        let Some(mut open) = open else {
            let open = OpenBlock { head, stream: head.stream, weight: None, data: Vec::new(), frames: 1 };
            let is_read = self.fields(direction, &open, head, data);
            if let Some(id) = self.txs.of_stream(head.stream) {
                self.raise_on(id, events::CONTINUATION_WITHOUT_HEADERS);
            }
            return is_read && !self.strict;
        };
        open.frames = open.frames.saturating_add(1);
        let too_long = open.data.len().saturating_add(data.len()) > self.settings.block
            || open.frames > self.settings.frames;
        if too_long {
            let Some(id) =
                self.deliver(direction, FrameHead { stream: open.stream, ..head }, FramePayload::Other)
            else {
                return false;
            };
            self.raise_on(id, events::REASSEMBLY_LIMIT_REACHED);
            // The table of fields is not known any more.
            return false;
        }
        open.data.extend_from_slice(data);
        if Self::ends_block(head) {
            let block = core::mem::take(&mut open.data);
            return self.fields(direction, &open, head, &block);
        }
        self.sides[direction].assembly = Some(open);
        true
    }

    fn raise_on(&mut self, id: TxId, code: crate::event::EventCode) {
        if let Some(tx) = self.txs.get_mut(id) {
            tx.common_mut().events.set(code);
        }
    }

    /// Reads the fields of a block. `last`: the frame that ends it.
    fn fields(&mut self, direction: Direction, open: &OpenBlock, last: FrameHead, data: &[u8]) -> bool {
        let used = self.txs.of_stream(open.stream).and_then(|id| self.txs.get(id));
        let used = used.map_or(0, |tx| tx.sides[direction].fields);
        let block = self.sides[direction].table.read(data, used);
        let is_trailer = used > 0 && self.has_final_fields(direction, open.stream);
        // What stands for a request of HTTP/1 was judged there.
        let refused = self.strict
            && !self.replays
            && (block.failure.is_some()
                || block.table_overflow
                || !self.sides_match(direction, open)
                || !strict::fields(direction_of(open, direction), &block.fields, is_trailer));
        let mut raised = Events::default();
        check(&block.fields, &mut raised);
        match block.failure {
            Some(BlockFailure::Malformed) => raised.set(events::INVALID_FRAME_DATA),
            Some(BlockFailure::IntegerOverflow) => raised.set(events::HEADER_INTEGER_OVERFLOW),
            Some(BlockFailure::TooLong) => raised.set(events::REASSEMBLY_LIMIT_REACHED),
            None => {}
        }
        if block.table_overflow {
            raised.set(events::HEADER_TABLE_OVERFLOW);
        }
        let head = FrameHead { stream: open.stream, kind: open.head.kind, ..last };
        let encodings: Vec<_> =
            block.fields.iter().filter(|field| field.is_named(b"content-encoding")).cloned().collect();
        let is_interim = block.fields.iter().any(is_interim);
        let dns = self.dns_of(direction, open.stream, &block.fields);
        let content = FramePayload::Fields { weight: open.weight, fields: block.fields };
        let Some(id) = self.deliver(direction, head, content) else { return false };
        let pace = if self.strict { Pace::Prompt } else { Pace::Even };
        let Some(tx) = self.txs.get_mut(id) else { return false };
        let side = &mut tx.sides[direction];
        side.fields = side.fields.saturating_add(block.size);
        // A promise stands for a request, and the answer follows.
        side.headed |= !is_interim && open.head.kind != PUSH_PROMISE;
        tx.dns = dns.or_else(|| tx.dns.take());
        let side = &mut tx.sides[direction];
        for field in &encodings {
            side.body.set_encodings(&field.value, pace);
        }
        for code in raised.as_slice() {
            tx.common_mut().events.set(*code);
        }
        if refused {
            return false;
        }
        if open.head.ends_stream() { self.end_stream(direction, id, false) } else { true }
    }

    /// The messages of DNS of a stream, after fields.
    fn dns_of(
        &mut self,
        direction: Direction,
        stream: u32,
        fields: &[HeaderField],
    ) -> Option<Box<DnsMessages>> {
        let known = self.txs.of_stream(stream).and_then(|id| self.txs.mark_mut(id));
        let mut dns = known.and_then(|tx| tx.dns.take()).unwrap_or_default();
        self.has_dns |= dns.read_fields(direction, fields, self.strict);
        dns.is_used().then_some(dns)
    }

    /// Whether the fields of a message have come already, so that further ones are its trailer.
    fn has_final_fields(&self, direction: Direction, stream: u32) -> bool {
        let tx = self.txs.of_stream(stream).and_then(|id| self.txs.get(id));
        tx.is_some_and(|tx| tx.sides[direction].headed)
    }

    /// Whether a message may begin, or go on, on this stream: the side has not ended it.
    fn sides_match(&self, direction: Direction, open: &OpenBlock) -> bool {
        let tx = self.txs.of_stream(open.stream).and_then(|id| self.txs.get(id));
        let trailer_ends = !self.has_final_fields(direction, open.stream) || open.head.ends_stream();
        trailer_ends && tx.is_none_or(|tx| !tx.sides[direction].ended)
    }

    /// Handles the end of a stream in a direction. `with_data`: a frame of data brings it.
    fn end_stream(&mut self, direction: Direction, id: TxId, with_data: bool) -> bool {
        let limit = self.settings.bomb;
        let strict = self.strict;
        let Some(tx) = self.txs.get_mut(id) else { return false };
        tx.end_side(direction);
        let is_request = direction == Direction::ToServer;
        if strict && !self.replays && !strict::length(&tx.sides[direction], is_request) {
            return false;
        }
        let mut raised = Events::default();
        if let Some(dns) = tx.dns.as_deref_mut().filter(|_| with_data || strict) {
            self.has_dns |= dns.finish(direction, strict);
        }
        let body = &mut tx.sides[direction].body;
        if body.is_begun() && (with_data || strict) {
            body.finish(limit, &mut raised);
        } else {
            // Suricata's file stays open, and has no record, if a trailer ends the stream.
            body.files.list.iter_mut().for_each(|file| file.logged = true);
        }
        for code in raised.as_slice() {
            tx.common_mut().events.set(*code);
        }
        if direction == Direction::ToClient {
            self.join_ranges(id);
        }
        true
    }

    /// Ends a body that nothing more comes of.
    pub(super) fn abort(&mut self, direction: Direction, id: TxId) {
        let limit = self.settings.bomb;
        let Some(tx) = self.txs.mark_mut(id) else { return };
        let body = &mut tx.sides[direction].body;
        if body.is_begun() && !body.complete {
            let mut raised = Events::default();
            body.abort(limit, &mut raised);
            self.txs.get_mut(id);
        }
    }

    /// Reads a whole frame of data.
    pub(super) fn whole_data(&mut self, direction: Direction, head: FrameHead, data: &[u8]) -> bool {
        let Some(id) = self.deliver(direction, head, FramePayload::Other) else { return false };
        if head.stream == 0 {
            self.raise_on(id, events::DATA_STREAM_ZERO);
            return true;
        }
        // A false padding is a part of the data for Suricata.
        let content = without_padding(head, data).unwrap_or(data);
        self.body(direction, id, content, head.ends_stream())
    }

    /// Handles a piece of a body. `ends`: the stream ends with it. `false`: the connection cannot be read on.
    pub(super) fn body(&mut self, direction: Direction, id: TxId, data: &[u8], ends: bool) -> bool {
        let (limit, strict) = (self.settings.bomb, self.strict);
        let Some(tx) = self.txs.get_mut(id) else { return true };
        if strict && tx.sides[direction].ended {
            return false;
        }
        let mut raised = Events::default();
        if (!data.is_empty() || ends) && !tx.sides[direction].body.is_begun() {
            let range = if direction == Direction::ToClient { range(tx, &mut raised) } else { None };
            tx.sides[direction].body.open(b"", range, &mut self.file_context);
        }
        let Http2Tx { dns, sides, .. } = tx;
        let is_readable = sides[direction].body.receive(data, limit, &self.file_context, &mut raised);
        if let Some(dns) = dns.as_deref_mut()
            && let Some(file) = sides[direction].body.files.list.first()
        {
            dns.receive(direction, file, &mut raised);
        }
        for code in raised.as_slice() {
            tx.common_mut().events.set(*code);
        }
        if !is_readable {
            tx.send_data(direction);
            return false;
        }
        if ends {
            return self.end_stream(direction, id, true);
        }
        tx.send_data(direction);
        true
    }

    /// Puts a file together when its last missing piece has come.
    fn join_ranges(&mut self, id: TxId) {
        let limit = self.settings.bomb;
        let Some(tx) = self.txs.mark_mut(id) else { return };
        let Some(ContentRange { size: Some(size), .. }) = ranged(tx) else { return };
        let named = |name: &[u8]| tx.sides.to_server.first(name).map_or(&b""[..], |field| &field.value);
        let (host, path) = (named(b":authority"), named(b":path"));
        let Some(file) = tx.sides.to_client.body.files.list.first() else { return };
        let (data, offset) = file.content();
        let whole =
            file.state == FileState::Closed && !file.gaps && offset == 0 && data.len() as u64 == file.size;
        let range = tx.sides.to_client.body.range.filter(|_| whole);
        let Some(joined) = range.and_then(|range| self.ranges.add(host, path, size, range.start, data))
        else {
            return;
        };
        let path = path.to_vec();
        let Some(tx) = self.txs.get_mut(id) else { return };
        let body = &mut tx.sides.to_client.body;
        let mut raised = Events::default();
        body.open(&path, None, &mut self.file_context);
        body.files.append(&joined);
        body.finish(limit, &mut raised);
    }
}

/// The side whose pseudo-fields a block has: a promise stands for a request.
fn direction_of(open: &OpenBlock, direction: Direction) -> Direction {
    if open.head.kind == PUSH_PROMISE { Direction::ToServer } else { direction }
}

/// Whether a field says that another block of fields follows before the body.
fn is_interim(field: &HeaderField) -> bool {
    field.is_named(b":status") && field.value.len() == 3 && field.value.first() == Some(&b'1')
}

/// Reads the beginning of a block.
fn start(head: FrameHead, data: &[u8]) -> Option<BlockStart<'_>> {
    let mut cursor = Cursor::new(without_padding(head, data)?);
    if head.kind == PUSH_PROMISE {
        let stream = cursor.u32()? & 0x7fff_ffff;
        return Some(BlockStart { stream, weight: None, data: cursor.rest() });
    }
    let mut weight = None;
    if head.has(PRIORITISED) {
        cursor.skip(4)?;
        weight = Some(cursor.u8()?);
    }
    Some(BlockStart { stream: head.stream, weight, data: cursor.rest() })
}

/// Raises the events of fields.
fn check(list: &[HeaderField], raised: &mut Events) {
    let find = |name: &[u8]| list.iter().find(|field| field.is_named(name));
    if list.iter().any(|field| field.status == FieldStatus::NotIndexed) {
        raised.set(events::INVALID_HEADER);
    }
    let Some(authority) = find(b":authority") else { return };
    if authority.value.contains(&b'@') {
        raised.set(events::USERINFO_IN_URI);
    }
    if find(b"host").is_some_and(|host| host.value != authority.value) {
        raised.set(events::AUTHORITY_HOST_MISMATCH);
    }
}

fn ranged(tx: &Http2Tx) -> Option<ContentRange> {
    content_range(&tx.sides.to_client.first(b"content-range")?.value)
}

/// The part of a larger file that an answer's body is.
fn range(tx: &Http2Tx, raised: &mut Events) -> Option<BodyRange> {
    tx.sides.to_client.first(b"content-range")?;
    let Some(ContentRange { start: Some(start), end: Some(end), size }) = ranged(tx) else {
        if ranged(tx).is_none() {
            raised.set(events::INVALID_RANGE);
        }
        return None;
    };
    let is_part = end > 0 && !size.is_some_and(|size| start == 0 && end.saturating_add(1) == size);
    is_part.then_some(BodyRange { start })
}

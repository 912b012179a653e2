// SPDX-License-Identifier: Apache-2.0
//! The response side: status line, headers, body, and what browsers make of data that is none of these (RFC 9112, as
//! leniently as libhtp).

use super::bytes::{
    chomp, contains_nocase_nonul, equals_nocase_nonul, is_space, line_to_lf, span, starts_nocase,
};
use super::events;
use super::feed::{Feed, Status, Step};
use super::fields::{self, ChunkLine, Version};
use super::headers::{Odd, RawField, Scan, Scanner, is_empty_line};
use super::parser::HttpParser;
use super::request::{self, keep_raw};
use super::tx::{BODY, COMPLETE, Coding, Flags, HEADERS, HttpTx, LINE, Method, NOT_STARTED, TRAILER};
use super::uri::Uri;
use bartizan_base::Direction;

/// Path of a request that was not seen.
const UNSEEN: &[u8] = b"/libhtp::request_uri_not_seen";

/// Where the response side stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Line,
    Headers,
    BodyDetermine,
    BodyKnown,
    BodyToClose,
    ChunkLength,
    ChunkData,
    ChunkEnd,
    Finalize,
}

/// The response side's own state.
pub(super) struct Side {
    pub state: State,
    pub status: Status,
    pub line: Vec<u8>,
    pub header: Option<Vec<u8>>,
    pub left: Option<u64>,
    pub chunk_left: u64,
    /// Requests must be read before the next response.
    pub yield_at_end: bool,
}

impl Side {
    pub(super) const fn new() -> Self {
        Side {
            state: State::Idle,
            status: Status::Open,
            line: Vec::new(),
            header: None,
            left: None,
            chunk_left: 0,
            yield_at_end: false,
        }
    }
}

/// Whether a line is no status line, so that browsers take it for a body.
fn is_body_line(line: &[u8]) -> bool {
    let (_, rest) = span(line, |b| is_space(b) || b == 0);
    !starts_nocase(rest, b"http")
}

/// A line with its end (CR LF, CR or LF) and what follows; `None` while it is open.
fn line_to_eol(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr2(b'\r', b'\n', text)?;
    let length = match super::bytes::after(text, end) {
        [b'\r', b'\n', ..] => end + 2,
        [b'\r'] => return None,
        _ => end + 1,
    };
    text.split_at_checked(length)
}

impl HttpParser {
    /// Runs the response side over a piece of data.
    pub(super) fn run_response(&mut self, feed: &mut Feed<'_>) -> Step {
        loop {
            let state = self.response.state;
            if feed.is_gap() && !matches!(state, State::BodyKnown | State::BodyToClose | State::Finalize) {
                if let Some(tx) = self.response_tx() {
                    tx.raise(events::INVALID_GAP);
                }
                return Step::More;
            }
            let step = match state {
                State::Idle => self.response_idle(feed),
                State::Line => self.response_line(feed),
                State::Headers => self.response_headers(feed),
                State::BodyDetermine => self.response_body_determine(),
                State::BodyKnown => self.response_known(feed),
                State::BodyToClose => self.response_to_close(feed),
                State::ChunkLength => self.response_chunk_length(feed),
                State::ChunkData => self.response_chunk_data(feed),
                State::ChunkEnd => self.response_chunk_end(feed),
                State::Finalize => self.response_finalize(feed),
            };
            if step != Step::Again || self.response.status == Status::Tunnel {
                return step;
            }
        }
    }

    fn response_tx(&mut self) -> Option<&mut HttpTx> {
        self.txs.at(self.response_id)
    }

    fn hold_response(&mut self, feed: &mut Feed<'_>) -> Step {
        let rest = feed.take_all();
        if !self.response_fits(rest.len()) {
            return Step::Fail;
        }
        self.response.line.extend_from_slice(rest);
        Step::More
    }

    fn response_fits(&mut self, more: usize) -> bool {
        let held = self.response.line.len() + self.response.header.as_ref().map_or(0, Vec::len);
        if more == 0 || held.saturating_add(more) <= self.settings.field_limit {
            return true;
        }
        if let Some(tx) = self.response_tx() {
            tx.raise(events::RESPONSE_FIELD_TOO_LONG);
        }
        false
    }

    fn response_idle(&mut self, feed: &Feed<'_>) -> Step {
        if feed.is_empty() {
            return Step::More;
        }
        let Some(tx) = self.response_tx() else { return Step::Fail };
        if tx.request.message.progress == NOT_STARTED {
            tx.raise(events::UNABLE_TO_MATCH_RESPONSE_TO_REQUEST);
            if self.request.state == request::State::Finalize {
                self.request_complete();
            }
            let Some(tx) = self.response_tx() else { return Step::Fail };
            tx.request.uri = Some(UNSEEN.to_vec());
            tx.request.parsed_uri = Some(Uri { path: Some(UNSEEN.to_vec()), ..Uri::default() });
            tx.request.message.progress = COMPLETE;
            self.request_id = self.request_id.max(self.response_id) + 1;
        }
        self.response.left = None;
        let request_line_open = self.request.state == request::State::Line;
        let Some(tx) = self.response_tx() else { return Step::Fail };
        if tx.request.is_http09 {
            tx.response.message.coding = Coding::Identity;
            tx.response.message.progress = BODY;
            self.response.state = State::BodyToClose;
        } else {
            tx.response.message.progress = LINE;
            if tx.request.method.is_none() && tx.request.uri.is_none() && request_line_open {
                tx.raise(events::REQUEST_LINE_INCOMPLETE);
            }
            self.response.state = State::Line;
        }
        Step::Again
    }

    fn response_line(&mut self, feed: &mut Feed<'_>) -> Step {
        let part = match line_to_eol(feed.rest()) {
            Some((line, _)) => line,
            None if self.response.status == Status::Closed => feed.rest(),
            None => return self.hold_response(feed),
        };
        feed.take(part.len());
        let mut line = core::mem::take(&mut self.response.line);
        line.extend_from_slice(part);
        if !self.response_fits(line.len()) {
            return Step::Fail;
        }
        if line.is_empty() {
            return Step::More;
        }
        if is_empty_line(&line) {
            if self.response.status == Status::Closed {
                self.response.state = State::Finalize;
            }
            return Step::Again;
        }
        let Some(tx) = self.response_tx() else { return Step::Fail };
        tx.response.message.line = None;
        tx.response.message.protocol = None;
        tx.response.status = None;
        tx.response.reason = None;
        if is_body_line(&line) {
            return self.body_before_status(&line, feed);
        }
        tx.read_status_line(&line);
        // An interim response may follow another: progress does not go back.
        if tx.response.code != Some(100) {
            tx.response.message.progress = HEADERS;
        }
        self.response.state = State::Headers;
        Step::Again
    }

    /// A line that is no status line.
    fn body_before_status(&mut self, line: &[u8], feed: &Feed<'_>) -> Step {
        let next = feed.rest();
        if next.len() > 1 && (next.first() == Some(&b'H') || chomp(line).len() <= 2) {
            return Step::Again;
        }
        let Some(tx) = self.response_tx() else { return Step::Fail };
        tx.response.message.body.set_encodings(&[]);
        self.response_body(line);
        if feed.is_empty() {
            let Some(tx) = self.response_tx() else { return Step::Fail };
            tx.response.message.coding = Coding::Identity;
            tx.response.message.progress = BODY;
            self.response.left = None;
            self.response.state = State::Finalize;
        }
        Step::Again
    }

    fn response_headers(&mut self, feed: &mut Feed<'_>) -> Step {
        if self.response.status == Status::Closed {
            if let Some(held) = self.response.header.take()
                && self.scan_response_headers(&held, true).is_none()
            {
                return Step::Fail;
            }
            self.response.state = State::Finalize;
            return Step::Again;
        }
        let rest = feed.rest();
        match line_to_lf(rest) {
            Some((line, _)) => {
                if self.response.header.is_some() && !self.response_fits(line.len()) {
                    return Step::Fail;
                }
            }
            None => {
                feed.take_all();
                if !self.response_fits(rest.len()) {
                    return Step::Fail;
                }
                if let Some(tx) = self.response_tx() {
                    keep_raw(&mut tx.response.message.raw_headers, rest, rest.len(), 0);
                }
                self.response.header.get_or_insert_default().extend_from_slice(rest);
                return Step::More;
            }
        }
        let held = self.response.header.take().unwrap_or_default();
        let joined;
        let data = if held.is_empty() {
            rest
        } else {
            joined = [held.as_slice(), rest].concat();
            &joined
        };
        let Some((used, ended)) = self.scan_response_headers(data, false) else { return Step::Fail };
        let only_eol = used == 0 && matches!(data, b"\r\n" | b"\n");
        let used = if only_eol { data.len() } else { used };
        let kept = if ended || only_eol { used } else { data.len() };
        if let Some(tx) = self.response_tx() {
            keep_raw(&mut tx.response.message.raw_headers, data, kept, held.len());
        }
        if ended || only_eol {
            feed.take(used.saturating_sub(held.len()));
            let Some(tx) = self.response_tx() else { return Step::Fail };
            tx.touch(Direction::ToClient);
            let headers = tx.response.message.progress <= HEADERS;
            self.response.state = if headers { State::BodyDetermine } else { State::Finalize };
            return Step::Again;
        }
        feed.take_all();
        let unparsed = super::bytes::after(data, used);
        if !self.response_fits(unparsed.len()) {
            return Step::Fail;
        }
        self.response.header = Some(unparsed.to_vec());
        Step::More
    }

    fn scan_response_headers(&mut self, data: &[u8], complete: bool) -> Option<(usize, bool)> {
        let limit = self.settings.headers_limit;
        let tx = self.response_tx()?;
        let Scan::Got(block) = (Scanner { response: true, complete }).block(data) else {
            return Some((0, false));
        };
        for field in block.fields {
            tx.note_response_field(&field);
            if !tx.add_field(Direction::ToClient, field, limit) {
                return None;
            }
        }
        Some((block.used, block.ended))
    }

    fn response_body_determine(&mut self) -> Step {
        let Some(tx) = self.txs.at(self.response_id) else { return Step::Fail };
        let code = tx.response.code;
        if tx.request.method_kind == Method::Connect {
            match code {
                Some(200..300) => {
                    self.response.state = State::Finalize;
                    tx.set_encodings(Direction::ToClient);
                    return Step::Again;
                }
                Some(407) => {}
                _ => self.response.yield_at_end = true,
            }
        }
        let fields = &tx.response.message.fields;
        let has_length = fields.get("content-length").is_some();
        let has_transfer = fields.get("transfer-encoding").is_some();
        if code == Some(101) {
            if !has_length && !has_transfer {
                self.response.state = State::Finalize;
                if self.request.status != Status::Failed {
                    self.request.status = Status::Tunnel;
                }
                self.response.status = Status::Tunnel;
                tx.set_encodings(Direction::ToClient);
                return Step::Again;
            }
            tx.raise(events::SWITCHING_PROTO_WITH_CONTENT_LENGTH);
        } else if code == Some(100) && !has_transfer {
            let found = fields.value("content-length").map(fields::content_length);
            if let Some(found) = found {
                tx.raise_length_junk(found);
            }
            if !found.is_some_and(|f| f.length > Some(0)) {
                return self.interim_response();
            }
        } else if code.is_some_and(|c| (400..500).contains(&c))
            && self.request.content_length > Some(0)
            && self.request.left == self.request.content_length
            && tx.request.message.fields.value("expect") == Some(b"100-continue")
        {
            // The client waits for a go-ahead that will not come: there is no body.
            self.request.state = request::State::Finalize;
        }
        self.response_body_kind(has_length, has_transfer)
    }

    /// A 100 Continue: another status line follows.
    fn interim_response(&mut self) -> Step {
        let Some(tx) = self.response_tx() else { return Step::Fail };
        if tx.response.seen_continue {
            tx.raise(events::CONTINUE_ALREADY_SEEN);
        }
        tx.response.seen_continue = true;
        tx.response.message.fields.list.clear();
        tx.response.message.progress = LINE;
        self.response.state = State::Line;
        Step::Again
    }

    /// Finds out whether there is a body and how it ends.
    fn response_body_kind(&mut self, has_length: bool, has_transfer: bool) -> Step {
        let Some(tx) = self.txs.at(self.response_id) else { return Step::Fail };
        let mut no_body = tx.request.method_kind == Method::Head;
        if !no_body && matches!(tx.response.code, Some(100..200 | 204 | 304)) {
            no_body = !has_length && !has_transfer;
            if !no_body {
                tx.raise(events::RESPONSE_BODY_UNEXPECTED);
            }
        }
        if no_body {
            tx.response.message.coding = Coding::NoBody;
            self.response.state = State::Finalize;
            tx.set_encodings(Direction::ToClient);
            return Step::Again;
        }
        let fields = &tx.response.message.fields;
        let byteranges = fields.value("content-type").is_some_and(|value| {
            let (kind, _) = span(value, |b| b != b';' && !is_space(b));
            super::bytes::find_nocase(kind, b"multipart/byteranges").is_some()
        });
        let transfer = fields.value("transfer-encoding").filter(|v| contains_nocase_nonul(v, b"chunked"));
        let length = fields.value("content-length").map(fields::content_length);
        if let Some(value) = transfer {
            let plain = value.eq_ignore_ascii_case(b"chunked");
            if !plain {
                tx.raise(events::RESPONSE_ABNORMAL_TRANSFER_ENCODING);
            }
            if tx.response.message.version < Version::V11 {
                tx.raise(events::RESPONSE_CHUNKED_OLD_PROTO);
            }
            tx.response.message.coding = Coding::Chunked;
            tx.response.message.progress = BODY;
            self.response.state = State::ChunkLength;
        } else if let Some(found) = length {
            tx.raise_length_junk(found);
            tx.response.message.coding = Coding::Identity;
            tx.response.message.content_length = found.length;
            self.response.left = found.length;
            match found.length {
                None => {
                    tx.raise(events::INVALID_CONTENT_LENGTH_FIELD_IN_RESPONSE);
                    return Step::Fail;
                }
                Some(0) => self.response.state = State::Finalize,
                Some(_) => {
                    tx.response.message.progress = BODY;
                    self.response.state = State::BodyKnown;
                }
            }
        } else {
            if byteranges {
                tx.raise(events::RESPONSE_MULTIPART_BYTERANGES);
                return Step::Fail;
            }
            tx.response.message.coding = Coding::Identity;
            tx.response.message.progress = BODY;
            self.response.left = None;
            self.response.state = State::BodyToClose;
        }
        tx.set_encodings(Direction::ToClient);
        Step::Again
    }

    /// Hands a piece of the body to the transaction; false if the decoder is gone.
    fn response_body(&mut self, data: &[u8]) -> bool {
        let context = &mut self.file_context;
        let Some(tx) = self.txs.at(self.response_id) else { return false };
        tx.touch(Direction::ToClient);
        tx.response_data(data, context)
    }

    fn response_gap(&mut self, count: u64) {
        let context = &mut self.file_context;
        if let Some(tx) = self.txs.at(self.response_id) {
            tx.touch(Direction::ToClient);
            tx.body_gap(Direction::ToClient, count, context);
        }
    }

    fn response_known(&mut self, feed: &mut Feed<'_>) -> Step {
        if self.response.status == Status::Closed {
            self.response.state = State::Finalize;
            return Step::Again;
        }
        let Some(left) = self.response.left else { return Step::Fail };
        let count = feed.left().min(left);
        if count == 0 {
            return Step::More;
        }
        if feed.is_gap() {
            self.response_gap(count);
            feed.take_gap(count);
        } else {
            let data = super::bytes::before(feed.rest(), usize::try_from(count).unwrap_or(usize::MAX));
            feed.take(data.len());
            if !self.response_body(data) {
                return Step::Fail;
            }
        }
        let left = left.saturating_sub(count);
        self.response.left = Some(left);
        if left > 0 {
            return Step::More;
        }
        self.response.state = State::Finalize;
        if let Some(tx) = self.response_tx() {
            tx.response.message.body.end_decoding();
        }
        Step::Again
    }

    fn response_to_close(&mut self, feed: &mut Feed<'_>) -> Step {
        if feed.is_gap() {
            self.response_gap(feed.left());
            feed.take_gap(u64::MAX);
        }
        let data = feed.take_all();
        if !data.is_empty() && !self.response_body(data) {
            return Step::Fail;
        }
        if self.response.status == Status::Closed {
            self.response.state = State::Finalize;
            return Step::Again;
        }
        Step::More
    }

    fn count_response_bytes(&mut self, count: usize) {
        if let Some(tx) = self.response_tx() {
            let body = &mut tx.response.message.body;
            body.message_length = body.message_length.saturating_add(count as u64);
        }
    }

    fn response_chunk_length(&mut self, feed: &mut Feed<'_>) -> Step {
        loop {
            let Some((part, _)) = line_to_lf(feed.rest()) else {
                if self.response.line.is_empty() && !fields::may_be_chunk_line(feed.rest()) {
                    return self.unchunked_response();
                }
                return self.hold_response(feed);
            };
            feed.take(part.len());
            if !self.response.line.is_empty() && !self.response_fits(part.len()) {
                return Step::Fail;
            }
            let mut line = core::mem::take(&mut self.response.line);
            line.extend_from_slice(part);
            self.count_response_bytes(line.len());
            if line.iter().all(|b| fields::is_chunk_filler(*b)) {
                continue;
            }
            let Some(tx) = self.txs.at(self.response_id) else { return Step::Fail };
            match fields::chunk_line(&line) {
                ChunkLine::Unusable => {}
                ChunkLine::Invalid => {
                    feed.give_back(part.len());
                    return self.unchunked_response();
                }
                ChunkLine::Length(length, extension) => {
                    if extension {
                        tx.raise_once(events::RESPONSE_CHUNK_EXTENSION, Flags::RESPONSE_CHUNK_EXTENSION);
                    }
                    if length == 0 {
                        tx.response.message.progress = TRAILER;
                        self.response.state = State::Headers;
                    } else {
                        self.response.chunk_left = length;
                        self.response.state = State::ChunkData;
                    }
                }
            }
            return Step::Again;
        }
    }

    /// What should be chunks is none: it is taken as it is, to the end of the stream.
    fn unchunked_response(&mut self) -> Step {
        let Some(tx) = self.response_tx() else { return Step::Fail };
        tx.response.message.coding = Coding::Identity;
        tx.raise(events::INVALID_RESPONSE_CHUNK_LEN);
        self.response.state = State::BodyToClose;
        Step::Again
    }

    fn response_chunk_data(&mut self, feed: &mut Feed<'_>) -> Step {
        if self.response.status == Status::Closed {
            self.response.state = State::Finalize;
            return Step::Again;
        }
        let count = usize::try_from(self.response.chunk_left).unwrap_or(usize::MAX);
        let data = super::bytes::before(feed.rest(), count);
        if data.is_empty() {
            return Step::More;
        }
        feed.take(data.len());
        if !self.response_body(data) {
            return Step::Fail;
        }
        self.response.chunk_left = self.response.chunk_left.saturating_sub(data.len() as u64);
        if self.response.chunk_left == 0 {
            self.response.state = State::ChunkEnd;
            return Step::Again;
        }
        Step::More
    }

    fn response_chunk_end(&mut self, feed: &mut Feed<'_>) -> Step {
        let Some((line, _)) = line_to_lf(feed.rest()) else {
            let skipped = feed.take_all();
            self.count_response_bytes(skipped.len());
            return Step::More;
        };
        feed.take(line.len());
        self.count_response_bytes(line.len());
        self.response.state = State::ChunkLength;
        Step::Again
    }

    fn response_finalize(&mut self, feed: &mut Feed<'_>) -> Step {
        if feed.is_gap() {
            return self.response_complete(feed);
        }
        let mut part = feed.rest();
        if self.response.status != Status::Closed {
            match part.first() {
                None => return self.response_complete(feed),
                Some(b'\n') => {}
                Some(_) => match line_to_lf(part) {
                    Some((line, _)) => part = line,
                    None => return self.hold_response(feed),
                },
            }
            feed.take(part.len());
        }
        if !self.response.line.is_empty() && !self.response_fits(part.len()) {
            return Step::Fail;
        }
        let mut data = core::mem::take(&mut self.response.line);
        let held = data.len();
        data.extend_from_slice(part);
        if data.is_empty() {
            return self.response_complete(feed);
        }
        if is_body_line(&data) {
            if let Some(tx) = self.response_tx() {
                tx.raise(events::RESPONSE_BODY_UNEXPECTED);
            }
            return if self.response_body(&data) { Step::Again } else { Step::Fail };
        }
        // The next response: it is read again from its beginning.
        feed.give_back(part.len());
        data.truncate(held);
        self.response.line = data;
        self.response_complete(feed)
    }

    fn response_complete(&mut self, feed: &Feed<'_>) -> Step {
        let Some(tx) = self.txs.at(self.response_id) else { return Step::Fail };
        if tx.response.message.progress != COMPLETE {
            tx.response.message.progress = COMPLETE;
            tx.response.message.body.finish();
            tx.touch(Direction::ToClient);
            self.completed_responses += 1;
            let accepted = tx.response.code.is_some_and(|code| (200..300).contains(&code));
            if tx.request.method_kind == Method::Connect && accepted && self.completed_responses == 1 {
                tx.request.message.progress = COMPLETE;
                tx.request.message.body.finish();
                self.switch = Some(None);
            }
        }
        if self.response.yield_at_end {
            self.response.yield_at_end = false;
            if self.response_id == self.request_id && !feed.is_empty() {
                return Step::Wait;
            }
        }
        self.response_id += 1;
        self.response.state = State::Idle;
        if self.switch.is_some() {
            return Step::More;
        }
        Step::Again
    }

    /// The protocol that follows an accepted upgrade, if it is one that is known.
    pub(super) fn upgrade(&self) -> Option<&'static str> {
        let tx = self.txs.get(self.response_id)?;
        if tx.response.code != Some(101) {
            return None;
        }
        let value = tx.response.message.fields.value("upgrade")?;
        if value == b"h2c" {
            Some("http2")
        } else if equals_nocase_nonul(value, b"websocket") {
            Some("websocket")
        } else {
            None
        }
    }
}

impl HttpTx {
    /// Takes a status line apart.
    fn read_status_line(&mut self, line: &[u8]) {
        let response = &mut self.response;
        response.message.line = Some(line.to_vec());
        response.message.version = Version::Invalid;
        response.code = None;
        let (_, rest) = span(line, |b| is_space(b) || b == 0);
        let (protocol, rest) = span(rest, |b| !is_space(b));
        let (blanks, rest) = span(rest, is_space);
        let (status, rest) = span(rest, |b| !is_space(b));
        let (more_blanks, reason) = span(rest, |b| b.is_ascii_whitespace());
        let mut odd = false;
        if !protocol.is_empty() {
            response.message.protocol = Some(protocol.to_vec());
            (response.message.version, odd) = fields::version(protocol);
            if !blanks.is_empty() && !status.is_empty() {
                response.status = Some(status.to_vec());
                response.code = fields::status(status);
                if !more_blanks.is_empty() {
                    response.reason = Some(chomp(reason).to_vec());
                }
            }
        }
        let (version, code) = (response.message.version, response.code);
        if odd {
            self.raise(events::PROTOCOL_CONTAINS_EXTRA_DATA);
        }
        if version == Version::Invalid {
            self.raise(events::RESPONSE_LINE_INVALID_PROTOCOL);
        }
        if code.is_none() {
            self.raise(events::RESPONSE_LINE_INVALID_RESPONSE_STATUS);
        }
    }

    fn note_response_field(&mut self, field: &RawField) {
        let odd = field.odd;
        if odd.contains(Odd::DEFORMED_EOL) {
            self.raise(events::DEFORMED_EOL);
        }
        if odd.contains(Odd::SPACE_AFTER_NAME) {
            self.raise_once(events::RESPONSE_INVALID_LWS_AFTER_NAME, Flags::FIELD_INVALID);
        }
        if odd.contains(Odd::SPACE_BEFORE_NAME) {
            self.raise_once(events::INVALID_RESPONSE_FIELD_FOLDING, Flags::INVALID_FOLDING);
        }
        if odd.contains(Odd::NAME_NOT_TOKEN) {
            self.raise_once(events::RESPONSE_HEADER_NAME_NOT_TOKEN, Flags::FIELD_INVALID);
        }
        // An empty name counts as a missing colon, too.
        if odd.intersects(Odd::NO_COLON | Odd::NAME_EMPTY) {
            self.raise_once(events::RESPONSE_FIELD_MISSING_COLON, Flags::FIELD_UNPARSEABLE);
        }
    }
}

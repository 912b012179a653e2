// SPDX-License-Identifier: Apache-2.0
//! The response side: status line, headers, body, and data that is none of these, as browsers read it (RFC
//! 9112, as leniently as libhtp).

use super::bytes::{is_space, line_to_lf, span, starts_nocase, trim_line_end};
use super::events;
use super::feed::{Feed, HttpDirectionStatus, HttpParseStep};
use super::fields::{self, HttpVersion};
use super::headers::{Odd, RawField, Scan, Scanner, Until, is_empty_line};
use super::request;
use super::request_side;
use super::response_body;
use super::response_side::HttpResponseState;
use super::state::HttpParser;
use super::tx::{
    BODY, COMPLETE, Coding, Flags, HEADERS, HttpMethod, HttpTx, LINE, MAX_HEADER_BLOCK, NOT_STARTED,
};
use super::uri::Uri;
use crate::frames::ProtocolFrameNote;
use bartizan_base::Direction;

/// Index of responses in the list of frames.
const RESPONSE_FRAME: u8 = 2;
/// Path of a request that the parser did not see.
const UNSEEN: &[u8] = b"/libhtp::request_uri_not_seen";

/// Whether a line is no status line, so that browsers read it as a body.
fn is_body_line(line: &[u8]) -> bool {
    !matches!(beginning(line), Beginning::Response)
}

/// Classification of a text's beginning after white space.
enum Beginning {
    Response,
    Other,
    /// Too few bytes have come.
    Unknown,
}

fn beginning(text: &[u8]) -> Beginning {
    let (_, rest) = span(text, |b| is_space(b) || b == 0);
    if starts_nocase(rest, b"http") {
        Beginning::Response
    } else if rest.len() < 4 && starts_nocase(b"http", rest) {
        Beginning::Unknown
    } else {
        Beginning::Other
    }
}

/// A line with its end (CR LF, CR or LF) and the rest; `None` while the line is incomplete.
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
    /// Runs the response side on a piece of data.
    pub(super) fn run_response(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        loop {
            let state = self.response.state;
            self.response.at = feed.position().saturating_sub(self.response.line.len() as u64);
            if feed.is_gap()
                && !matches!(
                    state,
                    HttpResponseState::BodyKnown
                        | HttpResponseState::BodyToClose
                        | HttpResponseState::Finalize
                )
            {
                if let Some(tx) = self.response_tx() {
                    tx.raise(events::INVALID_GAP);
                }
                return HttpParseStep::More;
            }
            let step = match state {
                HttpResponseState::Idle => self.response_idle(feed),
                HttpResponseState::Line => self.response_line(feed),
                HttpResponseState::Headers => self.response_headers(feed),
                HttpResponseState::BodyDetermine => self.response_body_determine(),
                HttpResponseState::BodyKnown => self.response_known(feed),
                HttpResponseState::BodyToClose => self.response_to_close(feed),
                HttpResponseState::ChunkLength => self.response_chunk_length(feed),
                HttpResponseState::ChunkData => self.response_chunk_data(feed),
                HttpResponseState::ChunkEnd => self.response_chunk_end(feed),
                HttpResponseState::Finalize => self.response_finalize(feed),
            };
            if step != HttpParseStep::Again || self.response.status == HttpDirectionStatus::Tunnel {
                return step;
            }
        }
    }

    pub(super) fn response_tx(&mut self) -> Option<&mut HttpTx> {
        self.txs.at(self.response_id)
    }

    pub(super) fn hold_response(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let rest = feed.take_all();
        if !self.response_fits(rest.len()) {
            return HttpParseStep::Fail;
        }
        self.response.line.extend_from_slice(rest);
        HttpParseStep::More
    }

    pub(super) fn response_fits(&mut self, more: usize) -> bool {
        let held = self.response.line.len() + self.response.header.as_ref().map_or(0, Vec::len);
        if more == 0 || held.saturating_add(more) <= self.settings.field_limit {
            return true;
        }
        if let Some(tx) = self.response_tx() {
            tx.raise(events::RESPONSE_FIELD_TOO_LONG);
        }
        let line = self.response.state == HttpResponseState::Headers && !self.response.header_folded;
        self.settings.strict && line && held.saturating_add(more) <= MAX_HEADER_BLOCK
    }

    fn response_idle(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        if !self.response.line.is_empty() {
            let held = core::mem::take(&mut self.response.line);
            return feed.replay(&held, |again| self.run_response(again));
        }
        if feed.is_empty() {
            return HttpParseStep::More;
        }
        self.answers_http09();
        let Some(tx) = self.response_tx() else { return HttpParseStep::Fail };
        if tx.request.message.progress == NOT_STARTED {
            tx.raise(events::UNABLE_TO_MATCH_RESPONSE_TO_REQUEST);
            if self.request.state == request_side::HttpRequestState::Finalize {
                self.request_complete();
            }
            let Some(tx) = self.response_tx() else { return HttpParseStep::Fail };
            tx.request.uri = Some(UNSEEN.to_vec());
            tx.request.parsed_uri = Some(Uri { path: Some(UNSEEN.to_vec()), ..Uri::default() });
            tx.request.message.progress = COMPLETE;
            self.request_id += 1;
        }
        self.response.left = None;
        let (at, tx) = (self.response.at, Some(self.response_id));
        self.frames.add(Direction::ToClient, ProtocolFrameNote::Begin { kind: RESPONSE_FRAME, at, tx });
        let request_line_open = self.request.state == request_side::HttpRequestState::Line;
        let Some(tx) = self.response_tx() else { return HttpParseStep::Fail };
        if tx.request.is_http09 {
            tx.response.message.coding = Coding::Identity;
            tx.response.message.progress = BODY;
            self.response.state = HttpResponseState::BodyToClose;
        } else {
            tx.response.message.progress = LINE;
            if tx.request.method.is_none() && tx.request.uri.is_none() && request_line_open {
                tx.raise(events::REQUEST_LINE_INCOMPLETE);
            }
            self.response.state = HttpResponseState::Line;
        }
        HttpParseStep::Again
    }

    /// Decides that a possible HTTP/0.9 request is one, since its response comes before more of it.
    fn answers_http09(&mut self) {
        if self.request.state == request_side::HttpRequestState::Protocol
            && self.request_id == self.response_id
        {
            self.request.line.clear();
            self.request_complete();
        }
    }

    fn response_line(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let closed = self.response.status == HttpDirectionStatus::Closed;
        if !self.response.line.is_empty() {
            let held = core::mem::take(&mut self.response.line);
            if self.response.request.take().is_some_and(|id| id != self.request_id) {
                // Another request came after it: the line was the whole response.
                return self.end_of_body_line(&held);
            }
            return feed.replay(&held, |again| self.run_response(again));
        }
        if self.settings.strict
            && let Some(step) = self.response_without_status(feed)
        {
            return step;
        }
        let line = match line_to_eol(feed.rest()) {
            Some((line, _)) => line,
            None if closed => feed.rest(),
            None => return self.hold_response(feed),
        };
        if !self.response_fits(line.len()) {
            return HttpParseStep::Fail;
        }
        let behind = super::bytes::after(feed.rest(), line.len());
        if behind.len() < 2 && !closed && !is_empty_line(line) && is_body_line(line) {
            self.response.request = Some(self.request_id);
            return self.hold_response(feed);
        }
        feed.take(line.len());
        if line.is_empty() {
            return HttpParseStep::More;
        }
        if is_empty_line(line) {
            if closed {
                self.response.state = HttpResponseState::Finalize;
            }
            return HttpParseStep::Again;
        }
        let Some(tx) = self.response_tx() else { return HttpParseStep::Fail };
        tx.response.message.line = None;
        tx.response.message.protocol = None;
        tx.response.status = None;
        tx.response.reason = None;
        if is_body_line(line) {
            return self.body_before_status(line, feed);
        }
        tx.read_status_line(line);
        // An interim response may precede this one: progress never decreases.
        let strict = tx.settings.strict;
        let interim = tx.response.code.is_some_and(|c| c == 100 || strict && response_body::is_interim(c));
        if !interim {
            tx.response.message.progress = HEADERS;
        }
        self.response.state = HttpResponseState::Headers;
        HttpParseStep::Again
    }

    /// Prevention: data without a status line is inspected as a body before it leaves, as receivers of
    /// HTTP/0.9 read it. Other receivers search for a status line after it, so one there is an error. `None`:
    /// the data is a status line, or may become one.
    fn response_without_status(&mut self, feed: &mut Feed<'_>) -> Option<HttpParseStep> {
        let rest = feed.rest();
        let closed = self.response.status == HttpDirectionStatus::Closed;
        let shown = self.response_tx().is_some_and(|tx| tx.response.message.body.seen > 0);
        if !self.response.within_body_line || rest.is_empty() {
            match beginning(rest) {
                Beginning::Other => {}
                Beginning::Response if shown => return Some(HttpParseStep::Fail),
                Beginning::Unknown if shown && closed => {
                    return Some(self.end_of_body_line(feed.take_all()));
                }
                Beginning::Unknown if rest.is_empty() => return Some(HttpParseStep::More),
                Beginning::Response | Beginning::Unknown => return None,
            }
        }
        let line = line_to_lf(rest).map_or(rest, |(line, _)| line);
        self.response.within_body_line = !line.ends_with(b"\n");
        feed.take(line.len());
        if let Some(tx) = self.response_tx() {
            tx.response.message.coding = Coding::Identity;
            tx.response.message.progress = BODY;
        }
        self.body_line(line);
        Some(HttpParseStep::Again)
    }

    /// Handles a line that is no status line.
    fn body_before_status(&mut self, line: &[u8], feed: &Feed<'_>) -> HttpParseStep {
        let next = feed.rest();
        if next.len() > 1 && (next.first() == Some(&b'H') || trim_line_end(line).len() <= 2) {
            return HttpParseStep::Again;
        }
        if feed.is_empty() {
            return self.end_of_body_line(line);
        }
        self.body_line(line);
        HttpParseStep::Again
    }

    fn body_line(&mut self, line: &[u8]) {
        if let Some(tx) = self.response_tx() {
            tx.response.message.body.clear_encodings();
        }
        self.response_body(line);
    }

    /// Handles a line that is no status line and ends the response.
    fn end_of_body_line(&mut self, line: &[u8]) -> HttpParseStep {
        self.body_line(line);
        let Some(tx) = self.response_tx() else { return HttpParseStep::Fail };
        tx.response.message.coding = Coding::Identity;
        tx.response.message.progress = BODY;
        self.response.left = None;
        self.response.state = HttpResponseState::Finalize;
        HttpParseStep::Again
    }

    fn response_headers(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        if self.response.status == HttpDirectionStatus::Closed {
            if let Some(held) = self.response.header.take()
                && self.scan_response_headers(&held, true).is_none()
            {
                return HttpParseStep::Fail;
            }
            self.response.state = HttpResponseState::Finalize;
            return HttpParseStep::Again;
        }
        let rest = feed.rest();
        let line_end = memchr::memchr2(b'\r', b'\n', rest);
        let decides = line_end.is_some() || !rest.is_empty() && self.response.header_until == Until::Byte;
        if (self.response.header.is_some() || !decides)
            && !self.response_fits(line_end.map_or(rest.len(), |end| end + 1))
        {
            return HttpParseStep::Fail;
        }
        feed.take_all();
        if !decides {
            if !self.keep_raw_response(rest, rest.len(), 0) {
                return HttpParseStep::Fail;
            }
            self.response.header.get_or_insert_default().extend_from_slice(rest);
            return HttpParseStep::More;
        }
        let held = self.response.header.take().unwrap_or_default();
        let joined;
        let data = if held.is_empty() {
            rest
        } else {
            joined = [held.as_slice(), rest].concat();
            &joined
        };
        let Some((used, waits_for)) = self.scan_response_headers(data, false) else {
            return HttpParseStep::Fail;
        };
        if !self.keep_raw_response(data, if waits_for.is_some() { data.len() } else { used }, held.len()) {
            return HttpParseStep::Fail;
        }
        self.response.header_until = waits_for.unwrap_or(Until::LineEnd);
        let behind = super::bytes::after(data, used);
        self.response.header_folded = waits_for.is_some() && request::is_folded(behind);
        if waits_for.is_some() {
            if !self.response_fits(behind.len()) {
                return HttpParseStep::Fail;
            }
            self.response.header = Some(behind.to_vec());
            return HttpParseStep::More;
        }
        let Some(tx) = self.response_tx() else { return HttpParseStep::Fail };
        let headers = tx.response.message.progress <= HEADERS;
        self.response.state =
            if headers { HttpResponseState::BodyDetermine } else { HttpResponseState::Finalize };
        feed.unconsume(behind.len().min(rest.len()));
        match behind.split_at_checked(behind.len().saturating_sub(rest.len())) {
            // Bytes that were held before the end of the headers was known are no part of them.
            Some((early, _)) if !early.is_empty() => feed.replay(early, |again| self.run_response(again)),
            _ => HttpParseStep::Again,
        }
    }

    /// Keeps raw headers; `false`: they exceed the limit of prevention.
    fn keep_raw_response(&mut self, data: &[u8], to: usize, held: usize) -> bool {
        let strict = self.settings.strict;
        let Some(tx) = self.response_tx() else { return false };
        let fits = tx.response.message.keep_raw(data, to, held, strict);
        if !fits {
            tx.raise(events::RESPONSE_FIELD_TOO_LONG);
        }
        fits
    }

    /// Scans headers into the transaction. Returns the number of bytes used, and the input that the rest
    /// needs if the headers have not ended. `None`: there are too many, or prevention does not let one pass.
    fn scan_response_headers(&mut self, data: &[u8], complete: bool) -> Option<(usize, Option<Until>)> {
        let limit = self.settings.headers_limit;
        let tx = self.response_tx()?;
        let block = match (Scanner { response: true, complete }).block(data) {
            Scan::Got(block) => block,
            Scan::Need(until) => return Some((0, Some(until))),
            Scan::Bad => return Some((0, Some(Until::LineEnd))),
        };
        for field in block.fields {
            tx.note_response_field(&field);
            if tx.settings.strict && tx.message_mut(Direction::ToClient).differs_over(&field) {
                return None;
            }
            if !tx.add_field(Direction::ToClient, field, limit) {
                return None;
            }
        }
        Some((block.used, block.waits_for))
    }

    fn response_finalize(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        if feed.is_gap() {
            return self.response_complete(feed);
        }
        if feed.is_empty() && self.response.line.is_empty() {
            return self.response_complete(feed);
        }
        let closed = self.response.status == HttpDirectionStatus::Closed;
        let line = line_to_lf(feed.rest()).map(|(line, _)| line);
        let part = line.unwrap_or(feed.rest());
        if !self.response.line.is_empty() && !self.response_fits(part.len()) {
            return HttpParseStep::Fail;
        }
        let data = [self.response.line.as_slice(), part].concat();
        if matches!(beginning(&data), Beginning::Response) {
            // The next response: the held bytes are parsed again there.
            return self.response_complete(feed);
        }
        // Prevention: data that cannot become a status line is a body for receivers, of HTTP/0.9 if another
        // request waits for its response. It is inspected before it leaves.
        let shown = self.settings.strict && matches!(beginning(&data), Beginning::Other);
        if shown && self.txs.get(self.response_id + 1).is_some() {
            return self.response_complete(feed);
        }
        if line.is_none() && !closed && !shown {
            return self.hold_response(feed);
        }
        feed.take(part.len());
        self.response.line.clear();
        if let Some(tx) = self.response_tx() {
            tx.raise(events::RESPONSE_BODY_UNEXPECTED);
        }
        if self.response_body(&data) { HttpParseStep::Again } else { HttpParseStep::Fail }
    }

    fn response_complete(&mut self, feed: &Feed<'_>) -> HttpParseStep {
        self.frames
            .add(Direction::ToClient, ProtocolFrameNote::End { kind: RESPONSE_FRAME, at: self.response.at });
        self.completed.to_client = true;
        let context = &mut self.file_context;
        let Some(tx) = self.txs.at(self.response_id) else { return HttpParseStep::Fail };
        if tx.response.message.progress != COMPLETE {
            tx.end_decoding(Direction::ToClient, context);
            tx.response.message.progress = COMPLETE;
            tx.finish_body(Direction::ToClient, context);
            tx.join_ranges(&mut self.ranges, context);
            self.completed_responses += 1;
            let accepted = tx.response.code.is_some_and(|code| (200..300).contains(&code));
            // Suricata follows a tunnel that the first request of a connection opens. Prevention continues
            // with the requests that it reads after a CONNECT.
            let reads_on = self.request_id > self.response_id || self.request.connects;
            let follows = if tx.settings.strict { !reads_on } else { self.completed_responses == 1 };
            if tx.request.method_kind == HttpMethod::Connect && accepted && follows {
                tx.request.message.progress = COMPLETE;
                tx.finish_body(Direction::ToServer, context);
                self.switch = Some(None);
            }
        }
        if self.response.yield_at_end {
            let waits = self.response_id == self.request_id && feed.rest().len() <= self.settings.field_limit;
            if waits && !feed.is_gap() && self.response.status != HttpDirectionStatus::Closed {
                return HttpParseStep::Wait;
            }
            self.response.yield_at_end = false;
        }
        self.response_id += 1;
        self.response.state = HttpResponseState::Idle;
        if self.switch.is_some() {
            // The data is no beginning of a response any more.
            self.response.line.clear();
            return HttpParseStep::More;
        }
        HttpParseStep::Again
    }
}

impl HttpTx {
    /// Splits and interprets a status line.
    fn read_status_line(&mut self, line: &[u8]) {
        let response = &mut self.response;
        response.message.line = Some(line.to_vec());
        response.message.version = HttpVersion::Invalid;
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
                    response.reason = Some(trim_line_end(reason).to_vec());
                }
            }
        }
        let (version, code) = (response.message.version, response.code);
        if odd {
            self.raise(events::PROTOCOL_CONTAINS_EXTRA_DATA);
        }
        if version == HttpVersion::Invalid {
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

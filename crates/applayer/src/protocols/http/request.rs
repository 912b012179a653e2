// SPDX-License-Identifier: Apache-2.0
//! The request side: request line, headers, body, bytes between requests (RFC 9112, as leniently as libhtp).

use super::bytes::{is_space, is_wide_space, line_to_lf, span, trim_line_end};
use super::events;
use super::feed::{Feed, HttpDirectionStatus, HttpParseStep};
use super::headers::{Scan, Scanner, Until, is_empty_line};
use super::likely;
use super::proxy::{self, ProxyHeader};
use super::request_side::HttpRequestState;
use super::state::HttpParser;
use super::tx::{COMPLETE, Flags, HEADERS, HttpMethod, HttpRequest, HttpTx, LINE, MAX_HEADER_BLOCK, TRAILER};
use super::uri::Uri;
use crate::frames::ProtocolFrameNote;
use bartizan_base::Direction;

/// Index of requests in the list of frames.
const REQUEST_FRAME: u8 = 1;
/// Limit of white space after a request of HTTP/0.9, in bytes.
const HTTP09_JUNK: usize = 16;

impl HttpParser {
    /// Runs the request side on a piece of data.
    pub(super) fn run_request(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        loop {
            let state = self.request.state;
            // The held part of a line belongs to the data that follows.
            self.request.at = feed.position().saturating_sub(self.request.line.len() as u64);
            if feed.is_gap()
                && !matches!(
                    state,
                    HttpRequestState::BodyIdentity
                        | HttpRequestState::Ignore
                        | HttpRequestState::Protocol
                        | HttpRequestState::Finalize
                )
            {
                let id = self.request_id;
                if let Some(tx) = self.txs.at(id) {
                    tx.raise(events::INVALID_GAP);
                }
                return HttpParseStep::More;
            }
            let step = match state {
                HttpRequestState::Proxy => self.request_proxy(feed),
                HttpRequestState::Idle => self.request_idle(feed),
                HttpRequestState::Line => self.request_line(feed),
                HttpRequestState::Protocol => self.request_protocol(feed),
                HttpRequestState::Headers => self.request_headers(feed),
                HttpRequestState::ConnectCheck => self.connect_check(feed),
                HttpRequestState::ConnectWait => self.connect_wait(feed),
                HttpRequestState::ConnectProbe => self.connect_probe(feed),
                HttpRequestState::BodyDetermine => self.request_body_determine(),
                HttpRequestState::BodyIdentity => self.request_identity(feed),
                HttpRequestState::ChunkLength => self.request_chunk_length(feed),
                HttpRequestState::ChunkData => self.request_chunk_data(feed),
                HttpRequestState::ChunkEnd => self.request_chunk_end(feed),
                HttpRequestState::Finalize => self.request_finalize(feed),
                HttpRequestState::Ignore => {
                    feed.take_all();
                    feed.take_gap(u64::MAX);
                    HttpParseStep::More
                }
            };
            if step != HttpParseStep::Again || self.request.status == HttpDirectionStatus::Tunnel {
                return step;
            }
        }
    }

    pub(super) fn request_tx(&mut self) -> Option<&mut HttpTx> {
        self.txs.at(self.request_id)
    }

    /// Holds an incomplete line, within the limit.
    pub(super) fn hold_request(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let rest = feed.take_all();
        if !self.request_fits(rest.len()) {
            return HttpParseStep::Fail;
        }
        self.request.line.extend_from_slice(rest);
        HttpParseStep::More
    }

    pub(super) fn request_fits(&mut self, more: usize) -> bool {
        let held = self.request.line.len() + self.request.header.as_ref().map_or(0, Vec::len);
        if more == 0 || held.saturating_add(more) <= self.settings.field_limit {
            return true;
        }
        if let Some(tx) = self.request_tx() {
            tx.raise(events::REQUEST_FIELD_TOO_LONG);
        }
        // Tickets and cookies of this size are real, and receivers accept them. A line that only grows costs
        // nothing more per packet.
        let line = match self.request.state {
            HttpRequestState::Line | HttpRequestState::ConnectProbe => true,
            HttpRequestState::Headers => !self.request.header_folded,
            _ => false,
        };
        self.settings.strict && line && held.saturating_add(more) <= MAX_HEADER_BLOCK
    }

    /// Skips empty lines before a request, which belong to no message. Returns whether other bytes follow; a
    /// CR is held in `line`.
    fn request_begins(&mut self, feed: &mut Feed<'_>) -> bool {
        loop {
            match (self.request.line.as_slice(), feed.rest()) {
                ([], [b'\n', ..]) => feed.take(1),
                ([], [b'\r', b'\n', ..]) => feed.take(2),
                ([b'\r'], [b'\n', ..]) => {
                    feed.take(1);
                    self.request.line.clear();
                }
                ([], [b'\r']) => {
                    feed.take(1);
                    self.request.line.push(b'\r');
                    return false;
                }
                ([] | [b'\r'], []) => return false,
                _ => return true,
            }
        }
    }

    /// Skips the header of a proxy.
    fn request_proxy(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let data = [self.request.line.as_slice(), feed.rest()].concat();
        let skip = match proxy::header(&data) {
            ProxyHeader::Need if self.request.status == HttpDirectionStatus::Closed => 0,
            ProxyHeader::Need => return self.hold_request(feed),
            ProxyHeader::Length(length) if length > data.len() => return self.hold_request(feed),
            ProxyHeader::Length(length) => length,
            ProxyHeader::No => 0,
        };
        self.request.state = HttpRequestState::Idle;
        let held = core::mem::take(&mut self.request.line);
        feed.take(skip.saturating_sub(held.len()));
        match super::bytes::after(&held, skip) {
            [] => HttpParseStep::Again,
            left => feed.replay(left, |again| self.run_request(again)),
        }
    }

    fn request_idle(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let before = self.request_id.checked_sub(1);
        if before.is_some_and(|before| self.is_ahead_of_upgrade(before, feed)) {
            return HttpParseStep::Fail;
        }
        // Held bytes without new ones are only parsed at the end of the stream.
        if !self.request_begins(feed) || feed.is_empty() && self.request.status != HttpDirectionStatus::Closed
        {
            return HttpParseStep::More;
        }
        self.request.content_length = None;
        self.request.left = None;
        let at = feed.position().saturating_sub(self.request.line.len() as u64);
        let tx = Some(self.request_id);
        self.frames.add(Direction::ToServer, ProtocolFrameNote::Begin { kind: REQUEST_FRAME, at, tx });
        let Some(tx) = self.request_tx() else { return HttpParseStep::Fail };
        tx.request.message.progress = LINE;
        self.request.state = HttpRequestState::Line;
        HttpParseStep::Again
    }

    fn request_line(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let part = match line_to_lf(feed.rest()) {
            Some((line, _)) => line,
            None if self.request.status == HttpDirectionStatus::Closed => feed.rest(),
            None => return self.hold_request(feed),
        };
        feed.take(part.len());
        let mut line = core::mem::take(&mut self.request.line);
        line.extend_from_slice(part);
        if !self.request_fits(line.len()) {
            return HttpParseStep::Fail;
        }
        if line.is_empty() {
            return HttpParseStep::More;
        }
        let closed = self.request.status == HttpDirectionStatus::Closed;
        // Some servers skip a line of white space before a request, as all skip an empty one.
        let strict = self.settings.strict;
        let blank = |line: &[u8]| line.iter().all(|b| if strict { is_wide_space(*b) } else { is_space(*b) });
        if is_empty_line(&line) || (closed || strict) && blank(&line) {
            return HttpParseStep::Again;
        }
        let settings = self.settings.clone();
        let Some(tx) = self.request_tx() else { return HttpParseStep::Fail };
        tx.read_request_line(trim_line_end(&line));
        if settings.strict && words_differ(&line) {
            return HttpParseStep::Fail;
        }
        let request = &mut tx.request;
        let begins_http2 = is_preface(request);
        if request.method_kind == HttpMethod::Connect && request.uri.is_none() {
            return HttpParseStep::Fail;
        }
        let parsed = match &request.uri {
            Some(uri) if request.method_kind == HttpMethod::Connect => {
                Uri::parse_authority(uri, &settings.uri)
            }
            Some(uri) => Uri::parse(uri, &settings.uri),
            None => Uri::default(),
        };
        let (normalized, twice) = parsed.normalized(&settings.uri);
        // Servers without tunnels take the target of a CONNECT for a path.
        let whole =
            request.uri.clone().filter(|_| settings.strict && request.method_kind == HttpMethod::Connect);
        request.normalized_uri = normalized.or(whole);
        let host_invalid = parsed.host_invalid;
        request.parsed_uri = Some(parsed);
        if twice {
            tx.raise(events::DOUBLE_ENCODED_URI);
        }
        if host_invalid {
            tx.flags |= Flags::URI_HOST_INVALID;
            tx.raise(events::REQUEST_URI_HOST_INVALID);
        }
        self.begins_http2 |= begins_http2;
        self.request.state = HttpRequestState::Protocol;
        HttpParseStep::Again
    }

    /// HTTP/0.9 has no headers: if more than white space follows the request line, only the protocol was left
    /// out.
    fn request_protocol(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let Some(tx) = self.request_tx() else { return HttpParseStep::Fail };
        tx.request.message.progress = HEADERS;
        if tx.request.is_http09 {
            let (space, more) = span(feed.rest(), is_space);
            let junk = self.request.line.len() + space.len();
            if more.is_empty() && junk <= HTTP09_JUNK {
                if self.request.status != HttpDirectionStatus::Closed && !feed.is_gap() {
                    return self.hold_request(feed);
                }
                // A request without body: later data is ignored, so white space belongs to no message,
                // either.
                self.request.line.clear();
                feed.take_all();
                self.request.state = HttpRequestState::Finalize;
                return HttpParseStep::Again;
            }
            let Some(tx) = self.request_tx() else { return HttpParseStep::Fail };
            tx.request.is_http09 = false;
            tx.raise(events::REQUEST_LINE_MISSING_PROTOCOL);
        }
        self.request.state = HttpRequestState::Headers;
        let held = core::mem::take(&mut self.request.line);
        if held.is_empty() {
            HttpParseStep::Again
        } else {
            feed.replay(&held, |again| self.run_request(again))
        }
    }

    fn request_headers(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        if self.request.status == HttpDirectionStatus::Closed {
            return self.request_headers_at_close();
        }
        let rest = feed.rest();
        // A line that is complete except for the byte after it is decided by any byte, as if that byte had
        // come with it.
        let decides = !rest.is_empty() && self.request.header_until == Until::Byte;
        match line_to_lf(rest) {
            Some((line, _)) => {
                if self.request.header.is_some() && !self.request_fits(line.len()) {
                    return HttpParseStep::Fail;
                }
            }
            None if decides => {
                if !self.request_fits(rest.len()) {
                    return HttpParseStep::Fail;
                }
            }
            None => {
                feed.take_all();
                if !self.request_fits(rest.len()) {
                    return HttpParseStep::Fail;
                }
                if !self.keep_raw_request(rest, rest.len(), 0) {
                    return HttpParseStep::Fail;
                }
                self.request.header.get_or_insert_default().extend_from_slice(rest);
                return HttpParseStep::More;
            }
        }
        let held = self.request.header.take().unwrap_or_default();
        let joined;
        let data = if held.is_empty() {
            rest
        } else {
            joined = [held.as_slice(), rest].concat();
            &joined
        };
        let Some((used, waits_for)) = self.scan_request_headers(data, false) else {
            return HttpParseStep::Fail;
        };
        if !self.keep_raw_request(data, if waits_for.is_some() { data.len() } else { used }, held.len()) {
            return HttpParseStep::Fail;
        }
        self.request.header_until = waits_for.unwrap_or(Until::LineEnd);
        feed.take_all();
        let behind = super::bytes::after(data, used);
        self.request.header_folded = waits_for.is_some() && is_folded(behind);
        if waits_for.is_some() {
            if !self.request_fits(behind.len()) {
                return HttpParseStep::Fail;
            }
            self.request.header = Some(behind.to_vec());
            return HttpParseStep::More;
        }
        feed.unconsume(behind.len().min(rest.len()));
        let step = self.request_headers_done();
        match behind.split_at_checked(behind.len().saturating_sub(rest.len())) {
            // Bytes that were held before the end of the headers was known are no part of them.
            Some((early, _)) if !early.is_empty() && step == HttpParseStep::Again => {
                feed.replay(early, |again| self.run_request(again))
            }
            _ => step,
        }
    }

    /// Keeps raw headers; `false`: they exceed the limit of prevention.
    fn keep_raw_request(&mut self, data: &[u8], to: usize, held: usize) -> bool {
        let strict = self.settings.strict;
        let Some(tx) = self.request_tx() else { return false };
        let fits = tx.request.message.keep_raw(data, to, held, strict);
        if !fits {
            tx.raise(events::REQUEST_FIELD_TOO_LONG);
        }
        fits
    }

    fn request_headers_at_close(&mut self) -> HttpParseStep {
        let held = self.request.header.take();
        let Some(tx) = self.request_tx() else { return HttpParseStep::Fail };
        tx.request.message.progress = TRAILER;
        if let Some(held) = held
            && self.scan_request_headers(&held, true).is_none()
        {
            return HttpParseStep::Fail;
        }
        self.request.line.clear();
        self.request_headers_done()
    }

    /// Scans headers into the transaction. Returns the number of bytes used, and the input that the rest
    /// needs if the headers have not ended. `None`: there are too many, or prevention does not let one pass.
    fn scan_request_headers(&mut self, data: &[u8], complete: bool) -> Option<(usize, Option<Until>)> {
        let limit = self.settings.headers_limit;
        let tx = self.request_tx()?;
        let block = match (Scanner { response: false, complete }).block(data) {
            Scan::Got(block) => block,
            Scan::Need(until) => return Some((0, Some(until))),
            Scan::Bad => return Some((0, Some(Until::LineEnd))),
        };
        for field in block.fields {
            tx.note_request_field(&field);
            if tx.settings.strict && tx.message_mut(Direction::ToServer).differs_over(&field) {
                return None;
            }
            if !tx.add_field(Direction::ToServer, field, limit) {
                return None;
            }
        }
        Some((block.used, block.waits_for))
    }

    fn request_headers_done(&mut self) -> HttpParseStep {
        let Some(tx) = self.request_tx() else { return HttpParseStep::Fail };
        if tx.request.message.progress > HEADERS {
            self.request.state = HttpRequestState::Finalize;
            return HttpParseStep::Again;
        }
        tx.process_request_headers();
        let length = tx.request.message.fields.value("content-length");
        let differs = length.is_some_and(|value| !super::fields::is_plain_content_length(value));
        if tx.settings.strict && differs && tx.request.message.coding == super::tx::Coding::Identity {
            return HttpParseStep::Fail;
        }
        tx.set_encodings(Direction::ToServer);
        self.request.state = HttpRequestState::ConnectCheck;
        HttpParseStep::Again
    }

    fn request_finalize(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        if core::mem::take(&mut self.request.connects) {
            self.request.state = HttpRequestState::ConnectWait;
            return HttpParseStep::Again;
        }
        if feed.is_gap() {
            return self.request_complete();
        }
        if feed.is_empty() && self.request.line.is_empty() {
            return self.request_complete();
        }
        if self.is_ahead_of_upgrade(self.request_id, feed) {
            return HttpParseStep::Fail;
        }
        let closed = self.request.status == HttpDirectionStatus::Closed;
        let line = line_to_lf(feed.rest()).map(|(line, _)| line);
        let part = line.unwrap_or(feed.rest());
        if !self.request.line.is_empty() && !self.request_fits(part.len()) {
            return HttpParseStep::Fail;
        }
        let data = [self.request.line.as_slice(), part].concat();
        let (_, text) = span(&data, is_space);
        let (method, behind) = span(text, |b| !is_space(b));
        let known = (!behind.is_empty() || closed) && HttpMethod::of(method) != HttpMethod::Unknown;
        let strict = self.settings.strict;
        let other = |line| is_request_line(line) || strict && likely::is_request_line(line);
        if known || line.is_some() && other(text) {
            // The next request: the held bytes are the beginning of its line.
            self.request.left = None;
            return self.request_complete();
        }
        if line.is_none() && !closed {
            return self.hold_request(feed);
        }
        feed.take(part.len());
        self.request.line.clear();
        // An empty line after a request is no part of it, nor are bytes without a line end at the end of the
        // stream, whether they come with the request or later.
        if method.is_empty() {
            return HttpParseStep::Again;
        }
        if self.request.left.unwrap_or(0) == 0 {
            if let Some(tx) = self.request_tx() {
                tx.raise(events::REQUEST_BODY_UNEXPECTED);
            }
        } else {
            self.request.left = Some(1);
        }
        if self.request_body(&data) { HttpParseStep::Again } else { HttpParseStep::Fail }
    }

    /// Completes the request.
    pub(super) fn request_complete(&mut self) -> HttpParseStep {
        self.frames
            .add(Direction::ToServer, ProtocolFrameNote::End { kind: REQUEST_FRAME, at: self.request.at });
        self.completed.to_server = true;
        let context = &mut self.file_context;
        let Some(tx) = self.txs.at(self.request_id) else { return HttpParseStep::Fail };
        if tx.request.message.progress != COMPLETE {
            tx.end_decoding(Direction::ToServer, context);
            tx.request.message.progress = COMPLETE;
            tx.finish_body(Direction::ToServer, context);
            tx.raise_request_flags();
        }
        // Servers that keep such a connection open read later data, so prevention does too.
        let ignores = tx.request.is_http09 && !tx.settings.strict;
        self.request.state = if ignores { HttpRequestState::Ignore } else { HttpRequestState::Idle };
        self.request_id += 1;
        HttpParseStep::Again
    }
}

/// Whether a line is a request line with any method: servers act on unknown methods, so such a line after a
/// body is no part of that body.
fn is_request_line(line: &[u8]) -> bool {
    let mut words = line.split(|b| is_space(*b)).filter(|word| !word.is_empty());
    words.next().is_some()
        && words.next().is_some()
        && words.next_back().is_some_and(|last| last.starts_with(b"HTTP/"))
}

/// Whether a request line is that of HTTP/2's preface. Servers look for it at each request, in the words that
/// their parser has made of the line.
fn is_preface(request: &HttpRequest) -> bool {
    let begins = |text: &Option<Vec<u8>>, with: &[u8]| {
        let head = text.as_deref().and_then(|text| text.get(..with.len()));
        head.is_some_and(|head| head.eq_ignore_ascii_case(with))
    };
    request.method.as_ref().is_some_and(|method| method.eq_ignore_ascii_case(b"PRI"))
        && begins(&request.message.protocol, b"HTTP/2")
}

/// Whether Python's servers split a request line into other words than all other servers, because of white
/// space that only Python accepts. No honest client sends it after a method; in a target it may be a part of
/// UTF-8.
fn words_differ(line: &[u8]) -> bool {
    let only_python = |b: &u8| is_wide_space(*b) && !is_space(*b);
    let mut words = line.split(|b| is_space(*b)).filter(|word| !word.is_empty());
    if words.next().is_some_and(|method| method.iter().any(only_python)) {
        return true;
    }
    // Target and version, which are one word for other servers.
    let (target, more) = (words.next().unwrap_or_default(), words.next());
    let last = target.iter().rposition(only_python).and_then(|at| target.get(at + 1..));
    more.is_none() && last.is_some_and(|last| last.starts_with(b"HTTP/"))
}

/// Whether held headers have a line end within them, and not only at their end.
pub(super) fn is_folded(held: &[u8]) -> bool {
    let end = |b: &u8| matches!(b, b'\r' | b'\n');
    let line = held.iter().rposition(|b| !end(b)).map_or(0, |last| last + 1);
    super::bytes::before(held, line).iter().any(end)
}

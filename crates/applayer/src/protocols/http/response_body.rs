// SPDX-License-Identifier: Apache-2.0
//! Bodies of responses: their existence and their end (RFC 9112 section 6).

use super::bytes::{contains_nocase_nonul, is_space, line_to_lf, span};
use super::events;
use super::feed::{Feed, HttpDirectionStatus, HttpParseStep};
use super::fields::{self, ChunkLine, HttpVersion};
use super::request_side;
use super::response_side::HttpResponseState;
use super::state::HttpParser;
use super::tx::{BODY, Coding, Flags, HttpMethod, LINE, TRAILER};
use bartizan_base::Direction;

/// Whether another response to the same request follows a response with this code.
pub(super) fn is_interim(code: u16) -> bool {
    matches!(code, 100 | 102..=199)
}

impl HttpParser {
    pub(super) fn response_body_determine(&mut self) -> HttpParseStep {
        let Some(tx) = self.txs.at(self.response_id) else { return HttpParseStep::Fail };
        let code = tx.response.code;
        let strict = tx.settings.strict;
        if tx.request.method_kind == HttpMethod::Connect {
            match code {
                Some(200..300) => {
                    self.response.state = HttpResponseState::Finalize;
                    tx.response.message.headers_end(strict);
                    tx.set_encodings(Direction::ToClient);
                    return HttpParseStep::Again;
                }
                Some(407) => {}
                _ => self.response.yield_at_end = true,
            }
        }
        let fields = &tx.response.message.fields;
        let has_length = fields.get("content-length").is_some();
        let has_transfer = fields.get("transfer-encoding").is_some();
        let plain = !has_length && !has_transfer;
        if code == Some(101) {
            // The client has not requested another protocol: some clients read this as a final response with
            // a body, others as an interim one.
            let asked = tx.request.method.is_none() || tx.request.message.fields.get("upgrade").is_some();
            if strict && !asked {
                tx.raise(events::RESPONSE_BODY_UNEXPECTED);
                return HttpParseStep::Fail;
            }
            if !plain {
                tx.raise(events::SWITCHING_PROTO_WITH_CONTENT_LENGTH);
            }
            // The response has no body, whatever its headers declare (RFC 9110 section 15.2).
            if plain || asked {
                self.response.state = HttpResponseState::Finalize;
                tx.response.message.headers_end(strict);
                if self.request.status != HttpDirectionStatus::Failed {
                    self.request.status = HttpDirectionStatus::Tunnel;
                }
                self.response.status = HttpDirectionStatus::Tunnel;
                tx.set_encodings(Direction::ToClient);
                return HttpParseStep::Again;
            }
        } else if strict && code.is_some_and(is_interim) {
            // There is no body, whatever the headers declare, and the final response follows (RFC 9110
            // section 15.2).
            return self.interim_response();
        } else if code == Some(100) {
            let found = fields.value("content-length").map(fields::content_length);
            if let Some(found) = found {
                tx.raise_length_junk(found);
            }
            if has_transfer || found.is_some_and(|f| f.length > Some(0)) {
                tx.raise(events::RESPONSE_BODY_UNEXPECTED);
            }
            return self.interim_response();
        } else if code.is_some_and(|c| (400..500).contains(&c))
            && self.request.content_length > Some(0)
            && self.request.left == self.request.content_length
            && tx.request.message.fields.value("expect") == Some(b"100-continue")
        {
            // The client expects a 100 Continue that will not come: there is no body.
            self.request.state = request_side::HttpRequestState::Finalize;
        }
        self.response_body_kind(has_length, has_transfer)
    }

    /// Handles a 100 Continue: another status line follows.
    fn interim_response(&mut self) -> HttpParseStep {
        let Some(tx) = self.response_tx() else { return HttpParseStep::Fail };
        if tx.response.seen_continue {
            tx.raise(events::CONTINUE_ALREADY_SEEN);
        }
        tx.response.seen_continue = true;
        tx.response.message.fields.clear();
        tx.response.message.progress = LINE;
        self.response.state = HttpResponseState::Line;
        HttpParseStep::Again
    }

    /// Determines whether there is a body and how it ends.
    fn response_body_kind(&mut self, has_length: bool, has_transfer: bool) -> HttpParseStep {
        let Some(tx) = self.txs.at(self.response_id) else { return HttpParseStep::Fail };
        let mut no_body = tx.request.method_kind == HttpMethod::Head;
        if !no_body && matches!(tx.response.code, Some(100..200 | 204 | 304)) {
            // There is no body, whatever the headers declare (RFC 9112 section 6.3); libhtp believes the
            // headers, and takes the next response for a body.
            no_body = true;
            if has_length || has_transfer {
                tx.raise(events::RESPONSE_BODY_UNEXPECTED);
            }
            let length = tx.response.message.fields.value("content-length").map(fields::content_length);
            if let Some(found) = length.filter(|_| !has_transfer) {
                tx.raise_length_junk(found);
            }
        }
        if no_body {
            tx.response.message.coding = Coding::NoBody;
            let strict = tx.settings.strict;
            tx.response.message.headers_end(strict);
            self.response.state = HttpResponseState::Finalize;
            tx.set_encodings(Direction::ToClient);
            return HttpParseStep::Again;
        }
        let fields = &tx.response.message.fields;
        let byteranges = fields.value("content-type").is_some_and(|value| {
            let (kind, _) = span(value, |b| b != b';' && !is_space(b));
            super::bytes::find_nocase(kind, b"multipart/byteranges").is_some()
        });
        let transfer = fields.value("transfer-encoding").filter(|v| contains_nocase_nonul(v, b"chunked"));
        let length = fields.value("content-length").map(fields::content_length);
        let plain_length = fields.value("content-length").is_none_or(fields::is_plain_content_length);
        if let Some(value) = transfer {
            let plain = value.eq_ignore_ascii_case(b"chunked");
            if !plain {
                tx.raise(events::RESPONSE_ABNORMAL_TRANSFER_ENCODING);
            }
            if tx.response.message.version < HttpVersion::V11 {
                tx.raise(events::RESPONSE_CHUNKED_OLD_PROTO);
            }
            tx.response.message.coding = Coding::Chunked;
            tx.response.message.progress = BODY;
            self.response.state = HttpResponseState::ChunkLength;
        } else if let Some(found) = length {
            tx.raise_length_junk(found);
            if tx.settings.strict && !plain_length {
                return HttpParseStep::Fail;
            }
            tx.response.message.coding = Coding::Identity;
            tx.response.message.content_length = found.length;
            self.response.left = found.length;
            match found.length {
                None => {
                    tx.raise(events::INVALID_CONTENT_LENGTH_FIELD_IN_RESPONSE);
                    return HttpParseStep::Fail;
                }
                Some(0) => {
                    let strict = tx.settings.strict;
                    tx.response.message.headers_end(strict);
                    self.response.state = HttpResponseState::Finalize;
                }
                Some(_) => {
                    tx.response.message.progress = BODY;
                    self.response.state = HttpResponseState::BodyKnown;
                }
            }
        } else {
            if byteranges {
                tx.raise(events::RESPONSE_MULTIPART_BYTERANGES);
                return HttpParseStep::Fail;
            }
            tx.response.message.coding = Coding::Identity;
            tx.response.message.progress = BODY;
            self.response.left = None;
            self.response.state = HttpResponseState::BodyToClose;
        }
        tx.set_encodings(Direction::ToClient);
        HttpParseStep::Again
    }

    /// Passes a piece of the body to the transaction; `false` if the decoder has been dropped.
    pub(super) fn response_body(&mut self, data: &[u8]) -> bool {
        let context = &mut self.file_context;
        let Some(tx) = self.txs.at(self.response_id) else { return false };
        tx.response_data(data, context)
    }

    fn response_gap(&mut self, count: u64) {
        let context = &mut self.file_context;
        if let Some(tx) = self.txs.at(self.response_id) {
            tx.body_gap(Direction::ToClient, count, context);
        }
    }

    pub(super) fn response_known(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        if self.response.status == HttpDirectionStatus::Closed {
            self.response.state = HttpResponseState::Finalize;
            return HttpParseStep::Again;
        }
        let Some(left) = self.response.left else { return HttpParseStep::Fail };
        let count = feed.left().min(left);
        if count == 0 {
            return HttpParseStep::More;
        }
        if feed.is_gap() {
            self.response_gap(count);
            feed.take_gap(count);
        } else {
            let data = super::bytes::before(feed.rest(), usize::try_from(count).unwrap_or(usize::MAX));
            feed.take(data.len());
            if !self.response_body(data) {
                return HttpParseStep::Fail;
            }
        }
        let left = left.saturating_sub(count);
        self.response.left = Some(left);
        if left > 0 {
            return HttpParseStep::More;
        }
        self.response.state = HttpResponseState::Finalize;
        let context = &mut self.file_context;
        if let Some(tx) = self.txs.at(self.response_id) {
            tx.end_decoding(Direction::ToClient, context);
        }
        HttpParseStep::Again
    }

    pub(super) fn response_to_close(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        if feed.is_gap() {
            self.response_gap(feed.left());
            feed.take_gap(u64::MAX);
        }
        let data = feed.take_all();
        if !data.is_empty() && !self.response_body(data) {
            return HttpParseStep::Fail;
        }
        if self.response.status == HttpDirectionStatus::Closed {
            self.response.state = HttpResponseState::Finalize;
            return HttpParseStep::Again;
        }
        HttpParseStep::More
    }

    fn count_response_bytes(&mut self, count: usize) {
        if let Some(tx) = self.response_tx() {
            let body = &mut tx.response.message.body;
            body.message_length = body.message_length.saturating_add(count as u64);
        }
    }

    pub(super) fn response_chunk_length(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        // Clients that expect no chunks here read chunk lines as a part of the body, so these must have no
        // extension.
        let strict = self.settings.strict;
        let bare = strict && self.response_tx().is_some_and(|tx| tx.response.message.ends_differ());
        loop {
            let Some((part, _)) = line_to_lf(feed.rest()) else {
                let data = [self.response.line.as_slice(), feed.rest()].concat();
                if self.settings.strict && !fields::may_be_plain_chunk_line(&data, bare) {
                    return self.bad_response_chunk();
                }
                if !data.is_empty() && !fields::may_be_chunk_line(&data) {
                    feed.take_all();
                    return self.unchunked_response(&data);
                }
                return self.hold_response(feed);
            };
            feed.take(part.len());
            if !self.response.line.is_empty() && !self.response_fits(part.len()) {
                return HttpParseStep::Fail;
            }
            let mut line = core::mem::take(&mut self.response.line);
            line.extend_from_slice(part);
            if self.settings.strict
                && !(fields::is_plain_chunk_line(&line) && fields::may_be_plain_chunk_line(&line, bare))
            {
                return self.bad_response_chunk();
            }
            let chunk = fields::chunk_line(&line);
            if chunk == ChunkLine::Invalid {
                return self.unchunked_response(&line);
            }
            self.count_response_bytes(line.len());
            if line.iter().all(|b| fields::is_chunk_filler(*b)) {
                continue;
            }
            let Some(tx) = self.txs.at(self.response_id) else { return HttpParseStep::Fail };
            match chunk {
                ChunkLine::Unusable if tx.settings.strict => return self.bad_response_chunk(),
                ChunkLine::Unusable | ChunkLine::Invalid => {}
                ChunkLine::Length(length, extension) => {
                    if extension {
                        tx.raise_once(events::RESPONSE_CHUNK_EXTENSION, Flags::RESPONSE_CHUNK_EXTENSION);
                    }
                    if length == 0 {
                        tx.response.message.progress = TRAILER;
                        self.response.state = HttpResponseState::Headers;
                    } else {
                        self.response.chunk_left = length;
                        self.response.state = HttpResponseState::ChunkData;
                    }
                }
            }
            return HttpParseStep::Again;
        }
    }

    /// Receivers differ over this chunk: prevention lets none of it pass.
    fn bad_response_chunk(&mut self) -> HttpParseStep {
        if let Some(tx) = self.response_tx() {
            tx.raise(events::INVALID_RESPONSE_CHUNK_LEN);
        }
        HttpParseStep::Fail
    }

    /// Handles a chunked body without valid chunks: it is read unchanged, to the end of the stream.
    fn unchunked_response(&mut self, line: &[u8]) -> HttpParseStep {
        let Some(tx) = self.response_tx() else { return HttpParseStep::Fail };
        tx.response.message.coding = Coding::Identity;
        tx.raise(events::INVALID_RESPONSE_CHUNK_LEN);
        self.response.line.clear();
        self.response.state = HttpResponseState::BodyToClose;
        if self.response_body(line) { HttpParseStep::Again } else { HttpParseStep::Fail }
    }

    pub(super) fn response_chunk_data(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        if self.response.status == HttpDirectionStatus::Closed {
            self.response.state = HttpResponseState::Finalize;
            return HttpParseStep::Again;
        }
        let count = usize::try_from(self.response.chunk_left).unwrap_or(usize::MAX);
        let data = super::bytes::before(feed.rest(), count);
        if data.is_empty() {
            return HttpParseStep::More;
        }
        feed.take(data.len());
        if !self.response_body(data) {
            return HttpParseStep::Fail;
        }
        self.response.chunk_left = self.response.chunk_left.saturating_sub(data.len() as u64);
        if self.response.chunk_left == 0 {
            self.response.state = HttpResponseState::ChunkEnd;
            return HttpParseStep::Again;
        }
        HttpParseStep::More
    }

    pub(super) fn response_chunk_end(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        if self.settings.strict {
            return self.response_plain_chunk_end(feed);
        }
        let Some((line, _)) = line_to_lf(feed.rest()) else {
            let skipped = feed.take_all();
            self.count_response_bytes(skipped.len());
            return HttpParseStep::More;
        };
        feed.take(line.len());
        self.count_response_bytes(line.len());
        self.response.state = HttpResponseState::ChunkLength;
        HttpParseStep::Again
    }

    /// Some receivers skip two bytes here and others all bytes up to the line end: prevention lets pass only
    /// what is the same for both.
    fn response_plain_chunk_end(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let part = line_to_lf(feed.rest()).map_or(feed.rest(), |(line, _)| line);
        let seen = [self.response.line.as_slice(), part].concat();
        if !fields::may_be_chunk_end(&seen) {
            return self.bad_response_chunk();
        }
        self.count_response_bytes(part.len());
        if !seen.ends_with(b"\n") {
            return self.hold_response(feed);
        }
        feed.take(part.len());
        self.response.line.clear();
        self.response.state = HttpResponseState::ChunkLength;
        HttpParseStep::Again
    }
}

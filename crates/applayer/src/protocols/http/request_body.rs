// SPDX-License-Identifier: Apache-2.0
//! Bodies of requests: of known length, or in chunks (RFC 9112 sections 6 and 7.1).

use super::bytes::line_to_lf;
use super::events;
use super::feed::{Feed, HttpParseStep};
use super::fields::{self, ChunkLine};
use super::request_side::HttpRequestState;
use super::state::HttpParser;
use super::tx::{Coding, Flags, TRAILER};
use bartizan_base::Direction;

impl HttpParser {
    pub(super) fn request_body_determine(&mut self) -> HttpParseStep {
        let Some(tx) = self.request_tx() else { return HttpParseStep::Fail };
        let strict = tx.settings.strict;
        let message = &mut tx.request.message;
        let length = message.content_length;
        if strict && message.coding == Coding::Chunked && message.ends_differ() {
            tx.flags |= Flags::INVALID_TRANSFER_ENCODING;
            tx.raise(events::INVALID_TRANSFER_ENCODING_VALUE_IN_REQUEST);
            return HttpParseStep::Fail;
        }
        let (next, has_body) = match message.coding {
            Coding::Chunked => (HttpRequestState::ChunkLength, true),
            Coding::Identity if length > Some(0) => (HttpRequestState::BodyIdentity, true),
            Coding::Identity | Coding::NoBody => (HttpRequestState::Finalize, false),
            Coding::Unknown | Coding::Invalid => return HttpParseStep::Fail,
        };
        message.headers_end(strict || has_body);
        if message.coding == Coding::Identity {
            self.request.content_length = length;
            self.request.left = length;
        }
        self.request.state = next;
        HttpParseStep::Again
    }

    /// Passes a piece of the body to the transaction.
    pub(super) fn request_body(&mut self, data: &[u8]) -> bool {
        let context = &mut self.file_context;
        let Some(tx) = self.txs.at(self.request_id) else { return false };
        tx.request_data(data, context)
    }

    pub(super) fn request_identity(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let Some(left) = self.request.left else { return HttpParseStep::Fail };
        let count = feed.left().min(left);
        if count == 0 {
            return HttpParseStep::More;
        }
        if feed.is_gap() {
            let context = &mut self.file_context;
            let Some(tx) = self.txs.at(self.request_id) else { return HttpParseStep::Fail };
            tx.body_gap(Direction::ToServer, count, context);
            feed.take_gap(count);
        } else {
            let data = super::bytes::before(feed.rest(), usize::try_from(count).unwrap_or(usize::MAX));
            feed.take(data.len());
            if !self.request_body(data) {
                return HttpParseStep::Fail;
            }
        }
        let left = left.saturating_sub(count);
        self.request.left = Some(left);
        if left > 0 {
            return HttpParseStep::More;
        }
        self.request.state = HttpRequestState::Finalize;
        self.end_request_decoding();
        HttpParseStep::Again
    }

    fn end_request_decoding(&mut self) {
        let context = &mut self.file_context;
        if let Some(tx) = self.txs.at(self.request_id) {
            tx.end_decoding(Direction::ToServer, context);
        }
    }

    fn count_request_bytes(&mut self, count: usize) {
        if let Some(tx) = self.request_tx() {
            let body = &mut tx.request.message.body;
            body.message_length = body.message_length.saturating_add(count as u64);
        }
    }

    pub(super) fn request_chunk_length(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        loop {
            let Some((part, _)) = line_to_lf(feed.rest()) else {
                let data = [self.request.line.as_slice(), feed.rest()].concat();
                let strict = self.settings.strict;
                let plausible = if strict {
                    fields::may_be_plain_chunk_line(&data, false)
                } else {
                    fields::may_be_chunk_line(&data)
                };
                if !data.is_empty() && !plausible {
                    return self.bad_request_chunk();
                }
                return self.hold_request(feed);
            };
            feed.take(part.len());
            if !self.request.line.is_empty() && !self.request_fits(part.len()) {
                return HttpParseStep::Fail;
            }
            let mut line = core::mem::take(&mut self.request.line);
            line.extend_from_slice(part);
            if self.settings.strict && !fields::is_plain_chunk_line(&line) {
                return self.bad_request_chunk();
            }
            if line.iter().all(|b| fields::is_chunk_filler(*b)) {
                self.count_request_bytes(line.len());
                continue;
            }
            // libhtp raises no event for a line without a length, unless it recognises this before the line
            // ends.
            let ChunkLine::Length(length, extension) = fields::chunk_line(&line) else {
                return self.bad_request_chunk();
            };
            self.count_request_bytes(line.len());
            let Some(tx) = self.request_tx() else { return HttpParseStep::Fail };
            if extension {
                tx.raise_once(events::REQUEST_CHUNK_EXTENSION, Flags::REQUEST_CHUNK_EXTENSION);
            }
            if length == 0 {
                tx.request.message.progress = TRAILER;
                self.request.state = HttpRequestState::Headers;
            } else {
                self.request.chunk_left = length;
                self.request.state = HttpRequestState::ChunkData;
            }
            return HttpParseStep::Again;
        }
    }

    fn bad_request_chunk(&mut self) -> HttpParseStep {
        if let Some(tx) = self.request_tx() {
            tx.raise(events::INVALID_REQUEST_CHUNK_LEN);
        }
        HttpParseStep::Fail
    }

    pub(super) fn request_chunk_data(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let count = usize::try_from(self.request.chunk_left).unwrap_or(usize::MAX);
        let data = super::bytes::before(feed.rest(), count);
        if data.is_empty() {
            return HttpParseStep::More;
        }
        feed.take(data.len());
        if !self.request_body(data) {
            return HttpParseStep::Fail;
        }
        self.request.chunk_left = self.request.chunk_left.saturating_sub(data.len() as u64);
        if self.request.chunk_left == 0 {
            self.request.state = HttpRequestState::ChunkEnd;
            return HttpParseStep::Again;
        }
        HttpParseStep::More
    }

    pub(super) fn request_chunk_end(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        if self.settings.strict {
            return self.request_plain_chunk_end(feed);
        }
        let Some((line, _)) = line_to_lf(feed.rest()) else {
            // Bytes between a chunk and the end of its line belong to no data, however they are cut.
            let length = feed.rest().len();
            self.count_request_bytes(length);
            feed.take(length);
            return HttpParseStep::More;
        };
        self.count_request_bytes(line.len());
        feed.take(line.len());
        self.request.state = HttpRequestState::ChunkLength;
        HttpParseStep::Again
    }

    /// Some receivers skip two bytes here and others all bytes up to the line end: prevention lets pass only
    /// what is the same for both.
    fn request_plain_chunk_end(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let part = line_to_lf(feed.rest()).map_or(feed.rest(), |(line, _)| line);
        let seen = [self.request.line.as_slice(), part].concat();
        if !fields::may_be_chunk_end(&seen) {
            return self.bad_request_chunk();
        }
        self.count_request_bytes(part.len());
        if !seen.ends_with(b"\n") {
            return self.hold_request(feed);
        }
        feed.take(part.len());
        self.request.line.clear();
        self.request.state = HttpRequestState::ChunkLength;
        HttpParseStep::Again
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A request and its response, and the table of a flow's transactions.

use std::collections::VecDeque;
use std::sync::Arc;

use super::body::{Awaited, BodyLimits, FileSource, HttpBody};
use super::buffers;
use super::bytes::{after, before};
use super::events;
use super::fields::{ContentRange, HttpVersion, content_range};
use super::headers::{HttpFields, RawField};
use super::log;
use super::ranges::PartialFiles;
use super::settings::HttpSettings;
use super::uri::Uri;
use crate::content::file::FileState;
use crate::content::files::FileContext;
use crate::content::mime::multipart::{self, Multipart};
use crate::content::mime::parameter;
use crate::event::EventCode;
use crate::memory::{Held as _, allocated};
use crate::protocol::NumberId;
use crate::transaction::{BufferQuery, BufferView, Files, FilesMut, LogOptions, Transaction, TxCommon, TxId};
use crate::worklist::Worklist;
use bartizan_base::Direction;
use bartizan_events::JsonWriter;

/// Progress of a direction: no data yet.
pub(super) const NOT_STARTED: u8 = 0;
/// In the first line.
pub(super) const LINE: u8 = 1;
/// In the headers.
pub(super) const HEADERS: u8 = 2;
/// In the body.
pub(super) const BODY: u8 = 3;
/// In the trailer.
pub(super) const TRAILER: u8 = 4;
/// The message is complete.
pub(super) const COMPLETE: u8 = 5;

/// Limit of repeated fields that are joined; libhtp ignores further ones, and so does detection. Receivers do
/// not, so prevention joins all.
pub(super) const MAX_REPETITIONS: u16 = 64;
/// Limit of raw headers kept per message, in bytes, if no decision depends on bytes beyond it.
pub(super) const MAX_RAW_HEADERS: usize = 1 << 18;
/// Limit in prevention of a message's headers and trailers, and of its first line, in bytes; longer ones are
/// refused. It is the largest default limit of receivers (Go 1 MiB; others 8 to 384 KiB); browsers accept at
/// most 384 KiB in a response.
pub(super) const MAX_HEADER_BLOCK: usize = 1 << 20;

bitflags::bitflags! {
    /// Anomalies that are reported once per transaction, or at the end of the request.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Flags: u16 {
        const FIELD_INVALID = 1;
        const FIELD_UNPARSEABLE = 2;
        const INVALID_FOLDING = 4;
        const INVALID_TRANSFER_ENCODING = 8;
        const INVALID_CONTENT_LENGTH = 16;
        const HOST_MISSING = 32;
        const HOST_AMBIGUOUS = 64;
        const URI_HOST_INVALID = 128;
        const HEADER_HOST_INVALID = 256;
        const UNKNOWN_AUTHORIZATION = 512;
        const TOO_MANY_HEADERS = 1024;
        const REQUEST_CHUNK_EXTENSION = 2048;
        const RESPONSE_CHUNK_EXTENSION = 4096;
    }
}

/// The way in which a body is delimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Coding {
    #[default]
    Unknown,
    NoBody,
    Identity,
    Chunked,
    Invalid,
}

/// Parts that requests and responses have in common.
#[derive(Default)]
pub(super) struct HttpMessage {
    pub progress: u8,
    /// First line; for requests without its line end.
    pub line: Option<Vec<u8>>,
    pub protocol: Option<Vec<u8>>,
    pub version: HttpVersion,
    pub fields: HttpFields,
    /// A line among the headers is no field for some receivers.
    pub no_field: bool,
    /// Number of repeated fields.
    pub repetitions: u16,
    pub raw_headers: Vec<u8>,
    pub coding: Coding,
    pub content_length: Option<u64>,
    pub body: HttpBody,
}

impl HttpMessage {
    /// Keeps raw headers: the new bytes of `data`, up to `to`. The first `held` bytes were kept when they
    /// were held; those beyond `to` are removed. `false`: in prevention (`strict`) the limit is exceeded;
    /// otherwise bytes beyond it are dropped.
    pub(super) fn keep_raw(&mut self, data: &[u8], to: usize, held: usize, strict: bool) -> bool {
        let limit = if strict { MAX_HEADER_BLOCK } else { MAX_RAW_HEADERS };
        let raw = &mut self.raw_headers;
        if raw.len() < limit {
            raw.truncate(raw.len().saturating_sub(held.saturating_sub(to)));
        }
        let new = after(before(data, to), held);
        let room = limit.saturating_sub(raw.len());
        raw.extend_from_slice(before(new, room));
        !strict || new.len() <= room
    }

    /// Whether receivers differ over where the body ends, or how it is coded, because of this field and those
    /// before it.
    pub(super) fn differs_over(&mut self, field: &RawField) -> bool {
        let ended = self.no_field;
        self.no_field |= field.ends_headers();
        field.is_ambiguous(ended)
    }

    /// Whether receivers differ over where a chunked message ends: some use the length beside the chunks (no
    /// sender may declare one), some read no chunks in version 1.0, or after a list of codings with an
    /// unknown one (RFC 9112 sections 6.1 and 6.3).
    pub(super) fn ends_differ(&self) -> bool {
        let old = matches!(self.version, HttpVersion::V09 | HttpVersion::V10);
        let plain = self.fields.value("transfer-encoding").is_none_or(super::fields::is_plain_chunked);
        old || !plain || self.fields.get("content-length").is_some()
    }

    /// Handles the end of headers without a body. `strict`: the message is complete at once, whatever follows
    /// the empty line, since the receiver acts now. libhtp's message stays among its headers until the next
    /// line is known, and so do passive alerts.
    pub(super) fn headers_end(&mut self, strict: bool) {
        if strict {
            self.progress = self.progress.max(BODY);
        }
    }

    /// Bytes of memory held outside of the structure itself.
    fn held(&self) -> usize {
        let texts = self.line.held() + self.protocol.held() + self.raw_headers.held();
        texts.saturating_add(self.fields.held()).saturating_add(self.body.held())
    }
}

/// A request.
#[derive(Default)]
pub(super) struct HttpRequest {
    pub message: HttpMessage,
    pub method: Option<Vec<u8>>,
    pub method_kind: HttpMethod,
    pub is_http09: bool,
    pub uri: Option<Vec<u8>>,
    pub parsed_uri: Option<Uri>,
    pub normalized_uri: Option<Vec<u8>>,
    /// Host name in lower case, from the URI or else the header.
    pub hostname: Option<Vec<u8>>,
    pub port: Option<u16>,
    pub body_started: bool,
}

/// A response.
#[derive(Default)]
pub(super) struct Response {
    pub message: HttpMessage,
    pub status: Option<Vec<u8>>,
    pub code: Option<u16>,
    pub reason: Option<Vec<u8>>,
    pub seen_continue: bool,
}

/// Methods that change the parsing of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HttpMethod {
    #[default]
    Unknown,
    Connect,
    Head,
    Post,
    Put,
    /// Another known method.
    Other,
}

/// Methods that detection and the parser know.
pub(super) const METHODS: &[&str] = &[
    "GET",
    "PUT",
    "POST",
    "HEAD",
    "TRACE",
    "OPTIONS",
    "CONNECT",
    "DELETE",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "CHECKOUT",
    "UNCHECKOUT",
    "CHECKIN",
    "UPDATE",
    "LABEL",
    "REPORT",
    "MKWORKSPACE",
    "MKACTIVITY",
    "MERGE",
    "INVALID",
    "VERSION-CONTROL",
    "BASELINE-CONTROL",
];

impl HttpMethod {
    /// The method's kind; methods are case-sensitive.
    pub(super) fn of(text: &[u8]) -> Self {
        match text {
            b"CONNECT" => HttpMethod::Connect,
            b"HEAD" => HttpMethod::Head,
            b"POST" => HttpMethod::Post,
            b"PUT" => HttpMethod::Put,
            other if METHODS.iter().any(|m| m.as_bytes() == other) => HttpMethod::Other,
            _ => HttpMethod::Unknown,
        }
    }
}

/// A request and its response.
pub struct HttpTx {
    common: TxCommon,
    pub(super) settings: Arc<HttpSettings>,
    pub(super) flags: Flags,
    /// Events are suppressed: messages that the flow's end leaves open are no anomaly.
    muted: bool,
    pub(super) request: HttpRequest,
    pub(super) response: Response,
}

impl HttpTx {
    pub(super) fn new(id: TxId, settings: Arc<HttpSettings>) -> Self {
        HttpTx {
            common: TxCommon { id, ..TxCommon::default() },
            settings,
            flags: Flags::default(),
            muted: false,
            request: HttpRequest::default(),
            response: Response::default(),
        }
    }

    /// Whether any part of the transaction was seen.
    pub(super) fn started(&self) -> bool {
        self.request.message.progress != NOT_STARTED || self.response.message.progress != NOT_STARTED
    }

    /// Raises an event.
    pub(super) fn raise(&mut self, code: EventCode) {
        if !self.muted {
            self.common.events.set(code);
        }
    }

    /// Raises an event at most once per transaction and kind of anomaly.
    pub(super) fn raise_once(&mut self, code: EventCode, kind: Flags) {
        if !self.flags.contains(kind) {
            self.raise(code);
        }
        self.flags |= kind;
    }

    pub(super) fn message(&self, direction: Direction) -> &HttpMessage {
        match direction {
            Direction::ToServer => &self.request.message,
            Direction::ToClient => &self.response.message,
        }
    }

    pub(super) fn message_mut(&mut self, direction: Direction) -> &mut HttpMessage {
        match direction {
            Direction::ToServer => &mut self.request.message,
            Direction::ToClient => &mut self.response.message,
        }
    }

    /// Handles a piece of the request's body, as it came on the wire.
    pub(super) fn request_data(&mut self, data: &[u8], context: &mut FileContext) -> bool {
        if !self.request.body_started && !data.is_empty() {
            self.request.body_started = true;
            self.start_request_files();
        }
        let HttpTx { common, settings, request, .. } = self;
        let body = &mut request.message.body;
        let open_whole = matches!(body.source, FileSource::Whole) && body.files.list.is_empty();
        if open_whole
            && !data.is_empty()
            && let Some(path) = request.parsed_uri.as_ref().and_then(|u| u.path.as_ref())
        {
            body.open_file(path, context, &mut common.events);
        }
        let going = body.receive(
            data,
            BodyLimits { body: &settings.request, http: settings },
            context,
            &mut common.events,
        );
        going && !body.differs()
    }

    fn start_request_files(&mut self) {
        let body = &mut self.request.message.body;
        let strict = self.settings.strict;
        body.source = match self.request.method_kind {
            HttpMethod::Put => FileSource::Whole,
            // Servers read forms with any method.
            kind if kind == HttpMethod::Post || strict => {
                match self.request.message.fields.value("content-type") {
                    Some(value) if multipart::has_boundary(value, strict) => Multipart::new(value, strict)
                        .map_or(FileSource::None, |form| FileSource::Form(Box::new(form))),
                    _ if kind == HttpMethod::Post => FileSource::Whole,
                    _ => FileSource::None,
                }
            }
            _ => FileSource::None,
        };
    }

    /// Handles a piece of the response's body, as it came on the wire.
    pub(super) fn response_data(&mut self, data: &[u8], context: &mut FileContext) -> bool {
        if !data.is_empty() {
            self.open_response_file(context);
        }
        let HttpTx { common, settings, response, .. } = self;
        let limits = BodyLimits { body: &settings.response, http: settings };
        let body = &mut response.message.body;
        body.receive(data, limits, context, &mut common.events) && !body.differs()
    }

    /// Ends the encoded data of a body.
    pub(super) fn end_decoding(&mut self, direction: Direction, context: &mut FileContext) {
        let HttpTx { common, settings, request, response, .. } = self;
        let (body, own) = match direction {
            Direction::ToServer => (&mut request.message.body, &settings.request),
            Direction::ToClient => (&mut response.message.body, &settings.response),
        };
        body.end_decoding(BodyLimits { body: own, http: settings }, context, &mut common.events);
    }

    /// Ends a body and closes its files.
    pub(super) fn finish_body(&mut self, direction: Direction, context: &mut FileContext) {
        let HttpTx { common, request, response, .. } = self;
        let body = match direction {
            Direction::ToServer => &mut request.message.body,
            Direction::ToClient => &mut response.message.body,
        };
        body.finish(context, &mut common.events);
    }

    /// Handles the end of the flow within a body: its files end as they are.
    pub(super) fn abort_body(&mut self, direction: Direction, context: &mut FileContext) {
        let HttpTx { common, request, response, .. } = self;
        let body = match direction {
            Direction::ToServer => &mut request.message.body,
            Direction::ToClient => &mut response.message.body,
        };
        body.abort(context, &mut common.events);
    }

    /// Handles missing bytes of a body.
    pub(super) fn body_gap(&mut self, direction: Direction, missing: u64, context: &mut FileContext) {
        if direction == Direction::ToClient {
            self.open_response_file(context);
        }
        let HttpTx { common, settings, request, response, .. } = self;
        let (body, own) = match direction {
            Direction::ToServer => (&mut request.message.body, &settings.request),
            Direction::ToClient => (&mut response.message.body, &settings.response),
        };
        body.receive_gap(missing, BodyLimits { body: own, http: settings }, context, &mut common.events);
    }

    /// Opens the response's file with its first byte, also for a body without status line; for an encoded
    /// body, with its first decoded byte.
    fn open_response_file(&mut self, context: &mut FileContext) {
        let HttpTx { common, request, response, .. } = self;
        let body = &mut response.message.body;
        if !body.files.list.is_empty() || body.awaited.is_some() {
            return;
        }
        let fields = &response.message.fields;
        let announced = fields.value("content-disposition").and_then(|value| parameter(value, b"filename="));
        let path = request.parsed_uri.as_ref().and_then(|u| u.path.as_deref());
        let Some(name) = announced.or(path) else { return };
        let (mut range, mut wrong_range) = (None, false);
        if let Some(value) = fields.value("content-range") {
            match content_range(value).map(|range| (range, range_kind(range))) {
                Some((part, RangeKind::Part)) => range = Some(part),
                Some((_, RangeKind::Whole)) => {}
                None | Some((_, RangeKind::Invalid)) => wrong_range = true,
            }
        }
        body.source = FileSource::Whole;
        body.awaited = Some(Awaited { name: name.to_vec(), range, wrong_range });
        if !body.encoded {
            body.open_awaited(context, &mut common.events);
        }
    }

    /// Completes a response: if it was the last missing piece of a file, the whole file becomes one of its
    /// files, too.
    pub(super) fn join_ranges(&mut self, ranges: &mut PartialFiles, context: &mut FileContext) {
        let HttpTx { common, request, response, .. } = self;
        let message = &mut response.message;
        let Some(file) = message.body.files.list.first() else { return };
        let size = message.fields.value("content-range").and_then(content_range).and_then(|r| r.size);
        let (Some(start), Some(size)) = (file.start, size) else { return };
        let (data, offset) = file.content();
        if file.state != FileState::Closed || file.gaps || offset != 0 || data.len() as u64 != file.size {
            return;
        }
        let host = request.hostname.as_deref().unwrap_or_default();
        let Some(whole) = ranges.add(host, &file.name, size, start, data) else { return };
        let name = file.name.clone();
        message.body.open_file(&name, context, &mut common.events);
        message.body.files.append(&whole);
        message.body.files.close(FileState::Closed);
    }

    /// Raises events for anomalies that were only flagged while the request was parsed.
    pub(super) fn raise_request_flags(&mut self) {
        for (flag, code) in [
            (Flags::INVALID_TRANSFER_ENCODING, events::INVALID_TRANSFER_ENCODING_VALUE_IN_REQUEST),
            (Flags::INVALID_CONTENT_LENGTH, events::INVALID_CONTENT_LENGTH_FIELD_IN_REQUEST),
            (Flags::HOST_MISSING, events::MISSING_HOST_HEADER),
            (Flags::HOST_AMBIGUOUS, events::HOST_HEADER_AMBIGUOUS),
            (Flags::URI_HOST_INVALID, events::REQUEST_URI_HOST_INVALID),
            (Flags::HEADER_HOST_INVALID, events::REQUEST_HEADER_HOST_INVALID),
            (Flags::UNKNOWN_AUTHORIZATION, events::REQUEST_AUTH_UNRECOGNIZED),
        ] {
            if self.flags.contains(flag) {
                self.common.events.set(code);
            }
        }
    }
}

/// The meaning of a content range for a file.
enum RangeKind {
    Part,
    /// All of the file, or an unknown part of it.
    Whole,
    Invalid,
}

fn range_kind(range: ContentRange) -> RangeKind {
    let (Some(start), Some(end), Some(size)) = (range.start, range.end, range.size) else {
        return RangeKind::Whole;
    };
    if end == 0 || size == 0 || (start == 0 && end == size - 1) {
        RangeKind::Whole
    } else if start > end || end > size - 1 {
        RangeKind::Invalid
    } else {
        RangeKind::Part
    }
}

impl Transaction for HttpTx {
    fn common(&self) -> &TxCommon {
        &self.common
    }

    fn common_mut(&mut self) -> &mut TxCommon {
        &mut self.common
    }

    fn progress(&self, direction: Direction) -> u8 {
        self.message(direction).progress
    }

    fn forwarded(&self, field: &str) -> Option<&[u8]> {
        self.request.message.fields.value(field)
    }

    fn buffer<'a>(&'a self, query: BufferQuery, scratch: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
        buffers::get(self, query, scratch)
    }

    fn number(&self, id: NumberId, direction: Direction) -> Option<u64> {
        match id {
            buffers::CODE => self.response.code.map(u64::from),
            buffers::CONTENT_LENGTH => self.message(direction).content_length,
            buffers::REQUEST_LENGTH => Some(self.request.message.body.message_length),
            buffers::RESPONSE_LENGTH => Some(self.response.message.body.message_length),
            buffers::PORT => self.request.port.map(u64::from),
            _ => None,
        }
    }

    fn held(&self) -> usize {
        let HttpRequest { message, method, uri, parsed_uri, normalized_uri, hostname, .. } = &self.request;
        let texts = [method, uri, normalized_uri, hostname, &self.response.status, &self.response.reason];
        let texts = texts.iter().fold(0usize, |sum, text| sum.saturating_add(text.held()));
        let parsed = parsed_uri.as_ref().map_or(0, Uri::held);
        let messages = message.held().saturating_add(self.response.message.held());
        texts.saturating_add(parsed).saturating_add(messages)
    }

    fn files(&self) -> Option<Files<'_>> {
        let [request, response] = [&self.request.message, &self.response.message];
        Some(Files::new(&request.body.files.list, &response.body.files.list))
    }

    fn files_mut(&mut self) -> Option<FilesMut<'_>> {
        let [request, response] = [&mut self.request.message, &mut self.response.message];
        Some(FilesMut::new(&mut request.body.files.list, &mut response.body.files.list))
    }

    fn log(&self, json: &mut JsonWriter, options: &LogOptions, in_alert: bool) {
        log::write(self, json, options, in_alert);
    }
}

/// The transactions that a flow holds.
pub(super) struct HttpTxTable {
    first: TxId,
    slots: VecDeque<Option<Box<HttpTx>>>,
    live: usize,
    settings: Arc<HttpSettings>,
    muted: bool,
    work: Worklist,
    /// One more than the highest id that was freed.
    freed_to: TxId,
}

impl HttpTxTable {
    pub(super) fn new(settings: Arc<HttpSettings>) -> Self {
        HttpTxTable {
            first: 0,
            slots: VecDeque::new(),
            live: 0,
            settings,
            muted: false,
            work: Worklist::default(),
            freed_to: 0,
        }
    }

    /// Sets whether events of transactions are suppressed.
    pub(super) fn suppress_events(&mut self, muted: bool) {
        self.muted = muted;
        for tx in self.iter_mut() {
            tx.muted = muted;
        }
    }

    fn position(&self, id: TxId) -> Option<usize> {
        usize::try_from(id.checked_sub(self.first)?).ok()
    }

    /// A transaction; makes it if it does not exist. `None`: there are too many.
    pub(super) fn at(&mut self, id: TxId) -> Option<&mut HttpTx> {
        let position = self.position(id)?;
        if self.slots.get(position).is_none_or(Option::is_none) {
            let limit = self.settings.max_tx;
            if self.live >= limit || position > limit.saturating_mul(8) {
                return None;
            }
            while self.slots.len() <= position {
                self.slots.push_back(None);
            }
            let slot = self.slots.get_mut(position)?;
            let mut tx = HttpTx::new(id, Arc::clone(&self.settings));
            tx.muted = self.muted;
            tx.common.ended = self.work.disrupted();
            *slot = Some(Box::new(tx));
            self.live += 1;
        }
        self.work.changed(id);
        self.slots.get_mut(position)?.as_deref_mut()
    }

    pub(super) fn get(&self, id: TxId) -> Option<&HttpTx> {
        self.slots.get(self.position(id)?)?.as_deref()
    }

    /// A transaction, to change.
    pub(super) fn get_mut(&mut self, id: TxId) -> Option<&mut HttpTx> {
        self.work.changed(id);
        self.mark_mut(id)
    }

    /// A transaction, for changes of its marks only.
    pub(super) fn mark_mut(&mut self, id: TxId) -> Option<&mut HttpTx> {
        let position = self.position(id)?;
        self.slots.get_mut(position)?.as_deref_mut()
    }

    /// Bytes of memory held. The cost depends on the changes since the last call.
    pub(super) fn held(&mut self) -> usize {
        let ids = self.work.take_unmeasured();
        let (mut more, mut less) = (0usize, 0usize);
        for id in &ids {
            let Some(tx) = self.mark_mut(*id) else { continue };
            let now = tx.held();
            let (up, down) = tx.common.measure(now);
            (more, less) = (more.saturating_add(up), less.saturating_add(down));
        }
        self.work.measured(ids, more, less);
        let places = self.live.saturating_mul(allocated(size_of::<HttpTx>()));
        self.slots.held().saturating_add(places).saturating_add(self.work.held())
    }

    /// Frees a transaction; slots before `keep_from` are dropped.
    pub(super) fn free(&mut self, id: TxId, keep_from: TxId) {
        if let Some(slot) = self.position(id).and_then(|p| self.slots.get_mut(p))
            && let Some(tx) = slot.take()
        {
            self.work.released(tx.common.measured);
            self.live = self.live.saturating_sub(1);
            self.freed_to = self.freed_to.max(id.saturating_add(1));
        }
        while self.first < keep_from && self.slots.front().is_some_and(Option::is_none) {
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// The changed transactions.
    pub(super) const fn worklist(&self) -> &Worklist {
        &self.work
    }

    /// The changed transactions, to add and to take.
    pub(super) const fn worklist_mut(&mut self) -> &mut Worklist {
        &mut self.work
    }

    /// One more than the highest id that was freed.
    pub(super) const fn freed_to(&self) -> TxId {
        self.freed_to
    }

    /// Lowest id that may exist.
    pub(super) fn first(&self) -> TxId {
        self.first
    }

    /// All existing transactions.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut HttpTx> {
        self.slots.iter_mut().filter_map(Option::as_deref_mut)
    }
}

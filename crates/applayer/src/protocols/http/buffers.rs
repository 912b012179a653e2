// SPDX-License-Identifier: Apache-2.0
//! Buffers of HTTP: their names, the progress at which each is complete, and their composition.

use super::headers::HttpFields;
use super::tx::{BODY, COMPLETE, HEADERS, HttpTx, LINE};
use crate::protocol::{BufferKind, BufferSpec, NumberId, NumberSpec, ValueForm, buffer};
use crate::transaction::{BufferQuery, BufferView};
use bartizan_base::Direction;

const URI: u16 = 0;
const URI_RAW: u16 = 1;
const METHOD: u16 = 2;
const PROTOCOL: u16 = 3;
const REQUEST_LINE: u16 = 4;
const RESPONSE_LINE: u16 = 5;
const STAT_CODE: u16 = 6;
const STAT_MSG: u16 = 7;
const HEADER: u16 = 8;
const HEADER_RAW: u16 = 9;
const HEADER_NAMES: u16 = 10;
const START: u16 = 11;
const COOKIE: u16 = 12;
const USER_AGENT: u16 = 13;
const REFERER: u16 = 14;
const HOST: u16 = 15;
const HOST_RAW: u16 = 16;
const ACCEPT: u16 = 17;
const ACCEPT_ENC: u16 = 18;
const ACCEPT_LANG: u16 = 19;
const CONNECTION: u16 = 20;
const CONTENT_TYPE: u16 = 21;
const CONTENT_LEN: u16 = 22;
const SERVER: u16 = 23;
const LOCATION: u16 = 24;
const REQUEST_BODY: u16 = 25;
const RESPONSE_BODY: u16 = 26;
const REQUEST_HEADER: u16 = 27;
const RESPONSE_HEADER: u16 = 28;
const FILE_DATA: u16 = 29;
const FILE_NAME: u16 = 30;
const FILE_MAGIC: u16 = 31;

/// Status code of the response.
pub(super) const CODE: NumberId = 0;
/// `Content-Length` of this direction's message.
pub(super) const CONTENT_LENGTH: NumberId = 1;
/// Bytes of the request's body on the wire.
pub(super) const REQUEST_LENGTH: NumberId = 2;
/// Bytes of the response's body on the wire.
pub(super) const RESPONSE_LENGTH: NumberId = 3;
/// Port in the request's authority.
pub(super) const PORT: NumberId = 4;

/// All numbers.
pub(super) const NUMBERS: &[NumberSpec] = &[
    NumberSpec { id: CODE, name: "http.stat_code" },
    NumberSpec { id: CONTENT_LENGTH, name: "http.content_len" },
    NumberSpec { id: REQUEST_LENGTH, name: "http.request_len" },
    NumberSpec { id: RESPONSE_LENGTH, name: "http.response_len" },
    NumberSpec { id: PORT, name: "http.port" },
];

use BufferKind::{Files, Multi, Single, Streaming};

/// All buffers. The first line is complete from [`HEADERS`] on, the headers from [`BODY`] on, the files with
/// the message. As in Suricata, a field is inspected when its line is complete, a value composed of all
/// fields when they are complete.
pub(super) const SPECS: &[BufferSpec] = &[
    buffer(URI, "http.uri", true, false, HEADERS, Single).of_state(LINE),
    buffer(URI_RAW, "http.uri.raw", true, false, HEADERS, Single).of_state(LINE),
    buffer(METHOD, "http.method", true, false, HEADERS, Single).of_state(LINE).of_form(ValueForm::Word),
    buffer(PROTOCOL, "http.protocol", true, true, HEADERS, Single).of_state(LINE),
    buffer(REQUEST_LINE, "http.request_line", true, false, HEADERS, Single).of_state(LINE),
    buffer(RESPONSE_LINE, "http.response_line", false, true, HEADERS, Single).of_state(LINE),
    buffer(STAT_CODE, "http.stat_code", false, true, HEADERS, Single).of_state(LINE),
    buffer(STAT_MSG, "http.stat_msg", false, true, HEADERS, Single).of_state(LINE),
    buffer(HEADER, "http.header", true, true, BODY, Single).of_state(HEADERS),
    buffer(HEADER_RAW, "http.header.raw", true, true, BODY, Single),
    buffer(HEADER_NAMES, "http.header_names", true, true, BODY, Single).of_state(HEADERS),
    buffer(START, "http.start", true, true, BODY, Single).of_state(HEADERS),
    buffer(COOKIE, "http.cookie", true, true, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(USER_AGENT, "http.user_agent", true, false, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(REFERER, "http.referer", true, false, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(HOST, "http.host", true, false, BODY, Single).of_state(HEADERS).of_form(ValueForm::LowerCase),
    buffer(HOST_RAW, "http.host.raw", true, false, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(ACCEPT, "http.accept", true, false, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(ACCEPT_ENC, "http.accept_enc", true, false, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(ACCEPT_LANG, "http.accept_lang", true, false, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(CONNECTION, "http.connection", true, true, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(CONTENT_TYPE, "http.content_type", true, true, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(CONTENT_LEN, "http.content_len", true, true, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(SERVER, "http.server", false, true, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(LOCATION, "http.location", false, true, BODY, Single).of_state(HEADERS).from(HEADERS),
    buffer(REQUEST_BODY, "http.request_body", true, false, BODY, Streaming),
    buffer(RESPONSE_BODY, "http.response_body", false, true, BODY, Streaming),
    buffer(REQUEST_HEADER, "http.request_header", true, false, BODY, Multi).of_state(HEADERS).from(HEADERS),
    buffer(RESPONSE_HEADER, "http.response_header", false, true, BODY, Multi).of_state(HEADERS).from(HEADERS),
    buffer(FILE_DATA, "file.data", true, true, BODY, Files).to_client_as("http.response_body"),
    buffer(FILE_NAME, "file.name", true, true, COMPLETE, Multi).of_state(BODY).from(BODY),
    buffer(FILE_MAGIC, "file.magic", true, true, COMPLETE, Multi).of_state(BODY).from(BODY),
];

/// A value of a buffer.
pub(super) fn get<'a>(
    tx: &'a HttpTx,
    query: BufferQuery,
    scratch: &'a mut Vec<u8>,
) -> Option<BufferView<'a>> {
    let direction = query.direction;
    let to_server = direction == Direction::ToServer;
    let message = tx.message(direction);
    let request = &tx.request;
    let response = &tx.response;
    let field = |name: &str| message.fields.value(name);
    let whole: Option<&[u8]> = match query.id {
        URI => request.normalized_uri.as_deref(),
        URI_RAW => request.uri.as_deref(),
        METHOD => request.method.as_deref(),
        PROTOCOL => message.protocol.as_deref(),
        REQUEST_LINE => request.message.line.as_deref(),
        RESPONSE_LINE => response.message.line.as_deref(),
        STAT_CODE => response.status.as_deref(),
        STAT_MSG => response.reason.as_deref(),
        HOST => request.hostname.as_deref(),
        HOST_RAW => match request.parsed_uri.as_ref().and_then(|u| u.hostname.as_deref()) {
            Some(host) => Some(host),
            None => request.message.fields.value("host"),
        },
        COOKIE => field(if to_server { "cookie" } else { "set-cookie" }),
        USER_AGENT => field("user-agent"),
        REFERER => field("referer"),
        ACCEPT => field("accept"),
        ACCEPT_ENC => field("accept-encoding"),
        ACCEPT_LANG => field("accept-language"),
        CONNECTION => field("connection"),
        CONTENT_TYPE => field("content-type"),
        CONTENT_LEN => field("content-length"),
        SERVER => field("server"),
        LOCATION => field("location"),
        HEADER_RAW => Some(message.raw_headers.as_slice()).filter(|raw| !raw.is_empty()),
        REQUEST_BODY | RESPONSE_BODY => return body(tx, direction),
        FILE_DATA => return file_data(tx, query),
        FILE_NAME => {
            let (files, index) = (&message.body.files, usize::try_from(query.index).ok()?);
            let name = match index.checked_sub(files.list.len()) {
                None => &files.list.get(index)?.name,
                Some(beyond) => files.aliases.get(beyond)?,
            };
            return Some(BufferView::whole(name));
        }
        FILE_MAGIC => {
            let file = message.body.files.list.get(usize::try_from(query.index).ok()?)?;
            let open = file.state == crate::file::FileState::Open;
            // A file that has ended without a known type does not hide later ones.
            let kind = file.magic().or((!open).then_some(""))?;
            return Some(BufferView::whole(kind.as_bytes()));
        }
        _ => return composed(tx, query, scratch),
    };
    whole.map(BufferView::whole)
}

/// Buffers that are composed of several parts.
fn composed<'a>(tx: &'a HttpTx, query: BufferQuery, out: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
    let to_server = query.direction == Direction::ToServer;
    let message = tx.message(query.direction);
    let fields = &message.fields;
    match query.id {
        HEADER => {
            let cookie: &[u8] = if to_server { b"cookie" } else { b"set-cookie" };
            for field in fields.list.iter().filter(|f| !f.name.eq_ignore_ascii_case(cookie)) {
                write_field(out, &field.name, &field.value);
                out.extend_from_slice(b"\r\n");
            }
        }
        HEADER_NAMES => write_names(out, fields),
        START => {
            let line = message.line.as_deref()?;
            // A status line is held with its line end.
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
            for field in &fields.list {
                write_field(out, &field.name, &field.value);
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(b"\r\n");
        }
        REQUEST_HEADER | RESPONSE_HEADER => {
            let field = fields.list.get(usize::try_from(query.index).ok()?)?;
            write_field(out, &field.name, &field.value);
        }
        _ => return None,
    }
    (!out.is_empty()).then_some(BufferView::whole(out))
}

fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
}

fn write_names(out: &mut Vec<u8>, fields: &HttpFields) {
    if fields.list.is_empty() {
        return;
    }
    out.extend_from_slice(b"\r\n");
    for field in &fields.list {
        out.extend_from_slice(&field.name);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// The body as far as it has come. While it grows it is visible from a minimum size on, so that patterns at
/// its beginning are searched once.
fn body(tx: &HttpTx, direction: Direction) -> Option<BufferView<'_>> {
    let settings = match direction {
        Direction::ToServer => tx.settings.request,
        Direction::ToClient => tx.settings.response,
    };
    let message = tx.message(direction);
    let body = &message.body;
    if body.seen == 0 {
        return None;
    }
    let limited = settings.limit > 0 && body.seen >= settings.limit;
    let over = body.complete || message.progress > BODY;
    if !tx.settings.body_inline && !limited && !over && body.seen < settings.inspect_from {
        return None;
    }
    let (data, offset) = body.view();
    Some(BufferView { data, offset, complete: limited || body.complete || message.progress >= COMPLETE })
}

/// To the client the body, to the server the files of the request.
fn file_data(tx: &HttpTx, query: BufferQuery) -> Option<BufferView<'_>> {
    if query.direction == Direction::ToClient {
        return if query.index == 0 { body(tx, Direction::ToClient) } else { None };
    }
    let message = tx.message(Direction::ToServer);
    let file = message.body.files.list.get(usize::try_from(query.index).ok()?)?;
    let (data, offset) = file.content();
    // The last chunk ends the file, as it ends the body.
    let over = file.state != crate::file::FileState::Open || message.progress > BODY;
    let complete = file.state != crate::file::FileState::Open;
    // As for bodies: while the file grows it is visible from a minimum size on.
    if !over && !tx.settings.body_inline && file.size < tx.settings.request.inspect_from {
        return None;
    }
    (!data.is_empty() || complete).then_some(BufferView { data, offset, complete })
}

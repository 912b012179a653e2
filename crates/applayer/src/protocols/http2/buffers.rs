// SPDX-License-Identifier: Apache-2.0
//! Buffers of HTTP/2: those of HTTP/1 with the same names, and `http2.header_name`.

use super::hpack::{FieldStatus, HeaderField};
use super::tx::{COMPLETE, FIELDS, Http2Tx, MESSAGE, OPEN, StreamSide};
use crate::content::file::FileState;
use crate::protocol::{BufferKind, BufferSpec, ValueForm, buffer};
use crate::protocols::dns;
use crate::transaction::{BufferQuery, BufferView, Transaction as _};
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
const COOKIE: u16 = 11;
const HOST: u16 = 12;
const HOST_RAW: u16 = 13;
const REQUEST_BODY: u16 = 14;
const RESPONSE_BODY: u16 = 15;
const REQUEST_HEADER: u16 = 16;
const RESPONSE_HEADER: u16 = 17;
const HEADER_NAME: u16 = 18;
const FILE_DATA: u16 = 19;
const FILE_NAME: u16 = 20;
const FILE_MAGIC: u16 = 21;
/// Size of a file from which on it is inspected while it grows, in bytes.
const INSPECT_FROM: u64 = 32_768;
/// Buffers of single fields begin here, in the order of [`FIELD_NAMES`].
const SINGLE: u16 = 32;

/// Names of the fields that have buffers of their own.
const FIELD_NAMES: [&[u8]; 10] = [
    b"user-agent",
    b"referer",
    b"accept",
    b"accept-encoding",
    b"accept-language",
    b"connection",
    b"content-type",
    b"content-length",
    b"server",
    b"location",
];

use BufferKind::{Files, Multi, Single, Streaming};

/// All buffers. As in Suricata they are complete when data follows the fields, or the stream ends in their
/// direction; single fields are inspected with the frame that brings them.
pub(super) const SPECS: &[BufferSpec] = &[
    buffer(URI, "http.uri", true, false, FIELDS, Single),
    buffer(URI_RAW, "http.uri.raw", true, false, FIELDS, Single),
    buffer(METHOD, "http.method", true, false, FIELDS, Single).of_form(ValueForm::Word),
    buffer(PROTOCOL, "http.protocol", true, true, FIELDS, Single),
    buffer(REQUEST_LINE, "http.request_line", true, false, FIELDS, Single),
    buffer(RESPONSE_LINE, "http.response_line", false, true, FIELDS, Single),
    buffer(STAT_CODE, "http.stat_code", false, true, FIELDS, Single),
    buffer(STAT_MSG, "http.stat_msg", false, true, FIELDS, Single),
    buffer(HEADER, "http.header", true, true, FIELDS, Single),
    buffer(HEADER_RAW, "http.header.raw", true, true, FIELDS, Single),
    buffer(HEADER_NAMES, "http.header_names", true, true, FIELDS, Single),
    buffer(COOKIE, "http.cookie", true, true, FIELDS, Single),
    buffer(HOST, "http.host", true, false, FIELDS, Single).of_form(ValueForm::LowerCase),
    buffer(HOST_RAW, "http.host.raw", true, false, FIELDS, Single),
    buffer(SINGLE, "http.user_agent", true, false, FIELDS, Single),
    buffer(SINGLE + 1, "http.referer", true, false, FIELDS, Single),
    buffer(SINGLE + 2, "http.accept", true, false, FIELDS, Single),
    buffer(SINGLE + 3, "http.accept_enc", true, false, FIELDS, Single),
    buffer(SINGLE + 4, "http.accept_lang", true, false, FIELDS, Single),
    buffer(SINGLE + 5, "http.connection", true, true, FIELDS, Single),
    buffer(SINGLE + 6, "http.content_type", true, true, FIELDS, Single),
    buffer(SINGLE + 7, "http.content_len", true, true, FIELDS, Single),
    buffer(SINGLE + 8, "http.server", false, true, FIELDS, Single),
    buffer(SINGLE + 9, "http.location", false, true, FIELDS, Single),
    buffer(REQUEST_BODY, "http.request_body", true, false, FIELDS, Streaming),
    buffer(RESPONSE_BODY, "http.response_body", false, true, FIELDS, Streaming),
    buffer(REQUEST_HEADER, "http.request_header", true, false, FIELDS, Multi).from(OPEN),
    buffer(RESPONSE_HEADER, "http.response_header", false, true, FIELDS, Multi).from(OPEN),
    buffer(HEADER_NAME, "http2.header_name", true, true, FIELDS, Multi).from(OPEN),
    buffer(FILE_DATA, "file.data", true, true, FIELDS, Files).to_client_as("http.response_body"),
    buffer(FILE_NAME, "file.name", true, true, COMPLETE, Multi).from(FIELDS),
    buffer(FILE_MAGIC, "file.magic", true, true, COMPLETE, Multi).from(FIELDS),
];

/// Buffers of DNS have these numbers.
pub(super) const DNS: u16 = 64;
const HTTP_COUNT: usize = SPECS.len();
const DNS_COUNT: usize = dns::buffers::DNS.len();

/// All buffers, with those of the messages of DNS: a message is complete when its side ends the stream.
pub(super) static WITH_DNS: [BufferSpec; HTTP_COUNT + DNS_COUNT] = with_dns();

const fn with_dns() -> [BufferSpec; HTTP_COUNT + DNS_COUNT] {
    let mut all = [buffer(URI, "http.uri", true, false, FIELDS, Single); HTTP_COUNT + DNS_COUNT];
    let (mut places, mut own, mut of_dns) = (all.as_mut_slice(), SPECS, dns::buffers::DNS);
    while let Some((place, behind)) = places.split_first_mut() {
        if let [first, rest @ ..] = own {
            *place = *first;
            own = rest;
        } else if let [first, rest @ ..] = of_dns {
            *place =
                BufferSpec { id: first.id + DNS, ready: MESSAGE, state: MESSAGE, early: MESSAGE, ..*first };
            of_dns = rest;
        }
        places = behind;
    }
    all
}

/// A value of a buffer.
pub(super) fn get<'a>(
    tx: &'a Http2Tx,
    query: BufferQuery,
    scratch: &'a mut Vec<u8>,
) -> Option<BufferView<'a>> {
    let side = &tx.sides[query.direction];
    match query.id {
        DNS.. => {
            let message = tx.dns.as_deref()?.of(query.direction)?;
            message.buffer(BufferQuery { id: query.id.saturating_sub(DNS), ..query }, scratch)
        }
        REQUEST_BODY | RESPONSE_BODY => file_data(tx, side, 0),
        FILE_DATA => file_data(tx, side, query.index),
        FILE_NAME => file(side, query.index).map(|file| BufferView::whole(&file.name)),
        FILE_MAGIC => {
            let file = file(side, query.index)?;
            let is_open = file.state == FileState::Open;
            // A file that has ended without a known type does not hide later ones.
            file.magic().or((!is_open).then_some("")).map(|kind| BufferView::whole(kind.as_bytes()))
        }
        REQUEST_HEADER | RESPONSE_HEADER | HEADER_NAME => {
            if !tx.shows_frames(query.direction) {
                return None;
            }
            let field = fields(side).nth(usize::try_from(query.index).ok()?)?;
            if query.id == HEADER_NAME {
                return Some(BufferView::whole(&field.name));
            }
            write_field(scratch, field);
            Some(BufferView::whole(scratch))
        }
        // The text after the status code, which HTTP/2 does not have.
        STAT_MSG => Some(BufferView::whole(b"")),
        PROTOCOL => Some(BufferView::whole(b"HTTP/2")),
        URI | URI_RAW => first(side, b":path"),
        METHOD => first(side, b":method"),
        STAT_CODE => first(side, b":status"),
        _ => composed(side, query, scratch),
    }
}

fn first<'a>(side: &'a StreamSide, name: &[u8]) -> Option<BufferView<'a>> {
    fields(side).find(|field| *field.name == *name).map(|field| BufferView::whole(&field.value))
}

fn fields(side: &StreamSide) -> impl Iterator<Item = &HeaderField> {
    side.all().filter(|field| field.status == FieldStatus::Field)
}

/// The host that a request names: its authority, or the field that older clients send.
fn authority(side: &StreamSide) -> Option<&[u8]> {
    let named = |name: &[u8]| fields(side).find(|field| *field.name == *name).map(|field| &*field.value);
    named(b":authority").or_else(|| named(b"host"))
}

/// A host without user and port.
fn bare_host(authority: &[u8]) -> &[u8] {
    let at = authority.iter().position(|byte| *byte == b'@').map_or(0, |at| at.saturating_add(1));
    let host = authority.get(at..).unwrap_or_default();
    let from =
        if host.first() == Some(&b'[') { host.iter().position(|byte| *byte == b']').unwrap_or(0) } else { 0 };
    let port = host.iter().skip(from).position(|byte| *byte == b':').map(|place| place.saturating_add(from));
    host.get(..port.unwrap_or(host.len())).unwrap_or(host)
}

/// Values that are written anew.
fn composed<'a>(side: &'a StreamSide, query: BufferQuery, out: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
    let cookie: &[u8] = if query.direction == Direction::ToServer { b"cookie" } else { b"set-cookie" };
    let value = |name: &[u8]| fields(side).find(|field| *field.name == *name).map(|field| &*field.value);
    match query.id {
        HOST => out.extend(bare_host(authority(side)?).to_ascii_lowercase()),
        HOST_RAW => return authority(side).map(BufferView::whole),
        // As in Suricata, frames of the connection have lines without these values.
        REQUEST_LINE => {
            let [method, path] = [&b":method"[..], b":path"].map(|name| value(name).unwrap_or_default());
            for part in [method, b" ", path, b" HTTP/2\r\n"] {
                out.extend_from_slice(part);
            }
        }
        RESPONSE_LINE => {
            for part in [b"HTTP/2 ", value(b":status").unwrap_or_default(), b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
        HEADER | HEADER_RAW => {
            for field in fields(side).filter(|field| query.id == HEADER_RAW || *field.name != *cookie) {
                write_field(out, field);
                out.extend_from_slice(b"\r\n");
            }
        }
        HEADER_NAMES => {
            for field in fields(side) {
                if out.is_empty() {
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(&field.name);
                out.extend_from_slice(b"\r\n");
            }
            if !out.is_empty() {
                out.extend_from_slice(b"\r\n");
            }
        }
        COOKIE => return joined(side, cookie, out),
        id => return joined(side, FIELD_NAMES.get(usize::from(id.checked_sub(SINGLE)?))?, out),
    }
    (!out.is_empty()).then_some(BufferView::whole(out))
}

/// The values of all fields of a name.
fn joined<'a>(side: &'a StreamSide, name: &[u8], out: &'a mut Vec<u8>) -> Option<BufferView<'a>> {
    let mut values = fields(side).filter(|field| *field.name == *name).map(|field| &field.value);
    let one = values.next()?;
    let Some(second) = values.next() else { return Some(BufferView::whole(one)) };
    out.extend_from_slice(one);
    for value in core::iter::once(second).chain(values) {
        out.extend_from_slice(b", ");
        out.extend_from_slice(value);
    }
    Some(BufferView::whole(out))
}

fn write_field(out: &mut Vec<u8>, field: &HeaderField) {
    out.extend_from_slice(&field.name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(&field.value);
}

fn file(side: &StreamSide, index: u32) -> Option<&crate::file::FileTrack> {
    side.body.files.list.get(usize::try_from(index).ok()?)
}

/// The content of a file. While it grows it is visible passively from a minimum size on, as in Suricata.
fn file_data<'a>(tx: &Http2Tx, side: &'a StreamSide, index: u32) -> Option<BufferView<'a>> {
    let file = file(side, index)?;
    let (data, offset) = file.content();
    let complete = file.state != FileState::Open;
    if !complete && !tx.strict && file.size < INSPECT_FROM {
        return None;
    }
    (!data.is_empty() || complete).then_some(BufferView { data, offset, complete })
}

#[cfg(test)]
mod tests {
    use super::bare_host;

    #[test]
    fn hosts_lose_user_and_port() {
        for (authority, host) in [
            ("h.example:80", "h.example"),
            ("u@h.example", "h.example"),
            ("[2001:db8::1]:443", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("h.example", "h.example"),
        ] {
            assert_eq!(bare_host(authority.as_bytes()), host.as_bytes());
        }
    }
}

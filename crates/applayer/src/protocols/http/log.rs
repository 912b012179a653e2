// SPDX-License-Identifier: Apache-2.0
//! EVE's `http` record.

use super::bytes::before;
use super::fields::content_range;
use super::headers::HttpFields;
use super::tx::HttpTx;
use crate::transaction::{Bodies, LogOptions};
use bartizan_base::Direction;
use bartizan_events::JsonWriter;

/// Limit of a header name and value in the record, in bytes.
const MAX_NAME: usize = 255;
const MAX_VALUE: usize = 2047;

/// Names of custom fields in settings, where they differ from the header's name with underscores.
const CUSTOM: &[(&str, &str)] = &[("etag", "etags")];

/// Writes the record's fields.
pub(super) fn write(tx: &HttpTx, json: &mut JsonWriter, options: &LogOptions, in_alert: bool) {
    basic(tx, json);
    if options.extended || in_alert {
        extended(tx, json);
    }
    if in_alert {
        bodies(tx, json, options.bodies);
        return;
    }
    for direction in Direction::BOTH {
        if options.dump_all_headers[direction] || !options.custom.is_empty() {
            headers(tx, json, options, direction);
        }
    }
}

fn text(json: &mut JsonWriter, key: &str, value: Option<&[u8]>) {
    // EVE leaves out what is empty.
    if let Some(value) = value.filter(|v| !v.is_empty()) {
        json.text(key, value);
    }
}

fn basic(tx: &HttpTx, json: &mut JsonWriter) {
    let request = &tx.request;
    let fields = &request.message.fields;
    let answered = &tx.response.message.fields;
    text(json, "hostname", request.hostname.as_deref());
    if let Some(port) = request.port {
        json.num("http_port", port);
    }
    text(json, "url", request.uri.as_deref());
    text(json, "http_user_agent", fields.value("user-agent"));
    text(json, "xff", fields.value("x-forwarded-for"));
    if let Some(value) = answered.value("content-type") {
        let kind = value.split(|b| *b == b';').next().unwrap_or(value);
        json.text("http_content_type", kind);
    }
    if let Some(value) = answered.value("content-range") {
        json.object("content_range");
        text(json, "raw", Some(value));
        if let Some(range) = content_range(value) {
            for (key, number) in [("start", range.start), ("end", range.end), ("size", range.size)] {
                if let Some(number) = number {
                    json.num(key, number);
                }
            }
        }
        json.end_object();
    }
}

fn extended(tx: &HttpTx, json: &mut JsonWriter) {
    let (request, response) = (&tx.request, &tx.response);
    text(json, "http_refer", request.message.fields.value("referer"));
    text(json, "http_method", request.method.as_deref());
    text(json, "protocol", request.message.protocol.as_deref());
    match (response.code, &response.status) {
        (Some(code), _) => json.num("status", code),
        (None, Some(status)) => text(json, "status_string", Some(status)),
        (None, None) => {}
    }
    text(json, "redirect", response.message.fields.value("location"));
    json.num("length", response.message.body.message_length);
}

/// Limit of a body in an alert, in bytes: the latest bytes that are held.
pub(super) const MAX_BODY: usize = 128 << 10;

/// Writes the bodies as far as they have come and are held, without content encodings.
fn bodies(tx: &HttpTx, json: &mut JsonWriter, wanted: Bodies) {
    let both = [
        (Direction::ToServer, "http_request_body", "http_request_body_printable"),
        (Direction::ToClient, "http_response_body", "http_response_body_printable"),
    ];
    let held = |direction| {
        let (bytes, _) = tx.message(direction).body.view();
        bytes.get(bytes.len().saturating_sub(MAX_BODY)..).filter(|bytes| !bytes.is_empty())
    };
    for (direction, _, key) in both.into_iter().filter(|_| wanted.printable) {
        if let Some(bytes) = held(direction) {
            json.printable(key, bytes);
        }
    }
    for (direction, key, _) in both.into_iter().filter(|_| wanted.base64) {
        if let Some(bytes) = held(direction) {
            json.base64(key, bytes);
        }
    }
}

/// Whether settings name this header.
fn is_custom(options: &LogOptions, name: &[u8]) -> bool {
    options.custom.iter().any(|wanted| {
        let wanted = wanted.replace('_', "-").to_ascii_lowercase();
        let header =
            CUSTOM.iter().find(|(key, _)| *key == wanted).map_or(wanted.as_str(), |(_, header)| header);
        // The referer is written by the extended form.
        header.as_bytes().eq_ignore_ascii_case(name) && !(options.extended && header == "referer")
    })
}

fn headers(tx: &HttpTx, json: &mut JsonWriter, options: &LogOptions, direction: Direction) {
    let fields: &HttpFields = &tx.message(direction).fields;
    let all = options.dump_all_headers[direction];
    let mark = json.mark();
    json.array(match direction {
        Direction::ToServer => "request_headers",
        Direction::ToClient => "response_headers",
    });
    let mut empty = true;
    for field in &fields.list {
        if !all && !options.custom.is_empty() && !is_custom(options, &field.name) {
            continue;
        }
        empty = false;
        json.begin_object();
        for (key, value) in
            [("name", c_string(&field.name, MAX_NAME)), ("value", c_string(&field.value, MAX_VALUE))]
        {
            // Values that are no UTF-8 are left out here.
            if let Ok(value) = core::str::from_utf8(value) {
                json.str(key, value);
            }
        }
        json.end_object();
    }
    if empty {
        json.rewind(mark);
    } else {
        json.end_array();
    }
}

/// The part of a value that fits into a C string of limited length.
fn c_string(value: &[u8], limit: usize) -> &[u8] {
    let value = before(value, limit);
    value.split(|b| *b == 0).next().unwrap_or(value)
}

// SPDX-License-Identifier: Apache-2.0
//! EVE's `http` record of a stream, or of a frame of the connection.

use super::frame::{ERROR_CODES, FramePayload, GOAWAY, HttpFrame, SETTING_NAMES};
use super::hpack::FieldStatus;
use super::tx::{Http2Tx, StreamSide};
use bartizan_base::Direction;
use bartizan_events::JsonWriter;

/// Whether a record has anything to say: fields, settings, priorities or errors.
pub(super) fn has_content(tx: &Http2Tx) -> bool {
    let frames = Direction::BOTH.into_iter().flat_map(|direction| &tx.sides[direction].frames);
    frames.into_iter().any(|frame| match &frame.payload {
        FramePayload::Fields { weight, fields } => weight.is_some() || !fields.is_empty(),
        FramePayload::Settings(_) | FramePayload::Error(_) | FramePayload::Priority(_) => true,
        FramePayload::Window(_) | FramePayload::Other => false,
    })
}

/// Writes the record's fields.
pub(super) fn write(tx: &Http2Tx, json: &mut JsonWriter) {
    json.str("version", "2");
    headers(json, "request_headers", &tx.sides.to_server);
    headers(json, "response_headers", &tx.sides.to_client);
    common(json, tx);
    json.object("http2");
    json.num("stream_id", tx.stream);
    for (key, direction) in [("request", Direction::ToServer), ("response", Direction::ToClient)] {
        let mark = json.mark();
        json.object(key);
        if frames(json, &tx.sides[direction].frames) {
            json.end_object();
        } else {
            json.rewind(mark);
        }
    }
    json.end_object();
}

fn headers(json: &mut JsonWriter, key: &str, side: &StreamSide) {
    let mut fields = side.all().peekable();
    if fields.peek().is_none() {
        return;
    }
    json.array(key);
    for field in fields {
        json.begin_object();
        match field.status {
            FieldStatus::Field => {
                json.text("name", &field.name);
                json.text("value", &field.value);
            }
            FieldStatus::SizeUpdate(size) => json.num("table_size_update", size),
            FieldStatus::NotIndexed => json.str("error", "HTTP2HeaderDecodeNotIndexed"),
            FieldStatus::IntegerOverflow => json.str("error", "HTTP2HeaderDecodeIntegerOverflow"),
        }
        json.end_object();
    }
    json.end_array();
}

/// Fields that records of HTTP/1 have as well. The last field of a name counts, that of the response after
/// that of the request.
fn common(json: &mut JsonWriter, tx: &Http2Tx) {
    let all = || Direction::BOTH.into_iter().flat_map(|direction| tx.sides[direction].all());
    let last = |names: [&[u8]; 2]| {
        let last = |name: &[u8]| all().filter(|field| field.is_named(name)).last();
        let [first, second] = names;
        last(first).or_else(|| last(second)).map(|field| &*field.value)
    };
    for (key, names) in [
        ("hostname", [&b":authority"[..], b"host"]),
        ("url", [b":path"; 2]),
        ("http_user_agent", [b"user-agent"; 2]),
        ("http_method", [b":method"; 2]),
    ] {
        if let Some(value) = last(names) {
            json.text(key, value);
        }
    }
    for (key, name) in [("status", &b":status"[..]), ("length", b"content-length")] {
        let text = last([name; 2]).and_then(|value| core::str::from_utf8(value).ok());
        if let Some(number) = text.and_then(|text| text.parse::<u64>().ok()) {
            json.num(key, number);
        }
    }
}

/// The name of an error in records: in upper case for a GOAWAY frame, by words for others, as in Suricata.
fn error_text(kind: u8, name: &str) -> String {
    if kind == GOAWAY {
        return name.replace('_', "");
    }
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        format!("{first}{}", rest.to_ascii_lowercase())
    });
    words.collect()
}

/// Writes settings, errors and priorities of frames. Returns whether there are any.
fn frames(json: &mut JsonWriter, list: &[HttpFrame]) -> bool {
    let settings = |frame| match frame {
        &HttpFrame { payload: FramePayload::Settings(ref list), .. } => Some(list),
        _ => None,
    };
    let mut any = list.iter().any(|frame| settings(frame).is_some());
    if any {
        json.array("settings");
        for setting in list.iter().filter_map(settings).flatten() {
            json.begin_object();
            let place = usize::from(setting.id).checked_sub(1);
            match place.and_then(|place| SETTING_NAMES.get(place)).filter(|name| !name.is_empty()) {
                Some(name) => json.str("settings_id", &name.replace('_', "")),
                None => json.str("settings_id", &format!("SETTINGSUNKNOWN({})", setting.id)),
            }
            json.num("settings_value", setting.value);
            json.end_object();
        }
        json.end_array();
    }
    let mut errors = list.iter().filter_map(|frame| match frame.payload {
        FramePayload::Error(code) => Some((frame.kind, code)),
        _ => None,
    });
    let mut weights = list.iter().filter_map(|frame| match frame.payload {
        FramePayload::Priority(weight) | FramePayload::Fields { weight: Some(weight), .. } => Some(weight),
        _ => None,
    });
    if let Some((kind, code)) = errors.next() {
        let name = usize::try_from(code).ok().and_then(|code| ERROR_CODES.get(code));
        json.str("error_code", &name.map_or_else(|| code.to_string(), |name| error_text(kind, name)));
        any = true;
    }
    let weight = weights.next();
    if let Some(weight) = weight {
        json.num("priority", weight);
        any = true;
    }
    if weight.is_some() && weights.next().is_some() {
        json.str("has_multiple", "priority");
    } else if errors.next().is_some() {
        json.str("has_multiple", "error_code");
    }
    any
}

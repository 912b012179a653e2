// SPDX-License-Identifier: Apache-2.0
//! The messages that prevention refuses: receivers read them differently, or read no such messages (RFC 9113
//! sections 4, 6 and 8).

use super::frame::{
    CONTINUATION, DATA, FrameHead, GOAWAY, HEADERS, PING, PRIORITY, PUSH_PROMISE, RST_STREAM, SETTINGS,
};
use super::hpack::{FieldStatus, HeaderField};
use super::tx::StreamSide;
use bartizan_base::Direction;

/// Whether a frame stands on a stream of its kind, and comes from a side that may send it.
pub(super) const fn frame(direction: Direction, head: FrameHead) -> bool {
    match head.kind {
        DATA | HEADERS | PRIORITY | RST_STREAM | CONTINUATION => head.stream > 0,
        PUSH_PROMISE => head.stream > 0 && matches!(direction, Direction::ToClient),
        SETTINGS => head.stream == 0 && head.length.is_multiple_of(6),
        PING => head.stream == 0 && head.length == 8,
        GOAWAY => head.stream == 0,
        _ => true,
    }
}

/// Whether all receivers read the fields of a block alike. `is_trailer`: fields came before.
pub(super) fn fields(direction: Direction, list: &[HeaderField], is_trailer: bool) -> bool {
    let mut pseudo: Vec<&[u8]> = Vec::new();
    let mut has_regular = false;
    for field in list {
        match field.status {
            FieldStatus::Field => {}
            // The table changes before the first field (RFC 7541 section 4.2).
            FieldStatus::SizeUpdate(_) if pseudo.is_empty() && !has_regular => continue,
            _ => return false,
        }
        if field.value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
            return false;
        }
        if let Some(name) = field.name.strip_prefix(b":") {
            let known: &[&[u8]] = match direction {
                Direction::ToServer => &[b"method", b"scheme", b"authority", b"path", b"protocol"],
                Direction::ToClient => &[b"status"],
            };
            if has_regular || is_trailer || !known.contains(&name) || pseudo.contains(&name) {
                return false;
            }
            pseudo.push(name);
            continue;
        }
        has_regular = true;
        let is_plain = |byte: &u8| crate::content::bytes::is_token(*byte) && !byte.is_ascii_uppercase();
        if field.name.is_empty() || !field.name.iter().all(is_plain) || *field.name == *b"transfer-encoding" {
            return false;
        }
    }
    true
}

/// Whether the length that the fields declare is that of the data. `is_request`: answers without data may
/// declare the length of another message.
pub(super) fn length(side: &StreamSide, is_request: bool) -> bool {
    let wire = side.body.wire;
    side.all().filter(|field| field.is_named(b"content-length")).all(|field| {
        let digits = !field.value.is_empty() && field.value.iter().all(u8::is_ascii_digit);
        let text = core::str::from_utf8(&field.value).ok().filter(|_| digits);
        let declared = text.and_then(|text| text.parse::<u64>().ok());
        declared == Some(wire) || declared.is_some() && wire == 0 && !is_request
    })
}

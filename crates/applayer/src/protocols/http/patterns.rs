// SPDX-License-Identifier: Apache-2.0
//! First bytes that identify HTTP/1.

use crate::protocol::{DetectionPattern, Transport};
use bartizan_base::Direction;

const fn request_pattern(bytes: &'static [u8]) -> DetectionPattern {
    let depth = bytes.len() as u16;
    DetectionPattern {
        transport: Transport::Tcp,
        direction: Direction::ToServer,
        bytes,
        nocase: true,
        offset: 0,
        depth,
    }
}

const fn response_pattern(bytes: &'static [u8]) -> DetectionPattern {
    let depth = bytes.len() as u16;
    DetectionPattern {
        transport: Transport::Tcp,
        direction: Direction::ToClient,
        bytes,
        nocase: true,
        offset: 0,
        depth,
    }
}

macro_rules! patterns {
    ($($method:literal)+) => {
        &[
            $(request_pattern(concat!($method, " ").as_bytes()), request_pattern(concat!($method, "\t").as_bytes()),)+
            response_pattern(b"HTTP/0.9"),
            response_pattern(b"HTTP/1.0"),
            response_pattern(b"HTTP/1.1"),
        ]
    };
}

/// First bytes of requests and responses.
pub(super) static PATTERNS: &[DetectionPattern] = patterns!(
    "GET" "PUT" "POST" "HEAD" "TRACE" "OPTIONS" "CONNECT" "DELETE" "PATCH" "PROPFIND" "PROPPATCH" "MKCOL" "COPY" "MOVE"
    "LOCK" "UNLOCK" "CHECKOUT" "UNCHECKOUT" "CHECKIN" "UPDATE" "LABEL" "REPORT" "MKWORKSPACE" "MKACTIVITY" "MERGE"
    "INVALID" "VERSION-CONTROL" "BASELINE-CONTROL"
);

// SPDX-License-Identifier: Apache-2.0
//! Events of HTTP/2, with Suricata's names, in its order.

use crate::event::EventCode;

/// Names of the events.
pub(super) const NAMES: &[&str] = &[
    "invalid_frame_header",
    "invalid_client_magic",
    "invalid_frame_data",
    "invalid_header",
    "invalid_frame_length",
    "extra_header_data",
    "long_frame_data",
    "stream_id_reuse",
    "invalid_http1_settings",
    "failed_decompression",
    "invalid_range",
    "header_integer_overflow",
    "too_many_streams",
    "authority_host_mismatch",
    "userinfo_in_uri",
    "reassembly_limit_reached",
    "dns_request_too_long",
    "dns_response_too_long",
    "data_stream_zero",
    "too_many_frames",
    "compression_bomb",
    "header_table_overflow",
    "continuation_without_headers",
    "too_long_repeated_headers",
];

pub(super) const INVALID_CLIENT_MAGIC: EventCode = 1;
pub(super) const INVALID_FRAME_DATA: EventCode = 2;
pub(super) const INVALID_HEADER: EventCode = 3;
pub(super) const INVALID_FRAME_LENGTH: EventCode = 4;
pub(super) const LONG_FRAME_DATA: EventCode = 6;
pub(super) const STREAM_ID_REUSE: EventCode = 7;
pub(super) const INVALID_HTTP1_SETTINGS: EventCode = 8;
pub(super) const FAILED_DECOMPRESSION: EventCode = 9;
pub(super) const INVALID_RANGE: EventCode = 10;
pub(super) const HEADER_INTEGER_OVERFLOW: EventCode = 11;
pub(super) const TOO_MANY_STREAMS: EventCode = 12;
pub(super) const AUTHORITY_HOST_MISMATCH: EventCode = 13;
pub(super) const USERINFO_IN_URI: EventCode = 14;
pub(super) const REASSEMBLY_LIMIT_REACHED: EventCode = 15;
pub(super) const DNS_REQUEST_TOO_LONG: EventCode = 16;
pub(super) const DNS_RESPONSE_TOO_LONG: EventCode = 17;
pub(super) const DATA_STREAM_ZERO: EventCode = 18;
pub(super) const TOO_MANY_FRAMES: EventCode = 19;
pub(super) const COMPRESSION_BOMB: EventCode = 20;
pub(super) const HEADER_TABLE_OVERFLOW: EventCode = 21;
pub(super) const CONTINUATION_WITHOUT_HEADERS: EventCode = 22;

// SPDX-License-Identifier: Apache-2.0
//! Bounds of TLS, for docs/limits.md.

use super::{handshake, parser};
use bartizan_base::Reason::AppLayerError;
use bartizan_base::limit::LimitTrace::{Event, Refused};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;

/// Bounds of this protocol.
pub(crate) const LIMITS: &[LimitSpec] = limits! {
    Protocol "TLS: handshake message" = "{}" [bytes(handshake::MESSAGE_MAX)] in ["applayer/protocols/tls/handshake.rs"],
        "a message with more is skipped, with an event, which Suricata does not raise for it", [Event("tls.invalid_handshake_message")];
    Protocol "TLS: record" = "{}" [bytes(parser::RECORD_MAX)] in ["applayer/protocols/tls/parser.rs"],
        "event, parsing of the flow ends", [Event("tls.invalid_record_length"), Refused(AppLayerError)];
    Protocol "TLS: empty records in a row" = "{}, as OpenSSL" [count(parser::EMPTY_MAX)] in ["applayer/protocols/tls/parser.rs"],
        "event, parsing of the flow ends", [Event("tls.invalid_record_length"), Refused(AppLayerError)];
};

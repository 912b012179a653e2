// SPDX-License-Identifier: Apache-2.0
//! Interprets request line and headers: parts, anomalies, body, host.

use super::bytes::{is_space, span, trim};
use super::events;
use super::fields::{self, HttpVersion};
use super::headers::{Odd, RawField};
use super::tx::{Coding, Flags, HttpMethod, HttpTx, MAX_REPETITIONS};
use super::uri::split_uri_protocol;
use bartizan_base::Direction;

impl HttpTx {
    /// Splits and interprets a request line.
    pub(super) fn read_request_line(&mut self, line: &[u8]) {
        self.request.message.line = Some(line.to_vec());
        let text = if self.settings.nul_ends_request_line { span(line, |b| b != 0).0 } else { line };
        let (leading, rest) = span(text, is_space);
        let (method, rest) = span(rest, |b| !is_space(b));
        let (blanks, rest) = span(rest, is_space);
        if !leading.is_empty() {
            self.raise(events::REQUEST_LINE_LEADING_WHITESPACE);
        }
        let method = match leading {
            [] => method.to_vec(),
            _ if self.settings.keep_leading_space => [leading, method].concat(),
            _ => method.to_vec(),
        };
        let kind = HttpMethod::of(&method);
        self.request.method_kind = kind;
        self.request.method = Some(method);
        if blanks.iter().any(|b| *b != b' ') {
            self.raise(events::METHOD_DELIM_NON_COMPLIANT);
        }
        if rest.is_empty() {
            self.set_http09(kind, events::REQUEST_LINE_UNKNOWN_METHOD);
            return;
        }
        let rest = trim(rest);
        let last = self.settings.uri.allow_space;
        let (mut uri, mut protocol) = split_uri_protocol(rest, last, |b| b == b' ');
        if uri.iter().any(|b| is_space(*b) && *b != b' ') {
            self.raise(events::URI_DELIM_NON_COMPLIANT);
            if uri.len() == rest.len() {
                (uri, protocol) = split_uri_protocol(rest, last, is_space);
            }
        }
        self.request.uri = Some(uri.to_vec());
        if protocol.is_empty() {
            self.set_http09(kind, events::REQUEST_LINE_UNKNOWN_METHOD_NO_PROTOCOL);
            return;
        }
        self.request.message.protocol = Some(protocol.to_vec());
        let (version, odd) = fields::version(protocol);
        self.request.message.version = version;
        if odd {
            self.raise(events::PROTOCOL_CONTAINS_EXTRA_DATA);
        }
        if kind == HttpMethod::Unknown && version == HttpVersion::Invalid {
            self.raise(events::REQUEST_LINE_UNKNOWN_METHOD_INVALID_PROTOCOL);
        }
    }

    fn set_http09(&mut self, kind: HttpMethod, event: crate::event::EventCode) {
        self.request.is_http09 = true;
        self.request.message.version = HttpVersion::V09;
        if kind == HttpMethod::Unknown {
            self.raise(event);
        }
    }

    pub(super) fn note_request_field(&mut self, field: &RawField) {
        let odd = field.odd;
        if odd.contains(Odd::SPACE_AFTER_NAME) {
            self.raise_once(events::REQUEST_INVALID_LWS_AFTER_NAME, Flags::FIELD_INVALID);
        }
        if odd.contains(Odd::SPACE_BEFORE_NAME) {
            self.raise_once(events::INVALID_REQUEST_FIELD_FOLDING, Flags::INVALID_FOLDING);
        }
        if odd.contains(Odd::NAME_NOT_TOKEN) {
            self.raise_once(events::REQUEST_HEADER_INVALID, Flags::FIELD_INVALID);
        }
        // An empty name counts as a missing colon, too.
        if odd.intersects(Odd::NO_COLON | Odd::NAME_EMPTY) {
            self.raise_once(events::REQUEST_FIELD_MISSING_COLON, Flags::FIELD_UNPARSEABLE);
        }
    }

    /// Interprets the headers: body, host, authorization.
    pub(super) fn process_request_headers(&mut self) {
        let fields = &self.request.message.fields;
        let length = fields.value("content-length").map(fields::content_length);
        let version = self.request.message.version;
        let mut flags = Flags::empty();
        let coding = match fields.value("transfer-encoding") {
            Some(value) if super::bytes::contains_nocase_nonul(value, b"chunked") => {
                flags.set(Flags::INVALID_TRANSFER_ENCODING, version < HttpVersion::V11);
                Coding::Chunked
            }
            Some(_) => {
                flags |= Flags::INVALID_TRANSFER_ENCODING;
                Coding::Invalid
            }
            None => match length {
                Some(found) if found.length.is_some() => {
                    self.request.message.content_length = found.length;
                    Coding::Identity
                }
                Some(_) => {
                    flags |= Flags::INVALID_CONTENT_LENGTH;
                    Coding::Invalid
                }
                None => Coding::NoBody,
            },
        };
        self.flags |= flags;
        self.request.message.coding = coding;
        if coding == Coding::Identity
            && let Some(found) = length
        {
            self.raise_length_junk(found);
        }
        self.find_host();
        let fields = &self.request.message.fields;
        if fields.value("authorization").is_some_and(fields::is_unknown_authorization) {
            self.flags |= Flags::UNKNOWN_AUTHORIZATION;
        }
    }

    /// Reports bytes around the number of a content length.
    pub(super) fn raise_length_junk(&mut self, found: fields::ContentLength) {
        if found.junk_before {
            self.raise(events::CONTENT_LENGTH_EXTRA_DATA_START);
        }
        if found.junk_after {
            self.raise(events::CONTENT_LENGTH_EXTRA_DATA_END);
        }
    }

    fn find_host(&mut self) {
        let request = &mut self.request;
        if let Some(uri) = &request.parsed_uri {
            request.hostname.clone_from(&uri.hostname);
            request.port = uri.port;
        }
        let Some(value) = request.message.fields.value("host") else {
            self.flags.set(Flags::HOST_MISSING, request.message.version >= HttpVersion::V11);
            return;
        };
        let Some(found) = fields::host_port(value) else {
            self.flags.set(Flags::HOST_AMBIGUOUS, request.hostname.is_some());
            return;
        };
        let port = found.port.map(|(_, number)| number);
        let mut ambiguous = false;
        match &request.hostname {
            None => {
                request.hostname = Some(found.host.to_ascii_lowercase());
                if let Some(number) = port {
                    request.port = number;
                }
            }
            Some(host) => {
                ambiguous = !host.eq_ignore_ascii_case(found.host)
                    || port.is_some_and(|number| request.port.is_some() && request.port != number);
            }
        }
        self.flags.set(Flags::HEADER_HOST_INVALID, !found.valid);
        self.flags.set(Flags::HOST_AMBIGUOUS, ambiguous);
    }

    /// Adds a field, joined with an earlier one of its name. `false`: there are too many, or prevention does
    /// not let it pass: with lengths that differ some receivers use the first one, others the last (RFC 9112
    /// section 6.3).
    pub(super) fn add_field(&mut self, direction: Direction, field: RawField, limit: usize) -> bool {
        let to_server = direction == Direction::ToServer;
        let (duplicate, repetition, too_many) = if to_server {
            (
                events::DUPLICATE_CONTENT_LENGTH_FIELD_IN_REQUEST,
                events::REQUEST_HEADER_REPETITION,
                events::REQUEST_TOO_MANY_HEADERS,
            )
        } else {
            (
                events::DUPLICATE_CONTENT_LENGTH_FIELD_IN_RESPONSE,
                events::RESPONSE_HEADER_REPETITION,
                events::RESPONSE_TOO_MANY_HEADERS,
            )
        };
        let strict = self.settings.strict;
        let message = self.message_mut(direction);
        let repetitions = message.repetitions;
        let count = message.fields.list.len();
        let Some(same) = message.fields.same_name(&field.name) else {
            if count > limit {
                self.raise_once(too_many, Flags::TOO_MANY_HEADERS);
                return false;
            }
            let field = super::headers::HttpField::new(field.name, field.value);
            message.fields.push(field);
            return true;
        };
        let first_repetition = !same.repeated;
        if !strict && !first_repetition && repetitions >= MAX_REPETITIONS {
            return true;
        }
        same.repeated = true;
        let mut ambiguous = false;
        if field.name.eq_ignore_ascii_case(b"content-length") {
            let (old, new) =
                (fields::content_length(&same.value).length, fields::content_length(&field.value).length);
            ambiguous = old.is_none() || old != new;
        } else {
            message.fields.join(&field.name, &field.value);
        }
        if !first_repetition {
            message.repetitions = repetitions.saturating_add(1);
        }
        if ambiguous {
            self.raise(duplicate);
        }
        if first_repetition {
            self.raise(repetition);
        }
        !(strict && ambiguous)
    }
}

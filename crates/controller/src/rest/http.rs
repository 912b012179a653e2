// SPDX-License-Identifier: Apache-2.0
//! Requests and replies without a transport: the part of HTTP that handlers see.

use crate::problem::{Fault, Refusal};
use crate::store::StoreError;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::net::IpAddr;

/// A request method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Reads.
    Get,
    /// Makes, or starts something.
    Post,
    /// Makes or replaces.
    Put,
    /// Removes.
    Delete,
}

impl Method {
    /// The method's name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
        }
    }

    /// Parses a method name. `HEAD` is `GET` whose answer is sent without its body.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let name = if name == "HEAD" { "GET" } else { name };
        [Method::Get, Method::Post, Method::Put, Method::Delete].into_iter().find(|m| m.name() == name)
    }
}

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The method's name.
    pub method: String,
    /// The path, still percent-encoded.
    pub path: String,
    /// The query after `?`, still percent-encoded.
    pub query: String,
    /// The header fields of [`FIELDS`] that the request has, by lower-case name.
    pub fields: Vec<(&'static str, String)>,
    /// Address of the client.
    pub source: IpAddr,
}

/// The header fields that handlers read.
pub const FIELDS: &[&str] =
    &["authorization", "content-encoding", "content-type", "if-match", "if-none-match"];

impl Head {
    /// The value of a header field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Header fields.
    pub fields: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// A JSON reply.
    #[must_use]
    pub fn json(status: u16, body: &impl Serialize) -> Self {
        // Reply types have text keys only, so serialization cannot fail.
        let body = serde_json::to_vec(body).unwrap_or_default();
        Reply { status, fields: vec![("content-type", "application/json".to_owned())], body }
    }

    /// A plain-text reply.
    #[must_use]
    pub fn text(body: String) -> Self {
        Reply::text_of("text/plain; charset=utf-8", body)
    }

    /// Metrics in the text format of Prometheus.
    #[must_use]
    pub fn metrics(body: String) -> Self {
        Reply::text_of("text/plain; version=0.0.4; charset=utf-8", body)
    }

    fn text_of(kind: &str, body: String) -> Self {
        let fields = vec![("content-type", kind.to_owned())];
        Reply { status: 200, fields, body: body.into_bytes() }
    }

    /// Adds a header field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        self.fields.push((name, value));
        self
    }

    /// The value of a header field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// The reply to a request that made a resource, with its location.
    #[must_use]
    pub fn created(body: &impl Serialize, location: String) -> Self {
        Reply::json(201, body).with("location", location)
    }

    /// The body as JSON, for tests and clients.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// A refusal on the wire: RFC 9457, with faults of the body by JSON pointer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Problem {
    /// The kind of problem; the documentation of problems has a heading of this name.
    pub r#type: String,
    /// The kind of problem in words.
    pub title: String,
    /// Status code.
    pub status: u16,
    /// The problem, and what to do.
    pub detail: String,
    /// The faults of the body, one by one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub errors: Vec<Fault>,
}

impl From<&Refusal> for Reply {
    fn from(refusal: &Refusal) -> Reply {
        let (status, kind, title) = match refusal {
            Refusal::Malformed(_) => (400, "malformed", "The request cannot be read"),
            Refusal::Wrong(_) => (422, "wrong", "The body is invalid"),
            Refusal::Unknown(_) => (401, "unauthenticated", "No token, or an unknown one"),
            Refusal::Forbidden(_) => (403, "forbidden", "The token's rights do not suffice"),
            Refusal::NotFound(_) => (404, "not-found", "The resource does not exist"),
            Refusal::Method(_) => (405, "method", "The path does not have this method"),
            Refusal::Conflict(_) => (409, "conflict", "The resource conflicts with another"),
            Refusal::Precondition(_) => (412, "changed", "The resource was changed in the meantime"),
            Refusal::TooLarge(_) => (413, "too-large", "The body is too large"),
            Refusal::HeadTooLarge(_) => (431, "head-too-large", "The head of the request is too large"),
            Refusal::Slow(_) => (408, "slow", "The request did not arrive in time"),
            Refusal::MediaType(_) => (415, "media-type", "The format is not supported"),
            Refusal::Quota(_) => (409, "quota", "The tenant's quota is used up"),
            Refusal::Limited(_) => (429, "limited", "Too many attempts"),
            Refusal::Often(_) => (429, "often", "Too many changes"),
            Refusal::Busy(_) => (429, "busy", "Too many requests at one time"),
            Refusal::Internal(_) => (500, "internal", "The system lacks a resource"),
            Refusal::Coding(_) => (501, "transfer-coding", "The transfer coding is not supported"),
            Refusal::Store(StoreError::Full) => (507, "disk-full", "The disk is full"),
            Refusal::Store(_) => (503, "store", "The controller's state cannot be written or read"),
        };
        let errors = match refusal {
            Refusal::Wrong(faults) => faults.clone(),
            _ => Vec::new(),
        };
        let (r#type, title) = (format!("urn:bartizan:problem:{kind}"), title.to_owned());
        let body = Problem { r#type, title, status, detail: refusal.to_string(), errors };
        let mut reply = Reply::json(status, &body);
        reply.fields = vec![("content-type", "application/problem+json".to_owned())];
        match refusal {
            Refusal::Unknown(_) => reply.with("www-authenticate", "Bearer".to_owned()),
            Refusal::Busy(_) => reply.with("retry-after", "1".to_owned()),
            Refusal::Limited(seconds) | Refusal::Often(seconds) => {
                reply.with("retry-after", seconds.to_string())
            }
            Refusal::Method(known) => reply.with("allow", known.clone()),
            _ => reply,
        }
    }
}

/// Decodes percent-encoding; `None` for invalid UTF-8 or an incomplete escape.
#[must_use]
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        bytes.push(digit(rest.next()?)? * 16 + digit(rest.next()?)?);
    }
    String::from_utf8(bytes).ok()
}

// SPDX-License-Identifier: Apache-2.0
//! Refusals: why a request was not carried out, in terms that a client can act on. `rest` maps them to HTTP.

use crate::store::StoreError;
use bartizan_config::policy::ConfigProblem;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// One fault of a request, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Fault {
    /// JSON pointer (RFC 6901) into the body; empty for the whole body.
    pub pointer: String,
    /// The fault, and how to fix it.
    pub message: String,
}

impl Fault {
    /// A fault at a pointer.
    #[must_use]
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Fault { pointer: pointer.into(), message: message.into() }
    }

    /// A fault from a problem that the policy reader found; its path becomes a pointer below `under`.
    #[must_use]
    pub fn of(under: &str, problem: &ConfigProblem) -> Self {
        let path = problem.path.trim_end_matches('/');
        let pointer = if path.is_empty() { under.to_owned() } else { format!("{under}/{path}") };
        Fault { pointer, message: problem.message.clone() }
    }
}

impl Fault {
    /// Cuts the pointer to a place that the body has: the reader gives a single item written without brackets
    /// the index 0, and names missing keys.
    #[must_use]
    pub fn within(mut self, body: &Value) -> Self {
        while body.pointer(&self.pointer).is_none() {
            let parent = self.pointer.rfind('/').unwrap_or(0);
            self.pointer.truncate(parent);
        }
        self
    }
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The body cannot be parsed, or a parameter does not exist.
    #[error("{0}")]
    Malformed(String),
    /// The body has faults.
    #[error("the body has {} faults", .0.len())]
    Wrong(Vec<Fault>),
    /// The token is missing, unknown or expired.
    #[error("{0}")]
    Unknown(String),
    /// The token has no permission for this.
    #[error("{0}")]
    Forbidden(String),
    /// The resource does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The path does not have this method; with the methods that it has.
    #[error("only {0} here")]
    Method(String),
    /// The change contradicts the state of another resource.
    #[error("{0}")]
    Conflict(String),
    /// The document was changed in the meantime.
    #[error("{0}")]
    Precondition(String),
    /// The body is larger than allowed.
    #[error("the body is larger than {0} bytes, which is the limit here")]
    TooLarge(usize),
    /// The head of the request is larger than allowed.
    #[error(
        "the head of the request is larger than {0} bytes, or has more than 100 fields, which is the limit here"
    )]
    HeadTooLarge(usize),
    /// The body comes in a transfer coding that is not undone here.
    #[error("{0}")]
    Coding(String),
    /// The request does not arrive in time.
    #[error("{0}; send it faster")]
    Slow(String),
    /// The body is in an unsupported format.
    #[error("{0}")]
    MediaType(String),
    /// A quota is used up.
    #[error("{0}")]
    Quota(String),
    /// Too many attempts; seconds until the next.
    #[error("too many attempts with unknown tokens from this address; try again in {0} s")]
    Limited(u64),
    /// A tenant's tokens change too much; seconds until the next.
    #[error("the tenant was changed too often in a short time; nothing was changed: try again in {0} s")]
    Often(u64),
    /// Too many requests of this kind are running; with the reason and what to do.
    #[error("{0}")]
    Busy(String),
    /// The system failed, for example to provide random numbers.
    #[error("{0}")]
    Internal(String),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl Refusal {
    /// A refusal for one fault.
    #[must_use]
    pub fn wrong(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Refusal::Wrong(vec![Fault::new(pointer, message)])
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Why something was not done, in terms that a client can act on; what HTTP makes of it stands in `rest`.

use crate::store::StoreError;
use bartizan_config::policy::Problem;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// One thing that is wrong with a request, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Fault {
    /// JSON pointer (RFC 6901) into the body; empty for all of it.
    pub pointer: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Fault {
    /// A fault at a pointer.
    #[must_use]
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Fault { pointer: pointer.into(), message: message.into() }
    }

    /// A problem that a reader of policies found, its path as a pointer below `under`.
    #[must_use]
    pub fn of(under: &str, problem: &Problem) -> Self {
        let path = problem.path.trim_end_matches('/');
        let pointer = if path.is_empty() { under.to_owned() } else { format!("{under}/{path}") };
        Fault { pointer, message: problem.message.clone() }
    }
}

impl Fault {
    /// The same, its pointer cut to what the body has: readers say the only item of a list that was written
    /// without brackets as the list's first, and a key that is missing by its name.
    #[must_use]
    pub fn within(mut self, body: &Value) -> Self {
        while body.pointer(&self.pointer).is_none() {
            let parent = self.pointer.rfind('/').unwrap_or(0);
            self.pointer.truncate(parent);
        }
        self
    }
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What was sent cannot be read: no JSON, no such parameter.
    #[error("{0}")]
    Malformed(String),
    /// What was sent says something wrong.
    #[error("the body has {} faults", .0.len())]
    Wrong(Vec<Fault>),
    /// The token is missing, not known, or its time is over.
    #[error("{0}")]
    Unknown(String),
    /// The token does not reach so far.
    #[error("{0}")]
    Forbidden(String),
    /// It is not there.
    #[error("{0}")]
    NotFound(String),
    /// The path is there, the method is not: those that are.
    #[error("only {0} here")]
    Method(String),
    /// Something else stands against it.
    #[error("{0}")]
    Conflict(String),
    /// It was changed in the meantime.
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
    /// The request does not come in in time.
    #[error("{0}; send it faster")]
    Slow(String),
    /// The body is in another format than those that are read.
    #[error("{0}")]
    MediaType(String),
    /// A quota is used up.
    #[error("{0}")]
    Quota(String),
    /// Too many attempts; seconds until the next.
    #[error("too many attempts with unknown tokens from this address; try again in {0} s")]
    Limited(u64),
    /// A tenant's tokens change too much; seconds until the next.
    #[error(
        "the tenant has changed too much in a short time, and nothing was changed now; try again in {0} s"
    )]
    Often(u64),
    /// Others ask for the same, and there is no room for more; why, and what to do.
    #[error("{0}")]
    Busy(String),
    /// The system did not give what is needed.
    #[error("{0}")]
    Internal(String),
    /// The store did not do it.
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

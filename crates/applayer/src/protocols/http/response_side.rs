// SPDX-License-Identifier: Apache-2.0
//! Where the response side of a parser stands.

use super::feed::Status;
use super::headers::Until;
use crate::transaction::TxId;

/// Where the response side stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Line,
    Headers,
    BodyDetermine,
    BodyKnown,
    BodyToClose,
    ChunkLength,
    ChunkData,
    ChunkEnd,
    Finalize,
}

/// The response side's own state.
pub(super) struct Side {
    pub state: State,
    pub status: Status,
    /// A line that is not complete yet, or whose meaning depends on what comes behind it.
    pub line: Vec<u8>,
    /// The request that was to come next when `line` was found to be no status line.
    pub asked: Option<TxId>,
    /// In prevention: what comes goes on with a line that is no status line.
    pub within_body_line: bool,
    /// Headers that are not complete yet.
    pub header: Option<Vec<u8>>,
    /// What those wait for.
    pub header_until: Until,
    /// Those hold more than a line, see [`super::request_side::Side`].
    pub header_folded: bool,
    pub left: Option<u64>,
    pub chunk_left: u64,
    /// Offset in the stream of what is not read yet.
    pub at: u64,
    /// The next request must be read before the next response, of which no more than a line's limit waits for
    /// it.
    pub yield_at_end: bool,
}

impl Side {
    pub(super) const fn new() -> Self {
        Side {
            state: State::Idle,
            status: Status::Open,
            line: Vec::new(),
            asked: None,
            within_body_line: false,
            header: None,
            header_until: Until::LineEnd,
            header_folded: false,
            left: None,
            chunk_left: 0,
            at: 0,
            yield_at_end: false,
        }
    }
}

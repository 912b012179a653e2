// SPDX-License-Identifier: Apache-2.0
//! State of the parser's response side.

use super::feed::HttpDirectionStatus;
use super::headers::Until;
use crate::transaction::TxId;

/// Place of the response side in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpResponseState {
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

/// State of the response side.
pub(super) struct HttpResponseSide {
    pub state: HttpResponseState,
    pub status: HttpDirectionStatus,
    /// A line that is not complete yet, or whose meaning depends on later bytes.
    pub line: Vec<u8>,
    /// The next expected request at the time when `line` turned out to be no status line.
    pub request: Option<TxId>,
    /// In prevention: later data continues a line that is no status line.
    pub within_body_line: bool,
    /// Headers that are not complete yet.
    pub header: Option<Vec<u8>>,
    /// Input that the headers need.
    pub header_until: Until,
    /// The headers have more than one line, see [`super::request_side::HttpResponseSide`].
    pub header_folded: bool,
    pub left: Option<u64>,
    pub chunk_left: u64,
    /// Stream offset of the first byte that is not parsed yet.
    pub at: u64,
    /// The next request must be parsed before the next response, of which at most a line's limit is held
    /// until then.
    pub yield_at_end: bool,
}

impl HttpResponseSide {
    pub(super) const fn new() -> Self {
        HttpResponseSide {
            state: HttpResponseState::Idle,
            status: HttpDirectionStatus::Open,
            line: Vec::new(),
            request: None,
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

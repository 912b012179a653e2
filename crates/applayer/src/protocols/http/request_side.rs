// SPDX-License-Identifier: Apache-2.0
//! State of the parser's request side.

use super::connect::TunnelStart;
use super::feed::HttpDirectionStatus;
use super::headers::Until;

/// Place of the request side in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpRequestState {
    /// Before the first byte, where a proxy may have put its header.
    Proxy,
    Idle,
    Line,
    Protocol,
    Headers,
    ConnectCheck,
    ConnectWait,
    ConnectProbe,
    BodyDetermine,
    BodyIdentity,
    ChunkLength,
    ChunkData,
    ChunkEnd,
    Finalize,
    /// After a request of HTTP/0.9 everything is ignored.
    Ignore,
}

/// State of the request side.
pub(super) struct HttpRequestSide {
    pub state: HttpRequestState,
    pub status: HttpDirectionStatus,
    /// A line that is not complete yet.
    pub line: Vec<u8>,
    /// Headers that are not complete yet.
    pub header: Option<Vec<u8>>,
    /// Input that the headers need.
    pub header_until: Until,
    /// The headers have more than one line: each further line causes a new scan of all.
    pub header_folded: bool,
    pub content_length: Option<u64>,
    /// Bytes of the body that have not arrived yet.
    pub left: Option<u64>,
    pub chunk_left: u64,
    /// A CONNECT has content: after it, the parser waits for the server's response.
    pub connects: bool,
    /// The bytes after the request, held until it is clear that no tunnel begins with them.
    pub tunnel: Option<TunnelStart>,
    /// Stream offset of the first byte that is not parsed yet.
    pub at: u64,
}

impl HttpRequestSide {
    /// `strict`: also parse a proxy's header, as a server that expects one does.
    pub(super) const fn new(strict: bool) -> Self {
        HttpRequestSide {
            state: if strict { HttpRequestState::Proxy } else { HttpRequestState::Idle },
            status: HttpDirectionStatus::Open,
            line: Vec::new(),
            header: None,
            header_until: Until::LineEnd,
            header_folded: false,
            content_length: None,
            left: None,
            chunk_left: 0,
            connects: false,
            tunnel: None,
            at: 0,
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Where the request side of a parser stands.

use super::connect::TunnelStart;
use super::feed::Status;
use super::headers::Until;

/// Where the request side stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
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

/// The request side's own state.
pub(super) struct Side {
    pub state: State,
    pub status: Status,
    /// A line that is not complete yet.
    pub line: Vec<u8>,
    /// Headers that are not complete yet.
    pub header: Option<Vec<u8>>,
    /// What those wait for.
    pub header_until: Until,
    /// Those hold more than a line: each that comes has all of them scanned again.
    pub header_folded: bool,
    pub content_length: Option<u64>,
    /// Bytes of the body to come.
    pub left: Option<u64>,
    pub chunk_left: u64,
    /// A CONNECT has content: when that is over, the server's answer is waited for.
    pub connects: bool,
    /// The bytes after the request, held until they show that no tunnel begins with them.
    pub tunnel: Option<TunnelStart>,
    /// Offset in the stream of what is not read yet.
    pub at: u64,
}

impl Side {
    /// `strict`: as a server that expects a proxy's header reads it, too.
    pub(super) const fn new(strict: bool) -> Self {
        Side {
            state: if strict { State::Proxy } else { State::Idle },
            status: Status::Open,
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

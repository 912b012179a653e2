// SPDX-License-Identifier: Apache-2.0
//! Requests with the method CONNECT (RFC 9110 section 9.3.6): later data belongs to a tunnel, once the server
//! has agreed.
//!
//! Servers without tunnels treat CONNECT as any other method: they read the content that it declares, and
//! further requests after it. In prevention both readings are inspected until the server has agreed. Content
//! is parsed as a body. If a tunnel could begin with it, for a receiver at its other end whose protocol has a
//! parser, both readings cannot be inspected, and the parser fails.

use super::bytes::{after, before, is_space, span};
use super::feed::{Feed, HttpDirectionStatus, HttpParseStep};
use super::likely::{self, LINE_MAX};
use super::request_side::HttpRequestState;
use super::state::HttpParser;
use super::tx::{Coding, HttpMethod, LINE};
use crate::protocol::{Probe, Transport};
use crate::protocols::tls::likely as hello;
use bartizan_base::Direction;

/// Bytes after the headers of a CONNECT with content, for as long as a tunnel may begin with them.
pub(super) struct TunnelStart {
    pub bytes: Vec<u8>,
    /// Stream offset of the first byte that was not inspected.
    next: u64,
}

impl HttpParser {
    pub(super) fn connect_check(&mut self, feed: &Feed<'_>) -> HttpParseStep {
        let Some(tx) = self.request_tx() else { return HttpParseStep::Fail };
        if tx.request.method_kind != HttpMethod::Connect {
            self.request.state = HttpRequestState::BodyDetermine;
            return HttpParseStep::Again;
        }
        let message = &mut tx.request.message;
        let strict = tx.settings.strict;
        let content = match message.coding {
            Coding::Identity => message.content_length > Some(0),
            Coding::Chunked | Coding::Invalid => true,
            Coding::Unknown | Coding::NoBody => false,
        };
        if strict && content {
            self.request.connects = true;
            self.request.tunnel = Some(TunnelStart { bytes: Vec::new(), next: feed.position() });
            self.request.state = HttpRequestState::BodyDetermine;
            return if self.watch_tunnel(feed) { HttpParseStep::Again } else { HttpParseStep::Fail };
        }
        // The server acts on the request, and answers or not.
        message.headers_end(strict);
        self.request.state = HttpRequestState::ConnectWait;
        HttpParseStep::Again
    }

    /// Whether the declared content of a CONNECT, and data after it, may pass: no known protocol could begin
    /// with these bytes if a tunnel began there.
    pub(super) fn watch_tunnel(&mut self, feed: &Feed<'_>) -> bool {
        let Some(mut start) = self.request.tunnel.take() else { return true };
        let known = usize::try_from(start.next.saturating_sub(feed.position())).unwrap_or(usize::MAX);
        let bytes = before(after(feed.rest(), known), LINE_MAX);
        start.bytes.extend_from_slice(bytes);
        start.next = start.next.saturating_add(bytes.len() as u64);
        if !start.bytes.is_empty() && may_be_hello(&start.bytes) {
            return false;
        }
        match likely::likely(Transport::Tcp, Direction::ToServer, &start.bytes) {
            Probe::Yes(_) => false,
            Probe::No => true,
            Probe::More => {
                self.request.tunnel = Some(start);
                true
            }
        }
    }

    pub(super) fn connect_wait(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        // Empty lines after a request belong to no message: the tunnel's data begins after them.
        while let [b'\r', b'\n', ..] | [b'\n', ..] = feed.rest() {
            feed.take(if feed.rest().first() == Some(&b'\n') { 1 } else { 2 });
        }
        // A response that cannot be parsed may have been the server's consent.
        let unread = self.txs.worklist().disrupted().to_client;
        let Some(tx) = self.request_tx() else { return HttpParseStep::Fail };
        let answered = tx.response.message.progress > LINE;
        if !answered && !unread {
            if self.settings.strict && !feed.rest().is_empty() {
                return self.connect_ahead(feed.rest());
            }
            return HttpParseStep::Wait;
        }
        let accepted = tx.response.code.is_some_and(|code| (200..300).contains(&code)) || !answered;
        self.request.state =
            if accepted { HttpRequestState::ConnectProbe } else { HttpRequestState::Finalize };
        HttpParseStep::Again
    }

    /// Handles bytes after a CONNECT that the server has not answered yet. They leave before the answer, so
    /// they are parsed as a server without tunnels reads them, and must not be data that only the other end
    /// of a tunnel would read (RFC 9110: a tunnel begins with the response).
    fn connect_ahead(&mut self, rest: &[u8]) -> HttpParseStep {
        if may_be_hello(rest) {
            return HttpParseStep::Fail;
        }
        match likely::likely(Transport::Tcp, Direction::ToServer, rest) {
            Probe::Yes(_) => self.request_complete(),
            Probe::More | Probe::No => HttpParseStep::Wait,
        }
    }

    /// Handles the beginning of an agreed tunnel: if HTTP continues in it, the requests are parsed.
    pub(super) fn connect_probe(&mut self, feed: &mut Feed<'_>) -> HttpParseStep {
        let rest = feed.rest();
        if self.settings.strict {
            // A server that did not mean to open a tunnel accepts a request with any method.
            let data = [self.request.line.as_slice(), rest].concat();
            if !data.is_empty() && may_be_hello(&data) {
                return self.request_tunnel();
            }
            return match likely::likely(Transport::Tcp, Direction::ToServer, &data) {
                Probe::Yes(_) => self.request_complete(),
                Probe::More => self.hold_request(feed),
                Probe::No => self.request_tunnel(),
            };
        }
        let Some(end) = memchr::memchr2(b'\n', 0, rest) else { return self.hold_request(feed) };
        let mut line = self.request.line.clone();
        line.extend_from_slice(before(rest, end + 1));
        let (_, text) = span(&line, is_space);
        let (method, _) = span(text, |b| !is_space(b));
        if HttpMethod::of(method) == HttpMethod::Unknown {
            return self.request_tunnel();
        }
        self.request_complete()
    }
    fn request_tunnel(&mut self) -> HttpParseStep {
        if self.settings.strict {
            self.switch = Some(None);
        }
        self.request.status = HttpDirectionStatus::Tunnel;
        self.response.status = HttpDirectionStatus::Tunnel;
        HttpParseStep::More
    }
}

/// Whether these bytes are, or may become, the first bytes that a TLS server reads.
fn may_be_hello(bytes: &[u8]) -> bool {
    hello::likely(Transport::Tcp, Direction::ToServer, bytes) != Probe::No
}

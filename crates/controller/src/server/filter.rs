// SPDX-License-Identifier: Apache-2.0
//! The output filter of a connection: passes replies of this server, holds back replies that hyper makes
//! itself.
//!
//! hyper answers an unreadable head with a status code and no body. Since every refusal here explains itself
//! in one format, hyper's reply is held back, and the server writes its own once hyper has ended. Counting
//! tells the replies apart: the service announces the body length of each of its replies, and bytes that
//! begin where none is announced are hyper's. `100 Continue` passes.
//!
//! Source: RFC 9112, section 6 (message length).

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const END_OF_HEAD: &[u8] = b"\r\n\r\n";
const INTERIM: &[u8] = b"HTTP/1.1 100 ";

/// The state that the service and the connection share.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Whether a request is in progress, until its reply is flushed.
    pub busy: Arc<AtomicBool>,
    /// Whether bytes arrived that no reply answers yet.
    has_begun: AtomicBool,
    /// Whether the announced reply has been written.
    is_answered: AtomicBool,
    /// Body lengths of announced replies, in order.
    due: Mutex<VecDeque<usize>>,
}

impl Exchange {
    /// Notes the begin of a request.
    pub fn begin(&self) {
        self.is_answered.store(false, Ordering::Release);
        self.busy.store(true, Ordering::Release);
    }

    /// Announces a reply, with the length of its body on the wire.
    pub fn announce_reply(&self, body: usize) {
        self.due().push_back(body);
    }

    /// Whether a request has begun to come in.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    fn due(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The position in the output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyPosition {
    /// Between two replies.
    Between,
    /// In the head of a reply, with `seen` bytes of its end mark found; a body of `body` bytes follows.
    Head { seen: usize, body: usize },
    /// In the head of an interim reply.
    Interim { seen: usize },
    /// In a body, with `left` bytes to come.
    Body { left: usize },
    /// In a reply of hyper.
    Foreign,
}

impl ReplyPosition {
    /// Advances over the next piece that one state covers; returns its length.
    fn step(&mut self, bytes: &[u8], due: &mut impl Iterator<Item = usize>) -> usize {
        match self {
            ReplyPosition::Between => {
                *self = match due.next() {
                    Some(body) => ReplyPosition::Head { seen: 0, body },
                    None if bytes.starts_with(INTERIM) => ReplyPosition::Interim { seen: 0 },
                    None => ReplyPosition::Foreign,
                };
                0
            }
            ReplyPosition::Head { seen, body } => {
                let (taken, is_whole) = end_of_head(seen, bytes);
                if is_whole {
                    *self =
                        if *body == 0 { ReplyPosition::Between } else { ReplyPosition::Body { left: *body } };
                }
                taken
            }
            ReplyPosition::Interim { seen } => {
                let (taken, is_whole) = end_of_head(seen, bytes);
                if is_whole {
                    *self = ReplyPosition::Between;
                }
                taken
            }
            ReplyPosition::Body { left } => {
                let taken = bytes.len().min(*left);
                *left -= taken;
                if *left == 0 {
                    *self = ReplyPosition::Between;
                }
                taken
            }
            ReplyPosition::Foreign => bytes.len(),
        }
    }
}

/// Looks for the end of a head. Returns how many bytes belong to it, and whether it is complete.
fn end_of_head(seen: &mut usize, bytes: &[u8]) -> (usize, bool) {
    for (at, byte) in bytes.iter().enumerate() {
        *seen = match END_OF_HEAD.get(*seen) {
            Some(wanted) if wanted == byte => *seen + 1,
            _ => usize::from(*byte == b'\r'),
        };
        if *seen == END_OF_HEAD.len() {
            return (at + 1, true);
        }
    }
    (bytes.len(), false)
}

/// A stream for hyper to serve on; see the module.
pub struct ResponseFilter<'s, S> {
    stream: &'s mut S,
    exchange: Arc<Exchange>,
    place: ReplyPosition,
}

impl<'s, S> ResponseFilter<'s, S> {
    /// A filter over a stream that stays usable after hyper has ended.
    pub const fn new(stream: &'s mut S, exchange: Arc<Exchange>) -> Self {
        ResponseFilter { stream, exchange, place: ReplyPosition::Between }
    }

    /// The number of bytes of a piece that may pass.
    fn passing(&self, bytes: &[u8]) -> usize {
        let due = self.exchange.due();
        let (mut place, mut all, mut at) = (self.place, due.iter().copied(), 0);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let taken = place.step(rest, &mut all);
            if place == ReplyPosition::Foreign {
                break;
            }
            at += taken;
        }
        at
    }

    /// Records that these bytes were written.
    fn passed(&mut self, bytes: &[u8]) {
        let mut due = self.exchange.due();
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let before = self.place;
            at += self.place.step(rest, &mut std::iter::from_fn(|| due.pop_front()));
            let is_whole = self.place == ReplyPosition::Between
                && matches!(before, ReplyPosition::Head { .. } | ReplyPosition::Body { .. });
            if is_whole && due.is_empty() {
                self.exchange.has_begun.store(false, Ordering::Release);
                self.exchange.is_answered.store(true, Ordering::Release);
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ResponseFilter<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let done = Pin::new(&mut *self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.exchange.has_begun.store(true, Ordering::Release);
        }
        done
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ResponseFilter<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(passing) = bytes.get(..self.passing(bytes)).filter(|passing| !passing.is_empty()) else {
            return Poll::Ready(Ok(bytes.len()));
        };
        let done = Pin::new(&mut *self.stream).poll_write(context, passing);
        if let Poll::Ready(Ok(written)) = done {
            self.passed(passing.get(..written).unwrap_or(passing));
        }
        done
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut *self.stream).poll_flush(context);
        if matches!(done, Poll::Ready(Ok(()))) && self.exchange.is_answered.swap(false, Ordering::AcqRel) {
            self.exchange.busy.store(false, Ordering::Release);
        }
        done
    }

    /// The stream stays open: the server closes it in its own way.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Writes a text in pieces of a size; returns the part that passes the filter.
    fn passes(due: &[usize], text: &str, piece: usize) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let (mut ours, mut theirs) = tokio::io::duplex(1 << 16);
            let exchange = Arc::new(Exchange::default());
            due.iter().for_each(|body| exchange.announce_reply(*body));
            let mut filter = ResponseFilter::new(&mut ours, exchange);
            for piece in text.as_bytes().chunks(piece) {
                filter.write_all(piece).await.expect("written");
            }
            filter.shutdown().await.expect("flushed");
            ours.shutdown().await.expect("ended");
            let mut passed = String::new();
            theirs.read_to_string(&mut passed).await.expect("text");
            passed
        })
    }

    #[test]
    fn answers_pass_and_nothing_else_does() {
        let own = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\na\r\n\r\n";
        let empty = "HTTP/1.1 304 Not Modified\r\n\r\n";
        let foreign = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        for piece in [1, 3, 1 << 16] {
            assert_eq!(passes(&[5], own, piece), own);
            let two = format!("{own}{empty}");
            assert_eq!(passes(&[5, 0], &two, piece), two);
            assert_eq!(passes(&[5], &format!("{own}{foreign}"), piece), own);
            assert_eq!(passes(&[], foreign, piece), "");
            // A body that looks like a reply.
            let odd = format!("HTTP/1.1 200 OK\r\n\r\n{foreign}");
            assert_eq!(passes(&[foreign.len()], &odd, piece), odd);
        }
        let interim = "HTTP/1.1 100 Continue\r\n\r\n";
        assert_eq!(passes(&[], &format!("{interim}{foreign}"), 1 << 16), interim);
    }

    #[test]
    fn a_connection_is_busy_until_its_answer_is_flushed() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let (mut ours, _theirs) = tokio::io::duplex(1 << 16);
            let exchange = Arc::new(Exchange::default());
            let mut filter = ResponseFilter::new(&mut ours, Arc::clone(&exchange));
            let is_busy = || exchange.busy.load(Ordering::Acquire);
            exchange.begin();
            filter.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.expect("written");
            filter.flush().await.expect("flushed");
            assert!(is_busy(), "worked on");
            exchange.announce_reply(2);
            filter.write_all(b"HTTP/1.1 200 OK\r\n\r\nx").await.expect("written");
            filter.flush().await.expect("flushed");
            assert!(is_busy(), "half of it");
            filter.write_all(b"y").await.expect("written");
            assert!(is_busy(), "not flushed");
            filter.flush().await.expect("flushed");
            assert!(!is_busy());
        });
    }
}

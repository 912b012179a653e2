// SPDX-License-Identifier: Apache-2.0
//! A stream with a time limit for writes: a peer that accepts nothing for a while is disconnected. Otherwise
//! a client that sends requests and never reads would hold its connection for good.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream with a time limit for writes.
pub struct Patient<S> {
    stream: S,
    patience: Duration,
    /// The end of the time limit; set while a write waits.
    end: Pin<Box<Sleep>>,
    waits: bool,
}

impl<S> Patient<S> {
    /// A stream whose peer must accept data within `patience`.
    pub fn new(stream: S, patience: Duration) -> Self {
        Patient { stream, patience, end: Box::pin(tokio::time::sleep(patience)), waits: false }
    }

    fn patiently<T>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.waits = false;
            return done;
        }
        if !self.waits {
            self.waits = true;
            self.end.as_mut().reset(Instant::now() + self.patience);
        }
        let over = self.end.as_mut().poll(context);
        over.map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.patiently(context, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.patiently(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(context);
        self.patiently(context, done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn who_takes_nothing_is_let_go_and_who_is_slow_is_not() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let (ours, mut theirs) = tokio::io::duplex(8);
            let mut ours = Patient::new(ours, Duration::from_secs(2));
            let slow = tokio::spawn(async move {
                let mut taken = [0; 8];
                for _ in 0..4 {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    theirs.read_exact(&mut taken).await.expect("bytes");
                }
                theirs
            });
            ours.write_all(&[7; 32]).await.expect("slow is not too slow");
            let _held = slow.await.expect("the other side");
            let end = ours.write_all(&[7; 32]).await.expect_err("it takes nothing");
            assert_eq!(end.kind(), io::ErrorKind::TimedOut);
        });
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Reading from a stream, as recv(2) does.

use super::stream::WaitEnd;
use super::{GuestStream, SharedLock};
use crate::clock::now;
use crate::descriptor::Operation;
use crate::layout::{shut, state};
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::time::Duration;

/// Flags of recv(2) that streams know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// `MSG_PEEK`.
    pub peek: bool,
    /// `MSG_WAITALL`.
    pub wait_all: bool,
    /// `MSG_DONTWAIT`.
    pub dont_wait: bool,
    /// `MSG_TRUNC`: bytes are discarded and counted.
    pub discard: bool,
}

impl GuestStream<'_> {
    /// Reads bytes in order; 0: the peer sends no more, or there is no room for any.
    ///
    /// # Errors
    /// As recv(2): `EAGAIN`, `EINTR`, `ENOTCONN`, or the stream's pending error.
    pub fn receive(&self, buffers: &mut [IoSliceMut<'_>], options: ReceiveOptions) -> Result<usize, Errno> {
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let timeout = self.guest().rx_timeout.load(Relaxed);
        let deadline = (timeout != 0).then(|| now() + Duration::from_millis(timeout.into()));
        let mut received = 0;
        loop {
            let seen = self.engine().rx_event.load(SeqCst);
            received += self.receive_now(buffers, received, options)?;
            let enough = received > 0 && (!options.wait_all || options.peek);
            if received >= wanted || enough {
                return Ok(received);
            }
            if let Some(end) = self.read_end() {
                return if received > 0 { Ok(received) } else { end };
            }
            if options.dont_wait || self.is_nonblocking() {
                return if received > 0 { Ok(received) } else { Err(Errno::AGAIN) };
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            let end = match left {
                Some(Duration::ZERO) => WaitEnd::TimedOut,
                left => self.sleep(&self.engine().rx_event, &self.guest().rx_sleepers, seen, left),
            };
            match end {
                WaitEnd::Changed => {}
                _ if received > 0 => return Ok(received),
                WaitEnd::TimedOut => return Err(Errno::AGAIN),
                WaitEnd::Interrupted => return Err(Errno::INTR),
            }
        }
    }

    /// Takes the bytes that are there, after the first `skip` bytes of the buffers.
    fn receive_now(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        mut skip: usize,
        options: ReceiveOptions,
    ) -> Result<usize, Errno> {
        let lock = SharedLock::take(&self.guest().rx_lock);
        let mut unread = self.unread() as usize;
        if unread == 0 {
            self.drain_tokens();
            return Ok(0);
        }
        let ring = self.rx_ring();
        let head = self.guest().rx_head.load(Relaxed);
        let (mut index, mut taken) = (head, 0);
        for buffer in buffers {
            let passed = skip.min(buffer.len());
            skip -= passed;
            let length = (buffer.len() - passed).min(unread);
            if let Some(part) = buffer.get_mut(passed..passed + length).filter(|_| !options.discard) {
                ring.read(index, part).ok_or(Errno::IO)?;
            }
            index = index.wrapping_add(u32::try_from(length).unwrap_or(0));
            (taken, unread) = (taken + length, unread - length);
        }
        if options.peek {
            return Ok(taken);
        }
        self.guest().rx_head.store(index, Release);
        if unread == 0 {
            self.drain_tokens();
        } else {
            self.drop_spare_token();
        }
        drop(lock);
        self.open_window();
        Ok(taken)
    }

    /// Tells the engine of room, if it wanted to know and there is some for it.
    pub(super) fn open_window(&self) {
        std::sync::atomic::fence(SeqCst);
        let wanted = &self.both().rx_wanted;
        if wanted.load(SeqCst) != 0
            && self.unread() <= self.process.layout.buffer() / 2
            && wanted.swap(0, SeqCst) != 0
        {
            self.post(Operation::Window);
        }
    }

    /// The reason why no bytes will come, if there is one.
    fn read_end(&self) -> Option<Result<usize, Errno>> {
        let bits = self.state();
        // Bytes that came between the look at the buffer and the look at the state.
        if self.unread() > 0 {
            return None;
        }
        if bits & state::LISTENING != 0 {
            return Some(Err(Errno::NOTCONN));
        }
        if bits & state::CONNECTING == 0
            && let Some(error) = self.take_error()
        {
            return Some(Err(error));
        }
        if self.guest().shut.load(Relaxed) & shut::READ != 0 {
            return Some(Ok(0));
        }
        if bits & state::BLOCKED != 0 {
            return Some(Err(Errno::CONNRESET));
        }
        if bits & (state::PEER_ENDED | state::DEAD) != 0 {
            return Some(Ok(0));
        }
        if bits & (state::CONNECTED | state::CONNECTING) == 0 {
            return Some(Err(Errno::NOTCONN));
        }
        None
    }
}

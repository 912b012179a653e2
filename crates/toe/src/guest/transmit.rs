// SPDX-License-Identifier: Apache-2.0
//! Writing to a stream, as send(2) does.

use super::stream::WaitEnd;
use super::{GuestStream, SharedLock};
use crate::clock::now;
use crate::descriptor::Operation;
use crate::layout::{shut, state};
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

impl GuestStream<'_> {
    /// Writes bytes; all of them, unless the stream is non-blocking or a signal handler ran.
    ///
    /// # Errors
    /// As send(2): `EAGAIN`, `EINTR`, `EPIPE` (the caller raises the signal), or the pending error.
    pub fn transmit(&self, buffers: &[IoSlice<'_>], dont_wait: bool) -> Result<usize, Errno> {
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let timeout = self.guest().tx_timeout.load(Relaxed);
        let deadline = (timeout != 0).then(|| now() + Duration::from_millis(timeout.into()));
        let mut sent = 0;
        loop {
            let seen = self.engine().tx_event.load(SeqCst);
            match self.write_end() {
                Some(_) if sent > 0 => return Ok(sent),
                Some(error) => return Err(error),
                None => {}
            }
            if !self.has(state::CONNECTING) {
                sent += self.transmit_now(buffers, sent)?;
            }
            if sent >= wanted {
                return Ok(sent);
            }
            if dont_wait || self.is_nonblocking() {
                return if sent > 0 { Ok(sent) } else { Err(Errno::AGAIN) };
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            let end = match left {
                Some(Duration::ZERO) => WaitEnd::TimedOut,
                left => self.sleep(&self.engine().tx_event, &self.guest().tx_sleepers, seen, left),
            };
            match end {
                WaitEnd::Changed => {}
                _ if sent > 0 => return Ok(sent),
                WaitEnd::TimedOut => return Err(Errno::AGAIN),
                WaitEnd::Interrupted => return Err(Errno::INTR),
            }
        }
    }

    /// Puts in the bytes for which there is room, after the first `skip` ones.
    fn transmit_now(&self, buffers: &[IoSlice<'_>], mut skip: usize) -> Result<usize, Errno> {
        let _lock = SharedLock::take(&self.guest().tx_lock);
        let ring = self.tx_ring();
        let tail = self.guest().tx_tail.load(Relaxed);
        let (mut index, mut put, mut space) = (tail, 0, self.space() as usize);
        let mut left = 0;
        for buffer in buffers {
            let passed = skip.min(buffer.len());
            skip -= passed;
            let length = (buffer.len() - passed).min(space);
            if let Some(part) = buffer.get(passed..passed + length) {
                ring.write(index, part).ok_or(Errno::IO)?;
            }
            index = index.wrapping_add(u32::try_from(length).unwrap_or(0));
            (put, space) = (put + length, space - length);
            left += buffer.len() - passed - length;
        }
        if put > 0 {
            self.guest().tx_tail.store(index, SeqCst);
            if self.both().tx_announced.swap(1, SeqCst) == 0 {
                self.post(Operation::Transmit);
            }
        }
        if left > 0 {
            // Also where there is room again by now: who waits for an edge gets one.
            self.make_unwritable();
        } else if space < self.process.layout.buffer() as usize / 2 {
            self.update_writability();
        }
        Ok(put)
    }

    /// The reason why no byte can be written, if there is one.
    fn write_end(&self) -> Option<Errno> {
        let bits = self.state();
        if bits & state::CONNECTING == 0
            && let Some(error) = self.take_error()
        {
            return Some(error);
        }
        if bits & state::BLOCKED != 0 {
            return Some(Errno::CONNRESET);
        }
        let is_open = bits & (state::CONNECTED | state::CONNECTING) != 0 && bits & state::DEAD == 0;
        if !is_open || self.guest().shut.load(Relaxed) & shut::WRITE != 0 {
            return Some(Errno::PIPE);
        }
        None
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Sending and receiving datagrams, as sendto(2) and recvfrom(2) do. Errors of a datagram that was sent come
//! with a later call, as those by ICMP do.

use super::stream::WaitEnd;
use super::{GuestStream, ReceiveOptions, SharedLock};
use crate::clock::now;
use crate::datagram::{DATAGRAM_MOST, RECORD_HEAD, RecordHead};
use crate::descriptor::Operation;
use crate::layout::{shut, state};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

/// A datagram that a program received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// Bytes in the program's buffers.
    pub copied: usize,
    /// Bytes of the datagram.
    pub length: usize,
    /// The datagram's sender.
    pub from: Option<SocketAddr>,
}

fn step(by: usize) -> u32 {
    u32::try_from(by).unwrap_or(0)
}

fn deadline(timeout: &AtomicU32) -> Option<Instant> {
    let milliseconds = timeout.load(Relaxed);
    (milliseconds != 0).then(|| now() + Duration::from_millis(milliseconds.into()))
}

impl GuestStream<'_> {
    /// Whether it is a socket of datagrams.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        self.has(state::DATAGRAMS)
    }

    /// Bytes of the next datagram that can be read now (`FIONREAD`).
    #[must_use]
    pub fn next_datagram(&self) -> u32 {
        let _lock = SharedLock::take(&self.guest().rx_lock);
        self.next_head().ok().flatten().map_or(0, |head| head.length)
    }

    /// Sends a datagram; `None`: to the peer of the connection.
    ///
    /// # Errors
    /// As sendto(2).
    pub fn transmit_datagram(
        &self,
        buffers: &[IoSlice<'_>],
        to: Option<SocketAddr>,
        dont_wait: bool,
    ) -> Result<usize, Errno> {
        let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let record = length.saturating_add(RECORD_HEAD);
        if length > DATAGRAM_MOST || record > self.process.layout.buffer() as usize {
            return Err(Errno::MSGSIZE);
        }
        let until = deadline(&self.guest().tx_timeout);
        loop {
            let seen = self.engine().tx_event.load(SeqCst);
            let bits = self.state();
            if bits & state::DEAD != 0 || self.guest().shut.load(Relaxed) & shut::WRITE != 0 {
                return Err(self.take_error().unwrap_or(Errno::PIPE));
            }
            if let Some(error) = self.take_error() {
                return Err(error);
            }
            if to.is_none() && bits & state::CONNECTED == 0 {
                return Err(Errno::DESTADDRREQ);
            }
            if self.put_datagram(buffers, to, length)? {
                return Ok(length);
            }
            if dont_wait || self.is_nonblocking() {
                return Err(Errno::AGAIN);
            }
            let (event, sleepers) = (&self.engine().tx_event, &self.guest().tx_sleepers);
            self.wait_until(event, sleepers, seen, until)?;
        }
    }

    /// Puts in a record; `false`: there is no room for it.
    fn put_datagram(
        &self,
        buffers: &[IoSlice<'_>],
        to: Option<SocketAddr>,
        length: usize,
    ) -> Result<bool, Errno> {
        let _lock = SharedLock::take(&self.guest().tx_lock);
        let space = self.space() as usize;
        if space < length + RECORD_HEAD {
            self.make_unwritable();
            return Ok(false);
        }
        let ring = self.tx_ring();
        let tail = self.guest().tx_tail.load(Relaxed);
        let head = RecordHead { length: step(length), address: to };
        ring.write(tail, &head.bytes()).ok_or(Errno::IO)?;
        let mut index = tail.wrapping_add(step(RECORD_HEAD));
        for buffer in buffers {
            ring.write(index, buffer).ok_or(Errno::IO)?;
            index = index.wrapping_add(step(buffer.len()));
        }
        self.guest().tx_tail.store(index, SeqCst);
        if self.both().tx_announced.swap(1, SeqCst) == 0 {
            self.post(Operation::Transmit);
        }
        self.update_writability();
        Ok(true)
    }

    /// Receives a datagram.
    ///
    /// # Errors
    /// As recvfrom(2).
    pub fn receive_datagram(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        options: ReceiveOptions,
    ) -> Result<ReceivedDatagram, Errno> {
        let until = deadline(&self.guest().rx_timeout);
        loop {
            let seen = self.engine().rx_event.load(SeqCst);
            if let Some(error) = self.take_error() {
                return Err(error);
            }
            if let Some(received) = self.get_datagram(buffers, options)? {
                return Ok(received);
            }
            let is_over = self.has(state::DEAD) || self.guest().shut.load(Relaxed) & shut::READ != 0;
            if is_over {
                return Ok(ReceivedDatagram { copied: 0, length: 0, from: None });
            }
            if options.dont_wait || self.is_nonblocking() {
                return Err(Errno::AGAIN);
            }
            let (event, sleepers) = (&self.engine().rx_event, &self.guest().rx_sleepers);
            self.wait_until(event, sleepers, seen, until)?;
        }
    }

    /// The head of the next record; `None`: there is none.
    fn next_head(&self) -> Result<Option<RecordHead>, Errno> {
        if (self.unread() as usize) < RECORD_HEAD {
            return Ok(None);
        }
        let mut head = [0; RECORD_HEAD];
        self.rx_ring().read(self.guest().rx_head.load(Relaxed), &mut head).ok_or(Errno::IO)?;
        RecordHead::parse(&head).map(Some).map_err(|_| Errno::IO)
    }

    fn get_datagram(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        options: ReceiveOptions,
    ) -> Result<Option<ReceivedDatagram>, Errno> {
        let lock = SharedLock::take(&self.guest().rx_lock);
        let Some(head) = self.next_head()? else {
            self.drain_tokens();
            return Ok(None);
        };
        let length = head.length as usize;
        let first = self.guest().rx_head.load(Relaxed).wrapping_add(step(RECORD_HEAD));
        let (ring, mut copied) = (self.rx_ring(), 0);
        for buffer in buffers {
            let count = buffer.len().min(length - copied);
            if let Some(part) = buffer.get_mut(..count) {
                ring.read(first.wrapping_add(step(copied)), part).ok_or(Errno::IO)?;
            }
            copied += count;
        }
        let received = ReceivedDatagram { copied, length, from: head.address };
        if options.peek {
            return Ok(Some(received));
        }
        self.guest().rx_head.store(first.wrapping_add(head.length), Release);
        if self.unread() == 0 {
            self.drain_tokens();
        } else {
            self.drop_spare_token();
        }
        drop(lock);
        self.open_window();
        Ok(Some(received))
    }

    /// Sleeps until an event.
    fn wait_until(
        &self,
        event: &AtomicU32,
        sleepers: &AtomicU32,
        seen: u32,
        until: Option<Instant>,
    ) -> Result<(), Errno> {
        let left = until.map(|until| until.saturating_duration_since(now()));
        let end = match left {
            Some(Duration::ZERO) => WaitEnd::TimedOut,
            left => self.sleep(event, sleepers, seen, left),
        };
        match end {
            WaitEnd::Changed => Ok(()),
            WaitEnd::TimedOut => Err(Errno::AGAIN),
            WaitEnd::Interrupted => Err(Errno::INTR),
        }
    }
}

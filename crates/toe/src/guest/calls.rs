// SPDX-License-Identifier: Apache-2.0
//! Calls that the engine completes: connect, bind, listen, accept, shutdown, options.

use super::stream::WaitEnd;
use super::{GuestStream, OpenedStream, SharedLock};
use crate::clock::now;
use crate::descriptor::{OPTION_BYTES_MOST, Operation, OptionName, Request};
use crate::layout::{shut, state};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// Time after which a caller looks whether the engine still lives.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl GuestStream<'_> {
    /// Sends an operation and waits for its completion. Signals do not interrupt it.
    ///
    /// # Errors
    /// The operation's error, or `ENETDOWN` if the engine is gone.
    pub(super) fn call(&self, operation: Operation) -> Result<u32, Errno> {
        let _lock = SharedLock::take(&self.guest().call_lock);
        self.call_locked(operation)
    }

    /// As [`Self::call`], by a caller that has the lock.
    fn call_locked(&self, operation: Operation) -> Result<u32, Errno> {
        let engine = self.engine();
        let sequence = engine.sequence.load(Relaxed).wrapping_add(1).max(1);
        engine.sequence.store(sequence, Relaxed);
        self.process.submit(&Request { handle: self.handle, sequence, operation });
        loop {
            let shown = engine.completion.load(SeqCst);
            if shown == sequence {
                break;
            }
            let end = self.sleep(&engine.completion, &self.guest().call_sleepers, shown, Some(POLL_INTERVAL));
            let gone = end == WaitEnd::TimedOut && self.process.engine_is_gone();
            if gone || !self.is_current() || self.has(state::DEAD) && self.process.engine_is_gone() {
                return Err(Errno::NETDOWN);
            }
        }
        match engine.result.load(SeqCst) {
            0 => Ok(engine.result_length.load(SeqCst)),
            error => Err(Errno::from_raw_os_error(i32::try_from(error).unwrap_or(libc::EIO))),
        }
    }

    /// Connects, as connect(2).
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect(&self, address: SocketAddr) -> Result<(), Errno> {
        let bits = self.state();
        if bits & state::DATAGRAMS != 0 {
            return self.call(Operation::Connect(address)).map(|_| ());
        }
        if bits & state::LISTENING != 0 {
            return Err(Errno::ISCONN);
        }
        if bits & state::CONNECTED != 0 {
            // The first call after a connection was opened in the background says that it stands.
            return match self.guest().connect_reported.swap(1, SeqCst) {
                1 => Err(Errno::ISCONN),
                _ => Ok(()),
            };
        }
        if bits & state::CONNECTING != 0 {
            return if self.is_nonblocking() { Err(Errno::ALREADY) } else { self.connection() };
        }
        if self.guest().connect_reported.load(SeqCst) == 2 {
            // An attempt failed in the background: its result, which `SO_ERROR` may have had, comes first.
            self.guest().connect_reported.store(0, SeqCst);
            return Err(self.take_error().unwrap_or(Errno::CONNABORTED));
        }
        let _ = self.call(Operation::Connect(address))?;
        self.guest().connect_reported.store(2, SeqCst);
        if self.is_nonblocking() {
            let _lock = SharedLock::take(&self.guest().tx_lock);
            self.update_writability();
            return Err(Errno::INPROGRESS);
        }
        self.connection()
    }

    /// Waits for the end of an attempt to connect.
    fn connection(&self) -> Result<(), Errno> {
        let timeout = self.guest().tx_timeout.load(Relaxed);
        let deadline = (timeout != 0).then(|| now() + Duration::from_millis(timeout.into()));
        loop {
            let seen = self.engine().tx_event.load(SeqCst);
            let bits = self.state();
            if bits & state::CONNECTING == 0 {
                if bits & state::CONNECTED != 0 && bits & state::DEAD == 0 {
                    self.guest().connect_reported.store(1, SeqCst);
                    return Ok(());
                }
                self.guest().connect_reported.store(0, SeqCst);
                return Err(self.take_error().unwrap_or(Errno::CONNABORTED));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            let end = match left {
                Some(Duration::ZERO) => WaitEnd::TimedOut,
                left => self.sleep(&self.engine().tx_event, &self.guest().tx_sleepers, seen, left),
            };
            match end {
                WaitEnd::Changed => {}
                WaitEnd::TimedOut => return Err(Errno::INPROGRESS),
                WaitEnd::Interrupted => return Err(Errno::INTR),
            }
        }
    }

    /// Ends the association, as connect(2) with `AF_UNSPEC`.
    ///
    /// # Errors
    /// The engine is gone.
    pub fn disconnect(&self) -> Result<(), Errno> {
        self.guest().connect_reported.store(0, SeqCst);
        self.guest().shut.store(0, SeqCst);
        self.call(Operation::Disconnect).map(|_| ())
    }

    /// Binds, as bind(2).
    ///
    /// # Errors
    /// As bind(2).
    pub fn bind(&self, address: SocketAddr) -> Result<(), Errno> {
        self.call(Operation::Bind(address)).map(|_| ())
    }

    /// Listens, as listen(2).
    ///
    /// # Errors
    /// As listen(2).
    pub fn listen(&self, backlog: u32) -> Result<(), Errno> {
        let result = self.call(Operation::Listen(backlog)).map(|_| ());
        let _lock = SharedLock::take(&self.guest().tx_lock);
        self.update_writability();
        result
    }

    /// Accepts a connection, as accept(2).
    ///
    /// # Errors
    /// As accept(2).
    pub fn accept(&self) -> Result<OpenedStream, Errno> {
        if !self.has(state::LISTENING) {
            return Err(if self.has(state::DATAGRAMS) { Errno::OPNOTSUPP } else { Errno::INVAL });
        }
        let timeout = self.guest().rx_timeout.load(Relaxed);
        let deadline = (timeout != 0).then(|| now() + Duration::from_millis(timeout.into()));
        loop {
            let seen = self.engine().rx_event.load(SeqCst);
            if self.engine().pending.load(SeqCst) != 0 {
                let taken = self.process.take(self.handle);
                self.drain_tokens();
                match taken {
                    Err(Errno::AGAIN) => {}
                    other => return other,
                }
            }
            if self.guest().shut.load(Relaxed) & shut::READ != 0 || !self.has(state::LISTENING) {
                return Err(Errno::INVAL);
            }
            self.drain_tokens();
            if self.is_nonblocking() {
                return Err(Errno::AGAIN);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            let end = match left {
                Some(Duration::ZERO) => WaitEnd::TimedOut,
                left => self.sleep(&self.engine().rx_event, &self.guest().rx_sleepers, seen, left),
            };
            match end {
                WaitEnd::Changed => {}
                WaitEnd::TimedOut => return Err(Errno::AGAIN),
                WaitEnd::Interrupted => return Err(Errno::INTR),
            }
        }
    }

    /// Shuts directions, as shutdown(2).
    ///
    /// # Errors
    /// `ENOTCONN`: there is no connection.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Errno> {
        let bits = self.state();
        let is_open = bits & (state::CONNECTED | state::LISTENING) != 0 && bits & state::DEAD == 0;
        if !is_open {
            return Err(Errno::NOTCONN);
        }
        let closes = match how {
            Shutdown::Read => shut::READ,
            Shutdown::Write => shut::WRITE,
            Shutdown::Both => shut::READ | shut::WRITE,
        };
        let before = self.guest().shut.fetch_or(closes, SeqCst);
        // The engine ends its side of the descriptor, which `poll` shows. The program's side stays open: its
        // end would look like a close.
        if closes & !before & shut::READ != 0 && bits & state::LISTENING == 0 {
            let _ = self.call(Operation::Synchronise);
        }
        if closes & !before & shut::WRITE != 0 && bits & state::LISTENING == 0 {
            let _lock = SharedLock::take(&self.guest().tx_lock);
            self.post(Operation::Finish);
        }
        if bits & state::LISTENING != 0 && closes & shut::READ != 0 {
            let _ = self.call(Operation::Disconnect);
        }
        self.wake();
        Ok(())
    }

    /// Wakes the threads that sleep in calls on this stream.
    fn wake(&self) {
        for event in [&self.engine().rx_event, &self.engine().tx_event] {
            event.fetch_add(1, SeqCst);
            let _ = rustix::thread::futex::wake(event, rustix::thread::futex::Flags::empty(), u32::MAX >> 1);
        }
    }

    /// Sets an option of the engine's socket.
    ///
    /// # Errors
    /// As setsockopt(2); `ENOPROTOOPT` for options that the engine does not give away.
    pub fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<(), Errno> {
        let length = u16::try_from(value.len()).map_err(|_| Errno::INVAL)?;
        if length > OPTION_BYTES_MOST {
            return Err(Errno::INVAL);
        }
        let _lock = SharedLock::take(&self.guest().call_lock);
        self.slot.set_scratch(value);
        self.call_locked(Operation::SetOption(OptionName { level, name, length })).map(|_| ())
    }

    /// Reads an option of the engine's socket; returns its bytes.
    ///
    /// # Errors
    /// As getsockopt(2); `ENOPROTOOPT` for options that the engine does not give away.
    pub fn option(&self, level: u32, name: u32, value: &mut [u8]) -> Result<usize, Errno> {
        let room = value.len().min(usize::from(OPTION_BYTES_MOST));
        let length = u16::try_from(room).unwrap_or(OPTION_BYTES_MOST);
        let _lock = SharedLock::take(&self.guest().call_lock);
        let written = self.call_locked(Operation::GetOption(OptionName { level, name, length }))?;
        let written = usize::try_from(written).unwrap_or(0).min(room);
        if let Some(part) = value.get_mut(..written) {
            self.slot.scratch(part);
        }
        Ok(written)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A stream in the guest: its readiness, its wake tokens, and sleeping.
//!
//! A program that waits with `poll` or `epoll` waits for the stream's descriptor, one end of a socket pair.
//! Level-triggered rule: a token is in it exactly while the stream is readable, and a record of the program
//! is in the engine's end exactly while it is not writable. Tokens are only kept once a process watches.

use super::GuestProcess;
use crate::descriptor::{Operation, Request, StreamHandle};
use crate::layout::{BothSides, EngineSide, GuestSide, SlotState, shut, state, used, watch};
use crate::memory::ByteRing;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::futex;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::Duration;

/// Bytes of the record that makes the program's descriptor unwritable: more than a quarter of the smallest
/// send buffer that the kernel gives.
const BLOCKING_RECORD: [u8; 1024] = [0; 1024];

/// A stream, by a descriptor of the program.
#[derive(Clone, Copy, Debug)]
pub struct GuestStream<'p> {
    pub(super) process: &'p GuestProcess,
    pub(super) slot: &'p SlotState,
    pub(super) handle: StreamHandle,
    pub(super) fd: BorrowedFd<'p>,
}

/// Ends of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitEnd {
    /// Something changed: look again.
    Changed,
    /// The time is over.
    TimedOut,
    /// A signal handler ran that does not let calls go on.
    Interrupted,
}

impl<'p> GuestStream<'p> {
    /// The state that both sides show.
    #[must_use]
    pub fn slot_state(&self) -> &'p SlotState {
        self.slot
    }

    /// The stream's name in the guest's table.
    #[must_use]
    pub const fn handle(&self) -> StreamHandle {
        self.handle
    }

    pub(super) fn guest(&self) -> &'p GuestSide {
        &self.slot.guest
    }

    pub(super) fn engine(&self) -> &'p EngineSide {
        &self.slot.engine
    }

    pub(super) fn both(&self) -> &'p BothSides {
        &self.slot.both
    }

    /// [`state`] bits.
    #[must_use]
    pub fn state(&self) -> u32 {
        self.engine().state.load(SeqCst)
    }

    /// Whether all of these [`state`] bits are set.
    #[must_use]
    pub fn has(&self, bits: u32) -> bool {
        self.state() & bits == bits
    }

    pub(super) fn tx_ring(&self) -> ByteRing<'p> {
        let (memory, layout) = (&self.process.data, &self.process.layout);
        ByteRing { memory, offset: layout.tx(self.handle.slot), size: layout.buffer() }
    }

    pub(super) fn rx_ring(&self) -> ByteRing<'p> {
        let (memory, layout) = (&self.process.data, &self.process.layout);
        ByteRing { memory, offset: layout.rx(self.handle.slot), size: layout.buffer() }
    }

    /// Bytes that can be read now (`FIONREAD`).
    #[must_use]
    pub fn unread(&self) -> u32 {
        let tail = self.engine().rx_tail.load(SeqCst);
        used(tail, self.guest().rx_head.load(Relaxed), self.process.layout.buffer()).unwrap_or(0)
    }

    /// Bytes that the engine has not yet taken (`SIOCOUTQ` has those of the engine's socket beside).
    #[must_use]
    pub fn untaken(&self) -> u32 {
        let head = self.engine().tx_head.load(SeqCst);
        used(self.guest().tx_tail.load(Relaxed), head, self.process.layout.buffer()).unwrap_or(0)
    }

    /// Bytes for which there is room now.
    #[must_use]
    pub fn space_now(&self) -> usize {
        self.space() as usize
    }

    pub(super) fn space(&self) -> u32 {
        self.process.layout.buffer() - self.untaken()
    }

    /// Whether a read would return at once.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let bits = self.state();
        if bits & state::LISTENING != 0 {
            return self.engine().pending.load(SeqCst) != 0;
        }
        self.unread() > 0
            || bits & (state::PEER_ENDED | state::DEAD) != 0
            || self.both().error.load(SeqCst) != 0
            || self.guest().shut.load(Relaxed) & shut::READ != 0
    }

    /// Whether a write would find room: half of the buffer, so that writers are woken for some work.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        let bits = self.state();
        if bits & (state::DEAD | state::LISTENING) != 0 {
            return bits & state::DEAD != 0;
        }
        bits & state::CONNECTING == 0 && self.space() >= self.process.layout.buffer() / 2
    }

    /// Whether the call is not to sleep.
    #[must_use]
    pub fn is_nonblocking(&self) -> bool {
        self.guest().nonblocking.load(Relaxed) != 0
    }

    /// Takes the pending error (`SO_ERROR`).
    #[must_use]
    pub fn take_error(&self) -> Option<Errno> {
        if self.both().error.load(Relaxed) == 0 {
            return None;
        }
        let error = self.both().error.swap(0, SeqCst);
        self.drain_tokens();
        match error {
            0 => None,
            error => Some(Errno::from_raw_os_error(i32::try_from(error).unwrap_or(libc::EIO))),
        }
    }

    pub(super) fn post(&self, operation: Operation) {
        self.process.submit(&Request { handle: self.handle, sequence: 0, operation });
    }

    /// Takes the tokens out of the descriptor if the stream is not readable any more.
    pub(super) fn drain_tokens(&self) {
        let tokens = &self.both().rx_tokens;
        if self.guest().watch.load(Relaxed) == watch::NONE || tokens.load(Relaxed) == 0 {
            return;
        }
        // The engine may put in further ones at any time. Those counted here are in the descriptor, or will
        // be at once; they are taken out one by one, or counted again.
        let counted = tokens.swap(0, SeqCst);
        if counted == 0 {
            return;
        }
        if self.is_readable() {
            tokens.fetch_add(counted, SeqCst);
            return;
        }
        for _ in 0..counted {
            self.take_token();
        }
    }

    /// Takes a token out of a descriptor that has several, so that there is room for those of later edges.
    pub(super) fn drop_spare_token(&self) {
        let tokens = &self.both().rx_tokens;
        let counted = tokens.load(SeqCst);
        if counted > 1 && tokens.compare_exchange(counted, counted - 1, SeqCst, SeqCst).is_ok() {
            self.take_token();
        }
    }

    fn take_token(&self) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut nothing = [0; 1];
        for _ in 0..3 {
            match recv(self.fd, &mut nothing, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => {
                    // Counted and about to be sent.
                    let mut wanted = [PollFd::from_borrowed_fd(self.fd, PollFlags::IN)];
                    let _ = poll(&mut wanted, Some(&Timespec { tv_sec: 0, tv_nsec: 2_000_000 }));
                }
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }

    /// Makes the descriptor unwritable while the stream is, for those who wait for it.
    pub(super) fn update_writability(&self) {
        if !self.is_writable() {
            self.make_unwritable();
        }
    }

    /// Makes the descriptor unwritable until the engine has looked at the stream.
    pub(super) fn make_unwritable(&self) {
        if self.guest().watch.load(Relaxed) == watch::NONE {
            return;
        }
        let token = &self.both().tx_token;
        if token.load(SeqCst) == 0 {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            if send(self.fd, &BLOCKING_RECORD, flags).is_ok() {
                token.store(1, SeqCst);
            }
        }
        if self.is_writable() {
            self.post(Operation::Transmit);
        }
    }

    /// A process waits for the descriptor from now on: brings its tokens up to date and has them kept.
    pub fn watch(&self, edge: bool) {
        let wanted = if edge { watch::EDGE } else { watch::LEVEL };
        let word = &self.guest().watch;
        if word.load(SeqCst) >= wanted {
            return;
        }
        word.fetch_max(wanted, SeqCst);
        {
            let _lock = super::SharedLock::take(&self.guest().tx_lock);
            self.update_writability();
        }
        if self.is_readable() && self.both().rx_tokens.load(SeqCst) == 0 {
            let _ = self.call(Operation::Synchronise);
        }
    }

    /// Sleeps until `event` differs from `seen`, while `idle` still holds.
    pub(super) fn sleep(
        &self,
        event: &AtomicU32,
        sleepers: &AtomicU32,
        seen: u32,
        until: Option<Duration>,
    ) -> WaitEnd {
        sleepers.fetch_add(1, SeqCst);
        let end = if event.load(SeqCst) == seen {
            let time = until.map(|left| futex::Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            });
            match futex::wait(event, futex::Flags::empty(), seen, time.as_ref()) {
                Err(Errno::INTR) => WaitEnd::Interrupted,
                Err(Errno::TIMEDOUT) => WaitEnd::TimedOut,
                _ => WaitEnd::Changed,
            }
        } else {
            WaitEnd::Changed
        };
        sleepers.fetch_sub(1, SeqCst);
        end
    }

    /// Whether the slot still has this stream.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.engine().generation.load(Acquire) == self.handle.generation
    }
}

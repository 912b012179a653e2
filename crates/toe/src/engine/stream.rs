// SPDX-License-Identifier: Apache-2.0
//! A stream in the engine: its own record of the shared buffers' indices, and what it shows to the guest.

use super::guest::GuestSegments;
use super::pipe::Pipe;
use super::slab::StreamKey;
use crate::datagram::UnsentDatagram;
use crate::descriptor::StreamHandle;
use crate::inspect::{StreamId, StreamInfo};
use crate::layout::{SlotState, shut, state, used, watch};
use crate::reason::StreamRefusal;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::futex;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, fence};
use std::time::Instant;

/// Tokens in a descriptor at most. The kernel takes ten records.
const TOKENS_MOST: u32 = 4;
/// Sleepers that an event wakes: all of them.
const ALL: u32 = u32::MAX >> 1;

/// The state of a stream's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// Made, perhaps bound.
    Idle,
    /// The kernel connects.
    Connecting,
    /// Payload flows.
    Open,
    /// Accepts connections.
    Listening,
    /// Reset, refused or blocked.
    Dead,
}

/// The program behind a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamProgram {
    /// Its process.
    pub(crate) process: i32,
    /// The number of its joining; `None`: another process has named it.
    pub(crate) joined: Option<u64>,
}

/// A stream.
#[derive(Debug)]
pub(crate) struct EngineStream {
    pub(crate) key: StreamKey,
    pub(crate) id: StreamId,
    pub(crate) guest: u16,
    pub(crate) program: StreamProgram,
    pub(crate) handle: StreamHandle,
    pub(crate) v6: bool,
    pub(crate) segments: Arc<GuestSegments>,
    /// The engine's end of the program's descriptor: carries tokens, and its hang-up says that the program,
    /// and whoever got the descriptor from it, closed it.
    pub(crate) token: OwnedFd,
    /// The program's descriptor, until a process takes it by `accept`.
    pub(crate) programs_end: Option<OwnedFd>,
    /// The kernel's socket.
    pub(crate) socket: Option<OwnedFd>,
    /// Beside a socket of IPv6 that is bound to all addresses of a guest with both families: one of IPv4.
    pub(crate) twin: Option<OwnedFd>,
    pub(crate) state: ConnectionState,
    pub(crate) is_bound: bool,
    /// The engine chose address and port of the kernel's socket.
    pub(crate) has_source: bool,
    pub(crate) accepted: bool,
    /// UDP.
    pub(crate) is_datagram: bool,
    /// The peer of a connected socket of datagrams.
    pub(crate) datagram_peer: Option<SocketAddr>,
    /// A datagram that has passed and waits for room in the kernel's socket.
    pub(crate) unsent: Option<UnsentDatagram>,
    /// The last peer of a socket without a local address, and the address from which the kernel sends there.
    pub(crate) route: Option<(IpAddr, IpAddr)>,
    pub(crate) out: Pipe,
    pub(crate) inward: Pipe,
    /// Bytes taken from the transmit buffer.
    pub(crate) tx_head: u32,
    /// Bytes put into the receive buffer.
    pub(crate) rx_tail: u32,
    /// The kernel's socket may have bytes.
    pub(crate) readable: bool,
    /// The kernel's socket may have room.
    pub(crate) writable: bool,
    /// The kernel's socket has an end or error to be read.
    pub(crate) hangup: bool,
    /// The program sends no more.
    pub(crate) finish: bool,
    pub(crate) finish_sent: bool,
    pub(crate) end_shown: bool,
    /// Error of the connection, shown once the bytes before it are delivered.
    pub(crate) error: Option<Errno>,
    /// Nobody has the program's descriptor any more.
    pub(crate) closed: bool,
    /// The other end is, or was, a stream of a guest: no TCP.
    pub(crate) is_local: bool,
    /// The stream of a guest at the other end, while it lives.
    pub(crate) partner: Option<StreamKey>,
    /// Connections that wait for `accept`.
    pub(crate) pending: VecDeque<StreamKey>,
    pub(crate) backlog: usize,
    /// Where a listener of this engine is found.
    pub(crate) listens_at: Vec<SocketAddr>,
    /// The listener that this connection waits at.
    pub(crate) listener: Option<StreamKey>,
    pub(crate) info: Option<StreamInfo>,
    pub(crate) is_queued: bool,
    /// When the engine looks at the stream again: the first of the next three.
    pub(crate) deadline: Option<Instant>,
    /// End of the time for which functions may hold bytes.
    pub(crate) held_until: Option<Instant>,
    /// When functions are asked again about bytes that they hold.
    pub(crate) retry_at: Option<Instant>,
    /// End of the time for which the last bytes of a closed stream are sent on.
    pub(crate) lingers_until: Option<Instant>,
    /// Bytes of the guest's account that are this stream's.
    pub(crate) accounted: usize,
    /// Bytes that the program got.
    pub(crate) received: u64,
    /// Why the stream was blocked.
    pub(crate) refused: Option<StreamRefusal>,
}

fn wake(event: &AtomicU32, sleepers: &AtomicU32) {
    event.fetch_add(1, SeqCst);
    if sleepers.load(SeqCst) != 0 {
        let _ = futex::wake(event, futex::Flags::empty(), ALL);
    }
}

impl EngineStream {
    /// The state that both sides show. The slot is within the segment by construction.
    pub(crate) fn slot(&self) -> Option<&SlotState> {
        self.segments.slot(self.handle.slot)
    }

    /// Sets and clears bits of the shown state.
    pub(crate) fn show(&self, set: u32, clear: u32) {
        if let Some(slot) = self.slot() {
            let shown = &slot.engine.state;
            // The engine is the only writer that counts: what a guest wrote there is overwritten.
            shown.store(shown.load(Relaxed) & !clear | set, SeqCst);
        }
    }

    /// Takes up to `most` bytes of the transmit buffer into the outward pipe: the one copy into memory that
    /// the guest cannot change.
    pub(crate) fn take_transmitted(&mut self, most: usize) -> Result<usize, StreamRefusal> {
        let segments = Arc::clone(&self.segments);
        let slot = segments.slot(self.handle.slot).ok_or(StreamRefusal::IndexBounds)?;
        let tail = slot.guest.tx_tail.load(SeqCst);
        let waiting =
            used(tail, self.tx_head, segments.layout.buffer()).ok_or(StreamRefusal::IndexBounds)? as usize;
        let count = waiting.min(most);
        if count == 0 {
            return Ok(0);
        }
        let ring = segments.tx(self.handle.slot);
        ring.copy_out(self.tx_head, count, self.out.tail()).ok_or(StreamRefusal::IndexBounds)?;
        self.tx_head = self.tx_head.wrapping_add(u32::try_from(count).unwrap_or(0));
        slot.engine.tx_head.store(self.tx_head, SeqCst);
        Ok(count)
    }

    /// Bytes in the transmit buffer.
    pub(crate) fn waiting(&self) -> u32 {
        let Some(slot) = self.slot() else { return 0 };
        let tail = slot.guest.tx_tail.load(SeqCst);
        used(tail, self.tx_head, self.segments.layout.buffer()).unwrap_or(0)
    }

    /// Room in the receive buffer.
    ///
    /// # Errors
    /// The guest's index is out of bounds.
    pub(crate) fn room(&self) -> Result<usize, StreamRefusal> {
        let slot = self.slot().ok_or(StreamRefusal::IndexBounds)?;
        let size = self.segments.layout.buffer();
        let unread =
            used(self.rx_tail, slot.guest.rx_head.load(SeqCst), size).ok_or(StreamRefusal::IndexBounds)?;
        Ok((size - unread) as usize)
    }

    /// Whether the program has not read all that was delivered.
    pub(crate) fn has_unread(&self) -> bool {
        self.room().is_ok_and(|room| room < self.segments.layout.buffer() as usize)
    }

    /// Puts bytes into the receive buffer as far as there is room; asks the guest to tell of room otherwise.
    pub(crate) fn deliver(&mut self, bytes: &[u8]) -> Result<usize, StreamRefusal> {
        let mut delivered = 0;
        for attempt in 0..2 {
            let rest = bytes.get(delivered..).unwrap_or_default();
            let count = rest.len().min(self.room()?);
            let ring = self.segments.rx(self.handle.slot);
            let part = rest.get(..count).unwrap_or_default();
            ring.write(self.rx_tail, part).ok_or(StreamRefusal::IndexBounds)?;
            self.rx_tail = self.rx_tail.wrapping_add(u32::try_from(count).unwrap_or(0));
            delivered += count;
            let slot = self.slot().ok_or(StreamRefusal::IndexBounds)?;
            slot.engine.rx_tail.store(self.rx_tail, SeqCst);
            if delivered == bytes.len() || attempt == 1 {
                break;
            }
            // Asked before the last look at the room, so that no room is missed.
            slot.both.rx_wanted.store(1, SeqCst);
            fence(SeqCst);
        }
        self.received += delivered as u64;
        if delivered > 0 {
            self.notify_readable();
        }
        Ok(delivered)
    }

    /// Wakes readers, and puts a token into the descriptor if a process watches it.
    pub(crate) fn notify_readable(&self) {
        let Some(slot) = self.slot() else { return };
        wake(&slot.engine.rx_event, &slot.guest.rx_sleepers);
        let watched = slot.guest.watch.load(SeqCst);
        if watched == watch::NONE {
            return;
        }
        self.put_token(watched == watch::EDGE);
    }

    /// Puts a token into the descriptor: one for level-triggered waiting, one more for each arrival where a
    /// process waits for edges.
    pub(crate) fn put_token(&self, edge: bool) {
        let Some(slot) = self.slot() else { return };
        let tokens = &slot.both.rx_tokens;
        let most = if edge { TOKENS_MOST } else { 1 };
        // Again if the program took tokens out at the same time: it looked before the bytes were there.
        for _ in 0..TOKENS_MOST {
            let counted = tokens.load(SeqCst);
            if counted >= most {
                return;
            }
            if tokens.compare_exchange(counted, counted + 1, SeqCst, SeqCst).is_ok() {
                let _ = send(&self.token, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                return;
            }
        }
    }

    /// Brings the tokens up to date after a process began to watch.
    pub(crate) fn synchronise(&self) {
        let Some(slot) = self.slot() else { return };
        let readable = match self.state {
            ConnectionState::Listening => !self.pending.is_empty(),
            ConnectionState::Dead => true,
            _ => self.has_unread() || self.end_shown || slot.both.error.load(SeqCst) != 0,
        };
        if slot.guest.shut.load(SeqCst) & shut::READ != 0 {
            let _ = rustix::net::shutdown(&self.token, rustix::net::Shutdown::Write);
        } else if readable && slot.both.rx_tokens.load(SeqCst) == 0 {
            self.put_token(false);
        }
        self.notify_writable();
    }

    /// Wakes writers, and makes the descriptor writable again.
    pub(crate) fn notify_writable(&self) {
        let Some(slot) = self.slot() else { return };
        wake(&slot.engine.tx_event, &slot.guest.tx_sleepers);
        let is_writable = match self.state {
            ConnectionState::Connecting | ConnectionState::Listening => false,
            ConnectionState::Dead => true,
            _ => self.waiting() <= self.segments.layout.buffer() / 2,
        };
        // The program puts its record in before it sets the word, so there is one for each change from 0. The
        // word goes first: a program that is woken by the drain, fills the buffer and finds the word still
        // set would put in no record, and nothing would wake it again.
        if is_writable && slot.both.tx_token.load(SeqCst) != 0 && slot.both.tx_token.swap(0, SeqCst) != 0 {
            let mut record = [0; 64];
            // A record that is cut off is taken out whole.
            let _ = recv(&self.token, &mut record, RecvFlags::DONTWAIT | RecvFlags::TRUNC);
        }
    }

    /// Shows the end of the peer's bytes.
    pub(crate) fn show_end(&mut self) {
        if self.end_shown {
            return;
        }
        self.end_shown = true;
        self.show(state::PEER_ENDED, 0);
        let _ = rustix::net::shutdown(&self.token, rustix::net::Shutdown::Write);
        self.notify_readable();
    }

    /// Ends the stream with an error for the program; its socket and bytes go.
    pub(crate) fn die(&mut self, error: Errno, bits: u32) {
        if self.state == ConnectionState::Dead {
            return;
        }
        self.state = ConnectionState::Dead;
        if let Some(slot) = self.slot() {
            slot.both.error.store(error.raw_os_error().unsigned_abs(), SeqCst);
        }
        self.show(state::DEAD | bits, state::CONNECTING);
        self.out.clear();
        self.inward.clear();
        self.unsent = None;
        (self.held_until, self.retry_at) = (None, None);
        if self.is_reset() {
            self.reset_on_close();
        }
        self.socket = None;
        let _ = rustix::net::shutdown(&self.token, rustix::net::Shutdown::Write);
        self.notify_readable();
        self.notify_writable();
    }

    /// Whether the peer is to get a RST: nothing else says that bytes are missing.
    const fn is_reset(&self) -> bool {
        !self.finish_sent || !self.end_shown
    }

    /// Closing the kernel's socket sends a RST.
    pub(crate) fn reset_on_close(&self) {
        if let Some(socket) = &self.socket {
            let _ = rustix::net::sockopt::set_socket_linger(socket, Some(std::time::Duration::ZERO));
        }
    }

    /// Completes a call of the guest.
    pub(crate) fn complete(&self, sequence: u32, result: Result<usize, Errno>) {
        let Some(slot) = self.slot().filter(|_| sequence != 0) else { return };
        let engine = &slot.engine;
        let (error, length) = match result {
            Ok(length) => (0, u32::try_from(length).unwrap_or(0)),
            Err(error) => (error.raw_os_error().unsigned_abs(), 0),
        };
        engine.result.store(error, Release);
        engine.result_length.store(length, Release);
        engine.completion.store(sequence, SeqCst);
        if slot.guest.call_sleepers.load(SeqCst) != 0 {
            let _ = futex::wake(&engine.completion, futex::Flags::empty(), ALL);
        }
    }
}

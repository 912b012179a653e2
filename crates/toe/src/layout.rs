// SPDX-License-Identifier: Apache-2.0
//! The form of a guest's two shared segments, and who writes what.
//!
//! *Control*: one page of head, then a control ring for each process, then the table of streams, one
//! [`SlotState`] each. *Data*: for each slot a transmit buffer (program to engine) and a receive buffer
//! (engine to program), rings of bytes whose indices are in the slot.
//!
//! The guest can write all of both segments at any time. So the engine keeps its own record of everything,
//! only *shows* its side here, and reads of the guest's side single words, once each, which it compares with
//! bounds. A guest that writes where it should not harms the streams of that guest only.
//!
//! Indices count bytes modulo 2^32; a buffer's size is a power of two.

use crate::descriptor::{StreamHandle, pack_address, unpack_address};
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes before the first ring.
pub const HEAD_BYTES: usize = 4096;
/// Descriptors that a control ring holds.
pub const RING_ENTRIES: u32 = 64;
/// Bytes from one control ring to the next: a page of head, a page of descriptors.
pub const RING_STRIDE: usize = 8192;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = size_of::<SlotState>();

/// Index of the program side of a control ring.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RingProducer {
    /// Number of descriptors written, modulo 2^32. Written by the guest.
    pub tail: AtomicU32,
}

/// Index of the engine side of a control ring.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RingConsumer {
    /// Descriptors taken out, modulo 2^32. Written by the engine.
    pub head: AtomicU32,
    /// The engine does not look at this ring: the producer has to ring its bell. Written by the engine.
    pub sleeps: AtomicU32,
}

/// Head of a control ring.
#[derive(Debug, Default)]
#[repr(C)]
pub struct RingHead {
    /// The guest's side.
    pub producer: RingProducer,
    /// The engine's side.
    pub consumer: RingConsumer,
}

/// A descriptor in a ring.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RingEntry(pub [AtomicU64; 8]);

/// Bits of `SlotState::state`.
pub mod state {
    /// A connection is being opened.
    pub const CONNECTING: u32 = 1;
    /// A connection is open, or was.
    pub const CONNECTED: u32 = 2;
    /// Accepts connections.
    pub const LISTENING: u32 = 4;
    /// The peer sends no more; the receive buffer has all.
    pub const PEER_ENDED: u32 = 8;
    /// The connection is reset, timed out or blocked: no more bytes are sent or received.
    pub const DEAD: u32 = 16;
    /// Blocked by a verdict.
    pub const BLOCKED: u32 = 32;
    /// Has a local address.
    pub const BOUND: u32 = 64;
    /// IPv6.
    pub const V6: u32 = 128;
    /// UDP.
    pub const DATAGRAMS: u32 = 256;
}

/// Bits of `SlotState::shut`.
pub mod shut {
    /// `shutdown(SHUT_RD)`.
    pub const READ: u32 = 1;
    /// `shutdown(SHUT_WR)`.
    pub const WRITE: u32 = 2;
}

/// Values of `SlotState::watch`.
pub mod watch {
    /// No process waits for the descriptor: payload wakes sleepers of calls only.
    pub const NONE: u32 = 0;
    /// Level-triggered: a token is in the descriptor while the stream is readable.
    pub const LEVEL: u32 = 1;
    /// Edge-triggered as well: each arrival adds a token to the ring.
    pub const EDGE: u32 = 2;
}

/// An address, as three words of a descriptor.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SharedAddress([AtomicU64; 3]);

impl SharedAddress {
    /// Publishes an address.
    pub fn store(&self, address: SocketAddr) {
        for (place, word) in self.0.iter().zip(pack_address(address)) {
            place.store(word, Relaxed);
        }
    }

    /// Removes the published address.
    pub fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// The address; `None` if it is absent or invalid.
    #[must_use]
    pub fn load(&self) -> Option<SocketAddr> {
        let [head, low, high] = &self.0;
        unpack_address([head.load(Relaxed), low.load(Relaxed), high.load(Relaxed)]).ok()
    }
}

/// The guest's line of a slot.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct GuestSide {
    /// Bytes put into the transmit buffer.
    pub tx_tail: AtomicU32,
    /// Bytes taken from the receive buffer.
    pub rx_head: AtomicU32,
    /// Threads that sleep on [`EngineSide::rx_event`].
    pub rx_sleepers: AtomicU32,
    /// Threads that sleep on [`EngineSide::tx_event`].
    pub tx_sleepers: AtomicU32,
    /// Threads that sleep on [`EngineSide::completion`].
    pub call_sleepers: AtomicU32,
    /// [`watch`].
    pub watch: AtomicU32,
    /// `O_NONBLOCK` of the open file description.
    pub nonblocking: AtomicU32,
    /// [`shut`].
    pub shut: AtomicU32,
    /// `SO_RCVTIMEO` in milliseconds, 0: none.
    pub rx_timeout: AtomicU32,
    /// `SO_SNDTIMEO` in milliseconds, 0: none.
    pub tx_timeout: AtomicU32,
    /// Locks of the program side: id of the thread that has it, or 0.
    pub tx_lock: AtomicU32,
    /// As `tx_lock`, for readers.
    pub rx_lock: AtomicU32,
    /// As `tx_lock`, for calls with a completion.
    pub call_lock: AtomicU32,
    /// The program was notified that its connection is established (`connect` returned 0).
    pub connect_reported: AtomicU32,
    /// `SO_LINGER` as seconds + 1, 0: off.
    pub linger: AtomicU32,
}

/// The engine's line of a slot.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct EngineSide {
    /// Generation of the stream in this slot; odd: in use.
    pub generation: AtomicU32,
    /// [`state`].
    pub state: AtomicU32,
    /// Bytes put into the receive buffer.
    pub rx_tail: AtomicU32,
    /// Bytes taken from the transmit buffer.
    pub tx_head: AtomicU32,
    /// Changes when the stream becomes readable. Readers sleep on it.
    pub rx_event: AtomicU32,
    /// Changes when the stream becomes writable or connected. Writers sleep on it.
    pub tx_event: AtomicU32,
    /// Sequence of the last completed call. Callers sleep on it.
    pub completion: AtomicU32,
    /// Error number of that call, or 0.
    pub result: AtomicU32,
    /// Bytes of the scratch area that the call wrote.
    pub result_length: AtomicU32,
    /// Connections that wait for `accept`.
    pub pending: AtomicU32,
    /// Sequence given to the next call; written by the guest under `call_lock`.
    pub sequence: AtomicU32,
}

/// Words of a slot that both sides write.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct BothSides {
    /// A Transmit descriptor is on its way: no further one is needed.
    pub tx_announced: AtomicU32,
    /// Tokens in the program's descriptor.
    pub rx_tokens: AtomicU32,
    /// A record that makes the program's descriptor unwritable is in the engine's end.
    pub tx_token: AtomicU32,
    /// The engine wants to hear when there is room in the receive buffer.
    pub rx_wanted: AtomicU32,
    /// Pending error number (`SO_ERROR`).
    pub error: AtomicU32,
}

/// The state of a stream, as both sides show it.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct SlotState {
    /// The guest's line.
    pub guest: GuestSide,
    /// The engine's line.
    pub engine: EngineSide,
    /// Words of both.
    pub both: BothSides,
    /// Local address.
    pub local: SharedAddress,
    /// Peer's address.
    pub peer: SharedAddress,
    /// Value of an option, in and out.
    pub scratch: [AtomicU64; 32],
}

impl SlotState {
    /// Clears a slot for its next stream and shows the generation.
    pub fn begin(&self, generation: u32, state: u32) {
        let guest = &self.guest;
        for word in [
            &guest.tx_tail,
            &guest.rx_head,
            &guest.rx_sleepers,
            &guest.tx_sleepers,
            &guest.call_sleepers,
            &guest.watch,
            &guest.nonblocking,
            &guest.shut,
            &guest.rx_timeout,
            &guest.tx_timeout,
            &guest.tx_lock,
            &guest.rx_lock,
            &guest.call_lock,
            &guest.connect_reported,
            &guest.linger,
        ] {
            word.store(0, Relaxed);
        }
        let engine = &self.engine;
        for word in [&engine.rx_tail, &engine.tx_head, &engine.completion, &engine.result, &engine.pending] {
            word.store(0, Relaxed);
        }
        engine.sequence.store(0, Relaxed);
        let both = &self.both;
        for word in [&both.tx_announced, &both.rx_tokens, &both.tx_token, &both.rx_wanted, &both.error] {
            word.store(0, Relaxed);
        }
        self.local.clear();
        self.peer.clear();
        engine.state.store(state, Relaxed);
        engine.generation.store(generation, Release);
    }

    /// Whether the slot has the stream of this handle.
    #[must_use]
    pub fn is(&self, handle: StreamHandle) -> bool {
        self.engine.generation.load(Acquire) == handle.generation
    }

    /// Copies a value into the scratch area; what does not fit is left off.
    pub fn set_scratch(&self, value: &[u8]) {
        for (place, bytes) in self.scratch.iter().zip(value.chunks(8)) {
            let mut word = [0; 8];
            if let Some(part) = word.get_mut(..bytes.len()) {
                part.copy_from_slice(bytes);
            }
            place.store(u64::from_ne_bytes(word), Relaxed);
        }
    }

    /// Copies a value out of the scratch area, each word read once.
    pub fn scratch(&self, value: &mut [u8]) {
        for (place, bytes) in self.scratch.iter().zip(value.chunks_mut(8)) {
            let word = place.load(Relaxed).to_ne_bytes();
            if let Some(part) = word.get(..bytes.len()) {
                bytes.copy_from_slice(part);
            }
        }
    }
}

/// Sizes of a guest's segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Streams at most.
    pub slots: u32,
    /// Processes at most: control rings.
    pub rings: u32,
    /// Base-2 logarithm of the bytes of a transmit and of a receive buffer.
    pub buffer_shift: u32,
}

impl Layout {
    /// Smallest buffers: a page.
    pub const SHIFT_LEAST: u32 = 12;
    /// Largest buffers.
    pub const SHIFT_MOST: u32 = 24;
    /// Most slots.
    pub const SLOTS_MOST: u32 = 1 << 20;

    /// Whether all sizes are within bounds.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        (1..=Self::SLOTS_MOST).contains(&self.slots)
            && (1..=4096).contains(&self.rings)
            && (Self::SHIFT_LEAST..=Self::SHIFT_MOST).contains(&self.buffer_shift)
    }

    /// Bytes of a transmit buffer, and of a receive buffer.
    #[must_use]
    pub const fn buffer(&self) -> u32 {
        1 << self.buffer_shift
    }

    /// Place of a control ring in the control segment.
    #[must_use]
    pub const fn ring(&self, index: u32) -> usize {
        HEAD_BYTES + index as usize * RING_STRIDE
    }

    /// Place of a slot in the control segment.
    #[must_use]
    pub const fn slot(&self, index: u32) -> usize {
        self.ring(self.rings) + index as usize * SLOT_BYTES
    }

    /// Bytes of the control segment, whole pages.
    #[must_use]
    pub const fn control_bytes(&self) -> usize {
        self.slot(self.slots).next_multiple_of(4096)
    }

    /// Place of a slot's transmit buffer in the data segment.
    #[must_use]
    pub const fn tx(&self, slot: u32) -> usize {
        (slot as usize) << (self.buffer_shift + 1)
    }

    /// Place of a slot's receive buffer in the data segment.
    #[must_use]
    pub const fn rx(&self, slot: u32) -> usize {
        self.tx(slot) + (1 << self.buffer_shift)
    }

    /// Bytes of the data segment.
    #[must_use]
    pub const fn data_bytes(&self) -> usize {
        self.tx(self.slots)
    }
}

/// Bytes in a buffer whose two indices are these; `None`: more than it holds, so one of the indices is wrong.
#[must_use]
pub fn used(tail: u32, head: u32, size: u32) -> Option<u32> {
    let used = tail.wrapping_sub(head);
    (used <= size).then_some(used)
}

// SPDX-License-Identifier: Apache-2.0
//! Transmit ring of TPACKET_V2: frames are copied into slots, one `send` call hands all of them to the
//! kernel.
//!
//! Source: Linux `packet_mmap.rst` and `net/packet/af_packet.c` (facts: the kernel walks the ring from its
//! own head while slots say `SEND_REQUEST`, stops at the first that fails, and stays there). See [`super`]
//! for soundness: the transmit part of a mapping is never leased, and there is one `TxRing` for it.

use super::{Geometry, Mapping, RingPosition};
use crate::port::TransmitCounts;
use crate::refusal::SendRefusal;
use bartizan_packet::casts::cast_of;
use std::mem::offset_of;
use std::sync::Arc;

/// The offset of the frame in a transmit slot.
const DATA: usize = libc::TPACKET2_HDRLEN - size_of::<libc::sockaddr_ll>();
const LENGTH: usize = offset_of!(libc::tpacket2_hdr, tp_len);
/// The bits of a slot that is not free.
const BUSY: u32 = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING | libc::TP_STATUS_WRONG_FORMAT;
/// The bits of a slot that the kernel has not taken yet.
const WAITING: u32 = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_WRONG_FORMAT;

/// Writer of a transmit ring.
pub(crate) struct TxRing {
    mapping: Arc<Mapping>,
    start: usize,
    geometry: Geometry,
    /// The slot that the kernel reads next.
    head: RingPosition,
    /// The slot that is filled next.
    tail: RingPosition,
    /// Slots from head to tail: filled, but not taken by the kernel.
    queued: usize,
}

impl TxRing {
    /// Writes to the ring that begins `start` bytes into `mapping`.
    pub(crate) fn new(mapping: Arc<Mapping>, start: usize, geometry: Geometry) -> Self {
        Self {
            mapping,
            start,
            geometry,
            head: RingPosition::default(),
            tail: RingPosition::default(),
            queued: 0,
        }
    }

    fn slot(&self, place: RingPosition) -> usize {
        self.start + place.offset(&self.geometry)
    }

    /// The number of frames that wait for a `send` call.
    pub(crate) const fn queued(&self) -> usize {
        self.queued
    }

    /// Copies a frame into the next slot.
    pub(crate) fn push(&mut self, frame: &[u8]) -> Result<(), SendRefusal> {
        let slot = self.slot(self.tail);
        if self.queued >= self.geometry.frames() || self.mapping.status(slot) & BUSY != 0 {
            return Err(SendRefusal::RingFull);
        }
        if frame.len() > self.geometry.frame_size - DATA
            || slot + self.geometry.frame_size > self.mapping.length
        {
            return Err(SendRefusal::TooLarge);
        }
        // SAFETY: the slot lies in the mapping and is ours (status), the frame fits behind the header;
        // `frame` may lie in a receive ring of this or another mapping, never in a transmit ring, so the
        // ranges do not overlap.
        unsafe {
            let to = self.mapping.base.as_ptr().add(slot + DATA);
            std::ptr::copy_nonoverlapping(frame.as_ptr(), to, frame.len());
        }
        self.commit(slot, frame.len() as u32);
        self.tail = self.tail.next(&self.geometry);
        self.queued += 1;
        Ok(())
    }

    fn commit(&self, slot: usize, length: u32) {
        if let Some(word) = self.mapping.word(slot + LENGTH) {
            word.store(length, std::sync::atomic::Ordering::Relaxed);
        }
        self.mapping.set_status(slot, libc::TP_STATUS_SEND_REQUEST);
    }

    /// Counts the frames that the kernel took by a `send` call.
    pub(crate) fn reap(&mut self) -> TransmitCounts {
        let mut sent = TransmitCounts::default();
        while self.queued > 0 {
            let slot = self.slot(self.head);
            if self.mapping.status(slot) & WAITING != 0 {
                break;
            }
            sent.add(self.mapping.load(slot + LENGTH).into(), self.cast(slot));
            self.head = self.head.next(&self.geometry);
            self.queued -= 1;
        }
        sent
    }

    /// The kind of a frame's destination.
    fn cast(&self, slot: usize) -> usize {
        let [a, b, c, d] = self.mapping.load(slot + DATA).to_ne_bytes();
        // Mostly this suffices.
        if a & 1 == 0 {
            return 0;
        }
        let [e, f] = self.mapping.half(slot + DATA + 4).to_ne_bytes();
        cast_of(&[a, b, c, d, e, f])
    }

    /// Whether the kernel refused the first waiting frame for its format or length.
    pub(crate) fn head_is_malformed(&self) -> bool {
        self.queued > 0 && self.mapping.status(self.slot(self.head)) & libc::TP_STATUS_WRONG_FORMAT != 0
    }

    /// Drops the first waiting frame. The kernel stays at that slot, so the later frames move up.
    pub(crate) fn drop_head(&mut self) {
        if self.queued == 0 {
            return;
        }
        let mut place = self.head;
        for _ in 1..self.queued {
            let following = place.next(&self.geometry);
            let (to, from) = (self.slot(place), self.slot(following));
            let length = self.mapping.load(from + LENGTH);
            let bytes = (length as usize).min(self.geometry.frame_size - DATA);
            // SAFETY: two different slots of the transmit part, both waiting, so the kernel does not touch
            // them outside of a `send` call; `push` has checked that slots lie in the mapping.
            unsafe {
                let base = self.mapping.base.as_ptr();
                std::ptr::copy_nonoverlapping(base.add(from + DATA), base.add(to + DATA), bytes);
            }
            self.commit(to, length);
            place = following;
        }
        self.mapping.set_status(self.slot(place), libc::TP_STATUS_AVAILABLE);
        self.tail = place;
        self.queued -= 1;
    }

    /// Drops all waiting frames; returns their number.
    pub(crate) fn drop_all(&mut self) -> u64 {
        let dropped = self.queued as u64;
        let mut place = self.head;
        for _ in 0..self.queued {
            self.mapping.set_status(self.slot(place), libc::TP_STATUS_AVAILABLE);
            place = place.next(&self.geometry);
        }
        self.tail = self.head;
        self.queued = 0;
        dropped
    }
}

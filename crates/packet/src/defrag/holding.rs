// SPDX-License-Identifier: Apache-2.0
//! Strict mode: the outcome of a datagram once it is whole, and of the frames that brought it.
//!
//! Every accepted fragment is *settled* once: its frame is attached to its datagram, or leaves with it, or
//! is refused. Where several workers share a frame's packets, a frame may be settled after its datagram was
//! decided; the datagram is kept until all are, so that the late ones go the same way. A fragment that
//! never comes back (it was lost between workers) ends with the datagram's timeout.

use super::datagram::{DatagramId, DatagramState};
use super::{Defragmenter, DropReason};
use bartizan_base::Timestamp;
use core::hash::BuildHasher;

/// The outcome of a frame that had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// The frame waits.
    Waits,
    /// Its datagram has passed meanwhile: the frame may leave.
    Passed,
}

impl Defragmenter {
    /// Keeps the frame of a fragment that [`Defragmenter::insert`] has accepted, with a note for its later
    /// receiver.
    ///
    /// # Errors
    /// Its datagram was refused meanwhile, or is refused now for want of room.
    pub fn attach(
        &mut self,
        id: DatagramId,
        note: &[u8],
        frame: &[u8],
        now: Timestamp,
    ) -> Result<Attached, DropReason> {
        match self.state(id) {
            Some(DatagramState::Open | DatagramState::Judged) => {}
            Some(DatagramState::Passed) => {
                self.finish_frame(id);
                return Ok(Attached::Passed);
            }
            Some(DatagramState::Refused) | None => {
                self.finish_frame(id);
                self.counters.drop(DropReason::Refused);
                return Err(DropReason::Refused);
            }
        }
        let node = match self.store_fragment(id.index, note, frame, now) {
            Ok(node) => node,
            Err(reason) => {
                self.counters.drop(reason);
                self.refuse(id);
                return Err(reason);
            }
        };
        if let Some(datagram) = self.datagrams.get_mut(id.index as usize) {
            datagram.frames_held.add(self.store.usage_of(node));
            datagram.frames.push(&mut self.store, node);
            datagram.unsettled = datagram.unsettled.saturating_sub(1);
        }
        self.budget.weigh(&mut self.datagrams, id.index);
        Ok(Attached::Waits)
    }

    /// Settles the frame of a fragment that [`Defragmenter::insert`] has accepted and that leaves at once,
    /// because frames are not held at present.
    pub fn leave_at_once(&mut self, id: DatagramId) {
        self.finish_frame(id);
    }

    /// Passes a whole datagram and the frame that completed it: [`Defragmenter::pop_outgoing`] returns the
    /// waiting frames, and the datagram's id is not accepted again for a while. False if the datagram was
    /// refused before.
    pub fn pass(&mut self, id: DatagramId, now: Timestamp) -> bool {
        match self.state(id) {
            Some(DatagramState::Judged) => {}
            // Another frame has settled it.
            Some(DatagramState::Passed) => {
                self.finish_frame(id);
                return true;
            }
            _ => {
                self.finish_frame(id);
                return false;
            }
        }
        let Some(datagram) = self.datagrams.get_mut(id.index as usize) else { return false };
        datagram.state = DatagramState::Passed;
        let (frames, _) = datagram.take_frames();
        let hash = self.hasher.hash_one(datagram.key);
        let expires = datagram.expires.max(now);
        self.outgoing.append(&mut self.store, frames);
        self.remembered.insert(hash, expires);
        self.budget.weigh(&mut self.datagrams, id.index);
        self.finish_frame(id);
        true
    }

    /// Refuses a datagram, and the current frame of it: both the frames that wait
    /// ([`Defragmenter::pop_discarded`]) and later fragments. Where frames are not held it stays refused
    /// until its timeout, since a part of it has left already.
    pub fn refuse(&mut self, id: DatagramId) {
        if matches!(self.state(id), Some(DatagramState::Open | DatagramState::Judged)) {
            self.stop(id.index);
        }
        self.finish_frame(id);
    }

    /// Lets the frames of `from`, which is whole and allowed, wait with `into`, a fragment of which it
    /// carried.
    pub fn join(&mut self, from: DatagramId, into: DatagramId, now: Timestamp) {
        if self.state(from) == Some(DatagramState::Judged)
            && matches!(self.state(into), Some(DatagramState::Open | DatagramState::Judged))
            && let Some(datagram) = self.datagrams.get_mut(from.index as usize)
        {
            // Fragments of `from` that are still under way are refused: they would overtake the decision.
            datagram.state = DatagramState::Refused;
            let (frames, held) = datagram.take_frames();
            let hash = self.hasher.hash_one(datagram.key);
            let expires = datagram.expires.max(now);
            self.remembered.insert(hash, expires);
            if let Some(datagram) = self.datagrams.get_mut(into.index as usize) {
                datagram.frames.append(&mut self.store, frames);
                datagram.frames_held.add(held);
            }
            self.budget.weigh(&mut self.datagrams, from.index);
            self.budget.weigh(&mut self.datagrams, into.index);
            self.finish_frame(from);
        } else {
            self.refuse(from);
        }
    }

    /// Takes the next frame of datagrams that have passed: `out` is replaced by the note and, directly
    /// after it, the bytes. Returns the length of the note.
    pub fn pop_outgoing(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.outgoing.pop(&mut self.store, out)
    }

    /// Takes the next frame that is not sent: as [`Defragmenter::pop_outgoing`].
    pub fn pop_discarded(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.discarded.pop(&mut self.store, out)
    }

    /// Takes the next frame of an evicted datagram: as [`Defragmenter::pop_outgoing`].
    pub fn pop_evicted(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.evicted.pop(&mut self.store, out)
    }

    /// The number of frames that [`Defragmenter::pop_outgoing`] has.
    #[must_use]
    pub const fn outgoing(&self) -> u32 {
        self.outgoing.len
    }

    /// Whether [`Defragmenter::pop_discarded`] or [`Defragmenter::pop_evicted`] has a frame.
    #[must_use]
    pub const fn has_discarded(&self) -> bool {
        self.discarded.len > 0 || self.evicted.len > 0
    }

    /// Discards all datagrams that wait.
    pub fn clear(&mut self) {
        while self.order.newest != super::NIL {
            self.release(self.order.newest);
        }
    }

    fn state(&self, id: DatagramId) -> Option<DatagramState> {
        self.datagrams.get(id.index as usize).filter(|d| d.serial == id.serial).map(|d| d.state)
    }

    /// Settles one frame of a datagram.
    fn finish_frame(&mut self, id: DatagramId) {
        if self.state(id).is_none() {
            return;
        }
        if let Some(datagram) = self.datagrams.get_mut(id.index as usize) {
            datagram.unsettled = datagram.unsettled.saturating_sub(1);
        }
        self.end_if_settled(id.index);
    }
}

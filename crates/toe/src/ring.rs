// SPDX-License-Identifier: Apache-2.0
//! The control ring: a process of the guest puts descriptors in, the engine takes them out.
//!
//! Both sides keep their own index in private memory and only show it; the engine believes of the guest's
//! index nothing but its distance, which it compares with the size.

use crate::descriptor::{DESCRIPTOR_BYTES, DESCRIPTOR_WORDS, DescriptorWords};
use crate::layout::{RING_ENTRIES, RingEntry, RingHead, used};
use crate::memory::SharedMemory;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// Place of the first descriptor behind a ring's head.
const ENTRIES_AT: usize = 4096;

/// The producer's index is further ahead than the ring is long: the guest broke the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the control ring's index is out of bounds")]
pub struct BrokenRing;

fn entry(memory: &SharedMemory, ring: usize, index: u32) -> Option<&RingEntry> {
    memory.at(ring + ENTRIES_AT + (index % RING_ENTRIES) as usize * DESCRIPTOR_BYTES)
}

/// The engine's side of a ring.
#[derive(Debug)]
pub struct RingReader {
    ring: usize,
    head: u32,
}

impl RingReader {
    /// Begins with an empty ring at this place of the control segment.
    #[must_use]
    pub fn begin(memory: &SharedMemory, ring: usize) -> Option<RingReader> {
        let head: &RingHead = memory.at(ring)?;
        head.producer.tail.store(0, Relaxed);
        head.consumer.head.store(0, Relaxed);
        head.consumer.sleeps.store(1, SeqCst);
        Some(RingReader { ring, head: 0 })
    }

    /// Copies the next descriptor, each word read once; `None`: the ring is empty.
    ///
    /// # Errors
    /// The guest broke the ring.
    pub fn take(&mut self, memory: &SharedMemory) -> Result<Option<DescriptorWords>, BrokenRing> {
        let shown: &RingHead = memory.at(self.ring).ok_or(BrokenRing)?;
        let waiting = used(shown.producer.tail.load(Acquire), self.head, RING_ENTRIES).ok_or(BrokenRing)?;
        if waiting == 0 {
            return Ok(None);
        }
        let place = entry(memory, self.ring, self.head).ok_or(BrokenRing)?;
        let mut words = [0; DESCRIPTOR_WORDS];
        for (word, shared) in words.iter_mut().zip(&place.0) {
            *word = shared.load(Relaxed);
        }
        self.head = self.head.wrapping_add(1);
        shown.consumer.head.store(self.head, Release);
        Ok(Some(words))
    }

    /// Asks the producer to ring from now on; `false`: descriptors have arrived, so the engine continues.
    #[must_use]
    pub fn sleep(&self, memory: &SharedMemory) -> bool {
        let Some(shown) = memory.at::<RingHead>(self.ring) else { return true };
        shown.consumer.sleeps.store(1, SeqCst);
        fence(SeqCst);
        if shown.producer.tail.load(SeqCst) == self.head {
            return true;
        }
        shown.consumer.sleeps.store(0, SeqCst);
        false
    }

    /// Records that the engine polls this ring again.
    pub fn wake(&self, memory: &SharedMemory) {
        if let Some(shown) = memory.at::<RingHead>(self.ring) {
            shown.consumer.sleeps.store(0, SeqCst);
        }
    }
}

/// The guest's side of a ring.
#[derive(Debug)]
pub struct RingWriter {
    ring: usize,
    tail: u32,
}

impl RingWriter {
    /// The ring at this place of the control segment, which the engine has begun.
    #[must_use]
    pub const fn new(ring: usize) -> RingWriter {
        RingWriter { ring, tail: 0 }
    }

    /// Puts a descriptor in. `Some(true)`: the engine sleeps and has to be woken. `None`: the ring is full.
    #[must_use]
    pub fn put(&mut self, memory: &SharedMemory, words: &DescriptorWords) -> Option<bool> {
        let shown: &RingHead = memory.at(self.ring)?;
        if self.tail.wrapping_sub(shown.consumer.head.load(Acquire)) >= RING_ENTRIES {
            return None;
        }
        let place = entry(memory, self.ring, self.tail)?;
        for (shared, word) in place.0.iter().zip(words) {
            shared.store(*word, Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        shown.producer.tail.store(self.tail, SeqCst);
        fence(SeqCst);
        Some(shown.consumer.sleeps.load(SeqCst) != 0)
    }
}

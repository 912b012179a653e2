// SPDX-License-Identifier: Apache-2.0
//! Cache from descriptor numbers to streams. An entry is compared with the stream's slot; a missing one is
//! found by the name of the descriptor's other end.

use bartizan_toe::descriptor::StreamHandle;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Numbers that are remembered; descriptors beyond are looked at in each call.
const NUMBERS: usize = 1 << 16;

/// Nothing is known.
const UNKNOWN: u64 = 0;
/// A descriptor of something else.
const OTHER: u64 = 1;

static TABLE: [AtomicU64; NUMBERS] = [const { AtomicU64::new(UNKNOWN) }; NUMBERS];

/// Entry of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remembered {
    /// Nothing.
    Nothing,
    /// It is no stream.
    Other,
    /// It was this stream. Generations in use are odd, so no handle looks like the other two.
    Stream(StreamHandle),
}

fn place(fd: i32) -> Option<&'static AtomicU64> {
    TABLE.get(usize::try_from(fd).ok()?)
}

#[allow(clippy::cast_possible_truncation)] // halves of a word
pub(crate) fn remembered(fd: i32) -> Remembered {
    match place(fd).map_or(UNKNOWN, |place| place.load(Relaxed)) {
        UNKNOWN => Remembered::Nothing,
        OTHER => Remembered::Other,
        word => Remembered::Stream(StreamHandle {
            slot: (word & 0xFFFF_FFFF) as u32 - 2,
            generation: (word >> 32) as u32,
        }),
    }
}

/// Remembers a stream, or that it is none.
pub(crate) fn remember(fd: i32, stream: Option<StreamHandle>) {
    let word = stream.map_or(OTHER, |handle| u64::from(handle.generation) << 32 | u64::from(handle.slot + 2));
    if let Some(place) = place(fd) {
        place.store(word, Relaxed);
    }
}

/// Forgets a number: it was closed, or names something else now.
pub(crate) fn forget(fd: i32) {
    if let Some(place) = place(fd) {
        place.store(UNKNOWN, Relaxed);
    }
}

/// Forgets a range of numbers.
pub(crate) fn forget_range(first: u32, last: u32) {
    let from = usize::try_from(first).unwrap_or(NUMBERS).min(NUMBERS);
    let to = usize::try_from(last).unwrap_or(NUMBERS).min(NUMBERS - 1);
    for place in TABLE.get(from..=to.max(from)).unwrap_or_default() {
        if place.load(Relaxed) != UNKNOWN {
            place.store(UNKNOWN, Relaxed);
        }
    }
}

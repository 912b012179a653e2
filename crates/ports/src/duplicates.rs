// SPDX-License-Identifier: Apache-2.0
//! Frames that a mirror port shows twice: once where they entered the switch, once where they left it.
//!
//! A frame is the second of a pair when one of the same length and with the same captured bytes came within a
//! window of time before it and had no second yet. So a frame that a host really sends twice is seen twice by
//! a tap whose mirror doubles everything. Frames are identified by a hash with a secret key (SipHash, 64
//! bits): without the key, no sender can make a frame pass for another one. The memory is fixed; a frame
//! whose place another one has taken is forgotten, and its second counts as a first.
//!
//! Not done: pairs that differ (in a VLAN tag, or in what a router changes).

use crate::batch::Batch;
use crate::frame::FrameFlags;
use bartizan_base::{PacketDuration, Timestamp};
use std::hash::{BuildHasher, Hasher, RandomState};

/// The most frames that are remembered; a power of two.
pub(crate) const PLACES: usize = 1 << 15;

/// Frames without a second so far, by their hash.
pub(crate) struct Duplicates {
    window: PacketDuration,
    places: Box<[(u64, Timestamp)]>,
    key: RandomState,
}

/// A place without a frame.
const EMPTY: (u64, Timestamp) = (0, Timestamp::ZERO);

impl Duplicates {
    pub(crate) fn new(window: PacketDuration) -> Self {
        Duplicates { window, places: vec![EMPTY; PLACES].into_boxed_slice(), key: RandomState::new() }
    }

    /// Marks the frames of a batch that are the second of a pair.
    pub(crate) fn mark(&mut self, batch: &mut Batch) {
        for index in batch.indices() {
            let (Some(info), Some(bytes)) = (batch.info(index), batch.bytes(index)) else { continue };
            if self.is_second(bytes, info.wire_length, info.timestamp)
                && let Some(info) = batch.info_mut(index)
            {
                info.flags = info.flags.with(FrameFlags::DUPLICATE);
            }
        }
    }

    /// Whether a frame with the captured `bytes` is the second of a pair.
    pub(crate) fn is_second(&mut self, bytes: &[u8], wire_length: u32, now: Timestamp) -> bool {
        let mut hasher = self.key.build_hasher();
        hasher.write(bytes);
        hasher.write_u32(wire_length);
        // Zero is reserved for places without a frame.
        let hash = hasher.finish().max(1);
        let Some(place) = self.places.get_mut(hash as usize & (PLACES - 1)) else { return false };
        let (known, at) = *place;
        // Both ways: frames of several interfaces may come slightly out of order, and a clock that is set
        // back does not make an old frame a new one.
        let is_second = known == hash && now.since(at).max(at.since(now)) <= self.window;
        *place = if is_second { EMPTY } else { (hash, now) };
        is_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000 + micros * 1_000)
    }

    #[test]
    fn the_second_of_each_pair_is_one_and_no_other() {
        let mut duplicates = Duplicates::new(PacketDuration::from_millis(2));
        let mut see = |bytes: &[u8], micros| duplicates.is_second(bytes, bytes.len() as u32, at(micros));
        // Sent three times by its host, each captured twice.
        let seen: Vec<bool> = (0..6).map(|n| see(b"a frame", n * 10)).collect();
        assert_eq!(seen, [false, true, false, true, false, true]);
        assert!(!see(b"a frame", 100) && !see(b"a frame!", 101) && !see(b"a fram", 102) && !see(b"", 103));
        // The window includes its last moment.
        assert!(see(b"a frame!", 2_101) && !see(b"a fram", 2_103));
        // That one counted as a first again.
        assert!(see(b"a fram", 2_104));
    }

    #[test]
    fn cut_frames_of_different_lengths_are_no_pair() {
        let mut duplicates = Duplicates::new(PacketDuration::from_millis(2));
        let mut see = |wire_length| duplicates.is_second(b"the beginning", wire_length, at(1));
        assert_eq!([1_500, 1_499, 1_500, 13, 1_499].map(&mut see), [false, false, true, false, true]);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_old_frame_a_first() {
        let mut duplicates = Duplicates::new(PacketDuration::from_millis(2));
        let mut see = |bytes: &[u8], micros| duplicates.is_second(bytes, bytes.len() as u32, at(micros));
        assert!(!see(b"a frame", 60_000_000) && !see(b"another", 60_000_000));
        assert!(!see(b"a frame", 10), "sent again after the clock was set back by a minute");
        assert!(see(b"a frame", 11), "and shown twice");
        assert!(see(b"another", 59_998_000), "a little out of order: the window ends with its last moment");
        assert!(!see(b"a third", 60_000_000) && !see(b"a third", 59_997_999));
    }

    #[test]
    fn a_place_that_is_taken_costs_a_second_and_nothing_else() {
        let mut duplicates = Duplicates::new(PacketDuration::from_millis(1_000));
        let frames = (PLACES * 2) as u64;
        let firsts = (0..frames).filter(|n| duplicates.is_second(&n.to_be_bytes(), 8, at(1))).count();
        assert_eq!(firsts, 0, "frames that differ are never taken for one another");
        let seconds = (0..frames).filter(|n| duplicates.is_second(&n.to_be_bytes(), 8, at(2))).count();
        assert!(seconds > 0 && seconds < PLACES, "{seconds}");
    }
}

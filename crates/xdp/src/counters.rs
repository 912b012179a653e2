// SPDX-License-Identifier: Apache-2.0
//! What the program has counted, summed over processors.

use bartizan_packet::slots::{PortLine, SlotLine};
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of a flow's slot since it was cleared. Index 0: packets from the lower endpoint of the key, 1: from the higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that left or were dropped here.
    pub packets: [u64; 2],
    /// Bytes of their frames, without the checksum of a frame.
    pub bytes: [u64; 2],
    /// When the latest came, in nanoseconds of CLOCK_BOOTTIME ([`crate::boot_to_real`]); 0 for never.
    pub last_seen: [u64; 2],
}

impl Counts {
    pub(crate) fn add(&mut self, line: &SlotLine) {
        let pairs = [line.packets_low, line.packets_high];
        self.packets.iter_mut().zip(pairs).for_each(|(sum, part)| *sum = sum.wrapping_add(part));
        let pairs = [line.bytes_low, line.bytes_high];
        self.bytes.iter_mut().zip(pairs).for_each(|(sum, part)| *sum = sum.wrapping_add(part));
        let pairs = [line.seen_low, line.seen_high];
        self.last_seen.iter_mut().zip(pairs).for_each(|(latest, part)| *latest = (*latest).max(part));
    }
}

/// Upper bounds of the classes of frames by size, with the 4 bytes of a frame's checksum (RFC 2819, and two more classes for jumbo frames). The
/// last class has none.
pub const SIZE_BOUNDS: [u32; 7] = [64, 127, 255, 511, 1023, 1518, 9216];

/// Numbers of a port since the program was loaded, of the time while it was enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that came by it: those that went up, were forwarded or dropped, and that failed open or closed.
    pub frames: u64,
    /// Their bytes, without the checksum of a frame.
    pub bytes: u64,
    /// Frames that went up.
    pub up: u64,
    /// Frames that left by another port. What its device does not take then is counted by the device.
    pub forwarded: u64,
    /// Frames that were dropped.
    pub dropped: u64,
    /// Frames that left by the port across the link because who serves them had failed.
    pub open: u64,
    /// Frames that were dropped because who serves them had failed.
    pub closed: u64,
    /// Frames by size ([`SIZE_BOUNDS`]).
    pub sizes: [u64; 8],
}

impl PortCounters {
    pub(crate) fn add(&mut self, line: &PortLine) {
        for (sum, part) in [
            (&mut self.frames, line.frames),
            (&mut self.bytes, line.bytes),
            (&mut self.up, line.up),
            (&mut self.forwarded, line.forwarded),
            (&mut self.dropped, line.dropped),
            (&mut self.open, line.open),
            (&mut self.closed, line.closed),
        ] {
            *sum = sum.wrapping_add(part);
        }
        let sizes = [
            line.size_64,
            line.size_127,
            line.size_255,
            line.size_511,
            line.size_1023,
            line.size_1518,
            line.size_9216,
            line.size_larger,
        ];
        self.sizes.iter_mut().zip(sizes).for_each(|(sum, part)| *sum = sum.wrapping_add(part));
    }
}

/// The bytes of a block that is being written: each number of 64 bits is whole, the block need not be of one moment.
pub(crate) fn bytes_of<const LEN: usize>(words: &[AtomicU64]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes
}

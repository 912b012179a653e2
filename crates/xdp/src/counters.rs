// SPDX-License-Identifier: Apache-2.0
//! The program's counters, summed over processors.

use bartizan_offload::level::PortCounters;
use bartizan_packet::slots::{CarrierLine, PortLine, SEEN_SHIFT, SlotLine};
use bartizan_packet::windows::DataEnd;
use std::sync::atomic::{AtomicU64, Ordering};

/// The time within which lines of processors count as of one time, in units of [`SEEN_SHIFT`]: of those the
/// highest number counts. A connection advances by less than half the circle of sequence numbers meanwhile
/// (at 137 Gbit/s).
const AT_ONCE: u32 = 128;

/// The progress of one side of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpProgress {
    /// The sequence number after all that it has sent.
    pub sent: u32,
    /// The sender's latest acknowledgement number.
    pub acknowledged: u32,
}

/// One side of a flow in the lines of several processors.
#[derive(Clone, Copy)]
struct SideReading {
    /// The time since it was seen, in units of [`SEEN_SHIFT`].
    age: u32,
    progress: XdpProgress,
}

impl SideReading {
    /// Merges another processor's state of the side.
    fn join(self, other: SideReading) -> SideReading {
        let (latest, earlier) = if self.age <= other.age { (self, other) } else { (other, self) };
        if earlier.age - latest.age > AT_ONCE {
            return latest;
        }
        let ahead = |a: u32, b: u32| if a.wrapping_sub(b).cast_signed() > 0 { a } else { b };
        let (a, b) = (latest.progress, earlier.progress);
        let progress =
            XdpProgress { sent: ahead(a.sent, b.sent), acknowledged: ahead(a.acknowledged, b.acknowledged) };
        SideReading { age: latest.age, progress }
    }
}

/// Counts of a flow's slot since it was cleared. Index 0: packets from the lower endpoint of the key, 1: from
/// the higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFlowCounts {
    /// Packets that left or were dropped here.
    pub packets: [u64; 2],
    /// Bytes of their frames, without the checksum of a frame.
    pub bytes: [u64; 2],
    /// The time of the latest packet, in nanoseconds of CLOCK_BOOTTIME ([`crate::boot_to_real`]), up to a
    /// millisecond early; 0 for never.
    pub last_seen: [u64; 2],
    /// The progress of each side of a TCP connection with these packets; `None` where no packet came.
    /// Without meaning for other protocols.
    pub progress: [Option<XdpProgress>; 2],
    /// The ends of a TCP connection that arrived with these packets.
    pub ends: [Option<DataEnd>; 2],
    /// Packets and bytes of those that were dropped because of their inner packet. Without meaning for TCP,
    /// which carries no packets.
    pub refused_inside: (u64, u64),
}

impl XdpFlowCounts {
    /// The sum over lines; `now` in nanoseconds of CLOCK_BOOTTIME.
    pub(crate) fn of(lines: impl Iterator<Item = [u8; SlotLine::LEN]>, now: u64) -> Self {
        let mut counts = XdpFlowCounts::default();
        let mut sides: [Option<SideReading>; 2] = [None, None];
        let now = now >> SEEN_SHIFT;
        for bytes in lines {
            let (line, carrier) = (SlotLine::read(&bytes), CarrierLine::read(&bytes));
            let of_side = |packets: u64, seen: u32, sent: u32, acknowledged: u32| {
                // A packet that came after the clock was read has age 0.
                let age = (now as u32).wrapping_sub(seen);
                let age = if age.cast_signed() < 0 { 0 } else { age };
                (packets > 0).then_some(SideReading { age, progress: XdpProgress { sent, acknowledged } })
            };
            let new = [
                of_side(line.packets_low, line.seen_low, line.sent_low, line.acknowledged_low),
                of_side(line.packets_high, line.seen_high, line.sent_high, line.acknowledged_high),
            ];
            for (side, new) in sides.iter_mut().zip(new) {
                *side = match (*side, new) {
                    (Some(side), Some(new)) => Some(side.join(new)),
                    (side, new) => side.or(new),
                };
            }
            let pairs = [line.packets_low, line.packets_high];
            counts.packets.iter_mut().zip(pairs).for_each(|(sum, part)| *sum = sum.wrapping_add(part));
            let pairs = [line.bytes_low, line.bytes_high];
            counts.bytes.iter_mut().zip(pairs).for_each(|(sum, part)| *sum = sum.wrapping_add(part));
            let (packets, bytes) = &mut counts.refused_inside;
            *packets = packets.wrapping_add(carrier.refused_packets);
            *bytes = bytes.wrapping_add(carrier.refused_bytes);
        }
        for ((seen, progress), side) in counts.last_seen.iter_mut().zip(&mut counts.progress).zip(sides) {
            if let Some(side) = side {
                *seen = now.saturating_sub(side.age.into()) << SEEN_SHIFT;
                *progress = Some(side.progress);
            }
        }
        counts
    }
}

/// Adds one processor's counts.
pub(crate) fn add_line(counters: &mut PortCounters, line: &PortLine) {
    for (sum, part) in [
        (&mut counters.frames, line.frames),
        (&mut counters.up, line.up),
        (&mut counters.up_bytes, line.up_bytes),
        (&mut counters.forwarded, line.forwarded),
        (&mut counters.forwarded_bytes, line.forwarded_bytes),
        (&mut counters.dropped, line.dropped),
        (&mut counters.dropped_bytes, line.dropped_bytes),
        (&mut counters.early, line.early),
        (&mut counters.early_bytes, line.early_bytes),
        (&mut counters.open, line.open),
        (&mut counters.open_bytes, line.open_bytes),
        (&mut counters.closed, line.closed),
        (&mut counters.closed_bytes, line.closed_bytes),
        (&mut counters.multicast, line.multicast),
        (&mut counters.broadcast, line.broadcast),
        (&mut counters.out, line.out),
        (&mut counters.out_bytes, line.out_bytes),
        (&mut counters.out_multicast, line.out_multicast),
        (&mut counters.out_broadcast, line.out_broadcast),
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
    counters.sizes.iter_mut().zip(sizes).for_each(|(sum, part)| *sum = sum.wrapping_add(part));
}

/// The bytes of a block while it may be written: each number of 64 bits is whole, but the block need not be
/// of one moment; a later number was read later.
pub(crate) fn bytes_of<const LEN: usize>(words: &[AtomicU64]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.load(Ordering::Acquire).to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 1 << SEEN_SHIFT;

    fn line(packets_high: u64, seen: u64, sent: u32, acknowledged: u32) -> SlotLine {
        SlotLine {
            packets_high,
            bytes_high: packets_high * 100,
            seen_high: (seen >> SEEN_SHIFT) as u32,
            sent_high: sent,
            acknowledged_high: acknowledged,
            ..SlotLine::default()
        }
    }

    fn sum(lines: &[SlotLine], now: u64) -> XdpFlowCounts {
        XdpFlowCounts::of(lines.iter().map(SlotLine::write), now)
    }

    #[test]
    fn numbers_of_processors_are_added_and_the_latest_counts() {
        // Far beyond the 52 days after which times of 32 bits wrap around.
        let now = 10_000_000 * UNIT * 1_000;
        let [early, late] = [now - 5_000 * UNIT, now - 1_000 * UNIT];
        for lines in [
            [line(3, early, 900, 70), line(4, late, 100, 20)],
            [line(4, late, 100, 20), line(3, early, 900, 70)],
        ] {
            let counts = sum(&lines, now);
            assert_eq!((counts.packets, counts.bytes, counts.last_seen), ([0, 7], [0, 700], [0, late]));
            let progress = XdpProgress { sent: 100, acknowledged: 20 };
            assert_eq!(counts.progress, [None, Some(progress)], "the circle was gone round");
        }
    }

    #[test]
    fn of_one_time_what_is_ahead_counts_over_the_wrap() {
        let now = 77 * UNIT;
        let lines = [line(1, now, u32::MAX - 9, 500), line(1, now - 50 * UNIT, 10, 400), line(0, 0, 0, 0)];
        let counts = sum(&lines, now);
        assert_eq!(counts.progress[1], Some(XdpProgress { sent: 10, acknowledged: 500 }));
        assert_eq!(counts.last_seen, [0, now]);
    }

    #[test]
    fn packets_that_were_dropped_for_what_they_carry_stand_where_others_have_sequence_numbers() {
        let line = CarrierLine {
            packets_low: 9,
            bytes_low: 900,
            seen_low: 70,
            refused_packets: 5,
            refused_bytes: u64::from(u32::MAX) + 7,
            ..CarrierLine::default()
        };
        let counts = XdpFlowCounts::of([line.write(), line.write()].into_iter(), 77 * UNIT);
        assert_eq!((counts.packets, counts.bytes, counts.last_seen), ([18, 0], [1_800, 0], [70 * UNIT, 0]));
        assert_eq!(counts.refused_inside, (10, 2 * (u64::from(u32::MAX) + 7)));
    }

    #[test]
    fn a_packet_since_the_clock_was_read_was_now() {
        let now = 77 * UNIT;
        assert_eq!(sum(&[line(1, now + 3 * UNIT, 1, 1)], now).last_seen, [0, now]);
    }
}

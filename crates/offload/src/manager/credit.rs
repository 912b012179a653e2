// SPDX-License-Identifier: Apache-2.0
//! What an entry has counted becomes its flow's: what is new since the last reading is credited, told of, and counted.

use super::counters::ManagerCounters;
use super::{Done, READ_EVERY};
use crate::device::{Counts, Sides};
use crate::places::Place;
use crate::stays::Stays;
use bartizan_base::{PacketDuration, Timestamp};
use bartizan_flow::FlowTable;
use std::collections::VecDeque;

/// What comes of what devices say: counters, what the data plane is to know, and flows that devices did not take.
#[derive(Default)]
pub(super) struct Ledger {
    pub counters: ManagerCounters,
    pub done: VecDeque<Done>,
    pub refused: Vec<Refused>,
}

/// A flow that a device was asked to take, and did not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// What it was to have.
    pub place: Place,
    pub why: Stays,
    /// It was not to leave meanwhile.
    pub wanted: bool,
}

/// Of each side what was not told before. How a connection ends both say together.
pub(super) fn news(told: Sides, now: Sides) -> Sides {
    let ([told_low, told_high], [low, high]) = (told, now);
    if told != now && now.iter().flatten().any(|side| side.fin.is_some()) {
        return now;
    }
    [low.filter(|_| low != told_low), high.filter(|_| high != told_high)]
}

/// Of so many packets in a time those in [`READ_EVERY`]. In a shorter time it is what came: that says little of the rest.
pub(super) fn in_a_second(packets: u64, since: PacketDuration) -> u32 {
    let every = u128::from(READ_EVERY.as_nanos());
    let packets = u128::from(packets) * every / every.max(since.as_nanos().into());
    u32::try_from(packets).unwrap_or(u32::MAX)
}

/// Of so many more packets and bytes those that were dropped for what they carry. A device counts that first: what is counted of a packet that itself is not waits for the next time.
pub(super) fn refused_of(now: (u64, u64), had: (u64, u64), more: (u64, u64)) -> (u64, u64) {
    (now.0.saturating_sub(had.0).min(more.0), now.1.saturating_sub(had.1).min(more.1))
}

/// Credits what an entry has counted since the last time.
pub(super) fn credit<E: Default>(
    table: &mut FlowTable<E>,
    place: &mut Place,
    counts: &Counts,
    now: Timestamp,
    ledger: &mut Ledger,
) {
    let Place { sunk, action, directions, .. } = *place;
    let before = core::mem::replace(&mut place.credited, *counts);
    let (told, told_windows) = (before.sides, before.windows);
    let refused_before = before.refused_inside;
    let (mut packets, mut bytes, mut known) = (0u64, 0u64, true);
    let ends = counts.packets.iter().zip(&counts.bytes).zip(&counts.last_seen);
    let before = before.packets.iter().zip(&before.bytes);
    for (direction, (((now_packets, now_bytes), seen), (had_packets, had_bytes))) in
        directions.into_iter().zip(ends.zip(before))
    {
        let more = now_packets.saturating_sub(*had_packets);
        let more_bytes = now_bytes.saturating_sub(*had_bytes);
        // A device that is writing may have counted a packet and not yet its bytes, or the other way round: each is credited when it is seen.
        if more > 0 || more_bytes > 0 {
            known &= table.credit(sunk, direction, more, more_bytes, *seen);
            packets += more;
            bytes += more_bytes;
        }
    }
    let since = now.since(core::mem::replace(&mut place.read_at, now));
    place.recent = Some(in_a_second(packets, since));
    if packets == 0 {
        // A packet that is not counted yet may have brought some already: it is told of with that.
        (place.credited.sides, place.credited.windows) = (told, told_windows);
        place.credited.refused_inside = refused_before;
        if bytes == 0 {
            return;
        }
    }
    let refused_inside = match packets {
        0 => (0, 0),
        _ => refused_of(counts.refused_inside, refused_before, (packets, bytes)),
    };
    place.credited.refused_inside =
        (refused_before.0 + refused_inside.0, refused_before.1 + refused_inside.1);
    ledger.counters.handled(action, packets - refused_inside.0, bytes - refused_inside.1);
    ledger.counters.around.add(refused_inside.0, refused_inside.1);
    if known {
        let sides = news(told, place.credited.sides);
        let windows = place.credited.windows.filter(|windows| told_windows != Some(*windows));
        ledger.done.push_back(Done::Counted {
            id: sunk.flow(),
            action,
            packets,
            bytes,
            refused_inside,
            sides,
            windows,
        });
    }
}

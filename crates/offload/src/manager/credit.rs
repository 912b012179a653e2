// SPDX-License-Identifier: Apache-2.0
//! Crediting of an entry's counts to its flow: the difference to the last reading is credited, reported, and
//! counted.

use super::counters::{ManagerCounters, PacketTotals};
use super::{Done, READ_EVERY};
use crate::device::{Counts, Sides};
use crate::places::DeviceEntry;
use crate::stays::OffloadDenied;
use bartizan_base::{PacketDuration, Timestamp};
use bartizan_flow::FlowTable;
use std::collections::VecDeque;

/// The results of devices' reports: counters, messages to the data plane, and flows that devices refused.
#[derive(Default)]
pub(super) struct CreditLedger {
    pub counters: ManagerCounters,
    pub done: VecDeque<Done>,
    pub refused: Vec<OfferRefusal>,
}

/// A flow that a device was requested to take, and refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfferRefusal {
    /// The place assigned to it.
    pub place: DeviceEntry,
    pub why: OffloadDenied,
    /// Whether the flow should still be below.
    pub wanted: bool,
}

/// The progress of each side that was not reported before. The end of a connection is reported for both sides
/// together.
pub(super) fn new_progress(told: Sides, now: Sides) -> Sides {
    let ([told_low, told_high], [low, high]) = (told, now);
    if told != now && now.iter().flatten().any(|side| side.fin.is_some()) {
        return now;
    }
    [low.filter(|_| low != told_low), high.filter(|_| high != told_high)]
}

/// Scales so many packets in a time to [`READ_EVERY`]. A shorter time is not scaled up: its packets say
/// little about the rest.
pub(super) fn in_a_second(packets: u64, since: PacketDuration) -> u32 {
    let every = u128::from(READ_EVERY.as_nanos());
    let packets = u128::from(packets) * every / every.max(since.as_nanos().into());
    u32::try_from(packets).unwrap_or(u32::MAX)
}

/// The newly dropped inner packets and bytes, at most as many as `more`. A device counts these first: if the
/// packet itself is not counted yet, its part waits for the next reading.
pub(super) fn refused_of(
    now: impl Into<PacketTotals>,
    had: impl Into<PacketTotals>,
    more: impl Into<PacketTotals>,
) -> (u64, u64) {
    let (now, had, more) = (now.into(), had.into(), more.into());
    let packets = now.packets.saturating_sub(had.packets).min(more.packets);
    (packets, now.bytes.saturating_sub(had.bytes).min(more.bytes))
}

/// Credits the counts of an entry since the last reading.
pub(super) fn credit<E: Default>(
    table: &mut FlowTable<E>,
    place: &mut DeviceEntry,
    counts: &Counts,
    now: Timestamp,
    ledger: &mut CreditLedger,
) {
    let DeviceEntry { sunk, action, directions, .. } = *place;
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
        // While a device writes, a packet may be counted before its bytes, or the other way round: each is
        // credited when it is read.
        if more > 0 || more_bytes > 0 {
            known &= table.credit(sunk, direction, more, more_bytes, *seen);
            packets += more;
            bytes += more_bytes;
        }
    }
    let since = now.since(core::mem::replace(&mut place.read_at, now));
    place.recent = Some(in_a_second(packets, since));
    if packets == 0 {
        // A packet that is not counted yet may have advanced them already: they are reported with its count.
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
        let sides = new_progress(told, place.credited.sides);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Action;
    use bartizan_base::{Direction, FlowId, Generation, Level};
    use bartizan_flow::{FlowHasher, FlowKey, FlowScope, FlowTableConfig, Insert};
    use core::net::{IpAddr, Ipv4Addr};

    /// A table with a flow, and the time.
    fn flow() -> (FlowTable<()>, FlowId, Timestamp) {
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let key = FlowKey::ported(&FlowScope::default(), 6, (address(1), 1_000), (address(2), 80));
        let mut table = FlowTable::new(&FlowTableConfig::new(64, FlowHasher::new([1, 2]))).unwrap();
        let now = Timestamp::from_parts(100, 0);
        let Insert::Created { id } = table.insert(&key, now) else { panic!("the table has room") };
        (table, id, now)
    }

    /// A flow's place at the first level.
    fn place(table: &mut FlowTable<()>, id: FlowId, now: Timestamp) -> DeviceEntry {
        let generation = Generation(1);
        DeviceEntry {
            sunk: table.sink(id, Level::Xdp, generation, now).unwrap(),
            action: Action::Forward,
            generation,
            directions: [Direction::ToServer, Direction::ToClient],
            windows: None,
            credited: Counts::default(),
            read_at: now,
            recent: None,
        }
    }

    #[test]
    fn what_an_entry_handles_is_told_for_a_second_however_late_it_is_read() {
        let (mut table, id, now) = flow();
        let (mut place, mut ledger) = (place(&mut table, id, now), CreditLedger::default());
        let counts = Counts { packets: [40, 0], bytes: [4_000, 0], ..Counts::default() };
        credit(&mut table, &mut place, &counts, now + PacketDuration::from_secs(10), &mut ledger);
        assert_eq!(place.recent, Some(4), "40 in 10 s");
        credit(&mut table, &mut place, &counts, now + PacketDuration::from_secs(11), &mut ledger);
        assert_eq!(place.recent, Some(0));
        assert_eq!(in_a_second(7, PacketDuration::ZERO), 7);
        assert_eq!(in_a_second(u64::MAX, PacketDuration::from_secs(1)), u32::MAX);
    }

    /// A device counts a drop because of the inner packet before the packet itself: a reading in between
    /// defers it, so that in the end each counts once.
    #[test]
    fn what_is_dropped_for_what_it_carries_is_charged_with_its_packet() {
        let readings = [((0, 0), (1, 100)), ((2, 300), (2, 300)), ((2, 300), (2, 300)), ((3, 400), (4, 500))];
        let (mut packets_had, mut charged, mut others) = ((0, 0), (0, 0), (0, 0));
        for (packets, refused) in readings {
            let more = (packets.0 - packets_had.0, packets.1 - packets_had.1);
            let of = refused_of(refused, charged, more);
            assert!(of.0 <= more.0 && of.1 <= more.1);
            charged = (charged.0 + of.0, charged.1 + of.1);
            others = (others.0 + more.0 - of.0, others.1 + more.1 - of.1);
            packets_had = packets;
        }
        assert_eq!((charged, others), ((3, 400), (0, 0)));
    }

    /// A device is read while it writes: packets and bytes of one more packet appear one after the other, in
    /// either order. Nothing of it is lost, even if no other packet follows.
    #[test]
    fn a_packet_that_is_read_in_halves_is_credited_whole() {
        let halves = [((1, 0), (1, 100)), ((0, 100), (1, 100))];
        for (first, second) in halves {
            let (mut table, id, now) = flow();
            let mut place = place(&mut table, id, now);
            let mut ledger = CreditLedger::default();
            for (packets, bytes) in [first, second, second] {
                let counts = Counts { packets: [packets, 0], bytes: [bytes, 0], ..Counts::default() };
                credit(&mut table, &mut place, &counts, now, &mut ledger);
            }
            let entry = table.get(id).unwrap();
            assert_eq!((entry.packets.to_server, entry.bytes.to_server), (1, 100), "{first:?}");
            let (mut packets, mut bytes) = (0, 0);
            for done in ledger.done {
                if let Done::Counted { packets: more, bytes: more_bytes, .. } = done {
                    (packets, bytes) = (packets + more, bytes + more_bytes);
                }
            }
            assert_eq!((packets, bytes), (1, 100), "{first:?}");
        }
    }
}

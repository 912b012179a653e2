// SPDX-License-Identifier: Apache-2.0
//! The program's tables, as the host writes and reads them.
//!
//! A flow has a slot, and a place under its key in the table of flows. The host adds it in this order:
//! clear the slot, write its control, insert the key; and removes it in this one
//! ([0013](../../../docs/design/0013-levels.md)): withdraw the control (packets go up, uncounted), let
//! running programs end, read the counters, remove the key; then the slot is used again.
//!
//! A program that has found the old flow's place, and is delayed between two instructions (by a hypervisor)
//! until the slot is used again, compares the key of the new flow and passes its packet up; only one that
//! is delayed after the comparison would see the new flow's slot, for one packet. By then the old flow's
//! packets have gone up for the whole time of grace.

use crate::counters::{XdpFlowCounts, add_line, bytes_of};
use crate::early::EarlyTables;
use crate::error::FlowInsertError;
use crate::index::{KEY_WORDS, SlotIndex};
use crate::memory::Words;
use crate::sys::{self, Map, MapUpdateMode};
use bartizan_base::Reason;
use bartizan_offload::level::PortCounters;
use bartizan_packet::slots::{
    ControlFlags, Heartbeat, LostLine, PORTS, PortLine, SlotAction, SlotControl, SlotLine, UDP_PORT_BLOCKS,
};
use bartizan_packet::windows::{Line, WINDOW_WORDS, Windows};
use bartizan_packet::{DecoderConfig, TunnelPorts};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// 64-bit numbers of a slot's line and of a port's.
pub(crate) const SLOT_WORDS: usize = SlotLine::LEN / 8;
pub(crate) const PORT_WORDS: usize = PortLine::LEN / 8;
pub(crate) const LOST_WORDS: usize = LostLine::LEN / 8;
/// 64-bit numbers of a worker's sign of life.
pub(crate) const HEARTBEAT_WORDS: usize = Heartbeat::LEN / 8;

/// Last sign of life of a worker that has given none: it never counts as too long ago.
pub(crate) const NOT_BEGUN: u64 = i64::MAX.cast_unsigned();

/// The word of a key, and its bits, that hold the tenant.
const TENANT: (usize, u64) = (5, 0xffff << 32);

/// The identity of a flow, as `FlowKey::words` of crate `flow` has it. The tenant does not count: it follows
/// from the rest.
pub type Key = [u64; KEY_WORDS];

/// The handling of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpFlowAction {
    /// Packets leave by the port across the link.
    Forward,
    /// Packets leave by a port of this number. Without such a port they go up.
    Redirect(u8),
    /// Packets are dropped, for a reason.
    Drop(Reason),
    /// Packets of the higher endpoint of the key (`true`) or of the lower one are dropped, for a reason;
    /// the others go up.
    DropFrom(Reason, bool),
    /// Segments of TCP that plainly go on with their connection leave by the port across the link
    /// ([`Tables::set_windows`]); others go up.
    Compare,
}

/// The control of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSlotControl {
    /// The handling of its packets.
    pub action: XdpFlowAction,
    /// Low 32 bits of the generation that decided: while the level is at another one, packets go up. They do
    /// not wrap around while an entry lives (docs/design/0018).
    pub generation: u32,
}

impl FlowSlotControl {
    fn word(self) -> u64 {
        let (action, reason, egress) = match self.action {
            XdpFlowAction::Forward => (SlotAction::Forward, 0, 0),
            XdpFlowAction::Redirect(port) => (SlotAction::Redirect, 0, port),
            XdpFlowAction::Drop(reason) => (SlotAction::Drop, reason as u8, 0),
            XdpFlowAction::DropFrom(reason, true) => (SlotAction::DropHigh, reason as u8, 0),
            XdpFlowAction::DropFrom(reason, false) => (SlotAction::DropLow, reason as u8, 0),
            XdpFlowAction::Compare => (SlotAction::Compare, 0, 0),
        };
        let control = SlotControl {
            flags: ControlFlags::VALID.bits(),
            action: action as u8,
            generation: self.generation,
            reason,
            egress,
        };
        u64::from_le_bytes(control.write())
    }
}

/// The tables. Several threads may call all methods at once; they have to agree on the use of slots.
#[derive(Debug)]
pub struct Tables {
    pub(crate) buckets: Words,
    /// The seed of hashes of keys.
    pub(crate) seed: u64,
    pub(crate) udp_ports: Map,
    /// Each slot's key and its lines.
    pub(crate) slots: Words,
    pub(crate) windows: Words,
    pub(crate) counts: Words,
    pub(crate) state: Words,
    pub(crate) heartbeats: Words,
    pub(crate) early: Option<EarlyTables>,
    /// The frames lost by ports, by port and processor.
    pub(crate) lost: Words,
    /// The probe frames among those, by port.
    pub(crate) tried: [AtomicU64; PORTS as usize],
    pub(crate) slot_count: u32,
    pub(crate) processors: u32,
}

/// 64-bit numbers from one slot to the next: the line of its key, and one for each processor.
pub(crate) const fn words_of_slot(processors: u32) -> usize {
    SLOT_WORDS * (1 + processors as usize)
}

/// A key without its tenant.
fn without_tenant(key: &Key) -> Key {
    let mut key = *key;
    if let Some(word) = key.get_mut(TENANT.0) {
        *word &= !TENANT.1;
    }
    key
}

impl Tables {
    /// The number of slots; they are numbered from 0.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slot_count
    }

    /// Lines of a slot, one for each processor.
    fn lines(&self, slot: u32) -> Option<impl Iterator<Item = &[AtomicU64]>> {
        let words = words_of_slot(self.processors);
        let begin = (slot as usize).checked_mul(words)?;
        let lines = self.slots.get().get(begin..)?.get(..words)?;
        (slot < self.slot_count).then(|| lines.chunks_exact(SLOT_WORDS).skip(1))
    }

    fn index(&self) -> SlotIndex<'_> {
        let slot_words = words_of_slot(self.processors);
        SlotIndex { buckets: self.buckets.get(), slots: self.slots.get(), slot_words, seed: self.seed }
    }

    /// Adds a flow to the table. Its packets are looked up from now on. No other flow may have its slot.
    ///
    /// # Errors
    /// There is no room for it, a flow with this key is present, there is no such slot.
    pub fn insert(&self, key: &Key, slot: u32) -> Result<(), FlowInsertError> {
        if slot >= self.slot_count {
            return Err(FlowInsertError::NoSlot { slot, slots: self.slot_count });
        }
        self.index().insert(&without_tenant(key), slot)
    }

    /// Removes a flow from the table; `false`: it was not in it.
    pub fn remove(&self, key: &Key) -> bool {
        self.index().remove(&without_tenant(key))
    }

    /// Sets the handling of the packets of a slot's flow from now on. `false`: there is no such slot.
    pub fn set_control(&self, slot: u32, control: FlowSlotControl) -> bool {
        self.write_control(slot, control.word())
    }

    /// Withdraws the control: packets go up and are not counted here. Programs that have read it before end
    /// within the time of grace. `false`: there is no such slot.
    pub fn mark(&self, slot: u32) -> bool {
        self.write_control(slot, 0)
    }

    fn write_control(&self, slot: u32, word: u64) -> bool {
        let Some(lines) = self.lines(slot) else { return false };
        for control in lines.filter_map(<[_]>::first) {
            control.store(word, Ordering::Release);
        }
        true
    }

    /// Resets a slot: no control, counters zero. Only when no packet can find it. `false`: there is no such
    /// slot.
    pub fn clear(&self, slot: u32) -> bool {
        let (Some(lines), Some(shared)) = (self.lines(slot), self.line(slot)) else { return false };
        lines.flatten().for_each(|word| word.store(0, Ordering::Relaxed));
        shared.clear_ends();
        true
    }

    /// The counts of a slot since it was cleared, over all processors. `now`: a recent [`boot_time`].
    /// `None`: there is no such slot.
    #[must_use]
    pub fn counts(&self, slot: u32, now: u64) -> Option<XdpFlowCounts> {
        let lines = self.lines(slot)?.map(bytes_of);
        let counts = XdpFlowCounts::of(lines, now);
        // Read after the lines: a counted packet has its end noted.
        Some(XdpFlowCounts { ends: self.line(slot)?.ends(), ..counts })
    }

    fn line(&self, slot: u32) -> Option<Line<'_>> {
        let line = self.windows.get().chunks_exact(WINDOW_WORDS).nth(slot as usize)?;
        Line::of(line).filter(|_| slot < self.slot_count)
    }

    /// Writes the TCP window state of a connection, which its segments are compared with
    /// ([`XdpFlowAction::Compare`]). Only when no packet can find the slot. `false`: the slot does not exist.
    pub fn set_windows(&self, slot: u32, windows: &Windows) -> bool {
        self.line(slot).map(|line| line.write(windows)).is_some()
    }

    /// The TCP window state of a connection, as its segments have advanced it. `None`: the slot does not
    /// exist.
    #[must_use]
    pub fn windows(&self, slot: u32) -> Option<Windows> {
        self.line(slot).map(Line::read)
    }

    /// Advances the TCP window state of a connection, after the host has judged a segment. `false`: the slot
    /// does not exist.
    pub fn publish_windows(&self, slot: u32, windows: &Windows) -> bool {
        self.line(slot).map(|line| line.publish(windows)).is_some()
    }

    /// Enters a generation, unless the level is at a later one: packets of flows that another generation
    /// decided go up. The level never returns to an older generation, since workers enter generations one by
    /// one: decisions of a late worker's generation must not act again.
    pub fn enter_generation(&self, generation: u64) {
        if let Some(word) = self.state.get().first() {
            word.fetch_max(generation, Ordering::Release);
        }
    }

    /// The generation of the level: entries of others do not act. 0: no worker has entered one.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.state.get().first().map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// The early tables, which refuse packets without a flow. `None`: none are refused.
    #[must_use]
    pub const fn early(&self) -> Option<&EarlyTables> {
        self.early.as_ref()
    }

    /// The counters of a port. `None`: the port does not exist.
    #[must_use]
    pub fn port_counters(&self, index: u8) -> Option<PortCounters> {
        let processors = self.processors as usize;
        let lines = self.counts.get().chunks_exact(processors * PORT_WORDS).nth(index.into())?;
        let mut sum = PortCounters::default();
        lines.chunks_exact(PORT_WORDS).for_each(|line| add_line(&mut sum, &PortLine::read(&bytes_of(line))));
        let lost = self.lost.get().chunks_exact(processors * LOST_WORDS).nth(index.into())?;
        let frames = lost.chunks_exact(LOST_WORDS).map(|line| LostLine::read(&bytes_of(line)).frames);
        let tried = self.tried.get(usize::from(index)).map_or(0, |tried| tried.load(Ordering::Acquire));
        sum.lost = frames.fold(0, u64::wrapping_add).saturating_sub(tried);
        (u32::from(index) < PORTS).then_some(sum)
    }

    fn heartbeat(&self, worker: u32) -> Option<&AtomicU64> {
        self.heartbeats.get().chunks_exact(HEARTBEAT_WORDS).nth(worker as usize)?.first()
    }

    /// Writes a worker's heartbeat, by its number among those of all links: the worker handles its frames at
    /// `now`, by [`monotonic_time`]. `false`: the worker does not exist.
    pub fn beat(&self, worker: u32, now: u64) -> bool {
        self.heartbeat(worker).map(|seen| seen.store(now, Ordering::Release)).is_some()
    }

    /// The time of a worker's last sign of life. `None`: there is no such worker, or it has not begun.
    #[must_use]
    pub fn last_beat(&self, worker: u32) -> Option<u64> {
        let seen = self.heartbeat(worker)?.load(Ordering::Acquire);
        (seen != 0 && seen != NOT_BEGUN).then_some(seen)
    }

    /// Sets the UDP datagrams that may carry tunnels: the program decodes them, or they go up; with Teredo,
    /// those that can be Teredo go up.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_tunnel_ports(&self, config: &DecoderConfig) -> io::Result<()> {
        for block in 0..UDP_PORT_BLOCKS {
            let of = |tunnel: TunnelPorts| {
                let ports = (0..64).filter(|bit| tunnel.to((block * 64 + bit) as u16));
                ports.fold(0_u64, |bits, bit| bits | 1 << bit)
            };
            let DecoderConfig { teredo, vxlan, geneve, gtp, .. } = *config;
            let value: Vec<u8> = [teredo, vxlan, geneve, gtp]
                .into_iter()
                .flat_map(|tunnel| of(tunnel).to_ne_bytes())
                .collect();
            self.udp_ports.update(&block.to_ne_bytes(), &value, MapUpdateMode::Any)?;
        }
        Ok(())
    }
}

/// The difference from the clock of [`XdpFlowCounts::last_seen`] to the clock by which packets of live ports
/// are stamped (CLOCK_REALTIME), in nanoseconds.
///
/// The program counts by CLOCK_BOOTTIME since it can read no clock that can be set: CLOCK_BOOTTIME goes on
/// while the machine sleeps, as CLOCK_REALTIME does, so one difference, read now, holds for all times since
/// the clock was last set.
#[must_use]
pub fn boot_to_real() -> i64 {
    sys::boot_to_real()
}

/// The clock of the program (CLOCK_BOOTTIME), in nanoseconds.
#[must_use]
pub fn boot_time() -> u64 {
    sys::boot_time()
}

/// The clock of signs of life (CLOCK_MONOTONIC), in nanoseconds. It stops while the machine sleeps, so that
/// no worker counts as silent then.
#[must_use]
pub fn monotonic_time() -> u64 {
    sys::monotonic_time()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_is_the_word_that_the_program_takes_apart() {
        let word =
            FlowSlotControl { action: XdpFlowAction::Drop(Reason::IdsRule), generation: 0x8765_4321 }.word();
        assert_eq!(word, 0x01 | 0x02 << 8 | (Reason::IdsRule as u64) << 24 | 0x8765_4321 << 32);
        let word = FlowSlotControl { action: XdpFlowAction::Redirect(63), generation: 1 }.word();
        assert_eq!(word, 0x01 | 0x01 << 8 | 63 << 16 | 1 << 32);
    }

    #[test]
    fn keys_have_no_tenant() {
        let expected: Key =
            [u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX, 0xffff_0000_ffff_ffff, u64::MAX];
        assert_eq!(without_tenant(&[u64::MAX; 7]), expected);
    }
}

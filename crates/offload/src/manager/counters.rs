// SPDX-License-Identifier: Apache-2.0
//! The counters of a flow manager, and the state of each of its levels.

use crate::device::{Action, Capabilities};
use crate::stays::OffloadDenied;
use bartizan_base::Reason;

/// Packets with their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketTotals {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

impl From<(u64, u64)> for PacketTotals {
    fn from((packets, bytes): (u64, u64)) -> Self {
        PacketTotals { packets, bytes }
    }
}

impl PacketTotals {
    pub(super) const fn add(&mut self, packets: u64, bytes: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The counters of a flow manager. All only grow, except `entries`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerCounters {
    /// Entries of all devices in use.
    pub entries: u64,
    /// Flows offered that a device accepted.
    pub offered: u64,
    /// Flows offered to a later device because earlier ones refused them.
    pub spilled: u64,
    /// Entries that went on in place after another generation decided the same.
    pub renewed: u64,
    /// Refused offers, by reason.
    pub stayed: [u64; OffloadDenied::ALL.len()],
    /// Flows that came up because another generation began.
    pub outdated: u64,
    /// Flows that returned to the host because one of their functions leaves or restarts.
    pub left: u64,
    /// Flows that came up to make room for busier ones.
    pub gave_way: u64,
    /// The device's reports about entries that no longer exist.
    pub strays: u64,
    /// Times that packets passed without the host, since it gave no sign of life.
    pub missed: u64,
    /// Readings of counts that were left out, since the time was too short for all.
    pub unread: u64,
    /// Packets that the device forwarded.
    pub forwarded: PacketTotals,
    /// Packets that the device dropped, by reason; those without a flow as well.
    pub dropped: [PacketTotals; Reason::COUNT],
    /// Packets among those that had no flow.
    pub early: PacketTotals,
    /// Packets that the device dropped because of their inner packet, which is among `dropped`: both are of
    /// the same frames.
    pub around: PacketTotals,
}

impl Default for ManagerCounters {
    fn default() -> Self {
        ManagerCounters {
            entries: 0,
            offered: 0,
            spilled: 0,
            renewed: 0,
            stayed: [0; OffloadDenied::ALL.len()],
            outdated: 0,
            left: 0,
            gave_way: 0,
            strays: 0,
            missed: 0,
            unread: 0,
            forwarded: PacketTotals::default(),
            dropped: [PacketTotals::default(); Reason::COUNT],
            early: PacketTotals::default(),
            around: PacketTotals::default(),
        }
    }
}

impl ManagerCounters {
    pub(super) fn stays(&mut self, why: OffloadDenied) {
        if let Some(count) = self.stayed.get_mut(why as usize) {
            *count += 1;
        }
    }

    pub(super) fn handled(&mut self, action: Action, packets: u64, bytes: u64) {
        match action {
            Action::Forward | Action::Redirect(_) => self.forwarded.add(packets, bytes),
            Action::Drop(reason) | Action::DropFrom(reason, _) => {
                if let Some(dropped) = self.dropped.get_mut(reason as usize) {
                    dropped.add(packets, bytes);
                }
            }
        }
    }
}

/// One level: its device's capabilities, and the outcomes of the flows offered to it.
#[derive(Clone, Copy, Debug)]
pub struct LevelFacts<'m> {
    /// The level's capabilities.
    pub capabilities: &'m Capabilities,
    /// Entries in use.
    pub entries: u64,
    /// Flows offered to it.
    pub offered: u64,
    /// Flows among those that it refused, by reason.
    pub refused: &'m [u64; OffloadDenied::ALL.len()],
}

// SPDX-License-Identifier: Apache-2.0
//! The places of a device's entries: the free ones, the flows of the others, and their credited counts.

use crate::device::{Action, Counts};
use bartizan_base::{Direction, Generation, Timestamp};
use bartizan_flow::level::SunkId;
use bartizan_packet::windows::Windows;
use std::collections::HashMap;

/// The host's state of an entry of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceEntry {
    pub sunk: SunkId,
    pub action: Action,
    pub generation: Generation,
    /// The directions of packets of the lower and the higher endpoint, as the flow was seen when it sank.
    pub directions: [Direction; 2],
    /// The TCP window state that the flow's segments are compared with, as the host knows it; the entry
    /// begins with it.
    pub windows: Option<Windows>,
    /// The counts already credited.
    pub credited: Counts,
    /// The time when its counts were read last, or the entry was requested.
    pub read_at: Timestamp,
    /// Packets that it handled in a second, by the latest two readings; `None` before the first one.
    pub recent: Option<u32>,
}

/// See the module. Memory is kept for as many as were ever in use at once; the one that became free last is
/// used first, since its memory is in the cache.
#[derive(Default)]
pub(crate) struct DeviceEntries {
    places: Vec<Option<DeviceEntry>>,
    free: Vec<u32>,
    by_stay: HashMap<SunkId, u32, foldhash::fast::RandomState>,
    most: u32,
}

impl DeviceEntries {
    /// A table of at most so many places.
    pub(crate) fn new(most: u32) -> Self {
        DeviceEntries { most, ..Self::default() }
    }

    /// Reserves a place for one more entry. `None`: all are taken.
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let next = u32::try_from(self.places.len()).ok().filter(|next| *next < self.most)?;
        self.places.push(None);
        Some(next)
    }

    /// Returns a reserved place that is not needed.
    pub(crate) fn release(&mut self, place: u32) {
        self.free.push(place);
    }

    /// Fills a reserved place.
    pub(crate) fn take(&mut self, at: u32, place: DeviceEntry) {
        if let Some(slot) = self.places.get_mut(at as usize) {
            self.by_stay.insert(place.sunk, at);
            *slot = Some(place);
        }
    }

    /// Frees a place whose entry is gone.
    pub(crate) fn clear(&mut self, at: u32) {
        if let Some(place) = self.places.get_mut(at as usize).and_then(Option::take) {
            self.by_stay.remove(&place.sunk);
            self.free.push(at);
        }
    }

    pub(crate) fn get(&self, at: u32) -> Option<&DeviceEntry> {
        self.places.get(at as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut DeviceEntry> {
        self.places.get_mut(at as usize)?.as_mut()
    }

    pub(crate) fn of(&self, sunk: SunkId) -> Option<u32> {
        self.by_stay.get(&sunk).copied()
    }

    /// Places in use.
    pub(crate) fn used(&self) -> usize {
        self.by_stay.len()
    }

    /// The most places that were ever in use at once.
    pub(crate) fn known(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Bytes of memory when all places are in use, with the spare room of tables that grow by doubling.
    pub(crate) fn bytes_max(&self) -> usize {
        let each = size_of::<Option<DeviceEntry>>() + size_of::<u32>() + size_of::<(SunkId, u32)>() + 1;
        2 * each * self.most as usize
    }

    /// Bytes of memory, an upper bound.
    pub(crate) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Option<DeviceEntry>>()
            + self.free.capacity() * size_of::<u32>()
            + self.by_stay.capacity() * (size_of::<(SunkId, u32)>() + 1)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Moves of flows from one worker's table to another's: a flow leaves one table and enters the other with all
//! its state. The flow has neither ended nor begun: neither is counted, only `active` moves from table to
//! table.
//!
//! * *Timers.* The time of a flow's timeout depends on its last use, in any table. Its timer moves along as
//!   armed: a flow ends at the first check after its timeout, whose time depends on earlier firings of the
//!   timer.
//! * *Order.* [`FlowEntry::serial`] is the order of one table: a flow that moves in is the last.
//! * *Room.* A table may keep the room of a flow that it gives away ([`FlowTable::take`]), so that the flow
//!   can return even if the table fills: kept room counts as used. A table that receives a flow has room for
//!   it, or returns the flow ([`FlowTable::take_in`]); no flow is evicted.
//! * *Levels.* A flow that was ever offloaded stays: levels name it by its table's entry.

use super::FlowTable;
use crate::entry::FlowEntry;
use crate::key::FlowKey;
use crate::level::Step;
use crate::wheel::Tick;
use bartizan_base::FlowId;

/// A flow between two tables.
#[derive(Debug)]
#[must_use = "dropping it loses a flow that has not ended"]
pub struct Moved<E> {
    entry: FlowEntry<E>,
    /// Time at which its timer fires, if armed.
    tick: Option<Tick>,
}

impl<E> Moved<E> {
    /// The key of the flow.
    #[must_use]
    pub const fn key(&self) -> &FlowKey {
        self.entry.key()
    }

    /// The flow's state.
    #[must_use]
    pub const fn entry(&self) -> &FlowEntry<E> {
        &self.entry
    }

    /// The flow's state, to remove the amounts that a worker counts.
    pub const fn entry_mut(&mut self) -> &mut FlowEntry<E> {
        &mut self.entry
    }
}

/// The reason why a table does not release a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// The flow does not exist.
    #[error("move: there is no such flow; choose a flow of the table")]
    NoFlow,
    /// A level below the host has the flow, or had it.
    #[error(
        "move: levels below the host refer to the flow by its place in the table; it stays there until it ends"
    )]
    Below,
}

impl<E: Default> FlowTable<E> {
    /// Removes a flow, for another table. `keeps_room`: the flow may return ([`FlowTable::take_back`]), and
    /// until [`FlowTable::release_room`] newcomers do not get its room.
    ///
    /// # Errors The flow does not exist, or may not be moved.
    pub fn take(&mut self, id: FlowId, keeps_room: bool) -> Result<Moved<E>, TakeError> {
        let entry = self.get_mut(id).ok_or(TakeError::NoFlow)?;
        if entry.step != Step::Host {
            return Err(TakeError::Below);
        }
        let class = super::class_of(entry);
        let gone = FlowEntry { ext: E::default(), serial: 0, ..*entry };
        let entry = core::mem::replace(entry, gone);
        let armed = self.links.get(id.0 as usize).filter(|link| link.is_armed());
        let tick = armed.map(|link| link.tick());
        if let Some(wheel) = self.wheels.get_mut(class) {
            wheel.disarm(&mut self.links, id.0);
        }
        self.index.remove(entry.hash, id.0);
        self.free.push(id.0);
        self.counters.active = self.counters.active.saturating_sub(1);
        self.kept_room += u32::from(keeps_room);
        Ok(Moved { entry, tick })
    }

    /// Adds a flow of another table.
    ///
    /// # Errors The table is full or has a flow of this key: returns the flow unchanged.
    #[allow(clippy::result_large_err)] // It is the flow itself, which must not be lost.
    pub fn take_in(&mut self, moved: Moved<E>) -> Result<FlowId, Moved<E>> {
        let Moved { mut entry, tick } = moved;
        entry.hash = self.hash(&entry.key);
        let is_it = |id| self.entries.get(id as usize).is_some_and(|e: &FlowEntry<E>| e.key == entry.key);
        if self.is_full() || self.index.find(entry.hash, is_it).is_some() {
            return Err(Moved { entry, tick });
        }
        let id = self.allocate(entry, true).map_err(|entry| Moved { entry, tick })?;
        if let Some(tick) = tick {
            self.arm_at(id.0, tick);
        }
        Ok(id)
    }

    /// Adds a flow whose room was kept.
    ///
    /// # Errors As [`FlowTable::take_in`]; impossible if [`FlowTable::take`] kept the room and no flow of the
    /// key was made since.
    #[allow(clippy::result_large_err)] // As above.
    pub fn take_back(&mut self, moved: Moved<E>) -> Result<FlowId, Moved<E>> {
        self.release_room();
        self.take_in(moved)
    }

    /// Releases the room kept for a flow that does not return: it ended elsewhere.
    pub const fn release_room(&mut self) {
        self.kept_room = self.kept_room.saturating_sub(1);
    }

    /// Number of flows whose room is kept.
    #[must_use]
    pub const fn kept_room(&self) -> u32 {
        self.kept_room
    }
}

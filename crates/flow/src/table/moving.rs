// SPDX-License-Identifier: Apache-2.0
//! Flows that go from one worker's table to another's, whole: a flow is taken out of the one and put into the
//! other with all that is kept of it. It has neither ended nor begun: no end is counted, no creation, only
//! `active` goes from table to table.
//!
//! * *Timers.* A flow is due by when it was last used, whichever table it stands in. Its timer goes along as
//!   it was armed: a flow ends at the first look after it is due, and when that is depends on when its timer
//!   fires for nothing before.
//! * *Order.* [`FlowEntry::serial`] is the order of one table: a flow that comes has come last.
//! * *Room.* A table may keep the room of a flow that it gives away ([`FlowTable::take`]), so that the flow
//!   can come back whatever has come meanwhile: what is kept counts as taken. A table that gets a flow has
//!   room for it, or gives it back ([`FlowTable::take_in`]); nobody is evicted.
//! * *Levels.* A flow that ever sank stays: levels name it by its table's entry.

use super::FlowTable;
use crate::entry::FlowEntry;
use crate::key::FlowKey;
use crate::level::Step;
use crate::wheel::Tick;
use bartizan_base::FlowId;

/// A flow between two tables.
#[derive(Debug)]
#[must_use = "who lets go of it loses a flow that has not ended"]
pub struct Moved<E> {
    entry: FlowEntry<E>,
    /// When its timer is to fire, if it was armed.
    tick: Option<Tick>,
}

impl<E> Moved<E> {
    /// Its identity.
    #[must_use]
    pub const fn key(&self) -> &FlowKey {
        self.entry.key()
    }

    /// What is kept of it.
    #[must_use]
    pub const fn entry(&self) -> &FlowEntry<E> {
        &self.entry
    }

    /// The same, to take what a worker counts out of it.
    pub const fn entry_mut(&mut self) -> &mut FlowEntry<E> {
        &mut self.entry
    }
}

/// Why a table does not give a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// There is no such flow.
    #[error("move: there is no such flow; choose among the flows of the table")]
    NoFlow,
    /// It is at a level below the host, or was.
    #[error(
        "move: levels below the host name the flow by its place in the table; it stays there until it ends"
    )]
    Below,
}

impl<E: Default> FlowTable<E> {
    /// Takes a flow out, for another table. `keeps_room`: the flow may come back ([`FlowTable::take_back`]),
    /// and until [`FlowTable::let_room_go`] its room is no newcomer's.
    ///
    /// # Errors
    /// There is no such flow, or it is not to be moved.
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

    /// Puts a flow of another table in.
    ///
    /// # Errors
    /// The table is full or has a flow of this key: the flow is given back as it came.
    #[allow(clippy::result_large_err)] // It is the flow itself, which must not be lost.
    pub fn take_in(&mut self, moved: Moved<E>) -> Result<FlowId, Moved<E>> {
        let Moved { mut entry, tick } = moved;
        entry.hash = self.hash(&entry.key);
        let is_it = |id| self.entries.get(id as usize).is_some_and(|e: &FlowEntry<E>| e.key == entry.key);
        if self.is_full() || self.index.find(entry.hash, is_it).is_some() {
            return Err(Moved { entry, tick });
        }
        let id = self.settle(entry, true).map_err(|entry| Moved { entry, tick })?;
        if let Some(tick) = tick {
            self.arm_at(id.0, tick);
        }
        Ok(id)
    }

    /// Puts a flow in whose room was kept.
    ///
    /// # Errors
    /// As [`FlowTable::take_in`], which cannot be where [`FlowTable::take`] kept the room and no flow of the
    /// key was made since.
    #[allow(clippy::result_large_err)] // As above.
    pub fn take_back(&mut self, moved: Moved<E>) -> Result<FlowId, Moved<E>> {
        self.let_room_go();
        self.take_in(moved)
    }

    /// A flow whose room was kept does not come back: it ended elsewhere.
    pub const fn let_room_go(&mut self) {
        self.kept_room = self.kept_room.saturating_sub(1);
    }

    /// Flows whose room is kept.
    #[must_use]
    pub const fn kept_room(&self) -> u32 {
        self.kept_room
    }
}

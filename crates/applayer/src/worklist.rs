// SPDX-License-Identifier: Apache-2.0
//! Which transactions of a flow wait to be looked at.
//!
//! A connection can hold hundreds of transactions at once, and have had thousands. Nobody walks over them
//! with each packet: whoever changes a transaction notes its id here, and whoever has to look at changed ones
//! (detection, records) takes the notes. So the work of a packet depends on the transactions that it touches.
//! Directions are apart because detection, and records of files, look at a direction with its own packets.

use crate::memory::Held;
use crate::transaction::TxId;
use bartizan_base::{Direction, PerDirection};

/// Ids of transactions. Most flows note one or two at a time.
pub type TxIds = smallvec::SmallVec<[TxId; 2]>;

/// Notes kept before doubles among them are looked for.
const NOTES: usize = 64;

/// Who looks at changed transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Payload functions are shown them.
    Inspect,
    /// Records are written, and what is done is freed.
    Record,
}

/// The notes of one looker for one direction.
#[derive(Debug, Default)]
struct Notes {
    ids: TxIds,
    /// Doubles are looked for when there are so many.
    limit: usize,
}

impl Notes {
    fn add(&mut self, id: TxId) {
        if self.ids.last() == Some(&id) {
            return;
        }
        if self.ids.len() >= self.limit.max(NOTES) {
            self.order();
            // Twice of what is left, so that a note costs no more than a sort's share.
            self.limit = self.ids.len().saturating_mul(2);
        }
        self.ids.push(id);
    }

    fn order(&mut self) {
        if !self.ids.is_sorted_by(|a, b| a < b) {
            self.ids.sort_unstable();
            self.ids.dedup();
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Worklist {
    inspect: PerDirection<Notes>,
    record: PerDirection<Notes>,
    disrupted: PerDirection<bool>,
    unseen: PerDirection<bool>,
    /// Transactions whose memory is to be measured again.
    unmeasured: Notes,
    /// Memory of all transactions, in bytes, as they were measured last.
    held: usize,
}

impl Worklist {
    fn notes(&mut self, look: Look, direction: Direction) -> &mut Notes {
        match look {
            Look::Inspect => &mut self.inspect[direction],
            Look::Record => &mut self.record[direction],
        }
    }

    /// A transaction was begun or changed: everybody looks at it again.
    pub fn changed(&mut self, id: TxId) {
        // Without packets of a direction nobody comes to look there.
        for direction in Direction::BOTH.into_iter().filter(|direction| !self.unseen[*direction]) {
            self.inspect[direction].add(id);
            self.record[direction].add(id);
        }
        self.unmeasured.add(id);
    }

    /// Payload functions were shown a transaction in a direction: it may be done now, and inspection may have
    /// made it gather something.
    pub fn inspected(&mut self, id: TxId, direction: Direction) {
        self.unmeasured.add(id);
        self.record[direction].add(id);
    }

    /// A function that had to look at a transaction does not any more: it may be done now.
    pub(crate) fn released_by_function(&mut self, id: TxId) {
        for direction in Direction::BOTH.into_iter().filter(|direction| !self.unseen[*direction]) {
            self.record[direction].add(id);
        }
    }

    /// A function that has not seen a transaction looks at it.
    pub(crate) fn show(&mut self, id: TxId, direction: Direction) {
        if !self.unseen[direction] {
            self.inspect[direction].add(id);
        }
    }

    /// Whether somebody has something to look at.
    #[must_use]
    pub fn waits(&self, look: Look, direction: Direction) -> bool {
        let notes = match look {
            Look::Inspect => &self.inspect[direction],
            Look::Record => &self.record[direction],
        };
        !notes.ids.is_empty()
    }

    /// Takes the ids to look at, lowest first, each once; some may be gone by now. Hand the list back with
    /// [`Worklist::give_back`], so that its memory is used again.
    #[must_use]
    pub fn take(&mut self, look: Look, direction: Direction) -> TxIds {
        let notes = self.notes(look, direction);
        notes.order();
        core::mem::take(&mut notes.ids)
    }

    /// Gives the memory of a list back.
    pub fn give_back(&mut self, look: Look, direction: Direction, mut ids: TxIds) {
        let notes = self.notes(look, direction);
        ids.clear();
        ids.append(&mut notes.ids);
        notes.ids = ids;
        notes.limit = 0;
    }

    /// Puts a list back that was not looked at.
    pub fn put_back(&mut self, look: Look, direction: Direction, mut ids: TxIds) {
        let notes = self.notes(look, direction);
        ids.append(&mut notes.ids);
        notes.ids = ids;
    }

    /// The transactions to measure, to be given back with [`Worklist::measured`].
    pub(crate) fn take_unmeasured(&mut self) -> TxIds {
        self.unmeasured.order();
        core::mem::take(&mut self.unmeasured.ids)
    }

    /// The transactions of the list were measured: they hold `more` and `less` than before.
    pub(crate) fn measured(&mut self, mut ids: TxIds, more: usize, less: usize) {
        ids.clear();
        self.unmeasured.ids = ids;
        self.unmeasured.limit = 0;
        self.held = self.held.saturating_add(more).saturating_sub(less);
    }

    /// A transaction is gone that held so many bytes when it was measured last.
    pub(crate) fn released(&mut self, held: usize) {
        self.held = self.held.saturating_sub(held);
    }

    /// Memory of the transactions as they were measured last, and of the notes, in bytes.
    pub(crate) fn held(&self) -> usize {
        let lists = [&self.inspect, &self.record];
        let notes = lists.iter().flat_map(|list| [&list.to_server, &list.to_client]);
        notes.chain([&self.unmeasured]).fold(self.held, |sum, notes| sum.saturating_add(notes.ids.held()))
    }

    /// A direction cannot be read on: what begins from now on is ended there from its beginning.
    pub fn disrupt(&mut self, direction: Direction) {
        self.disrupted[direction] = true;
    }

    /// Nothing of a direction is seen here: what begins is ended there, and nobody looks at it there.
    pub fn leave_out(&mut self, direction: Direction) {
        self.disrupted[direction] = true;
        self.unseen[direction] = true;
        self.inspect[direction] = Notes::default();
        self.record[direction] = Notes::default();
    }

    /// A direction that was left out is seen after all: from now on transactions are open there.
    pub fn rejoin(&mut self, direction: Direction) {
        self.disrupted[direction] = false;
        self.unseen[direction] = false;
    }

    /// Directions of which nothing is seen.
    #[must_use]
    pub const fn unseen(&self) -> PerDirection<bool> {
        self.unseen
    }

    /// Directions that cannot be read on.
    #[must_use]
    pub const fn disrupted(&self) -> PerDirection<bool> {
        self.disrupted
    }
}

#[cfg(test)]
mod tests {
    use super::{Look, NOTES, Worklist};
    use bartizan_base::Direction::{ToClient, ToServer};

    #[test]
    fn a_change_is_looked_at_once_by_everybody_in_order() {
        let mut list = Worklist::default();
        for id in [7, 3, 3, 9, 7] {
            list.changed(id);
        }
        let ids = list.take(Look::Inspect, ToServer);
        assert_eq!(ids.as_slice(), [3, 7, 9]);
        list.give_back(Look::Inspect, ToServer, ids);
        assert!(!list.waits(Look::Inspect, ToServer) && list.waits(Look::Inspect, ToClient));
        assert_eq!(list.take(Look::Record, ToClient).as_slice(), [3, 7, 9]);
    }

    #[test]
    fn what_is_noted_while_a_list_is_out_is_kept() {
        let mut list = Worklist::default();
        list.changed(1);
        let ids = list.take(Look::Record, ToClient);
        list.inspected(1, ToClient);
        list.give_back(Look::Record, ToClient, ids);
        assert_eq!(list.take(Look::Record, ToClient).as_slice(), [1]);
    }

    #[test]
    fn changes_of_the_same_transactions_take_no_more_memory() {
        let mut list = Worklist::default();
        for round in 0..10_000u64 {
            list.changed(round % 100);
        }
        assert!(list.inspect.to_client.ids.len() <= 4 * NOTES, "{}", list.inspect.to_client.ids.len());
        assert_eq!(list.take(Look::Inspect, ToClient).to_vec(), (0..100).collect::<Vec<_>>());
    }
}

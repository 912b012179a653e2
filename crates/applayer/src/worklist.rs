// SPDX-License-Identifier: Apache-2.0
//! The changed transactions of a flow, which are to be inspected or recorded.
//!
//! A connection can hold hundreds of transactions at once, and have had thousands, so no packet visits all of
//! them: each change of a transaction adds its id here, and detection and the recorder take the ids. So the
//! work of a packet depends on the transactions that it changes. Directions have lists of their own because
//! detection, and records of files, handle a direction with its own packets.

use crate::memory::Held;
use crate::transaction::TxId;
use bartizan_base::{Direction, PerDirection};

/// Ids of transactions. Most flows have one or two at a time.
pub type TxIds = smallvec::SmallVec<[TxId; 2]>;

/// Length of a list from which on duplicates are removed.
const NOTES: usize = 64;

/// The reader of a list of changed transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Payload functions inspect the transactions.
    Inspect,
    /// The recorder writes records and frees finished transactions.
    Record,
}

/// The ids for one reader and one direction.
#[derive(Debug, Default)]
struct WorklistIds {
    ids: TxIds,
    /// Length at which duplicates are removed next.
    limit: usize,
    /// Some transaction of the list was begun or changed, not only parsed on.
    news: bool,
}

impl WorklistIds {
    fn add(&mut self, id: TxId) {
        if self.ids.last() == Some(&id) {
            return;
        }
        if self.ids.len() >= self.limit.max(NOTES) {
            self.order();
            // Twice the remaining length, so that an addition costs no more than its share of a sort.
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

/// Lists of changed transactions; see the module.
#[derive(Debug, Default)]
pub struct Worklist {
    inspect: PerDirection<WorklistIds>,
    record: PerDirection<WorklistIds>,
    disrupted: PerDirection<bool>,
    unseen: PerDirection<bool>,
    /// Transactions whose memory is to be measured again.
    unmeasured: WorklistIds,
    /// Memory of all transactions at their last measurement, in bytes.
    held: usize,
}

impl Worklist {
    fn notes(&mut self, look: Look, direction: Direction) -> &mut WorklistIds {
        match look {
            Look::Inspect => &mut self.inspect[direction],
            Look::Record => &mut self.record[direction],
        }
    }

    /// Records that a transaction was begun or changed: all readers visit it again.
    pub fn changed(&mut self, id: TxId) {
        // A direction without packets has no visits.
        for direction in Direction::BOTH.into_iter().filter(|direction| !self.unseen[*direction]) {
            self.inspect[direction].add(id);
            self.inspect[direction].news = true;
            self.record[direction].add(id);
        }
        self.unmeasured.add(id);
    }

    /// Records that data of a transaction was parsed which changed nothing that a reader sees: no state,
    /// value, event, file or length. Payload functions get it, since conditions outside of the transaction
    /// may hold now; there is nothing to record.
    pub fn parsed_on(&mut self, id: TxId) {
        for direction in Direction::BOTH.into_iter().filter(|direction| !self.unseen[*direction]) {
            self.inspect[direction].add(id);
        }
    }

    /// Records that payload functions saw a transaction in a direction: it may be finished now, and
    /// inspection may have increased its memory.
    pub fn inspected(&mut self, id: TxId, direction: Direction) {
        self.unmeasured.add(id);
        self.record[direction].add(id);
    }

    /// Records that a function no longer needs a transaction, which may be finished now.
    pub(crate) fn released_by_function(&mut self, id: TxId) {
        for direction in Direction::BOTH.into_iter().filter(|direction| !self.unseen[*direction]) {
            self.record[direction].add(id);
        }
    }

    /// Adds a transaction for a function that has not seen it.
    pub(crate) fn show(&mut self, id: TxId, direction: Direction) {
        if !self.unseen[direction] {
            self.inspect[direction].add(id);
            self.inspect[direction].news = true;
        }
    }

    /// Whether a reader has transactions to visit.
    #[must_use]
    pub fn waits(&self, look: Look, direction: Direction) -> bool {
        let notes = match look {
            Look::Inspect => &self.inspect[direction],
            Look::Record => &self.record[direction],
        };
        !notes.ids.is_empty()
    }

    /// Whether some of the transactions to inspect were begun or changed; see [`Worklist::parsed_on`].
    #[must_use]
    pub fn has_news(&self, direction: Direction) -> bool {
        self.inspect[direction].news
    }

    /// Takes the ids for a reader, lowest first, each once; some may be freed by now. Return the list with
    /// [`Worklist::recycle`], so that its memory is reused.
    #[must_use]
    pub fn take(&mut self, look: Look, direction: Direction) -> TxIds {
        let notes = self.notes(look, direction);
        notes.order();
        notes.news = false;
        core::mem::take(&mut notes.ids)
    }

    /// Returns the memory of a list.
    pub fn recycle(&mut self, look: Look, direction: Direction, mut ids: TxIds) {
        let notes = self.notes(look, direction);
        ids.clear();
        ids.append(&mut notes.ids);
        notes.ids = ids;
        notes.limit = 0;
    }

    /// Returns a list that was not processed.
    pub fn put_back(&mut self, look: Look, direction: Direction, mut ids: TxIds) {
        let notes = self.notes(look, direction);
        ids.append(&mut notes.ids);
        notes.ids = ids;
        notes.news = true;
    }

    /// Whether there are transactions to measure.
    pub(crate) fn is_unmeasured(&self) -> bool {
        !self.unmeasured.ids.is_empty()
    }

    /// Takes the transactions to measure, to be returned with [`Worklist::measured`].
    pub(crate) fn take_unmeasured(&mut self) -> TxIds {
        self.unmeasured.order();
        core::mem::take(&mut self.unmeasured.ids)
    }

    /// Returns the list of measured transactions, whose memory has grown by `more` and decreased by `less`
    /// bytes.
    pub(crate) fn measured(&mut self, mut ids: TxIds, more: usize, less: usize) {
        ids.clear();
        self.unmeasured.ids = ids;
        self.unmeasured.limit = 0;
        self.held = self.held.saturating_add(more).saturating_sub(less);
    }

    /// Records that a transaction was freed; `held`: its memory at the last measurement, in bytes.
    pub(crate) fn released(&mut self, held: usize) {
        self.held = self.held.saturating_sub(held);
    }

    /// Memory of the transactions at their last measurement, and of the lists, in bytes.
    pub(crate) fn held(&self) -> usize {
        let lists = [&self.inspect, &self.record];
        let notes = lists.iter().flat_map(|list| [&list.to_server, &list.to_client]);
        notes.chain([&self.unmeasured]).fold(self.held, |sum, notes| sum.saturating_add(notes.ids.held()))
    }

    /// Records that a direction is not parsed any more: later transactions count as ended in it from their
    /// beginning.
    pub fn disrupt(&mut self, direction: Direction) {
        self.disrupted[direction] = true;
    }

    /// Records that this link sees no packets of a direction: later transactions count as ended in it, and it
    /// has no visits.
    pub fn leave_out(&mut self, direction: Direction) {
        self.disrupted[direction] = true;
        self.unseen[direction] = true;
        self.inspect[direction] = WorklistIds::default();
        self.record[direction] = WorklistIds::default();
    }

    /// Records that this link sees a direction after all: from now on transactions are open in it.
    pub fn rejoin(&mut self, direction: Direction) {
        self.disrupted[direction] = false;
        self.unseen[direction] = false;
    }

    /// Directions without packets on this link.
    #[must_use]
    pub const fn unseen(&self) -> PerDirection<bool> {
        self.unseen
    }

    /// Directions that are not parsed any more.
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
        list.recycle(Look::Inspect, ToServer, ids);
        assert!(!list.waits(Look::Inspect, ToServer) && list.waits(Look::Inspect, ToClient));
        assert_eq!(list.take(Look::Record, ToClient).as_slice(), [3, 7, 9]);
    }

    #[test]
    fn data_that_changes_nothing_is_inspected_and_not_recorded() {
        let mut list = Worklist::default();
        list.parsed_on(3);
        for direction in [ToServer, ToClient] {
            assert!(list.waits(Look::Inspect, direction) && !list.has_news(direction));
            assert!(!list.waits(Look::Record, direction));
        }
        list.changed(3);
        assert!(list.has_news(ToServer) && list.has_news(ToClient));
        let ids = list.take(Look::Inspect, ToServer);
        assert_eq!(ids.as_slice(), [3]);
        assert!(!list.has_news(ToServer) && list.has_news(ToClient));
        // A function that has not inspected it gets it as new.
        list.put_back(Look::Inspect, ToServer, ids);
        assert!(list.has_news(ToServer));
    }

    #[test]
    fn what_is_noted_while_a_list_is_out_is_kept() {
        let mut list = Worklist::default();
        list.changed(1);
        let ids = list.take(Look::Record, ToClient);
        list.inspected(1, ToClient);
        list.recycle(Look::Record, ToClient, ids);
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

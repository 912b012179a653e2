// SPDX-License-Identifier: Apache-2.0
//! Payload functions that still need a flow's transactions.
//!
//! A transaction is freed when its records are written and every payload function on the flow's path has
//! finished with it. Each transaction carries a bit mask of the functions that have finished
//! ([`crate::transaction::TxCommon::done`]); the path decides which bits count. So a function that leaves the
//! path holds no transaction any more. Functions only read; the data plane writes.

use super::AppLayer;
use crate::transaction::TxId;
use bartizan_base::{Direction, FunctionId, Path};

/// Limit of a flow's transactions that functions hold at the same time.
pub const HOLDS_MAX: usize = 64;

/// Number of later transactions after which a hold ends; parsers keep all transactions in between.
pub const HOLDS_SPAN: u64 = 1_024;

/// Up to this number of transactions, the search for open ones starts at the first and keeps no position.
const FEW: u64 = 8;

impl AppLayer {
    /// The first transaction with which a function has not finished in a direction.
    #[must_use]
    pub fn first_open(&self, direction: Direction, function: FunctionId) -> Option<TxId> {
        let parser = self.parser.as_deref()?;
        let range = parser.tx_range();
        let from = range.start.max(self.done_to[direction]);
        let open = |id: &TxId| parser.tx(*id).is_some_and(|tx| !tx.common().is_done(direction, function));
        (from..range.end).find(open)
    }

    /// Records that these functions have seen transactions in a direction to their end. Transactions before
    /// the first with which one of them has not finished are not visited again.
    pub fn note_done(&mut self, direction: Direction, functions: Path) {
        let Some(parser) = self.parser.as_deref() else { return };
        let range = parser.tx_range();
        if range.end.saturating_sub(range.start) <= FEW {
            return;
        }
        let open = |id: &TxId| {
            parser.tx(*id).is_some_and(|tx| !functions.and_not(tx.common().done[direction]).is_empty())
        };
        let from = range.start.max(self.done_to[direction]);
        self.done_to[direction] = (from..range.end).find(open).unwrap_or(range.end).max(from);
    }

    /// Sets the payload functions on the flow's path. When one has left the path, the recorder visits again
    /// the transactions that it held up.
    #[inline]
    pub fn set_readers(&mut self, readers: Path) {
        let before = core::mem::replace(&mut self.readers, readers);
        if before != readers && !before.and_not(readers).is_empty() {
            self.readers_left();
        }
    }

    fn readers_left(&mut self) {
        let Some(parser) = self.parser.as_deref_mut() else { return };
        for id in parser.tx_range() {
            parser.worklist_mut().released_by_function(id);
        }
    }

    /// Shows the existing transactions to functions that have joined the flow's path; freed ones stay unseen.
    pub fn show_to(&mut self, joined: Path) {
        let Some(parser) = self.parser.as_deref_mut() else { return };
        for id in parser.tx_range() {
            let Some(done) = parser.tx(id).map(|tx| tx.common().done) else { continue };
            for direction in Direction::BOTH.into_iter().filter(|d| !joined.and_not(done[*d]).is_empty()) {
                parser.worklist_mut().show(id, direction);
            }
        }
    }

    /// Number of transactions that functions hold; some of them may be freed.
    #[must_use]
    pub fn held_tx(&self) -> usize {
        self.held_tx.len()
    }

    /// Lets a function hold a transaction beyond its end. `false`: the transaction is freed, or too many are
    /// held.
    pub fn hold_tx(&mut self, id: TxId, function: FunctionId) -> bool {
        let known = self.held_tx.contains(&id);
        if !known && self.held_tx.len() >= HOLDS_MAX {
            return false;
        }
        let Some(tx) = self.parser.as_deref_mut().and_then(|parser| parser.tx_mut(id)) else { return false };
        let held = &mut tx.common_mut().held;
        *held = held.with(function);
        if !known {
            self.held_tx.push(id);
        }
        true
    }

    /// Records that a function has finished with a transaction, in both directions and before its end.
    pub fn release_tx(&mut self, id: TxId, function: FunctionId) {
        let Some(parser) = self.parser.as_deref_mut() else { return };
        let Some(tx) = parser.tx_mut(id) else { return };
        let common = tx.common_mut();
        for direction in Direction::BOTH {
            common.done[direction] = common.done[direction].with(function);
        }
        common.held = common.held.without(function);
        let free = common.held.is_empty();
        parser.worklist_mut().released_by_function(id);
        if free && !self.held_tx.is_empty() {
            self.held_tx.retain(|held| *held != id);
        }
    }

    /// Ends holds of transactions that lie too far back. Returns their number.
    pub fn end_old_holds(&mut self) -> u64 {
        let mut ended = 0;
        let Some(parser) = self.parser.as_deref_mut().filter(|_| !self.held_tx.is_empty()) else { return 0 };
        let end = parser.tx_range().end;
        self.held_tx.retain(|id| {
            if id.saturating_add(HOLDS_SPAN) >= end {
                return true;
            }
            if let Some(tx) = parser.tx_mut(*id) {
                ended += u64::from(!tx.common().held.is_empty());
                tx.common_mut().held = Path::EMPTY;
                parser.worklist_mut().released_by_function(*id);
            }
            false
        });
        ended
    }

    /// When the limit is reached, removes transactions from the list whose hold ended by other means than
    /// [`AppLayer::release_tx`].
    pub fn forget_released_tx(&mut self) {
        let Some(parser) = self.parser.as_deref().filter(|_| self.held_tx.len() >= HOLDS_MAX) else { return };
        self.held_tx.retain(|id| parser.tx(*id).is_some_and(|tx| !tx.common().held.is_empty()));
    }
}

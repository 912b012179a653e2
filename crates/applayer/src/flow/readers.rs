// SPDX-License-Identifier: Apache-2.0
//! Which payload functions a flow's transactions wait for.
//!
//! A transaction is freed when its records are written and every payload function on the flow's path is done
//! with it. What a function is done with stands in the transaction ([`crate::transaction::TxCommon::done`]),
//! a bit for each function; the path says whose bits count. So a function that leaves the path holds nothing
//! any more. Functions only read: the data plane writes.

use super::AppLayer;
use crate::transaction::TxId;
use bartizan_base::{Direction, FunctionId, Path};

/// Transactions of a flow that functions hold at once.
pub const HOLDS_MAX: usize = 64;

/// A transaction is held until so many have begun after it: parsers keep places for what lies between.
pub const HOLDS_SPAN: u64 = 1_024;

/// So many transactions are walked over without remembering where to begin.
const FEW: u64 = 8;

impl AppLayer {
    /// The first transaction that a function is not done with in a direction.
    #[must_use]
    pub fn first_open(&self, direction: Direction, function: FunctionId) -> Option<TxId> {
        let parser = self.parser.as_deref()?;
        let range = parser.tx_range();
        let from = range.start.max(self.done_to[direction]);
        let open = |id: &TxId| parser.tx(*id).is_some_and(|tx| !tx.common().is_done(direction, function));
        (from..range.end).find(open)
    }

    /// These functions were shown transactions to their end in a direction. What lies before the first that
    /// one of them is not done with is not walked over again.
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

    /// The payload functions on the flow's path. Where one has left it, whoever writes records looks again at
    /// what waited for it.
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

    /// Functions have joined the flow's path: they are shown what is there and not what is gone.
    pub fn show_to(&mut self, joined: Path) {
        let Some(parser) = self.parser.as_deref_mut() else { return };
        for id in parser.tx_range() {
            let Some(done) = parser.tx(id).map(|tx| tx.common().done) else { continue };
            for direction in Direction::BOTH.into_iter().filter(|d| !joined.and_not(done[*d]).is_empty()) {
                parser.worklist_mut().show(id, direction);
            }
        }
    }

    /// How many transactions functions hold; some of them may be gone.
    #[must_use]
    pub fn held_tx(&self) -> usize {
        self.held_tx.len()
    }

    /// A function holds a transaction beyond its end. `false`: it is gone, or too many are held.
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

    /// A function is done with a transaction, in both directions and before its end.
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

    /// Ends holds of transactions that lie too far back. How many.
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

    /// Where as many are held as there may be, those count no longer that were let go of otherwise than by
    /// [`AppLayer::release_tx`].
    pub fn forget_released_tx(&mut self) {
        let Some(parser) = self.parser.as_deref().filter(|_| self.held_tx.len() >= HOLDS_MAX) else { return };
        self.held_tx.retain(|id| parser.tx(*id).is_some_and(|tx| !tx.common().held.is_empty()));
    }
}

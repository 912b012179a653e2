// SPDX-License-Identifier: Apache-2.0
//! Looking for the guards of rules on a transaction ([`crate::model::guards`]).

use crate::model::guards::Guard;
use bartizan_applayer::transaction::{BufferQuery, Transaction};
use bartizan_base::Direction;

/// The guards of a direction of a transaction, each looked for when the first rule asks for it. Nothing of it
/// is remembered until the next look: a trailer may bring a header that was missing.
pub(crate) struct Guards<'t> {
    list: &'t [Guard],
    tx: &'t dyn Transaction,
    direction: Direction,
    scratch: &'t mut Vec<u8>,
    /// Those that were looked for, a bit each.
    known: u64,
    /// Those of them whose value is whole and has no such literal.
    missing: u64,
}

impl<'t> Guards<'t> {
    /// `scratch`: for values that do not lie in one piece.
    pub(crate) fn new(
        list: &'t [Guard],
        (tx, direction): (&'t dyn Transaction, Direction),
        scratch: &'t mut Vec<u8>,
    ) -> Self {
        Self { list, tx, direction, scratch, known: 0, missing: 0 }
    }

    /// Whether a rule that wants these can match now.
    pub(crate) fn let_pass(&mut self, wanted: u64) -> bool {
        let mut open = wanted & !self.known;
        while open != 0 && wanted & self.missing == 0 {
            let place = open.trailing_zeros();
            let bit = 1u64 << place;
            open &= !bit;
            self.known |= bit;
            if self
                .list
                .get(place as usize)
                .is_some_and(|guard| Self::is_missing(guard, self.tx, self.direction, self.scratch))
            {
                self.missing |= bit;
            }
        }
        wanted & self.missing == 0
    }

    fn is_missing(guard: &Guard, tx: &dyn Transaction, direction: Direction, scratch: &mut Vec<u8>) -> bool {
        if tx.progress(direction) < guard.spec.ready && !tx.common().ended[direction] {
            return false;
        }
        scratch.clear();
        let view = tx.buffer(BufferQuery { id: guard.spec.id, direction, index: 0 }, scratch);
        view.is_none_or(|view| guard.literal.finder.find(view.data).is_none())
    }
}

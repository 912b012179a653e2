// SPDX-License-Identifier: Apache-2.0
//! Looking for the guards of rules on a transaction ([`crate::model::guards`]).

use crate::model::guards::Guard;
use bartizan_applayer::transaction::{BufferQuery, Transaction};
use bartizan_base::Direction;

/// The guards of a direction of a transaction, each looked for when the first rule asks for it.
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
    /// `missing`: what is known to be; `scratch`: for values that do not lie in one piece.
    pub(crate) fn new(
        list: &'t [Guard],
        (tx, direction): (&'t dyn Transaction, Direction),
        missing: u64,
        scratch: &'t mut Vec<u8>,
    ) -> Self {
        Self { list, tx, direction, scratch, known: missing, missing }
    }

    /// Those that are missing for good.
    pub(crate) const fn missing(&self) -> u64 {
        self.missing
    }

    /// Whether a rule that wants these can still match.
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

// SPDX-License-Identifier: Apache-2.0
//! Searches a transaction for the guards of rules ([`crate::model::guards`]).

use crate::engine::composed::ComposedValues;
use crate::model::guards::Guard;
use bartizan_applayer::transaction::{BufferQuery, Transaction};
use bartizan_base::Direction;

/// The guards of a direction of a transaction, each searched when the first rule needs it. No result is kept
/// for the next inspection: a trailer may bring a header that was missing.
pub(crate) struct Guards<'t> {
    list: &'t [Guard],
    tx: &'t dyn Transaction,
    direction: Direction,
    values: &'t mut ComposedValues,
    /// Guards that were searched, a bit each.
    known: u64,
    /// Searched guards whose value is complete and lacks the literal, a bit each.
    missing: u64,
}

impl<'t> Guards<'t> {
    pub(crate) fn new(
        list: &'t [Guard],
        tx: &'t dyn Transaction,
        direction: Direction,
        values: &'t mut ComposedValues,
    ) -> Self {
        Self { list, tx, direction, values, known: 0, missing: 0 }
    }

    /// Whether a rule that needs the guards `wanted` (a bit each) can match now.
    pub(crate) fn can_match(&mut self, wanted: u64) -> bool {
        let mut open = wanted & !self.known;
        while open != 0 && wanted & self.missing == 0 {
            let place = open.trailing_zeros();
            let bit = 1u64 << place;
            open &= !bit;
            self.known |= bit;
            if self
                .list
                .get(place as usize)
                .is_some_and(|guard| Self::is_missing(guard, self.tx, self.direction, self.values))
            {
                self.missing |= bit;
            }
        }
        wanted & self.missing == 0
    }

    fn is_missing(
        guard: &Guard,
        tx: &dyn Transaction,
        direction: Direction,
        values: &mut ComposedValues,
    ) -> bool {
        if tx.progress(direction) < guard.spec.ready && !tx.common().ended[direction] {
            return false;
        }
        values.read(tx, BufferQuery { id: guard.spec.id, direction, index: 0 }, |view| {
            view.is_none_or(|view| guard.literal.finder.find(view.data).is_none())
        })
    }
}

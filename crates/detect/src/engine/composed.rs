// SPDX-License-Identifier: Apache-2.0
//! Values of a transaction that its parser composes of several parts (all header fields of a message).
//! Several rules read such a value: it is composed once while the transaction is inspected.

use bartizan_applayer::transaction::{BufferQuery, BufferView, Transaction};

/// Limit of values that are kept; further ones are composed for each reader.
const KEPT_MAX: usize = 8;

#[derive(Debug)]
struct ComposedValue {
    query: BufferQuery,
    bytes: Vec<u8>,
}

/// Composed values of the transaction that is inspected. The memory is reused for the next transaction.
#[derive(Debug, Default)]
pub(crate) struct ComposedValues {
    list: Vec<ComposedValue>,
    /// Number of entries of `list` that are of the current transaction.
    current: usize,
    /// Memory for the next value.
    spare: Vec<u8>,
}

impl ComposedValues {
    /// Forgets the values: another transaction is inspected, or the same one after a change.
    pub(crate) fn reset(&mut self) {
        self.current = 0;
    }

    /// Reads a value of the transaction; `None` if it does not exist.
    pub(crate) fn read<R>(
        &mut self,
        tx: &dyn Transaction,
        query: BufferQuery,
        read: impl FnOnce(Option<BufferView<'_>>) -> R,
    ) -> R {
        if let Some(known) = self.list.iter().take(self.current).find(|value| value.query == query) {
            return read(Some(BufferView::whole(&known.bytes)));
        }
        self.spare.clear();
        let view = tx.buffer(query, &mut self.spare);
        let whole = view.filter(|view| view.complete && view.offset == 0);
        let whole = whole.map(|view| (view.data.as_ptr().addr(), view.data.len()));
        let result = read(view);
        // Values that the transaction holds in one piece cost nothing to read.
        let is_composed = whole == Some((self.spare.as_ptr().addr(), self.spare.len()));
        if is_composed && self.current < KEPT_MAX {
            self.keep(query);
        }
        result
    }

    fn keep(&mut self, query: BufferQuery) {
        if let Some(value) = self.list.get_mut(self.current) {
            value.query = query;
            core::mem::swap(&mut value.bytes, &mut self.spare);
        } else {
            self.list.push(ComposedValue { query, bytes: core::mem::take(&mut self.spare) });
        }
        self.current = self.current.saturating_add(1);
    }
}

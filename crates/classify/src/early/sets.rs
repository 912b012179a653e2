// SPDX-License-Identifier: Apache-2.0
//! Sets of values of a field, and sets of rows.

use crate::header::{Net, Range};

/// Values from a first to a last one, both included; for addresses also their IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ValueInterval {
    pub v6: bool,
    pub first: u128,
    pub last: u128,
}

impl ValueInterval {
    pub fn of_net(net: Net) -> Self {
        let (v6, first, last) = net.range();
        ValueInterval { v6, first, last }
    }

    pub fn of_ports(range: Range) -> Self {
        ValueInterval { v6: false, first: range.first.into(), last: range.last.into() }
    }

    /// All addresses of a version.
    pub const fn version(v6: bool) -> Self {
        ValueInterval { v6, first: 0, last: if v6 { u128::MAX } else { u32::MAX as u128 } }
    }

    fn and(self, other: ValueInterval) -> Option<ValueInterval> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (self.v6 == other.v6 && first <= last).then_some(ValueInterval { v6: self.v6, first, last })
    }
}

/// A set of values: spans that are sorted and do not touch.
pub(super) type Values = Vec<ValueInterval>;

/// Makes the set of some spans.
pub(super) fn values(mut spans: Vec<ValueInterval>) -> Values {
    spans.sort_unstable();
    let mut set: Values = Vec::new();
    for span in spans {
        match set.last_mut() {
            Some(last) if last.v6 == span.v6 && span.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(span.last);
            }
            _ => set.push(span),
        }
    }
    set
}

/// The intersection of two sets.
pub(super) fn both(a: &[ValueInterval], b: &[ValueInterval]) -> Values {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut set = Values::new();
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        set.extend(x.and(**y));
        if (x.v6, x.last) < (y.v6, y.last) {
            a.next();
        } else {
            b.next();
        }
    }
    set
}

/// A set of rows: 64 of them for each number; words of zero are left out.
pub(super) type Rows = Vec<(u32, u64)>;

/// The union of two sets of rows.
pub(super) fn either(a: &[(u32, u64)], b: &[(u32, u64)]) -> Rows {
    let mut all: Rows = a.iter().chain(b).copied().collect();
    all.sort_unstable_by_key(|(at, _)| *at);
    all.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 |= if same { next.1 } else { 0 };
        same
    });
    all
}

/// Makes a set from the bits of all rows.
pub(super) fn rows(bits: &[u64]) -> Rows {
    (0u32..).zip(bits).filter(|(_, bits)| **bits != 0).map(|(at, bits)| (at, *bits)).collect()
}

/// The intersection of two sets of rows.
pub(super) fn common(a: &[(u32, u64)], b: &[(u32, u64)]) -> Rows {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut set = Rows::new();
    while let (Some((at, x)), Some((other, y))) = (a.peek(), b.peek()) {
        match at.cmp(other) {
            core::cmp::Ordering::Less => drop(a.next()),
            core::cmp::Ordering::Greater => drop(b.next()),
            core::cmp::Ordering::Equal => {
                if x & y != 0 {
                    set.push((*at, x & y));
                }
                a.next();
                b.next();
            }
        }
    }
    set
}

/// The first row of the intersection of two sets.
pub(super) fn first_common(a: &[(u32, u64)], b: &[(u32, u64)]) -> Option<usize> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some((at, x)), Some((other, y))) = (a.peek(), b.peek()) {
        match at.cmp(other) {
            core::cmp::Ordering::Less => drop(a.next()),
            core::cmp::Ordering::Greater => drop(b.next()),
            core::cmp::Ordering::Equal if x & y != 0 => return first(&[(*at, x & y)]),
            core::cmp::Ordering::Equal => drop((a.next(), b.next())),
        }
    }
    None
}

/// The first row of a set.
pub(super) fn first(set: &[(u32, u64)]) -> Option<usize> {
    set.first().map(|(at, bits)| *at as usize * 64 + bits.trailing_zeros() as usize)
}

/// Removes the rows after the first one that is in `last` as well: that row decides, whatever the remaining
/// fields are.
pub(super) fn cut(set: &mut Rows, last: &[(u32, u64)]) {
    let Some(row) = first_common(set, last) else { return };
    let (at, bit) = ((row / 64) as u32, row % 64);
    set.retain(|(of, _)| *of <= at);
    if let Some((_, bits)) = set.last_mut() {
        *bits &= u64::MAX >> (63 - bit);
    }
}

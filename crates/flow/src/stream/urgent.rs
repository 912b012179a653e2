// SPDX-License-Identifier: Apache-2.0
//! Urgent bytes (RFC 6093): most receivers deliver the byte that the urgent pointer marks out of band, so it
//! is not part of the stream that an application reads.
//!
//! Sequence numbers count urgent bytes, stream offsets do not. This keeps their positions for as long as
//! segments may arrive before or around them.

use bartizan_base::Cursor;
use smallvec::SmallVec;

/// Most urgent bytes whose position is kept; the limit policy applies to further ones.
const MOST_PLACES: usize = 32;

/// The urgent bytes taken out of a stream. "Outer" offsets count them, "inner" ones do not.
#[derive(Clone, Debug, Default)]
pub(crate) struct UrgentBytes {
    total: u16,
    /// Bytes taken out before the first kept position.
    before: u64,
    /// Outer offsets, ascending.
    places: SmallVec<[u64; 1]>,
}

impl UrgentBytes {
    pub(crate) fn total(&self) -> u16 {
        self.total
    }

    /// Whether one more byte can be taken out.
    pub(crate) fn has_room(&self) -> bool {
        self.total < u16::MAX && self.places.len() < MOST_PLACES
    }

    /// Whether the byte at an outer offset was taken out.
    pub(crate) fn contains(&self, outer: u64) -> bool {
        self.places.binary_search(&outer).is_ok()
    }

    /// The first urgent byte from an outer offset on.
    pub(crate) fn next(&self, outer: u64) -> Option<u64> {
        let at = self.places.partition_point(|place| *place < outer);
        self.places.get(at).copied()
    }

    /// Takes a byte out.
    pub(crate) fn insert(&mut self, outer: u64) {
        let at = self.places.partition_point(|place| *place < outer);
        self.places.insert(at, outer);
        self.total = self.total.saturating_add(1);
    }

    /// Inner offset of an outer one.
    pub(crate) fn inner(&self, outer: u64) -> u64 {
        let inside = self.places.partition_point(|place| *place < outer) as u64;
        outer.saturating_sub(self.before).saturating_sub(inside)
    }

    /// Outer offset of an inner one.
    pub(crate) fn outer(&self, inner: u64) -> u64 {
        let mut outer = inner.saturating_add(self.before);
        for place in &self.places {
            if *place <= outer {
                outer = outer.saturating_add(1);
            }
        }
        outer
    }

    /// Appends the urgent bytes.
    pub(crate) fn export(&self, out: &mut Vec<u8>) {
        out.extend(self.total.to_be_bytes());
        out.extend(self.before.to_be_bytes());
        out.push(u8::try_from(self.places.len()).unwrap_or(u8::MAX));
        for place in &self.places {
            out.extend(place.to_be_bytes());
        }
    }

    /// Reads the form that [`UrgentBytes::export`] wrote.
    pub(crate) fn import(&mut self, from: &mut Cursor<'_>) -> Option<()> {
        self.total = from.u16()?;
        self.before = from.u64()?;
        let count = usize::from(from.u8()?);
        if count > MOST_PLACES {
            return None;
        }
        for _ in 0..count {
            let place = from.u64()?;
            if self.places.last().is_some_and(|last| *last >= place) {
                return None;
            }
            self.places.push(place);
        }
        Some(())
    }

    /// Drops the positions before an inner offset that no segment can reach any more.
    pub(crate) fn trim(&mut self, left: u64) {
        if self.places.is_empty() {
            return;
        }
        let gone = self.places.iter().take_while(|place| self.inner(**place) < left).count();
        self.places.drain(..gone);
        self.before = self.before.saturating_add(gone as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_map_both_ways() {
        let mut urgent = UrgentBytes::default();
        urgent.insert(5);
        urgent.insert(2);
        // Outer 0 1 (2) 3 4 (5) 6 -> inner 0 1 . 2 3 . 4
        let pairs = [(0, 0), (1, 1), (3, 2), (4, 3), (6, 4), (7, 5)];
        for (outer, inner) in pairs {
            assert_eq!((urgent.inner(outer), urgent.outer(inner)), (inner, outer));
        }
        assert!(urgent.contains(2) && !urgent.contains(3));
        assert_eq!(urgent.next(3), Some(5));
        urgent.trim(3);
        for (outer, inner) in [(4, 3), (6, 4), (7, 5)] {
            assert_eq!((urgent.inner(outer), urgent.outer(inner)), (inner, outer));
        }
        assert_eq!(urgent.total(), 2);
    }
}

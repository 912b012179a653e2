// SPDX-License-Identifier: Apache-2.0
//! Resolution of overlapping segments: the receiver's operating system decides by their relative position
//! (Novak and Sturges, "Target-Based TCP Stream Reassembly", 2007; the models follow Suricata's). The borders
//! of the held segments are kept for this.

use super::MemoryBudget;
use crate::tcp::HostPolicy;
use std::collections::VecDeque;

/// Most borders kept; above that, neighbours are merged, which loses only the exact borders of the oldest
/// segments.
const MOST_SPANS: usize = 2048;
const SPAN_COST: usize = size_of::<SegmentSpan>();

/// The range of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentSpan {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Whether the bytes of a new segment replace those of an old one where both overlap.
pub(crate) fn new_bytes_count(policy: HostPolicy, old: SegmentSpan, new: SegmentSpan) -> bool {
    use HostPolicy as P;
    match policy {
        P::Last => true,
        P::First | P::Vista => false,
        _ if new.start == old.start => {
            (new.end > old.end && policy == P::Linux)
                || (new.end >= old.end && matches!(policy, P::OldLinux | P::Solaris | P::Hpux11))
        }
        P::Solaris | P::Hpux11 => new.end >= old.end && (new.start < old.start || new.end > old.end),
        P::Bsd | P::Hpux10 | P::Irix | P::Windows | P::Windows2k3 | P::OldLinux | P::Linux | P::Macos => {
            new.start < old.start
        }
    }
}

/// The borders of the segments that a stream holds, by start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    spans: VecDeque<SegmentSpan>,
    /// Length of the longest segment: the maximum distance back at which an overlap can begin.
    longest: u64,
}

impl Spans {
    fn first_from(&self, start: u64) -> usize {
        self.spans.partition_point(|span| span.start < start)
    }

    /// The spans that overlap a range.
    pub(crate) fn overlapping(&self, new: SegmentSpan) -> impl Iterator<Item = SegmentSpan> + '_ {
        let from = self.first_from(new.start.saturating_sub(self.longest));
        self.spans
            .range(from.min(self.spans.len())..)
            .take_while(move |span| span.start < new.end)
            .filter(move |span| span.end > new.start)
            .copied()
    }

    /// Adds a segment; `false` when there is no room.
    pub(crate) fn insert(&mut self, new: SegmentSpan, budget: &mut MemoryBudget) -> bool {
        let at = self.first_from(new.start);
        if self.spans.get(at) == Some(&new) {
            return true;
        }
        if self.spans.len() >= MOST_SPANS {
            self.join(budget);
            if self.spans.len() >= MOST_SPANS {
                return false;
            }
            return self.insert(new, budget);
        }
        self.longest = self.longest.max(new.end.saturating_sub(new.start));
        budget.charge(SPAN_COST);
        self.spans.insert(at, new);
        true
    }

    /// Merges neighbours.
    fn join(&mut self, budget: &mut MemoryBudget) {
        let mut joined: VecDeque<SegmentSpan> = VecDeque::with_capacity(self.spans.len());
        let before = self.spans.len();
        for span in &self.spans {
            match joined.back_mut() {
                Some(last) if last.end >= span.start => last.end = last.end.max(span.end),
                _ => joined.push_back(*span),
            }
        }
        self.longest = joined.iter().map(|s| s.end.saturating_sub(s.start)).max().unwrap_or(0);
        budget.discharge(before.saturating_sub(joined.len()).saturating_mul(SPAN_COST));
        self.spans = joined;
    }

    /// Bytes of memory of the borders.
    pub(crate) fn held(&self) -> u64 {
        self.spans.len().saturating_mul(SPAN_COST) as u64
    }

    /// All borders, by start.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SegmentSpan> {
        self.spans.iter()
    }

    /// Drops the segments that end before `left`.
    pub(crate) fn trim(&mut self, left: u64, budget: &mut MemoryBudget) {
        while self.spans.front().is_some_and(|span| span.end <= left) {
            self.spans.pop_front();
            budget.discharge(SPAN_COST);
        }
        if self.spans.is_empty() {
            self.longest = 0;
        }
    }

    /// Moves all borders after `from` one byte back.
    pub(crate) fn close_up(&mut self, from: u64) {
        for span in &mut self.spans {
            if span.start > from {
                span.start = span.start.saturating_sub(1);
            }
            if span.end > from {
                span.end = span.end.saturating_sub(1);
            }
        }
    }

    /// Drops all segments.
    pub(crate) fn clear(&mut self, budget: &mut MemoryBudget) {
        budget.discharge(self.spans.len().saturating_mul(SPAN_COST));
        *self = Spans::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row: old segment, new segment, and the policies that take the new bytes.
    #[test]
    fn the_table_of_policies() {
        use HostPolicy::*;
        let before = [Bsd, Hpux10, Irix, Windows, Windows2k3, OldLinux, Linux, Macos];
        let all = [
            Bsd, First, Last, Linux, OldLinux, Solaris, Hpux10, Hpux11, Irix, Macos, Windows, Windows2k3,
            Vista,
        ];
        type Range = (u64, u64);
        let rows: [(&str, Range, Range, Vec<HostPolicy>); 9] = [
            ("equal", (10, 20), (10, 20), vec![OldLinux, Solaris, Hpux11]),
            ("same start, shorter", (10, 20), (10, 15), vec![]),
            ("same start, longer", (10, 20), (10, 25), vec![Linux, OldLinux, Solaris, Hpux11]),
            ("before, into", (10, 20), (5, 15), before.to_vec()),
            ("before, to the end", (10, 20), (5, 20), [&before[..], &[Solaris, Hpux11]].concat()),
            ("before, beyond", (10, 20), (5, 25), [&before[..], &[Solaris, Hpux11]].concat()),
            ("inside", (10, 20), (12, 18), vec![]),
            ("inside, to the end", (10, 20), (12, 20), vec![]),
            ("inside, beyond", (10, 20), (12, 25), vec![Solaris, Hpux11]),
        ];
        for (name, old, new, mut expected) in rows {
            expected.push(Last);
            for policy in all {
                assert_eq!(
                    new_bytes_count(
                        policy,
                        SegmentSpan { start: old.0, end: old.1 },
                        SegmentSpan { start: new.0, end: new.1 }
                    ),
                    expected.contains(&policy),
                    "{name}, {policy:?}"
                );
            }
        }
    }

    #[test]
    fn spans_are_found_joined_and_bounded() {
        let mut budget = MemoryBudget::new(0);
        let mut spans = Spans::default();
        assert!(spans.insert(SegmentSpan { start: 0, end: 100 }, &mut budget));
        for n in 0..20u64 {
            assert!(spans.insert(SegmentSpan { start: n * 5, end: n * 5 + 5 }, &mut budget));
        }
        assert_eq!(spans.overlapping(SegmentSpan { start: 52, end: 56 }).count(), 3);
        for n in 0..10_000u64 {
            spans.insert(SegmentSpan { start: 1000 + n, end: 1001 + n }, &mut budget);
        }
        assert!(spans.spans.len() <= MOST_SPANS);
        let mut kept = 0;
        for n in 0..10_000u64 {
            kept += u64::from(
                spans.insert(SegmentSpan { start: 20_000 + 2 * n, end: 20_001 + 2 * n }, &mut budget),
            );
        }
        assert!(kept <= MOST_SPANS as u64 && spans.spans.len() <= MOST_SPANS);
        spans.clear(&mut budget);
        assert_eq!(budget.used(), 0);
    }
}

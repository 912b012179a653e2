// SPDX-License-Identifier: Apache-2.0
//! Rule sets as lists of pieces. Lists share pieces: equal parts of two lists are recognised by address,
//! whatever fids their rules have in each.

use crate::classifier::{InsertError, Match, NO_FID, RankedRule};
use crate::header::HeaderRule;
use bartizan_base::Fid;
use core::ops::Range;
use std::sync::Arc;

/// Rules in their order, each with a number; the list that has the piece gives the numbers a meaning
/// ([`Numbers`]).
#[derive(Debug, Default)]
pub struct Piece {
    numbers: Box<[u32]>,
    rules: Box<[HeaderRule]>,
    largest: u32,
    rises: bool,
    is_named: bool,
}

impl Piece {
    /// Makes a piece of rules with their numbers.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = (u32, HeaderRule)>) -> Self {
        let (numbers, rules): (Vec<u32>, Vec<HeaderRule>) = rules.into_iter().unzip();
        Piece {
            largest: numbers.iter().copied().max().unwrap_or(0),
            rises: numbers.is_sorted(),
            is_named: rules.iter().any(HeaderRule::is_named),
            numbers: numbers.into(),
            rules: rules.into(),
        }
    }

    /// The number of its rules.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether the piece has no rule.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether some rule has a condition on a name.
    #[must_use]
    pub const fn is_named(&self) -> bool {
        self.is_named
    }

    /// The rules.
    #[must_use]
    pub const fn rules(&self) -> &[HeaderRule] {
        &self.rules
    }
}

/// The meaning of the numbers of a piece in a list: the fid and the priority of an entry follow from its
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Number plus this one is both fid and priority.
    From(u32),
    /// Numbers are fids, and this is the priority of all.
    At(u32),
}

impl Numbers {
    fn entry(self, number: u32, rule: HeaderRule) -> RankedRule {
        let (fid, priority) = self.meaning(number);
        RankedRule { fid: Fid(fid), priority, rule }
    }

    const fn meaning(self, number: u32) -> (u32, u32) {
        match self {
            Numbers::From(first) => {
                let number = first.saturating_add(number);
                (number, number)
            }
            Numbers::At(priority) => (number, priority),
        }
    }
}

/// A piece in a list.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The piece.
    pub piece: Arc<Piece>,
    /// The meaning of the numbers of the piece.
    pub numbers: Numbers,
}

impl Placed {
    fn largest_fid(&self) -> u32 {
        if self.piece.is_empty() { 0 } else { self.numbers.meaning(self.piece.largest).0 }
    }

    /// Its first and last priority, if its rules are in the order of their priorities.
    fn priorities(&self) -> Option<(u32, u32)> {
        let priority = |number: &u32| self.numbers.meaning(*number).1;
        let ends = self.piece.numbers.first().zip(self.piece.numbers.last());
        let in_order = self.piece.rises || matches!(self.numbers, Numbers::At(_));
        ends.filter(|_| in_order).map(|(first, last)| (priority(first), priority(last)))
    }

    /// Fids and priorities of its entries.
    pub(crate) fn meanings(&self) -> impl Iterator<Item = (u32, u32)> {
        self.piece.numbers.iter().map(|number| self.numbers.meaning(*number))
    }

    /// A piece of its rules that satisfy `wanted`.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&HeaderRule) -> bool) -> Placed {
        let numbered = self.piece.numbers.iter().copied().zip(self.piece.rules.iter().copied());
        let piece = Arc::new(Piece::new(numbered.filter(|(_, rule)| wanted(rule))));
        Placed { piece, ..self.clone() }
    }

    fn entries(&self) -> impl Iterator<Item = RankedRule> {
        let numbered = self.piece.numbers.iter().zip(&self.piece.rules);
        numbered.map(|(number, rule)| self.numbers.entry(*number, *rule))
    }
}

/// The entries of a rule set, the first that matches wins.
#[derive(Clone, Debug, Default)]
pub struct List {
    placed: Arc<[Placed]>,
    /// The start of each piece, and the end.
    starts: Arc<[usize]>,
}

impl List {
    /// Makes a list of pieces, one after the other.
    #[must_use]
    pub fn new(placed: Vec<Placed>) -> Self {
        let mut end = 0;
        let mut starts = Vec::with_capacity(placed.len() + 1);
        starts.push(0);
        for placed in &placed {
            end += placed.piece.len();
            starts.push(end);
        }
        List { placed: placed.into(), starts: starts.into() }
    }

    /// The number of its entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether the list has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces.
    #[must_use]
    pub fn pieces(&self) -> &[Placed] {
        &self.placed
    }

    /// The start of a piece; after the last one, the end.
    pub(crate) fn start(&self, piece: usize) -> usize {
        self.starts.get(piece).copied().unwrap_or_else(|| self.len())
    }

    /// The entries, in their order.
    pub fn iter(&self) -> impl Iterator<Item = RankedRule> {
        self.placed.iter().flat_map(Placed::entries)
    }

    /// All entries.
    #[must_use]
    pub fn to_vec(&self) -> Vec<RankedRule> {
        self.iter().collect()
    }

    /// The entry at a place.
    pub(crate) fn get(&self, place: usize) -> Option<RankedRule> {
        let piece = self.starts.partition_point(|start| *start <= place).checked_sub(1)?;
        let placed = self.placed.get(piece)?;
        let place = place - self.start(piece);
        Some(placed.numbers.entry(*placed.piece.numbers.get(place)?, *placed.piece.rules.get(place)?))
    }

    /// The rules of some pieces.
    pub(crate) fn rules(&self, pieces: Range<usize>) -> impl DoubleEndedIterator<Item = &HeaderRule> + Clone {
        let pieces = self.placed.get(pieces).unwrap_or_default();
        pieces.iter().flat_map(|placed| placed.piece.rules.iter())
    }

    /// Fid and priority of each entry, in their order.
    pub(crate) fn meanings(&self) -> impl Iterator<Item = Match> {
        let all = self.placed.iter().flat_map(Placed::meanings);
        all.map(|(fid, priority)| Match { fid: Fid(fid), priority })
    }

    /// Whether some rule has a condition on a name.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.placed.iter().any(|placed| placed.piece.is_named)
    }

    /// The list in the order of the priorities; equal ones keep their order.
    pub(crate) fn in_order(self) -> Self {
        let mut last = 0;
        let rises = |placed: &Placed| match placed.priorities() {
            Some((first, end)) => core::mem::replace(&mut last, end) <= first,
            None => placed.piece.is_empty(),
        };
        if self.placed.iter().all(rises) {
            return self;
        }
        let mut sorted = self.to_vec();
        sorted.sort_by_key(|entry| entry.priority);
        sorted.into_iter().collect()
    }

    /// As [`InsertError::check`].
    pub(crate) fn check(&self, set: u8, sets: usize) -> Result<(), InsertError> {
        InsertError::check(set, sets, &[])?;
        if self.placed.iter().any(|placed| placed.largest_fid() == NO_FID.0) {
            return Err(InsertError::ReservedFid);
        }
        if self.is_named() { Err(InsertError::Named) } else { Ok(()) }
    }
}

/// Makes a piece of each run of one priority.
impl FromIterator<RankedRule> for List {
    fn from_iter<I: IntoIterator<Item = RankedRule>>(entries: I) -> Self {
        let entries: Vec<RankedRule> = entries.into_iter().collect();
        let pieces = entries.chunk_by(|a, b| a.priority == b.priority).map(|run| Placed {
            piece: Arc::new(Piece::new(run.iter().map(|entry| (entry.fid.0, entry.rule)))),
            numbers: Numbers::At(run.first().map_or(0, |entry| entry.priority)),
        });
        List::new(pieces.collect())
    }
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for List {}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(port: u16) -> HeaderRule {
        HeaderRule { destination_ports: crate::header::Range::one(port), ..HeaderRule::default() }
    }

    #[test]
    fn entries_are_those_of_the_pieces() {
        let piece = Arc::new(Piece::new([(0, rule(1)), (2, rule(2))]));
        let placed = |numbers| Placed { piece: Arc::clone(&piece), numbers };
        let list =
            List::new(vec![placed(Numbers::From(5)), placed(Numbers::At(9)), placed(Numbers::From(10))]);
        let said: Vec<_> =
            list.iter().map(|e| (e.fid.0, e.priority, e.rule.destination_ports.first)).collect();
        assert_eq!(said, [(5, 5, 1), (7, 7, 2), (0, 9, 1), (2, 9, 2), (10, 10, 1), (12, 12, 2)]);
        assert_eq!((0..6).filter_map(|at| list.get(at)).collect::<Vec<_>>(), list.to_vec());
        assert_eq!((list.get(6), list.len(), list.check(0, 1)), (None, 6, Ok(())));
        assert_eq!(list.to_vec().into_iter().collect::<List>(), list);
        // One list that is in order, and one that is not.
        assert!(Arc::ptr_eq(&list.clone().in_order().placed, &list.placed));
        let mixed = List::new(vec![placed(Numbers::From(5)), placed(Numbers::At(6))]);
        let priorities = |list: List| list.iter().map(|e| e.priority).collect::<Vec<_>>();
        assert_eq!(priorities(mixed.in_order()), [5, 6, 6, 7]);
    }

    #[test]
    fn what_can_be_in_no_classifier_is_refused() {
        let placed = |numbers| Placed { piece: Arc::new(Piece::new([(1, rule(1))])), numbers };
        let reserved = List::new(vec![placed(Numbers::From(u32::MAX - 1))]);
        assert_eq!(reserved.check(0, 1), Err(InsertError::ReservedFid));
        assert_eq!(List::default().check(1, 1), Err(InsertError::NoSuchSet { set: 1, sets: 1 }));
    }
}

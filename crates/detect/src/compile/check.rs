// SPDX-License-Identifier: Apache-2.0
//! Content programs that can never match or have no meaning.

use crate::compile::refusal::KeywordError;
use crate::model::content::{Item, Literal, Number, Program};
use bartizan_rules::UintMatch;

impl Program {
    /// Refuses programs that can never match or have no meaning.
    ///
    /// # Errors
    /// Literals that need more bytes than `bsize` allows; `fast_pattern:only` with a place.
    pub fn check(&self) -> Result<(), KeywordError> {
        // Only the first size counts, as in Suricata.
        let size = self.items.iter().find_map(|item| match item {
            Item::Size { check, uri: false } => Some(check),
            _ => None,
        });
        let most = match size {
            Some(UintMatch::Equal(n) | UintMatch::Less(n) | UintMatch::Between(_, n)) => Some(*n),
            _ => None,
        };
        let needed = self.needed();
        if let Some(most) = most.filter(|most| needed > *most) {
            return Err(KeywordError::context(format!(
                "the contents need {needed} bytes, and `bsize` allows {most} at most"
            )));
        }
        for item in &self.items {
            match item {
                Item::Literal(literal) if literal.fast_pattern_only && (!literal.is_single()) => {
                    return Err(KeywordError::context(
                        "a content with `fast_pattern:only` cannot have a position, and no other condition can be relative to it",
                    ));
                }
                Item::Literal(literal)
                    if literal.fast_pattern
                        && literal.negated
                        && (literal.is_relative()
                            || literal.place.offset.is_some()
                            || literal.place.depth.is_some()) =>
                {
                    return Err(KeywordError::context(
                        "a negated content with a position cannot be the fast pattern: its absence at one place does not select packets",
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Number of bytes for which the last `urilen` among the items leaves room, as Suricata counts: one more
    /// than the largest length unless `urilen` names that length itself, and none (any number) for a length
    /// of 0.
    pub(crate) fn uri_room(&self) -> Option<Option<u64>> {
        let last = self.items.iter().rev().find_map(|item| match item {
            Item::Size { check, uri: true } => Some(check),
            _ => None,
        })?;
        Some(match last {
            UintMatch::Equal(n) | UintMatch::LessEqual(n) => Some(*n).filter(|n| *n > 0),
            UintMatch::Less(n) | UintMatch::Between(_, n) => Some(n.saturating_add(1)),
            _ => None,
        })
    }

    /// Refuses contents that are longer than `urilen` leaves room for, each by itself and whatever its place.
    ///
    /// # Errors
    /// A content is too long.
    pub(crate) fn check_uri_room(&self, room: u64) -> Result<(), KeywordError> {
        let long = self.literals().find(|(_, literal)| literal.bytes.len() as u64 > room);
        long.map_or(Ok(()), |(_, literal)| {
            let length = literal.bytes.len();
            Err(KeywordError::context(format!(
                "a content has {length} bytes, and `urilen` leaves room for {room}"
            )))
        })
    }

    /// Number of bytes that the first literal and the literals relative to it need. As in Suricata, which
    /// refuses rules by this number, a literal with a place of its own does not count, however long it is:
    /// rules in use have such literals.
    fn needed(&self) -> u64 {
        let constant = |number: Option<Number>| match number {
            Some(Number::Constant(value)) => value,
            _ => 0,
        };
        let mut literals = self.literals().map(|(_, literal)| literal);
        let length = |literal: &Literal| i64::try_from(literal.bytes.len()).unwrap_or(i64::MAX);
        let Some(first) = literals.next() else { return 0 };
        let first = length(first).saturating_add(constant(first.place.offset));
        let behind = literals.filter(|literal| literal.is_relative() && !literal.negated);
        let add = |sum: i64, next: &Literal| {
            sum.saturating_add(length(next)).saturating_add(constant(next.place.distance))
        };
        u64::try_from(behind.fold(first, add)).unwrap_or(0)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Stream bytes that rules refused with their packet and not with their flow. The sender retransmits them,
//! and a rule that matched on the stream or on a transaction is not evaluated on them again: without this
//! record the receiver would get them then.

use bartizan_base::RuleId;

/// Sequence numbers further apart than this belong to different wraps of the sequence space.
const FAR: u32 = 1 << 30;

/// The refused bytes of one direction, by sequence numbers: from the first byte to the last one. The receiver
/// reads nothing in between, since the first byte is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefusedBytes {
    /// The rule that refused them.
    pub rule: RuleId,
    from: u32,
    length: u32,
}

impl RefusedBytes {
    /// The `length` bytes before sequence number `end`.
    pub(crate) const fn new(rule: RuleId, end: u32, length: u32) -> Self {
        RefusedBytes { rule, from: end.wrapping_sub(length), length }
    }

    /// Joins these bytes with those refused before.
    pub(crate) fn and(self, before: Option<Self>) -> Self {
        let Some(before) = before.filter(|before| !before.is_far(self.from)) else { return self };
        let from = if before.is_behind(self.from) { self.from } else { before.from };
        let end = |of: &Self| of.from.wrapping_sub(from).wrapping_add(of.length);
        RefusedBytes { rule: before.rule, from, length: end(&before).max(end(&self)) }
    }

    /// Whether a segment brings some of the bytes.
    pub(crate) fn meets(&self, seq: u32, length: u32) -> bool {
        // Distance of the segment from the first refused byte, and of the first refused byte from the
        // segment's first byte.
        let (into, before) = (seq.wrapping_sub(self.from), self.from.wrapping_sub(seq));
        length > 0 && (into < self.length || before < length)
    }

    /// Whether a sequence number belongs to another wrap.
    pub(crate) fn is_far(&self, seq: u32) -> bool {
        seq.wrapping_sub(self.from).min(self.from.wrapping_sub(seq)) > FAR
    }

    /// Whether the bytes begin after a sequence number.
    const fn is_behind(&self, seq: u32) -> bool {
        self.from.wrapping_sub(seq) <= FAR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RuleId = RuleId { gid: 1, sid: 7, rev: 0 };

    #[test]
    fn what_brings_some_of_them() {
        for end in [1_000, 50, 0, u32::MAX] {
            let refused = RefusedBytes::new(RULE, end, 100);
            let at = |place: i32| end.wrapping_sub(100).wrapping_add_signed(place);
            for (place, length, meets) in [
                (0, 100, true),
                (0, 1, true),
                (99, 1, true),
                (100, 50, false),
                (-50, 50, false),
                (-50, 51, true),
                (-50, 500, true),
                (20, 0, false),
            ] {
                assert_eq!(refused.meets(at(place), length), meets, "{end} {place} {length}");
            }
        }
    }

    #[test]
    fn several_are_one() {
        let first = RefusedBytes::new(RULE, 1_000, 100);
        let both = RefusedBytes::new(RULE, 1_500, 200).and(Some(first));
        assert_eq!((both.from, both.length), (900, 600));
        let turned = first.and(Some(RefusedBytes::new(RULE, 1_500, 200)));
        assert_eq!((turned.from, turned.length), (900, 600));
        assert_eq!(first.and(Some(both)), both);
        // Bytes of another wrap are forgotten.
        let far = RefusedBytes::new(RULE, 0x8000_0000, 100);
        assert_eq!(far.and(Some(first)), far);
        assert!(first.is_far(0x8000_0000) && !first.is_far(5_000));
    }
}

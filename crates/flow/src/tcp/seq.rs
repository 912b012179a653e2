// SPDX-License-Identifier: Apache-2.0
//! Sequence numbers and their arithmetic (RFC 9293 section 3.4): a circle of 2^32 numbers, on which "before"
//! and "after" apply to distances of less than half a turn.

/// A TCP sequence or acknowledgement number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// The number `n` bytes ahead.
    #[must_use]
    pub const fn plus(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }

    /// The number `n` bytes back.
    #[must_use]
    pub const fn minus(self, n: u32) -> Seq {
        Seq(self.0.wrapping_sub(n))
    }

    /// Signed distance from `other` to this number; positive when this one is ahead.
    #[must_use]
    pub const fn since(self, other: Seq) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Whether this number lies before `other`.
    #[must_use]
    pub const fn before(self, other: Seq) -> bool {
        self.since(other) < 0
    }

    /// Whether this number lies after `other`.
    #[must_use]
    pub const fn after(self, other: Seq) -> bool {
        self.since(other) > 0
    }

    /// Whether this number is `other` or lies before it.
    #[must_use]
    pub const fn at_most(self, other: Seq) -> bool {
        self.since(other) <= 0
    }

    /// Whether this number is `other` or lies after it.
    #[must_use]
    pub const fn at_least(self, other: Seq) -> bool {
        self.since(other) >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let end = Seq(u32::MAX);
        assert!(end.before(end.plus(1)));
        assert_eq!(end.plus(1), Seq(0));
        assert!(Seq(5).after(Seq(u32::MAX - 5)));
        assert_eq!(Seq(5).since(Seq(u32::MAX - 4)), 10);
        assert!(Seq(7).at_most(Seq(7)) && Seq(7).at_least(Seq(7)));
        assert!(!Seq(7).before(Seq(7)) && !Seq(7).after(Seq(7)));
        assert_eq!(Seq(3).minus(4), Seq(u32::MAX));
    }
}

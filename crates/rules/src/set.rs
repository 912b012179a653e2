// SPDX-License-Identifier: Apache-2.0
//! Sets of addresses and of ports as sorted ranges that neither overlap nor touch. IPv4 and IPv6 are two
//! halves of one address set, each with all operations.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A number type for ranges.
pub trait Bound: Copy + Ord {
    /// The smallest value.
    const MIN: Self;
    /// The largest value.
    const MAX: Self;
    /// The next value, if there is one.
    fn next(self) -> Option<Self>;
    /// The value before, if there is one.
    fn before(self) -> Option<Self>;
}

macro_rules! bounds {
    ($($t:ty),*) => {$(
        impl Bound for $t {
            const MIN: Self = <$t>::MIN;
            const MAX: Self = <$t>::MAX;
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }
            fn before(self) -> Option<Self> {
                self.checked_sub(1)
            }
        }
    )*};
}
bounds!(u16, u32, u128);

/// Sorted ranges, both ends included, with a gap between any two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ranges<T>(Vec<(T, T)>);

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Bound> Ranges<T> {
    /// The set of all values.
    #[must_use]
    pub fn all() -> Self {
        Self(vec![(T::MIN, T::MAX)])
    }

    /// Makes the set of ranges in any order, overlapping or not; a range whose end precedes its start is
    /// ignored.
    #[must_use]
    pub fn new(mut ranges: Vec<(T, T)>) -> Self {
        ranges.retain(|(low, high)| low <= high);
        ranges.sort_unstable();
        let mut out: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match out.last_mut() {
                Some((_, end)) if end.next().is_none_or(|next| low <= next) => *end = high.max(*end),
                _ => out.push((low, high)),
            }
        }
        Self(out)
    }

    /// The ranges, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[(T, T)] {
        &self.0
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains all values.
    #[must_use]
    pub fn is_all(&self) -> bool {
        matches!(self.0.as_slice(), [(low, high)] if *low == T::MIN && *high == T::MAX)
    }

    /// Whether the set contains a value.
    #[must_use]
    pub fn contains(&self, value: T) -> bool {
        let after = self.0.partition_point(|(low, _)| *low <= value);
        after.checked_sub(1).and_then(|i| self.0.get(i)).is_some_and(|(_, high)| value <= *high)
    }

    /// The union of both sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::new(self.0.iter().chain(&other.0).copied().collect())
    }

    /// The difference: this set without the other.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut out = Vec::new();
        let mut cuts = other.0.iter().peekable();
        for (low, high) in &self.0 {
            let mut low = Some(*low);
            while let Some((cut_low, cut_high)) = cuts.peek() {
                let Some(from) = low else { break };
                if *cut_high < from {
                    cuts.next();
                    continue;
                }
                if *cut_low > *high {
                    break;
                }
                if let Some(end) = cut_low.before().filter(|end| from <= *end) {
                    out.push((from, end));
                }
                if *cut_high >= *high {
                    low = None;
                } else {
                    low = cut_high.next();
                    cuts.next();
                }
            }
            if let Some(from) = low {
                out.push((from, *high));
            }
        }
        Self(out)
    }

    /// The complement.
    #[must_use]
    pub fn complement(&self) -> Self {
        Self::all().minus(self)
    }
}

/// A set of ports.
pub type PortSet = Ranges<u16>;

/// A set of addresses of both families.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressSet {
    /// The IPv4 half, addresses as numbers.
    pub v4: Ranges<u32>,
    /// The IPv6 half, addresses as numbers.
    pub v6: Ranges<u128>,
}

impl AddressSet {
    /// All addresses of both families.
    #[must_use]
    pub fn all() -> Self {
        Self { v4: Ranges::all(), v6: Ranges::all() }
    }

    /// Whether the set has no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Whether the set has every address of both families.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.v4.is_all() && self.v6.is_all()
    }

    /// Whether the set contains an address. An IPv4 address mapped into IPv6 is an IPv6 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.v4.contains(u32::from(a)),
            IpAddr::V6(a) => self.v6.contains(u128::from(a)),
        }
    }

    /// The union of both sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self { v4: self.v4.union(&other.v4), v6: self.v6.union(&other.v6) }
    }
}

impl core::fmt::Display for AddressSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let four = |a: &u32| IpAddr::V4(Ipv4Addr::from(*a));
        let six = |a: &u128| IpAddr::V6(Ipv6Addr::from(*a));
        let v4 = self.v4.as_slice().iter().map(|(a, b)| (four(a), four(b)));
        let v6 = self.v6.as_slice().iter().map(|(a, b)| (six(a), six(b)));
        f.write_str("[")?;
        for (i, (low, high)) in v4.chain(v6).enumerate() {
            let comma = if i > 0 { "," } else { "" };
            if low == high { write!(f, "{comma}{low}")? } else { write!(f, "{comma}{low}-{high}")? }
        }
        f.write_str("]")
    }
}

impl core::fmt::Display for PortSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("[")?;
        for (i, (low, high)) in self.0.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            if low == high { write!(f, "{comma}{low}")? } else { write!(f, "{comma}{low}:{high}")? }
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_normal() {
        let r = Ranges::new(vec![(5u16, 7), (1, 2), (3, 4), (20, 10), (7, 9), (65535, 65535)]);
        assert_eq!(r.as_slice(), [(1, 9), (65535, 65535)]);
        assert_eq!(r.complement().as_slice(), [(0, 0), (10, 65534)]);
        assert!(PortSet::all().complement().is_empty());
        assert!(PortSet::default().complement().is_all());
        assert_eq!(r.to_string(), "[1:9,65535]");
    }

    fn ranges() -> impl Strategy<Value = Vec<(u16, u16)>> {
        let small = prop_oneof![0u16..40, 65500u16..=65535];
        proptest::collection::vec((small.clone(), small), 0..8)
    }

    proptest! {
        #[test]
        fn operations_agree_with_membership(a in ranges(), b in ranges()) {
            let (x, y) = (Ranges::new(a.clone()), Ranges::new(b.clone()));
            let inside = |list: &[(u16, u16)], v: u16| list.iter().any(|(l, h)| *l <= v && v <= *h);
            let (both, less) = (x.union(&y), x.minus(&y));
            for v in (0..45).chain(65490..=65535) {
                let (p, q) = (inside(&a, v), inside(&b, v));
                prop_assert_eq!(x.contains(v), p);
                prop_assert_eq!(both.contains(v), p || q);
                prop_assert_eq!(less.contains(v), p && !q);
                prop_assert_eq!(x.complement().contains(v), !p);
            }
            for set in [&x, &both, &less] {
                prop_assert!(set.as_slice().windows(2).all(|w| w[0].1 < w[1].0 - 1));
            }
        }
    }
}

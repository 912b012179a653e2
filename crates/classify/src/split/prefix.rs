// SPDX-License-Identifier: Apache-2.0
//! Prefixes of one address field as a forest in preorder: a prefix and all below it are one range of numbers.
//!
//! The class of an address is the longest prefix that contains it, because that prefix determines the
//! others that do.

use crate::header::Net;
use bartizan_base::at::IndexOrDefault;

/// Leading bits of an address, at the top of 128. The order puts a prefix directly before those inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AddressPrefix {
    pub value: u128,
    pub length: u8,
}

impl AddressPrefix {
    /// Every address.
    pub const ANY: AddressPrefix = AddressPrefix { value: 0, length: 0 };

    pub fn new(net: Option<Net>) -> Self {
        let Some(net) = net else { return AddressPrefix::ANY };
        let (v6, first, _) = net.range();
        let (value, length) =
            if v6 { (first, net.length.min(128)) } else { (first << 96, net.length.min(32)) };
        AddressPrefix { value, length }
    }

    /// The last address.
    pub fn last(self) -> u128 {
        self.value | u128::MAX.checked_shr(u32::from(self.length)).unwrap_or(0)
    }

    pub fn contains(self, value: u128) -> bool {
        (self.value..=self.last()).contains(&value)
    }
}

/// Different prefixes in preorder, the first of them [`AddressPrefix::ANY`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefixes {
    pub list: Vec<AddressPrefix>,
    /// The number of the next shorter prefix around it; its own number for the first.
    pub parent: Vec<u32>,
    /// One past the last prefix inside it.
    pub end: Vec<u32>,
}

impl Prefixes {
    pub fn new(prefixes: impl Iterator<Item = AddressPrefix>) -> Self {
        let mut list: Vec<AddressPrefix> = prefixes.chain([AddressPrefix::ANY]).collect();
        list.sort_unstable();
        list.dedup();
        Prefixes::from_sorted(list)
    }

    pub fn from_sorted(list: Vec<AddressPrefix>) -> Self {
        let mut parent = Vec::with_capacity(list.len());
        let mut end = vec![list.len() as u32; list.len()];
        let mut open: Vec<(u128, u32)> = Vec::new();
        for (number, prefix) in list.iter().enumerate() {
            while let Some(&(last, inner)) = open.last()
                && last < prefix.value
            {
                if let Some(end) = end.get_mut(inner as usize) {
                    *end = number as u32;
                }
                open.pop();
            }
            parent.push(open.last().map_or(0, |(_, outer)| *outer));
            open.push((prefix.last(), number as u32));
        }
        Prefixes { list, parent, end }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Number of a prefix that is in the list.
    pub fn number(&self, prefix: AddressPrefix) -> u32 {
        self.list.binary_search(&prefix).unwrap_or(0) as u32
    }

    /// The number of classes in a prefix of the list, itself included.
    pub fn inside(&self, number: u32) -> u32 {
        self.end.at(number as usize) - number
    }

    /// For each prefix of this list the longest of `few` (a part of this list) that contains it.
    pub fn project(&self, few: &Prefixes) -> Vec<u32> {
        let mut out: Vec<u32> = Vec::with_capacity(self.len());
        let mut rest = few.list.iter().enumerate().peekable();
        for (prefix, parent) in self.list.iter().zip(&self.parent) {
            let own = rest.next_if(|(_, p)| *p == prefix).map(|(number, _)| number as u32);
            out.push(own.unwrap_or_else(|| out.at(*parent as usize)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preorder_and_projection() {
        let p = |value: u128, length| AddressPrefix { value: value << 120, length };
        let all = Prefixes::new([p(0x80, 1), p(0x80, 8), p(0xc0, 8), p(0x40, 8)].into_iter());
        assert_eq!(all.list, [p(0, 0), p(0x40, 8), p(0x80, 1), p(0x80, 8), p(0xc0, 8)]);
        assert_eq!(all.parent, [0, 0, 0, 2, 2]);
        assert_eq!(all.end, [5, 2, 5, 4, 5]);
        let few = Prefixes::new([p(0x80, 1)].into_iter());
        assert_eq!(all.project(&few), [0, 0, 1, 1, 1]);
        assert_eq!(p(0x80, 1).last(), u128::MAX);
        assert_eq!(AddressPrefix::ANY.last(), u128::MAX);
        assert!(p(0x80, 8).contains(0x80 << 120) && !p(0x80, 8).contains(0x81 << 120));
    }
}

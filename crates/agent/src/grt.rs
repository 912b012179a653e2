// SPDX-License-Identifier: Apache-2.0
//! The global rule table: one number, the fid, for each class of flows, the same in every function's table.
//!
//! Source: PASS, section on the agent: globally unique identifiers, deletion by the identifier alone. A new entry gets
//! the smallest free fid, in O(log n): freed ones wait in a heap. An entry belongs to one tenant and is known by it
//! and a name, so that the same class has the same fid in every generation.

use bartizan_base::{Fid, TenantId};
use core::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// No fid is this or above: bounds the tables that are indexed by fid.
pub const FID_END: u32 = 1 << 20;

/// No fid is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("global rule table: all {FID_END} fids are in use; use fewer policies, tenants or service levels")]
pub struct NoFid;

/// What a fid stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meaning {
    /// Whose flows.
    pub tenant: TenantId,
    /// Which of the tenant's classes.
    pub name: String,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct GlobalRuleTable {
    entries: Vec<Option<Meaning>>,
    free: BinaryHeap<Reverse<u32>>,
    by_meaning: HashMap<Meaning, Fid>,
}

impl GlobalRuleTable {
    /// The fid of a meaning: the one that it has, else the smallest free one.
    ///
    /// # Errors
    /// [`NoFid`].
    pub fn fid(&mut self, meaning: Meaning) -> Result<Fid, NoFid> {
        if let Some(fid) = self.by_meaning.get(&meaning) {
            return Ok(*fid);
        }
        let number = match self.free.pop() {
            Some(Reverse(number)) => number,
            None => {
                let number = u32::try_from(self.entries.len()).map_err(|_| NoFid)?;
                if number >= FID_END {
                    return Err(NoFid);
                }
                self.entries.push(None);
                number
            }
        };
        if let Some(entry) = self.entries.get_mut(number as usize) {
            *entry = Some(meaning.clone());
        }
        self.by_meaning.insert(meaning, Fid(number));
        Ok(Fid(number))
    }

    /// The fid that a meaning has.
    #[must_use]
    pub fn known(&self, meaning: &Meaning) -> Option<Fid> {
        self.by_meaning.get(meaning).copied()
    }

    /// Deletes an entry by its fid alone; returns what it meant.
    pub fn delete(&mut self, fid: Fid) -> Option<Meaning> {
        let meaning = self.entries.get_mut(fid.0 as usize)?.take()?;
        self.by_meaning.remove(&meaning);
        self.free.push(Reverse(fid.0));
        Some(meaning)
    }

    /// What a fid means.
    #[must_use]
    pub fn meaning(&self, fid: Fid) -> Option<&Meaning> {
        self.entries.get(fid.0 as usize)?.as_ref()
    }

    /// Deletes every entry that `keep` does not want.
    pub fn retain(&mut self, mut keep: impl FnMut(Fid) -> bool) {
        let stale: Vec<Fid> = self.fids().filter(|fid| !keep(*fid)).collect();
        for fid in stale {
            self.delete(fid);
        }
    }

    /// The fids in use, rising.
    pub fn fids(&self) -> impl Iterator<Item = Fid> + '_ {
        self.entries.iter().zip(0..).filter(|(e, _)| e.is_some()).map(|(_, n)| Fid(n))
    }

    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_meaning.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_meaning.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn meaning(tenant: u16, name: u32) -> Meaning {
        Meaning { tenant: TenantId(tenant), name: name.to_string() }
    }

    proptest! {
        #[test]
        fn the_smallest_free_fid_is_given(steps in proptest::collection::vec((any::<bool>(), 0u16..3, 0u32..30), 0..200)) {
            let mut table = GlobalRuleTable::default();
            let mut model: BTreeMap<u32, Meaning> = BTreeMap::new();
            for (insert, tenant, name) in steps {
                if insert {
                    let wanted = meaning(tenant, name);
                    let known = model.iter().find(|(_, m)| **m == wanted).map(|(n, _)| *n);
                    let expected = known.unwrap_or_else(|| (0..).find(|n| !model.contains_key(n)).unwrap());
                    prop_assert_eq!(table.fid(wanted.clone()), Ok(Fid(expected)));
                    model.insert(expected, wanted);
                } else {
                    prop_assert_eq!(table.delete(Fid(name)), model.remove(&name));
                }
                prop_assert_eq!(table.len(), model.len());
            }
            // One fid, one tenant.
            for (number, meaning) in &model {
                prop_assert_eq!(table.meaning(Fid(*number)), Some(meaning));
            }
        }
    }

    #[test]
    fn a_hundred_thousand_operations() {
        let mut table = GlobalRuleTable::default();
        for n in 0..50_000 {
            assert_eq!(table.fid(meaning((n % 7) as u16, n)), Ok(Fid(n)));
        }
        for n in (0..50_000).rev().step_by(2) {
            assert!(table.delete(Fid(n)).is_some());
        }
        for n in 0..25_000 {
            assert_eq!(table.fid(meaning(9, n)), Ok(Fid(2 * n + 1)));
        }
        assert_eq!(table.fid(meaning(9, 25_000)), Ok(Fid(50_000)));
        table.retain(|fid| fid.0 < 10);
        assert_eq!(table.len(), 10);
        assert_eq!(table.fid(meaning(8, 0)), Ok(Fid(10)));
    }

    #[test]
    fn there_is_an_end() {
        let mut table =
            GlobalRuleTable { entries: vec![None; FID_END as usize], ..GlobalRuleTable::default() };
        assert_eq!(table.fid(meaning(0, 0)), Err(NoFid));
    }
}

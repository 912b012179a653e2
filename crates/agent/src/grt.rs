// SPDX-License-Identifier: Apache-2.0
//! The global rule table: one number, the fid, for each class of flows, the same in every function's table.
//!
//! Source: PASS, section on the agent: globally unique identifiers, deletion by the identifier alone. An
//! entry belongs to one tenant and is known by it and a name, so that the same class has the same fid in
//! every generation.
//!
//! Which number a new entry gets is the business of a [`FidAllocator`]. The usual one gives [the smallest
//! free one](SmallestFree); a device below the host whose tables want others (blocks by tenant, say) has one
//! of its own ([`Agent::set_fid_allocator`](crate::Agent::set_fid_allocator)). The table sees to it that no
//! number stands for two classes, whatever an allocator gives.

use bartizan_base::{Fid, TenantId};
use core::cmp::Reverse;
use core::fmt;
use std::collections::{BinaryHeap, HashMap};

/// No fid is this or above: bounds the tables that are indexed by fid.
pub const FID_END: u32 = 1 << 20;

/// A class gets no fid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFid {
    /// No fid is free.
    #[error(
        "global rule table: all {FID_END} fids are in use; use fewer policies, tenants or service levels"
    )]
    Full,
    /// The allocator gave a number that stands for another class, or none at all.
    #[error("the allocator of fids gave {}, which is in use or not below {FID_END}; report it to whoever made it", .0.0)]
    Wrong(Fid),
}

/// What a fid stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meaning {
    /// Whose flows.
    pub tenant: TenantId,
    /// Which of the tenant's classes.
    pub name: String,
}

/// Who says which number a new class gets. A generation that is not taken leaves no trace: the table works on
/// a copy ([`FidAllocator::copy`]) until it is.
pub trait FidAllocator: fmt::Debug + Send + Sync {
    /// A number below [`FID_END`] that is free: never given, or given back.
    ///
    /// # Errors
    /// [`NoFid::Full`].
    fn give(&mut self, meaning: &Meaning) -> Result<Fid, NoFid>;

    /// Takes a number back that it gave. `meaning`: what it stood for.
    fn take_back(&mut self, fid: Fid, meaning: &Meaning);

    /// One that gives what this one would.
    fn copy(&self) -> Box<dyn FidAllocator>;
}

/// Gives the smallest free number, in O(log n): tables that are indexed by fid stay dense.
#[derive(Clone, Debug, Default)]
pub struct SmallestFree {
    /// Numbers below this one were given.
    end: u32,
    /// Those of them that are free.
    free: BinaryHeap<Reverse<u32>>,
}

impl FidAllocator for SmallestFree {
    fn give(&mut self, _: &Meaning) -> Result<Fid, NoFid> {
        if let Some(Reverse(number)) = self.free.pop() {
            return Ok(Fid(number));
        }
        if self.end >= FID_END {
            return Err(NoFid::Full);
        }
        self.end += 1;
        Ok(Fid(self.end - 1))
    }

    fn take_back(&mut self, fid: Fid, _: &Meaning) {
        self.free.push(Reverse(fid.0));
    }

    fn copy(&self) -> Box<dyn FidAllocator> {
        Box::new(self.clone())
    }
}

/// See the module.
#[derive(Debug)]
pub struct GlobalRuleTable {
    entries: Vec<Option<Meaning>>,
    by_meaning: HashMap<Meaning, Fid>,
    allocator: Box<dyn FidAllocator>,
}

impl Default for GlobalRuleTable {
    fn default() -> Self {
        GlobalRuleTable::with(Box::new(SmallestFree::default()))
    }
}

impl Clone for GlobalRuleTable {
    fn clone(&self) -> Self {
        GlobalRuleTable {
            entries: self.entries.clone(),
            by_meaning: self.by_meaning.clone(),
            allocator: self.allocator.copy(),
        }
    }
}

impl GlobalRuleTable {
    /// An empty table whose numbers come from an allocator that has given none.
    #[must_use]
    pub fn with(allocator: Box<dyn FidAllocator>) -> Self {
        GlobalRuleTable { entries: Vec::new(), by_meaning: HashMap::new(), allocator }
    }

    /// The fid of a meaning: the one that it has, else one that the allocator gives.
    ///
    /// # Errors
    /// [`NoFid`].
    pub fn fid(&mut self, meaning: Meaning) -> Result<Fid, NoFid> {
        if let Some(fid) = self.by_meaning.get(&meaning) {
            return Ok(*fid);
        }
        let fid = self.allocator.give(&meaning)?;
        let place = fid.0 as usize;
        if fid.0 >= FID_END || self.entries.get(place).is_some_and(Option::is_some) {
            return Err(NoFid::Wrong(fid));
        }
        if self.entries.len() <= place {
            self.entries.resize(place + 1, None);
        }
        if let Some(entry) = self.entries.get_mut(place) {
            *entry = Some(meaning.clone());
        }
        self.by_meaning.insert(meaning, fid);
        Ok(fid)
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
        self.allocator.take_back(fid, &meaning);
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
        let full = SmallestFree { end: FID_END, ..SmallestFree::default() };
        let mut table = GlobalRuleTable::with(Box::new(full));
        assert_eq!(table.fid(meaning(0, 0)), Err(NoFid::Full));
    }

    /// Gives what it is told to, whether that is right or not.
    #[derive(Clone, Debug)]
    struct Says(Vec<u32>);

    impl FidAllocator for Says {
        fn give(&mut self, _: &Meaning) -> Result<Fid, NoFid> {
            self.0.pop().map(Fid).ok_or(NoFid::Full)
        }
        fn take_back(&mut self, fid: Fid, _: &Meaning) {
            self.0.push(fid.0);
        }
        fn copy(&self) -> Box<dyn FidAllocator> {
            Box::new(self.clone())
        }
    }

    #[test]
    fn whatever_an_allocator_gives_no_number_stands_for_two_classes() {
        let mut table = GlobalRuleTable::with(Box::new(Says(vec![FID_END, 9, 700_000, 9])));
        assert_eq!(table.fid(meaning(1, 1)), Ok(Fid(9)));
        assert_eq!(table.fid(meaning(2, 1)), Ok(Fid(700_000)));
        assert_eq!(table.fid(meaning(1, 1)), Ok(Fid(9)));
        for wrong in [9, FID_END] {
            assert_eq!(table.fid(meaning(3, 1)), Err(NoFid::Wrong(Fid(wrong))));
        }
        assert_eq!((table.len(), table.fids().collect::<Vec<_>>()), (2, vec![Fid(9), Fid(700_000)]));
        // A copy has an allocator of its own.
        let mut copy = table.clone();
        assert_eq!(copy.delete(Fid(9)), Some(meaning(1, 1)));
        assert_eq!(copy.fid(meaning(4, 1)), Ok(Fid(9)));
        assert_eq!(table.meaning(Fid(9)), Some(&meaning(1, 1)));
        assert_eq!(table.fid(meaning(4, 1)), Err(NoFid::Full));
    }
}

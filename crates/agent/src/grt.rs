// SPDX-License-Identifier: Apache-2.0
//! The global rule table: one number, the fid, for each class of flows, the same in every function's table.
//!
//! Source: PASS, section on the agent: globally unique identifiers, deletion by the identifier alone. An
//! entry belongs to one tenant, and tenant and name identify it, so that a class has the same fid in every
//! generation.
//!
//! A [`FidAllocator`] chooses the number of a new entry. The default takes [the smallest free
//! one](SmallestFree); a device below the host whose tables need others (blocks by tenant, for example) has
//! its own ([`Agent::set_fid_allocator`](crate::Agent::set_fid_allocator)). The table ensures that no number
//! stands for two classes, whatever an allocator returns.

use bartizan_base::{Fid, TenantId};
use core::cmp::Reverse;
use core::fmt;
use std::collections::{BinaryHeap, HashMap};

/// Exclusive upper bound of fids, and so of tables that are indexed by fid.
pub const FID_END: u32 = 1 << 20;

/// Why a class gets no fid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFid {
    /// All fids are in use.
    #[error(
        "global rule table: all {FID_END} fids are in use; use fewer policies, tenants or service levels"
    )]
    Full,
    /// The allocator returned a fid that is in use or out of range.
    #[error("the allocator of fids gave {}, which is in use or not below {FID_END}; please report it", .0.0)]
    Wrong(Fid),
}

/// The flow class that a fid identifies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meaning {
    /// The tenant of the flows.
    pub tenant: TenantId,
    /// Name of the class within the tenant.
    pub name: String,
}

/// Chooses the fids of new classes. A generation that fails to build leaves no trace: the table works on a
/// copy ([`FidAllocator::copy`]) until the build succeeds.
pub trait FidAllocator: fmt::Debug + Send + Sync {
    /// Returns a free number below [`FID_END`].
    ///
    /// # Errors
    /// [`NoFid::Full`].
    fn allocate(&mut self, meaning: &Meaning) -> Result<Fid, NoFid>;

    /// Takes back a number that it returned; `meaning` is the class it stood for.
    fn take_back(&mut self, fid: Fid, meaning: &Meaning);

    /// A copy that would return the same numbers.
    fn copy(&self) -> Box<dyn FidAllocator>;
}

/// Returns the smallest free number, in O(log n), so that tables indexed by fid stay dense.
#[derive(Clone, Debug, Default)]
pub struct SmallestFree {
    /// All numbers below this one were returned at some time.
    end: u32,
    /// Free numbers below `end`.
    free: BinaryHeap<Reverse<u32>>,
}

impl FidAllocator for SmallestFree {
    fn allocate(&mut self, _: &Meaning) -> Result<Fid, NoFid> {
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

/// The global rule table; see the module.
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
    /// An empty table with an allocator that has returned no number yet.
    #[must_use]
    pub fn with(allocator: Box<dyn FidAllocator>) -> Self {
        GlobalRuleTable { entries: Vec::new(), by_meaning: HashMap::new(), allocator }
    }

    /// The fid of a class: its present one, or else a new one from the allocator.
    ///
    /// # Errors
    /// [`NoFid`].
    pub fn fid(&mut self, meaning: Meaning) -> Result<Fid, NoFid> {
        if let Some(fid) = self.by_meaning.get(&meaning) {
            return Ok(*fid);
        }
        let fid = self.allocator.allocate(&meaning)?;
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

    /// The fid that a class has.
    #[must_use]
    pub fn known(&self, meaning: &Meaning) -> Option<Fid> {
        self.by_meaning.get(meaning).copied()
    }

    /// Deletes an entry by its fid; returns its class.
    pub fn delete(&mut self, fid: Fid) -> Option<Meaning> {
        let meaning = self.entries.get_mut(fid.0 as usize)?.take()?;
        self.by_meaning.remove(&meaning);
        self.allocator.take_back(fid, &meaning);
        Some(meaning)
    }

    /// The class of a fid.
    #[must_use]
    pub fn meaning(&self, fid: Fid) -> Option<&Meaning> {
        self.entries.get(fid.0 as usize)?.as_ref()
    }

    /// Deletes every entry for which `keep` returns `false`.
    pub fn retain(&mut self, mut keep: impl FnMut(Fid) -> bool) {
        let stale: Vec<Fid> = self.fids().filter(|fid| !keep(*fid)).collect();
        for fid in stale {
            self.delete(fid);
        }
    }

    /// The fids in use, ascending.
    pub fn fids(&self) -> impl Iterator<Item = Fid> + '_ {
        self.entries.iter().zip(0..).filter(|(e, _)| e.is_some()).map(|(_, n)| Fid(n))
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_meaning.len()
    }

    /// Whether there are no entries.
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
            // A fid belongs to one tenant.
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

    /// An allocator that returns given numbers, valid or not.
    #[derive(Clone, Debug)]
    struct Says(Vec<u32>);

    impl FidAllocator for Says {
        fn allocate(&mut self, _: &Meaning) -> Result<Fid, NoFid> {
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

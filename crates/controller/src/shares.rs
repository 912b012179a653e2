// SPDX-License-Identifier: Apache-2.0
//! Limited places with a share for each owner: all tokens of a tenant are one owner, each token without a
//! tenant is one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A limited number of places, of which each owner may take a share.
#[derive(Debug)]
pub struct Shares {
    own: usize,
    all: usize,
    /// Places taken, by owner; owners without places have no entry.
    taken: Mutex<BTreeMap<String, usize>>,
}

impl Shares {
    /// `all` places, at most `own` of them for one owner.
    #[must_use]
    pub const fn new(own: usize, all: usize) -> Self {
        Shares { own, all, taken: Mutex::new(BTreeMap::new()) }
    }

    /// Takes a place for an owner; `None` if all are taken, or the owner's share.
    pub fn take(&self, owner: &str) -> Option<SharePermit<'_>> {
        let mut taken = self.taken();
        let own = taken.get(owner).copied().unwrap_or(0);
        if own >= self.own || taken.values().sum::<usize>() >= self.all {
            return None;
        }
        taken.insert(owner.to_owned(), own + 1);
        Some(SharePermit { of: self, owner: owner.to_owned() })
    }

    /// Whether no place is taken.
    pub fn are_free(&self) -> bool {
        self.taken().is_empty()
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A taken place; given back when dropped.
#[derive(Debug)]
pub struct SharePermit<'s> {
    of: &'s Shares,
    owner: String,
}

impl Drop for SharePermit<'_> {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        if let Some(own) = taken.get_mut(&self.owner) {
            *own = own.saturating_sub(1);
        }
        taken.retain(|_, own| *own > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_all_places() {
        let places = Shares::new(2, 8);
        let mut held: Vec<_> = (0..2).map(|_| places.take("acme").expect("a place")).collect();
        assert!(places.take("acme").is_none(), "as many as one may have");
        held.pop();
        held.push(places.take("acme").expect("given back"));
        for other in ["beta", "gamma", "delta"] {
            held.extend((0..2).map(|_| places.take(other).expect("others have theirs")));
        }
        assert!(places.take("epsilon").is_none(), "all are taken");
        held.clear();
        assert!(places.are_free() && places.take("epsilon").is_some());
    }
}

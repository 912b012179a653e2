// SPDX-License-Identifier: Apache-2.0
//! Heads that are found by an address.
//!
//! Rule sets of today have thousands of rules that name addresses and nothing else: lists of known attackers,
//! each head with a set of its own. So many sets make more cells than there may be
//! ([`crate::compile::groups`]), and to hold each of them against each new flow takes longer than all else
//! that is done for it. But few of these heads name any one address. The bounds of their sets cut the
//! addresses into ranges, each with the heads that name all of it; one search by a packet's source and one by
//! its destination find those that it can meet.
//!
//! `compile::addresses` builds it.

use crate::model::ends::Ends;
use bartizan_base::TenantId;
use core::net::IpAddr;
use std::collections::BTreeMap;

/// Ranges of addresses with the heads that name them. No head names what lies before the first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges<T> {
    /// Where each range begins, rising; it ends where the next one begins.
    pub(crate) starts: Vec<T>,
    /// Which list of heads each range has.
    pub(crate) lists: Vec<u32>,
}

impl<T: Ord> Ranges<T> {
    fn find(&self, address: &T) -> u32 {
        let at = self.starts.partition_point(|start| start <= address);
        at.checked_sub(1).and_then(|at| self.lists.get(at)).copied().unwrap_or(0)
    }
}

/// The ranges of one end's addresses, of both IP versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct End {
    pub(crate) v4: Ranges<u32>,
    pub(crate) v6: Ranges<u128>,
}

impl End {
    fn find(&self, address: IpAddr) -> u32 {
        match address {
            IpAddr::V4(address) => self.v4.find(&u32::from(address)),
            IpAddr::V6(address) => self.v6.find(&u128::from(address)),
        }
    }
}

/// The heads as one tenant's traffic sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfTenant {
    pub(crate) source: End,
    pub(crate) destination: End,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct ByAddress {
    /// The heads that are found here and nowhere else, a bit each.
    pub(crate) heads: Vec<u64>,
    /// Lists of heads, each rising; the first is empty.
    pub(crate) lists: Vec<Vec<u32>>,
    pub(crate) common: OfTenant,
    pub(crate) of_tenants: BTreeMap<TenantId, OfTenant>,
}

impl ByAddress {
    /// Whether a head is found here.
    #[must_use]
    pub fn has(&self, head: u32) -> bool {
        self.heads.get((head / 64) as usize).is_some_and(|word| word >> (head % 64) & 1 == 1)
    }

    /// The heads that name an end of a packet: those that ask for its source, those that ask for its
    /// destination.
    #[must_use]
    pub fn find(&self, tenant: TenantId, ends: Ends) -> [&[u32]; 2] {
        let of = self.of_tenants.get(&tenant).unwrap_or(&self.common);
        let list = |end: &End, address: Option<(IpAddr, Option<u16>)>| {
            let number = address.map_or(0, |(address, _)| end.find(address));
            self.lists.get(number as usize).map_or(&[][..], Vec::as_slice)
        };
        [list(&of.source, ends.source), list(&of.destination, ends.destination)]
    }
}

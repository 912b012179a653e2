// SPDX-License-Identifier: Apache-2.0
//! Search for rule heads by address.
//!
//! Rule sets have thousands of rules that name addresses and nothing else: lists of known attackers, each
//! head with a set of its own. So many sets would exceed the limit of cells ([`crate::compile::groups`]), and
//! a comparison of each set with each new flow takes longer than all other work for the flow. But few of
//! these heads name any one address. The bounds of their sets cut the addresses into ranges, each with the
//! heads that name all of it; one search by a packet's source and one by its destination find the heads that
//! the packet can meet.
//!
//! `compile::addresses` builds the ranges.

use crate::model::ends::Ends;
use bartizan_base::TenantId;
use core::net::IpAddr;
use std::collections::BTreeMap;

/// Ranges of addresses with the heads that name them. No head names addresses before the first range.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeadRanges<T> {
    /// First address of each range, ascending; a range ends where the next begins.
    pub(crate) starts: Vec<T>,
    /// By range: index of its list of heads.
    pub(crate) lists: Vec<u32>,
}

impl<T: Ord> HeadRanges<T> {
    fn find(&self, address: &T) -> u32 {
        let at = self.starts.partition_point(|start| start <= address);
        at.checked_sub(1).and_then(|at| self.lists.get(at)).copied().unwrap_or(0)
    }
}

/// The ranges of one end's addresses, of both IP versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndpointRanges {
    pub(crate) v4: HeadRanges<u32>,
    pub(crate) v6: HeadRanges<u128>,
}

impl EndpointRanges {
    fn find(&self, address: IpAddr) -> u32 {
        match address {
            IpAddr::V4(address) => self.v4.find(&u32::from(address)),
            IpAddr::V6(address) => self.v6.find(&u128::from(address)),
        }
    }
}

/// The ranges that apply to one tenant's traffic.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfTenant {
    pub(crate) source: EndpointRanges,
    pub(crate) destination: EndpointRanges,
}

/// Finds heads by address; see the module.
#[derive(Clone, Debug, Default)]
pub struct ByAddress {
    /// Heads that only this search finds, a bit each.
    pub(crate) heads: Vec<u64>,
    /// Lists of heads, each ascending; the first list is empty.
    pub(crate) lists: Vec<Vec<u32>>,
    pub(crate) common: OfTenant,
    pub(crate) of_tenants: BTreeMap<TenantId, OfTenant>,
}

impl ByAddress {
    /// Whether this search finds a head.
    #[must_use]
    pub fn has(&self, head: u32) -> bool {
        self.heads.get((head / 64) as usize).is_some_and(|word| word >> (head % 64) & 1 == 1)
    }

    /// The heads that name an end of a packet: those found by its source, and those found by its destination.
    #[must_use]
    pub fn find(&self, tenant: TenantId, ends: Ends) -> [&[u32]; 2] {
        let of = self.of_tenants.get(&tenant).unwrap_or(&self.common);
        let list = |end: &EndpointRanges, address: Option<(IpAddr, Option<u16>)>| {
            let number = address.map_or(0, |(address, _)| end.find(address));
            self.lists.get(number as usize).map_or(&[][..], Vec::as_slice)
        };
        [list(&of.source, ends.source), list(&of.destination, ends.destination)]
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Selectors of tenants as words of a table.
//!
//! Selectors have an order, and the first that fits counts. A selector fits if one of the packet's tags (or
//! the number of its tunnel) and one of its two addresses do. So the first one that fits is the least of
//! the first ones for each pair of a tag and an address, and a table of such pairs, by classes of tags and
//! addresses, holds all results.

use super::build::{FieldValues, RowClasses, Segments, TooLarge, rows_that, segments};
use super::rows::{EarlyTenant, everywhere};
use super::sets::{Rows, ValueInterval, Values, common, either, first_common, values};
use bartizan_base::{LinkId, TenantId};
use std::collections::BTreeMap;

/// The number of VLAN ids.
const VLANS: usize = 1 << 12;
/// The most cells of a table of links, tags and hosts, or of links and selectors. So this and the segments
/// take at most a third of a table's words.
pub(crate) const SELECTED_MAX: usize = 1 << 18;
/// The most segments of addresses of an IP version.
pub(crate) const HOSTS_MAX: usize = 1 << 15;
/// The most segments of tunnel numbers.
pub(crate) const TUNNELS_MAX: usize = 1 << 16;

/// The selectors in the form of a table.
pub(super) struct Tenants {
    /// The tenant by the place of the selector; the last place is for packets that no selector matches.
    pub places: Vec<TenantId>,
    /// The place of the first selector that fits, by link, class of a tag and class of an address.
    pub selected: Vec<u32>,
    pub tag_classes: usize,
    pub host_classes: usize,
    pub untagged: u32,
    /// The class of each VLAN id.
    pub vlans: Vec<u32>,
    /// Beginnings of classes among the tunnel numbers: number and class.
    pub tunnels: Vec<(u128, u32)>,
    /// Beginnings of classes among addresses, of IPv4 and of IPv6.
    pub hosts: [Vec<(u128, u32)>; 2],
}

/// Classes of tags and of tunnel numbers.
struct Tags {
    classes: RowClasses,
    untagged: u32,
    vlans: Vec<u32>,
    tunnels: Vec<(u128, u32)>,
}

/// For each value the selectors that name it. `named`: number and values of each selector with any.
fn by_value<V: Ord + Copy>(named: &[(usize, &Vec<V>)]) -> BTreeMap<V, Rows> {
    let mut all: BTreeMap<V, Rows> = BTreeMap::new();
    for (number, list) in named {
        for value in *list {
            let own = all.entry(*value).or_default();
            *own = either(own, &[((number / 64) as u32, 1 << (number % 64))]);
        }
    }
    all
}

fn tags(all: &[EarlyTenant]) -> Result<Tags, TooLarge> {
    let mut classes = RowClasses::default();
    let plain = rows_that(all, |own| own.vlans.is_none() && own.tunnels.is_none());
    let untagged = classes.number(plain.clone());
    let numbered = |of: fn(&EarlyTenant) -> bool| all.iter().enumerate().filter(move |(_, own)| of(own));
    // Outside of tunnels, selectors with a tunnel number match nothing; inside, those with a tag match
    // nothing.
    let of_vlan: Vec<_> =
        numbered(|own| own.tunnels.is_none()).filter_map(|(n, own)| Some((n, own.vlans.as_ref()?))).collect();
    let of_tunnel: Vec<_> =
        numbered(|own| own.vlans.is_none()).filter_map(|(n, own)| Some((n, own.tunnels.as_ref()?))).collect();
    let mut vlans = vec![untagged; VLANS];
    for (vlan, own) in by_value(&of_vlan) {
        if let Some(place) = vlans.get_mut(usize::from(vlan)) {
            *place = classes.number(either(&plain, &own));
        }
    }
    let mut tunnels = vec![(0, untagged)];
    for (number, own) in by_value(&of_tunnel) {
        let number = u128::from(number);
        if tunnels.last().is_some_and(|(begin, _)| *begin == number) {
            tunnels.pop();
        }
        tunnels.push((number, classes.number(either(&plain, &own))));
        tunnels.push((number + 1, untagged));
    }
    // There is no number after the last one.
    tunnels.retain(|(begin, _)| *begin <= u32::MAX.into());
    tunnels.dedup_by_key(|(_, class)| *class);
    if classes.sets.len() > usize::from(u16::MAX) || tunnels.len() > TUNNELS_MAX {
        return Err(TooLarge);
    }
    Ok(Tags { classes, untagged, vlans, tunnels })
}

/// Beginnings of classes among the addresses of a version: address and class.
type Begins = Vec<(u128, u32)>;

/// Classes of addresses, and where they begin in each version.
fn hosts(all: &[EarlyTenant]) -> Result<(RowClasses, [Begins; 2]), TooLarge> {
    let mut classes = RowClasses::default();
    if all.iter().all(|own| own.networks.is_none()) {
        classes.number(rows_that(all, |_| true));
        return Ok((classes, [vec![(0, 0)], vec![(0, 0)]]));
    }
    let of = |own: &EarlyTenant| match &own.networks {
        Some(networks) => values(networks.iter().map(|net| ValueInterval::of_net(*net)).collect()),
        None => everywhere(),
    };
    let spans: Vec<Values> = all.iter().map(of).collect();
    let mut versions = [Vec::new(), Vec::new()];
    for (v6, begins) in [false, true].into_iter().zip(&mut versions) {
        let of = FieldValues::addresses(v6);
        let Segments { begins: own, classes: sets } =
            segments(spans.iter().map(Vec::as_slice), of, all.len(), &Rows::new())?;
        let numbers: Vec<u32> = sets.sets.into_iter().map(|set| classes.number(set)).collect();
        let number = |class: u32| numbers.get(class as usize).copied().unwrap_or_default();
        if own.len() > HOSTS_MAX {
            return Err(TooLarge);
        }
        *begins = own.into_iter().map(|(begin, class)| (begin, number(class))).collect();
    }
    Ok((classes, versions))
}

impl Tenants {
    /// The tenant selectors of these links, up to the last tenant that a rule names.
    pub fn of(all: &[EarlyTenant], links: &[LinkId]) -> Result<Self, TooLarge> {
        let (Tags { classes: tags, untagged, vlans, tunnels }, (addresses, hosts)) =
            (tags(all)?, hosts(all)?);
        let (tag_classes, host_classes) = (tags.sets.len(), addresses.sets.len());
        let selected = links.len().saturating_mul(tag_classes).saturating_mul(host_classes);
        if selected.max(links.len().saturating_mul(all.len() + 1)) > SELECTED_MAX {
            return Err(TooLarge);
        }
        let mut selected = Vec::with_capacity(selected);
        for link in links {
            let here = rows_that(all, |own| own.links.as_ref().is_none_or(|links| links.contains(link)));
            for tag in &tags.sets {
                let tag = common(tag, &here);
                let first = |host: &Rows| first_common(&tag, host).unwrap_or(all.len());
                let place = |host| u32::try_from(first(host)).unwrap_or(u32::MAX);
                selected.extend(addresses.sets.iter().map(place));
            }
        }
        let places = all.iter().map(|own| own.tenant).chain([TenantId(0)]).collect();
        Ok(Tenants { places, selected, tag_classes, host_classes, untagged, vlans, tunnels, hosts })
    }
}

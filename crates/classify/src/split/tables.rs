// SPDX-License-Identifier: Apache-2.0
//! The tables that a lookup reads: packed, made from groups.
//!
//! Field stage, once for all sets: a trie per address (64 Ki roots, then 256-way nodes) and a class per port
//! give three words. Aggregation, once per group: fields of these words select a slot (check and list) and a
//! port class; position or rank follows. Small groups are found in pools (see [`super::pool`]).

use super::aggregate::Aggregate;
use super::field::{BitField, bits};
use super::group::SplitGroup;
use super::pool::{GroupPool, take_pools};
use super::ports::CombinationSets;
use super::prefix::Prefixes;
use super::search::{Search4, Search6};
use bartizan_base::at::IndexOrDefault;

/// The most prefixes with which an IPv4 trie has wide nodes in tables that need not be the fastest: with
/// more, the trie would take most of the memory, and such tables are mostly temporary, until faster ones are
/// built.
const WIDE_MAX: usize = 1 << 14;
/// The source of the word of an address.
#[derive(Clone, Debug)]
pub(crate) enum AddressWords {
    /// The search returns the word.
    Leaf,
    /// The search returns an index into this table.
    Table(Vec<u64>),
}

/// The word of the ports, by kind of header.
#[derive(Clone, Debug)]
pub(crate) enum PortWords {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

/// Groups whose fields share their words.
#[derive(Clone, Debug)]
pub(crate) struct Bundle {
    pub source: AddressWords,
    pub destination: AddressWords,
    pub ports: PortWords,
    pub aggregates: Vec<Aggregate>,
    pub pools: Vec<GroupPool>,
}

/// Classes of a port field.
#[derive(Clone, Debug)]
pub(crate) enum PortTable {
    /// One class.
    One,
    /// Up to 256 classes; three bytes more than values.
    Narrow(Vec<u8>),
    /// More classes; one entry more than values.
    Wide(Vec<u16>),
}

impl PortTable {
    fn new(of: &[u16], count: usize) -> Self {
        match count {
            0 | 1 => PortTable::One,
            2..=256 => PortTable::Narrow(of.iter().map(|c| *c as u8).chain([0; 3]).collect()),
            _ => PortTable::Wide(of.iter().copied().chain([0]).collect()),
        }
    }

    #[inline]
    pub fn class(&self, value: u32) -> u32 {
        match self {
            PortTable::One => 0,
            PortTable::Narrow(of) => u32::from(of.at(value as usize)),
            PortTable::Wide(of) => u32::from(of.at(value as usize)),
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            PortTable::One => 0,
            PortTable::Narrow(of) => of.len(),
            PortTable::Wide(of) => of.len() * 2,
        }
    }
}

/// The search for an address.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are two of it")]
pub(crate) enum Searches {
    V4([Search4; 2]),
    V6([Search6; 2]),
}

/// All data that lookups of one IP version read.
#[derive(Clone, Debug)]
pub(crate) struct SplitTables {
    pub searches: Searches,
    /// Source port, destination port, protocol, tenant, link.
    pub ports: [PortTable; 5],
    /// The weight of each field's class in the index of the port words.
    pub strides: [u32; 5],
    pub bundles: Vec<Bundle>,
}

/// The first free bit of the words of source, destination and ports.
#[derive(Clone, Copy, Default)]
struct Room([u32; 3]);

const SOURCE: usize = 0;
const DESTINATION: usize = 1;
const PORTS: usize = 2;

impl Room {
    /// Reserves a field for so many values.
    fn take(&mut self, word: usize, values: usize) -> Option<BitField> {
        let need = bits(values);
        let at = self.0.get_mut(word)?;
        // No field crosses the middle of a word: vector units take halves.
        let from = if *at % 32 + need > 32 { at.next_multiple_of(32) } else { *at };
        if need == 0 {
            return Some(BitField::default());
        }
        *at = from + need;
        (*at <= 64).then(|| BitField { shift: from, mask: ((1u64 << need) - 1) as u32 })
    }
}

/// The contents of a bundle.
#[derive(Default)]
struct BundleContents {
    groups: Vec<(SplitGroup, Aggregate)>,
    pools: Vec<GroupPool>,
}

/// Sorts groups and pools into bundles that fit into words, and assigns their fields.
fn bundle(groups: Vec<(SplitGroup, Aggregate)>, pools: Vec<GroupPool>) -> Vec<BundleContents> {
    let mut out: Vec<BundleContents> = Vec::new();
    let mut room = Room::default();
    for (group, mut aggregate) in groups {
        let (row, column) =
            if aggregate.rows_are_source { (SOURCE, DESTINATION) } else { (DESTINATION, SOURCE) };
        let part = place_in(&mut out, &mut room, |room| {
            aggregate.row = room.take(row, aggregate.slots.len())?;
            aggregate.column = room.take(column, group.columns.len())?;
            aggregate.port = room.take(PORTS, aggregate.columns)?;
            Some(())
        });
        if let Some(part) = part {
            part.groups.push((group, aggregate));
        }
    }
    for mut pool in pools {
        let part = place_in(&mut out, &mut room, |room| {
            let [sources, destinations] = &pool.prefixes;
            pool.source = room.take(SOURCE, sources.len())?;
            pool.destination = room.take(DESTINATION, destinations.len())?;
            for part in &mut pool.parts {
                part.port = room.take(PORTS, part.columns as usize)?;
            }
            Some(())
        });
        if let Some(part) = part {
            part.pools.push(pool);
        }
    }
    out
}

/// The last bundle, or a new one if `take` finds no room in that.
fn place_in<'a>(
    out: &'a mut Vec<BundleContents>,
    room: &mut Room,
    mut take: impl FnMut(&mut Room) -> Option<()>,
) -> Option<&'a mut BundleContents> {
    let mut after = *room;
    if out.is_empty() || take(&mut after).is_none() {
        out.push(BundleContents::default());
        after = Room::default();
        // A single one has room: 24 bits are the most that a field takes.
        take(&mut after)?;
    }
    *room = after;
    out.last_mut()
}

/// The words of an address: for each prefix of `all` its classes in groups and pools.
fn words(all: &Prefixes, part: &BundleContents, source: bool) -> Vec<u64> {
    let mut out = vec![0u64; all.len()];
    let mut add = |own: &Prefixes, field: BitField, value: &dyn Fn(u32) -> u32| {
        for (word, class) in out.iter_mut().zip(all.project(own)) {
            *word |= u64::from(value(class)) << field.shift;
        }
    };
    for (group, aggregate) in &part.groups {
        if aggregate.rows_are_source == source {
            add(&group.rows, aggregate.row, &|class| aggregate.placement.at(class as usize));
        } else {
            add(&group.columns, aggregate.column, &|class| class);
        }
    }
    for pool in &part.pools {
        let [sources, destinations] = &pool.prefixes;
        if source {
            add(sources, pool.source, &|class| class);
        } else {
            add(destinations, pool.destination, &|class| class);
        }
    }
    out
}

/// The words of the ports, for each kind of header.
fn port_words(kinds: usize, part: &BundleContents) -> Vec<u64> {
    let mut out = vec![0u64; kinds];
    let mut add = |of_kind: &[u16], field: BitField| {
        for (word, class) in out.iter_mut().zip(of_kind) {
            *word |= u64::from(*class) << field.shift;
        }
    };
    for (group, aggregate) in &part.groups {
        add(&group.port_class, aggregate.port);
    }
    for part in part.pools.iter().flat_map(|pool| &pool.parts) {
        add(&part.port_class, part.port);
    }
    out
}

impl SplitTables {
    /// Packs groups into tables. `prefixes`: the prefixes of all groups, sources and destinations. `fast`:
    /// fewest reads, without a bound on memory.
    pub fn new(
        v6: bool,
        fast: bool,
        ports: &CombinationSets,
        mut groups: Vec<(SplitGroup, Aggregate)>,
        prefixes: &[Prefixes; 2],
    ) -> Self {
        let [sources, destinations] = prefixes;
        let pools = take_pools(&mut groups);
        let parts = bundle(groups, pools);
        let single = parts.len() <= 1;
        let mut leaves: [Vec<u32>; 2] =
            [0, 1].map(|a| (0..prefixes.get(a).map_or(0, Prefixes::len) as u32).collect());
        let mut bundles = Vec::with_capacity(parts.len());
        for part in parts {
            let mut side = |all: &Prefixes, source: bool| {
                let words = words(all, &part, source);
                if single && words.iter().all(|w| *w < 1 << 31) {
                    if let Some(leaves) = leaves.get_mut(usize::from(!source)) {
                        *leaves = words.iter().map(|w| *w as u32).collect();
                    }
                    AddressWords::Leaf
                } else {
                    AddressWords::Table(words)
                }
            };
            let (source, destination) = (side(sources, true), side(destinations, false));
            let of_kind = port_words(ports.kinds.len(), &part);
            let words = ports.kind.iter().map(|k| of_kind.at(*k as usize));
            let narrow = of_kind.iter().all(|w| u32::try_from(*w).is_ok());
            let ports = if narrow {
                PortWords::Narrow(words.map(|w| w as u32).collect())
            } else {
                PortWords::Wide(words.collect())
            };
            let BundleContents { groups, mut pools } = part;
            let mut aggregates: Vec<Aggregate> = groups.into_iter().map(|(_, aggregate)| aggregate).collect();
            for aggregate in &mut aggregates {
                aggregate.placement = Vec::new();
            }
            pools.iter_mut().for_each(GroupPool::finish);
            bundles.push(Bundle { source, destination, ports, aggregates, pools });
        }
        let [source_leaves, destination_leaves] = leaves;
        let searches = if v6 {
            Searches::V6([
                Search6::new(sources, &source_leaves),
                Search6::new(destinations, &destination_leaves),
            ])
        } else {
            let narrow = |prefixes: &Prefixes| !fast && prefixes.len() > WIDE_MAX;
            Searches::V4([
                Search4::new(sources, &source_leaves, narrow(sources)),
                Search4::new(destinations, &destination_leaves, narrow(destinations)),
            ])
        };
        let counts = ports.fields.each_ref().map(super::ports::FieldClasses::count);
        let mut strides = [1u32; 5];
        let mut stride = 1;
        for (count, out) in counts.iter().zip(&mut strides).rev() {
            *out = stride;
            stride *= *count as u32;
        }
        let tables = ports.fields.each_ref().map(|f| PortTable::new(&f.of, f.count()));
        SplitTables { searches, ports: tables, strides, bundles }
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> usize {
        let search = match &self.searches {
            Searches::V4(both) => both.iter().map(Search4::bytes).sum::<usize>(),
            Searches::V6(both) => both.iter().map(Search6::bytes).sum(),
        };
        let words = |w: &AddressWords| match w {
            AddressWords::Leaf => 0,
            AddressWords::Table(words) => words.len() * 8,
        };
        let bundles = self.bundles.iter().map(|b| {
            let ports = match &b.ports {
                PortWords::Narrow(w) => w.len() * 4,
                PortWords::Wide(w) => w.len() * 8,
            };
            words(&b.source)
                + words(&b.destination)
                + ports
                + b.aggregates.iter().map(Aggregate::bytes).sum::<usize>()
                + b.pools.iter().map(GroupPool::bytes).sum::<usize>()
        });
        search + self.ports.iter().map(PortTable::bytes).sum::<usize>() + bundles.sum::<usize>()
    }
}

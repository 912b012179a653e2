// SPDX-License-Identifier: Apache-2.0
//! The construction of a table's words from rules.

use super::read::KINDS;
use super::rows::{ALL_PROTOCOLS, EarlyReach, EarlyRow, EarlyRules, PROTOCOLS, any_port};
use super::sets::{Rows, ValueInterval, common, cut, either, first_common, rows};
use super::tenants::Tenants;
use bartizan_base::{LinkId, TenantId};
use bartizan_packet::slots::{EARLY_STEPS, EARLY_TENANTS, EARLY_TUNNELS, EARLY_WORDS, EarlyHeader};
use std::collections::{BTreeSet, HashMap};

/// The most rows.
const ROWS_MAX: usize = 1 << 15;
/// The most cells of one table of classes.
const CELLS_MAX: usize = 1 << 20;
/// The most segments of addresses: as many as the steps of a search can distinguish.
const SEGMENTS_MAX: usize = 1 << EARLY_STEPS;

/// The capabilities of a level that judges packets without a flow.
#[derive(Clone, Copy, Debug)]
pub struct EarlyLevel<'l> {
    /// The links whose packets are judged, in the order of their numbers at the level.
    pub links: &'l [LinkId],
    /// The most outcomes that it can count.
    pub outcomes: u32,
    /// Whether it judges packets in tunnels.
    pub tunnels: bool,
}

/// A table, and the part of the list that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlyTable {
    /// The words, as [`EarlyHeader`] lays them out; the first, which names the generation, has only the
    /// flags. Empty: no packet is refused.
    pub words: Vec<u64>,
    /// The part of the list that it has.
    pub reach: EarlyReach,
}

/// The table does not fit.
pub(super) struct TooLarge;

impl EarlyRules {
    /// Makes the table of a level.
    #[must_use]
    pub fn table(&self, level: EarlyLevel<'_>) -> EarlyTable {
        let (selectors, told) = match self.selectors(level.links) {
            Ok(selectors) => (selectors, true),
            Err(TooLarge) => (None, false),
        };
        let untold: Vec<EarlyRow>;
        let all = if told {
            &self.rows
        } else {
            untold = self.rows.iter().map(EarlyRow::without_tenants).collect();
            &untold
        };
        let countable = |row: &EarlyRow| row.outcome.is_none_or(|outcome| outcome < level.outcomes);
        let mut count = all.iter().take(ROWS_MAX).take_while(|row| countable(row)).count();
        let table = |words, count| {
            let reach = EarlyReach { rules: self.held(count), tenants: told, tunnels: level.tunnels };
            EarlyTable { words, reach }
        };
        loop {
            let rows = all.get(..count).unwrap_or_default();
            if rows.iter().all(|row| row.outcome.is_none()) {
                return table(Vec::new(), count);
            }
            match build(rows, level, selectors.as_ref()) {
                Ok(words) => return table(words, count),
                Err(TooLarge) => count = count * 3 / 4,
            }
        }
    }

    /// The selectors that matter to the tenants of rules; `None`: no rule has a tenant.
    fn selectors(&self, links: &[LinkId]) -> Result<Option<Tenants>, TooLarge> {
        let asked: BTreeSet<TenantId> =
            self.rows.iter().filter_map(|row| row.fields.tenants.as_ref()).flatten().copied().collect();
        if asked.is_empty() {
            return Ok(None);
        }
        // A selector after the last one of a tenant that rules name cannot change their result.
        let last =
            self.tenants.iter().rposition(|own| asked.contains(&own.tenant)).map_or(0, |last| last + 1);
        let count = if asked.contains(&TenantId(0)) { self.tenants.len() } else { last };
        Tenants::of(self.tenants.get(..count).unwrap_or_default(), links).map(Some)
    }

    /// The number of rules whose rows are all among the first `rows`.
    fn held(&self, rows: usize) -> usize {
        self.rows.get(rows).map_or(self.len(), |next| next.rule)
    }
}

/// Numbers of sets of rows: one for each different set.
#[derive(Default)]
pub(super) struct RowClasses {
    numbers: HashMap<Rows, u32>,
    pub sets: Vec<Rows>,
}

impl RowClasses {
    pub fn number(&mut self, set: Rows) -> u32 {
        if let Some(number) = self.numbers.get(&set) {
            return *number;
        }
        let number = u32::try_from(self.sets.len()).unwrap_or(u32::MAX);
        self.numbers.insert(set.clone(), number);
        self.sets.push(set);
        number
    }
}

/// The segments of a field: the beginning of each, and its class.
pub(super) struct Segments {
    pub begins: Vec<(u128, u32)>,
    pub classes: RowClasses,
}

/// The values of a field.
#[derive(Clone, Copy)]
pub(super) struct FieldValues {
    /// Addresses of IPv6; false for fields that are no addresses.
    pub v6: bool,
    /// The largest value.
    pub most: u128,
}

impl FieldValues {
    /// The addresses of an IP version.
    pub fn addresses(v6: bool) -> Self {
        FieldValues { v6, most: ValueInterval::version(v6).last }
    }
}

/// Cuts a field into segments. `last`: rows that decide whatever the other fields are.
pub(super) fn segments<'r>(
    of_rows: impl Iterator<Item = &'r [ValueInterval]>,
    values: FieldValues,
    count: usize,
    last: &Rows,
) -> Result<Segments, TooLarge> {
    let FieldValues { v6, most } = values;
    let mut turns: Vec<(u128, usize)> = Vec::new();
    for (row, spans) in of_rows.enumerate() {
        for span in spans.iter().filter(|span| span.v6 == v6) {
            turns.push((span.first, row));
            // After the last value no segment begins.
            turns.extend((span.last < most).then(|| (span.last + 1, row)));
        }
    }
    turns.sort_unstable();
    let mut bits = vec![0u64; count.div_ceil(64)];
    let mut made = Segments { begins: Vec::new(), classes: RowClasses::default() };
    let mut groups = turns.chunk_by(|a, b| a.0 == b.0).peekable();
    if groups.peek().is_none_or(|group| group.first().is_none_or(|(at, _)| *at != 0)) {
        made.begins.push((0, made.classes.number(Rows::new())));
    }
    for group in groups {
        for (_, row) in group {
            if let Some(word) = bits.get_mut(row / 64) {
                *word ^= 1 << (row % 64);
            }
        }
        let mut set = rows(&bits);
        cut(&mut set, last);
        let class = made.classes.number(set);
        let at = group.first().map_or(0, |(at, _)| *at);
        if made.begins.last().is_none_or(|(_, before)| *before != class) {
            made.begins.push((at, class));
        }
    }
    if made.begins.len() > SEGMENTS_MAX { Err(TooLarge) } else { Ok(made) }
}

/// The rows that satisfy `holds`.
pub(super) fn rows_that<R>(all: &[R], holds: impl Fn(&R) -> bool) -> Rows {
    let mut bits = vec![0u64; all.len().div_ceil(64)];
    for (number, _) in all.iter().enumerate().filter(|(_, row)| holds(row)) {
        if let Some(word) = bits.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }
    rows(&bits)
}

/// The classes of pairs of classes. `last`: rows that decide whatever the other fields are.
fn pairs(a: &[Rows], b: &[Rows], last: &Rows) -> Result<(Vec<u32>, RowClasses), TooLarge> {
    if a.len().saturating_mul(b.len()) > CELLS_MAX {
        return Err(TooLarge);
    }
    let mut classes = RowClasses::default();
    let mut cells = Vec::with_capacity(a.len() * b.len());
    for x in a {
        for y in b {
            let mut set = common(x, y);
            cut(&mut set, last);
            cells.push(classes.number(set));
        }
    }
    Ok((cells, classes))
}

/// Words, written one part after the other.
#[derive(Default)]
struct EarlyWords(Vec<u64>);

impl EarlyWords {
    /// The offset of the next part.
    fn next(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Appends numbers, so many in a word; returns the offset.
    fn pack(&mut self, numbers: &[u32], in_word: usize) -> u32 {
        let (at, bits) = (self.next(), 64 / in_word);
        self.0.extend(numbers.chunks(in_word).map(|chunk| {
            chunk.iter().rev().fold(0u64, |word, number| word.unbounded_shl(bits as u32) | u64::from(*number))
        }));
        at
    }
}

/// The services: classes of ports, and classes of scope, protocol and ports together.
struct Services {
    source_ports: Segments,
    destination_ports: Segments,
    cells: Vec<u32>,
    classes: RowClasses,
}

/// A row that matches every port and protocol.
fn is_any_port(row: &EarlyRow) -> bool {
    let fields = &row.fields;
    fields.source_ports == any_port()
        && fields.destination_ports == any_port()
        && fields.protocols == ALL_PROTOCOLS
}

/// A row that matches every port, protocol, link and tenant.
fn is_any_service(row: &EarlyRow) -> bool {
    is_any_port(row) && row.fields.links.is_none() && row.fields.tenants.is_none()
}

/// Whether a row can decide packets of a kind, on links that it matches. For packets of unknown protocol
/// and ports, a row that refuses decides only if it refuses all of them, and one that sends packets up
/// always does: so the rest of the list refuses only packets that are refused whatever they are.
fn is_of_kind(row: &EarlyRow, kind: usize) -> bool {
    if kind < PROTOCOLS.len() {
        row.fields.protocols & 1 << kind != 0
    } else {
        row.outcome.is_none() || is_any_port(row)
    }
}

/// A row that matches every address of a version.
fn is_everywhere(spans: &[ValueInterval], v6: bool) -> bool {
    spans.contains(&ValueInterval::version(v6))
}

/// The different sets of rows by link and tenant, each with a number.
struct Scopes {
    sets: Vec<Rows>,
    /// The numbers by link and place of the tenant's selector. Where tenants are not distinguished, a link
    /// has a number of its own.
    numbers: Vec<u32>,
}

fn scopes(all: &[EarlyRow], links: &[LinkId], tenants: Option<&Tenants>) -> Scopes {
    let on = |link| rows_that(all, |row| row.fields.links.as_ref().is_none_or(|links| links.contains(link)));
    let Some(tenants) = tenants else {
        return Scopes { sets: links.iter().map(on).collect(), numbers: Vec::new() };
    };
    let mut of_tenant: HashMap<TenantId, Vec<u64>> = HashMap::new();
    for (number, row) in all.iter().enumerate() {
        for tenant in row.fields.tenants.iter().flatten() {
            let bits = of_tenant.entry(*tenant).or_insert_with(|| vec![0; all.len().div_ceil(64)]);
            if let Some(word) = bits.get_mut(number / 64) {
                *word |= 1 << (number % 64);
            }
        }
    }
    let of_tenant: HashMap<TenantId, Rows> =
        of_tenant.into_iter().map(|(tenant, bits)| (tenant, rows(&bits))).collect();
    let of_all = rows_that(all, |row| row.fields.tenants.is_none());
    let (mut classes, mut numbers) = (RowClasses::default(), Vec::new());
    for link in links {
        let here = on(link);
        for tenant in &tenants.places {
            let own = of_tenant.get(tenant).map_or_else(|| of_all.clone(), |own| either(&of_all, own));
            numbers.push(classes.number(common(&own, &here)));
        }
    }
    Scopes { sets: classes.sets, numbers }
}

fn services(all: &[EarlyRow], scopes: &[Rows]) -> Result<Services, TooLarge> {
    let none = Rows::new();
    let ports = |of: fn(&EarlyRow) -> &[ValueInterval]| {
        segments(all.iter().map(of), FieldValues { v6: false, most: u16::MAX.into() }, all.len(), &none)
    };
    let source_ports = ports(|row| &row.fields.source_ports)?;
    let destination_ports = ports(|row| &row.fields.destination_ports)?;
    let last = rows_that(all, |row| {
        [false, true]
            .iter()
            .all(|v6| is_everywhere(&row.fields.sources, *v6) && is_everywhere(&row.fields.destinations, *v6))
    });
    let (from, to) = (&source_ports.classes.sets, &destination_ports.classes.sets);
    if from.len().saturating_mul(to.len()).saturating_mul(scopes.len() * KINDS) > CELLS_MAX {
        return Err(TooLarge);
    }
    let (mut cells, mut classes) = (Vec::new(), RowClasses::default());
    let of_kinds: Vec<Rows> = (0..KINDS).map(|kind| rows_that(all, |row| is_of_kind(row, kind))).collect();
    for (scope, (kind, of_kind)) in
        scopes.iter().flat_map(|scope| of_kinds.iter().enumerate().map(move |kind| (scope, kind)))
    {
        let mut here = common(scope, of_kind);
        // Ports of these kinds are unknown: one class has all rows that the others have.
        let whatever = kind >= PROTOCOLS.len();
        if whatever {
            cut(&mut here, &last);
        }
        for source in from {
            let source = if whatever { here.clone() } else { common(source, &here) };
            for destination in to {
                if whatever {
                    cells.push(classes.number(source.clone()));
                    continue;
                }
                let mut set = common(&source, destination);
                cut(&mut set, &last);
                cells.push(classes.number(set));
            }
        }
    }
    Ok(Services { source_ports, destination_ports, cells, classes })
}

/// The class of each port.
fn by_port(segments: &Segments) -> Vec<u32> {
    let mut classes = Vec::with_capacity(1 << 16);
    for (begin, class) in &segments.begins {
        let begin = usize::try_from(*begin).unwrap_or(usize::MAX).min(1 << 16);
        let before = classes.last().copied().unwrap_or(0);
        classes.resize(begin, before);
        if begin < 1 << 16 {
            classes.push(*class);
        }
    }
    let last = classes.last().copied().unwrap_or(0);
    classes.resize(1 << 16, last);
    classes
}

/// The offsets of the parts of one IP version.
#[derive(Default)]
struct EarlyOffsets {
    sources: u32,
    source_count: u32,
    destinations: u32,
    destination_count: u32,
    destination_classes: u32,
    pairs: u32,
    outcomes: u32,
}

fn write_segments(words: &mut EarlyWords, begins: &[(u128, u32)], v6: bool) -> u32 {
    let at = words.next();
    for (begin, class) in begins {
        if v6 {
            words.0.extend([(begin >> 64) as u64, *begin as u64, u64::from(*class)]);
        } else {
            words.0.push((*begin as u64) << 32 | u64::from(*class));
        }
    }
    at
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn version(
    all: &[EarlyRow],
    v6: bool,
    services: &[Rows],
    words: &mut EarlyWords,
) -> Result<EarlyOffsets, TooLarge> {
    let refuses = |row: &EarlyRow| {
        row.outcome.is_some()
            && row.fields.sources.iter().any(|span| span.v6 == v6)
            && row.fields.destinations.iter().any(|span| span.v6 == v6)
    };
    if !all.iter().any(refuses) {
        return Ok(EarlyOffsets::default());
    }
    let to_all = rows_that(all, |row| is_any_service(row) && is_everywhere(&row.fields.destinations, v6));
    let from_all = rows_that(all, |row| is_any_service(row) && is_everywhere(&row.fields.sources, v6));
    let any_service = rows_that(all, is_any_service);
    let (of, count) = (FieldValues::addresses(v6), all.len());
    let sources = segments(all.iter().map(|row| row.fields.sources.as_slice()), of, count, &to_all)?;
    let destinations =
        segments(all.iter().map(|row| row.fields.destinations.as_slice()), of, count, &from_all)?;
    let (cells, classes) = pairs(&sources.classes.sets, &destinations.classes.sets, &any_service)?;
    if classes.sets.len().saturating_mul(services.len()) > CELLS_MAX {
        return Err(TooLarge);
    }
    let said = |pair: &Rows, service: &Rows| {
        let row = first_common(pair, service).and_then(|row| all.get(row));
        row.and_then(|row| row.outcome).map_or(0, |outcome| outcome + 1)
    };
    let outcomes: Vec<u32> =
        classes.sets.iter().flat_map(|pair| services.iter().map(|service| said(pair, service))).collect();
    Ok(EarlyOffsets {
        sources: write_segments(words, &sources.begins, v6),
        source_count: number(sources.begins.len()),
        destinations: write_segments(words, &destinations.begins, v6),
        destination_count: number(destinations.begins.len()),
        destination_classes: number(destinations.classes.sets.len()),
        pairs: words.pack(&cells, 2),
        outcomes: words.pack(&outcomes, 2),
    })
}

/// Writes the tables that find a tenant, with its scopes.
fn write_tenants(tenants: &Tenants, scopes: &[u32], words: &mut EarlyWords) -> EarlyHeader {
    let [v4, v6] = &tenants.hosts;
    EarlyHeader {
        scopes: words.pack(scopes, 2),
        selectors: number(tenants.places.len()),
        selected: words.pack(&tenants.selected, 2),
        tag_classes: number(tenants.tag_classes),
        host_classes: number(tenants.host_classes),
        untagged: tenants.untagged,
        vlans: words.pack(&tenants.vlans, 4),
        tunnels: write_segments(words, &tenants.tunnels, false),
        tunnel_count: number(tenants.tunnels.len()),
        v4_hosts: write_segments(words, v4, false),
        v4_host_count: number(v4.len()),
        v6_hosts: write_segments(words, v6, true),
        v6_host_count: number(v6.len()),
        ..EarlyHeader::default()
    }
}

fn build(all: &[EarlyRow], level: EarlyLevel<'_>, tenants: Option<&Tenants>) -> Result<Vec<u64>, TooLarge> {
    let mut words = EarlyWords(vec![0; EarlyHeader::LEN / 8]);
    let scopes = scopes(all, level.links, tenants);
    let services = services(all, &scopes.sets)?;
    let number = |classes: &RowClasses| number(classes.sets.len());
    let (from, to) = (&services.source_ports, &services.destination_ports);
    if number(&from.classes).max(number(&to.classes)) > u16::MAX.into() {
        return Err(TooLarge);
    }
    let told = tenants.map(|tenants| write_tenants(tenants, &scopes.numbers, &mut words));
    let flag = |set: bool, flag: u32| if set { u64::from(flag) } else { 0 };
    let mut header = EarlyHeader {
        generation: flag(told.is_some(), EARLY_TENANTS) | flag(level.tunnels, EARLY_TUNNELS),
        source_ports: words.pack(&by_port(from), 4),
        destination_ports: words.pack(&by_port(to), 4),
        services: words.pack(&services.cells, 2),
        source_port_classes: number(&from.classes),
        destination_port_classes: number(&to.classes),
        service_classes: number(&services.classes),
        ..told.unwrap_or_default()
    };
    let v4 = version(all, false, &services.classes.sets, &mut words)?;
    let v6 = version(all, true, &services.classes.sets, &mut words)?;
    header = EarlyHeader {
        v4_sources: v4.sources,
        v4_source_count: v4.source_count,
        v4_destinations: v4.destinations,
        v4_destination_count: v4.destination_count,
        v4_destination_classes: v4.destination_classes,
        v4_pairs: v4.pairs,
        v4_outcomes: v4.outcomes,
        v6_sources: v6.sources,
        v6_source_count: v6.source_count,
        v6_destinations: v6.destinations,
        v6_destination_count: v6.destination_count,
        v6_destination_classes: v6.destination_classes,
        v6_pairs: v6.pairs,
        v6_outcomes: v6.outcomes,
        ..header
    };
    for (place, bytes) in words.0.iter_mut().zip(header.write().as_chunks::<8>().0) {
        *place = u64::from_le_bytes(*bytes);
    }
    if words.0.len() > EARLY_WORDS as usize { Err(TooLarge) } else { Ok(words.0) }
}

// SPDX-License-Identifier: Apache-2.0
//! Bit vectors: one lookup for all rule sets.
//!
//! Source: Lakshman and Stiliadis, "High-speed policy-based packet forwarding using efficient
//! multi-dimensional range matching" (SIGCOMM 1998); the summary words are those of Baboescu and Varghese,
//! "Scalable packet classification" (SIGCOMM 2001). Each dimension is cut into elementary intervals; an
//! interval has a bit per entry, set where the entry covers it. A lookup finds one interval per dimension by
//! binary search and ands their bits; bits are in the order of (set, priority), so that the first bit of a
//! set's words is its first match.
//!
//! Vectors are kept sparse (words without a bit are left out, a summary has a bit for each word present), and
//! equal ones are kept once, so that memory follows the coverage of rules. It still grows with rules ×
//! intervals where many rules are wild in an address; it has a bound, and [`BitVector::insert`] refuses
//! beyond it. Meant for 1,000 to 10,000 rules and a lookup per new flow; not for a lookup per packet.
//!
//! New entries are searched linearly until there are enough of them for a rebuild; deleted ones lose their
//! valid bit.

use crate::classifier::{Classifier, InsertError, Match, RankedRule, SETS_MAX};
use crate::header::{Header, HeaderRule, number};
use crate::list::List;
use bartizan_base::Fid;
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::hash::BuildHasher;

/// The fewest pending entries for a rebuild; beyond, their share of all entries decides.
const PENDING_MIN: usize = 64;

/// The mark of a beginning at an edge; the other bits are the entry's number.
const BEGINS: u32 = 1 << 31;

/// An entry with its set and its place among equals.
#[derive(Clone, Copy, Debug)]
struct Stored {
    set: u8,
    sequence: u64,
    entry: RankedRule,
}

impl Stored {
    const fn order(&self) -> (u8, u32, u64) {
        (self.set, self.entry.priority, self.sequence)
    }
}

/// A lookup structure for several rule sets: a bit vector for each interval of each header field.
#[derive(Debug)]
pub struct BitVector {
    sets: u8,
    limit: usize,
    sequence: u64,
    /// Entries in the structure, by bit; `None` where a set's last word is not full.
    slots: Vec<Option<Stored>>,
    /// Bits of entries that were not deleted.
    valid: Vec<u64>,
    /// The first word of each set, and the end of the last.
    bounds: Vec<usize>,
    dimensions: Dimensions,
    pending: Vec<Stored>,
    places: HashMap<Fid, Vec<usize>>,
    live: usize,
}

impl BitVector {
    /// A classifier of this number of rule sets, at most [`SETS_MAX`], that uses about `limit` bytes at
    /// most.
    #[must_use]
    pub fn new(sets: u8, limit: usize) -> Self {
        let sets = sets.min(SETS_MAX);
        let mut new = BitVector {
            sets,
            limit,
            sequence: 0,
            slots: Vec::new(),
            valid: Vec::new(),
            bounds: vec![0; usize::from(sets) + 1],
            dimensions: Dimensions::default(),
            pending: Vec::new(),
            places: HashMap::new(),
            live: 0,
        };
        // Without rules every dimension has one interval, with an empty vector.
        let _ = new.build(Vec::new());
        new
    }

    fn build(&mut self, all: Vec<Stored>) -> Result<(), InsertError> {
        self.fill(all)?;
        self.places.clear();
        for (bit, stored) in self.slots.iter().enumerate() {
            if let Some(stored) = stored {
                self.places.entry(stored.entry.fid).or_default().push(bit);
            }
        }
        Ok(())
    }

    /// Builds the structure, without the index needed for deletion.
    fn fill(&mut self, mut all: Vec<Stored>) -> Result<(), InsertError> {
        all.sort_by_key(Stored::order);
        let mut slots: Vec<Option<Stored>> = Vec::with_capacity(all.len());
        let mut bounds = vec![0];
        let mut rest = all.iter().peekable();
        for set in 0..self.sets {
            while let Some(stored) = rest.next_if(|s| s.set == set) {
                slots.push(Some(*stored));
            }
            slots.resize(slots.len().next_multiple_of(64), None);
            bounds.push(slots.len() / 64);
        }
        let words = slots.len() / 64;
        let dimensions = Dimensions::build(&slots, words, self.limit)
            .ok_or(InsertError::Memory { rules: all.len(), limit: self.limit })?;
        let mut valid = vec![0u64; words];
        slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.is_some())
            .for_each(|(bit, _)| set_bit(&mut valid, bit));
        (self.slots, self.valid, self.bounds) = (slots, valid, bounds);
        self.dimensions = dimensions;
        self.live = all.len();
        self.pending.clear();
        Ok(())
    }

    fn is_valid(&self, bit: usize) -> bool {
        self.valid.get(bit / 64).is_some_and(|w| w & 1 << (bit % 64) != 0)
    }

    /// Every entry that was not deleted.
    fn live_entries(&self) -> Vec<Stored> {
        let built =
            self.slots.iter().enumerate().filter(|(bit, _)| self.is_valid(*bit)).filter_map(|(_, s)| *s);
        built.chain(self.pending.iter().copied()).collect()
    }

    /// Bit vectors of lists, by rank: an entry's place in its list. They never change; callers of lookups
    /// pass the valid entries. `None`: they take more than about `limit` bytes.
    pub(crate) fn ranked(lists: &[List], limit: usize) -> Option<Self> {
        let mut new = BitVector::new(u8::try_from(lists.len()).ok()?, limit);
        let of_list = |(set, list): (u8, &List)| -> Vec<Stored> {
            (0u64..)
                .zip(list.iter())
                .map(|(sequence, entry)| Stored { set, sequence, entry: RankedRule { priority: 0, ..entry } })
                .collect()
        };
        new.fill((0u8..).zip(lists).flat_map(of_list).collect()).ok()?;
        Some(new)
    }

    /// The number of entries of a set.
    pub(crate) fn count(&self, set: usize) -> usize {
        let (from, end) = self.words_of(set);
        let slots = self.slots.get(from * 64..end * 64).unwrap_or_default();
        slots.iter().rev().skip_while(|slot| slot.is_none()).count()
    }

    /// The rule of a set's entry.
    pub(crate) fn rule(&self, set: usize, rank: u32) -> Option<&HeaderRule> {
        let slot = self.slots.get(self.words_of(set).0 * 64 + rank as usize)?;
        slot.as_ref().map(|stored| &stored.entry.rule)
    }

    /// Words for valid bits, none of them set.
    pub(crate) fn no_valid(&self) -> Vec<u64> {
        vec![0; self.valid.len()]
    }

    /// Sets the valid bit of a set's entry.
    pub(crate) fn set_valid(&self, valid: &mut [u64], set: usize, rank: u32) {
        set_bit(valid, self.words_of(set).0 * 64 + rank as usize);
    }

    /// Sets `ranks` of each set to that of the first valid entry that matches.
    pub(crate) fn ranks(&self, header: &Header, valid: &[u64], ranks: &mut [Option<u32>]) {
        let rows = self.dimensions.rows(header);
        for (set, rank) in ranks.iter_mut().enumerate() {
            let (from, end) = self.words_of(set);
            *rank = first(&rows, valid, from, end).map(|bit| (bit - from * 64) as u32);
        }
    }

    /// The words of a set: the first, and the end (exclusive).
    fn words_of(&self, set: usize) -> (usize, usize) {
        let bound = |set: usize| self.bounds.get(set).copied().unwrap_or(0);
        (bound(set), bound(set + 1))
    }
}

/// The first bit that is set in all rows and valid, from word `from` to before word `end`.
fn first(rows: &[IntervalBits<'_>; DIMENSIONS], valid: &[u64], from: usize, end: usize) -> Option<usize> {
    let mut word = from;
    while word < end {
        let block = word / 64;
        let mut summary = rows.iter().fold(u64::MAX, |all, row| all & row.summary(block));
        summary &= u64::MAX << (word % 64);
        while summary != 0 {
            let at = block * 64 + summary.trailing_zeros() as usize;
            if at >= end {
                return None;
            }
            summary &= summary - 1;
            let valid = valid.get(at).copied().unwrap_or(0);
            let bits = rows.iter().fold(valid, |all, row| if all == 0 { 0 } else { all & row.word(at) });
            if bits != 0 {
                return Some(at * 64 + bits.trailing_zeros() as usize);
            }
        }
        word = (block + 1) * 64;
    }
    None
}

fn set_bit(words: &mut [u64], bit: usize) {
    if let Some(word) = words.get_mut(bit / 64) {
        *word |= 1 << (bit % 64);
    }
}

impl Classifier for BitVector {
    fn insert(&mut self, set: u8, entries: &[RankedRule]) -> Result<(), InsertError> {
        InsertError::check(set, self.sets.into(), entries)?;
        let mut new = Vec::with_capacity(entries.len());
        for entry in entries {
            new.push(Stored { set, sequence: self.sequence, entry: *entry });
            self.sequence += 1;
        }
        if self.pending.len() + new.len() <= PENDING_MIN.max(self.slots.len() / 16) {
            self.live += new.len();
            self.pending.extend(new);
            return Ok(());
        }
        let mut all = self.live_entries();
        all.extend(new);
        self.build(all)
    }

    fn delete(&mut self, fid: Fid) -> usize {
        let mut count = 0;
        for bit in self.places.remove(&fid).unwrap_or_default() {
            if let Some(word) = self.valid.get_mut(bit / 64) {
                *word &= !(1 << (bit % 64));
                count += 1;
            }
        }
        let before = self.pending.len();
        self.pending.retain(|s| s.entry.fid != fid);
        count += before - self.pending.len();
        self.live -= count;
        count
    }

    fn lookup(&self, header: &Header, results: &mut [Option<Match>]) {
        results.fill(None);
        let rows = self.dimensions.rows(header);
        let bounds = self.bounds.iter().zip(self.bounds.iter().skip(1));
        for (set, ((from, end), result)) in bounds.zip(results).enumerate() {
            let mut best =
                first(&rows, &self.valid, *from, *end).and_then(|bit| self.slots.get(bit).copied().flatten());
            for stored in self.pending.iter().filter(|s| usize::from(s.set) == set) {
                if best.is_none_or(|b| stored.order() < b.order()) && stored.entry.rule.matches(header) {
                    best = Some(*stored);
                }
            }
            *result = best.map(|s| Match { fid: s.entry.fid, priority: s.entry.priority });
        }
    }

    fn all_entries(&self) -> Vec<Vec<RankedRule>> {
        let mut all = self.live_entries();
        all.sort_by_key(Stored::order);
        let of = |set| all.iter().filter(move |s| s.set == set).map(|s| s.entry).collect();
        (0..self.sets).map(of).collect()
    }

    fn sets(&self) -> usize {
        usize::from(self.sets)
    }

    fn len(&self) -> usize {
        self.live
    }

    fn memory(&self) -> usize {
        let entries = (self.slots.len() + self.pending.capacity()) * size_of::<Option<Stored>>();
        entries + self.valid.len() * 8 + self.places.len() * 64 + self.dimensions.memory()
    }
}

/// Dimensions of a lookup: both addresses, both ports, and protocol, tenant and link.
const DIMENSIONS: usize = 7;

/// The intervals of all dimensions; addresses by IP version.
#[derive(Debug, Default)]
struct Dimensions {
    source: [Dimension<u128>; 2],
    destination: [Dimension<u128>; 2],
    source_port: Dimension<u16>,
    destination_port: Dimension<u16>,
    protocol: Dimension<u16>,
    tenant: Dimension<u16>,
    link: Dimension<u16>,
}

impl Dimensions {
    fn build(slots: &[Option<Stored>], words: usize, limit: usize) -> Option<Self> {
        let mut left = limit;
        let addresses = |left: &mut usize, net: fn(&HeaderRule) -> Option<crate::header::Net>| {
            let mut version = |v6: bool| {
                Dimension::build(slots, words, left, |rule| match net(rule).map(crate::header::Net::range) {
                    None => Some((0, u128::MAX)),
                    Some((other, first, last)) => (other == v6).then_some((first, last)),
                })
            };
            Some([version(false)?, version(true)?])
        };
        let source = addresses(&mut left, |r| r.source)?;
        let destination = addresses(&mut left, |r| r.destination)?;
        let one = |n: Option<u16>| n.map_or(Some((0, u16::MAX)), |n| Some((n, n)));
        Some(Dimensions {
            source,
            destination,
            source_port: Dimension::build(slots, words, &mut left, |r| {
                Some((r.source_ports.first, r.source_ports.last))
            })?,
            destination_port: Dimension::build(slots, words, &mut left, |r| {
                Some((r.destination_ports.first, r.destination_ports.last))
            })?,
            protocol: Dimension::build(slots, words, &mut left, |r| one(r.protocol.map(u16::from)))?,
            tenant: Dimension::build(slots, words, &mut left, |r| one(r.tenant.map(|t| t.0)))?,
            link: Dimension::build(slots, words, &mut left, |r| one(r.link.map(|l| l.0)))?,
        })
    }

    fn rows(&self, header: &Header) -> [IntervalBits<'_>; DIMENSIONS] {
        let (v6, source) = number(header.source);
        let [v4_source, v6_source] = &self.source;
        let (v6_too, destination) = number(header.destination);
        let [v4_destination, v6_destination] = &self.destination;
        [
            if v6 { v6_source } else { v4_source }.row(source),
            if v6_too { v6_destination } else { v4_destination }.row(destination),
            self.destination_port.row(header.destination_port),
            self.protocol.row(u16::from(header.protocol)),
            self.source_port.row(header.source_port),
            self.tenant.row(header.tenant.0),
            self.link.row(header.link.0),
        ]
    }

    fn memory(&self) -> usize {
        let addresses: usize = self.source.iter().chain(&self.destination).map(Dimension::memory).sum();
        let numbers = [&self.source_port, &self.destination_port, &self.protocol, &self.tenant, &self.link];
        addresses + numbers.into_iter().map(Dimension::memory).sum::<usize>()
    }
}

/// The offset in `rows` of each row that a dimension has already, by the row's hash: of two rows with one
/// hash the last.
type RowOffsets = HashMap<u64, u32, FixedState>;

/// The bits of the present interval while a dimension is built: each interval costs only the words that have
/// bits.
struct Current {
    words: Vec<u64>,
    /// A bit for each word that has some bit set.
    there: Vec<u64>,
    row: Vec<u64>,
}

impl Current {
    fn set(&mut self, bit: usize, value: bool) {
        let at = bit / 64;
        let (Some(word), Some(there)) = (self.words.get_mut(at), self.there.get_mut(at / 64)) else { return };
        let mask = 1 << (bit % 64);
        *word = if value { *word | mask } else { *word & !mask };
        let own = 1 << (at % 64);
        *there = if *word == 0 { *there & !own } else { *there | own };
    }

    /// The row of this interval: its summary words, then its words with bits.
    fn row(&mut self) -> &[u64] {
        self.row.clear();
        self.row.extend_from_slice(&self.there);
        for (block, there) in self.there.iter().enumerate() {
            let mut left = *there;
            while left != 0 {
                self.row.extend(self.words.get(block * 64 + left.trailing_zeros() as usize));
                left &= left - 1;
            }
        }
        &self.row
    }
}

/// The elementary intervals of one field.
#[derive(Debug)]
struct Dimension<K> {
    /// First value of each interval, rising; the first is the lowest possible value.
    starts: Vec<K>,
    /// The offset of each interval's row in `rows`.
    offsets: Vec<u32>,
    /// Rows: summary words, then the words present according to the summary.
    rows: Vec<u64>,
    /// Summary words of a row.
    blocks: usize,
}

impl<K> Default for Dimension<K> {
    fn default() -> Self {
        Dimension { starts: Vec::new(), offsets: Vec::new(), rows: Vec::new(), blocks: 0 }
    }
}

/// The next value, for the end of a range; `None` at the top.
trait IntervalKey: Copy + Ord {
    const LOWEST: Self;
    fn next(self) -> Option<Self>;
}

impl IntervalKey for u16 {
    const LOWEST: u16 = 0;
    fn next(self) -> Option<u16> {
        self.checked_add(1)
    }
}

impl IntervalKey for u128 {
    const LOWEST: u128 = 0;
    fn next(self) -> Option<u128> {
        self.checked_add(1)
    }
}

impl<K: IntervalKey> Dimension<K> {
    /// Cuts the field where a range begins or ends. `None` when the bytes `left` do not suffice.
    fn build(
        slots: &[Option<Stored>],
        words: usize,
        left: &mut usize,
        range: impl Fn(&HeaderRule) -> Option<(K, K)>,
    ) -> Option<Self> {
        let mut new = Dimension { blocks: words.div_ceil(64), ..Dimension::default() };
        let mut current = Current { words: vec![0; words], there: vec![0; new.blocks], row: Vec::new() };
        // Ends and beginnings at each value; the highest bit marks beginnings, so ends come first.
        let mut edges: Vec<(K, u32)> = Vec::with_capacity(slots.len());
        for (bit, stored) in (0..BEGINS).zip(slots) {
            let Some((first, last)) = stored.as_ref().and_then(|s| range(&s.entry.rule)) else { continue };
            if first > last {
                continue;
            }
            match first == K::LOWEST {
                true => current.set(bit as usize, true),
                false => edges.push((first, BEGINS | bit)),
            }
            if let Some(next) = last.next() {
                edges.push((next, bit));
            }
        }
        edges.sort_unstable();
        let mut known = RowOffsets::default();
        let mut edges = edges.into_iter().peekable();
        let mut start = K::LOWEST;
        loop {
            while let Some((_, edge)) = edges.next_if(|e| e.0 <= start) {
                current.set((edge & !BEGINS) as usize, edge & BEGINS != 0);
            }
            new.push(start, current.row(), &mut known, left)?;
            match edges.peek() {
                Some((next, _)) => start = *next,
                None => return Some(new),
            }
        }
    }

    /// Adds an interval with its row, which may exist already.
    fn push(&mut self, start: K, row: &[u64], known: &mut RowOffsets, left: &mut usize) -> Option<()> {
        let hash = FixedState::default().hash_one(row);
        let there = known.get(&hash).copied();
        // Rows that begin with the same summary are equally long.
        let is_row = |at: &u32| self.rows.get(*at as usize..).is_some_and(|rows| rows.starts_with(row));
        let offset = match there.filter(is_row) {
            Some(offset) => offset,
            None => {
                let offset = u32::try_from(self.rows.len()).ok()?;
                *left = left.checked_sub(size_of_val(row))?;
                self.rows.extend_from_slice(row);
                known.insert(hash, offset);
                offset
            }
        };
        if self.offsets.last() == Some(&offset) {
            return Some(());
        }
        *left = left.checked_sub(size_of::<K>() + size_of::<u32>())?;
        self.starts.push(start);
        self.offsets.push(offset);
        Some(())
    }

    fn row(&self, value: K) -> IntervalBits<'_> {
        let interval = self.starts.partition_point(|start| *start <= value).saturating_sub(1);
        let offset = self.offsets.get(interval).map_or(0, |o| *o as usize);
        let row = self.rows.get(offset..).unwrap_or_default();
        let (summary, words) = row.split_at_checked(self.blocks).unwrap_or_default();
        IntervalBits { summary, words }
    }

    fn memory(&self) -> usize {
        self.starts.capacity() * size_of::<K>() + self.offsets.capacity() * 4 + self.rows.capacity() * 8
    }
}

/// The bits of one interval.
#[derive(Clone, Copy)]
struct IntervalBits<'r> {
    summary: &'r [u64],
    words: &'r [u64],
}

impl IntervalBits<'_> {
    fn summary(&self, block: usize) -> u64 {
        self.summary.get(block).copied().unwrap_or(0)
    }

    fn word(&self, at: usize) -> u64 {
        let (block, bit) = (at / 64, at % 64);
        let here = self.summary(block);
        if here & 1 << bit == 0 {
            return 0;
        }
        let before: u32 = self.summary.iter().take(block).map(|s| s.count_ones()).sum();
        let rank = before + (here & ((1 << bit) - 1)).count_ones();
        self.words.get(rank as usize).copied().unwrap_or(0)
    }
}

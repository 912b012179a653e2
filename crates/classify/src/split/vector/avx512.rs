// SPDX-License-Identifier: Apache-2.0
//! AVX-512: sixteen headers a register, four registers a block, one stage at a time.
//!
//! Every function here requires of its caller the facts that `super::Checked` proves: indices formed from
//! these tables are in bounds.
#![cfg(target_arch = "x86_64")]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "registers of a block, by numbers below their count: arrays side by side, checked where they are compiled"
)]

use super::super::aggregate::{Aggregate, AggregateLayout, BASE_MASK, NONE8, NONE16};
use super::super::field::BitField;
use super::super::pool::GroupPool;
use super::super::portable::{BLOCK, Stage};
use super::super::search::{Level4, Search4, Search6};
use super::super::tables::{AddressWords, Bundle, PortTable, PortWords, Searches, SplitTables};
use crate::flat::{FlatV4, FlatV6};
use core::arch::x86_64::*;

/// Registers of a block.
const N: usize = BLOCK / 16;
type Avx512Block = [__m512i; N];

/// A word of each header: low and high half.
#[derive(Clone, Copy)]
struct Halves {
    low: Avx512Block,
    high: Avx512Block,
}

/// # Safety
/// Every index × `SCALE` + 4 is within the table's bytes.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn gather<const SCALE: i32, T>(table: &[T], index: __m512i) -> __m512i {
    // SAFETY: the caller's.
    unsafe { _mm512_i32gather_epi32::<SCALE>(index, table.as_ptr().cast()) }
}

/// As [`gather`], for the lanes of a mask; others get `other`.
/// # Safety
/// As there, for the lanes of the mask.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn gather_some<const SCALE: i32, T>(
    table: &[T],
    other: __m512i,
    lanes: __mmask16,
    index: __m512i,
) -> __m512i {
    // SAFETY: the caller's.
    unsafe { _mm512_mask_i32gather_epi32::<SCALE>(other, lanes, index, table.as_ptr().cast()) }
}

/// Gathers words of 64 bits and sorts them into low and high halves.
/// # Safety
/// Every index is within the table.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn gather_halves(table: &[u64], index: __m512i) -> (__m512i, __m512i) {
    let low_lanes = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let high_lanes = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    // SAFETY: the caller's.
    let (a, b) = unsafe {
        (
            _mm512_i32gather_epi64::<8>(_mm512_castsi512_si256(index), table.as_ptr().cast()),
            _mm512_i32gather_epi64::<8>(_mm512_extracti64x4_epi64::<1>(index), table.as_ptr().cast()),
        )
    };
    (_mm512_permutex2var_epi32(a, low_lanes, b), _mm512_permutex2var_epi32(a, high_lanes, b))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat(value: u32) -> __m512i {
    _mm512_set1_epi32(value as i32)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn zero() -> Avx512Block {
    [_mm512_setzero_si512(); N]
}

/// A block of IPv4 headers: lowers the ranks in `best`.
///
/// # Safety
/// The machine has AVX-512 F, BW, DQ and VL; the tables were found in bounds.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn block_v4(tables: &SplitTables, headers: &[FlatV4], best: &mut [[u32; BLOCK]]) {
    let mut padded = [FlatV4::default(); BLOCK];
    let block: &[FlatV4; BLOCK] = match headers.try_into() {
        Ok(block) => block,
        Err(_) => {
            for (to, from) in padded.iter_mut().zip(headers) {
                *to = *from;
            }
            &padded
        }
    };
    let Searches::V4([sources, destinations]) = &tables.searches else { return };
    let (mut source, mut destination, mut ports, mut rest) = (zero(), zero(), zero(), zero());
    for (i, sixteen) in block.as_chunks::<16>().0.iter().enumerate() {
        let words = transpose(sixteen);
        (source[i], destination[i], ports[i], rest[i]) = words;
    }
    // SAFETY: the tables are in bounds.
    unsafe {
        let (source, destination) = search(sources, destinations, &source, &destination);
        let index = port_index(tables, &ports, &rest);
        for bundle in &tables.bundles {
            aggregate_bundle(bundle, &source, &destination, &index, best);
        }
    }
}

/// A block of IPv6 headers: the addresses are searched eight at a time.
///
/// # Safety
/// As [`block_v4`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn block_v6(tables: &SplitTables, headers: &[FlatV6], best: &mut [[u32; BLOCK]]) {
    let Searches::V6([sources, destinations]) = &tables.searches else { return };
    let mut stage = Stage::default();
    let mut halves = [[0u64; 2]; BLOCK];
    for (to, header) in halves.iter_mut().zip(headers) {
        *to = header.source;
    }
    // SAFETY: the tables are in bounds.
    unsafe { search6(sources, &halves, &mut stage.source) };
    for (to, header) in halves.iter_mut().zip(headers) {
        *to = header.destination;
    }
    // SAFETY: as above.
    unsafe { search6(destinations, &halves, &mut stage.destination) };
    tables.stage_v6_ports(headers, &mut stage);
    let load = |from: &[u32; BLOCK]| {
        let mut out = zero();
        for (out, sixteen) in out.iter_mut().zip(from.as_chunks::<16>().0) {
            // SAFETY: sixteen numbers of four bytes.
            *out = unsafe { _mm512_loadu_si512(sixteen.as_ptr().cast()) };
        }
        out
    };
    let (source, destination, index) = (load(&stage.source), load(&stage.destination), load(&stage.ports));
    for bundle in &tables.bundles {
        // SAFETY: the tables are in bounds, and the stage was made from them.
        unsafe { aggregate_bundle(bundle, &source, &destination, &index, best) };
    }
}

/// Finds the leaves of IPv6 addresses: binary search between two roots, all headers a step at a time.
/// # Safety
/// Roots are 64 Ki + 1 and rise up to the number of keys, which is at least one; there are as many values.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn search6(search: &Search6, addresses: &[[u64; 2]; BLOCK], out: &mut [u32; BLOCK]) {
    const M: usize = BLOCK / 8;
    let none = _mm512_setzero_si512();
    let (mut high, mut base, mut end) = ([none; M], [none; M], [none; M]);
    let skip = _mm_cvtsi32_si128(search.skip as i32);
    let high_lanes = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    let (first, last) =
        (_mm512_set1_epi64(search.common.0 as i64), _mm512_set1_epi64(search.common.1 as i64));
    let (all, one) = (_mm512_set1_epi64(search.keys.len() as i64), _mm512_set1_epi64(1));
    for (i, eight) in addresses.as_chunks::<8>().0.iter().enumerate() {
        let from: *const i64 = eight.as_ptr().cast();
        // SAFETY: eight addresses of two numbers of eight bytes.
        let (a, b) =
            unsafe { (_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.wrapping_add(8).cast())) };
        high[i] = _mm512_permutex2var_epi64(a, high_lanes, b);
        let root = _mm512_srli_epi64::<48>(_mm512_sll_epi64(high[i], skip));
        // SAFETY: 16 bits, and there is one root more than that: two numbers of four bytes are read.
        let both = unsafe { _mm512_i64gather_epi64::<4>(root, search.roots.as_ptr().cast()) };
        base[i] = _mm512_and_si512(both, _mm512_set1_epi64(0xffff_ffff));
        end[i] = _mm512_srli_epi64::<32>(both);
        let below = _mm512_cmplt_epu64_mask(high[i], first);
        let above = _mm512_cmpgt_epu64_mask(high[i], last);
        base[i] = _mm512_mask_mov_epi64(_mm512_mask_mov_epi64(base[i], below, one), above, all);
        end[i] = _mm512_mask_mov_epi64(end[i], below | above, base[i]);
    }
    for step in (0..search.steps).rev() {
        let step = _mm512_set1_epi64(1 << step);
        for i in 0..M {
            let probe = _mm512_add_epi64(base[i], step);
            let inside = _mm512_cmple_epu64_mask(probe, end[i]);
            // SAFETY: where `probe` is at most `end`, at most the number of keys, the one before it is a key.
            let key = unsafe {
                _mm512_mask_i64gather_epi64::<8>(
                    none,
                    inside,
                    _mm512_sub_epi64(probe, one),
                    search.keys.as_ptr().cast(),
                )
            };
            let up_to = _mm512_mask_cmple_epu64_mask(inside, key, high[i]);
            base[i] = _mm512_mask_mov_epi64(base[i], up_to, probe);
        }
    }
    for ((i, out), addresses) in
        out.as_chunks_mut::<8>().0.iter_mut().enumerate().zip(addresses.as_chunks::<8>().0)
    {
        let rank = _mm512_sub_epi64(_mm512_max_epu64(base[i], one), one);
        // SAFETY: a rank less one is below the number of keys, and there are as many values; `out` has eight
        // places.
        let value = unsafe {
            let value = _mm512_i64gather_epi32::<4>(rank, search.values.as_ptr().cast());
            _mm256_storeu_si256(out.as_mut_ptr().cast(), value);
            value
        };
        let mut deep = _mm256_movepi32_mask(value);
        while deep != 0 {
            let lane = deep.trailing_zeros() as usize;
            deep &= deep - 1;
            if let (Some(out), Some([_, low])) = (out.get_mut(lane), addresses.get(lane)) {
                *out = search.leaf(*out, *low);
            }
        }
    }
}

/// Sixteen headers as four registers: source, destination, ports, the rest.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn transpose(headers: &[FlatV4; 16]) -> (__m512i, __m512i, __m512i, __m512i) {
    let at = |quarter: usize| {
        let from: *const FlatV4 = headers.as_ptr().wrapping_add(quarter * 4);
        // SAFETY: four headers of 16 bytes, in the array.
        unsafe { _mm512_loadu_si512(from.cast()) }
    };
    let (a, b, c, d) = (at(0), at(1), at(2), at(3));
    let addresses = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    let others = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
    let (ab, cd) = (_mm512_permutex2var_epi32(a, addresses, b), _mm512_permutex2var_epi32(c, addresses, d));
    let (ef, gh) = (_mm512_permutex2var_epi32(a, others, b), _mm512_permutex2var_epi32(c, others, d));
    (
        _mm512_shuffle_i64x2::<0x44>(ab, cd),
        _mm512_shuffle_i64x2::<0xee>(ab, cd),
        _mm512_shuffle_i64x2::<0x44>(ef, gh),
        _mm512_shuffle_i64x2::<0xee>(ef, gh),
    )
}

/// Finds the leaves of both addresses.
/// # Safety
/// Every node that an entry points to is in its table.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn search(a: &Search4, b: &Search4, x: &Avx512Block, y: &Avx512Block) -> (Avx512Block, Avx512Block) {
    let (mut p, mut q) = (zero(), zero());
    // SAFETY: the roots are 64 Ki.
    unsafe {
        for i in 0..N {
            p[i] = gather::<4, u32>(&a.nodes, _mm512_srli_epi32::<16>(x[i]));
        }
        for i in 0..N {
            q[i] = gather::<4, u32>(&b.nodes, _mm512_srli_epi32::<16>(y[i]));
        }
        for number in 0..a.depth.max(b.depth).into() {
            if let Some(of) = a.levels().get(number) {
                level(a, *of, x, &mut p);
            }
            if let Some(of) = b.levels().get(number) {
                level(b, *of, y, &mut q);
            }
        }
    }
    (p, q)
}

/// Advances one node, where an entry is a node.
/// # Safety
/// As [`search`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn level(search: &Search4, level: Level4, addresses: &Avx512Block, entries: &mut Avx512Block) {
    let (shift, mask) = (_mm_cvtsi32_si128(level.shift as i32), splat(level.mask));
    for (entry, address) in entries.iter_mut().zip(addresses) {
        let nodes = _mm512_movepi32_mask(*entry);
        let inside = _mm512_and_si512(_mm512_srl_epi32(*address, shift), mask);
        let index = _mm512_add_epi32(_mm512_and_si512(*entry, splat(0x7fff_ffff)), inside);
        // SAFETY: the caller's, for the lanes that are nodes.
        *entry = unsafe { gather_some::<4, u32>(&search.nodes, *entry, nodes, index) };
    }
}

/// Index of the port words.
/// # Safety
/// Every class × stride, summed, is in the table of port words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn port_index(tables: &SplitTables, ports: &Avx512Block, rest: &Avx512Block) -> Avx512Block {
    let mut index = zero();
    let [source, destination, protocol, tenant, link] = &tables.ports;
    let [s, d, p, t, l] = tables.strides;
    // SAFETY: each table has all values of its field and padding.
    unsafe {
        classes::<0>(source, s, 0xffff, ports, &mut index);
        classes::<16>(destination, d, 0xffff, ports, &mut index);
        classes::<0>(protocol, p, 0xff, rest, &mut index);
        classes::<16>(tenant, t, 0xffff, rest, &mut index);
        classes::<8>(link, l, 0xff, rest, &mut index);
    }
    index
}

/// Adds a field's classes to the index.
/// # Safety
/// The table has `mask` + 1 values and padding for reads of four bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn classes<const SHIFT: u32>(
    table: &PortTable,
    stride: u32,
    mask: u32,
    from: &Avx512Block,
    index: &mut Avx512Block,
) {
    let (mask, stride) = (splat(mask), splat(stride));
    for (index, from) in index.iter_mut().zip(from) {
        let value = _mm512_and_si512(_mm512_srli_epi32::<SHIFT>(*from), mask);
        let class = match table {
            PortTable::One => return,
            // SAFETY: the caller's.
            PortTable::Narrow(of) => _mm512_and_si512(unsafe { gather::<1, u8>(of, value) }, splat(0xff)),
            // SAFETY: the caller's.
            PortTable::Wide(of) => _mm512_and_si512(unsafe { gather::<2, u16>(of, value) }, splat(0xffff)),
        };
        *index = _mm512_add_epi32(*index, _mm512_mullo_epi32(class, stride));
    }
}

/// The words of a block.
/// # Safety
/// Every leaf is in the table.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn words(words: &AddressWords, leaves: &Avx512Block) -> Halves {
    match words {
        AddressWords::Leaf => Halves { low: *leaves, high: zero() },
        // SAFETY: the caller's.
        AddressWords::Table(table) => unsafe { all_halves(table, leaves) },
    }
}

/// # Safety
/// Every index is in the table.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn all_halves(table: &[u64], index: &Avx512Block) -> Halves {
    let mut out = Halves { low: zero(), high: zero() };
    for i in 0..N {
        // SAFETY: the caller's.
        (out.low[i], out.high[i]) = unsafe { gather_halves(table, index[i]) };
    }
    out
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn field(field: BitField, of: &Halves) -> Avx512Block {
    let from = if field.shift < 32 { &of.low } else { &of.high };
    let (shift, mask) = (_mm_cvtsi32_si128((field.shift % 32) as i32), splat(field.mask));
    let mut out = zero();
    for (out, from) in out.iter_mut().zip(from) {
        *out = _mm512_and_si512(_mm512_srl_epi32(*from, shift), mask);
    }
    out
}

/// # Safety
/// The tables were found in bounds, and leaves and index were made from them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn aggregate_bundle(
    bundle: &Bundle,
    source: &Avx512Block,
    destination: &Avx512Block,
    index: &Avx512Block,
    best: &mut [[u32; BLOCK]],
) {
    // SAFETY: the caller's.
    let (source, destination, ports) = unsafe {
        let ports = match &bundle.ports {
            PortWords::Narrow(table) => {
                let mut low = zero();
                for i in 0..N {
                    low[i] = gather::<4, u32>(table, index[i]);
                }
                Halves { low, high: zero() }
            }
            PortWords::Wide(table) => all_halves(table, index),
        };
        (words(&bundle.source, source), words(&bundle.destination, destination), ports)
    };
    for aggregate in &bundle.aggregates {
        let Some(best) = best.get_mut(usize::from(aggregate.set)) else { continue };
        // SAFETY: the caller's.
        unsafe { aggregate_one(aggregate, &source, &destination, &ports, best) };
    }
    for pool in &bundle.pools {
        let Some(best) = best.get_mut(usize::from(pool.set)) else { continue };
        // SAFETY: the caller's.
        unsafe { aggregate_pool(pool, &source, &destination, &ports, best) };
    }
}

/// # Safety
/// As [`aggregate_bundle`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn aggregate_pool(
    pool: &GroupPool,
    source: &Halves,
    destination: &Halves,
    ports: &Halves,
    best: &mut [u32; BLOCK],
) {
    let (column, row) = (field(pool.source, source), field(pool.destination, destination));
    let width = splat(pool.width);
    let mut cell = zero();
    for i in 0..N {
        // Factors have 15 bits: products of halves are those of the whole.
        let index = _mm512_add_epi32(_mm512_madd_epi16(row[i], width), column[i]);
        // SAFETY: the fields' masks keep it in the cells.
        cell[i] = unsafe { gather::<4, u32>(&pool.cells, index) };
    }
    // "No rule" is the largest value here, too.
    let mut rank = [splat(u32::from(NONE16)); N];
    for part in &pool.parts {
        let port = field(part.port, ports);
        let columns = splat(part.columns);
        for i in 0..N {
            let list = _mm512_and_si512(cell[i], splat(0xffff));
            let index = _mm512_add_epi32(_mm512_madd_epi16(list, columns), port[i]);
            // SAFETY: in bounds for every list of the cells.
            let read = unsafe { gather::<2, u16>(&part.ranks, index) };
            rank[i] = _mm512_min_epu32(rank[i], _mm512_and_si512(read, splat(0xffff)));
            cell[i] = _mm512_srli_epi32::<16>(cell[i]);
        }
    }
    for (best, rank) in best.as_chunks_mut::<16>().0.iter_mut().zip(rank) {
        let hit = _mm512_cmpneq_epi32_mask(rank, splat(u32::from(NONE16)));
        // SAFETY: sixteen numbers of four bytes.
        unsafe {
            let old = _mm512_loadu_si512(best.as_ptr().cast());
            _mm512_storeu_si512(best.as_mut_ptr().cast(), _mm512_mask_min_epu32(old, hit, old, rank));
        }
    }
}

/// # Safety
/// As [`aggregate_bundle`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn aggregate_one(
    aggregate: &Aggregate,
    source: &Halves,
    destination: &Halves,
    ports: &Halves,
    best: &mut [u32; BLOCK],
) {
    let (rows, columns) =
        if aggregate.rows_are_source { (source, destination) } else { (destination, source) };
    let row = field(aggregate.row, rows);
    let column = field(aggregate.column, columns);
    let port = field(aggregate.port, ports);
    let mask = splat(aggregate.slots.len() as u32 - 1);
    let (mut low, mut high) = (zero(), zero());
    for i in 0..N {
        let index = _mm512_and_si512(_mm512_add_epi32(row[i], column[i]), mask);
        // SAFETY: the mask keeps it in the slots.
        (low[i], high[i]) = unsafe { gather_halves(&aggregate.slots, index) };
    }
    let mut hit = [0; N];
    let mut base = zero();
    for i in 0..N {
        hit[i] = _mm512_cmpeq_epi32_mask(_mm512_srli_epi32::<8>(high[i]), row[i]);
        base[i] = _mm512_and_si512(low[i], splat(BASE_MASK));
    }
    let mut rank = zero();
    match &aggregate.form {
        AggregateLayout::Direct(ranks) => {
            for i in 0..N {
                let index = _mm512_add_epi32(base[i], port[i]);
                // SAFETY: in bounds for the lanes that hit.
                let read = unsafe { gather_some::<2, u16>(ranks, splat(u32::MAX), hit[i], index) };
                rank[i] = _mm512_and_si512(read, splat(0xffff));
                hit[i] &= _mm512_cmpneq_epi32_mask(rank[i], splat(u32::from(NONE16)));
            }
        }
        AggregateLayout::Positions { positions, columns, ranks } => {
            let columns = splat(*columns);
            let mut position = zero();
            for i in 0..N {
                let upper = _mm512_slli_epi32::<8>(_mm512_and_si512(high[i], splat(0xff)));
                let pattern = _mm512_or_si512(upper, _mm512_srli_epi32::<24>(low[i]));
                let index = _mm512_add_epi32(_mm512_mullo_epi32(pattern, columns), port[i]);
                // SAFETY: in bounds for the lanes that hit.
                let read = unsafe { gather_some::<1, u8>(positions, splat(u32::MAX), hit[i], index) };
                position[i] = _mm512_and_si512(read, splat(0xff));
                hit[i] &= _mm512_cmpneq_epi32_mask(position[i], splat(u32::from(NONE8)));
            }
            for i in 0..N {
                let index = _mm512_add_epi32(base[i], position[i]);
                // SAFETY: in bounds for the lanes that have a position.
                rank[i] = unsafe { gather_some::<4, u32>(ranks, splat(u32::MAX), hit[i], index) };
            }
        }
    }
    for ((best, rank), hit) in best.as_chunks_mut::<16>().0.iter_mut().zip(&rank).zip(hit) {
        // SAFETY: sixteen numbers of four bytes.
        unsafe {
            let old = _mm512_loadu_si512(best.as_ptr().cast());
            _mm512_storeu_si512(best.as_mut_ptr().cast(), _mm512_mask_min_epu32(old, hit, old, *rank));
        }
    }
}

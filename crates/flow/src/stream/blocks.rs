// SPDX-License-Identifier: Apache-2.0
//! The bytes that a stream holds: blocks of contiguous bytes, in order, without overlap.
//!
//! In-order data is appended to the block before it. Data that readers have yet to see, with its overlap, is
//! in one block as far as it has no hole; data held only for comparison (inline, until it is acknowledged)
//! may be in several blocks. A block that arrived early is therefore joined with the one before it only when
//! a reader reaches it: each byte moves at most once, however a sender orders its segments. A sender that is
//! far ahead fills block after block, instead of one that has to be moved as it grows.

use super::MemoryBudget;
use smallvec::SmallVec;

/// Maximum number of blocks in a stream. The data of a sender that needs more (every other byte, a thousand
/// times) is not worth keeping.
const MOST_BLOCKS: usize = 1024;
/// Size of a buffer after which another block begins, where readers allow it.
const FULL: usize = 64 << 10;
/// Least size of a buffer that is exchanged for a smaller one when it holds little.
const LARGE: usize = 16 << 10;
/// A buffer is too large when this many times its content was freed: the bytes moved are an eighth of those
/// received.
const FEW: usize = 8;
/// Bytes of a block besides its buffer.
const BLOCK_COST: usize = size_of::<StreamBlock>();

/// The reason why bytes were not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockRefusal {
    /// The worker's memory is used up.
    Memory,
    /// The stream's own limit is reached.
    Limit,
}

#[derive(Clone, Debug)]
pub(crate) struct StreamBlock {
    start: u64,
    /// Number of freed bytes at the beginning of the buffer.
    head: usize,
    buffer: Vec<u8>,
}

impl StreamBlock {
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.head..).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.head..).unwrap_or_default()
    }

    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.buffer.len().saturating_sub(self.head) as u64)
    }

    /// The bytes from an offset on; empty when the offset is not in the block.
    pub(crate) fn from(&self, offset: u64) -> &[u8] {
        let skip = offset.checked_sub(self.start).and_then(|n| usize::try_from(n).ok());
        skip.and_then(|n| self.bytes().get(n..)).unwrap_or_default()
    }
}

/// The intersection of two ranges, as (start, length).
fn shared(a: u64, a_end: u64, b: u64, b_end: u64) -> Option<(u64, usize)> {
    let start = a.max(b);
    let len = a_end.min(b_end).checked_sub(start)?;
    usize::try_from(len).ok().filter(|len| *len > 0).map(|len| (start, len))
}

fn index(offset: u64, base: u64) -> usize {
    usize::try_from(offset.saturating_sub(base)).unwrap_or(usize::MAX)
}

/// Copies the intersection of two ranges from one to the other.
fn copy_shared(from: u64, source: &[u8], to: u64, target: &mut [u8]) {
    let from_end = from.saturating_add(source.len() as u64);
    let to_end = to.saturating_add(target.len() as u64);
    let Some((start, len)) = shared(from, from_end, to, to_end) else { return };
    let source = source.get(index(start, from)..).and_then(|s| s.get(..len));
    let target = target.get_mut(index(start, to)..).and_then(|t| t.get_mut(..len));
    if let (Some(source), Some(target)) = (source, target) {
        target.copy_from_slice(source);
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    blocks: SmallVec<[StreamBlock; 1]>,
    held: usize,
    /// Readers see bytes from this offset on.
    seen_from: u64,
    /// Size of the buffer that the last burst of data needed.
    burst: usize,
}

impl Blocks {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether the held bytes are in one block, without holes.
    pub(crate) fn is_whole(&self) -> bool {
        self.blocks.len() < 2
    }

    /// Sets the offset from which readers see bytes.
    pub(crate) fn set_seen_from(&mut self, offset: u64) {
        self.seen_from = offset;
    }

    /// Bytes of memory of the blocks.
    pub(crate) fn held(&self) -> u64 {
        self.held as u64
    }

    /// Bytes of memory of the blocks after an offset.
    pub(crate) fn held_from(&self, offset: u64) -> u64 {
        let behind = self.blocks.get(self.first_ending_after(offset)..).unwrap_or_default();
        let cost = |block: &StreamBlock| match offset.checked_sub(block.start).filter(|part| *part > 0) {
            Some(_) => block.end().saturating_sub(offset),
            None => block.buffer.capacity().saturating_add(BLOCK_COST) as u64,
        };
        behind.iter().fold(0, |sum, block| sum.saturating_add(cost(block)))
    }

    /// Bytes that fit after the held ones in one buffer of at most the usual size.
    pub(crate) fn room(&self) -> usize {
        let Some(block) = self.blocks.last() else { return FULL };
        let (size, held) = (block.buffer.capacity(), block.buffer.len());
        if size < FULL { FULL.saturating_sub(block.bytes().len()) } else { size.saturating_sub(held) }
    }

    /// The end of the last held byte.
    pub(crate) fn end(&self) -> Option<u64> {
        self.blocks.last().map(StreamBlock::end)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &StreamBlock> {
        self.blocks.iter()
    }

    /// Index of the first block that ends after `offset`.
    fn first_ending_after(&self, offset: u64) -> usize {
        match self.blocks.as_slice() {
            [] => 0,
            // The usual case: the held bytes have no holes.
            [only] => usize::from(only.end() <= offset),
            blocks => blocks.partition_point(|block| block.end() <= offset),
        }
    }

    /// The block that holds `offset`, or the next one after it.
    pub(crate) fn at_or_after(&self, offset: u64) -> Option<&StreamBlock> {
        self.blocks.get(self.first_ending_after(offset))
    }

    /// The contiguous bytes from `offset` on, within one block.
    pub(crate) fn run(&self, offset: u64) -> &[u8] {
        self.at_or_after(offset).map(|block| block.from(offset)).unwrap_or_default()
    }

    /// Whether any byte of the range is held.
    pub(crate) fn touches(&self, start: u64, end: u64) -> bool {
        self.at_or_after(start).is_some_and(|block| block.start < end)
    }

    /// Whether a byte of the range is held and differs.
    pub(crate) fn differs(&self, start: u64, bytes: &[u8]) -> bool {
        let end = start.saturating_add(bytes.len() as u64);
        self.overlapping(start, end).any(|block| {
            let Some((at, len)) = shared(block.start, block.end(), start, end) else { return false };
            let new = bytes.get(index(at, start)..).and_then(|b| b.get(..len));
            let old = block.bytes().get(index(at, block.start)..).and_then(|b| b.get(..len));
            new != old
        })
    }

    /// Copies the held bytes of the range over `bytes`.
    pub(crate) fn read_over(&self, start: u64, bytes: &mut [u8]) {
        let end = start.saturating_add(bytes.len() as u64);
        for block in self.overlapping(start, end) {
            copy_shared(block.start, block.bytes(), start, bytes);
        }
    }

    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &StreamBlock> {
        let from = self.first_ending_after(start);
        self.blocks.iter().skip(from).take_while(move |block| block.start < end)
    }

    /// The range of held bytes without a hole around the given range, extended by at most `room` on each
    /// side. `None`: the range has a hole.
    pub(crate) fn island(&self, start: u64, end: u64, room: u64) -> Option<(u64, u64)> {
        let at = self.first_ending_after(start);
        let first = self.blocks.get(at).filter(|block| block.start <= start)?;
        let (mut left, mut right) = (first.start, first.end());
        let before = self.blocks.get(..at).unwrap_or_default();
        for block in before.iter().rev() {
            if block.end() != left || start.saturating_sub(left) >= room {
                break;
            }
            left = block.start;
        }
        for block in self.blocks.iter().skip(at.saturating_add(1)) {
            if block.start != right || right >= end.saturating_add(room) {
                break;
            }
            right = block.end();
        }
        (right >= end).then_some((left, right))
    }

    /// The bytes of a range without a hole; those of several blocks are joined in `joined`.
    pub(crate) fn copied<'a>(&'a self, start: u64, end: u64, joined: &'a mut Vec<u8>) -> &'a [u8] {
        let len = index(end, start);
        if let Some(bytes) = self.run(start).get(..len) {
            return bytes;
        }
        joined.clear();
        joined.resize(len, 0);
        self.read_over(start, joined);
        joined
    }

    /// Islands of data with more than `apart` bytes between them.
    pub(crate) fn regions(&self, apart: u64) -> usize {
        let mut regions = usize::from(!self.is_empty());
        let mut end = None;
        for block in &self.blocks {
            if end.is_some_and(|end| block.start.saturating_sub(end) > apart) {
                regions = regions.saturating_add(1);
            }
            end = Some(block.end());
        }
        regions
    }

    /// Writes the range: over held bytes, and into holes. On refusal the part before the refused hole is
    /// written.
    pub(crate) fn write(
        &mut self,
        start: u64,
        bytes: &[u8],
        limit: u64,
        budget: &mut MemoryBudget,
    ) -> Result<(), BlockRefusal> {
        // The usual case: the data continues the held bytes.
        if let Some(last) = self.blocks.len().checked_sub(1).filter(|_| self.end() == Some(start)) {
            return self.append(last, bytes, Some(limit), budget);
        }
        let (mut at, mut rest) = (start, bytes);
        while !rest.is_empty() {
            let next = self.first_ending_after(at);
            let (block_start, block_end) = match self.blocks.get(next) {
                Some(block) => (block.start, block.end()),
                None => (u64::MAX, u64::MAX),
            };
            let until = if block_start > at { block_start } else { block_end };
            let len = rest.len().min(index(until, at));
            let (now, later) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            if block_start > at {
                self.fill(next, at, now, limit, budget)?;
            } else if let Some(block) = self.blocks.get_mut(next) {
                let block_start = block.start;
                copy_shared(at, now, block_start, block.bytes_mut());
            }
            at = at.saturating_add(len as u64);
            rest = later;
        }
        self.join(budget);
        Ok(())
    }

    /// Writes bytes into a hole before the block at `next`.
    fn fill(
        &mut self,
        next: usize,
        at: u64,
        bytes: &[u8],
        limit: u64,
        budget: &mut MemoryBudget,
    ) -> Result<(), BlockRefusal> {
        let before = next.checked_sub(1);
        if let Some(before) = before
            && self.blocks.get(before).is_some_and(|block| block.end() == at)
        {
            return self.append(before, bytes, Some(limit), budget);
        }
        if self.blocks.len() >= MOST_BLOCKS {
            return Err(BlockRefusal::Limit);
        }
        self.check_limit(MemoryBudget::size_for(bytes.len()), Some(limit))?;
        let mut buffer = budget.take(bytes.len()).ok_or(BlockRefusal::Memory)?;
        buffer.extend_from_slice(bytes);
        self.insert(next, at, buffer, budget);
        Ok(())
    }

    /// Inserts a block; its buffer is charged already.
    fn insert(&mut self, position: usize, start: u64, buffer: Vec<u8>, budget: &mut MemoryBudget) {
        budget.charge(BLOCK_COST);
        self.held = self.held.saturating_add(buffer.capacity()).saturating_add(BLOCK_COST);
        self.blocks.insert(position.min(self.blocks.len()), StreamBlock { start, head: 0, buffer });
    }

    fn check_limit(&self, more: usize, limit: Option<u64>) -> Result<(), BlockRefusal> {
        match limit {
            Some(limit) if limit != 0 && (self.held.saturating_add(more)) as u64 > limit => {
                Err(BlockRefusal::Limit)
            }
            _ => Ok(()),
        }
    }

    /// Appends to a block; without a limit the memory was promised before.
    fn append(
        &mut self,
        position: usize,
        bytes: &[u8],
        limit: Option<u64>,
        budget: &mut MemoryBudget,
    ) -> Result<(), BlockRefusal> {
        let Some(block) = self.blocks.get_mut(position) else { return Ok(()) };
        let len = block.bytes().len();
        let room = block.buffer.capacity().saturating_sub(block.buffer.len());
        if room < bytes.len() {
            let need = len.saturating_add(bytes.len());
            if self.is_full(position) {
                return self.begin_next(position, bytes, limit, budget);
            }
            if let Some(block) = self.blocks.get_mut(position)
                && need <= block.buffer.capacity()
                && block.head >= len
            {
                // The freed front is large enough to move into: each byte moves at most once per freed byte.
                block.buffer.drain(..block.head);
                block.head = 0;
            } else {
                self.grow(position, need, limit, budget)?;
            }
        }
        if let Some(block) = self.blocks.get_mut(position) {
            block.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Whether data after a block belongs in another one: readers still need little of the block.
    fn is_full(&self, position: usize) -> bool {
        self.blocks.get(position).is_some_and(|block| {
            let seen = block.end().saturating_sub(self.seen_from.max(block.start));
            block.buffer.capacity() >= FULL && seen < FULL as u64 / 4 && self.blocks.len() < MOST_BLOCKS
        })
    }

    /// Writes bytes into a block of their own after the one at `position`, together with the part of that one
    /// which readers still need.
    fn begin_next(
        &mut self,
        position: usize,
        bytes: &[u8],
        limit: Option<u64>,
        budget: &mut MemoryBudget,
    ) -> Result<(), BlockRefusal> {
        let Some(block) = self.blocks.get(position) else { return Ok(()) };
        let start = block.end().min(self.seen_from.max(block.start));
        let need = block.from(start).len().saturating_add(bytes.len());
        let mut buffer = self.buffer(need.max(FULL), need, 0, limit, budget)?;
        let Some(block) = self.blocks.get_mut(position) else { return Ok(()) };
        let seen = block.from(start);
        buffer.extend_from_slice(seen);
        buffer.extend_from_slice(bytes);
        let rest = block.buffer.len().saturating_sub(seen.len());
        block.buffer.truncate(rest);
        self.insert(position.saturating_add(1), start, buffer, budget);
        Ok(())
    }

    /// Moves a block into a buffer with room for `need` bytes.
    fn grow(
        &mut self,
        position: usize,
        need: usize,
        limit: Option<u64>,
        budget: &mut MemoryBudget,
    ) -> Result<(), BlockRefusal> {
        let Some(block) = self.blocks.get(position) else { return Ok(()) };
        let old = block.buffer.capacity();
        // If bytes at the front are freed as fast as new ones arrive (a sliding window), the buffer has room
        // for as much again as it holds. Else the next size but one: each byte moves a third of a time on
        // average.
        let len = block.bytes().len();
        let more = if block.head > 0 { need.saturating_add(len) } else { old.saturating_mul(4).min(FULL) };
        let buffer = self.buffer(need.max(more).max(self.burst), need, old, limit, budget)?;
        let Some(block) = self.blocks.get_mut(position) else { return Ok(()) };
        let old_buffer = core::mem::replace(&mut block.buffer, buffer);
        block.buffer.extend_from_slice(old_buffer.get(block.head..).unwrap_or_default());
        block.head = 0;
        self.held = self.held.saturating_add(block.buffer.capacity()).saturating_sub(old);
        budget.release_buffer(old_buffer);
        Ok(())
    }

    /// A buffer with room for `wished` bytes if the budget allows, else for `need`. `old` bytes of memory are
    /// returned for it.
    fn buffer(
        &self,
        wished: usize,
        need: usize,
        old: usize,
        limit: Option<u64>,
        budget: &mut MemoryBudget,
    ) -> Result<Vec<u8>, BlockRefusal> {
        let more = |len: usize| MemoryBudget::size_for(len).saturating_sub(old);
        let affordable =
            budget.fits(MemoryBudget::size_for(wished)) && self.check_limit(more(wished), limit).is_ok();
        let want = if affordable { wished } else { need };
        self.check_limit(more(want), limit)?;
        match limit {
            Some(_) => budget.take(want).ok_or(BlockRefusal::Memory),
            None => Ok(budget.take_promised(want)),
        }
    }

    /// Keeps bytes for which memory was promised when the packet arrived.
    pub(crate) fn keep_promised(&mut self, start: u64, bytes: &[u8], budget: &mut MemoryBudget) {
        if bytes.is_empty() {
            return;
        }
        let last = self.blocks.len().checked_sub(1);
        if let Some(last) = last.filter(|_| self.end() == Some(start)) {
            let _ = self.append(last, bytes, None, budget);
            return;
        }
        if self.end().is_some_and(|end| end > start) {
            return;
        }
        let mut buffer = budget.take_promised(bytes.len());
        buffer.extend_from_slice(bytes);
        self.insert(self.blocks.len(), start, buffer, budget);
    }

    /// Joins the block that readers see with those that follow it without a hole.
    fn join(&mut self, budget: &mut MemoryBudget) {
        if self.is_whole() {
            return;
        }
        let at = self.first_ending_after(self.seen_from);
        while let Some([first, second]) = self.blocks.get(at..at.saturating_add(2))
            && first.end() == second.start
        {
            let second = self.blocks.remove(at.saturating_add(1));
            // The bytes are charged already; a larger buffer is needed only for a moment.
            let len = self.blocks.get(at).map_or(0, |first| first.bytes().len());
            let need = len.saturating_add(second.bytes().len());
            let room = self.blocks.get(at).map_or(0, |b| b.buffer.capacity().saturating_sub(b.buffer.len()));
            if room < second.bytes().len() {
                let _ = self.grow(at, need, None, budget);
            }
            if let Some(first) = self.blocks.get_mut(at) {
                first.buffer.extend_from_slice(second.bytes());
            }
            self.discard(second, budget);
        }
    }

    fn discard(&mut self, block: StreamBlock, budget: &mut MemoryBudget) {
        self.held = self.held.saturating_sub(block.buffer.capacity()).saturating_sub(BLOCK_COST);
        budget.discharge(BLOCK_COST);
        budget.release_buffer(block.buffer);
    }

    /// Frees all bytes before `left`.
    pub(crate) fn trim(&mut self, left: u64, budget: &mut MemoryBudget) {
        while self.blocks.first().is_some_and(|block| block.end() <= left) {
            let block = self.blocks.remove(0);
            self.discard(block, budget);
        }
        if let Some(block) = self.blocks.first_mut()
            && left > block.start
        {
            block.head = block.head.saturating_add(index(left, block.start));
            block.start = left;
        }
        self.join(budget);
        self.shrink(budget);
    }

    /// Exchanges a large buffer for a small one when its content fits: between bursts a stream holds a
    /// reader's window. So thousands of streams share a few buffers, which stay in the processor's cache, and
    /// idle ones cost little memory.
    fn shrink(&mut self, budget: &mut MemoryBudget) {
        let [block] = self.blocks.as_mut_slice() else { return };
        let len = block.bytes().len();
        let old = block.buffer.capacity();
        if old < LARGE || block.head < len.saturating_mul(FEW) || MemoryBudget::size_for(len) >= old {
            return;
        }
        let Some(buffer) = budget.take(len) else { return };
        let large = core::mem::replace(&mut block.buffer, buffer);
        block.buffer.extend_from_slice(large.get(block.head..).unwrap_or_default());
        block.head = 0;
        self.held = self.held.saturating_add(block.buffer.capacity()).saturating_sub(old);
        self.burst = old.min(FULL);
        budget.release_buffer(large);
    }

    /// Moves all bytes after `from` one position back: a byte before them turned out to be urgent.
    pub(crate) fn close_up(&mut self, from: u64) {
        for block in &mut self.blocks {
            if block.start > from {
                block.start = block.start.saturating_sub(1);
            }
        }
    }

    /// Frees all bytes.
    pub(crate) fn clear(&mut self, budget: &mut MemoryBudget) {
        for block in core::mem::take(&mut self.blocks) {
            self.discard(block, budget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(blocks: &Blocks) -> Vec<(u64, String)> {
        blocks.iter().map(|b| (b.start(), String::from_utf8_lossy(b.bytes()).into_owned())).collect()
    }

    #[test]
    fn fills_holes_overwrites_and_joins_at_the_front() {
        let mut budget = MemoryBudget::new(0);
        let mut blocks = Blocks::default();
        blocks.write(0, b"abc", 0, &mut budget).unwrap();
        blocks.write(6, b"ghi", 0, &mut budget).unwrap();
        blocks.write(12, b"mn", 0, &mut budget).unwrap();
        assert_eq!(text(&blocks), [(0, "abc".into()), (6, "ghi".into()), (12, "mn".into())]);
        assert!(blocks.differs(5, b"Xg_") && !blocks.differs(5, b"Xgh"));
        let mut mine = *b"XXXX";
        blocks.read_over(2, &mut mine);
        assert_eq!(&mine, b"cXXX");
        blocks.write(2, b"CDEFGH", 0, &mut budget).unwrap();
        assert_eq!(text(&blocks), [(0, "abCDEFGHi".into()), (12, "mn".into())]);
        assert_eq!(blocks.run(4), b"EFGHi");
        assert_eq!(blocks.run(9), b"");
        blocks.trim(5, &mut budget);
        assert_eq!(text(&blocks), [(5, "FGHi".into()), (12, "mn".into())]);
        blocks.trim(9, &mut budget);
        assert_eq!(text(&blocks), [(12, "mn".into())]);
        blocks.clear(&mut budget);
        assert_eq!((budget.used(), blocks.held()), (0, 0));
    }

    #[test]
    fn a_burst_leaves_a_small_buffer_behind_and_the_next_one_gets_a_large_one_at_once() {
        let mut budget = MemoryBudget::new(0);
        let mut blocks = Blocks::default();
        let bytes: Vec<u8> = (0..=255).cycle().take(40_000).collect();
        for (at, part) in (0..).step_by(1000).zip(bytes.chunks(1000)) {
            blocks.write(at, part, 0, &mut budget).unwrap();
        }
        assert_eq!((budget.used(), blocks.room()), ((FULL + BLOCK_COST) as u64, FULL - 40_000));
        blocks.set_seen_from(38_000);
        blocks.trim(30_000, &mut budget);
        assert_eq!(budget.used(), (FULL + BLOCK_COST) as u64, "10,000 bytes are held");
        blocks.trim(38_000, &mut budget);
        assert_eq!(budget.used(), (2048 + BLOCK_COST) as u64);
        assert_eq!((blocks.held(), blocks.room()), (budget.used(), FULL - 2000));
        assert_eq!(blocks.run(38_000), &bytes[38_000..]);
        blocks.write(40_000, &bytes[..1000], 0, &mut budget).unwrap();
        assert_eq!(budget.used(), (FULL + BLOCK_COST) as u64);
        assert_eq!(blocks.run(38_000), [&bytes[38_000..], &bytes[..1000]].concat());
        blocks.clear(&mut budget);
        assert_eq!((budget.used(), blocks.held()), (0, 0));
    }

    #[test]
    fn limits_hold() {
        let mut budget = MemoryBudget::new(6000);
        let mut blocks = Blocks::default();
        blocks.write(0, &[1; 2000], 5000, &mut budget).unwrap();
        assert_eq!(blocks.write(4000, &[1; 3000], 5000, &mut budget), Err(BlockRefusal::Limit));
        assert_eq!(blocks.write(4000, &[1; 3000], 0, &mut budget), Err(BlockRefusal::Memory));
        let mut blocks = Blocks::default();
        let mut budget = MemoryBudget::new(0);
        let mut refused = 0;
        for n in 0..2000u64 {
            refused += usize::from(blocks.write(n * 2, b"x", 0, &mut budget).is_err());
        }
        assert_eq!(refused, 2000 - MOST_BLOCKS);
    }
}

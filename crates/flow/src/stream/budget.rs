// SPDX-License-Identifier: Apache-2.0
//! Memory of reassembly: one budget per worker, from which every buffer is taken and to which it returns.
//!
//! Buffer sizes are powers of two. A small number of returned buffers is kept, so that streams that hold
//! little for a short time (the usual case) do not allocate. Kept buffers are bounded and do not count as
//! used.

/// Smallest buffer.
const SMALLEST: usize = 2048;
/// Number of buffer sizes that are kept: 2 KiB to 64 KiB.
const CLASSES: usize = 6;
/// Bytes of buffers kept for each size.
const KEPT_PER_CLASS: usize = 1 << 20;

/// Counts the bytes that the streams of a worker hold, and refuses more than its limit.
#[derive(Debug, Default)]
pub struct MemoryBudget {
    limit: u64,
    used: u64,
    peak: u64,
    kept: [Vec<Vec<u8>>; CLASSES],
}

impl MemoryBudget {
    /// A budget of `limit` bytes; 0 for no limit.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Bytes now held by streams.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Most bytes ever held.
    #[must_use]
    pub const fn peak(&self) -> u64 {
        self.peak
    }

    /// The limit; 0 for none.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Changes the limit; held bytes stay.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Whether `bytes` more can be held.
    #[must_use]
    pub(crate) const fn fits(&self, bytes: usize) -> bool {
        self.limit == 0 || self.used.saturating_add(bytes as u64) <= self.limit
    }

    /// Size of the buffer that holds `len` bytes.
    pub(crate) fn size_for(len: usize) -> usize {
        len.max(SMALLEST).checked_next_power_of_two().unwrap_or(len)
    }

    /// Takes a buffer for at least `len` bytes, or nothing when the limit does not allow it.
    pub(crate) fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let size = Self::size_for(len);
        if !self.fits(size) {
            return None;
        }
        let kept = Self::class(size).and_then(|class| self.kept.get_mut(class)).and_then(Vec::pop);
        let buffer = kept.unwrap_or_else(|| Vec::with_capacity(size));
        self.used = self.used.saturating_add(buffer.capacity() as u64);
        self.peak = self.peak.max(self.used);
        Some(buffer)
    }

    /// Takes a buffer even above the limit: for bytes whose keeping was promised before. At most the rest of
    /// one packet per call.
    pub(crate) fn take_promised(&mut self, len: usize) -> Vec<u8> {
        let limit = core::mem::replace(&mut self.limit, 0);
        let buffer = self.take(len).unwrap_or_default();
        self.limit = limit;
        buffer
    }

    /// Returns a buffer.
    pub(crate) fn release_buffer(&mut self, mut buffer: Vec<u8>) {
        let size = buffer.capacity();
        self.used = self.used.saturating_sub(size as u64);
        if let Some(kept) = Self::class(size).and_then(|class| self.kept.get_mut(class))
            && kept.len().saturating_add(1).saturating_mul(size) <= KEPT_PER_CLASS
        {
            buffer.clear();
            kept.push(buffer);
        }
    }

    /// Counts bytes that are not in a buffer.
    pub(crate) fn charge(&mut self, bytes: usize) {
        self.used = self.used.saturating_add(bytes as u64);
        self.peak = self.peak.max(self.used);
    }

    /// Subtracts bytes that [`MemoryBudget::charge`] counted.
    pub(crate) fn discharge(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes as u64);
    }

    fn class(size: usize) -> Option<usize> {
        if !size.is_power_of_two() {
            return None;
        }
        let class = size.checked_div(SMALLEST)?.checked_ilog2()?;
        usize::try_from(class).ok().filter(|class| *class < CLASSES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_buffers_and_refuses_beyond_the_limit() {
        let mut budget = MemoryBudget::new(10_000);
        let a = budget.take(1).unwrap();
        let b = budget.take(2049).unwrap();
        assert_eq!(budget.used(), 2048 + 4096);
        assert!(budget.take(4096).is_none());
        let held = a.capacity();
        budget.release_buffer(a);
        assert_eq!(budget.used(), 4096);
        // A kept buffer is used again and holds nothing of its former owner.
        let again = budget.take(5).unwrap();
        assert_eq!((again.capacity(), again.len()), (held, 0));
        budget.release_buffer(again);
        budget.release_buffer(b);
        assert_eq!((budget.used(), budget.peak()), (0, 6144));
    }

    #[test]
    fn keeps_a_bounded_number_of_buffers() {
        let mut budget = MemoryBudget::new(0);
        let taken: Vec<_> = (0..1000).filter_map(|_| budget.take(2048)).collect();
        for buffer in taken {
            budget.release_buffer(buffer);
        }
        assert!(budget.kept[0].len() * 2048 <= KEPT_PER_CLASS);
        assert_eq!(budget.used(), 0);
    }
}

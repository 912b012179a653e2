// SPDX-License-Identifier: Apache-2.0
//! The bytes that a file is known to have after its pieces were written, or read, in prevention: adjacent
//! pieces are one extent, whatever their order, and a later piece is written over earlier ones.

use crate::memory::Held as _;
use std::collections::{BTreeMap, VecDeque};

/// Bytes on either side of a seam between pieces that are inspected together.
pub(super) const SEAM: usize = 256;
/// Limit of an extent's bytes. A longer one keeps its first [`SEAM`] bytes and the last half of this.
pub(super) const EXTENT_BYTES: usize = 16 << 10;
/// Limit of the extents of a file.
pub(super) const EXTENTS_MAX: usize = 1024;
/// Limit of the bytes of all extents of a file.
pub(super) const IMAGE_BYTES: usize = 256 << 10;

/// Adjacent known bytes.
#[derive(Debug)]
struct Extent {
    bytes: Vec<u8>,
    /// The bytes before the first one were known and are forgotten: nothing that is new can end there.
    is_rest: bool,
    /// When the extent was last written to: a number that grows.
    written: u64,
}

impl Extent {
    fn end(&self, begin: u64) -> u64 {
        begin.saturating_add(self.bytes.len() as u64)
    }
}

/// The extents of a file, by their beginning. No two touch, those of a longer one excepted.
#[derive(Debug, Default)]
pub(super) struct FileImage {
    extents: BTreeMap<u64, Extent>,
    /// Bytes of all extents.
    bytes: usize,
    /// Memory of all extents' bytes.
    memory: usize,
    /// Number of writes.
    writes: u64,
    /// Extents in the order of their last writes: the write's number, and the extent's beginning. An extent
    /// that was written to since has a later place as well.
    order: VecDeque<(u64, u64)>,
}

impl FileImage {
    /// The known bytes that stand before an offset, at most [`SEAM`].
    pub(super) fn before(&self, offset: u64) -> &[u8] {
        let Some((begin, extent)) = self.extents.range(..offset).next_back() else { return &[] };
        let length = usize::try_from(offset.saturating_sub(*begin)).unwrap_or(usize::MAX);
        extent.bytes.get(length.saturating_sub(SEAM)..length).unwrap_or_default()
    }

    /// The known bytes that stand from an offset on, at most [`SEAM`].
    pub(super) fn after(&self, offset: u64) -> &[u8] {
        let Some((begin, extent)) = self.extents.range(..=offset).next_back() else { return &[] };
        let from = usize::try_from(offset.saturating_sub(*begin)).unwrap_or(usize::MAX);
        let rest = extent.bytes.get(from..).unwrap_or_default();
        rest.get(..SEAM).unwrap_or(rest)
    }

    /// Writes bytes at an offset.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.writes = self.writes.saturating_add(1);
        let end = offset.saturating_add(data.len() as u64);
        let near = self.extents.range_mut(..=end).next_back();
        // Most files are written in order: no other extent is near.
        let begin = match near {
            Some((begin, extent)) if extent.end(*begin) == offset => {
                let before = extent.bytes.held();
                extent.bytes.extend_from_slice(data);
                extent.written = self.writes;
                self.bytes = self.bytes.saturating_add(data.len());
                self.memory = self.memory.saturating_sub(before).saturating_add(extent.bytes.held());
                let begin = *begin;
                self.note(begin, self.writes);
                begin
            }
            _ => self.join(offset, data),
        };
        self.shorten(begin);
        while self.extents.len() > EXTENTS_MAX || self.bytes > IMAGE_BYTES {
            let Some((written, begin)) = self.order.pop_front() else { break };
            if self.extents.get(&begin).is_some_and(|extent| extent.written == written) {
                self.remove(begin);
            }
        }
    }

    /// Notes that an extent was written to.
    fn note(&mut self, begin: u64, written: u64) {
        match self.order.back_mut().filter(|newest| newest.1 == begin) {
            Some(newest) => newest.0 = written,
            None => {
                if self.order.len() >= 2 * EXTENTS_MAX {
                    let extents = &self.extents;
                    let is_last = |begin, written| {
                        extents.get(&begin).is_some_and(|extent: &Extent| extent.written == written)
                    };
                    self.order.retain(|(written, begin)| is_last(*begin, *written));
                }
                self.order.push_back((written, begin));
            }
        }
    }

    fn remove(&mut self, begin: u64) -> Option<Extent> {
        let extent = self.extents.remove(&begin)?;
        self.bytes = self.bytes.saturating_sub(extent.bytes.len());
        self.memory = self.memory.saturating_sub(extent.bytes.held());
        Some(extent)
    }

    fn insert(&mut self, begin: u64, extent: Extent) {
        self.bytes = self.bytes.saturating_add(extent.bytes.len());
        self.memory = self.memory.saturating_add(extent.bytes.held());
        let written = extent.written;
        self.extents.insert(begin, extent);
        self.note(begin, written);
    }

    /// Makes one extent of bytes and those that they overlap or touch; returns its beginning.
    fn join(&mut self, offset: u64, data: &[u8]) -> u64 {
        let end = offset.saturating_add(data.len() as u64);
        let mut joined = Extent { bytes: data.to_vec(), is_rest: false, written: self.writes };
        let mut begin = offset;
        // From the last one to the first one.
        while let Some(at) = self.extents.range(..=end).next_back().map(|(at, _)| *at)
            && self.extents.get(&at).is_some_and(|extent| extent.end(at) >= offset)
            && let Some(mut extent) = self.remove(at)
        {
            if extent.end(at) > end {
                let known = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
                joined.bytes.extend_from_slice(extent.bytes.get(known..).unwrap_or_default());
            }
            if at < offset {
                let length = usize::try_from(offset.saturating_sub(at)).unwrap_or(usize::MAX);
                extent.bytes.truncate(length);
                extent.bytes.append(&mut joined.bytes);
                (joined.bytes, joined.is_rest, begin) = (extent.bytes, extent.is_rest, at);
                break;
            }
        }
        self.insert(begin, joined);
        begin
    }

    /// Forgets the middle of an extent that is too long.
    fn shorten(&mut self, begin: u64) {
        if self.extents.get(&begin).is_none_or(|extent| extent.bytes.len() <= EXTENT_BYTES) {
            return;
        }
        let Some(Extent { bytes: mut first, is_rest, written }) = self.remove(begin) else { return };
        let forgotten = first.len().saturating_sub(EXTENT_BYTES / 2);
        let bytes = first.split_off(forgotten);
        self.insert(begin.saturating_add(forgotten as u64), Extent { bytes, is_rest: true, written });
        if !is_rest {
            first.truncate(SEAM);
            first.shrink_to_fit();
            self.insert(begin, Extent { bytes: first, is_rest, written });
        }
    }

    /// Forgets the extents that have bytes in a range whose bytes are unknown now.
    pub(super) fn forget(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        while let Some((begin, extent)) = self.extents.range(..end).next_back()
            && extent.end(*begin) > offset
        {
            let begin = *begin;
            self.remove(begin);
        }
    }

    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        let places = self.extents.len().saturating_mul(2 * size_of::<Extent>());
        self.memory.saturating_add(places).saturating_add(self.order.held())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_testkit::random::Random;

    #[test]
    fn extents_meet_in_any_order() {
        let mut image = FileImage::default();
        for (at, text) in [(4, "ef"), (0, "ab"), (8, "i"), (6, "gh"), (2, "cd")] {
            image.write(at, text.as_bytes());
        }
        assert_eq!(
            (image.extents.len(), image.before(9), image.after(0)),
            (1, &b"abcdefghi"[..], &b"abcdefghi"[..])
        );
        image.write(2, b"CDE");
        assert_eq!((image.before(7), image.after(4)), (&b"abCDEfg"[..], &b"Efghi"[..]));
        assert!(image.before(0).is_empty() && image.after(9).is_empty() && image.before(20).is_empty());
        image.forget(3, 1);
        assert_eq!((image.extents.len(), image.memory, image.bytes), (0, 0, 0));
    }

    #[test]
    fn extents_and_bytes_are_limited() {
        let mut image = FileImage::default();
        for number in 0..=EXTENTS_MAX as u64 {
            image.write(number * 10, b"x");
        }
        assert_eq!(
            (image.extents.len(), image.after(0), image.after(10)),
            (EXTENTS_MAX, &b""[..], &b"x"[..])
        );
        for number in 0..100 {
            image.write(20_000 * number, &[b'y'; 10_000]);
        }
        assert!(image.bytes <= IMAGE_BYTES && image.bytes > IMAGE_BYTES / 2);
        // Many parts that grow in order.
        let mut image = FileImage::default();
        for round in 0..100 {
            for part in 0..EXTENTS_MAX as u64 {
                image.write(part * 100_000 + round * 100, &[b'w'; 100]);
            }
            assert!(image.bytes <= IMAGE_BYTES && image.held() < 4 * IMAGE_BYTES, "{round}");
            assert!(image.order.len() <= 2 * EXTENTS_MAX, "{round}");
        }
        // A long file, in order.
        let mut image = FileImage::default();
        for number in 0..1_000 {
            image.write(number * 1_000, &[b'z'; 1_000]);
        }
        assert_eq!(
            (image.extents.len(), image.after(0).len(), image.before(1_000_000).len()),
            (2, SEAM, SEAM)
        );
        assert!(image.held() < 3 * EXTENT_BYTES && image.before(100_000).is_empty());
        assert!(image.order.len() <= 300);
    }

    /// The neighbours of every piece are those of the file itself.
    #[test]
    fn as_a_file() {
        let mut random = Random::new(5);
        for round in 0..200 {
            let mut image = FileImage::default();
            let mut file = vec![None; 20_000];
            let most = if round % 2 == 0 { 9 } else { 700 };
            for _ in 0..random.within(1, 120) {
                let (at, length) = (random.within(0, 6_000), random.within(1, most));
                let data = random.letters(length);
                image.write(at as u64, &data);
                let end = at + length;
                for (place, byte) in file[at..end].iter_mut().zip(&data) {
                    *place = Some(*byte);
                }
                let known =
                    |places: &[Option<u8>]| places.iter().map_while(|byte| *byte).collect::<Vec<u8>>();
                let after = known(&file[end..end + SEAM]);
                let mut nearest = file[end.saturating_sub(SEAM)..end].to_vec();
                nearest.reverse();
                let mut before = known(&nearest);
                before.reverse();
                assert_eq!((image.after(end as u64), image.before(end as u64)), (&after[..], &before[..]));
                let held: usize = image.extents.values().map(|extent| extent.bytes.len()).sum();
                let memory: usize = image.extents.values().map(|extent| extent.bytes.held()).sum();
                assert_eq!((image.bytes, image.memory), (held, memory));
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Files that come in pieces: responses to range requests of one flow, joined to the whole file (RFC 9110
//! section 14).
//!
//! Not supported: pieces from several flows (they would need a table by host).

use crate::memory::Held as _;
use std::collections::BTreeMap;

/// Limit of a flow's memory for incomplete files, in bytes.
const MEMORY: usize = 8 << 20;
/// Limit of incomplete files per flow.
const FILES: usize = 16;
/// Limit of pieces held per file.
const PIECES: usize = 1024;

/// An incomplete file.
struct Partial {
    host: Vec<u8>,
    name: Vec<u8>,
    size: u64,
    /// Pieces by offset.
    pieces: BTreeMap<u64, Vec<u8>>,
}

/// The incomplete files of a flow.
#[derive(Default)]
pub(in crate::protocols) struct PartialFiles {
    files: Vec<Partial>,
    held: usize,
}

impl PartialFiles {
    /// Bytes of memory held outside of the structure itself; names count with their largest length.
    pub(in crate::protocols) fn held(&self) -> usize {
        let names: usize = self.files.iter().map(|file| file.host.held() + file.name.held()).sum();
        self.held.saturating_add(names).saturating_add(self.files.held())
    }

    /// Adds a piece; returns the whole file if this was the last missing one.
    pub(in crate::protocols) fn add(
        &mut self,
        host: &[u8],
        name: &[u8],
        size: u64,
        start: u64,
        data: &[u8],
    ) -> Option<Vec<u8>> {
        if data.is_empty() || self.held.saturating_add(data.len()) > MEMORY {
            return None;
        }
        let known = self.files.iter().position(|f| f.size == size && f.host == host && f.name == name);
        let index = match known {
            Some(index) => index,
            None if self.files.len() >= FILES => return None,
            None => {
                let (host, name) = (host.to_vec(), name.to_vec());
                self.files.push(Partial { host, name, size, pieces: BTreeMap::new() });
                self.files.len() - 1
            }
        };
        let file = self.files.get_mut(index)?;
        if file.pieces.len() >= PIECES {
            return None;
        }
        // Of two pieces at one offset the longer one stays.
        let held = file.pieces.get(&start).map_or(0, Vec::len);
        if data.len() > held {
            file.pieces.insert(start, data.to_vec());
            self.held = self.held.saturating_sub(held).saturating_add(data.len());
        }
        let whole = file.whole()?;
        let freed: usize = file.pieces.values().map(Vec::len).sum();
        self.held = self.held.saturating_sub(freed);
        self.files.swap_remove(index);
        Some(whole)
    }
}

impl Partial {
    fn whole(&self) -> Option<Vec<u8>> {
        let mut reached = 0u64;
        for (start, piece) in &self.pieces {
            if *start > reached {
                return None;
            }
            reached = reached.max(start.saturating_add(piece.len() as u64));
        }
        if reached < self.size {
            return None;
        }
        let mut out = Vec::new();
        for (start, piece) in &self.pieces {
            let known = usize::try_from((out.len() as u64).saturating_sub(*start)).ok()?;
            out.extend_from_slice(super::bytes::after(piece, known));
        }
        out.truncate(usize::try_from(self.size).ok()?);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_a_file() {
        let mut ranges = PartialFiles::default();
        assert_eq!(ranges.add(b"h", b"/f", 10, 5, b"56789"), None);
        assert_eq!(ranges.add(b"h", b"/g", 10, 0, b"0123"), None);
        assert_eq!(ranges.add(b"h", b"/f", 10, 0, b"0123"), None);
        assert_eq!(ranges.add(b"h", b"/f", 10, 2, b"2345"), Some(b"0123456789".to_vec()));
        assert_eq!(ranges.held, 4);
    }

    #[test]
    fn memory_is_bounded() {
        let mut ranges = PartialFiles::default();
        for n in 0..100u64 {
            ranges.add(b"h", b"/f", u64::MAX, n << 20, &vec![0; 1 << 20]);
            ranges.add(b"h", format!("/{n}").as_bytes(), u64::MAX, 0, b"x");
        }
        assert!(ranges.held <= MEMORY && ranges.files.len() <= FILES);
    }
}

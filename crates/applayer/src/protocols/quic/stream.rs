// SPDX-License-Identifier: Apache-2.0
//! The handshake bytes of one direction, put together from CRYPTO frames (RFC 9000 section 19.6) that come in
//! any order, overlap and repeat.

use crate::memory::Held as _;
use core::ops::Range;

/// Limit of the handshake bytes held for a direction (Suricata's number).
pub(super) const BYTES_MAX: usize = 65_535;
/// Limit of the separate pieces held for a direction. Frames of a packet of 1,200 bytes cannot make more
/// pieces of a hello in several packets.
pub(super) const PIECES_MAX: usize = 512;
/// Bytes of a handshake message's head: type and length (RFC 8446 section 4).
const HEAD: usize = 4;

/// The result of adding bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The bytes were added.
    Yes,
    /// A limit was reached: the bytes are not held.
    TooLong,
    /// The bytes differ from those that came before.
    Contradiction,
}

/// The handshake bytes of a direction.
#[derive(Debug, Default)]
pub(super) struct CryptoStream {
    data: Vec<u8>,
    /// The ranges of `data` that have come: sorted, not empty, neither overlapping nor adjacent.
    pieces: Vec<Range<usize>>,
    /// The offset up to which [`CryptoStream::next_message`] has read.
    read: usize,
}

impl CryptoStream {
    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        self.data.held().saturating_add(self.pieces.held())
    }

    /// Releases all bytes.
    pub(super) fn clear(&mut self) {
        *self = CryptoStream::default();
    }

    /// Adds the content of a frame. Bytes that have come already are kept.
    pub(super) fn add(&mut self, offset: u64, bytes: &[u8]) -> Added {
        let Some(start) = usize::try_from(offset).ok().filter(|start| *start < BYTES_MAX) else {
            return Added::TooLong;
        };
        let end = start.saturating_add(bytes.len());
        if end >= BYTES_MAX {
            return Added::TooLong;
        }
        if bytes.is_empty() {
            return Added::Yes;
        }
        // The pieces that overlap the new range or touch it.
        let first = self.pieces.partition_point(|piece| piece.end < start);
        let last = self.pieces.partition_point(|piece| piece.start <= end);
        if first == last && self.pieces.len() >= PIECES_MAX {
            return Added::TooLong;
        }
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        let touched = self.pieces.get(first..last).unwrap_or_default();
        let mut result = Added::Yes;
        let mut at = start;
        let mut whole = start..end;
        for piece in touched {
            whole = whole.start.min(piece.start)..whole.end.max(piece.end);
            let overlap = piece.start.max(start)..piece.end.min(end);
            copy(&mut self.data, at..overlap.start.max(at), start, bytes);
            let before = self.data.get(overlap.clone());
            let now = bytes.get(overlap.start.saturating_sub(start)..overlap.end.saturating_sub(start));
            if overlap.start < overlap.end && before != now {
                result = Added::Contradiction;
            }
            at = at.max(overlap.end);
        }
        copy(&mut self.data, at..end, start, bytes);
        self.pieces.splice(first..last, [whole]);
        result
    }

    /// The first handshake message, if all of it has come: type and body.
    pub(super) fn message(&self) -> Option<(u8, &[u8])> {
        self.message_at(0)
    }

    /// The first handshake message that this method has not returned yet. Its bytes stay, to be compared with
    /// repeated ones.
    pub(super) fn next_message(&mut self) -> Option<(u8, &[u8])> {
        let start = self.read;
        let length = self.message_at(start)?.1.len();
        self.read = start.saturating_add(HEAD).saturating_add(length);
        self.message_at(start)
    }

    fn message_at(&self, start: usize) -> Option<(u8, &[u8])> {
        let piece = self.pieces.first().filter(|piece| piece.start == 0)?;
        let bytes = self.data.get(start..piece.end)?;
        let ([kind, length @ ..], body) = bytes.split_first_chunk::<HEAD>()?;
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        Some((*kind, body.get(..length)?))
    }
}

/// Copies the bytes of a range; `bytes` begin at `start`.
fn copy(data: &mut [u8], range: Range<usize>, start: usize, bytes: &[u8]) {
    let from = bytes.get(range.start.saturating_sub(start)..range.end.saturating_sub(start));
    if let (Some(to), Some(from)) = (data.get_mut(range), from) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_is_whole_with_its_last_byte() {
        let message = [&[1, 0, 0, 6][..], b"sixsix", b"next"].concat();
        let mut stream = CryptoStream::default();
        assert_eq!(stream.add(5, &message[5..9]), Added::Yes);
        assert_eq!(stream.add(0, &message[..5]), Added::Yes);
        assert_eq!(stream.message(), None);
        assert_eq!(stream.add(9, &message[9..]), Added::Yes);
        assert_eq!(stream.message(), Some((1, &b"sixsix"[..])));
        assert_eq!(stream.pieces, vec![Range { start: 0, end: 14 }]);
    }

    #[test]
    fn what_came_first_stays_and_contradictions_are_told() {
        let mut stream = CryptoStream::default();
        assert_eq!(stream.add(2, b"cd"), Added::Yes);
        assert_eq!(stream.add(0, b"abcdef"), Added::Yes);
        assert_eq!(stream.add(1, b"bXde"), Added::Contradiction);
        assert_eq!((stream.data.as_slice(), stream.pieces.first()), (&b"abcdef"[..], Some(&(0..6))));
    }

    #[test]
    fn limits_are_told() {
        let mut stream = CryptoStream::default();
        for offset in [u64::MAX, BYTES_MAX as u64, BYTES_MAX as u64 - 1] {
            assert_eq!(stream.add(offset, b"x"), Added::TooLong);
        }
        for piece in 0..PIECES_MAX as u64 {
            assert_eq!(stream.add(piece * 2, b"x"), Added::Yes);
        }
        assert_eq!(stream.add(PIECES_MAX as u64 * 2, b"x"), Added::TooLong);
        // A piece that closes a gap is still added.
        assert_eq!(stream.add(1, b"y"), Added::Yes);
        assert_eq!(stream.pieces.len(), PIECES_MAX - 1);
    }

    proptest! {
        #[test]
        fn order_does_not_matter(mut cuts in prop::collection::vec((0usize..300, 1usize..80), 1..60)) {
            let mut message = vec![2, 0, 1, 0];
            message.extend((0..256).map(|at| (at * 7) as u8));
            cuts.push((0, message.len()));
            let mut stream = CryptoStream::default();
            let mut come = vec![false; message.len()];
            for (start, length) in cuts {
                let start = start.min(message.len());
                let end = (start + length).min(message.len());
                prop_assert_eq!(stream.add(start as u64, &message[start..end]), Added::Yes);
                come[start..end].fill(true);
                let held: usize = stream.pieces.iter().map(ExactSizeIterator::len).sum();
                prop_assert_eq!(held, come.iter().filter(|come| **come).count());
                prop_assert!(stream.pieces.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert_eq!(stream.message().is_some(), come.iter().all(|come| *come));
            }
            prop_assert_eq!(stream.message(), Some((2, &message[4..])));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Compressed messages (`permessage-deflate`, RFC 7692).
//!
//! The bytes before the switch of protocols, in which both sides agree on the parameters, belong to another
//! parser. A decoder with the largest window that keeps it from message to message reads the messages of all
//! parameters: senders that begin each message anew, or use a smaller window, refer to less.

use crate::content::codec::{CodecStop, Failure, inflate};
use crate::memory::Held;
use flate2::{Decompress, Status};

/// End of each message, which senders leave out (RFC 7692 section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// Memory of the decoder, in bytes: its window of 32 KiB twice, and tables.
const MEMORY: usize = 80 << 10;
/// Limit of the bytes that are decoded from one input, in bytes.
pub(super) const OUTPUT_MAX: usize = 16 << 20;

/// The reason why nothing more can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InflateError {
    /// The bytes are not compressed in this way.
    Corrupt,
    /// The input stands for more than [`OUTPUT_MAX`] bytes.
    TooMuch,
    /// Bytes follow the end of the compressed data: some receivers stop there, others read on.
    Ambiguous,
}

impl From<Failure> for InflateError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Corrupt => InflateError::Corrupt,
            Failure::Stop => InflateError::TooMuch,
        }
    }
}

/// The decoder of a direction, made with its first compressed message.
#[derive(Debug, Default)]
pub(super) struct Inflater {
    decoder: Option<Box<Decompress>>,
    /// The compressed data of the message has ended with a final block (RFC 7692 section 7.2.3.4).
    has_ended: bool,
    /// Number of the message's bytes behind that block.
    behind: usize,
    /// A message could not be decoded: later ones refer to it.
    is_broken: bool,
}

impl Inflater {
    /// Decodes a part of a message, the last one if `last`. Output beyond `most` bytes of `out` is dropped;
    /// returns whether there was some. After a failure `out` has what came before it.
    pub(super) fn decode(
        &mut self,
        data: &[u8],
        last: bool,
        most: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, InflateError> {
        if self.is_broken {
            return Err(InflateError::Corrupt);
        }
        let mut budget = OUTPUT_MAX;
        let mut cut = false;
        let tail: &[u8] = if last { &TAIL } else { &[] };
        for piece in [data, tail] {
            match self.decode_piece(piece, &mut budget, most, out) {
                Ok(is_cut) => cut |= is_cut,
                Err(error) => {
                    self.is_broken = true;
                    self.decoder = None;
                    return Err(error);
                }
            }
        }
        if last {
            (self.has_ended, self.behind) = (false, 0);
        }
        Ok(cut)
    }

    fn decode_piece(
        &mut self,
        data: &[u8],
        budget: &mut usize,
        most: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, InflateError> {
        let (mut rest, mut cut) = (data, false);
        if !self.has_ended {
            let decoder = self.decoder.get_or_insert_with(|| Box::new(Decompress::new(false)));
            let (status, behind) = inflate(decoder, data, &mut |decoded| {
                let room = most.saturating_sub(out.len()).min(decoded.len());
                cut |= room < decoded.len();
                out.extend_from_slice(decoded.get(..room).unwrap_or_default());
                *budget = budget.checked_sub(decoded.len()).ok_or(CodecStop)?;
                Ok(())
            });
            rest = behind;
            if status? == Status::StreamEnd {
                self.decoder = None;
                self.has_ended = true;
            }
        }
        if !self.has_ended || data == TAIL {
            return Ok(cut);
        }
        // A sender may put the beginning of an empty block there, of which `TAIL` is the rest.
        self.behind = self.behind.saturating_add(rest.len());
        let is_plain = self.behind <= 1 && matches!(rest, [] | [0]);
        if is_plain { Ok(cut) } else { Err(InflateError::Ambiguous) }
    }
}

impl Held for Inflater {
    fn held(&self) -> usize {
        if self.decoder.is_some() { MEMORY } else { 0 }
    }
}

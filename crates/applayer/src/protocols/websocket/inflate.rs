// SPDX-License-Identifier: Apache-2.0
//! Compressed messages (`permessage-deflate`, RFC 7692).
//!
//! The bytes before the switch of protocols, in which both sides agree on the parameters, belong to another
//! parser. A decoder with the largest window that keeps it from message to message reads the messages of all
//! parameters: senders that begin each message anew, or use a smaller window, refer to less.

use crate::memory::Held;
use flate2::{Decompress, FlushDecompress, Status};

/// End of each message, which senders leave out (RFC 7692 section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// Memory of the decoder, in bytes: its window of 32 KiB twice, and tables.
const MEMORY: usize = 80 << 10;
/// Bytes that are decoded at a time.
const STEP: usize = 4 << 10;
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

/// The decoder of a direction, made with its first compressed message.
#[derive(Debug, Default)]
pub(super) struct Inflater {
    decoder: Option<Box<Decompress>>,
    /// The compressed data of the message has ended with a final block (RFC 7692 section 7.2.3.4).
    has_ended: bool,
    /// A message could not be decoded: later ones refer to it.
    is_broken: bool,
}

impl Inflater {
    /// Decodes a part of a message, the last one if `last`. Output beyond `most` bytes of `out` is dropped;
    /// returns whether there was some.
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
        self.has_ended &= !last;
        Ok(cut)
    }

    fn decode_piece(
        &mut self,
        data: &[u8],
        budget: &mut usize,
        most: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, InflateError> {
        let mut rest = data;
        let mut cut = false;
        while !self.has_ended {
            let decoder = self.decoder.get_or_insert_with(|| Box::new(Decompress::new(false)));
            let mut step = [0; STEP];
            let (taken, given) = (decoder.total_in(), decoder.total_out());
            let status = decoder
                .decompress(rest, &mut step, FlushDecompress::None)
                .map_err(|_| InflateError::Corrupt)?;
            let taken = usize::try_from(decoder.total_in() - taken).unwrap_or(usize::MAX);
            let given = usize::try_from(decoder.total_out() - given).unwrap_or(usize::MAX);
            rest = rest.get(taken..).unwrap_or_default();
            let room = most.saturating_sub(out.len()).min(given);
            cut |= room < given;
            out.extend_from_slice(step.get(..room).unwrap_or_default());
            *budget = budget.checked_sub(given).ok_or(InflateError::TooMuch)?;
            if status == Status::StreamEnd {
                self.decoder = None;
                self.has_ended = true;
            } else if rest.is_empty() && given < STEP || taken == 0 && given == 0 {
                return Ok(cut);
            }
        }
        // A sender may put the beginning of an empty block there, of which `TAIL` is the rest.
        if matches!(rest, [] | [0]) || rest == TAIL { Ok(cut) } else { Err(InflateError::Ambiguous) }
    }
}

impl Held for Inflater {
    fn held(&self) -> usize {
        if self.decoder.is_some() { MEMORY } else { 0 }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Which literal of a rule the prefilter looks for.

use crate::model::buffers::{BufferRef, Buffers};
use crate::model::signature::{Absent, FastPattern, Signature};
use std::sync::Arc;

/// Buffers whose few values say little: their literals come behind those of the payload. Of rules on a buffer
/// and on the stream it depends on that how often they match (`Status::Repeats` in `engine/txstate.rs`), so
/// these are Suricata's.
const SAY_LITTLE: [&str; 2] = ["http.method", "http.stat_code"];

/// The literal that the prefilter looks for: the one that the rule names, else the longest that must occur, a
/// transaction buffer before the payload, and that before the buffers that say little.
pub(crate) fn choose(signature: &Signature, buffers: &Buffers) -> Option<FastPattern> {
    let mut best: Option<(bool, u8, usize, FastPattern)> = None;
    for (value, check) in signature.values.iter().enumerate() {
        // Payloads and headers are searched as they are; what a transform makes of them is not there to be
        // found.
        let searched = check.transforms.is_empty() || matches!(check.buffer, BufferRef::Tx(_));
        if check.absent != Absent::No || !searched {
            continue;
        }
        for (item, literal) in check.program.literals() {
            if literal.negated {
                continue;
            }
            let bytes: Arc<[u8]> = match literal.fast_pattern_chop {
                Some((offset, length)) => {
                    let start = usize::from(offset);
                    let end = start.saturating_add(usize::from(length));
                    literal.bytes.get(start..end).unwrap_or(&literal.bytes).into()
                }
                None => Arc::clone(&literal.bytes),
            };
            let chosen = literal.fast_pattern || literal.fast_pattern_only;
            let rank = (chosen, worth(check.buffer, buffers), strength(&bytes));
            let better = best.as_ref().is_none_or(|b| rank > (b.0, b.1, b.2));
            if better && !bytes.is_empty() {
                let fast = FastPattern { value, item, bytes, nocase: literal.nocase };
                best = Some((rank.0, rank.1, rank.2, fast));
            }
        }
    }
    best.map(|b| b.3)
}

/// How much a literal of a buffer is preferred.
fn worth(buffer: BufferRef, buffers: &Buffers) -> u8 {
    match buffer {
        BufferRef::Tx(index) => {
            let little = buffers.tx(index).is_some_and(|tx| SAY_LITTLE.contains(&tx.name));
            if little { 0 } else { 2 }
        }
        BufferRef::Payload | BufferRef::Packet(_) | BufferRef::Frame(_) => 1,
    }
}

/// How selective a literal is: length, less repeated bytes.
fn strength(bytes: &[u8]) -> usize {
    let mut seen = [false; 256];
    let mut distinct = 0;
    for byte in bytes {
        if let Some(slot) = seen.get_mut(usize::from(*byte))
            && !*slot
        {
            *slot = true;
            distinct += 1;
        }
    }
    bytes.len().saturating_add(distinct)
}

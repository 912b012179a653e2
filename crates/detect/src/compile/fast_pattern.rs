// SPDX-License-Identifier: Apache-2.0
//! Chooses the literal of a rule that the prefilter searches for.

use crate::model::buffers::{BufferRef, Buffers};
use crate::model::signature::{Absent, FastPattern, Signature};
use std::sync::Arc;

/// Buffers with few different values: their literals select little, so literals of the payload are preferred.
/// The buffer of the fast pattern also decides how often a rule on a buffer and on the stream matches
/// (`Status::Repeats` in `engine/txstate.rs`), so this list is Suricata's.
const SAY_LITTLE: [&str; 2] = ["http.method", "http.stat_code"];

/// The literal that the prefilter searches for: the one that the rule names, else the longest that must
/// occur. Transaction buffers come before the payload, and the payload before the buffers in [`SAY_LITTLE`].
pub(crate) fn choose(signature: &Signature, buffers: &Buffers) -> Option<FastPattern> {
    let mut best: Option<(bool, u8, usize, FastPattern)> = None;
    for (value, check) in signature.values.iter().enumerate() {
        // The prefilter searches payloads and headers without transforms, so transformed bytes cannot be
        // found there.
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

/// Rank of a buffer's literals in the choice of the fast pattern; higher is preferred.
fn worth(buffer: BufferRef, buffers: &Buffers) -> u8 {
    match buffer {
        BufferRef::Tx(index) => {
            let little = buffers.tx(index).is_some_and(|tx| SAY_LITTLE.contains(&tx.name));
            if little { 0 } else { 2 }
        }
        BufferRef::Payload | BufferRef::Packet(_) | BufferRef::Frame(_) => 1,
    }
}

/// Selectivity of a literal: its length, less for repeated bytes.
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

// SPDX-License-Identifier: Apache-2.0
//! Which literal of a rule the prefilter looks for.

use crate::model::buffers::BufferRef;
use crate::model::signature::{Absent, FastPattern, Signature};
use std::sync::Arc;

/// The literal that the prefilter looks for: the one that the rule names, else the longest that must occur, a
/// transaction buffer before the payload.
pub(crate) fn choose(signature: &Signature) -> Option<FastPattern> {
    let mut best: Option<(bool, bool, usize, FastPattern)> = None;
    for (value, check) in signature.values.iter().enumerate() {
        // Payloads and headers are searched as they are; what a transform makes of them is not there to be found.
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
            let on_tx = matches!(check.buffer, BufferRef::Tx(_));
            let rank = (chosen, on_tx, strength(&bytes));
            let better = best.as_ref().is_none_or(|b| rank > (b.0, b.1, b.2));
            if better && !bytes.is_empty() {
                let fast = FastPattern { value, item, bytes, nocase: literal.nocase };
                best = Some((rank.0, rank.1, rank.2, fast));
            }
        }
    }
    best.map(|b| b.3)
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

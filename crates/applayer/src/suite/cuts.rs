// SPDX-License-Identifier: Apache-2.0
//! Plays conversations in parts. The fuzz target `split` includes this file, too.
//!
//! One cut of HTTP has a meaning (docs/limits.md): between the end of a message and bytes that begin no
//! other. As in libhtp, bytes that come with the end are the message's "unexpected body", bytes that come
//! later are a message of their own. Only these cuts are left out.

use super::{Direction, Parser, ProtocolSpec};

/// Takes the place of a flow.
pub(crate) trait Player {
    /// Sends data.
    fn send(&mut self, direction: Direction, data: &[u8]);
    /// The parser that gets the data.
    fn parser(&mut self) -> &mut dyn Parser;
}

/// Sends each piece, cut at its offsets in `cuts`, which ascend.
pub(crate) fn play<P: Player>(
    spec: &ProtocolSpec,
    make: impl Fn() -> P,
    pieces: &[(Direction, &[u8])],
    cuts: &[Vec<usize>],
) -> P {
    let mut cuts = cuts.to_vec();
    loop {
        let mut player = make();
        let mut all_kept = true;
        for ((direction, piece), cuts) in pieces.iter().zip(&mut cuts) {
            let mut rest = *piece;
            cuts.retain(|cut| {
                let done = piece.len() - rest.len();
                let Some((head, tail)) = rest.split_at_checked(cut.saturating_sub(done)) else {
                    return false;
                };
                player.send(*direction, head);
                rest = tail;
                let keep = !has_ended(spec, player.parser(), *direction) || begins(spec, *direction, rest);
                all_kept &= keep;
                keep
            });
            player.send(*direction, rest);
        }
        if all_kept {
            return player;
        }
    }
}

/// Whether a message of this direction has ended, no other has begun, and later bytes may belong to the
/// former.
fn has_ended(spec: &ProtocolSpec, parser: &dyn Parser, direction: Direction) -> bool {
    // An earlier transaction may stay open: a response without request makes a transaction of its own in
    // between.
    let progress = |id| parser.tx(id).map(|tx| tx.progress(direction));
    let last = parser.tx_range().filter_map(progress).rfind(|progress| *progress > 0);
    spec.has_trailing_bytes && last == Some(spec.complete[direction])
}

/// Whether the rest is empty, or the beginning of a message; empty lines before a request belong to no
/// message.
fn begins(spec: &ProtocolSpec, direction: Direction, mut rest: &[u8]) -> bool {
    while direction == Direction::ToServer
        && let Some(tail) = rest.strip_prefix(b"\r\n").or(rest.strip_prefix(b"\n"))
    {
        rest = tail;
    }
    let line = rest.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    let space = |byte: &u8| matches!(byte, b' ' | 9..=13);
    let start = line.iter().position(|byte| !space(byte)).unwrap_or(line.len());
    let text = &line[start..];
    match direction {
        Direction::ToServer => {
            let method = text.split_inclusive(space).next().unwrap_or_default();
            let known = |name: &[u8]| method.last().is_some_and(space) && method[..method.len() - 1] == *name;
            let mut methods = spec.patterns.iter().filter(|pattern| pattern.direction == direction);
            rest.is_empty() || methods.any(|pattern| known(&pattern.bytes[..pattern.bytes.len() - 1]))
        }
        Direction::ToClient => {
            rest.is_empty() || text.get(..4).is_some_and(|text| text.eq_ignore_ascii_case(b"http"))
        }
    }
}

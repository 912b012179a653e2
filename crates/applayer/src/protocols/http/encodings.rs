// SPDX-License-Identifier: Apache-2.0
//! `Content-Encoding`: the decoders of a body, for exact names and for the variants that senders write.

use super::bytes::{equals_nocase_nonul, find_nocase};
use super::events;
use super::tx::HttpTx;
use crate::content::decompress::{Encoding, Pace};
use bartizan_base::Direction;

/// Limit of words in a list that are read.
const MOST_WORDS: u32 = 64;
/// Limit of transfer codings that are removed (curl accepts as many).
const TRANSFER_CODINGS_MAX: usize = 5;

/// The encoding that a whole value names; `Some(None)`: one that does not change the body.
fn exact(value: &[u8]) -> Option<Option<Encoding>> {
    let is = |name: &str| equals_nocase_nonul(value, name.as_bytes());
    if is("gzip") || is("x-gzip") {
        Some(Some(Encoding::Gzip))
    } else if is("deflate") || is("x-deflate") {
        Some(Some(Encoding::Deflate))
    } else if is("lzma") {
        Some(Some(Encoding::Lzma))
    } else if is("br") {
        Some(Some(Encoding::Brotli))
    } else if is("inflate") || is("none") {
        Some(None)
    } else {
        None
    }
}

/// The compressions among the transfer codings, in the order in which they were applied; `chunked` is none.
fn transfer_codings(value: &[u8]) -> Vec<Encoding> {
    // Nearly always the value is this one word.
    if value.eq_ignore_ascii_case(b"chunked") {
        return Vec::new();
    }
    let words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    words.filter_map(exact).flatten().take(TRANSFER_CODINGS_MAX).collect()
}

/// Whether a word of a list stands for no encoding.
fn leaves_as_is(word: &[u8], direction: Direction) -> bool {
    matches!(word, b"inflate" | b"none") || (word == b"identity" && direction == Direction::ToClient)
}

impl HttpTx {
    /// Sets the decoding of a body from its headers: its content encodings and its transfer codings (RFC 9112
    /// section 7), which the sender applied last.
    pub(super) fn set_encodings(&mut self, direction: Direction) {
        let pace = if self.settings.strict { Pace::Prompt } else { Pace::Even };
        let fields = &self.message(direction).fields;
        let of_transfer: Vec<Encoding> =
            fields.value("transfer-encoding").map(transfer_codings).unwrap_or_default();
        let Some(value) = fields.value("content-encoding") else {
            if !of_transfer.is_empty() {
                self.message_mut(direction).body.set_encodings(&of_transfer, pace);
            }
            return;
        };
        let mut encodings: Vec<Encoding> = match exact(value) {
            Some(encoding) => encoding.into_iter().collect(),
            None => {
                let value = value.to_vec();
                self.listed(&value, direction)
            }
        };
        encodings.extend(of_transfer);
        self.message_mut(direction).body.set_encodings(&encodings, pace);
    }

    /// The encodings of a list, within the limits.
    fn listed(&mut self, value: &[u8], direction: Direction) -> Vec<Encoding> {
        let mut encodings = Vec::new();
        let (mut words, mut lzma) = (0u32, 0u32);
        for word in value.split(|b| matches!(b, b',' | b' ')).filter(|w| !w.is_empty()) {
            words = words.saturating_add(1);
            let beyond = |count: u32| self.settings.layer_limit.is_some_and(|limit| count > limit);
            let full = beyond(u32::try_from(encodings.len()).unwrap_or(u32::MAX).saturating_add(1));
            // Every word counts for the event, as in Suricata. Words that mean no encoding need no decoder,
            // so they do not use up the limit of decoders: receivers skip them.
            if beyond(words) {
                self.raise(events::TOO_MANY_ENCODING_LAYERS);
            }
            if full || words > MOST_WORDS {
                break;
            }
            if find_nocase(word, b"gzip").is_some() {
                if word != b"gzip" && word != b"x-gzip" {
                    self.raise(events::ABNORMAL_CE_HEADER);
                }
                encodings.push(Encoding::Gzip);
            } else if find_nocase(word, b"deflate").is_some() {
                if word != b"deflate" && word != b"x-deflate" {
                    self.raise(events::ABNORMAL_CE_HEADER);
                }
                encodings.push(Encoding::Deflate);
            } else if word.eq_ignore_ascii_case(b"br") {
                self.raise(events::ABNORMAL_CE_HEADER);
                encodings.push(Encoding::Brotli);
            } else if word == b"lzma" {
                lzma = lzma.saturating_add(1);
                if self.settings.lzma_layers.is_some_and(|limit| lzma > limit) {
                    self.raise(match direction {
                        Direction::ToServer => events::REQUEST_TOO_MANY_LZMA_LAYERS,
                        Direction::ToClient => events::RESPONSE_TOO_MANY_LZMA_LAYERS,
                    });
                    break;
                }
                encodings.push(Encoding::Lzma);
            } else if !leaves_as_is(word, direction) {
                self.raise(events::ABNORMAL_CE_HEADER);
            }
        }
        encodings
    }
}

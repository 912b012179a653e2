// SPDX-License-Identifier: Apache-2.0
//! Rule feeds as texts: their rules as drop rules, the difference between two states of a feed.

mod diff;
mod drop;

pub use diff::{FeedDiff, RuleChange, diff};
pub use drop::{DropChoice, DropConversion, KeptReason, to_drop};

use crate::parse::{RuleFile, parse_file};
use memchr::memchr_iter;

/// The rules of a file that are commented out, at the same lines.
#[must_use]
pub fn disabled_rules(file: &RuleFile) -> RuleFile {
    let mut text = Vec::new();
    let original = file.source.original();
    let mut start = 0;
    for end in memchr_iter(b'\n', original).chain([original.len()]) {
        let line = original.get(start..end).unwrap_or_default();
        if let Some(rule) = line.strip_prefix(b"#") {
            let marks = rule.iter().take_while(|byte| matches!(byte, b'#' | b' ' | b'\t')).count();
            text.extend_from_slice(rule.get(marks..).unwrap_or_default());
        }
        text.push(b'\n');
        start = end + 1;
    }
    parse_file(text, file.source.name())
}

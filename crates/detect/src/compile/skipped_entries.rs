// SPDX-License-Identifier: Apache-2.0
//! Findings about malformed lines in lists that rules name; such lines are left out.

use crate::state::dataset::{SkippedEntries, SkippedEntry};
use bartizan_rules::{Diagnostic, Severity, SourceFile, Span};
use std::path::Path;

/// Code of the warning about an entry of a list that is left out.
pub const SKIPPED_ENTRY: &str = "D121";

/// Limit of a line in a finding, in bytes.
const SHOWN_MAX: usize = 200;

/// One finding for each entry that is left out.
pub(crate) fn findings(skipped: &SkippedEntries) -> impl Iterator<Item = Diagnostic> {
    let further = skipped.further().map(|(path, count)| {
        let message = format!("{count} more entries of this list are invalid and are left out");
        finding(path, 1, b"", message)
    });
    skipped.entries().iter().map(of_entry).chain(further)
}

fn of_entry(entry: &SkippedEntry) -> Diagnostic {
    let message = format!("{}; this entry is left out of the list", entry.what);
    finding(&entry.path, entry.line, &entry.text, message)
        .help("correct the line or remove it; the other lines of the list are used")
}

fn finding(path: &Path, line: usize, text: &[u8], message: String) -> Diagnostic {
    let text = text.get(..SHOWN_MAX).unwrap_or(text);
    let source = SourceFile::settings(&path.display().to_string(), text);
    let end = u32::try_from(text.len()).unwrap_or(0);
    let mut finding = Diagnostic::new(&source, Span::new(0, end), Severity::Warning, SKIPPED_ENTRY, message);
    finding.line = u32::try_from(line).unwrap_or(u32::MAX);
    finding.end_line = finding.line;
    finding
}

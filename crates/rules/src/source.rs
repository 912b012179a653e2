// SPDX-License-Identifier: Apache-2.0
//! One file of rules or settings: its bytes, the lines joined by a backslash, and the positions of offsets. A
//! file without continued lines (the usual one) is held once and never copied; one with them has a second,
//! joined text, and a table that maps it to the file's own offsets. The caller reads and decompresses the
//! file.

use std::sync::Arc;

use serde::Serialize;

/// A half-open range of byte offsets into the joined text of a [`SourceFile`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The span from `start` to `end`; an end before the start gives an empty span.
    #[must_use]
    pub const fn new(start: u32, end: u32) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// The span of a slice's offsets. Files above 4 GiB are refused, so no offset is cut.
    #[must_use]
    pub(crate) fn of(start: usize, end: usize) -> Self {
        Self::new(clamp(start), clamp(end))
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.end - self.start
    }

    /// Whether the span is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The part from `start` to `end`, both counted from this span's start and limited to it.
    #[must_use]
    pub fn slice(self, start: usize, end: usize) -> Self {
        let at = |n: usize| self.start.saturating_add(clamp(n)).min(self.end);
        Self::new(at(start), at(end))
    }
}

fn clamp(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A position for people: line and column from 1, the column in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SourcePosition {
    /// Line, from 1.
    pub line: u32,
    /// Character in the line, from 1; a byte that is no UTF-8 counts as one.
    pub column: u32,
}

/// Bytes removed from the joined text at `at`; from here on the file's offset is `at + shift`.
#[derive(Clone, Copy, Debug)]
struct Cut {
    at: u32,
    shift: u32,
}

/// A file's name and bytes, shared by everything parsed from it.
#[derive(Debug)]
pub struct SourceFile {
    name: Arc<str>,
    original: Vec<u8>,
    /// The joined text, if it differs from the file's.
    joined: Option<Vec<u8>>,
    cuts: Vec<Cut>,
    /// Offsets in `original` of the beginnings of lines; the first is 0.
    line_starts: Vec<u32>,
    bom: usize,
    utf8: bool,
}

const BOM: &[u8] = b"\xef\xbb\xbf";

impl SourceFile {
    /// Makes a source from a file's bytes. Text beyond 4 GiB is left out (offsets are 32 bits wide).
    #[must_use]
    pub fn new(name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self::build(name, bytes.into(), false)
    }

    /// Makes a source from a settings file's bytes (thresholds and the like), in which a line that begins
    /// with a blank is an ordinary line.
    #[must_use]
    pub fn settings(name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self::build(name, bytes.into(), true)
    }

    fn build(name: &str, bytes: Vec<u8>, indented: bool) -> Self {
        let mut original = bytes;
        original.truncate(u32::MAX as usize);
        let bom = if original.starts_with(BOM) { BOM.len() } else { 0 };
        let mut line_starts = vec![0];
        line_starts.extend(memchr::memchr_iter(b'\n', &original).map(|at| clamp(at + 1)));
        let (joined, cuts) = join(&original, &line_starts, bom, indented);
        let utf8 = std::str::from_utf8(&original).is_ok();
        Self { name: name.into(), original, joined, cuts, line_starts, bom, utf8 }
    }

    /// Name in diagnostics.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The joined text, which spans refer to.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.joined.as_ref().unwrap_or(&self.original)
    }

    /// The file's bytes as they were given.
    #[must_use]
    pub fn original(&self) -> &[u8] {
        &self.original
    }

    /// Offset of the text: after a byte order mark, if there is one.
    #[must_use]
    pub const fn begin(&self) -> usize {
        self.bom
    }

    /// Whether the whole file is UTF-8.
    #[must_use]
    pub const fn is_utf8(&self) -> bool {
        self.utf8
    }

    /// Number of lines of the file; text after the last line end counts as one.
    #[must_use]
    pub fn lines(&self) -> u32 {
        let open = self.line_starts.last().is_some_and(|s| (*s as usize) < self.original.len());
        clamp(self.line_starts.len()) - u32::from(!open)
    }

    /// The bytes of a span; empty for a span outside of the text.
    #[must_use]
    pub fn bytes(&self, span: Span) -> &[u8] {
        self.text().get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// The offset in the file for an offset in the joined text.
    #[must_use]
    pub fn original_offset(&self, offset: u32) -> u32 {
        let n = self.cuts.partition_point(|cut| cut.at <= offset);
        let shift = n.checked_sub(1).and_then(|i| self.cuts.get(i)).map_or(0, |cut| cut.shift);
        offset.saturating_add(shift)
    }

    /// The line and column of an offset in the joined text.
    #[must_use]
    pub fn position(&self, offset: u32) -> SourcePosition {
        let offset = self.original_offset(offset);
        let line = self.line_starts.partition_point(|start| *start <= offset).max(1);
        let mut start = self.line_starts.get(line - 1).map_or(0, |s| *s as usize);
        if start == 0 {
            start = self.bom.min(offset as usize);
        }
        let before = self.original.get(start..offset as usize).unwrap_or_default();
        let column = characters(before).saturating_add(1);
        SourcePosition { line: clamp(line), column }
    }

    /// The joined lines of a settings file that are neither empty nor comments.
    pub(crate) fn settings_lines(&self) -> impl Iterator<Item = Span> {
        let mut at = self.bom;
        let mut lines = self.text().get(self.bom..).unwrap_or_default().split(|b| *b == b'\n');
        core::iter::from_fn(move || {
            loop {
                let line = lines.next()?;
                let start = at;
                at += line.len() + 1;
                let lead = line.len() - line.trim_ascii_start().len();
                let text = line.trim_ascii();
                if !matches!(text, [] | [b'#', ..]) {
                    return Some(Span::of(start + lead, start + lead + text.len()));
                }
            }
        })
    }

    /// A line, counted from 1, without its end, and its offset in the file.
    pub(crate) fn line(&self, line: u32) -> Option<(&[u8], u32)> {
        let index = (line as usize).checked_sub(1)?;
        let mut start = *self.line_starts.get(index)? as usize;
        if start == 0 {
            start = self.bom;
        }
        let next = self.line_starts.get(index + 1).map_or(self.original.len(), |s| *s as usize);
        let mut bytes = self.original.get(start..next)?;
        while let [head @ .., b'\n' | b'\r'] = bytes {
            bytes = head;
        }
        Some((bytes, clamp(start)))
    }
}

/// Number of characters in bytes that may not be UTF-8.
fn characters(bytes: &[u8]) -> u32 {
    bytes.utf8_chunks().fold(0, |n, chunk| {
        n.saturating_add(clamp(chunk.valid().chars().count())).saturating_add(clamp(chunk.invalid().len()))
    })
}

/// The bytes as text of the same length, so that offsets still hold: bytes that are no UTF-8 become `?`,
/// control characters blanks.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.extend(chunk.valid().chars().map(|c| if c.is_ascii_control() { ' ' } else { c }));
        out.extend(chunk.invalid().iter().map(|_| '?'));
    }
    out
}

/// Whether a line with this first byte is skipped before anything else (Suricata 8 checks the first byte
/// alone: an indented line is skipped, too, and a backslash at its end joins nothing).
pub(crate) const fn is_skipped_start(first: Option<u8>) -> bool {
    matches!(first, None | Some(b'\n' | b'\r' | b' ' | b'\t' | b'#'))
}

/// Joins lines that end in a backslash (blanks may follow it) with the next one and removes the backslash and
/// the line end. `None` if there is nothing to join.
fn join(original: &[u8], line_starts: &[u32], bom: usize, indented: bool) -> (Option<Vec<u8>>, Vec<Cut>) {
    let mut out: Option<Vec<u8>> = None;
    let mut cuts = Vec::new();
    let mut continued = false;
    let mut shift = 0usize;
    // The bytes of `original` before this offset are in `out` or were removed.
    let mut copied = 0usize;
    for (index, start) in line_starts.iter().enumerate() {
        let mut start = *start as usize;
        if start == 0 {
            start = bom;
        }
        let end = line_starts.get(index + 1).map_or(original.len(), |s| *s as usize);
        let line = original.get(start..end).unwrap_or_default();
        let first = if indented { line.trim_ascii_start().first() } else { line.first() };
        if !continued && is_skipped_start(first.copied()) {
            continue;
        }
        let kept = line.trim_ascii_end().len();
        continued = kept > 0 && line.get(kept - 1) == Some(&b'\\') && end < original.len();
        if !continued {
            continue;
        }
        let cut_from = start + kept - 1;
        let buffer = out.get_or_insert_with(|| Vec::with_capacity(original.len()));
        buffer.extend_from_slice(original.get(copied..cut_from).unwrap_or_default());
        copied = end;
        shift += end - cut_from;
        cuts.push(Cut { at: clamp(buffer.len()), shift: clamp(shift) });
    }
    if let Some(buffer) = &mut out {
        buffer.extend_from_slice(original.get(copied..).unwrap_or_default());
    }
    (out, cuts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_file_is_not_copied() {
        let bytes = b"alert x\n# c \\\nb\n".to_vec();
        let place = bytes.as_ptr();
        let file = SourceFile::new("f", bytes);
        assert_eq!((file.text().as_ptr(), file.original().as_ptr()), (place, place));
        assert_eq!(file.lines(), 3);
    }

    #[test]
    fn positions_lead_back_through_joined_lines() {
        let file = SourceFile::new("f", b"ab\\  \r\ncd\\\nef\ngh".as_slice());
        assert_eq!(file.text(), b"abcdef\ngh");
        let at = |offset| {
            let p = file.position(offset);
            (p.line, p.column)
        };
        assert_eq!(
            [at(0), at(1), at(2), at(3), at(4), at(7)],
            [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (4, 1)]
        );
        assert_eq!(file.lines(), 4);
    }

    #[test]
    fn columns_count_characters_and_the_mark_does_not_count() {
        let file = SourceFile::new("f", "\u{feff}ä€b\nx".as_bytes());
        assert_eq!(file.begin(), 3);
        assert_eq!(file.position(8), SourcePosition { line: 1, column: 3 });
        let file = SourceFile::new("f", b"\xff\xfeb".as_slice());
        assert_eq!(file.position(2), SourcePosition { line: 1, column: 3 });
        assert_eq!(file.line(1).map(|(line, at)| (printable(line), at)), Some(("??b".into(), 0)));
    }
}

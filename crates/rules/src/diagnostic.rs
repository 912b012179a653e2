// SPDX-License-Identifier: Apache-2.0
//! Diagnostics with error, place and remedy: one structure for people (rendered in rustc's style) and for
//! programs (JSON with the same fields). Codes are stable: a code never changes its meaning and is never
//! reused. `R0..` belongs to this crate (the language), `R1..` to the crate that implements the keywords.

use core::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level, Patch, Renderer, Snippet};
use serde::{Serialize, Serializer};

use crate::source::{SourceFile, Span, printable};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The rule (or line) is used, with a defect.
    Warning,
    /// The rule (or line) is left out.
    Error,
}

/// One finding, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Stable code, for instance `R003`.
    pub code: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// Name of the file as given to the parser.
    #[serde(serialize_with = "text")]
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Character in the line, from 1.
    pub column: u32,
    /// Line of the end of the place (differs from `line` only if lines were joined by a backslash).
    pub end_line: u32,
    /// Character after the last one.
    pub end_column: u32,
    /// Description of the defect.
    pub message: String,
    /// Advice for the author.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Replacement text for this place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// The place in the joined text.
    #[serde(skip)]
    pub span: Span,
    /// The source line, for rendering without the file's text.
    #[serde(skip)]
    excerpt: Option<Excerpt>,
}

/// A line of a file and the place in it to mark, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    line: String,
    place: Range<usize>,
}

fn text<S: Serializer>(value: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value)
}

impl Diagnostic {
    /// Makes a finding.
    #[must_use]
    pub fn new(
        source: &SourceFile,
        span: Span,
        severity: Severity,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let start = source.position(span.start);
        // The end is the position after the last byte, which may precede a joined line's break.
        let end = if span.is_empty() {
            start
        } else {
            let mut last = source.position(span.end - 1);
            last.column = last.column.saturating_add(1);
            last
        };
        Self {
            code,
            severity,
            file: Arc::clone(source.name()),
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            message: message.into(),
            help: None,
            suggestion: None,
            span,
            excerpt: Excerpt::of(source, span, start.line, end.line),
        }
    }

    /// A finding that leaves the rule out.
    #[must_use]
    pub fn error(source: &SourceFile, span: Span, code: &'static str, message: impl Into<String>) -> Self {
        Self::new(source, span, Severity::Error, code, message)
    }

    /// A finding about a rule that is used nevertheless.
    #[must_use]
    pub fn warning(source: &SourceFile, span: Span, code: &'static str, message: impl Into<String>) -> Self {
        Self::new(source, span, Severity::Warning, code, message)
    }

    /// Adds advice for the author.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a replacement text for the place.
    #[must_use]
    pub fn suggestion(mut self, text: Option<&str>) -> Self {
        self.suggestion = text.map(str::to_owned);
        self
    }

    /// The finding as text for people, with the source line.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let level = match self.severity {
            Severity::Warning => Level::WARNING,
            Severity::Error => Level::ERROR,
        };
        let title = level.primary_title(&self.message).id(self.code);
        let Some(Excerpt { line, place }) = &self.excerpt else {
            return format!(
                "{}\n  --> {}:{}:{}",
                renderer.render(&[Group::with_title(title)]),
                self.file,
                self.line,
                self.column
            );
        };
        let number = self.line as usize;
        let shown = Snippet::source(line.as_str()).line_start(number).path(&*self.file);
        let mut group = title.element(shown.annotation(AnnotationKind::Primary.span(place.clone())));
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let mut report = vec![group];
        if let Some(text) = &self.suggestion {
            let patched = Snippet::source(line.as_str()).line_start(number).path(&*self.file);
            report.push(
                Level::HELP
                    .secondary_title(format!("did you mean `{text}`?"))
                    .element(patched.patch(Patch::new(place.clone(), text.as_str()))),
            );
        }
        renderer.render(&report)
    }
}

impl Excerpt {
    /// Limit of a line's bytes before the place; a place farther in is not rendered. Suricata's rules have no
    /// longer lines.
    const BEFORE: usize = 8_192;
    /// Limit of a line's bytes after the place.
    const BEHIND: usize = 512;

    /// The excerpt for a place that ends in line `end_line`.
    fn of(source: &SourceFile, span: Span, line: u32, end_line: u32) -> Option<Self> {
        let (bytes, begin) = source.line(line)?;
        let place = |offset: u32| source.original_offset(offset).checked_sub(begin).map(|at| at as usize);
        let mut start = place(span.start)?.min(bytes.len());
        let mut end = if span.is_empty() {
            start
        } else if end_line == line {
            place(span.end - 1).map_or(0, |last| last + 1)
        } else {
            bytes.len()
        };
        if start > Self::BEFORE {
            return None;
        }
        end = end.clamp(start, bytes.len());
        let mut cut = end.saturating_add(Self::BEHIND).min(bytes.len());
        while bytes.get(cut).is_some_and(|byte| byte & 0xc0 == 0x80) {
            cut += 1;
        }
        let line = printable(bytes.get(..cut)?);
        while start > 0 && !line.is_char_boundary(start) {
            start -= 1;
        }
        while end < line.len() && !line.is_char_boundary(end) {
            end += 1;
        }
        Some(Self { line, place: start..end })
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal: $title:literal;)*) => {
        $($(#[$doc])* #[doc = $title] pub const $name: &str = $code;)*
        /// Every code of this crate with its title, in order.
        pub const ALL: &[(&str, &str)] = &[$(($code, $title)),*];
    };
}

/// The codes of this crate.
pub mod code {
    codes! {
        NO_OPTIONS = "R001": "the rule ends before its options";
        UNKNOWN_ACTION = "R002": "unknown action";
        BAD_DIRECTION = "R003": "unknown direction";
        BAD_ADDRESS = "R004": "malformed address expression";
        BAD_PORT = "R005": "malformed port expression";
        NO_TERMINATOR = "R006": "an option is not ended by a semicolon";
        EMPTY_OPTION = "R007": "an option without a keyword";
        BAD_KEYWORD = "R008": "this is not a keyword";
        BAD_SID = "R009": "sid is missing, malformed or given twice";
        BAD_META = "R010": "a descriptive option (gid, rev, priority, classtype, target) is malformed";
        BAD_MSG = "R011": "msg is malformed or given twice";
        BAD_REFERENCE = "R012": "reference is not `system,id`";
        INDENTED = "R013": "a rule that begins with white space, which is ignored";
        NOT_UTF8 = "R014": "the rule is not UTF-8";
        NO_PARENTHESIS = "R015": "the options are not in parentheses";
        OPEN_CONTINUATION = "R016": "a backslash at the end of the file has no line after it";
        DUPLICATE_META = "R017": "a descriptive option is given twice";
        UNKNOWN_KEYWORD = "R018": "unknown keyword";
        OTHER_DIALECT = "R019": "the keyword belongs to another rule language";
        DUPLICATE_RULE = "R020": "the rule was loaded before";
        UNRESOLVED = "R021": "an address or port expression cannot be resolved";
        BAD_ARGUMENT = "R022": "a malformed argument";
        BAD_PROTOCOL = "R023": "malformed protocol";
        BAD_SCOPE = "R024": "an action has no such scope";
        BAD_CLASSIFICATION = "R030": "malformed line in a classification file";
        BAD_REFERENCE_CONFIG = "R031": "malformed line in a reference file";
        BAD_THRESHOLD = "R032": "malformed line in a threshold file";
        DUPLICATE_ENTRY = "R033": "the entry is defined twice";
        UNKNOWN_RULE = "R034": "a line of a threshold file without a rule that it applies to";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_renders_with_the_source_line() {
        let source = SourceFile::new("a.rules", b"ok\nalert tcp (contnet:\"x\";)\n".as_slice());
        let d =
            Diagnostic::error(&source, Span::new(14, 21), code::UNKNOWN_KEYWORD, "unknown keyword `contnet`")
                .help("keywords are listed by `list-keywords`")
                .suggestion(Some("content"));
        assert_eq!((d.line, d.column, d.end_line, d.end_column), (2, 12, 2, 19));
        let shown = d.render(false);
        assert!(shown.contains("error[R018]: unknown keyword `contnet`"), "{shown}");
        assert!(shown.contains("--> a.rules:2:12"), "{shown}");
        assert!(shown.contains("^^^^^^^"), "{shown}");
        assert!(shown.contains("content"), "{shown}");
        let json = serde_json::to_value(&d).unwrap();
        assert_eq!(json["code"], "R018");
        assert_eq!(json["severity"], "error");
        assert_eq!(json["suggestion"], "content");
        assert!(json.get("span").is_none());
    }

    #[test]
    fn a_place_far_in_a_line_is_named_and_not_shown() {
        let mut text = vec![b'x'; 100_000];
        text.extend_from_slice("ä".repeat(1_000).as_bytes());
        let shown = |at: u32| {
            let source = SourceFile::new("a", text.as_slice());
            Diagnostic::error(&source, Span::new(at, at + 1), code::BAD_META, "m").render(false)
        };
        assert!(shown(8_192).contains("a:1:8193") && shown(8_192).contains("xx"), "{}", shown(8_192));
        assert!(shown(8_193).ends_with("\n  --> a:1:8194"), "{}", shown(8_193));
    }

    #[test]
    fn any_span_renders() {
        let source = SourceFile::new("a", b"\xffa\xc3\xa4\\\nb\t\n".as_slice());
        for start in 0..10 {
            for end in start..10 {
                let d = Diagnostic::warning(&source, Span::new(start, end), code::BAD_META, "m");
                assert!(!d.suggestion(Some("x")).render(true).is_empty());
            }
        }
    }

    #[test]
    fn codes_are_unique() {
        let mut seen = std::collections::HashSet::new();
        assert!(code::ALL.iter().all(|(c, _)| seen.insert(*c)));
    }
}

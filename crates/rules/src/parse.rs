// SPDX-License-Identifier: Apache-2.0
//! Parses a file of rules, line by line. Parsing never fails: a rule that cannot be read is left out with a
//! diagnostic, and the next line follows. The grammar is Suricata 8's (user guide, "Rules Format"; odd
//! corners by its observed behaviour): an option ends at the first semicolon without a backslash right before
//! it, quoted or not; tabs count as blanks everywhere; lines that begin with a blank are skipped with a
//! warning. Wider than Suricata's: any line length, a byte order mark, bytes that are no UTF-8 (with a
//! warning).

use std::collections::HashMap;
use std::sync::Arc;

use crate::argument::is_blank;
use crate::diagnostic::{Diagnostic, Severity, code};
use crate::expr::{AddressExpr, PortExpr};
use crate::rule::{ParsedRuleAction, Rule};
use crate::source::{SourceFile, Span};

/// Limit of the findings of one file; a file of another kind has one in each line.
pub const MAX_DIAGNOSTICS: usize = 10_000;

/// Numbers of lines by kind, each counted once (a continued rule counts once, in `rules` or `refused`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Rules that could be read.
    pub rules: u32,
    /// Rules that could not be read.
    pub refused: u32,
    /// Comments that are disabled rules: an action follows the `#`.
    pub disabled: u32,
    /// Other comments.
    pub comments: u32,
    /// Empty lines.
    pub blank: u32,
    /// Lines with text that begin with a blank and are skipped.
    pub indented: u32,
}

/// A rule that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleParseFailure {
    /// Line of its beginning, from 1.
    pub line: u32,
    /// The rule's sid, if it could be read.
    pub sid: Option<u32>,
    /// Code of the rule's first error.
    pub code: &'static str,
}

/// The result of parsing a file of rules.
#[derive(Clone, Debug)]
pub struct RuleFile {
    /// The file.
    pub source: Arc<SourceFile>,
    /// The rules are firewall rules ([`RuleFile::of_firewall`]), not those of detection.
    pub firewall: bool,
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// The rules that could not be read, in order.
    pub refused: Vec<RuleParseFailure>,
    /// The findings, in order; at most [`MAX_DIAGNOSTICS`].
    pub diagnostics: Vec<Diagnostic>,
    /// Number of findings beyond the limit.
    pub diagnostics_dropped: u64,
    /// Numbers of lines by kind.
    pub counts: LineCounts,
}

impl RuleFile {
    /// Marks the rules as firewall rules: only traffic that they accept continues.
    #[must_use]
    pub const fn of_firewall(mut self) -> Self {
        self.firewall = true;
        self
    }

    /// Drops the text, and the rules, which refer to it; findings and counts stay.
    pub fn forget_text(&mut self) {
        self.rules = Vec::new();
        self.source = Arc::new(SourceFile::new(self.source.name(), Vec::new()));
    }

    /// All findings as text for people.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let mut out = String::new();
        for diagnostic in &self.diagnostics {
            out.push_str(&diagnostic.render(color));
            out.push_str("\n\n");
        }
        if self.diagnostics_dropped > 0 {
            out.push_str(&format!("{} more findings are not shown\n", self.diagnostics_dropped));
        }
        out
    }
}

/// Parses a file of rules; `name`: the file's name in diagnostics.
#[must_use]
pub fn parse_file(text: impl Into<Vec<u8>>, name: &str) -> RuleFile {
    parse_source(Arc::new(SourceFile::new(name, text)))
}

/// Parses a file of rules that is already in memory.
#[must_use]
pub fn parse_source(source: Arc<SourceFile>) -> RuleFile {
    let mut parser = Parser {
        source: &source,
        addresses: HashMap::new(),
        ports: HashMap::new(),
        diagnostics: Vec::new(),
        dropped: 0,
        first_error: None,
        sid: None,
    };
    let mut counts = LineCounts::default();
    let (mut rules, mut refused) = (Vec::new(), Vec::new());
    let text = source.text();
    let mut start = source.begin();
    while start < text.len() {
        let rest = text.get(start..).unwrap_or_default();
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest.get(..length).unwrap_or_default();
        match kind_of(line) {
            LineKind::Blank => counts.blank += 1,
            LineKind::Comment => counts.comments += 1,
            LineKind::Disabled => counts.disabled += 1,
            LineKind::Indented => {
                counts.indented += 1;
                parser.indented(start, line);
            }
            LineKind::Rule => match parser.rule(start, line) {
                Some(rule) => {
                    counts.rules += 1;
                    rules.push(rule);
                }
                None => {
                    counts.refused += 1;
                    let line = source.position(u32::try_from(start).unwrap_or(u32::MAX)).line;
                    let code = parser.first_error.unwrap_or(code::NO_OPTIONS);
                    refused.push(RuleParseFailure { line, sid: parser.sid, code });
                }
            },
        }
        start += length + 1;
    }
    let (diagnostics, diagnostics_dropped) = (parser.diagnostics, parser.dropped);
    RuleFile { source, firewall: false, rules, refused, diagnostics, diagnostics_dropped, counts }
}

enum LineKind {
    Blank,
    Comment,
    Disabled,
    Indented,
    Rule,
}

fn kind_of(line: &[u8]) -> LineKind {
    match line {
        [] => LineKind::Blank,
        [b'#', ..] => {
            let text = line.get(line.iter().take_while(|b| matches!(b, b'#' | b' ' | b'\t')).count()..);
            let word = text.unwrap_or_default().split(|b| is_blank(*b)).next().unwrap_or_default();
            let word = word.split(|b| matches!(b, b':' | b',')).next().unwrap_or_default();
            let rule =
                ParsedRuleAction::from_name(word).is_some() && line.contains(&b'(') && line.contains(&b';');
            if rule { LineKind::Disabled } else { LineKind::Comment }
        }
        [b' ' | b'\t' | b'\r', ..] => {
            let text = line.trim_ascii_start();
            match text.first() {
                None => LineKind::Blank,
                Some(b'#') => LineKind::Comment,
                Some(_) => LineKind::Indented,
            }
        }
        _ => LineKind::Rule,
    }
}

/// State while a file is parsed.
pub(crate) struct Parser<'a> {
    pub(crate) source: &'a Arc<SourceFile>,
    /// Header expressions of the file, by their text.
    pub(crate) addresses: HashMap<&'a [u8], Arc<AddressExpr>>,
    pub(crate) ports: HashMap<&'a [u8], Arc<PortExpr>>,
    diagnostics: Vec<Diagnostic>,
    dropped: u64,
    /// The first error of the current rule.
    first_error: Option<&'static str>,
    /// The sid of the current rule, once known.
    pub(crate) sid: Option<u32>,
}

impl<'a> Parser<'a> {
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        if diagnostic.severity == Severity::Error {
            self.first_error.get_or_insert(diagnostic.code);
        }
        if self.diagnostics.len() < MAX_DIAGNOSTICS {
            self.diagnostics.push(diagnostic);
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn error(&mut self, span: Span, code: &'static str, message: impl Into<String>) {
        self.report(Diagnostic::error(self.source, span, code, message));
    }

    /// Whether the current rule has an error.
    pub(crate) const fn has_errors(&self) -> bool {
        self.first_error.is_some()
    }

    /// Whether this is the first error of the current rule.
    pub(crate) fn has_error(&self, code: &str) -> bool {
        self.first_error == Some(code)
    }

    pub(crate) fn bytes(&self, span: Span) -> &'a [u8] {
        self.source.bytes(span)
    }

    fn indented(&mut self, start: usize, line: &[u8]) {
        let lead = line.len() - line.trim_ascii_start().len();
        let span = Span::of(start + lead, start + line.trim_ascii_end().len());
        let message = "this line begins with white space and is ignored, as in Suricata";
        self.report(
            Diagnostic::warning(self.source, span, code::INDENTED, message)
                .help("remove the white space to load the rule, or put a `#` before it"),
        );
    }

    fn rule(&mut self, start: usize, line: &[u8]) -> Option<Rule> {
        self.first_error = None;
        self.sid = None;
        let whole = Span::of(start, start + line.trim_ascii_end().len());
        if !self.source.is_utf8() {
            self.check_utf8(whole);
        }
        // Any other line with such an end was joined with the next one.
        if self.bytes(whole).last() == Some(&b'\\') {
            let span = Span::new(whole.end - 1, whole.end);
            let message = "a backslash continues the rule, but the file ends here";
            let d = Diagnostic::error(self.source, span, code::OPEN_CONTINUATION, message);
            self.report(d.help("remove the backslash if the rule is complete"));
            return None;
        }
        let header = self.header(whole)?;
        let actions = self.actions(header.action);
        self.protocol(header.protocol);
        let direction = self.direction(header.direction);
        let src = self.address(header.src);
        let src_port = self.port(header.src_port);
        let dst = self.address(header.dst);
        let dst_port = self.port(header.dst_port);
        let options = self.options(whole, header.rest);
        let meta = crate::meta::interpret(self, whole, &options);
        if self.has_errors() {
            return None;
        }
        let (first, also) = actions?;
        Some(Rule {
            source: Arc::clone(self.source),
            span: whole,
            line: self.source.position(whole.start).line,
            action: first.action,
            scope: first.scope,
            also,
            actions: header.action,
            protocol: header.protocol,
            src: src?,
            src_port: src_port?,
            direction: direction?,
            dst: dst?,
            dst_port: dst_port?,
            options,
            meta,
        })
    }

    fn check_utf8(&mut self, whole: Span) {
        if let Err(e) = core::str::from_utf8(self.bytes(whole)) {
            let at = e.valid_up_to();
            let message = "the rule is not UTF-8 here; Suricata refuses it, here it is loaded";
            let span = whole.slice(at, at + 1);
            self.report(
                Diagnostic::warning(self.source, span, code::NOT_UTF8, message)
                    .help("write other bytes in hexadecimal: |c3 a4|"),
            );
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A file of rules, line by line. Reading never fails: a rule that cannot be read is left out with a
//! diagnostic, and the next line is read. The grammar follows Suricata 8 (user guide, "Rules Format";
//! odd corners by its observed behaviour): an option ends at the first semicolon without a backslash
//! right before it, quoted or not; tabs count as blanks everywhere; lines that begin with a blank are
//! passed over (which is warned about). Wider than Suricata: any line length, a byte order mark,
//! bytes that are no UTF-8 (warned about).

use std::collections::HashMap;
use std::sync::Arc;

use crate::argument::is_blank;
use crate::diagnostic::{Diagnostic, Severity, code};
use crate::expr::{AddressExpr, PortExpr};
use crate::rule::{Rule, RuleAction};
use crate::source::{SourceFile, Span};

/// How many findings of one file are kept; a file that is no rule file at all has one in each line.
pub const MAX_DIAGNOSTICS: usize = 10_000;

/// What the lines of a file are, each counted once (a continued rule counts once, in `rules` or
/// `refused`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Rules that could be read.
    pub rules: u32,
    /// Rules that could not.
    pub refused: u32,
    /// Comments that are rules switched off: an action follows the `#`.
    pub disabled: u32,
    /// Other comments.
    pub comments: u32,
    /// Lines with nothing in them.
    pub blank: u32,
    /// Lines with text that begin with a blank and are passed over.
    pub indented: u32,
}

/// A rule that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The line it begins in, from 1.
    pub line: u32,
    /// Its sid, when that much could be read.
    pub sid: Option<u32>,
    /// The code of the first error in it.
    pub code: &'static str,
}

/// What a file of rules came to.
#[derive(Clone, Debug)]
pub struct RuleFile {
    /// The file.
    pub source: Arc<SourceFile>,
    /// Its rules are a firewall's ([`RuleFile::of_firewall`]), not those of detection.
    pub firewall: bool,
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// The rules that could not be read, in order.
    pub refused: Vec<Refused>,
    /// The findings, in order; at most [`MAX_DIAGNOSTICS`].
    pub diagnostics: Vec<Diagnostic>,
    /// How many findings more there were.
    pub diagnostics_dropped: u64,
    /// What the lines are.
    pub counts: LineCounts,
}

impl RuleFile {
    /// The same, as rules of a firewall: what they accept goes on, and nothing else.
    #[must_use]
    pub const fn of_firewall(mut self) -> Self {
        self.firewall = true;
        self
    }

    /// Lets go of the text, and of the rules, which stand in it: what they came to stays.
    pub fn forget_text(&mut self) {
        self.rules = Vec::new();
        self.source = Arc::new(SourceFile::new(self.source.name(), Vec::new()));
    }

    /// All findings as people read them.
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

/// Reads a file of rules. `name` is what diagnostics call it.
#[must_use]
pub fn parse_file(text: impl Into<Vec<u8>>, name: &str) -> RuleFile {
    parse_source(Arc::new(SourceFile::new(name, text)))
}

/// Reads a file of rules that is already in memory.
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
                    refused.push(Refused { line, sid: parser.sid, code });
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
            let rule = RuleAction::from_name(word).is_some() && line.contains(&b'(') && line.contains(&b';');
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

/// What is shared while a file is read.
pub(crate) struct Parser<'a> {
    pub(crate) source: &'a Arc<SourceFile>,
    /// Header expressions of the file, by their text.
    pub(crate) addresses: HashMap<&'a [u8], Arc<AddressExpr>>,
    pub(crate) ports: HashMap<&'a [u8], Arc<PortExpr>>,
    diagnostics: Vec<Diagnostic>,
    dropped: u64,
    /// The first error in the rule being read.
    first_error: Option<&'static str>,
    /// The sid of the rule being read, once known.
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

    /// Whether the rule being read has had an error.
    pub(crate) const fn has_errors(&self) -> bool {
        self.first_error.is_some()
    }

    /// Whether this was the first error in the rule being read.
    pub(crate) fn has_error(&self, code: &str) -> bool {
        self.first_error == Some(code)
    }

    pub(crate) fn bytes(&self, span: Span) -> &'a [u8] {
        self.source.bytes(span)
    }

    fn indented(&mut self, start: usize, line: &[u8]) {
        let lead = line.len() - line.trim_ascii_start().len();
        let span = Span::of(start + lead, start + line.trim_ascii_end().len());
        let message = "this line begins with a blank and is passed over, as in Suricata";
        self.report(
            Diagnostic::warning(self.source, span, code::INDENTED, message)
                .help("take the blank away to load the rule, or put a `#` before it"),
        );
    }

    fn rule(&mut self, start: usize, line: &[u8]) -> Option<Rule> {
        self.first_error = None;
        self.sid = None;
        let whole = Span::of(start, start + line.trim_ascii_end().len());
        if !self.source.is_utf8() {
            self.check_utf8(whole);
        }
        // Any other line that ends so was joined with the next one.
        if self.bytes(whole).last() == Some(&b'\\') {
            let span = Span::new(whole.end - 1, whole.end);
            let message = "a backslash continues the rule, but the file ends here";
            let d = Diagnostic::error(self.source, span, code::OPEN_CONTINUATION, message);
            self.report(d.help("take the backslash away if the rule is complete"));
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

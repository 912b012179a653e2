// SPDX-License-Identifier: Apache-2.0
//! A file of rules, line by line. Reading never fails: a rule that cannot be read is left out with a
//! diagnostic, and the next line is read. The grammar follows Suricata 8 (user guide, "Rules Format";
//! odd corners by its observed behaviour): an option ends at the first semicolon without a backslash
//! right before it, quoted or not; tabs count as blanks everywhere; lines that begin with a blank are
//! passed over (which is warned about). Wider than Suricata: any line length, a byte order mark,
//! bytes that are no UTF-8 (warned about).

use std::collections::HashMap;
use std::sync::Arc;

use crate::argument::{ArgumentError, is_blank};
use crate::diagnostic::{Diagnostic, Severity, code};
use crate::dialect::dialect_of_action;
use crate::expr::{AddressExpr, Expr, Leaf, PortExpr, parse_expr};
use crate::rule::{Meta, Rule, RuleAction, RuleDirection, RuleOption, Spec};
use crate::source::{SourceFile, Span};
use crate::suggest::suggest;

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
    /// All findings as people read them.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let mut out = String::new();
        for diagnostic in &self.diagnostics {
            out.push_str(&diagnostic.render(&self.source, color));
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
pub fn parse_file(text: impl Into<Arc<[u8]>>, name: &str) -> RuleFile {
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
    RuleFile { source, rules, refused, diagnostics, diagnostics_dropped, counts }
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
    addresses: HashMap<&'a [u8], Arc<AddressExpr>>,
    ports: HashMap<&'a [u8], Arc<PortExpr>>,
    diagnostics: Vec<Diagnostic>,
    dropped: u64,
    /// The first error in the rule being read.
    first_error: Option<&'static str>,
    /// The sid of the rule being read, once known.
    pub(crate) sid: Option<u32>,
}

/// The header's fields, as places.
struct Header {
    action: Span,
    protocol: Span,
    src: Span,
    src_port: Span,
    direction: Span,
    dst: Span,
    dst_port: Span,
    /// Where the options begin, after the blanks.
    rest: usize,
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

    fn bytes(&self, span: Span) -> &'a [u8] {
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
        let header = self.header(whole)?;
        let action = self.action(header.action);
        self.protocol(header.protocol);
        let direction = self.direction(header.direction);
        let src = self.address(header.src);
        let src_port = self.port(header.src_port);
        let dst = self.address(header.dst);
        let dst_port = self.port(header.dst_port);
        let options = self.options(whole, header.rest);
        let meta = self.meta(whole, &options);
        if self.first_error.is_some() {
            return None;
        }
        Some(Rule {
            source: Arc::clone(self.source),
            span: whole,
            line: self.source.position(whole.start).line,
            action: action?,
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

    /// Splits the header at blanks that are in no brackets.
    fn header(&mut self, whole: Span) -> Option<Header> {
        let text = self.bytes(whole);
        let mut at = 0usize;
        let mut field = |lists: bool| -> Span {
            let skip = |from: usize| {
                from + text.get(from..).unwrap_or_default().iter().take_while(|b| is_blank(**b)).count()
            };
            at = skip(at);
            let start = at;
            let mut depth = 0i32;
            while let Some(byte) = text.get(at) {
                match byte {
                    b'[' if lists => depth += 1,
                    b']' if lists => depth -= 1,
                    b if is_blank(*b) && depth <= 0 => break,
                    // Options that follow without a blank.
                    b'(' if at > start => break,
                    _ => {}
                }
                at += 1;
            }
            whole.slice(start, at)
        };
        let header = Header {
            action: field(false),
            protocol: field(true),
            src: field(true),
            src_port: field(true),
            direction: field(false),
            dst: field(true),
            dst_port: field(true),
            rest: at,
        };
        let fields = [
            (header.action, "the action"),
            (header.protocol, "the protocol"),
            (header.src, "the source address"),
            (header.src_port, "the source port"),
            (header.direction, "the direction"),
            (header.dst, "the destination address"),
            (header.dst_port, "the destination port"),
        ];
        let parenthesis = |span: Span| self.source.bytes(span).first() == Some(&b'(');
        let missing = fields.iter().find(|(span, _)| span.is_empty() || parenthesis(*span));
        if let Some((span, name)) = missing {
            // A word that is no action at all says more than what is missing behind it.
            if RuleAction::from_name(self.bytes(header.action)).is_none() {
                self.action(header.action);
                return None;
            }
            let at = if span.is_empty() { whole } else { *span };
            let d = Diagnostic::error(self.source, at, code::NO_OPTIONS, format!("{name} is missing"));
            self.report(d.help(
                "a rule reads: action protocol source ports direction destination ports (options); blanks \
                 around the arrow, none in an address unless in brackets",
            ));
            return None;
        }
        Some(header)
    }

    fn action(&mut self, span: Span) -> Option<RuleAction> {
        let word = self.bytes(span);
        if let Some(action) = RuleAction::from_name(word) {
            return Some(action);
        }
        let shown = String::from_utf8_lossy(word.get(..word.len().min(40)).unwrap_or_default()).into_owned();
        let mut d =
            Diagnostic::error(self.source, span, code::UNKNOWN_ACTION, format!("unknown action `{shown}`"));
        if let Some((dialect, advice)) = dialect_of_action(&shown) {
            d = d.help(format!("this is an action of {dialect}; {advice}"));
        } else if shown.eq_ignore_ascii_case("accept") || shown.starts_with("accept:") {
            d = d.help("`accept` belongs to Suricata's firewall mode, which is not known here; use a policy");
        } else {
            let near = suggest(&shown, RuleAction::NAMES.iter().map(|(n, _)| *n));
            d = d
                .suggestion(near)
                .help("actions are alert, pass, drop, reject, rejectsrc, rejectdst, rejectboth, config");
        }
        self.report(d);
        None
    }

    /// Which protocols there are is known elsewhere; here only that it is a word.
    fn protocol(&mut self, span: Span) {
        let word = self.bytes(span);
        if !word.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b':' | b'.' | b'/')) {
            self.error(span, code::BAD_PROTOCOL, "this is no name of a protocol");
        }
    }

    fn direction(&mut self, span: Span) -> Option<RuleDirection> {
        match self.bytes(span) {
            b"->" => return Some(RuleDirection::Forward),
            b"<>" => return Some(RuleDirection::Both),
            b"=>" => return Some(RuleDirection::Transaction),
            _ => {}
        }
        let shown = String::from_utf8_lossy(self.bytes(span)).into_owned();
        let message = format!("`{shown}` is no direction");
        let d = Diagnostic::error(self.source, span, code::BAD_DIRECTION, message);
        let near = if shown == "<-" {
            d.help("there is no `<-`: exchange the two sides and write `->`")
        } else {
            d.help("directions are `->`, `<>` (both) and `=>` (both sides of a transaction)")
        };
        self.report(near);
        None
    }

    fn address(&mut self, span: Span) -> Option<Spec<AddressExpr>> {
        let text = self.bytes(span);
        match cached(&mut self.addresses, text) {
            Ok(expr) => Some(Spec { expr, span }),
            Err(e) => {
                self.expression_error(span, code::BAD_ADDRESS, &e);
                None
            }
        }
    }

    fn port(&mut self, span: Span) -> Option<Spec<PortExpr>> {
        let text = self.bytes(span);
        match cached(&mut self.ports, text) {
            Ok(expr) => Some(Spec { expr, span }),
            Err(e) => {
                self.expression_error(span, code::BAD_PORT, &e);
                None
            }
        }
    }

    fn expression_error(&mut self, span: Span, code: &'static str, e: &ArgumentError) {
        self.error(span.slice(e.start, e.end), code, e.to_string());
    }

    /// Cuts the options out of what follows the header.
    fn options(&mut self, whole: Span, rest: usize) -> Vec<RuleOption> {
        let text = self.bytes(whole);
        let lead = |b: &u8| b.is_ascii_whitespace() || *b == b'(';
        let mut at = rest + text.get(rest..).unwrap_or_default().iter().take_while(|b| lead(b)).count();
        let opened = text.get(rest..at).is_some_and(|t| t.contains(&b'('));
        let mut end = text.len();
        while end > at && text.get(end - 1).is_some_and(|b| b.is_ascii_whitespace() || *b == b')') {
            end -= 1;
        }
        let closed = text.get(end..).is_some_and(|t| t.contains(&b')'));
        let body = text.get(..end).unwrap_or_default();
        let mut options =
            Vec::with_capacity(memchr::memchr_iter(b';', body.get(at..).unwrap_or_default()).count());
        while at < end {
            at += body.get(at..).unwrap_or_default().iter().take_while(|b| is_blank(**b)).count();
            let Some(stop) = end_of_option(body, at) else {
                let span = whole.slice(at, end);
                let d = Diagnostic::error(self.source, span, code::NO_TERMINATOR, "no `;` ends this option");
                let escaped = body.get(at..).is_some_and(|b| memchr::memchr(b';', b).is_some());
                self.report(d.help(if escaped {
                    "a `;` with a backslash right before it is text and ends nothing; a backslash itself is written `\\\\` or |5c|"
                } else {
                    "every option ends with a semicolon, the last one, too"
                }));
                return options;
            };
            options.extend(self.option(whole, body.get(at..stop).unwrap_or_default(), at));
            at = stop + 1;
        }
        if options.is_empty() && self.first_error.is_none() {
            self.error(whole, code::NO_OPTIONS, "the rule has no options");
        } else if !(opened && closed) {
            let which = if opened { "closing" } else { "opening" };
            let message = format!("the {which} parenthesis of the options is missing");
            self.report(Diagnostic::warning(self.source, whole, code::NO_PARENTHESIS, message));
        }
        options
    }

    /// One option without its semicolon, beginning at `at` in the rule.
    fn option(&mut self, whole: Span, text: &[u8], at: usize) -> Option<RuleOption> {
        let colon = memchr::memchr(b':', text);
        let keyword = text.get(..colon.unwrap_or(text.len())).unwrap_or_default();
        let keyword_end = at + trim_end(keyword);
        let keyword_span = whole.slice(at, keyword_end);
        let all = whole.slice(at, at + trim_end(text));
        if keyword_span.is_empty() {
            let d = if colon.is_some() {
                Diagnostic::error(
                    self.source,
                    all,
                    code::EMPTY_OPTION,
                    "the keyword before the colon is missing",
                )
            } else {
                let span = whole.slice(at, at + 1);
                Diagnostic::error(self.source, span, code::EMPTY_OPTION, "an option with nothing in it")
                    .help("take one of the semicolons away")
            };
            self.report(d);
            return None;
        }
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if !self.bytes(keyword_span).iter().all(is_word) {
            let d = Diagnostic::error(self.source, keyword_span, code::BAD_KEYWORD, "this is no keyword");
            self.report(d.help(
                "a `;` inside a value ends it, in quotes, too, unless it is written `\\;`; or a `;` is missing here",
            ));
            return None;
        }
        let value = colon.and_then(|colon| {
            let from = colon + 1;
            let raw = text.get(from..).unwrap_or_default();
            let lead = raw.iter().take_while(|b| is_blank(**b)).count();
            let end = trim_end(raw);
            (lead < end).then(|| whole.slice(at + from + lead, at + from + end))
        });
        Some(RuleOption { keyword: keyword_span, value, span: all })
    }

    fn meta(&mut self, whole: Span, options: &[RuleOption]) -> Meta {
        crate::meta::interpret(self, whole, options)
    }
}

fn cached<'a, L: Leaf>(
    known: &mut HashMap<&'a [u8], Arc<Expr<L>>>,
    text: &'a [u8],
) -> Result<Arc<Expr<L>>, ArgumentError> {
    if let Some(expr) = known.get(text) {
        return Ok(Arc::clone(expr));
    }
    let expr = Arc::new(parse_expr(text)?);
    known.insert(text, Arc::clone(&expr));
    Ok(expr)
}

/// The first semicolon from `at` on without a backslash right before it.
fn end_of_option(body: &[u8], at: usize) -> Option<usize> {
    let rest = body.get(at..)?;
    let plain = |i: &usize| i.checked_sub(1).and_then(|before| rest.get(before)) != Some(&b'\\');
    memchr::memchr_iter(b';', rest).find(plain).map(|i| at + i)
}

fn trim_end(text: &[u8]) -> usize {
    text.len() - text.iter().rev().take_while(|b| is_blank(**b) || **b == b'\r').count()
}

// SPDX-License-Identifier: Apache-2.0
//! The options that describe a rule: sid, gid, rev, msg, classtype, priority, reference, metadata, target.
//! Source: Suricata 8's user guide, "Meta Keywords". The caller, who has the defining files, checks whether a
//! classtype or a reference system is defined.

use crate::argument::{is_blank, unsigned, unwrap_value};
use crate::diagnostic::{Diagnostic, code};
use crate::parse::Parser;
use crate::rule::{Meta, RuleOption, RuleTarget};
use crate::source::Span;

/// Reads the descriptive options and reports their errors.
pub(crate) fn interpret(parser: &mut Parser<'_>, whole: Span, options: &[RuleOption]) -> Meta {
    let mut reader = RuleMetaReader { parser, meta: Meta::default(), sid: None, gid: None, rev: None };
    for option in options {
        reader.option(option);
    }
    let (sid, gid, rev) = (reader.sid, reader.gid, reader.rev);
    let mut meta = reader.meta;
    match sid {
        Some(_) => {}
        // An option that a missing semicolon may have swallowed is not reported as missing.
        None if options.is_empty() || parser.has_error(code::NO_TERMINATOR) => {}
        None => {
            let span = Span::new(whole.end.saturating_sub(1), whole.end);
            let d = Diagnostic::error(parser.source, span, code::BAD_SID, "the rule has no sid");
            parser.report(
                d.help("every rule needs one: `sid:1000001;` (1000000 to 1999999 are for local rules)"),
            );
        }
    }
    meta.id.sid = sid.unwrap_or(0);
    meta.id.gid = gid.unwrap_or(1);
    meta.id.rev = rev.unwrap_or(0);
    meta
}

struct RuleMetaReader<'p, 'a> {
    parser: &'p mut Parser<'a>,
    meta: Meta,
    /// `Some(0)` after an unusable sid, so that it is not reported as missing, too.
    sid: Option<u32>,
    gid: Option<u32>,
    rev: Option<u32>,
}

impl RuleMetaReader<'_, '_> {
    fn option(&mut self, option: &RuleOption) {
        let keyword = self.parser.source.bytes(option.keyword);
        let is = |name: &[u8]| keyword.eq_ignore_ascii_case(name);
        match keyword.len() {
            3 if is(b"sid") => self.sid(option),
            3 if is(b"rev") => self.rev(option),
            3 if is(b"gid") => self.gid(option),
            3 if is(b"msg") => self.msg(option),
            6 if is(b"target") => self.target(option),
            8 if is(b"priority") => self.priority(option),
            8 if is(b"metadata") => self.metadata(option),
            9 if is(b"classtype") => self.classtype(option),
            9 if is(b"reference") => self.reference(option),
            _ => {}
        }
    }

    /// The value; reports an error if there is none.
    fn value(&mut self, option: &RuleOption, code: &'static str) -> Option<Span> {
        if option.value.is_none() {
            let name = self.name(option);
            self.parser.error(option.span, code, format!("{name} needs a value"));
        }
        option.value
    }

    fn name(&self, option: &RuleOption) -> String {
        String::from_utf8_lossy(self.parser.source.bytes(option.keyword)).to_ascii_lowercase()
    }

    /// A number of 32 bits.
    fn number(&mut self, option: &RuleOption, code: &'static str, quotes: bool) -> Option<u32> {
        let span = self.value(option, code)?;
        let mut text = self.parser.source.bytes(span);
        if quotes && let [b'"', inner @ .., b'"'] = text {
            text = inner.trim_ascii();
        }
        let decimal = text.iter().all(u8::is_ascii_digit);
        match unsigned(text, u64::from(u32::MAX)).ok().filter(|_| decimal) {
            Some(n) => u32::try_from(n).ok(),
            None => {
                let name = self.name(option);
                let message = format!("{name} is a number up to {}", u32::MAX);
                self.parser.error(span, code, message);
                None
            }
        }
    }

    fn sid(&mut self, option: &RuleOption) {
        if self.sid.is_some() {
            self.parser.error(option.span, code::BAD_SID, "sid is given twice");
            return;
        }
        self.sid = Some(0);
        if let Some(sid) = self.number(option, code::BAD_SID, false) {
            if sid == 0 {
                self.parser.error(option.span, code::BAD_SID, "sid 0 is reserved");
            } else {
                self.sid = Some(sid);
                self.parser.sid = Some(sid);
            }
        }
    }

    fn rev(&mut self, option: &RuleOption) {
        if self.rev.is_some() {
            self.parser.error(option.span, code::BAD_META, "rev is given twice");
            return;
        }
        if let Some(rev) = self.number(option, code::BAD_META, false) {
            if rev == 0 {
                self.parser.error(option.span, code::BAD_META, "rev begins at 1");
            }
            self.rev = Some(rev);
        }
    }

    fn gid(&mut self, option: &RuleOption) {
        if let Some(gid) = self.number(option, code::BAD_META, false) {
            self.gid = Some(gid);
        }
    }

    /// As in Suricata, the largest number is no priority: that of the class applies.
    fn priority(&mut self, option: &RuleOption) {
        let priority = self.number(option, code::BAD_META, true).filter(|number| *number != u32::MAX);
        let Some(priority) = priority else { return };
        if let Some(before) = self.meta.priority {
            self.twice(
                option,
                "priority is given twice; the smaller number, which is the higher priority, applies",
            );
            self.meta.priority = Some(before.min(priority));
        } else {
            self.meta.priority = Some(priority);
        }
    }

    fn twice(&mut self, option: &RuleOption, message: &str) {
        let d = Diagnostic::warning(self.parser.source, option.span, code::DUPLICATE_META, message);
        self.parser.report(d);
    }

    fn msg(&mut self, option: &RuleOption) {
        let Some(span) = self.value(option, code::BAD_MSG) else { return };
        if self.meta.msg.is_some() {
            self.parser.error(option.span, code::BAD_MSG, "msg is given twice");
            return;
        }
        match unwrap_value(self.parser.source.bytes(span), false) {
            Ok(a) if a.quoted => self.meta.msg = Some(span.slice(a.start, a.start + a.text.len())),
            Ok(_) => self.parser.error(span, code::BAD_MSG, "msg must be in double quotes"),
            Err(e) => self.parser.error(span.slice(e.start, e.end), code::BAD_MSG, format!("msg: {e}")),
        }
    }

    fn classtype(&mut self, option: &RuleOption) {
        let Some(span) = self.value(option, code::BAD_META) else { return };
        let text = self.parser.source.bytes(span);
        let (inner, span) = match text {
            [b'"', inner @ .., b'"'] => (inner, span.slice(1, 1 + inner.len())),
            _ => (text, span),
        };
        let lead = inner.len() - inner.trim_ascii_start().len();
        let word = inner.trim_ascii();
        let starts = word.first().is_some_and(u8::is_ascii_alphabetic);
        if !starts || !word.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
            self.parser.error(
                span,
                code::BAD_META,
                "classtype is one word: a letter, then letters, digits, `-`, `_`",
            );
            return;
        }
        if self.meta.classtype.is_some() {
            self.twice(option, "classtype is given twice; the first one applies");
            return;
        }
        self.meta.classtype = Some(span.slice(lead, lead + word.len()));
    }

    /// `system,id`. The identifier ends before the first invalid character, where Suricata cuts it, too (`&`
    /// in an address of a web page, for instance).
    fn reference(&mut self, option: &RuleOption) {
        let Some(span) = self.value(option, code::BAD_REFERENCE) else { return };
        let text = self.parser.source.bytes(span);
        let found = memchr::memchr(b',', text).and_then(|comma| {
            let (system, rest) = text.split_at_checked(comma)?;
            let system = system.get(..system.trim_ascii_end().len())?;
            let id_start =
                comma + 1 + rest.iter().skip(1).take_while(|b| is_blank(**b) || **b == b'"').count();
            let id = text.get(id_start..)?;
            let id_len = id.iter().take_while(|b| is_reference(**b)).count();
            let word = !system.is_empty() && system.iter().all(u8::is_ascii_alphanumeric);
            (word && id_len > 0)
                .then(|| (span.slice(0, system.len()), span.slice(id_start, id_start + id_len)))
        });
        match found {
            Some(pair) => self.meta.references.push(pair),
            None => {
                let d = Diagnostic::error(
                    self.parser.source,
                    span,
                    code::BAD_REFERENCE,
                    "this is not a reference",
                );
                self.parser.report(d.help("write `system,identifier`: `reference:cve,2021-44228;`"));
            }
        }
    }

    fn metadata(&mut self, option: &RuleOption) {
        let Some(span) = option.value else {
            self.value(option, code::BAD_META);
            return;
        };
        let text = self.parser.source.bytes(span);
        let mut at = 0usize;
        for entry in text.split(|b| *b == b',') {
            let lead = entry.iter().take_while(|b| is_blank(**b)).count();
            let body = entry.get(lead..).unwrap_or_default();
            // As in Suricata, entries of one word are ignored.
            if let Some(blank) = memchr::memchr(b' ', body).filter(|blank| *blank > 0) {
                let gap = body.get(blank..).unwrap_or_default().iter().take_while(|b| is_blank(**b)).count();
                let (from, to) = (at + lead + blank + gap, at + entry.len());
                if from < to {
                    let key = span.slice(at + lead, at + lead + blank);
                    self.meta.metadata.push((key, span.slice(from, to)));
                }
            }
            at += entry.len() + 1;
        }
    }

    fn target(&mut self, option: &RuleOption) {
        let Some(span) = self.value(option, code::BAD_META) else { return };
        let target = match self.parser.source.bytes(span).trim_ascii() {
            b"src_ip" => RuleTarget::Source,
            b"dest_ip" => RuleTarget::Destination,
            _ => {
                self.parser.error(span, code::BAD_META, "target is src_ip or dest_ip");
                return;
            }
        };
        if self.meta.target.is_some_and(|before| before != target) {
            self.parser.error(option.span, code::BAD_META, "target is given twice, with different sides");
            return;
        }
        self.meta.target = Some(target);
    }
}

const fn is_reference(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b'?' | b'=')
}

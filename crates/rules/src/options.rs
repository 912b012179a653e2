// SPDX-License-Identifier: Apache-2.0
//! The part of a rule in parentheses: options, each ended by a semicolon.

use crate::argument::is_blank;
use crate::diagnostic::{Diagnostic, code};
use crate::parse::Parser;
use crate::rule::RuleOption;
use crate::source::Span;

impl Parser<'_> {
    /// Splits the text after the header into options.
    pub(crate) fn options(&mut self, whole: Span, rest: usize) -> Vec<RuleOption> {
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
                    "a `;` after a backslash is text and does not end the option; a backslash itself is written `\\\\` or |5c|"
                } else {
                    "every option ends with a semicolon, also the last one"
                }));
                return options;
            };
            options.extend(self.option(whole, body.get(at..stop).unwrap_or_default(), at));
            at = stop + 1;
        }
        if options.is_empty() && !self.has_errors() {
            self.error(whole, code::NO_OPTIONS, "the rule has no options");
        } else if !(opened && closed) {
            let which = if opened { "closing" } else { "opening" };
            let message = format!("the {which} parenthesis of the options is missing");
            self.report(Diagnostic::warning(self.source, whole, code::NO_PARENTHESIS, message));
        }
        options
    }

    /// Parses one option without its semicolon; `at`: its offset in the rule.
    pub(crate) fn option(&mut self, whole: Span, text: &[u8], at: usize) -> Option<RuleOption> {
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
                Diagnostic::error(self.source, span, code::EMPTY_OPTION, "an empty option")
                    .help("remove one of the semicolons")
            };
            self.report(d);
            return None;
        }
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if !self.bytes(keyword_span).iter().all(is_word) {
            let d = Diagnostic::error(self.source, keyword_span, code::BAD_KEYWORD, "this is not a keyword");
            self.report(d.help(
                "a `;` ends a value, also in quotes, unless it is written `\\;`; or a `;` is missing here",
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

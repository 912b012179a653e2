// SPDX-License-Identifier: Apache-2.0
//! The part of a rule before its options: action, protocol, addresses, ports, direction.

use std::collections::HashMap;
use std::sync::Arc;

use crate::argument::{ArgumentError, is_blank};
use crate::diagnostic::{Diagnostic, code};
use crate::dialect::dialect_of_action;
use crate::expr::{AddressExpr, Expr, Leaf, PortExpr, parse_expr};
use crate::parse::Parser;
use crate::rule::{ActionScope, ParsedRuleAction, RuleDirection, ScopedAction, Spec};
use crate::source::Span;
use crate::suggest::suggest;

/// Places of the header's fields.
pub(crate) struct HeaderSpans {
    pub(crate) action: Span,
    pub(crate) protocol: Span,
    pub(crate) src: Span,
    pub(crate) src_port: Span,
    pub(crate) direction: Span,
    pub(crate) dst: Span,
    pub(crate) dst_port: Span,
    /// Offset of the options, after the blanks.
    pub(crate) rest: usize,
}

impl Parser<'_> {
    /// Splits the header at blanks outside of brackets.
    pub(crate) fn header(&mut self, whole: Span) -> Option<HeaderSpans> {
        let (header, unclosed) = split(self.bytes(whole), whole);
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
            // An invalid action is a more helpful error than the missing fields after it.
            self.actions(header.action)?;
            if let Some(open) = unclosed {
                self.error(whole.slice(open, open + 1), code::BAD_ADDRESS, "this `[` is not closed");
                return None;
            }
            let at = if span.is_empty() { whole } else { *span };
            let d = Diagnostic::error(self.source, at, code::NO_OPTIONS, format!("{name} is missing"));
            self.report(d.help(
                "a rule has the form: action protocol source ports direction destination ports (options); blanks \
                 around the arrow, none in an address unless in brackets",
            ));
            return None;
        }
        Some(header)
    }

    /// Reads `ACTION[:SCOPE][,ACTION[:SCOPE]]...`. Valid combinations differ between firewall and detection,
    /// and are not checked here.
    pub(crate) fn actions(&mut self, span: Span) -> Option<(ScopedAction, Vec<ScopedAction>)> {
        let text = self.bytes(span);
        let mut all = Vec::new();
        let mut start = 0usize;
        for part in text.split(|b| *b == b',') {
            let end = start.saturating_add(part.len());
            all.push(self.scoped(part, span.slice(start, end))?);
            start = end.saturating_add(1);
        }
        let mut all = all.into_iter();
        Some((all.next()?, all.collect()))
    }

    fn scoped(&mut self, text: &[u8], span: Span) -> Option<ScopedAction> {
        let (name, scope) = match text.iter().position(|b| *b == b':') {
            Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + 1..)),
            None => (text, None),
        };
        let name_span = span.slice(0, name.len());
        let action = self.action(name, name_span)?;
        let Some(written) = scope else { return Some(ScopedAction { action, scope: None }) };
        let place = span.slice(name.len() + 1, text.len());
        let place = if place.is_empty() { span } else { place };
        let named = ActionScope::NAMES.iter().find(|(name, _)| name.as_bytes() == written).map(|(_, s)| *s);
        let allowed = scopes_of(action);
        if let Some(scope) = named.filter(|scope| allowed.contains(scope)) {
            return Some(ScopedAction { action, scope: Some(scope) });
        }
        let names: Vec<_> = allowed.iter().map(|scope| scope.name()).collect();
        let shown = String::from_utf8_lossy(written.get(..written.len().min(40)).unwrap_or_default());
        let message = format!("`{}` has no scope `{shown}`", action.name());
        let help = match names.as_slice() {
            [] => format!("`{}` has no scopes: remove `:{shown}`", action.name()),
            names => format!("its scopes are {}", names.join(", ")),
        };
        self.report(Diagnostic::error(self.source, place, code::BAD_SCOPE, message).help(help));
        None
    }

    fn action(&mut self, word: &[u8], span: Span) -> Option<ParsedRuleAction> {
        if let Some(action) = ParsedRuleAction::from_name(word) {
            return Some(action);
        }
        let shown = String::from_utf8_lossy(word.get(..word.len().min(40)).unwrap_or_default()).into_owned();
        let mut d =
            Diagnostic::error(self.source, span, code::UNKNOWN_ACTION, format!("unknown action `{shown}`"));
        if let Some((dialect, advice)) = dialect_of_action(&shown) {
            d = d.help(format!("this is an action of {dialect}; {advice}"));
        } else {
            let near = suggest(&shown, ParsedRuleAction::NAMES.iter().map(|(n, _)| *n));
            d = d.suggestion(near).help(
                "actions are alert, pass, drop, reject, rejectsrc, rejectdst, rejectboth, config; in firewall rules accept",
            );
        }
        self.report(d);
        None
    }

    /// Checks that the protocol is a word; other crates know which protocols exist.
    pub(crate) fn protocol(&mut self, span: Span) {
        let word = self.bytes(span);
        // `<` before a firewall rule's hook includes the states before it.
        let at = word.iter().position(|b| *b == b':').unwrap_or(word.len());
        let (name, hook) = word.split_at(at);
        let hook = hook.strip_prefix(b":<").unwrap_or(hook);
        let mut word = name.iter().chain(hook);
        if !word.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b':' | b'.' | b'/')) {
            self.error(span, code::BAD_PROTOCOL, "this is not a name of a protocol");
        }
    }

    pub(crate) fn direction(&mut self, span: Span) -> Option<RuleDirection> {
        match self.bytes(span) {
            b"->" => return Some(RuleDirection::Forward),
            b"<>" => return Some(RuleDirection::Both),
            b"=>" => return Some(RuleDirection::Transaction),
            _ => {}
        }
        let shown = String::from_utf8_lossy(self.bytes(span)).into_owned();
        let message = format!("`{shown}` is not a direction");
        let d = Diagnostic::error(self.source, span, code::BAD_DIRECTION, message);
        let near = if shown == "<-" {
            d.help("there is no `<-`: swap the two sides and write `->`")
        } else {
            d.help("directions are `->`, `<>` (both) and `=>` (both sides of a transaction)")
        };
        self.report(near);
        None
    }

    pub(crate) fn address(&mut self, span: Span) -> Option<Spec<AddressExpr>> {
        let text = self.bytes(span);
        match cached(&mut self.addresses, text) {
            Ok(expr) => Some(Spec { expr, span }),
            Err(e) => {
                self.expression_error(span, code::BAD_ADDRESS, &e);
                None
            }
        }
    }

    pub(crate) fn port(&mut self, span: Span) -> Option<Spec<PortExpr>> {
        let text = self.bytes(span);
        match cached(&mut self.ports, text) {
            Ok(expr) => Some(Spec { expr, span }),
            Err(e) => {
                self.expression_error(span, code::BAD_PORT, &e);
                None
            }
        }
    }

    pub(crate) fn expression_error(&mut self, span: Span, code: &'static str, e: &ArgumentError) {
        self.error(span.slice(e.start, e.end), code, e.to_string());
    }
}

/// Splits the fields; also returns the position of the first bracket that its field does not close.
fn split(text: &[u8], whole: Span) -> (HeaderSpans, Option<usize>) {
    let mut at = 0usize;
    let mut unclosed: Option<usize> = None;
    let mut field = |lists: bool| -> Span {
        at += text.get(at..).unwrap_or_default().iter().take_while(|b| is_blank(**b)).count();
        let start = at;
        let (mut depth, mut open) = (0i64, start);
        while let Some(byte) = text.get(at) {
            match byte {
                b'[' if lists => {
                    if depth == 0 {
                        open = at;
                    }
                    depth += 1;
                }
                b']' if lists => depth -= 1,
                b if is_blank(*b) && depth <= 0 => break,
                // Options without a blank before them.
                b'(' if at > start => break,
                _ => {}
            }
            at += 1;
        }
        if depth > 0 {
            unclosed.get_or_insert(open);
        }
        whole.slice(start, at)
    };
    let header = HeaderSpans {
        action: field(false),
        protocol: field(true),
        src: field(true),
        src_port: field(true),
        direction: field(false),
        dst: field(true),
        dst_port: field(true),
        rest: at,
    };
    (header, unclosed)
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

/// The scopes that an action can have.
const fn scopes_of(action: ParsedRuleAction) -> &'static [ActionScope] {
    use ActionScope::{Flow, Hook, Packet, Tx};
    match action {
        ParsedRuleAction::Accept => &[Packet, Flow, Tx, Hook],
        ParsedRuleAction::Pass
        | ParsedRuleAction::Drop
        | ParsedRuleAction::Reject
        | ParsedRuleAction::RejectDst
        | ParsedRuleAction::RejectBoth => &[Packet, Flow],
        ParsedRuleAction::Config => &[Packet],
        ParsedRuleAction::Alert => &[],
    }
}

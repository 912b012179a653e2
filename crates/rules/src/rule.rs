// SPDX-License-Identifier: Apache-2.0
//! A rule as a syntax tree. Texts are places in the shared source, not copies. Only the descriptive keywords
//! (`sid`, `msg`, ...) are interpreted here.

use std::borrow::Cow;
use std::sync::Arc;

use bartizan_base::RuleId;

use crate::argument::{ArgumentError, OptionValue, unescape, unwrap_value};
use crate::diagnostic::{Diagnostic, Severity};
use crate::expr::{AddressExpr, PortExpr};
use crate::source::{SourceFile, Span};

/// The action of a rule when it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParsedRuleAction {
    /// Report.
    Alert,
    /// Inspect no further and let through.
    Pass,
    /// Report and drop.
    Drop,
    /// Report, drop, send a rejection to the sender (`rejectsrc` is a synonym).
    Reject,
    /// Report, drop, send a rejection to the receiver.
    RejectDst,
    /// Report, drop, send a rejection to both.
    RejectBoth,
    /// Change a setting for the matched traffic (see the keyword `config`); never reports.
    Config,
    /// Accept the traffic, in firewall rules.
    Accept,
}

/// The scope of an action: `accept:hook`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionScope {
    /// The packet.
    Packet,
    /// The flow, from this packet on.
    Flow,
    /// The hook of the rule.
    Hook,
    /// The transaction.
    Tx,
}

impl ActionScope {
    /// Every scope by its name.
    pub const NAMES: [(&'static str, ActionScope); 4] = [
        ("packet", ActionScope::Packet),
        ("flow", ActionScope::Flow),
        ("hook", ActionScope::Hook),
        ("tx", ActionScope::Tx),
    ];

    /// Name of the scope.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Flow => "flow",
            Self::Hook => "hook",
            Self::Tx => "tx",
        }
    }
}

/// One action of a rule as written, with its scope if it names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScopedAction {
    /// The action.
    pub action: ParsedRuleAction,
    /// Scope of the action.
    pub scope: Option<ActionScope>,
}

impl core::fmt::Display for ScopedAction {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.action.name())?;
        self.scope.map_or(Ok(()), |scope| write!(f, ":{}", scope.name()))
    }
}

impl ParsedRuleAction {
    /// Every action by its spellings.
    pub const NAMES: [(&'static str, ParsedRuleAction); 9] = [
        ("alert", ParsedRuleAction::Alert),
        ("pass", ParsedRuleAction::Pass),
        ("drop", ParsedRuleAction::Drop),
        ("reject", ParsedRuleAction::Reject),
        ("rejectsrc", ParsedRuleAction::Reject),
        ("rejectdst", ParsedRuleAction::RejectDst),
        ("rejectboth", ParsedRuleAction::RejectBoth),
        ("config", ParsedRuleAction::Config),
        ("accept", ParsedRuleAction::Accept),
    ];

    /// The action with a name, in any letter case.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::NAMES.iter().find(|(n, _)| n.as_bytes().eq_ignore_ascii_case(name)).map(|(_, a)| *a)
    }

    /// Name of the action.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::Pass => "pass",
            Self::Drop => "drop",
            Self::Reject => "reject",
            Self::RejectDst => "rejectdst",
            Self::RejectBoth => "rejectboth",
            Self::Config => "config",
            Self::Accept => "accept",
        }
    }
}

/// The direction of a rule's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleDirection {
    /// `->`: from source to destination.
    Forward,
    /// `<>`: the rule stands for two, one in each direction.
    Both,
    /// `=>`: one rule over both directions of a transaction.
    Transaction,
}

impl RuleDirection {
    /// The arrow.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Forward => "->",
            Self::Both => "<>",
            Self::Transaction => "=>",
        }
    }
}

/// An expression of a rule's header with its place. Equal texts in a file share one tree.
#[derive(Clone, Debug)]
pub struct Spec<E> {
    /// The tree; places in it count from `span`'s start.
    pub expr: Arc<E>,
    /// Place of the expression.
    pub span: Span,
}

/// Addresses in a rule's header.
pub type AddressSpec = Spec<AddressExpr>;
/// Ports in a rule's header.
pub type PortSpec = Spec<PortExpr>;

/// One option: a keyword with or without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleOption {
    /// The keyword.
    pub keyword: Span,
    /// The value without blanks around it; `None` if it is missing or empty.
    pub value: Option<Span>,
    /// From the keyword to the end of the value.
    pub span: Span,
}

/// The attacked side of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleTarget {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// Options that describe a rule and never affect its matches.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// Generator, signature, revision.
    pub id: RuleId,
    /// The text of `msg`, still escaped; see [`Rule::msg`].
    pub msg: Option<Span>,
    /// The name given to `classtype`.
    pub classtype: Option<Span>,
    /// The number given to `priority`.
    pub priority: Option<u32>,
    /// System and identifier of each `reference`.
    pub references: Vec<(Span, Span)>,
    /// Key and value of each `metadata` entry that has both.
    pub metadata: Vec<(Span, Span)>,
    /// `target`.
    pub target: Option<RuleTarget>,
}

/// A rule that could be read.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The rule's file.
    pub source: Arc<SourceFile>,
    /// The whole rule, without blanks around it.
    pub span: Span,
    /// Line of its beginning, from 1.
    pub line: u32,
    /// The first action.
    pub action: ParsedRuleAction,
    /// Scope of that action, if the rule names one.
    pub scope: Option<ActionScope>,
    /// Further actions, after commas: only firewall rules have some.
    pub also: Vec<ScopedAction>,
    /// Place of the actions.
    pub actions: Span,
    /// Protocol with its hook if it has one, unchecked; see [`Rule::protocol`].
    pub protocol: Span,
    /// Source addresses.
    pub src: AddressSpec,
    /// Source ports.
    pub src_port: PortSpec,
    /// Direction of the header.
    pub direction: RuleDirection,
    /// Destination addresses.
    pub dst: AddressSpec,
    /// Destination ports.
    pub dst_port: PortSpec,
    /// All options in their order, the descriptive ones included.
    pub options: Vec<RuleOption>,
    /// Values of the descriptive options.
    pub meta: Meta,
}

impl Rule {
    /// The bytes at a place.
    #[must_use]
    pub fn bytes(&self, span: Span) -> &[u8] {
        self.source.bytes(span)
    }

    /// The text at a place; empty if it is no UTF-8.
    #[must_use]
    pub fn text(&self, span: Span) -> &str {
        core::str::from_utf8(self.bytes(span)).unwrap_or_default()
    }

    /// The rule as written (lines joined).
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        self.bytes(self.span)
    }

    /// Generator, signature, revision.
    #[must_use]
    pub const fn id(&self) -> RuleId {
        self.meta.id
    }

    /// The protocol as written, without a hook: `tcp`, `tcp-pkt`, `http1`.
    #[must_use]
    pub fn protocol(&self) -> &str {
        let text = self.text(self.protocol);
        text.split_once(':').map_or(text, |(name, _)| name)
    }

    /// The hook after the protocol: `request_started` in `dns:request_started`.
    #[must_use]
    pub fn hook(&self) -> Option<&str> {
        self.text(self.protocol).split_once(':').map(|(_, hook)| hook.strip_prefix('<').unwrap_or(hook))
    }

    /// Whether the rule accepts the hooks before its own as well: `tls:<client_hello_done`.
    #[must_use]
    pub fn covers_earlier_hooks(&self) -> bool {
        self.text(self.protocol).contains(":<")
    }

    /// The message without escapes; empty without `msg`.
    #[must_use]
    pub fn msg(&self) -> Cow<'_, [u8]> {
        self.meta.msg.map_or(Cow::Borrowed(&[]), |span| unescape(self.bytes(span)))
    }

    /// The name of the classification.
    #[must_use]
    pub fn classtype(&self) -> Option<&str> {
        self.meta.classtype.map(|span| self.text(span))
    }

    /// System and identifier of each reference.
    pub fn references(&self) -> impl Iterator<Item = (&str, &str)> {
        self.meta.references.iter().map(|(system, id)| (self.text(*system), self.text(*id)))
    }

    /// Key and value of each metadata entry.
    pub fn metadata(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.meta.metadata.iter().map(|(key, value)| (self.bytes(*key), self.bytes(*value)))
    }

    /// The options with their texts.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = OptionRef<'_>> + DoubleEndedIterator {
        self.options.iter().map(|option| OptionRef { rule: self, option: *option })
    }

    /// The first option of a keyword, in any letter case.
    #[must_use]
    pub fn option(&self, keyword: &str) -> Option<OptionRef<'_>> {
        self.iter().find(|o| o.keyword().eq_ignore_ascii_case(keyword))
    }

    /// A finding at a place of this rule.
    #[must_use]
    pub fn diagnostic(
        &self,
        span: Span,
        severity: Severity,
        code: &'static str,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic::new(&self.source, span, severity, code, message)
    }

    /// The rule in its usual form, which parses back to an equal rule.
    #[must_use]
    pub fn print(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.span.len() as usize + 16);
        let first = ScopedAction { action: self.action, scope: self.scope };
        out.extend_from_slice(first.to_string().as_bytes());
        for more in &self.also {
            out.extend_from_slice(format!(",{more}").as_bytes());
        }
        out.push(b' ');
        out.extend_from_slice(self.bytes(self.protocol));
        let header = format!(
            " {} {} {} {} {} (",
            self.src.expr,
            self.src_port.expr,
            self.direction.symbol(),
            self.dst.expr,
            self.dst_port.expr
        );
        out.extend_from_slice(header.as_bytes());
        for (i, option) in self.options.iter().enumerate() {
            if i > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(self.bytes(option.keyword));
            if let Some(value) = option.value {
                out.push(b':');
                out.extend_from_slice(self.bytes(value));
            }
            out.push(b';');
        }
        out.push(b')');
        out
    }
}

/// An option together with its rule.
#[derive(Clone, Copy, Debug)]
pub struct OptionRef<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// The option.
    pub option: RuleOption,
}

impl<'a> OptionRef<'a> {
    /// The keyword as written.
    #[must_use]
    pub fn keyword(&self) -> &'a str {
        self.rule.text(self.option.keyword)
    }

    /// The raw value, with quotes, `!` and escapes.
    #[must_use]
    pub fn value(&self) -> Option<&'a [u8]> {
        self.option.value.map(|span| self.rule.bytes(span))
    }

    /// Place of the value, or the place for it if there is none.
    #[must_use]
    pub fn value_span(&self) -> Span {
        self.option.value.unwrap_or(Span::new(self.option.span.end, self.option.span.end))
    }

    /// Whether the value begins with a `!`. The keyword decides whether this is a negation.
    #[must_use]
    pub fn negated(&self) -> bool {
        self.value().is_some_and(|v| v.first() == Some(&b'!'))
    }

    /// The value without quotes and, for a keyword that can be negated, without its `!`.
    ///
    /// # Errors
    /// The value is missing or empty between its quotes, or a quote is not closed; offsets count from the
    /// value's start, as [`OptionRef::error`] requires.
    pub fn argument(&self, can_negate: bool) -> Result<OptionValue<'a>, ArgumentError> {
        unwrap_value(self.value().unwrap_or_default(), can_negate)
    }

    /// The place of a range of the value.
    #[must_use]
    pub fn place(&self, start: usize, end: usize) -> Span {
        self.value_span().slice(start, end)
    }

    /// A finding about the argument that leaves the rule out. An error with an empty range marks the whole
    /// option.
    #[must_use]
    pub fn error(&self, code: &'static str, error: &ArgumentError) -> Diagnostic {
        let place = self.place(error.start, error.end);
        let place = if place.is_empty() { self.option.span } else { place };
        self.rule.diagnostic(place, Severity::Error, code, format!("{}: {error}", self.keyword()))
    }
}

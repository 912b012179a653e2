// SPDX-License-Identifier: Apache-2.0
//! Flowbits, xbits, hostbits and flowints: finds the rules that write them, and rules that read variables
//! which no rule writes.
//!
//! A rule that is left out writes nothing. A rule that tests whether a bit is *not* set would then match
//! where its author did not mean it to, so it is skipped. A rule that tests whether a bit is set matches less
//! often than its author meant: it is loaded, with a warning, as in Suricata.

use super::load::RefusedRule;
use crate::model::signature::Member;
use bartizan_rules::{Diagnostic, Rule, RuleFile, Severity};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Code of the warning about a variable that rules test and no loaded rule writes.
pub const NEVER_WRITTEN: &str = "D120";
/// Code of the warning about a rule that is skipped because a writer of its variable was left out.
pub const WRITER_LEFT_OUT: &str = "D116";
/// Reason for skipping such rules, in reports.
pub(super) const SKIPPED: &str = "writer left out";

/// Kinds of variables that rules write and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum VariableKind {
    FlowBit,
    XBit,
    HostBit,
    FlowInt,
}

impl VariableKind {
    fn of_keyword(keyword: &str) -> Option<Self> {
        [
            ("flowbits", VariableKind::FlowBit),
            ("xbits", VariableKind::XBit),
            ("hostbits", VariableKind::HostBit),
            ("flowint", VariableKind::FlowInt),
        ]
        .into_iter()
        .find_map(|(name, kind)| keyword.eq_ignore_ascii_case(name).then_some(kind))
    }

    const fn name(self) -> &'static str {
        match self {
            VariableKind::FlowBit => "flowbit",
            VariableKind::XBit => "xbit",
            VariableKind::HostBit => "hostbit",
            VariableKind::FlowInt => "flowint",
        }
    }
}

/// The variables that rules write and read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Variable {
    kind: VariableKind,
    name: String,
}

impl core::fmt::Display for Variable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} `{}`", self.kind.name(), self.name)
    }
}

/// The use that an option makes of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Writes,
    /// Holds if the variable is written.
    AsksSet,
    /// Holds if the variable is not written.
    AsksUnset,
}

/// The uses of one option.
fn uses_of(keyword: &str, value: &[u8]) -> Vec<(Variable, Use)> {
    let Some(kind) = VariableKind::of_keyword(keyword) else { return Vec::new() };
    let text = String::from_utf8_lossy(value);
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let (name, command, operand) = match (kind, parts.as_slice()) {
        (VariableKind::FlowInt, [name, command, rest @ ..]) => (*name, *command, rest.first().copied()),
        (VariableKind::FlowBit | VariableKind::XBit | VariableKind::HostBit, [command, name, ..]) => {
            (*name, *command, None)
        }
        _ => return Vec::new(),
    };
    let usage = match (kind, command) {
        (VariableKind::FlowInt, "=" | "+" | "-") => Use::Writes,
        (VariableKind::FlowInt, "notset" | "isnotset") => Use::AsksUnset,
        (VariableKind::FlowInt, _) => Use::AsksSet,
        (_, "set" | "toggle") => Use::Writes,
        (_, "isset") => Use::AsksSet,
        (_, "isnotset") => Use::AsksUnset,
        _ => return Vec::new(),
    };
    let variable = |name: &str| Variable { kind, name: name.trim().to_owned() };
    // A flowint may be compared with another one.
    let other = operand.filter(|operand| {
        usage == Use::AsksSet && operand.starts_with(|first: char| !first.is_ascii_digit())
    });
    let names = name.split('|').map(|name| (variable(name), usage));
    names.chain(other.map(|operand| (variable(operand), Use::AsksSet))).collect()
}

/// A compiled rule that uses variables.
struct VariableRule {
    /// Index among the compiled rules.
    place: usize,
    writes: Vec<Variable>,
    asks_set: Vec<Variable>,
    /// Variables that must not be set, each with the finding if the rule is skipped for it.
    asks_unset: Vec<(Variable, Diagnostic)>,
}

/// The uses of variables in all rules that were read.
#[derive(Default)]
pub(super) struct Writers {
    readers: Vec<VariableRule>,
    /// For each variable: finding at the first option that tests whether it is set.
    first: BTreeMap<Variable, Diagnostic>,
    /// Variables that only left-out rules write, with the place of one such rule.
    left_out: HashMap<Variable, String>,
}

/// A rule that is skipped.
pub(super) struct Skipped {
    pub refused: RefusedRule,
    pub finding: Diagnostic,
    /// The rule is a firewall rule.
    pub of_firewall: bool,
}

impl Writers {
    /// Records a compiled rule; `place`: its index.
    pub(super) fn compiled(&mut self, rule: &Rule, place: usize) {
        let mut reader =
            VariableRule { place, writes: Vec::new(), asks_set: Vec::new(), asks_unset: Vec::new() };
        for option in rule.iter() {
            let finding = |code: &'static str| {
                rule.diagnostic(option.option.span, Severity::Warning, code, String::new())
            };
            for (variable, usage) in uses_of(option.keyword(), option.value().unwrap_or_default()) {
                match usage {
                    Use::Writes => reader.writes.push(variable),
                    Use::AsksUnset => reader.asks_unset.push((variable, finding(WRITER_LEFT_OUT))),
                    Use::AsksSet => {
                        if !self.first.contains_key(&variable) {
                            self.first.insert(variable.clone(), finding(NEVER_WRITTEN));
                        }
                        reader.asks_set.push(variable);
                    }
                }
            }
        }
        if !(reader.writes.is_empty() && reader.asks_set.is_empty() && reader.asks_unset.is_empty()) {
            self.readers.push(reader);
        }
    }

    /// Records a rule that was left out.
    pub(super) fn left_out(&mut self, rule: &Rule) {
        for option in rule.iter() {
            let uses = uses_of(option.keyword(), option.value().unwrap_or_default());
            if uses.iter().any(|(_, usage)| *usage == Use::Writes) {
                let at = rule.diagnostic(rule.span, Severity::Warning, WRITER_LEFT_OUT, String::new());
                self.leave_out(uses, &format!("{}:{}", at.file, at.line));
            }
        }
    }

    /// Records the lines of a file that are no rules. Their options are read as far as they can be separated.
    pub(super) fn lines_left_out(&mut self, file: &RuleFile) {
        let mut refused = file.refused.iter().map(|line| line.line).peekable();
        let text = file.source.text();
        let mut start = 0;
        while start < text.len() && refused.peek().is_some() {
            let rest = text.get(start..).unwrap_or_default();
            let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let at = file.source.position(u32::try_from(start).unwrap_or(u32::MAX)).line;
            while refused.next_if(|line| *line < at).is_some() {}
            if refused.next_if_eq(&at).is_some() {
                let line = rest.get(..length).unwrap_or_default();
                for option in line.split(|byte| matches!(byte, b';' | b'(')) {
                    let mut parts = option.splitn(2, |byte| *byte == b':');
                    let keyword = String::from_utf8_lossy(parts.next().unwrap_or_default());
                    let uses = uses_of(keyword.trim(), parts.next().unwrap_or_default());
                    self.leave_out(uses, &format!("{}:{at}", file.source.name()));
                }
            }
            start += length + 1;
        }
    }

    fn leave_out(&mut self, uses: Vec<(Variable, Use)>, place: &str) {
        for (variable, _) in uses.into_iter().filter(|(_, usage)| *usage == Use::Writes) {
            self.left_out.entry(variable).or_insert_with(|| place.to_owned());
        }
    }

    /// Removes rules that test whether a variable is not set when a rule that sets it was left out, and then
    /// rules that test this of variables which the removed rules set. Returns the removed rules, and findings
    /// about variables that the remaining rules read and no rule writes.
    pub(super) fn finish(mut self, built: &mut [Option<Member>]) -> (Vec<Skipped>, Vec<Diagnostic>) {
        // A rule that a newer revision has replaced has an empty place.
        self.readers.retain(|reader| built.get(reader.place).is_some_and(Option::is_some));
        let mut skipped = Vec::new();
        loop {
            let is_wrong = |reader: &VariableRule| {
                reader.asks_unset.iter().any(|(of, _)| self.left_out.contains_key(of))
            };
            let (wrong, good): (Vec<VariableRule>, Vec<VariableRule>) =
                self.readers.into_iter().partition(is_wrong);
            self.readers = good;
            if wrong.is_empty() {
                break;
            }
            for reader in wrong {
                let Some(member) = built.get_mut(reader.place).and_then(Option::take) else { continue };
                let why = reader.asks_unset.into_iter().find_map(|(variable, finding)| {
                    let setter = self.left_out.get(&variable)?;
                    Some(skip(&member, &variable, setter, finding))
                });
                let Some(why) = why else { continue };
                let place = format!("{}:{}", why.finding.file, why.finding.line);
                for variable in reader.writes {
                    self.left_out.entry(variable).or_insert_with(|| place.clone());
                }
                skipped.push(why);
            }
        }
        (skipped, self.unwritten_variables())
    }

    /// Findings about variables that rules read and that no rule writes, or not all rules that should.
    fn unwritten_variables(self) -> Vec<Diagnostic> {
        let written: HashSet<&Variable> = self.readers.iter().flat_map(|reader| &reader.writes).collect();
        let mut asked: HashMap<&Variable, usize> = HashMap::new();
        for reader in &self.readers {
            let variables: HashSet<&Variable> = reader.asks_set.iter().collect();
            variables.into_iter().for_each(|variable| *asked.entry(variable).or_default() += 1);
        }
        let mut findings = Vec::new();
        for (variable, mut finding) in self.first {
            let Some(rules) = asked.get(&variable) else { continue };
            let rules =
                if *rules == 1 { "1 rule tests it".to_owned() } else { format!("{rules} rules test it") };
            let (message, help) = match (written.contains(&variable), self.left_out.get(&variable)) {
                (true, None) => continue,
                (true, Some(setter)) => (
                    format!(
                        "the rule at {setter}, which sets the {variable}, was left out: {rules}, and the test is true less often"
                    ),
                    WHY,
                ),
                (false, Some(setter)) => (
                    format!(
                        "the rule at {setter}, which sets the {variable}, was left out: {rules}, and the test is never true"
                    ),
                    WHY,
                ),
                (false, None) => (
                    format!("no rule sets the {variable}: {rules}, and the test is never true"),
                    "add the rule that sets it, or remove the rules that test it",
                ),
            };
            finding.message = message;
            findings.push(finding.help(help));
        }
        findings
    }
}

/// The advice about rules that were left out.
const WHY: &str = "the finding of that rule says why it was left out";

fn skip(member: &Member, variable: &Variable, setter: &str, mut finding: Diagnostic) -> Skipped {
    finding.message = format!(
        "the rule is skipped: it tests that the {variable} is not set, and the rule at {setter}, which sets it, was left out"
    );
    let finding = finding.help(WHY);
    let refused = RefusedRule {
        id: Some((member.id.gid, member.id.sid)),
        malformed: false,
        file: Arc::clone(&finding.file),
        place: (finding.line, finding.column),
        message: finding.message.clone(),
    };
    Skipped { refused, finding, of_firewall: member.firewall.is_some() }
}

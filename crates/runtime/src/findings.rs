// SPDX-License-Identifier: Apache-2.0
//! Findings about rules as readable lines: malformed rules (no rules, or refused by Suricata as well) in
//! full; rules that only this engine cannot evaluate in sums by protocol and keyword, once there are many.

use crate::log::Note;
use bartizan_detect::keyword::RefusalCode;
use bartizan_detect::ruleset::{NEVER_WRITTEN, SKIPPED_ENTRY, UNKNOWN_CLASS, WRITER_LEFT_OUT};
use bartizan_rules::{Diagnostic, RuleSetReport, Severity, code};

/// Most unsupported rules that are shown one by one; more are summed.
const EACH: u64 = 20;
/// Most malformed rules that a start shows.
const SHOWN: usize = 20;

/// Whether a finding is about a valid rule that cannot be evaluated here.
pub fn is_unsupported(finding: &Diagnostic) -> bool {
    [RefusalCode::UnsupportedKeyword, RefusalCode::UnsupportedProtocol, RefusalCode::NoEffect]
        .iter()
        .any(|code| code.code() == finding.code)
}

/// Whether a finding is about variables: a skipped rule, or a rule that reads a variable which is never set.
fn is_about_variables(finding: &Diagnostic) -> bool {
    matches!(finding.code, NEVER_WRITTEN | WRITER_LEFT_OUT)
}

/// The findings, with unsupported rules as warnings; with `strict` as errors, and list entries that were left
/// out as well.
pub fn graded(findings: &[Diagnostic], strict: bool) -> Vec<Diagnostic> {
    let grade = |finding: &Diagnostic| {
        let mut finding = finding.clone();
        if is_unsupported(&finding) && !strict {
            finding.severity = Severity::Warning;
        }
        if strict && matches!(finding.code, SKIPPED_ENTRY | WRITER_LEFT_OUT) {
            finding.severity = Severity::Error;
        }
        finding
    };
    findings.iter().map(grade).collect()
}

/// Number of findings about list entries that were left out.
pub fn skipped_entries(findings: &[Diagnostic]) -> usize {
    findings.iter().filter(|finding| finding.code == SKIPPED_ENTRY).count()
}

/// Unsupported rules, in a line for each protocol and keyword, with the place of the first.
pub fn sums(report: &RuleSetReport, findings: &[Diagnostic]) -> Vec<String> {
    let first = |name: &str| {
        let named = format!("`{name}`");
        let found = findings.iter().find(|f| is_unsupported(f) && f.message.to_lowercase().contains(&named));
        found.map_or_else(String::new, |f| format!(" (the first at {}:{})", f.file, f.line))
    };
    let protocols = by_count(&report.unsupported_protocols);
    let keywords = by_count(&report.unsupported_keywords);
    let of_protocol = protocols.into_iter().map(|(name, rules)| {
        format!(
            "warning: {} of the protocol `{name}`, for which there is no parser{}",
            count(rules),
            first(name)
        )
    });
    let of_keyword = keywords.into_iter().map(|(name, rules)| {
        format!("warning: {} with `{name}`, which is not evaluated{}", count(rules), first(name))
    });
    of_protocol.chain(of_keyword).collect()
}

fn by_count(map: &std::collections::BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    let mut all: Vec<(&str, u64)> = map.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    all.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    all
}

fn count(rules: u64) -> String {
    if rules == 1 { "1 rule".to_owned() } else { format!("{rules} rules") }
}

/// The unsupported rules in one line.
pub fn sum(report: &RuleSetReport) -> Option<String> {
    let total = report.unsupported_total();
    if total == 0 {
        return None;
    }
    let list = |map| by_count(map).iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>();
    let mut parts = Vec::new();
    for (what, map) in
        [("protocols", &report.unsupported_protocols), ("keywords", &report.unsupported_keywords)]
    {
        if !map.is_empty() {
            parts.push(format!("{what} {}", list(map).join(", ")));
        }
    }
    Some(format!("{} not supported: {}", count(total), parts.join("; ")))
}

/// Notes of a start about rules that were left out, with the reasons.
pub fn report(findings: &[Diagnostic], report: &RuleSetReport) -> Vec<Note> {
    let few = report.unsupported_total() <= EACH;
    let mut graded = graded(findings, false);
    // A start continues without malformed lines of a threshold file: they are reported like rules, but are no
    // rules.
    for finding in graded.iter_mut().filter(|f| f.code == code::BAD_THRESHOLD) {
        finding.severity = Severity::Warning;
    }
    let (unsupported, others): (Vec<_>, Vec<_>) = graded.into_iter().partition(is_unsupported);
    let (variables, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_about_variables);
    let is_told = |f: &Diagnostic| {
        f.severity == Severity::Error || [UNKNOWN_CLASS, SKIPPED_ENTRY, code::BAD_THRESHOLD].contains(&f.code)
    };
    let mut notes = listed(others.into_iter().filter(is_told).collect());
    let skipped = variables.iter().filter(|f| f.code == WRITER_LEFT_OUT).count() as u64;
    if variables.len() as u64 <= EACH {
        notes.extend(variables.into_iter().map(Note::Finding));
    } else {
        let vain = variables.len() as u64 - skipped;
        notes.push(Note::Line(format!(
            "warning: {} skipped because they read variables whose writing rules were skipped; {vain} \
             variables are read without all the rules that write them; `bartizan check` names them",
            count(skipped)
        )));
    }
    if few {
        notes.extend(unsupported.into_iter().map(Note::Finding));
    } else if let Some(sum) = sum(report) {
        notes.push(Note::Line(format!(
            "warning: {sum}; they are skipped, `bartizan check` shows the details"
        )));
    }
    notes
}

/// Findings that a start shows, and the number of further ones.
pub fn listed(findings: Vec<Diagnostic>) -> Vec<Note> {
    let more = findings.len().saturating_sub(SHOWN);
    let mut notes: Vec<Note> = findings.into_iter().take(SHOWN).map(Note::Finding).collect();
    if more > 0 {
        notes.push(Note::Line(format!("... and {more} more findings; `bartizan check` shows all")));
    }
    notes
}

/// Whether unsupported rules are few enough to be shown one by one.
pub fn are_few(report: &RuleSetReport) -> bool {
    report.unsupported_total() <= EACH
}

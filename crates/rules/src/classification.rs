// SPDX-License-Identifier: Apache-2.0
//! Classification files: `config classification: name,description,priority`, a line each. Source:
//! Suricata 8's classification.config and user guide, "Classtype".

use std::collections::HashMap;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, code};
use crate::source::{SourceFile, Span};

/// One classification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classification {
    /// Number, from 1 in the order of the file.
    pub id: u16,
    /// Name in lower case.
    pub name: String,
    /// Description in alerts.
    pub description: String,
    /// Priority of its rules without one of their own; 1 is the highest.
    pub priority: u32,
    /// Place in the file.
    pub span: Span,
}

/// The classifications of a file.
#[derive(Clone, Debug)]
pub struct Classifications {
    /// The file.
    pub source: Arc<SourceFile>,
    /// Classifications in the order of the file.
    pub entries: Vec<Classification>,
    /// Findings: lines that could not be read, repeated names.
    pub diagnostics: Vec<Diagnostic>,
    by_name: HashMap<String, usize>,
}

impl Classifications {
    /// The names, in lower case.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|class| class.name.as_str())
    }

    /// The classification with a name, in any letter case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Classification> {
        self.by_name.get(&name.to_ascii_lowercase()).and_then(|i| self.entries.get(*i))
    }
}

/// The default classifications without a file, which are those that Suricata ships.
#[must_use]
pub fn builtin_classifications() -> Classifications {
    parse_classifications(
        *include_bytes!("../data/classification.config"),
        "classification.config (built in)",
    )
}

/// Reads a classification file. A line that cannot be read is left out with a diagnostic; of repeated names
/// the first counts.
#[must_use]
pub fn parse_classifications(text: impl Into<Vec<u8>>, name: &str) -> Classifications {
    let source = Arc::new(SourceFile::settings(name, text));
    let (mut entries, mut diagnostics) = (Vec::<Classification>::new(), Vec::new());
    let mut by_name = HashMap::new();
    let mut id = 0u16;
    for span in source.settings_lines() {
        match entry(&source, span) {
            Ok((name, description, priority)) => {
                // As in Suricata, a repeated name uses up its number.
                id = id.saturating_add(1);
                if by_name.contains_key(&name) {
                    let message =
                        format!("the classification `{name}` is defined twice; the first definition applies");
                    diagnostics.push(Diagnostic::warning(&source, span, code::DUPLICATE_ENTRY, message));
                    continue;
                }
                by_name.insert(name.clone(), entries.len());
                entries.push(Classification { id, name, description, priority, span });
            }
            Err((at, message)) => diagnostics.push(
                Diagnostic::error(&source, at, code::BAD_CLASSIFICATION, message)
                    .help("a line has the form: config classification: name,description,priority"),
            ),
        }
    }
    Classifications { source, entries, diagnostics, by_name }
}

type ClassificationEntry = (String, String, u32);

fn entry(source: &SourceFile, span: Span) -> Result<ClassificationEntry, (Span, &'static str)> {
    let text = source.bytes(span);
    let (body, at) =
        config_body(text, "classification", false).ok_or((span, "this is not a classification"))?;
    let first = memchr::memchr(b',', body).ok_or((span, "the description is missing"))?;
    let last = memchr::memrchr(b',', body).filter(|last| *last > first);
    let last = last.ok_or((span, "the priority is missing"))?;
    let part = |from: usize, to: usize| body.get(from..to).unwrap_or_default().trim_ascii();
    let place = |from: usize, to: usize| span.slice(at + from, at + to);
    let name = name(part(0, first))
        .ok_or((place(0, first), "the name is a letter, then letters, digits, `-`, `_`"))?;
    let description = String::from_utf8_lossy(part(first + 1, last)).into_owned();
    if description.is_empty() {
        return Err((place(first, last + 1), "the description is empty"));
    }
    let digits = part(last + 1, body.len());
    let number = core::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
    let priority = number.and_then(|d| d.parse().ok());
    let priority = priority.ok_or((place(last + 1, body.len()), "the priority is a number"))?;
    Ok((name, description, priority))
}

/// A name in these files, in lower case; `None` if it is invalid.
pub(crate) fn name(text: &[u8]) -> Option<String> {
    let word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if !text.first()?.is_ascii_alphabetic() || !text.iter().all(word) {
        return None;
    }
    core::str::from_utf8(text).ok().map(str::to_ascii_lowercase)
}

/// The text after `config WORD:` and its offset. `blank`: a blank must follow `config`.
pub(crate) fn config_body<'a>(text: &'a [u8], word: &str, blank: bool) -> Option<(&'a [u8], usize)> {
    let after = text.strip_prefix(b"config")?;
    let rest = after.trim_ascii_start();
    if blank && rest.len() == after.len() {
        return None;
    }
    let rest = rest.strip_prefix(word.as_bytes())?.trim_ascii_start().strip_prefix(b":")?;
    let body = rest.trim_ascii_start();
    Some((body, text.len() - body.len()))
}

#[cfg(test)]
mod tests {
    /// Without a file alerts have the same severities and categories as in Suricata.
    #[test]
    fn the_built_in_classes_are_those_that_rules_are_written_with() {
        let classes = super::builtin_classifications();
        assert!(classes.diagnostics.is_empty(), "{:?}", classes.diagnostics);
        let class = |name| classes.get(name).map(|c| (c.description.as_str(), c.priority));
        assert_eq!(class("trojan-activity"), Some(("A Network Trojan was detected", 1)));
        assert_eq!(class("bad-unknown"), Some(("Potentially Bad Traffic", 2)));
        assert_eq!(class("not-suspicious"), Some(("Not Suspicious Traffic", 3)));
        assert_eq!(classes.entries.len(), 43);
    }

    use super::*;

    #[test]
    fn lines_and_errors() {
        let text = "# c\n\nconfig classification: Bad-Unknown,Potentially, Bad Traffic, 2\n\
                    config classification: bad-unknown,again,3\r\n  config classification:a,b,1\n\
                    config classification: x,y\nconfig classification: 1x,y,1\nconfig classification: x,y,z\nfoo\n";
        let c = parse_classifications(text.as_bytes(), "classification.config");
        let names: Vec<_> = c.entries.iter().map(|e| (e.id, &*e.name, &*e.description, e.priority)).collect();
        assert_eq!(names, [(1, "bad-unknown", "Potentially, Bad Traffic", 2), (3, "a", "b", 1)]);
        let places: Vec<_> = c.diagnostics.iter().map(|d| (d.code, d.line, d.column)).collect();
        assert_eq!(
            places,
            [("R033", 4, 1), ("R030", 6, 1), ("R030", 7, 24), ("R030", 8, 28), ("R030", 9, 1)]
        );
        assert_eq!(c.get("BAD-unknown").map(|c| c.priority), Some(2));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Reference files: `config reference: system prefix`, a line each; the prefix precedes the identifier in a
//! rule. Source: Suricata 8's reference.config and user guide, "Reference".

use std::collections::HashMap;
use std::sync::Arc;

use crate::classification::{config_body, name};
use crate::diagnostic::{Diagnostic, code};
use crate::source::{SourceFile, Span};

/// A reference system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceSystem {
    /// Name in lower case.
    pub name: String,
    /// Text before an identifier.
    pub prefix: String,
    /// Place in the file.
    pub span: Span,
}

/// The systems of a file.
#[derive(Clone, Debug)]
pub struct ReferenceSystems {
    /// The file.
    pub source: Arc<SourceFile>,
    /// Systems in the order of the file.
    pub entries: Vec<ReferenceSystem>,
    /// Findings: lines that could not be read.
    pub diagnostics: Vec<Diagnostic>,
    by_name: HashMap<String, usize>,
}

impl ReferenceSystems {
    /// The system with a name, in any letter case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ReferenceSystem> {
        self.by_name.get(&name.to_ascii_lowercase()).and_then(|i| self.entries.get(*i))
    }
}

/// The default systems without a file, which are those that Suricata ships.
#[must_use]
pub fn builtin_references() -> ReferenceSystems {
    parse_references(*include_bytes!("../data/reference.config"), "reference.config (built in)")
}

/// Reads a reference file. A line that cannot be read is left out with a diagnostic; of repeated names the
/// first counts.
#[must_use]
pub fn parse_references(text: impl Into<Vec<u8>>, file: &str) -> ReferenceSystems {
    let source = Arc::new(SourceFile::settings(file, text));
    let (mut entries, mut diagnostics) = (Vec::<ReferenceSystem>::new(), Vec::new());
    let mut by_name = HashMap::new();
    for span in source.settings_lines() {
        let Some((name, prefix)) = entry(source.bytes(span)) else {
            diagnostics.push(
                Diagnostic::error(
                    &source,
                    span,
                    code::BAD_REFERENCE_CONFIG,
                    "this defines no reference system",
                )
                .help("a line has the form: config reference: name https://prefix.example/"),
            );
            continue;
        };
        if by_name.contains_key(&name) {
            let message =
                format!("the reference system `{name}` is defined twice; the first definition applies");
            diagnostics.push(Diagnostic::warning(&source, span, code::DUPLICATE_ENTRY, message));
            continue;
        }
        by_name.insert(name.clone(), entries.len());
        entries.push(ReferenceSystem { name, prefix, span });
    }
    ReferenceSystems { source, entries, diagnostics, by_name }
}

fn entry(text: &[u8]) -> Option<(String, String)> {
    let (body, _) = config_body(text, "reference", true)?;
    let at = body.iter().position(u8::is_ascii_whitespace)?;
    let (system, prefix) = body.split_at_checked(at)?;
    Some((name(system)?, String::from_utf8_lossy(prefix.trim_ascii()).into_owned()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_built_in_systems_are_those_that_rules_are_written_with() {
        let systems = super::builtin_references();
        assert!(systems.diagnostics.is_empty(), "{:?}", systems.diagnostics);
        assert_eq!(systems.get("url").map(|s| s.prefix.as_str()), Some("https://"));
        assert!(systems.get("cve").is_some() && systems.get("et").is_some());
    }

    use super::*;

    #[test]
    fn lines_and_errors() {
        let text = "config reference: CVE  https://cve.example/?n=\n#x\nconfig reference: bid\thttp://b/\n\
                    config_ reference: two http://two\nconfig reference: four\nconfig reference five http://5\n\
                    config reference: cve http://again\n";
        let r = parse_references(text.as_bytes(), "reference.config");
        let all: Vec<_> = r.entries.iter().map(|e| (&*e.name, &*e.prefix)).collect();
        assert_eq!(all, [("cve", "https://cve.example/?n="), ("bid", "http://b/")]);
        assert_eq!(r.diagnostics.iter().map(|d| d.line).collect::<Vec<_>>(), [4, 5, 6, 7]);
        assert_eq!(r.get("Cve").map(|s| &*s.prefix), Some("https://cve.example/?n="));
    }
}

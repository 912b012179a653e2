// SPDX-License-Identifier: Apache-2.0
//! Findings about rules whose `classtype` is not defined.

use bartizan_rules::{Classifications, Diagnostic, Rule, Severity, suggest};
use std::collections::BTreeMap;

/// Code of the warning about a class that is not defined.
pub const UNKNOWN_CLASS: &str = "D113";

/// Undefined names of `classtype`; each gives one warning, at the first rule with it.
#[derive(Default)]
pub(crate) struct UnknownClasses(BTreeMap<String, (Diagnostic, u64)>);

impl UnknownClasses {
    /// Adds a rule with an undefined class. Returns the description that Suricata 8.0.8 writes: none for the
    /// first rule with the class, this one for the others.
    pub(crate) fn add(&mut self, rule: &Rule, name: &str) -> String {
        if let Some((_, rules)) = self.0.get_mut(name) {
            *rules += 1;
            return "Unknown Classtype".to_owned();
        }
        let place = rule.meta.classtype.unwrap_or(rule.span);
        let finding = rule.diagnostic(place, Severity::Warning, UNKNOWN_CLASS, String::new());
        self.0.insert(name.to_owned(), (finding, 1));
        String::new()
    }

    pub(crate) fn finish(self, known: Option<&Classifications>) -> impl Iterator<Item = Diagnostic> {
        self.0.into_iter().map(move |(name, (mut finding, rules))| {
            let (count, have) =
                if rules == 1 { ("1 rule".to_owned(), "has") } else { (format!("{rules} rules"), "have") };
            finding.message = format!("no class is called `{name}`: {count} of it {have} severity 3");
            let near = known.and_then(|known| suggest(&name, known.names()));
            let add = "add it to the file that `classification-file` names".to_owned();
            finding.help(near.map_or(add, |near| format!("did you mean `{near}`?")))
        })
    }
}

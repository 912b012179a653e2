// SPDX-License-Identifier: Apache-2.0
//! Exact counts of loaded, refused and skipped rules, for the summary and for `--json`. The seen ones are
//! always the sum of these three. Rules that are disabled in the file (commented out) are not among them and
//! have their own count.

use std::collections::{BTreeMap, HashMap};

use bartizan_base::RuleId;
use serde::Serialize;

use crate::parse::RuleFile;
use crate::rule::Rule;

/// Counts over all rule files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleSetReport {
    /// Files read.
    pub files: u64,
    /// Rules that run, with every keyword evaluated.
    pub loaded: u64,
    /// Rules that could not be loaded, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Refused rules that are valid and need a protocol without a parser in this engine, by protocol.
    pub unsupported_protocols: BTreeMap<String, u64>,
    /// Refused rules that are valid and need a keyword that this engine does not evaluate, by keyword.
    pub unsupported_keywords: BTreeMap<String, u64>,
    /// Rules left out on purpose: their requirements are not met, a newer revision exists, or they test
    /// whether a variable is not set when a rule that sets it was left out.
    pub skipped: u64,
    /// Skipped rules by reason.
    pub skipped_reasons: BTreeMap<String, u64>,
    /// Rules that are commented out.
    pub disabled: u64,
}

impl RuleSetReport {
    /// An empty report.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the refused and disabled rules of a file. The rules that could be read are counted one by one
    /// when they are loaded, refused or skipped.
    pub fn add_file(&mut self, file: &RuleFile) {
        self.files += 1;
        self.disabled += u64::from(file.counts.disabled);
        for refused in &file.refused {
            self.refuse(title(refused.code));
        }
    }

    /// Counts a rule that runs.
    pub fn load(&mut self) {
        self.loaded += 1;
    }

    /// Counts a refused rule. Reasons are few and fixed: "unknown keyword", never the rule's text.
    pub fn refuse(&mut self, reason: &str) {
        add(&mut self.refused, reason);
    }

    /// Counts a refused rule that is valid and needs a missing protocol.
    pub fn refuse_protocol(&mut self, reason: &str, protocol: &str) {
        self.refuse(reason);
        add(&mut self.unsupported_protocols, protocol);
    }

    /// Counts a refused rule that is valid and has a keyword that is not evaluated.
    pub fn refuse_keyword(&mut self, reason: &str, keyword: &str) {
        self.refuse(reason);
        add(&mut self.unsupported_keywords, keyword);
    }

    /// Adds the counts of another set.
    pub fn absorb(&mut self, other: &RuleSetReport) {
        self.files += other.files;
        self.loaded += other.loaded;
        self.skipped += other.skipped;
        self.disabled += other.disabled;
        for (mine, others) in [
            (&mut self.refused, &other.refused),
            (&mut self.skipped_reasons, &other.skipped_reasons),
            (&mut self.unsupported_protocols, &other.unsupported_protocols),
            (&mut self.unsupported_keywords, &other.unsupported_keywords),
        ] {
            for (name, count) in others {
                *mine.entry(name.clone()).or_default() += count;
            }
        }
    }

    /// Counts a rule that is left out on purpose.
    pub fn skip(&mut self, reason: &str) {
        self.skipped += 1;
        add(&mut self.skipped_reasons, reason);
    }

    /// Counts a rule as left out on purpose that was counted as running before.
    pub fn skip_loaded(&mut self, reason: &str) {
        self.loaded = self.loaded.saturating_sub(1);
        self.skip(reason);
    }

    /// All refused rules.
    #[must_use]
    pub fn refused_total(&self) -> u64 {
        self.refused.values().sum()
    }

    /// Number of refused rules that are valid and need something that this engine lacks.
    #[must_use]
    pub fn unsupported_total(&self) -> u64 {
        self.unsupported_protocols.values().chain(self.unsupported_keywords.values()).sum()
    }

    /// Number of refused lines that are no rules, or that Suricata refuses as well.
    #[must_use]
    pub fn malformed_total(&self) -> u64 {
        self.refused_total().saturating_sub(self.unsupported_total())
    }

    /// Number of all rules that are not commented out.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.loaded + self.refused_total() + self.skipped
    }
}

fn add(map: &mut BTreeMap<String, u64>, reason: &str) {
    match map.get_mut(reason) {
        Some(n) => *n += 1,
        None => drop(map.insert(reason.to_owned(), 1)),
    }
}

/// The title of a code of this crate; for another crate's code, the code itself.
#[must_use]
pub fn title(code: &str) -> &str {
    crate::diagnostic::code::ALL.iter().find(|(c, _)| *c == code).map_or(code, |(_, title)| title)
}

/// The treatment of a rule by its gid and sid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicate {
    /// No earlier rule has this gid and sid.
    New,
    /// The rule is newer and replaces the rule with this index.
    Replaces(usize),
    /// The rule is refused: the rule with this index is as new or newer.
    Refused(usize),
}

/// Finds repeated rules. As in Suricata, a higher revision replaces the rule that was loaded before, and any
/// other rule with the same gid and sid is refused.
#[derive(Clone, Debug, Default)]
pub struct Duplicates {
    seen: HashMap<(u32, u32), (u32, usize)>,
}

impl Duplicates {
    /// Judges a rule; `index`: the caller's number for it.
    pub fn judge(&mut self, rule: &Rule, index: usize) -> Duplicate {
        self.judge_id(rule.id(), index)
    }

    /// Judges a rule by its numbers.
    pub fn judge_id(&mut self, id: RuleId, index: usize) -> Duplicate {
        let key = (id.gid, id.sid);
        let Some((rev, before)) = self.seen.get(&key).copied() else {
            self.seen.insert(key, (id.rev, index));
            return Duplicate::New;
        };
        if id.rev <= rev {
            return Duplicate::Refused(before);
        }
        self.seen.insert(key, (id.rev, index));
        Duplicate::Replaces(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_exact() {
        let file = crate::parse_file(
            b"alert tcp any any -> any any (sid:1;)\nalret x\n#alert tcp any any -> any any (sid:2;)\n# c\n"
                .as_slice(),
            "f",
        );
        let mut report = RuleSetReport::new();
        report.add_file(&file);
        report.load();
        report.skip("requires");
        report.refuse("unknown keyword");
        assert_eq!((report.loaded, report.refused_total(), report.skipped, report.disabled), (1, 2, 1, 1));
        assert_eq!(report.seen(), 4);
        report.refuse_protocol("unsupported_protocol", "smtp");
        report.refuse_keyword("unsupported_keyword", "asn1");
        assert_eq!((report.refused_total(), report.unsupported_total(), report.malformed_total()), (4, 2, 2));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["unsupported_protocols"]["smtp"], 1);
        let mut twice = report.clone();
        twice.absorb(&report);
        assert_eq!((twice.seen(), twice.malformed_total(), twice.disabled), (2 * report.seen(), 4, 2));
        assert_eq!(json["refused"]["unknown action"], 1);
        assert_eq!(json["skipped"], 1);
    }

    #[test]
    fn newer_revisions_win() {
        let id = |sid, rev| RuleId { gid: 1, sid, rev };
        let mut d = Duplicates::default();
        assert_eq!(d.judge_id(id(1, 2), 0), Duplicate::New);
        assert_eq!(d.judge_id(id(2, 1), 1), Duplicate::New);
        assert_eq!(d.judge_id(id(1, 2), 2), Duplicate::Refused(0));
        assert_eq!(d.judge_id(id(1, 3), 3), Duplicate::Replaces(0));
        assert_eq!(d.judge_id(id(1, 1), 4), Duplicate::Refused(3));
    }
}

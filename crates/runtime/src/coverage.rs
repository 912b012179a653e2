// SPDX-License-Identifier: Apache-2.0
//! Coverage of a rule feed: its rules by dialect, protocol and keyword, and the missing parts for those that
//! are refused.

use crate::error::Failure;
use crate::generation::BuildOptions;
use crate::{cache, load};
use bartizan_api::content::Contents;
use bartizan_rules::{
    Dialect, Rule, RuleFile, RuleSetReport, dialect_of, dialect_of_action, dialect_of_argument,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// Number of rules with a property, and of those of them that are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleCounts {
    /// Rules, enabled ones only.
    pub rules: u64,
    /// Rules that the engine refuses, for whatever reason.
    pub refused: u64,
}

/// The result for a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FeedCoverage {
    /// Counts of all rules, with the protocols and keywords for which valid rules are refused.
    pub report: RuleSetReport,
    /// Rules by the dialect in which they are written.
    pub dialects: BTreeMap<String, RuleCounts>,
    /// Rules by the protocol of their header, without a hook.
    pub protocols: BTreeMap<String, RuleCounts>,
    /// Rules by keyword.
    pub keywords: BTreeMap<String, RuleCounts>,
}

/// The properties of a rule that are counted.
struct RuleTraits {
    id: Option<(u32, u32)>,
    file: usize,
    line: u32,
    dialect: Option<Dialect>,
    protocol: String,
    keywords: BTreeSet<String>,
}

/// Name of the dialect of rules that show no other one.
const OWN_DIALECT: &str = "Suricata";

/// Loads rule files with the settings of the options, and counts.
///
/// # Errors
/// A file cannot be read, or the settings cannot be used.
pub fn of_feed(options: &BuildOptions, paths: &[PathBuf]) -> Result<FeedCoverage, Failure> {
    let mut contents = Contents::default();
    let mut settings = options.settings(&mut contents)?;
    load::data_folder(&mut settings, Path::new(""));
    let mut warnings = Vec::new();
    let cache = cache::open(options.cache.as_deref(), &mut warnings)?;
    let base = load::Base::with(&settings, cache, load::HOSTS, &mut warnings)?;
    let mut files = load::rule_files(paths, &mut contents)?;
    let found: Vec<RuleTraits> =
        files.iter().enumerate().flat_map(|(index, file)| traits_of(index, file)).collect();
    let names: Vec<String> = files.iter().map(|file| file.source.name().to_string()).collect();
    let loaded = base.rules(&mut files, &settings, &[], &mut Vec::new())?;
    let refused_ids: HashSet<(u32, u32)> = loaded.refused.iter().filter_map(|rule| rule.id).collect();
    let refused_lines: HashSet<(&str, u32)> =
        loaded.refused.iter().map(|rule| (&*rule.file, rule.place.0)).collect();
    let mut coverage = FeedCoverage { report: loaded.rules.report, ..FeedCoverage::default() };
    for rule in found {
        let file = names.get(rule.file).map_or("", String::as_str);
        let is_refused = match rule.id {
            Some(id) => refused_ids.contains(&id),
            None => refused_lines.contains(&(file, rule.line)),
        };
        coverage.count(rule, is_refused);
    }
    Ok(coverage)
}

impl FeedCoverage {
    fn count(&mut self, rule: RuleTraits, is_refused: bool) {
        let add = |counts: &mut RuleCounts| {
            counts.rules += 1;
            counts.refused += u64::from(is_refused);
        };
        let dialect = rule.dialect.map_or_else(|| OWN_DIALECT.to_owned(), |dialect| dialect.to_string());
        add(self.dialects.entry(dialect).or_default());
        add(self.protocols.entry(rule.protocol).or_default());
        for keyword in rule.keywords {
            add(self.keywords.entry(keyword).or_default());
        }
    }
}

/// The rules of a file, and its lines that are none but were meant as rules.
fn traits_of(file: usize, rules: &RuleFile) -> Vec<RuleTraits> {
    let mut found: Vec<RuleTraits> = rules.rules.iter().map(|rule| of_rule(file, rule)).collect();
    let original = rules.source.original();
    let lines: Vec<&[u8]> = original.split(|byte| *byte == b'\n').collect();
    for refused in &rules.refused {
        let line = lines.get((refused.line as usize).saturating_sub(1)).copied().unwrap_or_default();
        let text = String::from_utf8_lossy(line);
        let mut words = text.split_ascii_whitespace();
        let (action, protocol) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let options = text.split_once('(').map_or("", |(_, options)| options);
        let named = options.split(';').filter_map(|option| {
            let (name, value) = option.split_once(':').unwrap_or((option, ""));
            let name = name.trim();
            let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
            (is_name && !name.is_empty()).then(|| (name.to_ascii_lowercase(), value.as_bytes().to_vec()))
        });
        let named: Vec<(String, Vec<u8>)> = named.collect();
        let foreign = named
            .iter()
            .find_map(|(name, value)| dialect_of(name).or_else(|| dialect_of_argument(name, Some(value))));
        found.push(RuleTraits {
            id: None,
            file,
            line: refused.line,
            dialect: dialect_of_action(action).map(|(dialect, _)| dialect).or(foreign),
            protocol: protocol.split(':').next().unwrap_or_default().to_ascii_lowercase(),
            keywords: named.into_iter().map(|(name, _)| name).collect(),
        });
    }
    found
}

fn of_rule(file: usize, rule: &Rule) -> RuleTraits {
    let foreign = rule.iter().find_map(|option| {
        dialect_of(option.keyword()).or_else(|| dialect_of_argument(option.keyword(), option.value()))
    });
    RuleTraits {
        id: Some((rule.id().gid, rule.id().sid)),
        file,
        line: rule.line,
        dialect: foreign,
        protocol: rule.protocol().to_ascii_lowercase(),
        keywords: rule.iter().map(|option| option.keyword().to_ascii_lowercase()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_counted_by_dialect_protocol_and_keyword() {
        let folder = std::env::temp_dir().join(format!("bartizan-coverage-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("feed.rules");
        let text = "alert http any any -> any any (msg:\"a\"; http.uri; content:\"x\"; sid:1;)\n\
                    alert dns any any -> any any (msg:\"b\"; dns.query; content:\"y\"; sid:2;)\n\
                    alert dns any any -> any any (msg:\"c\"; asn1:oversize_length 4; sid:3;)\n\
                    alert snmp any any -> any any (msg:\"d\"; snmp.version:1; sid:4;)\n\
                    alert tcp any any -> any any (msg:\"e\"; content:\"z\", nocase; sid:5;)\n\
                    alert tcp any any -> any any (msg:\"f\"; nothing_known; sid:6;)\n\
                    # alert tcp any any -> any any (msg:\"off\"; sid:7;)\n";
        std::fs::write(&path, text).expect("a file");
        let options = BuildOptions { cache: Some("none".into()), ..BuildOptions::default() };
        let found = of_feed(&options, &[path]).expect("a feed");
        std::fs::remove_dir_all(&folder).expect("the folder");
        let counts = |rules, refused| Some(RuleCounts { rules, refused });
        assert_eq!((found.report.loaded, found.report.refused_total(), found.report.disabled), (2, 4, 1));
        assert_eq!(found.protocols.get("dns").copied(), counts(2, 1));
        assert_eq!(found.protocols.get("tcp").copied(), counts(2, 2));
        assert_eq!(found.keywords.get("asn1").copied(), counts(1, 1));
        assert_eq!(found.keywords.get("sid").copied(), counts(6, 4));
        assert_eq!(found.dialects.get(OWN_DIALECT).copied(), counts(5, 3));
        assert_eq!(found.dialects.get("Snort 3").copied(), counts(1, 1));
        assert_eq!(found.report.unsupported_keywords.get("asn1"), Some(&1));
        assert_eq!(found.report.unsupported_protocols.get("snmp"), Some(&1));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Suggestions for misspelt words: the nearest known word by Damerau-Levenshtein distance.

use std::collections::{HashMap, HashSet};

use crate::diagnostic::{Diagnostic, Severity, code};
use crate::dialect::{dialect_of, dialect_of_argument};
use crate::rule::OptionRef;

/// The candidate nearest to `word`, if a typing error explains the difference: at most a third of the
/// letters, ignoring letter case and the difference of `.` and `_`.
pub fn suggest<'a, S: AsRef<str> + ?Sized + 'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a S>,
) -> Option<&'a str> {
    if word.is_empty() || word.len() > 64 {
        return None;
    }
    let folded = fold(word);
    let limit = (folded.chars().count() / 3).max(1);
    let mut best: Option<(usize, &'a str)> = None;
    for candidate in candidates {
        let candidate = candidate.as_ref();
        if candidate.len().abs_diff(word.len()) > limit {
            continue;
        }
        let distance = strsim::damerau_levenshtein(&folded, &fold(candidate));
        if distance <= limit && best.is_none_or(|(d, c)| (distance, candidate) < (d, c)) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

fn fold(word: &str) -> String {
    word.chars().map(|c| if matches!(c, '.' | '-') { '_' } else { c.to_ascii_lowercase() }).collect()
}

/// The keywords that the caller knows, for look-ups (ignoring letter case, as in Suricata) and for
/// suggestions, which are cached: a rule set of another dialect needs the same few words thousands of times.
#[derive(Debug, Default)]
pub struct KeywordIndex {
    names: HashSet<String>,
    sorted: Vec<String>,
    asked: HashMap<String, Option<String>>,
}

impl KeywordIndex {
    /// Makes an index of the known names, aliases included.
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        let mut sorted: Vec<String> = names.into_iter().map(|n| n.as_ref().to_ascii_lowercase()).collect();
        sorted.sort_unstable();
        sorted.dedup();
        Self { names: sorted.iter().cloned().collect(), sorted, asked: HashMap::new() }
    }

    /// Whether the keyword is known.
    #[must_use]
    pub fn contains(&self, keyword: &str) -> bool {
        self.names.contains(keyword) || self.names.contains(&keyword.to_ascii_lowercase())
    }

    /// The known keyword nearest to a misspelt one.
    pub fn suggest(&mut self, keyword: &str) -> Option<&str> {
        if !self.asked.contains_key(keyword) {
            // A hostile file must not grow the cache without limit; beyond it each word is computed again.
            if self.asked.len() >= 4096 {
                self.asked.clear();
            }
            let found = suggest(keyword, &self.sorted).map(str::to_owned);
            self.asked.insert(keyword.to_owned(), found);
        }
        self.asked.get(keyword).and_then(Option::as_deref)
    }

    /// The finding about an option whose keyword is unknown, or used as in another rule language: names that
    /// language, or the keyword that was meant. `None` if the option is right.
    pub fn check(&mut self, option: &OptionRef<'_>) -> Option<Diagnostic> {
        let keyword = option.keyword();
        let known = self.contains(keyword);
        let argued = dialect_of_argument(keyword, option.value());
        if known && argued.is_none() {
            return None;
        }
        let error =
            |code, message| option.rule.diagnostic(option.option.keyword, Severity::Error, code, message);
        if let Some(dialect) = argued.or_else(|| dialect_of(keyword)) {
            let message = if known {
                format!("`{keyword}` is used as in {dialect}, not as in Suricata")
            } else {
                format!("`{keyword}` is a keyword of {dialect}, not of Suricata")
            };
            let help =
                format!("the rule is written for {dialect}; look for the same rule in a set for Suricata");
            return Some(error(code::OTHER_DIALECT, message).help(help));
        }
        let d = error(code::UNKNOWN_KEYWORD, format!("unknown keyword `{keyword}`"));
        let near = self.suggest(keyword);
        Some(match near {
            Some(near) => d.suggestion(Some(near)),
            None => d.help("no known keyword has a similar name"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let known = ["content", "http.uri", "flow", "flowbits", "sid"];
        assert_eq!(suggest("contnet", known), Some("content"));
        assert_eq!(suggest("http_uir", known), Some("http.uri"));
        assert_eq!(suggest("flowbit", known), Some("flowbits"));
        assert_eq!(suggest("parse_src_ip", known), None);
        let mut index = KeywordIndex::new(known);
        assert!(index.contains("CONTENT"));
        assert_eq!(index.suggest("contnet"), Some("content"));
        assert_eq!(index.suggest("contnet"), Some("content"));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Rule libraries: choices of rules from files, by id, category or metadata. Controller and devices share
//! this code, so that devices run the rules that the controller shows.

use crate::{Rule, RuleFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A choice of rules: those that meet all of the given criteria.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Choice")]
pub struct RuleSelector {
    /// Ids (`sid`).
    #[serde(default)]
    #[schemars(with = "Option<Vec<u32>>")]
    pub sids: Option<BTreeSet<u32>>,
    /// Category (`classtype`).
    #[serde(default)]
    pub category: Option<String>,
    /// Metadata, all entries of which must be present: `{"attack_target": "Server"}`.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

impl RuleSelector {
    /// Whether a rule meets the criteria.
    #[must_use]
    pub fn fits(&self, rule: &Rule) -> bool {
        let has = |key: &str, value: &str| {
            rule.metadata().any(|(k, v)| k == key.as_bytes() && v == value.as_bytes())
        };
        self.sids.as_ref().is_none_or(|sids| sids.contains(&rule.meta.id.sid))
            && self.category.as_deref().is_none_or(|wanted| rule.classtype() == Some(wanted))
            && self.metadata.iter().all(|(key, value)| has(key, value))
    }
}

/// Whether a library contains a rule: some choice selects it (with no choices, all rules are selected), and
/// its id is not excluded.
#[must_use]
pub fn takes(choose: &[RuleSelector], except: &BTreeSet<u32>, rule: &Rule) -> bool {
    let chosen = choose.is_empty() || choose.iter().any(|choice| choice.fits(rule));
    chosen && !except.contains(&rule.meta.id.sid)
}

/// Places of rules by their ids: index of the file and offset.
pub type Places = HashMap<u32, (usize, u32)>;

/// Places of the rules that choices select from files. Of two rules with one id, the rule in the first of the
/// files counts, and within a file the first one.
#[must_use]
pub fn places(files: &[RuleFile], choose: &[RuleSelector]) -> Places {
    let mut places = Places::new();
    for (at, file) in files.iter().enumerate() {
        for rule in file.rules.iter().filter(|rule| takes(choose, &BTreeSet::new(), rule)) {
            places.entry(rule.meta.id.sid).or_insert((at, rule.span.start));
        }
    }
    places
}

/// Reduces files to the rules of a library, at the places given by [`places`].
pub fn choose(files: &mut [RuleFile], choose: &[RuleSelector], except: &BTreeSet<u32>) {
    let mut places = places(files, choose);
    places.retain(|sid, _| !except.contains(sid));
    keep(files, &places, choose.is_empty());
}

/// Reduces files to the rules at these places. Lines that are no rules belong to no choice, and stay only if
/// `everything` is selected.
pub fn keep(files: &mut [RuleFile], places: &Places, everything: bool) {
    for (at, file) in files.iter_mut().enumerate() {
        file.rules.retain(|rule| places.get(&rule.meta.id.sid) == Some(&(at, rule.span.start)));
        file.counts.rules = u32::try_from(file.rules.len()).unwrap_or(u32::MAX);
        if !everything {
            file.refused.clear();
            file.counts.refused = 0;
            file.diagnostics.clear();
            file.diagnostics_dropped = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_file;

    const FILE: &str = "\
alert tcp any any -> any any (msg:\"a\"; classtype:web; metadata:for server, since 1; sid:1;)
# alert tcp any any -> any any (sid:2;)
alert tcp any any -> any any (msg:\"c\"; classtype:web; sid:3;)
alert tcp any
alert tcp any any -> any any (msg:\"again\"; sid:1;)
alert tcp any any -> any any (msg:\"e\"; metadata:for server; sid:5;)
";

    fn chosen(choices: &str, except: &[u32]) -> (Vec<(usize, u32, u32)>, u32) {
        let choices: Vec<RuleSelector> = serde_json::from_str(choices).unwrap();
        let other = "alert tcp any any -> any any (sid:3;)\nalert tcp any any -> any any (sid:7;)\n";
        let mut files = [parse_file(FILE, "a"), parse_file(other, "b")];
        choose(&mut files, &choices, &except.iter().copied().collect());
        let all = files.iter().enumerate().flat_map(|(at, file)| {
            file.rules
                .iter()
                .map(move |rule| (at, file.source.position(rule.span.start).line, rule.meta.id.sid))
        });
        (all.collect(), files.iter().map(|file| file.counts.refused).sum())
    }

    #[test]
    fn rules_are_chosen_by_id_category_and_metadata_and_keep_their_places() {
        assert_eq!(chosen("[]", &[]), (vec![(0, 1, 1), (0, 3, 3), (0, 6, 5), (1, 2, 7)], 1));
        assert_eq!(chosen("[]", &[1, 7]), (vec![(0, 3, 3), (0, 6, 5)], 1));
        assert_eq!(chosen(r#"[{"category": "web"}]"#, &[]), (vec![(0, 1, 1), (0, 3, 3)], 0));
        let both = r#"[{"category": "web", "metadata": {"for": "server"}}, {"sids": [7, 9]}]"#;
        assert_eq!(chosen(both, &[]), (vec![(0, 1, 1), (1, 2, 7)], 0));
        assert_eq!(chosen(r#"[{"sids": []}]"#, &[]), (vec![], 0));
        assert_eq!(chosen(r#"[{"metadata": {"for": "clients"}}]"#, &[]), (vec![], 0));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The difference between two states of a feed, rule by rule.

use super::disabled_rules;
use crate::parse::RuleFile;
use crate::rule::Rule;
use bartizan_base::RuleId;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A rule with its place in one state.
struct StateRule<'f> {
    rule: &'f Rule,
    is_enabled: bool,
}

/// A rule that is not the same in both states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleChange {
    /// Generator.
    pub gid: u32,
    /// Signature.
    pub sid: u32,
    /// Revisions before and after; `None`: the rule is not in that state.
    pub revisions: (Option<u32>, Option<u32>),
    /// Message, that of the later state if it has one.
    pub msg: String,
    /// Whether the rule is enabled before and after.
    pub enabled: (bool, bool),
    /// The parts that differ: `action`, `header`, names of keywords.
    pub parts: Vec<String>,
}

/// The difference between two states of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FeedDiff {
    /// Rules that only the later state has, disabled ones included.
    pub added: Vec<RuleChange>,
    /// Rules that only the earlier state has.
    pub removed: Vec<RuleChange>,
    /// Rules that the later state enables, and maybe changes.
    pub enabled: Vec<RuleChange>,
    /// Rules that the later state disables, and maybe changes.
    pub disabled: Vec<RuleChange>,
    /// Rules that are on, or off, in both states, and differ.
    pub changed: Vec<RuleChange>,
    /// Number of rules that are the same in both states.
    pub same: u64,
}

/// Compares two states of a feed. Of several rules with one number the latest revision counts, an enabled one
/// before a disabled one.
#[must_use]
pub fn diff(before: &[RuleFile], after: &[RuleFile]) -> FeedDiff {
    let off_before: Vec<RuleFile> = before.iter().map(disabled_rules).collect();
    let off_after: Vec<RuleFile> = after.iter().map(disabled_rules).collect();
    let (before, after) = (state(before, &off_before), state(after, &off_after));
    let mut result = FeedDiff::default();
    for id in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        match (before.get(id), after.get(id)) {
            (Some(old), Some(new)) => result.compare(old, new),
            (None, Some(new)) => result.added.push(change(None, Some(new), Vec::new())),
            (old, None) => result.removed.push(change(old, None, Vec::new())),
        }
    }
    result
}

impl FeedDiff {
    fn compare(&mut self, old: &StateRule<'_>, new: &StateRule<'_>) {
        let parts = parts(old.rule, new.rule);
        let list = match (old.is_enabled, new.is_enabled) {
            (false, true) => &mut self.enabled,
            (true, false) => &mut self.disabled,
            _ if parts.is_empty() => {
                self.same += 1;
                return;
            }
            _ => &mut self.changed,
        };
        list.push(change(Some(old), Some(new), parts));
    }
}

/// The rules of a state by number.
fn state<'f>(on: &'f [RuleFile], off: &'f [RuleFile]) -> BTreeMap<(u32, u32), StateRule<'f>> {
    let mut rules: BTreeMap<(u32, u32), StateRule<'f>> = BTreeMap::new();
    for (files, is_enabled) in [(off, false), (on, true)] {
        for rule in files.iter().flat_map(|file| &file.rules) {
            let RuleId { gid, sid, rev } = rule.id();
            let is_newer = rules
                .get(&(gid, sid))
                .is_none_or(|known| (is_enabled, rev) >= (known.is_enabled, known.rule.id().rev));
            if is_newer {
                rules.insert((gid, sid), StateRule { rule, is_enabled });
            }
        }
    }
    rules
}

fn change(old: Option<&StateRule<'_>>, new: Option<&StateRule<'_>>, parts: Vec<String>) -> RuleChange {
    let rule = new.or(old).map(|found| found.rule);
    let is_on = |state: Option<&StateRule<'_>>| state.is_some_and(|found| found.is_enabled);
    let revision = |state: Option<&StateRule<'_>>| state.map(|found| found.rule.id().rev);
    RuleChange {
        gid: rule.map_or(1, |rule| rule.id().gid),
        sid: rule.map_or(0, |rule| rule.id().sid),
        revisions: (revision(old), revision(new)),
        msg: rule.map_or(String::new(), |rule| String::from_utf8_lossy(&rule.msg()).into_owned()),
        enabled: (is_on(old), is_on(new)),
        parts,
    }
}

/// The parts in which two rules differ, each once.
fn parts(old: &Rule, new: &Rule) -> Vec<String> {
    let mut parts = Vec::new();
    let actions = |rule: &Rule| rule.bytes(rule.actions).to_ascii_lowercase();
    if actions(old) != actions(new) {
        parts.push("action".to_owned());
    }
    let header = |rule: &Rule| {
        let (src, dst) = (rule.src.expr.to_string(), rule.dst.expr.to_string());
        let ports = (rule.src_port.expr.to_string(), rule.dst_port.expr.to_string());
        (rule.bytes(rule.protocol).to_ascii_lowercase(), src, dst, ports, rule.direction)
    };
    if header(old) != header(new) {
        parts.push("header".to_owned());
    }
    let (before, after) = (options(old), options(new));
    for keyword in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        if before.get(keyword) != after.get(keyword) {
            parts.push(keyword.clone());
        }
    }
    // A content belongs to the buffer before it.
    let is_in_order = old.iter().map(|it| it.keyword()).eq(new.iter().map(|it| it.keyword()));
    if parts.is_empty() && !is_in_order {
        parts.push("order".to_owned());
    }
    parts
}

/// The values of each keyword, in their order.
fn options(rule: &Rule) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut options: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for option in rule.iter() {
        let value = option.value().unwrap_or_default().trim_ascii().to_vec();
        options.entry(option.keyword().to_ascii_lowercase()).or_default().push(value);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse_file;

    fn compare(before: &str, after: &str) -> FeedDiff {
        diff(&[parse_file(before, "a")], &[parse_file(after, "b")])
    }

    fn sids(changes: &[RuleChange]) -> Vec<u32> {
        changes.iter().map(|change| change.sid).collect()
    }

    #[test]
    fn every_kind_of_change_is_told() {
        let before = "alert tcp any any -> any any (msg:\"same\"; sid:1; rev:1;)\n\
                      alert tcp any any -> any any (msg:\"gone\"; sid:2;)\n\
                      alert tcp any any -> any any (msg:\"off\"; sid:3;)\n\
                      # alert tcp any any -> any any (msg:\"on\"; sid:4;)\n\
                      alert tcp any any -> any 80 (msg:\"m\"; content:\"a\"; sid:5; rev:1;)\n\
                      #alert tcp any any -> any any (msg:\"stays off\"; sid:7; rev:1;)\n";
        let after = "alert tcp any any ->  any any (msg:\"same\"; sid:1; rev:1;)\n\
                     #alert tcp any any -> any any (msg:\"off\"; sid:3;)\n\
                     drop tcp any any -> any any (msg:\"on\"; sid:4;)\n\
                     alert tcp any any -> any 81 (msg:\"m\"; content:\"b\"; sid:5; rev:2;)\n\
                     alert tcp any any -> any any (msg:\"new\"; sid:6;)\n\
                     #alert tcp any any -> any any (msg:\"stays off\"; sid:7; rev:2;)\n";
        let found = compare(before, after);
        let lists = [&found.added, &found.removed, &found.enabled, &found.disabled, &found.changed];
        assert_eq!(lists.map(|list| sids(list)), [vec![6], vec![2], vec![4], vec![3], vec![5, 7]]);
        assert_eq!(found.same, 1);
        assert_eq!(found.changed[0].parts, ["header", "content", "rev"]);
        assert_eq!(found.changed[0].revisions, (Some(1), Some(2)));
        assert_eq!(found.enabled[0].parts, ["action"]);
        assert_eq!((found.removed[0].msg.as_str(), found.removed[0].enabled), ("gone", (true, false)));
    }

    #[test]
    fn the_order_of_options_counts() {
        let found = compare(
            "alert http any any -> any any (http.uri; content:\"a\"; http.host; content:\"a\"; sid:1;)\n",
            "alert http any any -> any any (http.host; content:\"a\"; http.uri; content:\"a\"; sid:1;)\n",
        );
        assert_eq!(found.changed[0].parts, ["order"]);
    }

    #[test]
    fn the_latest_revision_counts() {
        let rule = |rev, text| format!("alert tcp any any -> any any (msg:\"{text}\"; sid:1; rev:{rev};)\n");
        let found = compare(&[rule(3, "new"), rule(2, "old")].concat(), &rule(3, "new"));
        assert_eq!(found, FeedDiff { same: 1, ..FeedDiff::default() });
    }
}

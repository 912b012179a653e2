// SPDX-License-Identifier: Apache-2.0
//! Rules of a feed as drop rules.
//!
//! A rule that ends its flow also ends the rules that look for what it has marked. So rules whose marks
//! others read stay as they are, and the last rule of such a chain drops.

use crate::parse::RuleFile;
use crate::rule::{OptionRef, ParsedRuleAction, Rule};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The rules that become drop rules.
#[derive(Clone, Debug, Default)]
pub struct DropChoice {
    /// Only rules of these classes; empty: of all.
    pub classes: BTreeSet<String>,
    /// Not these signatures.
    pub except: BTreeSet<u32>,
    /// Rules on events of the engine (`stream-event`) as well.
    pub events: bool,
}

/// The reason why a rule stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptReason {
    /// Its action is not `alert`.
    Action,
    /// It reports nothing (`noalert`): it marks flows for other rules.
    NoAlert,
    /// Other rules read the flowbits or flowints that it writes.
    Marks,
    /// It looks for an event of the engine, which no attack has to cause.
    Event,
    /// It is not among the chosen ones.
    NotChosen,
}

impl KeptReason {
    /// The reason in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            KeptReason::Action => "another action than alert",
            KeptReason::NoAlert => "noalert",
            KeptReason::Marks => "flowbits or flowints that other rules read",
            KeptReason::Event => "events of the engine",
            KeptReason::NotChosen => "not chosen",
        }
    }
}

/// The result for all files.
#[derive(Clone, Debug, Default)]
pub struct DropConversion {
    /// The texts of the files, in their order.
    pub texts: Vec<Vec<u8>>,
    /// Number of rules that drop now.
    pub dropping: u64,
    /// Numbers of the other rules by reason.
    pub kept: BTreeMap<KeptReason, u64>,
}

/// Rewrites the chosen alert rules of files as drop rules. Nothing else of a text changes.
#[must_use]
pub fn to_drop(files: &[RuleFile], choice: &DropChoice) -> DropConversion {
    let readers = MarkReaders::of(files.iter().flat_map(|file| &file.rules));
    let mut result = DropConversion::default();
    for file in files {
        let (original, mut text, mut done) = (file.source.original(), Vec::new(), 0);
        for rule in &file.rules {
            if let Some(reason) = reason_to_keep(rule, choice, &readers) {
                *result.kept.entry(reason).or_default() += 1;
                continue;
            }
            result.dropping += 1;
            let start = file.source.original_offset(rule.actions.start) as usize;
            text.extend_from_slice(original.get(done..start).unwrap_or_default());
            text.extend_from_slice(b"drop");
            done = start + rule.actions.len() as usize;
        }
        text.extend_from_slice(original.get(done..).unwrap_or_default());
        result.texts.push(text);
    }
    result
}

fn reason_to_keep(rule: &Rule, choice: &DropChoice, readers: &MarkReaders) -> Option<KeptReason> {
    if rule.action != ParsedRuleAction::Alert || rule.scope.is_some() || !rule.also.is_empty() {
        return Some(KeptReason::Action);
    }
    if rule.iter().any(|option| is_silent(&option)) {
        return Some(KeptReason::NoAlert);
    }
    if readers.read_by_others(rule) {
        return Some(KeptReason::Marks);
    }
    let events = ["app-layer-event", "decode-event", "stream-event", "engine-event"];
    if !choice.events && events.iter().any(|keyword| rule.option(keyword).is_some()) {
        return Some(KeptReason::Event);
    }
    let is_of_class = choice.classes.is_empty()
        || rule
            .classtype()
            .is_some_and(|class| choice.classes.iter().any(|known| known.eq_ignore_ascii_case(class)));
    let is_chosen = is_of_class && !choice.except.contains(&rule.id().sid);
    (!is_chosen).then_some(KeptReason::NotChosen)
}

fn is_silent(option: &OptionRef<'_>) -> bool {
    let keyword = option.keyword();
    let value = option.value().unwrap_or_default().trim_ascii();
    keyword.eq_ignore_ascii_case("noalert")
        || keyword.eq_ignore_ascii_case("flowbits") && value.eq_ignore_ascii_case(b"noalert")
}

/// A mark of a flow: `b` and the name of a flowbit, or `i` and that of a flowint.
type FlowMark = (char, Vec<u8>);

/// The rules that read each mark, by their position.
struct MarkReaders {
    by_mark: HashMap<FlowMark, BTreeSet<(u32, u32)>>,
}

impl MarkReaders {
    fn of<'r>(rules: impl Iterator<Item = &'r Rule>) -> Self {
        let mut by_mark: HashMap<FlowMark, BTreeSet<(u32, u32)>> = HashMap::new();
        for rule in rules {
            let id = (rule.id().gid, rule.id().sid);
            for (mark, _) in marks(rule).into_iter().filter(|(_, access)| *access == MarkAccess::Reads) {
                by_mark.entry(mark).or_default().insert(id);
            }
        }
        MarkReaders { by_mark }
    }

    /// Whether other rules read a mark that this one writes.
    fn read_by_others(&self, rule: &Rule) -> bool {
        let id = (rule.id().gid, rule.id().sid);
        marks(rule).iter().filter(|(_, access)| *access == MarkAccess::Writes).any(|(mark, _)| {
            self.by_mark.get(mark).is_some_and(|readers| readers.iter().any(|reader| *reader != id))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MarkAccess {
    Reads,
    Writes,
}

/// The marks that a rule reads and writes.
fn marks(rule: &Rule) -> Vec<(FlowMark, MarkAccess)> {
    let mut found = Vec::new();
    for option in rule.iter() {
        let kind = match option.keyword() {
            word if word.eq_ignore_ascii_case("flowbits") => 'b',
            word if word.eq_ignore_ascii_case("flowint") => 'i',
            _ => continue,
        };
        let parts: Vec<&[u8]> =
            option.value().unwrap_or_default().split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
        // flowbits: `set, name`; flowint: `name, +, 1`.
        let (operation, names) = match (kind, parts.as_slice()) {
            ('b', [operation, name, ..]) | ('i', [name, operation, ..]) => (*operation, *name),
            _ => continue,
        };
        let access = match operation.to_ascii_lowercase().as_slice() {
            b"set" | b"unset" | b"toggle" | b"=" | b"+" | b"-" => MarkAccess::Writes,
            _ => MarkAccess::Reads,
        };
        for name in names.split(|byte| matches!(byte, b'|' | b'&')) {
            found.push(((kind, name.trim_ascii().to_vec()), access));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse_file;

    fn convert(text: &str, choice: &DropChoice) -> (String, DropConversion) {
        let result = to_drop(&[parse_file(text, "f.rules")], choice);
        (String::from_utf8(result.texts[0].clone()).unwrap(), result)
    }

    #[test]
    fn only_the_action_changes() {
        let text = "# alert tcp any any -> any any (msg:\"off\"; sid:9;)\r\n\
                    alert tcp any any -> any any (msg:\"alert me\"; \\\n  content:\"alert\"; sid:1;)\n\
                    \n  alert tcp any any -> any any (msg:\"indented\"; sid:8;)\n\
                    ALERT udp any any -> any any (msg:\"b\"; sid:2;)\n\
                    pass tcp any any -> any any (sid:3;)\nnot a rule\n";
        let (out, result) = convert(text, &DropChoice::default());
        let expected = text.replace(
            "\nalert tcp any any -> any any (msg:\"alert",
            "\ndrop tcp any any -> any any (msg:\"alert",
        );
        let expected = expected.replace("ALERT udp", "drop udp");
        assert_eq!(out, expected);
        assert_eq!((result.dropping, result.kept), (2, BTreeMap::from([(KeptReason::Action, 1)])));
    }

    #[test]
    fn chains_of_marks_end_in_a_drop() {
        let text = "alert tcp any any -> any any (flowbits:set,a; flowbits:noalert; sid:1;)\n\
                    alert tcp any any -> any any (flowbits:isset, a ; flowbits:set,b; sid:2;)\n\
                    alert tcp any any -> any any (flowbits:isset,b|c; sid:3;)\n\
                    alert tcp any any -> any any (flowbits:isnotset,once; flowbits:set,once; sid:4;)\n\
                    alert tcp any any -> any any (flowint:n,+,1; sid:5;)\n\
                    alert tcp any any -> any any (flowint: n, >, 3; sid:6;)\n\
                    alert tcp any any -> any any (noalert; sid:7;)\n";
        let (out, result) = convert(text, &DropChoice::default());
        let actions: Vec<&str> = out.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(actions, ["alert", "alert", "drop", "drop", "alert", "drop", "alert"]);
        assert_eq!(result.kept, BTreeMap::from([(KeptReason::NoAlert, 2), (KeptReason::Marks, 2)]));
    }

    #[test]
    fn rules_can_be_chosen() {
        let text = "alert tcp any any -> any any (classtype:trojan-activity; sid:1;)\n\
                    alert tcp any any -> any any (classtype:misc-activity; sid:2;)\n\
                    alert tcp any any -> any any (classtype:trojan-activity; sid:3;)\n\
                    alert tcp any any -> any any (stream-event:est_invalid_ack; classtype:trojan-activity; sid:4;)\n";
        let mut choice = DropChoice { except: [3].into(), ..DropChoice::default() };
        choice.classes.insert("Trojan-Activity".to_owned());
        let (out, result) = convert(text, &choice);
        assert_eq!(out.matches("drop tcp").count(), 1);
        assert_eq!(result.kept, BTreeMap::from([(KeptReason::Event, 1), (KeptReason::NotChosen, 2)]));
        choice.events = true;
        assert_eq!(convert(text, &choice).1.dropping, 2);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Settings that have no effect: one line for those of Suricata that this program has no use for, and a word about each that nobody
//! has, which is misspelt.
//!
//! What is switched off (`enabled: no`, with all beside it) is not missed. Asked for when everything that reads settings is built.

use crate::error::Failure;
use crate::generation::Options;
use bartizan_base::{Settings, parse_bool};
use bartizan_config::suricata;
use std::collections::BTreeMap;

/// Misspelt keys that are named; more are counted.
const NAMED: usize = 5;
/// Sections that the one line names.
const SECTIONS: usize = 8;
/// Outputs that are written.
const OUTPUTS: [&str; 3] = ["eve-log", "file-store", "tls-store"];
/// Read when a rule asks for it.
const LATER: [&str; 2] = ["pcre.match-limit", "pcre.match-limit-recursion"];

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unused {
    /// Settings of Suricata without an effect here.
    known: Vec<String>,
    /// Keys that are no settings: where they come from, and what is said of them.
    unknown: Vec<(String, String)>,
    /// Outputs that are switched on and not written.
    outputs: Vec<String>,
    /// Single settings of the command line that are known and have no effect.
    single: Vec<String>,
}

/// Whether a key is of an output that is not written.
fn is_of_other_output(key: &str) -> bool {
    let name = key.strip_prefix("outputs.").and_then(|rest| rest.split('.').nth(1));
    name.is_some_and(|name| !OUTPUTS.contains(&name))
}

/// Whether a section around the key is switched off.
fn is_off(settings: &Settings, key: &str) -> bool {
    key.match_indices('.').any(|(at, _)| {
        let section = key.get(..at).unwrap_or_default();
        let enabled = settings.get(&format!("{section}.enabled"));
        enabled.and_then(parse_bool) == Some(false)
    })
}

impl Unused {
    /// What the settings have that nothing has read so far.
    pub fn of(settings: &Settings) -> Self {
        let mut found = Unused::default();
        // Before anything is asked here, which counts as read.
        let unread = settings.unread();
        for key in &unread {
            // Without an origin it is the name of an item, or was set by the program.
            let Some(origin) = settings.origin(key) else { continue };
            // Of outputs that are not written it is said as a whole.
            if LATER.contains(&key.as_str()) || is_of_other_output(key) {
                continue;
            }
            if !suricata::is_known(key) {
                found.add_unknown(origin, key, &format!("setting `{key}`"), settings);
            } else if is_off(settings, key) {
            } else if origin == "--set" {
                found.single.push(key.clone());
            } else {
                found.known.push(key.clone());
            }
        }
        found.add_outputs(settings);
        found
    }

    /// `what` it is called for people.
    fn add_unknown(&mut self, origin: &str, key: &str, what: &str, settings: &Settings) {
        let near = suricata::nearest_known(key).filter(|near| settings.get(near).is_none());
        let hint = near.map_or_else(
            || "correct or remove it".to_owned(),
            |near| match near.strip_suffix(".enabled").and_then(|n| n.rsplit('.').next()) {
                // The name of a type of events.
                Some(kind) if !what.contains(key) => format!("did you mean `{kind}`?"),
                _ => format!("did you mean `{near}`?"),
            },
        );
        self.unknown.push((origin.to_owned(), format!("there is no {what}; {hint}")));
    }

    /// Outputs that are on and not written, and types of events that nobody has.
    fn add_outputs(&mut self, settings: &Settings) {
        for item in settings.children("outputs") {
            let section = format!("outputs.{item}");
            for name in settings.children(&section).filter(|name| !OUTPUTS.contains(name)) {
                let on = settings.get(&format!("{section}.{name}.enabled")).and_then(parse_bool);
                if on == Some(true) {
                    self.outputs.push(name.to_owned());
                }
            }
            let types = format!("{section}.eve-log.types");
            for number in settings.children(&types) {
                let key = format!("{types}.{number}");
                let Some(kind) = settings.get(&key) else { continue };
                let setting = format!("{key}.{kind}.enabled");
                if !suricata::is_known(&setting) && !is_off(settings, &key) {
                    let origin = settings.origin(&key).unwrap_or(&types);
                    self.add_unknown(origin, &setting, &format!("type of events `{kind}`"), settings);
                }
            }
        }
    }

    /// What is misspelt, as an error.
    fn error(&self) -> Result<(), Failure> {
        if self.unknown.is_empty() {
            return Ok(());
        }
        Err(Failure::input(
            self.unknown.iter().map(|(at, what)| format!("{at}: {what}")).collect::<Vec<_>>().join("\n"),
        ))
    }

    /// What is to be said, in few lines; `all`: each setting by its name.
    pub fn lines(&self, all: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let shown = if all { self.unknown.len() } else { NAMED };
        lines.extend(self.unknown.iter().take(shown).map(|(at, what)| format!("warning: {at}: {what}")));
        if self.unknown.len() > shown {
            lines.push(format!(
                "warning: ... and {} more settings that there are not; `bartizan check -v` names them",
                self.unknown.len() - shown
            ));
        }
        if !self.outputs.is_empty() {
            let names = self.outputs.join(", ");
            lines.push(format!("warning: outputs that are switched on and not written here: {names}; eve-log, file-store and tls-store are"));
        }
        lines.extend(
            self.single
                .iter()
                .map(|key| format!("warning: --set {key}: this setting of Suricata has no effect here")),
        );
        if all {
            lines
                .extend(self.known.iter().map(|key| format!("note: the setting `{key}` has no effect here")));
        } else if !self.known.is_empty() {
            lines.push(self.summary());
        }
        lines
    }

    /// The settings without effect by their sections.
    fn summary(&self) -> String {
        let mut sections: BTreeMap<&str, usize> = BTreeMap::new();
        for key in &self.known {
            let section = key.split('.').next().unwrap_or(key);
            // What these sections have is of many things.
            let depth = if matches!(section, "app-layer" | "outputs" | "detect") { 3 } else { 1 };
            let end = key.match_indices('.').nth(depth - 1).map_or(key.len(), |(at, _)| at);
            *sections.entry(key.get(..end).unwrap_or(key)).or_default() += 1;
        }
        let mut counts: Vec<(&str, usize)> = sections.into_iter().collect();
        counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let named: Vec<String> =
            counts.iter().take(SECTIONS).map(|(name, count)| format!("{name} {count}")).collect();
        let more = match counts.len().saturating_sub(SECTIONS) {
            0 => String::new(),
            more => format!(" and {more} more sections"),
        };
        format!(
            "note: {} settings of Suricata have no effect here: {}{more}; `bartizan check -v` names them",
            self.known.len(),
            named.join(", ")
        )
    }
}

/// Says what has no effect. With `--strict` a misspelt setting is an error.
pub fn tell(options: &Options, settings: &Settings) -> Result<(), Failure> {
    let unused = Unused::of(settings);
    if options.strict {
        unused.error()?;
    }
    unused.lines(false).iter().for_each(|line| eprintln!("{line}"));
    Ok(())
}

/// As [`tell`], for a check: names all of them if `all`; true if something is misspelt.
pub fn check(settings: &Settings, all: bool) -> bool {
    let unused = Unused::of(settings);
    unused.lines(all).iter().for_each(|line| eprintln!("{line}"));
    !unused.unknown.is_empty()
}

// SPDX-License-Identifier: Apache-2.0
//! Settings without an effect: a message for each whose loss weakens protection ([`UnsupportedSetting`]), one
//! for the event types that are not written, one line for settings of Suricata that this program does not
//! need, and a message for each unknown setting, which is misspelt.
//!
//! Disabled settings (`enabled: no`, with all beside it) are not reported. Called when everything that reads
//! settings is built. With `--strict` all but the one line are errors.

use crate::error::Failure;
use crate::generation::BuildOptions;
use crate::log;
use bartizan_applayer::protocols;
use bartizan_base::{SettingsMap, parse_bool};
use bartizan_config::suricata::{
    self, SettingEffect, UnsupportedSetting, effect_of, is_off, unsupported_settings,
};
use bartizan_events::EveOutputs;
use std::collections::{BTreeMap, BTreeSet};

/// Most misspelt keys that are named; further ones are counted.
const NAMED: usize = 5;
/// Most sections that the one line names.
const SECTIONS: usize = 8;
/// Outputs that are written.
const OUTPUTS: [&str; 3] = ["eve-log", "file-store", "tls-store"];
/// The settings without an effect; see the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unused {
    /// Settings of Suricata without an effect here.
    known: Vec<String>,
    /// Unknown keys: their origins, and messages about them.
    unknown: Vec<(String, String)>,
    /// Settings whose loss weakens protection.
    unsupported: Vec<UnsupportedSetting>,
    /// Outputs that are enabled and not written.
    outputs: Vec<String>,
    /// Outputs with an unsupported destination; the reader of outputs warns of these.
    elsewhere: Vec<String>,
    /// Event types that are enabled and not written, with the place of the first.
    types: Option<(String, BTreeSet<String>)>,
    /// Single settings of the command line that are known and have no effect.
    single: Vec<String>,
}

/// Whether a key belongs to an output that is not written.
fn is_of_other_output(key: &str) -> bool {
    let name = key.strip_prefix("outputs.").and_then(|rest| rest.split('.').nth(1));
    name.is_some_and(|name| !OUTPUTS.contains(&name))
}

/// Whether the value of a key is the name by which an item of a list is known (`outputs.1 = eve-log`).
fn is_name(settings: &SettingsMap, key: &str) -> bool {
    settings.get(key).is_some_and(|name| settings.children(key).any(|child| child == name))
}

/// Whether events of this type are written: those of a protocol are if it has a parser.
fn is_written(kind: &str) -> bool {
    protocols::TABLE.iter().any(|spec| spec.eve_type == Some(kind))
}

/// The place that a list's item, or the first of its options, comes from.
fn origin_of<'s>(settings: &'s SettingsMap, key: &str) -> Option<&'s str> {
    let below = format!("{key}.");
    let mut keys = settings.iter().map(|(known, _)| known);
    settings
        .origin(key)
        .or_else(|| keys.find_map(|known| settings.origin(known).filter(|_| known.starts_with(&below))))
}

impl Unused {
    /// The settings that nothing has read so far. `live`: all that a run reads is read.
    pub fn of(settings: &SettingsMap, live: bool) -> Self {
        let mut found = Unused::default();
        // Before this function reads settings itself, which marks them as read.
        let mut unread = settings.unread();
        unread.retain(|key| match effect_of(key) {
            Some(SettingEffect::WithRules) => false,
            Some(SettingEffect::InRun(_)) => live,
            _ => true,
        });
        found.unsupported = unsupported_settings(settings, &unread);
        for key in &unread {
            // Without an origin the program has set it.
            let Some(origin) = settings.origin(key).filter(|_| !is_name(settings, key)) else { continue };
            // Outputs that are not written are reported as a whole.
            if is_of_other_output(key) || found.unsupported.iter().any(|one| one.covers(key)) {
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
        found.add_types(settings);
        found
    }

    /// Adds the event types that an output enables and that are not written. A malformed value was reported
    /// as an error earlier.
    fn add_types(&mut self, settings: &SettingsMap) {
        let outputs = EveOutputs::from_settings(settings).map(|all| all.outputs).unwrap_or_default();
        for output in outputs {
            let list = format!("outputs.{}.eve-log.types", output.index);
            for item in settings.children(&list) {
                let key = format!("{list}.{item}");
                let Some(kind) = settings.get(&key).or_else(|| settings.children(&key).next()) else {
                    continue;
                };
                let is_asked = output.types.protocols.contains_key(kind);
                let is_known = suricata::is_known(&format!("{key}.{kind}.enabled"));
                let Some(origin) = origin_of(settings, &key) else { continue };
                if is_asked && is_known && !is_written(kind) && !is_off(settings, &format!("{key}.{kind}.x"))
                {
                    let (_, names) = self.types.get_or_insert_with(|| (origin.to_owned(), BTreeSet::new()));
                    names.insert(kind.to_owned());
                }
            }
        }
    }

    /// Adds an unknown key. `what`: its readable name.
    fn add_unknown(&mut self, origin: &str, key: &str, what: &str, settings: &SettingsMap) {
        let near = suricata::nearest_known(key).filter(|near| settings.get(near).is_none());
        let hint = near.map_or_else(
            || "correct or remove it".to_owned(),
            |near| match near.strip_suffix(".enabled").and_then(|n| n.rsplit('.').next()) {
                // The name of an event type.
                Some(kind) if !what.contains(key) => format!("did you mean `{kind}`?"),
                _ => format!("did you mean `{near}`?"),
            },
        );
        self.unknown.push((origin.to_owned(), format!("there is no {what}; {hint}")));
    }

    /// Adds outputs that are enabled and not written, and unknown event types.
    fn add_outputs(&mut self, settings: &SettingsMap) {
        for item in settings.children("outputs") {
            let section = format!("outputs.{item}");
            let filetype = |name: &str| settings.get(&format!("{section}.eve-log.{name}"));
            let is_on = filetype("enabled").and_then(parse_bool) == Some(true);
            if let Some(to) = filetype("filetype").or_else(|| filetype("type"))
                && is_on
                && matches!(to, "redis" | "syslog")
            {
                self.elsewhere.push(format!("{section}.eve-log: events cannot be written to {to}"));
            }
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

    /// Misspelt settings, those whose loss weakens protection, and unwritten events, a line each.
    fn faults(&self) -> Vec<String> {
        let misspelt = self.unknown.iter().map(|(at, what)| format!("{at}: {what}"));
        let unsupported = self.unsupported.iter().map(ToString::to_string);
        misspelt
            .chain(unsupported)
            .chain(self.types_line())
            .chain(self.outputs_line())
            .chain(self.elsewhere.clone())
            .collect()
    }

    /// The faults as an error.
    fn error(&self) -> Result<(), Failure> {
        let faults = self.faults();
        if faults.is_empty() { Ok(()) } else { Err(Failure::input(faults.join("\n"))) }
    }

    /// One line about all event types that are not written.
    fn types_line(&self) -> Option<String> {
        let (origin, names) = self.types.as_ref()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Some(format!(
            "{origin}: event types that are enabled and not written by this program: {}; remove them from `types`",
            names.join(", ")
        ))
    }

    /// One line about all outputs that are not written.
    fn outputs_line(&self) -> Option<String> {
        (!self.outputs.is_empty()).then(|| {
            let names = self.outputs.join(", ");
            format!("outputs that are enabled and not supported: {names}; supported are eve-log, file-store and tls-store")
        })
    }

    /// A few lines for the user; `all`: each setting by its name.
    pub fn lines(&self, all: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let shown = if all { self.unknown.len() } else { NAMED };
        lines.extend(self.unknown.iter().take(shown).map(|(at, what)| format!("warning: {at}: {what}")));
        if self.unknown.len() > shown {
            lines.push(format!(
                "warning: ... and {} more unknown settings; `bartizan check -v` names them",
                self.unknown.len() - shown
            ));
        }
        lines.extend(self.unsupported.iter().map(|one| format!("warning: {one}")));
        let types_and_outputs = self.types_line().into_iter().chain(self.outputs_line());
        lines.extend(types_and_outputs.map(|line| format!("warning: {line}")));
        lines.extend(
            self.single
                .iter()
                .map(|key| format!("warning: --set {key}: this Suricata setting {}", words_of(key))),
        );
        if all {
            lines.extend(self.known.iter().map(|key| format!("note: the setting `{key}` {}", words_of(key))));
        } else if !self.known.is_empty() {
            lines.push(self.summary());
        }
        lines
    }

    /// The settings without an effect, by section.
    fn summary(&self) -> String {
        let works = |key: &&String| !matches!(effect_of(key), None | Some(SettingEffect::None(_)));
        let otherwise = self.known.iter().filter(works).count();
        let mut sections: BTreeMap<&str, usize> = BTreeMap::new();
        for key in &self.known {
            let section = key.split('.').next().unwrap_or(key);
            // These sections have settings about many subjects.
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
            "note: {} Suricata settings have no effect, and {otherwise} work in another way: {}{more}; `bartizan check -v` names them, and how",
            self.known.len() - otherwise,
            named.join(", ")
        )
    }
}

/// The effect of a setting that nothing has read, in words.
fn words_of(key: &str) -> String {
    effect_of(key).map_or_else(|| "has no effect".to_owned(), SettingEffect::words)
}

/// Reports settings without an effect. `live`: in a run. With `--strict`, misspelt, weakening and
/// unwritten ones are an error.
pub fn report(options: &BuildOptions, settings: &SettingsMap, live: bool) -> Result<(), Failure> {
    let unused = Unused::of(settings, live);
    if options.strict {
        unused.error()?;
    }
    unused.lines(false).iter().for_each(|line| log::line(line));
    Ok(())
}

/// As [`report`], for a check: lists all of them if `all`; returns whether something is an error with
/// `--strict`.
pub fn check(settings: &SettingsMap, all: bool) -> bool {
    let unused = Unused::of(settings, false);
    unused.lines(all).iter().for_each(|line| log::line(line));
    !unused.faults().is_empty()
}

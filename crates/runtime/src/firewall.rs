// SPDX-License-Identifier: Apache-2.0
//! Firewall mode in the program: whether it is on, and the files of its rules.
//!
//! The mode never fails open: a file that cannot be read, or a rule that cannot be loaded, ends the start or
//! the reload.

use crate::error::Failure;
use crate::load;
use bartizan_api::content::Contents;
use bartizan_base::SettingsMap;
use bartizan_detect::firewall::{self, Policies};
use bartizan_detect::ruleset::Loaded;
use bartizan_rules::RuleFile;
use std::path::PathBuf;

/// The options, named as Suricata's.
#[derive(Clone, Debug, Default)]
pub struct FirewallOptions {
    /// Firewall mode: only packets that a firewall rule accepts are forwarded, after detection. The rules are
    /// in `firewall.rule-files`.
    pub firewall: bool,
    /// Firewall mode with the rules of this file instead of those that the settings name.
    pub firewall_rules_exclusive: Option<PathBuf>,
}

const ENABLED: &str = "firewall.enabled";

impl FirewallOptions {
    /// Enables the mode in the settings if the options request it.
    pub fn apply(&self, settings: &mut SettingsMap) -> Result<(), Failure> {
        if !self.firewall && self.firewall_rules_exclusive.is_none() {
            return Ok(());
        }
        if settings.get(ENABLED).is_some()
            && !settings.bool(ENABLED, false).map_err(Failure::setting(settings))?
        {
            let place = settings.origin(ENABLED).unwrap_or(ENABLED).to_owned();
            return Err(Failure::input(format!(
                "firewall mode is enabled on the command line and disabled in the settings ({place}); correct one of them"
            )));
        }
        settings.set(ENABLED, "yes");
        Ok(())
    }

    /// The rules, in the order of their evaluation. Without any rule nothing is accepted, which leads to a
    /// warning.
    pub fn files(
        &self,
        settings: &SettingsMap,
        contents: &mut Contents,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<RuleFile>, Failure> {
        if !is_on(settings)? {
            return Ok(Vec::new());
        }
        Policies::from_settings(settings).map_err(Failure::setting(settings))?;
        let folder = settings.get("firewall.rule-path").map(PathBuf::from);
        let keys = settings.children("firewall.rule-files").map(|item| format!("firewall.rule-files.{item}"));
        let named: Vec<PathBuf> = keys.filter_map(|key| settings.get(&key)).map(PathBuf::from).collect();
        let paths: Vec<PathBuf> = match (&self.firewall_rules_exclusive, folder) {
            (Some(only), _) => vec![only.clone()],
            (None, Some(folder)) => named.iter().map(|name| folder.join(name)).collect(),
            (None, None) => {
                if !named.is_empty() {
                    return Err(Failure::input(
                        "`firewall.rule-files` needs `firewall.rule-path`, the folder of these files; set it",
                    ));
                }
                Vec::new()
            }
        };
        if paths.is_empty() {
            warnings.push(
                "firewall mode is enabled without rules: only packets that a policy (`firewall.policies`) \
                 accepts are forwarded; name files in `firewall.rule-files` below `firewall.rule-path`"
                    .to_owned(),
            );
        }
        Ok(load::rule_files(&paths, contents)?.into_iter().map(RuleFile::of_firewall).collect())
    }
}

/// Whether the settings enable the mode.
pub fn is_on(settings: &SettingsMap) -> Result<bool, Failure> {
    firewall::is_enabled(settings).map_err(Failure::setting(settings))
}

/// Refuses rules if some firewall rules are missing: other rules, or none, would decide in their place.
pub fn accepts(loaded: &Loaded) -> Result<(), Failure> {
    match loaded.firewall_refused {
        0 => Ok(()),
        some => Err(Failure::input(missing(some))),
    }
}

/// The message that rules are missing.
pub fn missing(rules: u64) -> String {
    format!(
        "{rules} firewall {} cannot be loaded (see above), and a firewall must not run without some of its rules; correct or remove {}",
        if rules == 1 { "rule" } else { "rules" },
        if rules == 1 { "it" } else { "them" },
    )
}

/// Refuses a run that could not block packets which no rule accepts. `which`: the name of one of several
/// links, as a prefix of the message.
pub fn needs_prevention(settings: &SettingsMap, prevention: bool, which: &str) -> Result<(), Failure> {
    if is_on(settings)? && !prevention {
        return Err(Failure::input(format!(
            "{which}firewall mode drops packets that no rule accepts, which needs an inline link: use \
             `--inline A B` without `--detect`, or switch `firewall.enabled` off"
        )));
    }
    Ok(())
}

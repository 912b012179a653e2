// SPDX-License-Identifier: Apache-2.0
//! A check of settings, rules and policies: they are read as a run reads them, and the findings are returned
//! as values.

use crate::error::Failure;
use crate::generation::{BuildOptions, Builder, reported};
use crate::reload::Inventory;
use crate::{cache, control, findings, firewall, input, load, plan, rule_files, stats, unused};
use bartizan_api::content::{ContentHashes, Contents};
use bartizan_base::{Generation, SettingsMap};
use bartizan_config::yaml;
use bartizan_detect::needs::Needs;
use bartizan_detect::ruleset::Loaded;
use bartizan_events::output::Rights;
use bartizan_events::{EveOutputs, TlsStoreOptions};
use bartizan_rules::{Diagnostic, RuleSetReport, Severity};
use bartizan_stages::settings::EngineSettings;
use std::path::{Path, PathBuf};

/// Options of a check.
#[derive(Clone, Default)]
pub struct CheckOptions {
    /// Settings, and the folder of compiled patterns.
    pub build: BuildOptions,
    /// Rule files.
    pub rules: Vec<PathBuf>,
    /// The rule files that the settings name are checked as well.
    pub of_settings: bool,
    /// Policy files. They are built with the rule files of the build, as in a run; `rules` are checked by
    /// themselves.
    pub policies: Vec<PathBuf>,
    /// Each setting without effect is named.
    pub verbose: bool,
}

/// The result of a check.
pub struct Checked {
    /// Findings in the rules.
    pub findings: Vec<Diagnostic>,
    /// Counts of the rules.
    pub rules: RuleSetReport,
    /// Rule files were given.
    pub has_rules: bool,
    /// All errors in policies and named rule files, with the place where one is known.
    pub problems: Vec<String>,
    /// The policies, in the order of the options.
    pub policies: Vec<CheckedPolicy>,
    /// Warnings of settings and files.
    pub warnings: Vec<String>,
    /// The message that rules of the firewall are missing.
    pub missing: Option<String>,
    /// Hashes of the content that a start would use; `None` if there are errors.
    pub content: Option<ContentHashes>,
    /// Whether there is no error.
    pub is_valid: bool,
}

/// A policy file that was checked.
pub struct CheckedPolicy {
    /// All errors, with the place where one is known.
    pub problems: Vec<String>,
    /// Counts of its rules, if it was built.
    pub report: Option<RuleSetReport>,
    /// Its rule files without rules.
    empty: Vec<String>,
    /// The contents that it was built from; empty if it was not built.
    contents: Contents,
}

impl CheckOptions {
    /// Options for settings or a host file, as a start would use them. `only`: rule files instead of those
    /// that the settings name; `more`: further ones.
    ///
    /// # Errors
    /// The file cannot be read, or is no valid host file.
    pub fn of_configuration(
        config: Option<&Path>,
        mut build: BuildOptions,
        only: &[PathBuf],
        more: &[PathBuf],
    ) -> Result<Self, Failure> {
        let mut policies = Vec::new();
        let mut rules = [only, more].concat();
        let mut of_settings = only.is_empty();
        match config {
            Some(path) if is_host_file(path)? => {
                let given = plan::RunOptions {
                    config: Some(path.to_owned()),
                    options: build,
                    ..plan::RunOptions::default()
                };
                build = plan::plan(&given)?.options;
                policies.extend(build.policy.take());
                let named = std::mem::take(&mut build.rules);
                if of_settings && !named.is_empty() {
                    (rules, of_settings) = ([named.as_slice(), &rules].concat(), false);
                }
                if !policies.is_empty() {
                    // One set with the rules of the policy, as in a run: a sid that occurs in both is an
                    // error.
                    (build.rules, rules, of_settings) = (rules, Vec::new(), false);
                }
            }
            Some(path) => build.suricata_config = Some(path.to_owned()),
            None => {}
        }
        Ok(CheckOptions { build, rules, of_settings, policies, verbose: false })
    }
}

/// Whether a configuration is a host file: it has links, and a suricata.yaml has none.
fn is_host_file(path: &Path) -> Result<bool, Failure> {
    let text = String::from_utf8_lossy(&input::read_text(path, "configuration")?).into_owned();
    Ok(yaml::parse(&text).is_ok_and(|root| root.get("links").is_some()))
}

/// Checks settings, rules and policies as a run would read them. Malformed rules, settings and policies are
/// errors; valid rules that cannot be evaluated here are warnings, and errors only with `strict`.
///
/// # Errors
/// A file cannot be read, or settings cannot be used.
pub fn run(options: &CheckOptions) -> Result<Checked, Failure> {
    let mut contents = Contents::default();
    let mut settings = options.build.settings(&mut contents)?;
    load::data_folder(&mut settings, Path::new(""));
    let mut warnings = Vec::new();
    let cache = cache::open(options.build.cache.as_deref(), &mut warnings)?;
    let base = load::Base::with(&settings, cache, load::HOSTS, &mut warnings)?;
    contents.absorb(base.contents());
    let policies =
        options.policies.iter().map(|p| of_policy(&options.build, p)).collect::<Result<Vec<_>, _>>()?;
    let mut problems: Vec<String> = policies.iter().flat_map(|policy| policy.problems.clone()).collect();
    let mut rules = options.rules.clone();
    if options.of_settings {
        // A start continues without them; a check fails, as Suricata's does.
        rules.extend(rule_files::of(&settings, &mut problems));
    }
    let mut files = load::rule_files(&rules, &mut contents)?;
    let of_firewall = options.build.firewall.files(&settings, &mut contents, &mut warnings)?;
    let has_rules = !rules.is_empty() || !of_firewall.is_empty();
    files.extend(of_firewall);
    let mut notes = Vec::new();
    let loaded = base.rules(&mut files, &settings, &[], &mut notes);
    options.build.report.notes(&notes);
    let loaded = loaded?;
    load::add_lists(&mut contents, &loaded);
    policies.iter().for_each(|policy| contents.absorb(&policy.contents));
    let mut inventory = Inventory::default();
    inventory.add(&files, &loaded);
    let empty = policies.iter().flat_map(|policy| policy.empty.clone()).chain(inventory.empty_files());
    warnings.extend(empty);
    warnings.extend(load::unseen_http2(&settings, &Needs::of(&loaded.rules)));
    let faulty = settings_problems(options, &settings, &loaded, &mut warnings)?;
    let strict = options.build.strict;
    // A missing rule of the firewall is an error, whatever the reason.
    let missing = (loaded.firewall_refused > 0).then(|| firewall::missing(loaded.firewall_refused));
    let mut found = findings::graded(&loaded.diagnostics, strict);
    found.extend(base.unused_thresholds(inventory.running()));
    let is_error = |finding: &Diagnostic| finding.severity == Severity::Error;
    let has_errors = found.iter().any(is_error) || !problems.is_empty() || missing.is_some();
    // Only for content that a start would use, which has no errors.
    let content = (!has_errors).then(|| contents.hashes());
    let is_valid = !(has_errors || strict && faulty);
    let rules = loaded.rules.report;
    Ok(Checked {
        findings: found,
        rules,
        has_rules,
        problems,
        policies,
        warnings,
        missing,
        content,
        is_valid,
    })
}

/// Reads settings as a run does, down to its outputs. Returns whether some problems are errors with `strict`.
fn settings_problems(
    options: &CheckOptions,
    settings: &SettingsMap,
    loaded: &Loaded,
    warnings: &mut Vec<String>,
) -> Result<bool, Failure> {
    if options.build.suricata_config.is_none() && options.build.overrides.is_empty() {
        return Ok(false);
    }
    let wrong = Failure::setting(settings);
    load::app_layer(settings, &Needs::of(&loaded.rules), load::EnforcementMode::Passive)?;
    let (_, more) = EngineSettings::from_settings(settings, false, load::seed()).map_err(&wrong)?;
    warnings.extend(more);
    warnings.extend(EveOutputs::from_settings(settings).map_err(&wrong)?.warnings);
    TlsStoreOptions::from_settings(settings).map_err(&wrong)?;
    Rights::from_settings(settings).map_err(&wrong)?;
    // Settings that only a run reads.
    control::of_settings(settings).map_err(&wrong)?;
    stats::interval(settings)?;
    let _ = settings.get("default-log-dir");
    settings.mark_read("rule-files");
    let _ = settings.get("default-rule-path");
    warnings.extend(load::alerts_max(settings).map_err(&wrong)?.1);
    Ok(unused::check(settings, options.verbose))
}

/// Builds a policy file as a run would build it, with its rule files. Links may have any names, unless the
/// options list the existing ones.
fn of_policy(build: &BuildOptions, path: &Path) -> Result<CheckedPolicy, Failure> {
    // An unreadable file is no finding in the file.
    input::read_text(path, "policy file")?;
    let options = BuildOptions { policy: Some(path.to_owned()), ..build.clone() };
    let folder = Path::new("");
    let mut builder = if options.links.is_empty() {
        Builder::for_captures(&options, folder)?
    } else {
        Builder::new(&options, folder)?
    };
    match reported(&mut builder, |builder| builder.build(Generation(1))) {
        Ok(built) => {
            let mut problems = Vec::new();
            let malformed = built.report.malformed_total();
            if malformed > 0 {
                problems.push(format!(
                    "{}: {malformed} malformed {} in the rule files of this policy (see above): a start \
                     skips {}, a reload is refused",
                    path.display(),
                    if malformed == 1 { "line is" } else { "lines are" },
                    if malformed == 1 { "it" } else { "them" },
                ));
            }
            let (report, empty) = (Some(built.report), built.inventory.empty_files());
            Ok(CheckedPolicy { problems, report, empty, contents: built.contents })
        }
        Err(error) => {
            let problems = error.to_string().lines().map(str::to_owned).collect();
            Ok(CheckedPolicy { problems, report: None, empty: Vec::new(), contents: Contents::default() })
        }
    }
}

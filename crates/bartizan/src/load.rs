// SPDX-License-Identifier: Apache-2.0
//! From settings and rule files to an engine.

use crate::error::Failure;
use crate::input;
use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_base::{Generation, Settings};
use bartizan_config::suricata;
use bartizan_detect::keywords;
use bartizan_detect::ruleset::{self, LoadInput, Loaded};
use bartizan_detect::shared::Shared;
use bartizan_flow::FlowHasher;
use bartizan_flow::host::{HostTableConfig, WhenHostsFull};
use bartizan_pattern::{Cache, Compiler, Config};
use bartizan_rules::{Classifications, ReferenceSystems, RuleFile, Thresholds, Variables};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads the settings: a file if given, else the shipped ones; then the overrides.
pub fn settings(file: Option<&Path>, overrides: &[String]) -> Result<Settings, Failure> {
    let mut settings = match file {
        Some(path) => suricata::load(path).map_err(Failure::input)?,
        None => suricata::shipped(),
    };
    self::overrides(&mut settings, overrides)?;
    Ok(settings)
}

/// Applies `KEY=VALUE` overrides.
pub fn overrides(settings: &mut Settings, overrides: &[String]) -> Result<(), Failure> {
    suricata::apply_overrides(settings, overrides).map_err(Failure::usage)
}

/// Reads and parses rule files.
pub fn rule_files(paths: &[PathBuf]) -> Result<Vec<RuleFile>, Failure> {
    paths
        .iter()
        .map(|path| {
            let text = input::read_text(path, "rule file")?;
            Ok(bartizan_rules::parse_file(text, &path.display().to_string()))
        })
        .collect()
}

/// Address and port groups of the settings. A group that cannot be read is said in `warnings`.
pub fn variables(settings: &Settings, warnings: &mut Vec<String>) -> Variables {
    let mut variables = Variables::new();
    for (kind, is_port) in [("address-groups", false), ("port-groups", true)] {
        let key = format!("vars.{kind}");
        for name in settings.children(&key) {
            let Some(value) = settings.get(&format!("{key}.{name}")) else { continue };
            let set =
                if is_port { variables.set_port(name, value) } else { variables.set_address(name, value) };
            if let Err(error) = set {
                warnings.push(format!("{key}.{name}: {error}"));
            }
        }
    }
    variables
}

/// The shared, rule-independent part of an engine.
pub struct Base {
    /// Pattern compiler.
    pub compiler: Compiler,
    /// State that outlives generations.
    pub shared: Arc<Shared>,
    classifications: Option<Classifications>,
    references: Option<ReferenceSystems>,
    thresholds: Option<Thresholds>,
    variables: Variables,
}

impl Base {
    /// Reads what the settings name; with the default cache of compiled patterns.
    pub fn new(settings: &Settings, warnings: &mut Vec<String>) -> Result<Self, Failure> {
        let cache = crate::cache::open(None, warnings)?;
        Self::with(settings, cache, HOSTS, warnings)
    }

    /// Reads what the settings name. `hosts`: entries of the host table that rules use.
    pub fn with(
        settings: &Settings,
        cache: Option<Arc<Cache>>,
        hosts: u32,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        let text = |key: &str| {
            let path = PathBuf::from(settings.get(key)?);
            // The shipped settings name files that need not be installed here.
            std::fs::read(&path).ok().map(|bytes| (bytes, path.display().to_string()))
        };
        let classifications = text("classification-file")
            .map(|(bytes, name)| bartizan_rules::parse_classifications(bytes, &name));
        let references =
            text("reference-config-file").map(|(bytes, name)| bartizan_rules::parse_references(bytes, &name));
        let config = Config { cache, ..Config::default() }.with_environment().map_err(Failure::input)?;
        Ok(Base {
            compiler: Compiler::new(config).map_err(Failure::input)?,
            shared: Arc::new(Shared::new(&self::hosts(hosts))),
            classifications,
            references,
            thresholds: text("threshold-file")
                .map(|(bytes, name)| bartizan_rules::parse_thresholds(bytes, &name)),
            variables: variables(settings, warnings),
        })
    }

    /// What loading needs.
    pub fn input<'b>(&'b self, settings: &'b Settings, generation: Generation) -> LoadInput<'b> {
        LoadInput {
            settings,
            variables: &self.variables,
            classifications: self.classifications.as_ref(),
            references: self.references.as_ref(),
            shared: &self.shared,
            compiler: &self.compiler,
            generation,
        }
    }

    /// Compiles rules into a generation.
    pub fn rules(
        &self,
        files: &[RuleFile],
        settings: &Settings,
        generation: Generation,
    ) -> Result<Loaded, Failure> {
        let damaged = || self.compiler.info().cache.map_or(0, |cache| cache.refused);
        let before = damaged();
        let mut loaded = ruleset::load(files, &self.input(settings, generation)).map_err(Failure::input)?;
        let found = damaged() - before;
        if found > 0 {
            eprintln!(
                "note: {found} files of the pattern cache were damaged or foreign; they were compiled anew and replaced"
            );
        }
        if let Some(thresholds) = &self.thresholds {
            loaded.diagnostics.extend(thresholds.diagnostics.iter().cloned());
            let signatures = &mut loaded.rules.signatures;
            loaded.diagnostics.extend(keywords::apply_thresholds(signatures, thresholds, &self.variables));
        }
        Ok(loaded)
    }
}

/// The application layer for a rule set: hashes are computed if a rule or an output asks for them.
pub fn app_layer(settings: &Settings, hashes: [bool; 3]) -> Result<Engine, Failure> {
    let [mut md5, mut sha1, mut sha256] = hashes;
    for (key, value) in settings.iter() {
        if key.contains("force-hash") {
            md5 |= value.contains("md5");
            sha1 |= value.contains("sha1");
            sha256 |= value.contains("sha256");
        }
    }
    let files = FileSettings { md5, sha1, sha256, ..FileSettings::default() };
    Engine::new(settings, files).map_err(Failure::input)
}

/// A secret seed for keyed hashes, new in each run.
pub fn seed() -> [u64; 2] {
    use std::hash::{BuildHasher, Hasher};
    let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    [random(), random()]
}

/// Entries of the host table unless something else is said: thresholds, bits and limits by address.
pub const HOSTS: u32 = 65_536;

/// A host table with a secret hash of this run.
pub fn hosts(capacity: u32) -> HostTableConfig {
    HostTableConfig { capacity, shards: 64, hasher: FlowHasher::new(seed()), when_full: WhenHostsFull::Evict }
}

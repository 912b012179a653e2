// SPDX-License-Identifier: Apache-2.0
//! Building generations: rules (and policy) into chains, again and again with what outlives them shared.

use crate::error::Failure;
use crate::load;
use bartizan_base::{FunctionId, Generation, Settings};
use bartizan_dataplane::chain::Chains;
use bartizan_detect::shared::Shared;
use bartizan_functions::ids::{ALERTS_PER_PACKET, Ids};
use bartizan_rules::RuleSetReport;
use std::path::PathBuf;
use std::sync::Arc;

/// What a generation is built from.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// Rule file (may be repeated); plain, gzip or zstd.
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Settings from a suricata.yaml instead of Suricata's shipped ones.
    #[arg(long, value_name = "FILE")]
    pub suricata_config: Option<PathBuf>,
    /// Override one setting, for example `stream.midstream=true`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
}

/// A generation with what is told about it.
pub struct Built {
    /// The chains.
    pub chains: Arc<Chains>,
    /// What became of the rules.
    pub report: RuleSetReport,
    /// Names of the functions by their bit.
    pub function_names: Vec<&'static str>,
    /// Hashes of files that rules ask for.
    pub file_hashes: [bool; 3],
}

/// Builds generations.
pub struct Builder {
    options: Options,
    settings: Settings,
    base: load::Base,
    warnings: Vec<String>,
}

impl Builder {
    /// Reads the settings.
    pub fn new(options: &Options) -> Result<Self, Failure> {
        let mut settings = load::settings(options.suricata_config.as_deref(), &options.overrides)?;
        if options.suricata_config.is_none() {
            // Suricata's shipped outputs leave refused packets out; inline they are what one looks for.
            settings.set("outputs.1.eve-log.types.34", "drop");
            settings.set("outputs.1.eve-log.types.34.drop.alerts", "yes");
        }
        let mut warnings = Vec::new();
        let base = load::Base::new(&settings, &mut warnings)?;
        Ok(Builder { options: options.clone(), settings, base, warnings })
    }

    /// The settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// State that outlives generations.
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.base.shared
    }

    /// What was odd about the settings.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The pattern engine in words.
    pub fn patterns(&self) -> String {
        self.base.compiler.info().to_string()
    }

    /// Builds a generation from the files as they are now. Nothing of one that fails is used.
    pub fn build(&mut self, number: Generation) -> Result<Built, Failure> {
        let files = load::rule_files(&self.options.rules)?;
        let loaded = self.base.rules(&files, &self.settings, number)?;
        super::commands::inspect::report_refused(&loaded.diagnostics, &files);
        let report = loaded.rules.report.clone();
        let file_hashes = bartizan_detect::ruleset::file_hashes(&loaded.rules);
        let ids = Ids::new(FunctionId(2), Arc::new(loaded.rules), ALERTS_PER_PACKET);
        let chains = Arc::new(Chains::one(number, vec![Arc::new(ids)]));
        Ok(Built { chains, report, function_names: vec!["pfw", "sfw", "ids"], file_hashes })
    }
}

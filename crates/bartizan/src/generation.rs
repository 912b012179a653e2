// SPDX-License-Identifier: Apache-2.0
//! Building generations: rules (and policy) into chains, again and again with what outlives them shared.

use crate::error::Failure;
use crate::{input, load};
use bartizan_agent::Agent;
use bartizan_base::{FunctionId, Generation, Settings};
use bartizan_config::policy;
use bartizan_dataplane::chain::Chains;
use bartizan_detect::ruleset::{Needs, RuleSet};
use bartizan_detect::shared::Shared;
use bartizan_flow::host::HostTable;
use bartizan_function::RuleSource;
use bartizan_functions::ids::{ALERTS_PER_PACKET, Ids};
use bartizan_functions::ids_kind::{IdsKind, RuleCompiler};
use bartizan_functions::registry::{self, Services};
use bartizan_functions::sfw::Hosts;
use bartizan_rules::RuleSetReport;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

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
    /// Policy file: who may talk to whom, and which functions look. Without one the chain is `ids` alone.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
}

/// A generation with what is told about it.
pub struct Built {
    /// The chains.
    pub chains: Arc<Chains>,
    /// What became of the rules.
    pub report: RuleSetReport,
    /// Names of the functions by their bit.
    pub function_names: Vec<&'static str>,
    /// What rules ask of parsers.
    pub needs: Needs,
}

/// Builds generations.
pub struct Builder {
    options: Options,
    settings: Settings,
    base: Arc<load::Base>,
    warnings: Vec<String>,
    agent: Option<Agent>,
    hosts: Hosts,
}

impl Builder {
    /// Reads the settings. What rules save lies below `out` unless the settings say otherwise.
    pub fn new(options: &Options, out: &Path) -> Result<Self, Failure> {
        let mut settings = load::settings(options.suricata_config.as_deref(), &options.overrides)?;
        load::data_folder(&mut settings, out);
        if options.suricata_config.is_none() {
            // Suricata's shipped outputs leave refused packets out; inline they are what one looks for.
            settings.set("outputs.1.eve-log.types.34", "drop");
            settings.set("outputs.1.eve-log.types.34.drop.alerts", "yes");
        }
        let mut warnings = Vec::new();
        let base = Arc::new(load::Base::new(&settings, &mut warnings)?);
        let hosts = Arc::new(HostTable::new(&load::hosts()));
        Ok(Builder { options: options.clone(), settings, base, warnings, agent: None, hosts })
    }

    /// The settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// State that outlives generations.
    pub fn shared(&self) -> &Arc<Shared> {
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
        match self.options.policy.clone() {
            Some(path) => self.build_policy(&path, number),
            None => self.build_detection(number),
        }
    }

    /// Detection alone, for every flow.
    fn build_detection(&mut self, number: Generation) -> Result<Built, Failure> {
        let files = load::rule_files(&self.options.rules)?;
        let loaded = self.base.rules(&files, &self.settings, number)?;
        super::commands::inspect::report_refused(&loaded.diagnostics, &files);
        let report = loaded.rules.report.clone();
        let needs = Needs::of(&loaded.rules);
        let ids = Ids::new(FunctionId(0), Arc::new(loaded.rules), ALERTS_PER_PACKET);
        let chains = Arc::new(Chains::one(number, vec![Arc::new(ids)]));
        Ok(Built { chains, report, function_names: vec!["ids"], needs })
    }

    /// What a policy file says.
    fn build_policy(&mut self, path: &Path, number: Generation) -> Result<Built, Failure> {
        let compiler = Arc::new(Compiler {
            base: Arc::clone(&self.base),
            settings: self.settings.clone(),
            always: self.options.rules.clone(),
            folder: path.parent().unwrap_or(Path::new("")).to_owned(),
            compiled: Mutex::default(),
        });
        // The agent outlives generations: fids, tenants and bits stay. Only what compiles rules is new.
        let mut kinds = registry::kinds(&Services { hosts: Arc::clone(&self.hosts) });
        kinds.push(Arc::new(IdsKind::new(Arc::clone(&compiler) as Arc<dyn RuleCompiler>, ALERTS_PER_PACKET)));
        let agent = match &mut self.agent {
            Some(agent) => {
                agent.set_kinds(kinds);
                agent
            }
            none => none.insert(Agent::new(kinds).map_err(Failure::input)?),
        };
        let text = input::read_text(path, "policy file")?;
        let text = String::from_utf8_lossy(&text);
        let file = policy::parse(&path.display().to_string(), &text, &agent.function_names())
            .map_err(Failure::input)?;
        let mut prepared = agent.prepare(&file, &[]).map_err(Failure::input)?;
        prepared.chains.generation = number;
        let mut names = vec!["?"; 32];
        for name in agent.function_names().into_iter().chain(["gate"]) {
            if let Some(slot) = agent.function_id(name).and_then(|id| names.get_mut(usize::from(id.0))) {
                *slot = name;
            }
        }
        let (report, needs) = compiler.totals();
        Ok(Built { chains: Arc::new(prepared.chains), report, function_names: names, needs })
    }
}

/// Compiles the rule files that policies name: each set of files once per generation.
struct Compiler {
    base: Arc<load::Base>,
    settings: Settings,
    /// Rule files of the command line, which every flow with detection gets.
    always: Vec<PathBuf>,
    folder: PathBuf,
    compiled: Mutex<BTreeMap<Vec<PathBuf>, Arc<RuleSet>>>,
}

impl Compiler {
    /// What became of all rules, and what they ask of parsers.
    fn totals(&self) -> (RuleSetReport, Needs) {
        let mut total = RuleSetReport::new();
        let mut needs = Needs::default();
        for rules in self.compiled.lock().iter().flat_map(|sets| sets.values()) {
            total.loaded += rules.report.loaded;
            total.skipped += rules.report.skipped;
            for (reason, count) in &rules.report.refused {
                *total.refused.entry(reason.clone()).or_default() += count;
            }
            needs = needs.and(Needs::of(rules));
        }
        (total, needs)
    }
}

impl RuleCompiler for Compiler {
    fn compile(&self, files: &[String], source: &RuleSource<'_>) -> Result<Arc<RuleSet>, String> {
        let named = files.iter().map(|f| self.folder.join(f));
        let paths: Vec<PathBuf> = self.always.iter().cloned().chain(named).collect();
        let mut compiled = self.compiled.lock().map_err(|_| "an earlier load broke off".to_owned())?;
        if let Some(known) = compiled.get(&paths) {
            return Ok(Arc::clone(known));
        }
        let parsed = load::rule_files(&paths).map_err(|e| e.to_string())?;
        let loaded =
            self.base.rules(&parsed, &self.settings, source.generation).map_err(|e| e.to_string())?;
        super::commands::inspect::report_refused(&loaded.diagnostics, &parsed);
        let rules = Arc::new(loaded.rules);
        compiled.insert(paths, Arc::clone(&rules));
        Ok(rules)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Building generations: rules (and policy) into chains, again and again with what outlives them shared.

use crate::allocator;
use crate::cache::CacheOption;
use crate::error::Failure;
use crate::firewall::{self, FirewallOptions};
use crate::outputs::Wanted;
use crate::reload::Inventory;
use crate::{findings, input, load, rule_files};
use bartizan_agent::{Agent, ClassInfo, PolicyEntries, TenantSelector, one_chain};
use bartizan_base::{FunctionId, Generation, LinkId, Settings, TenantId};
use bartizan_classify::Entry;
use bartizan_config::kind::FileKind;
use bartizan_config::policy::{self, PolicyFile, did_you_mean};
use bartizan_config::suricata;
use bartizan_dataplane::chain::Chains;
use bartizan_detect::shared::Shared;
use bartizan_detect::signature::Member;
use bartizan_detect::{needs::Needs, ruleset::RuleSet};
use bartizan_flow::FlowHasher;
use bartizan_flow::host::HostTable;
use bartizan_function::hosts::HOST_MEMORY;
use bartizan_function::{FunctionKind, HostTablesConfig, RuleSource};
use bartizan_functions::ids::Ids;
use bartizan_functions::ids_kind::{CompileError, IdsKind, RuleCompiler};
use bartizan_functions::registry::{self, Services};
use bartizan_functions::sfw::Hosts;
use bartizan_pattern::CacheCounters;
use bartizan_rules::{Diagnostic, RuleSetReport, Variables};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What a generation is built from.
#[derive(clap::Args, Clone, Default)]
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
    #[command(flatten)]
    pub firewall: FirewallOptions,
    /// Where compiled patterns are kept.
    #[command(flatten)]
    pub cache: CacheOption,
    /// Misspelt settings, and rules that are left out, whatever the reason, are errors.
    #[arg(long)]
    pub strict: bool,
    /// Settings of a host file: below those of the command line.
    #[arg(skip)]
    pub below: Vec<(String, String)>,
    /// Where they stand, by key.
    #[arg(skip)]
    pub below_from: BTreeMap<String, String>,
    /// Outputs of a host file.
    #[arg(skip)]
    pub outputs: Wanted,
    /// Entries of each host table.
    #[arg(skip)]
    pub hosts: Option<u32>,
    /// Bytes of what each function keeps per host, from a host file.
    #[arg(skip)]
    pub function_hosts: Option<u64>,
    /// Names of the links, by number.
    #[arg(skip)]
    pub links: Vec<String>,
    /// A level below refuses packets without a flow on some link.
    #[arg(skip)]
    pub early: bool,
}

impl Options {
    /// The settings: the file's or the shipped ones, then the host file's, then the command line's.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = load::unchecked(self.suricata_config.as_deref(), &[])?;
        for (key, value) in &self.below {
            let origin = self.below_from.get(key).map_or("the host file", String::as_str);
            settings.set_from(key.clone(), value.clone(), origin);
        }
        load::overrides(&mut settings, &self.overrides)?;
        self.firewall.apply(&mut settings)?;
        let settings = load::checked(settings)?;
        if self.policy.is_some() && firewall::is_on(&settings)? {
            return Err(Failure::input(
                "firewall mode (`firewall.enabled`) and a policy file both say what may go on, and do not go together: leave one out, \
                 or write the firewall's rules as `pfw` rules of the policy",
            ));
        }
        Ok(settings)
    }

    /// Whether rules and thresholds may be left out.
    fn accepts(&self, report: &RuleSetReport, thresholds: &[Diagnostic]) -> Result<(), Failure> {
        if let Some(first) = thresholds.first().filter(|_| self.strict) {
            return Err(Failure::input(format!(
                "{}:{}:{}: {} ({} malformed lines in this threshold file); they would be left out, and --strict takes that for an error",
                first.file,
                first.line,
                first.column,
                first.message,
                thresholds.len()
            )));
        }
        match report.refused_total() {
            some if self.strict && some > 0 => Err(Failure::input(format!(
                "{some} rules would be left out, and --strict takes that for an error; correct or remove them (`bartizan check` shows them)"
            ))),
            _ => Ok(()),
        }
    }

    /// The output folder that a suricata.yaml or `--set` names.
    pub fn log_folder(&self) -> Result<Option<PathBuf>, Failure> {
        let mut settings = Settings::new();
        if let Some(path) = &self.suricata_config {
            settings = suricata::load(path).map_err(Failure::input)?;
        }
        load::overrides(&mut settings, &self.overrides)?;
        Ok(settings.get("default-log-dir").filter(|folder| !folder.is_empty()).map(PathBuf::from))
    }

    /// Nobody said what happens to urgent bytes.
    pub fn leaves_urgent_bytes_to_us(&self) -> bool {
        const KEY: &str = "stream.reassembly.urgent.policy";
        let named = |set: &String| set.split('=').next().map(str::trim) == Some(KEY);
        let below = self.below.iter().any(|(key, _)| key == KEY);
        self.suricata_config.is_none() && !below && !self.overrides.iter().any(named)
    }
}

/// A generation with what is told about it.
pub struct Built {
    /// The chains.
    pub chains: Arc<Chains>,
    /// What became of the rules.
    pub report: RuleSetReport,
    /// The rules by file, to be compared with those of another generation.
    pub inventory: Inventory,
    /// Names of the functions by their bit.
    pub function_names: Vec<&'static str>,
    /// What rules ask of parsers.
    pub needs: Needs,
    /// The policy that the chains come from.
    pub policy: Option<BuiltPolicy>,
}

/// A policy as it runs.
pub struct BuiltPolicy {
    /// The file.
    pub file: PolicyFile,
    /// Its classes, by fid.
    pub classes: Vec<ClassInfo>,
    /// Whose traffic a packet is.
    pub tenants: TenantSelector,
    /// Numbers of the tenants, by name.
    pub tenant_ids: Vec<(String, TenantId)>,
    /// Numbers of the links, by name.
    pub links: Vec<(String, LinkId)>,
}

/// Whom the policies of a file are about.
pub struct Policies {
    /// How many there are.
    pub count: usize,
    /// For a classifier; fid and priority are the policy's place in the file, from 0.
    pub entries: Vec<Entry>,
    /// Numbers of the tenants, by name.
    pub tenants: Vec<(String, TenantId)>,
    /// Numbers of the links that the file names, by name.
    pub links: Vec<(String, LinkId)>,
}

/// The tenant of this name of a policy file.
pub fn find_tenant(file: &str, known: &[(String, TenantId)], name: &str) -> Result<TenantId, Failure> {
    let found = known.iter().find(|(n, _)| n == name).map(|(_, id)| *id);
    found.ok_or_else(|| {
        let names = known.iter().map(|(n, _)| n.as_str());
        Failure::input(format!("{file} has no tenant `{name}`; {}", did_you_mean(name, names)))
    })
}

/// The link of this name among those that a policy file names.
pub fn find_link(known: &[(String, LinkId)], name: &str) -> Result<LinkId, Failure> {
    let found = known.iter().find(|(n, _)| n == name).map(|(_, id)| *id);
    found.ok_or_else(|| {
        let names = known.iter().map(|(n, _)| n.as_str());
        Failure::input(format!("no policy names a link `{name}`; {}", did_you_mean(name, names)))
    })
}

/// A link that no policy names, beside those that they name.
pub fn unnamed_link(known: &[(String, LinkId)]) -> LinkId {
    LinkId(u16::try_from(known.len()).unwrap_or(u16::MAX))
}

/// Whether a file is a policy by its name.
pub fn is_policy(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    name.ends_with(".yaml") || name.ends_with(".yml")
}

/// Builds generations.
pub struct Builder {
    options: Options,
    settings: Settings,
    base: Arc<load::Base>,
    warnings: Vec<String>,
    agent: Option<Agent>,
    /// Kinds of functions, except detection's, which compiles the rules of a generation.
    kinds: Vec<Arc<dyn FunctionKind>>,
    /// The links by name; `None`: whatever links the policy names.
    links: Option<Vec<(String, LinkId)>>,
}

impl Builder {
    /// Reads the settings. What rules save lies below `out` unless the settings say otherwise.
    pub fn new(options: &Options, out: &Path) -> Result<Self, Failure> {
        let links = options.links.iter().zip(0..).map(|(name, n)| (name.clone(), LinkId(n))).collect();
        Self::with(options, out, true, Some(links))
    }

    /// Reads the settings for captures: without a policy everything is as with Suricata.
    pub fn for_captures(options: &Options, out: &Path) -> Result<Self, Failure> {
        Self::with(options, out, options.policy.is_some(), None)
    }

    fn with(
        options: &Options,
        out: &Path,
        drops: bool,
        links: Option<Vec<(String, LinkId)>>,
    ) -> Result<Self, Failure> {
        let mut settings = options.settings()?;
        load::data_folder(&mut settings, out);
        if options.suricata_config.is_none() && drops {
            // Suricata's shipped outputs leave refused packets out; inline they are what one looks for.
            settings.set("outputs.1.eve-log.types.34", "drop");
            settings.set("outputs.1.eve-log.types.34.drop.alerts", "yes");
        }
        // Whoever gave the folder has read it, or knows better.
        let _ = settings.get("default-log-dir");
        let mut warnings = Vec::new();
        if options.policy.is_some() && options.rules.is_empty() && rule_files::are_named(&settings) {
            warnings.push(
                "`rule-files` of the settings are not loaded: the policy says which rules; name them there or with --rules"
                    .to_owned(),
            );
            settings.mark_read("rule-files");
            settings.mark_read("default-rule-path");
        }
        if !options.rules.is_empty() {
            // Others were named in their place.
            settings.mark_read("rule-files");
            settings.mark_read("default-rule-path");
        }
        options.outputs.apply(&mut settings, &mut warnings);
        let entries = options.hosts.unwrap_or(load::HOSTS);
        let cache = crate::cache::open(options.cache.cache.as_deref(), &mut warnings)?;
        let base = Arc::new(load::Base::with(&settings, cache, entries, &mut warnings)?);
        let hosts: Hosts = Arc::new(HostTable::new(&load::hosts(entries)));
        let kinds = registry::kinds(&Services { hosts });
        Ok(Builder { options: options.clone(), settings, base, warnings, agent: None, kinds, links })
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

    /// What the cache of compiled patterns did, if there is one.
    pub fn cache(&self) -> Option<CacheCounters> {
        self.base.compiler.info().cache
    }

    /// To be called when a generation was freed: gives its memory back.
    pub fn generation_freed(&self) {
        self.base.generation_freed();
        allocator::give_back();
    }

    /// Builds a generation from the files as they are now. Nothing of one that fails is used.
    pub fn build(&mut self, number: Generation) -> Result<Built, Failure> {
        let built = match self.options.policy.clone() {
            Some(path) => self.build_policy(&path, number),
            None => self.build_detection(number),
        };
        // Texts, their parsed form, and what libhs needs to compile sets (150 MB for Emerging Threats Open) are for loading alone.
        allocator::give_back();
        built
    }

    /// Detection alone, for every flow.
    fn build_detection(&mut self, number: Generation) -> Result<Built, Failure> {
        let mut files = load::rule_files(&self.rules())?;
        let mut warnings = Vec::new();
        files.extend(self.options.firewall.files(&self.settings, &mut warnings)?);
        warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
        let loaded = self.base.rules(&mut files, &self.settings, number, &[])?;
        let report = loaded.rules.report.clone();
        findings::report(&loaded.diagnostics, &report);
        firewall::accepts(&loaded)?;
        self.options.accepts(&report, &self.base.malformed_thresholds())?;
        let mut inventory = Inventory::default();
        inventory.add(&files, &loaded);
        let needs = Needs::of(&loaded.rules);
        let ids = Ids::new(FunctionId(0), Arc::new(loaded.rules), self.alerts_max()?);
        let chains = Arc::new(one_chain(number, vec![Box::new(ids)]).map_err(Failure::input)?);
        Ok(Built { chains, report, inventory, function_names: vec!["ids"], needs, policy: None })
    }

    /// Rule files for every flow: those of the command line or the host file, else those that a suricata.yaml names.
    fn rules(&self) -> Vec<PathBuf> {
        if !self.options.rules.is_empty() {
            return self.options.rules.clone();
        }
        let mut warnings = Vec::new();
        let files = rule_files::of(&self.settings, &mut warnings);
        warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
        files
    }

    /// Alerts of one packet that are reported.
    fn alerts_max(&self) -> Result<usize, Failure> {
        let (most, warning) = load::alerts_max(&self.settings).map_err(Failure::setting(&self.settings))?;
        warning.iter().for_each(|warning| eprintln!("warning: {warning}"));
        Ok(most)
    }

    /// The agent with this program's functions, and what compiles rules for it.
    fn agent(&mut self, path: &Path) -> Result<(&mut Agent, Arc<Compiler>), Failure> {
        let compiler = Arc::new(Compiler {
            base: Arc::clone(&self.base),
            settings: self.settings.clone(),
            always: self.options.rules.clone(),
            folder: path.parent().unwrap_or(Path::new("")).to_owned(),
            compiled: Mutex::default(),
            inventory: Mutex::default(),
        });
        // The agent outlives generations: fids, tenants and bits stay. Only what compiles rules is new.
        let mut kinds = self.kinds.clone();
        let alerts_max = self.alerts_max()?;
        kinds.push(Arc::new(IdsKind::new(Arc::clone(&compiler) as Arc<dyn RuleCompiler>, alerts_max)));
        let early = self.options.early;
        let agent = match &mut self.agent {
            Some(agent) => {
                agent.set_kinds(kinds);
                agent
            }
            none => {
                let agent = none.insert(Agent::new(kinds).map_err(Failure::input)?);
                agent.set_hosts(HostTablesConfig {
                    memory: self.options.function_hosts.unwrap_or(HOST_MEMORY),
                    hasher: FlowHasher::new(load::seed()),
                });
                agent.set_early(early);
                agent
            }
        };
        Ok((agent, compiler))
    }

    /// Whom the policies of a file are about, for lookups of headers alone: no function is built, no rule file is read.
    pub fn policy_entries(&mut self, path: &Path) -> Result<Policies, Failure> {
        let links = self.links.clone();
        let (agent, _) = self.agent(path)?;
        let file = read_policy(path, agent)?;
        let links = links.unwrap_or_else(|| links_of(&file));
        let by_name: Vec<(&str, LinkId)> = links.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        let PolicyEntries { entries, tenants } =
            agent.policy_entries(&file, &by_name).map_err(Failure::input)?;
        Ok(Policies { count: file.policies.len(), entries, tenants, links })
    }

    /// What a policy file says.
    fn build_policy(&mut self, path: &Path, number: Generation) -> Result<Built, Failure> {
        let (links, with_rules) = (self.links.clone(), !self.options.rules.is_empty());
        let with_options = self.options.clone();
        let (agent, compiler) = self.agent(path)?;
        let file = read_policy(path, agent)?;
        let links = links.unwrap_or_else(|| links_of(&file));
        let by_name: Vec<(&str, LinkId)> = links.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        let mut prepared = agent.prepare(&file, &by_name).map_err(Failure::input)?;
        prepared.chains.generation = number;
        let detection = agent.function_id("ids");
        let detects = prepared.classes.iter().any(|c| detection.is_some_and(|id| c.path.contains(id)));
        if !detects && with_rules {
            eprintln!(
                "warning: --rules has no effect: no chain of {} has `ids`; add it to a chain there",
                path.display()
            );
        }
        let mut names = vec!["?"; 32];
        for name in agent.function_names().into_iter().chain(["gate"]) {
            if let Some(slot) = agent.function_id(name).and_then(|id| names.get_mut(usize::from(id.0))) {
                *slot = name;
            }
        }
        let (report, needs) = compiler.totals();
        with_options.accepts(&report, &compiler.base.malformed_thresholds())?;
        let inventory = compiler.inventory.lock().map(|i| i.clone()).unwrap_or_default();
        let policy = BuiltPolicy {
            tenant_ids: agent.tenants(),
            file,
            classes: prepared.classes,
            tenants: prepared.tenants,
            links,
        };
        let chains = Arc::new(prepared.chains);
        Ok(Built { chains, report, inventory, function_names: names, needs, policy: Some(policy) })
    }
}

/// Reads a policy file for the functions that the agent has.
fn read_policy(path: &Path, agent: &Agent) -> Result<PolicyFile, Failure> {
    let text = input::read_utf8(path, "policy file")?;
    input::is_no_other(path, &text, FileKind::Policy)?;
    policy::parse(&path.display().to_string(), &text, &agent.function_names()).map_err(Failure::input)
}

/// Numbers for the links that a policy names, in the order of their first place in the file.
fn links_of(file: &PolicyFile) -> Vec<(String, LinkId)> {
    let of_tenants = file.tenants.iter().flat_map(|t| t.select.link.iter());
    let of_policies = file.policies.iter().flat_map(|p| p.link.iter());
    let mut names: Vec<(String, LinkId)> = Vec::new();
    for name in of_tenants.chain(of_policies).flat_map(|list| list.iter()) {
        if !names.iter().any(|(known, _)| known == name) {
            let id = LinkId(u16::try_from(names.len()).unwrap_or(u16::MAX));
            names.push((name.clone(), id));
        }
    }
    names
}

/// What a policy file calls a tenant.
fn tenant_name(source: &RuleSource<'_>, tenant: TenantId) -> String {
    let names = source.rules.get("tenants").and_then(|t| t.as_object());
    let known = names.and_then(|names| names.iter().find(|(_, id)| id.as_u64() == Some(tenant.0.into())));
    known.map_or_else(|| tenant.0.to_string(), |(name, _)| name.clone())
}

/// Compiles the rule files that policies name: each set of files once per generation.
struct Compiler {
    base: Arc<load::Base>,
    settings: Settings,
    /// Rule files of the command line, which every flow with detection gets.
    always: Vec<PathBuf>,
    folder: PathBuf,
    compiled: Mutex<BTreeMap<Vec<PathBuf>, Arc<RuleSet>>>,
    inventory: Mutex<Inventory>,
}

impl Compiler {
    /// What became of all rules, and what they ask of parsers.
    fn totals(&self) -> (RuleSetReport, Needs) {
        let mut total = RuleSetReport::new();
        let mut needs = Needs::default();
        for rules in self.compiled.lock().iter().flat_map(|sets| sets.values()) {
            total.absorb(&rules.report);
            needs = needs.and(Needs::of(rules));
        }
        (total, needs)
    }
}

impl RuleCompiler for Compiler {
    fn variables(&self) -> &Variables {
        self.base.variables()
    }

    fn compile(
        &self,
        files: &[String],
        source: &RuleSource<'_>,
        tenants: &[(TenantId, Variables)],
    ) -> Result<Arc<RuleSet>, CompileError> {
        let named = files.iter().map(|f| self.folder.join(f));
        let paths: Vec<PathBuf> = self.always.iter().cloned().chain(named).collect();
        let mut compiled = self.compiled.lock().map_err(|_| "an earlier load broke off".to_owned())?;
        if let Some(known) = compiled.get(&paths) {
            return Ok(Arc::clone(known));
        }
        let mut parsed = Vec::new();
        for (place, path) in paths.iter().enumerate() {
            let read = load::rule_files(std::slice::from_ref(path));
            // Files of the command line stand in no policy.
            let file = place.checked_sub(self.always.len());
            parsed.extend(read.map_err(|error| CompileError { file, message: error.to_string() })?);
        }
        let loaded = self
            .base
            .rules(&mut parsed, &self.settings, source.generation, tenants)
            .map_err(|e| e.to_string())?;
        findings::report(&loaded.diagnostics, &loaded.rules.report);
        if let Ok(mut inventory) = self.inventory.lock() {
            inventory.add(&parsed, &loaded);
        }
        for (tenant, _) in tenants {
            let heads = loaded.rules.heads.of(*tenant);
            let nothing = |s: &&Member| heads.get(s.head as usize).is_none_or(Option::is_none);
            let count = loaded.rules.signatures.iter().filter(nothing).count();
            if count > 0 {
                let name = tenant_name(source, *tenant);
                eprintln!(
                    "note: {count} rules match nothing of tenant `{name}`: no address or port is left with its variables"
                );
            }
        }
        let rules = Arc::new(loaded.rules);
        compiled.insert(paths, Arc::clone(&rules));
        Ok(rules)
    }
}

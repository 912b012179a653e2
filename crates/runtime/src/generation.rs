// SPDX-License-Identifier: Apache-2.0
//! Builds generations: rules (and policy) become chains; state that outlives generations is shared.

use crate::allocator;
use crate::compiling::{LibraryRuleCache, RuleSetCompiler, Texts};
use crate::error::Failure;
use crate::firewall::{self, FirewallOptions};
use crate::log::{Note, Report};
use crate::outputs::OutputSelection;
use crate::reload::Inventory;
use crate::traces::Keywords;
use crate::{findings, input, load, rule_files};
use bartizan_agent::joined::JoinedPolicy;
use bartizan_agent::{Agent, ClassInfo, Overrides, PolicyEntries, Prepared, TenantSelector, one_chain};
use bartizan_api::content::{ContentKind, Contents};
use bartizan_base::{FunctionId, Generation, LinkId, SettingsMap, TenantId};
use bartizan_classify::RankedRule;
use bartizan_config::kind::FileKind;
use bartizan_config::policy::{self, PolicyError, PolicyFile, did_you_mean, read};
use bartizan_config::suricata;
use bartizan_detect::needs::Needs;
use bartizan_detect::shared::Shared;
use bartizan_flow::FlowHasher;
use bartizan_flow::host::HostTable;
use bartizan_function::hosts::HOST_MEMORY;
use bartizan_function::{FunctionKind, HostTablesConfig, PatternSets};
use bartizan_functions::ids::Ids;
use bartizan_functions::ids_kind::{IdsKind, RuleCompiler};
use bartizan_functions::registry::{self, Services};
use bartizan_functions::sfw::Hosts;
use bartizan_pattern::CacheCounters;
use bartizan_rules::{Diagnostic, RuleSetReport};
use bartizan_stages::chain::Chains;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Inputs of a generation.
#[derive(Clone, Default)]
pub struct BuildOptions {
    /// Rule file (may be repeated); plain, gzip or zstd.
    pub rules: Vec<PathBuf>,
    /// Settings from a suricata.yaml instead of Suricata's shipped ones.
    pub suricata_config: Option<PathBuf>,
    /// Override one setting, for example `stream.midstream=true`.
    pub overrides: Vec<String>,
    /// Policy file: allowed connections, and the functions on their path. Without one the chain is `ids`
    /// alone.
    pub policy: Option<PathBuf>,
    /// Firewall mode.
    pub firewall: FirewallOptions,
    /// Folder of compiled patterns.
    pub cache: Option<PathBuf>,
    /// Settings that are misspelt, that weaken protection when ignored, or whose events are not written, and
    /// all rules that are left out, are errors.
    pub strict: bool,
    /// Settings of a host file, with lower precedence than those of the command line.
    pub below: Vec<(String, String)>,
    /// The host file as it was read.
    pub contents: Contents,
    /// Places of these settings, by key.
    pub below_from: BTreeMap<String, String>,
    /// Outputs of a host file.
    pub outputs: OutputSelection,
    /// Entries of each host table.
    pub hosts: Option<u32>,
    /// Bytes of each function's state per host, from a host file.
    pub function_hosts: Option<u64>,
    /// Names of the links, by number.
    pub links: Vec<String>,
    /// A controller supplies the policy; `policy` and `rules` hold until it has.
    pub controlled: bool,
    /// Some link is inline, and prevents.
    pub inline: bool,
    /// A level below refuses packets without a flow on some link.
    pub early: bool,
    /// Names of the ports that packets may be redirected to, by number; `None`: any port that the policy
    /// names.
    pub ports: Option<Vec<String>>,
    /// Receiver of the builds' diagnostics.
    pub report: Report,
}

impl BuildOptions {
    /// The settings: the file's or the shipped ones, then the host file's, then the command line's. Adds the
    /// files to `contents`.
    pub fn settings(&self, contents: &mut Contents) -> Result<SettingsMap, Failure> {
        contents.absorb(&self.contents);
        if !self.overrides.is_empty() {
            contents.add(ContentKind::Settings, "--set", self.overrides.join("\n").as_bytes());
        }
        let mut settings = load::unchecked(self.suricata_config.as_deref(), &[], contents)?;
        for (key, value) in &self.below {
            let origin = self.below_from.get(key).map_or("the host file", String::as_str);
            settings.set_from(key.clone(), value.clone(), origin);
        }
        load::overrides(&mut settings, &self.overrides)?;
        self.firewall.apply(&mut settings)?;
        let settings = load::checked(settings)?;
        let other = if self.controlled { "a controller" } else { "a policy file" };
        if (self.policy.is_some() || self.controlled) && firewall::is_on(&settings)? {
            return Err(Failure::input(format!(
                "firewall mode (`firewall.enabled`) and {other} both decide which packets are forwarded and \
                 cannot be combined: remove one, or write the firewall's rules as `pfw` rules of the policy",
            )));
        }
        Ok(settings)
    }

    /// Whether policies and rules that no packet reaches may stand there.
    fn accepts_hidden(&self, hidden: &[String]) -> Result<(), Failure> {
        if !self.strict || hidden.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> =
            hidden.iter().map(|line| format!("{line} (an error with --strict)")).collect();
        Err(Failure::input(lines.join("\n")))
    }

    /// Whether rules, thresholds and entries of lists may be left out.
    fn accepts(
        &self,
        report: &RuleSetReport,
        thresholds: &[Diagnostic],
        entries: usize,
    ) -> Result<(), Failure> {
        if let Some(first) = thresholds.first().filter(|_| self.strict) {
            return Err(Failure::input(format!(
                "{}:{}:{}: {} ({} malformed lines in this threshold file); with --strict this is an error, otherwise they are skipped",
                first.file,
                first.line,
                first.column,
                first.message,
                thresholds.len()
            )));
        }
        if self.strict && entries > 0 {
            return Err(Failure::input(format!(
                "{entries} entries of lists that rules use are malformed; with --strict this is an error, \
                 otherwise they are skipped; correct or remove them (`bartizan check` shows them)"
            )));
        }
        match report.refused_total() {
            some if self.strict && some > 0 => Err(Failure::input(format!(
                "{some} rules cannot be loaded; with --strict this is an error, otherwise they are skipped; correct or remove them (`bartizan check` shows them)"
            ))),
            _ => Ok(()),
        }
    }

    /// The output folder that a suricata.yaml or `--set` names.
    pub fn log_folder(&self) -> Result<Option<PathBuf>, Failure> {
        let mut settings = SettingsMap::new();
        if let Some(path) = &self.suricata_config {
            settings = suricata::load(path).map_err(Failure::input)?;
        }
        load::overrides(&mut settings, &self.overrides)?;
        Ok(settings.get("default-log-dir").filter(|folder| !folder.is_empty()).map(PathBuf::from))
    }

    /// Whether no setting defines the handling of urgent bytes.
    pub fn leaves_urgent_bytes_to_us(&self) -> bool {
        const KEY: &str = "stream.reassembly.urgent.policy";
        let named = |set: &String| set.split('=').next().map(str::trim) == Some(KEY);
        let below = self.below.iter().any(|(key, _)| key == KEY);
        self.suricata_config.is_none() && !below && !self.overrides.iter().any(named)
    }
}

/// See [`load::unseen_http2`].
fn http2_note(settings: &SettingsMap, needs: &Needs) -> Option<Note> {
    load::unseen_http2(settings, needs).map(|said| Note::Line(format!("warning: {said}")))
}

/// A generation with its reports.
pub struct Built {
    /// The chains.
    pub chains: Arc<Chains>,
    /// Report on the rules.
    pub report: RuleSetReport,
    /// The rules by file, for comparison with those of another generation.
    pub inventory: Arc<Inventory>,
    /// Names of the functions by their bit.
    pub function_names: Vec<&'static str>,
    /// Demands of rules on parsers.
    pub needs: Needs,
    /// The policy that the chains come from.
    pub policy: Option<BuiltPolicy>,
    /// The contents that it was built from.
    pub contents: Contents,
}

/// A policy in force.
pub struct BuiltPolicy {
    /// The file.
    pub file: Arc<PolicyFile>,
    /// Its classes, by fid.
    pub classes: Vec<Arc<ClassInfo>>,
    /// Assigns packets to tenants.
    pub tenants: TenantSelector,
    /// Numbers of the tenants, by name.
    pub tenant_ids: Vec<(String, TenantId)>,
    /// Numbers of the links, by name.
    pub links: Vec<(String, LinkId)>,
}

/// Classifier entries of a file's policies.
pub struct PolicySelectors {
    /// Number of policies.
    pub count: usize,
    /// Entries of a classifier; fid and priority are the policy's index in the file, from 0.
    pub entries: Vec<RankedRule>,
    /// Numbers of the tenants, by name.
    pub tenants: Vec<(String, TenantId)>,
    /// Numbers of the links that the file names, by name.
    pub links: Vec<(String, LinkId)>,
}

/// The tenant of a policy file with this name.
pub fn find_tenant(file: &str, known: &[(String, TenantId)], name: &str) -> Result<TenantId, Failure> {
    let found = known.iter().find(|(n, _)| n == name).map(|(_, id)| *id);
    found.ok_or_else(|| {
        let names = known.iter().map(|(n, _)| n.as_str());
        Failure::input(format!("{file} has no tenant `{name}`; {}", did_you_mean(name, names)))
    })
}

/// The link with this name among those that a policy file names.
pub fn find_link(known: &[(String, LinkId)], name: &str) -> Result<LinkId, Failure> {
    let found = known.iter().find(|(n, _)| n == name).map(|(_, id)| *id);
    found.ok_or_else(|| {
        let names = known.iter().map(|(n, _)| n.as_str());
        Failure::input(format!("no policy names a link `{name}`; {}", did_you_mean(name, names)))
    })
}

/// A link that no policy names, numbered after those that they name.
pub fn unnamed_link(known: &[(String, LinkId)]) -> LinkId {
    LinkId(u16::try_from(known.len()).unwrap_or(u16::MAX))
}

/// Whether a file's name is that of a policy.
pub fn is_policy(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    name.ends_with(".yaml") || name.ends_with(".yml")
}

/// Source of a policy.
enum PolicyOrigin {
    /// A file.
    File(PathBuf),
    /// A controller.
    Held(Arc<JoinedPolicy>),
    /// None yet: the controller has not sent anything.
    Until,
}

/// Name in messages of a policy that is in no file.
const CONTROLLER: &str = "controller";

impl PolicyOrigin {
    fn name(&self) -> String {
        match self {
            PolicyOrigin::File(path) => path.display().to_string(),
            PolicyOrigin::Held(_) | PolicyOrigin::Until => CONTROLLER.to_owned(),
        }
    }
}

/// Reasons why a policy cannot be built.
pub enum GenerationError {
    /// The policy has an error.
    Policy(PolicyError),
    /// Another failure.
    Other(Failure),
}

impl From<PolicyError> for GenerationError {
    fn from(error: PolicyError) -> Self {
        GenerationError::Policy(error)
    }
}

impl From<Failure> for GenerationError {
    fn from(failure: Failure) -> Self {
        GenerationError::Other(failure)
    }
}

impl From<GenerationError> for Failure {
    fn from(error: GenerationError) -> Self {
        match error {
            GenerationError::Policy(error) => Failure::input(error),
            GenerationError::Other(failure) => failure,
        }
    }
}

/// Builds generations.
pub struct Builder {
    options: BuildOptions,
    settings: SettingsMap,
    /// The files of the settings, which are read once.
    contents: Contents,
    base: Arc<load::Base>,
    warnings: Vec<String>,
    agent: Option<Agent>,
    /// Kinds of functions, except detection's, which compiles the rules of a generation.
    kinds: Vec<Arc<dyn FunctionKind>>,
    /// The links by name; `None`: whatever links the policy names.
    links: Option<Vec<(String, LinkId)>>,
    /// The controller's configuration.
    held: Option<Arc<JoinedPolicy>>,
    /// Rule sets that were compiled from a controller's libraries last.
    known: Arc<LibraryRuleCache>,
    /// The policy of the last generation; the next one shares its unchanged parts.
    read: Option<Arc<PolicyFile>>,
    /// Whether rules were compiled since memory was last returned to the system.
    compiled: bool,
    /// Whether all policies were rebuilt since then.
    remade: bool,
    /// Whether the note was given that packets which are not IP pass.
    told_not_ip: bool,
    /// Pending notes for the user.
    notes: Vec<Note>,
}

impl Builder {
    /// Reads the settings. Files that rules save are below `out` unless the settings name another folder.
    pub fn new(options: &BuildOptions, out: &Path) -> Result<Self, Failure> {
        let links = options.links.iter().zip(0..).map(|(name, n)| (name.clone(), LinkId(n))).collect();
        Self::with(options, out, true, Some(links))
    }

    /// Reads the settings for captures: without a policy everything is as in Suricata.
    pub fn for_captures(options: &BuildOptions, out: &Path) -> Result<Self, Failure> {
        Self::with(options, out, options.policy.is_some(), None)
    }

    fn with(
        options: &BuildOptions,
        out: &Path,
        drops: bool,
        links: Option<Vec<(String, LinkId)>>,
    ) -> Result<Self, Failure> {
        let mut contents = Contents::default();
        let mut settings = options.settings(&mut contents)?;
        load::data_folder(&mut settings, out);
        if options.suricata_config.is_none() && drops {
            // Suricata's shipped outputs leave refused packets out; inline they are the events of interest.
            settings.set("outputs.1.eve-log.types.34", "drop");
            settings.set("outputs.1.eve-log.types.34.drop.alerts", "yes");
        }
        // The caller has read or replaced the folder, so the setting counts as used.
        let _ = settings.get("default-log-dir");
        let mut warnings = Vec::new();
        if options.policy.is_some() && options.rules.is_empty() && rule_files::are_named(&settings) {
            warnings.push(
                "`rule-files` of the settings are not loaded, because the policy selects the rules; name them there or with --rules"
                    .to_owned(),
            );
            settings.mark_read("rule-files");
            settings.mark_read("default-rule-path");
        }
        if !options.rules.is_empty() {
            // Other rule files were named in their place.
            settings.mark_read("rule-files");
            settings.mark_read("default-rule-path");
        }
        options.outputs.apply(&mut settings, &mut warnings);
        let entries = options.hosts.unwrap_or(load::HOSTS);
        let cache = crate::cache::open(options.cache.as_deref(), &mut warnings)?;
        let base = Arc::new(load::Base::with(&settings, cache, entries, &mut warnings)?);
        let hosts: Hosts = Arc::new(HostTable::new(&load::hosts(entries)));
        let kinds = registry::kinds(&Services { hosts });
        Ok(Builder {
            options: options.clone(),
            settings,
            contents,
            base,
            warnings,
            agent: None,
            kinds,
            links,
            held: None,
            known: Arc::default(),
            read: None,
            compiled: false,
            remade: false,
            told_not_ip: false,
            notes: Vec::new(),
        })
    }

    /// The settings.
    pub const fn settings(&self) -> &SettingsMap {
        &self.settings
    }

    /// State that outlives generations.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.base.shared
    }

    /// The meaning of the keywords of rules, for traces.
    pub fn keywords(&self) -> Keywords {
        Keywords { base: Arc::clone(&self.base), settings: self.settings.clone() }
    }

    /// Warnings about the settings.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The pattern engine, in words.
    pub fn patterns(&self) -> String {
        self.base.compiler.info().to_string()
    }

    /// Counters of the cache of compiled patterns, if there is one.
    pub fn cache(&self) -> Option<CacheCounters> {
        self.base.compiler.info().cache
    }

    /// Sets settings of a function from the next generation on; `null` removes one. Returns all previous
    /// overrides.
    ///
    /// # Errors
    /// The function has no such settings, or there is no policy.
    pub fn configure(&mut self, function: &str, settings: &Map<String, Value>) -> Result<Overrides, String> {
        match &mut self.agent {
            Some(agent) => agent.configure(function, settings),
            None => Err("without a policy, detection runs alone and has no settings to change; use a policy"
                .to_owned()),
        }
    }

    /// Restores previous overrides of functions.
    pub fn restore(&mut self, overrides: Overrides) {
        if let Some(agent) = &mut self.agent {
            agent.restore(overrides);
        }
    }

    /// Called when a generation was freed: returns its memory to the system.
    pub fn generation_freed(&mut self) {
        let (compiled, remade) = (std::mem::take(&mut self.compiled), std::mem::take(&mut self.remade));
        if compiled {
            self.base.generation_freed();
        }
        // A generation that shares nearly everything with the running one is small: the allocator returns it
        // by itself.
        if compiled || remade {
            allocator::give_back();
        }
    }

    /// Builds a generation from the controller's configuration, else from the present files. A failed build
    /// has no effect.
    pub fn build(&mut self, number: Generation) -> Result<Built, Failure> {
        // The first generation uses the files that were read just before.
        if number > Generation(1) {
            self.read_named_again();
        }
        let origin = match (&self.held, &self.options.policy) {
            (Some(held), _) => Some(PolicyOrigin::Held(Arc::clone(held))),
            (None, Some(path)) => Some(PolicyOrigin::File(path.clone())),
            (None, None) => self.options.controlled.then_some(PolicyOrigin::Until),
        };
        let built = match origin {
            Some(origin) => self.build_policy(&origin, number).map_err(Failure::from),
            None => self.build_detection(number),
        };
        self.give_back();
        built
    }

    /// Returns memory to the system: texts, their parsed form, and the memory that libhs needs to compile
    /// sets serve loading alone. Takes milliseconds, so a generation without new rules skips it.
    fn give_back(&self) {
        if self.compiled {
            allocator::give_back();
        }
    }

    /// Builds a generation from a controller's configuration. The configuration is kept only when the
    /// generation is to run ([`Builder::hold`]).
    pub fn build_held(
        &mut self,
        joined: &Arc<JoinedPolicy>,
        number: Generation,
    ) -> Result<Built, GenerationError> {
        let built = self.build_policy(&PolicyOrigin::Held(Arc::clone(joined)), number);
        self.give_back();
        built
    }

    /// Makes [`Builder::build`] build this configuration from now on.
    pub fn hold(&mut self, joined: Option<Arc<JoinedPolicy>>) {
        self.held = joined;
    }

    /// The controller's configuration that the next build uses, if there is one.
    pub fn held(&self) -> Option<&JoinedPolicy> {
        self.held.as_deref()
    }

    /// The policy that holds until the controller sends one, in words.
    pub fn meanwhile(&self) -> String {
        // The build reported their warnings.
        let rules = self.rules_named(&mut Vec::new());
        match (&self.options.policy, rules.is_empty()) {
            (Some(path), _) => format!("the policy {} applies", path.display()),
            (None, false) => "this host's own rules apply to all traffic".to_owned(),
            (None, true) => {
                "inline links forward nothing, since this host has neither `policy` nor `rules`".to_owned()
            }
        }
    }

    /// Rule sets that were compiled from the libraries last.
    #[cfg(test)]
    pub fn known(&self) -> &LibraryRuleCache {
        &self.known
    }

    /// Numbers that this program has given to tenants, by name.
    pub fn tenants(&self) -> Vec<(String, TenantId)> {
        self.agent.as_ref().map(Agent::tenants).unwrap_or_default()
    }

    /// The settings with all files that they name, as read last.
    fn contents(&self) -> Contents {
        let mut contents = self.contents.clone();
        contents.absorb(self.base.contents());
        contents
    }

    /// Reads the files of classes, references and thresholds again. After a change, all rules are compiled
    /// again.
    fn read_named_again(&mut self) {
        let mut warnings = Vec::new();
        if let Some(base) = self.base.read_again(&self.settings, &mut warnings) {
            self.base = Arc::new(base);
            self.known = Arc::default();
        }
        self.warn(warnings);
    }

    /// Builds detection alone, for every flow.
    fn build_detection(&mut self, number: Generation) -> Result<Built, Failure> {
        let mut contents = self.contents();
        let mut files = load::rule_files(&self.rules(), &mut contents)?;
        let mut warnings = Vec::new();
        files.extend(self.options.firewall.files(&self.settings, &mut contents, &mut warnings)?);
        self.warn(warnings);
        self.compiled = true;
        let loaded = self.base.rules(&mut files, &self.settings, &[], &mut self.notes)?;
        load::add_lists(&mut contents, &loaded);
        let report = loaded.rules.report.clone();
        self.notes.extend(findings::report(&loaded.diagnostics, &report));
        firewall::accepts(&loaded)?;
        let entries = findings::skipped_entries(&loaded.diagnostics);
        self.options.accepts(&report, &self.base.malformed_thresholds(), entries)?;
        let mut inventory = Inventory::default();
        inventory.add(&files, &loaded);
        self.note_unused_thresholds(&inventory);
        let (needs, inventory) = (Needs::of(&loaded.rules), Arc::new(inventory));
        self.notes.extend(http2_note(&self.settings, &needs));
        let ids = Ids::new(FunctionId(0), number, Arc::new(loaded.rules), self.alerts_max()?);
        let chains = Arc::new(one_chain(number, vec![Box::new(ids)]).map_err(Failure::input)?);
        Ok(Built { chains, report, inventory, function_names: vec!["ids"], needs, policy: None, contents })
    }

    /// Notes the lines of the threshold file that match no rule.
    fn note_unused_thresholds(&mut self, inventory: &Inventory) {
        self.notes.extend(findings::listed(self.base.unused_thresholds(inventory.running())));
    }

    /// Rule files for every flow: those of the command line or the host file, else those that a suricata.yaml
    /// names.
    fn rules(&mut self) -> Vec<PathBuf> {
        let mut warnings = Vec::new();
        let files = self.rules_named(&mut warnings);
        self.warn(warnings);
        files
    }

    fn rules_named(&self, warnings: &mut Vec<String>) -> Vec<PathBuf> {
        match self.options.rules.is_empty() {
            true => rule_files::of(&self.settings, warnings),
            false => self.options.rules.clone(),
        }
    }

    /// Most alerts of one packet that are reported.
    fn alerts_max(&mut self) -> Result<usize, Failure> {
        let (most, warning) = load::alerts_max(&self.settings).map_err(Failure::setting(&self.settings))?;
        self.warn(warning);
        Ok(most)
    }

    /// Takes the notes for the user about the last build, or about its failure.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        self.notes.extend(warnings.into_iter().map(|warning| Note::Line(format!("warning: {warning}"))));
    }

    /// Source of a policy's rules.
    fn texts(&mut self, origin: &PolicyOrigin) -> Texts {
        match origin {
            PolicyOrigin::File(path) => Texts::Files {
                always: self.options.rules.clone(),
                folder: path.parent().unwrap_or(Path::new("")).to_owned(),
            },
            PolicyOrigin::Held(joined) => {
                Texts::Held { joined: Arc::clone(joined), known: Arc::clone(&self.known) }
            }
            PolicyOrigin::Until => Texts::Files { always: self.rules(), folder: PathBuf::new() },
        }
    }

    /// The agent with this program's functions, and the compiler of its rules.
    fn agent(&mut self, origin: &PolicyOrigin) -> Result<(&mut Agent, Arc<RuleSetCompiler>), Failure> {
        let texts = self.texts(origin);
        let compiler = Arc::new(RuleSetCompiler::new(Arc::clone(&self.base), self.settings.clone(), texts));
        // The agent outlives generations: fids, tenants and bits stay. Only the compiler of rules is new.
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
                let memory = self.options.function_hosts.unwrap_or(HOST_MEMORY);
                // For captures the hash keys are fixed: at a bound the result is the same in each run. Tables
                // that face live traffic have secret keys.
                let known = HostTablesConfig { memory, ..HostTablesConfig::default() };
                if self.links.is_none() {
                    agent.set_hosts(known);
                } else {
                    let [names, _] = load::seed();
                    agent.set_hosts(HostTablesConfig { hasher: FlowHasher::new(load::seed()), ..known });
                    agent.set_names_key(names);
                }
                agent.set_patterns(PatternSets::new(Arc::clone(&self.base.compiler)));
                agent.set_early(early);
                agent.set_behind_compaction(allocator::give_back);
                if let Some(ports) = &self.options.ports {
                    agent.set_ports(ports.clone());
                }
                agent
            }
        };
        Ok((agent, compiler))
    }

    /// The policies of a file as classifier entries, for lookups of headers alone: no function is built, no
    /// rule file is read.
    pub fn policy_entries(&mut self, path: &Path) -> Result<PolicySelectors, Failure> {
        let links = self.links.clone();
        let origin = PolicyOrigin::File(path.to_owned());
        let (agent, compiler) = self.agent(&origin)?;
        let file = read_policy(&origin, agent, &compiler, None, &mut Contents::default())?;
        let links = links.unwrap_or_else(|| links_of(&file));
        let by_name: Vec<(&str, LinkId)> = links.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        let PolicyEntries { entries, tenants } =
            agent.policy_entries(&file, &by_name).map_err(Failure::input)?;
        Ok(PolicySelectors { count: file.policies.len(), entries, tenants, links })
    }

    /// Builds a policy.
    fn build_policy(&mut self, origin: &PolicyOrigin, number: Generation) -> Result<Built, GenerationError> {
        let mut has_new_rules = false;
        let mut notes = Vec::new();
        let built = self.policy_built(origin, number, &mut has_new_rules, &mut notes);
        self.notes.append(&mut notes);
        if let Some(built) = built.as_ref().ok().filter(|_| has_new_rules) {
            self.note_unused_thresholds(&Arc::clone(&built.inventory));
        }
        self.compiled |= has_new_rules;
        built
    }

    /// As [`Builder::build_policy`]; reports whether rules were compiled, and the notes for the user.
    fn policy_built(
        &mut self,
        origin: &PolicyOrigin,
        number: Generation,
        has_new_rules: &mut bool,
        notes: &mut Vec<Note>,
    ) -> Result<Built, GenerationError> {
        let with_rules = !self.options.rules.is_empty() && matches!(origin, PolicyOrigin::File(_));
        let (links, with_options, before) = (self.links.clone(), self.options.clone(), self.read.clone());
        let (told_not_ip, mut contents) = (self.told_not_ip, self.contents());
        let (agent, compiler) = self.agent(origin)?;
        let file = Arc::new(read_policy(origin, agent, &compiler, before.as_deref(), &mut contents)?);
        add_overrides(&mut contents, agent);
        let links = links.unwrap_or_else(|| links_of(&file));
        let by_name: Vec<(&str, LinkId)> = links.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        let prepared = agent.prepare(&file, &by_name);
        let read = Some(Arc::clone(&file));
        let is_remade = before.as_ref().is_some_and(|before| !Arc::ptr_eq(&before.common, &file.common));
        *has_new_rules = !compiler.has_nothing_new();
        notes.extend(compiler.take_notes());
        let mut prepared = prepared?;
        prepared.chains.generation = number;
        notes.extend(file.warnings().iter().map(|warning| Note::Line(format!("warning: {warning}"))));
        let hidden = hidden(&file, before.as_deref(), &prepared);
        with_options.accepts_hidden(&hidden)?;
        notes.extend(hidden.iter().map(|warning| Note::Line(format!("warning: {warning}"))));
        let detection = agent.function_id("ids");
        let detects = prepared.classes.iter().any(|c| detection.is_some_and(|id| c.path.contains(id)));
        if !detects && with_rules {
            notes.push(Note::Line(format!(
                "warning: --rules has no effect: no chain of {} has `ids`; add `ids` to a chain there",
                origin.name()
            )));
        }
        let passes_others = with_options.inline && file.drops_by_default();
        if passes_others && !told_not_ip {
            notes.push(Note::Line(format!(
                "warning: {} drops by default, but inline links forward frames that are neither IP nor ARP \
                 (EAPOL, PPPoE discovery, MACsec, IPX, STP, ...), since no policy selects them; \
                 `bartizan.stats.capture.not_ip` counts them; if they must not pass, block them at the \
                 switch",
                origin.name()
            )));
        }
        let mut names = vec!["?"; 32];
        for name in agent.function_names().into_iter().chain(["gate", "names"]) {
            if let Some(slot) = agent.function_id(name).and_then(|id| names.get_mut(usize::from(id.0))) {
                *slot = name;
            }
        }
        let (report, needs) = compiler.totals();
        with_options.accepts(&report, &compiler.malformed_thresholds(), compiler.skipped_entries())?;
        let inventory = compiler.inventory();
        contents.absorb(&compiler.contents());
        let policy = BuiltPolicy {
            tenant_ids: agent.tenants(),
            file,
            classes: prepared.classes,
            tenants: prepared.tenants,
            links,
        };
        let chains = Arc::new(prepared.chains);
        self.read = read;
        self.remade |= is_remade;
        self.told_not_ip |= passes_others;
        if matches!(origin, PolicyOrigin::Held(_)) {
            self.known = Arc::new(compiler.known());
        }
        notes.extend(http2_note(&self.settings, &needs));
        Ok(Built { chains, report, inventory, function_names: names, needs, policy: Some(policy), contents })
    }
}

/// Builds, and passes the diagnostics on, after success and failure.
pub fn reported<T>(builder: &mut Builder, build: impl FnOnce(&mut Builder) -> T) -> T {
    let built = build(builder);
    builder.options.report.notes(&builder.take_notes());
    built
}

/// Adds the settings of functions that were set by commands, which hold until the program ends.
fn add_overrides(contents: &mut Contents, agent: &Agent) {
    let overrides = agent.overrides();
    if !overrides.is_empty() {
        contents.add(ContentKind::Settings, "function-configure", json!(overrides).to_string().as_bytes());
    }
}

/// Reads a policy for the agent's functions, and adds it to `contents`. `before`: the previous one.
fn read_policy(
    origin: &PolicyOrigin,
    agent: &Agent,
    compiler: &RuleSetCompiler,
    before: Option<&PolicyFile>,
    contents: &mut Contents,
) -> Result<PolicyFile, GenerationError> {
    let functions = agent.function_names();
    let path = match origin {
        PolicyOrigin::File(path) => path,
        PolicyOrigin::Held(joined) => {
            contents.add_hash(ContentKind::Policy, CONTROLLER, joined.manifest);
            return Ok(policy::from_parts(CONTROLLER, &joined.parts, &functions, before)?);
        }
        PolicyOrigin::Until => {
            // A host with rules inspects all traffic with them; a host without any blocks all traffic.
            let default = match compiler.has_rules_for_all() {
                true => json!({"action": "allow", "chain": ["ids"]}),
                false => json!({"action": "drop"}),
            };
            let node = read::from_json(&json!({"default": default}));
            return Ok(policy::from_node(CONTROLLER, node, &functions)?);
        }
    };
    let text = input::read_utf8(path, "policy file")?;
    input::is_no_other(path, &text, FileKind::Policy)?;
    contents.add_file(ContentKind::Policy, path, text.as_bytes());
    Ok(policy::parse(&path.display().to_string(), &text, &functions)?)
}

/// Policies and rules of a generation that no packet reaches, since another one comes before them; with their
/// places. `before`: the policies of the generation before; what was so in it is left out.
fn hidden(file: &PolicyFile, before: Option<&PolicyFile>, prepared: &Prepared) -> Vec<String> {
    let policies = file.hidden_policies(before);
    policies.iter().chain(&prepared.warnings).map(|problem| file.line_of(problem)).collect()
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

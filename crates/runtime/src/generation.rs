// SPDX-License-Identifier: Apache-2.0
//! Builds generations: rules (and policy) become chains; state that outlives generations is shared.

use crate::allocator;
use crate::compiling::{LibraryRuleCache, RuleSetCompiler, Texts};
use crate::error::Failure;
use crate::firewall::{self, FirewallOptions};
use crate::guests;
use crate::log::{Note, Report};
use crate::outputs::OutputSelection;
use crate::reload::Inventory;
use crate::traces::Keywords;
use crate::{findings, input, load, rule_files};
pub use bartizan_agent::generations::{BuiltPolicy, PolicySelectors};
use bartizan_agent::generations::{GenerationBuilder, PolicyGeneration, PolicySource};
use bartizan_agent::joined::JoinedPolicy;
use bartizan_agent::{Agent, Overrides, one_chain};
use bartizan_api::content::{ContentKind, Contents};
use bartizan_base::{FunctionId, Generation, LinkId, SettingsMap, TenantId};
use bartizan_config::kind::FileKind;
use bartizan_config::policy::{PolicyError, did_you_mean};
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
    /// Some link is a guest, whose connections have no packets.
    pub guests: bool,
    /// A level below refuses packets without a flow on some link.
    pub early: bool,
    /// Names of the ports that packets may be redirected to, by number; `None`: any port that the policy
    /// names.
    pub ports: Option<Vec<String>>,
    /// Functions that are not this program's own, which policies may name beside these.
    pub functions: Vec<Arc<dyn FunctionKind>>,
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
    load::unseen_http2(settings, needs).map(warning)
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
    /// The policy of the chains.
    pub policy: Option<BuiltPolicy>,
    /// The contents that it was built from.
    pub contents: Contents,
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

/// Source of a policy, which is read when a generation is built.
enum PolicyOrigin {
    /// A file.
    File(PathBuf),
    /// A controller.
    Held(Arc<JoinedPolicy>),
    /// None yet: the controller has not sent anything.
    Until,
}

impl PolicyOrigin {
    /// Reads the source.
    fn read(&self, compiler: &RuleSetCompiler) -> Result<PolicySource, Failure> {
        let path = match self {
            PolicyOrigin::File(path) => path.clone(),
            PolicyOrigin::Held(joined) => return Ok(PolicySource::Controller(Arc::clone(joined))),
            PolicyOrigin::Until => {
                return Ok(PolicySource::Awaited { has_rules: compiler.has_rules_for_all() });
            }
        };
        let text = input::read_utf8(&path, "policy file")?;
        input::is_no_other(&path, &text, FileKind::Policy)?;
        Ok(PolicySource::File { path, text })
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
    /// The builder of policies; `None`: no policy has been built.
    policies: Option<GenerationBuilder>,
    /// Kinds of functions, except detection's, which compiles the rules of a generation.
    kinds: Vec<Arc<dyn FunctionKind>>,
    /// The links by name; `None`: whatever links the policy names.
    links: Option<Vec<(String, LinkId)>>,
    /// The controller's configuration.
    held: Option<Arc<JoinedPolicy>>,
    /// Rule sets that were compiled from a controller's libraries last.
    known: Arc<LibraryRuleCache>,
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
        let mut kinds = registry::kinds(&Services { hosts });
        kinds.extend(options.functions.iter().cloned());
        Ok(Builder {
            options: options.clone(),
            settings,
            contents,
            base,
            warnings,
            policies: None,
            kinds,
            links,
            held: None,
            known: Arc::default(),
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
        match &mut self.policies {
            Some(policies) => policies.agent_mut().configure(function, settings),
            None => Err("without a policy, detection runs alone and has no settings to change; use a policy"
                .to_owned()),
        }
    }

    /// Restores previous overrides of functions.
    pub fn restore(&mut self, overrides: Overrides) {
        if let Some(policies) = &mut self.policies {
            policies.agent_mut().restore(overrides);
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
            allocator::release_free_pages();
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
        self.release_memory();
        built
    }

    /// Returns memory to the system: texts, their parsed form, and the memory that libhs needs to compile
    /// sets serve loading alone. Takes milliseconds, so a generation without new rules skips it.
    fn release_memory(&self) {
        if self.compiled {
            allocator::release_free_pages();
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
        self.release_memory();
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
    pub fn describe_interim(&self) -> String {
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
        self.policies.as_ref().map(|policies| policies.agent().tenants()).unwrap_or_default()
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
        if self.options.guests {
            self.notes.extend(guests::packet_rules_note(loaded.rules.of_packets_alone()));
        }
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
        self.notes.extend(warnings.into_iter().map(warning));
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

    /// The builder of policies with this program's functions, and the compiler of its rules.
    fn policies(
        &mut self,
        origin: &PolicyOrigin,
    ) -> Result<(&mut GenerationBuilder, Arc<RuleSetCompiler>), Failure> {
        let texts = self.texts(origin);
        let compiler = Arc::new(RuleSetCompiler::new(Arc::clone(&self.base), self.settings.clone(), texts));
        // Only the compiler of rules is new.
        let mut kinds = self.kinds.clone();
        let alerts_max = self.alerts_max()?;
        kinds.push(Arc::new(IdsKind::new(Arc::clone(&compiler) as Arc<dyn RuleCompiler>, alerts_max)));
        let policies = match self.policies.take() {
            Some(mut policies) => {
                policies.agent_mut().set_kinds(kinds);
                policies
            }
            None => GenerationBuilder::new(self.new_agent(kinds)?, self.links.clone()),
        };
        Ok((self.policies.insert(policies), compiler))
    }

    /// An agent with these functions.
    fn new_agent(&self, kinds: Vec<Arc<dyn FunctionKind>>) -> Result<Agent, Failure> {
        let mut agent = Agent::new(kinds).map_err(Failure::input)?;
        let memory = self.options.function_hosts.unwrap_or(HOST_MEMORY);
        // For captures the hash keys are fixed: at a bound the result is the same in each run. Tables that
        // face live traffic have secret keys.
        let known = HostTablesConfig { memory, ..HostTablesConfig::default() };
        if self.links.is_none() {
            agent.set_hosts(known);
        } else {
            let [names, _] = load::seed();
            agent.set_hosts(HostTablesConfig { hasher: FlowHasher::new(load::seed()), ..known });
            agent.set_names_key(names);
        }
        agent.set_patterns(PatternSets::new(Arc::clone(&self.base.compiler)));
        agent.set_early(self.options.early);
        agent.set_behind_compaction(allocator::release_free_pages);
        if let Some(ports) = &self.options.ports {
            agent.set_ports(ports.clone());
        }
        Ok(agent)
    }

    /// The policies of a file as classifier entries, for lookups of headers alone: no function is built, no
    /// rule file is read.
    pub fn policy_entries(&mut self, path: &Path) -> Result<PolicySelectors, Failure> {
        let origin = PolicyOrigin::File(path.to_owned());
        let (policies, compiler) = self.policies(&origin)?;
        policies.selectors(&origin.read(&compiler)?).map_err(Failure::input)
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
        let (with_options, told_not_ip, mut contents) =
            (self.options.clone(), self.told_not_ip, self.contents());
        let (policies, compiler) = self.policies(origin)?;
        let source = origin.read(&compiler)?;
        source.add_to(&mut contents);
        add_overrides(&mut contents, policies.agent());
        let built = policies.build(&source, number);
        *has_new_rules = !compiler.has_nothing_new();
        notes.extend(compiler.take_notes());
        let PolicyGeneration { chains, policy, function_names, hidden, is_remade } = built?;
        let (file, name) = (&policy.file, source.name());
        notes.extend(file.warnings().into_iter().map(warning));
        let hidden: Vec<String> = hidden.iter().map(|problem| file.line_of(problem)).collect();
        with_options.accepts_hidden(&hidden)?;
        notes.extend(hidden.into_iter().map(warning));
        let detection = policies.agent().function_id("ids");
        let detects = policy.classes.iter().any(|c| detection.is_some_and(|id| c.path.contains(id)));
        if !detects && with_rules {
            notes.push(warning(format!(
                "--rules has no effect: no chain of {name} has `ids`; add `ids` to a chain there"
            )));
        }
        let passes_others = with_options.inline && file.drops_by_default();
        if passes_others && !told_not_ip {
            notes.push(warning(format!(
                "{name} drops by default, but inline links forward frames that are neither IP nor ARP (EAPOL, \
                 PPPoE discovery, MACsec, IPX, STP, ...), since no policy selects them; \
                 `bartizan.stats.capture.not_ip` counts them; if they must not pass, block them at the switch"
            )));
        }
        let (report, needs) = compiler.totals();
        let of_packets = compiler.rules_of_packets_alone();
        with_options.accepts(&report, &compiler.malformed_thresholds(), compiler.skipped_entries())?;
        let inventory = compiler.inventory();
        contents.absorb(&compiler.contents());
        policies.keep(&policy);
        self.remade |= is_remade;
        self.told_not_ip |= passes_others;
        if matches!(origin, PolicyOrigin::Held(_)) {
            self.known = Arc::new(compiler.known());
        }
        notes.extend(http2_note(&self.settings, &needs));
        if with_options.guests && with_options.ports.as_ref().is_some_and(|ports| !ports.is_empty()) {
            notes.push(warning(
                "a guest's connections do not leave by the host file's `ports`: those that a rule would redirect are blocked"
                    .to_owned(),
            ));
        }
        if with_options.guests {
            notes.extend(guests::packet_rules_note(of_packets.into_iter()));
        }
        let (chains, policy) = (Arc::new(chains), Some(policy));
        Ok(Built { chains, report, inventory, function_names, needs, policy, contents })
    }
}

/// The note of a warning.
fn warning(text: String) -> Note {
    Note::Line(format!("warning: {text}"))
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

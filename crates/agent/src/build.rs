// SPDX-License-Identifier: Apache-2.0
//! Builds a generation from a policy file: fids, paths, classifier, functions with their rules. All or
//! nothing: an error leaves the agent, its global rule table and the running generation unchanged.
//!
//! A policy that is the same by address as in the previous generation is not compiled again (`owner`), unless
//! the common input of all policies has changed (`context`).

mod context;
mod errors;
mod names;
mod overrides;
mod owner;
mod quotas;
mod state;

use crate::classes::{PolicyClassifier, Variants, both_ways};
use crate::compaction::Compaction;
use crate::early::{self, Selected};
use crate::grt::{FidAllocator, GlobalRuleTable};
use crate::kept;
use crate::lookup::{KeptLookup, Lookup, PolicyRules, TOGETHER_MAX};
use crate::order::{self, OrderError};
use crate::staged::Staged;
use crate::tenants::TenantSelector;
use bartizan_base::{Fid, FunctionId, Generation, LinkId, Path, TenantId};
use bartizan_classify::list::{Numbers, Placed};
use bartizan_classify::names::Lease;
use bartizan_classify::{HeaderRule, List, NameTable, RankedRule};
use bartizan_config::policy::{
    Bypass, ConfigProblem, OneSided, OverloadAction, OverloadPolicy, PolicyDefinition, PolicyError,
    PolicyFile, Target, did_you_mean,
};
use bartizan_function::contain::contained;
use bartizan_function::{
    Function, FunctionKind, HeaderRules, HostTables, HostTablesConfig, PatternSets, RulePart, RuleSource,
    RulesError,
};
use bartizan_stages::chain::{Chains, PolicyMap};
use context::{LastBuild, PolicyBuildContext};
use owner::{CompiledOwner, Owner, SectionClasses};
use serde_json::{Map, Value};
use state::PolicyBuildState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The service level of hosts without detection.
const NO_DETECTION: &str = "none";
/// The function that service levels select rules of.
const DETECTION: &str = "ids";
/// Name of the default in events.
pub const DEFAULT_POLICY: &str = "default";
/// The functions that the agent adds: `gate` enforces what a policy states for whole flows, `names` reads
/// resolvers' answers.
pub(crate) const GATE: &str = "gate";
const NAMES: &str = "names";
/// The functions that the agent adds, for checks of the names in chains.
pub const AGENTS_OWN: [&str; 2] = [GATE, NAMES];

/// A class as events and `explain` describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassInfo {
    /// The fid of the class.
    pub fid: Fid,
    /// The tenant's name.
    pub tenant: String,
    /// The policy; `None`: the default for traffic that no policy matches.
    pub policy: Option<String>,
    /// The service level of the class's hosts, if one applies.
    pub level: Option<String>,
    /// The chain.
    pub path: Path,
    /// Whether verdicts are only reported.
    pub staged: bool,
    /// The handling of one-sided flows.
    pub one_sided: OneSided,
    /// The handling of the class's flows when memory for application layers is used up.
    pub overload: OverloadPolicy,
    /// Bounds on how much of each flow is inspected.
    pub bypass: Bypass,
    /// Functions of the chain without which packets are still forwarded.
    pub fail_open_functions: Path,
}

/// A generation that is ready to run.
pub struct Prepared {
    /// The chains, for the workers.
    pub chains: Chains,
    /// Assigns packets to tenants.
    pub tenants: TenantSelector,
    /// The classes, by fid; those of unchanged policies are the same by address.
    pub classes: Vec<Arc<ClassInfo>>,
    /// Remarks of functions on rules that were made for this generation, in the order of the file.
    pub warnings: Vec<ConfigProblem>,
}

impl core::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Prepared")
            .field("generation", &self.chains.generation)
            .field("classes", &self.classes)
            .finish_non_exhaustive()
    }
}

/// The policies of a file as header rules that the lookup of a new flow matches.
#[derive(Clone, Debug)]
pub struct PolicyEntries {
    /// The rules of each policy; fid and priority are the policy's place in the file, from 0. A flow that
    /// matches none gets the default.
    pub entries: Vec<RankedRule>,
    /// The tenants of the file and the default tenant, with their numbers in `entries`.
    pub tenants: Vec<(String, TenantId)>,
}

/// Turns policies into generations.
pub struct Agent {
    kinds: Vec<Arc<dyn FunctionKind>>,
    ids: Vec<FunctionId>,
    together_max: usize,
    /// Whether generations include the list for a level below that drops packets without a flow.
    early: bool,
    state: PolicyBuildState,
    /// Tables of state that functions keep per host.
    hosts: HostTables,
    /// The compiler of patterns that functions search for.
    patterns: PatternSets,
    /// Settings given by orders, in addition to the sections.
    overrides: Overrides,
    /// The current addresses of DNS names.
    names: Arc<NameTable>,
    /// The last generation, whose parts the next one may reuse.
    kept: Option<LastBuild>,
    lookup: KeptLookup,
    compaction: Compaction,
    /// Names of the host's ports, in the order of their numbers; `None`: no host is known, and policies may
    /// name any.
    ports: Option<Vec<String>>,
}

/// Settings that orders gave to functions in addition to their sections: by function, then by name.
pub type Overrides = BTreeMap<String, Map<String, Value>>;

impl core::fmt::Debug for Agent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Agent").field("ids", &self.ids).field("state", &self.state).finish_non_exhaustive()
    }
}

impl Agent {
    /// An agent for these functions. A function has the same bit of paths in all generations.
    ///
    /// # Errors
    /// The functions cannot be put in an order.
    pub fn new(kinds: Vec<Arc<dyn FunctionKind>>) -> Result<Self, OrderError> {
        let specs: Vec<_> = kinds.iter().map(|k| k.spec()).collect();
        let ids = order::order(&specs)?;
        let state = PolicyBuildState::default();
        let (hosts, names, overrides) = (HostTables::default(), Arc::default(), Overrides::new());
        Ok(Agent {
            kinds,
            ids,
            together_max: TOGETHER_MAX,
            early: false,
            state,
            hosts,
            patterns: PatternSets::default(),
            names,
            overrides,
            kept: None,
            lookup: KeptLookup::default(),
            compaction: Compaction::default(),
            ports: None,
        })
    }

    /// Sets bounds and hash of the functions' host tables. Call before the first generation: state in the
    /// tables is lost.
    pub fn set_hosts(&mut self, config: HostTablesConfig) {
        self.hosts = HostTables::new(config);
    }

    /// Sets the compiler of the patterns that functions search for. Call before the first generation.
    pub fn set_patterns(&mut self, patterns: PatternSets) {
        self.patterns = patterns;
    }

    /// Sets the allocator of fids for new classes. Call before the first generation, so that its classes use
    /// it.
    pub fn set_fid_allocator(&mut self, allocator: Box<dyn FidAllocator>) {
        self.state.table = Arc::new(GlobalRuleTable::with(allocator));
    }

    /// Sets the hash key of the table of DNS names, which must be secret from live traffic. Call before the
    /// first generation: learned addresses are lost.
    pub fn set_names_key(&mut self, key: u64) {
        self.names = Arc::new(NameTable::keyed(key));
    }

    /// Replaces the kinds by others of the same functions, in the same order, made with other services.
    pub fn set_kinds(&mut self, kinds: Vec<Arc<dyn FunctionKind>>) {
        let names = |kinds: &[Arc<dyn FunctionKind>]| kinds.iter().map(|k| k.spec().name).collect::<Vec<_>>();
        if names(&kinds) == names(&self.kinds) {
            self.kinds = kinds;
        }
    }

    /// Sets the most header rules that share one lookup, those that select policies included; with more, each
    /// policy has its own classifier for its functions' rules.
    pub fn set_together_max(&mut self, rules: usize) {
        self.together_max = rules;
    }

    /// The current addresses of the policies' DNS names.
    #[must_use]
    pub const fn names(&self) -> &Arc<NameTable> {
        &self.names
    }

    /// Sets whether generations include the list for a level below that drops packets without a flow
    /// (`Chains::early`).
    pub fn set_early(&mut self, early: bool) {
        self.early = early;
    }

    /// Sets a hook that the compaction thread calls after each compilation, to give freed memory back.
    pub fn set_behind_compaction(&mut self, behind: fn()) {
        self.compaction.set_behind(behind);
    }

    /// Sets the ports of the host file, in its order, that policies may redirect to. Without this call they
    /// may name any.
    pub fn set_ports(&mut self, names: Vec<String>) {
        self.ports = Some(names);
    }

    /// Names of the sections that a policy file may have.
    #[must_use]
    pub fn function_names(&self) -> Vec<&'static str> {
        self.kinds.iter().map(|k| k.spec().name).filter(|n| ![GATE, NAMES].contains(n)).collect()
    }

    /// The bit of a function in paths.
    #[must_use]
    pub fn function_id(&self, name: &str) -> Option<FunctionId> {
        self.kinds.iter().zip(&self.ids).find(|(k, _)| k.spec().name == name).map(|(_, id)| *id)
    }

    /// The tenants and their numbers.
    #[must_use]
    pub fn tenants(&self) -> Vec<(String, TenantId)> {
        self.state.tenants.iter().map(|(name, id)| (name.clone(), *id)).collect()
    }

    /// The global rule table.
    #[must_use]
    pub fn table(&self) -> &GlobalRuleTable {
        &self.state.table
    }

    /// Builds the next generation from a policy file. `links`: the links of the host file, by name.
    ///
    /// # Errors
    /// All faults of the file, with their places; the agent is unchanged then.
    pub fn prepare(&mut self, file: &PolicyFile, links: &[(&str, LinkId)]) -> Result<Prepared, PolicyError> {
        self.prepare_as(Generation(self.state.generation.0 + 1), file, links)
    }

    /// As [`Agent::prepare`], with the number that the device gives the generation.
    ///
    /// # Errors
    /// As [`Agent::prepare`].
    pub fn prepare_as(
        &mut self,
        number: Generation,
        file: &PolicyFile,
        links: &[(&str, LinkId)],
    ) -> Result<Prepared, PolicyError> {
        let mut build = self.begin(file, links);
        build.state.generation = number;
        let prepared = build.run();
        let Build { state, problems, lookup, kept, .. } = build;
        match prepared {
            Some(prepared) if problems.is_empty() => {
                self.state = state;
                self.compaction.schedule(lookup.layers());
                self.lookup = lookup;
                self.kept = kept;
                self.names.set_bounds(file.dns.addresses as usize);
                Ok(prepared)
            }
            _ => Err(wrong(file, problems)),
        }
    }

    /// The header rules with which a generation of this file would find a new flow's policy. Builds no
    /// function and leaves the agent unchanged. `links`: as for [`Agent::prepare`].
    ///
    /// # Errors
    /// Faults of chains, tenants or links, with their places in the file.
    pub fn policy_entries(
        &self,
        file: &PolicyFile,
        links: &[(&str, LinkId)],
    ) -> Result<PolicyEntries, PolicyError> {
        let mut build = self.begin(file, links);
        let entries = build.policy_entries();
        match (entries, build.problems) {
            (Some(entries), problems) if problems.is_empty() => Ok(entries),
            (_, problems) => Err(wrong(file, problems)),
        }
    }

    fn begin<'a>(&'a self, file: &'a PolicyFile, links: &'a [(&'a str, LinkId)]) -> Build<'a> {
        Build {
            agent: self,
            file,
            links,
            state: self.state.clone(),
            problems: Vec::new(),
            warnings: Vec::new(),
            names: None,
            lookup: KeptLookup::default(),
            kept: None,
        }
    }
}

/// Sorts the problems by place, without duplicates.
fn wrong(file: &PolicyFile, mut problems: Vec<ConfigProblem>) -> PolicyError {
    problems.sort_by_key(|p| (p.position.line, p.position.column));
    problems.dedup();
    PolicyError::Wrong { file: file.name.clone(), problems }
}

/// The data plane's form of an overload setting.
fn overload(policy: OverloadPolicy) -> bartizan_stages::overload::Overload {
    use bartizan_stages::overload::OverloadAction as Action;
    let action = match policy.action {
        None => Action::Settings,
        Some(OverloadAction::Inspect) => Action::Inspect,
        Some(OverloadAction::Pass) => Action::Pass,
        Some(OverloadAction::Drop) => Action::Drop,
    };
    bartizan_stages::overload::Overload { priority: policy.priority, action }
}

/// Calls `rules` of a function; one that panics has no rules, and the running generation stays.
fn rules_of(kind: &dyn FunctionKind, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
    contained(|| kind.rules(source)).unwrap_or_else(|panicked| {
        let message = format!("this section cannot be used: {panicked}; please report it");
        Err(vec![RulesError { function: kind.spec().name, place: "classes/0".to_owned(), message }])
    })
}

/// The selection of each owner, the default last and selecting all, with the class of its flows for its first
/// tenant. An owner without tenants has no flows.
fn selected_by(owners: &[Arc<CompiledOwner>]) -> Vec<Selected> {
    let of = |owner: &Arc<CompiledOwner>| Selected {
        within: match owner.policy {
            None => Arc::from([HeaderRule::default()]),
            Some(_) => Arc::clone(&owner.selected),
        },
        class: owner.first.unwrap_or_default(),
        fails_open: owner.first_fails_open,
    };
    owners.iter().map(of).collect()
}

struct Build<'a> {
    agent: &'a Agent,
    file: &'a PolicyFile,
    links: &'a [(&'a str, LinkId)],
    state: PolicyBuildState,
    problems: Vec<ConfigProblem>,
    /// Remarks on valid policies and rules that have no effect.
    warnings: Vec<ConfigProblem>,
    /// A lease on the DNS names of the file's groups.
    names: Option<Arc<Lease>>,
    /// Parts that the next generation may reuse.
    lookup: KeptLookup,
    kept: Option<LastBuild>,
}

impl<'a> Build<'a> {
    fn problem(&mut self, path: &str, message: String) {
        self.problems.push(ConfigProblem {
            position: self.file.locate(path),
            path: path.to_owned(),
            message,
        });
    }

    /// The compiled policies in order, then the default; reuses those of the previous generation that are
    /// unchanged.
    fn owners(&mut self, context: &Arc<PolicyBuildContext>) -> Option<Vec<Arc<CompiledOwner>>> {
        let (agent, file) = (self.agent, self.file);
        let before = agent.kept.as_ref().filter(|kept| Arc::ptr_eq(&kept.context, context));
        let before = before.and_then(|kept| kept.owners.split_last());
        let (default, before) =
            before.map(|(default, policies)| (Some(default), policies)).unwrap_or_default();
        let same = kept::places(
            (before, |made: &Arc<CompiledOwner>| {
                made.policy.as_ref().map(|policy| Arc::as_ptr(policy).addr())
            }),
            (file.policies.as_slice(), |policy: &Arc<PolicyDefinition>| Some(Arc::as_ptr(policy).addr())),
        );
        let mut owners = Vec::with_capacity(file.policies.len() + 1);
        for (index, policy) in file.policies.iter().enumerate() {
            let known = same.get(index).copied().flatten().and_then(|place| before.get(place));
            owners.push(match known {
                Some(made) => Arc::clone(made),
                None => Arc::new(self.make(context, &Owner::policy(index, policy), Some(policy))?),
            });
        }
        owners.push(match default {
            Some(made) => Arc::clone(made),
            None => Arc::new(self.make(context, &Owner::default(&file.default), None)?),
        });
        Some(owners)
    }

    fn run(&mut self) -> Option<Prepared> {
        let context = self.context()?;
        let owners = self.owners(&context)?;
        let (mut functions, rules) = self.functions(&context, &owners);
        let by_name = self.by_name(&mut functions);
        self.check_rule_quotas(&owners, &functions);
        let quotas = self.quotas();
        if !self.problems.is_empty() {
            return None;
        }
        let agent = self.agent;
        let early = agent
            .early
            .then(|| Arc::new(early::list(&context.tenants, &selected_by(&owners), &functions, &rules)));
        let called = |id: &FunctionId| rules.iter().find(|r| r.function == *id).map_or("rule", |r| r.called);
        let named = agent.kinds.iter().zip(&agent.ids).map(|(kind, id)| (*id, kind.spec().name, called(id)));
        let function_names = named.collect();
        let selected: Vec<&Arc<[HeaderRule]>> = owners.iter().map(|owner| &owner.selected).collect();
        let levels = self.level_entries().into_iter().collect();
        let (most, before) = (agent.together_max, &agent.lookup);
        let lookup = Lookup::new(entries(&owners), levels, &selected, rules, most, before);
        let lookup = lookup.map_err(|error| self.problem("policies", error.to_string())).ok()?;
        self.lookup = lookup.kept();
        let (classes, defaults) = classes(&owners);
        let mut infos: Vec<Arc<ClassInfo>> = owners.iter().flat_map(|owner| &owner.infos).cloned().collect();
        infos.sort_by_key(|i| i.fid);
        let fids: Vec<Fid> = infos.iter().map(|info| info.fid).collect();
        self.state.retain(&fids);
        let traits = owners.iter().flat_map(|owner| owner.traits.iter().copied());
        let policies = PolicyMap::with(self.state.policies(), &traits.collect::<Vec<_>>());
        let last = owners.iter().position(|owner| owner.takes_all).unwrap_or(owners.len());
        let reached = owners.iter().take(last + 1).flat_map(|owner| &owner.traits);
        let policies = policies.of_reachable(reached.map(|(_, traits)| *traits));
        let classifier = Box::new(PolicyClassifier {
            lookup,
            classes,
            defaults,
            functions: function_names,
            levels: self.file.service_levels.iter().map(|l| l.level.clone()).collect(),
            tenants: context.tenants.clone(),
            policies: Arc::new(policies),
            by_name,
            quotas,
        });
        let mut chains = Chains::new(self.state.generation, functions, classifier);
        chains.early = early;
        chains.ports = agent.ports.clone().unwrap_or_default().into();
        let tenants = context.tenants.clone();
        self.kept = Some(LastBuild { context, owners });
        let mut warnings = core::mem::take(&mut self.warnings);
        warnings.sort_by_key(|warning| (warning.position.line, warning.position.column));
        Some(Prepared { chains, tenants, classes: infos, warnings })
    }

    /// See [`Agent::policy_entries`].
    fn policy_entries(&mut self) -> Option<PolicyEntries> {
        let context = self.context()?;
        let (mut entries, file) = (Vec::new(), self.file);
        for (index, policy) in file.policies.iter().enumerate() {
            let owner = Owner::policy(index, policy);
            self.chain(&owner)?;
            let number = index as u32;
            for (_, tenant) in context.tenants_of(Some(policy)) {
                let rules = self.header_rules(&owner.path, policy, Some(*tenant));
                entries.extend(rules.into_iter().map(|rule| RankedRule {
                    fid: Fid(number),
                    priority: number,
                    rule,
                }));
            }
        }
        self.chain(&Owner::default(&file.default))?;
        Some(PolicyEntries { entries, tenants: context.known.to_vec() })
    }

    fn links_of(&mut self, path: &str, names: Option<&[String]>) -> Vec<Option<LinkId>> {
        let Some(names) = names else { return vec![None] };
        let mut ids = Vec::new();
        for (index, name) in names.iter().enumerate() {
            match self.links.iter().find(|(n, _)| n == name) {
                Some((_, id)) => ids.push(Some(*id)),
                None => {
                    let hint = did_you_mean(name, self.links.iter().map(|(n, _)| *n));
                    self.problem(
                        &format!("{path}/{index}"),
                        format!("the host file has no link `{name}`; {hint}"),
                    );
                }
            }
        }
        ids
    }

    fn level_entries(&self) -> Vec<RankedRule> {
        let everything = self.sides(&[Target::Any]);
        let mut entries = Vec::new();
        for (index, level) in self.file.service_levels.iter().enumerate() {
            let hosts = self.sides(&level.hosts);
            let tenants: Vec<Option<TenantId>> = match &level.tenant {
                Some(names) if !names.iter().any(|n| n == "any") => {
                    names.iter().filter_map(|n| self.state.tenants.get(n).map(|t| Some(*t))).collect()
                }
                _ => vec![None],
            };
            let number = index as u32;
            for tenant in tenants {
                let rules = both_ways(&hosts, &everything, tenant, &[None]);
                entries.extend(rules.into_iter().map(|rule| RankedRule {
                    fid: Fid(number),
                    priority: number,
                    rule,
                }));
            }
        }
        entries
    }

    /// Builds every function that some path needs, with its rules, and collects the rules for the common
    /// lookup.
    fn functions(
        &mut self,
        context: &PolicyBuildContext,
        owners: &[Arc<CompiledOwner>],
    ) -> (Vec<Arc<dyn Function>>, Vec<PolicyRules>) {
        let mut looked_up = Vec::new();
        let mut functions: Vec<(FunctionId, Arc<dyn Function>)> = Vec::new();
        let agent = self.agent;
        let mut by_kind: Vec<Vec<OwnersGroup<'_>>> = agent.kinds.iter().map(|_| Vec::new()).collect();
        for (owner, made) in owners.iter().enumerate() {
            for group in &made.groups {
                if let Some(own) = by_kind.get_mut(group.kind) {
                    own.push(OwnersGroup { owner, staged: made.staged, group });
                }
            }
        }
        for ((kind, id), own) in agent.kinds.iter().zip(&agent.ids).zip(&by_kind) {
            if own.is_empty() {
                continue;
            }
            let parts: Vec<Arc<RulePart>> = own.iter().map(|told| Arc::clone(&told.group.part)).collect();
            let source = RuleSource {
                common: &context.rules,
                classes: &parts,
                place: &self.file.name,
                generation: self.state.generation,
                id: *id,
                hosts: &agent.hosts,
                patterns: &agent.patterns,
                names: &agent.names,
            };
            match rules_of(kind.as_ref(), &source) {
                Ok(mut function) => {
                    let of_classes: Vec<usize> = own.iter().map(|told| told.owner).collect();
                    let warnings = function.take_warnings();
                    warnings.into_iter().for_each(|warning| self.rules_warning(&of_classes, warning));
                    of_policies(*id, function.take_header_rules(), own, &mut looked_up);
                    let staged = own.iter().filter(|told| told.staged);
                    let staged: HashSet<Fid> =
                        staged.flat_map(|told| told.group.fids.iter().copied()).collect();
                    let function: Arc<dyn Function> = if staged.is_empty() {
                        Arc::from(function)
                    } else {
                        Arc::new(Staged::new(function, staged))
                    };
                    functions.push((*id, function));
                }
                Err(errors) => {
                    let of_classes: Vec<usize> = own.iter().map(|told| told.owner).collect();
                    errors.into_iter().for_each(|error| self.rules_error(&of_classes, error));
                }
            }
        }
        functions.sort_by_key(|(id, _)| *id);
        (functions.into_iter().map(|(_, f)| f).collect(), looked_up)
    }
}

/// A function's input for one owner.
struct OwnersGroup<'m> {
    owner: usize,
    staged: bool,
    group: &'m SectionClasses,
}

/// Adds a function's header rules, each with the policies that it applies to.
fn of_policies(
    function: FunctionId,
    header_rules: Vec<HeaderRules>,
    own: &[OwnersGroup<'_>],
    looked_up: &mut Vec<PolicyRules>,
) {
    let fids =
        || own.iter().flat_map(|told| told.group.fids.iter().map(move |fid| (fid.0 as usize, told.owner)));
    let mut owner_of = vec![None; fids().map(|(fid, _)| fid + 1).max().unwrap_or(0)];
    fids().for_each(|(fid, owner)| {
        if let Some(place) = owner_of.get_mut(fid) {
            *place = Some(owner);
        }
    });
    let shared = header_rules.len() == 1;
    for HeaderRules { called, fids, rules } in header_rules {
        let mut policies: Vec<usize> = match fids.is_empty() {
            true => own.iter().map(|told| told.owner).collect(),
            false => fids.iter().filter_map(|fid| owner_of.get(fid.0 as usize).copied().flatten()).collect(),
        };
        policies.sort_unstable();
        policies.dedup();
        let of = |policies| PolicyRules { function, called, policies, rules: Arc::clone(&rules) };
        if shared {
            looked_up.push(of(policies));
        } else {
            looked_up.extend(policies.into_iter().map(|policy| of(vec![policy])));
        }
    }
}

/// The entries by which flows find their policies; earlier policies come first. The default has none.
fn entries(owners: &[Arc<CompiledOwner>]) -> List {
    let placed = |(priority, owner): (u32, &Arc<CompiledOwner>)| Placed {
        piece: Arc::clone(&owner.entries),
        numbers: Numbers::At(priority),
    };
    List::new((0u32..).zip(owners).map(placed).collect())
}

/// The classes of policies by the fids of their entries, and those of the default by tenant.
fn classes(owners: &[Arc<CompiledOwner>]) -> (Vec<Option<Variants>>, HashMap<TenantId, Variants>) {
    let placed = |owner: usize, variants: &Variants| Variants { owner, ..variants.clone() };
    let (mut by_fid, mut defaults) = (Vec::new(), HashMap::new());
    for (owner, made) in owners.iter().enumerate() {
        for (tenant, variants) in &made.classes {
            let fid = variants.plain.fid.0 as usize;
            if made.policy.is_none() {
                defaults.insert(*tenant, placed(owner, variants));
                continue;
            }
            if by_fid.len() <= fid {
                by_fid.resize_with(fid + 1, || None);
            }
            if let Some(place) = by_fid.get_mut(fid) {
                *place = Some(placed(owner, variants));
            }
        }
    }
    (by_fid, defaults)
}

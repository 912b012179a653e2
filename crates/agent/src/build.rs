// SPDX-License-Identifier: Apache-2.0
//! From a policy file to a generation: fids, paths, classifier, functions with their rules. All or nothing:
//! an error leaves the agent, its global rule table and the running generation as they were.
//!
//! A policy that is the same by address as in the generation before is made no more (`owner`), unless what
//! all rest on has changed (`context`): what is left of it is to be put in its place.

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
use bartizan_classify::{HeaderRule, List, Names, RankedRule};
use bartizan_config::policy::{
    Bypass, OneSided, Overload, OverloadAction, Policy, PolicyError, PolicyFile, Problem, Target,
    did_you_mean,
};
use bartizan_function::contain::contained;
use bartizan_function::{
    Function, FunctionKind, HeaderRules, HostTables, HostTablesConfig, PatternSets, RulePart, RuleSource,
    RulesError,
};
use bartizan_stages::chain::{Chains, PolicyMap};
use context::{Context, LastBuild};
use owner::{Group, Made, Owner};
use serde_json::{Map, Value};
use state::State;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The level of hosts that need no detection.
const NO_DETECTION: &str = "none";
/// The function that service levels are about.
const DETECTION: &str = "ids";
/// What the default is called in events.
pub const DEFAULT_POLICY: &str = "default";
/// The functions that the agent adds: what a policy says of flows as a whole, and who reads answers of
/// resolvers.
pub(crate) const GATE: &str = "gate";
const NAMES: &str = "names";
/// The same, for those who say what chains may name.
pub const AGENTS_OWN: [&str; 2] = [GATE, NAMES];

/// What a fid stands for, for events and `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassInfo {
    /// The class.
    pub fid: Fid,
    /// Its tenant's name.
    pub tenant: String,
    /// Its policy; `None`: what traffic gets that no policy names.
    pub policy: Option<String>,
    /// The service level of its hosts, where one is given.
    pub level: Option<String>,
    /// Its chain.
    pub path: Path,
    /// Verdicts are only reported.
    pub staged: bool,
    /// What is done with one-sided flows.
    pub one_sided: OneSided,
    /// How its flows stand when memory for application layers is used up.
    pub overload: Overload,
    /// How much of its flows is inspected, at most.
    pub bypass: Bypass,
    /// Functions of its chain without which its packets go on.
    pub goes_on_without: Path,
}

/// A generation that is ready to run.
pub struct Prepared {
    /// For the workers.
    pub chains: Chains,
    /// Whose traffic a packet is.
    pub tenants: TenantSelector,
    /// The classes, by fid; those of policies that stay are the same by address.
    pub classes: Vec<Arc<ClassInfo>>,
    /// Remarks of functions on rules that were made for this generation, in the order of the file.
    pub warnings: Vec<Problem>,
}

impl core::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Prepared")
            .field("generation", &self.chains.generation)
            .field("classes", &self.classes)
            .finish_non_exhaustive()
    }
}

/// The policies of a file as rules on headers: what the lookup of a new flow finds its policy by.
#[derive(Clone, Debug)]
pub struct PolicyEntries {
    /// Policy by policy; fid and priority are the policy's place in the file, from 0. What none matches is
    /// the default's.
    pub entries: Vec<RankedRule>,
    /// The tenants of the file and the default one, by the numbers that the entries have.
    pub tenants: Vec<(String, TenantId)>,
}

/// Turns policies into generations.
pub struct Agent {
    kinds: Vec<Arc<dyn FunctionKind>>,
    ids: Vec<FunctionId>,
    together_max: usize,
    /// Generations say what a level below may refuse of packets without a flow.
    early: bool,
    state: State,
    /// What functions keep per host.
    hosts: HostTables,
    /// Patterns that functions look for.
    patterns: PatternSets,
    /// Settings that were given beside the sections.
    overrides: Overrides,
    /// Which addresses have which DNS names now.
    names: Arc<Names>,
    /// What the next generation may have of the last one.
    kept: Option<LastBuild>,
    lookup: KeptLookup,
    compaction: Compaction,
    /// Names of the host's ports, by their numbers; `None`: there is no host, and a policy may name any.
    ports: Option<Vec<String>>,
}

/// Settings that orders gave to functions, beside what their sections say: by function, then by name.
pub type Overrides = BTreeMap<String, Map<String, Value>>;

impl core::fmt::Debug for Agent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Agent").field("ids", &self.ids).field("state", &self.state).finish_non_exhaustive()
    }
}

impl Agent {
    /// An agent for these functions. Their bits in paths stay the same in all generations.
    ///
    /// # Errors
    /// They cannot be put in an order.
    pub fn new(kinds: Vec<Arc<dyn FunctionKind>>) -> Result<Self, OrderError> {
        let specs: Vec<_> = kinds.iter().map(|k| k.spec()).collect();
        let ids = order::order(&specs)?;
        let state = State::default();
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

    /// Sets bounds and hash of what functions keep per host. To be called before the first generation: what
    /// was kept is gone.
    pub fn set_hosts(&mut self, config: HostTablesConfig) {
        self.hosts = HostTables::new(config);
    }

    /// Sets the compiler of the patterns that functions look for. To be called before the first generation.
    pub fn set_patterns(&mut self, patterns: PatternSets) {
        self.patterns = patterns;
    }

    /// Sets who says which fids new classes get. To be called before the first generation, whose classes get
    /// theirs there.
    pub fn set_fid_allocator(&mut self, allocator: Box<dyn FidAllocator>) {
        self.state.table = Arc::new(GlobalRuleTable::with(allocator));
    }

    /// Sets the key of the table of DNS names, which live traffic must not know. To be called before the
    /// first generation: what was learned is gone.
    pub fn set_names_key(&mut self, key: u64) {
        self.names = Arc::new(Names::keyed(key));
    }

    /// Replaces the kinds by others of the same functions, in the same order, made with other services.
    pub fn set_kinds(&mut self, kinds: Vec<Arc<dyn FunctionKind>>) {
        let names = |kinds: &[Arc<dyn FunctionKind>]| kinds.iter().map(|k| k.spec().name).collect::<Vec<_>>();
        if names(&kinds) == names(&self.kinds) {
            self.kinds = kinds;
        }
    }

    /// Header rules that stand together in one lookup at most, those that choose policies included; if there
    /// are more, each policy has its own classifier for those of its functions.
    pub fn set_together_max(&mut self, rules: usize) {
        self.together_max = rules;
    }

    /// Which addresses have which DNS names of policies now.
    #[must_use]
    pub const fn names(&self) -> &Arc<Names> {
        &self.names
    }

    /// Generations say what a level below may refuse of packets without a flow (`Chains::early`).
    pub fn set_early(&mut self, early: bool) {
        self.early = early;
    }

    /// What the thread that compiles tables beside the work calls when it has done so: much was allocated
    /// there, and is free again.
    pub fn set_behind_compaction(&mut self, behind: fn()) {
        self.compaction.set_behind(behind);
    }

    /// The ports that the host file names, in its order: what policies may redirect to. Until this is called
    /// they may name any.
    pub fn set_ports(&mut self, names: Vec<String>) {
        self.ports = Some(names);
    }

    /// Names that the sections of a policy file may have.
    #[must_use]
    pub fn function_names(&self) -> Vec<&'static str> {
        self.kinds.iter().map(|k| k.spec().name).filter(|n| ![GATE, NAMES].contains(n)).collect()
    }

    /// The bit of a function.
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

    /// Builds the next generation from a policy file. `links`: those of the host file, by name.
    ///
    /// # Errors
    /// Everything that is wrong, with its place in the file; nothing has changed then.
    pub fn prepare(&mut self, file: &PolicyFile, links: &[(&str, LinkId)]) -> Result<Prepared, PolicyError> {
        let mut build = self.begin(file, links);
        build.state.generation = Generation(build.state.generation.0 + 1);
        let prepared = build.run();
        let Build { state, problems, lookup, kept, .. } = build;
        match prepared {
            Some(prepared) if problems.is_empty() => {
                self.state = state;
                self.compaction.ask(lookup.layers());
                self.lookup = lookup;
                self.kept = kept;
                self.names.set_bounds(file.dns.addresses as usize);
                Ok(prepared)
            }
            _ => Err(wrong(file, problems)),
        }
    }

    /// The rules on headers by which a generation of this file would find a new flow's policy. No function is
    /// built, and the agent stays as it is. `links`: as for [`Agent::prepare`].
    ///
    /// # Errors
    /// Chains, tenants or links that cannot be, with their places in the file.
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

/// The problems in the order of the file, each once.
fn wrong(file: &PolicyFile, mut problems: Vec<Problem>) -> PolicyError {
    problems.sort_by_key(|p| (p.position.line, p.position.column));
    problems.dedup();
    PolicyError::Wrong { file: file.name.clone(), problems }
}

/// What the data plane is told of overload.
fn overload(said: Overload) -> bartizan_stages::overload::Overload {
    use bartizan_stages::overload::OverloadAction as Action;
    let action = match said.action {
        None => Action::Settings,
        Some(OverloadAction::Inspect) => Action::Inspect,
        Some(OverloadAction::Pass) => Action::Pass,
        Some(OverloadAction::Drop) => Action::Drop,
    };
    bartizan_stages::overload::Overload { priority: said.priority, action }
}

/// Callback `rules` of a function; one that panics has no rules, and the running generation stays.
fn rules_of(kind: &dyn FunctionKind, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
    contained(|| kind.rules(source)).unwrap_or_else(|panicked| {
        let message = format!("this section cannot be used: {panicked}; please report it");
        Err(vec![RulesError { function: kind.spec().name, place: "classes/0".to_owned(), message }])
    })
}

/// What each owner selects, the last one, the default, all; and the class of its flows for its first tenant.
/// One without tenants has no flows.
fn selected_by(owners: &[Arc<Made>]) -> Vec<Selected> {
    let of = |owner: &Arc<Made>| Selected {
        within: match owner.policy {
            None => Arc::from([HeaderRule::default()]),
            Some(_) => Arc::clone(&owner.selected),
        },
        class: owner.first.unwrap_or_default(),
        goes_on_without: owner.goes_on_without_first,
    };
    owners.iter().map(of).collect()
}

struct Build<'a> {
    agent: &'a Agent,
    file: &'a PolicyFile,
    links: &'a [(&'a str, LinkId)],
    state: State,
    problems: Vec<Problem>,
    /// What is right and has no effect.
    warnings: Vec<Problem>,
    /// The DNS names of its groups.
    names: Option<Arc<Lease>>,
    /// What the next generation may have of this one.
    lookup: KeptLookup,
    kept: Option<LastBuild>,
}

impl<'a> Build<'a> {
    fn problem(&mut self, path: &str, message: String) {
        self.problems.push(Problem { position: self.file.locate(path), path: path.to_owned(), message });
    }

    /// What the policies come to, in their order, and the default: those of the generation before, where they
    /// hold.
    fn owners(&mut self, context: &Arc<Context>) -> Option<Vec<Arc<Made>>> {
        let (agent, file) = (self.agent, self.file);
        let before = agent.kept.as_ref().filter(|kept| Arc::ptr_eq(&kept.context, context));
        let before = before.and_then(|kept| kept.owners.split_last());
        let (default, before) =
            before.map(|(default, policies)| (Some(default), policies)).unwrap_or_default();
        let same = kept::places(
            (before, |made: &Arc<Made>| made.policy.as_ref().map(|policy| Arc::as_ptr(policy).addr())),
            (file.policies.as_slice(), |policy: &Arc<Policy>| Some(Arc::as_ptr(policy).addr())),
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

    /// Every function that some path needs, with its rules, and those of its rules that are looked up for it.
    fn functions(
        &mut self,
        context: &Context,
        owners: &[Arc<Made>],
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

/// What a function is told of an owner.
struct OwnersGroup<'m> {
    owner: usize,
    staged: bool,
    group: &'m Group,
}

/// Adds a function's rules on headers, each with the policies that it is for.
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
fn entries(owners: &[Arc<Made>]) -> List {
    let placed = |(priority, owner): (u32, &Arc<Made>)| Placed {
        piece: Arc::clone(&owner.entries),
        numbers: Numbers::At(priority),
    };
    List::new((0u32..).zip(owners).map(placed).collect())
}

/// The classes of policies by the fids that flows find them by, and of the default by tenant.
fn classes(owners: &[Arc<Made>]) -> (Vec<Option<Variants>>, HashMap<TenantId, Variants>) {
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

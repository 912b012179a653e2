// SPDX-License-Identifier: Apache-2.0
//! From a policy file to a generation: fids, paths, classifier, functions with their rules. All or nothing: an error
//! leaves the agent, its global rule table and the running generation as they were.

mod errors;
mod names;
mod overrides;
mod quotas;

use crate::classes::{PolicyClassifier, Variants, both_ways};
use crate::compaction::Compaction;
use crate::early::{self, Selected};
use crate::grt::{GlobalRuleTable, Meaning};
use crate::lookup::{KeptLookup, Lookup, PolicyRules, TOGETHER_MAX};
use crate::order::{self, OrderError};
use crate::staged::Staged;
use crate::tenants::{Selector, TenantSelector};
use bartizan_base::{Fid, FunctionId, Generation, LinkId, Path, TenantId};
use bartizan_classify::{Entry, HeaderRule, Names};
use bartizan_config::policy::{
    Bypass, DEFAULT_TENANT, DefaultAction, ForWant, OnFailure, OneSided, Overload, OverloadAction,
    PolicyError, PolicyFile, Problem, Section, Target, Vars, did_you_mean, read, unknown_function,
};
use bartizan_function::contain::contained;
use bartizan_function::{
    Function, FunctionKind, HeaderRules, HostTables, HostTablesConfig, RuleSource, RulesError,
};
use bartizan_stages::chain::{Chains, Class, ClassTraits, PolicyMap};
use bartizan_stages::enough::Enough;
use bartizan_stages::quotas::Meter;
use core::num::NonZeroU64;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The level of hosts that need no detection.
const NO_DETECTION: &str = "none";
/// The function that service levels are about.
const DETECTION: &str = "ids";
/// What the default is called in events.
pub const DEFAULT_POLICY: &str = "default";
/// The functions that the agent adds: what a policy says of flows as a whole, and who reads answers of resolvers.
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
    /// The classes, by fid.
    pub classes: Vec<ClassInfo>,
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
    /// Policy by policy; fid and priority are the policy's place in the file, from 0. What none matches is the default's.
    pub entries: Vec<Entry>,
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
    /// Settings that were given beside the sections.
    overrides: Overrides,
    /// Which addresses have which DNS names now.
    names: Arc<Names>,
    /// What the next generation shares of the last one's lookup.
    lookup: KeptLookup,
    compaction: Compaction,
    /// Names of the host's ports, by their numbers; `None`: there is no host, and a policy may name any.
    ports: Option<Vec<String>>,
}

/// Settings that orders gave to functions, beside what their sections say: by function, then by name.
pub type Overrides = BTreeMap<String, Map<String, Value>>;

/// What outlives generations.
#[derive(Clone, Debug, Default)]
struct State {
    table: GlobalRuleTable,
    /// Numbers of tenants, by name; a number is never given to another name.
    tenants: BTreeMap<String, TenantId>,
    /// What tenants with quotas use, by their numbers.
    meters: BTreeMap<TenantId, Arc<Meter>>,
    /// Numbers of policies for counters, from 1; a number is never given to another name.
    policies: HashMap<String, u32>,
    generation: Generation,
}

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
        let mut state = State::default();
        state.tenants.insert(DEFAULT_TENANT.to_owned(), TenantId(0));
        let (hosts, names, overrides) = (HostTables::default(), Arc::default(), Overrides::new());
        Ok(Agent {
            kinds,
            ids,
            together_max: TOGETHER_MAX,
            early: false,
            state,
            hosts,
            names,
            overrides,
            lookup: KeptLookup::default(),
            compaction: Compaction::default(),
            ports: None,
        })
    }

    /// Sets bounds and hash of what functions keep per host. To be called before the first generation: what was kept is gone.
    pub fn set_hosts(&mut self, config: HostTablesConfig) {
        self.hosts = HostTables::new(config);
    }

    /// Replaces the kinds by others of the same functions, in the same order, made with other services.
    pub fn set_kinds(&mut self, kinds: Vec<Arc<dyn FunctionKind>>) {
        let names = |kinds: &[Arc<dyn FunctionKind>]| kinds.iter().map(|k| k.spec().name).collect::<Vec<_>>();
        if names(&kinds) == names(&self.kinds) {
            self.kinds = kinds;
        }
    }

    /// Header rules that stand together in one lookup at most, those that choose policies included; if there are more, each
    /// policy has its own classifier for those of its functions.
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

    /// The ports that the host file names, in its order: what policies may redirect to. Until this is called they may name any.
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
    pub const fn table(&self) -> &GlobalRuleTable {
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
        let Build { state, problems, lookup, .. } = build;
        match prepared {
            Some(prepared) if problems.is_empty() => {
                self.state = state;
                self.compaction.ask(lookup.layers());
                self.lookup = lookup;
                self.names.set_bounds(file.dns.addresses as usize);
                Ok(prepared)
            }
            _ => Err(wrong(file, problems)),
        }
    }

    /// The rules on headers by which a generation of this file would find a new flow's policy. No function is built, and the
    /// agent stays as it is. `links`: as for [`Agent::prepare`].
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
        let Build { problems, known: tenants, .. } = build;
        match entries {
            Some(entries) if problems.is_empty() => Ok(PolicyEntries { entries, tenants }),
            _ => Err(wrong(file, problems)),
        }
    }

    fn begin<'a>(&'a self, file: &'a PolicyFile, links: &'a [(&'a str, LinkId)]) -> Build<'a> {
        Build {
            agent: self,
            file,
            links,
            state: self.state.clone(),
            problems: Vec::new(),
            groups: Vec::new(),
            group_places: HashMap::new(),
            infos: Vec::new(),
            known: Vec::new(),
            known_places: HashMap::new(),
            lookup: KeptLookup::default(),
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

/// What the policies and the default have in common.
struct Owner<'f> {
    path: String,
    name: Option<&'f str>,
    chain: &'f [String],
    sections: &'f [Section],
    from: &'f [Target],
    to: &'f [Target],
    staged: bool,
    one_sided: OneSided,
    overload: Overload,
    bypass: Bypass,
    on_failure: &'f OnFailure,
    refuse: bool,
}

/// The classes that one owner's section of a function holds for.
struct Group<'f> {
    owner: usize,
    function: &'static str,
    fids: Vec<Fid>,
    /// Detection's level, where it is not the section's.
    level: Option<&'f str>,
}

/// A tenant's variables as functions get them: names and expressions, and where they stand.
fn variables(place: &str, tenant: TenantId, vars: &Vars) -> Value {
    let addresses: BTreeMap<_, _> = vars.address_groups.iter().map(|(n, v)| (n, v.expression())).collect();
    let ports: BTreeMap<_, _> = vars.port_groups.iter().map(|(n, v)| (n, v.expression())).collect();
    json!({"place": place, "tenant": tenant.0, "address-groups": addresses, "port-groups": ports})
}

/// What each owner selects, the last one, the default, all; and the class of its flows for its first tenant. One without tenants has no flows.
fn selected_by(selectors: &[Vec<HeaderRule>], classes: &[Option<Class>]) -> Vec<Selected> {
    let behind = selectors.len().saturating_sub(1);
    let of = |(index, (within, class)): (usize, (&Vec<HeaderRule>, &Option<Class>))| {
        let within = if index == behind { vec![HeaderRule::default()] } else { within.clone() };
        Selected { within, class: class.unwrap_or_default() }
    };
    selectors.iter().zip(classes).enumerate().map(of).collect()
}

struct Build<'a> {
    agent: &'a Agent,
    file: &'a PolicyFile,
    links: &'a [(&'a str, LinkId)],
    state: State,
    problems: Vec<Problem>,
    groups: Vec<Group<'a>>,
    /// Where a group stands: by owner, function and level.
    group_places: HashMap<(usize, &'static str, Option<&'a str>), usize>,
    infos: Vec<ClassInfo>,
    /// The tenants of the file in its order, the default one last; and where one of a name stands.
    known: Vec<(String, TenantId)>,
    known_places: HashMap<String, usize>,
    /// What the next generation may have of this one's lookup.
    lookup: KeptLookup,
}

impl<'a> Build<'a> {
    fn problem(&mut self, path: &str, message: String) {
        self.problems.push(Problem { position: self.file.locate(path), path: path.to_owned(), message });
    }

    fn owners(&self) -> Vec<Owner<'a>> {
        let any: &[Target] = &[Target::Any];
        let policies = self.file.policies.iter().enumerate().map(|(index, p)| Owner {
            path: format!("policies/{index}"),
            name: Some(p.name.as_str()),
            chain: &p.chain,
            sections: &p.sections,
            from: &p.from,
            to: &p.to,
            staged: p.staged,
            one_sided: p.one_sided,
            overload: p.overload,
            bypass: p.bypass,
            on_failure: &p.on_failure,
            refuse: false,
        });
        let d = &self.file.default;
        let default = Owner {
            path: "default".to_owned(),
            name: None,
            chain: &d.chain,
            sections: &d.sections,
            from: any,
            to: any,
            staged: d.staged,
            one_sided: d.one_sided,
            overload: d.overload,
            bypass: d.bypass,
            on_failure: &d.on_failure,
            refuse: d.action == DefaultAction::Drop,
        };
        policies.chain([default]).collect()
    }

    fn run(&mut self) -> Option<Prepared> {
        let owners = self.owners();
        let tenants = self.tenants()?;
        let mut entries = Vec::new();
        let mut selectors: Vec<Vec<HeaderRule>> = Vec::new();
        let mut first_classes: Vec<Option<Class>> = Vec::new();
        let mut classes: Vec<(Fid, usize, Variants)> = Vec::new();
        let mut defaults: Vec<(TenantId, usize, Variants)> = Vec::new();
        for (index, owner) in owners.iter().enumerate() {
            let path = self.chain(owner)?;
            let mut selected = Vec::new();
            let mut first = None;
            // Where packets go on while the first function is away nobody may refuse them in its name.
            let without = self.goes_on_without(owner, path);
            let is_sure = path.functions().next().is_none_or(|id| !without.contains(id));
            let of_early = |class: Class| if is_sure { class } else { Class { path: Path::EMPTY, ..class } };
            let tenants = self.tenants_of(index);
            let all_tenants = tenants.len() == self.known.len();
            for (tenant_name, tenant) in tenants {
                let variants = self.variants(&owners, index, path, &tenant_name, tenant)?;
                first.get_or_insert(of_early(variants.plain));
                if owner.name.is_none() {
                    defaults.push((tenant, index, variants));
                    continue;
                }
                let fid = variants.plain.fid;
                let own = self.entries_of(index, tenant, fid);
                if !all_tenants {
                    selected.extend(own.iter().map(|entry| entry.rule));
                } else if selected.is_empty() {
                    selected = self.header_rules(index, None);
                }
                entries.extend(own);
                classes.push((fid, index, variants));
            }
            selectors.push(selected);
            first_classes.push(first);
        }
        let (mut functions, rules) = self.functions(&owners);
        let by_name = self.by_name(&mut functions);
        self.check_rule_quotas(&functions);
        let quotas = self.quotas();
        if !self.problems.is_empty() {
            return None;
        }
        let early = self
            .agent
            .early
            .then(|| Arc::new(early::list(&selected_by(&selectors, &first_classes), &functions, &rules)));
        let called = |id: &FunctionId| rules.iter().find(|r| r.function == *id).map_or("rule", |r| r.called);
        let agent = self.agent;
        let named = agent.kinds.iter().zip(&agent.ids).map(|(kind, id)| (*id, kind.spec().name, called(id)));
        let function_names = named.collect();
        let (levels, most, before) = (self.level_entries(), agent.together_max, &agent.lookup);
        let lookup = Lookup::new(entries, levels, &selectors, rules, most, before);
        let lookup = lookup.map_err(|error| self.problem("policies", error.to_string())).ok()?;
        self.lookup = lookup.kept();
        let placed = |index, variants| Variants { places: lookup.places(index), ..variants };
        let classes = classes.into_iter().map(|(fid, i, v)| (fid.0, placed(i, v))).collect();
        let defaults = defaults.into_iter().map(|(tenant, i, v)| (tenant, placed(i, v))).collect();
        let used: HashSet<Fid> = self.infos.iter().map(|i| i.fid).collect();
        self.state.table.retain(|fid| used.contains(&fid));
        let mut infos = core::mem::take(&mut self.infos);
        infos.sort_by_key(|i| i.fid);
        let policies = Arc::new(self.policy_map(&infos));
        let classifier = Box::new(PolicyClassifier {
            lookup,
            classes,
            defaults,
            functions: function_names,
            levels: self.file.service_levels.iter().map(|l| l.level.clone()).collect(),
            tenants: tenants.clone(),
            policies,
            by_name,
            quotas,
        });
        let mut chains = Chains::new(self.state.generation, functions, classifier);
        chains.early = early;
        chains.ports = self.agent.ports.clone().unwrap_or_default().into();
        Some(Prepared { chains, tenants, classes: infos })
    }

    /// See [`Agent::policy_entries`].
    fn policy_entries(&mut self) -> Option<Vec<Entry>> {
        self.tenants()?;
        let mut entries = Vec::new();
        for (index, owner) in self.owners().iter().enumerate() {
            self.chain(owner)?;
            for (_, tenant) in self.tenants_of(index) {
                entries.extend(self.entries_of(index, tenant, Fid(index as u32)));
            }
        }
        Some(entries)
    }

    /// The entries by which a tenant's flows find a policy; earlier policies come first. The default has none.
    fn entries_of(&mut self, index: usize, tenant: TenantId, fid: Fid) -> Vec<Entry> {
        let rules = self.header_rules(index, Some(tenant));
        rules.into_iter().map(|rule| Entry { fid, priority: index as u32, rule }).collect()
    }

    /// Which headers a policy is about. `tenant`: of one tenant, or of all.
    fn header_rules(&mut self, index: usize, tenant: Option<TenantId>) -> Vec<HeaderRule> {
        let file = self.file;
        let Some(policy) = file.policies.get(index) else { return Vec::new() };
        let links = self.links_of(&format!("policies/{index}/link"), policy.link.as_deref());
        let (from, to) = (self.sides(&policy.from), self.sides(&policy.to));
        both_ways(&from, &to, tenant, &links)
    }

    /// The policy of each class, by a number that stays; 0 for the default.
    fn policy_map(&mut self, infos: &[ClassInfo]) -> PolicyMap {
        let numbers = &mut self.state.policies;
        let mut classes = Vec::new();
        for info in infos {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX).saturating_add(1);
            let number = info.policy.as_ref().map_or(0, |name| *numbers.entry(name.clone()).or_insert(next));
            let one_sided = matches!(info.one_sided, OneSided::Allow | OneSided::IdsOnly);
            let overload = overload(info.overload);
            let Bypass { encrypted, packets, bytes } = info.bypass;
            let enough = Enough {
                encrypted,
                packets: packets.map(NonZeroU64::get),
                bytes: bytes.map(|bytes| bytes.0),
            };
            let goes_on_without = info.goes_on_without;
            let staged = info.staged;
            let traits = ClassTraits { policy: number, staged, one_sided, overload, enough, goes_on_without };
            classes.push((info.fid, traits));
        }
        let mut names: Vec<_> = numbers.iter().map(|(name, number)| (*number, name.clone())).collect();
        names.sort_unstable();
        let names = names.into_iter().map(|(_, name)| name).collect();
        PolicyMap::new(names, &classes)
    }

    /// Numbers for all tenants, and how their traffic is known.
    fn tenants(&mut self) -> Option<TenantSelector> {
        let mut selectors = Vec::new();
        for (index, tenant) in self.file.tenants.iter().enumerate() {
            let next = self.state.tenants.values().map(|t| t.0).max().unwrap_or(0).checked_add(1);
            let known = self.state.tenants.get(&tenant.name).copied();
            let Some(id) = known.or(next.map(TenantId)) else {
                self.problem(
                    &format!("tenants/{index}"),
                    "no number is left for this tenant; restart the program".to_owned(),
                );
                return None;
            };
            self.state.tenants.insert(tenant.name.clone(), id);
            let select = &tenant.select;
            let links = match &select.link {
                Some(names) => self
                    .links_of(&format!("tenants/{index}/select/link"), Some(names))
                    .into_iter()
                    .flatten()
                    .collect(),
                None => Vec::new(),
            };
            selectors.push(Selector {
                tenant: id,
                vnis: select.vni.as_deref().unwrap_or_default().to_vec(),
                vlans: select.vlan.as_deref().unwrap_or_default().to_vec(),
                links,
                prefixes: select.prefixes.as_ref().map(|p| self.file.prefixes(p)).unwrap_or_default(),
            });
        }
        let names = self.file.tenants.iter().map(|t| t.name.as_str()).chain([DEFAULT_TENANT]);
        self.known = names.filter_map(|n| Some((n.to_owned(), *self.state.tenants.get(n)?))).collect();
        let places = self.known.iter().enumerate().map(|(at, (name, _))| (name.clone(), at));
        self.known_places = places.collect();
        Some(TenantSelector { selectors })
    }

    /// The tenants that an owner is about, in the order of the file.
    fn tenants_of(&self, owner: usize) -> Vec<(String, TenantId)> {
        match self.file.policies.get(owner) {
            Some(policy) if !policy.tenant.iter().any(|t| t == "any") => {
                let places: BTreeSet<usize> =
                    policy.tenant.iter().filter_map(|name| self.known_places.get(name).copied()).collect();
                places.into_iter().filter_map(|at| self.known.get(at).cloned()).collect()
            }
            _ => self.known.clone(),
        }
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

    /// The path of a chain: its functions exist, each once, in an order in which they can run.
    fn chain(&mut self, owner: &Owner<'_>) -> Option<Path> {
        let mut path = Path::EMPTY;
        let mut numbers = Vec::new();
        let names = self.agent.function_names();
        for (index, name) in owner.chain.iter().enumerate() {
            let place = format!("{}/chain/{index}", owner.path);
            match self.agent.function_id(name).filter(|_| name != GATE && name != NAMES) {
                None => self.problem(&place, unknown_function(name, &names)),
                Some(id) if path.contains(id) => {
                    self.problem(&place, format!("`{name}` stands in the chain twice; remove one"))
                }
                Some(id) => {
                    path = path.with(id);
                    numbers.push((id, name));
                }
            }
        }
        if !numbers.is_sorted_by_key(|(id, _)| *id) {
            numbers.sort_by_key(|(id, _)| *id);
            let right: Vec<_> = numbers.iter().map(|(_, n)| n.as_str()).collect();
            let message =
                format!("these functions run in another order; write `chain: [{}]`", right.join(", "));
            self.problem(&format!("{}/chain", owner.path), message);
        }
        let gate = owner.refuse || owner.one_sided == OneSided::Drop;
        match (gate, self.agent.function_id(GATE)) {
            (true, Some(id)) => path = path.with(id),
            (true, None) => self.problem(
                &owner.path,
                "dropping by default needs the function `gate`, which this program lacks".to_owned(),
            ),
            (false, _) => {}
        }
        Some(path)
    }

    /// The classes of an owner for one tenant, with fids.
    fn variants(
        &mut self,
        owners: &[Owner<'a>],
        index: usize,
        path: Path,
        tenant_name: &str,
        tenant: TenantId,
    ) -> Option<Variants> {
        let owner = owners.get(index)?;
        let detection = self.agent.function_id(DETECTION).filter(|id| path.contains(*id));
        let own_level = owner
            .sections
            .iter()
            .find(|s| s.function == DETECTION)
            .and_then(|s| s.node.get("level")?.as_str());
        let own_path = if own_level == Some(NO_DETECTION) {
            detection.map_or(path, |id| path.without(id))
        } else {
            path
        };
        let plain = self.class(owners, index, None, own_path, tenant_name, tenant)?;
        let mut variants = Variants { plain, ..Variants::default() };
        let mut known: HashMap<&str, Class> = HashMap::new();
        let file = self.file;
        for level in &file.service_levels {
            let name = level.level.as_str();
            let class = match (detection, known.get(name)) {
                _ if Some(name) == own_level => plain,
                (None, _) => plain,
                (_, Some(class)) => *class,
                (Some(id), None) => {
                    let path = if name == NO_DETECTION { path.without(id) } else { path };
                    let class = self.class(owners, index, Some(name), path, tenant_name, tenant)?;
                    known.insert(name, class);
                    class
                }
            };
            variants.by_level.push(class);
        }
        Some(variants)
    }

    fn class(
        &mut self,
        owners: &[Owner<'a>],
        index: usize,
        level: Option<&'a str>,
        path: Path,
        tenant_name: &str,
        tenant: TenantId,
    ) -> Option<Class> {
        let owner = owners.get(index)?;
        let name = format!("{}\n{}", owner.name.unwrap_or("\t"), level.unwrap_or_default());
        let fid = match self.state.table.fid(Meaning { tenant, name }) {
            Ok(fid) => fid,
            Err(error) => {
                self.problem(&owner.path, error.to_string());
                return None;
            }
        };
        let on_path = self.agent.kinds.iter().zip(&self.agent.ids).filter(|(_, id)| path.contains(**id));
        for (kind, _) in on_path {
            let function = kind.spec().name;
            let level = level.filter(|_| function == DETECTION);
            let next = self.groups.len();
            let place = *self.group_places.entry((index, function, level)).or_insert(next);
            match self.groups.get_mut(place) {
                Some(group) => group.fids.push(fid),
                None => self.groups.push(Group { owner: index, function, fids: vec![fid], level }),
            }
        }
        self.infos.push(ClassInfo {
            fid,
            tenant: tenant_name.to_owned(),
            policy: owner.name.map(str::to_owned),
            level: level.map(str::to_owned),
            path,
            staged: owner.staged,
            one_sided: owner.one_sided,
            overload: owner.overload,
            bypass: owner.bypass,
            goes_on_without: self.goes_on_without(owner, path),
        });
        Some(Class { fid, path })
    }

    /// The functions of a path without which an owner's packets go on.
    fn goes_on_without(&self, owner: &Owner<'_>, path: Path) -> Path {
        // Who reads answers stands in no policy's chain and judges nothing: for want of it nothing is refused.
        let passes = |kind: &dyn FunctionKind, id: FunctionId| match kind.spec().name {
            NAMES => true,
            name => path.contains(id) && owner.on_failure.of(name) == ForWant::Pass,
        };
        let named = self.agent.kinds.iter().zip(&self.agent.ids);
        named
            .filter(|(kind, id)| passes(kind.as_ref(), **id))
            .fold(Path::EMPTY, |path, (_, id)| path.with(*id))
    }

    fn level_entries(&self) -> Vec<Entry> {
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
                entries.extend(rules.into_iter().map(|rule| Entry {
                    fid: Fid(number),
                    priority: number,
                    rule,
                }));
            }
        }
        entries
    }

    /// Every function that some path needs, with its rules, and those of its rules that are looked up for it.
    fn functions(&mut self, owners: &[Owner<'a>]) -> (Vec<Arc<dyn Function>>, Vec<PolicyRules>) {
        let mut looked_up = Vec::new();
        let mut functions: Vec<(FunctionId, Arc<dyn Function>)> = Vec::new();
        let groups = core::mem::take(&mut self.groups);
        let agent = self.agent;
        for (kind, id) in agent.kinds.iter().zip(&agent.ids) {
            let own: Vec<&Group<'_>> = groups.iter().filter(|g| g.function == kind.spec().name).collect();
            if own.is_empty() {
                continue;
            }
            let rules = self.envelope(owners, &own);
            let source = RuleSource {
                rules: &rules,
                place: &self.file.name,
                generation: self.state.generation,
                id: *id,
                hosts: &agent.hosts,
                names: &agent.names,
            };
            match rules_of(kind.as_ref(), &source) {
                Ok(mut function) => {
                    let header_rules = function.take_header_rules();
                    let owner_of: HashMap<Fid, usize> =
                        own.iter().flat_map(|g| g.fids.iter().map(|fid| (*fid, g.owner))).collect();
                    let shared = header_rules.len() == 1;
                    for HeaderRules { called, fids, rules } in header_rules {
                        let mut policies: Vec<usize> = match fids.is_empty() {
                            true => own.iter().map(|g| g.owner).collect(),
                            false => fids.iter().filter_map(|fid| owner_of.get(fid).copied()).collect(),
                        };
                        policies.sort_unstable();
                        policies.dedup();
                        let of =
                            |policies| PolicyRules { function: *id, called, policies, rules: rules.clone() };
                        if shared {
                            looked_up.push(of(policies));
                        } else {
                            looked_up.extend(policies.into_iter().map(|policy| of(vec![policy])));
                        }
                    }
                    let is_staged = |g: &&&Group<'_>| owners.get(g.owner).is_some_and(|o| o.staged);
                    let staged: HashSet<Fid> =
                        own.iter().filter(is_staged).flat_map(|g| g.fids.iter().copied()).collect();
                    let function: Arc<dyn Function> = if staged.is_empty() {
                        Arc::from(function)
                    } else {
                        Arc::new(Staged::new(function, staged))
                    };
                    functions.push((*id, function));
                }
                Err(errors) => {
                    for error in errors {
                        self.rules_error(owners, &own, error);
                    }
                }
            }
        }
        functions.sort_by_key(|(id, _)| *id);
        (functions.into_iter().map(|(_, f)| f).collect(), looked_up)
    }

    /// What a function's rules are made from.
    fn envelope(&self, owners: &[Owner<'_>], groups: &[&Group<'_>]) -> Value {
        let mut classes = Vec::new();
        for group in groups {
            let Some(owner) = owners.get(group.owner) else { continue };
            let section = owner.sections.iter().find(|s| s.function == group.function);
            let mut rules = section.map_or(Value::Null, |s| read::to_json(&s.node));
            if let Some(own) = self.agent.overrides.get(group.function).filter(|own| !own.is_empty()) {
                let mut section = rules.as_object().cloned().unwrap_or_default();
                section.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
                rules = Value::Object(section);
            }
            if group.function == GATE {
                rules = json!({"refuse": owner.refuse, "drop-one-sided": owner.one_sided == OneSided::Drop});
            }
            if let Some(level) = group.level {
                let mut object = rules.as_object().cloned().unwrap_or_default();
                // The level says which rules hold for these hosts.
                object.remove("rules");
                object.insert("level".to_owned(), json!(level));
                rules = Value::Object(object);
            }
            let prefixes = |targets: &[Target]| self.texts(&self.file.resolve(targets));
            // Value by value: `json!` copies what it is given.
            let mut class = Map::new();
            class.insert("policy".to_owned(), owner.name.unwrap_or(DEFAULT_POLICY).into());
            class.insert("fids".to_owned(), group.fids.iter().map(|f| f.0).collect());
            class.insert("from".to_owned(), prefixes(owner.from).into());
            class.insert("to".to_owned(), prefixes(owner.to).into());
            class.insert("one-sided".to_owned(), json!(owner.one_sided));
            class.insert("rules".to_owned(), rules);
            classes.push(Value::Object(class));
        }
        let groups: Map<String, Value> = (self.file.groups.iter())
            .map(|(name, members)| (name.clone(), json!(self.texts(members))))
            .collect();
        let tenants: Map<String, Value> =
            self.known.iter().map(|(name, id)| (name.clone(), json!(id.0))).collect();
        let own_vars = self.file.tenants.iter().enumerate().filter_map(|(index, tenant)| {
            let number = self.state.tenants.get(&tenant.name)?;
            Some(variables(&format!("tenants/{index}/vars"), *number, tenant.vars.as_ref()?))
        });
        let vars: Vec<Value> = own_vars.collect();
        let mut envelope = Map::new();
        envelope.insert("tenants".to_owned(), Value::Object(tenants));
        let ports =
            self.agent.ports.as_deref().map(|names| names.iter().zip(0u8..).collect::<BTreeMap<_, _>>());
        envelope.insert("ports".to_owned(), json!(ports));
        envelope.insert("vars".to_owned(), Value::Array(vars));
        envelope.insert("groups".to_owned(), Value::Object(groups));
        envelope.insert("labels".to_owned(), json!(self.file.labels));
        envelope.insert("rule-groups".to_owned(), json!(self.file.rule_groups));
        envelope.insert("classes".to_owned(), Value::Array(classes));
        Value::Object(envelope)
    }
}

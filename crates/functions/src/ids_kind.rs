// SPDX-License-Identifier: Apache-2.0
//! `ids` for policies: one rule set for each set of rule files that some policy or rule group names.

use crate::ids::{HEADER_RULE, Ids, SPEC};
use bartizan_base::{Decision, Fid, FunctionId, TenantId};
use bartizan_config::policy::sections::{IdsMode, IdsSection};
use bartizan_detect::groups::{Groups, RULES_MAX};
use bartizan_detect::ruleset::{RuleSet, VisibleRules};
use bartizan_function::classes::{self, ByFid};
use bartizan_function::{
    AppView, Function, FunctionKind, FunctionSpec, HeaderRules, HostKeeper, PacketContext, PacketFacts,
    RuleSource, RulesError, Together, VariableNames, WorkerState,
};
use bartizan_rules::RuleVariables;
use serde_json::Value;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// Compiles rule files; implemented by the program, which knows settings and folders.
pub trait RuleCompiler: Send + Sync {
    /// The variables of the settings, for tenants without their own.
    fn variables(&self) -> &RuleVariables;

    /// Compiles the files into one set, or finds them in a larger one; the same files of the same generation
    /// give the same set. `tenants`: the variables of tenants that have their own, completed by those of the
    /// settings.
    ///
    /// # Errors
    /// A file cannot be read, or the pattern sets cannot be built.
    fn compile(
        &self,
        files: &[String],
        source: &RuleSource<'_>,
        tenants: &[(TenantId, RuleVariables)],
    ) -> Result<VisibleRules, CompileError>;

    /// The signature groups of some rule sets. They depend on the sets alone, so an implementation may return
    /// those of an earlier generation.
    fn groups(&self, sets: &[Arc<RuleSet>]) -> Arc<Groups> {
        groups_of(sets)
    }
}

/// Forms the signature groups of some rule sets.
#[must_use]
pub fn groups_of(sets: &[Arc<RuleSet>]) -> Arc<Groups> {
    let heads: Vec<_> = sets.iter().map(|rules| &rules.heads).collect();
    Arc::new(Groups::new(&heads, RULES_MAX))
}

/// The reason why files give no rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// The faulty file, by its index in the list; `None`: all of them, or none of the list.
    pub file: Option<usize>,
    /// The error.
    pub message: String,
}

impl From<String> for CompileError {
    fn from(message: String) -> Self {
        CompileError { file: None, message }
    }
}

/// The place of a file of a class in the policy file: in its section's own list, or in its rule group.
fn place_of(class: &str, own: usize, level: Option<&str>, file: Option<usize>) -> String {
    match (file, level) {
        (Some(file), _) if file < own => format!("{class}/rules/{file}"),
        (Some(file), Some(level)) => format!("rule-groups/{level}/{}", file - own),
        _ => format!("{class}/rules"),
    }
}

/// Makes `ids`.
pub struct IdsKind {
    compiler: Arc<dyn RuleCompiler>,
    alerts_max: usize,
}

impl IdsKind {
    /// A kind with its rule compiler, and the maximum of reported alerts per packet.
    #[must_use]
    pub fn new(compiler: Arc<dyn RuleCompiler>, alerts_max: usize) -> Self {
        IdsKind { compiler, alerts_max }
    }
}

/// The rule files of a rule group.
fn level_files(source: &RuleSource<'_>, level: &str) -> Option<Vec<String>> {
    let files = source.common.json().get("rule-groups")?.get(level)?.as_array()?;
    Some(files.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

impl FunctionKind for IdsKind {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn changeable(&self) -> &'static [&'static str] {
        &["mode"]
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        let (_, classes) = classes::read::<IdsSection>(SPEC.name, source)?;
        let (tenants, mut errors) = tenant_variables(source, self.compiler.variables());
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut sets: Vec<IdsSectionRules> = Vec::new();
        let mut known: HashMap<_, Result<usize, Failed>> = HashMap::new();
        // Policies with equal sections share one set, with one state in each worker.
        let mut places = Vec::with_capacity(classes.len());
        for (index, made) in classes.iter().enumerate() {
            let section = &made.class.rules;
            let said = (&*section.rules, section.level.as_deref(), section.mode == IdsMode::Detect);
            let set = known.entry(said).or_insert_with(|| {
                let set = self.compiled(section, source, &tenants)?;
                sets.push(set);
                Ok(sets.len() - 1)
            });
            match set {
                Ok(set) => places.push(*set),
                Err(error) => errors.push(error.at(index, section)),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        // The heads of each rule set are in the groups once.
        let mut different: Vec<Arc<RuleSet>> = Vec::new();
        let of_sets: Vec<usize> = sets.iter().map(|set| place_in(&mut different, &set.seen.rules)).collect();
        let groups = self.compiler.groups(&different);
        let fids = classes.iter().flat_map(|made| made.class.fids.iter().copied()).collect();
        let rules = Arc::clone(groups.header_rules());
        let header_rules = vec![HeaderRules { called: HEADER_RULE, fids, rules }];
        let by_fid = ByFid::of(places.iter().copied().zip(classes.iter().map(|made| &*made.class.fids)));
        let set = |(IdsSectionRules { seen, detect_only, level, files }, place)| IdsDetection {
            ids: Ids::one_of(
                source.id,
                source.generation,
                seen,
                self.alerts_max,
                (Arc::clone(&groups), place),
            ),
            detect_only,
            level,
            files,
        };
        let sets = sets.into_iter().zip(of_sets).map(set).collect();
        Ok(Box::new(PolicyIds { id: source.id, by_fid, sets, header_rules }))
    }
}

/// The compiled form of a section.
struct IdsSectionRules {
    seen: VisibleRules,
    detect_only: bool,
    level: Option<String>,
    files: Vec<String>,
}

/// The reason why a section has no compiled form, without its place.
enum Failed {
    NoGroup(String),
    Compiler(CompileError),
}

impl Failed {
    /// The error for the section of a class.
    fn at(&self, class: usize, section: &IdsSection) -> RulesError {
        let class = classes::path(class);
        match self {
            Failed::NoGroup(level) => {
                let message = format!("there is no rule group `{level}`; define it under `rule-groups`");
                classes::error(SPEC.name, format!("{class}/level"), message)
            }
            Failed::Compiler(error) => {
                let place = place_of(&class, section.rules.len(), section.level.as_deref(), error.file);
                classes::error(SPEC.name, place, error.message.clone())
            }
        }
    }
}

impl IdsKind {
    fn compiled(
        &self,
        section: &IdsSection,
        source: &RuleSource<'_>,
        tenants: &[(TenantId, RuleVariables)],
    ) -> Result<IdsSectionRules, Failed> {
        let mut files = section.rules.to_vec();
        if let Some(level) = &section.level {
            files.extend(level_files(source, level).ok_or_else(|| Failed::NoGroup(level.clone()))?);
        }
        let seen = self.compiler.compile(&files, source, tenants).map_err(Failed::Compiler)?;
        let (detect_only, level) = (section.mode == IdsMode::Detect, section.level.clone());
        Ok(IdsSectionRules { seen, detect_only, level, files })
    }
}

/// The variables of tenants that have their own, over the settings', and errors in them.
fn tenant_variables(
    source: &RuleSource<'_>,
    common: &RuleVariables,
) -> (Vec<(TenantId, RuleVariables)>, Vec<RulesError>) {
    let (mut tenants, mut errors) = (Vec::new(), Vec::new());
    for own in source.common.json().get("vars").and_then(Value::as_array).into_iter().flatten() {
        let number = own.get("tenant").and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok());
        let (Some(number), Some(place)) = (number, own.get("place").and_then(Value::as_str)) else {
            continue;
        };
        let mut variables = common.clone();
        let mut names = Vec::new();
        let mut say = |at: String, message: String| {
            errors.push(RulesError { function: SPEC.name, place: format!("{place}{at}"), message });
        };
        for (kind, is_port) in [("address-groups", false), ("port-groups", true)] {
            for (name, value) in own.get(kind).and_then(Value::as_object).into_iter().flatten() {
                let value = value.as_str().unwrap_or_default();
                let set = match is_port {
                    true => variables.set_port(name, value),
                    false => variables.set_address(name, value),
                };
                match set {
                    Ok(()) => names.push((kind, name)),
                    Err(error) => say(format!("/{kind}/{name}"), format!("variable `{name}`: {error}")),
                }
            }
        }
        let (own, inherited): (Vec<_>, Vec<_>) = variables
            .check()
            .into_iter()
            .partition(|(bad, _)| names.iter().any(|(_, name)| name.as_str() == &**bad));
        for (bad, error) in &own {
            let kind = names.iter().find(|(_, name)| name.as_str() == &**bad).map_or("", |(kind, _)| kind);
            say(format!("/{kind}/{bad}"), format!("variable `{bad}`: {error}"));
        }
        // Errors in the tenant's own variables cause the others.
        let anyway = common.check();
        let is_new = |bad: &str| own.is_empty() && !anyway.iter().any(|(name, _)| &**name == bad);
        let new: Vec<_> = inherited.iter().filter(|(bad, _)| is_new(bad)).collect();
        if let Some((_, error)) = new.first() {
            let names: Vec<_> = new.iter().map(|(bad, _)| format!("`{bad}`")).collect();
            let message = format!(
                "these definitions leave variables of the settings empty: {} ({error}); define the variables that they refer to here as well",
                names.join(", ")
            );
            say(String::new(), message);
        }
        tenants.push((TenantId(number), variables));
    }
    (tenants, errors)
}

/// The index of a rule set among the different ones, to which it is added if it is new.
fn place_in(different: &mut Vec<Arc<RuleSet>>, rules: &Arc<RuleSet>) -> usize {
    let known = different.iter().position(|other| Arc::ptr_eq(other, rules));
    known.unwrap_or_else(|| {
        different.push(Arc::clone(rules));
        different.len() - 1
    })
}

/// Detection of all policies and rule groups with equal sections.
struct IdsDetection {
    ids: Ids,
    detect_only: bool,
    /// The source of its rules, for `explain`.
    level: Option<String>,
    files: Vec<String>,
}

/// Detection of a generation: the class of a flow selects its rule set.
struct PolicyIds {
    id: FunctionId,
    by_fid: ByFid,
    sets: Vec<IdsDetection>,
    /// The header rules by which flows of all classes find their signature groups.
    header_rules: Vec<HeaderRules>,
}

/// The rule sets of a generation's detection, and the selection for a packet.
pub struct SetsInUse {
    /// By class; `None`: the only set applies to all packets.
    by_fid: Option<ByFid>,
    sets: Vec<SetInUse>,
}

/// A rule set as policies use it.
pub struct SetInUse {
    /// The rule set's rules.
    pub seen: VisibleRules,
    /// Whether its refusals are only reported.
    pub detect_only: bool,
}

impl SetsInUse {
    /// The sets of detection. `None`: the function is not `ids`.
    #[must_use]
    pub fn of(function: &dyn Function) -> Option<Self> {
        let function = function.as_any()?;
        if let Some(ids) = function.downcast_ref::<Ids>() {
            let sets = vec![SetInUse { seen: ids.seen().clone(), detect_only: false }];
            return Some(SetsInUse { by_fid: None, sets });
        }
        let ids = function.downcast_ref::<PolicyIds>()?;
        let set =
            |set: &IdsDetection| SetInUse { seen: set.ids.seen().clone(), detect_only: set.detect_only };
        Some(SetsInUse { by_fid: Some(ids.by_fid.clone()), sets: ids.sets.iter().map(set).collect() })
    }

    /// The compiled rule sets of the generation.
    #[must_use]
    pub fn sets(&self) -> &[SetInUse] {
        &self.sets
    }

    /// The index of the rule set for packets of a class. `has_flow`: the packet belongs to a flow.
    #[must_use]
    pub fn place(&self, fid: Fid, has_flow: bool) -> Option<usize> {
        self.by_fid.as_ref().map_or(Some(0), |by_fid| place_of_class(by_fid, fid, has_flow))
    }
}

/// The set for packets of a class. Packets without a flow (malformed headers, fragments) get the first set.
fn place_of_class(by_fid: &ByFid, fid: Fid, has_flow: bool) -> Option<usize> {
    by_fid.get(fid).or_else(|| (!has_flow).then_some(0))
}

impl Function for PolicyIds {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        self.id
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn worker(&self) -> WorkerState {
        Box::new(self.sets.iter().map(|s| s.ids.worker()).collect::<Vec<WorkerState>>())
    }

    fn hosts(&self) -> Option<Arc<dyn HostKeeper>> {
        // All rule sets share one.
        self.sets.first()?.ids.hosts()
    }

    fn variable_names(&self) -> Option<Arc<dyn VariableNames>> {
        // As above.
        self.sets.first()?.ids.variable_names()
    }

    fn take_header_rules(&mut self) -> Vec<HeaderRules> {
        core::mem::take(&mut self.header_rules)
    }

    fn rules_of(&self, fid: Fid) -> Option<(usize, usize)> {
        let set = self.sets.get(self.by_fid.get(fid)?)?;
        let seen = set.ids.seen();
        let of_set = || Arc::as_ptr(&seen.rules).addr();
        let set = seen.visible.as_ref().map_or_else(of_set, |visible| Arc::as_ptr(visible).addr());
        Some((set, seen.count()))
    }

    fn is_idle(&self) -> bool {
        self.sets.iter().all(|set| set.ids.is_idle())
    }

    fn together(&self) -> Together {
        self.sets.iter().map(|set| set.ids.together()).min().unwrap_or_default()
    }

    fn waits_for_protocol(&self) -> bool {
        self.sets.iter().any(|set| set.ids.waits_for_protocol())
    }

    fn payload(&self, context: &mut PacketContext<'_>) -> Decision {
        let index = place_of_class(&self.by_fid, context.notes.fid, context.facts.flow.is_some());
        let Some((index, set)) = index.and_then(|i| Some((i, self.sets.get(i)?))) else {
            return Decision::CONTINUE;
        };
        let states = context.worker.downcast_mut::<Vec<WorkerState>>();
        let Some(worker) = states.and_then(|states| states.get_mut(index)) else { return Decision::CONTINUE };
        let only_detects;
        let facts = if set.detect_only {
            only_detects = PacketFacts { prevention: false, ..*context.facts };
            &only_detects
        } else {
            context.facts
        };
        set.ids.payload(&mut PacketContext {
            facts,
            app: context.app.as_mut().map(AppView::reborrow),
            notes: context.notes,
            worker,
            slot: context.slot,
            staged: context.staged,
            reject: context.reject,
            findings: context.findings,
            edits: context.edits,
        })
    }

    fn explain(&self, context: &PacketContext<'_>) -> serde_json::Map<String, Value> {
        let mut said = serde_json::Map::new();
        let Some(set) = self.by_fid.get(context.notes.fid).and_then(|i| self.sets.get(i)) else {
            return said;
        };
        if let Some(level) = &set.level {
            said.insert("rule_group".to_owned(), level.as_str().into());
        }
        said.insert("files".to_owned(), set.files.clone().into());
        said.insert("mode".to_owned(), if set.detect_only { "detect" } else { "prevent" }.into());
        said.extend(set.ids.explain(context));
        said
    }

    fn log(&self, worker: &WorkerState, each: &mut dyn FnMut(&'static str, u64)) {
        let Some(states) = worker.downcast_ref::<Vec<WorkerState>>() else { return };
        let mut totals: Vec<(&'static str, u64)> = Vec::new();
        for (set, state) in self.sets.iter().zip(states) {
            set.ids.log(state, &mut |name, value| match totals.iter_mut().find(|(n, _)| *n == name) {
                Some(total) => total.1 += value,
                None => totals.push((name, value)),
            });
        }
        totals.into_iter().for_each(|(name, value)| each(name, value));
    }
}

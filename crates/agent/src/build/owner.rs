// SPDX-License-Identifier: Apache-2.0
//! Compiles an owner (a policy or the default): its chain, classes with fids, the headers it selects, and the
//! functions' input.
//!
//! The result does not depend on the policy's place among the others, only on the policy and the common input
//! ([`PolicyBuildContext`]), so later generations reuse it.

use super::{
    Build, ClassInfo, DEFAULT_POLICY, DETECTION, GATE, NAMES, NO_DETECTION, PolicyBuildContext, overload,
};
use crate::classes::{Variants, both_ways};
use crate::grt::Meaning;
use bartizan_base::{Fid, FunctionId, Path, TenantId};
use bartizan_classify::HeaderRule;
use bartizan_classify::list::Piece;
use bartizan_config::policy::sections::IdsSection;
use bartizan_config::policy::{
    Bypass, DefaultAction, DefaultPolicy, ForWant, FunctionSection, OnFailure, OneSided, OverloadPolicy,
    PolicyDefinition, SectionContent, Target, section_of, unknown_function,
};
use bartizan_function::{FunctionKind, RulePart};
use bartizan_stages::chain::{Class, ClassTraits};
use bartizan_stages::enough::InspectionLimit;
use core::num::NonZeroU64;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// The keys that policies and the default have in common.
pub(super) struct Owner<'f> {
    pub path: String,
    pub name: Option<&'f str>,
    pub chain: &'f [String],
    pub sections: &'f [FunctionSection],
    from: &'f [Target],
    to: &'f [Target],
    staged: bool,
    one_sided: OneSided,
    overload: OverloadPolicy,
    bypass: Bypass,
    on_failure: &'f OnFailure,
    refuse: bool,
}

impl<'f> Owner<'f> {
    pub fn policy(index: usize, p: &'f PolicyDefinition) -> Self {
        Owner {
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
        }
    }

    pub fn default(d: &'f DefaultPolicy) -> Self {
        Owner {
            path: "default".to_owned(),
            name: None,
            chain: &d.chain,
            sections: &d.sections,
            from: &[Target::Any],
            to: &[Target::Any],
            staged: d.staged,
            one_sided: d.one_sided,
            overload: d.overload,
            bypass: d.bypass,
            on_failure: &d.on_failure,
            refuse: d.action == DefaultAction::Drop,
        }
    }
}

/// The classes that one owner's section of a function applies to.
pub(super) struct SectionClasses {
    /// Index of the function's kind in the agent.
    pub kind: usize,
    pub fids: Vec<Fid>,
    /// The function's input.
    pub part: Arc<RulePart>,
}

/// A compiled owner; see the module.
pub(super) struct CompiledOwner {
    /// The policy that was compiled; `None`: the default.
    pub policy: Option<Arc<PolicyDefinition>>,
    pub staged: bool,
    /// Whether it selects all traffic of all tenants, so that no later policy gets any.
    pub takes_all: bool,
    /// The class of its flows for its first tenant, for levels below the host.
    pub first: Option<Class>,
    /// Whether packets are forwarded while the first function of its chain is unavailable.
    pub first_fails_open: bool,
    /// The classes by tenant.
    pub classes: Vec<(TenantId, Variants)>,
    pub infos: Vec<Arc<ClassInfo>>,
    pub traits: Vec<(Fid, ClassTraits)>,
    pub groups: Vec<SectionClasses>,
    /// The headers that select its flows, with their fids.
    pub entries: Arc<Piece>,
    /// The headers that it selects; the default selects the remaining ones.
    pub selected: Arc<[HeaderRule]>,
}

/// The tenant of a class.
#[derive(Clone, Copy)]
struct ClassTenant<'t> {
    name: &'t str,
    id: TenantId,
}

/// The results collected while an owner's classes are made.
#[derive(Default)]
struct Making<'f> {
    infos: Vec<Arc<ClassInfo>>,
    traits: Vec<(Fid, ClassTraits)>,
    /// Fids by kind of function and service level, in order of first use.
    groups: Vec<(usize, Option<&'f str>, Vec<Fid>)>,
}

impl<'a> Build<'a> {
    /// Compiles an owner.
    pub(super) fn make(
        &mut self,
        context: &PolicyBuildContext,
        owner: &Owner<'a>,
        policy: Option<&Arc<PolicyDefinition>>,
    ) -> Option<CompiledOwner> {
        let path = self.chain(owner)?;
        let without = self.fail_open_functions(owner, path);
        let first_fails_open = path.functions().next().is_some_and(|id| without.contains(id));
        let tenants = context.tenants_of(policy.map(Arc::as_ref));
        let all_tenants = tenants.len() == context.known.len();
        let mut making = Making::default();
        let (mut classes, mut entries, mut selected, mut first) = (Vec::new(), Vec::new(), Vec::new(), None);
        for (tenant_name, tenant) in tenants {
            let variants = self.variants(&mut making, owner, path, tenant_name, *tenant)?;
            first.get_or_insert(variants.plain);
            if let Some(policy) = policy {
                let own = self.header_rules(&owner.path, policy, Some(*tenant));
                if !all_tenants {
                    selected.extend(&own);
                } else if selected.is_empty() {
                    selected = self.header_rules(&owner.path, policy, None);
                }
                entries.extend(own.into_iter().map(|rule| (variants.plain.fid.0, rule)));
            }
            classes.push((*tenant, variants));
        }
        let Making { infos, traits, groups } = making;
        let groups = groups.into_iter().map(|(kind, level, fids)| {
            let section = self.section(owner, kind, level);
            let part = Arc::new(RulePart::with_section(self.class_head(owner, &fids), section));
            SectionClasses { kind, fids, part }
        });
        Some(CompiledOwner {
            policy: policy.cloned(),
            staged: owner.staged,
            takes_all: all_tenants && policy.is_some_and(|policy| selects_all(policy)),
            first,
            first_fails_open,
            classes,
            infos,
            traits,
            groups: groups.collect(),
            entries: Arc::new(Piece::new(entries)),
            selected: selected.into(),
        })
    }

    /// The header rules that a policy selects, for one tenant or for all.
    pub(super) fn header_rules(
        &mut self,
        path: &str,
        policy: &PolicyDefinition,
        tenant: Option<TenantId>,
    ) -> Vec<HeaderRule> {
        let links = self.links_of(&format!("{path}/link"), policy.link.as_deref());
        let (from, to) = (self.sides(&policy.from), self.sides(&policy.to));
        both_ways(&from, &to, tenant, &links)
    }

    /// The path of a chain; checks that its functions exist, occur once, and are in a possible order.
    pub(super) fn chain(&mut self, owner: &Owner<'_>) -> Option<Path> {
        let mut path = Path::EMPTY;
        let mut numbers = Vec::new();
        for (index, name) in owner.chain.iter().enumerate() {
            let place = || format!("{}/chain/{index}", owner.path);
            match self.agent.function_id(name).filter(|_| name != GATE && name != NAMES) {
                None => {
                    let names = self.agent.function_names();
                    self.problem(&place(), unknown_function(name, &names));
                }
                Some(id) if path.contains(id) => {
                    self.problem(&place(), format!("the chain has `{name}` twice; remove one"))
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
                "`action: drop` needs the function `gate`, which this program does not have".to_owned(),
            ),
            (false, _) => {}
        }
        Some(path)
    }

    /// Makes the classes of an owner for one tenant, with fids.
    fn variants(
        &mut self,
        making: &mut Making<'a>,
        owner: &Owner<'a>,
        path: Path,
        tenant_name: &str,
        tenant: TenantId,
    ) -> Option<Variants> {
        let detection = self.agent.function_id(DETECTION).filter(|id| path.contains(*id));
        let section = section_of::<IdsSection>(owner.sections).and_then(Result::ok);
        let own_level = section.as_ref().and_then(|section| section.level.as_deref());
        let own_path = if own_level == Some(NO_DETECTION) {
            detection.map_or(path, |id| path.without(id))
        } else {
            path
        };
        let whose = ClassTenant { name: tenant_name, id: tenant };
        let plain = self.class(making, owner, None, own_path, whose)?;
        let mut by_level = Vec::new();
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
                    let class = self.class(making, owner, Some(name), path, whose)?;
                    known.insert(name, class);
                    class
                }
            };
            by_level.push(class);
        }
        Some(Variants { plain, by_level: (!by_level.is_empty()).then(|| by_level.into()), owner: 0 })
    }

    fn class(
        &mut self,
        making: &mut Making<'a>,
        owner: &Owner<'a>,
        level: Option<&'a str>,
        path: Path,
        tenant: ClassTenant<'_>,
    ) -> Option<Class> {
        let name = format!("{}\n{}", owner.name.unwrap_or("\t"), level.unwrap_or_default());
        let fid = match self.state.fid(Meaning { tenant: tenant.id, name }) {
            Ok(fid) => fid,
            Err(error) => {
                self.problem(&owner.path, error.to_string());
                return None;
            }
        };
        let functions = self.agent.kinds.iter().zip(&self.agent.ids).enumerate();
        for (kind, (of, _)) in functions.filter(|(_, (_, id))| path.contains(**id)) {
            let level = level.filter(|_| of.spec().name == DETECTION);
            match making.groups.iter_mut().find(|(k, l, _)| (*k, *l) == (kind, level)) {
                Some((.., fids)) => fids.push(fid),
                None => making.groups.push((kind, level, vec![fid])),
            }
        }
        let fail_open_functions = self.fail_open_functions(owner, path);
        let number = owner.name.map_or(0, |name| self.state.number(name));
        making.traits.push((fid, traits_of(owner, number, path, fail_open_functions)));
        making.infos.push(Arc::new(ClassInfo {
            fid,
            tenant: tenant.name.to_owned(),
            policy: owner.name.map(str::to_owned),
            level: level.map(str::to_owned),
            path,
            staged: owner.staged,
            one_sided: owner.one_sided,
            overload: owner.overload,
            bypass: owner.bypass,
            fail_open_functions,
        }));
        Some(Class { fid, path })
    }

    /// The functions of a path without which an owner's packets are still forwarded.
    fn fail_open_functions(&self, owner: &Owner<'_>, path: Path) -> Path {
        // The reader of resolvers' answers is in no policy's chain and gives no verdicts: its failure drops
        // no packet.
        let passes = |kind: &dyn FunctionKind, id: FunctionId| match kind.spec().name {
            NAMES => true,
            name => path.contains(id) && owner.on_failure.of(name) == ForWant::Pass,
        };
        let named = self.agent.kinds.iter().zip(&self.agent.ids);
        named
            .filter(|(kind, id)| passes(kind.as_ref(), **id))
            .fold(Path::EMPTY, |path, (_, id)| path.with(*id))
    }

    /// The section of a function: the policy's own, unless an order or the service level of the hosts changes
    /// it, or the agent writes it.
    fn section(&self, owner: &Owner<'_>, kind: usize, level: Option<&str>) -> Arc<SectionContent> {
        let function = self.agent.kinds.get(kind).map_or("", |kind| kind.spec().name);
        if function == GATE {
            let gate = json!({"refuse": owner.refuse, "drop-one-sided": owner.one_sided == OneSided::Drop});
            return Arc::new(SectionContent::new(gate));
        }
        let section = owner.sections.iter().find(|s| s.function == function);
        let mut content = section.map(|section| Arc::clone(&section.content)).unwrap_or_default();
        if let Some(own) = self.agent.overrides.get(function).filter(|own| !own.is_empty()) {
            content = Arc::new(content.with(own));
        }
        if let Some(level) = level {
            let mut object = content.json().as_object().cloned().unwrap_or_default();
            // The service level determines the rules for these hosts.
            object.remove("rules");
            object.insert("level".to_owned(), json!(level));
            content = Arc::new(SectionContent::new(Value::Object(object)));
        }
        content
    }

    /// The functions' input for an owner and some of its classes, without the section.
    fn class_head(&self, owner: &Owner<'_>, fids: &[Fid]) -> Value {
        let prefixes = |targets: &[Target]| self.texts(&self.file.resolve(targets));
        // Built value by value: `json!` would copy its arguments.
        let mut class = Map::new();
        class.insert("policy".to_owned(), owner.name.unwrap_or(DEFAULT_POLICY).into());
        class.insert("fids".to_owned(), fids.iter().map(|f| f.0).collect());
        class.insert("from".to_owned(), prefixes(owner.from).into());
        class.insert("to".to_owned(), prefixes(owner.to).into());
        class.insert("one-sided".to_owned(), json!(owner.one_sided));
        Value::Object(class)
    }
}

/// Whether a policy selects by tenant only.
fn selects_all(policy: &PolicyDefinition) -> bool {
    let PolicyDefinition { from, to, link, .. } = policy;
    link.is_none() && [from, to].iter().all(|side| side.contains(&Target::Any))
}

/// The data plane's form of a class.
fn traits_of(owner: &Owner<'_>, policy: u32, path: Path, fail_open_functions: Path) -> ClassTraits {
    let one_sided = matches!(owner.one_sided, OneSided::Allow | OneSided::IdsOnly);
    let Bypass { encrypted, packets, bytes } = owner.bypass;
    let enough = InspectionLimit {
        encrypted,
        packets: packets.map(NonZeroU64::get),
        bytes: bytes.map(|bytes| bytes.0),
    };
    let (staged, is_empty, overload) = (owner.staged, path.is_empty(), overload(owner.overload));
    ClassTraits { policy, staged, is_empty, one_sided, overload, enough, fail_open_functions }
}

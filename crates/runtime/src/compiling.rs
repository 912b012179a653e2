// SPDX-License-Identifier: Apache-2.0
//! Compiles the rules that policies name: each set of rule files once per generation, and those of a
//! controller's libraries again only after a change. Libraries that choose from the same files share one set
//! ([`union`]).

mod union;

use crate::error::Failure;
use crate::log::Note;
use crate::reload::Inventory;
use crate::{findings, load};
use bartizan_agent::joined::{JoinedPolicy, Library};
use bartizan_api::content::{ContentKind, Contents};
use bartizan_base::{RuleId, SettingsMap, TenantId};
use bartizan_detect::groups::Groups;
use bartizan_detect::needs::Needs;
use bartizan_detect::ruleset::{RuleSet, VisibleRules};
use bartizan_detect::signature::Member;
use bartizan_detect::visibility::Visibility;
use bartizan_function::RuleSource;
use bartizan_functions::ids_kind::{CompileError, RuleCompiler, groups_of};
use bartizan_rules::{Diagnostic, RuleFile, RuleSetReport, RuleVariables};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use union::{Union, UnionPlan};

/// Source of the rules.
pub enum Texts {
    /// Files, beside the policy file.
    Files {
        /// Rule files for every flow with detection.
        always: Vec<PathBuf>,
        /// The policy file's folder.
        folder: PathBuf,
    },
    /// A controller's libraries.
    Held {
        /// The controller's configuration.
        joined: Arc<JoinedPolicy>,
        /// Rule sets that were compiled from its earlier configuration.
        known: Arc<LibraryRuleCache>,
    },
}

/// A compiled rule set with its reports.
#[derive(Clone)]
struct CompiledRuleSet {
    rules: Arc<RuleSet>,
    inventory: Arc<Inventory>,
    needs: Needs,
    /// Number of entries that were left out of the lists that the rules use.
    skipped_entries: usize,
    /// The files and lists that the set was read from.
    contents: Contents,
}

/// The rules of a section's rule files: the set, and the visible part of it.
#[derive(Clone)]
struct OfFiles {
    made_of: Option<MadeOf>,
    visible: Option<Arc<Visibility>>,
    compiled: CompiledRuleSet,
}

impl OfFiles {
    fn seen(&self) -> VisibleRules {
        VisibleRules { rules: Arc::clone(&self.compiled.rules), visible: self.visible.clone() }
    }

    /// Whether another one is identical, by address.
    fn is(&self, other: &OfFiles) -> bool {
        let visible = match (&self.visible, &other.visible) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        visible && Arc::ptr_eq(&self.compiled.rules, &other.compiled.rules)
    }
}

/// Rules by the names of their files.
type ByFiles = BTreeMap<Vec<String>, OfFiles>;

/// Signature groups, and the rule sets that they belong to.
#[derive(Clone)]
pub struct Grouped {
    sets: Vec<Arc<RuleSet>>,
    groups: Arc<Groups>,
}

/// The reusable part of a controller's rules for the next generation: everything that depends on nothing
/// else.
#[derive(Clone, Default)]
pub struct LibraryRuleCache {
    of_files: ByFiles,
    unions: Vec<Arc<Union>>,
    grouped: Option<Grouped>,
}

/// Inputs of a rule set of a controller: sets with equal inputs are equal.
#[derive(Clone, PartialEq)]
struct MadeOf {
    libraries: Vec<Library>,
    /// Variables of tenants, with the tenants' numbers.
    variables: Value,
}

/// The compiler; see the module.
pub struct RuleSetCompiler {
    base: Arc<load::Base>,
    settings: SettingsMap,
    texts: Texts,
    of_files: Mutex<ByFiles>,
    unions: Mutex<Vec<Arc<Union>>>,
    grouped: Mutex<Option<Grouped>>,
    /// Notes for the user about the rules.
    notes: Mutex<Vec<Note>>,
}

impl RuleSetCompiler {
    /// A compiler for one generation.
    pub fn new(base: Arc<load::Base>, settings: SettingsMap, texts: Texts) -> Self {
        RuleSetCompiler {
            base,
            settings,
            texts,
            of_files: Mutex::default(),
            unions: Mutex::default(),
            grouped: Mutex::default(),
            notes: Mutex::default(),
        }
    }

    /// Takes the notes for the user about the rules.
    pub fn take_notes(&self) -> Vec<Note> {
        self.notes.lock().map(|mut notes| std::mem::take(&mut *notes)).unwrap_or_default()
    }

    fn note(&self, more: Vec<Note>) {
        if let Ok(mut notes) = self.notes.lock() {
            notes.extend(more);
        }
    }

    /// Whether there are rules for all flows, which no policy has to name.
    pub fn has_rules_for_all(&self) -> bool {
        matches!(&self.texts, Texts::Files { always, .. } if !always.is_empty())
    }

    /// See [`load::Base::malformed_thresholds`].
    pub fn malformed_thresholds(&self) -> Vec<Diagnostic> {
        self.base.malformed_thresholds()
    }

    /// Number of entries that were left out of the lists that rules use.
    pub fn skipped_entries(&self) -> usize {
        self.sets().iter().map(|set| set.skipped_entries).sum()
    }

    /// Reports of all rules together, and their demands on parsers.
    pub fn totals(&self) -> (RuleSetReport, Needs) {
        let mut total = RuleSetReport::new();
        let mut needs = Needs::default();
        for set in self.sets() {
            total.absorb(&set.rules.report);
            needs = needs.and(set.needs);
        }
        (total, needs)
    }

    /// See [`RuleSet::of_packets_alone`], of all rule sets.
    pub fn rules_of_packets_alone(&self) -> Vec<RuleId> {
        self.sets().iter().flat_map(|set| set.rules.of_packets_alone().collect::<Vec<_>>()).collect()
    }

    /// The rule sets, each once.
    fn sets(&self) -> Vec<CompiledRuleSet> {
        let Ok(of_files) = self.of_files.lock() else { return Vec::new() };
        let mut sets: Vec<CompiledRuleSet> = Vec::new();
        for of in of_files.values() {
            if !sets.iter().any(|set| Arc::ptr_eq(&set.rules, &of.compiled.rules)) {
                sets.push(of.compiled.clone());
            }
        }
        sets
    }

    /// The rules by file.
    pub fn inventory(&self) -> Arc<Inventory> {
        let sets = self.sets();
        // A single set is not copied: it has a place for each rule.
        if let [set] = sets.as_slice() {
            return Arc::clone(&set.inventory);
        }
        let mut all = Inventory::default();
        sets.iter().for_each(|set| all.absorb(&set.inventory));
        Arc::new(all)
    }

    /// The rule files and lists that the rules come from; for a controller's libraries the files that it has
    /// sent.
    pub fn contents(&self) -> Contents {
        let mut contents = Contents::default();
        self.sets().iter().for_each(|set| contents.absorb(&set.contents));
        if let Texts::Held { joined, .. } = &self.texts {
            let hashes = joined.libraries.values().flat_map(Library::hashes);
            hashes.for_each(|(name, hash)| contents.add_hash(ContentKind::Rules, name, hash));
        }
        contents
    }

    /// The reusable part for the next generation.
    pub fn known(&self) -> LibraryRuleCache {
        let of_files = self.of_files.lock().map(|of_files| of_files.clone()).unwrap_or_default();
        let unions = self.unions.lock().map(|unions| unions.clone()).unwrap_or_default();
        let grouped = self.grouped.lock().map(|grouped| grouped.clone()).unwrap_or_default();
        LibraryRuleCache { of_files, unions, grouped }
    }

    /// Whether all rule sets are those of the previous generation.
    pub fn has_nothing_new(&self) -> bool {
        let Texts::Held { known, .. } = &self.texts else { return false };
        let is_known = |(files, of): (&Vec<String>, &OfFiles)| {
            known.of_files.get(files).into_iter().chain(known.of_files.values()).any(|known| known.is(of))
        };
        self.of_files.lock().is_ok_and(|now| now.len() == known.of_files.len() && now.iter().all(is_known))
    }

    /// The inputs of the rule set of these files, if they can be compared.
    fn made_of(&self, files: &[String], source: &RuleSource<'_>) -> Result<Option<MadeOf>, CompileError> {
        let Texts::Held { joined, .. } = &self.texts else { return Ok(None) };
        let library = |(place, name): (usize, &String)| {
            joined.libraries.get(name).cloned().ok_or_else(|| CompileError {
                file: Some(place),
                message: format!(
                    "there is no rule library for `{name}`: policies of a controller name their rules by `level: LIBRARY` only"
                ),
            })
        };
        let libraries = files.iter().enumerate().map(library).collect::<Result<_, _>>()?;
        let mut variables = source.common.json().get("vars").cloned().unwrap_or(Value::Null);
        // The place in the file is not part of the input: another tenant may be inserted before.
        for vars in variables.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            vars.remove("place");
        }
        Ok(Some(MadeOf { libraries, variables }))
    }

    /// Reads rule files, and adds them to `contents`.
    fn read(
        &self,
        files: &[String],
        made_of: Option<&MadeOf>,
        contents: &mut Contents,
    ) -> Result<Vec<RuleFile>, CompileError> {
        if let Some(MadeOf { libraries, .. }) = made_of {
            return Ok(libraries.iter().flat_map(Library::rules).collect());
        }
        let Texts::Files { always, folder } = &self.texts else { return Ok(Vec::new()) };
        let named = files.iter().map(|f| folder.join(f));
        let paths: Vec<PathBuf> = always.iter().cloned().chain(named).collect();
        let mut parsed = Vec::new();
        for (place, path) in paths.iter().enumerate() {
            let read = load::rule_files(std::slice::from_ref(path), contents);
            // Files of the command line are in no policy.
            let file = place.checked_sub(always.len());
            parsed.extend(read.map_err(|error: Failure| CompileError { file, message: error.to_string() })?);
        }
        Ok(parsed)
    }

    fn compile_anew(
        &self,
        mut parsed: Vec<RuleFile>,
        mut contents: Contents,
        source: &RuleSource<'_>,
        tenants: &[(TenantId, RuleVariables)],
    ) -> Result<CompiledRuleSet, CompileError> {
        let mut notes = Vec::new();
        let loaded = self.base.rules(&mut parsed, &self.settings, tenants, &mut notes);
        let loaded = loaded.map_err(|e| e.to_string())?;
        notes.extend(findings::report(&loaded.diagnostics, &loaded.rules.report));
        load::add_lists(&mut contents, &loaded);
        let mut inventory = Inventory::default();
        match self.texts {
            Texts::Files { .. } => inventory.add(&parsed, &loaded),
            Texts::Held { .. } => inventory.add_sent(&parsed, &loaded),
        }
        for (tenant, _) in tenants {
            let heads = loaded.rules.heads.of(*tenant);
            let nothing = |s: &&Member| heads.get(s.head as usize).is_none_or(Option::is_none);
            let count = loaded.rules.signatures.iter().filter(nothing).count();
            if count > 0 {
                let name = tenant_name(source, *tenant);
                notes.push(Note::Line(format!(
                    "note: {count} rules never match for tenant `{name}`: with its variables they have no address or port"
                )));
            }
        }
        self.note(notes);
        let needs = Needs::of(&loaded.rules);
        let skipped_entries = findings::skipped_entries(&loaded.diagnostics);
        let (rules, inventory) = (Arc::new(loaded.rules), Arc::new(inventory));
        Ok(CompiledRuleSet { rules, inventory, needs, skipped_entries, contents })
    }
}

impl RuleSetCompiler {
    /// The previous rules with the same inputs.
    fn before(&self, files: &[String], made_of: Option<&MadeOf>) -> Option<&OfFiles> {
        let Texts::Held { known, .. } = &self.texts else { return None };
        let same = |of: &&OfFiles| made_of.is_some() && of.made_of.as_ref() == made_of;
        known.of_files.get(files).filter(same).or_else(|| known.of_files.values().find(same))
    }

    /// The single library of the rules, if other libraries that choose from the same files can share a set
    /// with it. Not in firewall mode, where rules that a tenant does not see would decide through their
    /// policies.
    fn shareable<'m>(&self, made_of: &'m MadeOf) -> Option<&'m Library> {
        let [library] = made_of.libraries.as_slice() else { return None };
        matches!(bartizan_detect::firewall::is_enabled(&self.settings), Ok(false)).then_some(library)
    }

    /// The rule set of all libraries that choose from the same files as this one: that of the previous
    /// generation, if it suits them.
    fn union(
        &self,
        library: &Library,
        variables: &Value,
        source: &RuleSource<'_>,
        tenants: &[(TenantId, RuleVariables)],
    ) -> Result<Arc<Union>, CompileError> {
        let Texts::Held { joined, known } = &self.texts else { return Err("no libraries".to_owned().into()) };
        let mut unions = self.unions.lock().map_err(|_| "an earlier load failed".to_owned())?;
        let of_these = |union: &&Arc<Union>| union.is_of(library, variables);
        if let Some(union) = unions.iter().filter(of_these).find(|union| union.has(library)) {
            return Ok(Arc::clone(union));
        }
        let has_one = |sibling: &&Library| unions.iter().filter(of_these).any(|union| union.has(sibling));
        let siblings: Vec<&Library> = joined
            .libraries
            .values()
            .filter(|other| other.has_files_of(library) && !has_one(other))
            .collect();
        let good = |union: &&Arc<Union>| union.has(library) && union.is_for(&siblings);
        let union = match known.unions.iter().filter(of_these).find(good) {
            Some(union) => Arc::clone(union),
            None => {
                let mut files = library.files();
                let plan = UnionPlan::new(&files, library, &siblings);
                plan.keep(&mut files);
                let compiled = self.compile_anew(files, Contents::default(), source, tenants)?;
                Arc::new(Union::new(library.clone(), variables.clone(), plan, compiled))
            }
        };
        unions.push(Arc::clone(&union));
        Ok(union)
    }
}

/// The name of a tenant in the policy file.
fn tenant_name(source: &RuleSource<'_>, tenant: TenantId) -> String {
    let names = source.common.json().get("tenants").and_then(|t| t.as_object());
    let known = names.and_then(|names| names.iter().find(|(_, id)| id.as_u64() == Some(tenant.0.into())));
    known.map_or_else(|| tenant.0.to_string(), |(name, _)| name.clone())
}

impl RuleCompiler for RuleSetCompiler {
    fn variables(&self) -> &RuleVariables {
        self.base.variables()
    }

    fn compile(
        &self,
        files: &[String],
        source: &RuleSource<'_>,
        tenants: &[(TenantId, RuleVariables)],
    ) -> Result<VisibleRules, CompileError> {
        let broken = "an earlier load failed";
        let mut of_files = self.of_files.lock().map_err(|_| broken.to_owned())?;
        if let Some(known) = of_files.get(files) {
            return Ok(known.seen());
        }
        let made_of = self.made_of(files, source)?;
        let before = self.before(files, made_of.as_ref());
        let of = match made_of.as_ref().and_then(|made_of| Some((self.shareable(made_of)?, made_of))) {
            Some((library, made_of)) => {
                let union = self.union(library, &made_of.variables, source, tenants)?;
                let same = |before: &&OfFiles| Arc::ptr_eq(&before.compiled.rules, &union.compiled.rules);
                match before.filter(same) {
                    Some(before) => before.clone(),
                    None => {
                        let seen = union.seen(library).ok_or_else(|| broken.to_owned())?;
                        OfFiles {
                            made_of: Some(made_of.clone()),
                            visible: seen.visible,
                            compiled: union.compiled.clone(),
                        }
                    }
                }
            }
            None => match before {
                Some(before) => before.clone(),
                None => {
                    let mut contents = Contents::default();
                    let parsed = self.read(files, made_of.as_ref(), &mut contents)?;
                    let compiled = self.compile_anew(parsed, contents, source, tenants)?;
                    OfFiles { made_of, visible: None, compiled }
                }
            },
        };
        let seen = of.seen();
        of_files.insert(files.to_vec(), of);
        Ok(seen)
    }

    fn groups(&self, sets: &[Arc<RuleSet>]) -> Arc<Groups> {
        let same = |grouped: &&Grouped| {
            grouped.sets.len() == sets.len() && grouped.sets.iter().zip(sets).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let known = match &self.texts {
            Texts::Held { known, .. } => known.grouped.as_ref().filter(same).cloned(),
            Texts::Files { .. } => None,
        };
        let grouped = known.unwrap_or_else(|| Grouped { sets: sets.to_vec(), groups: groups_of(sets) });
        let groups = Arc::clone(&grouped.groups);
        if let Ok(mut kept) = self.grouped.lock() {
            *kept = Some(grouped);
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::{BuildOptions, Builder};
    use bartizan_agent::joined::join;
    use bartizan_agent::session::ControllerGeneration;
    use bartizan_api::southbound::{GroupRules, Object, Policy, RuleGroup, RuleType};
    use bartizan_base::Generation;
    use bartizan_config::policy::PolicyText;
    use serde_json::json;

    /// Port at which a third tenant precedes the two.
    const THIRD: u16 = 8443;

    /// Two tenants with a library each; parameters are the port of one, the content of one's rule, and a
    /// variable of one.
    fn held(port: u16, content: &str, home: &str) -> Arc<JoinedPolicy> {
        let part = |tenant, name: &str, text: Value| {
            Object::Policy(Policy { name: name.to_owned(), tenant, text: text.to_string() })
        };
        let tenant = |number: u16, name: &str| {
            let vars = json!({"address-groups": {"HOME_NET": home}});
            let own = json!({"name": name, "select": {"vni": number}, "vars": vars});
            part(number, "@tenant", json!({"tenant": own}))
        };
        let policy = |number, tenant: &str, library: &str| {
            let said = json!({
                "name": format!("{tenant}/web"), "tenant": [tenant], "chain": ["pfw", "ids"],
                "pfw": {"default": "drop", "rules": [{"allow": "tcp", "to-ports": port}]}, "ids": {"level": library},
            });
            part(number, "web", json!({"policy": said}))
        };
        let library = |name: &str, group: u32| {
            let files = json!({"files": [{"group": group, "sha256": name}]});
            part(0, &format!("@library/{name}"), json!({"library": files}))
        };
        let file = |id: u32, content: &str| {
            let rule = format!("alert tcp $HOME_NET any -> any any (content:\"{content}\"; sid:{id};)");
            let rules = GroupRules::Raw(vec![rule]);
            Object::Group(RuleGroup { id, tenant: 0, rule_type: RuleType::Ids, rules })
        };
        let objects = [
            tenant(1, "acme"),
            tenant(2, "beta"),
            policy(1, "acme", "one"),
            policy(2, "beta", "two"),
            library("one", 7),
            library("two", 8),
            file(7, "seven"),
            file(8, content),
        ];
        let third = json!({"tenant": {"name": "zero", "select": {"vni": 3}}, "order": 1});
        let third = (port == THIRD).then(|| part(3, "@tenant", third));
        let objects = objects.into_iter().chain(third);
        let objects = objects.map(|object| (object.key(), Arc::new(object))).collect();
        Arc::new(join(&ControllerGeneration { generation: 1, objects }).unwrap())
    }

    /// Rule sets and their groups.
    type Made = ([Arc<RuleSet>; 2], Arc<Groups>);

    #[test]
    fn libraries_that_nothing_has_changed_of_are_not_compiled_again() {
        let cache = Some("none".into());
        let options = BuildOptions { controlled: true, cache, ..BuildOptions::default() };
        let mut builder = Builder::new(&options, std::path::Path::new("")).unwrap();
        let mut number = 0;
        let mut build = |held: &Arc<JoinedPolicy>| {
            number += 1;
            let built = builder.build_held(held, Generation(number)).ok().unwrap();
            let of =
                |file: &str| Arc::clone(&builder.known().of_files[&vec![file.to_owned()]].compiled.rules);
            assert_eq!(
                (built.report.loaded, built.inventory.loaded(), built.report.refused_total()),
                (2, 2, 0)
            );
            let groups = Arc::clone(&builder.known().grouped.as_ref().unwrap().groups);
            ([of("one.rules"), of("two.rules")], groups)
        };
        // Groups are rebuilt exactly when a rule set is.
        let same = |(a, of_a): &Made, (b, of_b): &Made| {
            let same = [0, 1].map(|at| Arc::ptr_eq(&a[at], &b[at]));
            assert_eq!(Arc::ptr_eq(of_a, of_b), same == [true, true]);
            same
        };
        let first = build(&held(80, "eight", "10.0.0.0/8"));
        let policy = build(&held(443, "eight", "10.0.0.0/8"));
        assert_eq!(same(&first, &policy), [true, true]);
        let tenant = build(&held(THIRD, "eight", "10.0.0.0/8"));
        assert_eq!(same(&policy, &tenant), [true, true]);
        let file = build(&held(443, "another", "10.0.0.0/8"));
        assert_eq!(same(&tenant, &file), [true, false]);
        let variable = build(&held(443, "another", "192.0.2.0/24"));
        assert_eq!(same(&file, &variable), [false, false]);
        // A failed build changes nothing.
        let mut broken = JoinedPolicy::clone(&held(443, "other", "192.0.2.0/24"));
        let mut policy = broken.parts.policies[0].json().clone();
        policy["chain"] = json!(["pfv"]);
        broken.parts.policies[0] = Arc::new(PolicyText::new(policy));
        assert!(builder.build_held(&Arc::new(broken), Generation(9)).is_err());
    }

    /// A library for each tenant that chooses from one file: `choose` and `except`.
    fn choosing(libraries: &[Value]) -> Arc<JoinedPolicy> {
        let rules = (1..=4).map(|sid| {
            let class = if sid < 3 { "web" } else { "mail" };
            format!("alert tcp any any -> any any (content:\"{sid}\"; classtype:{class}; sid:{sid};)")
        });
        let file =
            RuleGroup { id: 7, tenant: 0, rule_type: RuleType::Ids, rules: GroupRules::Raw(rules.collect()) };
        let mut objects = vec![Object::Group(file)];
        for (number, library) in (1u16..).zip(libraries) {
            let part = |tenant, name: &str, text: Value| {
                Object::Policy(Policy { name: name.to_owned(), tenant, text: text.to_string() })
            };
            let name = format!("t{number}");
            let mut said = library.clone();
            said["files"] = json!([{"group": 7, "sha256": "seven"}]);
            let policy = json!({
                "name": format!("{name}/web"), "tenant": [&name], "chain": ["ids"], "ids": {"level": &name},
            });
            objects.extend([
                part(number, "@tenant", json!({"tenant": {"name": &name, "select": {"vni": number}}})),
                part(0, &format!("@library/{name}"), json!({"library": said})),
                part(number, "web", json!({"policy": policy})),
            ]);
        }
        let objects = objects.into_iter().map(|object| (object.key(), Arc::new(object))).collect();
        Arc::new(join(&ControllerGeneration { generation: 1, objects }).unwrap())
    }

    #[test]
    fn libraries_that_choose_of_the_same_files_have_one_rule_set_and_each_sees_its_part() {
        let cache = Some("none".into());
        let options = BuildOptions { controlled: true, cache, ..BuildOptions::default() };
        let mut builder = Builder::new(&options, std::path::Path::new("")).unwrap();
        let mut number = 0;
        // For each library the set and the visible ids; and the number of rules that run.
        let mut build = |libraries: &[Value]| {
            number += 1;
            let built = builder.build_held(&choosing(libraries), Generation(number)).ok().unwrap();
            let of = |file: &Vec<String>| {
                let seen = builder.known().of_files[file].seen();
                let sees = |rule: &u32| seen.visible.as_ref().is_none_or(|visible| visible.has(*rule));
                let sids = (0..).take(seen.rules.signatures.len()).filter(sees);
                let mut sids: Vec<u32> =
                    sids.map(|rule| seen.rules.signatures[rule as usize].id.sid).collect();
                sids.sort_unstable();
                (Arc::as_ptr(&seen.rules).addr(), sids)
            };
            let sets: Vec<_> =
                (1..=libraries.len()).map(|number| of(&vec![format!("t{number}.rules")])).collect();
            (sets, built.inventory.loaded())
        };
        let (all, web) = (json!({}), json!({"choose": [{"category": "web"}]}));
        let without = |ids: &[u32]| json!({"except": ids});
        let (first, loaded) = build(&[without(&[1])]);
        assert_eq!((&first[0].1, loaded), (&vec![2, 3, 4], 3), "what nobody takes is not there");
        // One library takes more: a set for both. After that every rule that others could choose or leave out
        // is part of the set.
        let (both, loaded) = build(&[without(&[1]), without(&[2])]);
        assert_eq!((both[0].0, loaded), (both[1].0, 4));
        assert_ne!(both[0].0, first[0].0);
        assert_eq!([&both[0].1, &both[1].1], [&vec![2, 3, 4], &vec![1, 3, 4]]);
        let (third, _) = build(&[without(&[1]), without(&[2]), without(&[3, 4])]);
        assert_eq!(
            third.iter().map(|(set, _)| *set).collect::<Vec<_>>(),
            [both[0].0; 3],
            "not compiled again"
        );
        assert_eq!(third[2].1, [1, 2]);
        let (chosen, _) = build(&[without(&[1]), without(&[2]), web.clone(), all.clone()]);
        assert_eq!(chosen.iter().map(|(set, _)| *set).collect::<Vec<_>>(), [chosen[0].0; 4]);
        assert_eq!([&chosen[2].1, &chosen[3].1], [&vec![1, 2], &vec![1, 2, 3, 4]]);
        // A library that is removed takes no rules from the others.
        let (left, _) = build(&[without(&[2]), web]);
        assert_eq!(left.iter().map(|(set, _)| *set).collect::<Vec<_>>(), [chosen[0].0; 2]);
        assert_eq!([&left[0].1, &left[1].1], [&vec![1, 3, 4], &vec![1, 2]]);
    }
}

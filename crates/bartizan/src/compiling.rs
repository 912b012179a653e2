// SPDX-License-Identifier: Apache-2.0
//! Compiles the rules that policies name: each set of rule files once per generation, and those of a controller's libraries again only
//! where something of them has changed.

use crate::error::Failure;
use crate::reload::Inventory;
use crate::{findings, load};
use bartizan_agent::joined::{Joined, Library};
use bartizan_base::{Settings, TenantId};
use bartizan_detect::groups::Groups;
use bartizan_detect::needs::Needs;
use bartizan_detect::ruleset::RuleSet;
use bartizan_detect::signature::Member;
use bartizan_function::RuleSource;
use bartizan_functions::ids_kind::{CompileError, RuleCompiler, groups_of};
use bartizan_rules::{Diagnostic, RuleFile, RuleSetReport, Variables};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Where rules come from.
pub enum Texts {
    /// Files, beside the policy file.
    Files {
        /// Rule files that every flow with detection gets.
        always: Vec<PathBuf>,
        /// The policy file's folder.
        folder: PathBuf,
    },
    /// A controller's libraries.
    Held {
        /// What it has said.
        joined: Arc<Joined>,
        /// What was compiled of what it had said before.
        known: Arc<Known>,
    },
}

/// A rule set, and what became of its rules.
#[derive(Clone)]
pub struct Compiled {
    files: Vec<String>,
    made_of: Option<MadeOf>,
    rules: Arc<RuleSet>,
    inventory: Arc<Inventory>,
    needs: Needs,
}

/// Signature groups, and the rule sets that they are of.
#[derive(Clone)]
pub struct Grouped {
    sets: Vec<Arc<RuleSet>>,
    groups: Arc<Groups>,
}

/// What of the rules of a controller's libraries the next generation may have: what depends on nothing else.
#[derive(Clone, Default)]
pub struct Known {
    /// The rule sets.
    pub compiled: Vec<Compiled>,
    grouped: Option<Grouped>,
}

/// What a rule set of a controller's rests on: sets that are made of the same are the same.
#[derive(Clone, PartialEq)]
struct MadeOf {
    libraries: Vec<Library>,
    /// Variables of tenants, with the tenants' numbers.
    variables: Value,
}

/// See the module.
pub struct Compiler {
    base: Arc<load::Base>,
    settings: Settings,
    texts: Texts,
    compiled: Mutex<Vec<Compiled>>,
    grouped: Mutex<Option<Grouped>>,
}

impl Compiler {
    /// For one generation.
    pub fn new(base: Arc<load::Base>, settings: Settings, texts: Texts) -> Self {
        Compiler { base, settings, texts, compiled: Mutex::default(), grouped: Mutex::default() }
    }

    /// Whether there are rules that no policy has to name.
    pub fn has_rules_for_all(&self) -> bool {
        matches!(&self.texts, Texts::Files { always, .. } if !always.is_empty())
    }

    /// See [`load::Base::malformed_thresholds`].
    pub fn malformed_thresholds(&self) -> Vec<Diagnostic> {
        self.base.malformed_thresholds()
    }

    /// What became of all rules, and what they ask of parsers.
    pub fn totals(&self) -> (RuleSetReport, Needs) {
        let mut total = RuleSetReport::new();
        let mut needs = Needs::default();
        for set in self.compiled.lock().iter().flat_map(|sets| sets.iter()) {
            total.absorb(&set.rules.report);
            needs = needs.and(set.needs);
        }
        (total, needs)
    }

    /// The rules by file.
    pub fn inventory(&self) -> Arc<Inventory> {
        let compiled = self.compiled.lock();
        let sets = compiled.as_deref().map(Vec::as_slice).unwrap_or_default();
        // Of one nothing is copied: it has a place for each rule.
        if let [set] = sets {
            return Arc::clone(&set.inventory);
        }
        let mut all = Inventory::default();
        sets.iter().for_each(|set| all.absorb(&set.inventory));
        Arc::new(all)
    }

    /// What the next generation may have.
    pub fn known(&self) -> Known {
        let compiled = self.compiled.lock().map(|sets| sets.clone()).unwrap_or_default();
        let grouped = self.grouped.lock().map(|grouped| grouped.clone()).unwrap_or_default();
        Known { compiled, grouped }
    }

    /// Whether all rule sets are those of the generation before.
    pub fn has_nothing_new(&self) -> bool {
        let Texts::Held { known, .. } = &self.texts else { return false };
        let is_known = |set: &Compiled| known.compiled.iter().any(|k| Arc::ptr_eq(&k.rules, &set.rules));
        self.compiled.lock().is_ok_and(|sets| sets.len() == known.compiled.len() && sets.iter().all(is_known))
    }

    /// Reads the files, and says what a set of them is made of if that can be compared.
    fn made_of(&self, files: &[String], source: &RuleSource<'_>) -> Result<Option<MadeOf>, CompileError> {
        let Texts::Held { joined, .. } = &self.texts else { return Ok(None) };
        let library = |(place, name): (usize, &String)| {
            joined.libraries.get(name).cloned().ok_or_else(|| CompileError {
                file: Some(place),
                message: format!(
                    "there is no rule library for `{name}`: a controller's policies have rules by `level: LIBRARY` only"
                ),
            })
        };
        let libraries = files.iter().enumerate().map(library).collect::<Result<_, _>>()?;
        let mut variables = source.common.json().get("vars").cloned().unwrap_or(Value::Null);
        // Where they stand in the file says nothing of them: another tenant may come before.
        for vars in variables.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            vars.remove("place");
        }
        Ok(Some(MadeOf { libraries, variables }))
    }

    fn read(&self, files: &[String], made_of: Option<&MadeOf>) -> Result<Vec<RuleFile>, CompileError> {
        if let Some(MadeOf { libraries, .. }) = made_of {
            return Ok(libraries.iter().flat_map(Library::rules).collect());
        }
        let Texts::Files { always, folder } = &self.texts else { return Ok(Vec::new()) };
        let named = files.iter().map(|f| folder.join(f));
        let paths: Vec<PathBuf> = always.iter().cloned().chain(named).collect();
        let mut parsed = Vec::new();
        for (place, path) in paths.iter().enumerate() {
            let read = load::rule_files(std::slice::from_ref(path));
            // Files of the command line stand in no policy.
            let file = place.checked_sub(always.len());
            parsed.extend(read.map_err(|error: Failure| CompileError { file, message: error.to_string() })?);
        }
        Ok(parsed)
    }

    fn compile_anew(
        &self,
        files: &[String],
        made_of: Option<MadeOf>,
        source: &RuleSource<'_>,
        tenants: &[(TenantId, Variables)],
    ) -> Result<Compiled, CompileError> {
        let mut parsed = self.read(files, made_of.as_ref())?;
        let loaded = self
            .base
            .rules(&mut parsed, &self.settings, source.generation, tenants)
            .map_err(|e| e.to_string())?;
        findings::report(&loaded.diagnostics, &loaded.rules.report);
        let mut inventory = Inventory::default();
        inventory.add(&parsed, &loaded);
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
        let needs = Needs::of(&loaded.rules);
        let (rules, inventory) = (Arc::new(loaded.rules), Arc::new(inventory));
        Ok(Compiled { files: files.to_vec(), made_of, rules, inventory, needs })
    }
}

/// What a policy file calls a tenant.
fn tenant_name(source: &RuleSource<'_>, tenant: TenantId) -> String {
    let names = source.common.json().get("tenants").and_then(|t| t.as_object());
    let known = names.and_then(|names| names.iter().find(|(_, id)| id.as_u64() == Some(tenant.0.into())));
    known.map_or_else(|| tenant.0.to_string(), |(name, _)| name.clone())
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
        let mut compiled = self.compiled.lock().map_err(|_| "an earlier load broke off".to_owned())?;
        if let Some(known) = compiled.iter().find(|set| set.files == files) {
            return Ok(Arc::clone(&known.rules));
        }
        let made_of = self.made_of(files, source)?;
        let before = match &self.texts {
            Texts::Held { known, .. } => {
                known.compiled.iter().find(|set| set.made_of.is_some() && set.made_of == made_of).cloned()
            }
            Texts::Files { .. } => None,
        };
        let set = match before {
            Some(set) => Compiled { files: files.to_vec(), ..set },
            None => self.compile_anew(files, made_of, source, tenants)?,
        };
        let rules = Arc::clone(&set.rules);
        compiled.push(set);
        Ok(rules)
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
    use crate::cache::CacheOption;
    use crate::generation::{Builder, Options};
    use bartizan_agent::joined::join;
    use bartizan_agent::session::Held;
    use bartizan_api::southbound::{Object, Policy, RuleGroup, RuleType, Rules};
    use bartizan_base::Generation;
    use bartizan_config::policy::PolicyText;
    use serde_json::json;

    /// Port with which a third tenant comes before the two.
    const THIRD: u16 = 8443;

    /// Two tenants with a library each; of one its port, of one rule its content and of one tenant a variable can be said.
    fn held(port: u16, content: &str, home: &str) -> Arc<Joined> {
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
            let rules = Rules::Raw(vec![rule]);
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
        Arc::new(join(&Held { generation: 1, objects }).unwrap())
    }

    /// Rule sets and their groups.
    type Made = ([Arc<RuleSet>; 2], Arc<Groups>);

    #[test]
    fn libraries_that_nothing_has_changed_of_are_not_compiled_again() {
        let cache = CacheOption { cache: Some("none".into()) };
        let options = Options { controlled: true, cache, ..Options::default() };
        let mut builder = Builder::new(&options, std::path::Path::new("")).unwrap();
        let mut number = 0;
        let mut build = |held: &Arc<Joined>| {
            number += 1;
            let built = builder.build_held(held, Generation(number)).ok().unwrap();
            let of = |file: &str| {
                let set = builder.known().compiled.iter().find(|set| set.files == [file]).unwrap();
                Arc::clone(&set.rules)
            };
            assert_eq!(
                (built.report.loaded, built.inventory.loaded(), built.report.refused_total()),
                (2, 2, 0)
            );
            let groups = Arc::clone(&builder.known().grouped.as_ref().unwrap().groups);
            ([of("one.rules"), of("two.rules")], groups)
        };
        // Groups are those of the rule sets, and no others.
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
        // One that fails changes nothing.
        let mut broken = Joined::clone(&held(443, "other", "192.0.2.0/24"));
        let mut policy = broken.parts.policies[0].json().clone();
        policy["chain"] = json!(["pfv"]);
        broken.parts.policies[0] = Arc::new(PolicyText::new(policy));
        assert!(builder.build_held(&Arc::new(broken), Generation(9)).is_err());
    }
}

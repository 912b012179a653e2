// SPDX-License-Identifier: Apache-2.0
//! Generations from each source of policies: their numbers, their hashes, and what is read once for all of
//! them.

use crate::common;

use bartizan_agent::generations::{GenerationBuilder, PolicySource};
use bartizan_agent::joined::{JoinedPolicy, Joiner};
use bartizan_agent::session::ControllerGeneration;
use bartizan_api::content::Contents;
use bartizan_api::southbound::{Object, Policy};
use bartizan_base::{FunctionId, Generation, LinkId, Path};
use bartizan_function::classes;
use bartizan_function::{Function, FunctionKind, FunctionModel, FunctionSpec, RuleSource, RulesError};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

static SPEC: FunctionSpec = FunctionSpec {
    name: "counted",
    summary: "Counts how often its sections are read.",
    model: FunctionModel::StatelessHeaders,
    runs_after: &["gate"],
    runs_before: &["pfw"],
    header_half: None,
    host_slot: None,
    counters: &[],
};

static READS: AtomicUsize = AtomicUsize::new(0);

/// A section that counts its reads.
struct CountedSection;

impl<'de> Deserialize<'de> for CountedSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        READS.fetch_add(1, Ordering::Relaxed);
        u32::deserialize(deserializer).map(|_| CountedSection)
    }
}

/// Makes the function, and notes the numbers of the generations.
#[derive(Default)]
struct CountedKind(Mutex<Vec<Generation>>);

struct Counted(FunctionId);

impl Function for Counted {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn id(&self) -> FunctionId {
        self.0
    }
}

impl FunctionKind for CountedKind {
    fn spec(&self) -> &'static FunctionSpec {
        &SPEC
    }

    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        self.0.lock().unwrap().push(source.generation);
        classes::read::<CountedSection>(SPEC.name, source)?;
        Ok(Box::new(Counted(source.id)))
    }
}

/// A controller's policies for two tenants: `p` with the counted section, `q` with a port that changes.
struct Controller {
    joiner: Joiner,
    held: ControllerGeneration,
}

impl Controller {
    fn new() -> Self {
        let mut of = Controller { joiner: Joiner::default(), held: ControllerGeneration::default() };
        for tenant in 1..=2u16 {
            let own = json!({"tenant": {"name": format!("t{tenant}"), "select": {"vni": tenant}}});
            of.put(tenant, "@tenant", &own);
            let counted = json!({
                "name": format!("t{tenant}/p"), "tenant": [format!("t{tenant}")], "chain": ["counted"], "counted": tenant,
            });
            of.put(tenant, "p", &json!({"policy": counted, "order": 1}));
        }
        of
    }

    fn put(&mut self, tenant: u16, name: &str, text: &serde_json::Value) {
        let object = Object::Policy(Policy { name: name.into(), tenant, text: text.to_string() });
        self.held.objects.insert(object.key(), Arc::new(object));
    }

    /// The next generation, in which `q` allows another port.
    fn next(&mut self, port: u16) -> Arc<JoinedPolicy> {
        let filter = json!({"default": "drop", "rules": [{"allow": "tcp", "to-ports": port}]});
        let changed = json!({"name": "t1/q", "tenant": ["t1"], "chain": ["pfw"], "pfw": filter});
        self.put(1, "q", &json!({"policy": changed, "order": 2}));
        self.held.generation += 1;
        Arc::new(self.joiner.join(&self.held, self.held.manifest().hash()).unwrap())
    }
}

#[test]
fn a_section_is_read_once_for_all_generations_and_classes() {
    let kind = Arc::new(CountedKind::default());
    let agent = common::agent_and(Arc::clone(&kind) as Arc<dyn FunctionKind>);
    let mut builder = GenerationBuilder::new(agent, Some(Vec::new()));
    let mut controller = Controller::new();
    let mut shared = Vec::new();
    // The device's numbers are not the controller's.
    for number in [5, 6, 9] {
        let source = PolicySource::Controller(controller.next(400 + number));
        let built = builder.build(&source, Generation(number.into())).unwrap();
        assert_eq!(built.chains.generation, Generation(number.into()));
        shared.push(Arc::clone(&built.policy.file.policies[0]));
        builder.keep(&built.policy);
    }
    assert_eq!(*kind.0.lock().unwrap(), [5, 6, 9].map(Generation));
    assert!(shared.iter().all(|policy| Arc::ptr_eq(policy, &shared[0])));
    assert_eq!(READS.load(Ordering::Relaxed), 2, "the sections of two policies");
}

#[test]
fn sources_have_names_and_hashes_and_their_links() {
    let text =
        "policies: [{name: a, link: [wan], chain: [pfw], pfw: {default: drop}}]\ndefault: {action: allow}\n";
    let file = |text: &str| PolicySource::File { path: PathBuf::from("/etc/p.yaml"), text: text.to_owned() };
    let hash = |source: &PolicySource| {
        let mut contents = Contents::default();
        source.add_to(&mut contents);
        contents.hashes().policy
    };
    assert_eq!(file(text).name(), "/etc/p.yaml");
    assert_ne!(hash(&file(text)), hash(&file("default: {action: drop}\n")));
    let nothing = hash(&PolicySource::Awaited { has_rules: true });
    let joined = Controller::new().next(443);
    assert_ne!(hash(&PolicySource::Controller(joined)), nothing);

    // Without a host file, links are those that the policy names; with one, others are errors.
    let mut free = GenerationBuilder::new(common::agent(), None);
    let built = free.build(&file(text), Generation(1)).unwrap();
    assert_eq!(built.policy.links, [("wan".to_owned(), LinkId(0))]);
    let pfw = free.agent().function_id("pfw").unwrap();
    assert_eq!(built.function_names[usize::from(pfw.0)], "pfw");
    assert_eq!(free.selectors(&file(text)).unwrap().count, 1);
    let mut bound = GenerationBuilder::new(common::agent(), Some(vec![("lan".to_owned(), LinkId(0))]));
    let error = bound.build(&file(text), Generation(1)).unwrap_err().to_string();
    assert!(error.starts_with("/etc/p.yaml:1:") && error.contains("no link `wan`"), "{error}");
}

#[test]
fn until_a_controller_has_sent_something_the_rules_of_the_host_hold_or_nothing_passes() {
    for has_rules in [true, false] {
        let (agent, _) = common::agent_with_ids();
        let mut builder = GenerationBuilder::new(agent, Some(Vec::new()));
        let built = builder.build(&PolicySource::Awaited { has_rules }, Generation(1)).unwrap();
        let name = if has_rules { "ids" } else { "gate" };
        let path = Path::EMPTY.with(builder.agent().function_id(name).unwrap());
        assert!(built.policy.classes.iter().all(|class| class.path == path), "{:?}", built.policy.classes);
    }
}

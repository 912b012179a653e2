// SPDX-License-Identifier: Apache-2.0
//! A worker with a policy, detection rules and an EVE file, without ports: tests of the stack's own parts
//! pass frames to it.

use bartizan_agent::Agent;
use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_base::{SettingsMap, TenantId};
use bartizan_config::policy;
use bartizan_dataplane::driver::{Control, LiveOptions};
use bartizan_dataplane::eve::{EveRecorder, RunInfo};
use bartizan_dataplane::handover::{Station, connect};
use bartizan_dataplane::worker::Worker;
use bartizan_detect::keywords;
use bartizan_detect::ruleset::{self, LoadInput, VisibleRules, load};
use bartizan_detect::shared::Shared;
use bartizan_flow::FlowHasher;
use bartizan_flow::host::{HostTable, HostTableConfig, WhenHostsFull};
use bartizan_function::{FunctionKind, RuleSource};
use bartizan_functions::ids_kind::{CompileError, IdsKind, RuleCompiler};
use bartizan_functions::registry::{self, Services};
use bartizan_pattern::{Compiler, Config};
use bartizan_ports::InlinePair;
use bartizan_rules::RuleVariables;
use bartizan_stages::chain::Chains;
use bartizan_stages::expectations::ExpectationTable;
use bartizan_stages::settings::EngineSettings;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The line of the rules after which those of the firewall come.
pub const FIREWALL: &str = "# firewall\n";

/// Rules from a text, whatever files a policy names.
struct Rules {
    settings: SettingsMap,
    text: Mutex<String>,
    thresholds: String,
    variables: RuleVariables,
    shared: Arc<Shared>,
}

impl Rules {
    fn new(set: &[(&str, &str)], text: &str, thresholds: &str) -> Arc<Self> {
        Arc::new(Rules {
            settings: set.iter().fold(SettingsMap::new(), |mut settings, (key, value)| {
                settings.set(*key, *value);
                settings
            }),
            text: Mutex::new(text.to_owned()),
            thresholds: thresholds.to_owned(),
            variables: RuleVariables::new(),
            shared: Arc::new(Shared::default()),
        })
    }
}

impl RuleCompiler for Rules {
    fn variables(&self) -> &RuleVariables {
        &self.variables
    }

    fn compile(
        &self,
        _: &[String],
        _: &RuleSource<'_>,
        tenants: &[(TenantId, RuleVariables)],
    ) -> Result<VisibleRules, CompileError> {
        let compiler = Compiler::new(Config::default()).unwrap();
        let input = LoadInput {
            settings: &self.settings,
            variables: &RuleVariables::new(),
            classifications: None,
            references: None,
            shared: &self.shared,
            compiler: &compiler,
            tenants,
            known: None,
        };
        let text = self.text.lock().unwrap().clone();
        let (detection, firewall) = text.split_once(FIREWALL).unwrap_or((&text, ""));
        let mut files = [
            bartizan_rules::parse_file(firewall.as_bytes(), "f").of_firewall(),
            bartizan_rules::parse_file(detection.as_bytes(), "r"),
        ];
        let mut loaded = load(&mut files, &input).unwrap();
        // A set that rules test and nothing writes may be intended.
        let wrong: Vec<_> = loaded.diagnostics.iter().filter(|d| d.code != ruleset::NEVER_WRITTEN).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let thresholds = bartizan_rules::parse_thresholds(self.thresholds.as_bytes(), "t");
        assert!(thresholds.diagnostics.is_empty(), "{:?}", thresholds.diagnostics);
        keywords::apply_thresholds(&mut loaded.rules.signatures, &thresholds, &RuleVariables::new());
        Ok(VisibleRules::all(Arc::new(loaded.rules)))
    }
}

/// Detection with the rules of a text, whatever files a policy names.
#[must_use]
pub fn ids(rules: &str) -> Arc<dyn FunctionKind> {
    detection(Rules::new(&[], rules, ""))
}

fn detection(rules: Arc<Rules>) -> Arc<dyn FunctionKind> {
    Arc::new(IdsKind::new(rules, 15))
}

/// The parts of a stack.
pub struct Made<'m> {
    /// The name of the test, for its folder and for messages.
    pub name: &'m str,
    /// Keys of the only policy: `chain: [pfw, ids], ...`.
    pub policy: &'m str,
    /// Suricata's settings in addition to its shipped ones.
    pub set: &'m [(&'m str, &'m str)],
    /// Other settings of the engine.
    pub tune: fn(&mut EngineSettings),
    /// The rules of detection, and after [`FIREWALL`] those of the firewall.
    pub rules: &'m str,
    /// Text of a `threshold.config`.
    pub thresholds: &'m str,
}

/// A worker in prevention, and the recorder of its events.
pub struct Stack {
    /// The worker.
    pub worker: Worker,
    /// The recorder.
    pub recorder: EveRecorder,
    agent: Agent,
    rules: Arc<Rules>,
    engine_settings: EngineSettings,
    engine: Arc<Engine>,
    folder: PathBuf,
}

/// A file with one policy.
fn file_of(policy: &str) -> String {
    format!("policies:\n  - {{name: p, {policy}}}\ndefault: {{action: drop}}\n")
}

/// A generation of a policy file.
fn chains(agent: &mut Agent, text: &str, name: &str) -> Arc<Chains> {
    let names = agent.function_names();
    let file = policy::parse("policy.yaml", text, &names).unwrap_or_else(|e| panic!("{name}: {e}"));
    Arc::new(agent.prepare(&file, &[]).unwrap_or_else(|e| panic!("{name}: {e}")).chains)
}

impl Stack {
    /// Makes a stack.
    ///
    /// # Panics
    /// The policy or the rules are wrong.
    #[must_use]
    pub fn new(made: &Made<'_>) -> Self {
        Stack::with_functions(made, Vec::new())
    }

    /// A stack whose policies may name these functions as well.
    ///
    /// # Panics
    /// The policy or the rules are wrong, or the functions' wishes cannot be met.
    #[must_use]
    pub fn with_functions(made: &Made<'_>, functions: Vec<Arc<dyn FunctionKind>>) -> Self {
        let name = made.name;
        let mut settings = bartizan_config::suricata::shipped();
        settings.set("pcap-file.checksum-checks", "no");
        settings.set("outputs.1.eve-log.types.34", "drop");
        settings.set("outputs.1.eve-log.types.34.drop.flows", "all");
        for (key, value) in made.set {
            settings.set(*key, *value);
        }
        let mut engine_settings =
            EngineSettings::from_settings(&settings, true, [1, 2]).unwrap().0.for_real_receivers(true);
        (made.tune)(&mut engine_settings);
        let hosts = Arc::new(HostTable::new(&HostTableConfig {
            capacity: 64,
            shards: 2,
            hasher: FlowHasher::new([1, 2]),
            when_full: WhenHostsFull::Refuse,
        }));
        let mut kinds = registry::kinds(&Services { hosts });
        let rules = Rules::new(made.set, made.rules, made.thresholds);
        kinds.push(detection(Arc::clone(&rules)));
        kinds.extend(functions);
        let mut agent = Agent::new(kinds).unwrap();
        let names = agent.function_names();
        let chains = chains(&mut agent, &file_of(made.policy), name);
        let expected = ExpectationTable::new(FlowHasher::new([3, 4]));
        let engine = Engine::new(&settings, FileSettings::default()).unwrap();
        let engine = Arc::new(engine.with_expectations(Arc::new(expected)));
        let worker = Worker::new(engine_settings.clone(), Arc::clone(&engine), chains).unwrap();
        // Two tests of one program may use the same name.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("bartizan-stack-{}-{number}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let of_bit = |bit: u8| {
            let is_it = |n: &&str| agent.function_id(n).is_some_and(|id| id.0 == bit);
            names.iter().copied().find(is_it).unwrap_or("gate")
        };
        let functions = (0..32).map(of_bit).collect();
        let run = RunInfo { own_fields: true, functions, ..RunInfo::default() };
        let recorder = EveRecorder::new(&settings, &folder, true, run, &mut Vec::new()).unwrap();
        Stack { worker, recorder, agent, rules, engine_settings, engine, folder }
    }

    /// Enters another generation between two frames.
    ///
    /// # Panics
    /// The policy or the rules are wrong.
    pub fn swap(&mut self, policy: &str, rules: &str) {
        self.swap_file(&file_of(policy), rules);
    }

    /// Enters another generation of a whole policy file.
    ///
    /// # Panics
    /// The policy file or the rules are wrong.
    pub fn swap_file(&mut self, text: &str, rules: &str) {
        rules.clone_into(&mut self.rules.text.lock().unwrap());
        let chains = chains(&mut self.agent, text, "swap");
        self.worker.enter_generation(chains);
    }

    /// Makes so many connected workers in the stack's generation.
    ///
    /// # Panics
    /// A worker cannot be made.
    #[must_use]
    pub fn stations(&self, count: usize) -> Vec<Station> {
        let worker = |_| {
            let (settings, engine) = (self.engine_settings.clone(), Arc::clone(&self.engine));
            Worker::new(settings, engine, Arc::clone(self.worker.chains())).unwrap()
        };
        connect((0..count).map(worker).collect(), &self.engine_settings, 64)
    }

    /// Ends all flows; returns the worker and all events.
    ///
    /// # Panics
    /// The events cannot be written or read.
    pub fn finish(mut self) -> (Worker, Vec<serde_json::Value>) {
        self.worker.shutdown(&mut self.recorder);
        (self.worker, written(&mut self.recorder, &self.folder))
    }

    /// Runs the worker inline between two ports while `test` runs ([`crate::live::inline`]), and ends it.
    ///
    /// # Panics
    /// Those of [`Stack::finish`]; a port fails.
    pub fn run_inline<T>(
        self,
        pair: InlinePair,
        options: &LiveOptions,
        control: &Control,
        test: impl FnOnce(&dyn Fn() -> bool) -> T,
    ) -> (T, Worker, Vec<serde_json::Value>) {
        let Stack { worker, mut recorder, folder, .. } = self;
        let (outcome, post) = crate::live::inline(worker, pair, &mut recorder, options, control, test);
        let worker = post.station.into_worker();
        (outcome, worker, written(&mut recorder, &folder))
    }
}

/// The events of a finished run. Its folder is removed.
fn written(recorder: &mut EveRecorder, folder: &Path) -> Vec<serde_json::Value> {
    assert!(recorder.finish().is_empty());
    let events = crate::events::read(&folder.join("eve.json"));
    std::fs::remove_dir_all(folder).unwrap();
    events
}

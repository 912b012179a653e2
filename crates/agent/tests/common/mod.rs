// SPDX-License-Identifier: Apache-2.0
//! Shared parts of the agent's tests: an agent with the program's functions, a stand-in for detection,
//! settings of a worker.
#![allow(dead_code)] // Not every test uses everything.

use bartizan_agent::Agent;
use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::Engine;
use bartizan_base::{FunctionId, LinkId, SettingsMap};
use bartizan_config::policy::{self, PolicyFile};
use bartizan_flow::FlowHasher;
use bartizan_flow::host::{HostTable, HostTableConfig, WhenHostsFull};
use bartizan_function::{
    Function, FunctionKind, FunctionModel, FunctionSpec, RulePart, RuleSource, RulesError,
};
use bartizan_functions::registry::{Services, kinds};
use bartizan_stages::settings::EngineSettings;
use std::sync::{Arc, Mutex};

static IDS: FunctionSpec = FunctionSpec {
    name: "ids",
    summary: "stands in for detection",
    model: FunctionModel::Payload,
    runs_after: &["pfw", "sfw"],
    runs_before: &[],
    header_half: None,
    host_slot: None,
    counters: &[],
};

/// A stand-in for detection that records its input.
#[derive(Default)]
pub struct Ids(pub Mutex<Vec<serde_json::Value>>);

struct Nothing(FunctionId);

impl Function for Nothing {
    fn spec(&self) -> &'static FunctionSpec {
        &IDS
    }
    fn id(&self) -> FunctionId {
        self.0
    }
}

impl FunctionKind for Ids {
    fn spec(&self) -> &'static FunctionSpec {
        &IDS
    }
    fn rules(&self, source: &RuleSource<'_>) -> Result<Box<dyn Function>, Vec<RulesError>> {
        let mut whole = source.common.json().clone();
        let class = |class: &Arc<RulePart>| {
            let mut whole = class.json().clone();
            whole["rules"] = class.section().json().clone();
            whole
        };
        whole["classes"] = source.classes.iter().map(class).collect();
        self.0.lock().unwrap().push(whole);
        Ok(Box::new(Nothing(source.id)))
    }
}

/// An agent with the header functions.
pub fn agent() -> Agent {
    with(None)
}

/// An agent with the header functions and one more.
pub fn agent_and(kind: Arc<dyn FunctionKind>) -> Agent {
    with(Some(kind))
}

/// An agent with the header functions and the stand-in for detection.
pub fn agent_with_ids() -> (Agent, Arc<Ids>) {
    let ids = Arc::new(Ids::default());
    (with(Some(Arc::clone(&ids) as Arc<dyn FunctionKind>)), ids)
}

/// The functions of that agent.
pub fn kinds_with_ids() -> Vec<Arc<dyn FunctionKind>> {
    kinds_with(Some(Arc::new(Ids::default())))
}

fn with(more: Option<Arc<dyn FunctionKind>>) -> Agent {
    Agent::new(kinds_with(more)).expect("an order")
}

fn kinds_with(more: Option<Arc<dyn FunctionKind>>) -> Vec<Arc<dyn FunctionKind>> {
    let hosts = Arc::new(HostTable::new(&HostTableConfig {
        capacity: 16,
        shards: 1,
        hasher: FlowHasher::new([3, 4]),
        when_full: WhenHostsFull::Refuse,
    }));
    kinds(&Services { hosts }).into_iter().chain(more).collect()
}

/// Reads a valid policy file for this agent's functions.
pub fn read(agent: &Agent, text: &str) -> PolicyFile {
    let names = agent.function_names();
    policy::parse("policy.yaml", text, &names).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Links by name, numbered from 0.
pub fn links<'n>(names: &[&'n str]) -> Vec<(&'n str, LinkId)> {
    names.iter().zip(0..).map(|(name, id)| (*name, LinkId(id))).collect()
}

/// The settings and application layer of a worker in prevention.
pub fn engine(settings: &SettingsMap) -> (EngineSettings, Arc<Engine>) {
    let engine = Arc::new(Engine::new(settings, FileSettings::default()).expect("an engine"));
    let (settings, _) = EngineSettings::from_settings(settings, true, [1, 2]).expect("settings");
    (settings, engine)
}

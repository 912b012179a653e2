// SPDX-License-Identifier: Apache-2.0
//! A whole controller in this process, and agents with devices that accept every generation.

use bartizan_agent::session::client::{
    AgentClient, AgentDevice, ClientConfig, ClientHandle, enrol, wall_clock,
};
use bartizan_agent::session::store::{FileStore, GenerationStore};
use bartizan_agent::session::{Candidate, ControllerGeneration, SessionConfig};
use bartizan_api::southbound::*;
use bartizan_controller::Settings;
use bartizan_controller::client::{Client as Rest, ClientResponse};
use bartizan_controller::rest::Method;
use bartizan_controller::southbound::ServerConfig;
use bartizan_controller::start::{ControllerConfig, Plane, Southbound, start};
use bartizan_controller::state;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// A folder that is removed with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("planes-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A controller with a REST client.
pub struct Site {
    pub folder: Folder,
    pub plane: Option<Plane>,
    pub rest: Rest,
    token: String,
    /// Address for agents: stays the same over restarts, since agents know no other.
    pub agents: SocketAddr,
}

pub fn config(folder: &Path, agents: SocketAddr) -> ControllerConfig {
    let server = ServerConfig { keep_alive_ms: 1_000, ..ServerConfig::default() };
    ControllerConfig {
        state: folder.join("controller"),
        listen: "127.0.0.1:0".parse().unwrap(),
        southbound: Some(Southbound { listen: agents, authority: None, server }),
        bootstrap: false,
        settings: Settings {
            functions: ["pfw", "sfw", "ids"].map(str::to_owned).to_vec(),
            ..Settings::default()
        },
        log: |line| eprintln!("controller: {line}"),
    }
}

impl Site {
    pub fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let plane = start(&config(&folder.0, "127.0.0.1:0".parse().unwrap())).unwrap();
        let state = folder.0.join("controller");
        let bootstrap = std::fs::read_to_string(state.join(state::BOOTSTRAP)).unwrap();
        let certificate = state.join(state::CERTIFICATE);
        let mut rest = Rest::new(plane.address, &certificate, Some(bootstrap.trim().to_owned())).unwrap();
        let body = json!({ "name": "test", "scope": "admin" });
        let made = rest.request(Method::Post, "/v1/tokens", Some(&body), &[]).unwrap();
        let token = made.body["token"].as_str().unwrap().to_owned();
        rest.set_token(Some(token.clone()));
        let agents = plane.agents.unwrap();
        Site { folder, plane: Some(plane), rest, token, agents }
    }

    /// Restarts the controller of this process on the same state.
    pub fn restart(&mut self) {
        drop(self.plane.take());
        let plane = start(&config(&self.folder.0, self.agents)).unwrap();
        self.rest = self.client(plane.address);
        self.plane = Some(plane);
    }

    /// A client with the administrator's token, for a controller at another address.
    pub fn client(&self, address: SocketAddr) -> Rest {
        let certificate = self.folder.0.join("controller").join(state::CERTIFICATE);
        Rest::new(address, &certificate, Some(self.token.clone())).unwrap()
    }

    pub fn ask(&mut self, method: Method, path: &str, body: &Value) -> ClientResponse {
        self.rest.request(method, path, (!body.is_null()).then_some(body), &[]).unwrap()
    }

    /// Sends a PUT that must succeed, and returns the body.
    pub fn put(&mut self, path: &str, body: &Value) -> Value {
        let answer = self.ask(Method::Put, path, body);
        assert!(answer.done(), "{path}: {}", answer.body);
        answer.body
    }

    pub fn post(&mut self, path: &str, body: &Value) -> Value {
        let answer = self.ask(Method::Post, path, body);
        assert!(answer.done(), "{path}: {}", answer.body);
        answer.body
    }

    pub fn get(&mut self, path: &str) -> Value {
        let answer = self.ask(Method::Get, path, &Value::Null);
        assert!(answer.done(), "{path}: {}", answer.body);
        answer.body
    }

    pub fn status(&mut self, device: &str) -> Value {
        self.get(&format!("/v1/devices/{device}"))["status"].take()
    }

    pub fn tenant(&mut self, name: &str, vni: u32) {
        self.put(&format!("/v1/tenants/{name}"), &json!({ "select": { "vni": vni } }));
    }

    /// Stores a policy that allows one port. Returns the generation that it created.
    pub fn policy(&mut self, tenant: &str, name: &str, port: u16) -> u64 {
        let rules = json!([{ "allow": "tcp", "to-ports": [port] }]);
        let policy = json!({ "chain": ["pfw"], "pfw": { "default": "drop", "rules": rules } });
        let made = self.put(&format!("/v1/tenants/{tenant}/policies/{name}"), &json!({ "policy": policy }));
        made["generation"].as_u64().unwrap()
    }

    /// Uploads a rule file. Returns its name.
    pub fn rules(&mut self, text: &str) -> String {
        use sha2::{Digest, Sha256};
        let hash: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        let (path, kind) = (format!("/v1/rule-files/{hash}"), [("content-type", "text/plain")]);
        assert!(
            self.rest.request_bytes(Method::Put, &path, Some(text.to_owned().into()), &kind).unwrap().done()
        );
        hash
    }

    /// Waits until REST shows that a device runs a generation.
    pub fn runs(&mut self, device: &str, generation: u64) -> Value {
        let mut status = Value::Null;
        until(&format!("{device} runs {generation}"), || {
            status = self.status(device);
            status["running"] == generation && status["state"] == "running"
        });
        status
    }

    /// Sends a PUT that must be rejected as invalid, and returns the pointers of its faults.
    pub fn wrong(&mut self, path: &str, body: &Value) -> Vec<String> {
        let answer = self.ask(Method::Put, path, body);
        assert_eq!(answer.status, 422, "{path}: {}", answer.body);
        let faults = answer.body["errors"].as_array().unwrap().iter();
        faults.map(|fault| fault["pointer"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until a device runs a generation except the held-back parts of some tenants.
    pub fn runs_partly(&mut self, device: &str, generation: u64) -> Value {
        let mut status = Value::Null;
        until(&format!("{device} runs {generation} in part"), || {
            status = self.status(device);
            status["running"] == generation && status["state"] == "partial"
        });
        status
    }

    /// Creates a device with an agent, enrolled with a token made through REST.
    pub fn agent(&mut self, device: &str, tenants: &[&str]) -> Agent {
        self.put(&format!("/v1/devices/{device}"), &json!({ "tenants": tenants }));
        self.enrol(device);
        self.begin(device)
    }

    pub fn enrol(&mut self, device: &str) {
        let made = self.post(&format!("/v1/devices/{device}/enrolment"), &Value::Null);
        assert_eq!(made["port"], self.agents.port());
        let token = made["token"].as_str().unwrap();
        let address = self.agents.to_string();
        enrol(&address, token, &id(device), &self.folder.0.join(device), &wall_clock()).unwrap();
    }

    /// Starts the agent of an enrolled device.
    pub fn begin(&self, device: &str) -> Agent {
        let folder = self.folder.0.join(device);
        let config = ClientConfig {
            session: SessionConfig::new(id(device), INSTANCES.fetch_add(1, Ordering::Relaxed)),
            controller: self.agents.to_string(),
            identity: folder.clone(),
            clock: wall_clock(),
        };
        let shared = Arc::new(Mutex::new(Shared::default()));
        let mut store = FileStore::new(&folder);
        shared.lock().unwrap().runs = store.load().unwrap();
        let client =
            AgentClient::new(config, store, Builder(shared.clone(), ControllerGeneration::default()))
                .unwrap();
        let handle = client.handle();
        Agent { handle, shared, thread: Some(spawn(|| client.run().unwrap())) }
    }
}

/// Number of agent starts.
static INSTANCES: AtomicU64 = AtomicU64::new(1);

pub fn id(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

/// State of a device that the test shares: its generation, and how the device answers.
#[derive(Default)]
pub struct Shared {
    pub runs: ControllerGeneration,
    /// Number of generations built, and the time of the last one.
    pub built: usize,
    pub came: Option<Instant>,
    /// The refusal with which the device answers every generation.
    pub refuses: Option<GenerationRefusal>,
    /// Decides on each generation whether the device refuses it.
    pub judges: Option<Judge>,
}

/// Returns the refusal if the device refuses the generation.
pub type Judge = fn(&ControllerGeneration) -> Option<GenerationRefusal>;

/// Builds every generation that is not refused, and runs it on one worker with two levels.
struct Builder(Arc<Mutex<Shared>>, ControllerGeneration);

impl AgentDevice for Builder {
    fn build(&mut self, candidate: &Candidate) -> Result<(), GenerationRefusal> {
        let mut shared = self.0.lock().unwrap();
        shared.built += 1;
        shared.came = Some(Instant::now());
        self.1 = candidate.held.clone();
        let said = shared.judges.and_then(|judge| judge(&candidate.held));
        said.or(shared.refuses.clone()).map_or(Ok(()), Err)
    }
    fn swap(&mut self) -> Vec<WorkerRuns> {
        self.0.lock().unwrap().runs = self.1.clone();
        let levels = ["host", "xdp"].map(|level| (level.to_owned(), self.1.generation));
        vec![WorkerRuns { link: "wan".into(), worker: 3, levels: BTreeMap::from(levels) }]
    }
    fn level_status(&mut self) -> Option<LevelStatus> {
        let rules = RulesAtLevel { evaluates: BTreeMap::from([("pfw".to_owned(), 2)]), ..Default::default() };
        let level = |level: &str| LevelStands {
            link: "wan".into(),
            level: level.into(),
            generation: self.1.generation,
            state: LevelState::On,
            why: String::new(),
            rules: (level == "xdp").then(|| rules.clone()),
        };
        let first = RuleLeftOut { rule: "web.rules:1: 1:1".into(), why: "no parser".into() };
        let left_out = LeftOut { count: 9, first: vec![first] };
        Some(LevelStatus { levels: ["host", "xdp"].map(level).into(), left_out, content: None })
    }
    fn order(
        &mut self,
        order: FunctionOrder,
        function: &str,
        settings: &Map<String, Value>,
    ) -> FunctionState {
        let (function, state) = (function.to_owned(), "running".to_owned());
        FunctionState {
            function,
            done: order != FunctionOrder::Stop,
            state,
            reason: format!("{} settings", settings.len()),
        }
    }
}

/// A running agent and the state of its device.
pub struct Agent {
    pub handle: ClientHandle,
    pub shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// The running policies as JSON, by key.
    pub fn texts(&self) -> BTreeMap<String, Value> {
        let shared = self.shared.lock().unwrap();
        let text = |object: &Arc<Object>| match object.as_ref() {
            Object::Policy(policy) => serde_json::from_str(&policy.text).unwrap(),
            Object::Group(group) => serde_json::to_value(group).unwrap(),
        };
        shared.runs.objects.iter().map(|(key, object)| (key.as_str().to_owned(), text(object))).collect()
    }

    /// Keys of the running policies.
    pub fn keys(&self) -> Vec<String> {
        self.texts().into_keys().collect()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Waits until a condition holds, with a generous limit for busy machines.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(2));
    }
}

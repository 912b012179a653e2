// SPDX-License-Identifier: Apache-2.0
//! A controller in memory with a fixed clock, and requests of tests.
#![allow(dead_code)]

pub mod wire;

use bartizan_controller::access::Secret;
use bartizan_controller::clock::ManualClock;
use bartizan_controller::fleet::MemoryFleet;
use bartizan_controller::rest::{Head, Reply};
use bartizan_controller::store::{AlertBounds, MemoryStore, Store};
use bartizan_controller::{Api, Controller, Settings, resources};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The time of the fixed clock.
pub const NOW: u64 = 1_700_000_000_000_000;

/// A controller for tests.
pub struct World {
    pub api: Api,
    pub clock: Arc<ManualClock>,
    pub fleet: Arc<MemoryFleet>,
    /// The token of requests without another one.
    pub token: String,
}

/// A request's parts beside method and path.
#[derive(Clone, Debug, Default)]
pub struct With {
    pub token: Option<String>,
    pub fields: Vec<(&'static str, String)>,
    pub source: Option<IpAddr>,
}

impl World {
    pub fn new() -> Self {
        World::on(Box::new(MemoryStore::default()))
    }

    /// A controller on an empty store.
    pub fn on(store: Box<dyn Store>) -> Self {
        World::with(store, Settings::default())
    }

    /// A controller with settings of its own.
    pub fn with(store: Box<dyn Store>, settings: Settings) -> Self {
        let (clock, fleet) = (Arc::new(ManualClock::default()), Arc::new(MemoryFleet::default()));
        clock.set(NOW);
        let functions = ["pfw", "sfw", "ids"].map(str::to_owned).to_vec();
        let settings =
            Settings { functions, alerts_max: AlertBounds { of_tenant: 5, of_all: 12 }, ..settings };
        let controller = Controller::new(store, clock.clone(), fleet.clone(), settings).unwrap();
        let keep = |secret: &Secret| Ok::<_, ()>(secret.reveal());
        let bootstrap = controller.bootstrap(false, keep).unwrap().unwrap().unwrap();
        let api = Api::new(Arc::new(controller), resources::routes());
        let mut world = World { api, clock, fleet, token: bootstrap };
        world.token = world.token("admin", None, None);
        world
    }

    pub fn send(&self, method: &str, path: &str, body: Vec<u8>, with: With) -> Reply {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut fields = with.fields;
        let token = with.token.unwrap_or_else(|| self.token.clone());
        if !token.is_empty() {
            fields.push(("authorization", format!("Bearer {token}")));
        }
        let head = Head {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            fields,
            source: with.source.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        };
        self.api.handle(head, body)
    }

    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Reply {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.send(method, path, bytes, With::default())
    }

    /// Sends a request that has to succeed.
    pub fn do_it(&self, method: &str, path: &str, body: &Value) -> Value {
        let reply = self.ask(method, path, body);
        assert_eq!(reply.status / 100, 2, "{method} {path} {body}: {}", reply.value());
        reply.value()
    }

    pub fn get(&self, path: &str) -> Value {
        self.do_it("GET", path, &Value::Null)
    }

    /// Sends a request that has to be refused, with this status code.
    pub fn refused(&self, method: &str, path: &str, body: &Value, status: u16) -> Value {
        let reply = self.ask(method, path, body);
        assert_eq!(reply.status, status, "{method} {path} {body}: {}", reply.value());
        reply.value()
    }

    pub fn token(&self, scope: &str, tenant: Option<&str>, device: Option<&str>) -> String {
        let body = json!({ "name": scope, "scope": scope, "tenant": tenant, "device": device });
        self.do_it("POST", "/v1/tokens", &body)["token"].as_str().unwrap().to_owned()
    }

    pub fn tenant(&self, name: &str, vni: u32) {
        self.do_it("PUT", &format!("/v1/tenants/{name}"), &json!({ "select": { "vni": vni } }));
    }

    pub fn device(&self, name: &str, spec: &Value) {
        self.do_it("PUT", &format!("/v1/devices/{name}"), spec);
    }

    pub fn generation(&self) -> u64 {
        self.api.controller.model().generation
    }
}

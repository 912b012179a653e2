// SPDX-License-Identifier: Apache-2.0
//! All planes in one process: a run that has its controller with it. What is said by REST runs, an alert comes out there, and what is
//! answered to it refuses the next packet (needs root; says so and returns otherwise).

use crate::common;
use crate::inline_pair;
use crate::namespace;

use bartizan_controller::client::Client;
use bartizan_controller::rest::Method;
use bartizan_ports::InlinePort;
use common::{Folder, until};
use inline_pair::{network, passed, start};
use namespace::in_namespace;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Instant;

const HOST: &str = "\
links: [{name: wan, inline: {a: a1, b: b1}}]
cache: none
outputs: {eve: {dir: out}}
control: {socket: c.socket}
settings: {capture.checksum-validation: none}
controller:
  here: {state: controller, listen: '127.0.0.1:9443', agents: '127.0.0.1:7443', device: edge}
  identity: identity
  state: device
";

const RULES: &str = "alert udp any any -> any any (msg:\"a secret\"; content:\"secret\"; sid:2001; rev:1;)\n";

/// Whether a datagram of this flow comes out at the other end.
fn passes(net: &mut [InlinePort; 2], source: u16) -> bool {
    !passed(net, &[(source, 4000)]).is_empty()
}

struct Rest(Client, String);

impl Rest {
    fn new(state: &Path, token: &str) -> Self {
        let certificate = state.join("tls-certificate.pem");
        let client = Client::new("127.0.0.1:9443".parse().unwrap(), &certificate, Some(token.to_owned()));
        Rest(client.unwrap(), token.to_owned())
    }

    /// With the token that the first start left, a new administrator's.
    fn administrator(state: &Path) -> Self {
        let first = std::fs::read_to_string(state.join("bootstrap-token")).unwrap();
        let body = json!({"name": "test", "scope": "admin"});
        let made = Rest::new(state, first.trim()).ask(Method::Post, "/v1/tokens", Some(body));
        Rest::new(state, made["token"].as_str().unwrap())
    }

    fn ask(&mut self, method: Method, path: &str, body: Option<Value>) -> Value {
        let answer = self.0.ask(method, path, body.as_ref(), &[]).unwrap();
        assert!(answer.done(), "{} {path}: {answer:?}", method.name());
        answer.body
    }

    fn put(&mut self, path: &str, body: Value) -> Value {
        self.ask(Method::Put, path, Some(body))
    }

    /// A change that the device is to run when it is answered.
    fn bring(&mut self, path: &str, body: Value) {
        let outcome = self.put(&format!("{path}?wait=30"), body);
        let (generation, edge) = (&outcome["generation"], &outcome["answers"]["edge"]);
        assert_eq!((&edge["state"], &edge["running"]), (&json!("running"), generation), "{outcome}");
    }

    /// A tenant, the library, and the policy that looks at its traffic.
    fn begin(&mut self) {
        self.put("/v1/tenants/acme", json!({"select": {"prefixes": ["192.0.2.0/24"]}}));
        let hash: String = Sha256::digest(RULES).iter().map(|byte| format!("{byte:02x}")).collect();
        let (path, text) = (format!("/v1/rule-files/{hash}"), [("content-type", "text/plain")]);
        assert!(self.0.ask_bytes(Method::Put, &path, Some(RULES.into()), &text).unwrap().done());
        self.put("/v1/libraries/web", json!({"files": [hash]}));
        let policy = json!({"from": "192.0.2.0/24", "chain": ["ids"], "ids": {"level": "web"}});
        self.bring("/v1/tenants/acme/policies/look", json!({"order": 10, "policy": policy}));
    }
}

#[test]
fn an_alert_comes_out_and_what_is_answered_blocks() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut net = network();
        folder.write("bartizan.yaml", HOST);
        let running = start(&folder);
        let state = folder.path("controller");
        let mut rest = Rest::administrator(&state);
        // Nothing was said: nothing goes on.
        assert!(!passes(&mut net, 1_000));
        rest.begin();
        let begun = Instant::now();
        assert!(passes(&mut net, 1_001));
        let mut alert = Value::Null;
        until("the alert", || {
            alert = rest.ask(Method::Get, "/v1/tenants/acme/alerts?limit=1", None)["items"][0].clone();
            !alert.is_null()
        });
        let source = &alert["event"]["src_ip"];
        assert_eq!(source, "192.0.2.1", "{alert}");
        let block = json!({"from": source, "chain": ["pfw"], "pfw": {"default": "drop"}});
        rest.bring("/v1/tenants/acme/policies/block", json!({"order": 0, "policy": block}));
        println!("from the packet to the block: {} ms", begun.elapsed().as_millis());
        assert!(!passes(&mut net, 1_002));
        // The same flow as well, though it was there before.
        assert!(!passes(&mut net, 1_001));
        assert_eq!(running.stop().code, Some(0));
        // It begins with what ran, and its controller says the same.
        let running = start(&folder);
        assert!(!passes(&mut net, 1_003));
        let mut rest = Rest::new(&state, &rest.1);
        until("the device is back", || {
            let status = &rest.ask(Method::Get, "/v1/devices/edge", None)["status"];
            status["state"] == "running" && status["session"]["connected"] == true
        });
        rest.bring("/v1/tenants/acme/policies/block", json!({"order": 20, "policy": block}));
        assert!(passes(&mut net, 1_004));
        assert_eq!(running.stop().code, Some(0));
    });
}

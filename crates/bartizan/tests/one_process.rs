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
use inline_pair::{network, passed, passed_frames, start};
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
  statistics-every: 1s
";

const RULES: &str = "alert udp any any -> any any (msg:\"a secret\"; content:\"secret\"; sid:2001; rev:1;)\n";

/// Whether a datagram of this flow comes out at the other end.
fn passes(net: &mut [InlinePort; 2], source: u16) -> bool {
    !passed(net, &[(source, 4000)]).is_empty()
}

/// The same of a frame with a datagram.
fn passes_frame(net: &mut [InlinePort; 2], frame: Vec<u8>) -> bool {
    !passed_frames(net, &[frame]).is_empty()
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

    fn library(&mut self, name: &str, rules: &str) {
        let hash: String = Sha256::digest(rules).iter().map(|byte| format!("{byte:02x}")).collect();
        let (path, text) = (format!("/v1/rule-files/{hash}"), [("content-type", "text/plain")]);
        assert!(self.0.ask_bytes(Method::Put, &path, Some(rules.to_owned().into()), &text).unwrap().done());
        self.put(&format!("/v1/libraries/{name}"), json!({"files": [hash]}));
    }

    /// A tenant, the library, and the policy that looks at its traffic.
    fn begin(&mut self) {
        self.put("/v1/tenants/acme", json!({"select": {"prefixes": ["192.0.2.0/24"]}}));
        self.library("web", RULES);
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

/// Two tenants of one device: the port that each lets through, and its network.
const TENANTS: [(&str, u16, &str); 2] = [("acme", 4_000, "192.0.2"), ("other", 5_000, "198.51.100")];

/// Everything of a tenant has the names that the other's has; its rules look for what the other's look for.
fn begin_tenant(rest: &mut Rest, (tenant, port, network): (&str, u16, &str)) {
    let sid = 3_000 + u32::from(port);
    let rules = format!(
        "alert udp any any -> any any (msg:\"seen by {tenant}\"; content:\"secret\"; sid:{sid}; rev:1;)\n"
    );
    rest.library(tenant, &rules);
    let path = format!("/v1/tenants/{tenant}");
    rest.put(&path, json!({"select": {"prefixes": [format!("{network}.0/24")]}}));
    rest.put(&format!("{path}/groups/lan"), json!({"members": [format!("{network}.0/24")]}));
    let policy = json!({
        "from": "lan", "chain": ["pfw", "ids"], "ids": {"level": tenant},
        "pfw": {"default": "drop", "rules": [{"allow": "udp", "to-ports": [port]}]},
    });
    rest.bring(&format!("{path}/policies/web"), json!({"policy": policy}));
}

#[test]
fn tenants_of_one_device_see_nothing_of_each_other() {
    in_namespace(|| {
        let folder = Folder::new();
        let mut net = network();
        folder.write("bartizan.yaml", HOST);
        let running = start(&folder);
        let state = folder.path("controller");
        let mut rest = Rest::administrator(&state);
        // Nothing was said: nothing goes on. What comes before the run has begun is refused, and taken with the next connection only.
        assert!(!passes(&mut net, 1_999));
        for tenant in TENANTS {
            begin_tenant(&mut rest, tenant);
        }
        // A datagram to each port from each: the verdict is that of its own tenant's policy.
        let mut source = 2_000;
        for (tenant, own, network) in TENANTS {
            for (_, port, _) in TENANTS {
                source += 1;
                let host = |number: u8| format!("{network}.{number}").parse().unwrap();
                let frame =
                    bartizan_testkit::packet::udp((host(1), source), (host(2), port), b"a secret").frame();
                assert_eq!(passes_frame(&mut net, frame), port == own, "{tenant}: {port}");
            }
        }
        for (tenant, _, network) in TENANTS {
            let body = json!({"name": tenant, "scope": "operator", "tenant": tenant});
            let token = rest.ask(Method::Post, "/v1/tokens", Some(body))["token"].clone();
            let mut own = Rest::new(&state, token.as_str().unwrap());
            let path = format!("/v1/tenants/{tenant}");
            let (mut alerts, mut told) = (Value::Null, Value::Null);
            until("the tenant's alert and counters", || {
                alerts = own.ask(Method::Get, &format!("{path}/alerts"), None)["items"].clone();
                told = own.ask(Method::Get, &format!("{path}/statistics"), None);
                !alerts[0].is_null()
                    && told["sums"]["total"]["packets"] == 2
                    && told["sums"]["total"]["alerts"] == 1
            });
            // Of the datagram that its policy let go on, by its own rules, once.
            let seen: Vec<_> = alerts
                .as_array()
                .unwrap()
                .iter()
                .map(|a| (&a["event"]["alert"]["signature"], &a["event"]["src_ip"]))
                .collect();
            let (signature, address) = (json!(format!("seen by {tenant}")), json!(format!("{network}.1")));
            assert_eq!(seen, [(&signature, &address)]);
            let sums = &told["sums"];
            let total = &sums["total"];
            assert_eq!((&total["flows"], &total["refused"]), (&json!(2), &json!(1)), "{told}");
            assert_eq!(sums["refused-by"], json!({"pfw/pfw_default": 1}), "{told}");
            assert_eq!(
                (&told["reporting"], &told["silent"], &told["devices"][0]["device"]),
                (&json!(1), &json!(0), &json!("edge"))
            );
            let (other, _, others) = TENANTS.into_iter().find(|(name, ..)| *name != tenant).unwrap();
            for text in [alerts.to_string(), told.to_string()] {
                assert!(
                    !text.contains(&format!("{others}.")) && !text.contains(&format!("by {other}")),
                    "{text}"
                );
            }
        }
        assert_eq!(running.stop().code, Some(0));
    });
}

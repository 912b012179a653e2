// SPDX-License-Identifier: Apache-2.0
//! A REST client of a controller on this host.

use crate::planes::LISTEN;
use bartizan_controller::client::Client;
use bartizan_controller::rest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;

/// A client with this token.
pub struct Rest(Client, pub String);

impl Rest {
    pub fn new(state: &Path, token: &str) -> Self {
        let certificate = state.join("tls-certificate.pem");
        let client = Client::new(LISTEN.parse().unwrap(), &certificate, Some(token.to_owned()));
        Rest(client.unwrap(), token.to_owned())
    }

    /// A client with a new administrator's token, made by the token of the first start.
    pub fn administrator(state: &Path) -> Self {
        let first = std::fs::read_to_string(state.join("bootstrap-token")).unwrap();
        let body = json!({"name": "test", "scope": "admin"});
        let made = Rest::new(state, first.trim()).ask(Method::Post, "/v1/tokens", Some(body));
        Rest::new(state, made["token"].as_str().unwrap())
    }

    pub fn ask(&mut self, method: Method, path: &str, body: Option<Value>) -> Value {
        let answer = self.0.request(method, path, body.as_ref(), &[]).unwrap();
        assert!(answer.done(), "{} {path}: {answer:?}", method.name());
        answer.body
    }

    pub fn put(&mut self, path: &str, body: Value) -> Value {
        self.ask(Method::Put, path, Some(body))
    }

    /// A change that the device applies before the answer.
    pub fn bring(&mut self, path: &str, body: Value) {
        let outcome = self.put(&format!("{path}?wait=30"), body);
        let (generation, edge) = (&outcome["generation"], &outcome["answers"]["edge"]);
        assert_eq!((&edge["state"], &edge["running"]), (&json!("running"), generation), "{outcome}");
    }

    pub fn library(&mut self, name: &str, rules: &str) {
        let hash: String = Sha256::digest(rules).iter().map(|byte| format!("{byte:02x}")).collect();
        let (path, text) = (format!("/v1/rule-files/{hash}"), [("content-type", "text/plain")]);
        assert!(
            self.0.request_bytes(Method::Put, &path, Some(rules.to_owned().into()), &text).unwrap().done()
        );
        self.put(&format!("/v1/libraries/{name}"), json!({"files": [hash]}));
    }

    /// Pointers and messages of the faults of a document that must be refused.
    pub fn faults(&mut self, path: &str, body: Value) -> Vec<(String, String)> {
        let answer = self.0.request(Method::Put, path, Some(&body), &[]).unwrap();
        assert_eq!(answer.status, 422, "{path}: {answer:?}");
        let text = |fault: &Value, key: &str| fault[key].as_str().unwrap().to_owned();
        let faults = answer.body["errors"].as_array().unwrap().iter();
        faults.map(|fault| (text(fault, "pointer"), text(fault, "message"))).collect()
    }

    /// Pointers of the faults of a document that must be refused.
    pub fn wrong(&mut self, path: &str, body: Value) -> Vec<String> {
        self.faults(path, body).into_iter().map(|(pointer, _)| pointer).collect()
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Controller and agents joined: changes made through REST reach devices over TLS, and the devices' reports
//! appear in REST.

mod held;
mod killed;
mod load;
mod site;

use bartizan_api::southbound::*;
use bartizan_controller::rest::Method;
use serde_json::{Value, json};
use site::{Site, until};
use std::collections::BTreeMap;

/// The port that a policy allows, as the device holds it.
fn port(texts: &BTreeMap<String, Value>, key: &str) -> Option<u64> {
    texts.get(key)?.pointer("/policy/pfw/rules/0/to-ports/0")?.as_u64()
}

#[test]
fn a_change_comes_to_the_devices_that_it_concerns_and_to_no_others() {
    let mut site = Site::new("change");
    site.tenant("acme", 1);
    site.tenant("beta", 2);
    let (edge, far) = (site.agent("edge", &["acme"]), site.agent("far", &["beta"]));
    let generation = site.policy("acme", "web", 80);
    let status = site.runs("edge", generation);
    assert_eq!(edge.keys(), ["policy:0:@default", "policy:1:@tenant", "policy:1:web"]);
    assert_eq!(port(&edge.texts(), "policy:1:web"), Some(80));
    assert_eq!(status["workers"], json!([{ "link": "wan", "worker": 3, "generation": generation }]));
    let level = |level: &str| {
        let rules = json!({ "while-open": false, "evaluates": { "pfw": 2 }, "left-out": { "count": 0, "first": [] } });
        json!({ "link": "wan", "level": level, "generation": generation, "state": "on", "reason": "",
            "rules": if level == "xdp" { rules } else { Value::Null } })
    };
    assert_eq!(status["levels"], json!([level("host"), level("xdp")]));
    let left_out = json!({ "count": 9, "first": [{ "rule": "web.rules:1: 1:1", "why": "no parser" }] });
    assert_eq!(status["rules-left-out"], left_out);
    assert_eq!(
        (&status["session"]["connected"], &status["session"]["address"]),
        (&json!(true), &json!("127.0.0.1"))
    );
    // The other tenant's device has its own objects, and receives nothing of this change.
    until("far has its tenant", || far.keys() == ["policy:0:@default", "policy:2:@tenant"]);
    let built = far.shared.lock().unwrap().built;
    let generation = site.policy("acme", "web", 443);
    site.runs("edge", generation);
    assert_eq!((port(&edge.texts(), "policy:1:web"), far.shared.lock().unwrap().built), (Some(443), built));
    // The device serves another tenant now: it has that tenant's objects, and none of the old tenant's.
    let generation =
        site.put("/v1/devices/edge", &json!({ "tenants": ["beta"] }))["generation"].as_u64().unwrap();
    site.runs("edge", generation);
    assert_eq!(edge.keys(), ["policy:0:@default", "policy:2:@tenant"]);
    // Only libraries that a policy names are sent, with their files, once.
    let text = "# a\nalert tcp any any -> any any (msg:\"a\"; sid:1;)\n";
    let hash = {
        use sha2::{Digest, Sha256};
        Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let file = format!("/v1/rule-files/{hash}");
    assert!(
        site.rest
            .request_bytes(Method::Put, &file, Some(text.into()), &[("content-type", "text/plain")])
            .unwrap()
            .done()
    );
    for library in ["web", "other"] {
        site.put(&format!("/v1/libraries/{library}"), &json!({ "files": [hash] }));
    }
    let policy = json!({ "policy": { "chain": ["ids"], "ids": { "level": "web" } } });
    let generation = site.put("/v1/tenants/beta/policies/ids", &policy)["generation"].as_u64().unwrap();
    site.runs("edge", generation);
    let keys = ["group:1", "policy:0:@default", "policy:0:@library/web", "policy:2:@tenant", "policy:2:ids"];
    assert_eq!(edge.keys(), keys);
    // A removed device is disconnected.
    assert!(site.ask(Method::Delete, "/v1/devices/edge", &Value::Null).done());
    until("edge is sent away", || edge.handle.status().last_end.is_some_and(|end| end.contains("any more")));
}

#[test]
fn older_generations_reach_devices_and_what_is_refused_is_told_with_its_place() {
    let mut site = Site::new("back");
    site.tenant("acme", 1);
    let edge = site.agent("edge", &["acme"]);
    let first = site.policy("acme", "web", 1);
    site.runs("edge", first);
    let second = site.policy("acme", "web", 2);
    site.runs("edge", second);
    // A roll-out of an older generation, and back again.
    site.post("/v1/rollouts", &json!({ "generation": first }));
    let status = site.runs("edge", first);
    assert_eq!(port(&edge.texts(), "policy:1:web"), Some(1));
    assert!(edge.handle.status().generation > second, "the device knows it by a higher number");
    assert_eq!(status["workers"][0]["generation"], first);
    let rollouts = site.get("/v1/rollouts");
    let name = rollouts["items"][0]["name"].as_str().unwrap();
    assert_eq!(rollouts["items"][0]["spec"]["state"], "done");
    site.post(&format!("/v1/rollouts/{name}/revert"), &Value::Null);
    site.runs("edge", second);
    assert_eq!(port(&edge.texts(), "policy:1:web"), Some(2));
    // A restart in between: the controller still knows the numbers.
    site.post("/v1/rollouts", &json!({ "generation": first }));
    site.runs("edge", first);
    site.restart();
    site.runs("edge", first);
    let third = site.policy("acme", "web", 3);
    site.runs("edge", third);
    assert_eq!(port(&edge.texts(), "policy:1:web"), Some(3));
    // All objects as they were in the first generation, as a new generation.
    let restored = site.post(&format!("/v1/generations/{first}/restore"), &Value::Null);
    site.runs("edge", restored["generation"].as_u64().unwrap());
    assert_eq!(port(&edge.texts(), "policy:1:web"), Some(1));
    // A refusal is reported with its place, and the device tries again when ordered to.
    let (pointer, message) = ("/policy/chain/0".to_owned(), "no such function here".to_owned());
    let diagnostic =
        PolicyDiagnostic { object: ObjectKey::policy(1, "web"), pointer, line: 0, column: 0, message };
    let refusal =
        GenerationRefusal { code: GenerationRefusalCode::Policy, diagnostics: vec![diagnostic], more: 2 };
    edge.shared.lock().unwrap().refuses = Some(refusal);
    let fourth = site.policy("acme", "web", 4);
    let mut status = Value::Null;
    until("it is refused", || {
        status = site.status("edge");
        status["state"] == "refused"
    });
    assert_eq!(
        status["diagnostics"],
        json!(["acme/web /policy/chain/0: no such function here", "and 2 more"])
    );
    assert_eq!(status["workers"][0]["generation"], restored["generation"]);
    edge.shared.lock().unwrap().refuses = None;
    site.post("/v1/rollouts", &json!({ "generation": fourth }));
    site.runs("edge", fourth);
}

#[test]
fn a_store_that_was_put_back_overtakes_its_devices() {
    let mut site = Site::new("ahead");
    site.tenant("acme", 1);
    let edge = site.agent("edge", &["acme"]);
    let generation = site.policy("acme", "web", 1);
    site.runs("edge", generation);
    drop(site.plane.take());
    let (database, copy) = (site.folder.0.join("controller/controller.db"), site.folder.0.join("copy"));
    std::fs::copy(&database, &copy).unwrap();
    site.restart();
    for port in 2..5 {
        let generation = site.policy("acme", "web", port);
        site.runs("edge", generation);
    }
    // The copy is restored: this store has no record of the generation that the device runs.
    drop(site.plane.take());
    for name in ["controller.db-wal", "controller.db-shm"] {
        let _ = std::fs::remove_file(site.folder.0.join("controller").join(name));
    }
    std::fs::copy(&copy, &database).unwrap();
    site.restart();
    until("it is overtaken", || port(&edge.texts(), "policy:1:web") == Some(1));
    site.runs("edge", generation);
    let audit = site.get("/v1/audit?limit=500");
    let ahead = |row: &Value| row["action"] == "device ahead" && row["id"] == "edge";
    assert!(audit["items"].as_array().unwrap().iter().any(ahead));
    let next = site.policy("acme", "web", 9);
    site.runs("edge", next);
    assert_eq!(port(&edge.texts(), "policy:1:web"), Some(9));
}

#[test]
fn alerts_statistics_and_orders_come_out_at_rest() {
    let mut site = Site::new("reports");
    site.tenant("acme", 1);
    site.tenant("beta", 2);
    let edge = site.agent("edge", &["acme"]);
    let generation = site.policy("acme", "web", 1);
    site.runs("edge", generation);
    let event = json!({ "src_ip": "192.0.2.9", "alert": { "signature_id": 7 } }).as_object().unwrap().clone();
    let alert = |tenant| AlertAggregate {
        key: "1:7 192.0.2.9".into(),
        tenant,
        rule: "1:7:1".into(),
        message: "m".into(),
        count: 2,
        first: 1_000_000,
        last: 5_000_000,
        event: event.clone(),
    };
    edge.handle.alert(alert(1));
    // An alert of a tenant that the device does not serve.
    edge.handle.alert(AlertAggregate { key: "x".into(), ..alert(2) });
    // An alert of traffic without a tenant, which administrators see.
    edge.handle.alert(AlertAggregate { key: "nobody".into(), ..alert(0) });
    until("the alert", || !site.get("/v1/tenants/acme/alerts")["items"].as_array().unwrap().is_empty());
    edge.handle.alert(alert(1));
    until("it is counted", || site.get("/v1/tenants/acme/alerts")["items"][0]["count"] == 4);
    let kept = site.get("/v1/alerts")["items"].take();
    let kept: Vec<&Value> = kept.as_array().unwrap().iter().collect();
    assert_eq!(kept.iter().map(|alert| alert["tenant"].as_str()).collect::<Vec<_>>(), [Some("acme"), None]);
    assert_eq!(site.get("/v1/tenants/acme/alerts")["items"].as_array().unwrap().len(), 1);
    assert_eq!((&kept[0]["event"]["src_ip"], &kept[0]["last"]), (&json!("192.0.2.9"), &json!(5_000)));
    let delta = |counters: &[(&str, u64)]| Delta {
        counters: counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        ..Delta::default()
    };
    edge.handle.statistics(delta(&[
        ("link/wan/packets", 3),
        ("tenant/acme/web/packets", 2),
        ("tenant/beta/web/packets", 9),
    ]));
    edge.handle.statistics(delta(&[("link/wan/packets", 4)]));
    let sums = json!({ "link/wan/packets": 7, "tenant/acme/web/packets": 2 });
    until("the sums", || site.get("/v1/devices/edge/statistics")["counters"] == sums);
    // The sums survive a restart, and are counted once.
    site.restart();
    until("the session", || site.status("edge")["session"]["connected"] == true);
    edge.handle.statistics(delta(&[("link/wan/packets", 1)]));
    until("more", || site.get("/v1/devices/edge/statistics")["counters"]["link/wan/packets"] == 8);
    assert_eq!(site.get("/v1/alerts")["items"][0]["count"], 4);
    let metrics = site.get("/v1/metrics");
    let metrics = metrics.as_str().unwrap();
    assert!(metrics.contains("{what=\"agents-alerts-foreign\"} 0\n"), "a new process: {metrics}");
    assert!(metrics.contains("{what=\"agents-sessions\"} 1\n"), "{metrics}");
    // Function orders.
    let answer = |site: &mut Site| site.status("edge")["functions"]["ids"].take();
    site.post("/v1/devices/edge/functions/ids", &json!({ "order": "configure", "settings": { "a": 1 } }));
    until("the answer", || answer(&mut site)["answered"].is_u64());
    let done = answer(&mut site);
    assert_eq!(
        (&done["order"], &done["done"], &done["reason"]),
        (&json!("configure"), &json!(true), &json!("1 settings"))
    );
    site.post("/v1/devices/edge/functions/ids", &json!({ "order": "stop" }));
    until("the answer", || answer(&mut site)["answered"].is_u64());
    assert_eq!((&answer(&mut site)["order"], &answer(&mut site)["done"]), (&json!("stop"), &json!(false)));
    drop(edge);
    until("it is away", || site.status("edge")["session"]["connected"] == false);
    let refused = site.ask(Method::Post, "/v1/devices/edge/functions/ids", &json!({ "order": "stop" }));
    assert_eq!(
        (refused.status, refused.body["detail"].as_str().unwrap()),
        (409, "`edge` is not connected; orders are not kept for later")
    );
    let audit = site.get("/v1/audit?limit=500");
    let did = |action: &str| {
        audit["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["action"] == action && row["id"] == "edge/ids")
    };
    assert!(did("stop function") && did("configure function"));
}

#[test]
fn a_device_that_is_revoked_is_out_until_it_is_enrolled_again() {
    let mut site = Site::new("revoked");
    site.tenant("acme", 1);
    let edge = site.agent("edge", &["acme"]);
    let generation = site.policy("acme", "web", 1);
    site.runs("edge", generation);
    let revoked = site.ask(Method::Delete, "/v1/devices/edge/enrolment", &Value::Null);
    assert_eq!(revoked.body, json!({ "revoked": 1, "tokens": 1 }));
    until("its session ends", || site.status("edge")["session"]["connected"] == false);
    let generation = site.policy("acme", "web", 2);
    drop(edge);
    site.enrol("edge");
    let _edge = site.begin("edge");
    site.runs("edge", generation);
    // Only an administrator can invite a device.
    let body = json!({ "name": "reader", "scope": "reader" });
    let token = site.post("/v1/tokens", &body)["token"].as_str().unwrap().to_owned();
    site.rest.set_token(Some(token));
    assert_eq!(site.ask(Method::Post, "/v1/devices/edge/enrolment", &Value::Null).status, 403);
}

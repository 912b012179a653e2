// SPDX-License-Identifier: Apache-2.0
//! A device's refusal of one tenant's policies delays no other tenant's change, and the refused tenant's
//! policies stay as they were.

use super::site::{Agent, Judge, Site, until};
use bartizan_agent::session::ControllerGeneration;
use bartizan_api::southbound::*;
use bartizan_controller::client::ClientResponse;
use bartizan_controller::rest::Method;
use serde_json::{Value, json};

/// A port that the device refuses.
const BAD: u16 = 666;

fn refusal(code: GenerationRefusalCode, of: &[(ObjectKey, &str)]) -> GenerationRefusal {
    let diagnostic = |(object, pointer): &(ObjectKey, &str)| PolicyDiagnostic {
        object: object.clone(),
        pointer: (*pointer).to_owned(),
        line: 0,
        column: 0,
        message: "not here".to_owned(),
    };
    GenerationRefusal { code, diagnostics: of.iter().map(diagnostic).collect(), more: 0 }
}

fn text(object: &Object) -> Value {
    match object {
        Object::Policy(policy) => serde_json::from_str(&policy.text).unwrap(),
        Object::Group(_) => Value::Null,
    }
}

/// Refuses policies with the bad port, and names the policies.
fn bad_ports(held: &ControllerGeneration) -> Option<GenerationRefusal> {
    let bad = |object: &Object| text(object).pointer("/policy/pfw/rules/0/to-ports/0") == Some(&json!(BAD));
    let of: Vec<_> = held.objects.iter().filter(|(_, object)| bad(object)).collect();
    let of: Vec<_> = of.into_iter().map(|(key, _)| (key.clone(), "/policy/pfw")).collect();
    (!of.is_empty()).then(|| refusal(GenerationRefusalCode::Policy, &of))
}

/// Refuses tenants with more policies than their quota of rules, and names the tenant.
fn quotas(held: &ControllerGeneration) -> Option<GenerationRefusal> {
    let over = |(key, object): (&ObjectKey, &std::sync::Arc<Object>)| {
        let most = text(object).pointer("/tenant/quotas/rules")?.as_u64()?;
        let (tenant, _) = key.policy_name()?;
        let own =
            |key: &&ObjectKey| key.policy_name().is_some_and(|(of, name)| of == tenant && name != "@tenant");
        (held.objects.keys().filter(own).count() as u64 > most).then(|| (key.clone(), "/tenant/quotas/rules"))
    };
    let of: Vec<_> = held.objects.iter().filter_map(over).collect();
    (!of.is_empty()).then(|| refusal(GenerationRefusalCode::Policy, &of))
}

/// Refuses more objects than the device holds, and names no object.
fn limit(held: &ControllerGeneration) -> Option<GenerationRefusal> {
    (held.objects.len() > 6).then(|| refusal(GenerationRefusalCode::Limit, &[]))
}

fn port(edge: &Agent, key: &str) -> u64 {
    edge.texts()[key].pointer("/policy/pfw/rules/0/to-ports/0").and_then(Value::as_u64).unwrap()
}

fn built(edge: &Agent) -> usize {
    edge.shared.lock().unwrap().built
}

/// Starts one device with two tenants that have a policy each. Returns the running generation as well.
fn begin(name: &str, judge: Judge) -> (Site, Agent, u64) {
    let mut site = Site::new(name);
    site.tenant("acme", 1);
    site.tenant("beta", 2);
    let edge = site.agent("edge", &["acme", "beta"]);
    site.policy("acme", "web", 80);
    let generation = site.policy("beta", "web", 81);
    site.runs("edge", generation);
    edge.shared.lock().unwrap().judges = Some(judge);
    (site, edge, generation)
}

/// Changes a policy as a tenant's operator and waits for the devices.
fn waits(site: &mut Site, tenant: &str, port: u16) -> ClientResponse {
    let body = json!({ "name": tenant, "scope": "operator", "tenant": tenant });
    let token = site.post("/v1/tokens", &body)["token"].as_str().unwrap().to_owned();
    let mut own = site.client(site.plane.as_ref().unwrap().address);
    own.set_token(Some(token));
    let rules = json!([{ "allow": "tcp", "to-ports": [port] }]);
    let policy = json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop", "rules": rules } } });
    let path = format!("/v1/tenants/{tenant}/policies/web?wait=60");
    own.request(Method::Put, &path, Some(&policy), &[]).unwrap()
}

#[test]
fn what_a_device_refuses_of_a_tenant_keeps_no_other_from_theirs() {
    let (mut site, edge, good) = begin("held", bad_ports);
    let bad = site.policy("acme", "web", BAD);
    let status = site.runs_partly("edge", bad);
    let said = json!(["acme/web /policy/pfw: not here"]);
    let held = &status["held-back"];
    assert_eq!((&held["acme"]["runs"], &held["acme"]["refused"]), (&json!(good), &json!(bad)));
    assert_eq!((&held["acme"]["diagnostics"], &held["beta"]), (&said, &Value::Null));
    assert_eq!((port(&edge, "policy:1:web"), port(&edge, "policy:2:web")), (80, 81));
    // Other tenants' changes are applied at the first attempt: the held-back policy is not retried with them.
    let before = built(&edge);
    let next = site.policy("beta", "web", 82);
    site.runs_partly("edge", next);
    assert_eq!((port(&edge, "policy:1:web"), port(&edge, "policy:2:web")), (80, 82));
    assert_eq!(built(&edge), before + 1);
    // The status is visible to those who may see it, and to nobody else.
    let shown = site.get("/v1/tenants/acme/policies/web")["status"].take();
    assert_eq!(
        (&shown["held-back"]["edge"]["diagnostics"], &shown["held-back"]["edge"]["runs"]),
        (&said, &json!(good))
    );
    assert_eq!(site.get("/v1/tenants/acme")["status"], shown);
    assert_eq!(site.get("/v1/tenants/beta").get("status"), None);
    let answer = waits(&mut site, "beta", 83).body["answers"]["edge"].take();
    assert_eq!((&answer["state"], &answer["diagnostics"]), (&json!("running"), &json!([])), "{answer}");
    assert_eq!(answer.get("held-back"), None, "{answer}");
    let answer = waits(&mut site, "acme", BAD + 1).body["answers"]["edge"].take();
    assert_eq!((&answer["state"], answer.get("held-back")), (&json!("running"), None), "{answer}");
    let last = answer["running"].clone();
    let answer = waits(&mut site, "acme", BAD).body["answers"]["edge"].take();
    assert_eq!(
        (&answer["state"], &answer["running"], &answer["diagnostics"]),
        (&json!("refused"), &last, &said),
        "{answer}"
    );
    assert_eq!(port(&edge, "policy:1:web"), u64::from(BAD + 1));
    // Once corrected, the policy runs.
    let mended = site.policy("acme", "web", 443);
    let status = site.runs("edge", mended);
    assert_eq!((port(&edge, "policy:1:web"), status.get("held-back")), (443, None));
    let metrics = site.get("/v1/metrics");
    assert!(metrics.as_str().unwrap().contains("{what=\"held-back\"} 2\n"), "{metrics}");
}

#[test]
fn what_is_held_back_outlives_controller_and_agent() {
    let (mut site, edge, _) = begin("held-restart", bad_ports);
    let mail = site.policy("acme", "mail", 25);
    site.runs("edge", mail);
    let bad = site.policy("acme", "web", BAD);
    site.runs_partly("edge", bad);
    site.restart();
    let next = site.policy("beta", "web", 82);
    site.runs_partly("edge", next);
    assert_eq!((port(&edge, "policy:1:web"), port(&edge, "policy:1:mail")), (80, 25));
    drop(edge);
    let edge = site.begin("edge");
    edge.shared.lock().unwrap().judges = Some(bad_ports);
    let next = site.policy("beta", "web", 84);
    site.runs_partly("edge", next);
    assert_eq!((port(&edge, "policy:1:web"), port(&edge, "policy:2:web")), (80, 84));
    // The tenant's next change is tried and refused again: its last good policies still run.
    let group = site.put("/v1/tenants/acme/groups/lan", &json!({ "members": ["10.0.0.0/8"] }));
    let status = site.runs_partly("edge", group["generation"].as_u64().unwrap());
    assert_eq!(status["held-back"]["acme"]["refused"], group["generation"]);
    assert_eq!(
        (port(&edge, "policy:1:web"), edge.keys().contains(&"policy:1:@group/lan".to_owned())),
        (80, false)
    );
}

#[test]
fn a_quota_that_an_administrator_lowers_keeps_nobody_else_either() {
    let (mut site, edge, _) = begin("held-quota", quotas);
    let tenant = |rules: u64| json!({ "select": { "vni": 1 }, "quotas": { "rules": rules } });
    // As many rules as the controller counts, but more than the device accepts.
    site.put("/v1/tenants/acme", &tenant(2));
    let mail = site.policy("acme", "mail", 25);
    site.runs("edge", mail);
    let over =
        site.put("/v1/tenants/acme/policies/scan", &json!({ "policy": { "chain": ["sfw"] } }))["generation"]
            .as_u64()
            .unwrap();
    let status = site.runs_partly("edge", over);
    assert_eq!(
        status["held-back"]["acme"]["diagnostics"],
        json!(["acme/@tenant /tenant/quotas/rules: not here"])
    );
    let keys =
        |edge: &Agent| edge.keys().into_iter().filter(|key| key.starts_with("policy:1:")).collect::<Vec<_>>();
    assert_eq!(keys(&edge), ["policy:1:@tenant", "policy:1:mail", "policy:1:web"]);
    assert!(site.ask(Method::Delete, "/v1/tenants/acme/policies/scan", &Value::Null).done());
    until("it is mended", || site.status("edge")["state"] == "running");
    // Now the quota is the fault: the quota and the policies that it bounds stay as they were.
    let agent = |edge: &Agent| edge.texts()["policy:1:@tenant"]["tenant"].clone();
    let rule = json!({ "chain": ["sfw"] });
    site.put("/v1/tenants/acme/policies/mail", &json!({ "policy": rule }));
    let lowered = json!({ "select": { "vni": 7 }, "quotas": { "rules": 1 } });
    let lowered = site.put("/v1/tenants/acme", &lowered)["generation"].as_u64().unwrap();
    site.runs_partly("edge", lowered);
    // The tenant's selection of traffic stays as it was, too.
    assert_eq!(agent(&edge), json!({ "name": "acme", "select": { "vni": 7 }, "quotas": { "rules": 2 } }));
    let next = site.policy("beta", "web", 82);
    site.runs_partly("edge", next);
    assert_eq!((port(&edge, "policy:2:web"), keys(&edge).len()), (82, 3));
    let raised = site.put("/v1/tenants/acme", &tenant(5))["generation"].as_u64().unwrap();
    site.runs("edge", raised);
    assert_eq!(agent(&edge)["quotas"], json!({ "rules": 5 }));
}

#[test]
fn where_nobody_is_blamed_the_newest_change_is_held_back() {
    let (mut site, edge, _) = begin("held-limit", limit);
    let mut last = 0;
    for name in ["a", "b", "c"] {
        last = site.policy("acme", name, 1);
        until("it is answered", || site.status("edge")["running"] == last);
    }
    let status = site.runs_partly("edge", last);
    let said = json!(["the generation is larger than a device can hold"]);
    assert_eq!(status["held-back"]["acme"]["diagnostics"], said);
    let own = site.get("/v1/tenants/acme")["status"]["held-back"]["edge"]["diagnostics"].take();
    assert!(own[0].as_str().unwrap().contains("outside this tenant"), "{own}");
    let next = site.policy("beta", "web", 82);
    site.runs_partly("edge", next);
    assert_eq!(edge.keys().len(), 6, "{:?}", edge.keys());
}

/// Refuses a default that allows traffic, or a library without a certain rule.
fn settings(held: &ControllerGeneration) -> Option<GenerationRefusal> {
    let bad = |object: &Object| {
        let text = text(object);
        text.pointer("/default/action") == Some(&json!("allow"))
            || text.pointer("/library/except/0") == Some(&json!(BAD))
    };
    let of: Vec<_> = held.objects.iter().filter(|(_, object)| bad(object)).collect();
    let of: Vec<_> = of.into_iter().map(|(key, _)| (key.clone(), "")).collect();
    (!of.is_empty()).then(|| refusal(GenerationRefusalCode::Policy, &of))
}

#[test]
fn what_is_wrong_with_what_administrators_say_is_no_tenants_fault() {
    let (mut site, edge, _) = begin("held-settings", settings);
    let file = site.rules("alert tcp any any -> any any (msg:\"a\"; sid:1;)\n");
    let library = |except: &[u16]| json!({ "files": [file], "except": except });
    site.put("/v1/libraries/web", &library(&[]));
    let policy = json!({ "policy": { "chain": ["ids"], "ids": { "level": "web" } } });
    let named = site.put("/v1/tenants/acme/policies/detect", &policy)["generation"].as_u64().unwrap();
    // A device judges all objects of a generation together: without the tenant's policy nothing would name
    // the library.
    site.runs("edge", named);
    let allow = json!({ "action": "allow", "chain": ["ids"], "ids": { "level": "web" } });
    for (path, bad, good) in [
        ("/v1/libraries/web", library(&[BAD]), library(&[])),
        ("/v1/settings/default", allow, json!({ "action": "drop" })),
    ] {
        site.put(path, &bad);
        until("it is refused", || site.status("edge")["state"] == "refused");
        // A tenant that makes a change meanwhile is not blamed for the fault.
        let next = site.policy("beta", "web", 82);
        until("it is refused again", || {
            let status = site.status("edge");
            status["wanted"] == next && status["state"] == "refused"
        });
        assert_eq!(site.status("edge")["held-back"], Value::Null, "{path}");
        let mended = site.put(path, &good)["generation"].as_u64().unwrap();
        site.runs("edge", mended);
    }
    drop(edge);
}

#[test]
fn a_library_that_only_the_default_names_comes_to_devices() {
    let mut site = Site::new("default-library");
    site.tenant("acme", 1);
    let edge = site.agent("edge", &["acme"]);
    let file = site.rules("alert tcp any any -> any any (msg:\"a\"; sid:1;)\n");
    site.put("/v1/libraries/web", &json!({ "files": [file] }));
    let says = json!({ "action": "allow", "chain": ["ids"], "ids": { "level": "web" } });
    let generation = site.put("/v1/settings/default", &says)["generation"].as_u64().unwrap();
    site.runs("edge", generation);
    assert_eq!(edge.keys(), ["group:1", "policy:0:@default", "policy:0:@library/web", "policy:1:@tenant"]);
    let policy = site.get("/v1/devices/edge/policy");
    assert_eq!(policy["policy"]["rule-groups"], json!({ "web": ["web.rules"] }));
    let refused = site.ask(Method::Delete, "/v1/libraries/web", &Value::Null);
    assert_eq!(
        (refused.status, &refused.body["detail"]),
        (409, &json!("the setting `default` uses it; change that first"))
    );
}

#[test]
fn a_tenant_that_is_new_on_a_device_has_nothing_there_until_it_is_taken() {
    let mut site = Site::new("held-new");
    site.tenant("acme", 1);
    site.tenant("beta", 2);
    site.policy("acme", "web", BAD);
    let edge = site.agent("edge", &["beta"]);
    let first = site.policy("beta", "web", 81);
    site.runs("edge", first);
    edge.shared.lock().unwrap().judges = Some(bad_ports);
    let both = site.put("/v1/devices/edge", &json!({ "tenants": ["*"] }))["generation"].as_u64().unwrap();
    let status = site.runs_partly("edge", both);
    assert_eq!(status["held-back"]["acme"]["runs"], 0);
    assert_eq!(edge.keys(), ["policy:0:@default", "policy:1:@tenant", "policy:2:@tenant", "policy:2:web"]);
    let mended = site.policy("acme", "web", 80);
    site.runs("edge", mended);
    assert_eq!(port(&edge, "policy:1:web"), 80);
}

#[test]
fn a_library_that_only_what_is_kept_names_is_kept_with_it() {
    let mut site = Site::new("held-library");
    site.tenant("acme", 1);
    site.tenant("beta", 2);
    let edge = site.agent("edge", &["*"]);
    let file = site.rules("# a\nalert tcp any any -> any any (msg:\"a\"; sid:1;)\n");
    site.put("/v1/libraries/web", &json!({ "files": [file] }));
    let policy = json!({ "policy": { "chain": ["ids"], "ids": { "level": "web" } } });
    let good = site.put("/v1/tenants/acme/policies/web", &policy)["generation"].as_u64().unwrap();
    site.runs("edge", good);
    let keys = edge.keys();
    assert!(
        keys.contains(&"policy:0:@library/web".to_owned()) && keys.contains(&"group:1".to_owned()),
        "{keys:?}"
    );
    edge.shared.lock().unwrap().judges = Some(bad_ports);
    let bad = site.policy("acme", "web", BAD);
    site.runs_partly("edge", bad);
    for path in ["/v1/libraries/web".to_owned(), format!("/v1/rule-files/{file}")] {
        let answer = site.ask(Method::Delete, &path, &Value::Null);
        assert!(answer.done(), "{path}: {}", answer.body);
    }
    let mut gone = site.policy("beta", "web", 81);
    site.runs_partly("edge", gone);
    site.restart();
    gone = site.policy("beta", "web", 82).max(gone);
    site.runs_partly("edge", gone);
    assert!(keys.iter().all(|key| edge.keys().contains(key)), "{:?}", edge.keys());
}

#[test]
fn a_roll_out_goes_on_without_what_a_tenant_has_broken() {
    let mut site = Site::new("held-rollout");
    site.tenant("acme", 1);
    site.tenant("beta", 2);
    let agents: Vec<Agent> = ["a", "b"].map(|name| site.agent(name, &["*"])).into();
    for name in ["a", "b"] {
        site.put(&format!("/v1/devices/{name}"), &json!({ "tenants": ["*"], "follow": "manual" }));
    }
    let first = site.policy("acme", "web", 80);
    let steps = json!({ "steps": [{ "percent": 50 }, { "percent": 100 }] });
    site.post("/v1/rollouts", &steps);
    site.runs("b", first);
    until("it is done", || site.get("/v1/rollouts")["items"][0]["spec"]["state"] == "done");
    agents.iter().for_each(|agent| agent.shared.lock().unwrap().judges = Some(bad_ports));
    site.policy("acme", "web", BAD);
    let last = site.policy("beta", "web", 81);
    site.post("/v1/rollouts", &steps);
    site.runs_partly("b", last);
    for agent in &agents {
        assert_eq!((port(agent, "policy:1:web"), port(agent, "policy:2:web")), (80, 81));
    }
    let mut rollout = Value::Null;
    until("it is done", || {
        let all = site.get("/v1/rollouts")["items"].take();
        let own = all.as_array().unwrap().iter().find(|of| of["spec"]["generation"] == last);
        rollout = own.unwrap()["spec"].clone();
        rollout["state"] == "done"
    });
    assert_eq!(rollout["refusals"]["a"], json!(["acme/web /policy/pfw: not here"]), "{rollout}");
}

#[test]
fn links_that_a_connected_device_does_not_have_are_refused_before_they_are_sent() {
    let (mut site, edge, _) = begin("links", bad_ports);
    let policy =
        |link: Value| json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop" }, "link": link } });
    let path = "/v1/tenants/acme/policies/linked";
    assert_eq!(site.wrong(path, &policy(json!(["wan", "wna"]))), ["/policy/link/1"]);
    assert_eq!(site.wrong(path, &policy(json!("wna"))), ["/policy/link"]);
    let select = json!({ "select": { "vni": 1, "link": ["wna"] } });
    assert_eq!(site.wrong("/v1/tenants/acme", &select), ["/select/link/0"]);
    let generation = site.put(path, &policy(json!("wan")))["generation"].as_u64().unwrap();
    site.runs("edge", generation);
    // The links of a disconnected device are unknown: it may return with another host file.
    drop(edge);
    until("it is away", || site.status("edge")["session"]["connected"] == false);
    site.put(path, &policy(json!("wna")));
}

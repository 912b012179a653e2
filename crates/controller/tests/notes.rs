// SPDX-License-Identifier: Apache-2.0
//! Notes on a change, beside its differences: the traffic that a removal concerns and what then applies,
//! devices without a generation, names of tokens and rule files, times in text form.

use crate::common;

use bartizan_api::southbound as wire;
use bartizan_api::southbound::{DeviceId, GenerationAck, LevelStatus, Manifest};
use bartizan_controller::bridge::{DeviceBackend, Own};
use bartizan_controller::southbound::Backend;
use bartizan_controller::southbound::enrolment::Revocations;
use bartizan_controller::store::hex;
use common::{NOW, With, World};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

const WEB: &str = "/v1/tenants/acme/policies/web";

fn policy() -> Value {
    json!({ "policy": { "chain": [] } })
}

/// The notes of an answer.
fn notes(answer: &Value) -> Vec<String> {
    let notes = answer["notes"].as_array().into_iter().flatten();
    notes.map(|note| note.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_removed_policy_says_whose_traffic_gets_what() {
    let world = World::new();
    world.tenant("acme", 1);
    world.tenant("other", 2);
    world.do_it("PUT", WEB, &policy());
    let gone = |path: &str| notes(&world.do_it("DELETE", &format!("{path}?dry-run=true"), &Value::Null));
    assert_eq!(gone(WEB), ["policy `acme/web` is removed; no device runs it"]);
    world.device("edge", &json!({ "tenants": ["acme"] }));
    world.device("core", &json!({ "tenants": ["*"] }));
    world.device("far", &json!({ "tenants": ["other"] }));
    let none = "no policy of tenant `acme` is left: all of its traffic gets the default (dropped: there is no setting `default`)";
    assert_eq!(gone(WEB), [format!("policy `acme/web` is removed on devices `core`, `edge`: {none}")]);
    // One that waits for a roll-out.
    world.device("core", &json!({ "tenants": ["*"], "follow": "manual" }));
    world.do_it("PUT", "/v1/settings/default", &json!({ "action": "allow" }));
    world.do_it("PUT", "/v1/tenants/acme/policies/mail", &policy());
    let then = "its traffic goes to the tenant's other policy, and traffic that this one does not match gets the default (let through)";
    let expected = [
        format!("policy `acme/web` is removed on device `edge`: {then}"),
        format!(
            "policy `acme/web` is removed; device `core` goes on with the policy until a roll-out reaches it (`follow: manual`); then {then}"
        ),
    ];
    assert_eq!(gone(WEB), expected);
    assert_eq!(notes(&world.do_it("DELETE", WEB, &Value::Null)), expected, "and when it is done");
    // The default, a tenant, a device.
    world.do_it("DELETE", "/v1/tenants/acme/policies/mail", &Value::Null);
    let default = gone("/v1/settings/default");
    assert_eq!(
        default[0],
        "the default is removed on devices `edge`, `far`: traffic that no policy names is dropped"
    );
    let tenant = gone("/v1/tenants/acme");
    assert!(
        tenant[0]
            .starts_with("tenant `acme` is removed on device `edge`: its traffic belongs to another tenant"),
        "{tenant:?}"
    );
    let device = gone("/v1/devices/edge");
    assert_eq!(
        device,
        ["device `edge` is removed: its session ends, nothing new reaches it, and its own host file applies"]
    );
    let less = world.do_it("PUT", "/v1/devices/edge", &json!({ "tenants": ["other"] }));
    assert!(
        notes(&less)[0].starts_with("device `edge` no longer serves tenant `acme`: their traffic"),
        "{less}"
    );
    assert_eq!(
        notes(&world.do_it("PUT", "/v1/devices/edge", &json!({ "tenants": ["other"], "labels": {} }))),
        Vec::<String>::new()
    );
}

#[test]
fn a_policy_that_is_never_reached_is_noted_whichever_of_the_two_comes_last() {
    let world = World::new();
    world.tenant("acme", 1);
    world.tenant("other", 2);
    let put = |path: &str, policy: &Value, order: u32| {
        let body = json!({ "policy": policy, "order": order });
        notes(&world.do_it("PUT", &format!("/v1/tenants/{path}"), &body))
    };
    let never = |name: &str, by: &str| {
        vec![format!(
            "policy `{name}` is never reached: policy `{by}`, which is tried before it, has all of its traffic; try this one first, or remove it"
        )]
    };
    world.do_it("PUT", "/v1/tenants/acme/groups/lan", &json!({ "members": ["10.0.0.0/8"] }));
    let none: Vec<String> = Vec::new();
    let (all, lan) = (json!({ "chain": [] }), json!({ "from": "lan", "chain": [] }));
    let (one, far) =
        (json!({ "to": ["10.1.2.3"], "chain": [] }), json!({ "from": "192.0.2.0/24", "chain": [] }));
    assert_eq!(put("acme/policies/lan", &lan, 50), none);
    assert_eq!(put("acme/policies/one", &one, 60), never("one", "lan"));
    assert_eq!(put("acme/policies/one", &one, 40), none, "it is tried first");
    assert_eq!(put("acme/policies/far", &far, 60), none);
    // Another tenant's has none of its traffic.
    assert_eq!(put("other/policies/all", &all, 1), none);
    // One that comes later hides all of them; of the same order the names decide.
    let by_all = ["one", "lan", "far"].map(|name| never(name, "all")).concat();
    let path = "acme/policies/all?dry-run=true";
    assert_eq!(put(path, &all, 1), by_all);
    assert_eq!(put(path, &all, 50), ["lan", "far"].map(|name| never(name, "all")).concat());
    assert_eq!(put(path, &all, 55), never("far", "all"));
    assert_eq!(put(path, &all, 90), none);
}

#[test]
fn the_audit_log_has_the_names_of_tokens_also_of_those_that_are_gone() {
    let world = World::new();
    world.tenant("acme", 1);
    let body = json!({ "name": "bob of acme", "scope": "operator", "tenant": "acme" });
    let made = world.do_it("POST", "/v1/tokens", &body);
    let with = || With { token: Some(made["token"].as_str().unwrap().to_owned()), ..With::default() };
    assert_eq!(world.send("PUT", WEB, policy().to_string().into_bytes(), with()).status, 201);
    assert_eq!(world.send("DELETE", "/v1/tenants/acme", Vec::new(), with()).status, 403);
    world.do_it("DELETE", &format!("/v1/tokens/{}", made["id"].as_str().unwrap()), &Value::Null);
    let rows = world.get("/v1/audit")["items"].clone();
    let of =
        |action: &str| rows.as_array().unwrap().iter().rfind(|row| row["action"] == action).unwrap().clone();
    for action in ["put", "refused: delete-tenant"] {
        let row = of(action);
        assert_eq!((&row["who"], &row["name"]), (&made["id"], &json!("bob of acme")), "{row}");
    }
    assert_eq!(of("revoke token")["name"], "admin");
}

#[test]
fn times_are_read_as_people_write_them() {
    let world = World::new();
    let make = |expires: Value| {
        world.ask("POST", "/v1/tokens", &json!({ "name": "x", "scope": "reader", "expires": expires }))
    };
    let later = NOW + 1_000_000;
    for expires in
        [json!("2023-11-14T22:13:21Z"), json!("2023-11-14T23:13:21.000000+01:00"), json!(later), json!(null)]
    {
        let made = make(expires.clone());
        assert_eq!(made.status, 201, "{expires}: {}", made.value());
        let tokens = world.get("/v1/tokens")["items"].clone();
        let id = made.value()["id"].clone();
        let item = tokens.as_array().unwrap().iter().find(|token| token["id"] == id).unwrap().clone();
        let expected = if expires.is_null() { Value::Null } else { json!(later) };
        assert_eq!(item["expires"], expected, "the unit of JSON stays: {expires}");
    }
    for wrong in [json!("tomorrow"), json!("2023-11-14"), json!(-1), json!("2023-11-14T22:13:19Z")] {
        let refused = make(wrong.clone());
        assert_eq!(refused.status, 422, "{wrong}: {}", refused.value());
    }
}

#[test]
fn a_device_that_was_given_nothing_and_rules_of_files_are_called_by_name() {
    let world = World::new();
    world.device("edge", &json!({ "tenants": ["*"], "follow": "manual" }));
    let [named, nameless, apart] = ["a", "b", "c"].map(|word| {
        let text = format!("alert tcp any any -> any any (msg:\"{word}\"; sid:1;)\n");
        let hash = hex(&Sha256::digest(&text));
        let query = if word == "a" { "?file-name=My-Web.rules" } else { "" };
        let with = || With { fields: vec![("content-type", "text/plain".to_owned())], ..With::default() };
        for query in [query, ""] {
            let reply = world.send(
                "PUT",
                &format!("/v1/rule-files/{hash}{query}"),
                text.clone().into_bytes(),
                with(),
            );
            assert_eq!(reply.status / 100, 2, "{}", reply.value());
        }
        hash
    });
    world.do_it("PUT", "/v1/libraries/all", &json!({ "files": [named, nameless] }));
    let files = world.get("/v1/rule-files")["items"].clone();
    let name_of = |hash: &str| {
        files.as_array().unwrap().iter().find(|file| file["name"] == hash).unwrap()["file-name"].clone()
    };
    assert_eq!(
        [name_of(&named), name_of(&nameless)],
        [json!("My-Web.rules"), Value::Null],
        "put again without a name"
    );
    let bad = world.ask("PUT", &format!("/v1/rule-files/{named}?file-name=a%2Fb"), &Value::Null);
    assert_eq!(bad.status, 400, "{}", bad.value());

    let folder = std::env::temp_dir().join(format!("bartizan-notes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (own, _) = Own::open(&folder, &folder.join("ca"), "controller", 1_000).unwrap();
    let revocations = Revocations::new(own.authority.clone()).unwrap();
    let controller = Arc::clone(&world.api.controller);
    let mut office =
        DeviceBackend::new(controller, own, revocations, Arc::new(|| 1_000), Arc::default(), |_| ()).unwrap();
    let strange = "0".repeat(64);
    let left_out = [&named, &nameless, &apart, &strange].map(|hash| wire::RuleLeftOut {
        rule: format!("{hash}:12: 1:2001"),
        why: "no parser reads `smb`".to_owned(),
    });
    let left_out = wire::LeftOut { count: 4, first: left_out.to_vec() };
    let stands = Some(LevelStatus { levels: Vec::new(), left_out, content: None });
    let running =
        GenerationAck { manifest: Manifest::default().hash(), workers: Vec::new(), took: None, stands };
    office.running(&DeviceId::new("edge").unwrap(), 0, &running).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();

    let status = world.get("/v1/devices/edge")["status"].clone();
    assert_eq!((&status["state"], &status["wanted"]), (&json!("unassigned"), &json!(0)));
    assert_eq!(status["diagnostics"].as_array().unwrap().len(), 1, "{status}");
    let said = status["diagnostics"].as_array().unwrap().last().unwrap().as_str().unwrap();
    assert!(
        said.starts_with("nothing was given to it (`follow: manual`") && said.contains("it drops everything"),
        "{said}"
    );
    let rules: Vec<&str> = status["rules-left-out"]["first"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["rule"].as_str().unwrap())
        .collect();
    let short = |hash: &str| hash[..12].to_owned();
    let expected = [
        "My-Web.rules:12: 1:2001".to_owned(),
        format!("{}... of `all`:12: 1:2001", short(&nameless)),
        format!("{}...:12: 1:2001", short(&apart)),
        format!("{strange}:12: 1:2001"),
    ];
    assert_eq!(rules, expected);
    // Once the device has a desired generation, its state is the usual one.
    world.device("edge", &json!({ "tenants": ["*"] }));
    assert_eq!(world.get("/v1/devices/edge")["status"]["state"], "waiting");
}

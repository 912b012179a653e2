// SPDX-License-Identifier: Apache-2.0
//! Links and ports that devices do not have: documents that name them are refused, also while the device is
//! away; checks that are impossible give a note.

use crate::common;

use bartizan_api::southbound::{DeviceId, Hello, Interfaces, Manifest};
use bartizan_controller::bridge::{DeviceBackend, Own};
use bartizan_controller::device::{DeviceStatus, State, WorkerReport};
use bartizan_controller::interfaces::DeviceInterfaces;
use bartizan_controller::rest::Reply;
use bartizan_controller::southbound::Backend;
use bartizan_controller::southbound::enrolment::Revocations;
use bartizan_controller::store::Status;
use common::{With, World};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const WEB: &str = "/v1/tenants/acme/policies/web";

fn redirect(port: &str) -> Value {
    let rules = json!([{ "allow": "udp" }, { "redirect": "tcp", "egress": port }]);
    json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop", "rules": rules } } })
}

fn on_link(link: &Value) -> Value {
    json!({ "policy": { "link": link, "chain": [] } })
}

/// Reports a device's links and ports in a session, which stays open or has ended.
fn says(world: &World, device: &str, links: &[&str], ports: &[&str], connected: bool) {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let line = DeviceInterfaces::new(names(links), names(ports)).line(device);
    let session = json!({ "connected": connected, "since": 1, "address": "here", "software": "test" });
    let session = Status { kind: "sessions".to_owned(), id: device.to_owned(), body: Some(session) };
    world.api.controller.show(&[line, session]);
}

/// The only fault of a problem: its pointer and message.
fn fault(problem: &Value) -> (String, String) {
    let errors = problem["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{problem}");
    let text = |key: &str| errors[0][key].as_str().unwrap().to_owned();
    (text("pointer"), text("message"))
}

fn world() -> World {
    let world = World::new();
    world.tenant("acme", 1);
    world.tenant("other", 2);
    world.device("edge", &json!({ "tenants": ["acme"] }));
    world.device("far", &json!({ "tenants": ["other"] }));
    says(&world, "edge", &["wan", "dmz"], &["trap", "tap"], true);
    says(&world, "far", &["lan"], &[], true);
    world
}

#[test]
fn a_policy_that_names_what_its_device_does_not_have_is_refused() {
    let world = world();
    world.do_it("PUT", WEB, &redirect("trap"));
    world.do_it("PUT", WEB, &on_link(&json!(["wan", "dmz"])));
    for query in ["", "?dry-run=true", "?wait=1"] {
        let path = format!("{WEB}{query}");
        let (pointer, message) = fault(&world.refused("PUT", &path, &redirect("tarp"), 422));
        assert_eq!(pointer, "/policy/pfw/rules/1/egress");
        assert_eq!(
            message,
            "the device `edge`, which serves this tenant, has no port `tarp` (it has ports `trap`, `tap`); \
             name one that it has, or add it to `ports` of its host file and start it again"
        );
        let (pointer, message) = fault(&world.refused("PUT", &path, &on_link(&json!(["wan", "lan"])), 422));
        assert_eq!(pointer, "/policy/link/1");
        assert!(
            message
                .contains("`edge`, which serves this tenant, has no link `lan` (it has links `wan`, `dmz`)"),
            "{message}"
        );
        let (pointer, _) = fault(&world.refused("PUT", &path, &on_link(&json!("lan")), 422));
        assert_eq!(pointer, "/policy/link", "one without brackets");
    }
    // The policy is unchanged; devices of other tenants are not checked.
    assert_eq!(world.get(WEB)["spec"]["policy"]["link"], json!(["wan", "dmz"]));
    world.do_it("PUT", "/v1/tenants/other/policies/web", &on_link(&json!("lan")));
    // One rule without brackets.
    let one = json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop", "rules": { "redirect": "tcp", "egress": "tarp" } } } });
    let reply = world.ask("PUT", WEB, &one);
    assert_eq!(reply.status, 422, "{}", reply.value());
}

#[test]
fn what_a_device_has_is_known_while_it_is_away_and_gone_with_it() {
    let world = world();
    says(&world, "edge", &["wan"], &["trap"], false);
    let (_, message) = fault(&world.refused("PUT", WEB, &redirect("tarp"), 422));
    assert!(
        message.contains("(it has port `trap`), as it reported when it was last connected; name"),
        "{message}"
    );
    let view = world.get("/v1/devices/edge")["status"]["interfaces"].clone();
    assert_eq!(view, json!({ "links": ["wan"], "ports": ["trap"], "missing": [] }));
    // A second device that serves the tenant and does not have it.
    world.device("core", &json!({ "tenants": ["*"] }));
    says(&world, "core", &["wan"], &[], true);
    let (_, message) = fault(&world.refused("PUT", WEB, &redirect("trap"), 422));
    assert!(
        message.starts_with("the device `core`, which serves this tenant, has no port `trap`; name one"),
        "{message}"
    );
    let (_, message) = fault(&world.refused("PUT", WEB, &redirect("tarp"), 422));
    assert!(message.contains("has no port `tarp`; nor has device `edge`; name"), "{message}");
    // A later device of the same name has reported nothing.
    world.do_it("DELETE", "/v1/devices/core", &Value::Null);
    world.device("core", &json!({ "tenants": ["acme"] }));
    let done = world.do_it("PUT", WEB, &redirect("trap"));
    assert_eq!(
        done["notes"],
        json!(["port `trap` was not checked for device `core`, which has not connected yet"])
    );
    assert_eq!(world.get("/v1/devices/core")["status"]["interfaces"], Value::Null);
}

#[test]
fn what_could_not_be_checked_is_said_by_name() {
    let world = World::new();
    world.tenant("acme", 1);
    for name in ["a", "b"] {
        world.device(name, &json!({ "tenants": ["*"] }));
    }
    let done = world.do_it("PUT", &format!("{WEB}?dry-run=true"), &redirect("trap"));
    let note = "port `trap` was not checked for devices `a`, `b`, each of which has not connected yet";
    assert_eq!(done["notes"], json!([note]));
    // An agent that does not report its ports; its links are those of its workers, while it is connected.
    let workers = vec![WorkerReport { link: "wan".to_owned(), worker: 0, generation: 1 }];
    let older = DeviceStatus { seen: 1, workers, ..DeviceStatus::default() };
    let session = json!({ "connected": true, "since": 1, "address": "here", "software": "old" });
    let session = |device: &str| Status {
        kind: "sessions".to_owned(),
        id: device.to_owned(),
        body: Some(session.clone()),
    };
    world.api.controller.show(&[older.line("a"), session("a"), older.line("b"), session("b")]);
    let done = world.do_it("PUT", WEB, &redirect("trap"));
    let why = "each of which has an agent that does not report its links and ports; update the agent";
    assert_eq!(done["notes"], json!([format!("port `trap` was not checked for devices `a`, `b`, {why}")]));
    let (_, message) = fault(&world.refused("PUT", WEB, &on_link(&json!("dmz")), 422));
    assert!(message.contains("no link `dmz` (it has link `wan`); nor has device `b`"), "{message}");
    // A policy that names none has nothing to be checked.
    let done = world.do_it("PUT", WEB, &json!({ "policy": { "chain": [] } }));
    assert_eq!(done.get("notes"), None);
}

#[test]
fn tenants_settings_and_devices_are_checked_alike() {
    let world = world();
    let tenant = |more: Value| {
        let mut body = json!({ "select": { "vni": 1 } });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let select = json!({ "select": { "vni": 1, "link": ["lan"] } });
    let (pointer, _) = fault(&world.refused("PUT", "/v1/tenants/acme", &select, 422));
    assert_eq!(pointer, "/select/link/0");
    let ports = tenant(json!({ "ports": ["trap", "tarp"] }));
    let (pointer, message) = fault(&world.refused("PUT", "/v1/tenants/acme", &ports, 422));
    assert_eq!(pointer, "/ports/1");
    assert!(
        message
            .contains("no device that serves this tenant has a port `tarp` (they have ports `tap`, `trap`)"),
        "{message}"
    );
    world.do_it("PUT", "/v1/tenants/acme", &tenant(json!({ "ports": ["trap"] })));
    // The default goes to all devices: to `far` as well, which has no port.
    let rules = json!([{ "redirect": "tcp", "egress": "trap" }]);
    let default =
        json!({ "action": "allow", "chain": ["pfw"], "pfw": { "default": "drop", "rules": rules } });
    let (pointer, message) = fault(&world.refused("PUT", "/v1/settings/default", &default, 422));
    assert_eq!(pointer, "/pfw/rules/0/egress");
    assert!(message.starts_with("the device `far` has no port `trap`; name"), "{message}");
    // A device that begins to serve a tenant whose policies name a port it lacks.
    world.do_it("PUT", WEB, &redirect("trap"));
    for tenants in [json!(["other", "acme"]), json!(["other", "*"])] {
        let (pointer, message) =
            fault(&world.refused("PUT", "/v1/devices/far", &json!({ "tenants": tenants }), 422));
        assert_eq!(pointer, "/tenants/1");
        assert!(message.contains("`far` has no port `trap`, named by policy `acme/web` at /policy/pfw/rules/1/egress; it has none"), "{message}");
    }
    // Whom it serves already keeps it from no other change.
    says(&world, "edge", &["wan"], &[], true);
    world.device("edge", &json!({ "tenants": ["acme"], "description": "again" }));
}

#[test]
fn a_way_back_is_not_blocked_and_says_what_devices_do_not_have() {
    let world = world();
    world.do_it("PUT", WEB, &redirect("trap"));
    let before = world.generation();
    world.do_it("PUT", WEB, &redirect("tap"));
    says(&world, "edge", &["wan"], &["tap"], true);
    let restored = world.do_it("POST", &format!("/v1/generations/{before}/restore"), &Value::Null);
    let note = restored["notes"][0].as_str().unwrap();
    assert!(note.starts_with("policies `acme/web` /policy/pfw/rules/1/egress: the device `edge`"), "{note}");
    assert!(note.contains("has no port `trap` (it has port `tap`)"), "{note}");
}

#[test]
fn a_tenants_token_sees_none_of_a_devices_names_but_its_own() {
    let world = world();
    world.do_it(
        "PUT",
        "/v1/tenants/acme",
        &json!({ "select": { "vni": 1, "link": ["wan"] }, "ports": ["trap"] }),
    );
    let token = world.token("operator", Some("acme"), None);
    let put = |body: Value| {
        let with = With { token: Some(token.clone()), ..With::default() };
        world.send("PUT", WEB, body.to_string().into_bytes(), with)
    };
    let said = |reply: Reply| fault(&reply.value()).1;
    // One that the device has and one that it does not have are answered alike.
    let [has, lacks] = ["tap", "tarp"].map(|port| said(put(redirect(port))).replace(port, "PORT"));
    assert_eq!(has, lacks);
    let message = said(put(on_link(&json!("lan"))));
    assert!(message.contains("(it has link `wan`)") && !message.contains("dmz"), "{message}");
    says(&world, "edge", &["wan"], &["other"], true);
    let message = said(put(redirect("trap")));
    assert!(message.contains("has no port `trap`; name") && !message.contains("other`"), "{message}");
}

#[test]
fn a_device_that_connects_without_them_is_named_and_tried_anew_when_it_has_them() {
    let world = World::new();
    world.tenant("acme", 1);
    world.device("edge", &json!({ "tenants": ["acme"] }));
    world.do_it("PUT", WEB, &redirect("trap"));
    let folder = std::env::temp_dir().join(format!("bartizan-interfaces-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut office = office(&world, &folder);
    let edge = DeviceId::new("edge").unwrap();
    let has = |ports: &[&str]| Interfaces {
        links: vec!["wan".to_owned()],
        ports: ports.iter().map(|port| (*port).to_owned()).collect(),
    };
    office.interfaces(&edge, &has(&["tap"])).unwrap();
    let status = world.get("/v1/devices/edge")["status"].clone();
    let missing = "port `trap`, named by policy `acme/web` at /policy/pfw/rules/1/egress";
    assert_eq!(status["interfaces"], json!({ "links": ["wan"], "ports": ["tap"], "missing": [missing] }));
    let counted = || {
        let metrics = world.send("GET", "/v1/metrics", Vec::new(), With::default());
        let text = String::from_utf8(metrics.body).unwrap();
        let line = text.lines().find(|line| line.contains("\"interfaces-missing\"")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(counted(), 1);
    // The device refuses the policy, and runs without it; after a start with the port it gets the policy
    // again.
    let refused =
        DeviceStatus { state: State::Refused, ..DeviceStatus::of(&world.api.controller.model(), "edge") };
    let blame = [("acme".to_owned(), vec!["acme/web: no port `trap`".to_owned()])].into();
    let held = refused.hold_back(&blame, 1).unwrap();
    let number = held.number();
    world.api.controller.show(&[held.line("edge")]);
    office.interfaces(&edge, &has(&["tap"])).unwrap();
    assert_eq!(DeviceStatus::of(&world.api.controller.model(), "edge").number(), number, "nothing is new");
    office.interfaces(&edge, &has(&["tap", "trap"])).unwrap();
    let now = DeviceStatus::of(&world.api.controller.model(), "edge");
    assert!(now.number() > number && now.held_back.is_empty() && !now.chosen);
    assert_eq!(world.get("/v1/devices/edge")["status"]["interfaces"]["missing"], json!([]));
    assert_eq!(counted(), 2);
    // The agent is replaced by an older one, which does not report links and ports.
    let hello = Hello {
        versions: vec![1, 2, 3, 4],
        device: edge.clone(),
        instance: 1,
        generation: 0,
        manifest: Manifest::default().hash(),
        refused: 0,
        software: "old".to_owned(),
    };
    office.began(&edge, &hello, "here");
    assert_eq!(world.get("/v1/devices/edge")["status"]["interfaces"], Value::Null);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The backend of sessions, with an authority in a folder of the test.
fn office(world: &World, folder: &Path) -> DeviceBackend {
    let (own, _) = Own::open(folder, &folder.join("ca"), "controller", 1_000).unwrap();
    let revocations = Revocations::new(own.authority.clone()).unwrap();
    let controller = Arc::clone(&world.api.controller);
    DeviceBackend::new(controller, own, revocations, Arc::new(|| 1_000), Arc::default(), |_| ()).unwrap()
}

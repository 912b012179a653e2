// SPDX-License-Identifier: Apache-2.0
//! Every route with every kind of token. The permissions are repeated here by path, so that a new route needs
//! a review.

use crate::common;

use bartizan_controller::Settings;
use bartizan_controller::access::{Rate, Secret};
use bartizan_controller::rest::Method;
use bartizan_controller::store::MemoryStore;
use common::{With, World};
use serde_json::json;

/// The callers of the test that may use a route: a letter each, as in [`callers`].
fn may(method: Method, path: &str) -> &'static str {
    let reads = method == Method::Get;
    match path {
        "/v1/openapi.json" => "ARZorpsde",
        "/v1/tokens" if method == Method::Post => "AZ",
        p if p.starts_with("/v1/tokens") || p == "/v1/audit" => "A",
        "/v1/tenants" if reads => "AR",
        "/v1/tenants/{tenant}" => {
            if reads {
                "ARor"
            } else {
                "A"
            }
        }
        p if p.starts_with("/v1/tenants/{tenant}/") => {
            if reads {
                "ARor"
            } else {
                "Ao"
            }
        }
        "/v1/devices" if reads => "AR",
        "/v1/devices/{device}" => {
            if reads {
                "ARd"
            } else {
                "A"
            }
        }
        "/v1/devices/{device}/policy" => "ARd",
        "/v1/devices/{device}/statistics" if reads => "ARd",
        "/v1/devices/{device}/enrolment" | "/v1/devices/{device}/functions/{function}" => "A",
        p if p.starts_with("/v1/devices/{device}/") => "Ad",
        _ => {
            if reads {
                "AR"
            } else {
                "A"
            }
        }
    }
}

/// All callers: administrator, reader of all, bootstrap, operator and reader of the path's tenant, operator
/// and reader of another tenant, the path's device, another device; an expired, a revoked and an unknown
/// token, no token.
fn callers(world: &World) -> Vec<(char, String)> {
    let expired = json!({ "name": "old", "scope": "admin", "expires": common::NOW });
    let revoked = world.token("admin", None, None);
    let id = revoked.split('_').nth(1).unwrap().to_owned();
    world.do_it("DELETE", &format!("/v1/tokens/{id}"), &json!(null));
    vec![
        ('A', world.token("admin", None, None)),
        ('R', world.token("reader", None, None)),
        ('o', world.token("operator", Some("acme"), None)),
        ('r', world.token("reader", Some("acme"), None)),
        ('p', world.token("operator", Some("other"), None)),
        ('s', world.token("reader", Some("other"), None)),
        ('d', world.token("device", None, Some("edge"))),
        ('e', world.token("device", None, Some("edge-2"))),
        ('x', world.do_it("POST", "/v1/tokens", &expired)["token"].as_str().unwrap().to_owned()),
        ('v', revoked),
        ('n', format!("btz_{:016x}_{:064x}", 1, 2)),
        ('0', String::new()),
    ]
}

fn world() -> World {
    let world = World::new();
    world.tenant("acme", 1);
    world.tenant("other", 2);
    world.device("edge", &json!({ "tenants": ["acme"] }));
    world.device("edge-2", &json!({ "tenants": ["other"] }));
    world
}

#[test]
fn every_route_lets_in_whom_it_should_and_nobody_else() {
    let world = world();
    let callers = callers(&world);
    for route in world.api.routes() {
        let path = route.path.replace("{tenant}", "acme").replace("{device}", "edge");
        let path = path.replace("{rule-file}", &"0".repeat(64)).replace("{generation}", "1");
        let path = path.split('/').map(|part| if part.starts_with('{') { "none-such" } else { part });
        let path = path.collect::<Vec<_>>().join("/");
        for (letter, token) in &callers {
            let before = world.generation();
            // A malformed body: an admitted request changes nothing either. Routes without a body use names
            // of missing resources, except for the administrator's.
            let body = if route.body.is_some() { b"[".to_vec() } else { Vec::new() };
            let admitted = may(route.method, &route.path).contains(*letter);
            if admitted && route.method != Method::Get && route.body.is_none() {
                continue;
            }
            let with = With { token: Some(token.clone()), ..With::default() };
            let reply = world.send(route.method.name(), &path, body, with);
            let what =
                format!("{} {} as {letter}: {} {}", route.method.name(), path, reply.status, reply.value());
            match (admitted, letter) {
                (true, _) => assert!(!matches!(reply.status, 401 | 403 | 405 | 429), "{what}"),
                (false, 'x' | 'v' | 'n' | '0') => assert!(matches!(reply.status, 401 | 429), "{what}"),
                (false, _) => assert_eq!(reply.status, 403, "{what}"),
            }
            assert_eq!(world.generation(), before, "{what}");
        }
    }
}

#[test]
fn a_tenant_sees_and_touches_only_its_own() {
    let world = world();
    let group = json!({ "members": ["10.0.0.0/8"] });
    world.do_it("PUT", "/v1/tenants/acme/groups/lan", &group);
    let token = Some(world.token("operator", Some("other"), None));
    let send = |method, path: &str, body: &serde_json::Value| {
        world.send(
            method,
            path,
            body.to_string().into_bytes(),
            With { token: token.clone(), ..With::default() },
        )
    };
    // The answer is the same for existing and missing resources.
    for path in
        ["/v1/tenants/acme/groups/lan", "/v1/tenants/acme/groups/wan", "/v1/tenants/nobody/groups/lan"]
    {
        for method in ["GET", "PUT", "DELETE"] {
            let reply = send(method, path, &group);
            assert_eq!(
                (reply.status, reply.value()["detail"].as_str().unwrap()),
                (403, "the token's rights do not suffice; ask an administrator for a token with more")
            );
        }
    }
    // Its own names are its own.
    assert_eq!(
        send("PUT", "/v1/tenants/other/groups/lan", &json!({ "members": ["192.0.2.0/24"] })).status,
        201
    );
    assert_eq!(world.get("/v1/tenants/acme/groups/lan")["spec"], group);
    // Another tenant's group cannot be named.
    let policy = json!({ "policy": { "from": "acme/lan", "chain": [] } });
    assert_eq!(send("PUT", "/v1/tenants/other/policies/a", &policy).status, 422);
    // Refused attempts are in the audit log, with the token that made them.
    let rows = world.get("/v1/audit?limit=500");
    let id = token.as_deref().unwrap().split('_').nth(1).unwrap();
    let refused = rows["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["who"] == id && row["action"].as_str().unwrap().starts_with("refused: "));
    assert_eq!(refused.count(), 6);
}

#[test]
fn failures_are_limited_by_source_and_hold_up_nobody_who_is_known() {
    let world = world();
    let wrong = |source: &str| {
        let with = With {
            token: Some("btz_wrong".to_owned()),
            source: Some(source.parse().unwrap()),
            ..With::default()
        };
        world.send("GET", "/v1/tenants", Vec::new(), with)
    };
    let statuses: Vec<u16> = (0..12).map(|_| wrong("192.0.2.1").status).collect();
    assert_eq!(statuses, [[401; 10].as_slice(), &[429; 2]].concat());
    assert!(wrong("192.0.2.1").fields.iter().any(|(name, value)| *name == "retry-after" && value == "6"));
    assert_eq!(wrong("2001:db8::1").status, 401);
    let with = With { source: Some("192.0.2.1".parse().unwrap()), ..With::default() };
    assert_eq!(world.send("GET", "/v1/tenants", Vec::new(), with).status, 200);
    // Jumps of the wall clock, either way, neither end nor prolong the wait; elapsed time does.
    for jump in [0, 2 * common::NOW, common::NOW] {
        world.clock.set(jump);
        assert_eq!(wrong("192.0.2.1").status, 429);
    }
    world.clock.pass(7_000_000);
    assert_eq!(wrong("192.0.2.1").status, 401);
    let metrics =
        String::from_utf8(world.send("GET", "/v1/metrics", Vec::new(), With::default()).body).unwrap();
    assert!(metrics.contains("{what=\"limited\"} 6\n"), "{metrics}");
    assert!(metrics.contains("{what=\"unauthenticated\"} 12\n"), "{metrics}");
}

#[test]
fn a_tenant_changes_so_much_at_once_and_holds_up_no_other() {
    let settings = Settings { writes: Rate { burst: 3, refill: 2_000_000 }, ..Settings::default() };
    let world = World::with(Box::new(MemoryStore::default()), settings);
    world.tenant("acme", 1);
    world.tenant("other", 2);
    let tokens =
        [("acme", 1), ("acme", 2), ("other", 3)].map(|(of, _)| world.token("operator", Some(of), None));
    let put = |token: &str, tenant: &str, n: u32| {
        let body = json!({ "members": [format!("10.0.0.{n}")] }).to_string().into_bytes();
        let with = With { token: Some(token.to_owned()), ..With::default() };
        world.send("PUT", &format!("/v1/tenants/{tenant}/groups/lan"), body, with)
    };
    // All tokens of a tenant together.
    let statuses: Vec<u16> = (0..4).map(|n| put(&tokens[n as usize % 2], "acme", n).status).collect();
    assert_eq!(statuses, [201, 200, 200, 429]);
    let before = world.generation();
    let late = put(&tokens[0], "acme", 9);
    assert!(late.fields.contains(&("retry-after", "2".to_owned())), "{:?}", late.fields);
    assert_eq!(
        (late.value()["type"].as_str(), world.generation()),
        (Some("urn:bartizan:problem:often"), before)
    );
    // It reads on, others and administrators write on.
    let with = With { token: Some(tokens[0].clone()), ..With::default() };
    assert_eq!(world.send("GET", "/v1/tenants/acme/groups/lan", Vec::new(), with).status, 200);
    assert_eq!(put(&tokens[2], "other", 1).status, 201);
    for n in 10..20 {
        assert_eq!(put(&world.token, "acme", n).status, 200);
    }
    world.clock.pass(2_000_000);
    assert_eq!([put(&tokens[1], "acme", 20).status, put(&tokens[0], "acme", 21).status], [200, 429]);
    let metrics = world.send("GET", "/v1/metrics", Vec::new(), With::default());
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(metrics.contains("{what=\"often\"} 3\n"), "{metrics}");
}

#[test]
fn what_changes_nothing_is_not_charged_and_what_is_refused_is() {
    let settings = Settings { writes: Rate { burst: 3, refill: 2_000_000 }, ..Settings::default() };
    let world = World::with(Box::new(MemoryStore::default()), settings);
    world.tenant("acme", 1);
    let token = world.token("operator", Some("acme"), None);
    let ask = |method: &str, group: &str, body: &str| {
        let with = With { token: Some(token.clone()), ..With::default() };
        world.send(method, &format!("/v1/tenants/acme/groups/{group}"), body.into(), with).status
    };
    let lan = r#"{"members": ["10.0.0.1"]}"#;
    assert_eq!(ask("PUT", "lan", lan), 201);
    for _ in 0..5 {
        assert_eq!(ask("PUT", "lan", lan), 200);
        assert_eq!(ask("DELETE", "none", ""), 404);
    }
    // Checks take time of the controller, whatever comes of them.
    assert_eq!(ask("PUT", "lan", r#"{"members": ["10.0.0.1/8"]}"#), 422);
    assert_eq!(ask("PUT", "lan?dry-run=true", lan), 200);
    assert_eq!([ask("PUT", "lan", lan), ask("DELETE", "none", "")], [429, 429]);
    world.clock.pass(2_000_000);
    assert_eq!(
        [ask("DELETE", "none", ""), ask("DELETE", "lan", ""), ask("DELETE", "lan", "")],
        [404, 200, 429]
    );
}

#[test]
fn a_tenants_token_redirects_to_ports_only_that_it_was_given() {
    let world = world();
    let operator = world.token("operator", Some("acme"), None);
    let policy = |ports: &[&str]| {
        let rules: Vec<_> = ports.iter().map(|port| json!({ "redirect": "tcp", "egress": port })).collect();
        json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop", "rules": rules } } })
    };
    let put = |token: &str, name: &str, ports: &[&str]| {
        let with = With { token: Some(token.to_owned()), ..With::default() };
        let path = format!("/v1/tenants/acme/policies/{name}");
        world.send("PUT", &path, policy(ports).to_string().into_bytes(), with)
    };
    let refused = put(&operator, "web", &["tap"]);
    assert_eq!(refused.status, 422);
    assert_eq!(refused.value()["errors"][0]["pointer"], "/policy/pfw/rules/0/egress");
    // An administrator may add the port; the tenant may then write the policy again, unchanged.
    assert_eq!(put(&world.token, "web", &["tap"]).status, 201);
    assert_eq!(put(&operator, "web", &["tap", "tap"]).status, 200);
    assert_eq!(
        put(&operator, "web", &["tap", "other"]).value()["errors"][0]["pointer"],
        "/policy/pfw/rules/1/egress"
    );
    assert_eq!(put(&operator, "new", &["tap"]).status, 422);
    world.do_it("PUT", "/v1/tenants/acme", &json!({ "select": { "vni": 1 }, "ports": ["tap"] }));
    assert_eq!(put(&operator, "new", &["tap"]).status, 201);
    // It is the controller's own matter.
    assert_eq!(world.get("/v1/devices/edge/policy")["policy"]["tenants"][0].get("ports"), None);
}

#[test]
fn the_bootstrap_token_makes_one_administrator_and_is_gone() {
    use bartizan_controller::clock::ManualClock;
    use bartizan_controller::fleet::MemoryFleet;
    use bartizan_controller::{Api, Controller, resources};
    use std::sync::Arc;
    let store = Box::new(MemoryStore::default());
    let (clock, fleet) = (Arc::new(ManualClock::default()), Arc::new(MemoryFleet::default()));
    let controller = Controller::new(store, clock.clone(), fleet.clone(), Settings::default()).unwrap();
    let keep = |secret: &Secret| Ok::<_, ()>(secret.reveal());
    let token = controller.bootstrap(false, keep).unwrap().unwrap().unwrap();
    assert!(controller.bootstrap(false, keep).unwrap().is_none() && controller.bootstraps());
    let api = Api::new(Arc::new(controller), resources::routes());
    let world = World { api, clock, fleet, token };
    world.refused("GET", "/v1/tenants", &json!(null), 403);
    world.refused("POST", "/v1/tokens", &json!({ "name": "me", "scope": "reader" }), 422);
    world.do_it("POST", "/v1/tokens", &json!({ "name": "me", "scope": "admin" }));
    world.refused("POST", "/v1/tokens", &json!({ "name": "me", "scope": "admin" }), 401);
    assert!(!world.api.controller.bootstraps());
}

#[test]
fn administrators_do_not_lock_themselves_out() {
    let mut world = World::new();
    let keep = |secret: &Secret| Ok::<_, ()>(secret.reveal());
    let id = |token: &str| token.split('_').nth(1).unwrap().to_owned();
    let soon = json!({ "name": "soon", "scope": "admin", "expires": common::NOW + 1_000 });
    world.do_it("POST", "/v1/tokens", &soon);
    world.clock.set(common::NOW + 1_000);
    // One whose time is over is no other administrator's.
    let own = format!("/v1/tokens/{}", id(&world.token));
    let refused = world.refused("DELETE", &own, &json!(null), 409);
    assert!(
        refused["detail"].as_str().unwrap().contains("the last valid token of an administrator"),
        "{refused}"
    );
    // The only one ends by itself: the next start makes a way back in, once.
    let later = json!({ "name": "later", "scope": "admin", "expires": common::NOW + 5_000 });
    let later = world.do_it("POST", "/v1/tokens", &later)["token"].as_str().unwrap().to_owned();
    world.do_it("DELETE", &own, &json!(null));
    world.token = later;
    assert!(world.api.controller.bootstrap(false, keep).unwrap().is_none(), "it is good yet");
    world.clock.set(common::NOW + 5_000);
    world.token = world.api.controller.bootstrap(false, keep).unwrap().unwrap().unwrap();
    assert!(world.api.controller.bootstrap(false, keep).unwrap().is_none(), "one is there");
    world.token = world.token("admin", None, None);
    world.get("/v1/tokens");
    assert!(!world.api.controller.bootstraps());
    // An operator who has lost the token requests another; of two such tokens the last is valid.
    let first = world.api.controller.bootstrap(true, keep).unwrap().unwrap().unwrap();
    let second = world.api.controller.bootstrap(true, keep).unwrap().unwrap().unwrap();
    world.token = first;
    world.refused("POST", "/v1/tokens", &json!({ "name": "me", "scope": "admin" }), 401);
    world.token = second;
    world.do_it("POST", "/v1/tokens", &json!({ "name": "me", "scope": "admin" }));
}

#[test]
fn a_device_that_is_gone_leaves_no_token_to_one_that_comes_by_its_name() {
    let world = world();
    let token = world.token("device", None, Some("edge"));
    let refused = world.refused("DELETE", "/v1/devices/edge", &json!(null), 409);
    assert_eq!(refused["detail"], "the device still has tokens; revoke them first");
    let id = token.split('_').nth(1).unwrap();
    world.do_it("DELETE", &format!("/v1/tokens/{id}"), &json!(null));
    world.do_it("DELETE", "/v1/devices/edge", &json!(null));
}

#[test]
fn who_waits_is_told_of_its_own_tenant_only() {
    let world = world();
    // The only device that is waited for.
    world.do_it("DELETE", "/v1/devices/edge", &json!(null));
    world.device("both", &json!({ "tenants": ["acme", "other"] }));
    let lines =
        ["acme/web /policy/chain/0: no function", "other/secret /policy/from: no group", "and 3 more"];
    let refuses = |generation: u64| {
        let body = json!({ "generation": generation, "accepted": false, "diagnostics": lines });
        world.do_it("POST", "/v1/devices/both/acknowledgements", &body);
    };
    let ask = |token: &str, member: &str| {
        let body = json!({ "members": [member] }).to_string().into_bytes();
        let with = With { token: Some(token.to_owned()), ..With::default() };
        let next = world.generation() + 1;
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| world.send("PUT", "/v1/tenants/acme/groups/lan?wait=20", body, with));
            while world.generation() < next {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            refuses(next);
            waits.join().unwrap().value()
        })
    };
    let operator = world.token("operator", Some("acme"), None);
    let told = ask(&operator, "10.0.0.0/8");
    assert_eq!(
        told["answers"]["both"]["diagnostics"],
        json!([
            lines[0],
            "for a reason that lies outside this tenant; an administrator sees it in the device's diagnostics"
        ])
    );
    let all = ask(&world.token, "10.0.0.0/9");
    assert_eq!(all["answers"]["both"]["diagnostics"], json!(lines));
}

// SPDX-License-Identifier: Apache-2.0
//! Resources: checks with pointers, tags, pages, dry run, generations and the way back, roll-outs, the
//! policies of devices.

use crate::common;

use common::{With, World};
use serde_json::{Value, json};

fn pointers(problem: &Value) -> Vec<String> {
    let errors = problem["errors"].as_array().cloned().unwrap_or_default();
    errors
        .iter()
        .map(|e| format!("{}: {}", e["pointer"].as_str().unwrap(), e["message"].as_str().unwrap()))
        .collect()
}

#[test]
fn what_is_wrong_has_its_pointer_and_says_what_to_do() {
    let world = World::new();
    world.tenant("acme", 1);
    world.do_it("PUT", "/v1/tenants/acme/groups/lan", &json!({ "members": ["10.0.0.0/8"] }));
    let policy = "/v1/tenants/acme/policies/web";
    let cases = [
        (
            policy,
            json!({ "policy": { "from": "lann", "chain": ["pfww"] } }),
            vec![
                "/policy/chain/0: there is no function `pfww`; did you mean `pfw`?",
                "/policy/from: there is no group `lann`; did you mean `lan`?",
            ],
        ),
        (
            policy,
            json!({ "policy": { "chain": ["ids", "pfw"], "pfw": { "default": "drop" } } }),
            vec!["/policy/chain: these functions run in another order; write `chain: [pfw, ids]`"],
        ),
        (
            policy,
            json!({ "policy": { "chain": ["pfw", "pfw"], "pfw": { "default": "drop" } } }),
            vec!["/policy/chain/1: the chain has `pfw` twice; remove one"],
        ),
        (
            policy,
            json!({ "polcy": {} }),
            vec![
                "/polcy: the key `polcy` is not known; did you mean `policy`?",
                ": the key `policy` is missing; add it",
            ],
        ),
        (
            policy,
            json!({ "policy": { "name": "x", "chain": [] } }),
            vec!["/policy/name: the path gives it; remove `name`"],
        ),
        (
            policy,
            json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "dropp", "rules": [] } } }),
            vec!["/policy/pfw/default: `dropp` is not known here; did you mean `drop`?"],
        ),
        (
            policy,
            json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop", "rules": [
                { "allow": "tcp", "from": "wan" }, { "allow": "tcp", "tenant": "other" }
            ] } } }),
            vec![
                "/policy/pfw/rules/0/from: there is no group `wan`; did you mean `lan`?",
                "/policy/pfw/rules/1/tenant: a policy belongs to the tenant of its path; remove `tenant`",
            ],
        ),
        (
            policy,
            json!({ "policy": { "chain": ["ids"], "ids": { "rules": ["/etc/passwd"], "level": "web" } } }),
            vec![
                "/policy/ids/rules: a controller has rule files in libraries; name a library by `level`, and remove `rules`",
                "/policy/ids/level: there is no library `web`; known: `none`",
            ],
        ),
        (
            "/v1/tenants/b",
            json!({ "select": {} }),
            vec![": the tenant selects no traffic; add `vni`, `vlan`, `link` or `prefixes`"],
        ),
        (
            "/v1/tenants/b",
            json!({ "select": { "vlan": [] } }),
            vec!["/select/vlan: this list is empty, so it selects nothing; add an item, or remove the key"],
        ),
        (
            policy,
            json!({ "policy": { "chain": ["pfw"], "from": [], "pfw": { "default": "drop" } } }),
            vec!["/policy/from: this list is empty, so it selects nothing; add an item, or remove the key"],
        ),
        (
            policy,
            json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop", "rules": [{ "allow": "tcp", "to": [] }] } } }),
            vec![
                "/policy/pfw/rules/0/to: this list is empty, so it selects nothing; add an item, or remove the key",
            ],
        ),
        (
            "/v1/tenants/b",
            json!({ "select": { "vni": 1 }, "order": 2000 }),
            vec![
                "/select/vni: VNI 1 of tenant `b` never matches: its traffic belongs to tenant `acme`, which is tried first; remove it from one \
                 of them",
            ],
        ),
        (
            "/v1/tenants/b",
            json!({ "select": { "vlan": [1, 5000] } }),
            vec!["/select/vlan/1: VLAN 5000 does not exist; give an id from 1 to 4094"],
        ),
        (
            "/v1/tenants/b",
            json!({ "select": { "vni": [2, 1] } }),
            vec![
                "/select: a packet can match this tenant and `acme`; choose selectors that do not overlap, or give one of them another \
             `order`: the lower is tried first",
            ],
        ),
        (
            "/v1/tenants/acme/groups/lan",
            json!({ "members": ["lan"] }),
            vec!["/members/0: group `lan` contains itself (lan > lan); remove it here"],
        ),
        (
            "/v1/devices/edge",
            json!({ "tenants": ["nobody"] }),
            vec!["/tenants/0: there is no tenant `nobody`; make it first, or write `*` for all"],
        ),
        (
            "/v1/settings/default",
            json!({ "action": "dorp" }),
            vec!["/action: `dorp` is not known here; did you mean `drop`?"],
        ),
        (
            "/v1/settings/default",
            json!({ "action": "allow", "chain": ["ids", "sfw"] }),
            vec!["/chain: these functions run in another order; write `chain: [sfw, ids]`"],
        ),
        (
            "/v1/settings/default",
            json!({ "action": "allow", "chain": ["ids"], "ids": { "level": "nosuch", "rules": ["/etc/passwd"] } }),
            vec![
                "/ids/level: there is no library `nosuch`; known: `none`",
                "/ids/rules: a controller has rule files in libraries; name a library by `level`, and remove `rules`",
            ],
        ),
        (
            "/v1/settings/default",
            json!({ "action": "allow", "chain": ["pfw"], "pfw": { "default": "drop", "rules": [{ "allow": "tcp", "from": "lan@acme" }] } }),
            vec!["/pfw/rules/0/from: there is no group `lan@acme`; none exists"],
        ),
        (
            "/v1/settings/default",
            json!({ "action": "allow", "chain": ["sfw"], "sfw": { "midstraem": true } }),
            vec!["/sfw/midstraem: the key `midstraem` is not known; did you mean `midstream`?"],
        ),
        (
            "/v1/libraries/web",
            json!({ "files": ["x"], "choose": [{}] }),
            vec![
                "/files/0: there is no such rule file; upload it first",
                "/choose/0: add `sids`, `category` or `metadata`; without `choose` the library has all rules",
            ],
        ),
    ];
    let before = world.generation();
    for (path, body, expected) in cases {
        let mut found = pointers(&world.refused("PUT", path, &body, 422));
        found.sort();
        let mut expected = expected.into_iter().map(str::to_owned).collect::<Vec<_>>();
        expected.sort();
        assert_eq!(found, expected, "{path} {body}");
    }
    assert_eq!(world.generation(), before);
}

#[test]
fn names_queries_bodies_and_methods_are_checked() {
    let world = World::new();
    world.tenant("acme", 1);
    let body = json!({ "select": { "vni": 2 } });
    for name in ["A", "a%2Fb", "%ff", "", "-a", &"a".repeat(65)] {
        let reply = world.ask("PUT", &format!("/v1/tenants/{name}"), &body);
        assert!(matches!(reply.status, 400 | 404), "{name}: {}", reply.status);
    }
    world.refused("GET", "/v1/tenants?limt=1", &Value::Null, 400);
    world.refused("GET", "/v1/tenants?limit=0", &Value::Null, 400);
    world.refused("GET", "/v1/tenants?limit=1&limit=1", &Value::Null, 400);
    world.refused("GET", "/v1/tenants?cursor=zz", &Value::Null, 400);
    world.refused("PUT", "/v1/tenants/b?dry-run=yes", &body, 400);
    world.refused("PATCH", "/v1/tenants/b", &body, 405);
    world.refused("GET", "/v2/tenants", &Value::Null, 404);
    let send = |body: &[u8], kind: &str| {
        let fields = vec![("content-type", kind.to_owned())];
        world.send("PUT", "/v1/tenants/b", body.to_vec(), With { fields, ..With::default() }).status
    };
    assert_eq!(send(b"{", "application/json"), 400);
    assert_eq!(send(b"[]", "application/json"), 422);
    assert_eq!(send(b"\xff", "application/yaml"), 400);
    assert_eq!(send(b"a: [", "application/yaml"), 400);
    assert_eq!(send(b"<a/>", "text/xml"), 415);
    assert_eq!(send(&vec![b' '; (1 << 20) + 1], "application/json"), 413);
    assert_eq!(send(&b"[".repeat(100_000), "application/json"), 400);
    assert_eq!(send(b"select:\n  vni: 2\n", "application/yaml; charset=utf-8"), 201);
    // One key twice: a check might read the one, a device the other.
    for (kind, text) in [
        ("application/json", r#"{"select": {"vni": 2, "vni": 3}}"#),
        ("application/yaml", "select:\n  vni: 2\n  vni: 3\n"),
    ] {
        let with = With { fields: vec![("content-type", kind.to_owned())], ..With::default() };
        let reply = world.send("PUT", "/v1/tenants/b", text.into(), with);
        assert_eq!(reply.status, 422, "{kind}");
        assert_eq!(pointers(&reply.value()), ["/select/vni: the key `vni` occurs twice; remove one"]);
    }
    // A few lines of aliases that mean gigabytes.
    let bomb = format!("description: &x {}\nselect: [{}]", "A".repeat(20_000), "*x, ".repeat(20_000));
    assert_eq!(send(bomb.as_bytes(), "application/yaml"), 400);
    let fields = vec![("content-encoding", "gzip".to_owned())];
    let packed = world.send("PUT", "/v1/tenants/b", vec![0x1f, 0x8b], With { fields, ..With::default() });
    assert_eq!(packed.status, 415, "{}", packed.value());
    let over = json!({ "name": "x", "scope": "reader", "expires": 5 });
    let problem = world.refused("POST", "/v1/tokens", &over, 422);
    assert_eq!(
        pointers(&problem),
        ["/expires: the time is in the past; write a later one, in RFC 3339 or in microseconds since 1970"]
    );
    // Times in text form in requests, one unit in answers.
    let soon = json!({ "name": "x", "scope": "reader", "expires": "2027-01-31T13:00:00+01:00" });
    world.do_it("POST", "/v1/tokens", &soon);
    let kept = world.get("/v1/tokens")["items"]
        .as_array()
        .unwrap()
        .iter()
        .any(|token| token["expires"] == 1_801_396_800_000_000u64);
    assert!(kept, "{}", world.get("/v1/tokens"));
    for none in [json!("2027-01-31"), json!("soon"), json!(-5), json!(1.5), json!({})] {
        let body = json!({ "name": "x", "scope": "reader", "expires": none });
        let problem = world.refused("POST", "/v1/tokens", &body, 422);
        assert!(pointers(&problem)[0].starts_with("/expires: "), "{none}: {problem}");
    }
}

#[test]
fn groups_in_groups_are_bounded_where_they_are_written() {
    let world = World::new();
    world.tenant("acme", 1);
    let put = |name: &str, members: Value| {
        world.ask("PUT", &format!("/v1/tenants/acme/groups/{name}"), &json!({ "members": members }))
    };
    assert_eq!(put("g0", json!(["10.0.0.1"])).status, 201);
    for n in 1..64 {
        assert_eq!(put(&format!("g{n}"), json!([format!("g{}", n - 1)])).status, 201, "{n}");
    }
    let deep = put("g64", json!(["g63"]));
    assert_eq!(deep.status, 422);
    let said = pointers(&deep.value()).concat();
    assert!(said.contains("groups nest deeper than 64"), "{said}");
}

#[test]
fn tags_keep_updates_from_being_lost() {
    let world = World::new();
    let path = "/v1/tenants/acme";
    let put = |body: &Value, field: &'static str, value: &str| {
        let fields = vec![(field, value.to_owned())];
        let reply =
            world.send("PUT", path, body.to_string().into_bytes(), With { fields, ..With::default() });
        let tag = reply.fields.iter().find(|(name, _)| *name == "etag").map(|(_, tag)| tag.clone());
        (reply.status, tag)
    };
    let (one, two) = (json!({ "select": { "vni": 1 } }), json!({ "select": { "vni": 2 } }));
    assert_eq!(put(&one, "if-match", "*").0, 412);
    let empty = With { fields: vec![("if-match", String::new())], ..With::default() };
    let empty = world.send("PUT", path, one.to_string().into_bytes(), empty).value();
    assert!(empty["detail"].as_str().unwrap().starts_with("`If-Match` is empty; give"), "{empty}");
    let (status, first) = put(&one, "if-none-match", "*");
    assert_eq!(status, 201);
    let first = first.unwrap();
    assert_eq!(put(&two, "if-none-match", "*").0, 412);
    let (status, second) = put(&two, "if-match", &first);
    assert_eq!(status, 200);
    assert_eq!(put(&one, "if-match", &first).0, 412);
    // The same once more is no change: same generation, same tag.
    let before = world.generation();
    assert_eq!(put(&two, "if-match", "\"1\", \"x\"").0, 412);
    assert_eq!(put(&two, "if-match", second.as_deref().unwrap()), (200, second));
    assert_eq!(world.generation(), before);
}

#[test]
fn pages_are_bounded_and_whole() {
    let world = World::new();
    for number in 0..25u32 {
        world.tenant(&format!("t{number:02}"), number + 1);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/v1/tenants?limit=10{cursor}"));
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 10);
        seen.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, (0..25).map(|n| format!("t{n:02}")).collect::<Vec<_>>());
    let rows = world.get("/v1/audit?limit=3");
    assert_eq!(rows["items"].as_array().unwrap().len(), 3);
    let next = world.get(&format!("/v1/audit?limit=500&cursor={}", rows["next"].as_str().unwrap()));
    assert_eq!(next["items"][0]["row"], 4);
}

#[test]
fn a_dry_run_says_what_would_be_and_does_nothing() {
    let world = World::new();
    world.tenant("acme", 1);
    world.tenant("other", 2);
    world.device("edge", &json!({ "tenants": ["acme"] }));
    world.device("far", &json!({ "tenants": ["other"] }));
    world.device("all", &json!({ "tenants": ["*"], "follow": "manual" }));
    world.fleet.take();
    let (before, path) = (world.generation(), "/v1/tenants/acme/policies/web");
    let body = json!({ "policy": { "chain": [] } });
    let would = world.do_it("PUT", &format!("{path}?dry-run=true"), &body);
    // printf '{"policy":{"chain":[]}}' | sha256sum
    let hash = "7e1507ad13cf7b219f3518ca3b7c8c5410a6507deadc44749feacd4f90fd2d19";
    assert_eq!(would["generation"], before + 1);
    assert_eq!(would["devices"], json!(["edge"]));
    assert_eq!(
        would["changes"],
        json!([{ "kind": "policies", "id": "acme/web", "before": null, "after": body, "hash": hash }])
    );
    assert_eq!((world.generation(), world.fleet.take()), (before, vec![]));
    world.refused("GET", path, &Value::Null, 404);
    let done = world.do_it("PUT", path, &body);
    assert_eq!(done, would);
    assert_eq!(world.fleet.take(), [("edge".to_owned(), before + 1)]);
}

#[test]
fn what_is_needed_cannot_go() {
    let world = World::new();
    world.tenant("acme", 1);
    world.do_it("PUT", "/v1/tenants/acme/groups/lan", &json!({ "members": ["10.0.0.0/8"] }));
    let policy = json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop", "rules": [{ "allow": "tcp", "to": "lan" }] } } });
    world.do_it("PUT", "/v1/tenants/acme/policies/web", &policy);
    let refused = world.refused("DELETE", "/v1/tenants/acme/groups/lan", &Value::Null, 409);
    assert!(
        refused["detail"].as_str().unwrap().contains("policy `web`: there is no group `lan`"),
        "{refused}"
    );
    world.token("reader", Some("acme"), None);
    let refused = world.refused("DELETE", "/v1/tenants/acme", &Value::Null, 409);
    assert!(refused["detail"].as_str().unwrap().contains("policies, groups, tokens"), "{refused}");
    let quota = json!({ "select": { "vni": 1 }, "quotas": { "policies": 1 } });
    world.do_it("PUT", "/v1/tenants/acme", &quota);
    world.do_it("PUT", "/v1/tenants/acme/policies/web", &json!({ "policy": { "chain": [] } }));
    let refused =
        world.refused("PUT", "/v1/tenants/acme/policies/more", &json!({ "policy": { "chain": [] } }), 409);
    assert_eq!(refused["type"], "urn:bartizan:problem:quota");
    let own = world.token.split('_').nth(1).unwrap();
    world.refused("DELETE", &format!("/v1/tokens/{own}"), &Value::Null, 409);
}

#[test]
fn a_device_is_given_a_policy_file_of_its_tenants_only() {
    let world = World::new();
    world.tenant("acme", 1);
    world.tenant("other", 2);
    for tenant in ["acme", "other"] {
        let members = json!({ "members": [if tenant == "acme" { "10.1.0.0/16" } else { "10.2.0.0/16" }] });
        world.do_it("PUT", &format!("/v1/tenants/{tenant}/groups/lan"), &members);
        let policy = json!({ "order": 7, "policy": {
            "from": ["lan", "192.0.2.0/24"], "chain": ["pfw"],
            "pfw": { "default": "drop", "rules": [{ "allow": "tcp", "to": "lan" }] },
        } });
        world.do_it("PUT", &format!("/v1/tenants/{tenant}/policies/web"), &policy);
    }
    world.do_it("PUT", "/v1/tenants/acme/policies/first", &json!({ "order": 1, "policy": { "chain": [] } }));
    world.device("edge", &json!({ "tenants": ["acme"] }));
    let given = world.get("/v1/devices/edge/policy");
    assert_eq!(given["generation"], world.generation());
    let text = given["policy"].to_string();
    assert!(!text.contains("other") && !text.contains("10.2."), "{text}");
    // It is a policy file as the agent reads one.
    let file = bartizan_config::policy::parse("given", &text, &["pfw", "sfw", "ids"]).expect(&text);
    assert_eq!(file.policies.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["acme/first", "acme/web"]);
    assert_eq!(file.policies[1].tenant.0, ["acme"]);
    assert_eq!(file.resolve(&file.policies[1].from).len(), 2);
    assert_eq!(given["policy"]["policies"][1]["pfw"]["rules"][0]["to"], "lan@acme");
    // Older policies can still be read, by generation.
    let old = world.get("/v1/devices/edge/policy?generation=2");
    assert_eq!(old["policy"]["policies"], json!([]));
}

#[test]
fn generations_are_compared_and_brought_back_and_tokens_stay_revoked() {
    let world = World::new();
    world.tenant("acme", 1);
    let path = "/v1/tenants/acme/policies/web";
    world.do_it("PUT", path, &json!({ "policy": { "chain": [] } }));
    let good = world.generation();
    world.device("edge", &json!({ "tenants": ["acme"] }));
    let token = world.token("operator", Some("acme"), None);
    world.do_it("PUT", path, &json!({ "policy": { "chain": ["ids"] } }));
    world.do_it("PUT", "/v1/tenants/acme/policies/more", &json!({ "policy": { "chain": [] } }));
    let diff = world.get(&format!("/v1/generations/{}/diff?from={good}", world.generation()));
    let changed: Vec<_> =
        diff["changes"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap()).collect();
    assert_eq!(changed, ["edge", "acme/more", "acme/web"]);
    // Of each document its own hash, and none that a token has in it.
    for change in diff["changes"].as_array().unwrap() {
        let bodies = format!("{}{}", change["before"], change["after"]);
        assert!(!bodies.contains("hash") && change["hash"].as_str().map(str::len) == Some(64), "{change}");
    }
    let id = token.split('_').nth(1).unwrap().to_owned();
    world.do_it("DELETE", &format!("/v1/tokens/{id}"), &Value::Null);
    world.fleet.take();
    let would = world.do_it("POST", &format!("/v1/generations/{good}/restore?dry-run=true"), &Value::Null);
    let done = world.do_it("POST", &format!("/v1/generations/{good}/restore"), &Value::Null);
    assert_eq!(would, done);
    assert_eq!(world.fleet.take(), [("edge".to_owned(), world.generation())]);
    assert_eq!(world.get(path)["spec"], json!({ "policy": { "chain": [] } }));
    world.refused("GET", "/v1/tenants/acme/policies/more", &Value::Null, 404);
    let with = With { token: Some(token), ..With::default() };
    assert_eq!(world.send("GET", path, Vec::new(), with).status, 401);
    world.refused("POST", "/v1/generations/999/restore", &Value::Null, 404);
    world.refused("POST", "/v1/generations/x/restore", &Value::Null, 404);
    // To before the tenant was there: the device names it.
    world.do_it("DELETE", path, &Value::Null);
    world.refused("POST", "/v1/generations/1/restore", &Value::Null, 409);
}

fn answer(world: &World, device: &str, generation: u64, accepted: bool) {
    let body = json!({ "generation": generation, "accepted": accepted, "diagnostics": if accepted { json!([]) } else { json!(["no room"]) } });
    world.do_it("POST", &format!("/v1/devices/{device}/acknowledgements"), &body);
}

#[test]
fn policies_ask_for_groups_of_their_tenant_by_label() {
    let world = World::new();
    world.tenant("acme", 1);
    world.tenant("beta", 2);
    world.device("edge", &json!({ "tenants": ["acme", "beta"] }));
    let group = |labels: Value| json!({ "members": ["10.0.1.0/24"], "labels": labels });
    let (web, path) = ("/v1/tenants/acme/groups/web-1", "/v1/tenants/acme/policies/web");
    let policy = |role: &str| {
        json!({ "policy": { "from": { "label": { "role": "web" } }, "chain": ["pfw"], "pfw": { "default": "drop",
            "rules": [{ "allow": "tcp", "to": [{ "label": { "role": role } }] }] } } })
    };
    let none = world.refused("PUT", path, &policy("web"), 422);
    assert!(pointers(&none).concat().contains("/policy/from: no group has the label"), "{none}");
    world.do_it("PUT", web, &group(json!({ "role": "web", "zone": "a" })));
    let other = world.refused("PUT", path, &policy("webb"), 422);
    assert!(pointers(&other)[0].starts_with("/policy/pfw/rules/0/to/0: no group has the label"), "{other}");
    let outcome = world.do_it("PUT", path, &policy("web"));
    assert_eq!(outcome["devices"], json!(["edge"]));
    // Another tenant's labels are another's.
    world.refused("PUT", "/v1/tenants/beta/policies/web", &policy("web"), 422);
    world.do_it("PUT", "/v1/tenants/beta/groups/mine", &group(json!({ "role": "web" })));
    let file = world.get("/v1/devices/edge/policy")["policy"].clone();
    assert_eq!(file["labels"]["web-1@acme"], json!({ "role": "web", "zone": "a", "@tenant": "acme" }));
    assert_eq!(file["labels"]["mine@beta"], json!({ "role": "web", "@tenant": "beta" }));
    let asked = json!({ "label": { "role": "web", "@tenant": "acme" } });
    assert_eq!(file["policies"][0]["from"], asked);
    assert_eq!(file["policies"][0]["pfw"]["rules"][0]["to"], json!([asked]));
    // A label cannot assign a group to another tenant, and a group that a policy needs stays.
    let stolen = world.refused("PUT", web, &group(json!({ "@tenant": "beta" })), 422);
    assert!(pointers(&stolen).iter().any(|said| said.starts_with("/labels/@tenant: ")), "{stolen}");
    world.refused("DELETE", web, &Value::Null, 409);
    let without = world.refused("PUT", web, &group(json!({})), 422);
    assert!(pointers(&without).concat().contains("policy `web`: no group has the label"), "{without}");
    // As for every document: dry run, differences, roll-back.
    let before = world.generation();
    let dry =
        world.do_it("PUT", &format!("{web}?dry-run=true"), &group(json!({ "role": "web", "zone": "b" })));
    assert_eq!(dry["changes"][0]["after"]["labels"]["zone"], "b");
    world.do_it("PUT", web, &group(json!({ "role": "web", "zone": "b" })));
    world.do_it("POST", &format!("/v1/generations/{before}/restore"), &Value::Null);
    assert_eq!(world.get(web)["spec"]["labels"]["zone"], "a");
}

#[test]
fn resolvers_are_said_for_all_and_for_a_tenant() {
    let world = World::new();
    world.tenant("acme", 1);
    world.device("edge", &json!({ "tenants": ["acme"] }));
    let setting = "/v1/settings/dns";
    let wrong =
        world.refused("PUT", setting, &json!({ "resolvers": ["10.0.0.53", "nobody"], "ttl-mim": "5s" }), 422);
    assert!(pointers(&wrong).iter().any(|said| said.starts_with("/ttl-mim: ")), "{wrong}");
    let wrong = world.refused("PUT", setting, &json!({ "resolvers": ["10.0.0.53", "nobody"] }), 422);
    assert!(pointers(&wrong)[0].starts_with("/resolvers/1: there is no group `nobody`"), "{wrong}");
    let dns = json!({ "resolvers": ["10.0.0.53"], "ttl-min": "30s", "addresses": 100 });
    assert_eq!(world.do_it("PUT", setting, &dns)["devices"], json!(["edge"]));
    let tenant = |resolver: &str| json!({ "select": { "vni": 1 }, "resolvers": [resolver] });
    world.refused("PUT", "/v1/tenants/acme", &tenant("lan"), 422);
    world.do_it("PUT", "/v1/tenants/acme", &tenant("10.1.0.53"));
    world.do_it("PUT", "/v1/tenants/acme/groups/apis", &json!({ "members": [{ "dns": "api.example.com" }] }));
    let bad =
        world.refused("PUT", "/v1/tenants/acme/groups/apis", &json!({ "members": [{ "dns": "a..b" }] }), 422);
    assert!(pointers(&bad)[0].starts_with("/members/0"), "{bad}");
    let file = world.get("/v1/devices/edge/policy")["policy"].clone();
    assert_eq!((&file["dns"], &file["tenants"][0]["resolvers"]), (&dns, &json!(["10.1.0.53"])));
    assert_eq!(file["groups"]["apis@acme"], json!([{ "dns": "api.example.com" }]));
    world.refused("PUT", "/v1/settings/dnss", &json!({ "action": "drop" }), 404);
    world.do_it("DELETE", setting, &Value::Null);
    assert_eq!(world.get("/v1/devices/edge/policy")["policy"]["dns"], Value::Null);
}

#[test]
fn reports_of_devices_have_bounds() {
    let world = World::new();
    world.tenant("acme", 1);
    world.device("edge", &json!({ "tenants": ["acme"] }));
    let report = |key: &str, text: &str| json!({ "alerts": [{ "tenant": "acme", "key": "k", "event": {} }, { "tenant": "acme", "key": key, "event": { "x": text } }] });
    world.do_it("POST", "/v1/devices/edge/alerts", &report("k", "x"));
    let problem = world.refused(
        "POST",
        "/v1/devices/edge/alerts",
        &report(&"k".repeat(3_000), &"x".repeat(5_000)),
        422,
    );
    let said = pointers(&problem);
    assert!(said[0].starts_with("/alerts/1/key: 3000 bytes; 2048 are allowed"), "{said:?}");
    assert!(said[1].starts_with("/alerts/1/event: 5008 bytes; 4096 are allowed"), "{said:?}");
}

#[test]
fn a_roll_out_goes_step_by_step_and_stops_at_a_refusal() {
    let world = World::new();
    world.tenant("acme", 1);
    for number in 0..10 {
        let labels = json!({ "ring": if number == 9 { "canary" } else { "rest" } });
        let spec = json!({ "tenants": ["acme"], "follow": "manual", "labels": labels });
        world.device(&format!("d{number}"), &spec);
    }
    world.do_it("PUT", "/v1/tenants/acme/policies/web", &json!({ "policy": { "chain": [] } }));
    let generation = world.generation();
    assert_eq!(world.fleet.take(), []);
    let request =
        json!({ "steps": [{ "labels": { "ring": "canary" } }, { "percent": 50 }, { "percent": 100 }] });
    let begun = world.do_it("POST", "/v1/rollouts", &request);
    assert_eq!(begun["devices"], json!(["d9"]));
    assert_eq!(world.fleet.take(), [("d9".to_owned(), generation)]);
    world.refused("POST", "/v1/rollouts", &request, 409);
    let name = world.get("/v1/rollouts")["items"][0]["name"].as_str().unwrap().to_owned();
    let state = |world: &World| world.get(&format!("/v1/rollouts/{name}"))["spec"].clone();
    assert_eq!((state(&world)["state"].clone(), state(&world)["step"].clone()), (json!("running"), json!(0)));
    // An answer of another device, or to another generation, does not count.
    answer(&world, "d0", generation, true);
    answer(&world, "d9", generation - 1, true);
    assert_eq!(world.fleet.take(), []);
    answer(&world, "d9", generation, true);
    // d0 runs the generation already, and is notified all the same, since it should keep running it.
    let told: Vec<String> = world.fleet.take().into_iter().map(|(device, _)| device).collect();
    assert_eq!(told, ["d0", "d1", "d2", "d3"]);
    answer(&world, "d1", generation, true);
    answer(&world, "d2", generation, false);
    assert_eq!(state(&world)["state"], "stopped");
    assert_eq!(state(&world)["refusals"], json!({ "d2": ["no room"] }));
    answer(&world, "d3", generation, true);
    assert_eq!(world.fleet.take(), []);
    let status = world.get("/v1/devices/d2")["status"].clone();
    assert_eq!((status["state"].clone(), status["wanted"].clone()), (json!("refused"), json!(generation)));
    // Revert: the notified devices get back their earlier generations.
    world.do_it("POST", &format!("/v1/rollouts/{name}/revert"), &Value::Null);
    let told: Vec<_> = world.fleet.take();
    assert_eq!(told.len(), 5);
    assert!(told.iter().all(|(_, generation)| *generation == 0));
    world.refused("POST", &format!("/v1/rollouts/{name}/cancel"), &Value::Null, 409);
    // All at once, to the end.
    world.do_it("POST", "/v1/rollouts", &json!({ "generation": generation }));
    for number in 0..10 {
        answer(&world, &format!("d{number}"), generation, true);
    }
    let last = world.get("/v1/rollouts")["items"][1]["spec"]["state"].clone();
    assert_eq!(last, "done");
}

#[test]
fn an_alert_comes_to_its_tenant_and_a_block_goes_back() {
    let world = World::new();
    world.tenant("acme", 1);
    world.tenant("other", 2);
    world.device("edge", &json!({ "tenants": ["acme"] }));
    let device = world.token("device", None, Some("edge"));
    let operator = world.token("operator", Some("acme"), None);
    let as_one = |token: &str, method: &str, path: &str, body: &Value| {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let reply =
            world.send(method, path, bytes, With { token: Some(token.to_owned()), ..With::default() });
        assert_eq!(reply.status / 100, 2, "{}", reply.value());
        reply.value()
    };
    let alert = |tenant: &str, source: &str| json!({ "tenant": tenant, "key": format!("1:7 {source}"), "event": { "src_ip": source } });
    let alerts = json!({ "alerts": [alert("acme", "192.0.2.9"), alert("other", "192.0.2.9"), alert("acme", "192.0.2.9")] });
    assert_eq!(as_one(&device, "POST", "/v1/devices/edge/alerts", &alerts)["taken"], 2);
    let seen = as_one(&operator, "GET", "/v1/tenants/acme/alerts", &Value::Null);
    assert_eq!((seen["items"].as_array().unwrap().len(), seen["items"][0]["count"].clone()), (1, json!(2)));
    let source = seen["items"][0]["event"]["src_ip"].as_str().unwrap();
    let block =
        json!({ "order": 0, "policy": { "from": source, "chain": ["pfw"], "pfw": { "default": "drop" } } });
    world.fleet.take();
    let done = as_one(&operator, "PUT", "/v1/tenants/acme/policies/block", &block);
    assert_eq!(world.fleet.take(), [("edge".to_owned(), done["generation"].as_u64().unwrap())]);
    let given = as_one(&device, "GET", "/v1/devices/edge/policy", &Value::Null);
    assert_eq!(given["policy"]["policies"][0]["from"], source);
    assert_eq!(world.get("/v1/alerts")["items"].as_array().unwrap().len(), 1);
    // Alerts of no tenant are visible to administrators, and to no tenant.
    let nobody = json!({ "alerts": [{ "key": "n", "event": { "src_ip": "192.0.2.7" } }] });
    assert_eq!(as_one(&device, "POST", "/v1/devices/edge/alerts", &nobody)["taken"], 1);
    assert_eq!(
        as_one(&operator, "GET", "/v1/tenants/acme/alerts", &Value::Null)["items"].as_array().unwrap().len(),
        1
    );
    let all = world.get("/v1/alerts");
    assert_eq!(
        (&all["items"][0]["tenant"], &all["items"][0]["event"]["src_ip"]),
        (&Value::Null, &json!("192.0.2.7"))
    );
    as_one(&device, "PUT", "/v1/devices/edge/statistics", &json!({ "counters": { "packets": 7 } }));
    assert_eq!(
        world.get("/v1/devices/edge/statistics"),
        json!({ "counters": { "packets": 7 }, "more": false })
    );
    assert_eq!(world.get("/v1/devices/edge")["status"]["seen"], common::NOW);
}

#[test]
fn libraries_choose_rules_by_id_category_and_metadata() {
    use sha2::{Digest, Sha256};
    let world = World::new();
    let text = "alert tcp any any -> any any (msg:\"a\"; sid:1; classtype:web-application-attack;)\n\
                alert tcp any any -> any any (msg:\"b\"; sid:2; metadata:deployment Perimeter, tag x;)\n\
                alert tcp any any -> any any (msg:\"c\"; sid:3;)\nalert nonsense\n";
    let hash = bartizan_controller::store::hex(&Sha256::digest(text.as_bytes()));
    let put = |name: &str| {
        world.send("PUT", &format!("/v1/rule-files/{name}"), text.into(), With::default()).status
    };
    assert_eq!((put(&"0".repeat(64)), put(&hash)), (422, 201));
    let files = world.get("/v1/rule-files");
    assert_eq!(
        files["items"],
        json!([{ "name": hash, "file-name": null, "bytes": text.len(), "rules": 3, "refused": 1 }])
    );
    let sids = |choose: Value, except: Value| {
        let library = json!({ "files": [hash], "choose": choose, "except": except });
        world.do_it("PUT", "/v1/libraries/web", &library);
        let rules = world.get("/v1/libraries/web/rules");
        rules["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule["sid"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(sids(json!([]), json!([])), [1, 2, 3]);
    assert_eq!(sids(json!([]), json!([2])), [1, 3]);
    assert_eq!(sids(json!([{ "sids": [3, 9] }]), json!([])), [3]);
    assert_eq!(sids(json!([{ "category": "web-application-attack" }]), json!([])), [1]);
    assert_eq!(
        sids(json!([{ "metadata": { "deployment": "Perimeter" } }, { "sids": [3] }]), json!([])),
        [2, 3]
    );
    assert_eq!(sids(json!([{ "sids": [2], "category": "x" }]), json!([])), [0u64; 0]);
    world.refused("DELETE", &format!("/v1/rule-files/{hash}"), &Value::Null, 409);
    sids(json!([{ "sids": [1] }]), json!([]));
    let reply = world.send("GET", "/v1/libraries/web/text", Vec::new(), With::default());
    let rules = bartizan_rules::parse_file(reply.body.as_slice(), "given").rules;
    assert_eq!(rules.len(), 1);
    world.tenant("acme", 1);
    let policy = json!({ "policy": { "chain": ["ids"], "ids": { "level": "web" } } });
    world.do_it("PUT", "/v1/tenants/acme/policies/web", &policy);
    world.refused("DELETE", "/v1/libraries/web", &Value::Null, 409);
    world.device("edge", &json!({ "tenants": ["acme"] }));
    let given = world.get("/v1/devices/edge/policy")["policy"].clone();
    assert_eq!(given["rule-groups"], json!({ "web": ["web.rules"] }));
}

#[test]
fn pairs_of_all_policies_of_a_tenant_are_counted_with_each_change() {
    let world = World::new();
    world.tenant("acme", 1);
    world.tenant("beta", 2);
    // 400 times 400 are 160,000 pairs: one such policy a tenant may have, two are more than 262,144.
    let members: Vec<String> = (0..400).map(|n| format!("10.{}.{}.1", n / 200, n % 200)).collect();
    for tenant in ["acme", "beta"] {
        world.do_it("PUT", &format!("/v1/tenants/{tenant}/groups/many"), &json!({ "members": members }));
    }
    let policy = json!({ "policy": { "from": "many", "to": ["many"], "chain": [] } });
    world.do_it("PUT", "/v1/tenants/acme/policies/zone", &policy);
    world.do_it("PUT", "/v1/tenants/beta/policies/zone", &policy);
    let said = "with this tenant `acme` has more than 262144 pairs of members of `from` and `to`, counted for each tenant and link; \
                write larger networks on one side, or `any`";
    // The policy written last is at fault, whatever its order.
    for name in ["another", "zzz"] {
        let refused = world.refused("PUT", &format!("/v1/tenants/acme/policies/{name}"), &policy, 422);
        assert_eq!(pointers(&refused), [format!("/policy/from: {said}")]);
    }
    // Writing the same policy again adds nothing; one side alone is allowed; removed policies do not count.
    world.do_it("PUT", "/v1/tenants/acme/policies/zone", &policy);
    let one_side = json!({ "policy": { "from": "many", "chain": [] } });
    world.do_it("PUT", "/v1/tenants/acme/policies/another", &one_side);
    world.do_it("DELETE", "/v1/tenants/acme/policies/zone", &Value::Null);
    world.do_it("PUT", "/v1/tenants/acme/policies/another", &policy);
    // A group that grows is refused in the same words.
    world.do_it("PUT", "/v1/tenants/acme/groups/few", &json!({ "members": ["192.0.2.1"] }));
    let few = json!({ "policy": { "from": "few", "to": "many", "chain": [] } });
    world.do_it("PUT", "/v1/tenants/acme/policies/few", &few);
    let more = json!({ "members": members });
    let told = pointers(&world.refused("PUT", "/v1/tenants/acme/groups/few", &more, 422));
    assert!(told.len() == 1 && told[0].contains(said), "{told:?}");
}

#[test]
fn combinations_of_a_tenants_packet_filters_are_counted_with_each_change() {
    let world = World::new();
    world.tenant("acme", 1);
    let members: Vec<String> = (0..100).map(|n| format!("10.0.{n}.1")).collect();
    world.do_it("PUT", "/v1/tenants/acme/groups/many", &json!({ "members": members }));
    world.do_it("PUT", "/v1/tenants/acme/groups/few", &json!({ "members": ["192.0.2.1"] }));
    // 100 times 100 addresses, two protocols, three ports: 60,000 combinations, of which a tenant may have
    // 262,144.
    let policy = |to: &str| {
        let rule =
            json!({ "allow": ["tcp", "udp"], "from": "many", "to": to, "to-ports": [80, 443, "8000-8999"] });
        json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop", "rules": [rule] } } })
    };
    for name in ["a", "b", "c", "d"] {
        world.do_it("PUT", &format!("/v1/tenants/acme/policies/{name}"), &policy("many"));
    }
    let said = "with this tenant `acme` has more than 262144 combinations of addresses, ports and protocols in rules of `pfw`; \
                use fewer or coarser ones: larger networks, ranges of ports";
    let refused = world.refused("PUT", "/v1/tenants/acme/policies/e", &policy("many"), 422);
    assert_eq!(pointers(&refused), [format!("/policy/pfw/rules: {said}")]);
    // A small one there is room for, until its group grows.
    world.do_it("PUT", "/v1/tenants/acme/policies/e", &policy("few"));
    let more = json!({ "members": members });
    let told = pointers(&world.refused("PUT", "/v1/tenants/acme/groups/few", &more, 422));
    assert!(told.len() == 1 && told[0].contains(said), "{told:?}");
}

// SPDX-License-Identifier: Apache-2.0
//! Parts join to the same policy file, are made once, and have numbers that are given once.

use crate::common;

use bartizan_api::southbound::{GroupRules, Object};
use bartizan_controller::bridge::shelf::{Olds, PartCache};
use bartizan_controller::device::{Acknowledgement, DeviceSpec, DeviceStatus, State, Touched};
use bartizan_controller::held::Blame;
use bartizan_controller::kept::OlderParts;
use bartizan_controller::southbound::Wanted;
use bartizan_controller::{numbers, render};
use common::{With, World};
use serde_json::{Value, json};

const PARTS: &str = include_str!("../../api/tests/vectors/joined/parts.json");
const POLICY: &str = include_str!("../../api/tests/vectors/joined/policy.json");

/// The content of the committed example, by REST. Tenants that the device does not serve exist as well.
fn example() -> World {
    let world = World::new();
    let parts: Vec<Object> = serde_json::from_str(PARTS).unwrap();
    let lines = parts.iter().find_map(|part| match part {
        Object::Group(group) => Some(group.rules.clone()),
        Object::Policy(_) => None,
    });
    let Some(GroupRules::Raw(lines)) = lines else { panic!("the example has a rule file") };
    let text = lines.join("\n");
    // Numbers are given one after the other: sixteen files before it, and two tenants before each of the
    // example's.
    for number in 0..16 {
        put_file(&world, &format!("# {number}\n"));
    }
    let hash = put_file(&world, &text);
    for (number, name) in ["a", "b", "acme", "d", "beta"].into_iter().enumerate() {
        let select = match name {
            "acme" => json!({ "vni": 101 }),
            "beta" => json!({ "vlan": [20, 21] }),
            _ => json!({ "vni": number }),
        };
        let body = match name {
            "beta" => {
                json!({ "select": select, "order": 50, "vars": { "address-groups": { "HOME_NET": "10.2.0.0/16" } } })
            }
            _ => json!({ "select": select }),
        };
        world.do_it("PUT", &format!("/v1/tenants/{name}"), &body);
    }
    let files = json!([hash]);
    let choose = json!([{ "category": "web-application-attack" }, { "metadata": { "deployment": "Perimeter" } }, { "sids": [1, 2, 7] }]);
    world.do_it("PUT", "/v1/libraries/all", &json!({ "files": files }));
    world.do_it("PUT", "/v1/libraries/web", &json!({ "files": files, "choose": choose, "except": [2] }));
    world.do_it("PUT", "/v1/libraries/unused", &json!({ "files": files }));
    let group = |name: &str, members: Value| {
        world.do_it("PUT", &format!("/v1/tenants/{name}"), &json!({ "members": members }));
    };
    group("acme/groups/lan", json!(["10.1.0.0/16", "2001:db8:1::/48"]));
    group("acme/groups/servers", json!(["lan", "192.0.2.1"]));
    group("beta/groups/lan", json!(["10.2.0.0/16"]));
    group("a/groups/lan", json!(["10.3.0.0/16"]));
    let policy = |name: &str, body: Value| {
        let (tenant, name) = name.split_once('/').unwrap();
        world.do_it("PUT", &format!("/v1/tenants/{tenant}/policies/{name}"), &body);
    };
    let db = json!({ "default": "drop", "rules": [{ "allow": "tcp", "from": ["lan", "10.9.0.0/16"], "to-ports": [5432] }] });
    policy("acme/db", json!({ "policy": { "chain": ["pfw", "sfw"], "from": "servers", "pfw": db } }));
    let web = json!({ "default": "drop", "rules": [{ "allow": "tcp", "to-ports": [80, 443] }] });
    let web = json!({ "chain": ["pfw", "sfw", "ids"], "from": "lan", "ids": { "level": "web" }, "pfw": web });
    policy("acme/web", json!({ "order": 10, "policy": web }));
    let all = json!({ "chain": ["ids"], "from": "lan", "ids": { "level": "all" }, "staged": true });
    policy("beta/all", json!({ "order": 10, "policy": all }));
    policy("a/other", json!({ "policy": { "chain": [], "from": "lan" } }));
    world.device("edge", &json!({ "tenants": ["acme", "beta"] }));
    world
}

fn put_file(world: &World, text: &str) -> String {
    use sha2::{Digest, Sha256};
    let hash = bartizan_controller::store::hex(&Sha256::digest(text.as_bytes()));
    let reply = world.send("PUT", &format!("/v1/rule-files/{hash}"), text.into(), With::default());
    assert_eq!(reply.status, 201, "{}", reply.value());
    hash
}

fn wanted(world: &World, shelf: &mut PartCache, tenants: &[&str]) -> Wanted {
    let tenants = tenants.iter().map(|tenant| (*tenant).to_owned()).collect();
    let model = world.api.controller.model();
    shelf.wanted(&model, &model, &DeviceSpec { tenants, ..DeviceSpec::default() }, 1, &Olds::new())
}

/// Texts of policies as JSON values, so that the order of keys does not matter.
fn read(object: &Object) -> (String, Value) {
    match object {
        Object::Policy(policy) => {
            (object.key().as_str().to_owned(), serde_json::from_str(&policy.text).unwrap())
        }
        Object::Group(_) => (object.key().as_str().to_owned(), serde_json::to_value(object).unwrap()),
    }
}

#[test]
fn the_parts_of_the_example_are_those_that_are_sent_and_the_file_is_what_they_join_to() {
    let world = example();
    let mut shelf = PartCache::default();
    let sent = wanted(&world, &mut shelf, &["acme", "beta"]);
    let expected: Vec<Object> = serde_json::from_str(PARTS).unwrap();
    let mut expected: Vec<_> = expected.iter().map(read).collect();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    let sent: Vec<_> = sent.objects.values().map(|object| read(object)).collect();
    assert_eq!(sent, expected);
    let file =
        render::policy_file(&world.api.controller.model(), |tenant| ["acme", "beta"].contains(&tenant));
    assert_eq!(file, serde_json::from_str::<Value>(POLICY).unwrap());
    assert_eq!(world.get("/v1/devices/edge/policy")["policy"], file);
}

#[test]
fn labels_travel_with_their_group_and_resolvers_by_themselves() {
    let world = World::new();
    world.tenant("acme", 1);
    world.do_it(
        "PUT",
        "/v1/tenants/acme/groups/web",
        &json!({ "members": ["10.0.0.0/8"], "labels": { "role": "web" } }),
    );
    world.do_it("PUT", "/v1/settings/dns", &json!({ "resolvers": ["10.0.0.53"] }));
    let mut shelf = PartCache::default();
    let sent: std::collections::BTreeMap<String, Value> =
        wanted(&world, &mut shelf, &["acme"]).objects.values().map(|object| read(object)).collect();
    let labels = json!({ "web@acme": { "role": "web", "@tenant": "acme" } });
    assert_eq!(
        sent["policy:1:@group/web"],
        json!({ "groups": { "web@acme": ["10.0.0.0/8"] }, "labels": labels })
    );
    assert_eq!(sent["policy:0:@dns"], json!({ "dns": { "resolvers": ["10.0.0.53"] } }));
}

#[test]
fn a_change_makes_one_part_for_all_devices_and_generations() {
    let world = example();
    let mut shelf = PartCache::default();
    let first = wanted(&world, &mut shelf, &["acme", "beta"]);
    let made = shelf.made;
    assert_eq!(made as usize, first.objects.len() - 1, "all but the default, which nobody wrote");
    wanted(&world, &mut shelf, &["acme"]);
    assert_eq!(shelf.made, made);
    world.do_it("PUT", "/v1/tenants/acme/policies/db", &json!({ "policy": { "chain": ["sfw"] } }));
    let then = wanted(&world, &mut shelf, &["acme", "beta"]);
    assert_eq!(shelf.made, made + 1);
    let same = first.objects.iter().filter(|(key, object)| {
        then.objects.get(*key).is_some_and(|then| std::sync::Arc::ptr_eq(then, object))
    });
    assert_eq!(same.count(), first.objects.len() - 2);
    // An older generation shares common parts, and does not replace current ones in the cache.
    let old = world.api.controller.model_at(world.generation() - 1).unwrap();
    let spec = DeviceSpec { tenants: vec!["*".to_owned()], ..DeviceSpec::default() };
    shelf.wanted(&old, &world.api.controller.model(), &spec, 1, &Olds::new());
    let made = shelf.made;
    wanted(&world, &mut shelf, &["*"]);
    assert_eq!(shelf.made, made);
}

#[test]
fn numbers_belong_to_names_for_good() {
    let world = World::new();
    world.tenant("a", 1);
    world.tenant("b", 2);
    world.do_it("DELETE", "/v1/tenants/a", &Value::Null);
    world.tenant("c", 3);
    world.tenant("a", 4);
    let of = |name: &str| numbers::tenant(&world.api.controller.model(), name);
    assert_eq!((of("a"), of("b"), of("c"), of("d")), (Some(1), Some(2), Some(3), None));
    // A dry run gives none.
    world.do_it("PUT", "/v1/tenants/d?dry-run=true", &json!({ "select": { "vni": 9 } }));
    assert_eq!(of("d"), None);
}

#[test]
fn what_no_message_holds_is_refused_where_it_is_written() {
    let world = World::new();
    world.tenant("acme", 1);
    let many: Vec<Value> =
        (0..40_000).map(|n| json!(format!("10.{}.{}.0/24", n / 256 % 256, n % 256))).collect();
    world.do_it("PUT", "/v1/tenants/acme/groups/net", &json!({ "members": ["10.0.0.0/8"] }));
    // Short names become long ones on the way.
    let named: Vec<Value> = (0..100_000).map(|_| json!("net")).collect();
    let policy = json!({ "policy": { "chain": [], "from": named } });
    let answer = world.ask("PUT", "/v1/tenants/acme/policies/a", &policy);
    let message = answer.value()["errors"][0]["message"].clone();
    assert!(answer.status == 422 && message.as_str().unwrap().contains("too long for devices"), "{message}");
    world.do_it("PUT", "/v1/tenants/acme/groups/many", &json!({ "members": many }));
    let long = format!("# {}\n", "x".repeat(200_000));
    let hash = {
        use sha2::{Digest, Sha256};
        bartizan_controller::store::hex(&Sha256::digest(long.as_bytes()))
    };
    let reply = world.send("PUT", &format!("/v1/rule-files/{hash}"), long.into(), With::default());
    assert_eq!(reply.status, 422);
}

#[test]
fn numbers_that_a_device_is_sent_only_grow_and_stand_for_their_generations() {
    let answer = |generation, accepted| Acknowledgement {
        generation,
        accepted,
        workers: Vec::new(),
        levels: Vec::new(),
        diagnostics: Vec::new(),
        rules_left_out: None,
        took: None,
        content: None,
    };
    let status = DeviceStatus::default().follow(5, &Touched::All);
    assert_eq!((status.number(), status.generation_of(5)), (5, Some(5)));
    let status = status.answered(&answer(5, true), Some(5), 1);
    assert_eq!((status.state, status.running), (State::Running, 5));
    // Back to an older one: under a number of its own.
    let status = status.want(3);
    assert_eq!((status.number(), status.generation_of(6), status.state), (6, Some(3), State::Waiting));
    // The number that the next generation would have is taken.
    let status = status.follow(6, &Touched::All);
    assert_eq!((status.number(), status.generation_of(7), status.generation_of(6)), (7, Some(6), Some(3)));
    // The running generation is remembered, however many follow; older others are not.
    let status = (7..100).fold(status, |status, generation| status.follow(generation, &Touched::All));
    assert_eq!((status.generation_of(5), status.generation_of(7), status.sent.len()), (Some(5), None, 8));
    // The same again is no other number, unless it was refused.
    let number = status.number();
    let status = status.want(99);
    assert_eq!(status.number(), number);
    let status = status.answered(&answer(99, false), Some(number), 2);
    assert_eq!(status.state, State::Refused);
    // A report that the previous generation still runs (because a link came up, for example) does not undo
    // the refusal.
    let refused = Acknowledgement { diagnostics: vec!["why".to_owned()], ..answer(99, false) };
    let again = status.clone().answered(&refused, Some(number), 2).answered(&answer(5, true), Some(5), 3);
    assert_eq!(
        (again.state, again.running, again.diagnostics.as_slice()),
        (State::Refused, 5, ["why".to_owned()].as_slice())
    );
    let status = status.want(99);
    assert_eq!((status.number(), status.state), (number + 1, State::Waiting));
    // A device that is ahead gets a higher number; its report on its own number does not concern the desired
    // generation.
    let status = status.beyond(1_000);
    assert_eq!((status.number(), status.generation_of(1_001)), (1_001, Some(99)));
    let status = status.answered(&answer(99, true), Some(1_000), 3);
    assert_eq!(status.state, State::Waiting);
    let status = status.answered(&answer(99, true), Some(1_001), 3);
    assert_eq!(status.state, State::Running);
    // Generation 0 is not sent.
    assert_eq!(status.want(0).number(), 0);
}

#[test]
fn a_refusal_costs_the_tenant_what_it_said_last_then_what_is_said_of_it_and_then_all_of_it() {
    let answer = |generation, accepted| Acknowledgement {
        generation,
        accepted,
        workers: Vec::new(),
        levels: Vec::new(),
        diagnostics: Vec::new(),
        rules_left_out: None,
        took: None,
        content: None,
    };
    let refused = |status: DeviceStatus| {
        let (generation, number) = (status.wanted, status.number());
        status.answered(&answer(generation, false), Some(number), 9)
    };
    let runs = |status: DeviceStatus| {
        let (generation, number) = (status.wanted, status.number());
        status.answered(&answer(generation, true), Some(number), 9)
    };
    let blame = |tenant: &str| Blame::from([(tenant.to_owned(), vec!["why".to_owned()])]);
    let of = |tenant: &str| Touched::Tenants([tenant.to_owned()].into());
    let kept = |generation, tenant| OlderParts { generation, tenant };
    let status = runs(DeviceStatus::default().follow(5, &Touched::All));
    // Only a refused set leads to holding back.
    assert_eq!(status.clone().hold_back(&blame("a"), 9), None);
    let status = refused(status.follow(6, &of("a"))).hold_back(&blame("a"), 9).unwrap();
    assert_eq!((status.number(), status.state, &status.keeps()["a"]), (7, State::Waiting, &kept(5, None)));
    let status = runs(status);
    assert_eq!((status.state, status.running, status.held_back["a"].runs), (State::Partial, 6, 5));
    // Another one's change takes nothing back, and is refused for itself.
    let status = refused(status.follow(8, &of("b"))).hold_back(&blame("b"), 9).unwrap();
    assert_eq!(status.keeps(), [("a".to_owned(), kept(5, None)), ("b".to_owned(), kept(6, None))].into());
    let status = runs(status);
    // The next change of the tenant is tried; the device still runs the first policies, with the
    // administrators' document of the last generation that ran.
    let status = status.follow(10, &of("a"));
    assert_eq!((status.state, status.keeps().len(), status.held_back.len()), (State::Waiting, 1, 1));
    let status = refused(status).hold_back(&blame("a"), 9).unwrap();
    assert_eq!(status.keeps()["a"], kept(5, None));
    let status = refused(status).hold_back(&blame("a"), 9).unwrap();
    assert_eq!(status.keeps()["a"], kept(5, Some(8)));
    assert_eq!(refused(status.clone()).hold_back(&blame("a"), 9), None);
    // A device that served others before has nothing of this one.
    let status = DeviceStatus { runs_tenants: Some(vec!["b".to_owned()]), ..runs(status) };
    let status = refused(status.follow(12, &Touched::All)).hold_back(&blame("a"), 9).unwrap();
    assert_eq!(status.keeps()["a"], kept(0, None));
    // A roll-out tries all documents again.
    assert_eq!((status.clone().want(12).keeps().len(), status.want(12).held_back.len()), (0, 0));
}

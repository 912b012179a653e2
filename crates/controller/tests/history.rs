// SPDX-License-Identifier: Apache-2.0
//! Old versions are removed and counted, except those that devices run; queries for removed ones say so.

use crate::common::World;
use bartizan_controller::Settings;
use bartizan_controller::store::MemoryStore;
use serde_json::{Value, json};

const KEPT: u64 = 32;

fn world() -> World {
    let settings = Settings { history: (KEPT, 64), ..Settings::default() };
    World::with(Box::new(MemoryStore::default()), settings)
}

/// The value of a counter.
fn counted(world: &World, what: &str) -> u64 {
    let page = world.ask("GET", "/v1/metrics", &Value::Null);
    let text = String::from_utf8(page.body.clone()).unwrap();
    let line = text.lines().find(|line| line.contains(&format!("what=\"{what}\""))).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn old_generations_and_rows_go_and_are_counted() {
    let world = world();
    world.do_it("PUT", "/v1/tenants/acme", &json!({"select": {"vni": 1}}));
    world.do_it("PUT", "/v1/devices/edge", &json!({"tenants": ["acme"], "follow": "manual"}));
    let group = |n: u64| json!({"members": [format!("10.0.0.{n}")]});
    let held = world.do_it("PUT", "/v1/tenants/acme/groups/lan", &group(1))["generation"].as_u64().unwrap();
    // A device is to run it for ever.
    world.do_it("POST", "/v1/rollouts", &json!({}));
    let rollout = world.do_it("GET", "/v1/rollouts", &Value::Null)["items"][0]["name"].take();
    let mut newest = 0;
    for n in 2..120 {
        newest = world.do_it("PUT", "/v1/tenants/acme/groups/lan", &group(n))["generation"].as_u64().unwrap();
    }
    let diff =
        |from: u64| world.ask("GET", &format!("/v1/generations/{newest}/diff?from={from}"), &Value::Null);
    assert_eq!(diff(newest - KEPT).status, 200);
    let gone = diff(held + 10);
    assert_eq!(gone.status, 404);
    let said = gone.value()["detail"].as_str().unwrap().to_owned();
    assert!(
        said.contains(&format!(
            "the documents of generation {} are no longer kept: only those of the last {KEPT} generations",
            held + 10
        )),
        "{said}"
    );
    // The generation that the device should run is still kept.
    let changes = diff(held).value()["changes"].take();
    let lan = changes.as_array().unwrap().iter().find(|change| change["id"] == "acme/lan").unwrap();
    assert_eq!(lan["before"], group(1));
    let back = world.ask("POST", &format!("/v1/generations/{}/restore", held + 10), &Value::Null);
    assert_eq!(back.status, 404);
    world.do_it("POST", &format!("/v1/rollouts/{}/cancel", rollout.as_str().unwrap()), &Value::Null);
    let again = world.ask("POST", "/v1/rollouts", &json!({"generation": held + 10}));
    assert_eq!(again.status, 404);
    // Beyond the bound a portion at most.
    let generations = counted(&world, "generations-forgotten");
    assert!(
        (newest - KEPT - KEPT / 16 - 6..newest - KEPT).contains(&generations),
        "{generations} of {newest}"
    );
    let rows =
        world.do_it("GET", "/v1/audit?limit=500", &Value::Null)["items"].as_array().unwrap().len() as u64;
    assert!((64..=64 + KEPT / 16 + 2).contains(&rows), "{rows}");
    assert!(counted(&world, "audit-forgotten") > 0);
}

// SPDX-License-Identifier: Apache-2.0
//! Devices' counters of tenants: sums over devices, each device, and devices without a report.

use crate::common;

use common::{NOW, World};
use serde_json::{Value, json};

fn world() -> World {
    let world = World::new();
    for (tenant, vni) in [("acme", 1), ("other", 2)] {
        world.tenant(tenant, vni);
    }
    for (device, tenants) in [
        ("a", json!(["acme"])),
        ("b", json!(["acme", "other"])),
        ("c", json!(["*"])),
        ("d", json!(["other"])),
    ] {
        world.device(device, &json!({ "tenants": tenants }));
    }
    world
}

fn report(world: &World, device: &str, counters: Value) -> Value {
    world.do_it("PUT", &format!("/v1/devices/{device}/statistics"), &json!({ "counters": counters }))
}

#[test]
fn a_tenants_sums_are_those_of_the_devices_that_serve_it() {
    let world = world();
    let empty = world.get("/v1/tenants/acme/statistics");
    assert_eq!(
        (&empty["newest"], &empty["reporting"], &empty["silent"], &empty["sums"]["total"]["packets"]),
        (&Value::Null, &json!(0), &json!(3), &json!(0))
    );
    report(
        &world,
        "a",
        json!({
            "tenant/acme/web/packets": 10, "tenant/acme/web/bytes": 600, "tenant/acme/web/flows": 2, "tenant/acme/web/refused": 3,
            "tenant/acme/mail/packets": 1, "tenant/acme/@refused/pfw/pfw_default": 3, "decoder.pkts": 11,
        }),
    );
    world.clock.set(NOW + 5);
    report(
        &world,
        "b",
        json!({
            "tenant/acme/web/packets": 5, "tenant/acme/web/alerts": 4, "tenant/acme/web/would-refuse": 2,
            "tenant/acme/@refused/pfw/pfw_default": 1, "tenant/acme/@would-refuse/ids/ids_rule": 2, "tenant/other/x/packets": 1000,
        }),
    );
    let told = world.get("/v1/tenants/acme/statistics");
    let total =
        json!({ "flows": 2, "packets": 16, "bytes": 600, "refused": 3, "would-refuse": 2, "alerts": 4 });
    assert_eq!(told["sums"]["total"], total);
    assert_eq!(told["sums"]["refused-by"], json!({ "pfw/pfw_default": 4 }));
    assert_eq!(told["sums"]["would-refuse-by"], json!({ "ids/ids_rule": 2 }));
    assert_eq!(told["sums"]["policies"]["web"]["packets"], 15);
    assert_eq!(
        (&told["newest"], &told["reporting"], &told["silent"]),
        (&json!(NOW + 5), &json!(2), &json!(1))
    );
    let devices: Vec<(&str, &Value, &Value)> = told["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| (d["device"].as_str().unwrap(), &d["newest"], &d["sums"]["total"]["packets"]))
        .collect();
    let expected =
        [("a", json!(NOW), json!(11)), ("b", json!(NOW + 5), json!(5)), ("c", Value::Null, Value::Null)];
    assert_eq!(devices, expected.each_ref().map(|(device, newest, packets)| (*device, newest, packets)));
    // A device's statistics: its own counters, and those of its tenants under the device's names.
    let own = world.get("/v1/devices/b/statistics")["counters"].clone();
    assert_eq!(
        (&own["tenant/other/x/packets"], &own["tenant/acme/@would-refuse/ids/ids_rule"]),
        (&json!(1000), &json!(2))
    );
    // Counters of a device that no longer serves the tenant are in no sum.
    world.device("b", &json!({ "tenants": ["other"] }));
    assert_eq!(world.get("/v1/tenants/acme/statistics")["sums"]["total"]["packets"], 11);
    assert!(world.get("/v1/devices/b/statistics")["counters"].get("tenant/acme/web/packets").is_none());
    // A device that is removed and made again has reported nothing.
    world.do_it("DELETE", "/v1/devices/a", &Value::Null);
    world.device("a", &json!({ "tenants": ["acme"] }));
    let told = world.get("/v1/tenants/acme/statistics");
    assert_eq!((&told["reporting"], &told["silent"]), (&json!(0), &json!(2)));
    world.refused("GET", "/v1/tenants/nobody/statistics", &Value::Null, 404);
}

#[test]
fn devices_that_are_told_are_bounded_and_sums_are_those_of_all() {
    let world = world();
    let most = bartizan_controller::rest::route::PAGE_MAX;
    for number in 0..most {
        let device = format!("e{number:04}");
        world.device(&device, &json!({ "tenants": ["acme"] }));
        report(&world, &device, json!({ "tenant/acme/web/packets": 2 }));
    }
    let told = world.get("/v1/tenants/acme/statistics");
    let packets = &told["sums"]["total"]["packets"];
    assert_eq!((packets, &told["silent"], &told["more"]), (&json!(2 * most), &json!(3), &json!(true)));
    assert_eq!(told["devices"].as_array().unwrap().len(), most);
    // All pages together list all devices, and each page has the sums of all.
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/v1/tenants/acme/statistics?limit=200{cursor}"));
        assert_eq!(page["sums"], told["sums"]);
        let devices = page["devices"].as_array().unwrap();
        assert!(devices.len() <= 200);
        seen.extend(devices.iter().map(|of| of["device"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), most + 3);
    assert!(seen.is_sorted(), "{seen:?}");
}

#[test]
fn what_is_kept_is_bounded_and_what_is_not_is_counted() {
    use bartizan_controller::statistics::{POLICIES_MAX, REASONS_MAX};
    let world = world();
    let policies = (0..POLICIES_MAX + 10).map(|n| (format!("tenant/acme/p{n}/packets"), json!(1)));
    let reasons = (0..REASONS_MAX + 5).map(|n| (format!("tenant/acme/@refused/pfw/r{n}"), json!(1)));
    let odd = ["tenant/acme", "tenant/acme/web", "tenant/acme/web/what", "tenant/nobody/web/packets"];
    let odd = odd.map(|name| (name.to_owned(), json!(1)));
    let counters = policies.chain(reasons).chain(odd).collect::<serde_json::Map<_, _>>();
    report(&world, "a", Value::Object(counters));
    let told = world.get("/v1/tenants/acme/statistics");
    let length = |key: &str| told["sums"][key].as_object().unwrap().len();
    assert_eq!((length("policies"), length("refused-by")), (POLICIES_MAX, REASONS_MAX));
    // The sums of all are right all the same.
    assert_eq!(told["sums"]["total"]["packets"], POLICIES_MAX + 10);
    let metrics = world.send("GET", "/v1/metrics", Vec::new(), common::With::default());
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(metrics.contains("{what=\"counters-refused\"} 19\n"), "{metrics}");
}

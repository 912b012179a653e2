// SPDX-License-Identifier: Apache-2.0
//! A device's reports reach the controller: an exhausted tenant quota and a function that does not run are
//! events of the device, and the controller serves them by REST to authorised users (needs root; without,
//! it prints so and returns).

use crate::common;
use crate::inline_pair;
use crate::namespace;
use crate::planes;
use crate::rest;

use bartizan_controller::rest::Method;
use bartizan_testkit_worker::events;
use common::{Folder, until};
use inline_pair::passed;
use namespace::in_namespace;
use planes::Here;
use rest::Rest;
use serde_json::{Value, json};

const RULES: &str = "alert udp any any -> any any (msg:\"a secret\"; content:\"secret\"; sid:2001; rev:1;)\n";

/// A tenant with quotas whose traffic is inspected, and one without traffic.
fn begin(rest: &mut Rest) {
    let quotas = json!({"flows": 3, "alerts-per-second": 1});
    rest.put("/v1/tenants/acme", json!({"select": {"prefixes": ["192.0.2.0/24"]}, "quotas": quotas}));
    rest.put("/v1/tenants/other", json!({"select": {"prefixes": ["198.51.100.0/24"]}}));
    rest.library("web", RULES);
    let policy = json!({"chain": ["ids"], "ids": {"level": "web"}});
    rest.bring("/v1/tenants/acme/policies/look", json!({"policy": policy}));
}

/// The contents of the events of type `bartizan` of one kind, in the device's own log.
fn notices(folder: &Folder, kind: &str) -> Vec<Value> {
    // Only whole lines: it grows.
    let text = folder.read("out/eve.json");
    let all = events::parse(text.rsplit_once('\n').map_or("", |(whole, _)| whole));
    let own = events::of_type(&all, "bartizan").map(|event| event["bartizan"].clone());
    own.filter(|own| own["notice"] == kind).collect()
}

#[test]
fn a_quota_that_is_used_up_stands_at_the_controller() {
    in_namespace(|| {
        let mut here = Here::begin();
        begin(&mut here.rest);
        // Flows beyond the quota, each with an alert.
        let flows: Vec<(u16, u16)> = (1_000..1_006).map(|source| (source, 4_000)).collect();
        passed(&mut here.net, &flows);
        let quota = |own: &Value| own["quota"].as_str().unwrap_or_default().to_owned();
        until("both events", || notices(&here.folder, "quota").len() >= 2);
        let mut told = notices(&here.folder, "quota");
        told.sort_by_key(quota);
        let said: Vec<_> =
            told.iter().map(|own| (quota(own), own["limit"].clone(), own["tenant_name"].clone())).collect();
        let expected = |name: &str, limit: u64| (name.to_owned(), json!(limit), json!("acme"));
        assert_eq!(said, [expected("alerts-per-second", 1), expected("flows", 3)]);
        // Once in a minute, however many meet it.
        let alerts = |rest: &mut Rest, tenant: &str| {
            rest.ask(Method::Get, &format!("/v1/tenants/{tenant}/alerts"), None)["items"].take()
        };
        let mut own = here.user("acme", "reader");
        let mut of_quotas = Vec::new();
        until("both alerts", || {
            let all = alerts(&mut own, "acme");
            let all = all.as_array().unwrap().iter();
            of_quotas = all
                .map(|alert| alert["event"]["alert"].clone())
                .filter(|alert| alert["gid"] == 901)
                .collect();
            of_quotas.len() >= 2
        });
        of_quotas.sort_by_key(|alert| alert["signature_id"].as_u64());
        let said: Vec<_> =
            of_quotas.iter().map(|alert| (&alert["signature_id"], &alert["signature"])).collect();
        let messages = [
            "the tenant's quota of flows is used up (3)",
            "the tenant's quota of alerts-per-second is used up (1)",
        ]
        .map(|said| json!(said));
        assert_eq!(said, [(&json!(1), &messages[0]), (&json!(2), &messages[1])]);
        // No other tenant sees them.
        let mut others = here.user("other", "reader");
        assert_eq!(alerts(&mut others, "other"), json!([]));
        assert_eq!(here.running.stop().code, Some(0));
        assert_eq!(notices(&here.folder, "quota").len(), 2);
    });
}

#[test]
fn a_function_that_does_not_run_stands_at_the_controller() {
    in_namespace(|| {
        let Here { folder, mut net, mut rest, running } = Here::begin();
        begin(&mut rest);
        assert_eq!(passed(&mut net, &[(1_000, 4_000)]).len(), 1);
        let status = |rest: &mut Rest| rest.ask(Method::Get, "/v1/devices/edge", None)["status"].take();
        assert_eq!(status(&mut rest)["health"], json!({}));
        let order = |rest: &mut Rest, order: &str| {
            rest.ask(Method::Post, "/v1/devices/edge/functions/ids", Some(json!({"order": order})));
        };
        order(&mut rest, "stop");
        until("it is away", || status(&mut rest)["health"]["ids"]["state"] == "stopped");
        let health = status(&mut rest)["health"]["ids"].take();
        assert!(health["since"].as_u64().is_some_and(|since| since > 0), "{health}");
        until("the order is answered", || status(&mut rest)["functions"]["ids"]["done"] == true);
        let states = |folder: &Folder| -> Vec<Value> {
            // Each worker says so.
            let all = notices(folder, "function");
            let mut all: Vec<_> = all.iter().map(|own| json!([own["function"], own["state"]])).collect();
            all.dedup();
            all
        };
        until("the event", || states(&folder) == [json!(["ids", "stopped"])]);
        // Without it packets do not go on, as the policy says by default; with it they do.
        assert!(passed(&mut net, &[(1_001, 4_000)]).is_empty());
        order(&mut rest, "start");
        until("it runs", || status(&mut rest)["health"] == json!({}));
        until("the event", || states(&folder) == [json!(["ids", "stopped"]), json!(["ids", "running"])]);
        assert_eq!(passed(&mut net, &[(1_002, 4_000)]).len(), 1);
        assert_eq!(running.stop().code, Some(0));
    });
}

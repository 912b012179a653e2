// SPDX-License-Identifier: Apache-2.0
//! All planes in one process: a run with its own controller. A policy written by REST is applied, an alert
//! is reported there, and the block made in response refuses the next packet (needs root; without, it
//! prints so and returns).

use crate::command_socket;
use crate::common;
use crate::inline_pair;
use crate::namespace;
use crate::planes;
use crate::rest;

use bartizan_controller::rest::Method;
use bartizan_ports::InlinePort;
use command_socket::ctl;
use common::{PROGRAM, Running, until};
use inline_pair::{network, passed, passed_frames, start};
use namespace::in_namespace;
use planes::{Here, LISTEN, datagram};
use rest::Rest;
use serde_json::{Value, json};
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

const RULES: &str = "alert udp any any -> any any (msg:\"a secret\"; content:\"secret\"; sid:2001; rev:1;)\n";

/// Whether a datagram of this flow comes out at the other end.
fn passes(net: &mut [InlinePort; 2], source: u16) -> bool {
    !passed(net, &[(source, 4000)]).is_empty()
}

/// Whether a frame with a datagram passes.
fn passes_frame(net: &mut [InlinePort; 2], frame: Vec<u8>) -> bool {
    !passed_frames(net, &[frame]).is_empty()
}

/// A tenant, the library, and the policy that inspects its traffic.
fn begin(rest: &mut Rest) {
    rest.put("/v1/tenants/acme", json!({"select": {"prefixes": ["192.0.2.0/24"]}}));
    rest.library("web", RULES);
    let policy = json!({"from": "192.0.2.0/24", "chain": ["ids"], "ids": {"level": "web"}});
    rest.bring("/v1/tenants/acme/policies/look", json!({"order": 10, "policy": policy}));
}

#[test]
fn an_alert_comes_out_and_what_is_answered_blocks() {
    in_namespace(|| {
        let Here { folder, mut net, mut rest, running } = Here::begin();
        // Without a policy nothing passes.
        assert!(!passes(&mut net, 1_000));
        begin(&mut rest);
        let begun = Instant::now();
        assert!(passes(&mut net, 1_001));
        let mut alert = Value::Null;
        until("the alert", || {
            alert = rest.ask(Method::Get, "/v1/tenants/acme/alerts?limit=1", None)["items"][0].clone();
            !alert.is_null()
        });
        let source = &alert["event"]["src_ip"];
        assert_eq!(source, "192.0.2.1", "{alert}");
        let block = json!({"from": source, "chain": ["pfw"], "pfw": {"default": "drop"}});
        rest.bring("/v1/tenants/acme/policies/block", json!({"order": 0, "policy": block}));
        println!("from the packet to the block: {} ms", begun.elapsed().as_millis());
        assert!(!passes(&mut net, 1_002));
        // The same flow as well, though it was there before.
        assert!(!passes(&mut net, 1_001));
        assert_eq!(running.stop().code, Some(0));
        // It begins with what ran, and its controller says the same.
        let running = start(&folder);
        assert!(!passes(&mut net, 1_003));
        let mut rest = Rest::new(&folder.path("controller"), &rest.1);
        until("the device is back", || {
            let status = &rest.ask(Method::Get, "/v1/devices/edge", None)["status"];
            status["state"] == "running" && status["session"]["connected"] == true
        });
        rest.bring("/v1/tenants/acme/policies/block", json!({"order": 20, "policy": block}));
        assert!(passes(&mut net, 1_004));
        assert_eq!(running.stop().code, Some(0));
    });
}

/// Two tenants of one device: the port that each passes, and its network.
const TENANTS: [(&str, u16, &str); 2] = [("acme", 4_000, "192.0.2"), ("other", 5_000, "198.51.100")];

/// All objects of a tenant have the same names as the other's, and its rules match the same content.
fn begin_tenant(rest: &mut Rest, (tenant, port, network): (&str, u16, &str)) {
    let sid = 3_000 + u32::from(port);
    let rules = format!(
        "alert udp any any -> any any (msg:\"seen by {tenant}\"; content:\"secret\"; sid:{sid}; rev:1;)\n"
    );
    rest.library(tenant, &rules);
    let path = format!("/v1/tenants/{tenant}");
    rest.put(&path, json!({"select": {"prefixes": [format!("{network}.0/24")]}}));
    rest.put(&format!("{path}/groups/lan"), json!({"members": [format!("{network}.0/24")]}));
    let policy = json!({
        "from": "lan", "chain": ["pfw", "ids"], "ids": {"level": tenant},
        "pfw": {"default": "drop", "rules": [{"allow": "udp", "to-ports": [port]}]},
    });
    rest.bring(&format!("{path}/policies/web"), json!({"policy": policy}));
}

#[test]
fn tenants_of_one_device_see_nothing_of_each_other() {
    in_namespace(|| {
        let mut here = Here::begin();
        // Without a policy nothing passes.
        assert!(!passes(&mut here.net, 1_999));
        for tenant in TENANTS {
            begin_tenant(&mut here.rest, tenant);
        }
        // A datagram to each port from each: the verdict is that of its own tenant's policy.
        let mut source = 2_000;
        for (tenant, own, network) in TENANTS {
            for (_, port, _) in TENANTS {
                source += 1;
                let frame = datagram(network, (source, port), b"a secret");
                assert_eq!(passes_frame(&mut here.net, frame), port == own, "{tenant}: {port}");
            }
        }
        for (tenant, _, network) in TENANTS {
            let mut own = here.user(tenant, "operator");
            let path = format!("/v1/tenants/{tenant}");
            let (mut alerts, mut told) = (Value::Null, Value::Null);
            until("the tenant's alert and counters", || {
                alerts = own.ask(Method::Get, &format!("{path}/alerts"), None)["items"].clone();
                told = own.ask(Method::Get, &format!("{path}/statistics"), None);
                !alerts[0].is_null()
                    && told["sums"]["total"]["packets"] == 2
                    && told["sums"]["total"]["alerts"] == 1
            });
            // Of the datagram that its policy let go on, by its own rules, once.
            let seen: Vec<_> = alerts
                .as_array()
                .unwrap()
                .iter()
                .map(|a| (&a["event"]["alert"]["signature"], &a["event"]["src_ip"]))
                .collect();
            let (signature, address) = (json!(format!("seen by {tenant}")), json!(format!("{network}.1")));
            assert_eq!(seen, [(&signature, &address)]);
            let sums = &told["sums"];
            let total = &sums["total"];
            assert_eq!((&total["flows"], &total["refused"]), (&json!(2), &json!(1)), "{told}");
            assert_eq!(sums["refused-by"], json!({"pfw/pfw_default": 1}), "{told}");
            assert_eq!(
                (&told["reporting"], &told["silent"], &told["devices"][0]["device"]),
                (&json!(1), &json!(0), &json!("edge"))
            );
            let (other, _, others) = TENANTS.into_iter().find(|(name, ..)| *name != tenant).unwrap();
            for text in [alerts.to_string(), told.to_string()] {
                assert!(
                    !text.contains(&format!("{others}.")) && !text.contains(&format!("by {other}")),
                    "{text}"
                );
            }
        }
        assert_eq!(here.running.stop().code, Some(0));
    });
}

#[test]
fn what_the_device_would_refuse_is_refused_before_it_is_sent() {
    in_namespace(|| {
        let Here { folder: _folder, mut net, mut rest, running } = Here::begin();
        begin(&mut rest);
        until("the device has said its links", || {
            let status = &rest.ask(Method::Get, "/v1/devices/edge", None)["status"];
            status["workers"][0]["link"] == "wan" && status["session"]["connected"] == true
        });
        let path = "/v1/tenants/acme/policies/other";
        let policy = |said: Value| json!({"policy": said});
        let scan = policy(json!({"chain": ["portscan"], "portscan": {"ports": 20, "window": "2h"}}));
        assert_eq!(rest.wrong(path, scan), ["/policy/portscan/window"]);
        let link = policy(json!({"chain": ["pfw"], "pfw": {"default": "drop"}, "link": ["wan", "dmz"]}));
        assert_eq!(rest.wrong(path, link), ["/policy/link/1"]);
        let quota =
            |rules: u64| json!({"select": {"prefixes": ["192.0.2.0/24"]}, "quotas": {"rules": rules}});
        rest.bring("/v1/tenants/acme", quota(2));
        let rules: Vec<_> = (1..4).map(|port| json!({"allow": "udp", "to-ports": port})).collect();
        let mut filter = policy(json!({"chain": ["pfw"], "pfw": {"default": "drop", "rules": rules}}));
        assert_eq!(rest.wrong(path, filter.clone()), ["/policy/pfw/rules"]);
        filter["policy"]["pfw"]["rules"].as_array_mut().unwrap().truncate(1);
        rest.bring(path, filter);
        assert_eq!(rest.wrong("/v1/tenants/acme", quota(0)), ["/quotas/rules"]);
        assert!(passes(&mut net, 1_001));
        assert_eq!(running.stop().code, Some(0));
    });
}

#[test]
fn hashes_of_what_runs_are_the_same_by_rest_and_on_the_device() {
    in_namespace(|| {
        let mut here = Here::begin();
        begin(&mut here.rest);
        let device =
            |rest: &mut Rest| rest.ask(Method::Get, "/v1/devices/edge", None)["status"]["content"].take();
        let told = |name: &str| -> Value {
            let ended = ctl(&here.folder, &["--json", name]);
            let mut answer: Value = serde_json::from_str(&ended.stdout).unwrap();
            answer["message"].take()
        };
        let on_device = || {
            let content = told("status")["content"].take();
            json!({"manifest": told("controller")["manifest"], "lists": content["lists"], "settings": content["settings"]})
        };
        let (first, at_first) = (device(&mut here.rest), told("status")["content"].take());
        assert_eq!(first, on_device());
        // A change: its documents have the hashes that the audit log has, its answer the device's content.
        let policy =
            json!({"policy": {"from": "192.0.2.0/24", "chain": ["pfw"], "pfw": {"default": "allow"}}});
        let outcome = here.rest.put("/v1/tenants/acme/policies/more?wait=30", policy);
        let second = &outcome["answers"]["edge"]["content"];
        assert_eq!((second, &on_device()), (&device(&mut here.rest), second), "{outcome}");
        assert_ne!(first["manifest"], second["manifest"]);
        assert_eq!((&first["lists"], &first["settings"]), (&second["lists"], &second["settings"]));
        let rows = here.rest.ask(Method::Get, "/v1/audit?limit=500", None)["items"].take();
        let row = rows.as_array().unwrap().iter().find(|row| row["id"] == "acme/more").unwrap();
        assert_eq!(
            (&outcome["changes"][0]["hash"], row["after"].is_string()),
            (&row["after"], true),
            "{row}"
        );
        // On the device the same kinds have changed, and those alone.
        let now = told("status")["content"].take();
        let same = ["lists", "rules", "settings", "policy", "all"].map(|kind| now[kind] == at_first[kind]);
        assert_eq!(same, [true, true, true, false, false]);
        // A tenant learns nothing of the others by the hash of all.
        let mut own = here.user("acme", "operator");
        let policy =
            json!({"policy": {"from": "192.0.2.0/24", "chain": ["pfw"], "pfw": {"default": "drop"}}});
        let outcome = own.put("/v1/tenants/acme/policies/more?wait=30", policy);
        assert_eq!(outcome["answers"]["edge"]["content"], Value::Null, "{outcome}");
        assert_eq!(outcome["changes"][0]["hash"].as_str().map(str::len), Some(64), "{outcome}");
        assert_eq!(here.running.stop().code, Some(0));
    });
}

/// The controller answers before the device has built anything: a policy written then is applied once the
/// device runs.
#[test]
fn what_is_said_before_the_run_has_begun_runs() {
    in_namespace(|| {
        let mut net = network();
        for round in 0..3 {
            let folder = planes::folder();
            let mut command = Command::new(PROGRAM);
            let running = Running::start(command.args(["run", "-c", "bartizan.yaml"]).current_dir(&folder.0));
            let state = folder.path("controller");
            let whole = |name: &str, end: &str| folder.read(&format!("controller/{name}")).contains(end);
            until("the controller answers", || {
                whole("bootstrap-token", "btz_")
                    && whole("tls-certificate.pem", "END CERTIFICATE")
                    && TcpStream::connect(LISTEN).is_ok()
            });
            let mut rest = Rest::administrator(&state);
            begin(&mut rest);
            assert!(passes(&mut net, 3_000 + round), "{}", running.stderr());
            let said = running.stop();
            assert_eq!(said.code, Some(0), "{said:?}");
            assert!(!said.stderr.contains("is refused"), "{said:?}");
        }
    });
}

// SPDX-License-Identifier: Apache-2.0
//! A tenant breaks its policy, and a real device refuses that: changes of others are applied before,
//! meanwhile and afterwards, and the tenant's old policy stays in force, also over a restart of the device
//! (needs root; without, it prints so and returns).

use crate::common;
use crate::inline_pair;
use crate::namespace;
use crate::planes;

use bartizan_controller::rest::Method;
use common::{Running, until};
use inline_pair::{passed_frames, start};
use namespace::in_namespace;
use planes::{Apart, datagram};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU16, Ordering};

const RULES: &str = "\
alert udp any any -> any any (content:\"a\"; sid:1;)
alert udp any any -> any any (content:\"b\"; sid:2;)
alert udp any any -> any any (content:\"c\"; sid:3;)
";

struct World(Apart);

/// The policy of a tenant that passes datagrams to one port.
fn web(network: &str, port: u16) -> Value {
    json!({
        "from": format!("{network}.0/24"), "chain": ["pfw"],
        "pfw": {"default": "drop", "rules": [{"allow": "udp", "to-ports": [port]}]},
    })
}

impl World {
    /// Starts with two tenants.
    fn new() -> Self {
        let mut apart = Apart::begin();
        for (tenant, network) in [("acme", "192.0.2"), ("other", "198.51.100")] {
            let select = json!({"select": {"prefixes": [format!("{network}.0/24")]}});
            apart.rest.put(&format!("/v1/tenants/{tenant}"), select);
        }
        World(apart)
    }

    /// Writes a policy of a tenant; returns the device's answer.
    fn policy(&mut self, path: &str, policy: Value) -> Value {
        let path = format!("/v1/tenants/{path}?wait=60");
        self.0.rest.put(&path, json!({"policy": policy}))["answers"]["edge"].clone()
    }

    /// The ports from 4000 to 4005 that a tenant's datagrams pass to.
    fn passed(&mut self, network: &str) -> Vec<u16> {
        static SOURCE: AtomicU16 = AtomicU16::new(1_024);
        let frame = |port: u16| datagram(network, (SOURCE.fetch_add(1, Ordering::Relaxed), port), b"x");
        let frames: Vec<_> = (4_000..4_006).map(frame).collect();
        passed_frames(&mut self.0.net, &frames).into_iter().map(|(_, port)| port).collect()
    }

    /// The other tenant's change is applied whatever happens to the first's; and the first's old policy
    /// stays in force.
    fn other_goes_on(&mut self, port: u16, state: &str) {
        let answer = self.policy("other/policies/web", web("198.51.100", port));
        assert_eq!(answer["state"], state, "{answer}");
        assert_eq!(self.passed("198.51.100"), [port]);
        assert_eq!(self.passed("192.0.2"), [4_000]);
    }

    fn state(&mut self) -> Value {
        self.0.rest.ask(Method::Get, "/v1/devices/edge", None)["status"].clone()
    }

    fn is_away(&mut self) {
        until("the device is away", || self.state()["session"]["connected"] == false);
    }
}

/// The first tenant's change is refused, for this reason.
fn is_held_back(answer: &Value, why: &str) {
    assert_eq!(answer["state"], "partial", "{answer}");
    let said = &answer["held-back"]["acme"]["diagnostics"][0];
    assert!(said.as_str().is_some_and(|said| said.contains(why)), "{answer}");
    assert_eq!(answer["held-back"].as_object().unwrap().len(), 1, "{answer}");
}

/// More rules than the tenant may have, from a library: only the device knows the number of usable ones.
fn too_many_rules(world: &mut World) {
    world.0.rest.library("three", RULES);
    let quota = json!({"select": {"prefixes": ["192.0.2.0/24"]}, "quotas": {"rules": 3}});
    world.0.rest.bring("/v1/tenants/acme", quota);
    let look = json!({"from": "192.0.2.7", "chain": ["ids"], "ids": {"level": "three"}});
    let answer = world.policy("acme/policies/look", look);
    is_held_back(&answer, "acme/@tenant /tenant/quotas/rules: the policies of tenant `acme` have 4 rules");
    world.other_goes_on(4_002, "partial");
    let answer = world.0.rest.ask(Method::Delete, "/v1/tenants/acme/policies/look?wait=60", None);
    assert_eq!(answer["answers"]["edge"]["state"], "running", "{answer}");
}

/// A section that its function refuses.
fn wrong_section(world: &mut World) {
    let mut policy = web("192.0.2", 4_000);
    policy["chain"] = json!(["portscan", "pfw"]);
    policy["portscan"] = json!({"ports": 1});
    let answer = world.policy("acme/policies/web", policy.clone());
    is_held_back(&answer, "acme/web /policy/portscan/ports: portscan: 1 is out of range");
    world.other_goes_on(4_003, "partial");
    policy["portscan"] = json!({"ports": 50});
    assert_eq!(world.policy("acme/policies/web", policy)["state"], "running");
}

/// A policy names a link and a port of a device that is away, and comes back without them; the device is
/// killed while it runs on without the policy.
fn no_such_link(world: &mut World, running: Running) -> Running {
    assert_eq!(running.stop().code, Some(0));
    world.is_away();
    const PATH: &str = "/v1/tenants/acme/policies/web";
    let mut policy = web("192.0.2", 4_001);
    let mut refused = |key: &str, value: Value, pointer: &str, said: &str| {
        let mut other = policy.clone();
        match key {
            "link" => other["link"] = value,
            _ => other["pfw"]["rules"].as_array_mut().unwrap().push(value),
        }
        let faults = world.0.rest.faults(PATH, json!({"policy": other}));
        let [(at, message)] = faults.as_slice() else { panic!("{faults:?}") };
        assert_eq!(at, pointer);
        let whole = format!(
            "the device `edge`, which serves this tenant, has no {said}, as it reported when it was last connected; "
        );
        assert!(message.starts_with(&whole), "{message}");
    };
    refused("link", json!("dmz"), "/policy/link", "link `dmz` (it has link `wan`)");
    let redirect = json!({"redirect": "tcp", "egress": "trap"});
    refused("rules", redirect, "/policy/pfw/rules/1/egress", "port `trap`");
    policy["link"] = json!("wan");
    world.0.rest.put(PATH, json!({"policy": policy}));
    let host = std::fs::read_to_string(world.0.folder.path("bartizan.yaml")).unwrap();
    world.0.folder.write("bartizan.yaml", host.replace("name: wan", "name: dmz"));
    let running = start(&world.0.folder);
    until("it is held back", || world.state()["state"] == "partial");
    let status = world.state();
    is_held_back(&status, "acme/web /policy/link/0: the host file has no link `wan`");
    assert_eq!(status["interfaces"]["links"], json!(["dmz"]));
    assert_eq!(
        status["interfaces"]["missing"][0],
        "link `wan`, named by policy `acme/web` at /policy/link/0"
    );
    world.other_goes_on(4_004, "partial");
    running.signal("KILL");
    drop(running);
    let running = start(&world.0.folder);
    assert!(running.stderr().contains("controller: the stored generation "), "{}", running.stderr());
    world.other_goes_on(4_005, "partial");
    running
}

#[test]
fn what_one_tenant_breaks_keeps_no_other_from_theirs() {
    in_namespace(|| {
        let mut world = World::new();
        let running = start(&world.0.folder);
        assert_eq!(world.policy("acme/policies/web", web("192.0.2", 4_000))["state"], "running");
        world.other_goes_on(4_001, "running");
        too_many_rules(&mut world);
        wrong_section(&mut world);
        let running = no_such_link(&mut world, running);
        assert_eq!(world.policy("acme/policies/web", web("192.0.2", 4_000))["state"], "running");
        world.other_goes_on(4_000, "running");
        let status = world.state();
        assert_eq!((&status["state"], status.get("held-back")), (&json!("running"), None), "{status}");
        assert_eq!(running.stop().code, Some(0));
    });
}

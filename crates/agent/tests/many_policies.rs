// SPDX-License-Identifier: Apache-2.0
//! A controller's generation with many policies: its result, and the durations of its steps. `--ignored`
//! builds 10,000.

use crate::common;

use bartizan_agent::joined::Joiner;
use bartizan_agent::session::ControllerGeneration;
use bartizan_agent::{Agent, Prepared};
use bartizan_api::southbound::{Object, Policy};
use bartizan_config::policy::{self, PolicyFile};
use common::agent;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn part(tenant: u16, name: &str, text: &Value) -> Object {
    Object::Policy(Policy { name: name.into(), tenant, text: text.to_string() })
}

/// A policy of a tenant for a network of its own.
fn web(tenant: u16, number: u16, port: u16) -> Object {
    let name = format!("p{number}");
    let said = json!({
        "name": format!("t{tenant}/{name}"), "tenant": [format!("t{tenant}")], "chain": ["pfw", "sfw"],
        "from": [format!("10.{number}.0.0/16")],
        "pfw": {"default": "drop", "rules": [{"allow": "tcp", "to-ports": [80, port]}]},
    });
    part(tenant, &name, &json!({"policy": said, "order": 10}))
}

fn many(tenants: u16, each: u16) -> ControllerGeneration {
    let of = |tenant: u16| {
        let own = json!({"tenant": {"name": format!("t{tenant}"), "select": {"vni": tenant}}, "order": 100});
        (0..each).map(move |number| web(tenant, number, 443)).chain([part(tenant, "@tenant", &own)])
    };
    let objects = (1..=tenants).flat_map(of).map(|object| (object.key(), Arc::new(object))).collect();
    ControllerGeneration { generation: 1, objects }
}

/// Measures the durations of joining, reading and building.
fn build(
    agent: &mut Agent,
    held: &ControllerGeneration,
    (joiner, before): &mut (Joiner, Option<PolicyFile>),
) -> ([Duration; 3], Prepared) {
    let begun = Instant::now();
    let joined = joiner.join(held, held.manifest().hash()).unwrap();
    let joined_at = begun.elapsed();
    let names = agent.function_names();
    let file = policy::from_parts("controller", &joined.parts, &names, before.as_ref()).unwrap();
    let read_at = begun.elapsed();
    let prepared = agent.prepare(&file, &[]).unwrap();
    let took = [joined_at, read_at - joined_at, begun.elapsed() - read_at];
    *before = Some(file);
    (took, prepared)
}

fn change_one(tenants: u16, each: u16, changes: u16) {
    let (mut agent, mut held) = (agent(), many(tenants, each));
    let mut last = (Joiner::default(), None);
    let (first, prepared) = build(&mut agent, &held, &mut last);
    let all = usize::from(tenants) * usize::from(each);
    // The default has a class for each tenant, the default tenant included.
    assert_eq!(prepared.classes.len(), all + usize::from(tenants) + 1);
    let fid = |prepared: &Prepared, name: &str| {
        prepared.classes.iter().find(|class| class.policy.as_deref() == Some(name)).unwrap().fid
    };
    let before = fid(&prepared, "t1/p0");
    let mut took = Vec::new();
    for number in 0..changes {
        let changed = web(1, 0, 8_443 + number % 2);
        held.objects.insert(changed.key(), Arc::new(changed));
        let (next, prepared) = build(&mut agent, &held, &mut last);
        // Classes keep their fids.
        assert_eq!(
            (fid(&prepared, "t1/p0"), prepared.classes.len()),
            (before, all + usize::from(tenants) + 1)
        );
        took.push(next);
    }
    let at = |share: usize| {
        let part = |part: usize| {
            let mut times: Vec<Duration> = took.iter().map(|took| took[part]).collect();
            times.sort_unstable();
            times[(times.len() * share / 100).min(times.len() - 1)]
        };
        [0, 1, 2].map(part)
    };
    let (p50, p99) = (at(50), at(99));
    println!(
        "{all} policies of {tenants} tenants: join, read, build: first {first:.1?}, one changed p50 {p50:.1?}, p99 {p99:.1?}"
    );
}

#[test]
fn one_of_a_thousand_policies_changes() {
    change_one(100, 10, 1);
}

#[test]
#[ignore = "takes a minute: for figures"]
fn one_of_ten_thousand_policies_changes() {
    change_one(1_000, 10, 50);
}

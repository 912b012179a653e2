// SPDX-License-Identifier: Apache-2.0
//! Cost of one change for a device with many policies, in this process: without network, disk and workers.
//! For measurements; the fleet's bench includes these.

use crate::generation::{BuildOptions, Builder};
use bartizan_agent::joined::Joiner;
use bartizan_agent::session::ControllerGeneration;
use bartizan_api::southbound::{GroupRules, Object, Policy, RuleGroup, RuleType};
use bartizan_base::Generation;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn part(tenant: u16, name: &str, text: &Value) -> Object {
    Object::Policy(Policy { name: name.into(), tenant, text: text.to_string() })
}

fn prefix(tenant: u16) -> String {
    format!("10.{}.{}.", tenant >> 8, tenant & 255)
}

/// A policy as in the fleet's bench: some filter, some keep state, some inspect payloads.
fn policy(tenant: u16, place: u16, variant: u16, level: &str) -> Object {
    let chain: &[&str] = match place % 3 {
        0 => &["pfw"],
        1 => &["pfw", "sfw"],
        _ => &["pfw", "sfw", "ids"],
    };
    let from = match place % 4 {
        0 => format!("servers@t{tenant}"),
        _ => format!("{}{}/28", prefix(tenant), 16 * (place % 8)),
    };
    let mut said = json!({
        "name": format!("t{tenant}/p{place}"), "tenant": [format!("t{tenant}")], "from": from, "chain": chain,
        "pfw": {"default": "drop", "rules": [{"allow": "tcp", "to-ports": [443, 8000 + place, 20_000 + variant]}, {"allow": "udp", "to-ports": [53]}]},
    });
    if chain.contains(&"ids") {
        said["ids"] = json!({"level": level});
    }
    part(tenant, &format!("p{place}"), &json!({"policy": said, "order": 10 + place}))
}

/// A tenant with its group and `each` policies.
fn tenant(tenant: u16, each: u16, level: &str) -> impl Iterator<Item = Object> {
    let select = json!({"prefixes": [format!("{}0/24", prefix(tenant))]});
    let own = json!({"tenant": {"name": format!("t{tenant}"), "select": select}});
    let group = json!({"groups": {(format!("servers@t{tenant}")): [format!("{}128/25", prefix(tenant))]}});
    let own = [part(tenant, "@tenant", &own), part(tenant, "@group/servers", &group)];
    (0..each).map(move |place| policy(tenant, place, 0, level)).chain(own)
}

/// A library of one file.
fn library(name: &str, id: u32, rules: Vec<String>) -> [Object; 2] {
    let said = json!({"library": {"files": [{"group": id, "sha256": name}]}});
    let rules = GroupRules::Raw(rules);
    let file = RuleGroup { id, tenant: 0, rule_type: RuleType::Ids, rules };
    [part(0, &format!("@library/{name}"), &said), Object::Group(file)]
}

fn held(objects: impl IntoIterator<Item = Object>) -> ControllerGeneration {
    let keyed = objects.into_iter().map(|object| (object.key(), Arc::new(object)));
    ControllerGeneration { generation: 1, objects: keyed.collect() }
}

fn many(tenants: u16, each: u16) -> ControllerGeneration {
    let rules = [
        r#"alert http any any -> any any (msg:"an admin page"; http.uri; content:"/admin"; sid:9000001; rev:1;)"#,
        r#"alert tcp any any -> any 22 (msg:"ssh"; flow:to_server,established; content:"SSH-"; depth:4; sid:9000002; rev:1;)"#,
        r#"alert udp any any -> any 53 (msg:"a long name"; content:"aaaaaaaaaaaaaaaa"; sid:9000003; rev:1;)"#,
    ];
    let small = library("small", 7, rules.map(str::to_owned).to_vec());
    held((1..=tenants).flat_map(|number| tenant(number, each, "small")).chain(small))
}

/// Durations of joining, of building, and of freeing the previous generation.
type ReloadTimings = [Duration; 3];

fn quantile(took: &[ReloadTimings], stage: usize, percent: usize) -> Duration {
    let mut times: Vec<Duration> = took.iter().map(|took| took[stage]).collect();
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

fn change_one(tenants: u16, each: u16, changes: u16) {
    let cache = Some("none".into());
    let options = BuildOptions { controlled: true, cache, ..BuildOptions::default() };
    let mut builder = Builder::new(&options, std::path::Path::new("")).unwrap();
    let mut held = many(tenants, each);
    let (mut running, mut joiner) = (None, Joiner::default());
    let mut took = Vec::new();
    for number in 0..=changes {
        held.generation = u64::from(number) + 1;
        if number > 0 {
            let changed = policy(1 + number % tenants, number % each, number, "small");
            held.objects.insert(changed.key(), Arc::new(changed));
        }
        let begun = Instant::now();
        let joined = Arc::new(joiner.join(&held, held.manifest().hash()).unwrap());
        let joined_at = begun.elapsed();
        let built = builder.build_held(&joined, Generation(held.generation)).ok().unwrap();
        builder.hold(Some(joined));
        let built_at = begun.elapsed();
        drop(running.replace(built));
        took.push([joined_at, built_at - joined_at, begun.elapsed() - built_at]);
    }
    let (first, rest) = took.split_first().unwrap();
    println!("{} policies: join, build, free: whole {first:.1?}", u32::from(tenants) * u32::from(each));
    for percent in [50, 99] {
        let at = [0, 1, 2].map(|stage| quantile(rest, stage, percent));
        println!("  one changed, p{percent}: {at:.2?}, together {:.2?}", at.iter().sum::<Duration>());
    }
}

#[test]
#[ignore = "for figures"]
fn one_of_two_hundred_policies_changes() {
    change_one(20, 10, 200);
}

#[test]
#[ignore = "for figures"]
fn one_of_ten_thousand_policies_changes() {
    change_one(1_000, 10, 30);
}

/// Resident memory of this process, in bytes.
fn resident() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<i64>().unwrap() * 4096
}

/// Memory that each further tenant adds to a device with Emerging Threats Open (`BARTIZAN_ET_OPEN`: a rule
/// file) and ten tenants.
#[test]
#[ignore = "for figures"]
fn one_more_tenant_on_emerging_threats() {
    const BEFORE: u16 = 10;
    const MORE: u16 = 10;
    let Some(path) = std::env::var_os("BARTIZAN_ET_OPEN") else {
        println!("BARTIZAN_ET_OPEN names no rule file");
        return;
    };
    let text = crate::input::read_utf8(std::path::Path::new(&path), "rule file").ok().unwrap();
    let rules = text.lines().map(str::to_owned).collect();
    let options = BuildOptions { controlled: true, ..BuildOptions::default() };
    let mut builder = Builder::new(&options, std::path::Path::new("")).unwrap();
    let first = (1..=BEFORE).flat_map(|number| tenant(number, 10, "etopen"));
    let mut held = held(first.chain(library("etopen", 7, rules)));
    let (mut running, mut joiner) = (None, Joiner::default());
    let mut last = (0, 0);
    for number in 0..=MORE {
        held.generation = u64::from(number) + 1;
        if number > 0 {
            let more = tenant(BEFORE + number, 10, "etopen");
            held.objects.extend(more.map(|object| (object.key(), Arc::new(object))));
        }
        let begun = Instant::now();
        let joined = Arc::new(joiner.join(&held, held.manifest().hash()).unwrap());
        let built = builder.build_held(&joined, Generation(held.generation)).ok().unwrap();
        builder.hold(Some(joined));
        let took = begun.elapsed();
        drop(running.replace(built));
        builder.generation_freed();
        // Lookups are compiled once changes have stopped.
        std::thread::sleep(Duration::from_millis(2_500));
        let now = (crate::allocator::counted::live(), resident());
        println!(
            "{} tenants: {took:.1?}, {} KB allocated, {} KB resident",
            BEFORE + number,
            (now.0 - last.0) >> 10,
            (now.1 - last.1) >> 10
        );
        last = now;
    }
}

// SPDX-License-Identifier: Apache-2.0
//! One tenant's token, or one device's, against everything of another tenant: every route of the table, with
//! every name of the other tenant in every place of the path, with cursors, parameters and bodies that aim at
//! it. No answer contains anything of the other tenant; existing and missing resources give equal answers;
//! nothing of the other tenant is changed. New routes are covered without being listed here.

use crate::common;

use bartizan_controller::rest::route::ParameterKind;
use bartizan_controller::rest::{Reply, Route};
use bartizan_controller::store::{SqliteStore, Store};
use common::{With, World};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const OTHER: &str = "zeta-hush";
const RULE: &str =
    "alert tcp any any -> any any (msg:\"hush-rule-text\"; content:\"hush-content\"; sid:2001; rev:1;)\n";
/// A value of counters that identifies the other tenant's traffic.
const COUNTED: u64 = 4_242_424_242;

/// A world with two tenants, and marks of the other tenant's data.
struct Two {
    world: World,
    /// Names of the other tenant's resources, as in paths.
    names: Vec<String>,
    /// Texts that must not be in an answer.
    marks: Vec<String>,
    /// Everything that is not the first tenant's, as it is at the beginning.
    others: Vec<Value>,
}

fn hash_of(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn two() -> Two {
    let world = World::new();
    world.tenant("acme", 1);
    world.tenant(OTHER, 2);
    // Each tenant has a device of its own, and one device serves both. Roll-outs give them generations, so no
    // request waits for them.
    for (device, tenants) in
        [("edge", json!(["acme"])), ("hush-device", json!([OTHER])), ("shared", json!(["acme", OTHER]))]
    {
        world.device(
            device,
            &json!({ "tenants": tenants, "follow": "manual", "description": format!("{device}-what") }),
        );
    }
    let hash = hash_of(RULE);
    let fields = vec![("content-type", "text/plain".to_owned())];
    let file =
        world.send("PUT", &format!("/v1/rule-files/{hash}"), RULE.into(), With { fields, ..With::default() });
    assert_eq!(file.status / 100, 2, "{}", file.value());
    world.do_it("PUT", "/v1/libraries/web", &json!({ "files": [hash] }));
    for (tenant, group, policy, address) in
        [("acme", "lan", "web", "10.1.0.0/16"), (OTHER, "hush-group", "hush-policy", "203.0.113.77")]
    {
        let path = format!("/v1/tenants/{tenant}");
        world.do_it("PUT", &format!("{path}/groups/{group}"), &json!({ "members": [address] }));
        let says = json!({ "from": group, "chain": ["ids"], "ids": { "level": "web" } });
        let policy_says = json!({ "policy": says, "description": format!("{policy}-what") });
        world.do_it("PUT", &format!("{path}/policies/{policy}"), &policy_says);
    }
    let token = world.token("operator", Some(OTHER), None);
    let id = token.split('_').nth(1).unwrap().to_owned();
    for device in ["edge", "hush-device"] {
        let tenant = if device == "edge" { "acme" } else { OTHER };
        let alert = json!({ "alerts": [{ "tenant": tenant, "key": format!("{device}-key"), "event": { "src_ip": format!("{device}-source") } }] });
        world.do_it("POST", &format!("/v1/devices/{device}/alerts"), &alert);
        let counted = if device == "edge" { 7 } else { COUNTED };
        let policy = if device == "edge" { "web" } else { "hush-policy" };
        let counters =
            json!({ format!("tenant/{tenant}/{policy}/packets"): counted, "decoder.pkts": counted });
        world.do_it("PUT", &format!("/v1/devices/{device}/statistics"), &json!({ "counters": counters }));
    }
    world.do_it("POST", "/v1/rollouts", &json!({ "steps": [{ "percent": 100 }] }));
    let rollout = world.get("/v1/rollouts")["items"][0]["name"].as_str().unwrap().to_owned();
    let counted = COUNTED.to_string();
    let names = [
        OTHER,
        "hush-device",
        "hush-group",
        "hush-policy",
        id.as_str(),
        hash.as_str(),
        rollout.as_str(),
        "5",
    ];
    let marks = ["hush", "203.0.113.77", id.as_str(), hash.as_str(), counted.as_str()];
    let (names, marks) = (names.map(str::to_owned).to_vec(), marks.map(str::to_owned).to_vec());
    // Changes of the callers' own tokens are expected, and a device's answer advances a roll-out.
    let others = others_documents(&world);
    Two { names, marks, others, world }
}

/// Names of missing resources, in the form of the others.
fn absent(name: &str) -> String {
    match name {
        "5" => "999999".to_owned(),
        // Names that begin with a digit are not taken everywhere.
        name if name.bytes().all(|b| b.is_ascii_hexdigit()) && name.len() >= 16 => {
            format!("{}{}", &name[..1], "0".repeat(name.len() - 1))
        }
        // A different name for each, with the same order in lists.
        _ => name.replace("hush", "hash").replace("r0", "r1"),
    }
}

/// The callers: tokens of the first tenant, and of its device.
fn callers(world: &World) -> Vec<(&'static str, String)> {
    vec![
        ("operator", world.token("operator", Some("acme"), None)),
        ("reader", world.token("reader", Some("acme"), None)),
        ("device", world.token("device", None, Some("edge"))),
    ]
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Queries of a route: each parameter at its widest value, and cursors that no page gave out.
fn queries(route: &Route) -> Vec<String> {
    let mut all = vec![String::new()];
    for parameter in route.query {
        let values = match parameter.kind {
            ParameterKind::Flag => vec!["true".to_owned(), "false".to_owned()],
            // No request waits for a device here; the test below covers waiting.
            ParameterKind::Number(from, to) => [from, 3, 500, to]
                .into_iter()
                .filter(|n| (from..=to).contains(n))
                .map(|n| n.to_string())
                .collect(),
            ParameterKind::Name | ParameterKind::FileName => {
                ["acme", "zeta-hush"].map(str::to_owned).to_vec()
            }
            ParameterKind::Cursor | ParameterKind::NumberCursor => {
                ["", "acme/", "acme/zzz", "zeta-hush/", "zeta-hush", "0", "1", "999999", "devices/"]
                    .map(hex)
                    .to_vec()
            }
        };
        all.extend(values.into_iter().map(|value| format!("?{}={value}", parameter.name)));
    }
    all
}

/// Bodies that name the other tenant's resources, or similar names, in each format that a route accepts.
fn bodies(route: &Route) -> Vec<String> {
    if route.body.is_none() {
        return vec![String::new()];
    }
    let policy = |from: &str| json!({ "policy": { "from": from, "chain": ["pfw"], "pfw": { "default": "drop", "rules": [{ "allow": "tcp", "to": from }] } } });
    let report = |tenant: &str| json!({ "alerts": [{ "tenant": tenant, "key": "k", "event": {} }] });
    [
        json!({}),
        policy("any"),
        policy("hush-grop"),
        policy("hush-group@zeta-hush"),
        policy("zeta-hush/hush-group"),
        json!({ "policy": { "chain": ["ids"], "ids": { "level": "wbe" } } }),
        json!({ "policy": { "chain": [], "tenant": ["zeta-hush"] } }),
        json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop", "rules": [{ "allow": "tcp", "tenant": "zeta-hsh" }] } } }),
        json!({ "members": ["hush-group"] }),
        json!({ "members": ["hush-grop@zeta-hush"] }),
        json!({ "select": { "vni": 2 } }),
        json!({ "tenants": ["zeta-hsh"] }),
        json!({ "name": "x", "scope": "operator", "tenant": "zeta-hsh" }),
        json!({ "files": [], "choose": [] }),
        json!({ "steps": [{ "percent": 100 }] }),
        json!({ "generation": 5, "accepted": true }),
        json!({ "counters": { "tenant/zeta-hush/hush-policy/packets": 1 } }),
        report("zeta-hush"),
        json!({ "order": "health" }),
        json!({ "action": "pass" }),
    ]
    .map(|body| body.to_string())
    .to_vec()
}

/// Every way to fill in a path; beside each, the same with names of missing resources.
fn paths(route: &Route, names: &[String]) -> Vec<(String, String)> {
    let mut all = vec![(String::new(), String::new())];
    for part in route.path.split('/').skip(1) {
        let own = match part {
            "{tenant}" => Some("acme"),
            "{device}" => Some("edge"),
            "{group}" => Some("lan"),
            "{policy}" => Some("web"),
            _ => None,
        };
        let choices: Vec<(String, String)> = if part.starts_with('{') {
            let of_other = names.iter().map(|name| (name.clone(), absent(name)));
            of_other.chain(own.map(|own| (own.to_owned(), own.to_owned()))).collect()
        } else {
            vec![(part.to_owned(), part.to_owned())]
        };
        let longer = |(there, not): &(String, String)| {
            let choices = choices.iter();
            choices.map(|(a, b)| (format!("{there}/{a}"), format!("{not}/{b}"))).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// All documents that are not the first tenant's.
fn others_documents(world: &World) -> Vec<Value> {
    let model = world.api.controller.model();
    let others = model
        .documents()
        .filter(|d| !d.id.starts_with("acme/") && !["tokens", "rollouts"].contains(&d.kind.as_str()));
    let mut all: Vec<Value> = others.map(|d| json!([d.kind, d.id, d.generation, d.body])).collect();
    let lines = |kind: &'static str| {
        model.statuses(kind, "").map(move |(id, body)| json!([kind, id, body])).collect::<Vec<_>>()
    };
    let of_other = |line: &Value| !line[1].as_str().unwrap().contains("edge");
    all.extend(["tenant-statistics", "statistics", "numbers"].into_iter().flat_map(lines).filter(of_other));
    all
}

/// An answer without the names in the request: the rest must be equal.
fn answer(reply: &Reply, path: &str) -> (u16, String) {
    let mut text = String::from_utf8_lossy(&reply.body).into_owned();
    let fields = reply.fields.iter().filter(|(name, _)| *name != "etag");
    for (name, value) in fields {
        // A new resource has the location of the request.
        let is_own = *name == "location" && path.split('?').next() == Some(value);
        text.push_str(&format!("\n{name}: {}", if is_own { "PATH" } else { value }));
    }
    let mut names: Vec<&str> =
        path.split(['/', '?']).filter(|part| !part.is_empty() && *part != "v1").collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    for name in names {
        text = if name.len() > 3 {
            // Also in cursors.
            text.replace(name, "NAME").replace(&hex(name), "CURSOR")
        } else {
            text.replace(&format!("`{name}`"), "`NAME`")
                .replace(&format!("/{name}\""), "/NAME\"")
                .replace(&format!("\"{name}\""), "\"NAME\"")
        };
    }
    (reply.status, text)
}

/// A world with its callers.
struct Asked {
    two: Two,
    token: String,
}

impl Asked {
    fn new(caller: usize) -> Self {
        let two = two();
        let token = callers(&two.world)[caller].1.clone();
        Asked { two, token }
    }

    fn send(&self, route: &Route, path: &str, body: &str) -> Reply {
        let with = With { token: Some(self.token.clone()), ..With::default() };
        self.two.world.send(route.method.name(), path, body.as_bytes().to_vec(), with)
    }
}

/// A text with names of missing resources in place of the other tenant's.
fn with_absent(text: &str, names: &[String]) -> String {
    let mut names: Vec<&String> = names.iter().filter(|name| name.len() > 3).collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names.into_iter().fold(text.to_owned(), |text, name| text.replace(name.as_str(), &absent(name)))
}

/// Tests a route as a caller: with the other tenant's names in one world, with missing names in its twin.
fn walk(route: &Route, caller: usize) -> usize {
    let (mut there, mut twin) = (Asked::new(caller), Asked::new(caller));
    let mut asked = 0;
    for (path, twins) in paths(route, &there.two.names) {
        for query in queries(route) {
            for body in bodies(route) {
                // A name similar to one that is in the request is no secret.
                if path.contains("hush-group") && body.contains("hush-grop") {
                    continue;
                }
                let (at, other) = (format!("{path}{query}"), format!("{twins}{query}"));
                let before = there.two.world.generation();
                let reply = there.send(route, &at, &body);
                let answered = twin.send(route, &other, &with_absent(&body, &twin.two.names));
                compare(route, (at.as_str(), &reply), (other.as_str(), &answered), &body, &there.two);
                asked += 1;
                if there.two.world.generation() != before {
                    assert_eq!(others_documents(&there.two.world), there.two.others, "{at} {body}");
                    (there, twin) = (Asked::new(caller), Asked::new(caller));
                }
            }
        }
    }
    assert_eq!(
        others_documents(&there.two.world),
        there.two.others,
        "{} {}",
        route.method.name(),
        route.path
    );
    asked
}

fn compare(
    route: &Route,
    (at, reply): (&str, &Reply),
    (other, answered): (&str, &Reply),
    body: &str,
    two: &Two,
) {
    let what = || format!("{} {at} {body}: {} {}", route.method.name(), reply.status, reply.value());
    // Repetitions of the request are replaced by those of the twin; the check below finds further
    // differences.
    let (status, text) = answer(reply, at);
    let told = (status, with_absent(&text, &two.names));
    assert_eq!(told, answer(answered, other), "answered otherwise than {other}: {}", what());
    let said = format!("{at}{body}");
    let fields: String = reply.fields.iter().map(|(_, value)| format!(" {value}")).collect();
    let quiet = said_out(&(String::from_utf8_lossy(&reply.body).into_owned() + &fields), &said);
    let told = two.marks.iter().find(|mark| quiet.contains(mark.as_str()) || quiet.contains(&hex(mark)));
    assert!(told.is_none(), "`{}` is told: {}", told.unwrap(), what());
}

/// An answer without the words of the request, which an error may repeat.
fn said_out(text: &str, said: &str) -> String {
    let words = |text: &str| -> BTreeSet<String> {
        let apart = |c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c));
        text.split(apart).filter(|word| word.len() > 3).map(str::to_owned).collect()
    };
    let mut words: Vec<String> = words(said).into_iter().collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    let mut left = text.to_owned();
    for word in words {
        left = left.split(word.as_str()).collect::<Vec<_>>().join("");
    }
    left
}

#[test]
fn no_route_tells_or_touches_anything_of_another_tenant() {
    let routes = two().world.api.routes().to_vec();
    let jobs: Vec<(usize, usize)> =
        (0..routes.len()).flat_map(|route| (0..3).map(move |caller| (route, caller))).collect();
    let (next, asked) = (std::sync::atomic::AtomicUsize::new(0), std::sync::atomic::AtomicUsize::new(0));
    use std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((route, caller)) = jobs.get(next.fetch_add(1, Relaxed)) {
                    asked.fetch_add(walk(&routes[*route], *caller), Relaxed);
                }
            });
        }
    });
    println!("{} routes, {} pairs of requests", routes.len(), asked.load(Relaxed));
    assert!(asked.load(Relaxed) > 1_000);
}

/// A tenant sees only its own part of the report of a device that serves two.
#[test]
fn who_waits_for_a_device_is_not_told_what_it_says_of_others() {
    let world = World::new();
    for (tenant, vni) in [("acme", 1), (OTHER, 2)] {
        world.tenant(tenant, vni);
    }
    world.device("shared", &json!({ "tenants": ["acme", OTHER] }));
    let token = world.token("operator", Some("acme"), None);
    let says = [
        "zeta-hush/hush-policy /policy/chain/0: there is no function `hush`",
        "acme/web /policy/from: there is no group `lan@acme`; did you mean `lan@zeta-hush`?",
        "rule file hush.rules line 3: hush",
        "acme/web /policy/chain/1: there is no function `pfv`; did you mean `pfw`?",
    ];
    let body = json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop" } } });
    let before = world.generation();
    let answered = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let with = With { token: Some(token.clone()), ..With::default() };
            world.send("PUT", "/v1/tenants/acme/policies/web?wait=60", body.to_string().into_bytes(), with)
        });
        let end = Instant::now() + Duration::from_secs(60);
        while world.generation() == before && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let answer = json!({ "generation": world.generation(), "accepted": false, "diagnostics": says });
        world.do_it("POST", "/v1/devices/shared/acknowledgements", &answer);
        asked.join().unwrap()
    });
    let answer = answered.value()["answers"]["shared"].clone();
    let outside =
        "for a reason that lies outside this tenant; an administrator sees it in the device's diagnostics";
    assert_eq!((&answer["state"], &answer["diagnostics"]), (&json!("refused"), &json!([says[3], outside])));
    // An administrator sees all diagnostics.
    assert_eq!(world.get("/v1/devices/shared")["status"]["diagnostics"], json!(says));
}

/// A device's reports that name a tenant which the device does not serve are counted and discarded.
#[test]
fn a_device_reports_of_the_tenants_that_it_serves_only() {
    let Two { world, .. } = two();
    let token = world.token("device", None, Some("edge"));
    let report = |method: &str, path: &str, body: Value| {
        let with = With { token: Some(token.clone()), ..With::default() };
        world.send(method, path, body.to_string().into_bytes(), with).value()
    };
    let counters =
        json!({ "counters": { "tenant/zeta-hush/hush-policy/packets": 1, "tenant/acme/web/packets": 9 } });
    let kept = report("PUT", "/v1/devices/edge/statistics", counters);
    assert_eq!(kept["counters"], json!({ "tenant/acme/web/packets": 9 }));
    let alert = json!({ "alerts": [{ "tenant": OTHER, "key": "k", "event": { "src_ip": "edge-source" } }] });
    assert_eq!(report("POST", "/v1/devices/edge/alerts", alert), json!({ "taken": 0 }));
    let sums = |tenant: &str| {
        world.get(&format!("/v1/tenants/{tenant}/statistics"))["sums"]["total"]["packets"].clone()
    };
    assert_eq!((sums(OTHER), sums("acme")), (json!(COUNTED), json!(9)));
    assert_eq!(world.get(&format!("/v1/tenants/{OTHER}/alerts"))["items"].as_array().unwrap().len(), 1);
    let metrics =
        String::from_utf8(world.send("GET", "/v1/metrics", Vec::new(), With::default()).body).unwrap();
    assert!(metrics.contains("{what=\"counters-refused\"} 1\n"), "{metrics}");
    assert!(metrics.contains("{what=\"alerts-unknown\"} 1\n"), "{metrics}");
}

/// A new tenant with the name of a removed one finds nothing of the removed one, also after a restart.
fn nothing_is_left_of_a_tenant(store: Box<dyn Store>) {
    let world = World::on(store);
    let begin = || {
        world.tenant("acme", 1);
        world.device("edge", &json!({ "tenants": ["acme"] }));
    };
    begin();
    let alert = json!({ "alerts": [{ "tenant": "acme", "key": "k", "event": { "src_ip": "192.0.2.1" } }] });
    world.do_it("POST", "/v1/devices/edge/alerts", &alert);
    let counters = json!({ "counters": { "tenant/acme/web/packets": 9 } });
    world.do_it("PUT", "/v1/devices/edge/statistics", &counters);
    world.device("edge", &json!({ "tenants": [] }));
    world.do_it("DELETE", "/v1/tenants/acme", &Value::Null);
    assert_eq!(world.get("/v1/alerts")["items"], json!([]));
    begin();
    assert_eq!(world.get("/v1/tenants/acme/alerts")["items"], json!([]));
    let told = world.get("/v1/tenants/acme/statistics");
    assert_eq!((&told["sums"]["total"]["packets"], &told["silent"]), (&json!(0), &json!(1)));
}

#[test]
fn nothing_is_left_of_a_tenant_that_is_gone() {
    nothing_is_left_of_a_tenant(Box::new(bartizan_controller::store::MemoryStore::default()));
    let folder = std::env::temp_dir().join(format!("bartizan-isolation-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    nothing_is_left_of_a_tenant(Box::new(SqliteStore::open(&folder.join("controller.db")).unwrap()));
    std::fs::remove_dir_all(&folder).unwrap();
}

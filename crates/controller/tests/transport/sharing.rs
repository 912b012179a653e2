// SPDX-License-Identifier: Apache-2.0
//! Sharing of the controller: connections and turns by token, changes of a tenant.

use crate::common::World;
use crate::common::wire::{Line, Wire, head};
use bartizan_controller::Settings;
use bartizan_controller::access::Rate;
use bartizan_controller::server::{BY_TOKEN, Bounds, CONNECTIONS_MAX};
use bartizan_controller::store::MemoryStore;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const GROUP: &str = "/v1/tenants/acme/groups/lan";
const BODY: &str = r#"{"members": ["10.0.0.1"]}"#;

fn put(token: &str, path: &str) -> String {
    format!("{}Content-Length: {}\r\n\r\n{BODY}", head("PUT", path, token), BODY.len())
}

/// Checks that an administrator's change is answered within a second. Returns the time it took.
fn administrator_gets_through(wire: &Wire, name: &str) -> Duration {
    let begun = Instant::now();
    let came = wire.ask(put(&wire.world.token, &format!("/v1/tenants/acme/groups/{name}")));
    let took = begun.elapsed();
    assert_eq!(came.status / 100, 2, "{came:?}");
    assert!(took < Duration::from_secs(1), "{name}: {took:?}");
    took
}

/// Opens as many connections as possible: each shows a token, and stays open.
fn connections_of(wire: &Wire, token: &str) -> Vec<Line> {
    let open = |_| {
        let mut line = wire.open();
        line.say(format!("{}\r\n", head("GET", "/v1/tenants", token)).as_bytes()).unwrap();
        assert_eq!(line.hear().unwrap().status, 200);
        line
    };
    (0..CONNECTIONS_MAX).map(open).collect()
}

#[test]
fn one_token_with_all_connections_keeps_no_administrator_out() {
    let wire = Wire::new(Bounds::default());
    wire.world.tenant("acme", 7);
    let reader = wire.world.token("reader", None, None);
    let operator = wire.world.token("operator", Some("acme"), None);
    let mut lines = connections_of(&wire, &reader);
    administrator_gets_through(&wire, "idle");
    assert_eq!((wire.counted("gave-way"), wire.counted("busy")), ((CONNECTIONS_MAX - BY_TOKEN) as u64, 0));
    // The newest are those that stay.
    lines.last_mut().unwrap().say(format!("{}\r\n", head("GET", "/v1/tenants", &reader)).as_bytes()).unwrap();
    assert_eq!(lines.last_mut().unwrap().hear().unwrap().status, 200);
    drop(lines);
    // Each has a request under way, and does not end it.
    let mut lines: Vec<Line> = Vec::new();
    for at in 0..CONNECTIONS_MAX {
        let mut line = wire.open();
        line.say(
            format!("{}Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n", head("PUT", GROUP, &operator))
                .as_bytes(),
        )
        .unwrap();
        let came = line.hear().unwrap();
        assert_eq!(came.status, if at < BY_TOKEN { 100 } else { 429 }, "{at}: {came:?}");
        assert_eq!(came.field("retry-after").is_some(), at >= BY_TOKEN);
        lines.push(line);
    }
    administrator_gets_through(&wire, "busy");
}

/// Results of dry runs that clients request without a pause.
#[derive(Default)]
struct DryRuns {
    over: AtomicBool,
    done: AtomicUsize,
    refused: AtomicUsize,
}

impl DryRuns {
    /// Sends dry runs over one connection until `over` is set.
    fn ask(&self, wire: &Wire, token: &str) {
        let body = r#"{"policy": {"from": "many", "chain": ["pfw"], "pfw": {"default": "drop"}}}"#;
        let head = head("PUT", "/v1/tenants/other/policies/web?dry-run=true", token);
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        let mut line = wire.open();
        while !self.over.load(Ordering::Relaxed) {
            line.say(request.as_bytes()).unwrap();
            let came = line.hear().unwrap();
            let counter = match came.status {
                200 => &self.done,
                429 => &self.refused,
                _ => panic!("{came:?}"),
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn dry_runs_beside_held_connections_keep_no_administrator_waiting() {
    const CLIENTS: usize = 24;
    // Each dry run visits all members of the tenant's group, and no rate holds them back.
    let members: Vec<String> =
        (0..40_000).map(|n| format!("10.{}.{}.{}/32", n / 16_384, n / 128 % 128, n % 128 * 2)).collect();
    let settings = Settings { writes: Rate { burst: 1_000_000, refill: 1 }, ..Settings::default() };
    let wire = Wire::of(World::with(Box::new(MemoryStore::default()), settings), Bounds::default());
    wire.world.tenant("acme", 7);
    wire.world.tenant("other", 8);
    wire.world.do_it("PUT", "/v1/tenants/other/groups/many", &json!({ "members": members }));
    let reader = wire.world.token("reader", None, None);
    let operator = wire.world.token("operator", Some("other"), None);
    let (lines, dry) = (connections_of(&wire, &reader), DryRuns::default());
    let times = std::thread::scope(|scope| {
        (0..CLIENTS).for_each(|_| drop(scope.spawn(|| dry.ask(&wire, &operator))));
        let begun = Instant::now();
        while dry.refused.load(Ordering::Relaxed) == 0 && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let change = |at| administrator_gets_through(&wire, &format!("lan-{at}"));
        // The clients end also when a change comes too late.
        let times = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (0..10).map(change).collect()));
        dry.over.store(true, Ordering::Relaxed);
        times
    });
    let times: Vec<Duration> = times.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let (done, refused) = (dry.done.into_inner(), dry.refused.into_inner());
    println!("changes beside {done} dry runs, {refused} refused: {times:?}");
    assert!(done > 0 && refused > 0, "{done} dry runs, {refused} refused: they were not beside each other");
    drop(lines);
}

#[test]
fn a_change_of_a_tenant_is_charged_once_and_retry_after_is_true() {
    let (burst, refill) = (10, 5_000_000);
    let settings = Settings { writes: Rate { burst, refill }, ..Settings::default() };
    let wire = Wire::of(World::with(Box::new(MemoryStore::default()), settings), Bounds::default());
    wire.world.tenant("acme", 7);
    let operator = wire.world.token("operator", Some("acme"), None);
    // Each makes another one: a change that changes nothing is not counted.
    let made = std::cell::Cell::new(0);
    let ask = || {
        made.set(made.get() + 1);
        wire.ask(put(&operator, &format!("{GROUP}-{}", made.get())))
    };
    for at in 0..burst {
        assert_eq!(ask().status / 100, 2, "{at}");
    }
    for round in 0..3 {
        let came = ask();
        assert_eq!(came.status, 429, "{round}: {came:?}");
        let seconds: u64 = came.field("retry-after").unwrap().parse().unwrap();
        assert_eq!(seconds, refill / 1_000_000);
        // Asking costs nothing.
        wire.world.clock.pass((seconds - 1) * 1_000_000);
        assert_eq!(ask().field("retry-after"), Some("1"));
        wire.world.clock.pass(1_000_000);
        let came = ask();
        assert_eq!(came.status / 100, 2, "{round}: {came:?}");
    }
}

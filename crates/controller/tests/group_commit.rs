// SPDX-License-Identifier: Apache-2.0
//! Group commit: changes that arrive during a write to the disk are committed together. Each is a generation
//! of its own, checked against the one before, and answered once it is on the disk; if the disk refuses them,
//! none is stored.

use crate::common::{With, World};

use bartizan_controller::access::{Principal, Rate};
use bartizan_controller::clock::WallClock;
use bartizan_controller::controller::Draft;
use bartizan_controller::device::Touched;
use bartizan_controller::fleet::MemoryFleet;
use bartizan_controller::model::Model;
use bartizan_controller::problem::Refusal;
use bartizan_controller::sections::{SectionFindings, Sections};
use bartizan_controller::store::{
    Alert, AlertBounds, AuditRow, Change, Document, Forgotten, KeptAlert, MemoryStore, Status, Store,
    StoreContent, StoreError,
};
use bartizan_controller::{Controller, Settings};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A store whose writes wait for the test.
struct Slow {
    store: MemoryStore,
    /// Sends the number of changes of a write.
    begun: Sender<usize>,
    /// Whether the write succeeds, or fails as on a full disk.
    go: Receiver<bool>,
}

impl Store for Slow {
    fn load(&mut self) -> Result<StoreContent, StoreError> {
        self.store.load()
    }
    fn commit_all(&mut self, changes: &[Change]) -> Result<u64, StoreError> {
        self.begun.send(changes.len()).unwrap();
        match self.go.recv().unwrap() {
            true => self.store.commit_all(changes),
            false => Err(StoreError::Full),
        }
    }
    fn at(&mut self, generation: u64) -> Result<Vec<Document>, StoreError> {
        self.store.at(generation)
    }
    fn keeps(&mut self, generation: u64) -> Result<bool, StoreError> {
        self.store.keeps(generation)
    }
    fn forget(&mut self, before: u64, but: &BTreeSet<u64>, rows: u64) -> Result<Forgotten, StoreError> {
        self.store.forget(before, but, rows)
    }
    fn audit(&mut self, behind: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.store.audit(behind, limit)
    }
    fn keep_alerts(
        &mut self,
        alerts: &[Alert],
        keep: AlertBounds,
        status: &[Status],
    ) -> Result<u64, StoreError> {
        self.store.keep_alerts(alerts, keep, status)
    }
    fn alerts(
        &mut self,
        tenant: Option<&str>,
        below: u64,
        limit: usize,
    ) -> Result<Vec<KeptAlert>, StoreError> {
        self.store.alerts(tenant, below, limit)
    }
}

/// A controller, and the two ends of its store.
fn world() -> (Arc<Controller>, Receiver<usize>, Sender<bool>) {
    let ((begun, begins), (go, goes)) = (channel(), channel());
    let store = Box::new(Slow { store: MemoryStore::default(), begun, go: goes });
    let fleet = Arc::new(MemoryFleet::default());
    let controller = Controller::new(store, Arc::new(WallClock), fleet, Settings::default()).unwrap();
    (Arc::new(controller), begins, go)
}

/// A change that counts: a draft that sees n writes n + 1. `drafted` signals that the draft is made.
fn count_up(controller: &Controller, drafted: &Mutex<Sender<u64>>) -> Result<u64, Refusal> {
    let outcome = controller.change(&Principal::controller(), "count", false, |model| {
        let seen = model.get("settings", "n").and_then(|d| d.body.as_u64()).unwrap_or(0);
        drafted.lock().unwrap().send(seen).unwrap();
        if seen == 4 {
            return Err(Refusal::Conflict("enough".to_owned()));
        }
        Ok(Draft::one("settings", "n", Some(json!(seen + 1)), Touched::Nothing))
    })?;
    Ok(outcome.generation)
}

/// Five concurrent changes: the first waits for the disk while the others are drafted.
fn five(ends: [bool; 2]) -> (Arc<Controller>, Vec<Result<u64, Refusal>>, usize) {
    let (controller, begins, go) = world();
    let (send, seen) = channel();
    let send = Arc::new(Mutex::new(send));
    let start = || {
        let (controller, send) = (Arc::clone(&controller), Arc::clone(&send));
        std::thread::spawn(move || count_up(&controller, &send))
    };
    let mut all = vec![start()];
    assert_eq!((seen.recv().unwrap(), begins.recv().unwrap()), (0, 1));
    for number in 1..5 {
        all.push(start());
        assert_eq!(seen.recv().unwrap(), number);
    }
    // Readers see nothing that is not on the disk.
    assert_eq!((controller.model().generation, controller.model().get("settings", "n")), (0, None));
    go.send(ends[0]).unwrap();
    let second = if ends[0] { begins.recv().unwrap() } else { 0 };
    if ends[0] {
        assert_eq!(controller.model().generation, 1);
        go.send(ends[1]).unwrap();
    }
    let results = all.into_iter().map(|one| one.join().unwrap()).collect();
    (controller, results, second)
}

#[test]
fn what_waits_is_committed_together_each_checked_against_the_one_before() {
    let (controller, results, second) = five([true, true]);
    let enough = Err(Refusal::Conflict("enough".to_owned()));
    assert_eq!(results, [Ok(1), Ok(2), Ok(3), Ok(4), enough]);
    assert_eq!(second, 3);
    let model = controller.model();
    assert_eq!((model.generation, &model.get("settings", "n").unwrap().body), (4, &json!(4)));
    let rows = controller.query(|store| store.audit(0, 10)).unwrap();
    assert_eq!(rows.iter().map(|row| row.generation).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(controller.model_at(2).unwrap().get("settings", "n").unwrap().body, json!(2));
}

#[test]
fn a_full_disk_undoes_the_group_and_all_that_was_drafted_from_it() {
    let full = Err(Refusal::Store(StoreError::Full));
    // The first group fails: the changes queued after it were drafted from it, and fail too. So does the
    // refusal drafted from it.
    let (controller, results, _) = five([false, true]);
    assert_eq!(results, vec![full.clone(); 5]);
    assert_eq!((controller.model().generation, controller.model().get("settings", "n")), (0, None));
    // The second group fails: the first stays.
    let (controller, results, _) = five([true, false]);
    assert_eq!(results, [vec![Ok(1)], vec![full; 4]].concat());
    assert_eq!(controller.model().get("settings", "n").unwrap().body, json!(1));
}

#[test]
fn after_a_full_disk_changes_are_drafted_from_what_stands() {
    let (controller, begins, go) = world();
    let (send, seen) = channel();
    let send = Mutex::new(send);
    for (done, expected) in [(true, 0), (false, 1), (true, 1)] {
        go.send(done).unwrap();
        assert_eq!(count_up(&controller, &send).is_ok(), done);
        assert_eq!((seen.recv().unwrap(), begins.recv().unwrap()), (expected, 1));
    }
    assert_eq!(controller.model().generation, 2);
}

#[test]
fn no_alert_is_kept_of_a_tenant_that_goes_meanwhile() {
    let (controller, begins, go) = world();
    let put = |kind: &'static str, id: &'static str, body: Option<Value>| {
        let controller = Arc::clone(&controller);
        std::thread::spawn(move || {
            let draft = |_: &Model| Ok(Draft::one(kind, id, body, Touched::Nothing));
            controller.change(&Principal::controller(), "put", false, draft).map(drop)
        })
    };
    for (kind, id, body) in [
        ("tenants", "acme", json!({ "select": { "vni": 1 } })),
        ("devices", "edge", json!({ "tenants": ["*"] })),
    ] {
        let done = put(kind, id, Some(body));
        begins.recv().unwrap();
        go.send(true).unwrap();
        done.join().unwrap().unwrap();
    }
    // A removal of the tenant is in progress when an alert of the tenant arrives.
    let gone = put("tenants", "acme", None);
    begins.recv().unwrap();
    let (told, teller) = (
        Alert { tenant: Some("acme".to_owned()), key: "k".to_owned(), last: 1, count: 1, body: json!({}) },
        Arc::clone(&controller),
    );
    let told = std::thread::spawn(move || teller.alerts("edge", &[told], &[]));
    // Long enough that it would have been taken if it were looked at before the store is free.
    std::thread::sleep(Duration::from_millis(50));
    go.send(true).unwrap();
    gone.join().unwrap().unwrap();
    assert_eq!(told.join().unwrap(), Ok(0));
    assert_eq!(controller.query(|store| store.alerts(None, u64::MAX, 9)), Ok(vec![]));
}

/// A device's report, which the device repeats if it is lost; `drafted` signals that the draft is made.
fn say(controller: &Arc<Controller>, what: &'static str, drafted: &Sender<()>) -> JoinHandle<bool> {
    let (controller, drafted) = (Arc::clone(controller), drafted.clone());
    std::thread::spawn(move || {
        let draft = |_: &Model| {
            drafted.send(()).unwrap();
            let said = Status { kind: "said".to_owned(), id: "edge".to_owned(), body: Some(json!(what)) };
            Ok(Draft { status: vec![said], repeats: true, ..Draft::default() })
        };
        controller.change(&Principal::controller(), "say", false, draft).is_ok()
    })
}

#[test]
fn what_a_device_says_is_shown_before_it_is_stored_where_nothing_else_waits() {
    let (controller, begins, go) = world();
    let (drafted, draft) = channel();
    let shown = || controller.model().status("said", "edge").cloned();
    let first = say(&controller, "first", &drafted);
    assert_eq!(((), 1), (draft.recv().unwrap(), begins.recv().unwrap()));
    assert_eq!(shown(), Some(json!("first")), "the store has not taken it yet");
    // This report is drafted from a change that is not on the disk.
    let second = say(&controller, "second", &drafted);
    draft.recv().unwrap();
    go.send(true).unwrap();
    assert_eq!(begins.recv().unwrap(), 1);
    assert_eq!(shown(), Some(json!("first")));
    go.send(true).unwrap();
    assert!(first.join().unwrap() && second.join().unwrap());
    assert_eq!(shown(), Some(json!("second")));
}

/// A check of the policy `slow` that waits for the test.
fn waiting_check(begun: Sender<()>, go_on: Receiver<()>) -> Sections {
    let go_on = Arc::new(Mutex::new(go_on));
    Sections::new(move |_| {
        let (begun, go_on) = (begun.clone(), Arc::clone(&go_on));
        Box::new(move |policy, _| {
            if policy.name.ends_with("slow") {
                begun.send(()).unwrap();
                go_on.lock().unwrap().recv().unwrap();
            }
            SectionFindings::default()
        })
    })
}

#[test]
fn a_dry_run_that_takes_long_holds_nobodys_change_up_and_counts_for_the_rate() {
    let (begun, has_begun) = channel();
    let (let_go, go_on) = channel();
    let writes = Rate { burst: 5, refill: 5_000_000 };
    let settings = Settings { sections: waiting_check(begun, go_on), writes, ..Settings::default() };
    let world = World::with(Box::new(MemoryStore::default()), settings);
    world.tenant("acme", 1);
    world.tenant("other", 2);
    let policy = json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop" } } });
    let token = world.token("operator", Some("acme"), None);
    let dry = || {
        let with = With { token: Some(token.clone()), ..With::default() };
        world.send(
            "PUT",
            "/v1/tenants/acme/policies/slow?dry-run=true",
            policy.to_string().into_bytes(),
            with,
        )
    };
    std::thread::scope(|scope| {
        let slow = scope.spawn(dry);
        has_begun.recv_timeout(PATIENCE).unwrap();
        // One more of the tenant has a place, and no further one.
        let second = scope.spawn(dry);
        has_begun.recv_timeout(PATIENCE).unwrap();
        assert_eq!(dry().status, 429);
        let (done, is_done) = channel();
        let (world, policy) = (&world, &policy);
        scope.spawn(move || {
            world.do_it("PUT", "/v1/tenants/other/policies/web", policy);
            done.send(world.generation()).unwrap();
        });
        let other = is_done.recv_timeout(PATIENCE);
        (0..2).for_each(|_| let_go.send(()).unwrap());
        assert_eq!(second.join().unwrap().status, 200);
        let (other, dry) = (other.expect("the other's change is done meanwhile"), slow.join().unwrap());
        // The dry run refers to the model at its begin.
        assert_eq!((dry.status, &dry.value()["generation"]), (200, &json!(other)), "{}", dry.value());
    });
    assert_eq!(world.ask("GET", "/v1/tenants/acme/policies/slow", &Value::Null).status, 404);
    for expected in [200, 200, 429] {
        let_go.send(()).unwrap();
        assert_eq!(dry().status, expected);
    }
}

/// A change with long checks is made as checked, or checked again if the tenant's documents changed
/// meanwhile; changes of others go on.
#[test]
fn a_change_that_takes_long_to_check_holds_nobodys_up() {
    let (begun, has_begun) = channel();
    let (let_go, go_on) = channel();
    let world = World::with(
        Box::new(MemoryStore::default()),
        Settings { sections: waiting_check(begun, go_on), ..Settings::default() },
    );
    world.tenant("acme", 1);
    world.tenant("other", 2);
    let members: Vec<String> = (0..2_500).map(|n| format!("10.0.{}.{}", n / 250, n % 250)).collect();
    world.do_it("PUT", "/v1/tenants/acme/groups/many", &json!({ "members": members }));
    let policy = json!({ "policy": { "chain": ["pfw"], "pfw": { "default": "drop" } } });
    let put = |path: &str| world.ask("PUT", path, &policy);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| put("/v1/tenants/acme/policies/slow"));
        has_begun.recv_timeout(PATIENCE).unwrap();
        let (done, is_done) = channel();
        let put = &put;
        scope.spawn(move || done.send(put("/v1/tenants/other/policies/web").status).unwrap());
        let other = is_done.recv_timeout(PATIENCE);
        let_go.send(()).unwrap();
        assert_eq!((other, slow.join().unwrap().status), (Ok(201), 201), "once checked is enough");
        // A change of the tenant itself meanwhile makes the check run again.
        let again = scope.spawn(|| world.ask("DELETE", "/v1/tenants/acme/groups/many", &Value::Null));
        has_begun.recv_timeout(PATIENCE).unwrap();
        world.do_it("PUT", "/v1/tenants/acme", &json!({ "select": { "vni": 1 }, "description": "x" }));
        (0..2).for_each(|_| let_go.send(()).unwrap());
        has_begun.recv_timeout(PATIENCE).unwrap();
        assert_eq!(again.join().unwrap().status, 200);
    });
    assert_eq!(world.ask("GET", "/v1/tenants/acme/policies/slow", &Value::Null).status, 200);
    assert_eq!(world.ask("GET", "/v1/tenants/acme/groups/many", &Value::Null).status, 404);
}

/// The longest wait for another thread.
const PATIENCE: Duration = Duration::from_secs(20);

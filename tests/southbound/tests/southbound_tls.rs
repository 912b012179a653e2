// SPDX-License-Identifier: Apache-2.0
//! A controller and agents over loopback sockets with TLS: enrolment, policies, revocation, expiry, rotation,
//! and the limits of a stolen key. The test sets the clock of certificates.

use bartizan_agent::session::client::{
    AgentClient, AgentDevice, ClientConfig, ClientHandle, EnrolFailure, enrol,
};
use bartizan_agent::session::store::{FileStore, GenerationStore};
use bartizan_agent::session::{Candidate, ControllerGeneration, SessionConfig};
use bartizan_api::southbound::*;
use bartizan_channel::authority::{Authority, DAY, Issued, Withdrawn};
use bartizan_channel::certificate::{chain, fingerprint};
use bartizan_channel::identity::DeviceIdentity;
use bartizan_channel::tls::{self, HandshakeClock};
use bartizan_channel::token::{FAILURES, Token, Tokens};
use bartizan_controller::southbound::enrolment::{Enroller, Revocations};
use bartizan_controller::southbound::listener::{LinkCounters, Listener, ListenerHandle, UNPROVEN_MAX};
use bartizan_controller::southbound::{
    Backend, DeviceRecord, EnrolRefusal, ServerConfig, Unavailable, Wanted,
};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// 2026-01-01, in seconds since 1970.
const START: u64 = 1_767_225_600;

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("southbound-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Default)]
struct Shared {
    devices: BTreeMap<DeviceId, DeviceRecord>,
    wanted: Option<Arc<Wanted>>,
    acknowledged: BTreeMap<DeviceId, u64>,
    alerts: Vec<AlertAggregate>,
    counters: BTreeMap<String, u64>,
    received: BTreeMap<(DeviceId, u64), (u64, u64)>,
    refused: Vec<GenerationRefusal>,
}

struct Office {
    shared: Arc<Mutex<Shared>>,
    enroller: Enroller,
    revocations: Revocations,
}

impl Backend for Office {
    fn tick(&mut self, _: Now) {
        self.revocations.refresh().unwrap();
    }
    fn device(&self, device: &DeviceId) -> Option<DeviceRecord> {
        self.shared.lock().unwrap().devices.get(device).cloned()
    }
    fn wanted(&self, _: &DeviceId) -> Option<Arc<Wanted>> {
        self.shared.lock().unwrap().wanted.clone()
    }
    fn running(&mut self, device: &DeviceId, generation: u64, _: &GenerationAck) -> Result<(), Unavailable> {
        self.shared.lock().unwrap().acknowledged.insert(device.clone(), generation);
        Ok(())
    }
    fn refused(&mut self, _: &DeviceId, _: u64, refusal: &GenerationRefusal) -> Result<(), Unavailable> {
        self.shared.lock().unwrap().refused.push(refusal.clone());
        Ok(())
    }
    fn ahead(&mut self, _: &DeviceId, _: u64) {}
    fn received(&self, device: &DeviceId, instance: u64) -> (u64, u64) {
        self.shared.lock().unwrap().received.get(&(device.clone(), instance)).copied().unwrap_or_default()
    }
    fn statistics(
        &mut self,
        device: &DeviceId,
        instance: u64,
        sequence: u64,
        delta: Delta,
    ) -> Result<(), Unavailable> {
        let mut shared = self.shared.lock().unwrap();
        shared.received.entry((device.clone(), instance)).or_default().0 = sequence;
        for (name, number) in delta.counters {
            *shared.counters.entry(name).or_default() += number;
        }
        Ok(())
    }
    fn alerts(
        &mut self,
        device: &DeviceId,
        instance: u64,
        sequence: u64,
        alerts: Vec<AlertAggregate>,
        _: u64,
    ) -> Result<(), Unavailable> {
        let mut shared = self.shared.lock().unwrap();
        shared.received.entry((device.clone(), instance)).or_default().1 = sequence;
        shared.alerts.extend(alerts);
        Ok(())
    }
    fn function(&mut self, _: &DeviceId, _: u32, _: FunctionState) {}
    fn enrol(
        &mut self,
        now: Now,
        source: &str,
        enrol: &Enrol,
        certified: Option<&DeviceId>,
    ) -> Result<Enrolled, EnrolRefusal> {
        self.enroller.enrol(now, source, enrol, certified)
    }
    fn is_revoked(&self, serial: &str) -> bool {
        self.revocations.has(serial)
    }
}

/// A controller that listens on loopback.
struct Site {
    folder: Folder,
    time: Arc<AtomicU64>,
    authority: Authority,
    pin: [u8; 32],
    shared: Arc<Mutex<Shared>>,
    handle: ListenerHandle,
    address: String,
    thread: Option<JoinHandle<()>>,
}

fn id(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

fn policy(tenant: u16, name: &str) -> Arc<Object> {
    Arc::new(Object::Policy(Policy { name: name.into(), tenant, text: format!("secret of tenant {tenant}") }))
}

impl Site {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let time = Arc::new(AtomicU64::new(START));
        let authority = Authority::make(&folder.0.join("ca"), START, 3_650).unwrap();
        let issued = authority.issue_controller("main", START, 3_650).unwrap();
        let pin = fingerprint(&chain(&issued.certificate).unwrap()[0]);
        let shared = Arc::new(Mutex::new(Shared::default()));
        let revocations = Revocations::new(authority.clone()).unwrap();
        let office = Office {
            shared: shared.clone(),
            enroller: Enroller::new(authority.clone(), 30),
            revocations: revocations.clone(),
        };
        let clock = clock(&time);
        let tls = server_tls(&authority, &issued, &clock, &revocations);
        let config = ServerConfig { keep_alive_ms: 300, greeting_ms: 5_000, ..ServerConfig::default() };
        let listener = Listener::new("127.0.0.1:0".parse().unwrap(), tls, clock, config, office).unwrap();
        let (address, handle) = (listener.address().unwrap().to_string(), listener.handle());
        let thread = Some(spawn(|| listener.run().unwrap()));
        Site { folder, time, authority, pin, shared, handle, address, thread }
    }

    fn clock(&self) -> HandshakeClock {
        clock(&self.time)
    }

    fn token(&self, device: &str) -> Token {
        let now = self.time.load(Ordering::Relaxed);
        Tokens::new(self.authority.folder()).make(device, self.pin, now, 3_600).unwrap()
    }

    fn add(&self, device: &str, tenants: &[u16]) {
        let record = DeviceRecord { tenants: tenants.iter().copied().collect() };
        self.shared.lock().unwrap().devices.insert(id(device), record);
    }

    fn folder(&self, device: &str) -> PathBuf {
        self.folder.0.join(device)
    }

    fn enrol(&self, device: &str, token: &Token) -> Result<(), EnrolFailure> {
        enrol(&self.address, &token.text(), &id(device), &self.folder(device), &self.clock())
    }

    fn publish(&self, generation: u64, objects: &[Arc<Object>]) {
        let objects = objects.iter().map(|object| (object.key(), object.clone())).collect();
        let mut shared = self.shared.lock().unwrap();
        shared.wanted = Some(Arc::new(Wanted::new(generation, objects)));
        shared.devices.keys().for_each(|device| self.handle.changed(device));
    }

    /// An agent with the identity in one folder that claims to be device `says`.
    fn agent(&self, identity: &str, says: &str) -> Agent {
        self.agent_by(identity, says, self.clock())
    }

    /// An agent with a clock of its own.
    fn agent_by(&self, identity: &str, says: &str, clock: HandshakeClock) -> Agent {
        let folder = self.folder(identity);
        let applied = Arc::new(Mutex::new(Vec::new()));
        let config = ClientConfig {
            session: SessionConfig::new(id(says), 7),
            controller: self.address.clone(),
            identity: folder.clone(),
            clock,
        };
        let client = AgentClient::new(
            config,
            FileStore::new(&folder),
            Worker(applied.clone(), ControllerGeneration::default()),
        )
        .unwrap();
        let handle = client.handle();
        Agent { handle, applied, thread: Some(spawn(|| client.run().unwrap())) }
    }

    fn acknowledged(&self, device: &str) -> u64 {
        self.shared.lock().unwrap().acknowledged.get(&id(device)).copied().unwrap_or(0)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn clock(time: &Arc<AtomicU64>) -> HandshakeClock {
    let time = time.clone();
    Arc::new(move || time.load(Ordering::Relaxed))
}

fn server_tls(
    authority: &Authority,
    issued: &Issued,
    clock: &HandshakeClock,
    revocations: &Revocations,
) -> Arc<tls::ServerTls> {
    let trusted = authority.trusted(clock()).unwrap();
    let key = issued.key.as_deref().unwrap();
    tls::server(clock.clone(), &issued.certificate, key, &trusted, revocations.for_tls()).unwrap()
}

/// A device that records the generations it has built, and the one it runs.
struct Worker(Arc<Mutex<Vec<ControllerGeneration>>>, ControllerGeneration);

impl AgentDevice for Worker {
    fn build(&mut self, candidate: &Candidate) -> Result<(), GenerationRefusal> {
        self.1 = candidate.held.clone();
        Ok(())
    }
    fn swap(&mut self) -> Vec<WorkerRuns> {
        self.0.lock().unwrap().push(self.1.clone());
        let levels = BTreeMap::from([("host".to_owned(), self.1.generation)]);
        vec![WorkerRuns { link: "wan".into(), worker: 0, levels }]
    }
    fn order(&mut self, _: FunctionOrder, function: &str, _: &Map<String, Value>) -> FunctionState {
        FunctionState {
            function: function.into(),
            done: true,
            state: "running".into(),
            reason: String::new(),
        }
    }
}

struct Agent {
    handle: ClientHandle,
    applied: Arc<Mutex<Vec<ControllerGeneration>>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    fn ended_with(&self, words: &str) -> bool {
        self.handle.status().last_end.is_some_and(|end| end.contains(words))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Waits until a condition holds, with a generous limit for busy machines.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_device_is_enrolled_gets_its_policies_and_reports() {
    let site = Site::new("whole");
    site.add("edge-1", &[1]);
    site.enrol("edge-1", &site.token("edge-1")).unwrap();
    site.publish(1, &[policy(1, "web"), policy(2, "other")]);
    let agent = site.agent("edge-1", "edge-1");
    until("generation 1", || site.acknowledged("edge-1") == 1);
    // Only the tenant's objects are sent, and only changed objects with the next generation.
    let keys = agent.applied.lock().unwrap()[0].objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys, [ObjectKey::policy(1, "web")]);
    let sent = site.handle.counters().0.objects_sent;
    site.publish(2, &[policy(1, "web"), policy(1, "mail")]);
    until("generation 2", || site.acknowledged("edge-1") == 2);
    until("counters", || site.handle.counters().0.objects_sent == sent + 1);
    agent.handle.statistics(Delta { counters: BTreeMap::from([("flow.tcp".into(), 3)]), ..Delta::default() });
    let alert = |tenant, key: &str| AlertAggregate {
        key: key.into(),
        tenant,
        rule: "1:1:1".into(),
        message: "m".into(),
        count: 1,
        first: 1,
        last: 1,
        event: serde_json::Map::new(),
    };
    agent.handle.alert(alert(2, "of another tenant"));
    agent.handle.alert(alert(1, "mine"));
    until("reports", || {
        let shared = site.shared.lock().unwrap();
        shared.counters.get("flow.tcp") == Some(&3) && shared.alerts.len() == 1
    });
    assert_eq!(site.shared.lock().unwrap().alerts[0].key, "mine");
    until("the foreign alert is counted", || site.handle.counters().0.alerts_foreign == 1);
    drop(agent);
    // The running generation outlives the process, and nothing is sent again.
    let sent = site.handle.counters().0.objects_sent;
    let agent = site.agent("edge-1", "edge-1");
    assert_eq!(agent.applied.lock().unwrap()[0].generation, 2);
    until("in step", || agent.handle.status().in_step);
    site.publish(3, &[policy(1, "web")]);
    until("generation 3", || site.acknowledged("edge-1") == 3);
    assert_eq!(site.handle.counters().0.objects_sent, sent);
}

#[test]
fn a_token_is_good_once_for_one_device_and_for_an_hour() {
    let site = Site::new("tokens");
    let token = site.token("edge-1");
    let refused = |result: Result<(), EnrolFailure>| result.unwrap_err().to_string();
    assert!(refused(site.enrol("edge-2", &token)).contains("not valid for this device"));
    site.enrol("edge-1", &token).unwrap();
    let facts = DeviceIdentity::load(&site.folder("edge-1")).unwrap().facts().unwrap();
    assert_eq!(facts.device.as_deref(), Some("edge-1"));
    // The token is used: another key gets no certificate for it.
    assert!(refused(site.enrol("edge-1", &token)).contains("unknown, used or expired"));
    let late = site.token("edge-3");
    site.time.fetch_add(3_601, Ordering::Relaxed);
    assert!(refused(site.enrol("edge-3", &late)).contains("expired"));
    // The controller's disk holds no secrets, and other users cannot read its files.
    let path = site.authority.folder().join("tokens.json");
    let text = token.text();
    let secret = text.split('.').nth(2).unwrap();
    assert!(!std::fs::read_to_string(&path).unwrap().contains(secret));
    for file in [path, site.authority.folder().join("ca.key"), site.folder("edge-1").join("device.key")] {
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    // Guesses are slowed down, also for the holder of a valid token.
    for _ in 0..FAILURES {
        let _ = site.enrol("edge-1", &token);
    }
    assert!(refused(site.enrol("edge-4", &site.token("edge-4"))).contains("too many attempts"));
    until("it is counted", || site.handle.counters().0.refused.contains_key(&RefuseCode::Rate));
}

#[test]
fn nobody_in_between_can_take_a_token() {
    let (site, other) = (Site::new("honest"), Site::new("between"));
    let token = site.token("edge-1");
    // The device is redirected to another controller, which sees no token.
    let failure = enrol(&other.address, &token.text(), &id("edge-1"), &site.folder("edge-1"), &site.clock());
    assert!(matches!(failure, Err(EnrolFailure::Lost(_))), "{failure:?}");
    until("the handshake failed", || other.handle.counters().1.handshakes_failed == 1);
    site.enrol("edge-1", &token).unwrap();
}

#[test]
fn a_stolen_key_reads_only_what_its_device_serves() {
    let site = Site::new("stolen");
    site.add("edge-1", &[1]);
    site.add("edge-2", &[2]);
    site.publish(1, &[policy(1, "web"), policy(2, "web")]);
    site.enrol("edge-1", &site.token("edge-1")).unwrap();
    // The key of edge-1 used as edge-2: refused and counted, nothing is sent.
    let thief = site.agent("edge-1", "edge-2");
    until("refused", || thief.ended_with("its certificate is that of `edge-1`"));
    until("it is counted", || site.handle.counters().0.refused.contains_key(&RefuseCode::Identity));
    assert_eq!(site.handle.counters().0.objects_sent, 0);
    assert!(thief.applied.lock().unwrap().is_empty());
    drop(thief);
    // Used as edge-1: it gets that device's tenant, and nothing else.
    let thief = site.agent("edge-1", "edge-1");
    until("generation 1", || site.acknowledged("edge-1") == 1);
    let applied = thief.applied.lock().unwrap();
    let tenants: BTreeSet<u16> =
        applied.iter().flat_map(|held| held.objects.values().map(|o| o.tenant())).collect();
    assert_eq!(tenants, BTreeSet::from([1]));
    until("it is counted", || site.handle.counters().0.withheld >= 1);
    // The key gets no certificate of another device either.
    let forged = site.token("edge-1");
    assert!(site.enrol("edge-2", &forged).is_err());
}

#[test]
fn a_revoked_certificate_ends_the_session_and_makes_no_other() {
    let site = Site::new("revoked");
    site.add("edge-1", &[1]);
    site.enrol("edge-1", &site.token("edge-1")).unwrap();
    site.publish(1, &[policy(1, "web")]);
    let agent = site.agent("edge-1", "edge-1");
    until("generation 1", || site.acknowledged("edge-1") == 1);
    let token = site.token("edge-1");
    assert_eq!(site.authority.revoke("edge-1", START).unwrap(), Withdrawn { certificates: 1, tokens: 2 });
    until("told", || agent.ended_with("revoked"));
    let counted = || site.handle.counters().0.refused.get(&RefuseCode::Revoked) == Some(&1);
    until("it is counted", counted);
    assert_eq!(agent.handle.status().generation, 1);
    drop(agent);
    let agent = site.agent("edge-1", "edge-1");
    until("no handshake", || site.handle.counters().1.handshakes_failed >= 1);
    assert!(site.handle.counters().1.last_failure.contains("Revoked"), "{:?}", site.handle.counters().1);
    until("the agent knows", || agent.ended_with("Revoked"));
    // Nor is an older token of the device valid.
    let late = site.enrol("edge-1", &token).unwrap_err().to_string();
    assert!(late.contains("unknown, used or expired"), "{late}");
    // The device goes on with its generation.
    assert_eq!(agent.applied.lock().unwrap()[0].generation, 1);
}

#[test]
fn an_agent_whose_certificate_expired_goes_on_protecting() {
    let site = Site::new("expired");
    site.add("edge-1", &[1]);
    site.enrol("edge-1", &site.token("edge-1")).unwrap();
    site.publish(1, &[policy(1, "web")]);
    let agent = site.agent("edge-1", "edge-1");
    until("generation 1", || site.acknowledged("edge-1") == 1);
    site.time.store(START + 31 * DAY, Ordering::Relaxed);
    until("the reason", || agent.ended_with("expired"));
    let status = agent.handle.status();
    assert!((status.generation, status.in_step) == (1, false), "{status:?}");
    assert_eq!(FileStore::new(&site.folder("edge-1")).load().unwrap().generation, 1);
    site.publish(2, &[]);
    // A start with the expired certificate builds the last generation, too. No handshake succeeds.
    drop(agent);
    let agent = site.agent("edge-1", "edge-1");
    assert_eq!(agent.applied.lock().unwrap()[0].generation, 1);
    assert_eq!(site.acknowledged("edge-1"), 1);
    // After a new enrolment the device goes on.
    drop(agent);
    site.enrol("edge-1", &site.token("edge-1")).unwrap();
    let _agent = site.agent("edge-1", "edge-1");
    until("generation 2", || site.acknowledged("edge-1") == 2);
}

#[test]
fn certificates_are_renewed_in_time_and_over_a_rotation() {
    let site = Site::new("renewed");
    site.add("edge-1", &[1]);
    site.enrol("edge-1", &site.token("edge-1")).unwrap();
    let folder = site.folder("edge-1");
    let before = DeviceIdentity::load(&folder).unwrap();
    let agent = site.agent("edge-1", "edge-1");
    until("in step", || agent.handle.status().in_step);
    site.authority.rotate(START, 3_650, 90).unwrap();
    site.time.store(START + 21 * DAY, Ordering::Relaxed);
    // Authorities are renewed first; key and certificate are one file.
    until("renewed", || DeviceIdentity::load(&folder).unwrap().certificate != before.certificate);
    let after = DeviceIdentity::load(&folder).unwrap();
    assert!(after.facts().unwrap().valid_until >= before.facts().unwrap().valid_until + 20 * DAY);
    assert_ne!(after.key, before.key);
    // Both authorities are valid until the overlap ends.
    assert_eq!(chain(&after.authorities).unwrap().len(), 2);
    assert_eq!(chain(&site.authority.trusted(START + 91 * DAY).unwrap()).unwrap().len(), 1);
    // The device accepts a controller with a certificate of the new authority, and that controller accepts
    // old and new devices.
    let now = START + 21 * DAY;
    let issued = site.authority.issue_controller("main", now, 365).unwrap();
    let revocations = Revocations::new(site.authority.clone()).unwrap();
    site.handle.set_tls(server_tls(&site.authority, &issued, &site.clock(), &revocations));
    drop(agent);
    let agent = site.agent("edge-1", "edge-1");
    until("in step again", || agent.handle.status().in_step);
}

#[test]
fn a_certificate_that_a_controller_with_a_wrong_clock_gives_is_not_taken() {
    let site = Site::new("ahead");
    site.add("edge-1", &[1]);
    site.enrol("edge-1", &site.token("edge-1")).unwrap();
    let folder = site.folder("edge-1");
    let before = DeviceIdentity::load(&folder).unwrap();
    // The agent renews by its own clock, which is a day behind: the certificate that it gets is not valid
    // yet.
    let time = Arc::clone(&site.time);
    let behind = Arc::new(move || time.load(Ordering::Relaxed) - DAY);
    site.time.store(START + 22 * DAY, Ordering::Relaxed);
    let agent = site.agent_by("edge-1", "edge-1", behind);
    until("refused", || agent.ended_with("the clock of this host or of the controller is wrong"));
    assert_eq!(DeviceIdentity::load(&folder).unwrap().certificate, before.certificate);
    assert!(agent.handle.status().in_step);
}

#[test]
fn a_generation_that_cannot_be_stored_does_not_run() {
    let site = Site::new("full");
    site.add("edge-1", &[1]);
    site.enrol("edge-1", &site.token("edge-1")).unwrap();
    // A folder in place of the file: writing fails, as on a full disk.
    let in_the_way = site.folder("edge-1").join("generation.json.new");
    std::fs::create_dir(&in_the_way).unwrap();
    site.publish(1, &[policy(1, "web")]);
    let agent = site.agent("edge-1", "edge-1");
    until("refused", || !site.shared.lock().unwrap().refused.is_empty());
    assert_eq!(site.shared.lock().unwrap().refused[0].code, GenerationRefusalCode::Store);
    until("told", || agent.ended_with("cannot be stored"));
    assert!(agent.applied.lock().unwrap().is_empty());
    // Once the generation can be stored it runs, over the same connection.
    std::fs::remove_dir(&in_the_way).unwrap();
    until("generation 1", || site.acknowledged("edge-1") == 1);
    assert_eq!(agent.handle.status().counters.sessions, 1);
}

#[test]
fn strangers_get_nowhere() {
    use std::io::{Read, Write};
    let site = Site::new("strangers");
    // Bytes that are not TLS.
    let mut socket = std::net::TcpStream::connect(&site.address).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    until("counted", || site.handle.counters().1.handshakes_failed == 1);
    // A certificate of another authority.
    let other = Authority::make(&site.folder.0.join("other-ca"), START, 10).unwrap();
    let key = bartizan_channel::identity::NewKey::make().unwrap();
    let issued = other.issue_device("edge-1", &key.request().unwrap(), START, 10).unwrap();
    let trusted = site.authority.trusted(START).unwrap();
    key.with(&issued.certificate, &trusted).unwrap().save(&site.folder("edge-1")).unwrap();
    site.add("edge-1", &[1]);
    let _agent = site.agent("edge-1", "edge-1");
    until("counted", || site.handle.counters().1.handshakes_failed >= 2);
    assert_eq!(site.handle.counters().0.sessions, 0);
}

#[test]
fn connections_that_say_nothing_keep_no_device_out() {
    let site = Site::new("silent");
    site.add("edge-1", &[1]);
    site.enrol("edge-1", &site.token("edge-1")).unwrap();
    let agent = site.agent("edge-1", "edge-1");
    until("in step", || agent.handle.status().in_step);
    let more = 40;
    let mut silent = Vec::new();
    for _ in 0..UNPROVEN_MAX + more {
        silent.push(std::net::TcpStream::connect(&site.address).unwrap());
        // Connections that arrive faster than the controller accepts them would wait in the system's queue.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // On a busy machine some connections are closed earlier, for their silence.
    let gone = |links: &LinkCounters| links.gave_way + links.handshakes_late;
    until("the oldest gave way", || gone(&site.handle.counters().1) >= more as u64);
    site.add("edge-2", &[1]);
    site.enrol("edge-2", &site.token("edge-2")).unwrap();
    site.publish(1, &[policy(1, "web")]);
    let _second = site.agent("edge-2", "edge-2");
    until("both run it", || site.acknowledged("edge-1") == 1 && site.acknowledged("edge-2") == 1);
    // A connection with a session never gave way.
    assert_eq!(agent.handle.status().counters.sessions, 1);
}

#[test]
fn keys_of_one_certificate_do_not_go_with_another() {
    let folder = Folder::new("keys");
    let authority = Authority::make(&folder.0, START, 10).unwrap();
    assert!(Authority::make(&folder.0, START, 10).is_err());
    let key = |_| bartizan_channel::identity::NewKey::make().unwrap();
    let (one, two) = (key(1), key(2));
    let issued = authority.issue_device("edge-1", &one.request().unwrap(), START, 10).unwrap();
    let trusted = authority.trusted(START).unwrap();
    assert!(two.with(&issued.certificate, &trusted).is_err());
    assert!(one.with(&issued.certificate, &trusted).is_ok());
    assert!(authority.issue_device("edge-1", "no request", START, 10).is_err());
    assert!(authority.revoke("edge-9", START).unwrap_err().to_string().contains("ca list"));
    assert_eq!(authority.list().unwrap().len(), 1);
    authority.issue_controller("main", START, 10).unwrap();
    assert!(authority.revoke("main", START).unwrap_err().to_string().contains("rotate the authority"));
    for certificates in [1, 0] {
        assert_eq!(authority.revoke("edge-1", START).unwrap(), Withdrawn { certificates, tokens: 0 });
    }
    // Certificates that expired long ago leave the register.
    authority.issue_controller("later", START + 200 * DAY, 10).unwrap();
    assert_eq!(authority.list().unwrap().len(), 1);
    let _: &Path = authority.folder();
}

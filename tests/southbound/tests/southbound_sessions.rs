// SPDX-License-Identifier: Apache-2.0
//! Each side of a session against messages made by a test: refusals, counters, ends of sessions, kept state.

use bartizan_agent::session::{ControllerGeneration, End, Session, SessionAction, SessionConfig};
use bartizan_api::southbound::*;
use bartizan_controller::southbound::{
    BELIEVED_AHEAD, Backend, DeviceRecord, EnrolRefusal, PeerIdentity, ServerConfig, SouthboundServer,
    Unavailable, Wanted,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A controller's store for one device, `edge-1`, that serves tenant 1.
#[derive(Default)]
struct Office {
    wanted: Option<Arc<Wanted>>,
    running: Vec<u64>,
    /// Content of the last acknowledgement.
    said: Option<GenerationAck>,
    ahead: Vec<u64>,
    twins: Vec<(String, String)>,
    revoked: bool,
    statistics: u64,
    interfaces: Vec<Interfaces>,
}

impl Backend for Office {
    fn tick(&mut self, _: Now) {}
    fn device(&self, device: &DeviceId) -> Option<DeviceRecord> {
        (device.as_str() == "edge-1").then(|| DeviceRecord { tenants: BTreeSet::from([1]) })
    }
    fn wanted(&self, _: &DeviceId) -> Option<Arc<Wanted>> {
        self.wanted.clone()
    }
    fn running(&mut self, _: &DeviceId, generation: u64, said: &GenerationAck) -> Result<(), Unavailable> {
        self.running.push(generation);
        self.said = Some(said.clone());
        Ok(())
    }
    fn refused(&mut self, _: &DeviceId, _: u64, _: &GenerationRefusal) -> Result<(), Unavailable> {
        Ok(())
    }
    fn ahead(&mut self, _: &DeviceId, generation: u64) {
        self.ahead.push(generation);
    }
    fn interfaces(&mut self, _: &DeviceId, said: &Interfaces) -> Result<(), Unavailable> {
        self.interfaces.push(said.clone());
        Ok(())
    }
    fn twin(&mut self, _: &DeviceId, before: &str, now: &str) {
        self.twins.push((before.into(), now.into()));
    }
    fn received(&self, _: &DeviceId, _: u64) -> (u64, u64) {
        (self.statistics, 0)
    }
    fn statistics(&mut self, _: &DeviceId, _: u64, sequence: u64, _: Delta) -> Result<(), Unavailable> {
        self.statistics = sequence;
        Ok(())
    }
    fn alerts(
        &mut self,
        _: &DeviceId,
        _: u64,
        _: u64,
        _: Vec<AlertAggregate>,
        _: u64,
    ) -> Result<(), Unavailable> {
        Err(Unavailable)
    }
    fn function(&mut self, _: &DeviceId, _: u32, _: FunctionState) {}
    fn enrol(&mut self, _: Now, _: &str, _: &Enrol, _: Option<&DeviceId>) -> Result<Enrolled, EnrolRefusal> {
        Err(EnrolRefusal { code: RefuseCode::Token, message: "no".into(), retry_ms: 5 })
    }
    fn is_revoked(&self, _: &str) -> bool {
        self.revoked
    }
}

fn at(ms: u64) -> Now {
    Now { ms, unix: ms / 1_000 }
}

fn id(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

fn peer(name: &str) -> Option<PeerIdentity> {
    Some(PeerIdentity { device: id(name), serial: "01".into(), valid_until: 1_000 })
}

fn hello(device: &str, generation: u64) -> Hello {
    Hello {
        versions: vec![1],
        device: id(device),
        instance: 1,
        generation,
        manifest: Manifest::default().hash(),
        refused: 0,
        software: "test".into(),
    }
}

fn policy(tenant: u16, name: &str) -> Object {
    Object::Policy(Policy { name: name.into(), tenant, text: "text".into() })
}

fn wanted(generation: u64, objects: &[Object]) -> Option<Arc<Wanted>> {
    let objects = objects.iter().map(|object| (object.key(), Arc::new(object.clone()))).collect();
    Some(Arc::new(Wanted::new(generation, objects)))
}

/// A controller with connections that the test drives, and the version of messages after `hello`.
struct Controller(SouthboundServer<Office>, u8);

impl Controller {
    fn new(office: Office) -> Self {
        let config = ServerConfig { orders: 2, connections: 3, ..ServerConfig::default() };
        Controller(SouthboundServer::new(config, office), 1)
    }

    fn say(&mut self, now: u64, connection: u64, message: &SouthboundMessage) {
        let first = matches!(message, SouthboundMessage::Session(SessionMessage::Hello(_)));
        let version = if first { 1 } else { self.1 };
        self.0.receive(at(now), connection, &message.encode(version).unwrap());
    }

    fn answers(&mut self, now: u64, connection: u64) -> Vec<SouthboundMessage> {
        let mut decoder = MessageDecoder::default();
        let mut answers = Vec::new();
        while let Some(bytes) = self.0.transmit(at(now), connection) {
            decoder.agree(bytes[0]);
            decoder.push(&bytes);
            answers.extend(decoder.next_message().unwrap());
        }
        answers
    }

    fn greet(&mut self, now: u64, connection: u64, generation: u64) -> Vec<SouthboundMessage> {
        assert!(self.0.connected(at(now), connection, peer("edge-1"), "here"));
        let hello = Hello { versions: vec![self.1], ..hello("edge-1", generation) };
        self.say(now, connection, &SouthboundMessage::Session(SessionMessage::Hello(hello)));
        self.answers(now, connection)
    }

    fn refused(&self, code: RefuseCode) -> u64 {
        self.0.counters().refused.get(&code).copied().unwrap_or(0)
    }
}

fn code(messages: &[SouthboundMessage]) -> Option<RefuseCode> {
    messages.iter().find_map(|message| match message {
        SouthboundMessage::Session(SessionMessage::Refuse(refuse)) => Some(refuse.code),
        _ => None,
    })
}

#[test]
fn who_is_not_who_it_says_is_refused_with_the_reason() {
    let mut hello_of_later = hello("edge-1", 0);
    hello_of_later.versions = vec![7];
    let said = |hello| SouthboundMessage::Session(SessionMessage::Hello(hello));
    let cases = [
        (None, said(hello("edge-1", 0)), RefuseCode::Identity),
        (peer("edge-2"), said(hello("edge-1", 0)), RefuseCode::Identity),
        (peer("edge-2"), said(hello("edge-2", 0)), RefuseCode::Unknown),
        (peer("edge-1"), said(hello_of_later), RefuseCode::Version),
        (peer("edge-1"), SouthboundMessage::Session(SessionMessage::Alive), RefuseCode::Protocol),
        (None, SouthboundMessage::Policy(1, PolicyMessage::Ask), RefuseCode::Protocol),
    ];
    for (peer, message, why) in cases {
        let mut controller =
            Controller::new(Office { wanted: wanted(1, &[policy(1, "web")]), ..Office::default() });
        controller.0.connected(at(0), 1, peer, "here");
        controller.say(0, 1, &message);
        let answers = controller.answers(0, 1);
        assert_eq!((answers.len(), code(&answers)), (1, Some(why)));
        assert_eq!(controller.refused(why), 1);
        assert!(controller.0.is_over(1));
    }
}

#[test]
fn rubbish_ends_a_connection_and_is_counted_by_kind() {
    let mut controller = Controller::new(Office::default());
    controller.greet(0, 1, 0);
    controller.0.receive(at(1), 1, &[1, 9, 0, 0, 0, 0, 0, 0]);
    assert_eq!(code(&controller.answers(1, 1)), Some(RefuseCode::Protocol));
    assert_eq!(controller.0.counters().malformed, BTreeMap::from([(ErrorKind::Unknown, 1)]));
    assert_eq!(controller.0.devices().count(), 0);
}

#[test]
fn a_device_that_connects_anew_takes_the_place_of_its_dead_connection() {
    let mut controller = Controller::new(Office::default());
    controller.greet(0, 1, 0);
    controller.greet(5, 2, 0);
    assert_eq!(code(&controller.answers(5, 1)), Some(RefuseCode::Replaced));
    // The end of the old connection does not end the new one.
    controller.0.lost(1);
    assert_eq!(controller.0.devices().collect::<Vec<_>>(), [&id("edge-1")]);
}

#[test]
fn two_programs_with_one_certificate_are_noticed() {
    let mut controller = Controller::new(Office { wanted: wanted(1, &[]), ..Office::default() });
    controller.greet(0, 1, 0);
    // The same agent over another connection.
    controller.greet(10, 2, 0);
    assert!(controller.0.backend().twins.is_empty());
    assert!(controller.0.connected(at(20), 3, peer("edge-1"), "there"));
    let another = Hello { instance: 2, ..hello("edge-1", 0) };
    controller.say(20, 3, &SouthboundMessage::Session(SessionMessage::Hello(another)));
    assert_eq!(controller.0.backend().twins, [("here".to_owned(), "there".to_owned())]);
    assert_eq!(controller.0.counters().twins, 1);
    assert!(controller.0.is_session(3) && !controller.0.is_session(2));
}

#[test]
fn numbers_that_nobody_was_sent_are_refused_and_none_is_used_up() {
    for number in [u64::MAX, (1 << 62) + 1, 1 << 62, 6 + BELIEVED_AHEAD] {
        let mut controller = Controller::new(Office { wanted: wanted(5, &[]), ..Office::default() });
        assert_eq!(code(&controller.greet(0, 1, number)), Some(RefuseCode::Protocol));
        assert_eq!(code(&controller.greet(1, 2, 4)), None);
        let running = GenerationAck {
            manifest: Manifest::default().hash(),
            workers: Vec::new(),
            took: None,
            stands: None,
        };
        controller.say(2, 2, &SouthboundMessage::Policy(number, PolicyMessage::Running(running)));
        assert_eq!(code(&controller.answers(2, 2)), Some(RefuseCode::Protocol));
        let office = controller.0.backend();
        assert!(office.running.is_empty() && office.ahead.is_empty());
    }
}

/// The holder of a device's key claims the highest credible number again and again: numbers remain for as
/// long as an attacker could go on, and the device gets in step under the next one.
#[test]
fn a_number_far_ahead_that_is_believed_leaves_the_device_its_way_back() {
    let mut controller = Controller::new(Office { wanted: wanted(5, &[]), ..Office::default() });
    let mut number = 5;
    for connection in 1..100 {
        number += BELIEVED_AHEAD;
        assert_eq!(code(&controller.greet(connection, connection, number)), None);
        assert_eq!(controller.0.backend().ahead.last(), Some(&number));
        // The desired generation gets a higher number, as in a real controller.
        number += 1;
        controller.0.backend().wanted = wanted(number, &[]);
        controller.0.changed(&id("edge-1"));
        controller.0.lost(connection);
    }
    // The device itself, first with the generation sent before, then with the one sent last.
    for (connection, runs) in [(200, 5), (201, number)] {
        assert_eq!(code(&controller.greet(connection, connection, runs)), None);
        controller.0.lost(connection);
    }
    assert_eq!(code(&controller.greet(300, 300, number + BELIEVED_AHEAD + 1)), Some(RefuseCode::Protocol));
    assert!(number < 1 << 40);
}

#[test]
fn a_device_that_says_much_leaves_others_their_turn() {
    let mut controller = Controller::new(Office { wanted: wanted(1, &[]), ..Office::default() });
    controller.greet(0, 1, 1);
    let delta = |n: u64| {
        let delta = Delta { from: n, to: n, counters: BTreeMap::from([("x".to_owned(), 1)]), lost: 0 };
        SouthboundMessage::Statistics(n, StatisticsMessage::Delta(delta)).encode(1).unwrap()
    };
    let all: Vec<u8> = (1..=40).flat_map(delta).collect();
    controller.0.push(at(1), 1, &all);
    let mut seen = Vec::new();
    while controller.0.work(at(1), 1) {
        seen.push(controller.0.backend().statistics);
    }
    assert_eq!((seen, controller.0.backend().statistics), (vec![16, 32], 40));
}

#[test]
fn silence_slowness_expiry_and_revocation_end_sessions() {
    // No `hello` in time.
    let mut controller = Controller::new(Office::default());
    controller.0.connected(at(0), 1, peer("edge-1"), "here");
    controller.0.tick(at(9_999));
    assert_eq!(controller.refused(RefuseCode::Silent), 0);
    controller.0.tick(at(10_000));
    assert_eq!(controller.refused(RefuseCode::Silent), 1);
    assert!(controller.0.is_dead(1));
    // The device sends but does not read: the controller queues nothing for it, and ends the session.
    let mut controller = Controller::new(Office::default());
    controller.greet(0, 1, 0);
    for second in 1..=29 {
        controller.say(second * 1_000, 1, &SouthboundMessage::Session(SessionMessage::Alive));
        controller.0.backend().wanted = wanted(second, &[policy(1, "web")]);
        controller.0.changed(&id("edge-1"));
        controller.0.tick(at(second * 1_000));
    }
    assert_eq!(controller.refused(RefuseCode::Silent), 0);
    (30..=31).for_each(|second| controller.0.tick(at(second * 1_000)));
    assert_eq!(controller.refused(RefuseCode::Silent), 1);
    // The certificate expires by the clock that the caller passes.
    let mut controller = Controller::new(Office::default());
    controller.greet(0, 1, 0);
    controller.0.tick(Now { ms: 1, unix: 1_000 });
    assert_eq!(controller.refused(RefuseCode::Expired), 0);
    controller.0.tick(Now { ms: 2, unix: 1_001 });
    assert_eq!(code(&controller.answers(2, 1)), Some(RefuseCode::Expired));
    let mut controller = Controller::new(Office::default());
    controller.greet(0, 1, 0);
    controller.0.backend().revoked = true;
    controller.0.tick(at(3));
    assert_eq!(code(&controller.answers(3, 1)), Some(RefuseCode::Revoked));
}

#[test]
fn only_what_is_missing_is_sent_and_of_its_tenants_only() {
    let objects = [policy(1, "a"), policy(1, "b"), policy(2, "c")];
    let mut controller = Controller::new(Office { wanted: wanted(4, &objects), ..Office::default() });
    let answers = controller.greet(0, 1, 0);
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[1], SouthboundMessage::Policy(4, PolicyMessage::Ask));
    // The device has b, and an object that no longer exists.
    let held = Manifest::of(&[policy(1, "b"), policy(1, "old")]);
    let inventory = PolicyMessage::Inventory(InventoryPart { objects: held, more: false });
    controller.say(1, 1, &SouthboundMessage::Policy(0, inventory.clone()));
    let Object::Policy(a) = policy(1, "a") else { unreachable!() };
    let manifest = Manifest::of(&objects[..2]).hash();
    let expected = [
        PolicyMessage::Delete(policy(1, "old").key()),
        PolicyMessage::Put(a),
        PolicyMessage::Commit(manifest),
    ];
    assert_eq!(controller.answers(1, 1), expected.map(|message| SouthboundMessage::Policy(4, message)));
    assert_eq!(controller.0.counters().withheld, 1);
    // Nothing more is sent before the answer, and nothing after it.
    assert_eq!(controller.answers(2, 1), []);
    let running = |generation, manifest| {
        SouthboundMessage::Policy(
            generation,
            PolicyMessage::Running(GenerationAck { manifest, workers: Vec::new(), took: None, stands: None }),
        )
    };
    controller.say(3, 1, &running(4, manifest));
    assert_eq!(controller.answers(3, 1), []);
    assert_eq!(controller.0.backend().running, [4]);
    // Our agents never send an unrequested inventory, or a generation that goes back.
    controller.say(4, 1, &SouthboundMessage::Policy(4, inventory));
    assert_eq!(code(&controller.answers(4, 1)), Some(RefuseCode::Protocol));
    controller.greet(5, 2, 4);
    controller.say(6, 2, &running(3, manifest));
    assert_eq!(code(&controller.answers(6, 2)), Some(RefuseCode::Protocol));
}

#[test]
fn a_device_that_is_ahead_is_told_once_and_left_alone() {
    let mut controller =
        Controller::new(Office { wanted: wanted(4, &[policy(1, "a")]), ..Office::default() });
    assert_eq!(controller.greet(0, 1, 9).len(), 1);
    controller.0.changed(&id("edge-1"));
    assert_eq!(controller.0.backend().ahead, [9]);
    // The same number with other content is ahead, too; a newer generation is not.
    controller.greet(1, 2, 4);
    assert_eq!(controller.0.backend().ahead, [9, 4]);
    controller.0.backend().wanted = wanted(10, &[]);
    controller.0.changed(&id("edge-1"));
    assert_eq!(controller.answers(2, 2), [SouthboundMessage::Policy(10, PolicyMessage::Ask)]);
}

#[test]
fn reports_come_once_and_what_cannot_be_stored_comes_again() {
    let mut controller = Controller::new(Office::default());
    controller.greet(0, 1, 0);
    let delta = SouthboundMessage::Statistics(3, StatisticsMessage::Delta(Delta::default()));
    controller.say(1, 1, &delta);
    controller.say(1, 1, &delta);
    assert_eq!(controller.answers(1, 1), [SouthboundMessage::Statistics(3, StatisticsMessage::Received)]);
    assert_eq!(controller.0.counters().repeated, 1);
    let raise = AlertMessage::Raise { alerts: Vec::new(), lost: 0 };
    controller.say(2, 1, &SouthboundMessage::Alert(1, raise));
    assert_eq!(code(&controller.answers(2, 1)), Some(RefuseCode::Unavailable));
}

#[test]
fn connections_and_orders_are_bounded() {
    let mut controller = Controller::new(Office::default());
    controller.greet(0, 1, 0);
    assert!(controller.0.connected(at(0), 2, None, "here") && controller.0.connected(at(0), 3, None, "here"));
    assert!(!controller.0.connected(at(0), 4, None, "here"));
    assert_eq!(controller.0.counters().connections_refused, 1);
    let mut order = |request| {
        controller.0.order(&id("edge-1"), request, FunctionOrder::Health, "ids", serde_json::Map::new())
    };
    assert_eq!([order(1), order(2), order(3)], [true, true, false]);
    let state =
        FunctionState { function: "ids".into(), done: true, state: "running".into(), reason: String::new() };
    controller.say(1, 1, &SouthboundMessage::Function(1, FunctionMessage::State(state)));
    assert!(controller.0.order(&id("edge-1"), 4, FunctionOrder::Health, "ids", serde_json::Map::new()));
    assert!(!controller.0.order(&id("edge-9"), 5, FunctionOrder::Health, "ids", serde_json::Map::new()));
}

/// Two workers that run a generation at all levels.
fn workers(generation: u64) -> Vec<WorkerRuns> {
    let levels = BTreeMap::from([("host".to_owned(), generation), ("xdp".to_owned(), generation)]);
    [0, 1].map(|worker| WorkerRuns { link: "wan".into(), worker, levels: levels.clone() }).to_vec()
}

#[test]
fn an_acknowledgement_in_short_is_one_in_full_and_only_of_what_was_committed() {
    let took = ApplyTimings { build: 1, store: 2, swap: 3 };
    let done = |generation| SouthboundMessage::Policy(generation, PolicyMessage::Done(took));
    let running = |generation| {
        let (manifest, workers) = (Manifest::default().hash(), workers(generation));
        SouthboundMessage::Policy(
            generation,
            PolicyMessage::Running(GenerationAck { manifest, workers, took: None, stands: None }),
        )
    };
    // A controller that has committed generation 5; `named` means that the device has named its workers
    // before.
    let committed = |named: bool| {
        let mut controller = Controller::new(Office { wanted: wanted(5, &[]), ..Office::default() });
        controller.1 = 3;
        controller.greet(0, 1, 4);
        if named {
            controller.say(1, 1, &running(4));
        }
        let held = Manifest::of(&[policy(1, "old")]);
        let inventory = PolicyMessage::Inventory(InventoryPart { objects: held, more: false });
        controller.say(1, 1, &SouthboundMessage::Policy(4, inventory));
        let commit = controller.answers(1, 1).pop();
        assert_eq!(
            commit,
            Some(SouthboundMessage::Policy(5, PolicyMessage::Commit(Manifest::default().hash())))
        );
        controller
    };
    let mut controller = committed(true);
    controller.say(2, 1, &done(5));
    assert_eq!(controller.answers(2, 1), []);
    let office = controller.0.backend();
    assert_eq!(office.running, [4, 5]);
    let full = GenerationAck {
        manifest: Manifest::default().hash(),
        workers: workers(5),
        took: Some(took),
        stands: None,
    };
    assert_eq!(office.said.as_ref(), Some(&full));
    // A short acknowledgement of another generation, or before workers were named.
    let cases = [(true, 5), (true, 6), (true, 4), (false, 5)];
    for (index, (named, generation)) in cases.into_iter().enumerate() {
        let mut controller = committed(named);
        if index == 0 {
            controller.say(2, 1, &done(5));
        }
        let before = controller.0.backend().running.clone();
        controller.say(3, 1, &done(generation));
        assert_eq!(code(&controller.answers(3, 1)), Some(RefuseCode::Protocol), "{index}");
        assert_eq!(controller.0.backend().running, before);
    }
}

#[test]
fn an_agent_acknowledges_in_short_what_was_committed_over_the_connection_and_all_else_in_full() {
    let took = ApplyTimings { build: 1, store: 2, swap: 3 };
    let commit =
        |generation| SouthboundMessage::Policy(generation, PolicyMessage::Commit(Manifest::default().hash()));
    let apply = |session: &mut Session, outcome| {
        let Some(SessionAction::Apply(candidate)) = session.action() else { panic!("nothing is built") };
        session.set_timings(took);
        session.applied(candidate.held.generation, outcome);
    };
    let mut session = in_step_with(running(3, &[]), 3);
    // The agent has named no workers over this connection: its report after `welcome` had none.
    hear(&mut session, 3, &commit(4));
    apply(&mut session, Ok(workers(4)));
    let full = |generation| {
        let (manifest, workers) = (Manifest::default().hash(), workers(generation));
        SouthboundMessage::Policy(
            generation,
            PolicyMessage::Running(GenerationAck { manifest, workers, took: Some(took), stands: None }),
        )
    };
    let done = |generation| SouthboundMessage::Policy(generation, PolicyMessage::Done(took));
    assert_eq!(said(&mut session), [full(4)]);
    hear(&mut session, 3, &commit(5));
    apply(&mut session, Ok(workers(5)));
    assert_eq!(said(&mut session), [done(5)]);
    // Known workers are not reported again; changed ones are, in full. A repeated commit is answered in
    // short.
    session.workers_changed(workers(5));
    assert!(said(&mut session).is_empty());
    session.workers_changed(Vec::new());
    assert_eq!(said(&mut session).len(), 1);
    session.workers_changed(workers(5));
    assert_eq!(said(&mut session), [full(5)]);
    hear(&mut session, 3, &commit(5));
    assert_eq!(said(&mut session), [done(5)]);
    // A generation that could not be stored was refused: running it later answers nothing.
    hear(&mut session, 3, &commit(6));
    apply(
        &mut session,
        Err(GenerationRefusal { code: GenerationRefusalCode::Store, diagnostics: Vec::new(), more: 0 }),
    );
    assert!(matches!(&said(&mut session)[..], [SouthboundMessage::Policy(6, PolicyMessage::Refused(_))]));
    session.tick(at(0));
    session.tick(at(2_000));
    apply(&mut session, Ok(workers(6)));
    assert_eq!(said(&mut session), [full(6)]);
    // The running generation of that number has other content: a controller whose store was restored gets no
    // acknowledgement of it.
    hear(&mut session, 3, &commit(7));
    let other = PolicyMessage::Commit(Manifest::of(&[policy(1, "a")]).hash());
    hear(&mut session, 3, &SouthboundMessage::Policy(7, other));
    apply(&mut session, Ok(workers(7)));
    let said_of_it = said(&mut session);
    assert_eq!(said_of_it.first(), Some(&full(7)));
    assert!(matches!(&said_of_it[1..], [SouthboundMessage::Policy(7, PolicyMessage::Refused(refusal))]
        if refusal.code == GenerationRefusalCode::Stale));
    // A worker that lags is named, and every worker is named over the next connection.
    hear(&mut session, 3, &commit(8));
    let mut behind = workers(8);
    behind[1].levels.insert("xdp".into(), 7);
    apply(&mut session, Ok(behind.clone()));
    let Some(SouthboundMessage::Policy(8, PolicyMessage::Running(told))) = said(&mut session).pop() else {
        panic!()
    };
    assert_eq!(told.workers, behind);
}

#[test]
fn an_agent_says_its_links_and_ports_first_behind_each_welcome_of_version_5() {
    let interfaces = Interfaces { links: vec!["wan".into()], ports: vec!["trap".into()] };
    let told = SouthboundMessage::Session(SessionMessage::Interfaces(interfaces.clone()));
    let said_in = |version, interfaces: &Option<Interfaces>| {
        let interfaces = interfaces.clone();
        let config = SessionConfig { interfaces, ..SessionConfig::new(id("edge-1"), 1) };
        let mut session = Session::new(config, running(3, &[]), Vec::new());
        let mut all = Vec::new();
        for _ in 0..2 {
            session.tick(at(60_000));
            while session.action().is_some() {}
            session.dialled(at(60_000));
            assert!(session.transmit(at(60_000)).is_some());
            let welcome =
                Welcome { version, controller: "c".into(), keep_alive_ms: 1_000, statistics: 0, alerts: 0 };
            hear(&mut session, 1, &SouthboundMessage::Session(SessionMessage::Welcome(welcome)));
            all.push(said(&mut session));
            session.lost(at(0));
        }
        all
    };
    for said in said_in(5, &Some(interfaces.clone())) {
        assert_eq!(said.first(), Some(&told));
        assert!(matches!(&said[1..], [SouthboundMessage::Policy(3, PolicyMessage::Running(_))]));
    }
    let many = Interfaces { links: vec![String::new(); limits::INTERFACES + 1], ports: Vec::new() };
    let without = [said_in(4, &Some(interfaces)), said_in(5, &None), said_in(5, &Some(many))];
    for said in without.into_iter().flatten() {
        assert!(matches!(&said[..], [SouthboundMessage::Policy(3, PolicyMessage::Running(_))]), "{said:?}");
    }
}

#[test]
fn a_controller_is_told_of_links_and_ports_in_version_5_only() {
    let interfaces = |name: &str| Interfaces { links: vec![name.into()], ports: Vec::new() };
    let told = |name: &str| SouthboundMessage::Session(SessionMessage::Interfaces(interfaces(name)));
    let mut controller = Controller::new(Office { wanted: wanted(1, &[]), ..Office::default() });
    controller.1 = 5;
    controller.greet(0, 1, 1);
    controller.say(1, 1, &told("wan"));
    controller.say(2, 1, &told("lan"));
    assert_eq!((controller.answers(2, 1), controller.0.is_session(1)), (vec![], true));
    assert_eq!(controller.0.backend().interfaces, [interfaces("wan"), interfaces("lan")]);
    // Before `hello`, and in an older version.
    let mut controller = Controller::new(Office::default());
    controller.0.connected(at(0), 1, peer("edge-1"), "here");
    let mut bytes = told("wan").encode(5).unwrap();
    controller.0.receive(at(0), 1, &bytes);
    assert_eq!(code(&controller.answers(0, 1)), Some(RefuseCode::Protocol));
    controller.1 = 4;
    controller.greet(1, 2, 0);
    bytes[0] = 4;
    controller.0.receive(at(1), 2, &bytes);
    assert_eq!(code(&controller.answers(1, 2)), Some(RefuseCode::Protocol));
    assert_eq!(controller.0.counters().malformed.get(&ErrorKind::Unknown), Some(&1));
    assert!(controller.0.backend().interfaces.is_empty());
}

/// An agent in step with a controller that the test plays.
fn in_step(held: ControllerGeneration) -> Session {
    in_step_with(held, 1)
}

/// An agent in step, with this version of the protocol.
fn in_step_with(held: ControllerGeneration, version: u8) -> Session {
    let mut session = Session::new(SessionConfig::new(id("edge-1"), 1), held, Vec::new());
    session.tick(at(0));
    assert_eq!(session.action(), Some(SessionAction::Dial));
    session.dialled(at(0));
    assert!(session.transmit(at(0)).is_some());
    let welcome = Welcome { version, controller: "c".into(), keep_alive_ms: 1_000, statistics: 0, alerts: 0 };
    hear(&mut session, 1, &SouthboundMessage::Session(SessionMessage::Welcome(welcome)));
    assert!(session.is_in_step());
    said(&mut session);
    session
}

fn hear(session: &mut Session, version: u8, message: &SouthboundMessage) {
    session.receive(at(0), &message.encode(version).unwrap());
}

fn said(session: &mut Session) -> Vec<SouthboundMessage> {
    let mut decoder = MessageDecoder::default();
    while let Some(bytes) = session.transmit(at(0)) {
        decoder.agree(bytes[0]);
        decoder.push(&bytes);
    }
    std::iter::from_fn(|| decoder.next_message().unwrap()).collect()
}

fn running(generation: u64, objects: &[Object]) -> ControllerGeneration {
    ControllerGeneration {
        generation,
        objects: objects.iter().map(|object| (object.key(), Arc::new(object.clone()))).collect(),
    }
}

#[test]
fn generations_that_are_not_newer_are_refused_and_counted() {
    let held = running(5, &[policy(1, "a")]);
    let manifest = held.manifest().hash();
    let mut session = in_step(held.clone());
    let Object::Policy(other) = policy(1, "b") else { unreachable!() };
    // Replayed messages are neither applied nor run.
    for generation in [4, 5] {
        hear(&mut session, 1, &SouthboundMessage::Policy(generation, PolicyMessage::Put(other.clone())));
        hear(
            &mut session,
            1,
            &SouthboundMessage::Policy(generation, PolicyMessage::Delete(policy(1, "a").key())),
        );
        hear(
            &mut session,
            1,
            &SouthboundMessage::Policy(generation, PolicyMessage::Commit(Manifest::default().hash())),
        );
        let refused = said(&mut session);
        assert!(matches!(&refused[..], [SouthboundMessage::Policy(number, PolicyMessage::Refused(refusal))]
            if *number == generation && refusal.code == GenerationRefusalCode::Stale));
    }
    assert_eq!(session.counters().stale, 6);
    assert_eq!((session.action(), session.running()), (None, &held));
    // The running generation is acknowledged again: the answer may have been lost.
    hear(&mut session, 1, &SouthboundMessage::Policy(5, PolicyMessage::Commit(manifest)));
    assert!(matches!(&said(&mut session)[..], [SouthboundMessage::Policy(5, PolicyMessage::Running(_))]));
    // A newer generation is built; a repeated commit of it is ignored meanwhile, another generation is built
    // next.
    let commit = |generation| SouthboundMessage::Policy(generation, PolicyMessage::Commit(manifest));
    hear(&mut session, 1, &commit(6));
    hear(&mut session, 1, &commit(6));
    hear(&mut session, 1, &commit(7));
    let Some(SessionAction::Apply(candidate)) = session.action() else { panic!("nothing is built") };
    assert_eq!((candidate.held.generation, session.action()), (6, None));
    session.applied(6, Ok(Vec::new()));
    let Some(SessionAction::Apply(candidate)) = session.action() else { panic!("nothing is built") };
    assert_eq!((candidate.held.generation, session.running().generation), (7, 6));
}

#[test]
fn what_is_refused_is_told_with_the_place_and_not_tried_again() {
    let mut session = in_step(ControllerGeneration::default());
    hear(&mut session, 1, &SouthboundMessage::Policy(1, PolicyMessage::Commit(Manifest::default().hash())));
    assert!(matches!(session.action(), Some(SessionAction::Apply(_))));
    let diagnostic = PolicyDiagnostic {
        object: ObjectKey::policy(1, "a"),
        pointer: "/chain/0".into(),
        line: 1,
        column: 2,
        message: "no such function".into(),
    };
    let diagnostics = vec![diagnostic; limits::DIAGNOSTICS + 3];
    session.applied(1, Err(GenerationRefusal { code: GenerationRefusalCode::Policy, diagnostics, more: 0 }));
    let [SouthboundMessage::Policy(1, PolicyMessage::Refused(refusal))] = &said(&mut session)[..] else {
        panic!()
    };
    assert_eq!((refusal.diagnostics.len(), refusal.more), (limits::DIAGNOSTICS, 3));
    // The agent reports the refusal over the next connection, and a controller does not send the generation
    // again.
    session.lost(at(0));
    session.tick(at(60_000));
    session.dialled(at(60_000));
    let mut decoder = MessageDecoder::default();
    decoder.push(&session.transmit(at(60_000)).unwrap());
    let Ok(Some(SouthboundMessage::Session(SessionMessage::Hello(hello)))) = decoder.next_message() else {
        panic!()
    };
    assert_eq!((hello.generation, hello.refused), (0, 1));
    let mut controller = Controller::new(Office { wanted: wanted(1, &[]), ..Office::default() });
    controller.0.connected(at(0), 1, peer("edge-1"), "here");
    controller.say(0, 1, &SouthboundMessage::Session(SessionMessage::Hello(hello)));
    assert_eq!(controller.answers(0, 1).len(), 1);
}

#[test]
fn what_could_not_be_stored_is_tried_again_over_the_same_connection() {
    let full =
        || Err(GenerationRefusal { code: GenerationRefusalCode::Store, diagnostics: Vec::new(), more: 0 });
    let mut session = in_step(running(3, &[]));
    let commit =
        |generation| SouthboundMessage::Policy(generation, PolicyMessage::Commit(Manifest::default().hash()));
    hear(&mut session, 1, &commit(4));
    let Some(SessionAction::Apply(first)) = session.action() else { panic!("nothing is built") };
    // Retries wait longer each time, one minute at most.
    let (mut now, mut waited) = (0, Vec::new());
    for _ in 0..12 {
        session.applied(4, full());
        assert!(matches!(&said(&mut session)[..], [SouthboundMessage::Policy(4, PolicyMessage::Refused(_))]));
        session.tick(at(now));
        assert_eq!(session.action(), None, "not at once");
        let begun = now;
        while session.action().is_none_or(|action| action != SessionAction::Apply(first.clone())) {
            now += 250;
            live(&mut session, now);
            assert!(now < begun + 61_000, "it is not tried again");
        }
        waited.push(now - begun);
    }
    assert!(waited[0] <= 750 && waited[11] >= 30_000, "{waited:?}");
    session.applied(4, Ok(Vec::new()));
    assert!(matches!(&said(&mut session)[..], [SouthboundMessage::Policy(4, PolicyMessage::Running(_))]));
    // A generation that arrives meanwhile replaces it.
    hear(&mut session, 1, &commit(5));
    assert!(matches!(session.action(), Some(SessionAction::Apply(_))));
    session.applied(5, full());
    hear(&mut session, 1, &commit(6));
    let Some(SessionAction::Apply(candidate)) = session.action() else { panic!("nothing is built") };
    assert_eq!(candidate.held.generation, 6);
    session.applied(6, Ok(Vec::new()));
    for _ in 0..300 {
        now += 250;
        live(&mut session, now);
        assert_eq!((session.action(), session.running().generation), (None, 6));
    }
}

/// The controller sends a keep-alive, and time passes to `now`.
fn live(session: &mut Session, now: u64) {
    session.receive(at(now), &SouthboundMessage::Session(SessionMessage::Alive).encode(1).unwrap());
    session.tick(at(now));
    while session.transmit(at(now)).is_some() {}
}

#[test]
fn an_agent_counts_what_is_not_for_it_or_not_in_place() {
    let mut session = in_step(ControllerGeneration::default());
    let rule = RuleMessage {
        device: id("edge-2").number(),
        rule_type: RuleType::Ids,
        op: RuleOp::Add,
        group: 1,
        total: 1,
        current: 0,
        generation: 1,
        tenant: 1,
        rules: GroupRules::Ids(vec![(1, 1)]),
    };
    hear(&mut session, 1, &SouthboundMessage::Rule(rule));
    assert_eq!(session.counters().misaddressed, 1);
    assert!(session.is_in_step());
    hear(
        &mut session,
        1,
        &SouthboundMessage::Policy(
            1,
            PolicyMessage::Running(GenerationAck {
                manifest: Hash([0; 32]),
                workers: Vec::new(),
                took: None,
                stands: None,
            }),
        ),
    );
    assert_eq!(session.counters().out_of_place, 1);
    assert!(matches!(session.action(), Some(SessionAction::HangUp(End::Protocol(_)))));
    assert_eq!(session.transmit(at(0)), None);
}

#[test]
fn an_agent_leaves_a_dead_controller_and_waits_as_long_as_it_is_told() {
    let mut session = in_step(running(3, &[]));
    session.tick(at(2_999));
    assert!(session.is_in_step());
    session.tick(at(3_000));
    assert_eq!(session.action(), Some(SessionAction::HangUp(End::Dead)));
    assert_eq!(session.counters().dead, 1);
    let mut session = in_step(running(3, &[]));
    let refuse = Refuse {
        code: RefuseCode::Unavailable,
        message: "later".into(),
        versions: vec![1],
        retry_ms: 90_000,
    };
    hear(&mut session, 1, &SouthboundMessage::Session(SessionMessage::Refuse(refuse)));
    assert!(matches!(session.action(), Some(SessionAction::HangUp(End::Refused(_)))));
    session.tick(at(89_999));
    assert_eq!((session.action(), session.wake()), (None, 90_000));
    session.tick(at(90_000));
    assert_eq!(session.action(), Some(SessionAction::Dial));
    assert_eq!(session.running().generation, 3);
}

#[test]
fn an_agent_whose_certificate_expires_hangs_up_and_does_not_dial() {
    let mut session = in_step(running(3, &[]));
    session.set_valid_until(100);
    session.tick(Now { ms: 1, unix: 100 });
    assert!(session.is_in_step());
    session.tick(Now { ms: 2, unix: 101 });
    assert_eq!(session.action(), Some(SessionAction::HangUp(End::Expired)));
    session.tick(Now { ms: 100_000, unix: 201 });
    assert_eq!((session.action(), session.running().generation), (None, 3));
    // The agent goes on with a new certificate.
    session.set_valid_until(1_000);
    session.tick(Now { ms: 200_000, unix: 301 });
    assert_eq!(session.action(), Some(SessionAction::Dial));
}

#[test]
fn orders_beyond_the_bound_are_answered_and_reports_beyond_it_are_counted() {
    let mut config = SessionConfig::new(id("edge-1"), 1);
    (config.orders, config.statistics, config.alerts) = (1, 2, 2);
    let mut session = Session::new(config, ControllerGeneration::default(), Vec::new());
    let counters = || BTreeMap::from([("a".to_owned(), 1)]);
    (0..5).for_each(|n| session.statistics(Delta { from: n, to: n, lost: 0, counters: counters() }));
    let alert = |key: String| AlertAggregate {
        key,
        tenant: 1,
        rule: "1:1:1".into(),
        message: "é".repeat(5_000),
        count: 1,
        first: 1,
        last: 1,
        event: serde_json::Map::new(),
    };
    (0..5).for_each(|n| session.alert(alert(n.to_string())));
    session.alert(alert("k".repeat(10_000)));
    assert_eq!((session.counters().statistics_lost, session.counters().alerts_lost), (3, 4));
    session.tick(at(0));
    session.dialled(at(0));
    session.transmit(at(0));
    let welcome =
        Welcome { version: 1, controller: "c".into(), keep_alive_ms: 1_000, statistics: 0, alerts: 0 };
    hear(&mut session, 1, &SouthboundMessage::Session(SessionMessage::Welcome(welcome)));
    let order = |request| {
        let (function, settings) = ("ids".to_owned(), serde_json::Map::new());
        SouthboundMessage::Function(
            request,
            FunctionMessage::Order { order: FunctionOrder::Stop, function, settings },
        )
    };
    hear(&mut session, 1, &order(1));
    hear(&mut session, 1, &order(2));
    let said = said(&mut session);
    let not_done = said
        .iter()
        .any(|message| matches!(message, SouthboundMessage::Function(2, FunctionMessage::State(state)) if !state.done));
    assert!(not_done);
    let lost = said.iter().filter_map(|message| match message {
        SouthboundMessage::Statistics(_, StatisticsMessage::Delta(delta)) => Some(delta.lost),
        SouthboundMessage::Alert(_, AlertMessage::Raise { lost, .. }) => Some(*lost),
        _ => None,
    });
    assert_eq!(lost.collect::<Vec<_>>(), [4, 3, 3]);
}

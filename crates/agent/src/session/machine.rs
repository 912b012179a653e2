// SPDX-License-Identifier: Apache-2.0
//! The session: dial, greet, be in step, and again when the connection is lost.

use super::backoff::Backoff;
use super::outbox::{Alerts, Outbox};
use super::stage::{Held, Objects, Stage};
use bartizan_api::southbound::{
    Alert, AlertMessage, DONE_SINCE, Decoder, Delta, DeviceId, Enrol, Enrolled, ErrorKind, FIRST_VERSION,
    FunctionMessage, FunctionOrder, FunctionState, Hash, Hello, INTERFACES_SINCE, Interfaces, Inventory,
    LastRunning, Message, Now, Object, ObjectKey, PolicyMessage, Pulse, Refusal, RefusalCode, Refuse,
    RefuseCode, RuleMessage, Running, SessionMessage, Stands, StatisticsMessage, Took, VERSIONS, Welcome,
    WorkerRuns, limits,
};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};

/// Milliseconds from dialling to the controller's welcome, at most.
const GREETING: u64 = 10_000;

/// Bytes of text of alerts in one message.
const ALERT_BYTES: usize = 2 << 10;

/// Counters of one message.
const DELTA_COUNTERS: usize = limits::COUNTERS / 4;

/// What a session is begun with.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Who the device is.
    pub device: DeviceId,
    /// Program and version.
    pub software: String,
    /// A number by chance, another one with each start.
    pub instance: u64,
    /// For the times between attempts.
    pub seed: u64,
    /// Messages with statistics that wait at most.
    pub statistics: usize,
    /// Alerts that wait at most.
    pub alerts: usize,
    /// Orders to functions that are open at most.
    pub orders: usize,
    /// The links and ports of the device, for policies to name; none if it does not say. They are those of a
    /// start: the host file is read once.
    pub interfaces: Option<Interfaces>,
}

impl SessionConfig {
    /// With the usual bounds.
    #[must_use]
    pub fn new(device: DeviceId, instance: u64) -> Self {
        let software = concat!("bartizan ", env!("CARGO_PKG_VERSION")).to_owned();
        SessionConfig {
            device,
            software,
            instance,
            seed: instance,
            statistics: 64,
            alerts: 4_096,
            orders: 64,
            interfaces: None,
        }
    }
}

/// A generation that came whole: to be built, stored and answered with [`Session::applied`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number and objects.
    pub held: Held,
    /// Hash of its manifest.
    pub manifest: Hash,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The transport was lost, or never came about.
    Lost,
    /// The controller gave no sign of life, or took none.
    Dead,
    /// What came was no message, or none that may stand there.
    Protocol(String),
    /// The controller refused or ended it.
    Refused(Refuse),
    /// The controller ended it in order.
    Bye,
    /// The device's certificate has expired: the device goes on with what it has, and needs a new one.
    Expired,
}

/// What is to be done by whoever drives the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a connection; answer with [`Session::dialled`] or [`Session::lost`].
    Dial,
    /// Close the connection.
    HangUp(End),
    /// Build a generation, store it, and answer with [`Session::applied`].
    Apply(Candidate),
    /// Carry out an order, and answer with [`Session::answer`].
    Order {
        /// Number of the request.
        request: u32,
        /// What to do.
        order: FunctionOrder,
        /// With which function.
        function: String,
        /// Its settings.
        settings: Map<String, Value>,
    },
    /// A new certificate, which was asked for with [`Session::renew`].
    Renewed(Enrolled),
}

/// What happened, counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were asked for.
    pub dials: u64,
    /// Sessions that a controller took.
    pub sessions: u64,
    /// Controllers' refusals, by reason.
    pub refused: BTreeMap<RefuseCode, u64>,
    /// Controllers that gave no sign of life.
    pub dead: u64,
    /// What was no message, by kind.
    pub malformed: BTreeMap<ErrorKind, u64>,
    /// Messages that may not stand where they stood.
    pub out_of_place: u64,
    /// Rule messages for another device.
    pub misaddressed: u64,
    /// Messages for a generation that is not newer than what runs.
    pub stale: u64,
    /// Generations that were refused, by reason.
    pub generations_refused: BTreeMap<RefusalCode, u64>,
    /// Statistics messages that were thrown away.
    pub statistics_lost: u64,
    /// Alerts that were thrown away.
    pub alerts_lost: u64,
    /// Connections that ended because the certificate has expired.
    pub expired: u64,
}

#[derive(Debug)]
enum Link {
    Idle { again: u64 },
    Dialling,
    Greeting { since: u64, said: bool },
    InStep { version: u8 },
}

/// An agent's session.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    link: Link,
    backoff: Backoff,
    decoder: Decoder,
    pulse: Pulse,
    actions: VecDeque<Action>,
    /// What runs.
    held: Held,
    manifest: Hash,
    workers: Vec<WorkerRuns>,
    /// How long what runs took; not known of what a start has built.
    took: Option<Took>,
    next_took: Option<Took>,
    /// What levels do, where the device says so.
    stands: Option<Stands>,
    next_stands: Option<Stands>,
    stage: Stage,
    /// What is being built, and the commit that came meanwhile.
    building: Option<Candidate>,
    next_commit: Option<(u64, Hash)>,
    /// The last commit over this connection, while it is not answered, and the workers that were named over
    /// it.
    unanswered: Option<(u64, Hash)>,
    told: LastRunning,
    /// What could not be stored, and when to try again.
    unstored: Option<(Option<u64>, Candidate)>,
    patience: Backoff,
    refused: Option<(u64, Refusal)>,
    tell_interfaces: bool,
    tell_running: bool,
    tell_refused: bool,
    /// An inventory is to be sent: behind which key it goes on.
    inventory: Option<Option<ObjectKey>>,
    answers: VecDeque<(u32, FunctionState)>,
    /// Functions that are not as they should be, and those whose state the controller was not told yet.
    health: BTreeMap<String, FunctionState>,
    untold: BTreeMap<String, FunctionState>,
    open_orders: usize,
    statistics: Outbox<Delta>,
    alerts: Alerts,
    renewal: Option<Enrol>,
    /// Until when the certificate is valid, seconds since 1970.
    valid_until: u64,
    counters: Counters,
}

impl Session {
    /// Begins with what the store has. It dials at once.
    #[must_use]
    pub fn new(config: SessionConfig, held: Held, workers: Vec<WorkerRuns>) -> Self {
        Session {
            link: Link::Idle { again: 0 },
            backoff: Backoff::new(config.seed),
            decoder: Decoder::default(),
            pulse: Pulse::new(Now::default(), GREETING),
            actions: VecDeque::new(),
            manifest: held.manifest().hash(),
            stage: Stage::of(&held),
            held,
            workers,
            took: None,
            next_took: None,
            stands: None,
            next_stands: None,
            building: None,
            next_commit: None,
            unanswered: None,
            told: LastRunning::default(),
            unstored: None,
            patience: Backoff::new(config.seed),
            refused: None,
            tell_interfaces: false,
            tell_running: false,
            tell_refused: false,
            inventory: None,
            answers: VecDeque::new(),
            health: BTreeMap::new(),
            untold: BTreeMap::new(),
            open_orders: 0,
            statistics: Outbox::new(config.statistics),
            alerts: Alerts::new(config.alerts),
            renewal: None,
            valid_until: u64::MAX,
            counters: Counters::default(),
            config,
        }
    }

    /// Until when the device's certificate is valid, seconds since 1970.
    pub fn set_valid_until(&mut self, unix: u64) {
        self.valid_until = unix;
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let (statistics_lost, alerts_lost) = (self.statistics.lost(), self.alerts.outbox.lost());
        Counters { statistics_lost, alerts_lost, ..self.counters.clone() }
    }

    /// The generation that runs.
    #[must_use]
    pub fn running(&self) -> &Held {
        &self.held
    }

    /// The hash of its manifest.
    #[must_use]
    pub const fn manifest(&self) -> Hash {
        self.manifest
    }

    /// Whether a controller has taken the session.
    #[must_use]
    pub fn is_in_step(&self) -> bool {
        matches!(self.link, Link::InStep { .. })
    }

    /// What is to be done next.
    pub fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Lets time pass: dials, ends what is dead, and tries again what could not be stored.
    pub fn tick(&mut self, now: Now) {
        self.store_again(now);
        let to_say = self.has_something_to_say(now);
        let expired = now.unix > self.valid_until;
        match self.link {
            Link::Idle { again } if now.ms >= again => {
                if expired {
                    // It waits for a new certificate, or a clock that is set right.
                    self.counters.expired += 1;
                    self.link = Link::Idle { again: now.ms.saturating_add(self.backoff.next()) };
                    return;
                }
                self.counters.dials += 1;
                self.link = Link::Dialling;
                self.pulse = Pulse::new(now, GREETING);
                self.actions.push_back(Action::Dial);
            }
            Link::Idle { .. } => {}
            _ if expired => {
                self.counters.expired += 1;
                self.end(now, End::Expired);
            }
            Link::Greeting { since, .. } if now.ms >= since.saturating_add(GREETING) => self.die(now),
            Link::Greeting { .. } => {}
            Link::Dialling | Link::InStep { .. } => {
                if self.pulse.is_dead(now, to_say) {
                    self.die(now);
                }
            }
        }
    }

    /// When to call [`Session::tick`] at the latest, in milliseconds; and [`Session::transmit`] too.
    #[must_use]
    pub fn wake(&self) -> u64 {
        let link = match self.link {
            Link::Idle { again } => again,
            Link::Greeting { since, .. } => since.saturating_add(GREETING),
            Link::Dialling | Link::InStep { .. } => self.pulse.wake(),
        };
        let unstored = self.unstored.as_ref().and_then(|(at, _)| *at);
        link.min(unstored.unwrap_or(u64::MAX))
    }

    /// What could not be stored is tried again by itself: a disk that was full has room some time, and nobody
    /// sends a generation twice over one connection.
    fn store_again(&mut self, now: Now) {
        if self.building.is_some() {
            return;
        }
        let Some((at, candidate)) = &mut self.unstored else { return };
        let at = *at.get_or_insert_with(|| now.ms.saturating_add(self.patience.next()));
        if now.ms >= at {
            let candidate = candidate.clone();
            self.unstored = None;
            self.apply(candidate);
        }
    }

    /// The connection stands, with its TLS.
    pub fn dialled(&mut self, now: Now) {
        self.decoder = Decoder::default();
        self.pulse = Pulse::new(now, GREETING);
        self.stage.reconnected();
        self.forget_passing_refusal();
        self.inventory = None;
        (self.unanswered, self.told) = (None, LastRunning::default());
        self.link = Link::Greeting { since: now.ms, said: false };
    }

    /// A refusal that says nothing of the generation itself is not said again: it may be taken another time.
    fn forget_passing_refusal(&mut self) {
        let passing = |code| matches!(code, RefusalCode::Manifest | RefusalCode::Store);
        drop(self.refused.take_if(|(_, refusal)| passing(refusal.code)));
    }

    /// The connection is lost, or did not come about.
    pub fn lost(&mut self, now: Now) {
        if !matches!(self.link, Link::Idle { .. }) {
            self.rest(now, 0);
        }
    }

    fn die(&mut self, now: Now) {
        self.counters.dead += 1;
        self.end(now, End::Dead);
    }

    fn end(&mut self, now: Now, why: End) {
        let at_least = if let End::Refused(refuse) = &why { u64::from(refuse.retry_ms) } else { 0 };
        self.rest(now, at_least);
        self.actions.push_back(Action::HangUp(why));
    }

    /// Nothing is open; it dials again after a while.
    fn rest(&mut self, now: Now, at_least: u64) {
        self.link = Link::Idle { again: now.ms.saturating_add(self.backoff.next().max(at_least)) };
    }

    /// Takes bytes of the connection.
    pub fn receive(&mut self, now: Now, bytes: &[u8]) {
        if matches!(self.link, Link::Idle { .. } | Link::Dialling) {
            return;
        }
        self.pulse.heard(now);
        self.decoder.push(bytes);
        loop {
            if matches!(self.link, Link::Idle { .. }) {
                return;
            }
            match self.decoder.next_message() {
                Ok(Some(message)) => self.take(now, message),
                Ok(None) => return,
                Err(error) => {
                    *self.counters.malformed.entry(error.kind()).or_default() += 1;
                    self.end(now, End::Protocol(error.to_string()));
                    return;
                }
            }
        }
    }

    fn take(&mut self, now: Now, message: Message) {
        match (&self.link, message) {
            (_, Message::Session(SessionMessage::Refuse(refuse))) => {
                *self.counters.refused.entry(refuse.code).or_default() += 1;
                self.end(now, End::Refused(refuse));
            }
            (_, Message::Session(SessionMessage::Bye)) => self.end(now, End::Bye),
            (Link::Greeting { .. }, Message::Session(SessionMessage::Welcome(welcome))) => {
                self.welcome(now, &welcome);
            }
            (Link::InStep { .. }, message) => self.in_step(now, message),
            (_, message) => self.out_of_place(now, &message),
        }
    }

    fn welcome(&mut self, now: Now, welcome: &Welcome) {
        if !VERSIONS.contains(&welcome.version) {
            *self.counters.malformed.entry(ErrorKind::Version).or_default() += 1;
            let what = format!("the controller chose version {}, which was not offered", welcome.version);
            self.end(now, End::Protocol(what));
            return;
        }
        self.counters.sessions += 1;
        self.link = Link::InStep { version: welcome.version };
        self.decoder.agree(welcome.version);
        self.pulse.agree(u64::from(welcome.keep_alive_ms));
        self.backoff.reset();
        self.statistics.begin(welcome.statistics);
        self.alerts.outbox.begin(welcome.alerts);
        let says = self.config.interfaces.as_ref().is_some_and(Interfaces::fits);
        self.tell_interfaces = says && welcome.version >= INTERFACES_SINCE;
        // Whatever answer was lost is said again.
        self.tell_running = true;
        self.tell_refused = self.refused.is_some();
        // With each session anew; that a function runs needs no word.
        self.untold = self.health.clone();
    }

    fn in_step(&mut self, now: Now, message: Message) {
        match message {
            Message::Session(SessionMessage::Alive) => {}
            Message::Session(SessionMessage::Enrolled(enrolled)) => {
                self.actions.push_back(Action::Renewed(enrolled));
            }
            Message::Policy(_, PolicyMessage::Ask) => self.inventory = Some(None),
            Message::Policy(generation, PolicyMessage::Put(policy)) if self.is_new(generation) => {
                self.stage.put(Object::Policy(policy));
            }
            Message::Policy(generation, PolicyMessage::Delete(key)) if self.is_new(generation) => {
                self.stage.delete(&key);
            }
            Message::Policy(_, PolicyMessage::Put(_) | PolicyMessage::Delete(_)) => {}
            Message::Policy(generation, PolicyMessage::Commit(manifest)) => {
                self.unanswered = Some((generation, manifest));
                self.commit(generation, manifest);
            }
            Message::Rule(message) => self.rules(message),
            Message::Function(request, FunctionMessage::Order { order, function, settings }) => {
                if self.open_orders >= self.config.orders {
                    let reason = "too many orders are open; wait for their answers".to_owned();
                    let state = FunctionState { function, done: false, state: "unknown".into(), reason };
                    self.answers.push_back((request, state));
                    self.answers.truncate(self.config.orders * 2);
                    return;
                }
                self.open_orders += 1;
                self.actions.push_back(Action::Order { request, order, function, settings });
            }
            Message::Statistics(sequence, StatisticsMessage::Received) => self.statistics.received(sequence),
            Message::Alert(sequence, AlertMessage::Received) => self.alerts.outbox.received(sequence),
            message => self.out_of_place(now, &message),
        }
    }

    fn out_of_place(&mut self, now: Now, message: &Message) {
        self.counters.out_of_place += 1;
        self.end(now, End::Protocol(format!("a {} message that may not stand here", message.sub().name())));
    }

    /// Whether a generation is newer than what runs. What is not is counted.
    fn is_new(&mut self, generation: u64) -> bool {
        let new = generation > self.held.generation;
        self.counters.stale += u64::from(!new);
        new
    }

    fn rules(&mut self, message: RuleMessage) {
        if message.device != self.config.device.number() {
            self.counters.misaddressed += 1;
        } else if self.is_new(message.generation) {
            self.stage.rules(message);
        }
    }

    fn commit(&mut self, generation: u64, manifest: Hash) {
        if let Some(building) = &self.building {
            if (building.held.generation, building.manifest) != (generation, manifest) {
                self.next_commit = Some((generation, manifest));
            }
            return;
        }
        if (generation, manifest) == (self.held.generation, self.manifest) {
            // The answer was lost.
            self.tell_running = true;
            return;
        }
        if !self.is_new(generation) {
            self.refuse(generation, RefusalCode::Stale);
            return;
        }
        match self.stage.commit(manifest) {
            Ok(objects) => self.build(generation, manifest, objects),
            Err(code) => {
                self.stage = Stage::of(&self.held);
                self.refuse(generation, code);
            }
        }
    }

    fn build(&mut self, generation: u64, manifest: Hash, objects: Objects) {
        self.unstored = None;
        self.apply(Candidate { held: Held { generation, objects }, manifest });
    }

    fn apply(&mut self, candidate: Candidate) {
        self.building = Some(candidate.clone());
        self.actions.push_back(Action::Apply(candidate));
    }

    fn refuse(&mut self, generation: u64, code: RefusalCode) {
        self.note_refusal(generation, Refusal { code, diagnostics: Vec::new(), more: 0 });
    }

    fn note_refusal(&mut self, generation: u64, mut refusal: Refusal) {
        *self.counters.generations_refused.entry(refusal.code).or_default() += 1;
        let beyond = refusal.diagnostics.len().saturating_sub(limits::DIAGNOSTICS);
        refusal.diagnostics.truncate(limits::DIAGNOSTICS);
        refusal.more = refusal.more.saturating_add(beyond as u64);
        self.unanswered.take_if(|(asked, _)| *asked == generation);
        self.refused = Some((generation, refusal));
        self.tell_refused = true;
    }

    /// How long it took with what is applied next: said with its acknowledgement.
    pub fn took(&mut self, took: Took) {
        self.next_took = Some(took);
    }

    /// What levels do once what is applied next runs, or as of what [`Session::workers_changed`] says next.
    pub fn stands(&mut self, stands: Stands) {
        self.next_stands = Some(stands);
    }

    /// A candidate was built and stored and runs, worker by worker; or it is refused, and what ran goes on.
    pub fn applied(&mut self, generation: u64, outcome: Result<Vec<WorkerRuns>, Refusal>) {
        let Some(candidate) = self.building.take_if(|candidate| candidate.held.generation == generation)
        else {
            return;
        };
        match outcome {
            Ok(workers) => {
                self.held = candidate.held;
                self.manifest = candidate.manifest;
                self.workers = workers;
                self.took = self.next_took.take();
                self.stands = self.next_stands.take();
                self.refused = None;
                self.tell_running = true;
                self.patience.reset();
            }
            Err(refusal) => {
                self.unstored = (refusal.code == RefusalCode::Store).then_some((None, candidate));
                self.note_refusal(generation, refusal);
            }
        }
        if let Some((generation, manifest)) = self.next_commit.take() {
            self.commit(generation, manifest);
        }
    }

    /// Workers run something else than was said: a link came, a level joined.
    pub fn workers_changed(&mut self, workers: Vec<WorkerRuns>) {
        let stands = self.next_stands.take();
        // Who looks by itself has seen a generation that was acknowledged with it.
        self.tell_running |= (&self.workers, &self.stands) != (&workers, &stands);
        (self.workers, self.stands) = (workers, stands);
    }

    /// Answers an order.
    pub fn answer(&mut self, request: u32, state: FunctionState) {
        self.open_orders = self.open_orders.saturating_sub(1);
        self.answers.push_back((request, state));
    }

    /// A function stands otherwise than before: told as soon as a session stands, and with each session until
    /// it runs again.
    pub fn health(&mut self, state: FunctionState) {
        if state.state == "running" {
            self.health.remove(&state.function);
        } else {
            self.health.insert(state.function.clone(), state.clone());
        }
        self.untold.insert(state.function.clone(), state);
    }

    /// Hands over what counters rose by.
    pub fn statistics(&mut self, delta: Delta) {
        let Delta { from, to, counters, .. } = delta;
        let mut counters = counters.into_iter().peekable();
        while counters.peek().is_some() {
            let part = counters.by_ref().take(DELTA_COUNTERS).collect();
            let gone = self.statistics.push(Delta { from, to, lost: 0, counters: part });
            self.statistics.count_lost(u64::from(gone.is_some()));
        }
    }

    /// Hands over an alert. Texts beyond 2 KiB are cut, an event beyond its bound is left out; an alert whose
    /// key is that long is counted as lost.
    pub fn alert(&mut self, mut alert: Alert) {
        if alert.key.len() + alert.rule.len() > ALERT_BYTES {
            self.alerts.outbox.count_lost(alert.count);
            return;
        }
        if let Some((cut, _)) = alert.message.char_indices().find(|(at, c)| at + c.len_utf8() > ALERT_BYTES) {
            alert.message.truncate(cut);
        }
        if alert.event_bytes() > limits::EVENT_BYTES {
            alert.event.clear();
        }
        self.alerts.push(alert);
    }

    /// Alerts were thrown away before they came here.
    pub fn count_lost(&mut self, alerts: u64) {
        self.alerts.outbox.count_lost(alerts);
    }

    /// Asks for a new certificate, for a key that the device has made.
    pub fn renew(&mut self, csr: String) {
        self.renewal = Some(Enrol { device: self.config.device.clone(), token: None, csr });
    }

    fn has_something_to_say(&self, now: Now) -> bool {
        match self.link {
            Link::Greeting { said, .. } => !said,
            Link::InStep { .. } => self.has_news() || self.pulse.due(now),
            _ => false,
        }
    }

    fn has_news(&self) -> bool {
        self.tell_interfaces
            || self.tell_running
            || self.tell_refused
            || self.renewal.is_some()
            || self.inventory.is_some()
            || !self.answers.is_empty()
            || !self.untold.is_empty()
            || self.alerts.outbox.next_sequence().is_some()
            || self.statistics.next_sequence().is_some()
    }

    /// The next bytes to send, one message. Ask when the transport takes more: what waits is kept here,
    /// bounded.
    pub fn transmit(&mut self, now: Now) -> Option<Vec<u8>> {
        let (message, version) = match &mut self.link {
            Link::Greeting { said, .. } if !*said => {
                *said = true;
                (self.hello(), FIRST_VERSION)
            }
            Link::InStep { version } => {
                let version = *version;
                (self.next_message(now, version)?, version)
            }
            _ => return None,
        };
        self.pulse.said(now);
        match message.encode(version) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.end(now, End::Protocol(error.to_string()));
                None
            }
        }
    }

    fn hello(&self) -> Message {
        Message::Session(SessionMessage::Hello(Hello {
            versions: VERSIONS.to_vec(),
            device: self.config.device.clone(),
            instance: self.config.instance,
            generation: self.held.generation,
            manifest: self.manifest,
            refused: self.refused.as_ref().map_or(0, |(generation, _)| *generation),
            software: self.config.software.clone(),
        }))
    }

    /// The acknowledgement of what runs: in short where the controller knows the rest.
    fn acknowledgement(&mut self, version: u8) -> PolicyMessage {
        let (workers, stands) = (self.workers.clone(), self.stands.clone());
        let running = Running { manifest: self.manifest, workers, took: self.took, stands };
        let runs = (self.held.generation, self.manifest);
        if self.unanswered.take_if(|asked| *asked == runs).is_some()
            && version >= DONE_SINCE
            && let Some(took) = self.told.in_short(self.held.generation, &running)
        {
            return PolicyMessage::Done(took);
        }
        self.told.note(&running);
        PolicyMessage::Running(running)
    }

    fn next_message(&mut self, now: Now, version: u8) -> Option<Message> {
        // First: what is said of policies behind it can be judged by it.
        if std::mem::take(&mut self.tell_interfaces)
            && let Some(interfaces) = self.config.interfaces.clone()
        {
            return Some(Message::Session(SessionMessage::Interfaces(interfaces)));
        }
        if std::mem::take(&mut self.tell_running) {
            let says = self.acknowledgement(version);
            return Some(Message::Policy(self.held.generation, says));
        }
        if std::mem::take(&mut self.tell_refused)
            && let Some((generation, refusal)) = self.refused.clone()
        {
            return Some(Message::Policy(generation, PolicyMessage::Refused(refusal)));
        }
        if let Some(behind) = self.inventory.take() {
            let (objects, more) = self.stage.page(behind.as_ref(), limits::INVENTORY_PAGE);
            self.inventory = more.then(|| objects.0.keys().next_back().cloned());
            let inventory = Inventory { objects, more };
            return Some(Message::Policy(self.held.generation, PolicyMessage::Inventory(inventory)));
        }
        if let Some(enrol) = self.renewal.take() {
            return Some(Message::Session(SessionMessage::Enrol(enrol)));
        }
        if let Some((request, state)) = self.answers.pop_front() {
            return Some(Message::Function(request, FunctionMessage::State(state)));
        }
        if let Some((_, state)) = self.untold.pop_first() {
            return Some(Message::Function(0, FunctionMessage::State(state)));
        }
        if let Some((sequence, alerts)) = self.alerts.take(limits::ALERTS) {
            let lost = self.alerts.outbox.lost();
            return Some(Message::Alert(sequence, AlertMessage::Raise { alerts, lost }));
        }
        if let Some(sequence) = self.statistics.next_sequence() {
            self.statistics.sent(sequence);
            let lost = self.statistics.lost();
            let delta = self.statistics.get(sequence)?.clone();
            return Some(Message::Statistics(sequence, StatisticsMessage::Delta(Delta { lost, ..delta })));
        }
        self.pulse.due(now).then_some(Message::Session(SessionMessage::Alive))
    }
}

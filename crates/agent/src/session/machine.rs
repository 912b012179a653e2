// SPDX-License-Identifier: Apache-2.0
//! The state machine of sessions: connect, greet, be in step, and reconnect after a loss.

use super::backoff::Backoff;
use super::outbox::{Alerts, Outbox};
use super::stage::{ControllerGeneration, Objects, Stage};
use bartizan_api::southbound::{
    AlertAggregate, AlertMessage, ApplyTimings, DONE_SINCE, Delta, DeviceId, Enrol, Enrolled, ErrorKind,
    FIRST_VERSION, FunctionMessage, FunctionOrder, FunctionState, GenerationAck, GenerationRefusal,
    GenerationRefusalCode, Hash, Hello, INTERFACES_SINCE, Interfaces, InventoryPart, LastRunning,
    LevelStatus, MessageDecoder, Now, Object, ObjectKey, PolicyMessage, Pulse, Refuse, RefuseCode,
    RuleMessage, SessionMessage, SouthboundMessage, StatisticsMessage, VERSIONS, Welcome, WorkerRuns, limits,
};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};

/// Milliseconds from connecting to the controller's welcome, at most.
const GREETING: u64 = 10_000;

/// Most bytes of an alert's texts in a message.
const ALERT_BYTES: usize = 2 << 10;

/// Most counters of one message.
const DELTA_COUNTERS: usize = limits::COUNTERS / 4;

/// Configuration of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The device's identity.
    pub device: DeviceId,
    /// Program and version.
    pub software: String,
    /// A random number, new with each start.
    pub instance: u64,
    /// Seed of the back-off between attempts.
    pub seed: u64,
    /// Most statistics messages that are queued.
    pub statistics: usize,
    /// Most alerts that are queued.
    pub alerts: usize,
    /// Most open orders to functions.
    pub orders: usize,
    /// The links and ports of the device, which policies can name; `None`: not reported. They do not change:
    /// the host file is read once, at the start.
    pub interfaces: Option<Interfaces>,
}

impl SessionConfig {
    /// A configuration with the default bounds.
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

/// A complete generation: to be built, stored and answered with [`Session::applied`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Number and objects of the generation.
    pub held: ControllerGeneration,
    /// Hash of the manifest.
    pub manifest: Hash,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The transport was lost, or never established.
    Lost,
    /// The controller showed no sign of life, or accepted no data.
    Dead,
    /// A malformed message, or one that is not allowed in this state.
    Protocol(String),
    /// The controller refused or ended the session.
    Refused(Refuse),
    /// The controller closed the session regularly.
    Bye,
    /// The device's certificate has expired: the device keeps its generation, and needs a new certificate.
    Expired,
}

/// Actions for the driver of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionAction {
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
        /// The kind of order.
        order: FunctionOrder,
        /// Name of the function.
        function: String,
        /// Settings for the function.
        settings: Map<String, Value>,
    },
    /// Store a new certificate, which [`Session::renew`] requested.
    Renewed(Enrolled),
}

/// Counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSessionCounters {
    /// Connections requested.
    pub dials: u64,
    /// Sessions that a controller accepted.
    pub sessions: u64,
    /// Controllers' refusals, by reason.
    pub refused: BTreeMap<RefuseCode, u64>,
    /// Sessions ended because the controller showed no sign of life.
    pub dead: u64,
    /// Malformed messages, by kind of error.
    pub malformed: BTreeMap<ErrorKind, u64>,
    /// Messages that are not allowed in their state.
    pub out_of_place: u64,
    /// Rule messages for another device.
    pub misaddressed: u64,
    /// Messages for a generation that is not newer than the running one.
    pub stale: u64,
    /// Generations refused, by reason.
    pub generations_refused: BTreeMap<GenerationRefusalCode, u64>,
    /// Statistics messages discarded.
    pub statistics_lost: u64,
    /// Alerts discarded.
    pub alerts_lost: u64,
    /// Connections that ended because the certificate has expired.
    pub expired: u64,
}

#[derive(Debug)]
enum DialState {
    Idle { again: u64 },
    Dialling,
    Greeting { since: u64, said: bool },
    InStep { version: u8 },
}

/// An agent's session.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    link: DialState,
    backoff: Backoff,
    decoder: MessageDecoder,
    pulse: Pulse,
    actions: VecDeque<SessionAction>,
    /// The running generation.
    held: ControllerGeneration,
    manifest: Hash,
    workers: Vec<WorkerRuns>,
    /// Durations of the change to the running generation; `None` if it was built at the start.
    took: Option<ApplyTimings>,
    next_took: Option<ApplyTimings>,
    /// State of the levels, if the device reports it.
    stands: Option<LevelStatus>,
    next_stands: Option<LevelStatus>,
    stage: Stage,
    /// The generation being built, and a commit that arrived meanwhile.
    building: Option<Candidate>,
    next_commit: Option<(u64, Hash)>,
    /// The last unanswered commit of this connection, and the workers named over this connection.
    unanswered: Option<(u64, Hash)>,
    reported: LastRunning,
    /// A generation that could not be stored, and the time of the next attempt.
    unstored: Option<(Option<u64>, Candidate)>,
    patience: Backoff,
    refused: Option<(u64, GenerationRefusal)>,
    tell_interfaces: bool,
    tell_running: bool,
    tell_refused: bool,
    /// An inventory to send, and the key after which it continues.
    inventory: Option<Option<ObjectKey>>,
    answers: VecDeque<(u32, FunctionState)>,
    /// Functions that do not run, and those whose state is not yet reported to the controller.
    health: BTreeMap<String, FunctionState>,
    unreported: BTreeMap<String, FunctionState>,
    open_orders: usize,
    statistics: Outbox<Delta>,
    alerts: Alerts,
    renewal: Option<Enrol>,
    /// Expiry of the certificate, in seconds since 1970.
    valid_until: u64,
    counters: AgentSessionCounters,
}

impl Session {
    /// A session with the stored generation. Connects at once.
    #[must_use]
    pub fn new(config: SessionConfig, held: ControllerGeneration, workers: Vec<WorkerRuns>) -> Self {
        Session {
            link: DialState::Idle { again: 0 },
            backoff: Backoff::new(config.seed),
            decoder: MessageDecoder::default(),
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
            reported: LastRunning::default(),
            unstored: None,
            patience: Backoff::new(config.seed),
            refused: None,
            tell_interfaces: false,
            tell_running: false,
            tell_refused: false,
            inventory: None,
            answers: VecDeque::new(),
            health: BTreeMap::new(),
            unreported: BTreeMap::new(),
            open_orders: 0,
            statistics: Outbox::new(config.statistics),
            alerts: Alerts::new(config.alerts),
            renewal: None,
            valid_until: u64::MAX,
            counters: AgentSessionCounters::default(),
            config,
        }
    }

    /// Sets the expiry of the device's certificate, in seconds since 1970.
    pub fn set_valid_until(&mut self, unix: u64) {
        self.valid_until = unix;
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> AgentSessionCounters {
        let (statistics_lost, alerts_lost) = (self.statistics.lost(), self.alerts.outbox.lost());
        AgentSessionCounters { statistics_lost, alerts_lost, ..self.counters.clone() }
    }

    /// The running generation.
    #[must_use]
    pub fn running(&self) -> &ControllerGeneration {
        &self.held
    }

    /// The hash of the running generation's manifest.
    #[must_use]
    pub const fn manifest(&self) -> Hash {
        self.manifest
    }

    /// Whether a controller has accepted the session.
    #[must_use]
    pub fn is_in_step(&self) -> bool {
        matches!(self.link, DialState::InStep { .. })
    }

    /// The next action for the driver.
    pub fn action(&mut self) -> Option<SessionAction> {
        self.actions.pop_front()
    }

    /// Runs the timers: connects, ends dead connections, and retries what could not be stored.
    pub fn tick(&mut self, now: Now) {
        self.store_again(now);
        let to_say = self.has_something_to_say(now);
        let expired = now.unix > self.valid_until;
        match self.link {
            DialState::Idle { again } if now.ms >= again => {
                if expired {
                    // Waits for a new certificate, or for a corrected clock.
                    self.counters.expired += 1;
                    self.link = DialState::Idle { again: now.ms.saturating_add(self.backoff.next()) };
                    return;
                }
                self.counters.dials += 1;
                self.link = DialState::Dialling;
                self.pulse = Pulse::new(now, GREETING);
                self.actions.push_back(SessionAction::Dial);
            }
            DialState::Idle { .. } => {}
            _ if expired => {
                self.counters.expired += 1;
                self.end(now, End::Expired);
            }
            DialState::Greeting { since, .. } if now.ms >= since.saturating_add(GREETING) => self.die(now),
            DialState::Greeting { .. } => {}
            DialState::Dialling | DialState::InStep { .. } => {
                if self.pulse.is_dead(now, to_say) {
                    self.die(now);
                }
            }
        }
    }

    /// The latest time of the next call of [`Session::tick`] and [`Session::transmit`], in milliseconds.
    #[must_use]
    pub fn wake(&self) -> u64 {
        let link = match self.link {
            DialState::Idle { again } => again,
            DialState::Greeting { since, .. } => since.saturating_add(GREETING),
            DialState::Dialling | DialState::InStep { .. } => self.pulse.wake(),
        };
        let unstored = self.unstored.as_ref().and_then(|(at, _)| *at);
        link.min(unstored.unwrap_or(u64::MAX))
    }

    /// Retries to store a generation after a pause: a full disk may have room again, and a controller sends a
    /// generation only once per connection.
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

    /// The connection is established, with TLS.
    pub fn dialled(&mut self, now: Now) {
        self.decoder = MessageDecoder::default();
        self.pulse = Pulse::new(now, GREETING);
        self.stage.reconnected();
        self.forget_passing_refusal();
        self.inventory = None;
        (self.unanswered, self.reported) = (None, LastRunning::default());
        self.link = DialState::Greeting { since: now.ms, said: false };
    }

    /// Transient refusals (manifest, store) are not repeated after a reconnect.
    fn forget_passing_refusal(&mut self) {
        let passing = |code| matches!(code, GenerationRefusalCode::Manifest | GenerationRefusalCode::Store);
        drop(self.refused.take_if(|(_, refusal)| passing(refusal.code)));
    }

    /// The connection was lost, or failed.
    pub fn lost(&mut self, now: Now) {
        if !matches!(self.link, DialState::Idle { .. }) {
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
        self.actions.push_back(SessionAction::HangUp(why));
    }

    /// Waits for the back-off time before connecting again.
    fn rest(&mut self, now: Now, at_least: u64) {
        self.link = DialState::Idle { again: now.ms.saturating_add(self.backoff.next().max(at_least)) };
    }

    /// Takes bytes of the connection.
    pub fn receive(&mut self, now: Now, bytes: &[u8]) {
        if matches!(self.link, DialState::Idle { .. } | DialState::Dialling) {
            return;
        }
        self.pulse.note_received(now);
        self.decoder.push(bytes);
        loop {
            if matches!(self.link, DialState::Idle { .. }) {
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

    fn take(&mut self, now: Now, message: SouthboundMessage) {
        match (&self.link, message) {
            (_, SouthboundMessage::Session(SessionMessage::Refuse(refuse))) => {
                *self.counters.refused.entry(refuse.code).or_default() += 1;
                self.end(now, End::Refused(refuse));
            }
            (_, SouthboundMessage::Session(SessionMessage::Bye)) => self.end(now, End::Bye),
            (DialState::Greeting { .. }, SouthboundMessage::Session(SessionMessage::Welcome(welcome))) => {
                self.welcome(now, &welcome);
            }
            (DialState::InStep { .. }, message) => self.in_step(now, message),
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
        self.link = DialState::InStep { version: welcome.version };
        self.decoder.agree(welcome.version);
        self.pulse.agree(u64::from(welcome.keep_alive_ms));
        self.backoff.reset();
        self.statistics.begin(welcome.statistics);
        self.alerts.outbox.begin(welcome.alerts);
        let says = self.config.interfaces.as_ref().is_some_and(Interfaces::fits);
        self.tell_interfaces = says && welcome.version >= INTERFACES_SINCE;
        // Repeats answers that may have been lost.
        self.tell_running = true;
        self.tell_refused = self.refused.is_some();
        // Functions' states are repeated with each session; running functions are not reported.
        self.unreported = self.health.clone();
    }

    fn in_step(&mut self, now: Now, message: SouthboundMessage) {
        match message {
            SouthboundMessage::Session(SessionMessage::Alive) => {}
            SouthboundMessage::Session(SessionMessage::Enrolled(enrolled)) => {
                self.actions.push_back(SessionAction::Renewed(enrolled));
            }
            SouthboundMessage::Policy(_, PolicyMessage::Ask) => self.inventory = Some(None),
            SouthboundMessage::Policy(generation, PolicyMessage::Put(policy)) if self.is_new(generation) => {
                self.stage.put(Object::Policy(policy));
            }
            SouthboundMessage::Policy(generation, PolicyMessage::Delete(key)) if self.is_new(generation) => {
                self.stage.delete(&key);
            }
            SouthboundMessage::Policy(_, PolicyMessage::Put(_) | PolicyMessage::Delete(_)) => {}
            SouthboundMessage::Policy(generation, PolicyMessage::Commit(manifest)) => {
                self.unanswered = Some((generation, manifest));
                self.commit(generation, manifest);
            }
            SouthboundMessage::Rule(message) => self.rules(message),
            SouthboundMessage::Function(request, FunctionMessage::Order { order, function, settings }) => {
                if self.open_orders >= self.config.orders {
                    let reason = "too many orders await an answer; wait for the answers".to_owned();
                    let state = FunctionState { function, done: false, state: "unknown".into(), reason };
                    self.answers.push_back((request, state));
                    self.answers.truncate(self.config.orders * 2);
                    return;
                }
                self.open_orders += 1;
                self.actions.push_back(SessionAction::Order { request, order, function, settings });
            }
            SouthboundMessage::Statistics(sequence, StatisticsMessage::Received) => {
                self.statistics.received(sequence)
            }
            SouthboundMessage::Alert(sequence, AlertMessage::Received) => {
                self.alerts.outbox.received(sequence)
            }
            message => self.out_of_place(now, &message),
        }
    }

    fn out_of_place(&mut self, now: Now, message: &SouthboundMessage) {
        self.counters.out_of_place += 1;
        self.end(now, End::Protocol(format!("a {} message that is not allowed here", message.sub().name())));
    }

    /// Whether a generation is newer than the running one. Counts those that are not.
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
            self.refuse(generation, GenerationRefusalCode::Stale);
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
        self.apply(Candidate { held: ControllerGeneration { generation, objects }, manifest });
    }

    fn apply(&mut self, candidate: Candidate) {
        self.building = Some(candidate.clone());
        self.actions.push_back(SessionAction::Apply(candidate));
    }

    fn refuse(&mut self, generation: u64, code: GenerationRefusalCode) {
        self.note_refusal(generation, GenerationRefusal { code, diagnostics: Vec::new(), more: 0 });
    }

    fn note_refusal(&mut self, generation: u64, mut refusal: GenerationRefusal) {
        *self.counters.generations_refused.entry(refusal.code).or_default() += 1;
        let beyond = refusal.diagnostics.len().saturating_sub(limits::DIAGNOSTICS);
        refusal.diagnostics.truncate(limits::DIAGNOSTICS);
        refusal.more = refusal.more.saturating_add(beyond as u64);
        self.unanswered.take_if(|(asked, _)| *asked == generation);
        self.refused = Some((generation, refusal));
        self.tell_refused = true;
    }

    /// Sets the durations that the next acknowledgement reports.
    pub fn set_timings(&mut self, took: ApplyTimings) {
        self.next_took = Some(took);
    }

    /// Sets the state of the levels for the next acknowledgement, or for [`Session::workers_changed`].
    pub fn set_level_status(&mut self, stands: LevelStatus) {
        self.next_stands = Some(stands);
    }

    /// A candidate runs on these workers; or is refused, and the running generation stays.
    pub fn applied(&mut self, generation: u64, outcome: Result<Vec<WorkerRuns>, GenerationRefusal>) {
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
                self.unstored = (refusal.code == GenerationRefusalCode::Store).then_some((None, candidate));
                self.note_refusal(generation, refusal);
            }
        }
        if let Some((generation, manifest)) = self.next_commit.take() {
            self.commit(generation, manifest);
        }
    }

    /// Workers run something else than reported: a link came up, a level joined.
    pub fn workers_changed(&mut self, workers: Vec<WorkerRuns>) {
        let stands = self.next_stands.take();
        // The driver may report a generation that is already acknowledged.
        self.tell_running |= (&self.workers, &self.stands) != (&workers, &stands);
        (self.workers, self.stands) = (workers, stands);
    }

    /// Answers an order.
    pub fn answer(&mut self, request: u32, state: FunctionState) {
        self.open_orders = self.open_orders.saturating_sub(1);
        self.answers.push_back((request, state));
    }

    /// Records a function's new state: reported at once if a session is open, and with each session until the
    /// function runs again.
    pub fn health(&mut self, state: FunctionState) {
        if state.state == "running" {
            self.health.remove(&state.function);
        } else {
            self.health.insert(state.function.clone(), state.clone());
        }
        self.unreported.insert(state.function.clone(), state);
    }

    /// Queues counter increments.
    pub fn statistics(&mut self, delta: Delta) {
        let Delta { from, to, counters, .. } = delta;
        let mut counters = counters.into_iter().peekable();
        while counters.peek().is_some() {
            let part = counters.by_ref().take(DELTA_COUNTERS).collect();
            let gone = self.statistics.push(Delta { from, to, lost: 0, counters: part });
            self.statistics.count_lost(u64::from(gone.is_some()));
        }
    }

    /// Queues an alert. Texts beyond 2 KiB are cut, an event beyond its bound is left out; an alert with such
    /// a long key is counted as lost.
    pub fn alert(&mut self, mut alert: AlertAggregate) {
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

    /// Counts alerts that were discarded before this call.
    pub fn count_lost(&mut self, alerts: u64) {
        self.alerts.outbox.count_lost(alerts);
    }

    /// Requests a new certificate for the device's new key.
    pub fn renew(&mut self, csr: String) {
        self.renewal = Some(Enrol { device: self.config.device.clone(), token: None, csr });
    }

    fn has_something_to_say(&self, now: Now) -> bool {
        match self.link {
            DialState::Greeting { said, .. } => !said,
            DialState::InStep { .. } => self.has_news() || self.pulse.due(now),
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
            || !self.unreported.is_empty()
            || self.alerts.outbox.next_sequence().is_some()
            || self.statistics.next_sequence().is_some()
    }

    /// The next message to send, as bytes. Call when the transport has room: queues are kept here, bounded.
    pub fn transmit(&mut self, now: Now) -> Option<Vec<u8>> {
        let (message, version) = match &mut self.link {
            DialState::Greeting { said, .. } if !*said => {
                *said = true;
                (self.hello(), FIRST_VERSION)
            }
            DialState::InStep { version } => {
                let version = *version;
                (self.next_message(now, version)?, version)
            }
            _ => return None,
        };
        self.pulse.note_sent(now);
        match message.encode(version) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.end(now, End::Protocol(error.to_string()));
                None
            }
        }
    }

    fn hello(&self) -> SouthboundMessage {
        SouthboundMessage::Session(SessionMessage::Hello(Hello {
            versions: VERSIONS.to_vec(),
            device: self.config.device.clone(),
            instance: self.config.instance,
            generation: self.held.generation,
            manifest: self.manifest,
            refused: self.refused.as_ref().map_or(0, |(generation, _)| *generation),
            software: self.config.software.clone(),
        }))
    }

    /// The acknowledgement of the running generation; short if the controller knows the rest.
    fn acknowledgement(&mut self, version: u8) -> PolicyMessage {
        let (workers, stands) = (self.workers.clone(), self.stands.clone());
        let running = GenerationAck { manifest: self.manifest, workers, took: self.took, stands };
        let runs = (self.held.generation, self.manifest);
        if self.unanswered.take_if(|asked| *asked == runs).is_some()
            && version >= DONE_SINCE
            && let Some(took) = self.reported.in_short(self.held.generation, &running)
        {
            return PolicyMessage::Done(took);
        }
        self.reported.note(&running);
        PolicyMessage::Running(running)
    }

    fn next_message(&mut self, now: Now, version: u8) -> Option<SouthboundMessage> {
        // Sent first, so that the controller can check policies against it.
        if std::mem::take(&mut self.tell_interfaces)
            && let Some(interfaces) = self.config.interfaces.clone()
        {
            return Some(SouthboundMessage::Session(SessionMessage::Interfaces(interfaces)));
        }
        if std::mem::take(&mut self.tell_running) {
            let says = self.acknowledgement(version);
            return Some(SouthboundMessage::Policy(self.held.generation, says));
        }
        if std::mem::take(&mut self.tell_refused)
            && let Some((generation, refusal)) = self.refused.clone()
        {
            return Some(SouthboundMessage::Policy(generation, PolicyMessage::Refused(refusal)));
        }
        if let Some(behind) = self.inventory.take() {
            let (objects, more) = self.stage.page(behind.as_ref(), limits::INVENTORY_PAGE);
            self.inventory = more.then(|| objects.0.keys().next_back().cloned());
            let inventory = InventoryPart { objects, more };
            return Some(SouthboundMessage::Policy(
                self.held.generation,
                PolicyMessage::Inventory(inventory),
            ));
        }
        if let Some(enrol) = self.renewal.take() {
            return Some(SouthboundMessage::Session(SessionMessage::Enrol(enrol)));
        }
        if let Some((request, state)) = self.answers.pop_front() {
            return Some(SouthboundMessage::Function(request, FunctionMessage::State(state)));
        }
        if let Some((_, state)) = self.unreported.pop_first() {
            return Some(SouthboundMessage::Function(0, FunctionMessage::State(state)));
        }
        if let Some((sequence, alerts)) = self.alerts.take(limits::ALERTS) {
            let lost = self.alerts.outbox.lost();
            return Some(SouthboundMessage::Alert(sequence, AlertMessage::Raise { alerts, lost }));
        }
        if let Some(sequence) = self.statistics.next_sequence() {
            self.statistics.sent(sequence);
            let lost = self.statistics.lost();
            let delta = self.statistics.get(sequence)?.clone();
            return Some(SouthboundMessage::Statistics(
                sequence,
                StatisticsMessage::Delta(Delta { lost, ..delta }),
            ));
        }
        self.pulse.due(now).then_some(SouthboundMessage::Session(SessionMessage::Alive))
    }
}

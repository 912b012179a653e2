// SPDX-License-Identifier: Apache-2.0
//! All connections of agents: admission, sessions, and messages to the rest of the controller.

use super::backend::{Backend, EnrolRefusal};
use super::counters::SouthboundCounters;
use super::session::{InStep, PeerIdentity, Stand};
use bartizan_api::southbound::{
    AlertMessage, DeviceId, Enrol, FIRST_VERSION, FunctionMessage, FunctionOrder, GenerationAck, Hello,
    MessageDecoder, Now, PolicyMessage, Pulse, Refuse, RefuseCode, SessionMessage, SouthboundMessage,
    StatisticsMessage, VERSIONS, Welcome, common_version,
};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A connection, by a number that the driver of the server chooses.
pub type Connection = u64;

/// Messages of one connection that are handled before other connections get a turn.
const TURN: usize = 16;

/// Largest credible lead of a device's number over that of its desired set. Numbers are given one by one, so
/// a controller restored from a backup lags by the changes since then. A larger lead cannot be genuine: the
/// holder of a device's key could use up all numbers with it.
pub const BELIEVED_AHEAD: u64 = 1 << 28;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The controller's name.
    pub name: String,
    /// Milliseconds between keep-alive messages.
    pub keep_alive_ms: u32,
    /// Time limit of the agent's first message, in milliseconds from the connection.
    pub greeting_ms: u64,
    /// Most connections.
    pub connections: usize,
    /// Most orders to one device that are not yet answered.
    pub orders: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            name: "controller".into(),
            keep_alive_ms: 10_000,
            greeting_ms: 10_000,
            connections: 10_000,
            orders: 64,
        }
    }
}

#[derive(Debug)]
enum SouthboundPhase {
    /// No message has arrived.
    Greeting,
    InStep(Box<InStep>),
    /// The messages in `out` are sent, then the connection closes.
    Closing,
}

#[derive(Debug)]
struct SouthboundConnection {
    peer: Option<PeerIdentity>,
    source: String,
    since: u64,
    state: SouthboundPhase,
    /// The protocol version.
    version: u8,
    decoder: MessageDecoder,
    pulse: Pulse,
    /// Replies, few and bounded: one welcome, refusal or certificate, and the last received sequences.
    out: VecDeque<SouthboundMessage>,
    received: (Option<u64>, Option<u64>),
    orders: VecDeque<SouthboundMessage>,
    open_orders: usize,
}

/// The southbound side of a controller.
#[derive(Debug)]
pub struct SouthboundServer<B> {
    config: ServerConfig,
    backend: B,
    lines: HashMap<Connection, SouthboundConnection>,
    /// The connection of each device's session.
    sessions: HashMap<DeviceId, Connection>,
    counters: SouthboundCounters,
    /// Devices known to be ahead, with their number, so that each is reported once.
    ahead: BTreeMap<DeviceId, u64>,
}

impl<B: Backend> SouthboundServer<B> {
    /// A server without connections.
    pub fn new(config: ServerConfig, backend: B) -> Self {
        let (lines, sessions, ahead) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        SouthboundServer { config, backend, lines, sessions, counters: SouthboundCounters::default(), ahead }
    }

    /// The counters so far.
    pub fn counters(&self) -> &SouthboundCounters {
        &self.counters
    }

    /// The rest of the controller.
    pub fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    /// The connection of a device's session.
    pub fn connection_of(&self, device: &DeviceId) -> Option<Connection> {
        self.sessions.get(device).copied()
    }

    /// Devices with a session.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceId> {
        self.sessions.keys()
    }

    /// Admits a connection after its TLS handshake; `peer` is the identity in its certificate, if it has one.
    /// Returns `false` if there are too many connections; the caller then closes it.
    pub fn connected(
        &mut self,
        now: Now,
        connection: Connection,
        peer: Option<PeerIdentity>,
        source: &str,
    ) -> bool {
        if self.lines.len() >= self.config.connections {
            self.counters.connections_refused += 1;
            return false;
        }
        self.counters.connections += 1;
        let line = SouthboundConnection {
            peer,
            source: source.to_owned(),
            since: now.ms,
            state: SouthboundPhase::Greeting,
            version: FIRST_VERSION,
            decoder: MessageDecoder::default(),
            pulse: Pulse::new(now, u64::from(self.config.keep_alive_ms)),
            out: VecDeque::new(),
            received: (None, None),
            orders: VecDeque::new(),
            open_orders: 0,
        };
        self.lines.insert(connection, line);
        true
    }

    /// A connection was closed.
    pub fn lost(&mut self, connection: Connection) {
        self.leave(connection);
        self.lines.remove(&connection);
    }

    /// Ends the device's session on this connection.
    fn leave(&mut self, connection: Connection) {
        let Some(SouthboundConnection { state: SouthboundPhase::InStep(device), .. }) =
            self.lines.get(&connection)
        else {
            return;
        };
        let device = device.device.clone();
        if self.sessions.get(&device) == Some(&connection) {
            self.sessions.remove(&device);
            self.backend.ended(&device);
        }
    }

    /// Whether a connection has to be closed once its pending messages are sent.
    pub fn is_over(&self, connection: Connection) -> bool {
        self.lines
            .get(&connection)
            .is_none_or(|line| matches!(line.state, SouthboundPhase::Closing) && line.out.is_empty())
    }

    /// Whether a connection has nothing left to send and takes no input: it has to be closed at once.
    pub fn is_dead(&self, connection: Connection) -> bool {
        self.lines
            .get(&connection)
            .is_some_and(|line| matches!(line.state, SouthboundPhase::Closing) && line.out.is_empty())
    }

    /// Takes bytes of a connection, and handles all complete messages in them.
    pub fn receive(&mut self, now: Now, connection: Connection, bytes: &[u8]) {
        self.push(now, connection, bytes);
        while self.work(now, connection) {}
    }

    /// Takes bytes of a connection. [`Self::work`] handles the messages in them.
    pub fn push(&mut self, now: Now, connection: Connection, bytes: &[u8]) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        line.pulse.note_received(now);
        line.decoder.push(bytes);
    }

    /// Handles some of a connection's messages; since each may wait for the disk, other connections get turns
    /// in between. Returns whether more may be pending.
    pub fn work(&mut self, now: Now, connection: Connection) -> bool {
        for _ in 0..TURN {
            let Some(line) = self.lines.get_mut(&connection) else { return false };
            if matches!(line.state, SouthboundPhase::Closing) {
                return false;
            }
            match line.decoder.next_message() {
                Ok(Some(message)) => self.take(now, connection, message),
                Ok(None) => return false,
                Err(error) => {
                    *self.counters.malformed.entry(error.kind()).or_default() += 1;
                    self.refuse(connection, RefuseCode::Protocol, error.to_string(), 0);
                    return false;
                }
            }
        }
        true
    }

    /// Whether a connection is the session of a device.
    #[must_use]
    pub fn is_session(&self, connection: Connection) -> bool {
        self.lines.get(&connection).is_some_and(|line| matches!(line.state, SouthboundPhase::InStep(_)))
    }

    /// Refuses a connection or ends its session: sends the reason, then closes.
    fn refuse(&mut self, connection: Connection, code: RefuseCode, message: String, retry_ms: u32) {
        self.leave(connection);
        *self.counters.refused.entry(code).or_default() += 1;
        let Some(line) = self.lines.get_mut(&connection) else { return };
        // The refusal is sent in the session's protocol version.
        let refuse = Refuse { code, message, versions: VERSIONS.to_vec(), retry_ms };
        line.out.clear();
        line.out.push_back(SouthboundMessage::Session(SessionMessage::Refuse(refuse)));
        line.state = SouthboundPhase::Closing;
    }

    fn take(&mut self, now: Now, connection: Connection, message: SouthboundMessage) {
        let Some(line) = self.lines.get(&connection) else { return };
        match (&line.state, message) {
            (_, SouthboundMessage::Session(SessionMessage::Bye)) => {
                self.leave(connection);
                if let Some(line) = self.lines.get_mut(&connection) {
                    line.out.clear();
                    line.state = SouthboundPhase::Closing;
                }
            }
            (_, SouthboundMessage::Session(SessionMessage::Enrol(enrol))) => {
                self.enrol(now, connection, &enrol)
            }
            (SouthboundPhase::Greeting, SouthboundMessage::Session(SessionMessage::Hello(hello))) => {
                self.hello(connection, &hello)
            }
            (SouthboundPhase::InStep(_), message) => {
                if let Err((code, what)) = self.in_step(connection, message) {
                    self.refuse(connection, code, what, 0);
                }
            }
            (_, message) => {
                let what = format!("a {} message before `hello`", message.sub().name());
                self.refuse(connection, RefuseCode::Protocol, what, 0);
            }
        }
    }

    fn enrol(&mut self, now: Now, connection: Connection, enrol: &Enrol) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        let certified = line.peer.as_ref().map(|peer| peer.device.clone());
        match self.backend.enrol(now, &line.source, enrol, certified.as_ref()) {
            Ok(enrolled) => {
                self.counters.enrolled += 1;
                line.out.push_back(SouthboundMessage::Session(SessionMessage::Enrolled(enrolled)));
                if matches!(line.state, SouthboundPhase::Greeting) {
                    line.state = SouthboundPhase::Closing;
                }
            }
            // A device that gets no new certificate now keeps its session.
            Err(refusal) if matches!(line.state, SouthboundPhase::InStep(_)) => {
                *self.counters.refused.entry(refusal.code).or_default() += 1;
            }
            Err(EnrolRefusal { code, message, retry_ms }) => self.refuse(connection, code, message, retry_ms),
        }
    }

    fn hello(&mut self, connection: Connection, hello: &Hello) {
        let peer = self.lines.get(&connection).and_then(|line| line.peer.as_ref());
        let Some(version) = common_version(VERSIONS, &hello.versions) else {
            let what = format!("the agent speaks versions {:?}, the controller {VERSIONS:?}", hello.versions);
            return self.refuse(connection, RefuseCode::Version, what, 60_000);
        };
        if peer.is_none_or(|peer| peer.device != hello.device) {
            let whose = peer.map_or("nobody's".to_owned(), |peer| format!("that of `{}`", peer.device));
            let what = format!("the agent claims to be `{}`, but its certificate is {whose}", hello.device);
            return self.refuse(connection, RefuseCode::Identity, what, 60_000);
        }
        if self.backend.device(&hello.device).is_none() {
            let what = format!("no device is called `{}`", hello.device);
            return self.refuse(connection, RefuseCode::Unknown, what, 60_000);
        }
        let said = hello.generation.max(hello.refused);
        if !self.is_believed(&hello.device, said) {
            let what = format!(
                "no device was ever sent a generation as number {said}; if this is the device's own state, enrol it with an empty state directory"
            );
            return self.refuse(connection, RefuseCode::Protocol, what, 60_000);
        }
        let old = self.sessions.get(&hello.device).and_then(|old| self.lines.get(old));
        // Each start of an agent has its own number: another number means two programs, or a restart just
        // now.
        let twin = old.and_then(|old| match &old.state {
            SouthboundPhase::InStep(session) if session.instance != hello.instance => {
                Some(old.source.clone())
            }
            _ => None,
        });
        if let Some(old) = self.sessions.get(&hello.device).copied() {
            self.refuse(old, RefuseCode::Replaced, "the device opened another connection".into(), 0);
        }
        self.counters.sessions += 1;
        let (statistics, alerts) = self.backend.received(&hello.device, hello.instance);
        let Some(line) = self.lines.get_mut(&connection) else { return };
        line.state = SouthboundPhase::InStep(Box::new(InStep::new(hello)));
        line.version = version;
        line.decoder.agree(version);
        line.out.push_back(SouthboundMessage::Session(SessionMessage::Welcome(Welcome {
            version,
            controller: self.config.name.clone(),
            keep_alive_ms: self.config.keep_alive_ms,
            statistics,
            alerts,
        })));
        let source = line.source.clone();
        self.sessions.insert(hello.device.clone(), connection);
        if let Some(replaced) = twin {
            self.counters.twins += 1;
            self.backend.twin(&hello.device, &replaced, &source);
        }
        self.backend.began(&hello.device, hello, &source);
        self.changed(&hello.device);
    }

    /// Whether a device's number is credible. The desired set is made only if the result depends on it.
    fn is_believed(&self, device: &DeviceId, number: u64) -> bool {
        let wanted = || self.backend.wanted(device).map_or(0, |wanted| wanted.generation);
        number <= BELIEVED_AHEAD || number <= wanted().saturating_add(BELIEVED_AHEAD)
    }

    /// Handles a change of a device's desired set, or of the tenants that it serves.
    pub fn changed(&mut self, device: &DeviceId) {
        let Some(connection) = self.sessions.get(device).copied() else { return };
        let Some(record) = self.backend.device(device) else {
            let what = format!("no device is called `{device}` any more");
            return self.refuse(connection, RefuseCode::Unknown, what, 60_000);
        };
        let Some(wanted) = self.backend.wanted(device) else { return };
        let Some(SouthboundConnection { state: SouthboundPhase::InStep(session), .. }) =
            self.lines.get_mut(&connection)
        else {
            return;
        };
        let withheld = session.want(&wanted, &record.tenants);
        self.counters.withheld += withheld;
        let stand = session.compare_generations();
        self.note(device, stand);
    }

    /// Reports, once, that a device is ahead.
    fn note(&mut self, device: &DeviceId, stand: Stand) {
        match stand {
            Stand::Good => drop(self.ahead.remove(device)),
            Stand::Ahead(running) => {
                if self.ahead.insert(device.clone(), running) != Some(running) {
                    self.counters.ahead += 1;
                    self.backend.ahead(device, running);
                }
            }
        }
    }

    /// Queues an order to a function of a device. Returns `false` if the device is not connected or has too
    /// many open orders.
    pub fn order(
        &mut self,
        device: &DeviceId,
        request: u32,
        order: FunctionOrder,
        function: &str,
        settings: Map<String, Value>,
    ) -> bool {
        let line = self.sessions.get(device).and_then(|connection| self.lines.get_mut(connection));
        let Some(line) = line.filter(|line| line.open_orders < self.config.orders) else {
            self.counters.orders_refused += 1;
            return false;
        };
        line.open_orders += 1;
        let message = FunctionMessage::Order { order, function: function.to_owned(), settings };
        line.orders.push_back(SouthboundMessage::Function(request, message));
        true
    }

    fn in_step(
        &mut self,
        connection: Connection,
        message: SouthboundMessage,
    ) -> Result<(), (RefuseCode, String)> {
        let Some(line) = self.lines.get_mut(&connection) else { return Ok(()) };
        let SouthboundPhase::InStep(session) = &mut line.state else { return Ok(()) };
        let device = session.device.clone();
        let protocol = |what: &str| (RefuseCode::Protocol, what.to_owned());
        let unavailable = |error: super::Unavailable| (RefuseCode::Unavailable, error.to_string());
        match message {
            SouthboundMessage::Session(SessionMessage::Alive) => {}
            SouthboundMessage::Session(SessionMessage::Interfaces(interfaces)) => {
                self.backend.interfaces(&device, &interfaces).map_err(unavailable)?;
            }
            SouthboundMessage::Policy(generation, PolicyMessage::Running(running)) => {
                if !self.is_believed(&device, generation) {
                    return Err(protocol("a generation that was never sent"));
                }
                self.acknowledged(connection, generation, &running)?;
            }
            SouthboundMessage::Policy(generation, PolicyMessage::Done(took)) => {
                let running = session.done(generation, took).map_err(protocol)?;
                self.acknowledged(connection, generation, &running)?;
            }
            SouthboundMessage::Policy(generation, PolicyMessage::Refused(refusal)) => {
                session.refused(generation, refusal.code).map_err(protocol)?;
                self.backend.refused(&device, generation, &refusal).map_err(unavailable)?;
                self.counters.generations_refused += 1;
            }
            SouthboundMessage::Policy(_, PolicyMessage::Inventory(part)) => {
                session.inventory(part.objects, part.more).map_err(protocol)?;
            }
            SouthboundMessage::Function(0, FunctionMessage::State(state)) => {
                self.counters.functions_failed += u64::from(state.state == "failed");
                self.backend.health(&device, state);
            }
            SouthboundMessage::Function(request, FunctionMessage::State(state)) => {
                line.open_orders = line.open_orders.saturating_sub(1);
                self.backend.function(&device, request, state);
            }
            SouthboundMessage::Statistics(sequence, StatisticsMessage::Delta(delta)) => {
                let instance = session.instance;
                if sequence > self.backend.received(&device, instance).0 {
                    self.backend.statistics(&device, instance, sequence, delta).map_err(unavailable)?;
                } else {
                    self.counters.repeated += 1;
                }
                line.received.0 = Some(sequence);
            }
            SouthboundMessage::Alert(sequence, AlertMessage::Raise { mut alerts, lost }) => {
                let instance = session.instance;
                if sequence > self.backend.received(&device, instance).1 {
                    let tenants = self.backend.device(&device).unwrap_or_default().tenants;
                    let came = alerts.len();
                    alerts.retain(|alert| tenants.contains(&alert.tenant));
                    self.counters.alerts_foreign += (came - alerts.len()) as u64;
                    self.backend.alerts(&device, instance, sequence, alerts, lost).map_err(unavailable)?;
                } else {
                    self.counters.repeated += 1;
                }
                line.received.1 = Some(sequence);
            }
            message => {
                let what = format!("a {} message that an agent may not send here", message.sub().name());
                return Err((RefuseCode::Protocol, what));
            }
        }
        Ok(())
    }

    /// Handles a device's report that it runs a generation.
    fn acknowledged(
        &mut self,
        connection: Connection,
        generation: u64,
        running: &GenerationAck,
    ) -> Result<(), (RefuseCode, String)> {
        let line = self.lines.get_mut(&connection);
        let Some(SouthboundConnection { state: SouthboundPhase::InStep(session), .. }) = line else {
            return Ok(());
        };
        let device = session.device.clone();
        session.running(generation, running).map_err(|what| (RefuseCode::Protocol, what.to_owned()))?;
        let stand = session.compare_generations();
        let stored = self.backend.running(&device, generation, running);
        stored.map_err(|error| (RefuseCode::Unavailable, error.to_string()))?;
        self.counters.acknowledged += 1;
        self.note(&device, stand);
        Ok(())
    }

    /// Runs the timers: ends connections that are dead, late, expired or revoked.
    pub fn tick(&mut self, now: Now) {
        self.backend.tick(now);
        let mut ended = Vec::new();
        for (connection, line) in &mut self.lines {
            let to_say = line.has_news() || line.pulse.due(now);
            let late = matches!(line.state, SouthboundPhase::Greeting)
                && now.ms >= line.since.saturating_add(self.config.greeting_ms);
            let dead = line.pulse.is_dead(now, to_say);
            let closing = matches!(line.state, SouthboundPhase::Closing);
            let peer = line.peer.as_ref().filter(|_| !closing);
            if closing {
                if dead {
                    // The client does not accept the refusal that is pending.
                    line.out.clear();
                }
            } else if late || dead {
                ended.push((*connection, RefuseCode::Silent, "the agent neither sends nor reads"));
            } else if peer.is_some_and(|peer| now.unix > peer.valid_until) {
                ended.push((
                    *connection,
                    RefuseCode::Expired,
                    "the device's certificate has expired; enrol it again",
                ));
            } else if peer.is_some_and(|peer| self.backend.is_revoked(&peer.serial)) {
                ended.push((*connection, RefuseCode::Revoked, "the device's certificate is revoked"));
            }
        }
        for (connection, code, what) in ended {
            self.refuse(connection, code, what.to_owned(), 60_000);
            // A peer that accepts nothing gets no reason either.
            if code == RefuseCode::Silent
                && let Some(line) = self.lines.get_mut(&connection)
            {
                line.out.clear();
            }
        }
    }

    /// The next message for a connection, as bytes. Call when the transport has room.
    pub fn transmit(&mut self, now: Now, connection: Connection) -> Option<Vec<u8>> {
        let line = self.lines.get_mut(&connection)?;
        let message = line.next_message(now)?;
        let version = line.version;
        line.pulse.note_sent(now);
        let first = matches!(message, SouthboundMessage::Session(SessionMessage::Welcome(_)));
        let object = matches!(
            message,
            SouthboundMessage::Policy(_, PolicyMessage::Put(_)) | SouthboundMessage::Rule(_)
        );
        match message.encode(if first { FIRST_VERSION } else { version }) {
            Ok(bytes) => {
                self.counters.objects_sent += u64::from(object);
                self.counters.bytes_sent += bytes.len() as u64;
                Some(bytes)
            }
            Err(error) => {
                // The object is larger than a message; the store should have refused it.
                self.refuse(connection, RefuseCode::Unavailable, error.to_string(), 60_000);
                None
            }
        }
    }
}

impl SouthboundConnection {
    fn has_news(&self) -> bool {
        let news = if let SouthboundPhase::InStep(device) = &self.state {
            self.received != (None, None) || !self.orders.is_empty() || device.has_news()
        } else {
            false
        };
        news || !self.out.is_empty()
    }

    fn next_message(&mut self, now: Now) -> Option<SouthboundMessage> {
        if let Some(message) = self.out.pop_front() {
            return Some(message);
        }
        let SouthboundPhase::InStep(device) = &mut self.state else { return None };
        if let Some(message) = self.orders.pop_front() {
            return Some(message);
        }
        if let Some(message) = device.next_message() {
            return Some(message);
        }
        if let Some(sequence) = self.received.0.take() {
            return Some(SouthboundMessage::Statistics(sequence, StatisticsMessage::Received));
        }
        if let Some(sequence) = self.received.1.take() {
            return Some(SouthboundMessage::Alert(sequence, AlertMessage::Received));
        }
        self.pulse.due(now).then_some(SouthboundMessage::Session(SessionMessage::Alive))
    }
}

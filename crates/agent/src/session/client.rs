// SPDX-License-Identifier: Apache-2.0
//! Drives a [`Session`] with real sockets, a clock and a store, in one thread that polls all of them; a
//! second thread builds generations, so that keep-alive messages continue meanwhile.

use super::enrolment::{EnrolError, Enrolment};
use super::machine::{AgentSessionCounters, Candidate, End, Session, SessionAction, SessionConfig};
use super::stage::ControllerGeneration;
use super::store::GenerationStore;
use bartizan_api::southbound::{
    AlertAggregate, ApplyTimings, Delta, DeviceId, Enrol, Enrolled, FunctionOrder, FunctionState,
    GenerationRefusal, GenerationRefusalCode, Hash, LevelStatus, Now, WorkerRuns,
};
use bartizan_channel::ChannelError;
use bartizan_channel::identity::{DeviceIdentity, NewKey};
use bartizan_channel::tls::{self, HandshakeClock};
use bartizan_channel::token::Token;
use bartizan_channel::wire::{Wire, WireReadOutcome};
use mio::{Events, Interest, Poll, Token as Place, Waker};
use serde_json::{Map, Value};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SOCKET: Place = Place(0);
const WAKER: Place = Place(1);

/// Longest interval between two ticks of a session, in milliseconds.
const LONGEST_WAIT: u64 = 1_000;

/// Seconds after which a device repeats an unanswered request for a certificate.
const RENEW_AGAIN: u64 = 3_700;

/// Applies a controller's messages to the device. A generation is built and stored in parallel, and runs only
/// after both: the running generation is the one that a start after a crash would run.
pub trait AgentDevice: Send {
    /// Begins to build a generation in the background, if the device can; [`AgentDevice::build`] of the same
    /// generation waits for the result.
    fn begin(&mut self, _candidate: &Candidate) {}

    /// Builds a generation beside the running one.
    ///
    /// # Errors
    /// It cannot be built; the refusal has the places. The running generation stays.
    fn build(&mut self, candidate: &Candidate) -> Result<(), GenerationRefusal>;

    /// Lets all workers run the generation built last, and returns what each runs.
    fn swap(&mut self) -> Vec<WorkerRuns>;

    /// State of the levels since the last [`AgentDevice::swap`], and rules that are not evaluated; `None` if
    /// the device does not report them.
    fn level_status(&mut self) -> Option<LevelStatus> {
        None
    }

    /// Discards the generation built last: it could not be stored, and is tried again.
    fn abandon(&mut self, _why: &io::Error) {}

    /// Carries out an order to a function.
    fn order(&mut self, order: FunctionOrder, function: &str, settings: &Map<String, Value>)
    -> FunctionState;
}

/// Configuration of a client.
pub struct ClientConfig {
    /// Settings of the session.
    pub session: SessionConfig,
    /// The controller, as `host:port`.
    pub controller: String,
    /// The folder with the device's key and certificate.
    pub identity: PathBuf,
    /// Gives seconds since 1970: [`wall_clock`], or a test's clock.
    pub clock: HandshakeClock,
}

/// The system's clock.
#[must_use]
pub fn wall_clock() -> HandshakeClock {
    Arc::new(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

enum AgentClientEvent {
    Statistics(Delta),
    Alert(AlertAggregate),
    Workers(Vec<WorkerRuns>, Option<LevelStatus>),
    Health(FunctionState),
}

/// Most orders that wait for a busy client, which may be resolving a name.
const ORDERS: usize = 4_096;

/// The status of a client.
#[derive(Clone, Debug, Default)]
pub struct AgentStatus {
    /// Counters of the session.
    pub counters: AgentSessionCounters,
    /// The running generation.
    pub generation: u64,
    /// The hash of its manifest.
    pub manifest: Hash,
    /// Whether a controller has accepted the session.
    pub in_step: bool,
    /// Why the last connection ended or failed.
    pub last_end: Option<String>,
}

/// A handle to a client that runs in its thread.
#[derive(Clone)]
pub struct ClientHandle {
    orders: SyncSender<AgentClientEvent>,
    waker: Arc<Waker>,
    status: Arc<Mutex<AgentStatus>>,
    stop: Arc<AtomicBool>,
    /// Number of alerts lost for lack of room.
    lost: Arc<AtomicU64>,
}

impl ClientHandle {
    /// Passes counter increments on. `false`: not accepted now.
    pub fn statistics(&self, delta: Delta) -> bool {
        self.send_order(AgentClientEvent::Statistics(delta))
    }

    /// Passes an alert on. Without room, the alert is counted as lost.
    pub fn alert(&self, alert: AlertAggregate) {
        let count = alert.count;
        if !self.send_order(AgentClientEvent::Alert(alert)) {
            self.count_lost(count);
        }
    }

    /// Counts alerts that were lost before this call.
    pub fn count_lost(&self, alerts: u64) {
        self.lost.fetch_add(alerts, Ordering::Relaxed);
    }

    /// Reports a change of workers or levels that is not due to a controller's generation. `false`: not
    /// accepted now.
    pub fn workers(&self, workers: Vec<WorkerRuns>, stands: Option<LevelStatus>) -> bool {
        self.send_order(AgentClientEvent::Workers(workers, stands))
    }

    /// Reports the state of a function. `false`: not accepted now.
    pub fn health(&self, state: FunctionState) -> bool {
        self.send_order(AgentClientEvent::Health(state))
    }

    /// Stops the client. The device keeps running its generation.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.waker.wake();
    }

    /// The current status.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        self.status.lock().map(|status| status.clone()).unwrap_or_default()
    }

    fn send_order(&self, order: AgentClientEvent) -> bool {
        // A client that has ended accepts nothing.
        let given = self.orders.try_send(order).is_ok();
        if given {
            let _ = self.waker.wake();
        }
        given
    }
}

/// An agent's client of its controller.
pub struct AgentClient {
    config: ClientConfig,
    session: Session,
    poll: Poll,
    wire: Option<Wire>,
    /// Whether the TLS handshake is done, and the session notified.
    greeted: bool,
    begin: Instant,
    orders: Receiver<AgentClientEvent>,
    handle: ClientHandle,
    work: Sender<DeviceTask>,
    done: Receiver<DeviceTaskResult>,
    renewal: Option<NewKey>,
    renew_at: u64,
    last_end: Option<String>,
}

enum DeviceTask {
    Apply(Candidate),
    Order { request: u32, order: FunctionOrder, function: String, settings: Map<String, Value> },
}

enum DeviceTaskResult {
    Applied { generation: u64, outcome: Applied, note: Option<String> },
    Answered(u32, FunctionState),
}

/// The generation that workers run, with durations; or the refusal.
type Applied = Result<(Vec<WorkerRuns>, Option<LevelStatus>, ApplyTimings), GenerationRefusal>;

/// The thread that builds and stores generations.
struct Workshop<D, S> {
    device: D,
    store: S,
}

impl<D: AgentDevice, S: GenerationStore> Workshop<D, S> {
    /// Runs the stored generation. Returns the state of the workers, and the reason of a failure.
    fn begin(&mut self, held: &ControllerGeneration) -> (Vec<WorkerRuns>, Option<String>) {
        if held.generation == 0 {
            return (Vec::new(), None);
        }
        let candidate = Candidate { held: held.clone(), manifest: held.manifest().hash() };
        match self.device.build(&candidate) {
            Ok(()) => (self.device.swap(), None),
            Err(refusal) => {
                let what =
                    format!("generation {} was stored, but cannot be built: {refusal:?}", held.generation);
                (Vec::new(), Some(what))
            }
        }
    }

    fn apply(&mut self, candidate: &Candidate) -> (Applied, Option<String>) {
        let mut begun = Instant::now();
        let mut lap = || {
            let before = std::mem::replace(&mut begun, Instant::now());
            u64::try_from((begun - before).as_micros()).unwrap_or(u64::MAX)
        };
        self.device.begin(candidate);
        let mut build = lap();
        let ahead = self.store.save_ahead(&candidate.held);
        let mut store = lap();
        if let Err(refusal) = self.device.build(candidate) {
            let withdrawn = matches!(ahead, Ok(true)).then(|| self.store.withdraw());
            let trouble = withdrawn.and_then(Result::err);
            return (
                Err(refusal),
                trouble.map(|error| format!("a generation that cannot run is stored: {error}")),
            );
        }
        build += lap();
        let saved = match ahead {
            Ok(false) => self.store.save(&candidate.held),
            // Without the proof, the next start tries the generation once itself.
            Ok(true) => {
                let _ = self.store.prove();
                Ok(())
            }
            Err(error) => Err(error),
        };
        store += lap();
        match saved {
            Ok(()) => {
                let workers = self.device.swap();
                let took = ApplyTimings { build, store, swap: lap() };
                (Ok((workers, self.device.level_status(), took)), None)
            }
            Err(error) => {
                self.device.abandon(&error);
                let refusal = GenerationRefusal {
                    code: GenerationRefusalCode::Store,
                    diagnostics: Vec::new(),
                    more: 0,
                };
                (Err(refusal), Some(format!("a generation cannot be stored: {error}")))
            }
        }
    }

    fn carry_out(&mut self, work: &Receiver<DeviceTask>, done: &Sender<DeviceTaskResult>, waker: &Waker) {
        while let Ok(work) = work.recv() {
            let outcome = match work {
                DeviceTask::Apply(candidate) => {
                    let (outcome, note) = self.apply(&candidate);
                    DeviceTaskResult::Applied { generation: candidate.held.generation, outcome, note }
                }
                DeviceTask::Order { request, order, function, settings } => {
                    DeviceTaskResult::Answered(request, self.device.order(order, &function, &settings))
                }
            };
            if done.send(outcome).is_err() {
                return;
            }
            let _ = waker.wake();
        }
    }
}

impl AgentClient {
    /// Makes a client. First builds the stored generation, if `device` accepts it: the device protects before
    /// it has a controller.
    ///
    /// # Errors
    /// The store cannot be read, or the system provides no poll.
    pub fn new(
        config: ClientConfig,
        mut store: impl GenerationStore + Send + 'static,
        device: impl AgentDevice + 'static,
    ) -> io::Result<Self> {
        let held = store.load()?;
        let mut workshop = Workshop { device, store };
        let (workers, last_end) = workshop.begin(&held);
        Self::with(config, workshop, held, workers, last_end)
    }

    /// Makes a client for a device that already runs the stored generation; or the default generation, with
    /// the reason why the stored one cannot be used.
    ///
    /// # Errors
    /// The system provides no poll.
    pub fn resume(
        config: ClientConfig,
        store: impl GenerationStore + Send + 'static,
        device: impl AgentDevice + 'static,
        held: ControllerGeneration,
        trouble: Option<String>,
    ) -> io::Result<Self> {
        Self::with(config, Workshop { device, store }, held, Vec::new(), trouble)
    }

    fn with(
        config: ClientConfig,
        mut workshop: Workshop<impl AgentDevice + 'static, impl GenerationStore + Send + 'static>,
        held: ControllerGeneration,
        workers: Vec<WorkerRuns>,
        last_end: Option<String>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let (give_orders, orders) = sync_channel(ORDERS);
        let (work, to_do) = channel();
        let (give_done, done) = channel();
        let handle = ClientHandle {
            orders: give_orders,
            waker: waker.clone(),
            status: Arc::default(),
            stop: Arc::default(),
            lost: Arc::default(),
        };
        thread::Builder::new()
            .name("southbound-work".into())
            .spawn(move || workshop.carry_out(&to_do, &give_done, &waker))?;
        let session = Session::new(config.session.clone(), held, workers);
        let begin = Instant::now();
        let client = AgentClient {
            config,
            session,
            poll,
            wire: None,
            greeted: false,
            begin,
            orders,
            handle,
            work,
            done,
            renewal: None,
            renew_at: u64::MAX,
            last_end,
        };
        Ok(client)
    }

    /// A handle to this client.
    #[must_use]
    pub fn handle(&self) -> ClientHandle {
        self.handle.clone()
    }

    fn now(&self) -> Now {
        let ms = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        Now { ms, unix: (self.config.clock)() }
    }

    /// Serves until stopped.
    ///
    /// # Errors
    /// The system's poll failed.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(16);
        loop {
            if !self.take_orders() {
                return Ok(());
            }
            self.take_done();
            let more = self.serve_wire();
            self.session.tick(self.now());
            self.renew_in_time();
            while let Some(action) = self.session.action() {
                self.act(action);
            }
            let waits = self.send();
            self.show();
            let now = self.now().ms;
            let wait = if more || waits {
                0
            } else {
                self.session.wake().saturating_sub(now).clamp(1, LONGEST_WAIT)
            };
            match self.poll.poll(&mut events, Some(Duration::from_millis(wait))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }

    fn take_orders(&mut self) -> bool {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                AgentClientEvent::Statistics(delta) => self.session.statistics(delta),
                AgentClientEvent::Alert(alert) => self.session.alert(alert),
                AgentClientEvent::Workers(workers, stands) => {
                    stands.into_iter().for_each(|stands| self.session.set_level_status(stands));
                    self.session.workers_changed(workers);
                }
                AgentClientEvent::Health(state) => self.session.health(state),
            }
        }
        self.session.count_lost(self.handle.lost.swap(0, Ordering::Relaxed));
        !self.handle.stop.load(Ordering::Acquire)
    }

    fn take_done(&mut self) {
        while let Ok(done) = self.done.try_recv() {
            match done {
                DeviceTaskResult::Answered(request, state) => self.session.answer(request, state),
                DeviceTaskResult::Applied { generation, outcome, note } => {
                    self.last_end = note.or(self.last_end.take());
                    let outcome = outcome.map(|(workers, stands, took)| {
                        self.session.set_timings(took);
                        stands.into_iter().for_each(|stands| self.session.set_level_status(stands));
                        workers
                    });
                    self.session.applied(generation, outcome);
                }
            }
        }
    }

    fn serve_wire(&mut self) -> bool {
        let now = self.now();
        let Some(wire) = &mut self.wire else { return false };
        let mut bytes = Vec::new();
        let turn = wire.read(&mut bytes);
        if turn.is_ok() && !self.greeted && !wire.is_handshaking() {
            self.greeted = true;
            self.session.dialled(now);
        }
        if !bytes.is_empty() {
            self.session.receive(now, &bytes);
        }
        match turn {
            Ok(WireReadOutcome::More) => true,
            Ok(WireReadOutcome::Drained) => false,
            Ok(WireReadOutcome::Ended) => {
                self.drop_wire(None);
                false
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => false,
            Err(error) => {
                self.drop_wire(Some(error.to_string()));
                false
            }
        }
    }

    fn drop_wire(&mut self, why: Option<String>) {
        self.wire = None;
        self.last_end = why.or(self.last_end.take());
        let now = self.now();
        self.session.lost(now);
    }

    fn act(&mut self, action: SessionAction) {
        match action {
            SessionAction::Dial => {
                if let Err(error) = self.dial() {
                    self.drop_wire(Some(error.to_string()));
                }
            }
            SessionAction::HangUp(end) => {
                self.last_end = Some(words(&end));
                self.wire.take().into_iter().for_each(Wire::close);
            }
            SessionAction::Apply(candidate) => drop(self.work.send(DeviceTask::Apply(candidate))),
            SessionAction::Order { request, order, function, settings } => {
                drop(self.work.send(DeviceTask::Order { request, order, function, settings }));
            }
            SessionAction::Renewed(enrolled) => {
                if let Err(error) = self.renewed(&enrolled) {
                    self.last_end = Some(format!("the new certificate cannot be used: {error}"));
                }
            }
        }
    }

    fn dial(&mut self) -> Result<(), ChannelError> {
        self.greeted = false;
        let identity = DeviceIdentity::load(&self.config.identity)?;
        self.note_validity(&identity)?;
        let config = tls::client(self.config.clock.clone(), &identity)?;
        let address = resolve(&self.config.controller)?;
        self.wire = Some(connect(&self.poll, address, config)?);
        Ok(())
    }

    fn note_validity(&mut self, identity: &DeviceIdentity) -> Result<(), ChannelError> {
        let facts = identity.facts()?;
        self.session.set_valid_until(facts.valid_until);
        // Renewal begins when a third of the validity is left.
        self.renew_at = facts.valid_until - facts.valid_until.saturating_sub(facts.valid_from) / 3;
        Ok(())
    }

    fn renew_in_time(&mut self) {
        let now = self.now().unix;
        if !self.session.is_in_step() || now < self.renew_at {
            return;
        }
        // The request is repeated if no answer comes.
        self.renew_at = now.saturating_add(RENEW_AGAIN);
        let asked = NewKey::make().and_then(|key| Ok((key.request()?, key)));
        if let Ok((request, key)) = asked {
            self.session.renew(request);
            self.renewal = Some(key);
        }
    }

    /// Stores the new certificate for the next connection; the present one ends before the old certificate
    /// expires.
    fn renewed(&mut self, enrolled: &Enrolled) -> Result<(), ChannelError> {
        let Some(key) = self.renewal.take() else { return Ok(()) };
        let identity = key.with(&enrolled.certificate, &enrolled.authorities)?;
        let (now, valid_from) = (self.now().unix, identity.facts()?.valid_from);
        if valid_from > now {
            // With the new certificate there would be no session until then; the present one is still valid
            // for a while.
            let ahead = valid_from - now;
            return Err(ChannelError::Unknown(format!(
                "the certificate becomes valid in {ahead} s: the clock of this host or of the controller is wrong; correct it"
            )));
        }
        identity.save(&self.config.identity)?;
        self.renew_at = u64::MAX;
        Ok(())
    }

    /// Writes the session's messages while the connection has room. Returns whether to continue at once.
    fn send(&mut self) -> bool {
        let now = self.now();
        let Some(wire) = &mut self.wire else { return false };
        let (greeted, session) = (self.greeted, &mut self.session);
        match wire.send(|| greeted.then(|| session.transmit(now)).flatten()) {
            Err(error) if error.kind() != io::ErrorKind::NotConnected => {
                self.drop_wire(Some(error.to_string()));
                true
            }
            _ => false,
        }
    }

    fn show(&mut self) {
        if let Ok(mut status) = self.handle.status.lock() {
            status.counters = self.session.counters();
            status.generation = self.session.running().generation;
            status.manifest = self.session.manifest();
            status.in_step = self.session.is_in_step();
            status.last_end.clone_from(&self.last_end);
        }
    }
}

/// Describes the end of a connection for people.
fn words(end: &End) -> String {
    match end {
        End::Lost => "the connection was lost".to_owned(),
        End::Dead => "the controller sent nothing for too long".to_owned(),
        End::Protocol(what) => what.clone(),
        End::Refused(refuse) => refuse.message.clone(),
        End::Bye => "the controller stopped".to_owned(),
        End::Expired => {
            "the device's certificate has expired; the running generation stays in force; enrol the device again".to_owned()
        }
    }
}

fn resolve(controller: &str) -> Result<SocketAddr, ChannelError> {
    let wrong = |what: String| {
        ChannelError::Unknown(format!(
            "the controller `{controller}`: {what}; write HOST:PORT, the port for agents"
        ))
    };
    let mut addresses = controller.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    addresses.next().ok_or_else(|| wrong("the name has no address".to_owned()))
}

fn connect(
    poll: &Poll,
    address: SocketAddr,
    config: Arc<rustls::ClientConfig>,
) -> Result<Wire, ChannelError> {
    let wrong = |error: io::Error| ChannelError::Unknown(format!("the controller at {address}: {error}"));
    let socket = mio::net::TcpStream::connect(address).map_err(wrong)?;
    let _ = socket.set_nodelay(true);
    let mut wire = Wire::dialled(socket, config)?;
    poll.registry()
        .register(&mut wire.socket, SOCKET, Interest::READABLE | Interest::WRITABLE)
        .map_err(wrong)?;
    Ok(wire)
}

/// Enrols the device with a one-time token: makes a key, requests a certificate, and stores both in the
/// identity folder. Blocks for at most half a minute. If the answer is lost, the same token can be used
/// again.
///
/// # Errors
/// The controller is unreachable, is not the one that the token pins, or refuses.
pub fn enrol(
    controller: &str,
    token: &str,
    device: &DeviceId,
    folder: &std::path::Path,
    clock: &HandshakeClock,
) -> Result<(), EnrolFailure> {
    let token = Token::parse(token)?;
    let key = NewKey::make()?;
    let ask = Enrol { device: device.clone(), token: Some(token.text()), csr: key.request()? };
    let mut poll = Poll::new().map_err(EnrolFailure::Lost)?;
    let mut wire = connect(&poll, resolve(controller)?, tls::enrolling(clock.clone(), token.pin())?)?;
    let begin = Instant::now();
    let now = || Now { ms: u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX), unix: clock() };
    let mut enrolment = Enrolment::new(now(), ask);
    let mut events = Events::with_capacity(4);
    loop {
        let not_yet = |error: &io::Error| error.kind() == io::ErrorKind::NotConnected;
        let mut bytes = Vec::new();
        let turn = match wire.read(&mut bytes) {
            Err(error) if not_yet(&error) => WireReadOutcome::Drained,
            turn => turn.map_err(EnrolFailure::Lost)?,
        };
        if let Some(enrolled) = enrolment.receive(&bytes)? {
            let identity = key.with(&enrolled.certificate, &enrolled.authorities)?;
            wire.close();
            return Ok(identity.save(folder)?);
        }
        if turn == WireReadOutcome::Ended {
            return Err(EnrolFailure::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
        if !wire.is_handshaking()
            && let Some(bytes) = enrolment.transmit()
        {
            wire.write(&bytes).map_err(EnrolFailure::Lost)?;
        }
        match wire.flush() {
            Err(error) if not_yet(&error) => {}
            flushed => drop(flushed.map_err(EnrolFailure::Lost)?),
        }
        enrolment.tick(now())?;
        match poll.poll(&mut events, Some(Duration::from_millis(LONGEST_WAIT))) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(EnrolFailure::Lost(error));
            }
            _ => {}
        }
    }
}

/// Why a device was not enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrolFailure {
    /// Token, key or certificate are invalid.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The controller refused, or did not answer.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// The connection failed.
    #[error("the connection to the controller: {}", lost(.0))]
    Lost(io::Error),
}

/// Describes the error of a lost connection; for a certificate that the token does not pin, adds what to do.
fn lost(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "the controller at that address did not issue the token, or has renewed its certificate since; check the address, and make another token"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;

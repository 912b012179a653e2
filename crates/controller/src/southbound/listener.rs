// SPDX-License-Identifier: Apache-2.0
//! Drives a [`SouthboundServer`] with real sockets and a clock, in one thread that polls all connections.

use super::backend::Backend;
use super::counters::SouthboundCounters;
use super::server::{ServerConfig, SouthboundServer};
use super::session::PeerIdentity;
use bartizan_api::southbound::{DeviceId, FunctionOrder, FunctionState, Now};
use bartizan_channel::tls::HandshakeClock;
use bartizan_channel::wire::{Wire, WireReadOutcome};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST: usize = 2;

/// Milliseconds between two ticks of the sessions' timers.
const TICK: u64 = 250;

/// Most connections of one address; further ones are refused.
pub const BY_SOURCE: usize = 64;
/// Most connections that have not identified their device yet: the oldest makes room for a new one, so that
/// silent connections cannot keep devices out.
pub const UNPROVEN_MAX: usize = 512;

enum ListenerCommand {
    Changed(DeviceId),
    Function {
        device: DeviceId,
        request: u32,
        order: FunctionOrder,
        function: String,
        settings: Map<String, Value>,
    },
    Tls(Arc<rustls::ServerConfig>),
    Stop,
}

/// A handle to a listener that runs in its thread.
#[derive(Clone)]
pub struct ListenerHandle {
    orders: Sender<ListenerCommand>,
    waker: Arc<Waker>,
    counters: Arc<Mutex<(SouthboundCounters, LinkCounters)>>,
}

/// Counters of connections before their session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Failed handshakes: certificate unknown, expired or revoked, or no TLS at all.
    pub handshakes_failed: u64,
    /// Reason of the last failed handshake.
    pub last_failure: String,
    /// Handshakes that took too long.
    pub handshakes_late: u64,
    /// Connections refused because of their address's bound.
    pub source_refused: u64,
    /// Connections without a session that made room for newer ones.
    pub gave_way: u64,
}

impl ListenerHandle {
    /// Notifies that the desired set of a device has changed.
    pub fn changed(&self, device: &DeviceId) {
        self.send_order(ListenerCommand::Changed(device.clone()));
    }

    /// Passes an order to a function of a device. The order is always answered, immediately if the device is
    /// not connected or has too many open orders.
    pub fn order(
        &self,
        device: &DeviceId,
        request: u32,
        order: FunctionOrder,
        function: String,
        settings: Map<String, Value>,
    ) {
        self.send_order(ListenerCommand::Function {
            device: device.clone(),
            request,
            order,
            function,
            settings,
        });
    }

    /// Sets the TLS settings of new connections, after a certificate was renewed or an authority rotated.
    pub fn set_tls(&self, config: Arc<rustls::ServerConfig>) {
        self.send_order(ListenerCommand::Tls(config));
    }

    /// Stops the listener and all sessions.
    pub fn stop(&self) {
        self.send_order(ListenerCommand::Stop);
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> (SouthboundCounters, LinkCounters) {
        self.counters.lock().map(|counters| counters.clone()).unwrap_or_default()
    }

    fn send_order(&self, order: ListenerCommand) {
        if self.orders.send(order).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

struct ListenerConnection {
    wire: Wire,
    source: SocketAddr,
    since: u64,
    /// Whether the handshake is done, and the server knows the connection.
    known: bool,
    /// Whether the input has ended; received messages are still handled.
    ended: bool,
}

/// The listener of devices' agents.
pub struct Listener<B> {
    server: SouthboundServer<B>,
    tls: Arc<rustls::ServerConfig>,
    clock: HandshakeClock,
    greeting_ms: u64,
    most: usize,
    poll: Poll,
    socket: TcpListener,
    lines: HashMap<usize, ListenerConnection>,
    next: usize,
    /// Connections without a session, the oldest first; may contain some that have one by now, or are gone.
    unproven: VecDeque<usize>,
    begin: Instant,
    orders: Receiver<ListenerCommand>,
    handle: ListenerHandle,
    links: LinkCounters,
}

impl<B: Backend> Listener<B> {
    /// Listens on an address.
    ///
    /// # Errors
    /// The system refuses to listen on the address.
    pub fn new(
        address: SocketAddr,
        tls: Arc<rustls::ServerConfig>,
        clock: HandshakeClock,
        config: ServerConfig,
        backend: B,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let mut socket = TcpListener::bind(address)?;
        poll.registry().register(&mut socket, LISTENER, Interest::READABLE)?;
        let (give, orders) = channel();
        let handle = ListenerHandle { orders: give, waker, counters: Arc::default() };
        let (greeting_ms, most) = (config.greeting_ms, config.connections);
        Ok(Listener {
            server: SouthboundServer::new(config, backend),
            tls,
            clock,
            greeting_ms,
            most,
            poll,
            socket,
            lines: HashMap::new(),
            next: FIRST,
            unproven: VecDeque::new(),
            begin: Instant::now(),
            orders,
            handle,
            links: LinkCounters::default(),
        })
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// The system does not report the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// A handle to this listener.
    pub fn handle(&self) -> ListenerHandle {
        self.handle.clone()
    }

    fn now(&self) -> Now {
        let ms = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        Now { ms, unix: (self.clock)() }
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// The system's poll failed.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1_024);
        let mut again: BTreeSet<usize> = BTreeSet::new();
        let mut ticked = 0;
        loop {
            let wait = if again.is_empty() { TICK } else { 0 };
            match self.poll.poll(&mut events, Some(Duration::from_millis(wait))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let mut ready = std::mem::take(&mut again);
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    WAKER => {}
                    Token(place) => drop(ready.insert(place)),
                }
            }
            if !self.take_orders(&mut ready) {
                return Ok(());
            }
            for place in ready {
                if self.read(place) {
                    again.insert(place);
                }
                self.send(place);
            }
            let now = self.now();
            // A session that replaces another leaves a message for that one, and so may a timer.
            if now.ms >= ticked + TICK {
                ticked = now.ms;
                self.tick(now);
            }
            if let Ok(mut counters) = self.handle.counters.lock() {
                *counters = (self.server.counters().clone(), self.links.clone());
            }
        }
    }

    /// Carries out orders; connections that then have data to send join `ready`. Returns whether to go on.
    fn take_orders(&mut self, ready: &mut BTreeSet<usize>) -> bool {
        // Several changes of a device cause one update: its set is made once.
        let mut changed = BTreeSet::new();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                ListenerCommand::Changed(device) => drop(changed.insert(device)),
                ListenerCommand::Function { device, request, order, function, settings } => {
                    if self.server.order(&device, request, order, &function, settings) {
                        let connection = self.server.connection_of(&device);
                        ready.extend(connection.and_then(|connection| usize::try_from(connection).ok()));
                    } else {
                        let reason =
                            "the device is not connected, or has too many orders without an answer".into();
                        let state = FunctionState { function, done: false, state: "unknown".into(), reason };
                        self.server.backend().function(&device, request, state);
                    }
                }
                ListenerCommand::Tls(config) => self.tls = config,
                ListenerCommand::Stop => return false,
            }
        }
        for device in changed {
            self.server.changed(&device);
            let connection = self.server.connection_of(&device);
            ready.extend(connection.and_then(|connection| usize::try_from(connection).ok()));
        }
        true
    }

    fn accept(&mut self) {
        while let Ok((socket, source)) = self.socket.accept() {
            let same = self.lines.values().filter(|line| line.source.ip() == source.ip()).count();
            let loopback = source.ip().is_loopback();
            if self.lines.len() >= self.most || (same >= BY_SOURCE && !loopback) {
                self.links.source_refused += 1;
                continue;
            }
            let _ = socket.set_nodelay(true);
            let Ok(mut wire) = Wire::accepted(socket, self.tls.clone()) else { continue };
            let place = self.next;
            self.next += 1;
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut wire.socket, Token(place), interest).is_ok() {
                let since = self.now().ms;
                self.lines
                    .insert(place, ListenerConnection { wire, source, since, known: false, ended: false });
                self.make_room(place);
            }
        }
    }

    /// Adds a connection without a session; closes the oldest of those if there are too many.
    fn make_room(&mut self, newcomer: usize) {
        self.unproven.push_back(newcomer);
        if self.unproven.len() <= UNPROVEN_MAX {
            return;
        }
        let (lines, server) = (&self.lines, &self.server);
        self.unproven.retain(|place| lines.contains_key(place) && !server.is_session(*place as u64));
        if self.unproven.len() > UNPROVEN_MAX
            && let Some(oldest) = self.unproven.pop_front()
        {
            self.links.gave_way += 1;
            self.remove_connection(oldest);
        }
    }

    /// Handles the received messages of a connection, then reads more. Returns whether there may be more.
    fn read(&mut self, place: usize) -> bool {
        let now = self.now();
        if self.server.work(now, place as u64) {
            return true;
        }
        let Some(line) = self.lines.get_mut(&place) else { return false };
        if line.ended {
            self.remove_connection(place);
            return false;
        }
        let mut bytes = Vec::new();
        let turn = line.wire.read(&mut bytes);
        if !line.known && turn.is_ok() && !line.wire.is_handshaking() && !self.announce(place) {
            self.lines.remove(&place);
            return false;
        }
        self.server.push(now, place as u64, &bytes);
        let Some(line) = self.lines.get_mut(&place) else { return false };
        match turn {
            Ok(WireReadOutcome::Drained) => self.server.work(now, place as u64),
            Ok(WireReadOutcome::More) => true,
            Ok(WireReadOutcome::Ended) => {
                line.ended = true;
                true
            }
            Err(error) => {
                if !line.known {
                    self.links.handshakes_failed += 1;
                    self.links.last_failure = error.to_string();
                }
                line.ended = true;
                true
            }
        }
    }

    /// Announces a connection to the server after its handshake. Returns whether the server accepts it.
    fn announce(&mut self, place: usize) -> bool {
        let now = self.now();
        let Some(line) = self.lines.get_mut(&place) else { return false };
        line.known = true;
        let source = line.source.ip().to_string();
        let Ok(facts) = line.wire.peer() else { return false };
        let peer = facts.and_then(|facts| {
            let device = DeviceId::new(facts.device?).ok()?;
            Some(PeerIdentity { device, serial: facts.serial, valid_until: facts.valid_until })
        });
        self.server.connected(now, place as u64, peer, &source)
    }

    fn remove_connection(&mut self, place: usize) {
        self.lines.remove(&place);
        self.server.lost(place as u64);
    }

    /// Writes a session's messages while the connection has room; closes finished connections.
    fn send(&mut self, place: usize) {
        let now = self.now();
        let Some(line) = self.lines.get_mut(&place) else { return };
        let (known, server) = (line.known, &mut self.server);
        let sent = line.wire.send(|| known.then(|| server.transmit(now, place as u64)).flatten());
        match sent {
            Err(_) => self.remove_connection(place),
            Ok(true) if line.known && self.server.is_over(place as u64) => {
                if let Some(line) = self.lines.remove(&place) {
                    line.wire.close();
                }
                self.server.lost(place as u64);
            }
            Ok(_) => {}
        }
    }

    fn tick(&mut self, now: Now) {
        self.server.tick(now);
        // Connections may still wait from when no descriptor was left.
        self.accept();
        let places: Vec<usize> = self.lines.keys().copied().collect();
        for place in places {
            let late = self
                .lines
                .get(&place)
                .is_some_and(|line| !line.known && now.ms >= line.since.saturating_add(self.greeting_ms));
            if late {
                self.links.handshakes_late += 1;
                self.remove_connection(place);
            } else if self.server.is_dead(place as u64) {
                self.remove_connection(place);
            } else {
                self.send(place);
            }
        }
    }
}

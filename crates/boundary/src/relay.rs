// SPDX-License-Identifier: Apache-2.0
//! The relay: listens on the loopback of a guest's namespace, and makes a stream of each connection that the
//! hooks lead there, and datagrams of the guest of those that they lead there (`datagrams`).
//!
//! It is a process of the guest like any other and is trusted with nothing: the engine judges what it sends.
//! Where a stream is refused, the program's connection is reset.

use crate::datagrams::{DatagramCounts, DatagramRelay, DatagramSockets};
use crate::error::{BoundaryError, system};
use crate::hooks::{DatagramDestinations, Destination, Destinations};
use bartizan_toe::descriptor::Transport;
use bartizan_toe::guest::{GuestProcess, OpenedStream, ReceiveOptions};
use rustix::io::Errno;
use rustix::net::{Shutdown, sockopt};
use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Most connections at a time; further ones are reset.
pub const RELAYED_MOST: usize = 512;
/// Bytes that are moved at once.
const CHUNK: usize = 64 << 10;
/// Stack of a thread that moves bytes.
const STACK: usize = 256 << 10;

/// Ports of the relay on the guest's loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelayPorts {
    pub(crate) v4: u16,
    /// 0: the kernel has no IPv6.
    pub(crate) v6: u16,
    pub(crate) datagrams_v4: u16,
    /// As `v6`.
    pub(crate) datagrams_v6: u16,
}

/// The listeners of a relay.
#[derive(Debug)]
pub(crate) struct Relay {
    listeners: Vec<TcpListener>,
    datagrams: DatagramSockets,
    ports: RelayPorts,
}

/// Tables of the hooks, by which the relay finds destinations.
pub(crate) struct RelayTables {
    pub(crate) streams: Destinations,
    pub(crate) datagrams: DatagramDestinations,
}

/// Counters of a running relay.
#[derive(Debug)]
pub(crate) struct RelayCounts {
    /// Connections that were reset since there were as many as may be.
    pub(crate) reset: Arc<AtomicU64>,
    pub(crate) datagrams: Arc<DatagramCounts>,
}

/// State that all connections share.
struct RelayState {
    process: Arc<GuestProcess>,
    destinations: Mutex<Destinations>,
    connections: AtomicUsize,
    /// Connections that were reset since there were as many as may be.
    reset: Arc<AtomicU64>,
}

impl Relay {
    /// Listens in the namespace of this thread. `has_v6`: datagrams of IPv6 can be led here.
    pub(crate) fn listen(has_v6: bool) -> Result<Relay, BoundaryError> {
        let failed =
            |source| BoundaryError::System { what: "listen on the loopback of its namespace", source };
        let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok();
        let port = |listener: &TcpListener| listener.local_addr().map(|at| at.port());
        let datagrams = DatagramSockets::bind(has_v6)?;
        let [datagrams_v4, datagrams_v6] = datagrams.ports();
        let ports = RelayPorts {
            datagrams_v4,
            datagrams_v6,
            v4: port(&v4).map_err(failed)?,
            v6: v6.as_ref().map(port).transpose().map_err(failed)?.unwrap_or(0),
        };
        Ok(Relay { listeners: std::iter::once(v4).chain(v6).collect(), datagrams, ports })
    }

    pub(crate) const fn ports(&self) -> RelayPorts {
        self.ports
    }

    /// Joins the guest, and serves connections and datagrams from now on, until this process ends.
    pub(crate) fn start(
        self,
        guest: BorrowedFd<'_>,
        tables: RelayTables,
    ) -> Result<RelayCounts, BoundaryError> {
        let process = Arc::new(GuestProcess::join(guest).map_err(BoundaryError::Join)?);
        let (destinations, connections) = (Mutex::new(tables.streams), AtomicUsize::new(0));
        let (reset, datagrams) = (Arc::<AtomicU64>::default(), Arc::<DatagramCounts>::default());
        let counts = RelayCounts { reset: Arc::clone(&reset), datagrams: Arc::clone(&datagrams) };
        let relay = DatagramRelay::new(self.datagrams, Arc::clone(&process), tables.datagrams, datagrams)
            .map_err(system("start its relay of datagrams"))?;
        let state = Arc::new(RelayState { process, destinations, connections, reset });
        let failed = |source| BoundaryError::System { what: "start its relay", source };
        let thread = || thread::Builder::new().name("relay".to_owned()).stack_size(STACK);
        thread().spawn(move || relay.serve()).map_err(failed)?;
        for listener in self.listeners {
            let state = Arc::clone(&state);
            thread().spawn(move || state.serve(&listener)).map_err(failed)?;
        }
        Ok(counts)
    }
}

impl RelayState {
    fn serve(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let Ok((connection, client)) = listener.accept() else {
                // Descriptors are used up: those in use come back.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            let destination = self.destinations.lock().unwrap_or_else(PoisonError::into_inner).take(client);
            let before = self.connections.fetch_add(1, Ordering::Relaxed);
            let state = Arc::clone(self);
            let thread = thread::Builder::new().name("relayed".to_owned()).stack_size(STACK);
            let started = match destination {
                Some(destination) if before < RELAYED_MOST => {
                    let connection = connection.try_clone();
                    thread.spawn(move || {
                        if let Ok(connection) = connection {
                            state.relay(&connection, destination);
                        }
                        state.connections.fetch_sub(1, Ordering::Relaxed);
                    })
                }
                _ => Err(std::io::ErrorKind::ConnectionRefused.into()),
            };
            if started.is_err() {
                self.connections.fetch_sub(1, Ordering::Relaxed);
                self.reset.fetch_add(u64::from(before >= RELAYED_MOST), Ordering::Relaxed);
                reset(&connection);
            }
        }
    }

    /// Moves the bytes of a connection, in both directions, until both have ended or one fails.
    fn relay(&self, connection: &TcpStream, destination: Destination) {
        let Destination { to, process } = destination;
        let opened = match self.process.open_for(process, to.is_ipv6(), Transport::Tcp) {
            Ok(opened) => opened,
            Err(_) => return reset(connection),
        };
        let connected = self.stream(&opened).and_then(|stream| stream.connect(to));
        if connected.is_err() {
            return reset(connection);
        }
        let result = thread::scope(|scope| {
            let outward = scope.spawn(|| self.outward(connection, &opened));
            let inward = self.inward(connection, &opened);
            if inward.is_err() {
                // The thread that reads of the program ends.
                reset(connection);
            }
            inward.and(outward.join().unwrap_or(Err(Errno::IO)))
        });
        if result.is_err() {
            reset(connection);
        }
    }

    fn stream<'s>(&'s self, opened: &'s OpenedStream) -> Result<bartizan_toe::guest::GuestStream<'s>, Errno> {
        self.process.stream(opened.handle, opened.fd.as_fd()).ok_or(Errno::BADF)
    }

    /// From the program to the stream.
    fn outward(&self, mut connection: &TcpStream, opened: &OpenedStream) -> Result<(), Errno> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = match connection.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    // The program has reset it: so is the stream.
                    let _ = self.stream(opened)?.shutdown(Shutdown::Both);
                    return Err(Errno::CONNRESET);
                }
            };
            if count == 0 {
                return self.stream(opened)?.shutdown(Shutdown::Write);
            }
            let mut rest = buffer.get(..count).unwrap_or_default();
            while !rest.is_empty() {
                let sent = self.stream(opened)?.transmit(&[IoSlice::new(rest)], false)?;
                rest = rest.get(sent..).unwrap_or_default();
            }
        }
    }

    /// From the stream to the program.
    fn inward(&self, mut connection: &TcpStream, opened: &OpenedStream) -> Result<(), Errno> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let options = ReceiveOptions::default();
            let count = self.stream(opened)?.receive(&mut [IoSliceMut::new(&mut buffer)], options)?;
            if count == 0 {
                let _ = connection.shutdown(std::net::Shutdown::Write);
                return Ok(());
            }
            connection.write_all(buffer.get(..count).unwrap_or_default()).map_err(|_| Errno::PIPE)?;
        }
    }
}

/// Has a connection reset when its last descriptor is closed; who reads of it stops now. Shutting its other
/// half as well would send an end before the reset.
fn reset(connection: &TcpStream) {
    let _ = sockopt::set_socket_linger(connection, Some(Duration::ZERO));
    let _ = connection.shutdown(std::net::Shutdown::Read);
}

/// Waits until the engine has ended, then ends all streams of the guest, so that programs which sleep in
/// calls return. Joins the guest with a process slot of its own.
///
/// # Errors
/// The guest has as many processes as it may.
pub fn watch_engine(guest: BorrowedFd<'_>) -> Result<(), BoundaryError> {
    let process = GuestProcess::join(guest).map_err(BoundaryError::Join)?;
    let thread = thread::Builder::new().name("engine-watch".to_owned()).stack_size(STACK);
    let started = thread.spawn(move || process.watch_engine());
    started.map(drop).map_err(|source| BoundaryError::System { what: "start its watch", source })
}

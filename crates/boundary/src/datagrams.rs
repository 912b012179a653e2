// SPDX-License-Identifier: Apache-2.0
//! The relay of datagrams: what plain sockets of a guest send (the resolver of the C library among them) goes
//! on as datagrams of the guest, one socket on the stream path for each socket of a program.
//!
//! The hooks have led each datagram to a loopback address that stands for its destination; the answer leaves
//! from there. An answer from an address to which the program has sent nothing is dropped.

use crate::clock::now;
use crate::error::BoundaryError;
use crate::hooks::DatagramDestinations;
use crate::packet_info::PacketInfoSocket;
use bartizan_toe::descriptor::Transport;
use bartizan_toe::guest::{GuestProcess, GuestStream, OpenedStream, ReceiveOptions};
use rustix::event::epoll;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Most sockets of programs at a time; a further one takes the place of that which was idle for longest.
pub const ASSOCIATIONS_MOST: usize = 256;
/// Time without a datagram after which a socket's way through the relay is given back.
pub const IDLE_MOST: Duration = Duration::from_secs(60);
/// Most destinations of a socket whose answers are known; the one used first gives way.
pub const PEERS_MOST: usize = 64;
/// Interval of the looks for idle ones.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Datagrams of one source that are moved before others have their turn.
const BATCH: usize = 64;
const EVENTS: usize = 64;
/// Larger than a datagram can be.
const BUFFER: usize = 65536;

/// Counters that the starter of the guest reports.
#[derive(Debug, Default)]
pub(crate) struct DatagramCounts {
    pub(crate) relayed: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// The sockets to which the hooks lead datagrams: IPv4, and IPv6 where there is any.
#[derive(Debug)]
pub(crate) struct DatagramSockets {
    v4: PacketInfoSocket,
    v6: Option<PacketInfoSocket>,
}

impl DatagramSockets {
    /// Binds them in the namespace of this thread.
    pub(crate) fn bind(has_v6: bool) -> Result<DatagramSockets, BoundaryError> {
        let failed = |source| BoundaryError::System { what: "bind its relay of datagrams", source };
        let v4 = PacketInfoSocket::bind(false).map_err(failed)?;
        Ok(DatagramSockets { v4, v6: has_v6.then(|| PacketInfoSocket::bind(true).ok()).flatten() })
    }

    /// Ports of both; 0: there is none.
    pub(crate) fn ports(&self) -> [u16; 2] {
        let port = |socket: &PacketInfoSocket| socket.port().unwrap_or(0);
        [port(&self.v4), self.v6.as_ref().map_or(0, port)]
    }

    fn of(&self, is_v6: bool) -> Option<&PacketInfoSocket> {
        if is_v6 { self.v6.as_ref() } else { Some(&self.v4) }
    }
}

/// A socket of a program: its socket on the stream path, and the loopback addresses of its destinations.
struct Association {
    opened: OpenedStream,
    peers: Vec<(SocketAddr, IpAddr)>,
    used: Instant,
    /// Its number among the events.
    number: u64,
}

/// The relay; [`DatagramRelay::serve`] is its thread.
pub(crate) struct DatagramRelay {
    sockets: DatagramSockets,
    process: Arc<GuestProcess>,
    destinations: DatagramDestinations,
    counts: Arc<DatagramCounts>,
    events: OwnedFd,
    associations: HashMap<SocketAddr, Association>,
    clients: HashMap<u64, SocketAddr>,
    next: u64,
    buffer: Vec<u8>,
}

/// Events of the two sockets; associations have the numbers after them.
const SOCKET_V4: u64 = 0;
const SOCKET_V6: u64 = 1;
const FIRST: u64 = 2;

impl DatagramRelay {
    pub(crate) fn new(
        sockets: DatagramSockets,
        process: Arc<GuestProcess>,
        destinations: DatagramDestinations,
        counts: Arc<DatagramCounts>,
    ) -> Result<DatagramRelay, Errno> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&events, &sockets.v4, epoll::EventData::new_u64(SOCKET_V4), flags)?;
        if let Some(v6) = &sockets.v6 {
            epoll::add(&events, v6, epoll::EventData::new_u64(SOCKET_V6), flags)?;
        }
        let (associations, clients, buffer) = (HashMap::new(), HashMap::new(), vec![0; BUFFER]);
        let next = FIRST;
        Ok(DatagramRelay {
            sockets,
            process,
            destinations,
            counts,
            events,
            associations,
            clients,
            next,
            buffer,
        })
    }

    /// Relays until the process ends.
    pub(crate) fn serve(mut self) {
        let interval = i64::try_from(SWEEP_INTERVAL.as_secs()).unwrap_or(5);
        let wait = rustix::event::Timespec { tv_sec: interval, tv_nsec: 0 };
        let mut swept = now();
        loop {
            let mut space = [const { MaybeUninit::uninit() }; EVENTS];
            let numbers: Vec<u64> = match epoll::wait(&self.events, &mut space, Some(&wait)) {
                Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            for number in numbers {
                match number {
                    SOCKET_V4 | SOCKET_V6 => self.outward(number == SOCKET_V6),
                    number => self.inward(number),
                }
            }
            if swept.elapsed() >= SWEEP_INTERVAL {
                swept = now();
                self.associations.retain(|_, association| association.used.elapsed() < IDLE_MOST);
                let associations = &self.associations;
                self.clients.retain(|_, client| associations.contains_key(client));
            }
        }
    }

    fn refuse(&self) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// From programs.
    fn outward(&mut self, is_v6: bool) {
        for _ in 0..BATCH {
            let Some(socket) = self.sockets.of(is_v6) else { return };
            let arrived = match socket.receive(&mut self.buffer) {
                Ok(arrived) => arrived,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    self.refuse();
                    continue;
                }
                // None is left; errors of answers (ICMP) are told here as well, once each.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => continue,
            };
            let Some(to) = self.destinations.behind(arrived.to) else {
                self.refuse();
                continue;
            };
            let sent = self.associate(arrived.from, to, arrived.to).and_then(|()| {
                let bytes = self.buffer.get(..arrived.length).unwrap_or_default();
                self.transmit(arrived.from, bytes, to)
            });
            match sent {
                Ok(()) => _ = self.counts.relayed.fetch_add(1, Ordering::Relaxed),
                Err(_) => self.refuse(),
            }
        }
    }

    fn transmit(&self, client: SocketAddr, bytes: &[u8], to: SocketAddr) -> Result<(), Errno> {
        let association = self.associations.get(&client).ok_or(Errno::NOTCONN)?;
        let stream = stream_of(&self.process, &association.opened)?;
        // The error of an earlier datagram comes first; this one goes on then.
        match stream.transmit_datagram(&[IoSlice::new(bytes)], Some(to), true) {
            Err(Errno::ACCESS | Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) => {
                stream.transmit_datagram(&[IoSlice::new(bytes)], Some(to), true).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// Finds or makes a client's way, and notes a destination of it.
    fn associate(&mut self, client: SocketAddr, to: SocketAddr, behind: IpAddr) -> Result<(), Errno> {
        if !self.associations.contains_key(&client) {
            let process = self.destinations.process(client);
            let opened = self.process.open_for(process, to.is_ipv6(), Transport::Udp)?;
            stream_of(&self.process, &opened)?.watch(false);
            let (number, data) = (self.next, epoll::EventData::new_u64(self.next));
            epoll::add(&self.events, &opened.fd, data, epoll::EventFlags::IN)?;
            self.next += 1;
            self.make_room();
            self.clients.insert(number, client);
            let association = Association { opened, peers: Vec::new(), used: now(), number };
            self.associations.insert(client, association);
        }
        let association = self.associations.get_mut(&client).ok_or(Errno::NOBUFS)?;
        association.used = now();
        if !association.peers.contains(&(to, behind)) {
            association.peers.retain(|(peer, _)| *peer != to);
            if association.peers.len() == PEERS_MOST {
                association.peers.remove(0);
            }
            association.peers.push((to, behind));
        }
        Ok(())
    }

    fn make_room(&mut self) {
        if self.associations.len() < ASSOCIATIONS_MOST {
            return;
        }
        let oldest = self.associations.iter().min_by_key(|(_, association)| association.used);
        if let Some(client) = oldest.map(|(client, _)| *client)
            && let Some(association) = self.associations.remove(&client)
        {
            self.clients.remove(&association.number);
        }
    }

    /// To a program.
    fn inward(&mut self, number: u64) {
        let Some(client) = self.clients.get(&number).copied() else { return };
        let Some(association) = self.associations.get_mut(&client) else { return };
        association.used = now();
        let Some(association) = self.associations.get(&client) else { return };
        let Some(socket) = self.sockets.of(client.is_ipv6()) else { return };
        let Ok(stream) = stream_of(&self.process, &association.opened) else {
            // The engine has ended the socket, or is gone.
            self.clients.remove(&number);
            self.associations.remove(&client);
            return;
        };
        for _ in 0..BATCH {
            let options = ReceiveOptions { dont_wait: true, ..ReceiveOptions::default() };
            let received = stream.receive_datagram(&mut [IoSliceMut::new(&mut self.buffer)], options);
            let from = match received {
                Err(Errno::AGAIN) => return,
                // Of a datagram that was sent before: a program without a connection learns nothing.
                Err(_) => continue,
                Ok(received) => received.from.map(|from| (from, received.copied)),
            };
            let Some((from, length)) = from else {
                self.clients.remove(&number);
                self.associations.remove(&client);
                return;
            };
            let behind = association.peers.iter().find(|(peer, _)| *peer == from).map(|(_, behind)| *behind);
            let bytes = self.buffer.get(..length).unwrap_or_default();
            // Counted first: the program may end with this datagram.
            self.counts.relayed.fetch_add(1, Ordering::Relaxed);
            if behind.is_none_or(|behind| socket.send(bytes, client, behind).is_err()) {
                self.counts.relayed.fetch_sub(1, Ordering::Relaxed);
                self.refuse();
            }
        }
    }
}

fn stream_of<'s>(process: &'s GuestProcess, opened: &'s OpenedStream) -> Result<GuestStream<'s>, Errno> {
    process.stream(opened.handle, opened.fd.as_fd()).ok_or(Errno::BADF)
}

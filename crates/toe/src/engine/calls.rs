// SPDX-License-Identifier: Apache-2.0
//! Requests of a program, which arrive as descriptors.

use super::accept::{canonical, local_address, socket_events, to_family};
use super::slab::StreamKey;
use super::stream::{ConnectionState, EngineStream};
use super::{EngineTurn, EventSource, MemberKey};
use crate::clock::now;
use crate::descriptor::{DescriptorWords, Operation, PLAIN_SOCKET, Request};
use crate::layout::state;
use crate::reason::StreamRefusal;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::SeqCst;

/// A UDP socket of the kernel in the engine's namespace.
pub(super) fn udp_socket(v6: bool) -> Result<OwnedFd, Errno> {
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))
}

/// A TCP socket of the kernel in the engine's namespace.
pub(super) fn tcp_socket(v6: bool) -> Result<OwnedFd, Errno> {
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

/// The address from which the kernel would send to a peer.
pub(super) fn source_for(peer: SocketAddr) -> Result<IpAddr, Errno> {
    let family = if peer.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let probe = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // Connecting a datagram socket sends nothing; the port only must not be zero.
    let peer = if peer.port() == 0 { SocketAddr::new(peer.ip(), 9) } else { peer };
    rustix::net::connect(&probe, &peer)?;
    Ok(local_address(&probe)?.ip())
}

/// Ports that are tried where the kernel chooses one for two sockets.
const TWIN_TRIES: usize = 8;

/// Binds a socket of IPv6 to an address, and a new one of IPv4 to another at the same port; returns the
/// second.
fn bind_twins(socket: &OwnedFd, address: SocketAddr, other: SocketAddr) -> Result<OwnedFd, Errno> {
    let mut tries = TWIN_TRIES;
    loop {
        let twin = tcp_socket(false)?;
        sockopt::set_socket_reuseaddr(&twin, sockopt::socket_reuseaddr(socket)?)?;
        sockopt::set_socket_reuseport(&twin, sockopt::socket_reuseport(socket)?)?;
        rustix::net::bind(&twin, &other)?;
        let port = local_address(&twin)?.port();
        tries -= 1;
        match rustix::net::bind(socket, &SocketAddr::new(address.ip(), port)) {
            Ok(()) => return Ok(twin),
            Err(Errno::ADDRINUSE) if address.port() == 0 && tries > 0 => {}
            Err(error) => return Err(error),
        }
    }
}

impl EngineTurn<'_> {
    /// Carries out a descriptor, the engine's copy of it.
    pub(super) fn serve_descriptor(&mut self, member: MemberKey, words: &DescriptorWords) {
        let Ok(request) = Request::parse(words) else {
            self.count(member.guest, StreamRefusal::Malformed);
            return;
        };
        let key = self.guest(member.guest).and_then(|guest| guest.find(request.handle));
        let Some(key) = key else {
            self.count(member.guest, StreamRefusal::StaleHandle);
            return;
        };
        match request.operation {
            Operation::Transmit => self.pump(key),
            Operation::Window => self.open_window(key),
            Operation::Finish => {
                if let Some(stream) = self.streams.get_mut(key) {
                    stream.finish = true;
                }
                self.pump(key);
            }
            Operation::Synchronise => {
                if let Some(stream) = self.streams.get_mut(key) {
                    stream.synchronise();
                    stream.complete(request.sequence, Ok(0));
                }
            }
            operation => self.call(key, request.sequence, operation),
        }
        // Whatever a descriptor says: a stream that a process waits for becomes writable again.
        if request.operation == Operation::Transmit
            && let Some(stream) = self.streams.get_mut(key)
        {
            stream.notify_writable();
        }
    }

    /// There is room in a receive buffer: its source goes on.
    fn open_window(&mut self, key: StreamKey) {
        let partner = self.streams.get_mut(key).and_then(|stream| stream.partner);
        self.pump(partner.unwrap_or(key));
    }

    /// Carries out a call that the guest waits for.
    fn call(&mut self, key: StreamKey, sequence: u32, operation: Operation) {
        let Some(mut stream) = self.streams.take(key) else { return };
        let result = match operation {
            Operation::Connect(address) if stream.is_datagram => {
                self.connect_datagrams(&mut stream, address).map(|()| 0)
            }
            Operation::Connect(address) => self.connect(&mut stream, address).map(|()| 0),
            Operation::Disconnect if stream.is_datagram => self.disconnect_datagrams(&mut stream).map(|()| 0),
            Operation::Listen(_) if stream.is_datagram => Err(Errno::OPNOTSUPP),
            Operation::Disconnect => self.disconnect(&mut stream).map(|()| 0),
            Operation::Bind(address) => self.bind(&mut stream, address).map(|()| 0),
            Operation::Listen(backlog) => self.listen(&mut stream, backlog).map(|()| 0),
            Operation::SetOption(option) => stream.set_option(option).map(|()| 0),
            Operation::GetOption(option) => stream.option(option),
            _ => Err(Errno::INVAL),
        };
        if result == Err(Errno::NOPROTOOPT) {
            self.count(stream.guest, StreamRefusal::SocketOption);
        }
        stream.complete(sequence, result);
        self.streams.put(key, stream);
        if matches!(operation, Operation::Connect(_)) {
            self.pump(key);
        }
    }

    fn connect(&mut self, stream: &mut EngineStream, address: SocketAddr) -> Result<(), Errno> {
        match stream.state {
            ConnectionState::Idle => {}
            ConnectionState::Connecting => return Err(Errno::ALREADY),
            ConnectionState::Open | ConnectionState::Listening => return Err(Errno::ISCONN),
            ConnectionState::Dead => self.renew(stream)?,
        }
        if stream.v6 != address.is_ipv6() {
            return Err(Errno::AFNOSUPPORT);
        }
        let time = now();
        if !self.guest(stream.guest).is_some_and(|guest| guest.may_connect(time)) {
            self.count(stream.guest, StreamRefusal::ConnectRate);
            return Err(Errno::NOBUFS);
        }
        let listener = self.local_listener(stream.guest, address);
        let keeps = self.is_guests_own(stream.guest, address.ip());
        let by_tcp = self.guest(stream.guest).is_some_and(|guest| guest.spec.always_tcp);
        let has_room = |stream: &mut EngineStream| stream.pending.len() < stream.backlog;
        if let Some(listener) = listener
            && (!by_tcp || keeps)
            && (keeps || self.streams.get_mut(listener).is_some_and(has_room))
        {
            return self.connect_locally(stream, listener, address);
        }
        // A listener whose queue is full is connected to by TCP, which waits.
        if keeps {
            return Err(PLAIN_SOCKET);
        }
        self.connect_by_tcp(stream, address)
    }

    fn connect_by_tcp(&mut self, stream: &mut EngineStream, address: SocketAddr) -> Result<(), Errno> {
        let own = self.guest(stream.guest).map(|guest| guest.spec.addresses.clone()).unwrap_or_default();
        let socket = stream.socket.as_ref().ok_or(Errno::IO)?;
        if !stream.is_bound && !stream.has_source {
            let peer = canonical(address);
            let source = match own.iter().find(|own| own.is_ipv4() == peer.is_ipv4()) {
                Some(own) => *own,
                None if own.is_empty() => source_for(peer)?,
                None => return Err(Errno::NETUNREACH),
            };
            // With a port of its own before the first SYN: whoever admits the stream sees the addresses that
            // the peer will see.
            rustix::net::bind(socket, &to_family(SocketAddr::new(source, 0), stream.v6))?;
            stream.has_source = true;
        }
        let mut local = local_address(socket)?;
        if local.ip().is_unspecified() {
            local.set_ip(source_for(canonical(address))?);
        }
        self.admit(stream, local, address, None)?;
        let socket = stream.socket.as_ref().ok_or(Errno::IO)?;
        let (key, events) = (stream.key, socket_events());
        match self.watch(socket, EventSource::Socket(key), events) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let socket = stream.socket.as_ref().ok_or(Errno::IO)?;
        // The kernel's first answer after an attempt that failed is of that attempt.
        let connected = match rustix::net::connect(socket, &address) {
            Err(Errno::CONNABORTED) => rustix::net::connect(socket, &address),
            other => other,
        };
        match connected {
            Ok(()) => {
                let local = local_address(socket)?;
                self.show_open(stream, local, address);
                Ok(())
            }
            Err(Errno::INPROGRESS | Errno::INTR) => {
                stream.state = ConnectionState::Connecting;
                let local = local_address(socket)?;
                if let Some(slot) = stream.slot() {
                    slot.local.store(to_family(local, stream.v6));
                    slot.peer.store(address);
                }
                stream.show(state::CONNECTING, 0);
                Ok(())
            }
            Err(error) => {
                if let Some(info) = stream.info.take() {
                    self.inspector.close(&info);
                }
                Err(error)
            }
        }
    }

    /// The kernel says how an attempt to connect ended.
    pub(super) fn finish_connecting(&mut self, key: StreamKey) {
        let Some(mut stream) = self.streams.take(key) else { return };
        if let Err(error) = self.judge_connecting(&mut stream) {
            // A new attempt may follow, as with a socket of the kernel.
            if let Some(info) = stream.info.take() {
                self.inspector.close(&info);
            }
            stream.state = ConnectionState::Idle;
            if let Some(slot) = stream.slot() {
                slot.both.error.store(error.raw_os_error().unsigned_abs(), SeqCst);
                slot.peer.clear();
            }
            stream.show(0, state::CONNECTING);
            stream.notify_readable();
            stream.notify_writable();
        }
        self.streams.put(key, stream);
        self.pump(key);
    }

    fn judge_connecting(&mut self, stream: &mut EngineStream) -> Result<(), Errno> {
        let socket = stream.socket.as_ref().ok_or(Errno::IO)?;
        sockopt::socket_error(socket)??;
        let peer = match rustix::net::getpeername(socket) {
            Ok(Some(peer)) => SocketAddr::try_from(peer).map_err(|_| Errno::AFNOSUPPORT)?,
            // An event of before the attempt.
            _ => return Ok(()),
        };
        let local = local_address(socket)?;
        self.show_open(stream, local, peer);
        Ok(())
    }

    /// A fresh socket for a stream whose connection ended, so that it can connect again.
    fn renew(&mut self, stream: &mut EngineStream) -> Result<(), Errno> {
        (stream.socket, stream.twin) = (Some(tcp_socket(stream.v6)?), None);
        if let Some(info) = stream.info.take() {
            self.inspector.close(&info);
        }
        stream.out = super::pipe::Pipe::default();
        stream.inward = super::pipe::Pipe::default();
        (stream.readable, stream.writable, stream.hangup) = (false, false, false);
        (stream.finish, stream.finish_sent, stream.error) = (false, false, None);
        (stream.partner, stream.is_local, stream.is_bound, stream.accepted) = (None, false, false, false);
        stream.has_source = false;
        (stream.received, stream.refused) = (0, None);
        self.account(stream);
        stream.state = ConnectionState::Idle;
        let connection = state::CONNECTED | state::CONNECTING | state::LISTENING | state::BOUND;
        stream.show(0, connection | state::PEER_ENDED | state::DEAD | state::BLOCKED);
        if let Some(slot) = stream.slot() {
            slot.peer.clear();
            slot.local.clear();
        }
        Ok(())
    }

    /// Ends the association: the connection is reset, the socket as new. A listener listens no more.
    fn disconnect(&mut self, stream: &mut EngineStream) -> Result<(), Errno> {
        if stream.state == ConnectionState::Open {
            stream.reset_on_close();
        }
        for address in std::mem::take(&mut stream.listens_at) {
            self.listeners.remove(&address);
        }
        for pending in std::mem::take(&mut stream.pending) {
            self.end_partner(pending);
            self.remove(pending);
        }
        if let Some(other) = stream.partner.take().and_then(|partner| self.streams.get_mut(partner)) {
            other.partner = None;
            other.die(Errno::CONNRESET, 0);
        }
        self.renew(stream)
    }

    fn bind(&mut self, stream: &mut EngineStream, address: SocketAddr) -> Result<(), Errno> {
        let is_fresh = stream.is_datagram || stream.state == ConnectionState::Idle;
        if stream.is_bound || stream.is_datagram && stream.has_source || !is_fresh {
            return Err(Errno::INVAL);
        }
        if stream.v6 != address.is_ipv6() {
            return Err(Errno::AFNOSUPPORT);
        }
        let guest = self.guest(stream.guest).ok_or(Errno::NETDOWN)?;
        if guest.keeps(address.ip()) {
            return Err(PLAIN_SOCKET);
        }
        let wanted = guest.local_address(address).inspect_err(|_| guest.refuse(StreamRefusal::Address))?;
        let other = guest.twin_address(address).filter(|_| !stream.is_datagram);
        let socket = stream.socket.as_ref().ok_or(Errno::IO)?;
        let twin = match other {
            Some(other) if !sockopt::ipv6_v6only(socket)? => Some(bind_twins(socket, wanted, other)?),
            _ => {
                rustix::net::bind(socket, &wanted)?;
                None
            }
        };
        (stream.is_bound, stream.twin) = (true, twin);
        let socket = stream.socket.as_ref().ok_or(Errno::IO)?;
        let bound = local_address(socket)?;
        if let Some(slot) = stream.slot() {
            slot.local.store(SocketAddr::new(address.ip(), bound.port()));
        }
        stream.show(state::BOUND, 0);
        Ok(())
    }
}

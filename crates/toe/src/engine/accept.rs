// SPDX-License-Identifier: Apache-2.0
//! Streams made and removed; listeners; connections between guests of this engine, which no packet carries.

use super::config::BACKLOG_MOST;
use super::pipe::Pipe;
use super::slab::StreamKey;
use super::stream::{ConnectionState, EngineStream, StreamProgram};
use super::{EngineTurn, EventSource};
use crate::descriptor::StreamHandle;
use crate::inspect::{Admission, StreamInfo, StreamPartner};
use crate::layout::state;
use crate::reason::StreamRefusal;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, getsockname, socketpair, sockopt};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::SeqCst;

/// Connections accepted at once.
const ACCEPT_BATCH: usize = 64;

/// An address without the notation of IPv4 in IPv6.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// An address as a socket of this family shows it.
pub(super) fn to_family(address: SocketAddr, v6: bool) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) if v6 => SocketAddr::new(IpAddr::V6(v4.to_ipv6_mapped()), address.port()),
        _ => address,
    }
}

pub(super) fn local_address(socket: &OwnedFd) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(getsockname(socket)?).map_err(|_| Errno::AFNOSUPPORT)
}

impl EngineTurn<'_> {
    /// Makes a stream with its descriptor, without a connection.
    pub(super) fn make_stream(
        &mut self,
        guest: u16,
        program: StreamProgram,
        v6: bool,
        socket: OwnedFd,
    ) -> Result<StreamKey, Errno> {
        let segments = self.segments(guest).ok_or(Errno::NETDOWN)?;
        let flags = SocketFlags::CLOEXEC;
        let (token, programs_end) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .inspect_err(|_| self.count(guest, StreamRefusal::Resources))?;
        sockopt::set_socket_send_buffer_size(&programs_end, 1)?;
        let allotted = self.guest(guest).and_then(|guest| guest.allot(if v6 { state::V6 } else { 0 }));
        let Some(handle) = allotted else {
            self.count(guest, StreamRefusal::Streams);
            return Err(Errno::NFILE);
        };
        name_token(&token, guest, handle);
        let key = self.streams.reserve().ok_or(Errno::NFILE)?;
        let events = epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let watched = self.watch(&token, EventSource::Token(key), events);
        let stream = EngineStream {
            key,
            id: self.next_id(),
            guest,
            program,
            handle,
            v6,
            segments,
            token,
            programs_end: Some(programs_end),
            socket: Some(socket),
            twin: None,
            state: ConnectionState::Idle,
            is_bound: false,
            has_source: false,
            accepted: false,
            is_datagram: false,
            datagram_peer: None,
            unsent: None,
            route: None,
            out: Pipe::default(),
            inward: Pipe::default(),
            tx_head: 0,
            rx_tail: 0,
            readable: false,
            writable: false,
            hangup: false,
            finish: false,
            finish_sent: false,
            end_shown: false,
            error: None,
            closed: false,
            is_local: false,
            partner: None,
            pending: VecDeque::new(),
            backlog: 0,
            listens_at: Vec::new(),
            listener: None,
            info: None,
            is_queued: false,
            deadline: None,
            held_until: None,
            retry_at: None,
            lingers_until: None,
            accounted: 0,
            received: 0,
            refused: None,
        };
        self.streams.put(key, Box::new(stream));
        if let Some(guest) = self.guest(guest) {
            guest.enter(handle, key);
        }
        if let Err(error) = watched {
            self.count(guest, StreamRefusal::Resources);
            self.remove(key);
            return Err(error);
        }
        Ok(key)
    }

    /// Removes a stream for good.
    pub(super) fn remove(&mut self, key: StreamKey) {
        let Some(mut stream) = self.streams.take(key) else { return };
        self.set_deadline(&mut stream, None);
        for address in std::mem::take(&mut stream.listens_at) {
            self.listeners.remove(&address);
        }
        for pending in std::mem::take(&mut stream.pending) {
            if let Some(connection) = self.streams.get_mut(pending) {
                connection.reset_on_close();
                connection.listener = None;
            }
            self.end_partner(pending);
            self.remove(pending);
        }
        let used = stream.out.total + stream.inward.total + u64::from(stream.tx_head.max(stream.rx_tail));
        stream.out.clear();
        stream.inward.clear();
        stream.unsent = None;
        self.account(&mut stream);
        if let Some(info) = &stream.info {
            self.inspector.close(info);
        }
        if let Some(guest) = self.guest(stream.guest) {
            guest.release(stream.handle, used);
        }
        self.streams.free(key);
    }

    /// Resets the stream at the other end, if it is of a guest.
    pub(super) fn end_partner(&mut self, key: StreamKey) {
        let partner = self.streams.get_mut(key).and_then(|stream| stream.partner.take());
        if let Some(partner) = partner
            && let Some(other) = self.streams.get_mut(partner)
        {
            other.partner = None;
            other.die(Errno::CONNRESET, 0);
        }
    }

    /// Events of a listener's socket: accepts connections as far as there is room for them.
    pub(super) fn accept_connections(&mut self, listener: StreamKey) {
        for _ in 0..ACCEPT_BATCH {
            let Some(stream) = self.streams.get_mut(listener) else { return };
            if stream.state != ConnectionState::Listening || stream.pending.len() >= stream.backlog {
                return;
            }
            let (guest, v6, program) = (stream.guest, stream.v6, stream.program);
            let Some(socket) = &stream.socket else { return };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let accepted = accept_with(socket, flags);
            let socket = match (accepted, &stream.twin) {
                (Err(Errno::AGAIN), Some(twin)) => accept_with(twin, flags),
                (accepted, _) => accepted,
            };
            let socket = match socket {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => {
                    stream.readable = false;
                    return;
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.count(guest, StreamRefusal::Resources);
                    return;
                }
                // The connection was gone before it was accepted.
                Err(_) => continue,
            };
            // Without one of these the connection ends with a RST: its descriptor is closed here.
            let _ = sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO));
            let Ok(key) = self.make_stream(guest, program, v6, socket) else { continue };
            if self.begin_accepted(key, listener).is_err() {
                self.remove(key);
            }
        }
        self.queue(listener);
    }

    fn begin_accepted(&mut self, key: StreamKey, listener: StreamKey) -> Result<(), Errno> {
        let Some(mut stream) = self.streams.take(key) else { return Err(Errno::IO) };
        let result = self.open_accepted(&mut stream);
        if result.is_ok() {
            stream.listener = Some(listener);
        }
        self.streams.put(key, stream);
        result?;
        self.wait_for_accept(key, listener);
        self.pump(key);
        Ok(())
    }

    fn open_accepted(&mut self, stream: &mut EngineStream) -> Result<(), Errno> {
        let socket = stream.socket.as_ref().ok_or(Errno::IO)?;
        let local = local_address(socket)?;
        let peer = rustix::net::getpeername(socket)?.ok_or(Errno::NOTCONN)?;
        let peer = SocketAddr::try_from(peer).map_err(|_| Errno::AFNOSUPPORT)?;
        stream.accepted = true;
        self.admit(stream, local, peer, None)?;
        let socket = stream.socket.as_ref().ok_or(Errno::IO)?;
        sockopt::set_socket_linger(socket, None)?;
        let (key, events) = (stream.key, socket_events());
        self.watch(socket, EventSource::Socket(key), events)?;
        self.show_open(stream, local, peer);
        Ok(())
    }

    /// Puts a connection in the queue of its listener.
    pub(super) fn wait_for_accept(&mut self, key: StreamKey, listener: StreamKey) {
        if let Some(stream) = self.streams.get_mut(listener) {
            stream.pending.push_back(key);
            show_pending(stream);
            stream.notify_readable();
        }
    }

    /// Takes the first connection of a listener's queue.
    pub(super) fn accept_connection(
        &mut self,
        guest: u16,
        listener: StreamHandle,
    ) -> Result<(StreamHandle, OwnedFd), Errno> {
        let key = self.guest(guest).and_then(|guest| guest.find(listener));
        let Some(key) = key else {
            self.count(guest, StreamRefusal::StaleHandle);
            return Err(Errno::BADF);
        };
        let stream = self.streams.get_mut(key).ok_or(Errno::BADF)?;
        if stream.state != ConnectionState::Listening {
            return Err(Errno::INVAL);
        }
        let first = stream.pending.pop_front();
        show_pending(stream);
        let was_full = stream.pending.len() + 1 == stream.backlog;
        let first = first.ok_or(Errno::AGAIN)?;
        if was_full {
            self.queue(key);
        }
        let connection = self.streams.get_mut(first).ok_or(Errno::AGAIN)?;
        connection.listener = None;
        let descriptor = connection.programs_end.take().ok_or(Errno::AGAIN)?;
        Ok((connection.handle, descriptor))
    }

    /// Asks the inspector whether a stream may be.
    pub(super) fn admit(
        &mut self,
        stream: &mut EngineStream,
        local: SocketAddr,
        peer: SocketAddr,
        partner: Option<StreamPartner>,
    ) -> Result<(), Errno> {
        let tenant = self.guest(stream.guest).map(|guest| guest.spec.tenant).unwrap_or_default();
        let info = StreamInfo {
            id: stream.id,
            tenant,
            guest: stream.guest,
            process: stream.program.process,
            joined: stream.program.joined,
            local: canonical(local),
            peer: canonical(peer),
            accepted: stream.accepted,
            is_datagram: false,
            partner,
        };
        match self.inspector.admit(&info) {
            Admission::Inspect => {
                stream.info = Some(info);
                Ok(())
            }
            Admission::Refuse => {
                self.count(stream.guest, StreamRefusal::Admission);
                Err(Errno::ACCESS)
            }
        }
    }

    /// A connection stands: shows its addresses.
    pub(super) fn show_open(&mut self, stream: &mut EngineStream, local: SocketAddr, peer: SocketAddr) {
        stream.state = ConnectionState::Open;
        (stream.readable, stream.writable) = (true, true);
        if let Some(slot) = stream.slot() {
            slot.local.store(to_family(local, stream.v6));
            slot.peer.store(to_family(peer, stream.v6));
            if stream.accepted {
                slot.guest.connect_reported.store(1, SeqCst);
            }
        }
        // The inspector gets the true local address once it is known.
        if let Some(info) = &mut stream.info {
            info.local = canonical(local);
        }
        stream.show(state::CONNECTED | state::BOUND, state::CONNECTING);
        stream.notify_writable();
        if let Some(guest) = self.guest(stream.guest) {
            guest.counts.connections += 1;
            guest.counts.local_connections += u64::from(stream.partner.is_some());
        }
    }

    /// The listener of this engine for an address: of any guest, or for the guest's own loopback of itself.
    pub(super) fn local_listener(&mut self, guest: u16, address: SocketAddr) -> Option<StreamKey> {
        let address = canonical(address);
        let of_guest = self.guest(guest)?;
        if of_guest.keeps(address.ip()) || address.ip().is_unspecified() {
            let own: Vec<_> = of_guest.streams().collect();
            return own.into_iter().find(|key| {
                self.streams.get_mut(*key).is_some_and(|stream| {
                    stream.state == ConnectionState::Listening
                        && stream.slot().and_then(|slot| slot.local.load()).map(|at| at.port())
                            == Some(address.port())
                })
            });
        }
        self.listeners.get(&address).copied()
    }

    /// Connects a stream to a listener of a guest: chains run, no TCP.
    pub(super) fn connect_locally(
        &mut self,
        stream: &mut EngineStream,
        listener: StreamKey,
        peer: SocketAddr,
    ) -> Result<(), Errno> {
        let server = self.streams.get_mut(listener).ok_or(Errno::CONNREFUSED)?;
        if server.pending.len() >= server.backlog {
            return Err(Errno::CONNREFUSED);
        }
        let (guest, program, v6) = (server.guest, server.program, server.v6);
        let socket = stream.socket.as_ref().ok_or(Errno::IO)?;
        if !stream.is_bound {
            // A port of the engine's namespace that nobody else has.
            let own = self.guest(stream.guest).map(|guest| guest.spec.addresses.clone()).unwrap_or_default();
            let from = own.iter().find(|own| own.is_ipv4() == peer.is_ipv4()).copied();
            let from = SocketAddr::new(from.unwrap_or(peer.ip()), 0);
            let from = if stream.v6 { to_family(from, true) } else { from };
            rustix::net::bind(socket, &from).or_else(|_| {
                let any = if stream.v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { [0, 0, 0, 0].into() };
                rustix::net::bind(socket, &SocketAddr::new(any, 0))
            })?;
        }
        let mut local = canonical(local_address(socket)?);
        if local.ip().is_unspecified() {
            local.set_ip(canonical(peer).ip());
        }
        let spare = super::calls::tcp_socket(v6)?;
        let key = self.make_stream(guest, program, v6, spare)?;
        let Some(mut other) = self.streams.take(key) else { return Err(Errno::NOBUFS) };
        (other.accepted, other.partner, stream.partner) = (true, Some(stream.key), Some(key));
        (other.is_local, stream.is_local) = (true, true);
        let own_end = StreamPartner { id: stream.id, guest: stream.guest };
        let other_end = StreamPartner { id: other.id, guest };
        // The client's end is the first that an inspector hears of.
        let admitted = self.admit(stream, local, peer, Some(other_end));
        let admitted = admitted.and_then(|()| self.admit(&mut other, peer, local, Some(own_end)));
        self.streams.put(key, other);
        if let Err(error) = admitted {
            (stream.partner, stream.is_local) = (None, false);
            if let Some(info) = stream.info.take() {
                self.inspector.close(&info);
            }
            self.remove(key);
            return Err(error);
        }
        if let Some(mut other) = self.streams.take(key) {
            other.listener = Some(listener);
            self.show_open(&mut other, peer, local);
            self.streams.put(key, other);
        }
        self.show_open(stream, local, peer);
        self.wait_for_accept(key, listener);
        Ok(())
    }

    /// Makes a listener of a bound stream.
    pub(super) fn listen(&mut self, stream: &mut EngineStream, backlog: u32) -> Result<(), Errno> {
        let backlog = usize::try_from(backlog).unwrap_or(BACKLOG_MOST).clamp(1, BACKLOG_MOST);
        match stream.state {
            ConnectionState::Idle => {}
            ConnectionState::Listening => {
                stream.backlog = backlog;
                return Ok(());
            }
            _ => return Err(Errno::INVAL),
        }
        let socket = stream.socket.as_ref().ok_or(Errno::INVAL)?;
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        for socket in stream.socket.iter().chain(&stream.twin) {
            rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
            self.watch(socket, EventSource::Socket(stream.key), events)?;
        }
        // A socket without an address has a port from now on.
        let local = local_address(socket)?;
        let twins = stream.twin.as_ref().map(local_address).transpose()?;
        stream.backlog = backlog;
        stream.state = ConnectionState::Listening;
        if let Some(slot) = stream.slot() {
            // The address that the program asked for stays: the engine's is not its business.
            let mut shown = slot.local.load().unwrap_or(local);
            shown.set_port(local.port());
            slot.local.store(to_family(shown, stream.v6));
        }
        stream.show(state::LISTENING | state::BOUND, 0);
        for local in [canonical(local)].into_iter().chain(twins) {
            if !local.ip().is_unspecified()
                && *self.listeners.entry(local).or_insert(stream.key) == stream.key
            {
                stream.listens_at.push(local);
            }
        }
        Ok(())
    }
}

/// Events of a connection's socket.
pub(super) fn socket_events() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET
}

fn show_pending(stream: &EngineStream) {
    if let Some(slot) = stream.slot() {
        slot.engine.pending.store(u32::try_from(stream.pending.len()).unwrap_or(u32::MAX), SeqCst);
    }
}

/// Names the engine's end after the stream, so that a process that got a descriptor from another one finds
/// the stream by getpeername(2).
fn name_token(token: &OwnedFd, guest: u16, handle: StreamHandle) {
    let name = crate::guest::token_name(guest, handle);
    if let Ok(address) = rustix::net::SocketAddrUnix::new_abstract_name(&name) {
        // A name that is taken leaves the stream without: it cannot be inherited over exec.
        let _ = rustix::net::bind(token, &address);
    }
}

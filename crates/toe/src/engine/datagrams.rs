// SPDX-License-Identifier: Apache-2.0
//! UDP: records of a program's buffer become datagrams of the kernel's socket, and back. Each is judged
//! alone, in the engine's own memory; there is no pipe and nothing is held.
//!
//! A datagram between two guests leaves by the kernel's loopback, so both guests' policies judge it.

use super::EngineTurn;
use super::accept::{canonical, local_address, socket_events, to_family};
use super::calls::source_for;
use super::slab::StreamKey;
use super::stream::{ConnectionState, EngineStream};
use crate::datagram::{RECORD_HEAD, RecordHead, UnsentDatagram};
use crate::descriptor::PLAIN_SOCKET;
use crate::inspect::PayloadDirection::{self, Incoming, Outgoing};
use crate::inspect::{DatagramVerdict, StreamInfo};
use crate::layout::{shut, state, used};
use crate::reason::StreamRefusal;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, send, sendto};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

/// Datagrams of one direction that are served before other streams have their turn.
const ROUND: usize = 32;

impl EngineStream {
    /// Takes a record out of the transmit buffer; `None`: there is none.
    fn take_datagram(&mut self) -> Result<Option<UnsentDatagram>, StreamRefusal> {
        let broken = StreamRefusal::IndexBounds;
        let segments = Arc::clone(&self.segments);
        let slot = segments.slot(self.handle.slot).ok_or(broken)?;
        let tail = slot.guest.tx_tail.load(SeqCst);
        let waiting = used(tail, self.tx_head, segments.layout.buffer()).ok_or(broken)? as usize;
        if waiting == 0 {
            return Ok(None);
        }
        let ring = segments.tx(self.handle.slot);
        let mut head = [0; RECORD_HEAD];
        let room = waiting.checked_sub(RECORD_HEAD).ok_or(broken)?;
        ring.read(self.tx_head, &mut head).ok_or(broken)?;
        let head = RecordHead::parse(&head).map_err(|_| broken)?;
        let length = head.length as usize;
        if length > room {
            return Err(broken);
        }
        let step = |by: usize| u32::try_from(by).unwrap_or(0);
        let mut bytes = Vec::with_capacity(length);
        let first = self.tx_head.wrapping_add(step(RECORD_HEAD));
        ring.copy_out(first, length, &mut bytes).ok_or(broken)?;
        self.tx_head = first.wrapping_add(step(length));
        slot.engine.tx_head.store(self.tx_head, SeqCst);
        Ok(Some(UnsentDatagram { to: head.address, bytes }))
    }

    /// Puts a datagram into the receive buffer, which has room for it.
    fn deliver_datagram(&mut self, from: SocketAddr, bytes: &[u8]) -> Result<(), StreamRefusal> {
        let broken = StreamRefusal::IndexBounds;
        let length = u32::try_from(bytes.len()).map_err(|_| broken)?;
        let head = RecordHead { length, address: Some(to_family(from, self.v6)) }.bytes();
        let ring = self.segments.rx(self.handle.slot);
        let first = self.rx_tail.wrapping_add(u32::try_from(RECORD_HEAD).unwrap_or(0));
        ring.write(self.rx_tail, &head).ok_or(broken)?;
        ring.write(first, bytes).ok_or(broken)?;
        self.rx_tail = first.wrapping_add(length);
        self.slot().ok_or(broken)?.engine.rx_tail.store(self.rx_tail, SeqCst);
        self.received += u64::from(length);
        self.notify_readable();
        Ok(())
    }

    /// Shows an error to the program: its next call gets it.
    fn show_error(&self, error: Errno) {
        if let Some(slot) = self.slot() {
            slot.both.error.store(error.raw_os_error().unsigned_abs(), SeqCst);
        }
        self.notify_readable();
        self.notify_writable();
    }

    /// The peer of a connected socket.
    fn connected_to(&self) -> Option<SocketAddr> {
        self.datagram_peer
    }
}

impl EngineTurn<'_> {
    /// Makes a new stream one of datagrams.
    pub(super) fn open_datagrams(&mut self, key: StreamKey) -> Result<(), Errno> {
        let Some(mut stream) = self.streams.take(key) else { return Err(Errno::IO) };
        stream.is_datagram = true;
        (stream.state, stream.readable, stream.writable) = (ConnectionState::Open, true, true);
        stream.show(state::DATAGRAMS, 0);
        let watched = match &stream.socket {
            Some(socket) => self.watch(socket, super::EventSource::Socket(key), socket_events()),
            None => Err(Errno::IO),
        };
        self.streams.put(key, stream);
        watched
    }

    /// Moves the datagrams of a socket in both directions as far as it goes now.
    pub(super) fn pump_datagrams(&mut self, key: StreamKey) {
        let Some(mut stream) = self.streams.take(key) else { return };
        let mut more = false;
        if stream.state == ConnectionState::Open {
            let sent = self.send_datagrams(&mut stream);
            let moved = sent.and_then(|sent| Ok(self.receive_datagrams(&mut stream)? || sent));
            match moved {
                Ok(left) => more = left,
                Err(reason) => self.block(&mut stream, reason),
            }
        }
        self.account(&mut stream);
        self.watch_times(&mut stream);
        let is_sent = stream.waiting() == 0 && stream.unsent.is_none();
        let is_over = stream.closed && (is_sent || stream.state != ConnectionState::Open);
        self.streams.put(key, stream);
        if is_over {
            self.remove(key);
        } else if more {
            self.queue(key);
        }
    }

    /// Sends the records of the transmit buffer; `true`: there are more.
    fn send_datagrams(&mut self, stream: &mut EngineStream) -> Result<bool, StreamRefusal> {
        for _ in 0..ROUND {
            if let Some(slot) = stream.slot() {
                slot.both.tx_announced.store(0, SeqCst);
            }
            if let Some(judged) = stream.unsent.take()
                && !self.send_judged(stream, judged)
            {
                return Ok(false);
            }
            let Some(mut datagram) = stream.take_datagram()? else { return Ok(false) };
            stream.notify_writable();
            match self.prepare_source(stream, datagram.to) {
                Ok(ends) => {
                    if self.judge(stream, ends, Outgoing, &mut datagram.bytes) {
                        stream.unsent = Some(datagram);
                    }
                }
                Err(error) => {
                    if error == Errno::NETUNREACH {
                        self.count(stream.guest, StreamRefusal::Address);
                    }
                    stream.show_error(error);
                }
            }
        }
        Ok(true)
    }

    /// Sends a datagram that has passed; `false`: it waits for room in the kernel's socket.
    fn send_judged(&mut self, stream: &mut EngineStream, judged: UnsentDatagram) -> bool {
        let Some(socket) = stream.socket.as_ref() else { return true };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if !stream.writable {
            stream.unsent = Some(judged);
            return false;
        }
        let sent = loop {
            let sent = match judged.to {
                Some(to) => sendto(socket, &judged.bytes, flags, &to),
                None => send(socket, &judged.bytes, flags),
            };
            if sent != Err(Errno::INTR) {
                break sent;
            }
        };
        match sent {
            Ok(count) => {
                stream.out.total += count as u64;
                if let Some(guest) = self.guest(stream.guest) {
                    guest.counts.sent += count as u64;
                }
            }
            Err(Errno::AGAIN) => {
                stream.writable = false;
                stream.unsent = Some(judged);
                return false;
            }
            Err(error) => stream.show_error(error),
        }
        true
    }

    /// Receives datagrams as far as the program's buffer has room; `true`: there are more.
    fn receive_datagrams(&mut self, stream: &mut EngineStream) -> Result<bool, StreamRefusal> {
        for _ in 0..ROUND {
            if !stream.readable || stream.closed {
                return Ok(false);
            }
            let Some(socket) = stream.socket.as_ref() else { return Ok(false) };
            let next = rustix::io::ioctl_fionread(socket).unwrap_or(0);
            let needed = usize::try_from(next).unwrap_or(0).saturating_add(RECORD_HEAD);
            let fits = needed <= stream.segments.layout.buffer() as usize;
            if fits && !Self::has_room(stream, needed)? {
                return Ok(false);
            }
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.clear();
            bytes.reserve(needed);
            let received = match stream.socket.as_ref() {
                Some(socket) => {
                    recvfrom(socket, rustix::buffer::spare_capacity(&mut bytes), RecvFlags::DONTWAIT)
                }
                None => Err(Errno::IO),
            };
            let from = match received {
                Ok((_, _, from)) => from.and_then(|from| SocketAddr::try_from(from).ok()),
                Err(error) => {
                    match error {
                        Errno::AGAIN => stream.readable = false,
                        Errno::INTR => {}
                        // Of an earlier datagram, by ICMP.
                        error => stream.show_error(error),
                    }
                    None
                }
            };
            if let Some(from) = from {
                if bytes.len().saturating_add(RECORD_HEAD) > stream.segments.layout.buffer() as usize {
                    self.count(stream.guest, StreamRefusal::DatagramSize);
                } else {
                    self.take_in(stream, from, &mut bytes)?;
                }
            }
            self.spare = bytes;
        }
        Ok(stream.readable)
    }

    /// Whether the receive buffer has room; asks the guest to tell of room otherwise.
    fn has_room(stream: &EngineStream, needed: usize) -> Result<bool, StreamRefusal> {
        if stream.room()? >= needed {
            return Ok(true);
        }
        if let Some(slot) = stream.slot() {
            slot.both.rx_wanted.store(1, SeqCst);
        }
        fence(SeqCst);
        Ok(stream.room()? >= needed)
    }

    /// Judges a datagram from outside, and delivers it.
    fn take_in(
        &mut self,
        stream: &mut EngineStream,
        from: SocketAddr,
        bytes: &mut Vec<u8>,
    ) -> Result<(), StreamRefusal> {
        let Ok(local) = self.local_end(stream, from) else { return Ok(()) };
        let is_shut = stream.slot().is_some_and(|slot| slot.guest.shut.load(SeqCst) & shut::READ != 0);
        if !self.judge(stream, [local, from], Incoming, bytes) || is_shut {
            return Ok(());
        }
        // Rules replace bytes by as many, so there is still room.
        stream.deliver_datagram(from, bytes)?;
        if let Some(guest) = self.guest(stream.guest) {
            guest.counts.received += bytes.len() as u64;
        }
        Ok(())
    }

    /// Asks the inspector about a datagram; `true`: it passes, perhaps with other bytes.
    fn judge(
        &mut self,
        stream: &mut EngineStream,
        [local, peer]: [SocketAddr; 2],
        direction: PayloadDirection,
        bytes: &mut Vec<u8>,
    ) -> bool {
        let tenant = self.guest(stream.guest).map(|guest| guest.spec.tenant).unwrap_or_default();
        let info = StreamInfo {
            id: stream.id,
            tenant,
            guest: stream.guest,
            process: stream.program.process,
            joined: stream.program.joined,
            local: canonical(local),
            peer: canonical(peer),
            accepted: false,
            is_datagram: true,
            partner: None,
        };
        stream.info = Some(info);
        let error = match self.inspector.datagram(&info, direction, bytes) {
            DatagramVerdict::Pass => return true,
            DatagramVerdict::Replace(with) if with.len() == bytes.len() => {
                *bytes = with;
                return true;
            }
            DatagramVerdict::Reject => Errno::CONNREFUSED,
            DatagramVerdict::Drop | DatagramVerdict::Replace(_) => Errno::ACCESS,
        };
        self.count(stream.guest, StreamRefusal::Function);
        // A socket without a connection learns nothing of single datagrams, as from the network.
        if direction == Outgoing && stream.connected_to().is_some() {
            stream.show_error(error);
        }
        false
    }

    /// Both ends of a datagram that the program sends. The socket gets an address of the guest before its
    /// first one.
    fn prepare_source(
        &mut self,
        stream: &mut EngineStream,
        to: Option<SocketAddr>,
    ) -> Result<[SocketAddr; 2], Errno> {
        let peer = to.or_else(|| stream.connected_to()).ok_or(Errno::DESTADDRREQ)?;
        if stream.v6 != peer.is_ipv6() {
            return Err(Errno::AFNOSUPPORT);
        }
        if self.is_guests_own(stream.guest, peer.ip()) {
            return Err(Errno::NETUNREACH);
        }
        self.bind_source(stream, peer)?;
        Ok([self.local_end(stream, peer)?, peer])
    }

    /// Binds a socket to an address of the guest and a port of its own.
    fn bind_source(&mut self, stream: &mut EngineStream, peer: SocketAddr) -> Result<(), Errno> {
        if stream.is_bound || stream.has_source {
            return Ok(());
        }
        let own = self.guest(stream.guest).map(|guest| guest.spec.addresses.clone()).unwrap_or_default();
        let peer = canonical(peer);
        let unspecified: IpAddr =
            if stream.v6 { std::net::Ipv6Addr::UNSPECIFIED.into() } else { [0, 0, 0, 0].into() };
        let source = match own.iter().find(|own| own.is_ipv4() == peer.is_ipv4()) {
            Some(own) => *own,
            None if own.is_empty() => unspecified,
            None => return Err(Errno::NETUNREACH),
        };
        let socket = stream.socket.as_ref().ok_or(Errno::IO)?;
        rustix::net::bind(socket, &to_family(SocketAddr::new(source, 0), stream.v6))?;
        stream.has_source = true;
        if let Some(slot) = stream.slot() {
            slot.local.store(to_family(local_address(socket)?, stream.v6));
        }
        stream.show(state::BOUND, 0);
        Ok(())
    }

    /// The local end of a datagram to or from a peer.
    fn local_end(&mut self, stream: &mut EngineStream, peer: SocketAddr) -> Result<SocketAddr, Errno> {
        let mut local = local_address(stream.socket.as_ref().ok_or(Errno::IO)?)?;
        if local.ip().is_unspecified() {
            let peer = canonical(peer);
            let source = match stream.route {
                Some((to, source)) if to == peer.ip() => source,
                _ => source_for(peer)?,
            };
            stream.route = Some((peer.ip(), source));
            local.set_ip(source);
        }
        Ok(local)
    }

    /// Connects a socket of datagrams.
    pub(super) fn connect_datagrams(
        &mut self,
        stream: &mut EngineStream,
        address: SocketAddr,
    ) -> Result<(), Errno> {
        if stream.v6 != address.is_ipv6() {
            return Err(Errno::AFNOSUPPORT);
        }
        if self.is_guests_own(stream.guest, address.ip()) {
            return Err(PLAIN_SOCKET);
        }
        self.bind_source(stream, address)?;
        let socket = stream.socket.as_ref().ok_or(Errno::IO)?;
        rustix::net::connect(socket, &address)?;
        if let Some(slot) = stream.slot() {
            slot.local.store(to_family(local_address(socket)?, stream.v6));
            slot.peer.store(address);
        }
        stream.datagram_peer = Some(address);
        stream.show(state::CONNECTED | state::BOUND, 0);
        Ok(())
    }

    /// Ends the association of a socket of datagrams.
    pub(super) fn disconnect_datagrams(&mut self, stream: &mut EngineStream) -> Result<(), Errno> {
        rustix::net::connect_unspec(stream.socket.as_ref().ok_or(Errno::IO)?)?;
        stream.datagram_peer = None;
        if let Some(slot) = stream.slot() {
            slot.peer.clear();
        }
        stream.show(0, state::CONNECTED);
        Ok(())
    }

    /// Whether an address is of the guest's own namespace, so that nothing is sent there from the engine's.
    pub(super) fn is_guests_own(&mut self, guest: u16, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.guest(guest).is_none_or(|guest| {
            guest.keeps(address) || (!guest.spec.shares_loopback && address.is_unspecified())
        })
    }
}

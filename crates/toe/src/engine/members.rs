// SPDX-License-Identifier: Apache-2.0
//! Processes of guests: joining, their channels, their end.

use super::config::STARTS;
use super::guest::Member;
use super::stream::StreamProgram;
use super::{EngineTurn, EventSource, MemberKey};
use crate::descriptor::{
    DESCRIPTOR_BYTES, DescriptorError, Message, Reply, StreamHandle, Transport, from_bytes, to_bytes,
};
use crate::reason::StreamRefusal;
use crate::ring::RingReader;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, accept_with, recvmsg, sendmsg, sockopt,
};
use std::io::{IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Messages taken from a descriptor at once.
const MESSAGES: usize = 16;

/// A message as it came.
struct ProcessMessage {
    message: Result<Message, DescriptorError>,
    descriptor: Option<OwnedFd>,
}

/// Receives a message; `None`: there is none. `Err`: the other side is gone.
fn receive(fd: BorrowedFd<'_>) -> Result<Option<ProcessMessage>, Errno> {
    // One byte more than a message, so that a longer one is not taken for it.
    let mut bytes = [0; DESCRIPTOR_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(fd, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error),
        Ok(received) if received.bytes == 0 => return Err(Errno::PIPE),
        Ok(received) => received.bytes,
    };
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            // Further ones are closed here.
            descriptor = descriptors.into_iter().next();
        }
    }
    let words = bytes.get(..received).and_then(from_bytes);
    let message = words.map_or(Err(DescriptorError::Reserved), |words| Message::parse(&words));
    Ok(Some(ProcessMessage { message, descriptor }))
}

fn send_reply(channel: BorrowedFd<'_>, reply: &Reply, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let bytes = to_bytes(&reply.words());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    sendmsg(channel, &[IoSlice::new(&bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        .map(|_| ())
}

/// Most bytes of /proc/PID/cgroup that are read.
const CGROUP_BYTES: u64 = 4096;

/// The control group of version 2 of a process; `None`: it has none of its own, or is gone.
fn group(process: i32) -> Option<String> {
    let file = std::fs::File::open(format!("/proc/{process}/cgroup")).ok()?;
    let mut text = String::new();
    file.take(CGROUP_BYTES).read_to_string(&mut text).ok()?;
    let group = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    (group != "/").then(|| group.to_owned())
}

/// Whether two processes are in one control group, and it is not the root.
fn share_group(one: i32, other: i32) -> bool {
    group(one).is_some_and(|own| group(other).as_ref() == Some(&own))
}

fn refuse(channel: BorrowedFd<'_>, error: Errno) -> Result<(), Errno> {
    let reply = Reply { error: error.raw_os_error().unsigned_abs(), ..Reply::default() };
    send_reply(channel, &reply, &[])
}

impl EngineTurn<'_> {
    /// Connections to the socket at which a guest's programs are started.
    pub(super) fn serve_door(&mut self, number: u16) {
        // The event comes once, so that a lack of descriptors does not keep the engine busy. More than these
        // wait for the next connection.
        for _ in 0..STARTS {
            let Some(door) = self.guest(number).and_then(|guest| guest.door.as_ref()) else { return };
            match accept_with(door, SocketFlags::CLOEXEC) {
                // One that is refused is closed, and counted.
                Ok(start) => _ = self.add_start(number, start),
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.count(number, StreamRefusal::Resources);
                    return;
                }
            }
        }
    }

    /// Messages over a descriptor that programs were started with: processes that join.
    pub(super) fn serve_start(&mut self, number: u16, place: u16, flags: epoll::EventFlags) {
        for _ in 0..MESSAGES {
            let Some(guest) = self.guest(number) else { return };
            let Some(Some(start)) = guest.starts.get(usize::from(place)) else { return };
            match receive(start.as_fd()) {
                Ok(Some(ProcessMessage { message: Ok(Message::Join), descriptor: Some(channel) })) => {
                    if let Err(reason) = self.join(number, channel)
                        && let Some(guest) = self.guest(number)
                    {
                        guest.refuse(reason);
                    }
                }
                Ok(Some(_)) => guest.refuse(StreamRefusal::Malformed),
                Ok(None) => break,
                Err(_) => {
                    // No process has the descriptor any more: none can join by it.
                    if let Some(start) = guest.starts.get_mut(usize::from(place)).and_then(Option::take) {
                        let _ = epoll::delete(&self.epoll, &start);
                    }
                    return;
                }
            }
        }
        if flags.contains(epoll::EventFlags::ERR)
            && let Some(guest) = self.guest(number)
        {
            guest.refuse(StreamRefusal::Resources);
        }
    }

    /// A process joins with its channel.
    fn join(&mut self, number: u16, channel: OwnedFd) -> Result<(), StreamRefusal> {
        let is_channel = sockopt::socket_domain(&channel) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&channel) == Ok(SocketType::SEQPACKET);
        let process = sockopt::socket_peercred(&channel).map(|peer| peer.pid.as_raw_nonzero().get());
        let (true, Ok(process)) = (is_channel, process) else { return Err(StreamRefusal::Malformed) };
        let guest = self.guest(number).ok_or(StreamRefusal::Malformed)?;
        let Some(index) = guest.members.iter().position(Option::is_none) else {
            let _ = refuse(channel.as_fd(), Errno::AGAIN);
            return Err(StreamRefusal::Processes);
        };
        let layout = guest.segments.layout;
        let ring_index = u16::try_from(index).map_err(|_| StreamRefusal::Processes)?;
        let place = layout.ring(u32::from(ring_index));
        let ring = RingReader::begin(&guest.segments.control, place).ok_or(StreamRefusal::Resources)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|_| StreamRefusal::Resources)?;
        let reply = Reply {
            ring: ring_index.into(),
            slots: layout.slots,
            rings: u16::try_from(layout.rings).unwrap_or(u16::MAX),
            buffer_shift: layout.buffer_shift,
            ..Reply::default()
        };
        let [control, data] = guest.segment_descriptors();
        send_reply(channel.as_fd(), &reply, &[control, data, bell.as_fd()])
            .map_err(|_| StreamRefusal::Resources)?;
        let key = MemberKey { guest: number, ring: ring_index };
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let level = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        self.watch(&bell, EventSource::Bell(key), edge).map_err(|_| StreamRefusal::Resources)?;
        self.watch(&channel, EventSource::Channel(key), level).map_err(|_| StreamRefusal::Resources)?;
        let joined = self.next_joining();
        let program = StreamProgram { process, joined: Some(joined) };
        let member = Member { channel, bell, ring, is_active: false, program };
        if let Some(place) = self.guest(number).and_then(|guest| guest.members.get_mut(index)) {
            *place = Some(member);
        }
        // What the process put in before its bell was watched.
        self.activate(key);
        Ok(())
    }

    /// Messages over a process's channel.
    pub(super) fn serve_channel(&mut self, key: MemberKey, _: epoll::EventFlags) {
        for _ in 0..MESSAGES {
            let Some(guest) = self.guest(key.guest) else { return };
            let Some(member) = guest.members.get(usize::from(key.ring)).and_then(Option::as_ref) else {
                return;
            };
            match receive(member.channel.as_fd()) {
                Ok(Some(arrival)) => {
                    if self.answer(key, &arrival).is_err() {
                        self.remove_member(key);
                        return;
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    self.remove_member(key);
                    return;
                }
            }
        }
    }

    /// Answers a message; an error means that the process does not take answers and is cut off.
    fn answer(&mut self, key: MemberKey, arrival: &ProcessMessage) -> Result<(), Errno> {
        let opened = match &arrival.message {
            Ok(Message::Open { v6, transport, process }) => self.open(key, *v6, *transport, *process),
            Ok(Message::Accept(listener)) => self.accept_connection(key.guest, *listener),
            Ok(Message::Join) => {
                self.count(key.guest, StreamRefusal::SecondJoin);
                Err(Errno::ALREADY)
            }
            Err(_) => {
                self.count(key.guest, StreamRefusal::Malformed);
                Err(Errno::PROTO)
            }
        };
        let member = self.guest(key.guest).and_then(|guest| guest.members.get(usize::from(key.ring)));
        let Some(Some(member)) = member else { return Err(Errno::PIPE) };
        match opened {
            Ok((handle, descriptor)) => {
                let reply = Reply { handle, ..Reply::default() };
                send_reply(member.channel.as_fd(), &reply, &[descriptor.as_fd()])
            }
            Err(error) => refuse(member.channel.as_fd(), error),
        }
    }

    pub(super) fn count(&mut self, guest: u16, reason: StreamRefusal) {
        if let Some(guest) = self.guest(guest) {
            guest.refuse(reason);
        }
    }

    fn open(
        &mut self,
        key: MemberKey,
        v6: bool,
        transport: Transport,
        claimed: u32,
    ) -> Result<(StreamHandle, OwnedFd), Errno> {
        let member = self
            .guest(key.guest)
            .and_then(|guest| guest.members.get(usize::from(key.ring))?.as_ref())
            .map_or(StreamProgram::default(), |member| member.program);
        let named = i32::try_from(claimed).ok().filter(|claimed| *claimed != 0);
        let named = named.filter(|named| share_group(member.process, *named));
        let program = named.map_or(member, |process| StreamProgram { process, joined: None });
        let socket = match transport {
            Transport::Tcp => super::calls::tcp_socket(v6)?,
            Transport::Udp => super::calls::udp_socket(v6)?,
        };
        let stream = self.make_stream(key.guest, program, v6, socket)?;
        if transport == Transport::Udp
            && let Err(error) = self.open_datagrams(stream)
        {
            self.count(key.guest, StreamRefusal::Resources);
            self.remove(stream);
            return Err(error);
        }
        let taken = self
            .streams
            .get_mut(stream)
            .and_then(|stream| Some((stream.handle, stream.programs_end.take()?)));
        taken.ok_or(Errno::NOBUFS)
    }

    /// A process is gone, or is cut off. Its streams live as long as a process has their descriptors; what
    /// it may have left unannounced is moved.
    pub(super) fn remove_member(&mut self, key: MemberKey) {
        self.active.retain(|active| *active != key);
        let Some(guest) = self.guest(key.guest) else { return };
        let Some(place) = guest.members.get_mut(usize::from(key.ring)) else { return };
        let Some(member) = place.take() else { return };
        let streams: Vec<_> = guest.streams().collect();
        let _ = epoll::delete(&self.epoll, &member.channel);
        let _ = epoll::delete(&self.epoll, &member.bell);
        for stream in streams {
            self.queue(stream);
        }
    }

    /// GuestSegments of a guest.
    pub(super) fn segments(&mut self, guest: u16) -> Option<Arc<super::guest::GuestSegments>> {
        self.guest(guest).map(|guest| Arc::clone(&guest.segments))
    }
}

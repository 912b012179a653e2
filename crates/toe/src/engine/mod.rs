// SPDX-License-Identifier: Apache-2.0
//! The engine: kernel sockets on one side, guests on the other, in one thread with one epoll.
//!
//! A round takes descriptors from the rings of processes that were active of late, moves payload of the
//! streams that they name, and sleeps in epoll when there is none left. A ring that the engine does not look
//! at says so; its process then rings its bell.
//!
//! * `pipe`: one direction of a stream: private bytes, verdicts.
//! * `transfer`: from the program's buffer to the socket, and back.
//! * `calls`, `options`: what a program asks for by descriptors.
//! * `accept`: listeners, and connections between guests of this engine.
//! * `members`: processes that join, and their channels.

mod accept;
mod calls;
mod config;
mod control;
mod guest;
mod members;
mod options;
mod pipe;
mod slab;
mod stream;
mod transfer;

pub use config::{EngineError, EngineReport, GuestLimits, GuestReport, GuestSpec};
pub use control::EngineControl;

use crate::clock::now;
use crate::inspect::{PayloadInspector, StreamId};
use config::system;
use control::{Command, CommandQueue};
use guest::Guest;
use rustix::event::epoll;
use rustix::io::Errno;
use slab::{StreamKey, StreamSlab};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::EngineStream;

/// Events taken from epoll at once.
const EVENTS: usize = 128;
/// Descriptors taken from a ring in a round.
const RING_BATCH: usize = 32;

/// The sources of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventSource {
    Commands,
    Guest(u16),
    Channel(MemberKey),
    Bell(MemberKey),
    Socket(StreamKey),
    Token(StreamKey),
}

/// A process of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemberKey {
    guest: u16,
    ring: u16,
}

#[allow(clippy::cast_possible_truncation)] // parts of a word
impl EventSource {
    fn encode(self) -> u64 {
        let word = |kind: u64, high: u32, low: u32| kind << 56 | u64::from(high) << 32 | u64::from(low);
        match self {
            EventSource::Commands => word(0, 0, 0),
            EventSource::Guest(guest) => word(1, 0, guest.into()),
            EventSource::Channel(key) => word(2, key.guest.into(), key.ring.into()),
            EventSource::Bell(key) => word(3, key.guest.into(), key.ring.into()),
            EventSource::Socket(key) => word(4, key.serial, key.index),
            EventSource::Token(key) => word(5, key.serial, key.index),
        }
    }

    fn decode(word: u64) -> Option<EventSource> {
        let (high, low) = ((word >> 32) as u32 & 0x00FF_FFFF, word as u32);
        let member = MemberKey { guest: high as u16, ring: low as u16 };
        let stream = StreamKey { index: low, serial: high };
        match word >> 56 {
            0 => Some(EventSource::Commands),
            1 => Some(EventSource::Guest(low as u16)),
            2 => Some(EventSource::Channel(member)),
            3 => Some(EventSource::Bell(member)),
            4 => Some(EventSource::Socket(stream)),
            5 => Some(EventSource::Token(stream)),
            _ => None,
        }
    }
}

/// The engine. [`Engine::run`] is the thread.
pub struct Engine {
    epoll: OwnedFd,
    inspector: Box<dyn PayloadInspector>,
    commands: Arc<CommandQueue>,
    guests: Vec<Option<Guest>>,
    streams: StreamSlab,
    /// Listeners by their address in the engine's namespace.
    listeners: HashMap<SocketAddr, StreamKey>,
    /// Rings that the engine looks at.
    active: Vec<MemberKey>,
    /// Streams that have more to move.
    ready: VecDeque<StreamKey>,
    deadlines: BTreeSet<(Instant, StreamKey)>,
    /// Buffer that pipes without bytes work with.
    spare: Vec<u8>,
    next_id: u64,
    stops: bool,
}

impl Engine {
    /// Makes an engine that hands payloads to an inspector.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub fn new(inspector: Box<dyn PayloadInspector>) -> Result<Engine, EngineError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("make an epoll"))?;
        let commands = Arc::new(CommandQueue::new().map_err(system("make an eventfd"))?);
        let engine = Engine {
            epoll,
            inspector,
            commands,
            guests: Vec::new(),
            streams: StreamSlab::default(),
            listeners: HashMap::new(),
            active: Vec::new(),
            ready: VecDeque::new(),
            deadlines: BTreeSet::new(),
            spare: Vec::with_capacity(transfer::PENDING_MOST),
            next_id: 1,
            stops: false,
        };
        let bell = engine.commands.bell();
        let watched = engine.watch(bell, EventSource::Commands, epoll::EventFlags::IN);
        watched.map_err(system("watch an eventfd"))?;
        Ok(engine)
    }

    /// Gives orders to the engine from other threads.
    #[must_use]
    pub fn control(&self) -> EngineControl {
        EngineControl::new(Arc::clone(&self.commands))
    }

    /// Serves guests until it is told to stop. Sockets are made in the namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel refuses to wait for events.
    pub fn run(mut self) -> Result<(), EngineError> {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.stops {
            self.serve_rings();
            self.serve_ready();
            let wait = self.time_to_wait();
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, wait.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(system("wait for events")(error)),
            }
            for event in &events {
                let (word, flags) = (event.data.u64(), event.flags);
                if let Some(source) = EventSource::decode(word) {
                    self.serve(source, flags);
                }
            }
            self.serve_deadlines();
        }
        self.commands.close();
        Ok(())
    }

    fn serve(&mut self, source: EventSource, flags: epoll::EventFlags) {
        match source {
            EventSource::Commands => self.serve_commands(),
            EventSource::Guest(guest) => self.serve_guest(guest, flags),
            EventSource::Channel(key) => self.serve_channel(key, flags),
            EventSource::Bell(key) => self.activate(key),
            EventSource::Socket(key) => self.serve_socket(key, flags),
            EventSource::Token(key) => self.serve_token(key, flags),
        }
    }

    fn watch(&self, fd: impl AsFd, source: EventSource, flags: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(source.encode()), flags)
    }

    fn guest(&mut self, number: u16) -> Option<&mut Guest> {
        self.guests.get_mut(usize::from(number))?.as_mut()
    }

    fn next_id(&mut self) -> StreamId {
        let id = StreamId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Looks at a ring from now on.
    fn activate(&mut self, key: MemberKey) {
        let Some(guest) = self.guest(key.guest) else { return };
        let segments = Arc::clone(&guest.segments);
        let member = guest.members.get_mut(usize::from(key.ring)).and_then(Option::as_mut);
        let Some(member) = member.filter(|member| !member.is_active) else { return };
        member.is_active = true;
        member.ring.wake(&segments.control);
        self.active.push(key);
    }

    /// Takes the descriptors of all active rings; a ring without any is left to its bell.
    fn serve_rings(&mut self) {
        let active = std::mem::take(&mut self.active);
        for key in active {
            let mut taken = 0;
            let stays = loop {
                if taken == RING_BATCH {
                    break true;
                }
                match self.take_descriptor(key) {
                    Some(Some(words)) => {
                        taken += 1;
                        self.serve_descriptor(key, &words);
                    }
                    Some(None) => break !self.sleep_ring(key),
                    None => break false,
                }
            };
            if stays {
                self.active.push(key);
            }
        }
    }

    /// The next descriptor of a ring; `None`: the process is gone, or broke its ring and is cut off.
    fn take_descriptor(&mut self, key: MemberKey) -> Option<Option<crate::descriptor::DescriptorWords>> {
        let guest = self.guest(key.guest)?;
        let segments = Arc::clone(&guest.segments);
        let member = guest.members.get_mut(usize::from(key.ring))?.as_mut()?;
        if let Ok(words) = member.ring.take(&segments.control) {
            return Some(words);
        }
        guest.refuse(crate::reason::StreamRefusal::IndexBounds);
        self.remove_member(key);
        None
    }

    /// Leaves a ring to its bell; `false`: descriptors came meanwhile.
    fn sleep_ring(&mut self, key: MemberKey) -> bool {
        let Some(guest) = self.guest(key.guest) else { return true };
        let segments = Arc::clone(&guest.segments);
        let member = guest.members.get_mut(usize::from(key.ring)).and_then(Option::as_mut);
        let Some(member) = member else { return true };
        let sleeps = member.ring.sleep(&segments.control);
        member.is_active = !sleeps;
        sleeps
    }

    /// Moves payload of the streams that had more than a round's worth.
    fn serve_ready(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(key) = self.ready.pop_front() else { break };
            if let Some(stream) = self.streams.get_mut(key) {
                stream.is_queued = false;
            }
            self.pump(key);
        }
    }

    /// Has a stream's payload moved in the next round.
    fn queue(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(key).filter(|stream| !stream.is_queued) {
            stream.is_queued = true;
            self.ready.push_back(key);
        }
    }

    fn time_to_wait(&self) -> Option<rustix::event::Timespec> {
        let wait = if self.active.is_empty() && self.ready.is_empty() {
            let (first, _) = self.deadlines.first()?;
            first.saturating_duration_since(now())
        } else {
            Duration::ZERO
        };
        Some(rustix::event::Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        })
    }

    /// Sets or clears the time at which a stream is looked at again.
    fn set_deadline(&mut self, stream: &mut EngineStream, deadline: Option<Instant>) {
        if let Some(old) = stream.deadline.take() {
            self.deadlines.remove(&(old, stream.key));
        }
        if let Some(new) = deadline {
            stream.deadline = Some(new);
            self.deadlines.insert((new, stream.key));
        }
    }

    fn serve_deadlines(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let time = now();
        while let Some((deadline, key)) = self.deadlines.first().copied() {
            if deadline > time {
                break;
            }
            self.deadlines.pop_first();
            self.expire(key);
        }
    }

    fn serve_commands(&mut self) {
        for command in self.commands.take() {
            match command {
                Command::AddGuest(spec, reply) => {
                    let _ = reply.send(self.add_guest(spec));
                }
                Command::Report(reply) => {
                    let guests = self.guests.iter().flatten().map(Guest::report).collect();
                    let _ = reply.send(EngineReport { guests });
                }
                Command::Stop => self.stops = true,
            }
        }
    }

    fn add_guest(&mut self, spec: GuestSpec) -> Result<OwnedFd, EngineError> {
        let index = self.guests.iter().position(Option::is_none).unwrap_or(self.guests.len());
        let number = u16::try_from(index).map_err(|_| EngineError::Guests)?;
        let (guest, descriptor) = Guest::create(number, spec, now())?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        self.watch(&guest.socket, EventSource::Guest(number), flags)
            .map_err(system("watch a guest's descriptor"))?;
        match self.guests.get_mut(index) {
            Some(place) => *place = Some(guest),
            None => self.guests.push(Some(guest)),
        }
        Ok(descriptor)
    }
}

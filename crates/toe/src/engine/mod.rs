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
//! * `datagrams`: UDP.
//! * `accept`: listeners, and connections between guests of this engine.
//! * `members`: processes that join, and their channels.
//! * `turn`: the order of all this.

mod accept;
mod calls;
mod config;
mod control;
mod datagrams;
mod guest;
mod members;
mod options;
mod pipe;
mod slab;
mod stream;
mod transfer;
mod turn;

pub(crate) use config::{BACKLOG_MOST, LEAST, PENDING_MOST, STARTS};
pub use config::{EngineError, EngineReport, GuestLimits, GuestReport, GuestSpec, StreamReport};
pub use control::EngineControl;

use crate::clock::now;
use crate::inspect::{PayloadInspector, StreamId};
use config::system;
use control::CommandQueue;
use guest::Guest;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use slab::{StreamKey, StreamSlab};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::EngineStream;
use turn::EngineTurn;

/// Events taken from epoll at once.
const EVENTS: usize = 128;
/// Descriptors taken from a ring in a round.
const RING_BATCH: usize = 32;

/// The sources of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventSource {
    Commands,
    /// The descriptor by which other threads end a sleep.
    Waker,
    /// The socket at which a guest's programs are started.
    Door(u16),
    /// A descriptor that programs of a guest were started with.
    Start(u16, u16),
    Channel(MemberKey),
    Bell(MemberKey),
    Socket(StreamKey),
    Token(StreamKey),
}

/// The reason why [`Engine::wait`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineWoke {
    /// There are events to be served.
    Events,
    /// The waker is readable; there may be events as well.
    Called,
    /// The time is over, or a signal came.
    Timeout,
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
            EventSource::Start(guest, place) => word(1, guest.into(), place.into()),
            EventSource::Channel(key) => word(2, key.guest.into(), key.ring.into()),
            EventSource::Bell(key) => word(3, key.guest.into(), key.ring.into()),
            EventSource::Socket(key) => word(4, key.serial, key.index),
            EventSource::Token(key) => word(5, key.serial, key.index),
            EventSource::Door(guest) => word(6, 0, guest.into()),
            EventSource::Waker => word(7, 0, 0),
        }
    }

    fn decode(word: u64) -> Option<EventSource> {
        let (high, low) = ((word >> 32) as u32 & 0x00FF_FFFF, word as u32);
        let member = MemberKey { guest: high as u16, ring: low as u16 };
        let stream = StreamKey { index: low, serial: high };
        match word >> 56 {
            0 => Some(EventSource::Commands),
            1 => Some(EventSource::Start(high as u16, low as u16)),
            2 => Some(EventSource::Channel(member)),
            3 => Some(EventSource::Bell(member)),
            4 => Some(EventSource::Socket(stream)),
            5 => Some(EventSource::Token(stream)),
            6 => Some(EventSource::Door(low as u16)),
            7 => Some(EventSource::Waker),
            _ => None,
        }
    }
}

/// The engine. [`Engine::run`] is the thread.
pub struct Engine {
    epoll: OwnedFd,
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
    /// Events that a wait has found, to be served in the next turn.
    arrived: Vec<(EventSource, epoll::EventFlags)>,
    /// Buffer that pipes without bytes work with.
    spare: Vec<u8>,
    next_id: u64,
    /// Number of the next process that joins.
    next_joining: u64,
    stops: bool,
}

impl Engine {
    /// Makes an engine without guests.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub fn new() -> Result<Engine, EngineError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("make an epoll"))?;
        let commands = Arc::new(CommandQueue::new().map_err(system("make an eventfd"))?);
        let engine = Engine {
            epoll,
            commands,
            guests: Vec::new(),
            streams: StreamSlab::default(),
            listeners: HashMap::new(),
            active: Vec::new(),
            ready: VecDeque::new(),
            deadlines: BTreeSet::new(),
            arrived: Vec::with_capacity(EVENTS),
            spare: Vec::with_capacity(PENDING_MOST),
            next_id: 1,
            next_joining: 1,
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

    /// Serves guests until it is stopped; the inspector sees all payloads. Sockets are made in the
    /// namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel refuses to wait for events.
    pub fn run(mut self, inspector: &mut dyn PayloadInspector) -> Result<(), EngineError> {
        while !self.stops {
            self.wait(None)?;
            self.turn(inspector)?;
        }
        Ok(())
    }

    /// Serves guests once: the events that the last [`Engine::wait`] has found, requests, deadlines. Does not
    /// sleep. Returns the number of events and requests.
    ///
    /// # Errors
    /// The kernel refuses to look for events.
    pub fn turn(&mut self, inspector: &mut dyn PayloadInspector) -> Result<usize, EngineError> {
        // With work of its own the engine comes back without a wait; others must have their turn.
        if self.arrived.is_empty() && self.has_work() {
            self.wait(Some(Duration::ZERO))?;
        }
        let mut turn = EngineTurn { engine: self, inspector };
        let mut served = turn.serve_arrived() + turn.serve_rings() + turn.serve_ready();
        served += turn.serve_deadlines();
        Ok(served)
    }

    /// Whether a turn would find work without a wait.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.active.is_empty() || !self.ready.is_empty()
    }

    /// The longest sleep before the next turn; `None`: until there are events.
    fn longest_sleep(&self) -> Option<Duration> {
        match self.has_work() {
            true => Some(Duration::ZERO),
            false => self.deadlines.first().map(|(first, _)| first.saturating_duration_since(now())),
        }
    }

    /// Has this descriptor end waits when it is readable.
    ///
    /// # Errors
    /// The kernel refuses to watch it.
    pub fn watch_waker(&self, waker: BorrowedFd<'_>) -> Result<(), EngineError> {
        let watched = self.watch(waker, EventSource::Waker, epoll::EventFlags::IN);
        watched.map_err(system("watch its waker"))
    }

    /// Sleeps until there are events, the first deadline is over, or `limit` is (`None`: without one).
    ///
    /// # Errors
    /// The kernel refuses to wait for events.
    pub fn wait(&mut self, limit: Option<Duration>) -> Result<EngineWoke, EngineError> {
        let wait = self.longest_sleep().into_iter().chain(limit).min().map(|wait| rustix::event::Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        });
        let mut space = [const { MaybeUninit::uninit() }; EVENTS];
        let (events, _) = match epoll::wait(&self.epoll, &mut space, wait.as_ref()) {
            Ok(waited) => waited,
            Err(Errno::INTR) => return Ok(EngineWoke::Timeout),
            Err(error) => return Err(system("wait for events")(error)),
        };
        let mut woke = EngineWoke::Timeout;
        for event in events.iter() {
            let (word, flags) = (event.data.u64(), event.flags);
            match EventSource::decode(word) {
                Some(EventSource::Waker) => woke = EngineWoke::Called,
                Some(source) => self.arrived.push((source, flags)),
                None => {}
            }
        }
        if woke == EngineWoke::Timeout && !self.arrived.is_empty() {
            woke = EngineWoke::Events;
        }
        Ok(woke)
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

    fn next_joining(&mut self) -> u64 {
        let number = self.next_joining;
        self.next_joining += 1;
        number
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

    /// Has a stream's payload moved in the next round.
    fn queue(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(key).filter(|stream| !stream.is_queued) {
            stream.is_queued = true;
            self.ready.push_back(key);
        }
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

    /// Makes a guest; its first process is to be started with the descriptor
    /// ([`crate::guest::GUEST_DESCRIPTOR`]).
    fn add_guest(&mut self, spec: GuestSpec) -> Result<OwnedFd, EngineError> {
        let (engines, guests) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(system("make a guest's descriptor"))?;
        let number = self.make_guest(spec, None)?;
        self.add_start(number, engines).map_err(system("watch a guest's descriptor"))?;
        Ok(guests)
    }

    /// Makes a guest whose programs are started by connections to a listening Unix socket of sequenced
    /// packets: whoever may connect is the guest. Returns the guest's number.
    ///
    /// # Errors
    /// Limits out of bounds, or no memory or descriptors.
    pub fn add_guest_at(&mut self, spec: GuestSpec, door: OwnedFd) -> Result<u16, EngineError> {
        self.make_guest(spec, Some(door))
    }

    fn make_guest(&mut self, spec: GuestSpec, door: Option<OwnedFd>) -> Result<u16, EngineError> {
        let index = self.guests.iter().position(Option::is_none).unwrap_or(self.guests.len());
        let number = u16::try_from(index).map_err(|_| EngineError::Guests)?;
        let guest = Guest::create(number, spec, door, now())?;
        if let Some(door) = &guest.door {
            let watched =
                self.watch(door, EventSource::Door(number), epoll::EventFlags::IN | epoll::EventFlags::ET);
            watched.map_err(system("watch a guest's socket"))?;
        }
        match self.guests.get_mut(index) {
            Some(place) => *place = Some(guest),
            None => self.guests.push(Some(guest)),
        }
        Ok(number)
    }

    /// Serves a descriptor that programs of a guest are started with.
    fn add_start(&mut self, number: u16, start: OwnedFd) -> Result<(), Errno> {
        let guest = self.guest(number).ok_or(Errno::NETDOWN)?;
        let place = guest.starts.iter().position(Option::is_none).unwrap_or(guest.starts.len());
        if place >= guest.members.len() {
            guest.refuse(crate::reason::StreamRefusal::Processes);
            return Err(Errno::AGAIN);
        }
        let source = EventSource::Start(number, u16::try_from(place).map_err(|_| Errno::AGAIN)?);
        self.watch(&start, source, epoll::EventFlags::IN | epoll::EventFlags::RDHUP)?;
        let guest = self.guest(number).ok_or(Errno::NETDOWN)?;
        match guest.starts.get_mut(place) {
            Some(free) => *free = Some(start),
            None => guest.starts.push(Some(start)),
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.commands.close();
    }
}

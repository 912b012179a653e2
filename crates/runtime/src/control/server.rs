// SPDX-License-Identifier: Apache-2.0
//! Clients of the command socket. One thread accepts them, and each has a thread of its own, so a slow client
//! delays no other; no thread of them touches packets.
//!
//! Bounds: the number of clients; the time of a message from its first byte to its last, and of an answer
//! until it is taken; the silence of a client. When all places are taken, the client that has been silent
//! longest is dropped for a new one; so no client can shut others out by doing nothing.

use super::place::Place;
use super::translate::Desk;
use crate::poll::{is_hung_up, wait_readable};
use crate::traces::{ClientState, Traces};
use bartizan_api::control::{self, Broken, ControlReply, MESSAGE_MAX, Messages, Version};
use bartizan_ports::PeerProcess;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::info;

/// Most clients at once.
pub const CLIENTS_MAX: usize = 16;
/// Time limit for a message from its first byte on, for the first message from the connection on, and for
/// taking an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Longest silence of a client.
pub const SILENCE: Duration = Duration::from_secs(3_600);
/// Interval in which the accepting thread checks whether the run ends.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time that the end of a run waits for answers that are being written.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Counters of the socket.
#[derive(Debug, Default)]
struct ControlSocketCounters {
    clients: AtomicU64,
    commands: AtomicU64,
    refused: AtomicU64,
    malformed: AtomicU64,
    too_long: AtomicU64,
    too_slow: AtomicU64,
    not_taken: AtomicU64,
    silent: AtomicU64,
    gave_way: AtomicU64,
    no_place: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl ControlSocketCounters {
    fn reply(&self, now: usize, traces: &Traces) -> ControlReply {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ControlReply::ok(json!({
            "clients": of(&self.clients),
            "clients_now": now,
            "commands": of(&self.commands),
            "refused": of(&self.refused),
            "malformed": of(&self.malformed),
            "too_long": of(&self.too_long),
            "too_slow": of(&self.too_slow),
            "not_taken": of(&self.not_taken),
            "silent": of(&self.silent),
            "gave_way": of(&self.gave_way),
            "no_place": of(&self.no_place),
            "traces": of(&traces.counters.begun),
            "traces_now": traces.now(),
            "traces_refused": of(&traces.counters.refused),
            "traces_lost": of(&traces.counters.lost),
        }))
    }
}

/// A client's place.
struct ClientSlot {
    number: u64,
    /// Closes the connection from another thread.
    stream: UnixStream,
    /// Time of the last command's end; `None` while a command is carried out.
    idle: Option<Instant>,
}

/// State shared by all threads.
struct Shared {
    desk: Desk,
    stop: AtomicBool,
    seats: Mutex<Vec<ClientSlot>>,
    counters: ControlSocketCounters,
}

/// A running server; dropping it ends it.
pub struct ControlServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    place: Arc<Place>,
}

impl ControlServer {
    /// Accepts clients of a socket, whose commands go to a desk.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(place: Place, desk: Desk) -> std::io::Result<Self> {
        // The thread that was woken for a client which is gone again must not block on the next one.
        place.listener.set_nonblocking(true)?;
        let (stop, seats) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { desk, stop, seats, counters: ControlSocketCounters::default() });
        let (place, all) = (Arc::new(place), Arc::clone(&shared));
        let taking = Arc::clone(&place);
        let thread =
            std::thread::Builder::new().name("control".to_owned()).spawn(move || accept(&taking, &all))?;
        Ok(ControlServer { shared, thread: Some(thread), place })
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.place.path
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let end = Instant::now() + LAST_ANSWERS;
        while self.shared.seats().iter().any(|seat| seat.idle.is_none()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.shared.seats().iter().for_each(|seat| _ = seat.stream.shutdown(Shutdown::Both));
    }
}

impl Shared {
    fn seats(&self) -> std::sync::MutexGuard<'_, Vec<ClientSlot>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place; if all are taken, that of the client that has been silent longest. `false`: all are
    /// busy.
    fn admit(&self, number: u64, stream: UnixStream) -> bool {
        let mut seats = self.seats();
        if seats.len() >= CLIENTS_MAX {
            let silent = seats.iter().enumerate().filter_map(|(at, seat)| Some((seat.idle?, at)));
            let Some((_, at)) = silent.min() else { return false };
            let _ = seats.swap_remove(at).stream.shutdown(Shutdown::Both);
            count(&self.counters.gave_way);
        }
        seats.push(ClientSlot { number, stream, idle: Some(Instant::now()) });
        true
    }

    fn set_idle(&self, number: u64, idle: Option<Instant>) {
        if let Some(seat) = self.seats().iter_mut().find(|seat| seat.number == number) {
            seat.idle = idle;
        }
    }
}

/// Frees a client's place when dropped.
struct ClientSlotGuard<'s>(&'s Shared, u64);

impl Drop for ClientSlotGuard<'_> {
    fn drop(&mut self) {
        self.0.seats().retain(|seat| seat.number != self.1);
    }
}

fn accept(place: &Place, shared: &Arc<Shared>) {
    let mut number = 0;
    while !shared.stop.load(Ordering::Acquire) {
        if !wait_readable(place.listener.as_fd(), POLL_INTERVAL) {
            continue;
        }
        let stream = match place.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                if error.kind() != ErrorKind::WouldBlock {
                    // No descriptor left: others may become free.
                    std::thread::sleep(Duration::from_millis(50));
                }
                continue;
            }
        };
        number += 1;
        count(&shared.counters.clients);
        let Ok(second) = stream.try_clone() else { continue };
        if !shared.admit(number, second) {
            count(&shared.counters.no_place);
            refuse(stream);
            continue;
        }
        let own = Arc::clone(shared);
        let serve = move || {
            let _leaves = ClientSlotGuard(&own, number);
            serve(stream, number, &own);
        };
        if std::thread::Builder::new().name("control-client".to_owned()).spawn(serve).is_err() {
            drop(ClientSlotGuard(shared, number));
        }
    }
}

/// Refuses a client for lack of a place. The answer may be lost.
fn refuse(mut stream: UnixStream) {
    let _ = stream.set_nonblocking(true);
    let why = format!("{CLIENTS_MAX} clients have commands in progress; retry later");
    let _ = stream.write_all(&ControlReply::refused(why).to_message(Version::V2));
}

/// Reasons why a client's connection ends.
enum ControlDisconnect {
    /// The client is gone, or was silent for too long.
    Gone,
    /// The client receives this reason.
    Told(String),
}

fn serve(mut stream: UnixStream, number: u64, shared: &Shared) {
    let _ = stream.set_nonblocking(false);
    let Ok(peer) = PeerProcess::of(&stream) else { return };
    let mut messages = Messages::new(MESSAGE_MAX);
    let mut version = Version::V2;
    if let Err(ControlDisconnect::Told(why)) =
        serve_requests(&mut stream, &mut messages, &peer, number, shared, &mut version)
    {
        info!("control: {peer} is disconnected: {why}");
        let _ = send(&mut stream, &ControlReply::refused(why).to_message(version));
    }
}

fn serve_requests(
    stream: &mut UnixStream,
    messages: &mut Messages,
    peer: &PeerProcess,
    number: u64,
    shared: &Shared,
    version: &mut Version,
) -> Result<(), ControlDisconnect> {
    let counters = &shared.counters;
    let malformed = |error: control::Malformed| {
        count(&counters.malformed);
        ControlDisconnect::Told(error.to_string())
    };
    let first = read(stream, messages, PATIENCE, counters)?;
    *version = control::version(&first).map_err(malformed)?;
    if !send(stream, &ControlReply::welcome().to_message(*version)) {
        count(&counters.not_taken);
        return Err(ControlDisconnect::Gone);
    }
    loop {
        let message = read(stream, messages, SILENCE, counters)?;
        let request = control::request(&message).map_err(malformed)?;
        shared.set_idle(number, None);
        count(&counters.commands);
        let client = || match () {
            () if shared.stop.load(Ordering::Acquire) => ClientState::Ending,
            () if is_hung_up(stream.as_fd()) => ClientState::Gone,
            () => ClientState::Waits,
        };
        let reply = match request.command.as_str() {
            "control-stats" => counters.reply(shared.seats().len(), shared.desk.traces()),
            _ => shared.desk.carry_out(&request, peer, &client),
        };
        if !reply.ok {
            count(&counters.refused);
        }
        let sent = send(stream, &reply.to_message(*version));
        shared.set_idle(number, Some(Instant::now()));
        if !sent {
            count(&counters.not_taken);
            return Err(ControlDisconnect::Gone);
        }
    }
}

/// The next message; `silence`: time limit until it begins.
fn read(
    stream: &mut UnixStream,
    messages: &mut Messages,
    silence: Duration,
    counters: &ControlSocketCounters,
) -> Result<Vec<u8>, ControlDisconnect> {
    let mut chunk = [0u8; 4096];
    let mut end = Instant::now() + silence;
    let mut begun = false;
    loop {
        match messages.next_message() {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => {}
            Err(broken) => {
                let counter = match broken {
                    Broken::TooLong(_) => &counters.too_long,
                    Broken::NoObject(_) | Broken::Control(_) => &counters.malformed,
                };
                count(counter);
                return Err(ControlDisconnect::Told(broken.to_string()));
            }
        }
        if !begun && messages.has_begun() {
            begun = true;
            end = Instant::now() + PATIENCE;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            if !begun {
                count(&counters.silent);
                return Err(ControlDisconnect::Gone);
            }
            count(&counters.too_slow);
            return Err(ControlDisconnect::Told(format!(
                "a message was not complete within {} seconds",
                PATIENCE.as_secs()
            )));
        }
        // The system refuses a time of zero.
        let _ = stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ControlDisconnect::Gone),
            Ok(read) => messages.push(chunk.get(..read).unwrap_or_default()),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
                ) => {}
            Err(_) => return Err(ControlDisconnect::Gone),
        }
    }
}

/// Sends an answer. `false`: it was not taken in time, or the client is gone.
fn send(stream: &mut UnixStream, mut bytes: &[u8]) -> bool {
    let end = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let _ = stream.set_write_timeout(Some(left.max(Duration::from_millis(1))));
        match stream.write(bytes) {
            Ok(0) => return false,
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
                ) => {}
            Err(_) => return false,
        }
    }
    true
}

// SPDX-License-Identifier: Apache-2.0
//! Sleeping until a port has packets or another thread wakes the worker.
//!
//! A worker polls for a few tens of microseconds before it sleeps, if it has a core for itself: waking a
//! thread takes longer than most gaps between packets.

use crate::error::PortError;
use crate::port::Port;
use crate::sys::{self, MAX_WATCHES, Watch};
use bartizan_base::Timestamp;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Wakes a worker from another thread, for example because a new generation is ready.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    /// Makes a waker.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: Arc::new(sys::event_descriptor()?) })
    }

    /// Ends the current sleep with this waker, or the next one if no thread sleeps now.
    pub fn wake(&self) {
        sys::event_set(self.event.as_fd());
    }

    /// Takes the call back with which the waker's descriptor is readable, for sources that watch it
    /// themselves.
    pub fn take(&self) {
        sys::event_clear(self.event.as_fd());
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// The reason why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woke {
    /// A port has packets.
    Packets,
    /// The waker was used.
    Called,
    /// The time is over (or a signal came).
    Timeout,
}

/// The number of polls of the rings between two reads of the clock.
const LOOKS: u32 = 32;
/// The time after which frames that the kernel could not take are tried again.
const RETRY: Duration = Duration::from_millis(1);

/// Polls the ports for `spin`, then sleeps until one of them has packets, the waker is used or `timeout` is
/// over. All batches of these ports must have been returned: the kernel reports a ring with unreturned frames
/// as readable.
///
/// # Errors
/// The errors of [`Port::woken`] and [`Port::flush`], and a failing `poll`.
pub fn wait_any(
    ports: &mut [&mut dyn Port],
    waker: Option<&Waker>,
    spin: Duration,
    timeout: Duration,
) -> Result<Woke, PortError> {
    if busy_poll_any(ports, &|| false, spin) {
        return Ok(Woke::Packets);
    }
    let mut timeout = timeout;
    for port in ports.iter_mut().filter(|port| port.pending() > 0) {
        port.flush()?;
        if port.pending() > 0 {
            timeout = timeout.min(RETRY);
        }
    }
    let descriptors = ports.iter().map(|port| port.descriptor().map_or(-1, |fd| fd.as_raw_fd()));
    let slept = sleep(descriptors, waker, timeout).map_err(|source| PortError::System {
        name: ports.first().map_or_else(String::new, |p| p.name().to_owned()),
        what: WAITING,
        source,
    })?;
    for (port, watch) in ports.iter_mut().zip(slept.watches()) {
        port.woken(watch.failed)?;
    }
    Ok(slept.woke())
}

/// The port's activity in errors of a failed sleep.
pub(crate) const WAITING: &str = "waiting for packets";

/// The result of a sleep.
pub(crate) struct Slept {
    watches: [Watch; MAX_WATCHES],
    called: bool,
}

impl Slept {
    /// The events of each descriptor.
    pub(crate) fn watches(&self) -> impl Iterator<Item = &Watch> {
        // The waker's descriptor is the first.
        self.watches.iter().skip(1)
    }

    /// The reason why it ended.
    pub(crate) fn woke(&self) -> Woke {
        if self.called {
            Woke::Called
        } else if self.watches().any(|watch| watch.readable) {
            Woke::Packets
        } else {
            Woke::Timeout
        }
    }
}

/// Sleeps until a descriptor is readable (-1: none), the waker is used or the time is over.
pub(crate) fn sleep(
    descriptors: impl Iterator<Item = RawFd>,
    waker: Option<&Waker>,
    timeout: Duration,
) -> io::Result<Slept> {
    let none = Watch { fd: -1, readable: false, failed: false };
    let mut slept = Slept { watches: [none; MAX_WATCHES], called: false };
    let mut count = 0;
    let own = waker.map_or(-1, |waker| waker.event.as_raw_fd());
    for (place, descriptor) in slept.watches.iter_mut().zip(std::iter::once(own).chain(descriptors)) {
        place.fd = descriptor;
        count += 1;
    }
    sys::poll(slept.watches.get_mut(..count).unwrap_or_default(), timeout)?;
    if let Some(waker) = waker.filter(|_| slept.watches.first().is_some_and(|watch| watch.readable)) {
        sys::event_clear(waker.event.as_fd());
        slept.called = true;
    }
    Ok(slept)
}

/// The clock of the kernel's packet sockets, for callers without a port ([`Port::now`]).
#[must_use]
pub fn packet_clock() -> Timestamp {
    Timestamp::from_nanos(sys::packet_clock_nanos())
}

/// Polls the ports until one is ready, `else_ready` is true, or `spin` is over; at least once.
#[must_use]
pub fn busy_poll_any(ports: &[&mut dyn Port], else_ready: &dyn Fn() -> bool, spin: Duration) -> bool {
    busy_poll_until(&|| ports.iter().any(|port| port.ready()) || else_ready(), spin)
}

/// Polls until `ready` is true or `spin` is over; at least once.
pub(crate) fn busy_poll_until(ready: &dyn Fn() -> bool, spin: Duration) -> bool {
    if ready() {
        return true;
    }
    if spin.is_zero() {
        return false;
    }
    let begin = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if ready() {
                return true;
            }
            core::hint::spin_loop();
        }
        if begin.elapsed() >= spin {
            return false;
        }
    }
}

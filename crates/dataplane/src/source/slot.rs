// SPDX-License-Identifier: Apache-2.0
//! A worker's ports, and how it gets others in the place of those that are gone.
//!
//! With several links the end of one is not the end of the others: its workers let go of their ports and live
//! on, with their flows and counters; who steers opens the interfaces again when they are there and offers
//! the new ports ([`Berth`]). Between two batches a worker looks at two flags, one load each. The interfaces
//! of a tap of several go and come back each by itself: a worker has a berth for each of them.

use bartizan_base::{PacketDuration, Timestamp};
use bartizan_ports::{
    InlinePair, MergedTap, Port, PortError, PortStats, Side, Waker, Woke, look_any, packet_clock, wait_any,
};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

/// A worker's own ports.
pub enum Ports {
    /// Two that forward to each other.
    Inline(InlinePair),
    /// One that is watched.
    Passive(Box<dyn Port>),
    /// Several that are watched as one. Each comes and goes by itself, by a berth of its own.
    Merged(Box<MergedTap>),
    /// None: the link is gone, and may come back.
    Away,
}

impl Ports {
    /// Each of its ports: name, counters, frames that wait in its transmit ring.
    pub fn each(&mut self, mut each: impl FnMut(&str, &PortStats, u64)) {
        let mut one = |port: &mut dyn Port| {
            let stats = port.stats();
            each(port.name(), &stats, port.pending() as u64);
        };
        match self {
            Ports::Inline(pair) => {
                Side::BOTH.into_iter().for_each(|side| one(pair.port(side)));
                pair.exits().iter_mut().for_each(|port| one(&mut **port));
            }
            Ports::Passive(port) => one(&mut **port),
            Ports::Merged(tap) => tap.each_stats(|name, stats| each(name, stats, 0)),
            Ports::Away => {}
        }
    }

    pub(super) fn now(&mut self) -> Timestamp {
        match self {
            Ports::Inline(pair) => pair.port(Side::A).now(),
            Ports::Passive(port) => port.now(),
            Ports::Merged(tap) => tap.now(),
            Ports::Away => packet_clock(),
        }
    }

    /// The greatest backlog of its ports.
    pub(super) fn backlog(&self) -> u8 {
        match self {
            Ports::Inline(pair) => pair.backlog(),
            Ports::Passive(port) => port.backlog(),
            Ports::Merged(tap) => tap.backlog(),
            Ports::Away => 0,
        }
    }

    /// The clock that frames are stamped by, and how late they are shown.
    pub(super) fn shows(&mut self) -> (Timestamp, PacketDuration) {
        match self {
            Ports::Passive(port) => (port.now(), port.delay()),
            Ports::Merged(tap) => tap.shows(),
            Ports::Inline(_) | Ports::Away => (self.now(), PacketDuration::ZERO),
        }
    }

    pub(super) fn look(&mut self, else_ready: &dyn Fn() -> bool, spin: Duration) -> bool {
        match self {
            Ports::Inline(pair) => pair.look(else_ready, spin),
            Ports::Passive(port) => look_any(&[&mut **port], else_ready, spin),
            Ports::Merged(tap) => tap.look(else_ready, spin),
            Ports::Away => else_ready(),
        }
    }

    pub(super) fn wait(&mut self, waker: Option<&Waker>, timeout: Duration) -> Result<Woke, PortError> {
        match self {
            Ports::Inline(pair) => pair.wait(waker, Duration::ZERO, timeout),
            Ports::Passive(port) => wait_any(&mut [&mut **port], waker, Duration::ZERO, timeout),
            Ports::Merged(tap) => tap.wait(waker, timeout),
            Ports::Away => wait_any(&mut [], waker, Duration::ZERO, timeout),
        }
    }
}

/// What ports that are gone had counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Retired {
    pub(super) name: String,
    pub(super) stats: PortStats,
    /// Frames that waited in its transmit ring, and did not leave.
    pub(super) waiting: u64,
}

/// Adds what ports have counted to what those before them at the same place had.
pub(super) fn retire(ports: &mut Ports, retired: &mut Vec<Retired>) {
    let mut at = 0;
    ports.each(|name, stats, waiting| {
        if retired.len() <= at {
            retired.push(Retired { name: name.to_owned(), ..Retired::default() });
        }
        if let Some(known) = retired.get_mut(at) {
            known.stats = known.stats.plus(stats);
            known.waiting += waiting;
        }
        at += 1;
    });
    *ports = Ports::Away;
}

/// Where a worker and who steers hand ports to each other.
///
/// Memory ordering: what is handed over is put under a lock and then flagged (`Release`); who sees the flag
/// (`Acquire`) finds it.
#[derive(Default)]
pub struct Berth {
    leave: AtomicBool,
    is_empty: AtomicBool,
    has_offer: AtomicBool,
    offer: Mutex<Option<Ports>>,
    why: Mutex<Option<PortError>>,
}

impl Berth {
    /// Asks the worker to let go of its ports. It does so when it looks up, ten times a second if nothing
    /// comes.
    pub fn clear(&self) {
        self.leave.store(true, Ordering::Release);
    }

    /// Whether the worker has no ports.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// Why the worker has let go of its ports, if it was not asked to; once.
    pub fn take_failure(&self) -> Option<PortError> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives a worker without ports new ones. What became of those before is no news any more.
    pub fn offer(&self, ports: Ports) {
        self.take_failure();
        *self.offer.lock().unwrap_or_else(PoisonError::into_inner) = Some(ports);
        self.leave.store(false, Ordering::Relaxed);
        // Before the worker can say anything else.
        self.is_empty.store(false, Ordering::Relaxed);
        self.has_offer.store(true, Ordering::Release);
    }

    pub(super) fn is_to_be_left(&self) -> bool {
        self.leave.load(Ordering::Acquire)
    }

    pub(super) fn left(&self, why: Option<PortError>) {
        if why.is_some() {
            *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
        }
        self.is_empty.store(true, Ordering::Release);
    }

    /// New ports, if there are some.
    pub(super) fn take(&self) -> Option<Ports> {
        if !self.has_offer.load(Ordering::Acquire) {
            return None;
        }
        self.has_offer.store(false, Ordering::Relaxed);
        self.offer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

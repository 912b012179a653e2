// SPDX-License-Identifier: Apache-2.0
//! Several interfaces that are watched as one: the two sides of a network tap, or several mirror ports. Their
//! frames are handed out in the order of their timestamps.
//!
//! Each interface is a queue whose frames stay in the order of its ring; the oldest of the queues' heads is
//! next. Where an interface has none, an older frame of it may still be on its way: the kernel shows a ring
//! block by block, up to two retire times late ([`crate::PassiveOptions::retire`]). So the heads of the
//! others wait, but not longer than the *wait*, counted from their timestamps: a quiet interface delays the
//! others by that much, and one without a port not at all. No frame waits while a ring is half full. A frame
//! that arrives after a newer one of another interface nevertheless is handed out at once and counted.
//!
//! Frames are not copied: each interface has a batch, and frames wait in the rings. No memory is allocated
//! for a frame.
//!
//! The order is right as far as timestamps are comparable: with hardware timestamps the clocks of the devices
//! have to be synchronised.

use crate::batch::Batch;
use crate::duplicates::Duplicates;
use crate::error::PortError;
use crate::port::{Port, PortStats};
use crate::wait::{Waker, Woke, busy_poll_until, packet_clock, sleep};
use bartizan_base::{PacketDuration, Timestamp};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The most interfaces of one tap.
pub const MERGED_MOST: usize = 8;
/// The default for the longest wait of frames: longer than a ring may take to show a frame.
pub const MERGE_WAIT: Duration = Duration::from_millis(50);
/// The longest sleep while frames wait: the interval of checks whether a ring fills.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Several interfaces read as one port, with their frames in the order of their timestamps.
pub struct MergedTap {
    sources: Vec<MergeInput>,
    wait: PacketDuration,
    duplicates: Option<Duplicates>,
}

/// The next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeFrame {
    /// The number of its interface.
    pub source: usize,
    /// The frame's number in [`MergedTap::batch`] of the interface.
    pub index: usize,
    /// Whether it is the second of a pair of equal frames, of the same or different interfaces; ignored then.
    pub duplicate: bool,
}

/// One of the interfaces.
struct MergeInput {
    name: String,
    port: Option<Box<dyn Port>>,
    batch: Batch,
    /// The first frame of the batch that was not handed out.
    next: usize,
    /// The frames of the batch before this one have waited.
    waited: usize,
    /// Whether it had no frame at the last look.
    quiet: bool,
    /// Its clock at the last look.
    now: Timestamp,
    /// The time of its newest frame handed out.
    newest: Timestamp,
    /// Whether the port goes once it has no more frames.
    leaving: bool,
    failure: Option<PortError>,
    /// The port has gone, which was not reported yet.
    unreported: bool,
    /// The counts of this port, and of those before it.
    counted: PortStats,
}

impl MergeInput {
    fn new(port: Box<dyn Port>, frames: usize) -> Self {
        MergeInput {
            name: port.name().to_owned(),
            port: Some(port),
            batch: Batch::with_capacity(frames),
            next: 0,
            waited: 0,
            quiet: false,
            now: Timestamp::ZERO,
            newest: Timestamp::ZERO,
            leaving: false,
            failure: None,
            unreported: false,
            counted: PortStats::default(),
        }
    }

    /// Time of its first frame.
    fn head(&self) -> Option<Timestamp> {
        self.batch.info(self.next).map(|info| info.timestamp)
    }

    /// Takes the next frames of its port once all earlier ones were handed out.
    fn refill(&mut self, prepare: &mut dyn FnMut(&mut Batch)) {
        if self.quiet || self.next < self.batch.len() {
            return;
        }
        (self.next, self.waited) = (0, 0);
        let received = match &mut self.port {
            Some(port) => port.receive(&mut self.batch),
            None => Ok(0),
        };
        match received {
            Ok(0) => self.is_empty(),
            Ok(_) => prepare(&mut self.batch),
            Err(error) => {
                self.fail(error);
                self.is_empty();
            }
        }
    }

    fn is_empty(&mut self) {
        // Returns the ring's slots.
        self.batch.clear();
        self.quiet = true;
        if self.leaving
            && let Some(mut port) = self.port.take()
        {
            self.counted = self.counted.plus(&port.stats());
            self.unreported = true;
        }
    }

    fn fail(&mut self, error: PortError) {
        self.leaving = true;
        self.failure.get_or_insert(error);
    }

    fn stats(&mut self) -> PortStats {
        match &mut self.port {
            Some(port) => self.counted.plus(&port.stats()),
            None => self.counted,
        }
    }
}

impl MergedTap {
    /// Merges these ports, at most [`MERGED_MOST`] (more are left out). A frame waits up to `wait` for an
    /// older one of another port; batches are of `frames` frames. `duplicate_window`: a frame is marked when
    /// it has the bytes of another one, of whatever port, that arrived at most so long before.
    #[must_use]
    pub fn new(
        ports: Vec<Box<dyn Port>>,
        wait: PacketDuration,
        frames: usize,
        duplicate_window: Option<PacketDuration>,
    ) -> Self {
        let sources = ports.into_iter().take(MERGED_MOST).map(|port| MergeInput::new(port, frames)).collect();
        MergedTap { sources, wait, duplicates: duplicate_window.map(Duplicates::new) }
    }

    /// Begins a turn: interfaces without frames are checked again.
    pub fn begin_turn(&mut self) {
        for source in &mut self.sources {
            // Read before its ring: a frame older than that by the wait is visible then.
            source.now = source.port.as_mut().map_or(Timestamp::ZERO, |port| port.now());
            source.quiet = false;
        }
    }

    /// The next frame; none until the next turn, or the end of its wait. `all`: no frame waits any more.
    /// `prepare` gets each received batch before its frames are handed out.
    pub fn next(&mut self, all: bool, prepare: &mut dyn FnMut(&mut Batch)) -> Option<MergeFrame> {
        let mut first: Option<(usize, Timestamp)> = None;
        let (mut awaited, mut due) = (false, all);
        for (at, source) in self.sources.iter_mut().enumerate() {
            source.refill(prepare);
            match source.head() {
                Some(time) => {
                    due |= time + self.wait <= source.now;
                    if first.is_none_or(|(_, oldest)| time < oldest) {
                        first = Some((at, time));
                    }
                }
                None => awaited |= source.port.is_some(),
            }
        }
        let (at, time) = first?;
        let mut pressed = false;
        if awaited && !due {
            pressed = self.sources.iter().any(|source| source.port.as_ref().is_some_and(|p| p.pressed()));
            if !pressed {
                self.sources.iter_mut().for_each(|source| source.waited = source.batch.len());
                return None;
            }
        }
        let late = self.sources.iter().enumerate().any(|(other, source)| other != at && time < source.newest);
        let source = self.sources.get_mut(at)?;
        let index = source.next;
        source.next += 1;
        source.newest = source.newest.max(time);
        source.counted.merge_waited += u64::from(index < source.waited);
        source.counted.merge_pressed += u64::from(pressed);
        source.counted.merge_late += u64::from(late);
        let bytes = source.batch.bytes(index).unwrap_or_default();
        let length = source.batch.info(index).map_or(0, |info| info.wire_length);
        let duplicate = self.duplicates.as_mut().is_some_and(|known| known.is_second(bytes, length, time));
        Some(MergeFrame { source: at, index, duplicate })
    }

    /// The greatest backlog of its interfaces: see [`Port::backlog`]. Frames that were taken and wait for
    /// older ones of another interface count as well.
    #[must_use]
    pub fn backlog(&self) -> u8 {
        self.sources
            .iter()
            .filter_map(|source| source.port.as_ref())
            .map(|port| port.backlog())
            .max()
            .unwrap_or(0)
    }

    /// The frames received last from an interface.
    #[must_use]
    pub fn batch(&self, source: usize) -> Option<&Batch> {
        self.sources.get(source).map(|source| &source.batch)
    }

    /// Removes the port of an interface once the frames that it holds were handed out.
    pub fn leave(&mut self, source: usize) {
        if let Some(source) = self.sources.get_mut(source) {
            source.leaving = true;
        }
    }

    /// Whether the port of an interface was closed since the last call, and the error, if there was one.
    pub fn take_left(&mut self, source: usize) -> Option<Option<PortError>> {
        let source = self.sources.get_mut(source)?;
        std::mem::take(&mut source.unreported).then(|| source.failure.take())
    }

    /// Whether an interface has a port.
    #[must_use]
    pub fn has_port(&self, source: usize) -> bool {
        self.sources.get(source).is_some_and(|source| source.port.is_some())
    }

    /// Gives an interface without a port a new one.
    pub fn attach(&mut self, source: usize, port: Box<dyn Port>) {
        if let Some(source) = self.sources.get_mut(source) {
            source.port = Some(port);
            (source.leaving, source.failure, source.quiet) = (false, None, false);
        }
    }

    /// Calls `each` with the name and the counters of each interface, including those of earlier ports. Reads
    /// the kernel's counters.
    pub fn each_stats(&mut self, mut each: impl FnMut(&str, &PortStats)) {
        for source in &mut self.sources {
            let stats = source.stats();
            each(&source.name, &stats);
        }
    }

    /// The clock: that of the slowest interface, and never beyond a frame that waits.
    pub fn now(&mut self) -> Timestamp {
        let mut now: Option<Timestamp> = None;
        for source in &mut self.sources {
            let head = source.head();
            let clock = source.port.as_mut().map(|port| port.now());
            now = now.into_iter().chain(head).chain(clock).min();
        }
        now.unwrap_or_else(packet_clock)
    }

    /// The clock of the fastest interface, and the longest time between a frame's arrival and the turn that
    /// receives it.
    pub fn shows(&mut self) -> (Timestamp, PacketDuration) {
        let ports = self.sources.iter_mut().filter_map(|source| source.port.as_mut());
        ports.fold((Timestamp::ZERO, PacketDuration::ZERO), |(now, delay), port| {
            (now.max(port.now()), delay.max(port.delay()))
        })
    }

    /// Polls until an interface has new frames after all its earlier ones were handed out, `else_ready` is
    /// true, or `spin` is over.
    #[must_use]
    pub fn busy_poll(&mut self, else_ready: &dyn Fn() -> bool, spin: Duration) -> bool {
        let sources = &self.sources;
        let ready = |source: &MergeInput| {
            source.head().is_none() && source.port.as_ref().is_some_and(|port| port.ready())
        };
        busy_poll_until(&|| sources.iter().any(ready) || else_ready(), spin)
    }

    /// Sleeps until an interface without frames gets some, waiting frames have waited enough, the waker is
    /// used or `timeout` is over. An interface that fails loses its port ([`MergedTap::take_left`]).
    ///
    /// # Errors
    /// A failing `poll`.
    pub fn wait(&mut self, waker: Option<&Waker>, timeout: Duration) -> Result<Woke, PortError> {
        let mut timeout = timeout;
        for source in &mut self.sources {
            let Some(due) = source.head().map(|time| time + self.wait) else { continue };
            let now = source.port.as_mut().map_or(due, |port| port.now());
            timeout = timeout.min(LOOK_AGAIN).min(Duration::from_nanos(due.since(now).as_nanos()));
        }
        // The kernel reports a ring with unreturned frames as readable.
        let descriptor = |source: &MergeInput| match &source.port {
            Some(port) if source.head().is_none() => port.descriptor().map_or(-1, |fd| fd.as_raw_fd()),
            _ => -1,
        };
        let slept = sleep(self.sources.iter().map(descriptor), waker, timeout).map_err(|source| {
            PortError::System {
                name: self.sources.first().map(|source| source.name.clone()).unwrap_or_default(),
                what: crate::wait::WAITING,
                source,
            }
        })?;
        for (source, watch) in self.sources.iter_mut().zip(slept.watches()) {
            let asleep = source.head().is_none();
            if let Some(port) = source.port.as_mut().filter(|_| asleep)
                && let Err(error) = port.woken(watch.failed)
            {
                source.fail(error);
            }
        }
        Ok(slept.woke())
    }
}

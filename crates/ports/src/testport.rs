// SPDX-License-Identifier: Apache-2.0
//! Ports in memory, for tests: two that are joined by bounded queues, with a clock that the test moves.

use crate::batch::Batch;
use crate::error::PortError;
use crate::frame::FrameInfo;
use crate::port::{BACKLOG_PARTS, Port, PortStats, TransmitCounts, backlog_of};
use crate::refusal::SendRefusal;
use crate::sys;
use bartizan_base::{PacketDuration, Timestamp};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The time of test ports. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    /// A clock that starts at `now`.
    #[must_use]
    pub fn starting_at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.as_nanos())))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Acquire))
    }

    /// Advances the time.
    pub fn advance(&self, by: PacketDuration) {
        self.0.fetch_add(by.as_nanos(), Ordering::AcqRel);
    }
}

struct TestPortQueue {
    frames: Mutex<VecDeque<(Vec<u8>, Timestamp)>>,
    dropped: AtomicU64,
    closed: AtomicBool,
    event: OwnedFd,
}

impl TestPortQueue {
    fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            frames: Mutex::new(VecDeque::new()),
            dropped: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            event: sys::event_descriptor()?,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Vec<u8>, Timestamp)>> {
        // A queue of plain frames stays valid after a panic.
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, frame: Vec<u8>, at: Timestamp, capacity: usize) {
        let mut frames = self.lock();
        if frames.len() < capacity {
            frames.push_back((frame, at));
            sys::event_set(self.event.as_fd());
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One of two ports joined in memory.
pub struct TestPort {
    name: String,
    mtu: u32,
    capacity: usize,
    clock: TestClock,
    incoming: Arc<TestPortQueue>,
    outgoing: Arc<TestPortQueue>,
    waiting: Vec<Vec<u8>>,
    stats: PortStats,
}

impl TestPort {
    /// Two joined ports: frames that one sends (and flushes) the other receives. `capacity` bounds the frames
    /// in transit (more are dropped and counted by the receiver) and those that wait for a flush (more are
    /// refused).
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn pair(names: [&str; 2], mtu: u32, capacity: usize, clock: &TestClock) -> io::Result<(Self, Self)> {
        let (left, right) = (TestPortQueue::new()?, TestPortQueue::new()?);
        let [first, second] = names;
        let make = |name: &str, incoming: &Arc<TestPortQueue>, outgoing: &Arc<TestPortQueue>| Self {
            name: name.to_owned(),
            mtu,
            capacity,
            clock: clock.clone(),
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            waiting: Vec::new(),
            stats: PortStats::default(),
        };
        Ok((make(first, &left, &right), make(second, &right, &left)))
    }

    /// Makes a frame arrive here with a time of its own.
    pub fn inject(&self, frame: &[u8], at: Timestamp) {
        self.incoming.push(frame.to_vec(), at, self.capacity);
    }

    /// Makes a frame arrive at the other port with a time of its own.
    pub fn deliver(&self, frame: &[u8], at: Timestamp) {
        self.outgoing.push(frame.to_vec(), at, self.capacity);
    }

    /// Takes the next frame that has arrived, without a batch.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let (frame, _) = self.incoming.lock().pop_front()?;
        self.stats.note_received(&frame);
        Some(frame)
    }

    fn queue(&mut self, info: &FrameInfo, frame: &[u8]) -> Result<(), SendRefusal> {
        let result = if let Err(refusal) = info.refusal() {
            Err(refusal)
        } else if frame.len() < 14 {
            Err(SendRefusal::TooShort)
        } else if frame.len() > self.mtu as usize + 18 {
            Err(SendRefusal::TooLarge)
        } else if self.waiting.len() >= self.capacity {
            Err(SendRefusal::RingFull)
        } else {
            self.waiting.push(frame.to_vec());
            Ok(())
        };
        if let Err(refusal) = result {
            self.stats.send_failures.add(refusal, 1);
        }
        result
    }
}

impl Drop for TestPort {
    fn drop(&mut self) {
        self.outgoing.closed.store(true, Ordering::Release);
        sys::event_set(self.outgoing.event.as_fd());
    }
}

impl Port for TestPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn mtu(&self) -> u32 {
        self.mtu
    }

    fn mac(&self) -> [u8; 6] {
        // Locally administered; the name's bytes make it unique.
        let sum = self.name.bytes().fold(0u32, |sum, byte| sum.rotate_left(5) ^ u32::from(byte));
        let [a, b, c, d] = sum.to_be_bytes();
        [2, 0, a, b, c, d]
    }

    fn receive(&mut self, batch: &mut Batch) -> Result<usize, PortError> {
        batch.clear();
        let mut frames = self.incoming.lock();
        while batch.has_room() {
            let Some((frame, timestamp)) = frames.pop_front() else {
                if !self.incoming.closed.load(Ordering::Acquire) {
                    sys::event_clear(self.incoming.event.as_fd());
                }
                break;
            };
            let wire_length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            batch.push_copy(&frame, FrameInfo { timestamp, wire_length, ..FrameInfo::default() });
            self.stats.note_received(&frame);
        }
        Ok(batch.len())
    }

    fn transmit(&mut self, batch: &mut Batch) -> usize {
        batch.send_each(|info, frame| self.queue(info, frame))
    }

    fn transmit_frame(&mut self, frame: &[u8]) -> Result<(), SendRefusal> {
        self.queue(&FrameInfo::default(), frame)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if !self.waiting.is_empty() {
            self.stats.send_calls += 1;
        }
        for frame in self.waiting.drain(..) {
            self.stats.note_sent(&TransmitCounts::one(&frame));
            self.outgoing.push(frame, self.clock.now(), self.capacity);
        }
        Ok(())
    }

    fn pending(&self) -> usize {
        self.waiting.len()
    }

    fn ready(&self) -> bool {
        !self.incoming.lock().is_empty()
    }

    fn pressed(&self) -> bool {
        self.incoming.lock().len() >= self.capacity.div_ceil(2)
    }

    fn backlog(&self) -> u8 {
        let waiting = self.incoming.lock().len();
        backlog_of(|part| waiting > self.capacity * usize::from(part) / usize::from(BACKLOG_PARTS))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.incoming.event.as_fd())
    }

    fn woken(&mut self, _failed: bool) -> Result<(), PortError> {
        self.stats.sleeps += 1;
        Ok(())
    }

    fn stats(&mut self) -> PortStats {
        self.stats.ring_dropped = self.incoming.dropped.load(Ordering::Relaxed);
        self.stats.ring_received = self.stats.received + self.incoming.lock().len() as u64;
        self.stats
    }

    fn now(&mut self) -> Timestamp {
        self.clock.now()
    }

    fn ended(&self) -> bool {
        self.incoming.closed.load(Ordering::Acquire) && !self.ready()
    }
}

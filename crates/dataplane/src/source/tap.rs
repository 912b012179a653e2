// SPDX-License-Identifier: Apache-2.0
//! The source of a tap: one watched port.

use super::prepare::{FrameReader, checksums_of, frame_of, newest_of};
use super::{Arrivals, Source, Taken};
use crate::worker::Worker;
use bartizan_base::{PacketDuration, Timestamp};
use bartizan_ports::{Batch, FrameFlags, Port, PortError, PortStats, Waker, Woke, busy_poll_any, wait_any};
use std::time::Duration;

/// The source; see the module.
pub struct TapSource {
    // Dropped before the port: frames return to a ring that still exists.
    batch: Batch,
    port: Box<dyn Port>,
    reader: FrameReader,
}

impl TapSource {
    /// The source of a port.
    #[must_use]
    pub fn new(port: Box<dyn Port>) -> Self {
        TapSource { batch: Batch::with_capacity(0), port, reader: FrameReader::default() }
    }
}

impl Source for TapSource {
    fn begin(&mut self, worker: &mut Worker, batch: usize) {
        self.batch = Batch::with_capacity(batch);
        self.reader = FrameReader::new(worker);
    }

    fn take(&mut self, arrivals: &mut Arrivals<'_>) -> Result<Taken, PortError> {
        let TapSource { batch, port, reader } = self;
        port.receive(batch)?;
        let newest = newest_of(batch);
        let frames = reader.split(batch, arrivals.counters);
        let link = arrivals.link();
        for index in 0..frames {
            let Some((frame, info)) = frame_of(batch, index, link) else { continue };
            if info.flags.contains(FrameFlags::DUPLICATE) {
                arrivals.duplicate();
            } else {
                arrivals.watch(&frame, checksums_of(info.flags));
            }
        }
        batch.clear();
        Ok(Taken { frames, newest, ..Taken::default() })
    }

    fn each_port(&mut self, each: &mut dyn FnMut(&str, &PortStats, u64)) {
        let stats = self.port.stats();
        each(self.port.name(), &stats, self.port.pending() as u64);
    }

    fn now(&mut self) -> Timestamp {
        self.port.now()
    }

    fn backlog(&self) -> u8 {
        self.port.backlog()
    }

    fn visible_until(&mut self) -> (Timestamp, PacketDuration) {
        (self.port.now(), self.port.delay())
    }

    fn busy_poll(&mut self, else_ready: &dyn Fn() -> bool, spin: Duration) -> bool {
        busy_poll_any(&[&mut *self.port], else_ready, spin)
    }

    fn wait(&mut self, waker: Option<&Waker>, timeout: Duration) -> Result<Woke, PortError> {
        wait_any(&mut [&mut *self.port], waker, Duration::ZERO, timeout)
    }
}

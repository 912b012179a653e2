// SPDX-License-Identifier: Apache-2.0
//! The source of a tap of several interfaces: ports watched as one, in the order of their frames' timestamps.
//! Each interface goes and comes back by itself, with a slot of its own.

use super::prepare::{FrameReader, checksums_of, frame_of};
use super::slot::Slot;
use super::{Arrivals, Source, Taken};
use crate::worker::Worker;
use bartizan_base::{PacketDuration, Timestamp};
use bartizan_ports::{MergedTap, Port, PortError, PortStats, Waker, Woke};
use std::sync::Arc;
use std::time::Duration;

/// The source; see the module.
pub struct MergedSource {
    tap: MergedTap,
    /// A slot for each port, where ports come and go.
    slots: Vec<Arc<Slot<Box<dyn Port>>>>,
    reader: FrameReader,
    /// Most frames of one turn.
    batch: usize,
}

impl MergedSource {
    /// The source of a merged tap. `slots`: supply ports that replace lost ones, in the order of the ports;
    /// empty: lost ports are not replaced.
    #[must_use]
    pub fn new(tap: MergedTap, slots: Vec<Arc<Slot<Box<dyn Port>>>>) -> Self {
        MergedSource { tap, slots, reader: FrameReader::default(), batch: 0 }
    }
}

impl Source for MergedSource {
    fn begin(&mut self, worker: &mut Worker, batch: usize) {
        self.reader = FrameReader::new(worker);
        self.batch = batch;
    }

    fn take(&mut self, arrivals: &mut Arrivals<'_>) -> Result<Taken, PortError> {
        let MergedSource { tap, reader, .. } = self;
        let (link, all) = (arrivals.link(), arrivals.is_stopping());
        let mut seen = Taken::default();
        tap.begin_turn();
        while seen.frames < self.batch {
            let taken = tap.next(all, &mut |batch| {
                reader.split(batch, arrivals.counters);
            });
            let Some(taken) = taken else { break };
            seen.frames += 1;
            let frame = tap.batch(taken.source).and_then(|batch| frame_of(batch, taken.index, link));
            let Some((frame, info)) = frame else { continue };
            seen.newest = info.timestamp;
            if taken.duplicate {
                arrivals.duplicate();
            } else {
                arrivals.watch(&frame, checksums_of(info.flags));
            }
        }
        Ok(seen)
    }

    /// Releases ports that failed or that the supervisor requests, and takes those that are offered.
    fn change_ports(&mut self) {
        let MergedSource { tap, slots, .. } = self;
        for (at, slot) in slots.iter().enumerate() {
            if let Some(why) = tap.take_left(at) {
                slot.left(why);
            }
            if tap.has_port(at) {
                if slot.is_to_be_left() {
                    tap.leave(at);
                }
            } else if let Some(port) = slot.take() {
                tap.attach(at, port);
            }
        }
    }

    fn each_port(&mut self, each: &mut dyn FnMut(&str, &PortStats, u64)) {
        self.tap.each_stats(|name, stats| each(name, stats, 0));
    }

    fn now(&mut self) -> Timestamp {
        self.tap.now()
    }

    fn backlog(&self) -> u8 {
        self.tap.backlog()
    }

    fn visible_until(&mut self) -> (Timestamp, PacketDuration) {
        self.tap.shows()
    }

    fn busy_poll(&mut self, else_ready: &dyn Fn() -> bool, spin: Duration) -> bool {
        self.tap.busy_poll(else_ready, spin)
    }

    fn wait(&mut self, waker: Option<&Waker>, timeout: Duration) -> Result<Woke, PortError> {
        self.tap.wait(waker, timeout)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Sources: the ports that a worker's packets come from and, for an inline link, leave by.
//!
//! A [`Source`] belongs to one worker. The worker's driver ([`crate::driver`]) calls
//! [`Source::take`] once a turn; the source passes each frame that has arrived to [`Arrivals`] and
//! carries out the worker's decision. Frames are pushed, not pulled: those of a ring are not copied, and
//! those of a merged tap lie in the batches of several rings.
//!
//! ```text
//!   driver            source                    worker
//!     |--- take ------->|                          |
//!     |                 |--- Arrivals::frame ----->|   (may hand the frame over to another worker)
//!     |                 |<-- decision -------------|
//!     |                 |  sends, cuts, rejects    |
//!     |<-- Taken -------|                          |
//!     |--- deliver ---->|   frames that other workers handed over and this one decided
//!     |--- flush ------>|
//! ```
//!
//! A source delivers frames, or bytes of connections in order ([`ByteFlow`]).
//!
//! The sources: [`InlineSource`] (two ports that forward to each other), [`TapSource`] (one watched port),
//! [`MergedSource`] (several ports watched as one). A [`Slot`] supplies a worker with another source when the
//! present one is gone.

pub(crate) mod inline;
mod merged;
mod prepare;
mod slot;
mod tap;

use crate::counters::LiveCounters;
use crate::handover::{Handled, Station};
use crate::worker::{ByteArrival, ByteFlow, DatagramArrival, Frame, Worker};
use bartizan_base::{Decision, Generation, LinkId, PacketDuration, Timestamp};
use bartizan_offload::level::FramePath;
use bartizan_packet::Checksums;
use bartizan_ports::{PortError, PortStats, Waker, Woke};
use bartizan_stages::record::Recorder;
use std::sync::Arc;
use std::time::Duration;

pub use inline::InlineSource;
pub use merged::MergedSource;
pub use slot::Slot;
pub use tap::TapSource;

/// A source of one worker's packets.
pub trait Source: Send {
    /// Whether frames leave by the source; otherwise they are only watched.
    fn forwards(&self) -> bool {
        false
    }

    /// Whether recorded packets are replayed: time passes with them alone, and the source waits for the
    /// worker, which waits for the readers of its events. Live, nobody waits for a worker, and a silent
    /// link's flows end by the clock.
    fn replays(&self) -> bool {
        false
    }

    /// Shows frames to a level of this process before the worker, where the source can.
    fn pass_through(&mut self, level: LevelWay) {
        let _ = level;
    }

    /// Prepares for a worker: called once, before anything else. `batch`: most frames of one turn.
    fn begin(&mut self, worker: &mut Worker, batch: usize);

    /// Passes the frames that have arrived to `arrivals`, without waiting for more, and carries out the
    /// worker's decision on each.
    ///
    /// # Errors
    /// A port has failed for good.
    fn take(&mut self, arrivals: &mut Arrivals<'_>) -> Result<Taken, PortError>;

    /// Takes its leave of the worker, whose flows have ended: called once, after everything else.
    fn end(&mut self, worker: &mut Worker) {
        let _ = worker;
    }

    /// Carries out the decision on a frame that another worker handed over to this one.
    fn deliver(&mut self, worker: &mut Worker, handed: &HandedOver<'_>, counters: &mut LiveCounters) {
        let _ = (worker, handed, counters);
    }

    /// Sends the frames that [`Source::deliver`] left in rings.
    ///
    /// # Errors
    /// A port has failed for good.
    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    /// Whether records of frames that a port did not take are pending.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Writes the records of frames that a port did not take: those due at `now`, all without `now`.
    fn report_unsent(&mut self, now: Option<Timestamp>, generation: Generation, recorder: &mut dyn Recorder) {
        let _ = (now, generation, recorder);
    }

    /// Exchanges single ports, where ports come and go one by one ([`MergedSource`]).
    fn change_ports(&mut self) {}

    /// Visits each port: name, counters, frames waiting in its transmit ring.
    fn each_port(&mut self, each: &mut dyn FnMut(&str, &PortStats, u64));

    /// The clock that stamps frames.
    fn now(&mut self) -> Timestamp;

    /// Fill of the fullest receive ring, in eighths.
    fn backlog(&self) -> u8 {
        0
    }

    /// The clock that stamps frames, and the longest time between a frame's arrival and the call of
    /// [`Source::take`] that sees it.
    fn visible_until(&mut self) -> (Timestamp, PacketDuration) {
        (self.now(), PacketDuration::ZERO)
    }

    /// Polls for frames for the time `spin` without sleeping. Returns whether there are some, or `else_ready`
    /// holds.
    fn busy_poll(&mut self, else_ready: &dyn Fn() -> bool, spin: Duration) -> bool;

    /// Sleeps until a frame arrives, `waker` is triggered or `timeout` is over.
    ///
    /// # Errors
    /// A port has failed for good.
    fn wait(&mut self, waker: Option<&Waker>, timeout: Duration) -> Result<Woke, PortError>;
}

/// The way of a link's frames through a level of this process.
#[derive(Clone)]
pub struct LevelWay {
    /// The way.
    pub path: Arc<dyn FramePath>,
    /// Numbers of the link's two ports at the level.
    pub ports: [u8; 2],
}

/// The result of [`Source::take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Number of frames.
    pub frames: usize,
    /// Time of the newest frame of a watched source; zero if there was none.
    pub newest: Timestamp,
    /// Whether the source has come to its end: no frame follows.
    pub has_ended: bool,
}

/// A frame that another worker handed over and that was decided here.
pub struct HandedOver<'f> {
    /// The frame.
    pub frame: &'f Frame<'f>,
    /// The decision on the frame.
    pub decision: Decision,
    /// The tag that the source gave with the frame to [`Arrivals::frame`]; it identifies the ingress port.
    pub tag: u32,
}

/// A worker that takes the frames of a source.
pub struct Arrivals<'d> {
    pub(crate) station: &'d mut Station,
    pub(crate) recorder: &'d mut dyn Recorder,
    pub(crate) counters: &'d mut LiveCounters,
    pub(crate) link: LinkId,
    pub(crate) stopping: bool,
}

impl Arrivals<'_> {
    /// The link that the frames come in by.
    #[must_use]
    pub const fn link(&self) -> LinkId {
        self.link
    }

    /// Whether the run is about to end: frames that a source holds back are taken now.
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Prefetches the flows of the next frames of a batch, as many as fit. `side`: the tag that the frames
    /// have.
    pub(crate) fn expect<'f>(&self, frames: impl Iterator<Item = &'f [u8]>, side: u32) {
        self.station.worker().expect(frames, self.link, side);
    }

    /// Handles a frame that is only watched.
    pub fn watch(&mut self, frame: &Frame<'_>, checksums: Checksums) {
        self.station.worker_mut().arrives_with(checksums);
        self.station.frame(frame, 0, self.recorder);
    }

    /// Handles a frame of an inline link. `tag` travels with the frame if another worker decides it
    /// ([`HandedOver::tag`]); `follows`: the next frame continues its TCP segment
    /// ([`Worker::frame_in_batch`]). Returns the decision, if it is made immediately.
    pub fn frame(
        &mut self,
        frame: &Frame<'_>,
        checksums: Checksums,
        tag: u32,
        follows: bool,
    ) -> Option<Decision> {
        self.station.worker_mut().arrives_with(checksums);
        match self.station.frame_in_batch(frame, tag, follows, self.recorder) {
            Some(Handled::Here(decision)) => Some(decision),
            _ => None,
        }
    }

    /// Opens a connection whose bytes arrive in order ([`Worker::open_bytes`]). Returns the decision on it.
    pub fn open_bytes(&mut self, flow: &mut ByteFlow, now: Timestamp) -> Decision {
        self.station.worker_mut().open_bytes(flow, now, self.recorder)
    }

    /// Handles bytes of such a connection ([`Worker::bytes`]). The decision says whether they may be
    /// delivered.
    pub fn bytes(&mut self, flow: &mut ByteFlow, arrival: &ByteArrival<'_>) -> Decision {
        self.station.worker_mut().bytes(flow, arrival, self.recorder)
    }

    /// Handles a datagram that arrived without its headers ([`Worker::datagram`]).
    pub fn datagram(&mut self, arrival: &DatagramArrival<'_>) -> Decision {
        self.station.worker_mut().datagram(arrival, self.recorder)
    }

    /// The bytes that leave in the place of those handled last, if rules replaced some
    /// ([`Worker::take_replaced`]).
    pub fn take_replaced(&mut self) -> Option<Vec<u8>> {
        let replaced = self.station.worker_mut().take_replaced()?;
        self.counters.normaliser.replaced += 1;
        Some(replaced)
    }

    /// Ends a connection that the source is done with ([`Worker::close_bytes`]).
    pub fn close_bytes(&mut self, flow: &mut ByteFlow, now: Timestamp) {
        self.station.worker_mut().close_bytes(flow, now, self.recorder);
    }

    /// Announces the capture that the following frames come from.
    pub fn enter_capture(&mut self, name: &str) {
        self.recorder.enter_capture(name);
    }

    /// The worker's clock: the time of the newest frame.
    #[must_use]
    pub fn clock(&self) -> Timestamp {
        self.station.worker().clock()
    }

    /// Advances the worker's time for a frame that a level of this process has handled.
    pub fn passed_below(&mut self, now: Timestamp) {
        self.station.worker_mut().pass_frame(now, self.recorder);
    }

    /// The worker and the recorder of its events, for a source that hands the worker packets instead of
    /// frames.
    pub(crate) fn parts(&mut self) -> (&mut Worker, &mut dyn Recorder) {
        (self.station.worker_mut(), self.recorder)
    }

    /// The worker, for a source whose frames leave: supplies the change that a frame needs
    /// ([`Worker::take_rewrite`]), and held fragments that leave before the frame
    /// ([`Worker::take_released`]).
    pub const fn worker_mut(&mut self) -> &mut Worker {
        self.station.worker_mut()
    }

    /// Counts a frame that was not inspected: the second copy of a pair.
    pub const fn duplicate(&mut self) {
        self.counters.duplicates += 1;
    }
}

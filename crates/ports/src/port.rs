// SPDX-License-Identifier: Apache-2.0
//! The interface of every source and sink of packets.

use crate::batch::Batch;
use crate::error::PortError;
use crate::refusal::{SendFailures, SendRefusal};
use bartizan_base::{PacketDuration, Timestamp};
use bartizan_packet::casts::{Casts, add_casts, cast_of};
use bartizan_packet::sizes::{Sizes, size_class};
use std::os::fd::BorrowedFd;

/// The largest supported frame, in bytes, VLAN tags included.
pub const MAX_FRAME: usize = 65_535;

/// The counters of a port since it was opened. All numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames handed out.
    pub received: u64,
    /// Bytes of these frames on the wire, also of cut ones, without the frame checksum.
    pub received_bytes: u64,
    /// Received frames by the kind of their destination ([`bartizan_packet::casts`]). Without a link layer
    /// all are unicast.
    pub received_casts: Casts,
    /// Received frames by their size.
    pub received_sizes: Sizes,
    /// Frames that arrived while the receive ring was full: lost (the kernel's counter).
    pub ring_dropped: u64,
    /// Frames that the kernel put into the ring (the kernel's counter): `received` + `skipped` + those still
    /// in the ring.
    pub ring_received: u64,
    /// Frames larger than a ring slot, or than the snap length of a passive port: they were cut (and, with
    /// `copied`, fetched whole).
    pub oversized: u64,
    /// Oversized frames fetched whole with a system call each.
    pub copied: u64,
    /// Frames not handed out because this host sent them or their ring header is invalid.
    pub skipped: u64,
    /// Frames whose checksum the sender left to hardware that does not exist.
    pub checksum_pending: u64,
    /// Frames with the kernel's timestamp although the device should stamp them.
    pub unstamped: u64,
    /// Frames handed to the device.
    pub sent: u64,
    /// Bytes of these frames.
    pub sent_bytes: u64,
    /// Sent frames by the kind of their destination.
    pub sent_casts: Casts,
    /// Frames not sent, by reason. `sent` + this + those that wait for a flush = frames given to the port.
    pub send_failures: SendFailures,
    /// System calls for sending.
    pub send_calls: u64,
    /// System calls for sleeping.
    pub sleeps: u64,
    /// The number of times that the interface went down.
    pub went_down: u64,
    /// For a tap of several interfaces ([`crate::MergedTap`]): frames that waited for an older one of another
    /// interface.
    pub merge_waited: u64,
    /// Frames that arrived after a newer one of another interface of their tap had been handed out.
    pub merge_late: u64,
    /// Frames that waited less than the limit, since a ring of their tap was half full.
    pub merge_pressed: u64,
}

impl PortStats {
    /// Counts a whole frame handed out.
    pub(crate) fn note_received(&mut self, frame: &[u8]) {
        self.received += 1;
        self.received_bytes += frame.len() as u64;
        for (counts, class) in [
            (&mut self.received_sizes[..], size_class(frame.len())),
            (&mut self.received_casts[..], cast_of(frame)),
        ] {
            if let Some(count) = counts.get_mut(class) {
                *count += 1;
            }
        }
    }

    /// Counts sent frames.
    pub(crate) fn note_sent(&mut self, sent: &TransmitCounts) {
        self.sent += sent.frames;
        self.sent_bytes += sent.bytes;
        add_casts(&mut self.sent_casts, &sent.casts);
    }

    /// The sums of the counters of two ports.
    #[must_use]
    pub fn plus(mut self, other: &PortStats) -> PortStats {
        // Every field by name, so that a new one is not forgotten here.
        let PortStats {
            received,
            received_bytes,
            received_casts,
            received_sizes,
            ring_dropped,
            ring_received,
            oversized,
            copied,
            skipped,
            checksum_pending,
            unstamped,
            sent,
            sent_bytes,
            sent_casts,
            send_failures,
            send_calls,
            sleeps,
            went_down,
            merge_waited,
            merge_late,
            merge_pressed,
        } = other;
        self.received += received;
        self.received_bytes += received_bytes;
        add_casts(&mut self.received_casts, received_casts);
        self.received_sizes.iter_mut().zip(received_sizes).for_each(|(sum, part)| *sum += part);
        self.ring_dropped += ring_dropped;
        self.ring_received += ring_received;
        self.oversized += oversized;
        self.copied += copied;
        self.skipped += skipped;
        self.checksum_pending += checksum_pending;
        self.unstamped += unstamped;
        self.sent += sent;
        self.sent_bytes += sent_bytes;
        add_casts(&mut self.sent_casts, sent_casts);
        for (refusal, frames) in send_failures.iter() {
            self.send_failures.add(refusal, frames);
        }
        self.send_calls += send_calls;
        self.sleeps += sleeps;
        self.went_down += went_down;
        self.merge_waited += merge_waited;
        self.merge_late += merge_late;
        self.merge_pressed += merge_pressed;
        self
    }
}

/// The frames that a device has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TransmitCounts {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) casts: Casts,
}

impl TransmitCounts {
    /// Adds a frame of so many bytes and of a kind ([`cast_of`]).
    pub(crate) fn add(&mut self, length: u64, cast: usize) {
        self.frames += 1;
        self.bytes += length;
        if let Some(count) = self.casts.get_mut(cast) {
            *count += 1;
        }
    }

    /// Makes the counts of one frame.
    pub(crate) fn one(frame: &[u8]) -> Self {
        let mut sent = TransmitCounts::default();
        sent.add(frame.len() as u64, cast_of(frame));
        sent
    }
}

impl PortStats {
    /// Frames with only their first bytes handed out.
    #[must_use]
    pub const fn cut(&self) -> u64 {
        self.oversized.saturating_sub(self.copied)
    }

    /// The counters of one interface of a tap of several: name and frames.
    #[must_use]
    pub const fn merged(&self) -> [(&'static str, u64); 3] {
        [("waited", self.merge_waited), ("late", self.merge_late), ("pressed", self.merge_pressed)]
    }
}

/// The number of parts of a receive ring that [`Port::backlog`] counts.
pub const BACKLOG_PARTS: u8 = 8;

/// The backlog of a ring; `waits` returns whether the first slot of a part is ready to be taken. Slots are
/// taken in order, so all before a ready one are ready, too.
pub(crate) fn backlog_of(waits: impl Fn(u8) -> bool) -> u8 {
    (1..BACKLOG_PARTS).take_while(|part| waits(*part)).last().unwrap_or(0)
}

/// The header that the first byte of a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet II / 802.3.
    Ethernet,
    /// No link layer: IPv4 or IPv6, by the version field (TUN devices).
    RawIp,
}

/// A source and sink of packets, used by one worker.
///
/// The order of a turn is: [`receive`](Port::receive), process the frames, mark those to be sent,
/// [`transmit`](Port::transmit) on the egress port, [`flush`](Port::flush) there, and again. When `receive`
/// returned none, sleep with [`crate::wait::wait_any`].
pub trait Port: Send {
    /// The name of the port for the operator (that of the interface, if it has one).
    fn name(&self) -> &str;

    /// The largest network-layer packet in bytes (without the link-layer header).
    fn mtu(&self) -> u32;

    /// The link-layer address; zeros if it has none.
    fn mac(&self) -> [u8; 6];

    /// The first header of its frames.
    fn link_layer(&self) -> LinkLayer {
        LinkLayer::Ethernet
    }

    /// Returns the frames of `batch` to the ring, then fills it with the frames present **now**, up to its
    /// capacity: never waits. Returns the number of frames.
    ///
    /// # Errors
    /// [`PortError::BatchHeld`] when another batch still holds frames of this port, [`PortError::Gone`] when
    /// the interface does not exist any more.
    fn receive(&mut self, batch: &mut Batch) -> Result<usize, PortError>;

    /// Takes all frames of `batch` marked [`crate::Disposition::Forward`] and notes the outcome of each.
    /// Returns the number taken. They may wait for [`flush`](Port::flush).
    fn transmit(&mut self, batch: &mut Batch) -> usize;

    /// Takes one frame that is in no batch (made by the normaliser).
    ///
    /// # Errors
    /// The reason why it is not taken, which is counted too.
    fn transmit_frame(&mut self, frame: &[u8]) -> Result<(), SendRefusal>;

    /// Sends the frames that wait, with one system call where the kernel takes all of them. Frames that the
    /// device refuses are counted; frames that it cannot take *yet* wait for the next flush.
    ///
    /// # Errors
    /// [`PortError::Gone`] when the interface does not exist any more.
    fn flush(&mut self) -> Result<(), PortError>;

    /// The number of frames that wait for a flush.
    fn pending(&self) -> usize {
        0
    }

    /// Whether `receive` would return a frame. No system call.
    fn ready(&self) -> bool;

    /// Whether its receive ring is half full, so that frames should be taken soon. No system call.
    fn pressed(&self) -> bool {
        false
    }

    /// Eighths of its receive ring that are filled with waiting frames, rounded down. Call it while no batch
    /// holds frames of the port: those count as well. No system call.
    fn backlog(&self) -> u8 {
        0
    }

    /// The descriptor to sleep on; `None` when the port is always ready or is woken otherwise.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Call this when a sleep ended; `failed`: the kernel reported an error for the descriptor.
    ///
    /// # Errors
    /// [`PortError::Gone`] when the interface does not exist any more.
    fn woken(&mut self, failed: bool) -> Result<(), PortError> {
        let _ = failed;
        Ok(())
    }

    /// The counters so far. Reads the kernel's: not for every packet.
    fn stats(&mut self) -> PortStats;

    /// The port's clock, which advances without packets and never goes back.
    fn now(&mut self) -> Timestamp;

    /// The longest time between a frame's arrival and the call that receives it, if the kernel holds frames
    /// back.
    fn delay(&self) -> PacketDuration {
        PacketDuration::ZERO
    }

    /// Whether no packet will ever come again (end of a capture).
    fn ended(&self) -> bool {
        false
    }
}

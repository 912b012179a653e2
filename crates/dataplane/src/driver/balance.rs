// SPDX-License-Identifier: Apache-2.0
//! The balance of a run: every received frame is counted in exactly one of its sums.

use crate::counters::LiveCounters;
use crate::worker::WorkerCounters;
use bartizan_ports::PortStats;

/// Sums of the frames of an inline run over workers and ports, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Frames received from the ports, and frames made by splitting combined datagrams.
    pub received: u64,
    /// Frames with a forwarding verdict.
    pub forwarded: u64,
    /// Frames that were refused, for any reason.
    pub refused: u64,
    /// Frames in transit between workers when one of them ended by a defect.
    pub under_way: u64,
    /// Watched frames that were the second copy of a pair and were not inspected.
    pub duplicates: u64,
    /// Frames made by the normaliser: answers to rejected packets, segments beyond the first of a large
    /// frame.
    pub made: u64,
    /// Frames given to devices.
    pub sent: u64,
    /// Frames that their egress port refused.
    pub not_sent: u64,
    /// Frames left in a transmit ring at the end.
    pub waiting: u64,
    /// Frames that had to leave and could not: a change did not fit, only part of the frame was captured, or
    /// their link was gone.
    pub not_given: u64,
}

impl Balance {
    /// Adds the counters of a worker and its live loop.
    pub fn add(&mut self, counters: &WorkerCounters, live: &LiveCounters) {
        self.received += live.normaliser.datagrams;
        self.forwarded += counters.forwarded + counters.let_go + live.level_forwarded;
        self.refused += counters.refused.iter().sum::<u64>().saturating_sub(counters.let_go);
        self.refused += live.level_dropped;
        self.under_way += live.under_way;
        self.duplicates += live.duplicates;
        self.made += live.normaliser.resets + live.normaliser.unreachables + live.normaliser.pieces;
        self.not_given += live.unwritable + live.incomplete + live.gone;
    }

    /// Adds the counters of a port.
    pub fn add_port(&mut self, stats: &PortStats, waiting: u64) {
        self.received += stats.received;
        self.sent += stats.sent;
        self.not_sent += stats.send_failures.total();
        self.waiting += waiting;
    }

    /// The first half of the balance, and the whole balance if frames are only watched: received =
    /// forwarded + dropped + pending + duplicates.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        self.received == self.forwarded + self.refused + self.under_way + self.duplicates
    }

    /// Whether every frame is counted once: [`Self::is_taken`], and forwarded + made = sent + not sent +
    /// waiting + not given.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.is_taken()
            && self.forwarded + self.made == self.sent + self.not_sent + self.waiting + self.not_given
    }
}

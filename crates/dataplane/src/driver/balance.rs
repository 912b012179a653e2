// SPDX-License-Identifier: Apache-2.0
//! The balance of a run: each frame that came in is in one of its sums.

use crate::counters::LiveCounters;
use crate::worker::WorkerCounters;
use bartizan_ports::PortStats;

/// Where the frames of an inline run went, summed over workers and ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Handed out by the ports, and what was made by taking datagrams apart.
    pub received: u64,
    /// Decided to leave.
    pub forwarded: u64,
    /// Refused, by whatever reason.
    pub refused: u64,
    /// Under way between workers when one of them ended by a defect.
    pub under_way: u64,
    /// Watched ones that were not looked at: the second of a pair.
    pub duplicates: u64,
    /// Made by the normaliser: answers to rejected packets, segments beyond the first of a large frame.
    pub made: u64,
    /// Given to devices.
    pub sent: u64,
    /// Refused by the port that they were to leave by.
    pub not_sent: u64,
    /// Waiting in a transmit ring at the end.
    pub waiting: u64,
    /// Were to leave, and could not be: a change did not fit, only a part of the frame was here, or their
    /// link was gone.
    pub not_given: u64,
}

impl Balance {
    /// Adds a worker with its ports.
    pub fn add(&mut self, counters: &WorkerCounters, live: &LiveCounters) {
        self.received += live.normaliser.datagrams;
        self.forwarded += counters.forwarded + counters.let_go;
        self.refused += counters.refused.iter().sum::<u64>().saturating_sub(counters.let_go);
        self.under_way += live.under_way;
        self.duplicates += live.duplicates;
        self.made += live.normaliser.resets + live.normaliser.unreachables + live.normaliser.pieces;
        self.not_given += live.unwritable + live.incomplete + live.gone;
    }

    /// Adds a port.
    pub fn add_port(&mut self, stats: &PortStats, waiting: u64) {
        self.received += stats.received;
        self.sent += stats.sent;
        self.not_sent += stats.send_failures.total();
        self.waiting += waiting;
    }

    /// The first half, all there is where frames are only watched: received = forwarded + refused + under way
    /// + duplicates.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        self.received == self.forwarded + self.refused + self.under_way + self.duplicates
    }

    /// Whether every frame is in one place: received = forwarded + refused + under way, and forwarded + made
    /// = sent + not sent + waiting + not given.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.is_taken()
            && self.forwarded + self.made == self.sent + self.not_sent + self.waiting + self.not_given
    }
}

// SPDX-License-Identifier: Apache-2.0
//! What became of a fragment.

use super::counters::{DefragEvents, DropReason};
use super::datagram::DatagramId;

/// What became of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefragResult {
    /// It waits for others.
    Held,
    /// It was the last one missing: the buffer holds the datagram, from its IP header on.
    Complete,
    /// It is not kept.
    Dropped(DropReason),
}

/// What became of a fragment, and the events on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefragOutcome {
    /// Held, complete or dropped.
    pub result: DefragResult,
    /// Decoder events that the fragment's packet gets.
    pub events: DefragEvents,
    /// Strict, unless dropped: the datagram. One that is whole wants to hear whether it may go; with
    /// [`super::DefragConfig::hold`] every fragment's frame is to be attached, passed or refused.
    pub datagram: Option<DatagramId>,
}

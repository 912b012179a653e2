// SPDX-License-Identifier: Apache-2.0
//! The results of defragmentation for one fragment.

use super::counters::{DefragEvents, DropReason};
use super::datagram::DatagramId;

/// The result of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefragResult {
    /// The fragment waits for others.
    Held,
    /// The fragment was the last one missing: the buffer has the datagram, from its IP header on.
    Complete,
    /// The fragment is not kept.
    Dropped(DropReason),
}

/// The result of a fragment, and its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefragOutcome {
    /// The result.
    pub result: DefragResult,
    /// Decoder events that the fragment's packet gets.
    pub events: DefragEvents,
    /// The datagram that the fragment belongs to, in strict mode, unless dropped. A whole datagram needs a
    /// decision; with [`super::DefragConfig::hold`] the frame of every fragment must be attached, passed or
    /// refused.
    pub datagram: Option<DatagramId>,
}

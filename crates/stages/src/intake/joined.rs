// SPDX-License-Identifier: Apache-2.0
//! The datagrams to which the fragments of a frame belong.

use crate::frame::MAX_DEPTH;
use bartizan_packet::defrag::DatagramId;

/// The datagrams to which the fragments of the current frame belong. Prevention only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Joined {
    /// The complete datagrams, outermost first; at most the maximum nesting.
    pub whole: [Option<DatagramId>; MAX_DEPTH as usize],
    /// The innermost datagram, if it is incomplete.
    pub waiting: Option<DatagramId>,
}

impl Joined {
    /// Whether the frame belongs to no datagram.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_none() && self.whole.first().is_none_or(Option::is_none)
    }

    /// Adds a complete datagram.
    pub fn push_whole(&mut self, id: DatagramId) {
        if let Some(place) = self.whole.iter_mut().find(|place| place.is_none()) {
            *place = Some(id);
        }
    }
}

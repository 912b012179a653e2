// SPDX-License-Identifier: Apache-2.0
//! The datagrams that fragments of a frame were put to.

use crate::frame::MAX_DEPTH;
use bartizan_packet::defrag::DatagramId;

/// The datagrams that fragments of the frame in hand were put to. Prevention only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Joined {
    /// Those that are whole, outermost first; as many as lie in each other at most.
    pub whole: [Option<DatagramId>; MAX_DEPTH as usize],
    /// The innermost, if it is not whole.
    pub waiting: Option<DatagramId>,
}

impl Joined {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_none() && self.whole.first().is_none_or(Option::is_none)
    }

    /// Notes a datagram that is whole.
    pub fn push_whole(&mut self, id: DatagramId) {
        if let Some(place) = self.whole.iter_mut().find(|place| place.is_none()) {
            *place = Some(id);
        }
    }
}

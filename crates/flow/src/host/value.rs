// SPDX-License-Identifier: Apache-2.0
//! What the host table asks of what it holds.

use bartizan_base::Timestamp;

/// What a [`super::HostTable`] can hold.
pub trait HostValue: Default {
    /// Until when it has to be kept: `now` or earlier once there is nothing left in it.
    /// Parts that have expired at `now` may be dropped here.
    fn keep_until(&mut self, now: Timestamp) -> Timestamp;

    /// How many things did not fit into it since this was asked last.
    fn take_refused(&mut self) -> u64 {
        0
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The requirements of the host table on its values.

use bartizan_base::Timestamp;

/// A value that a [`super::HostTable`] can hold.
pub trait HostValue: Default {
    /// Time until which the value has to be kept: `now` or earlier once it is empty. May drop parts that have
    /// expired at `now`.
    fn keep_until(&mut self, now: Timestamp) -> Timestamp;

    /// Number of items that did not fit into the value since the last call.
    fn take_refused(&mut self) -> u64 {
        0
    }
}

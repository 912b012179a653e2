// SPDX-License-Identifier: Apache-2.0
//! The packet clock.
//!
//! Time in the data plane is the time of the packets: of the capture file, or of a live port, whose clock
//! advances without packets. No crate below the program reads the wall clock.

use core::ops::{Add, Sub};

/// A point on the packet clock: nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(u64);

/// A span on the packet clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketDuration(u64);

impl Timestamp {
    /// The beginning of the epoch; also "never" for unset fields.
    pub const ZERO: Timestamp = Timestamp(0);

    /// From nanoseconds since the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Timestamp(nanos)
    }

    /// From seconds and nanoseconds, saturating at the end of the range (year 2554).
    #[must_use]
    pub const fn from_parts(seconds: u64, nanos: u32) -> Self {
        Timestamp(seconds.saturating_mul(1_000_000_000).saturating_add(nanos as u64))
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Microseconds since the epoch, rounded down.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole seconds since the epoch.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// Time since `earlier`, zero when the clock went backwards.
    #[must_use]
    pub const fn since(self, earlier: Timestamp) -> PacketDuration {
        PacketDuration(self.0.saturating_sub(earlier.0))
    }
}

impl PacketDuration {
    /// No time.
    pub const ZERO: PacketDuration = PacketDuration(0);

    /// From whole seconds (saturating).
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        PacketDuration(seconds.saturating_mul(1_000_000_000))
    }

    /// From milliseconds (saturating).
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        PacketDuration(millis.saturating_mul(1_000_000))
    }

    /// From nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        PacketDuration(nanos)
    }

    /// Nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole seconds, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
}

impl Add<PacketDuration> for Timestamp {
    type Output = Timestamp;
    fn add(self, span: PacketDuration) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0))
    }
}

impl Sub<PacketDuration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, span: PacketDuration) -> Timestamp {
        Timestamp(self.0.saturating_sub(span.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_wraps() {
        let end = Timestamp::from_parts(u64::MAX, 999_999_999);
        assert_eq!((end + PacketDuration::from_secs(1)).as_nanos(), u64::MAX);
        assert_eq!(Timestamp::ZERO.since(end), PacketDuration::ZERO);
        assert_eq!(Timestamp::from_parts(3, 5_000).as_micros(), 3_000_005);
    }
}

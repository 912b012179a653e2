// SPDX-License-Identifier: Apache-2.0
//! Reasons why frames were not sent, and their counts.

use bartizan_base::Reason;

/// The reason why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendRefusal {
    /// Larger than the port's MTU allows.
    TooLarge,
    /// Shorter than a link-layer header.
    TooShort,
    /// No free slot in the transmit ring or queue.
    RingFull,
    /// The interface is down.
    DeviceDown,
    /// The device's queue refused it (its peer's queue is full or its peer is down).
    DeviceRefused,
    /// The kernel had no memory.
    NoMemory,
    /// Only its first bytes are captured ([`crate::FrameFlags::TRUNCATED`]): sending it would forge a packet.
    Incomplete,
    /// Several datagrams in one that were not split ([`crate::FrameFlags::JOINED`]): sending it would forge
    /// one.
    Joined,
    /// The port cannot send.
    ReceiveOnly,
}

impl SendRefusal {
    /// All refusals, in the order of the counters.
    pub const ALL: [SendRefusal; 9] = [
        SendRefusal::TooLarge,
        SendRefusal::TooShort,
        SendRefusal::RingFull,
        SendRefusal::DeviceDown,
        SendRefusal::DeviceRefused,
        SendRefusal::NoMemory,
        SendRefusal::Incomplete,
        SendRefusal::Joined,
        SendRefusal::ReceiveOnly,
    ];

    /// The refusal's name in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SendRefusal::TooLarge => "too_large",
            SendRefusal::TooShort => "too_short",
            SendRefusal::RingFull => "ring_full",
            SendRefusal::DeviceDown => "device_down",
            SendRefusal::DeviceRefused => "device_refused",
            SendRefusal::NoMemory => "no_memory",
            SendRefusal::Incomplete => "incomplete",
            SendRefusal::Joined => "joined",
            SendRefusal::ReceiveOnly => "receive_only",
        }
    }

    /// The packet's reason: its size, or lack of room at the egress port.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            SendRefusal::TooLarge | SendRefusal::TooShort | SendRefusal::Incomplete | SendRefusal::Joined => {
                Reason::EgressMtu
            }
            SendRefusal::RingFull
            | SendRefusal::DeviceDown
            | SendRefusal::DeviceRefused
            | SendRefusal::NoMemory
            | SendRefusal::ReceiveOnly => Reason::EgressRing,
        }
    }
}

/// Frames that were not sent, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFailures {
    counts: [u64; SendRefusal::ALL.len()],
}

impl SendFailures {
    /// Counts `frames` refused for one reason.
    pub fn add(&mut self, refusal: SendRefusal, frames: u64) {
        if let Some(count) = self.counts.get_mut(refusal as usize) {
            *count = count.saturating_add(frames);
        }
    }

    /// The number of frames refused for one reason.
    #[must_use]
    pub fn get(&self, refusal: SendRefusal) -> u64 {
        self.counts.get(refusal as usize).copied().unwrap_or(0)
    }

    /// The number of all refused frames.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Each reason with its number of frames.
    pub fn iter(&self) -> impl Iterator<Item = (SendRefusal, u64)> + '_ {
        SendRefusal::ALL.into_iter().map(|refusal| (refusal, self.get(refusal)))
    }
}

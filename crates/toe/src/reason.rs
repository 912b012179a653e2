// SPDX-License-Identifier: Apache-2.0
//! Reasons why the engine refuses something to a guest, each with a counter.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident => $name:literal,)+) => {
        /// The reason of a refusal on the stream path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum StreamRefusal { $($(#[doc = $doc])+ $variant,)+ }

        impl StreamRefusal {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [StreamRefusal] = &[$(StreamRefusal::$variant,)+];
            /// Number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// Name in metrics and logs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(StreamRefusal::$variant => $name,)+ }
            }
        }
    };
}

reasons! {
    /// A function's verdict: the stream was blocked.
    Function => "function",
    /// A function refused the stream before its first byte.
    Admission => "admission",
    /// A function held more bytes than the limit.
    HeldBytes => "held-bytes",
    /// A function held bytes for longer than the limit.
    HeldTime => "held-time",
    /// The guest has as many streams as it may.
    Streams => "streams",
    /// The guest has as many processes as it may.
    Processes => "processes",
    /// The guest opens connections faster than it may.
    ConnectRate => "connect-rate",
    /// The guest's bytes in the engine's memory are as many as it may have.
    Bytes => "bytes",
    /// A descriptor or message is malformed.
    Malformed => "malformed",
    /// A descriptor names a stream that is not, or no longer, there.
    StaleHandle => "stale-handle",
    /// An index of a shared buffer or ring is out of bounds.
    IndexBounds => "index-bounds",
    /// A process joined a second time over one channel.
    SecondJoin => "second-join",
    /// The address is not the guest's.
    Address => "address",
    /// The socket option is not on the list.
    SocketOption => "socket-option",
    /// A datagram is larger than the program's buffer.
    DatagramSize => "datagram-size",
    /// The kernel refused what the engine did for the guest: descriptors or memory are used up.
    Resources => "resources",
}

/// Counters by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalCounts([u64; StreamRefusal::COUNT]);

impl Default for RefusalCounts {
    fn default() -> Self {
        RefusalCounts([0; StreamRefusal::COUNT])
    }
}

impl RefusalCounts {
    /// Counts a refusal.
    pub fn count(&mut self, reason: StreamRefusal) {
        if let Some(counter) = self.0.get_mut(reason as usize) {
            *counter = counter.saturating_add(1);
        }
    }

    /// Refusals for a reason.
    #[must_use]
    pub fn of(&self, reason: StreamRefusal) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or(0)
    }

    /// All refusals.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

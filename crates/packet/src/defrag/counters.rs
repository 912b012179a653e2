// SPDX-License-Identifier: Apache-2.0
//! Events, reasons and counters of defragmentation.

use bartizan_base::Reason;

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)+) => {
        /// Events of a fragment: the decoder events of the rule language that only defragmentation can
        /// find.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DefragEvent { $($(#[$doc])* $variant,)+ }

        impl DefragEvent {
            /// All events.
            pub const ALL: &'static [DefragEvent] = &[$(DefragEvent::$variant,)+];

            /// Name in `decode-event` rules.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(DefragEvent::$variant => $name,)+ }
            }
        }
    };
}

events! {
    /// The datagram would be longer than IPv4 allows.
    Ipv4FragPktTooLarge => "ipv4.frag_pkt_too_large",
    /// The datagram would be longer than IPv6 allows.
    Ipv6FragPktTooLarge => "ipv6.frag_pkt_too_large",
    /// Two IPv4 fragments hold the same part of a datagram.
    Ipv4FragOverlap => "ipv4.frag_overlap",
    /// Two IPv6 fragments hold the same part of a datagram.
    Ipv6FragOverlap => "ipv6.frag_overlap",
    /// An IPv4 fragment was not kept for want of room.
    Ipv4FragIgnored => "ipv4.frag_ignored",
    /// An IPv6 fragment was not kept for want of room.
    Ipv6FragIgnored => "ipv6.frag_ignored",
}

/// A set of [`DefragEvent`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragEvents(u8);

impl DefragEvents {
    /// No events.
    pub const NONE: DefragEvents = DefragEvents(0);

    /// Adds an event.
    pub(super) fn add(&mut self, event: DefragEvent) {
        self.0 |= 1 << event as u8;
    }

    /// Whether the set contains `event`.
    #[must_use]
    pub const fn contains(self, event: DefragEvent) -> bool {
        self.0 & 1 << event as u8 != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each event of the set, once.
    pub fn iter(self) -> impl Iterator<Item = DefragEvent> {
        DefragEvent::ALL.iter().copied().filter(move |event| self.contains(*event))
    }
}

macro_rules! drops {
    ($($(#[$doc:meta])* $variant:ident => $name:literal, $reason:ident;)+) => {
        /// The reason why a fragment was not kept.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $variant,)+ }

        impl DropReason {
            /// All reasons, in the order of [`DefragCounters::dropped`].
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)+];
            /// The number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// Name of its counter.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)+ }
            }

            /// The verdict's reason for a fragment that raises the event.
            #[must_use]
            pub const fn reason(self) -> Reason {
                match self { $(DropReason::$variant => Reason::$reason,)+ }
            }
        }
    };
}

drops! {
    /// It is the only fragment of its datagram: the caller should handle it as a whole packet.
    NotAFragment => "defrag.dropped.not_a_fragment", Defrag;
    /// The IP header passed with it is none.
    BadHeader => "defrag.dropped.bad_header", Defrag;
    /// Its end was not captured.
    Cut => "defrag.dropped.cut", Defrag;
    /// It has no data.
    Empty => "defrag.dropped.empty", Defrag;
    /// The datagram would be longer than IP allows (ping of death).
    TooLarge => "defrag.dropped.too_large", Defrag;
    /// Other fragments hold all of its bytes already, and the policy keeps those. Strict: they hold some of
    /// its bytes.
    Overlapped => "defrag.dropped.overlapped", Defrag;
    /// Its datagram has the most fragments allowed.
    DatagramFragments => "defrag.dropped.datagram_fragments", DefragMemory;
    /// Strict: another hop limit than the datagram's first fragment.
    HopLimit => "defrag.dropped.hop_limit", Defrag;
    /// Strict: its length is no multiple of eight though more follow, or contradicts the datagram's end.
    Length => "defrag.dropped.length", Defrag;
    /// Strict: the datagram of its id is decided already.
    Refused => "defrag.dropped.refused", Defrag;
    /// Strict: a header that some receiver discards (checksum, reserved bits), or a first fragment without
    /// all headers.
    Unsound => "defrag.dropped.unsound", Defrag;
    /// Strict: it differs from its datagram's first in a field by which a receiver decides whether to accept
    /// it.
    Unlike => "defrag.dropped.unlike", Defrag;
    /// Strict: its id is that of a datagram that has left recently.
    Reused => "defrag.dropped.reused", Defrag;
    /// Holding: its datagram did not become whole in time.
    Incomplete => "defrag.dropped.incomplete", Defrag;
    /// It was kept, and its datagram was evicted at a bound, because its tenant or its source held most.
    Evicted => "defrag.dropped.evicted", DefragMemory;
    /// No room, and no datagram that may be evicted.
    Memory => "defrag.dropped.memory", DefragMemory;
}

/// Fragments and datagrams of one IP version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionCounters {
    /// Fragments seen.
    pub fragments: u64,
    /// Datagrams reassembled.
    pub reassembled: u64,
}

/// The counts so far. [`DefragCounters::for_each`] has them with their names in EVE's `stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragCounters {
    /// IPv4.
    pub ipv4: VersionCounters,
    /// IPv6.
    pub ipv6: VersionCounters,
    /// Times that the limit of datagrams was met (each time a datagram is evicted or the fragment dropped).
    pub max_trackers_reached: u64,
    /// Times that the limit of fragments or of memory was met (each time a datagram is evicted or the
    /// fragment dropped).
    pub max_frags_reached: u64,
    /// Datagrams evicted for room that had timed out anyway.
    pub tracker_soft_reuse: u64,
    /// Datagrams evicted for room that could still have been completed.
    pub tracker_hard_reuse: u64,
    /// Datagrams that had timed out when a fragment of the same identity came.
    pub worker_timeouts: u64,
    /// Datagrams that timed out otherwise.
    pub manager_timeouts: u64,
    /// Fragments not kept, by [`DropReason`].
    pub dropped: [u64; DropReason::COUNT],
}

impl DefragCounters {
    /// Fragments not kept for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped.get(reason as usize).copied().unwrap_or(0)
    }

    pub(super) fn drop(&mut self, reason: DropReason) {
        self.drop_some(reason, 1);
    }

    pub(super) fn drop_some(&mut self, reason: DropReason, fragments: u32) {
        if let Some(count) = self.dropped.get_mut(reason as usize) {
            *count = count.saturating_add(u64::from(fragments));
        }
    }

    /// Calls `visit` with each counter and its dotted name: the first ten are those of EVE stats (besides
    /// `defrag.memuse`: [`super::Defragmenter::memory_used`]), the others our own.
    pub fn for_each(&self, mut visit: impl FnMut(&'static str, u64)) {
        visit("defrag.ipv4.fragments", self.ipv4.fragments);
        visit("defrag.ipv4.reassembled", self.ipv4.reassembled);
        visit("defrag.ipv6.fragments", self.ipv6.fragments);
        visit("defrag.ipv6.reassembled", self.ipv6.reassembled);
        visit("defrag.max_trackers_reached", self.max_trackers_reached);
        visit("defrag.max_frags_reached", self.max_frags_reached);
        visit("defrag.tracker_soft_reuse", self.tracker_soft_reuse);
        visit("defrag.tracker_hard_reuse", self.tracker_hard_reuse);
        visit("defrag.wrk.tracker_timeout", self.worker_timeouts);
        visit("defrag.mgr.tracker_timeout", self.manager_timeouts);
        for reason in DropReason::ALL {
            visit(reason.name(), self.dropped(*reason));
        }
    }
}

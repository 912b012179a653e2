// SPDX-License-Identifier: Apache-2.0
//! Settings of the stream engine: the keys of Suricata's `stream` section with its built-in defaults (those
//! for keys that a configuration file does not name). The config crate reads them from a file. Left out:
//! `prealloc-sessions` and `segment-prealloc`, whose memory belongs to the flow table and the worker.

use bartizan_base::Direction;

/// Greatest distance of the client's number that a SYN cookie tolerates: Linux adds the index of one of four
/// sizes to the number.
pub(crate) const COOKIE_REACH: u32 = 3;

/// The action when the engine cannot handle a packet or flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExceptionPolicy {
    /// Ignore the exception.
    #[default]
    Ignore,
    /// Accept this packet.
    PassPacket,
    /// Accept the flow, uninspected.
    PassFlow,
    /// Accept the flow and bypass it.
    Bypass,
    /// Drop this packet.
    DropPacket,
    /// Drop the flow.
    DropFlow,
    /// Drop the flow and send an answer to the sender.
    Reject,
    /// Drop the flow and send answers to both sides.
    RejectBoth,
}

impl ExceptionPolicy {
    /// Name as in EVE and in counters; with hyphens for underscores it is the configuration's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ExceptionPolicy::Ignore => "ignore",
            ExceptionPolicy::PassPacket => "pass_packet",
            ExceptionPolicy::PassFlow => "pass_flow",
            ExceptionPolicy::Bypass => "bypass",
            ExceptionPolicy::DropPacket => "drop_packet",
            ExceptionPolicy::DropFlow => "drop_flow",
            ExceptionPolicy::Reject => "reject",
            ExceptionPolicy::RejectBoth => "reject_both",
        }
    }

    /// Whether the packet is dropped.
    #[must_use]
    pub const fn refuses(self) -> bool {
        matches!(
            self,
            ExceptionPolicy::DropPacket
                | ExceptionPolicy::DropFlow
                | ExceptionPolicy::Reject
                | ExceptionPolicy::RejectBoth
        )
    }
}

/// The cause for which an exception policy is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExceptionTarget {
    /// A packet of a session whose start was not seen.
    Midstream,
    /// No memory for a session.
    SessionMemory,
    /// No memory for a segment.
    ReassemblyMemory,
    /// The application-layer parser failed.
    AppLayerError,
    /// Memory for application layers is used up, and the flow gives way.
    AppLayerMemory,
    /// The connection speaks HTTP/2 in clear text, or a protocol that is not parsed, which settings refuse.
    Http2,
    /// The load exceeds the worker's capacity, and the flow gives way.
    Overload,
}

impl ExceptionTarget {
    /// Name as in EVE's `flow.exception_policy[].target`.
    #[must_use]
    pub const fn eve_name(self) -> &'static str {
        match self {
            ExceptionTarget::Midstream => "stream_midstream",
            ExceptionTarget::SessionMemory => "stream_memcap",
            ExceptionTarget::ReassemblyMemory => "stream_reassembly_memcap",
            ExceptionTarget::AppLayerError => "app_layer_error",
            ExceptionTarget::AppLayerMemory => "app_layer_memcap",
            ExceptionTarget::Http2 => "http2",
            ExceptionTarget::Overload => "overload",
        }
    }
}

/// The treatment of the byte that the urgent pointer marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UrgentPolicy {
    /// Taken out of the stream, as most receivers do.
    #[default]
    OutOfBand,
    /// Left in the stream.
    Inline,
    /// Packets with the URG flag are dropped (inline only; otherwise as `Inline`).
    Drop,
    /// Counts as a missing byte.
    Gap,
}

/// The relation of forwarded bytes to the receiver's acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StreamMode {
    /// Detection: bytes become readable when the receiver has acknowledged them.
    #[default]
    Passive,
    /// Prevention: bytes become readable at once, and the receiver gets the bytes that were inspected first.
    Inline,
}

/// The inline treatment of a retransmission that differs from the inspected bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OverlapAction {
    /// The inspected bytes are restored in the packet.
    #[default]
    Rewrite,
    /// The packet is dropped.
    Drop,
}

/// Settings of reassembly (`stream.reassembly`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyConfig {
    /// `memcap`: bytes that all streams of a worker may hold; 0 for no limit.
    pub memcap: u64,
    /// `memcap-policy`.
    pub memcap_policy: ExceptionPolicy,
    /// `depth`: bytes of a direction that are reassembled; 0 for no limit.
    pub depth: u32,
    /// `toserver-chunk-size`: number of uninspected bytes at which raw inspection begins.
    pub toserver_chunk_size: u16,
    /// `toclient-chunk-size`.
    pub toclient_chunk_size: u16,
    /// `raw`: whether raw inspection takes place.
    pub raw: bool,
    /// `check-overlap-different-data`: whether differing retransmissions are detected and reported.
    pub check_overlap_different_data: bool,
    /// `max-regions`: maximum number of distant islands of data in a direction; 0 for no limit.
    pub max_regions: u16,
    /// `urgent.policy`.
    pub urgent: UrgentPolicy,
    /// `urgent.oob-limit-policy`: the treatment of urgent bytes beyond the limit.
    pub urgent_limit: UrgentPolicy,
    /// Maximum bytes of buffers in one direction; 0 for no limit. Bartizan's own key: with `depth: 0` nothing
    /// else bounds a single flow.
    pub flow_limit: u64,
    /// Bytes before the fresh ones that raw inspection sees again, so that a pattern cannot hide on a
    /// boundary: at least the length of the longest pattern. Bartizan's own key.
    pub raw_overlap: u32,
    /// The inline treatment of differing retransmissions. Bartizan's own key.
    pub overlap_action: OverlapAction,
}

impl Default for ReassemblyConfig {
    fn default() -> Self {
        Self {
            memcap: 64 << 20,
            memcap_policy: ExceptionPolicy::Ignore,
            depth: 0,
            toserver_chunk_size: 2560,
            toclient_chunk_size: 2560,
            raw: true,
            check_overlap_different_data: false,
            max_regions: 8,
            urgent: UrgentPolicy::OutOfBand,
            urgent_limit: UrgentPolicy::Drop,
            flow_limit: 8 << 20,
            raw_overlap: 0,
            overlap_action: OverlapAction::Rewrite,
        }
    }
}

impl ReassemblyConfig {
    /// Number of unseen bytes at which raw inspection of a direction begins.
    #[must_use]
    pub const fn chunk_size(&self, direction: Direction) -> u64 {
        match direction {
            Direction::ToServer => self.toserver_chunk_size as u64,
            Direction::ToClient => self.toclient_chunk_size as u64,
        }
    }
}

/// Settings of the stream engine (`stream`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// `memcap`: bytes for sessions and their queues; 0 for no limit.
    pub memcap: u64,
    /// `memcap-policy`.
    pub memcap_policy: ExceptionPolicy,
    /// `checksum-validation`: packets with a wrong checksum are not tracked.
    pub checksum_validation: bool,
    /// `midstream`: sessions whose start was not seen are picked up.
    pub midstream: bool,
    /// `midstream-policy`.
    pub midstream_policy: ExceptionPolicy,
    /// `async-oneside`: sessions with only one visible direction are tracked.
    pub async_oneside: bool,
    /// The policy of the current flow allows one-sided flows: they are tracked as with `async-oneside`, and
    /// the midstream policy does not apply to a flow whose first packet here is the SYN/ACK. Inline only.
    /// Bartizan's own.
    pub one_sided: bool,
    /// `inline`, resolved (`auto` follows the engine's mode).
    pub mode: StreamMode,
    /// `bypass`: flows that reached the depth are offered for bypass.
    pub bypass: bool,
    /// `drop-invalid`: inline, packets that the session does not explain are dropped.
    pub drop_invalid: bool,
    /// Inline, segments that no honest sender sends and that receivers refuse or interpret differently are
    /// dropped: far outside of the window, with data before the handshake is complete, data in a SYN after
    /// the handshake or without an ACK, around the beginning of a stream that a SYN cookie may move. Suricata
    /// forwards them, so replayed captures do not use this. Bartizan's own.
    pub strict: bool,
    /// `max-syn-queued`: different SYNs kept for a session.
    pub max_syn_queued: u8,
    /// `max-synack-queued`: different SYN/ACKs kept for a session.
    pub max_synack_queued: u8,
    /// `liberal-timestamps`: timestamps may go back by one.
    pub liberal_timestamps: bool,
    /// `reassembly`.
    pub reassembly: ReassemblyConfig,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            memcap: 32 << 20,
            memcap_policy: ExceptionPolicy::Ignore,
            checksum_validation: true,
            midstream: false,
            midstream_policy: ExceptionPolicy::Ignore,
            async_oneside: false,
            one_sided: false,
            mode: StreamMode::Passive,
            bypass: false,
            drop_invalid: true,
            strict: false,
            max_syn_queued: 10,
            max_synack_queued: 5,
            liberal_timestamps: true,
            reassembly: ReassemblyConfig::default(),
        }
    }
}

impl StreamConfig {
    /// Whether the engine works inline.
    #[must_use]
    pub const fn inline(&self) -> bool {
        matches!(self.mode, StreamMode::Inline)
    }

    /// Whether no segment may leave with data that was not compared with the inspected data.
    #[must_use]
    pub(crate) const fn compares(&self) -> bool {
        self.inline() && self.strict
    }

    /// Whether sessions with only one visible direction are tracked.
    #[must_use]
    pub(crate) const fn tracks_one_sided(&self) -> bool {
        self.async_oneside || self.one_sided
    }

    /// Whether the midstream policy allows to pick up a session.
    #[must_use]
    pub(crate) const fn may_pick_up(&self) -> bool {
        matches!(self.midstream_policy, ExceptionPolicy::Ignore | ExceptionPolicy::PassFlow)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Bounds of defragmentation, and settings about the receiving host.

use super::policy::OverlapPolicy;
use bartizan_base::PacketDuration;

/// Bounds of a [`super::Defragmenter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefragConfig {
    /// Datagrams at once (`defrag.trackers`).
    pub max_trackers: u32,
    /// Fragments at once (`defrag.max-frags`).
    pub max_fragments: u32,
    /// Fragments of one datagram, so that a lookup among them stays cheap.
    pub max_datagram_fragments: u32,
    /// Bytes of memory for everything (`defrag.memcap`).
    pub memory: usize,
    /// The time that a datagram is kept after its last fragment (`defrag.timeout`).
    pub timeout: PacketDuration,
    /// Fragments that receivers treat differently are refused, and no datagram may use the id of another one
    /// whose parts may have left.
    pub strict: bool,
    /// Frames of fragments are kept until their datagram is allowed. Implies `strict`.
    pub hold: bool,
    /// Strict: the most datagrams that passed to remember, so that their ids are not accepted again.
    pub remember: u32,
    /// Secret of the hash: random per instance, so that a sender cannot aim at one bucket.
    pub hash_seed: u64,
}

impl Default for DefragConfig {
    /// Suricata's shipped bounds.
    fn default() -> Self {
        Self {
            max_trackers: 65_535,
            max_fragments: 65_535,
            max_datagram_fragments: 2_048,
            memory: 32 << 20,
            timeout: PacketDuration::from_secs(60),
            strict: false,
            hold: false,
            remember: 8_192,
            hash_seed: 0,
        }
    }
}

/// The assumed behaviour of the receiving host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// The host's treatment of overlaps.
    pub policy: OverlapPolicy,
    /// The host's reassembly timeout, where one is configured for it (`defrag.host-config`).
    pub timeout: Option<PacketDuration>,
}

impl From<OverlapPolicy> for HostSettings {
    fn from(policy: OverlapPolicy) -> Self {
        Self { policy, timeout: None }
    }
}

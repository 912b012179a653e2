// SPDX-License-Identifier: Apache-2.0
//! Whether packets with wrong checksums count, and the sample that decides where the settings leave it open.

use crate::settings::{ChecksumMode, EngineSettings};
use bartizan_packet::{PacketFlags, PacketView, TransportLayer};

/// The number of checked packets after which `auto` mode decides (Suricata's sample).
const SAMPLE: u64 = 1_000;
/// More than one wrong checksum in so many packets means that a device computes the checksums (offload).
const RATIO: u64 = 10;

/// A worker's checksum mode, with the sample that `auto` evaluates.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumSample {
    mode: ChecksumMode,
    seen: u64,
    wrong: u64,
    /// TCP segments whose checksum was checked.
    checked: u64,
}

impl ChecksumSample {
    /// An empty sample.
    pub const fn new(mode: ChecksumMode) -> Self {
        ChecksumSample { mode, seen: 0, wrong: 0, checked: 0 }
    }

    /// The mode in force.
    pub const fn mode(&self) -> ChecksumMode {
        self.mode
    }

    /// Sets the mode that the sample of another worker has decided.
    pub const fn set_mode(&mut self, mode: ChecksumMode) {
        self.mode = mode;
    }

    /// Whether checksums are checked at present.
    pub fn checks(&self) -> bool {
        self.mode != ChecksumMode::Ignore
    }

    /// TCP segments whose checksum was checked.
    pub const fn checked(&self) -> u64 {
        self.checked
    }

    /// Counts the result of a checksum; `auto` mode decides when the sample is full.
    pub fn result(&mut self, right: bool) {
        if self.mode != ChecksumMode::Auto {
            return;
        }
        self.seen += 1;
        self.wrong += u64::from(!right);
        if self.seen == SAMPLE {
            let offloaded = self.wrong > 0 && self.seen / self.wrong < RATIO;
            self.mode = if offloaded { ChecksumMode::Ignore } else { ChecksumMode::Check };
        }
    }

    /// Whether a TCP segment with this checksum is accepted.
    pub fn segment_counts(&mut self, view: &PacketView<'_>) -> bool {
        if !self.checks() {
            return true;
        }
        // The checksum of a cut segment cannot be checked.
        let Some(right) = view.l4_checksum_ok() else { return true };
        self.result(right);
        self.checked += u64::from(self.checks());
        // The sample may just have shown checksum offload.
        right || !self.checks()
    }

    /// Whether the receiver of a datagram or an ICMP message discards it for its checksums. Such a packet is
    /// inspected and forwarded, but has no effect on the state of later packets. Only with real receivers,
    /// when their packets are checked (`stream.checksum-validation` and the capture's checksum setting). For
    /// TCP, the session decides.
    pub fn is_thrown_away(&self, settings: &EngineSettings, view: &PacketView<'_>) -> bool {
        let counts = matches!(
            view.decoded().transport,
            TransportLayer::Udp(_) | TransportLayer::Icmp(_) | TransportLayer::Icmpv6(_)
        );
        counts
            && settings.has_real_receivers()
            && settings.stream.checksum_validation
            && self.checks()
            && (view.l4_checksum_ok() == Some(false)
                || view.ip_checksum_ok() == Some(false)
                    && !view.decoded().flags.contains(PacketFlags::REBUILT))
    }
}

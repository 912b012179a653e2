// SPDX-License-Identifier: Apache-2.0
//! Whether wrong checksums count, and the sample that says so where the settings leave it open.

use crate::settings::{ChecksumMode, EngineSettings};
use bartizan_packet::{PacketFlags, PacketView, Transport};

/// After so many checked packets an `auto` mode makes up its mind (Suricata's sample).
const SAMPLE: u64 = 1_000;
/// More than one wrong checksum in so many packets means that checksums are made elsewhere.
const RATIO: u64 = 10;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumSample {
    mode: ChecksumMode,
    seen: u64,
    wrong: u64,
    /// TCP segments whose checksum was looked at.
    checked: u64,
}

impl ChecksumSample {
    /// A sample that has seen nothing yet.
    pub const fn new(mode: ChecksumMode) -> Self {
        ChecksumSample { mode, seen: 0, wrong: 0, checked: 0 }
    }

    /// What holds now.
    pub const fn mode(&self) -> ChecksumMode {
        self.mode
    }

    /// What holds from here on: somebody else takes the sample.
    pub const fn set_mode(&mut self, mode: ChecksumMode) {
        self.mode = mode;
    }

    /// Whether checksums are to be checked now.
    pub fn checks(&self) -> bool {
        self.mode != ChecksumMode::Ignore
    }

    /// TCP segments whose checksum was looked at.
    pub const fn checked(&self) -> u64 {
        self.checked
    }

    /// Counts the result of a checksum and lets an `auto` mode make up its mind.
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

    /// Whether the checksum of a TCP segment lets it count.
    pub fn segment_counts(&mut self, view: &PacketView<'_>) -> bool {
        if !self.checks() {
            return true;
        }
        // Of a cut one nobody knows.
        let Some(right) = view.l4_checksum_ok() else { return true };
        self.result(right);
        self.checked += u64::from(self.checks());
        // The sample may just have shown that checksums are made elsewhere.
        right || !self.checks()
    }

    /// Whether the receiver of a datagram or an ICMP message throws it away, as its checksums say: it is
    /// inspected and leaves, but nothing that it says counts for what comes after it. Asked before real
    /// receivers only, when their packets are checked (`stream.checksum-validation`, and what the capture
    /// settings say of checksums). For TCP the session says it.
    pub fn is_thrown_away(&self, settings: &EngineSettings, view: &PacketView<'_>) -> bool {
        let counts =
            matches!(view.decoded().transport, Transport::Udp(_) | Transport::Icmp(_) | Transport::Icmpv6(_));
        counts
            && settings.has_real_receivers()
            && settings.stream.checksum_validation
            && self.checks()
            && (view.l4_checksum_ok() == Some(false)
                || view.ip_checksum_ok() == Some(false)
                    && !view.decoded().flags.contains(PacketFlags::REBUILT))
    }
}

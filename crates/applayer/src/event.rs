// SPDX-License-Identifier: Apache-2.0
//! Events: anomalies that a parser found, by number in its protocol's table of names.

/// Number of an event: position in [`crate::protocol::ProtocolSpec::events`], or in [`GENERIC`] from
/// [`GENERIC_BASE`] on.
pub type EventCode = u8;

/// Codes from here on are the events of protocol detection, common to all protocols.
pub const GENERIC_BASE: EventCode = 200;

/// `applayer_mismatch_protocol_both_directions`.
pub const MISMATCH_PROTOCOL_BOTH_DIRECTIONS: EventCode = GENERIC_BASE;
/// `applayer_wrong_direction_first_data`.
pub const WRONG_DIRECTION_FIRST_DATA: EventCode = GENERIC_BASE + 1;
/// `applayer_detect_protocol_only_one_direction`.
pub const DETECT_PROTOCOL_ONLY_ONE_DIRECTION: EventCode = GENERIC_BASE + 2;
/// `applayer_proto_detection_skipped`.
pub const PROTO_DETECTION_SKIPPED: EventCode = GENERIC_BASE + 3;
/// `applayer_no_tls_after_starttls`.
pub const NO_TLS_AFTER_STARTTLS: EventCode = GENERIC_BASE + 4;
/// `applayer_unexpected_protocol`.
pub const UNEXPECTED_PROTOCOL: EventCode = GENERIC_BASE + 5;

/// Names of the generic events, in the order of their codes.
pub const GENERIC: &[&str] = &[
    "applayer_mismatch_protocol_both_directions",
    "applayer_wrong_direction_first_data",
    "applayer_detect_protocol_only_one_direction",
    "applayer_proto_detection_skipped",
    "applayer_no_tls_after_starttls",
    "applayer_unexpected_protocol",
];

/// A bounded set of events in the order in which they were first raised.
#[derive(Clone, Debug, Default)]
pub struct Events {
    codes: smallvec::SmallVec<[EventCode; 4]>,
}

impl Events {
    /// Limit of distinct events of one transaction; further ones are dropped (Suricata has a similar limit).
    pub const MAX: usize = 64;

    /// Raises an event; repeating it changes nothing.
    pub fn set(&mut self, code: EventCode) {
        if self.codes.len() < Self::MAX && !self.codes.contains(&code) {
            self.codes.push(code);
        }
    }

    /// Whether an event was raised.
    #[must_use]
    pub fn has(&self, code: EventCode) -> bool {
        self.codes.contains(&code)
    }

    /// The events in order.
    #[must_use]
    pub fn as_slice(&self) -> &[EventCode] {
        &self.codes
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Events of QUIC.

use crate::event::EventCode;

/// Names of the events. As in Suricata, `error_on_header` has a name and is never raised: a packet with such
/// a header has no transaction.
pub(super) const NAMES: &[&str] = &[
    "failed_decrypt",
    "error_on_data",
    "error_on_header",
    "crypto_frag_too_long",
    "flooded",
    "crypto_data_changed",
];

pub(super) const FAILED_DECRYPT: EventCode = 0;
pub(super) const ERROR_ON_DATA: EventCode = 1;
pub(super) const CRYPTO_FRAG_TOO_LONG: EventCode = 3;
pub(super) const FLOODED: EventCode = 4;
/// Handshake bytes differ from those that an earlier frame has at the same place.
pub(super) const CRYPTO_DATA_CHANGED: EventCode = 5;

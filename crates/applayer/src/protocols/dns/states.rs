// SPDX-License-Identifier: Apache-2.0
//! States of a message: it is there as a whole, or not at all.

use bartizan_base::PerDirection;

/// Progress of a message that is there.
pub(super) const COMPLETE: u8 = 1;

/// Their names.
pub(super) const STATES: PerDirection<&[&str]> = PerDirection {
    to_server: &["request_started", "request_complete"],
    to_client: &["response_started", "response_complete"],
};

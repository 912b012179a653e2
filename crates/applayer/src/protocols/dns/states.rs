// SPDX-License-Identifier: Apache-2.0
//! States of a message: it is complete, or does not exist.

use bartizan_base::PerDirection;

/// Progress of a message that exists.
pub(super) const COMPLETE: u8 = 1;

/// Names of the states.
pub(super) const STATES: PerDirection<&[&str]> = PerDirection {
    to_server: &["request_started", "request_complete"],
    to_client: &["response_started", "response_complete"],
};

// SPDX-License-Identifier: Apache-2.0
//! The engine's clock: the port of the stream path is where its packet clock comes from.

use std::time::Instant;

/// The time now.
pub(crate) fn now() -> Instant {
    Instant::now()
}

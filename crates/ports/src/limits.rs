// SPDX-License-Identifier: Apache-2.0
//! Bounds of ports, for docs/limits.md.

use crate::InlineOptions;
use bartizan_base::limit::Trace::{Metric, Told};
use bartizan_base::limit::{Limit, count};
use bartizan_base::limits;

/// All of this crate.
pub const LIMITS: &[Limit] = limits! {
    Flow "frames in a port's receive and transmit ring, per worker" = "{}, {}"
        [count(InlineOptions::default().frames), count(InlineOptions::default().transmit_frames)] in ["ports/inline.rs"],
        "lost in the kernel; not sent", [Metric("bartizan_port_dropped_total"), Told("`ring_full`")];
};

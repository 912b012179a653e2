// SPDX-License-Identifier: Apache-2.0
//! Bounds of ports, for docs/limits.md.

use crate::duplicates::PLACES;
use crate::merge::{MERGE_WAIT, MERGED_MOST};
use crate::port::MAX_FRAME;
use crate::{InlineOptions, PassiveOptions};
use bartizan_base::limit::LimitTrace::{Metric, NotNeeded, Told};
use bartizan_base::limit::{LimitSpec, bytes, count};
use bartizan_base::limits;

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    Flow "frames in a port's receive and transmit ring, per worker" = "{} (`frames` of an inline link), {}; a tap: `ring`, {}"
        [
            count(InlineOptions::default().frames),
            count(InlineOptions::default().transmit_frames),
            bytes(PassiveOptions::default().block_size * PassiveOptions::default().blocks)
        ] in ["ports/inline.rs", "ports/passive.rs"],
        "lost in the kernel; not sent", [Metric("bartizan_port_dropped_total"), Told("`ring_full`")];
    Flow "how long a packet of a tap of several interfaces waits for an older one of another" = "{} ms (`merge-wait`), and not while a ring is half full"
        [count(MERGE_WAIT.as_millis() as usize)] in ["ports/merge.rs"],
        "handled; one that comes later is late, and handled then", [Metric("bartizan_port_merged_total")];
    Flow "interfaces of a tap" = "{}" [count(MERGED_MOST)] in ["ports/merge.rs"], "a host file with more is refused", [NotNeeded];
    Flow "frames that a tap with `duplicate-window` remembers, per worker" = "{}" [count(PLACES)] in ["ports/duplicates.rs"],
        "one whose place is taken by another is forgotten, so its second copy is inspected as well", [NotNeeded];
    File "frame of a live port" = "{}" [bytes(MAX_FRAME)] in ["ports/port.rs"], "refused",
        [Metric("bartizan_port_dropped_total")];
};

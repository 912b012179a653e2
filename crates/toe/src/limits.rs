// SPDX-License-Identifier: Apache-2.0
//! Bounds of guests of the stream path, for docs/limits.md. A guest's are declared with their defaults.

use crate::datagram::DATAGRAM_MOST;
use crate::engine::{BACKLOG_MOST, GuestLimits, LEAST, PENDING_MOST, STARTS};
use crate::layout::RING_ENTRIES;
use bartizan_base::limit::LimitTrace::{Metric, NotNeeded};
use bartizan_base::limit::{LimitSpec, bytes, count, time};
use bartizan_base::{PacketDuration, limits};
use std::time::Duration;

fn span(of: Duration) -> String {
    time(PacketDuration::from_nanos(u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)))
}

/// The refusals of a guest, by reason.
const REFUSED: &str = "bartizan_guest_refused_total";

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    Flow "streams of a guest" = "{}, or `streams`" [count(GuestLimits::default().streams)] in ["toe/engine/config.rs"],
        "`ENFILE`; an accepted connection is reset", [Metric(REFUSED)];
    Flow "processes of a guest" = "{}, or `processes`" [count(GuestLimits::default().processes)]
        in ["toe/engine/config.rs"], "the process uses plain sockets", [Metric(REFUSED)];
    Flow "descriptors that programs of a guest were started with, taken at once" = "{}" [count(STARTS)]
        in ["toe/engine/config.rs"], "the rest waits for the next start", [NotNeeded];
    Flow "bytes of a guest in the engine" = "{}, or `memory`; {} for a direction without any"
        [bytes(GuestLimits::default().bytes as u64), bytes(LEAST)] in ["toe/engine/config.rs"], "its streams wait", [Metric(REFUSED)];
    Flow "connections that a guest opens in a second" = "{}, or `connects`"
        [count(GuestLimits::default().connects_per_second)] in ["toe/engine/config.rs"], "`ENOBUFS`", [Metric(REFUSED)];
    Flow "bytes of one direction of a stream that functions hold" = "{}"
        [bytes(GuestLimits::default().held_bytes as u64)] in ["toe/engine/config.rs"], "the stream is blocked",
        [Metric(REFUSED)];
    Flow "time for which functions hold bytes of a stream" = "{}" [span(GuestLimits::default().held_time)]
        in ["toe/engine/config.rs"], "the stream is blocked", [Metric(REFUSED)];
    Flow "time for which the last bytes of a closed stream are sent" = "{}" [span(GuestLimits::default().linger)]
        in ["toe/engine/config.rs"], "the connection is reset", [NotNeeded];
    Flow "bytes of one direction of a stream on their way" = "{}, beside those that are held" [bytes(PENDING_MOST)]
        in ["toe/engine/config.rs"], "the sender waits", [NotNeeded];
    Flow "connections that wait for `accept` at a guest's listener" = "{}, or what the program asks for"
        [count(BACKLOG_MOST)] in ["toe/engine/config.rs"], "the kernel's own queue fills, then it drops SYNs", [NotNeeded];
    Flow "requests of a guest's process on their way" = "{}" [count(RING_ENTRIES)] in ["toe/layout.rs"],
        "the process waits", [NotNeeded];
    Flow "datagram of a guest" = "{}, and what its buffer ({}) has room for"
        [bytes(DATAGRAM_MOST), bytes(1_u64 << GuestLimits::default().buffer_shift)]
        in ["toe/datagram.rs"], "`EMSGSIZE`; one from outside is dropped", [Metric(REFUSED)];
};

// SPDX-License-Identifier: Apache-2.0
//! Bounds of flow tables, TCP and reassembly, for docs/limits.md. Bounds that are settings are declared where
//! the settings are read.

use crate::host::{MAX_BITS, MAX_TAGS, MAX_THRESHOLDS};
use crate::level::LevelWaits;
use crate::rate::RateLimit;
use crate::stream::ONE_SIDED_KEPT;
use crate::table::EVICTION_SCAN;
use crate::table::ending::ROOM_AT_ONCE;
use crate::tcp::handle::COMPLETED_MOST;
use crate::tcp::session::WINDOW_SLACK;
use crate::tcp::{EventList, ReassemblyConfig};
use crate::timeouts::TCP_IDLE_KEPT;
use bartizan_base::Reason::{FlowMemory, StreamError, StreamMidstream};
use bartizan_base::limit::LimitTrace::{Event, NotNeeded, Nothing, Refused, Stats};
use bartizan_base::limit::{LimitSpec, bytes, count, time};
use bartizan_base::limits;

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    Flow "idle time of an open TCP connection in live prevention"
        = "`flow-timeouts.tcp.established` and `bypassed`, at least {}; in emergency mode the longer of `established` and `emergency-established`"
        [time(TCP_IDLE_KEPT)] in ["flow/timeouts.rs"],
        "the connection is evicted; its later packets are dropped (RFC 5382)", [Stats("flow.end.state.established"), Refused(StreamMidstream)];
    Flow "interval of `flow.rate-tracking`" = "{} s" [count(RateLimit::INTERVAL_MAX)] in ["flow/rate.rs"],
        "a longer one is an error; a flow takes 16 bytes per second of the interval, none if it is not set", [NotNeeded];
    Flow "state of levels below the host per flow"
        = "an entry for each offloaded flow, and, after the first one, a slot for each flow of the table" []
        in ["flow/level.rs", "flow/table/removal.rs"], "counts as memory of flows", [Stats("flow.memuse")];
    Flow "flows that leave their levels at the same time to make room" = "{}" [count(ROOM_AT_ONCE)] in ["flow/table/ending.rs"],
        "new flows are not created until then, as with a full table", [Stats("flow.get_used_failed"), Refused(FlowMemory)];
    Flow "time for a level's answer while a flow leaves it"
        = "{} for each, by the packet clock" [time(LevelWaits::default().answer)] in ["flow/level.rs"],
        "the flow continues at the host, or ends, without its last counters; it is not offloaded again. `LevelCounters` counts this; no output shows it",
        [Nothing];
    Flow "entries examined for one eviction" = "{}" [count(EVICTION_SCAN)] in ["flow/table/interface.rs", "flow/table/ending.rs"],
        "evicts flows that no SYN opened first, then the longest idle of the closed and half-open flows; else the packet gets no flow (`flow.memcap-policy`; prevention drops it)",
        [Stats("flow.get_used_failed"), Refused(FlowMemory)];
    Flow "buffers per direction" = "{}" [bytes(ReassemblyConfig::default().flow_limit)]
        in ["flow/tcp/config.rs", "flow/stream/feed.rs"], "as for `stream.reassembly.memcap`",
        [Stats("tcp.insert_data_normal_fail"), Stats("tcp.insert_data_overlap_fail"), Event("stream.reassembly_insert_limit")];
    Flow "data beyond the known window, inline" = "the window, at least {}" [bytes(WINDOW_SLACK)]
        in ["flow/tcp/session.rs", "flow/tcp/handle.rs"], "dropped if a payload function reads the connection",
        [Refused(StreamError)];
    Flow "inspected bytes kept of a one-sided flow, inline" = "{}" [bytes(ONE_SIDED_KEPT)] in ["flow/stream/mod.rs"],
        "older retransmitted data is dropped", [Refused(StreamError)];
    Flow "data of a segment that is sent with the first bytes of its stream" = "{}" [bytes(COMPLETED_MOST)]
        in ["flow/tcp/handle.rs"], "a larger segment is dropped; its sender retransmits it", [Refused(StreamError)];
    Flow "stream events per packet" = "{}" [count(EventList::CAPACITY)] in ["flow/tcp/event.rs"],
        "further events are discarded", [Nothing];
    Flow "state per host: bits, thresholds, tags" = "{}, {}, {}"
        [count(MAX_BITS), count(MAX_THRESHOLDS), count(MAX_TAGS)] in ["flow/host/slots.rs"],
        "the new entry is not stored", [Stats("host.slot_refused")];
};

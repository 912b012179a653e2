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
    Flow "silence of an open TCP connection in live prevention"
        = "`flow-timeouts.tcp.established` and `bypassed`, at least {}; in emergency mode the longer of `established` and `emergency-established`"
        [time(TCP_IDLE_KEPT)] in ["flow/timeouts.rs"],
        "it is forgotten, and refused when it goes on (RFC 5382)", [Stats("flow.end.state.established"), Refused(StreamMidstream)];
    Flow "interval of `flow.rate-tracking`" = "{} s" [count(RateLimit::INTERVAL_MAX)] in ["flow/rate.rs"],
        "a longer one is an error; a flow has 16 bytes for each second of it, none unless it is set", [NotNeeded];
    Flow "what levels below the host have of a flow"
        = "an entry for each flow that ever sank, and a place for each that the table can hold once one did" []
        in ["flow/level.rs", "flow/table/removal.rs"], "counts as memory of flows", [Stats("flow.memuse")];
    Flow "flows that leave their levels at a time to make room" = "{}" [count(ROOM_AT_ONCE)] in ["flow/table/ending.rs"],
        "newcomers get no flow until they have left; as a full table", [Stats("flow.get_used_failed"), Refused(FlowMemory)];
    Flow "time that a level has for an answer while a flow leaves it"
        = "{} for each, by the packet clock" [time(LevelWaits::default().answer)] in ["flow/level.rs"],
        "the flow goes on at the host, or ends, without its last counters; it does not sink again. `LevelCounters` has how often, and what comes later; nothing shows it",
        [Nothing];
    Flow "entries looked at to evict one" = "{}" [count(EVICTION_SCAN)] in ["flow/table/interface.rs", "flow/table/ending.rs"],
        "flows that nobody has opened go first; of closed and half-open ones the longest silent of them ends; else the packet gets no flow; `flow.memcap-policy`: in prevention it is refused",
        [Stats("flow.get_used_failed"), Refused(FlowMemory)];
    Flow "buffers of one direction" = "{}" [bytes(ReassemblyConfig::default().flow_limit)]
        in ["flow/tcp/config.rs", "flow/stream/feed.rs"], "as for `stream.reassembly.memcap`",
        [Stats("tcp.insert_data_normal_fail"), Stats("tcp.insert_data_overlap_fail"), Event("stream.reassembly_insert_limit")];
    Flow "inline data beyond the known window" = "the window, at least {}" [bytes(WINDOW_SLACK)]
        in ["flow/tcp/session.rs", "flow/tcp/handle.rs"], "dropped, where a payload function reads the connection",
        [Refused(StreamError)];
    Flow "bytes of a one-sided flow kept after inspection inline" = "{}" [bytes(ONE_SIDED_KEPT)] in ["flow/stream/mod.rs"],
        "what is sent again and is older is dropped", [Refused(StreamError)];
    Flow "data of a segment that gets the first bytes of its stream in front" = "{}" [bytes(COMPLETED_MOST)]
        in ["flow/tcp/handle.rs"], "a larger one is dropped and sent again", [Refused(StreamError)];
    Flow "stream events of a packet" = "{}" [count(EventList::CAPACITY)] in ["flow/tcp/event.rs"],
        "further ones are dropped", [Nothing];
    Flow "state of one host: bits, thresholds, tags" = "{}, {}, {}"
        [count(MAX_BITS), count(MAX_THRESHOLDS), count(MAX_TAGS)] in ["flow/host/slots.rs"],
        "the new one is refused", [Stats("host.slot_refused")];
};

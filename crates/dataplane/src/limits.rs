// SPDX-License-Identifier: Apache-2.0
//! Bounds of workers and those that are settings of the engine, for docs/limits.md. What a setting is unless
//! it is given is taken of the shipped settings, as the program takes it.

use crate::driver::{MOVES_ASKED, PARCELS};
use crate::event_ring::RING_BYTES;
use crate::handover::AWAY_MAX;
use crate::inquiry::{FLOWS_TOLD, PART, QUESTIONS};
use crate::passage::{CLOSINGS, ENDS_WHEN_IDLE, LOOKED_AT, SESSIONS_ENDED, TIMERS_PER_PACKET};

use crate::eve;
use crate::explain::history;
use crate::segmentation::datagrams;
use bartizan_applayer::expectation::CONTEXT_MAX;
use bartizan_base::Reason::{
    AppLayerError, AppLayerMemory, Defrag, DefragMemory, EgressMtu, HandOverRing, Overload, ProtocolOpen,
    StreamMemory, StreamReassembly, Unreadable,
};
use bartizan_base::limit::LimitTrace::{Event, Metric, NotNeeded, Refused, Stats, Told};
use bartizan_base::limit::{LimitSpec, bytes, bytes_or_none, count, time};
use bartizan_base::{limits, spread};
use bartizan_config::host::OFFLOAD_ENTRIES_USUAL;
use bartizan_config::suricata;
use bartizan_events::config::AlertOptions;
use bartizan_offload::manager::{GIVE_WAY_PER_TURN, IDLE_KEPT, LOOKS, RAISES_PER_TURN, READS_PER_TURN};
use bartizan_stages::expectations::{EXPECTED_FOR, PAIRS_MAX, PER_PAIR_MAX};
use bartizan_stages::settings::{
    APP_MEMORY, ENDS_LIVE, EngineSettings, FLOWS_LEAST, FLOWS_MOST, SURICATA_FLOW_BYTES,
};
use bartizan_stages::{app_memory, host_tables, shedding, train};

/// A figure of the settings that hold where no file is given.
fn of(figure: impl Fn(&EngineSettings) -> String) -> String {
    match EngineSettings::from_settings(&suricata::shipped(), true, [0, 0]) {
        Ok((settings, _)) => figure(&settings),
        // Then the page differs.
        Err(error) => error.to_string(),
    }
}

/// All bounds of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    Flow "flows per worker" = "`flow.memcap` / {}, {} to {} (as shipped {})"
        [count(SURICATA_FLOW_BYTES), count(FLOWS_LEAST), count(FLOWS_MOST), of(|s| count(s.flow_capacity))]
        in ["stages/settings.rs", "flow/table.rs"],
        "evicts the flow nearest to its timeout: a closed one, else one that is not established, else any (see below); emergency timeouts apply",
        [Stats("flow.get_used"), Stats("flow.emerg_mode_entered")];
    Flow "failures of an application parser per flow" = "the first" [] in ["applayer/flow.rs"],
        "the flow is no longer parsed (`app-layer.error-policy`; prevention blocks it)",
        [Stats("app_layer.error.*"), Refused(AppLayerError)];
    Flow "bytes and time for which prevention holds data without a detected protocol, if a rule depends on the protocol"
        = "`app-layer.hold.bytes` ({}), `app-layer.hold.milliseconds` ({})"
        [of(|s| bytes(s.hold.bytes)), of(|s| time(s.hold.time))] in ["applayer/flow.rs", "stages/runner/functions.rs"],
        "protocol detection ends, rules decide, and data that they do not drop is forwarded; `app-layer.hold.policy: drop-flow` blocks the flow. 0 bytes hold nothing",
        [Refused(ProtocolOpen)];
    Flow "connections that other flows announced (FTP's data connections): pairs of hosts, connections per pair, time" = "{}, {}, {}"
        [count(PAIRS_MAX), count(PER_PAIR_MAX), time(EXPECTED_FOR)] in ["stages/expectations.rs"],
        "evicts, from the tenant with the most pairs, the pair nearest to its expiry; within a pair the oldest connection",
        [Stats("app_layer.expectations_displaced")];
    Flow "text of an announcement for the connection's parser" = "{}" [bytes(CONTEXT_MAX)] in ["applayer/expectation.rs"],
        "the file name is truncated", [NotNeeded];
    Flow "flows that time out per packet" = "{} on a live link ({} per turn when idle), all in a replay; {} timers are examined per packet on a live link"
        [count(ENDS_LIVE), count(ENDS_WHEN_IDLE), count(TIMERS_PER_PACKET)] in ["stages/settings.rs", "dataplane/passage/ending.rs"],
        "the others end with the next packets, or when the link is idle; a flow past its timeout is never found", [NotNeeded];
    Flow "layers per packet" = "`decoder.max-layers` ({})" [of(|s| count(s.decoder.max_layers))]
        in ["stages/settings.rs", "packet/decode/mod.rs"], "decode event; live prevention drops the packet",
        [Event("too_many_layers"), Refused(Unreadable)];
    Flow "fragments, datagrams, memory of defragmentation" = "`defrag.max-frags` ({}), `defrag.trackers` ({}), `defrag.memcap` ({})"
        [of(|s| count(s.defrag.max_fragments)), of(|s| count(s.defrag.max_trackers)), of(|s| bytes(s.defrag.memory))]
        in ["stages/settings.rs", "packet/defrag/mod.rs", "packet/defrag/shares.rs"],
        "evicts a datagram of the tenant that holds most: of its largest source, if that holds more than \
         1/32 of the bounds, else the one that has waited longest; if none can be evicted, the fragment is \
         dropped",
        [Stats("defrag.max_frags_reached"), Stats("defrag.max_trackers_reached"), Stats("defrag.dropped.evicted"), Stats("defrag.dropped.memory")];
    Flow "fragments, datagrams, memory of defragmentation in prevention" = "the bounds include the frames that wait" [] in ["packet/defrag/holding.rs"],
        "the frames of an evicted datagram are dropped", [Stats("defrag.dropped.evicted"), Refused(DefragMemory)];
    Flow "time that a fragment waits for its datagram, live prevention" = "`defrag.timeout` ({}) after the last one"
        [of(|s| time(s.defrag.timeout))] in ["stages/settings.rs", "packet/defrag/holding.rs"], "refused",
        [Stats("defrag.dropped.incomplete"), Refused(Defrag)];
    Flow "forwarded datagrams whose identification must not be used again for `defrag.timeout`" = "{} a worker"
        [of(|s| count(s.defrag.remember))] in ["packet/defrag/config.rs", "packet/defrag/remembered.rs"],
        "evicts the oldest; a fragment with a remembered identification is dropped. Fewer if defragmentation has little memory",
        [Stats("defrag.dropped.reused"), Refused(Defrag)];
    Flow "fragments per datagram" = "{}" [of(|s| count(s.defrag.max_datagram_fragments))]
        in ["packet/defrag/config.rs", "packet/defrag/mod.rs"], "dropped",
        [Stats("defrag.dropped.datagram_fragments"), Stats("defrag.max_frags_reached"), Refused(DefragMemory)];
    Flow "memory of the application layers of all flows (parsers, transactions, bodies, files, decoders, state of functions)"
        = "`app-layer.memcap` ({}; zero for no bound), shared among the workers" [bytes(APP_MEMORY)]
        in ["stages/settings.rs", "stages/app_memory.rs"], "flows are closed (see below)",
        [Stats("app_layer_memory.*"), Metric("bartizan_memory_bytes"), Refused(AppLayerMemory)];
    Flow "memory of the application layer per protocol" = "`app-layer.protocols.NAME.memcap` (`http.memcap` of Suricata; {})"
        [of(|s| bytes_or_none(s.app_memory.by_protocol.iter().copied().max().unwrap_or(0)))]
        in ["stages/settings.rs", "stages/app_memory.rs"], "flows of the protocol are closed (see below)",
        [Stats("http.memuse"), Stats("http.memcap")];
    Flow "flows closed per packet when a bound is exceeded"
        = "{}, and those that the packet made larger; up to {} are examined for each"
        [count(CLOSINGS), count(LOOKED_AT)] in ["dataplane/passage/overload.rs"],
        "the flows that the packet made larger are closed (not for stream memory)", [Stats("app_layer_memory.closed_in_hand")];
    Flow "backlog of a receive ring from which flows of lower priority are shed, if policies have several priorities"
        = "{} eighths: the lowest priority (until fewer than {} are full), {} eighths: all but the highest"
        [count(shedding::BEGINS), count(shedding::BEGINS + 1 - shedding::HYSTERESIS), count(shedding::ALL)]
        in ["stages/shedding.rs", "dataplane/passage/shedding.rs"],
        "the policy's `overload` action ([When more comes than a worker takes](overload.md))",
        [Stats("overload.*"), Metric("bartizan_overload_priority"), Refused(Overload)];
    Flow "memory of TCP sessions of all flows" = "`stream.memcap` ({})" [of(|s| bytes_or_none(s.stream.memcap))]
        in ["stages/settings.rs", "flow/tcp/pickup.rs"],
        "prevention evicts closed or half-open connections for a new one; else `stream.memcap-policy`",
        [Stats("flow.end.reason.forced"), Stats("tcp.ssn_memcap_drop"), Refused(StreamMemory)];
    Flow "connections evicted for a new one when that memory is exhausted" = "{}" [count(SESSIONS_ENDED)] in ["dataplane/passage/overload.rs"],
        "`stream.memcap-policy`", [Stats("tcp.ssn_memcap_drop"), Refused(StreamMemory)];
    Flow "memory of reassembly" = "`stream.reassembly.memcap` ({}); flows are closed when a {}th of it is free"
        [of(|s| bytes_or_none(s.stream.reassembly.memcap)), count(app_memory::STREAM_ROOM)]
        in ["stages/settings.rs", "stages/app_memory.rs", "flow/stream/feed.rs"],
        "`stream.reassembly.memcap-policy` applies to data without room",
        [Stats("tcp.reassembly_memory_closed"), Stats("tcp.segment_memcap_drop"), Refused(StreamReassembly)];
    Flow "reassembled bytes per direction" = "`stream.reassembly.depth` ({})" [of(|s| bytes_or_none(s.stream.reassembly.depth))]
        in ["stages/settings.rs", "flow/stream/feed.rs"], "inspection of the direction ends", [Stats("tcp.stream_depth_reached")];
    Flow "regions of out-of-order data per direction" = "`stream.reassembly.max-regions` ({})" [of(|s| count(s.stream.reassembly.max_regions))]
        in ["stages/settings.rs", "flow/stream/feed.rs"], "as for `stream.reassembly.memcap`",
        [Stats("tcp.insert_data_normal_fail"), Event("stream.reassembly_insert_limit"), Refused(StreamReassembly)];
    Flow "queued SYNs and SYN/ACKs per session" = "`stream.max-syn-queued` ({}), `stream.max-synack-queued` ({})"
        [of(|s| count(s.stream.max_syn_queued)), of(|s| count(s.stream.max_synack_queued))]
        in ["stages/settings.rs", "flow/tcp/queue.rs"], "stream event", [Event("stream.3whs_syn_flood"), Event("stream.3whs_synack_flood")];
    Flow "datagrams taken out of one frame (UDP segmentation offload)" = "{}" [count(datagrams::MOST)] in ["dataplane/segmentation/datagrams.rs"],
        "inline, the frame is dropped; passively, it is inspected as one datagram", [Stats("normaliser.joined"), Refused(EgressMtu)];
    Flow "bytes of a train, inline" = "{}" [bytes(train::MOST)] in ["stages/train.rs"],
        "the bytes are inspected with the next segment", [NotNeeded];
    Flow "timers of a host table that a worker examines" = "{} per {} of the packet clock"
        [count(host_tables::TIMERS), time(host_tables::EVERY)] in ["stages/host_tables.rs"],
        "the others are removed later; an expired entry is never used", [NotNeeded];
    Flow "frames between a live worker and the others, and size of each ring between two workers" = "{}"
        [count(PARCELS)] in ["dataplane/driver.rs"], "refused", [Stats("flow.hand_over_refused"), Refused(HandOverRing)];
    Flow "flows of a worker that are at other workers; each keeps its entry" = "{}"
        [count(AWAY_MAX)] in ["dataplane/handover/away.rs", "dataplane/captures/moves.rs"],
        "the flow does not move", [Stats("flow.moves_refused")];
    Flow "requests to move flows per live worker between two batches" = "{}"
        [count(MOVES_ASKED)] in ["dataplane/driver/control.rs"], "the request is refused", [Told("the answer `false`")];
    Flow "live workers of all links; they share the bounds of flow table, streams and defragmentation" = "{}"
        [count(spread::WORKERS_MAX)] in ["base/spread.rs", "config/host.rs"], "the start fails", [NotNeeded];
    Flow "bytes of events that wait for the writer, per worker, if there are several" = "{}" [bytes(RING_BYTES)] in ["dataplane/event_ring.rs"],
        "the event is lost, and an event reports the loss", [Stats("events.ring.lost")];
    Rule "bytes of a frame in an event" = "`payload-buffer-size` ({}) less one, of a datagram {}, as in Suricata"
        [bytes(AlertOptions::NOTHING.payload_buffer_size), bytes(eve::packet::DATAGRAM_SHOWN)]
        in ["dataplane/eve/packet.rs", "events/config.rs"],
        "the rest is omitted", [NotNeeded];
    Flow "flows in the level below a link, of all its workers together" = "{} (`entries` of a link's `offload`)"
        [count(OFFLOAD_ENTRIES_USUAL)] in ["config/host.rs", "offload/places.rs"],
        "the flow stays at the host and is offered again with every sixteenth packet; an idle flow is evicted for a busier one", [Told("`offload.stays.full`, `offload.gave_way`, `bartizan.stays` of flow events")];
    Flow "idle entries, as reported by a device, that are remembered" = "{}, the latest" [count(IDLE_KEPT)]
        in ["offload/manager.rs"], "others are found by sampling: of a few entries, the one with the fewest packets is evicted", [NotNeeded];
    Flow "entries examined for one eviction, and evictions per turn of a worker" = "{}, {}"
        [count(LOOKS), count(GIVE_WAY_PER_TURN)] in ["offload/manager.rs"],
        "the flow stays at the host and is offered again", [Told("`offload.gave_way`")];
    Flow "offloaded flows whose counters are read per turn of a worker, and that return to the host for a new generation" = "{}, {}"
        [count(READS_PER_TURN), count(RAISES_PER_TURN)] in ["offload/manager.rs"],
        "the others follow in the next turns, between which an idle worker sleeps for a millisecond; readings that are more than a second late are skipped; packets of an earlier generation go to the host at once",
        [Told("`offload.unread`")];
    Control "flow table entries that a worker examines for a query between two batches" = "{}" [count(PART)]
        in ["dataplane/inquiry.rs"], "the next entries follow between the next two batches", [NotNeeded];
    Control "flows in a worker's answer, queries that wait for a worker" = "{}, {}" [count(FLOWS_TOLD), count(QUESTIONS)]
        in ["dataplane/inquiry.rs"], "further flows are counted only; a further query is refused", [Told("`omitted` in the answer, the answer")];
    Control "distinct alerts for a controller that a worker holds until it is idle, and the number of batches for which it holds them" = "{}, {}" [count(eve::ALERTS_HELD), count(eve::HELD_TURNS)] in ["dataplane/eve/tap.rs"],
        "the alert is not sent to the controller; outputs have it", [Told("`lost` of alert messages, `alerts-lost` of `bartizan ctl controller`")];
    Control "distinct alerts of all workers that wait for the connection to a controller" = "{}" [count(eve::ALERTS_WAITING)] in ["dataplane/eve/tap.rs"],
        "the same", [Told("the same")];
    File "flows of a capture that `explain flow` keeps, steps per flow" = "{}, {}" [count(history::FLOWS_MAX), count(history::MOMENTS_MAX)]
        in ["dataplane/explain/history.rs"], "omitted and counted", [Told("`omitted`")];
    File "generations whose policy names are kept for events" = "{}" [count(eve::NAMES_KEPT)] in ["dataplane/eve/mod.rs"],
        "events of older flows do not have the name", [NotNeeded];
};

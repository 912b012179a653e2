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

/// All of this crate.
pub const LIMITS: &[LimitSpec] = limits! {
    Flow "flows of a worker" = "`flow.memcap` / {}, {} to {} (as shipped {})"
        [count(SURICATA_FLOW_BYTES), count(FLOWS_LEAST), count(FLOWS_MOST), of(|s| count(s.flow_capacity))]
        in ["stages/settings.rs", "flow/table.rs"],
        "a flow ends: of the closed ones, else of those that are not established, else of all, the one nearest to its timeout (see below); emergency timeouts",
        [Stats("flow.get_used"), Stats("flow.emerg_mode_entered")];
    Flow "an application parser's failures" = "the first" [] in ["applayer/flow.rs"],
        "nobody parses the flow any more; `app-layer.error-policy`: in prevention the flow is refused",
        [Stats("app_layer.error.*"), Refused(AppLayerError)];
    Flow "bytes and time for which prevention holds what no protocol is known of yet, where a rule wants to know it"
        = "`app-layer.hold.bytes` ({}), `app-layer.hold.milliseconds` ({})"
        [of(|s| bytes(s.hold.bytes)), of(|s| time(s.hold.time))] in ["applayer/flow.rs", "stages/runner/functions.rs"],
        "0 bytes: nothing is held. Then detection closes, rules decide, what they leave goes on; with `app-layer.hold.policy: drop-flow` the flow is refused",
        [Refused(ProtocolOpen)];
    Flow "connections that other flows announced (FTP's data connections): pairs of hosts, of a pair, time" = "{}, {}, {}"
        [count(PAIRS_MAX), count(PER_PAIR_MAX), time(EXPECTED_FOR)] in ["stages/expectations.rs"],
        "of the tenant that has most pairs the one nearest to its expiry is forgotten; of a pair the oldest connection",
        [Stats("app_layer.expectations_displaced")];
    Flow "what an announcement says to the parser of the connection" = "{}" [bytes(CONTEXT_MAX)] in ["applayer/expectation.rs"],
        "the name of the file is cut", [NotNeeded];
    Flow "flows ended per packet by timeout" = "{} on a live link ({} a turn when idle), all in a replay; of timers {} looked at on a live link"
        [count(ENDS_LIVE), count(ENDS_WHEN_IDLE), count(TIMERS_PER_PACKET)] in ["stages/settings.rs", "dataplane/passage/ending.rs"],
        "the rest ends with the next packets, or when none come; a flow past its timeout is not found either way", [NotNeeded];
    Flow "layers of a packet" = "`decoder.max-layers` ({})" [of(|s| count(s.decoder.max_layers))]
        in ["stages/settings.rs", "packet/decode/mod.rs"], "decode event; live prevention refuses it",
        [Event("too_many_layers"), Refused(Unreadable)];
    Flow "fragments, datagrams, memory of defragmentation" = "`defrag.max-frags` ({}), `defrag.trackers` ({}), `defrag.memcap` ({})"
        [of(|s| count(s.defrag.max_fragments)), of(|s| count(s.defrag.max_trackers)), of(|s| bytes(s.defrag.memory))]
        in ["stages/settings.rs", "packet/defrag/mod.rs", "packet/defrag/shares.rs"],
        "a datagram of the tenant that holds most is given up: of its source that holds most, if that has more than a 32nd of the bounds, else the one that waited longest; \
         a fragment that nothing can give way to is dropped",
        [Stats("defrag.max_frags_reached"), Stats("defrag.max_trackers_reached"), Stats("defrag.dropped.evicted"), Stats("defrag.dropped.memory")];
    Flow "the same in prevention" = "the bounds hold what waits of frames as well" [] in ["packet/defrag/holding.rs"],
        "the frames of the datagram that is given up are refused", [Stats("defrag.dropped.evicted"), Refused(DefragMemory)];
    Flow "time that a fragment waits for its datagram in live prevention" = "`defrag.timeout` ({}) after the last one"
        [of(|s| time(s.defrag.timeout))] in ["stages/settings.rs", "packet/defrag/holding.rs"], "refused",
        [Stats("defrag.dropped.incomplete"), Refused(Defrag)];
    Flow "datagrams that left and whose ids are not taken again for `defrag.timeout`" = "{} a worker"
        [of(|s| count(s.defrag.remember))] in ["packet/defrag/config.rs", "packet/defrag/remembered.rs"],
        "the oldest is forgotten; a fragment with a remembered id is refused. With little memory for defragmentation fewer",
        [Stats("defrag.dropped.reused"), Refused(Defrag)];
    Flow "fragments of one datagram" = "{}" [of(|s| count(s.defrag.max_datagram_fragments))]
        in ["packet/defrag/config.rs", "packet/defrag/mod.rs"], "dropped",
        [Stats("defrag.dropped.datagram_fragments"), Stats("defrag.max_frags_reached"), Refused(DefragMemory)];
    Flow "memory of application layers (parsers, transactions, bodies, files, decoders, what functions remember for them) of all flows"
        = "`app-layer.memcap` ({}; zero for no bound); each worker has its part" [bytes(APP_MEMORY)]
        in ["stages/settings.rs", "stages/app_memory.rs"], "flows give way, see below",
        [Stats("app_layer_memory.*"), Metric("bartizan_memory_bytes"), Refused(AppLayerMemory)];
    Flow "the same of one protocol" = "`app-layer.protocols.NAME.memcap` (`http.memcap` of Suricata; {})"
        [of(|s| bytes_or_none(s.app_memory.by_protocol.iter().copied().max().unwrap_or(0)))]
        in ["stages/settings.rs", "stages/app_memory.rs"], "the same, flows of the protocol",
        [Stats("http.memuse"), Stats("http.memcap")];
    Flow "flows closed per packet when a bound is passed"
        = "{}, and those that the packet made larger; up to {} are looked at for each"
        [count(CLOSINGS), count(LOOKED_AT)] in ["dataplane/passage/overload.rs"],
        "the flows that the packet made larger are closed (not for memory of streams)", [Stats("app_layer_memory.closed_in_hand")];
    Flow "backlog of a receive ring from which flows of lower priority give way, where policies have several"
        = "{} eighths the lowest (until less than {} wait), {} all but the highest"
        [count(shedding::BEGINS), count(shedding::BEGINS + 1 - shedding::HYSTERESIS), count(shedding::ALL)]
        in ["stages/shedding.rs", "dataplane/passage/shedding.rs"],
        "the policy's `overload` action ([When more comes than a worker takes](overload.md))",
        [Stats("overload.*"), Metric("bartizan_overload_priority"), Refused(Overload)];
    Flow "memory of TCP sessions" = "`stream.memcap` ({})" [of(|s| bytes_or_none(s.stream.memcap))]
        in ["stages/settings.rs", "flow/tcp/pickup.rs"],
        "in prevention closed or half-open connections end for a new one; else `stream.memcap-policy`",
        [Stats("flow.end.reason.forced"), Stats("tcp.ssn_memcap_drop"), Refused(StreamMemory)];
    Flow "connections that end for one when that is used up" = "{}" [count(SESSIONS_ENDED)] in ["dataplane/passage/overload.rs"],
        "`stream.memcap-policy`", [Stats("tcp.ssn_memcap_drop"), Refused(StreamMemory)];
    Flow "memory of reassembly" = "`stream.reassembly.memcap` ({}); flows give way when a {}th of it is left"
        [of(|s| bytes_or_none(s.stream.reassembly.memcap)), count(app_memory::STREAM_ROOM)]
        in ["stages/settings.rs", "stages/app_memory.rs", "flow/stream/feed.rs"],
        "what finds no room goes by `stream.reassembly.memcap-policy`",
        [Stats("tcp.reassembly_memory_closed"), Stats("tcp.segment_memcap_drop"), Refused(StreamReassembly)];
    Flow "reassembled bytes of a direction" = "`stream.reassembly.depth` ({})" [of(|s| bytes_or_none(s.stream.reassembly.depth))]
        in ["stages/settings.rs", "flow/stream/feed.rs"], "inspection ends there", [Stats("tcp.stream_depth_reached")];
    Flow "islands of out-of-order data" = "`stream.reassembly.max-regions` ({})" [of(|s| count(s.stream.reassembly.max_regions))]
        in ["stages/settings.rs", "flow/stream/feed.rs"], "as for `stream.reassembly.memcap`",
        [Stats("tcp.insert_data_normal_fail"), Event("stream.reassembly_insert_limit"), Refused(StreamReassembly)];
    Flow "queued SYNs and SYN/ACKs" = "`stream.max-syn-queued` ({}), `stream.max-synack-queued` ({})"
        [of(|s| count(s.stream.max_syn_queued)), of(|s| count(s.stream.max_synack_queued))]
        in ["stages/settings.rs", "flow/tcp/queue.rs"], "stream event", [Event("stream.3whs_syn_flood"), Event("stream.3whs_synack_flood")];
    Flow "datagrams that are taken out of one frame" = "{}" [count(datagrams::MOST)] in ["dataplane/segmentation/datagrams.rs"],
        "inline the frame is refused; passively it is seen as one datagram", [Stats("normaliser.joined"), Refused(EgressMtu)];
    Flow "bytes that wait in a train inline" = "{}" [bytes(train::MOST)] in ["stages/train.rs"],
        "the next segment shows them", [NotNeeded];
    Flow "timers of a host table that a worker looks at" = "{} each {} of the packet clock"
        [count(host_tables::TIMERS), time(host_tables::EVERY)] in ["stages/host_tables.rs"],
        "the rest expires later; what has expired is not seen either way", [NotNeeded];
    Flow "frames that a live worker has under way to others, and room of each ring between two workers" = "{}"
        [count(PARCELS)] in ["dataplane/driver.rs"], "refused", [Stats("flow.hand_over_refused"), Refused(HandOverRing)];
    Flow "flows of a worker that are with other workers, each of which keeps its room at home" = "{}"
        [count(AWAY_MAX)] in ["dataplane/handover/away.rs", "dataplane/captures/moves.rs"],
        "the move is refused, the flow stays where it is", [Stats("flow.moves_refused")];
    Flow "moves of flows that a live worker can be asked for between two of its batches" = "{}"
        [count(MOVES_ASKED)] in ["dataplane/driver/control.rs"], "who asks is told so", [Told("`false` to who asks")];
    Flow "live workers of all links; each has its part of the bounds of flow table, streams and defragmentation" = "{}"
        [count(spread::WORKERS_MAX)] in ["base/spread.rs", "config/host.rs"], "more are refused at start", [NotNeeded];
    Flow "bytes of events waiting for the writer, per worker of several" = "{}" [bytes(RING_BYTES)] in ["dataplane/event_ring.rs"],
        "the event is lost, and an event says so", [Stats("events.ring.lost")];
    Rule "bytes of a frame in an event" = "`payload-buffer-size` ({}) less one, of a datagram {}, as in Suricata"
        [bytes(AlertOptions::NOTHING.payload_buffer_size), bytes(eve::packet::DATAGRAM_SHOWN)]
        in ["dataplane/eve/packet.rs", "events/config.rs"],
        "the rest is left out", [NotNeeded];
    Flow "flows that the level below a link holds, of all its workers together" = "{} (`entries` of a link's `offload`)"
        [count(OFFLOAD_ENTRIES_USUAL)] in ["config/host.rs", "offload/places.rs"],
        "stays at the host, and is offered again with each sixteenth packet; a silent flow gives way to a busier one", [Told("`offload.stays.full`, `offload.gave_way`, `bartizan.stays` of flow events")];
    Flow "silent entries that are remembered of those that a device tells of" = "{}, the latest" [count(IDLE_KEPT)]
        in ["offload/manager.rs"], "others are found as where nobody tells: of a few entries the one that handled least gives way", [NotNeeded];
    Flow "entries that are looked at for one that gives way, and that give way in one turn of a worker" = "{}, {}"
        [count(LOOKS), count(GIVE_WAY_PER_TURN)] in ["offload/manager.rs"],
        "the flow stays at the host, and asks again", [Told("`offload.gave_way`")];
    Flow "flows below whose counts are read in one turn of a worker, and that come up for a new generation" = "{}, {}"
        [count(READS_PER_TURN), count(RAISES_PER_TURN)] in ["offload/manager.rs"],
        "the others are read and taken up in the next turns, between which an idle worker sleeps a millisecond; more than a second's readings are not made up for; packets of an earlier generation go up at once",
        [Told("`offload.unread`")];
    Control "entries of a flow table that a worker looks at between two batches for a question" = "{}" [count(PART)]
        in ["dataplane/inquiry.rs"], "the next ones between the next two", [NotNeeded];
    Control "flows that one worker tells of, questions that wait for one" = "{}, {}" [count(FLOWS_TOLD), count(QUESTIONS)]
        in ["dataplane/inquiry.rs"], "counted, not told; the question is refused", [Told("`omitted` in the answer, the answer")];
    Control "different alerts for a controller that a worker holds until it is idle, and for so many batches" = "{}, {}" [count(eve::ALERTS_HELD), count(eve::HELD_TURNS)] in ["dataplane/eve/tap.rs"],
        "the alert is not sent (outputs have it)", [Told("`lost` of alert messages, `alerts-lost` of `bartizan ctl controller`")];
    Control "different alerts of all workers that wait for the way to a controller" = "{}" [count(eve::ALERTS_WAITING)] in ["dataplane/eve/tap.rs"],
        "the same", [Told("the same")];
    File "flows that `explain flow` keeps of a capture, moments of each" = "{}, {}" [count(history::FLOWS_MAX), count(history::MOMENTS_MAX)]
        in ["dataplane/explain/history.rs"], "left out, counted", [Told("`omitted`")];
    File "generations whose policies' names are kept for events" = "{}" [count(eve::NAMES_KEPT)] in ["dataplane/eve/mod.rs"],
        "the name is left out of events of older flows", [NotNeeded];
};

// SPDX-License-Identifier: Apache-2.0
//! A worker: owns flows and runs their packets to completion.

use crate::app_memory::AppMemory;
use crate::app_stats::AppStats;
use crate::board::{Presenter, Snapshot, Tally};
use crate::chain::Chains;
use crate::flow_ext::FlowExt;
use crate::fragment::{Fragmented, Joined, Settled, defragment};
use crate::handover::walk::count_decision;
use crate::normaliser::{NormaliserCounters, Rewrite};
use crate::packet::Place;
use crate::record::{Around, Recorder};
use crate::settings::{ChecksumMode, ENDS_REPLAYED, EngineSettings};
use bartizan_applayer::flow::Engine;
use bartizan_applayer::protocols;
use bartizan_base::turns::Turn;
use bartizan_base::{
    Decision, Fid, FlowId, FunctionId, Generation, LinkId, Reason, TenantId, Timestamp, Verdict, WorkerId,
};
use bartizan_flow::counters::Elephants;
use bartizan_flow::stream::MemoryBudget;
use bartizan_flow::tcp::{ExceptionPolicy, ExceptionTarget, StreamCounters, StreamEvent, UrgentPolicy};
use bartizan_flow::{EndReason, FlowHasher, FlowTable, FlowTableConfig, TableError};
use bartizan_function::{Edit, Finding, Marks, WorkerState};
use bartizan_packet::defrag::Defragmenter;
use bartizan_packet::{
    Checksums, DecodeOutput, Decoded, Decoder, LinkType, PacketFlags, PacketView, TcpFlags, Transport,
};
use std::sync::Arc;

/// A frame as a port or capture hands it over.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Packet clock.
    pub now: Timestamp,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Length on the wire.
    pub wire_len: u32,
    /// What it starts with.
    pub link_type: LinkType,
    /// What it came in by.
    pub link: LinkId,
    /// Number in the capture, from 1.
    pub number: Option<u64>,
}

/// After so many checked packets an `auto` checksum mode makes up its mind (Suricata's sample).
const CHECKSUM_SAMPLE: u64 = 1_000;
/// More than one wrong checksum in so many packets means that checksums are made elsewhere.
const CHECKSUM_RATIO: u64 = 10;
/// Timers that are looked at per packet, so that no packet waits for a long list.
pub(crate) const TIMERS_PER_PACKET: u32 = 256;
/// Flows that end by timeout while nothing is there to be done, before it is asked again whether a packet has come.
pub(crate) const ENDS_WHEN_IDLE: u32 = 32;

/// The frame after all others, for [`Turn::at`].
const AT_THE_END: u64 = u64::MAX - 1;

/// The place of a frame's next packet. See [`Worker::place`].
pub(crate) const fn next_packet(place: u64) -> u64 {
    if place & 0xff == 0xff { place } else { place + 1 }
}

/// The place after a frame's last packet. See [`Worker::place`].
pub(crate) const fn next_frame(place: u64) -> u64 {
    ((place >> 8) + 1) << 8
}

/// Datagrams inside datagrams that are put together at most.
pub(crate) const MAX_DEPTH: u8 = 4;

/// Reasons by the names of EVE's `stats.firewall.drop_reason`.
const FIREWALL_REASONS: &[(&str, Reason)] = &[
    ("firewall.drop_reason.rules", Reason::FirewallRule),
    ("firewall.drop_reason.default_packet_policy", Reason::FirewallPacketPolicy),
    ("firewall.drop_reason.default_app_policy", Reason::FirewallAppPolicy),
    ("firewall.drop_reason.pre_stream_hook", Reason::FirewallPreStream),
    ("firewall.drop_reason.pre_flow_hook", Reason::FirewallPreFlow),
    ("firewall.drop_reason.flow_drop", Reason::FirewallFlow),
];

/// Reasons by the names of EVE's `stats.ips.drop_reason`.
const DROP_REASONS: &[(&str, &[Reason])] = {
    &[
        ("ips.drop_reason.decode_error", &[Reason::Unreadable]),
        ("ips.drop_reason.defrag_error", &[Reason::Defrag]),
        ("ips.drop_reason.defrag_memcap", &[Reason::DefragMemory]),
        ("ips.drop_reason.flow_memcap", &[Reason::FlowMemory]),
        ("ips.drop_reason.flow_drop", &[Reason::IdsFlow]),
        ("ips.drop_reason.applayer_error", &[Reason::AppLayerError]),
        ("ips.drop_reason.applayer_memcap", &[Reason::AppLayerMemory]),
        ("ips.drop_reason.rules", &[Reason::IdsRule]),
        ("ips.drop_reason.threshold_detection_filter", &[Reason::IdsThreshold]),
        ("ips.drop_reason.stream_error", &[Reason::StreamError, Reason::StreamOverlap]),
        ("ips.drop_reason.stream_memcap", &[Reason::StreamMemory]),
        ("ips.drop_reason.stream_midstream", &[Reason::StreamMidstream]),
        ("ips.drop_reason.stream_reassembly", &[Reason::StreamReassembly]),
        ("ips.drop_reason.tunnel_packet_drop", &[Reason::TunnelInner]),
        ("ips.drop_reason.exception_policy_flow_drop", &[Reason::ExceptionFlow]),
    ]
};

/// What is told of the packet around another one.
pub(crate) fn around(packet: &Decoded, number: Option<u64>) -> Option<Around> {
    let ports = match &packet.transport {
        Transport::Tcp(tcp) => Some((tcp.sport, tcp.dport)),
        Transport::Udp(udp) => Some((udp.sport, udp.dport)),
        _ => None,
    };
    let addresses = (packet.src()?, packet.dst()?);
    Some(Around { addresses, ports, protocol: packet.proto()?, number, source: packet.source })
}

/// Names of `stats.exception_policy.tcp.midstream` by policy; the order of [`ExceptionCounters`].
const MIDSTREAM: [(ExceptionPolicy, &str); 8] = [
    (ExceptionPolicy::Ignore, "exception_policy.tcp.midstream.ignore"),
    (ExceptionPolicy::DropFlow, "exception_policy.tcp.midstream.drop_flow"),
    (ExceptionPolicy::DropPacket, "exception_policy.tcp.midstream.drop_packet"),
    (ExceptionPolicy::PassFlow, "exception_policy.tcp.midstream.pass_flow"),
    (ExceptionPolicy::PassPacket, "exception_policy.tcp.midstream.pass_packet"),
    (ExceptionPolicy::Bypass, "exception_policy.tcp.midstream.bypass"),
    (ExceptionPolicy::Reject, "exception_policy.tcp.midstream.reject"),
    (ExceptionPolicy::RejectBoth, "exception_policy.tcp.midstream.reject_both"),
];

/// How often which policy was applied to sessions whose start was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExceptionCounters([u64; MIDSTREAM.len()]);

impl ExceptionCounters {
    /// Counts one.
    pub(crate) fn add(&mut self, (target, policy): (ExceptionTarget, ExceptionPolicy)) {
        if target == ExceptionTarget::Midstream
            && policy != ExceptionPolicy::Ignore
            && let Some(at) = MIDSTREAM.iter().position(|(p, _)| *p == policy)
            && let Some(count) = self.0.get_mut(at)
        {
            *count += 1;
        }
    }
}

/// Refusals, by the number of their reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalCounters(pub [u64; Reason::COUNT]);

impl Default for RefusalCounters {
    fn default() -> Self {
        RefusalCounters([0; Reason::COUNT])
    }
}

impl core::ops::Deref for RefusalCounters {
    type Target = [u64; Reason::COUNT];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl core::ops::DerefMut for RefusalCounters {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl IntoIterator for RefusalCounters {
    type Item = u64;
    type IntoIter = core::array::IntoIter<u64, { Reason::COUNT }>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Counters of a worker beyond those of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounters {
    /// Frames.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// Alerts reported.
    pub alerts: u64,
    /// Packets refused, by [`bartizan_base::Reason`].
    pub refused: RefusalCounters,
    /// Frames forwarded (or that would have been).
    pub forwarded: u64,
    /// Frames that are counted as refused and go on all the same (detection).
    pub let_go: u64,
    /// Packets for which the flow table had no room.
    pub no_flow: u64,
    /// Exception policies that were applied.
    pub exceptions: ExceptionCounters,
    /// Packets refused with word to a side.
    pub rejected: u64,
    /// Those of them that the firewall rejected.
    pub firewall_rejected: u64,
    /// Packets of bypassed flows.
    pub bypassed_packets: u64,
    /// Their bytes.
    pub bypassed_bytes: u64,
    /// Flows that were bypassed.
    pub bypassed_flows: u64,
    /// Stream events, by their number; counted when the settings ask for it.
    pub stream_events: StreamEventCounters,
    /// Packets in which a rule replaced bytes.
    pub replaced: u64,
    /// Packets in which a rule wanted to replace bytes and could not.
    pub not_replaced: u64,
    /// Packets without a payload function on their path, spared reassembly and parsing.
    pub spared: u64,
}

impl WorkerCounters {
    /// The counters of two workers together.
    #[must_use]
    pub fn plus(mut self, other: &WorkerCounters) -> Self {
        // Every field by name, so that a new one is not forgotten here.
        let WorkerCounters {
            packets,
            bytes,
            alerts,
            refused,
            forwarded,
            let_go,
            no_flow,
            exceptions,
            rejected,
            firewall_rejected,
            bypassed_packets,
            bypassed_bytes,
            bypassed_flows,
            stream_events,
            replaced,
            not_replaced,
            spared,
        } = other;
        self.packets += packets;
        self.bytes += bytes;
        self.alerts += alerts;
        for (sum, more) in self.refused.0.iter_mut().zip(refused.0) {
            *sum += more;
        }
        self.forwarded += forwarded;
        self.let_go += let_go;
        self.no_flow += no_flow;
        for (sum, more) in self.exceptions.0.iter_mut().zip(exceptions.0) {
            *sum += more;
        }
        self.rejected += rejected;
        self.firewall_rejected += firewall_rejected;
        self.bypassed_packets += bypassed_packets;
        self.bypassed_bytes += bypassed_bytes;
        self.bypassed_flows += bypassed_flows;
        for (sum, more) in self.stream_events.0.iter_mut().zip(stream_events.0) {
            *sum += more;
        }
        self.replaced += replaced;
        self.not_replaced += not_replaced;
        self.spared += spared;
        self
    }
}

/// Memory that traffic holds, by part, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    defrag: u64,
    sessions: u64,
    reassembly: u64,
    app_layer: u64,
    http: u64,
}

/// Stream events, by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEventCounters(pub [u64; StreamEvent::ALL.len()]);

impl Default for StreamEventCounters {
    fn default() -> Self {
        StreamEventCounters([0; StreamEvent::ALL.len()])
    }
}

/// See the module.
pub struct Worker {
    pub(crate) settings: EngineSettings,
    pub(crate) decoder: Decoder,
    pub(crate) defrag: Defragmenter,
    pub(crate) flows: FlowTable<FlowExt>,
    pub(crate) budget: MemoryBudget,
    pub(crate) app_memory: AppMemory,
    pub(crate) stream_counters: StreamCounters,
    pub(crate) engine: Arc<Engine>,
    pub(crate) chains: Arc<Chains>,
    pub(crate) states: Vec<WorkerState>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) marks: Marks,
    /// What functions want replaced in the packet in hand.
    pub(crate) edits: Vec<Edit>,
    pub(crate) counters: WorkerCounters,
    pub(crate) app_stats: AppStats,
    /// What was held when the run ended, before its flows were let go.
    held_at_end: Option<Held>,
    pub(crate) clock: Timestamp,
    pub(crate) next_flow: u64,
    /// Where in the run it is: frame, and packet of the frame in the lowest byte.
    pub(crate) place: u64,
    /// Captures with several workers: what they share is touched in the order of the packets.
    pub(crate) turn: Option<Turn>,
    /// The generation of which the recorder was told last.
    announced: Option<Generation>,
    pub(crate) rewrite: Option<Rewrite>,
    /// What was done to frames that waited.
    pub(crate) normalised: NormaliserCounters,
    /// Class of the packet in hand, for counters.
    pub(crate) fid: Fid,
    pub(crate) tally: Tally,
    pub(crate) train: crate::train::Train,
    presenter: Option<Presenter>,
    spare_rewrite: Rewrite,
    /// What was decided of the transactions before a switch of protocols, which the packet in hand brought.
    pub(crate) before_switch: Option<Decision>,
    /// Room for a frame with the inspected bytes put back.
    pub(crate) restored: Vec<u8>,
    pub(crate) check: ChecksumMode,
    checked: (u64, u64),
    /// TCP segments whose checksum was looked at.
    pub(crate) checksums_checked: u64,
    outputs: Vec<DecodeOutput>,
    pub(crate) datagrams: Vec<Vec<u8>>,
    /// Of the frame in hand.
    pub(crate) joined: Joined,
    pub(crate) arrived_by: u32,
    /// What its port knows of the checksums of the frame in hand.
    pub(crate) checksums: Checksums,
    pub(crate) past: crate::generations::Past,
    /// Flows that other workers gave it.
    pub(crate) guests: crate::guests::Guests,
    /// Flows that are due, while they are ended.
    due: Vec<(u64, FlowId)>,
    /// When what functions keep per host is looked through next.
    pub(crate) hosts_due: Timestamp,
}

impl Worker {
    /// Makes a worker.
    ///
    /// # Errors
    /// The flow table cannot be reserved.
    pub fn new(
        settings: EngineSettings,
        engine: Arc<Engine>,
        chains: Arc<Chains>,
    ) -> Result<Self, TableError> {
        let mut table = FlowTableConfig::new(settings.flow_capacity, FlowHasher::new(settings.seed));
        table.timeouts = settings.timeouts;
        table.when_full = settings.flows_when_full;
        let mut flows = FlowTable::new(&table)?;
        flows.counters_mut().elephants = settings.flow_rate.map(|_| Elephants::default());
        let states = chains.worker_states();
        Ok(Worker {
            decoder: Decoder::new(settings.decoder),
            defrag: Defragmenter::new(settings.defrag),
            flows,
            budget: MemoryBudget::new(settings.stream.reassembly.memcap),
            app_memory: AppMemory::new(&settings.app_memory, settings.stream.reassembly.memcap),
            stream_counters: StreamCounters::default(),
            engine,
            fid: Fid(0),
            tally: Tally::new(&chains),
            train: crate::train::Train::default(),
            presenter: None,
            chains,
            states,
            findings: Vec::new(),
            marks: Marks::default(),
            edits: Vec::new(),
            counters: WorkerCounters::default(),
            app_stats: AppStats::default(),
            held_at_end: None,
            clock: Timestamp::ZERO,
            next_flow: 1,
            place: 0,
            turn: None,
            announced: None,
            rewrite: None,
            normalised: NormaliserCounters::default(),
            spare_rewrite: Rewrite::default(),
            before_switch: None,
            restored: Vec::new(),
            check: settings.checksums,
            checked: (0, 0),
            checksums_checked: 0,
            outputs: Vec::new(),
            datagrams: Vec::new(),
            joined: Joined::default(),
            arrived_by: 0,
            checksums: Checksums::Unknown,
            past: crate::generations::Past::default(),
            guests: crate::guests::Guests::default(),
            due: Vec::new(),
            hosts_due: Timestamp::ZERO,
            settings,
        })
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &WorkerCounters {
        &self.counters
    }

    /// The packet clock.
    #[must_use]
    pub const fn clock(&self) -> Timestamp {
        self.clock
    }

    /// The running chains.
    #[must_use]
    pub const fn chains(&self) -> &Arc<Chains> {
        &self.chains
    }

    /// From now on shows its counters to others when they ask.
    pub fn set_presenter(&mut self, presenter: Presenter) {
        self.presenter = Some(presenter);
    }

    /// Whether somebody waits for its counters. To be asked between batches.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.presenter.as_ref().is_some_and(|Presenter(place)| place.is_wanted())
    }

    /// Shows its counters; `more` adds what is not the worker's own.
    pub(crate) fn show(&self, more: impl FnOnce(&mut Snapshot)) {
        let Some(Presenter(place)) = &self.presenter else { return };
        place.show(|snapshot| {
            snapshot.clock = self.clock;
            snapshot.counters = self.counters;
            snapshot.stats.clear();
            self.visit_stats(|name, value| snapshot.stats.push((name, value)));
            snapshot.own.clear();
            self.visit_functions_by_name(&mut |function, name, value| {
                snapshot.own.push((function, name, value))
            });
            let table = self.flows.memory();
            let defrag = (self.defrag.memory_used() as u64, self.settings.defrag.memory as u64);
            snapshot.memory.clear();
            snapshot.memory.extend([
                ("flows", table.touched as u64, table.reserved as u64),
                ("reassembly", self.budget.used(), self.budget.limit()),
                ("app_layer", self.app_memory.used(), self.app_memory.limit()),
                ("defrag", defrag.0, defrag.1),
            ]);
            snapshot.hosts.clear();
            snapshot.hosts.extend(self.host_counters());
            snapshot.fill(&self.chains, &self.states, &self.tally);
            more(snapshot);
        });
    }

    /// Memory of application layers.
    #[must_use]
    pub const fn app_memory(&self) -> &AppMemory {
        &self.app_memory
    }

    /// The flows.
    #[must_use]
    pub const fn flows(&self) -> &FlowTable<FlowExt> {
        &self.flows
    }

    /// All counters of the worker's parts, by their names in EVE's `stats`.
    pub fn visit_stats(&self, mut each: impl FnMut(&'static str, u64)) {
        self.decoder.counters().visit(&mut each);
        self.flows.visit_stats(&mut each);
        self.defrag.counters().for_each(&mut each);
        let held = self.memory_held();
        each("defrag.memuse", held.defrag);
        for (name, value) in self.stream_counters.iter() {
            each(name, if name == "tcp.memuse" { held.sessions } else { value });
        }
        if self.settings.count_stream_events {
            for (event, count) in StreamEvent::ALL.iter().zip(self.counters.stream_events.0) {
                each(event.stats_name(), count);
            }
        }
        each("tcp.reassembly_memuse", held.reassembly);
        self.app_stats.visit(&mut each);
        if let Some((http, _)) = protocols::by_name("http") {
            each("http.memuse", held.http);
            each("http.memcap", self.app_memory.of_protocol(http).1);
        }
        each("tcp.checksums_checked", self.checksums_checked);
        let gave_way = self.app_memory.counters();
        each("tcp.reassembly_memory_closed", gave_way.streams);
        each("app_layer_memory.used", held.app_layer);
        each("app_layer_memory.peak", self.app_memory.peak());
        each("app_layer_memory.limit", self.app_memory.limit());
        each("app_layer_memory.closed", gave_way.closed);
        each("app_layer_memory.closed_in_hand", gave_way.in_hand);
        each("app_layer_memory.freed", gave_way.freed);
        each("app_layer_memory.holds_refused", gave_way.holds_refused);
        for ((_, name), count) in MIDSTREAM.iter().zip(self.counters.exceptions.0) {
            if count > 0 {
                each(name, count);
            }
        }
        self.visit_functions(&mut |name, value| match name {
            // Of detection: without it these counters are not there.
            "alerts" => each("detect.alert", value),
            "alerts_discarded" => each("detect.alert_queue_overflow", value),
            "firewall_alerts_discarded" if self.settings.firewall => each("firewall.discarded_alerts", value),
            "alerts_suppressed" => each("detect.alerts_suppressed", value),
            _ => {}
        });
        if self.settings.prevention {
            self.visit_prevention(&mut each);
        }
        self.visit_hosts(&mut each);
        each("flow_bypassed.local_pkts", self.counters.bypassed_packets);
        each("flow_bypassed.local_bytes", self.counters.bypassed_bytes);
    }

    /// What prevention did, by its names in EVE's `stats.ips`.
    fn visit_prevention(&self, each: &mut impl FnMut(&'static str, u64)) {
        let refused = |reason: Reason| self.counters.refused.get(reason as usize).copied().unwrap_or(0);
        let of_firewall: u64 = FIREWALL_REASONS.iter().map(|(_, reason)| refused(*reason)).sum();
        // What the firewall refuses prevention has not seen, as in Suricata.
        let blocked: u64 = self.counters.refused.iter().sum::<u64>().saturating_sub(of_firewall);
        let rejected = self.counters.rejected.saturating_sub(self.counters.firewall_rejected);
        each("ips.accepted", self.counters.forwarded);
        each("ips.blocked", blocked.saturating_sub(rejected));
        each("ips.rejected", rejected);
        if self.settings.firewall {
            let rejected = self.counters.firewall_rejected;
            each("firewall.accepted", self.counters.forwarded.saturating_add(blocked));
            each("firewall.blocked", of_firewall.saturating_sub(rejected));
            each("firewall.rejected", rejected);
            for (name, reason) in FIREWALL_REASONS {
                each(name, refused(*reason));
            }
        }
        each("ips.replaced", self.stream_counters.rewritten.saturating_add(self.counters.replaced));
        each("normaliser.not_replaced", self.counters.not_replaced);
        for (name, reasons) in DROP_REASONS {
            each(name, reasons.iter().map(|r| refused(*r)).sum());
        }
    }

    /// Handles a frame: the decision says whether it may leave. In detection every frame may; refusals are counted and
    /// recorded as what would be. `None`: it is a fragment that is held ([`DefragConfig::hold`]) and must not leave; it
    /// comes back by [`Worker::take_released`], or never.
    ///
    /// [`DefragConfig::hold`]: bartizan_packet::defrag::DefragConfig::hold
    pub fn frame(&mut self, frame: &Frame<'_>, recorder: &mut dyn Recorder) -> Option<Decision> {
        // Nothing follows, so it waits for no other segment.
        self.frame_in_batch(frame, false, recorder)
    }

    /// [`Worker::frame`], for a frame of a batch. `follows`: the frame behind it goes on with its TCP segment
    /// ([`crate::train::follows`]), and is handed in next. `None`: it waits for that one, or is held as a fragment; after each
    /// frame, [`Worker::waiting`] frames before it are to be released.
    pub fn frame_in_batch(
        &mut self,
        frame: &Frame<'_>,
        follows: bool,
        recorder: &mut dyn Recorder,
    ) -> Option<Decision> {
        self.begin_frame(frame, follows, recorder);
        let mut output = self.outputs.pop().unwrap_or_default();
        self.decoder.decode(frame.link_type, frame.bytes, frame.wire_len, &mut output);
        output.vouch(self.checksums);
        let decision = self.packets(frame, frame.bytes, &mut output, recorder, (0, None));
        self.outputs.push(output);
        if self.train.took() {
            return None;
        }
        self.close_train(recorder);
        match self.settle(frame, decision, recorder) {
            Settled::Decided(decision) => Some(count_decision(self, &decision)),
            Settled::Held => None,
        }
    }

    /// What the port knows of the checksums of the frame that is handed in next, and of those after it. Of captures nothing is known.
    pub const fn arrives_with(&mut self, checksums: Checksums) {
        self.checksums = checksums;
    }

    /// A frame has come.
    pub(crate) fn begin_frame(&mut self, frame: &Frame<'_>, follows: bool, recorder: &mut dyn Recorder) {
        self.counters.packets += 1;
        self.counters.bytes += frame.bytes.len() as u64;
        self.clock = self.clock.max(frame.now);
        self.place = next_frame(self.place);
        self.rewrite = None;
        self.joined = Joined::default();
        self.expire_hosts(frame.now);
        self.train.begin(follows && self.settings.prevention);
        // A flow whose segments wait must not end under them.
        if !self.train.is_waiting() {
            self.expire(frame.now, recorder);
        }
    }

    /// All packets of a frame or reassembled datagram, innermost first.
    fn packets(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        output: &mut DecodeOutput,
        recorder: &mut dyn Recorder,
        (depth, outermost): (u8, Option<&Around>),
    ) -> Decision {
        let mut decision = Decision::CONTINUE;
        // Only what lies in another packet is told of it.
        let outer = if output.packets().len() > 1 && outermost.is_none() {
            output.packets().first().and_then(|packet| around(packet, frame.number))
        } else {
            None
        };
        let first = outermost.or(outer.as_ref());
        for index in (0..output.packets().len()).rev() {
            let Some(packet) = output.packets_mut().get_mut(index) else { continue };
            let refused;
            if packet.is_fragment() && depth < MAX_DEPTH {
                let own = if outermost.is_none() { around(packet, frame.number) } else { None };
                let outermost = outermost.or(own.as_ref());
                let (inner, fragment) = self.fragment(frame, bytes, packet, recorder, (depth, outermost));
                decision = decision.strictest(inner);
                refused = fragment;
            } else {
                refused = self.refused_as_it_is(packet);
            }
            let place = Place {
                made: depth > 0 || packet.recursion > 0,
                around: if index > 0 { first } else { outermost },
                inner_refused: !decision.verdict.forwards(),
                refused,
            };
            decision = decision.strictest(self.packet(frame, bytes, packet, place, recorder));
        }
        decision
    }

    /// Puts a fragment to its datagram; a datagram that becomes whole is handled at once. Returns what was decided of that, and
    /// why the fragment must not go on.
    fn fragment(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        packet: &mut Decoded,
        recorder: &mut dyn Recorder,
        (depth, outermost): (u8, Option<&Around>),
    ) -> (Decision, Option<Reason>) {
        let mut datagram = self.datagrams.pop().unwrap_or_default();
        let fragmented = defragment(self, frame, bytes, packet, &mut datagram);
        let mut decision = Decision::CONTINUE;
        let mut refused = None;
        if let Fragmented::Refused(reason) = fragmented {
            refused = Some(reason);
        }
        if fragmented == Fragmented::Whole {
            let mut output = self.outputs.pop().unwrap_or_default();
            self.decoder.decode_reassembled(packet, &datagram, &mut output);
            decision = self.packets(frame, &datagram, &mut output, recorder, (depth + 1, outermost));
            self.outputs.push(output);
        }
        self.datagrams.push(datagram);
        (decision, refused)
    }

    /// Whether checksums are to be checked now.
    pub(crate) fn checks_checksums(&self) -> bool {
        self.check != ChecksumMode::Ignore
    }

    /// Counts the result of a checksum and lets an `auto` mode make up its mind.
    pub(crate) fn checksum_result(&mut self, right: bool) {
        if self.check != ChecksumMode::Auto {
            return;
        }
        self.checked.0 += 1;
        self.checked.1 += u64::from(!right);
        if self.checked.0 == CHECKSUM_SAMPLE {
            let offloaded = self.checked.1 > 0 && self.checked.0 / self.checked.1 < CHECKSUM_RATIO;
            self.check = if offloaded { ChecksumMode::Ignore } else { ChecksumMode::Check };
        }
    }

    /// No packets came: flows whose time is over end, fragments are given up. `true`: there is more to be done, so look whether packets
    /// have come, and call this again instead of sleeping.
    pub fn idle(&mut self, now: Timestamp, recorder: &mut dyn Recorder) -> bool {
        self.clock = self.clock.max(now);
        self.expire_hosts(now);
        let more = self.end_due(now, ENDS_WHEN_IDLE, recorder);
        self.defrag.expire_some(now, 64);
        self.discard(Decision::refuse(Verdict::Drop, Reason::Defrag, FunctionId::ENGINE), recorder);
        recorder.idle();
        more
    }

    /// The change that the last frame needs before it may leave.
    pub fn take_rewrite(&mut self) -> Option<Rewrite> {
        self.rewrite.take()
    }

    /// Gives the memory of a change back.
    pub fn reuse_rewrite(&mut self, change: Rewrite) {
        self.spare_rewrite = change;
    }

    /// Notes the change that puts inspected bytes back into the packet in hand.
    pub(crate) fn note_rewrite(&mut self, view: &PacketView<'_>, restore: impl FnOnce(&mut [u8]) -> bool) {
        let mut change = core::mem::take(&mut self.spare_rewrite);
        change.take_up(view);
        if restore(&mut change.bytes) {
            change.restored = true;
            self.rewrite = Some(change);
        } else {
            self.spare_rewrite = change;
        }
    }

    /// Notes that the packet in hand gets bytes in front of its payload.
    pub(crate) fn note_completion(&mut self, view: &PacketView<'_>, front: &[u8]) {
        self.note_rewrite(view, |_| true);
        if let Some(change) = &mut self.rewrite {
            change.restored = false;
            change.front.extend_from_slice(front);
        }
    }

    /// Prevention, urgent bytes inspected in their place: whether the receiver has to be told to read them there, too.
    pub(crate) fn has_urgent_to_clear(&self, packet: &Decoded) -> bool {
        let reads_in_place = self.settings.stream.reassembly.urgent == UrgentPolicy::Inline;
        let Transport::Tcp(tcp) = &packet.transport else { return false };
        self.settings.prevention && reads_in_place && tcp.flags.contains(TcpFlags::URG)
    }

    /// Notes that the urgent flag of the packet in hand is to be taken off, beside what is noted already.
    pub(crate) fn note_urgent(&mut self, view: &PacketView<'_>) {
        // A segment that its receiver refuses is not made right.
        if view.l4_checksum_ok() != Some(true) {
            return;
        }
        if self.rewrite.is_none() {
            self.note_rewrite(view, |_| true);
            if let Some(change) = &mut self.rewrite {
                change.restored = false;
            }
        }
        if let Some(change) = &mut self.rewrite {
            change.urgent = true;
        }
    }

    /// Notes that the transport checksum of the packet in hand is still to be made right, if nothing else is noted that does so: its
    /// sender left it to hardware, and nobody will do it on the way on.
    pub(crate) fn note_checksum(&mut self, view: &PacketView<'_>) {
        let is_rebuilt = view.decoded().flags.contains(PacketFlags::REBUILT);
        if self.rewrite.is_some() || is_rebuilt || !view.l4_checksum_is_due() {
            return;
        }
        self.note_rewrite(view, |_| true);
        if let Some(change) = &mut self.rewrite {
            (change.restored, change.due) = (false, true);
        }
    }

    /// Tells the recorder of the generation in which the next events are, if it is another one.
    pub(crate) fn announce(&mut self, recorder: &mut dyn Recorder) {
        if self.announced != Some(self.chains.generation) {
            self.announced = Some(self.chains.generation);
            recorder.enter_generation(&self.chains);
        }
    }

    /// Notes what rules want to have replaced in the packet in hand, on top of the bytes that are put back. Inline only.
    ///
    /// A packet that was put together from fragments or found in a tunnel stays as it is, and is counted: neither its
    /// fragments nor the checksums around it would fit any more.
    pub(crate) fn note_edits(&mut self, view: &PacketView<'_>, decision: Decision) {
        if self.edits.is_empty() || !self.settings.prevention || !decision.verdict.forwards() {
            return;
        }
        let packet = view.decoded();
        let made = packet.recursion > 0
            || packet.source != bartizan_packet::PacketSource::Wire
            || packet.flags.contains(PacketFlags::REBUILT);
        if made || !matches!(packet.proto(), Some(1 | 6 | 17 | 58)) {
            self.counters.not_replaced += 1;
            return;
        }
        let mut change = self.rewrite.take().unwrap_or_else(|| {
            let mut change = core::mem::take(&mut self.spare_rewrite);
            change.bytes.clear();
            change.bytes.extend_from_slice(view.payload());
            change.front.clear();
            (change.restored, change.replaced, change.urgent, change.due) = (false, false, false, false);
            change
        });
        for edit in &self.edits {
            let from = edit.offset as usize;
            let place = change.bytes.get_mut(from..from.saturating_add(edit.bytes.len()));
            if let Some(place) = place {
                place.copy_from_slice(&edit.bytes);
            }
        }
        change.payload = packet.payload as usize;
        change.header = packet.l4 as usize;
        change.ends = packet.src().zip(packet.dst());
        change.protocol = packet.proto().unwrap_or(0);
        change.replaced = true;
        self.counters.replaced += 1;
        self.rewrite = Some(change);
    }

    /// Ends flows whose time is over, some of them: to be called for each packet.
    pub fn expire(&mut self, now: Timestamp, recorder: &mut dyn Recorder) {
        if self.settings.ends_per_packet == ENDS_REPLAYED {
            self.end_all_due(now, recorder);
        } else {
            self.end_due(now, self.settings.ends_per_packet, recorder);
        }
    }

    /// Ends all flows whose time is over, in the order in which they began.
    fn end_all_due(&mut self, now: Timestamp, recorder: &mut dyn Recorder) {
        self.announce(recorder);
        let mut budget = u32::MAX;
        let mut due = core::mem::take(&mut self.due);
        while let Some(id) = self.flows.next_due(now, &mut budget) {
            due.push((self.flows.get(id).map_or(0, |flow| flow.ext.began), id));
        }
        due.sort_unstable_by_key(|(began, id)| (*began, id.0));
        for (began, id) in due.drain(..) {
            if let Some(turn) = &self.turn {
                turn.at(self.place >> 8, began);
            }
            self.end_flow(id, EndReason::Timeout, recorder);
        }
        self.due = due;
    }

    /// Ends so many flows whose time is over, at most. Whether more may be due.
    fn end_due(&mut self, now: Timestamp, most: u32, recorder: &mut dyn Recorder) -> bool {
        self.announce(recorder);
        let mut budget = TIMERS_PER_PACKET;
        for _ in 0..most {
            let Some(id) = self.flows.next_due(now, &mut budget) else { return budget == 0 };
            self.end_flow(id, EndReason::Timeout, recorder);
        }
        true
    }

    /// Memory that traffic holds now.
    fn memory_held(&self) -> Held {
        self.held_at_end.unwrap_or_else(|| Held {
            defrag: self.defrag.memory_used() as u64,
            sessions: self.stream_counters.memuse,
            reassembly: self.budget.used(),
            app_layer: self.app_memory.used(),
            http: protocols::by_name("http").map_or(0, |(http, _)| self.app_memory.of_protocol(http).0),
        })
    }

    /// Gives up what waits, and ends all flows, in the order of their creation. What they held stays in the statistics.
    pub fn shutdown(&mut self, recorder: &mut dyn Recorder) {
        self.held_at_end = Some(self.memory_held());
        self.discard_all(recorder);
        for id in self.flows_as_they_began() {
            if let Some(turn) = &self.turn {
                turn.at(AT_THE_END, self.flows.get(id).map_or(0, |flow| flow.ext.began));
            }
            self.end_flow(id, EndReason::Shutdown, recorder);
        }
    }

    /// Numbers of flows are unique in a run: each worker has its own range.
    pub(crate) const fn number_flows(&mut self, me: WorkerId) {
        self.next_flow = ((me.0 as u64) << 40) + 1;
    }

    /// Whose traffic a packet is.
    pub(crate) fn tenant_of(&self, frame: &Frame<'_>, packet: &Decoded) -> TenantId {
        self.chains.classifier.tenant_of(packet, frame.link)
    }
}

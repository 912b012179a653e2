// SPDX-License-Identifier: Apache-2.0
//! Published counters of a worker: by their names in EVE's `stats`, and on the board.

use super::Worker;
use crate::board::{Presenter, Snapshot};
use bartizan_applayer::protocols;
use bartizan_base::Reason;
use bartizan_flow::tcp::{ExceptionPolicy, StreamEvent};
use bartizan_offload::{ManagerCounters, OffloadDenied};
use bartizan_stages::host_tables::{host_counters, visit_hosts};
use std::sync::Arc;

/// Reasons by their names in EVE's `stats.firewall.drop_reason`.
const FIREWALL_REASONS: &[(&str, Reason)] = &[
    ("firewall.drop_reason.rules", Reason::FirewallRule),
    ("firewall.drop_reason.default_packet_policy", Reason::FirewallPacketPolicy),
    ("firewall.drop_reason.default_app_policy", Reason::FirewallAppPolicy),
    ("firewall.drop_reason.pre_stream_hook", Reason::FirewallPreStream),
    ("firewall.drop_reason.pre_flow_hook", Reason::FirewallPreFlow),
    ("firewall.drop_reason.flow_drop", Reason::FirewallFlow),
];

/// Reasons by their names in EVE's `stats.ips.drop_reason`.
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

/// Counters of flows that stay at the host, by [`OffloadDenied`].
const STAYED: [&str; OffloadDenied::ALL.len()] = [
    "offload.stays.no_device",
    "offload.stays.full",
    "offload.stays.family",
    "offload.stays.protocol",
    "offload.stays.tunnel",
    "offload.stays.answered",
    "offload.stays.taken",
    "offload.stays.refused",
    "offload.stays.unanswered",
    "offload.stays.closed",
    "offload.stays.tenant",
    "offload.stays.ending",
    "offload.stays.judged",
    "offload.stays.short",
    "offload.stays.watched",
    "offload.stays.checksums",
    "offload.stays.window",
    "offload.stays.egress",
    "offload.stays.carrier",
    "offload.stays.key",
    "offload.stays.uncounted",
    "offload.stays.away",
    "offload.stays.action",
];

/// Memory that traffic holds, by consumer, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TrafficMemory {
    defrag: u64,
    sessions: u64,
    reassembly: u64,
    app_layer: u64,
    /// By protocol, in the order of the table.
    of_protocols: [u64; protocols::TABLE.len()],
    /// The fullest bound, in percent, now and at any time.
    pressure: (u64, u64),
}

impl Worker {
    /// All counters of the worker's parts, by their names in EVE's `stats`.
    pub fn visit_stats(&self, mut each: impl FnMut(&'static str, u64)) {
        self.intake.decoder().counters().visit(&mut each);
        self.flows.table().visit_stats(&mut each);
        self.intake.defrag().counters().for_each(&mut each);
        let held = self.memory_held();
        each("defrag.memuse", held.defrag);
        for (name, value) in self.runner.stream_counters().iter() {
            each(name, if name == "tcp.memuse" { held.sessions } else { value });
        }
        if self.settings.count_stream_events {
            for (event, count) in StreamEvent::ALL.iter().zip(self.account.counters.stream_events.0) {
                each(event.stats_name(), count);
            }
        }
        each("tcp.reassembly_memuse", held.reassembly);
        each("memcap.pressure", held.pressure.0);
        each("memcap.pressure_max", held.pressure.1);
        self.account.app_stats.visit(&mut each);
        let store = self.runner.engine().expectations();
        each("app_layer.expectations", store.map_or(0, |store| store.len()));
        each("app_layer.expectations_displaced", store.map_or(0, |store| store.displaced()));
        for ((id, spec), used) in protocols::all().zip(held.of_protocols) {
            if let Some(memory) = spec.counters.memory {
                each(memory.used, used);
                each(memory.limit, self.account.memory.of_protocol(id).1);
            }
        }
        each("capture.cut_unparsed", self.account.counters.cut_unparsed);
        each("capture.not_ip", self.account.counters.not_ip);
        self.account.counters.shed.visit(&mut each);
        each("tcp.checksums_checked", self.checksums.checked());
        let gave_way = self.account.memory.counters();
        each("tcp.reassembly_memory_closed", gave_way.streams);
        each("app_layer_memory.used", held.app_layer);
        each("app_layer_memory.peak", self.account.memory.peak());
        each("app_layer_memory.limit", self.account.memory.limit());
        each("app_layer_memory.closed", gave_way.closed);
        each("app_layer_memory.closed_in_hand", gave_way.in_hand);
        each("app_layer_memory.freed", gave_way.freed);
        each("app_layer_memory.holds_refused", gave_way.holds_refused);
        let ignores = self.settings.stream.midstream_policy == ExceptionPolicy::Ignore;
        self.account.counters.exceptions.visit(self.settings.prevention && !ignores, &mut each);
        self.runner.visit_functions(&mut |name, value| match name {
            // The counters of detection, which are left out without detection.
            "alerts" => each("detect.alert", value),
            "alerts_discarded" => each("detect.alert_queue_overflow", value),
            "firewall_alerts_discarded" if self.settings.firewall => each("firewall.discarded_alerts", value),
            "alerts_suppressed" => each("detect.alerts_suppressed", value),
            _ => {}
        });
        if self.settings.prevention {
            self.visit_prevention(&mut each);
        }
        let (failures, restarts, failed) = self.runner.lifecycle.sums();
        each("function.failures", failures);
        each("function.restarts", restarts);
        each("function.failed", failed);
        visit_hosts(self.runner.chains(), &mut each);
        let bypassed = &self.account.counters;
        each("flow_bypassed.local_pkts", bypassed.bypassed_packets);
        each("flow_bypassed.local_bytes", bypassed.bypassed_bytes);
        each("flow_bypassed.local_capture_pkts", bypassed.bypassed_late_packets);
        each("flow_bypassed.local_capture_bytes", bypassed.bypassed_late_bytes);
        match self.level_counters() {
            Some(counters) => self.visit_level(counters, &mut each),
            // Suricata has these counters with every capture method: no packets were handled below.
            None => {
                let names = ["flow_bypassed.closed", "flow_bypassed.pkts", "flow_bypassed.bytes"];
                names.into_iter().for_each(|name| each(name, 0));
            }
        }
    }

    /// Visits the counters of a level below the host. EVE has names for packets that did not come up, and for
    /// flows that ended; the other names are our own.
    fn visit_level(&self, counters: &ManagerCounters, each: &mut impl FnMut(&'static str, u64)) {
        let around = (counters.around.packets, counters.around.bytes);
        let dropped = counters.dropped.iter().fold(around, |(packets, bytes), dropped| {
            (packets.saturating_add(dropped.packets), bytes.saturating_add(dropped.bytes))
        });
        let of_table = self.flows.table().level_counters();
        each("flow_bypassed.closed", of_table.ended);
        // Early refusals belong to no flow.
        let of_flows = (
            dropped.0.saturating_sub(counters.early.packets),
            dropped.1.saturating_sub(counters.early.bytes),
        );
        each("flow_bypassed.pkts", counters.forwarded.packets.saturating_add(of_flows.0));
        each("flow_bypassed.bytes", counters.forwarded.bytes.saturating_add(of_flows.1));
        each("offload.forwarded_pkts", counters.forwarded.packets);
        each("offload.forwarded_bytes", counters.forwarded.bytes);
        each("offload.dropped_pkts", dropped.0);
        each("offload.dropped_bytes", dropped.1);
        each("offload.early_pkts", counters.early.packets);
        each("offload.early_bytes", counters.early.bytes);
        each("offload.entries", counters.entries);
        each("offload.offered", counters.offered);
        each("offload.spilled", counters.spilled);
        each("offload.renewed", counters.renewed);
        each("offload.outdated", counters.outdated);
        each("offload.left", counters.left);
        each("offload.missed", counters.missed);
        each("offload.unread", counters.unread);
        each("offload.gave_way", counters.gave_way);
        each("offload.back", of_table.back);
        each("offload.revived", of_table.revived);
        each("offload.unanswered", of_table.unanswered);
        each("offload.orphan_pkts", of_table.orphan_packets);
        for (why, name) in OffloadDenied::ALL.iter().zip(STAYED) {
            each(name, counters.stayed.get(*why as usize).copied().unwrap_or(0));
        }
    }

    /// Visits the counters of prevention, by their names in EVE's `stats.ips`: a frame counts once, by the
    /// packet that is refused, not by its outer packets.
    fn visit_prevention(&self, each: &mut impl FnMut(&'static str, u64)) {
        // At any level below.
        let below = |reason: Reason| {
            let dropped = self.level_counters().and_then(|level| level.dropped.get(reason as usize));
            dropped.map_or(0, |dropped| dropped.packets)
        };
        let refused = |reason: Reason| {
            let here = self.account.counters.refused.get(reason as usize).copied().unwrap_or(0);
            here.saturating_add(below(reason))
        };
        let of_firewall: u64 = FIREWALL_REASONS.iter().map(|(_, reason)| refused(*reason)).sum();
        // Packets that the firewall refuses do not count for prevention, as in Suricata.
        let all: u64 = Reason::ALL.iter().map(|reason| refused(*reason)).sum();
        let blocked = all.saturating_sub(of_firewall);
        let rejected = self.account.counters.rejected.saturating_sub(self.account.counters.firewall_rejected);
        each("ips.accepted", self.account.counters.forwarded);
        each("ips.blocked", blocked.saturating_sub(rejected));
        each("ips.rejected", rejected);
        if self.settings.firewall {
            let rejected = self.account.counters.firewall_rejected;
            each("firewall.accepted", self.account.counters.forwarded.saturating_add(blocked));
            each("firewall.blocked", of_firewall.saturating_sub(rejected));
            each("firewall.rejected", rejected);
            for (name, reason) in FIREWALL_REASONS {
                each(name, refused(*reason));
            }
        }
        each(
            "ips.replaced",
            self.runner.stream_counters().rewritten.saturating_add(self.account.counters.replaced),
        );
        each("normaliser.not_replaced", self.account.counters.not_replaced);
        for (name, reasons) in DROP_REASONS {
            each(name, reasons.iter().map(|r| refused(*r)).sum());
        }
    }

    /// Memory that traffic holds now.
    pub(super) fn memory_held(&self) -> TrafficMemory {
        self.held_at_end.unwrap_or_else(|| TrafficMemory {
            defrag: self.intake.defrag().memory_used() as u64,
            sessions: self.runner.stream_counters().memuse,
            reassembly: self.runner.budget().used(),
            app_layer: self.account.memory.used(),
            of_protocols: self.memory_of_protocols(),
            pressure: self.pressure(),
        })
    }

    fn memory_of_protocols(&self) -> [u64; protocols::TABLE.len()] {
        let mut held = [0; protocols::TABLE.len()];
        for ((id, _), held) in protocols::all().zip(&mut held) {
            *held = self.account.memory.of_protocol(id).0;
        }
        held
    }

    /// The use of the worker's fullest memory bound, in percent: now, and its maximum. At 100, flows give way
    /// or are refused.
    fn pressure(&self) -> (u64, u64) {
        let (table, streams, budget) =
            (self.flows.table(), self.runner.stream_counters(), self.runner.budget());
        let flows = (table.counters().active, table.most_entries().into(), table.capacity().into());
        let defrag = self.intake.defrag();
        let bounds = [
            flows,
            (budget.used(), budget.peak(), budget.limit()),
            (streams.memuse, streams.memuse_peak, self.settings.stream.memcap),
            (defrag.memory_used() as u64, defrag.memory_peak() as u64, self.settings.defrag.memory as u64),
        ];
        let percent = |held: u64, limit: u64| held.saturating_mul(100).checked_div(limit).unwrap_or(0);
        let all = bounds.into_iter().chain(self.account.memory.bounds());
        all.fold((0, 0), |(now, most), (held, peak, limit)| {
            (now.max(percent(held, limit)), most.max(percent(peak, limit)))
        })
    }

    /// Sets the place on the board for the worker's counters.
    pub fn set_presenter(&mut self, presenter: Presenter) {
        self.presenter = Some(presenter);
    }

    /// Whether a reader waits for the counters. Called between batches.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        self.presenter.as_ref().is_some_and(|Presenter(place)| place.is_wanted())
    }

    /// Copies the counters to the board; `more` adds those that are not the worker's own.
    pub(crate) fn show(&self, more: impl FnOnce(&mut Snapshot)) {
        let Some(Presenter(place)) = &self.presenter else { return };
        place.show(|snapshot| {
            snapshot.clock = self.position.clock;
            snapshot.counters = self.account.counters;
            snapshot.sheds_below = self.sheds_below();
            snapshot.stats.clear();
            self.visit_stats(|name, value| snapshot.stats.push((name, value)));
            snapshot.own.clear();
            self.visit_functions_by_name(&mut |function, name, value| {
                snapshot.own.push((function, name, value))
            });
            snapshot.rules.clear();
            self.visit_rules(&mut |function, rule| {
                snapshot.rules.push((function, Arc::clone(rule.name), rule.packets));
            });
            snapshot.standing.clear();
            snapshot.standing.extend(self.functions_now());
            let table = self.flows.table().memory();
            let defrag = self.intake.defrag().memory_used() as u64;
            let memory = &self.account.memory;
            let budget = self.runner.budget();
            snapshot.memory.clear();
            snapshot.memory.extend([
                ("flows", table.touched as u64, table.reserved as u64),
                ("reassembly", budget.used(), budget.limit()),
                ("app_layer", memory.used(), memory.limit()),
                ("defrag", defrag, self.settings.defrag.memory as u64),
            ]);
            if let Some(manager) = &self.flows.manager {
                let (used, most) = manager.memory();
                snapshot.memory.push(("offload", used as u64, most as u64));
            }
            snapshot.hosts.clear();
            snapshot.hosts.extend(host_counters(self.runner.chains()));
            snapshot.fill(self.runner.chains(), self.runner.states(), &self.account.tally);
            more(snapshot);
        });
    }
}

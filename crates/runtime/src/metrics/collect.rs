// SPDX-License-Identifier: Apache-2.0
//! The metrics page from counters.
//!
//! A scrape requests the workers' counters, waits briefly for their answers and reads the board; no worker
//! waits for it.

use crate::guests::GuestView;
use crate::offload::{LevelPort, LevelPortCounters};
use crate::southbound::shown::Shown;
use bartizan_base::{FunctionId, Timestamp};
use bartizan_dataplane::board::{Board, DecisionKey, Snapshot};
use bartizan_events::metrics as m;
use bartizan_events::metrics::{Exposition, Metric, SeriesPlaces};
use bartizan_events::sink::{SinkProblem, SinkWatch};
use bartizan_flow::host::HostCounters;
use bartizan_offload::level::PortCounters;
use bartizan_packet::casts::{CAST_NAMES, Casts};
use bartizan_packet::sizes::{SIZE_NAMES, Sizes};
use bartizan_pattern::CacheCounters;
use bartizan_rules::RuleSetReport;
use bartizan_stages::lifecycle::FunctionCondition;
use bartizan_stages::quotas::QuotaUsage;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait of a scrape for workers. An idle one checks ten times a second.
pub const ANSWER: Duration = Duration::from_millis(400);

/// Source of a run's metrics.
pub struct MetricsSource {
    started: Instant,
    board: Board,
    /// Names of the workers' links.
    links: Vec<String>,
    outputs: Vec<Arc<SinkWatch>>,
    /// Names of functions by their bit, including those that no chain of the running generation has.
    functions: Vec<&'static str>,
    /// Counters of the levels below.
    levels: Vec<LevelPortCounters>,
    rules: Mutex<RuleSetReport>,
    cache: Mutex<Option<CacheCounters>>,
    reloads: [AtomicU64; 2],
    /// The connection to a controller.
    controller: OnceLock<Shown>,
    /// The guests of the run.
    guests: OnceLock<Arc<GuestView>>,
    /// The series with a place of their own, for metrics with more series than are shown.
    places: Mutex<SeriesPlaces>,
}

impl MetricsSource {
    /// A source for these workers and outputs; `links`: the name of each worker's link.
    pub fn new(
        board: Board,
        links: Vec<String>,
        outputs: Vec<Arc<SinkWatch>>,
        functions: Vec<&'static str>,
        levels: Vec<LevelPortCounters>,
    ) -> Self {
        MetricsSource {
            started: Instant::now(),
            board,
            links,
            outputs,
            functions,
            levels,
            rules: Mutex::new(RuleSetReport::new()),
            cache: Mutex::new(None),
            reloads: [AtomicU64::new(0), AtomicU64::new(0)],
            controller: OnceLock::new(),
            guests: OnceLock::new(),
            places: Mutex::default(),
        }
    }

    /// Sets the controller of the run.
    pub fn set_controller(&self, shown: Shown) {
        let _ = self.controller.set(shown);
    }

    /// Sets the guests of the run.
    pub fn set_guests(&self, guests: Arc<GuestView>) {
        let _ = self.guests.set(guests);
    }

    /// The connection to a controller, if there is one.
    pub fn controller(&self) -> Option<&Shown> {
        self.controller.get()
    }

    /// Sets the rules of the generation that the workers receive, and the counters of the cache.
    pub fn loaded(&self, rules: &RuleSetReport, cache: Option<CacheCounters>) {
        if let Ok(mut shown) = self.rules.lock() {
            shown.clone_from(rules);
        }
        if let Ok(mut shown) = self.cache.lock() {
            *shown = cache;
        }
    }

    /// Counts a reload.
    pub fn reloaded(&self, done: bool) {
        let [took, refused] = &self.reloads;
        let count = if done { took } else { refused };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Problems of outputs since the last call.
    pub fn problems(&self) -> impl Iterator<Item = SinkProblem> {
        self.outputs.iter().filter_map(|output| output.take_problem())
    }

    /// Requests that the outputs reopen their files.
    pub fn request_reopen(&self) {
        self.outputs.iter().for_each(|output| output.request_reopen());
    }

    /// Requests the workers' counters.
    pub fn request_worker_counters(&self) {
        self.board.request_counters();
    }

    /// Whether all workers have answered since.
    pub fn have_workers_shown(&self) -> bool {
        self.board.is_answered()
    }

    /// Frames that entered by an interface and that a level below has handled.
    pub fn handled_below(&self, interface: &str) -> u64 {
        let own = self.level_ports().filter(|(port, _)| port.interface == interface);
        own.fold(0, |sum, (_, port)| sum.saturating_add(port.forwarded).saturating_add(port.dropped))
    }

    /// The page.
    pub fn page(&self) -> String {
        self.board.request_counters();
        let asked = Instant::now();
        while !self.board.is_answered() && asked.elapsed() < ANSWER {
            std::thread::sleep(Duration::from_millis(1));
        }
        // One page at a time: the choice of series with a place of their own is kept from page to page.
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = Exposition::default();
        let (mut limits, mut latest) = (BTreeMap::new(), Timestamp::ZERO);
        let mut hosts: BTreeMap<&str, HostCounters> = BTreeMap::new();
        let mut tenants: BTreeMap<Arc<str>, QuotaUsage> = BTreeMap::new();
        for (number, (snapshot, late)) in self.board.read().iter().enumerate() {
            let worker = number.to_string();
            let link = self.links.get(number).map_or("", String::as_str);
            page.add(&m::WORKER_LATE, &[&worker, link], u64::from(*late));
            let has_level = self.level_ports().any(|(port, _)| port.link == link);
            WorkerMetrics { name: &worker, link, snapshot, functions: &self.functions, has_level }
                .add(&mut page);
            for (part, _, limit) in &snapshot.memory {
                *limits.entry(*part).or_insert(0u64) += limit;
            }
            // Workers share these counters: the worker that has read them last shows the highest.
            for (tenant, _, used) in &snapshot.tenants {
                let known = tenants.entry(Arc::clone(tenant)).or_insert(*used);
                if snapshot.clock >= latest {
                    (known.flows, known.state) = (used.flows, used.state);
                }
                known.gave_way = known.gave_way.max(used.gave_way);
                known.flows_refused = known.flows_refused.max(used.flows_refused);
                known.closed = known.closed.max(used.closed);
                known.alerts_left_out = known.alerts_left_out.max(used.alerts_left_out);
            }
            latest = latest.max(snapshot.clock);
            // Workers share these tables: the highest counters are the newest.
            for (function, counters) in &snapshot.hosts {
                let known = hosts.entry(function).or_default();
                if counters.created >= known.created {
                    *known = *counters;
                }
            }
        }
        for (part, limit) in limits {
            page.add(&m::MEMORY_LIMIT, &[part], limit);
        }
        for (tenant, used) in tenants {
            add_tenant(&mut page, &tenant, &used);
        }
        for (function, counters) in hosts {
            add_hosts(&mut page, function, &counters);
        }
        self.add_level(&mut page);
        if let Some(guests) = self.guests.get() {
            guests.add_metrics(&mut page);
        }
        self.add_own(&mut page);
        page.text_in(&mut places)
    }

    /// Each port of each level.
    fn level_ports(&self) -> impl Iterator<Item = (&LevelPort, PortCounters)> {
        self.levels.iter().flat_map(LevelPortCounters::ports)
    }

    /// Adds the traffic of ports with a level: all of it, while the host sees only packets that come up.
    fn add_level(&self, page: &mut Exposition) {
        for (LevelPort { interface, link, level, is_nearest, .. }, counters) in self.level_ports() {
            for (what, frames, bytes) in counters.outcomes() {
                page.add(&m::PORT_LEVEL, &[interface, what, link, level], frames);
                page.add(&m::PORT_LEVEL_BYTES, &[interface, what, link, level], bytes);
            }
            page.add(&m::PORT_DROPPED, &[interface, "level", link], counters.lost);
            if *is_nearest {
                add_sizes(page, interface, link, &counters.sizes);
                add_octets(page, interface, "in", link, counters.bytes(), &counters.casts());
            }
            add_octets(page, interface, "out", link, counters.out_bytes, &counters.out_casts());
        }
        // Named ports belong to no link: frames that workers of several links send by one are counted by
        // link, and frames that leave below are not known by link.
        for (interface, counters) in self.levels.iter().flat_map(LevelPortCounters::exits) {
            add_octets(page, interface, "out", "", counters.out_bytes, &counters.out_casts());
        }
    }

    /// Adds counters that are not a worker's.
    fn add_own(&self, page: &mut Exposition) {
        if let Ok(rules) = self.rules.lock() {
            page.add(&m::RULES, &["loaded", ""], rules.loaded);
            page.add(&m::RULES, &["skipped", ""], rules.skipped);
            for (reason, count) in &rules.refused {
                page.add(&m::RULES, &["refused", reason], *count);
            }
        }
        if let Ok(Some(cache)) = self.cache.lock().map(|c| *c) {
            let results = [
                ("found", cache.hits),
                ("missing", cache.misses),
                ("damaged", cache.refused),
                ("stored", cache.stored),
                ("removed", cache.pruned),
                ("not_written", cache.failed),
            ];
            for (result, count) in results {
                page.add(&m::PATTERN_CACHE, &[result], count);
            }
        }
        for (result, count) in ["done", "refused"].into_iter().zip(&self.reloads) {
            page.add(&m::RELOADS, &[result], count.load(Ordering::Relaxed));
        }
        for output in &self.outputs {
            let name = output.path().to_string_lossy();
            page.add(&m::EVENTS_WRITTEN, &[&name], output.written());
            page.add(&m::EVENTS_LOST, &[&name], output.lost());
        }
        if let Some(shown) = self.controller() {
            let status = shown.handle.status();
            page.add(&m::SOUTHBOUND_CONNECTED, &[], u64::from(status.in_step));
            page.add(&m::SOUTHBOUND_GENERATION, &[], status.generation);
            for (what, count) in shown.counted() {
                page.add(&m::SOUTHBOUND_EVENTS, &[&what], count);
            }
        }
        page.add(&m::UPTIME, &[], self.started.elapsed().as_secs());
    }
}

/// Traffic of a port in one direction: its name, direction and link.
fn add_octets(page: &mut Exposition, port: &str, direction: &str, link: &str, octets: u64, casts: &Casts) {
    page.add(&m::PORT_OCTETS, &[port, direction, link], octets);
    for (cast, frames) in CAST_NAMES.iter().zip(casts) {
        page.add(&m::PORT_CASTS, &[port, direction, cast, link], *frames);
    }
}

fn add_sizes(page: &mut Exposition, port: &str, link: &str, sizes: &Sizes) {
    for (name, frames) in SIZE_NAMES.iter().zip(sizes) {
        page.add(&m::PORT_FRAMES, &[port, name, link], *frames);
    }
}

/// Adds the use of a tenant with a quota.
fn add_tenant(page: &mut Exposition, tenant: &str, used: &QuotaUsage) {
    page.add(&m::TENANT_FLOWS, &[tenant], used.flows);
    page.add(&m::TENANT_STATE, &[tenant], used.state);
    for (what, count) in [
        ("gave_way", used.gave_way),
        ("flows_refused", used.flows_refused),
        ("closed", used.closed),
        ("alerts_left_out", used.alerts_left_out),
    ] {
        page.add(&m::TENANT_QUOTA, &[tenant, what], count);
    }
}

/// Adds the state that a function keeps per host.
fn add_hosts(page: &mut Exposition, function: &str, counters: &HostCounters) {
    page.add(&m::HOST_ENTRIES, &[function], counters.active);
    for (event, count) in [
        ("created", counters.created),
        ("ended", counters.ended),
        ("evicted", counters.evicted.saturating_sub(counters.evicted_for_others)),
        ("evicted_for_others", counters.evicted_for_others),
        ("refused", counters.refused),
        ("not_fitting", counters.slot_refused),
    ] {
        page.add(&m::HOST_EVENTS, &[function, event], count);
    }
    let part = format!("hosts_{function}");
    page.add(&m::MEMORY, &[&part, ""], counters.memuse);
    page.add(&m::MEMORY_LIMIT, &[&part], counters.memcap);
}

/// One worker's part of the page.
struct WorkerMetrics<'s> {
    name: &'s str,
    /// Name of the worker's link.
    link: &'s str,
    snapshot: &'s Snapshot,
    functions: &'s [&'static str],
    /// Whether a level below counts the traffic of the link's ports.
    has_level: bool,
}

impl WorkerMetrics<'_> {
    fn add(&self, page: &mut Exposition) {
        self.packets(page);
        self.decisions(page);
        self.functions(page);
        self.stats(page);
        self.ports(page);
        let (snapshot, worker) = (self.snapshot, self.name);
        page.add(&m::GENERATION, &[worker, self.link], snapshot.generation.0);
        for (part, used, _) in &snapshot.memory {
            page.add(&m::MEMORY, &[part, worker, self.link], *used);
        }
        page.add(&m::OVERLOAD_PRIORITY, &[worker, self.link], snapshot.sheds_below.into());
        let counters = &snapshot.counters;
        page.add(&m::SKIPPED, &["ids", "not_on_path", worker, self.link], counters.spared);
        let bypassed = counters.bypassed_packets.saturating_add(counters.bypassed_late_packets);
        page.add(&m::SKIPPED, &["all", "flow_bypassed", worker, self.link], bypassed);
        page.add(&m::SKIPPED, &["all", "overload", worker, self.link], counters.shed.uninspected);
        page.add(&m::SKIPPED, &["all", "duplicate", worker, self.link], snapshot.live.duplicates);
    }

    fn function(&self, id: FunctionId) -> &'static str {
        if id == FunctionId::ENGINE {
            return "engine";
        }
        let running = self.snapshot.functions.iter().find(|(known, _)| *known == id).map(|(_, name)| *name);
        running.or_else(|| self.functions.get(usize::from(id.0)).copied()).unwrap_or("unknown")
    }

    fn packets(&self, page: &mut Exposition) {
        let Snapshot { policies, passed, refused, alerts, .. } = self.snapshot;
        let mut add = |number: u32, verdict, packets, bytes| {
            let labels = [policies.name(number), verdict, self.name, self.link];
            page.add(&m::PACKETS, &labels, packets);
            page.add(&m::BYTES, &labels, bytes);
        };
        for (number, amount) in (0u32..).zip(passed) {
            add(number, "pass", amount.packets, amount.bytes);
        }
        for (key, amount) in refused {
            add(key.policy, key.verdict.name(), amount.packets, amount.bytes);
        }
        for (number, [allowed, blocked]) in (0u32..).zip(alerts) {
            page.add(&m::ALERTS, &[policies.name(number), "allowed", self.name, self.link], *allowed);
            page.add(&m::ALERTS, &[policies.name(number), "blocked", self.name, self.link], *blocked);
        }
    }

    fn decisions(&self, page: &mut Exposition) {
        let mut add = |metric: &Metric, function, key: &DecisionKey, packets| {
            let policy = self.snapshot.policies.name(key.policy);
            page.add(
                metric,
                &[function, policy, key.reason.name(), key.verdict.name(), self.name, self.link],
                packets,
            );
        };
        for (key, amount) in &self.snapshot.refused {
            add(&m::DECISIONS, self.function(key.function), key, amount.packets);
        }
        for (key, amount) in &self.snapshot.would {
            add(&m::STAGED, self.function(key.function), key, amount.packets);
        }
        for (function, key, packets) in &self.snapshot.staged {
            add(&m::STAGED, function, key, *packets);
        }
    }

    /// Adds the counters of functions and of their rules.
    fn functions(&self, page: &mut Exposition) {
        for now in &self.snapshot.standing {
            for condition in
                [FunctionCondition::Running, FunctionCondition::Stopped, FunctionCondition::Failed]
            {
                let is = u64::from(now.condition == condition);
                page.add(&m::FUNCTION_STATE, &[now.function, condition.name(), self.name, self.link], is);
            }
            page.add(&m::FUNCTION_FAILURES, &[now.function, self.name, self.link], now.failures);
            page.add(&m::FUNCTION_RESTARTS, &[now.function, self.name, self.link], now.restarts);
        }
        for (function, counter, value) in &self.snapshot.own {
            page.add(&m::FUNCTION_COUNTERS, &[function, counter, self.name, self.link], *value);
        }
        for (_, rule, packets) in self.snapshot.rules.iter().filter(|(function, ..)| *function == "pfw") {
            page.add(&m::FILTER_RULES, &[&rule.policy, &rule.rule], *packets);
        }
    }

    /// Adds the counters of ports, the normaliser and the hand-over.
    fn ports(&self, page: &mut Exposition) {
        for (port, stats) in &self.snapshot.ports {
            page.add(&m::PORT_PACKETS, &[port, "in", self.link], stats.received);
            page.add(&m::PORT_PACKETS, &[port, "out", self.link], stats.sent);
            page.add(&m::PORT_DROPPED, &[port, "receive_ring", self.link], stats.ring_dropped);
            page.add(&m::PORT_CUT, &[port, self.link], stats.cut());
            if !self.has_level {
                add_sizes(page, port, self.link, &stats.received_sizes);
                add_octets(page, port, "in", self.link, stats.received_bytes, &stats.received_casts);
            }
            add_octets(page, port, "out", self.link, stats.sent_bytes, &stats.sent_casts);
            for (what, frames) in stats.merged() {
                page.add(&m::PORT_MERGED, &[port, what, self.link], frames);
            }
            for (refusal, frames) in stats.send_failures.iter() {
                page.add(&m::PORT_DROPPED, &[port, refusal.name(), self.link], frames);
            }
        }
        let (live, worker) = (&self.snapshot.live, self.name);
        live.normaliser.for_each(|name, value| {
            page.add(&m::NORMALISED, &[name.trim_start_matches("normaliser."), worker, self.link], value);
        });
        page.add(&m::HANDED_OVER, &[worker, self.link], self.snapshot.hand_over.handed_over);
        page.add(&m::RING_FULL, &["hand_over", worker, self.link], self.snapshot.hand_over.refused);
    }

    /// Adds counters that EVE's statistics have under other names, and those statistics.
    fn stats(&self, page: &mut Exposition) {
        let worker = self.name;
        let (mut total, mut known) = (0, 0);
        for (name, value) in &self.snapshot.stats {
            page.add(&m::STATS, &[name, worker, self.link], *value);
            if let Some(event) = name.strip_prefix("decoder.event.").filter(|_| *value > 0) {
                page.add(&m::DECODE_EVENTS, &[event, worker, self.link], *value);
            } else if let Some(reason) = name.strip_prefix("flow.end.reason.") {
                page.add(&m::FLOWS_ENDED, &[reason, worker, self.link], *value);
            }
            match *name {
                "flow.active" => page.add(&m::FLOWS_ACTIVE, &["host", worker, self.link], *value),
                "flow.total" => total = *value,
                "flow.tcp" | "flow.udp" | "flow.icmpv4" | "flow.icmpv6" => {
                    known += value;
                    page.add(&m::FLOWS, &[name.trim_start_matches("flow."), worker, self.link], *value);
                }
                _ => {}
            }
        }
        page.add(&m::FLOWS, &["other", worker, self.link], total.saturating_sub(known));
    }
}

#[cfg(test)]
mod tests;

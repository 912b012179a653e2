// SPDX-License-Identifier: Apache-2.0
//! Events of type `stats` during a run: every `stats.interval` seconds the workers' counters are requested,
//! and the results are written. No worker waits for it.
//!
//! This is the control plane: the interval, the uptime and the time of a load are of the system's clock. The
//! event has the time of the packet clock.

use crate::error::Failure;
use crate::offload::LevelPortCounters;
use bartizan_base::{FunctionId, SettingsMap, Timestamp};
use bartizan_dataplane::board::{Amount, Board, DecisionKey, Snapshot};
use bartizan_dataplane::eve::{RulesInForce, StatsNow, StatsWriter};
use bartizan_packet::casts::{Casts, add_casts};
use bartizan_ports::PortStats;
use bartizan_rules::RuleSetReport;
use bartizan_stages::stats::{NamedCounters, Sum, mostly_wrong_checksums, visit_capture};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};
use tracing::warn;

/// Longest wait for the workers' answers. An idle worker checks ten times a second.
pub const ANSWER: Duration = Duration::from_millis(400);
/// Default seconds between two events, as in Suricata.
const INTERVAL: u64 = 8;

/// The interval of `stats` events in the settings; `None`: disabled.
pub fn interval(settings: &SettingsMap) -> Result<Option<Duration>, Failure> {
    let wrong = Failure::setting(settings);
    let (enabled, seconds) =
        (settings.bool("stats.enabled", true), settings.number("stats.interval", INTERVAL));
    let (enabled, seconds) = enabled.and_then(|enabled| Ok((enabled, seconds?))).map_err(wrong)?;
    Ok(enabled.then(|| Duration::from_secs(seconds.max(1))))
}

/// The rules of a generation that has just been loaded.
pub fn rules_of(report: &RuleSetReport) -> RulesInForce {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    RulesInForce {
        loaded: report.loaded,
        failed: report.refused_total(),
        skipped: report.skipped,
        since: Timestamp::from_parts(since.as_secs(), since.subsec_nanos()),
    }
}

/// The warning that most checksums are wrong, with the remedy. `interface`: given for live traffic.
pub fn checksum_warning(counters: &[(&'static str, u64)], interface: Option<&str>) -> Option<String> {
    let (wrong, checked) = mostly_wrong_checksums(counters)?;
    let said = format!(
        "{wrong} of {checked} TCP segments have a wrong checksum and are NOT INSPECTED: their sender uses \
         checksum offload, and the packets were captured before the device computed the checksum"
    );
    let none = "`--set capture.checksum-validation=none` (or `capture: {checksum-validation: none}` in the settings)";
    Some(match interface {
        Some(interface) => format!(
            "{said}; run `ethtool -K INTERFACE tx off` for the sender's interface (of a veth pair: for the \
             other end of {interface}), or skip the check with {none}"
        ),
        None => format!("{said}; inspect the capture again with {none}"),
    })
}

/// The name of a worker in Suricata's form: `W#01-eth0`.
pub fn thread_name(worker: usize, interface: Option<&str>) -> String {
    match interface {
        Some(interface) => format!("W#{:02}-{interface}", worker + 1),
        None => format!("W#{:02}", worker + 1),
    }
}

/// Packets of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStat {
    /// Packets.
    pub packets: u64,
    /// Packets that were lost before inspection.
    pub dropped: u64,
    /// TCP segments of its link with wrong checksums.
    pub invalid_checksums: u64,
    /// Packets that a level below has handled.
    pub bypassed: u64,
}

/// A link, as statistics name it.
#[derive(Clone, Debug)]
pub struct StatsLink {
    /// Name of the link.
    pub name: String,
    /// Interfaces of the link.
    pub interface: String,
    /// Number of workers.
    pub workers: u16,
    /// Whether the warning about checksums was given.
    warned: bool,
}

impl StatsLink {
    /// A link of a run.
    pub fn new(name: &str, interface: String, workers: u16) -> Self {
        StatsLink { name: name.to_owned(), interface, workers, warned: false }
    }
}

/// Requests counters, waits for them, and writes events.
pub struct Statistics {
    writer: StatsWriter,
    board: Board,
    /// Interval of the requests.
    every: Duration,
    started: Instant,
    next: Instant,
    requested_at: Option<Instant>,
    rules: RulesInForce,
    links: Vec<StatsLink>,
    /// Counters of each link that its workers do not have; empty without such counters.
    beside: Vec<NamedCounters>,
    /// Counters of ports at the levels below.
    levels: Vec<LevelPortCounters>,
    /// Names of all functions so far: their counters remain when no chain has them any more.
    functions: BTreeMap<FunctionId, &'static str>,
}

impl Statistics {
    /// Statistics for a run that begins now on these links.
    pub fn new(
        writer: StatsWriter,
        board: Board,
        every: Option<Duration>,
        rules: RulesInForce,
        links: Vec<StatsLink>,
    ) -> Self {
        let started = Instant::now();
        let every = every.unwrap_or(Duration::from_secs(INTERVAL));
        let (next, asked, beside, functions) = (started + every, None, Vec::new(), BTreeMap::new());
        let levels = Vec::new();
        Statistics {
            writer,
            board,
            every,
            started,
            next,
            requested_at: asked,
            rules,
            links,
            beside,
            levels,
            functions,
        }
    }

    /// Adds levels below that count traffic of ports.
    pub fn with_levels(self, levels: Vec<LevelPortCounters>) -> Self {
        Statistics { levels, ..self }
    }

    /// Sets the rules that run from now on.
    pub fn loaded(&mut self, rules: RulesInForce) {
        self.rules = rules;
    }

    /// Whether [`Statistics::poll`] is about to write, so that [`Statistics::counted_beside`] must be called.
    pub fn is_due(&self) -> bool {
        self.requested_at.is_some()
    }

    /// Sets the present counters of each link that its workers do not have.
    pub fn counted_beside(&mut self, beside: Vec<NamedCounters>) {
        self.beside = beside;
    }

    /// Called often: requests counters when it is time, and writes when the answers have arrived.
    pub fn poll(&mut self) {
        let now = Instant::now();
        match self.requested_at {
            None if now >= self.next => {
                self.board.request_counters();
                self.requested_at = Some(now);
            }
            Some(asked) if self.board.is_answered() || now - asked > ANSWER => {
                self.requested_at = None;
                // The times are multiples of the interval since the start, also after a late event.
                while self.next <= now {
                    self.next += self.every;
                }
                let shown: Vec<Snapshot> = self.board.read().into_iter().map(|(shown, _)| shown).collect();
                self.write_shown(&shown);
            }
            _ => {}
        }
    }

    fn write_shown(&mut self, snapshots: &[Snapshot]) {
        let Gathered { clock, totals, threads, links } = self.gather(snapshots);
        self.warn(&links);
        let ports = self.ports(&ports_of(snapshots));
        self.write(clock, &totals, threads, links, &ports);
    }

    /// The present counters as the JSON of an event.
    pub fn show(&mut self) -> Vec<u8> {
        let shown: Vec<Snapshot> = self.board.read().into_iter().map(|(shown, _)| shown).collect();
        let Gathered { clock, totals, threads, links } = self.gather(&shown);
        let (totals, threads, links) = self.with_names(&totals, threads, links);
        let (uptime, rules, ports) = (self.uptime(), self.rules, self.ports(&ports_of(&shown)));
        let (totals, threads, links, ports) = (&totals, &threads, &links, &ports);
        self.writer.show(&StatsNow { clock, uptime, totals, threads, links, ports, rules })
    }

    /// All present counters, including those that workers do not have, and the traffic of each link and
    /// policy.
    pub fn sums(&mut self) -> Sums {
        let shown: Vec<Snapshot> = self.board.read().into_iter().map(|(shown, _)| shown).collect();
        let totals = with_beside(&self.gather(&shown).totals, &self.beside);
        let mut links = BTreeMap::new();
        let mut policies = BTreeMap::new();
        let mut rest = shown.as_slice();
        for link in &self.links {
            let (own, others) = rest.split_at(rest.len().min(link.workers.into()));
            rest = others;
            let seen: &mut TrafficStat = links.entry(link.name.clone()).or_default();
            own.iter().for_each(|snapshot| seen.add_worker(snapshot));
        }
        let mut reasons = Reasons::new();
        for snapshot in &shown {
            TrafficStat::add_policies(snapshot, &mut policies);
            self.functions.extend(snapshot.functions.iter().copied());
            add_reasons(snapshot, &self.functions, &mut reasons);
        }
        Sums { totals, links, policies, reasons }
    }

    /// Packets of an interface, and losses among them. Wrong checksums are those of its link. Packets that a
    /// level below has handled are not included.
    pub fn interface(&self, name: &str) -> InterfaceStat {
        let shown: Vec<Snapshot> = self.board.read().into_iter().map(|(shown, _)| shown).collect();
        let mut stat = InterfaceStat::default();
        for snapshot in &shown {
            let mut own = snapshot.ports.iter().filter(|(port, _)| port == name).peekable();
            if own.peek().is_some() {
                let of =
                    |name: &str| snapshot.stats.iter().find(|(known, _)| *known == name).map_or(0, |s| s.1);
                stat.invalid_checksums += of("tcp.invalid_checksum");
            }
            for (_, port) in own {
                // As the kernel counts them: including those that found the ring full.
                stat.packets += port.ring_received.saturating_add(port.ring_dropped);
                stat.dropped += port.ring_dropped;
            }
        }
        stat
    }

    /// Seconds since the start.
    pub fn uptime(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// The rules in force.
    pub const fn rules(&self) -> RulesInForce {
        self.rules
    }

    /// The workers' counters: their sums, those of each worker, and those of each link.
    fn gather(&self, snapshots: &[Snapshot]) -> Gathered {
        let sum_of = |shown: &[Snapshot]| {
            let mut sum = Sum::default();
            for snapshot in shown {
                sum.next_worker();
                counters_of(snapshot, |name, value| sum.add(name, value));
            }
            sum.finish()
        };
        let threads: Vec<NamedCounters> = snapshots.chunks(1).map(sum_of).collect();
        let mut rest = snapshots;
        let mut links = Vec::new();
        for link in &self.links {
            let (own, others) = rest.split_at(rest.len().min(link.workers.into()));
            links.push(sum_of(own));
            rest = others;
        }
        let clock = snapshots.iter().map(|s| s.clock).fold(Timestamp::ZERO, Timestamp::max);
        Gathered { clock, totals: sum_of(snapshots), threads, links }
    }

    /// Logs once per link that most checksums are wrong.
    pub fn warn(&mut self, links: &[NamedCounters]) {
        for (link, counters) in self.links.iter_mut().zip(links) {
            let warning = checksum_warning(counters, Some(&link.interface));
            if let Some(warning) = warning.filter(|_| !link.warned) {
                link.warned = true;
                warn!("{warning}");
            }
        }
    }

    /// Writes an event. Returns all its counters, and those of each link where there are several.
    pub fn write(
        &mut self,
        clock: Timestamp,
        totals: &[(&'static str, u64)],
        threads: Vec<NamedCounters>,
        links: Vec<NamedCounters>,
        ports: &Named,
    ) -> (NamedCounters, Named) {
        let (totals, threads, links) = self.with_names(totals, threads, links);
        let (uptime, rules) = (self.uptime(), self.rules);
        let now = StatsNow { clock, uptime, totals: &totals, threads: &threads, links: &links, ports, rules };
        (self.writer.write(&now), links)
    }

    /// Octets and frames of ports in both directions, at the host and at a level below.
    pub fn ports(&self, host: &BTreeMap<String, PortStats>) -> Named {
        let mut ports: BTreeMap<&str, [PortFrames; 2]> = BTreeMap::new();
        for (name, stats) in host {
            let came = PortFrames { octets: stats.received_bytes, casts: stats.received_casts };
            ports.insert(name, [came, PortFrames { octets: stats.sent_bytes, casts: stats.sent_casts }]);
        }
        let of_links = self.levels.iter().flat_map(LevelPortCounters::ports);
        let of_links = of_links.map(|(port, counters)| (port.interface.as_str(), port.is_nearest, counters));
        let exits = self.levels.iter().flat_map(LevelPortCounters::exits);
        let exits = exits.map(|(interface, counters)| (interface, false, counters));
        for (interface, receives, counters) in of_links.chain(exits) {
            let [came, left] = ports.entry(interface).or_default();
            if receives {
                // All received frames; the host, or a level further up, has seen only those that came up.
                *came = PortFrames { octets: counters.bytes(), casts: counters.casts() };
            }
            left.octets = left.octets.saturating_add(counters.out_bytes);
            add_casts(&mut left.casts, &counters.out_casts());
        }
        let named = |(name, [came, left]): (&str, [PortFrames; 2])| {
            let [in_unicast, in_multicast, in_broadcast] = came.casts;
            let [out_unicast, out_multicast, out_broadcast] = left.casts;
            let counters = vec![
                ("in.octets", came.octets),
                ("in.unicast", in_unicast),
                ("in.multicast", in_multicast),
                ("in.broadcast", in_broadcast),
                ("out.octets", left.octets),
                ("out.unicast", out_unicast),
                ("out.multicast", out_multicast),
                ("out.broadcast", out_broadcast),
            ];
            (name.to_owned(), counters)
        };
        ports.into_iter().map(named).collect()
    }

    /// Updates the counters of outputs.
    pub fn refresh(&self, counters: &mut NamedCounters) {
        self.writer.refresh(counters);
    }

    /// Adds the counters that workers do not have, and the names of workers and links.
    fn with_names(
        &self,
        totals: &[(&'static str, u64)],
        threads: Vec<NamedCounters>,
        mut links: Vec<NamedCounters>,
    ) -> (NamedCounters, Named, Named) {
        for (link, beside) in links.iter_mut().zip(&self.beside) {
            link.extend(beside.iter().copied());
        }
        let names = self.links.iter().flat_map(|link| {
            (0..usize::from(link.workers)).map(|worker| thread_name(worker, Some(&link.interface)))
        });
        let threads: Named = names.zip(threads).collect();
        // With a single link its counters are the sums.
        let several = self.links.len() > 1;
        let names = self.links.iter().filter(|_| several).map(|link| link.name.clone());
        (with_beside(totals, &self.beside), threads, names.zip(links).collect())
    }
}

/// Frames of a port in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct PortFrames {
    octets: u64,
    casts: Casts,
}

/// The workers' counters of ports, by name.
fn ports_of(snapshots: &[Snapshot]) -> BTreeMap<String, PortStats> {
    let mut ports: BTreeMap<String, PortStats> = BTreeMap::new();
    for (name, stats) in snapshots.iter().flat_map(|snapshot| &snapshot.ports) {
        let sum = ports.entry(name.clone()).or_default();
        *sum = sum.plus(stats);
    }
    ports
}

/// Counter values at one moment.
pub struct Sums {
    /// All counters, by their names in EVE's `stats`.
    pub totals: NamedCounters,
    /// Traffic of links.
    pub links: BTreeMap<String, TrafficStat>,
    /// Traffic of policies.
    pub policies: BTreeMap<String, TrafficStat>,
    /// Packets of policies that were not forwarded, or would not have been, by reason.
    pub reasons: Reasons,
}

/// Packets that were not forwarded: by policy, whether the refusal was only reported, function, reason.
pub type Reasons = BTreeMap<(String, bool, &'static str, &'static str), u64>;

fn add_reasons(snapshot: &Snapshot, functions: &BTreeMap<FunctionId, &'static str>, reasons: &mut Reasons) {
    let name = |id: FunctionId| functions.get(&id).copied().unwrap_or("unknown");
    let mut add = |key: &DecisionKey, would, function, packets| {
        let policy = snapshot.policies.name(key.policy).to_owned();
        *reasons.entry((policy, would, function, key.reason.name())).or_default() += packets;
    };
    snapshot.refused.iter().for_each(|(key, amount)| add(key, false, name(key.function), amount.packets));
    snapshot.would.iter().for_each(|(key, amount)| add(key, true, name(key.function), amount.packets));
    snapshot.staged.iter().for_each(|(function, key, packets)| add(key, true, function, *packets));
}

/// Traffic of a link or a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficStat {
    /// Packets.
    pub packets: u64,
    /// Captured bytes.
    pub bytes: u64,
    /// Packets that were not forwarded.
    pub refused: u64,
    /// Packets that would not have been forwarded: in detection, and in staged policies.
    pub would: u64,
    /// Alerts.
    pub alerts: u64,
    /// Flows that began.
    pub flows: u64,
}

impl TrafficStat {
    fn passed(&mut self, amount: Amount) {
        self.packets += amount.packets;
        self.bytes += amount.bytes;
    }

    fn refused(&mut self, amount: Amount) {
        self.passed(amount);
        self.refused += amount.packets;
    }

    fn add_worker(&mut self, snapshot: &Snapshot) {
        snapshot.passed.iter().for_each(|amount| self.passed(*amount));
        snapshot.refused.iter().for_each(|(_, amount)| self.refused(*amount));
        self.would += snapshot.would.iter().map(|(_, amount)| amount.packets).sum::<u64>();
        self.would += snapshot.staged.iter().map(|(.., packets)| packets).sum::<u64>();
        self.alerts += snapshot.alerts.iter().flatten().sum::<u64>();
        self.flows += snapshot.flows.iter().sum::<u64>();
    }

    fn add_policies(snapshot: &Snapshot, policies: &mut BTreeMap<String, TrafficStat>) {
        let names = &snapshot.policies;
        let mut of = |number: u32, add: &dyn Fn(&mut TrafficStat)| match policies.get_mut(names.name(number))
        {
            Some(seen) => add(seen),
            None => add(policies.entry(names.name(number).to_owned()).or_default()),
        };
        for (number, amount) in (0..).zip(&snapshot.passed) {
            of(number, &|seen| seen.passed(*amount));
        }
        for (number, alerts) in (0..).zip(&snapshot.alerts) {
            of(number, &|seen| seen.alerts += alerts.iter().sum::<u64>());
        }
        for (number, flows) in (0..).zip(&snapshot.flows) {
            of(number, &|seen| seen.flows += flows);
        }
        for (key, amount) in &snapshot.refused {
            of(key.policy, &|seen| seen.refused(*amount));
        }
        for (key, amount) in &snapshot.would {
            of(key.policy, &|seen| seen.would += amount.packets);
        }
        for (_, key, packets) in &snapshot.staged {
            of(key.policy, &|seen| seen.would += packets);
        }
    }
}

/// Counters by the name of their owner.
pub type Named = Vec<(String, NamedCounters)>;

/// The workers' counters at one moment.
struct Gathered {
    clock: Timestamp,
    totals: NamedCounters,
    threads: Vec<NamedCounters>,
    links: Vec<NamedCounters>,
}

/// The sums of all workers, with the counters that workers do not have.
fn with_beside(totals: &[(&'static str, u64)], beside: &[NamedCounters]) -> NamedCounters {
    let mut all = totals.to_vec();
    for (name, value) in beside.iter().flatten() {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(*value),
            None => all.push((name, *value)),
        }
    }
    all
}

/// All counters of a live worker.
fn counters_of(snapshot: &Snapshot, mut each: impl FnMut(&'static str, u64)) {
    for (name, value) in &snapshot.stats {
        each(name, *value);
    }
    for (_, port) in &snapshot.ports {
        visit_capture(port, &mut each);
    }
    snapshot.live.normaliser.for_each(&mut each);
    snapshot.live.for_each_loss(&mut each);
    snapshot.hand_over.for_each(&mut each);
}

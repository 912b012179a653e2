// SPDX-License-Identifier: Apache-2.0
//! Reports to a controller: alerts, increments of counters, and the generations of workers where these change
//! without a new generation of the controller. They have a thread of their own, which workers never wait for.
//!
//! Counters that cannot be sent are not lost: the next message contains the increments since the last one.

use super::device::Workers;
use super::in_force::InForce;
use crate::metrics::MetricsSource;
use crate::queries;
use crate::stats::{ANSWER, Statistics, Sums, TrafficStat};
use bartizan_agent::session::client::ClientHandle;
use bartizan_api::southbound::{AlertAggregate, Delta, LevelStatus, WorkerRuns};
use bartizan_base::Generation;
use bartizan_dataplane::eve::Tapped;
pub use bartizan_dataplane::eve::TappedAlerts as Alerts;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tracing::info;

/// Interval in which the end of the run is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval in which the generations of workers are checked.
const RUNS: Duration = Duration::from_secs(1);

/// Sources of the reports.
pub struct Sources {
    /// Alerts of workers.
    pub alerts: Alerts,
    /// Counters on the board.
    pub source: Arc<MetricsSource>,
    /// Statistics of the run.
    pub statistics: Arc<Mutex<Statistics>>,
}

/// The reporter; see the module.
pub struct Reporter {
    handle: ClientHandle,
    workers: Workers,
    sources: Sources,
    every: Duration,
    sent: CounterSample,
    /// Generations of workers and states of levels, as last reported.
    runs: (Vec<WorkerRuns>, LevelStatus),
    log: ControllerLogState,
}

/// A reporter's thread; dropping it ends it.
pub struct ReporterThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ReporterThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Reporter {
    /// A reporter for a client. `every`: interval of counter messages.
    pub fn new(handle: ClientHandle, workers: Workers, sources: Sources, every: Duration) -> Self {
        let sent = CounterSample { from: unix_nanos(), counters: BTreeMap::new() };
        Reporter {
            handle,
            workers,
            sources,
            every,
            sent,
            runs: Default::default(),
            log: ControllerLogState::default(),
        }
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(mut self) -> std::io::Result<ReporterThread> {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("southbound-reports".to_owned())
            .spawn(move || self.run(&stopped))?;
        Ok(ReporterThread { stop, thread: Some(thread) })
    }

    fn run(&mut self, stop: &AtomicBool) {
        let (mut runs_at, mut counters_at) = (Instant::now(), Instant::now() + self.every);
        while !stop.load(Ordering::Acquire) {
            match self.sources.alerts.next(POLL_INTERVAL) {
                Ok(Some(tapped)) => self.handle.alert(alert(tapped, &self.workers.in_force)),
                Ok(None) => {}
                // The workers have ended, and the run is about to.
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
            let lost = self.sources.alerts.take_lost();
            if lost > 0 {
                self.handle.count_lost(lost);
            }
            let status = self.handle.status();
            if let Some(line) = self.log.transition_line(status.in_step, status.last_end.as_deref()) {
                info!("controller: {line}");
            }
            let now = Instant::now();
            if now >= runs_at {
                runs_at = now + RUNS;
                self.report_runs();
            }
            if now >= counters_at {
                counters_at = now + self.every;
                self.report_counters();
            }
        }
    }

    /// Reports the generations of workers if they differ from the last report.
    fn report_runs(&mut self) {
        if self.workers.control.running() == Generation(0) {
            return;
        }
        let runs = (self.workers.runs(), self.workers.level_status());
        if runs != self.runs && self.handle.workers(runs.0.clone(), Some(runs.1.clone())) {
            self.runs = runs;
        }
    }

    /// Reports the increments of counters. Without a connection they wait.
    fn report_counters(&mut self) {
        if !self.handle.status().in_step {
            return;
        }
        let Sources { source, statistics, .. } = &self.sources;
        source.request_worker_counters();
        let asked = Instant::now();
        while !source.have_workers_shown() && asked.elapsed() < ANSWER {
            std::thread::sleep(Duration::from_millis(2));
        }
        let now = CounterSample::of(queries::lock(statistics).sums());
        let delta = now.since(&self.sent);
        if delta.counters.is_empty() || self.handle.statistics(delta) {
            self.sent = now;
        }
    }
}

/// Logged state of the connection to the controller: each change is a line of the log, attempts are not.
#[derive(Default)]
struct ControllerLogState {
    in_step: bool,
    /// The last logged problem.
    why: Option<String>,
}

impl ControllerLogState {
    /// The line to be logged now, if any.
    fn transition_line(&mut self, in_step: bool, last_end: Option<&str>) -> Option<String> {
        let before = std::mem::replace(&mut self.in_step, in_step);
        let known = self.why.as_deref() == last_end;
        self.why = last_end.map(str::to_owned);
        match (before, in_step) {
            (false, true) => Some("session established".to_owned()),
            // For example, the failure to store a generation.
            (true, true) => last_end.filter(|_| !known).map(str::to_owned),
            (true, false) | (false, false) => {
                let why = last_end.filter(|_| before || !known)?;
                Some(format!("no session: {why}; the running generation continues; retrying"))
            }
        }
    }
}

/// Counter values at a time.
struct CounterSample {
    /// Nanoseconds since 1970.
    from: u64,
    counters: BTreeMap<String, u64>,
}

impl CounterSample {
    fn of(sums: Sums) -> Self {
        let rising = sums.totals.iter().filter(|(name, _)| !is_level(name));
        let mut counters: BTreeMap<String, u64> =
            rising.map(|(name, value)| ((*name).to_owned(), *value)).collect();
        for (name, seen) in &sums.links {
            add(&mut counters, &format!("link/{name}"), seen);
        }
        for (name, seen) in &sums.policies {
            // A controller's policies have names of the form `TENANT/NAME`.
            let owner = match name.split_once('/') {
                Some((tenant, policy)) => format!("tenant/{tenant}/{policy}"),
                None => format!("policy/{name}"),
            };
            add(&mut counters, &owner, seen);
        }
        for ((policy, would, function, reason), packets) in &sums.reasons {
            // By tenant: the policies' own counters suffice to split the sums.
            let Some((tenant, _)) = policy.split_once('/') else { continue };
            let what = if *would { "@would-refuse" } else { "@refused" };
            *counters.entry(format!("tenant/{tenant}/{what}/{function}/{reason}")).or_default() += packets;
        }
        CounterSample { from: unix_nanos(), counters }
    }

    fn since(&self, before: &CounterSample) -> Delta {
        let risen = |(name, value): (&String, &u64)| {
            let by = value.saturating_sub(before.counters.get(name).copied().unwrap_or(0));
            (by > 0).then(|| (name.clone(), by))
        };
        let counters = self.counters.iter().filter_map(risen).collect();
        Delta { from: before.from, to: self.from, lost: 0, counters }
    }
}

fn add(counters: &mut BTreeMap<String, u64>, owner: &str, seen: &TrafficStat) {
    for (name, value) in [
        ("packets", seen.packets),
        ("bytes", seen.bytes),
        ("refused", seen.refused),
        ("would-refuse", seen.would),
        ("alerts", seen.alerts),
        ("flows", seen.flows),
    ] {
        if value > 0 {
            counters.insert(format!("{owner}/{name}"), value);
        }
    }
}

/// Whether a counter is a present amount or a maximum, whose increments have no meaning.
fn is_level(name: &str) -> bool {
    const ENDS: [&str; 6] = ["memuse", "memcap", ".active", ".active_sessions", ".room", "peak"];
    const BEGINNINGS: [&str; 4] = ["decoder.max_", "decoder.avg_", "host.", "memcap."];
    ENDS.iter().any(|end| name.ends_with(end)) || BEGINNINGS.iter().any(|begin| name.starts_with(begin))
}

fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// An alert in the form of the southbound protocol.
fn alert(tapped: Tapped, in_force: &InForce) -> AlertAggregate {
    let Tapped { key, message, count, first, last, event } = tapped;
    let tenant = in_force.tenant(key.tenant);
    let address =
        |address: Option<std::net::IpAddr>| address.map_or_else(|| "-".to_owned(), |a| a.to_string());
    let text = format!("{tenant}/{}/{}/{}", key.rule, address(key.source), address(key.destination));
    AlertAggregate {
        key: text,
        tenant,
        rule: key.rule.to_string(),
        message,
        count,
        first: first.as_nanos(),
        last: last.as_nanos(),
        event: serde_json::from_slice(&event).map(of_controller).unwrap_or_default(),
    }
}

/// An event without fields that contain numbers of this program; its link moves to the top level.
fn of_controller(mut event: Map<String, Value>) -> Map<String, Value> {
    let own = event.remove("bartizan");
    let link = own.and_then(|mut own| own.get_mut("link").map(Value::take));
    link.into_iter().for_each(|link| _ = event.insert("link".to_owned(), link));
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::RunningGeneration;
    use bartizan_agent::joined::join;
    use bartizan_agent::session::ControllerGeneration;
    use bartizan_api::southbound::LeftOut;
    use bartizan_base::{RuleId, TenantId, Timestamp};
    use bartizan_dataplane::eve::AlertKey;

    #[test]
    fn what_counters_rose_by_is_told_and_levels_are_not() {
        let sums = |packets: u64| Sums {
            totals: vec![("decoder.pkts", packets), ("flow.memuse", packets), ("tcp.syn", 3)],
            links: BTreeMap::from([("wan".to_owned(), seen(packets))]),
            policies: BTreeMap::from([
                ("acme/web".to_owned(), seen(packets)),
                ("default".to_owned(), seen(0)),
            ]),
            reasons: BTreeMap::from([
                (("acme/web".to_owned(), false, "pfw", "pfw_default"), packets),
                (("acme/mail".to_owned(), false, "pfw", "pfw_default"), 1),
                (("acme/web".to_owned(), true, "sfw", "sfw_state"), 2),
                (("default".to_owned(), false, "pfw", "pfw_default"), 7),
            ]),
        };
        fn seen(packets: u64) -> TrafficStat {
            TrafficStat { packets, bytes: packets * 60, alerts: 2, ..TrafficStat::default() }
        }
        let (first, second) = (CounterSample::of(sums(10)), CounterSample::of(sums(15)));
        let all = first.since(&CounterSample { from: 1, counters: BTreeMap::new() });
        assert_eq!((all.from, all.counters["tcp.syn"], all.counters["policy/default/alerts"]), (1, 3, 2));
        assert_eq!(all.counters["tenant/acme/@refused/pfw/pfw_default"], 11);
        assert_eq!(all.counters["tenant/acme/@would-refuse/sfw/sfw_state"], 2);
        let delta = second.since(&first);
        let expected = [
            ("decoder.pkts", 5),
            ("link/wan/bytes", 300),
            ("link/wan/packets", 5),
            ("tenant/acme/@refused/pfw/pfw_default", 5),
            ("tenant/acme/web/bytes", 300),
            ("tenant/acme/web/packets", 5),
        ];
        assert_eq!(delta.counters, expected.map(|(name, by)| (name.to_owned(), by)).into());
        assert_eq!((delta.from, second.since(&second).counters.len()), (first.from, 0));
    }

    #[test]
    fn turns_of_the_way_are_said_and_attempts_are_not() {
        let mut said = ControllerLogState::default();
        assert_eq!(said.transition_line(false, None), None, "nothing was tried yet");
        assert!(
            said.transition_line(false, Some("refused"))
                .is_some_and(|line| line.starts_with("no session: refused;"))
        );
        assert_eq!(said.transition_line(false, Some("refused")), None);
        assert!(said.transition_line(false, Some("expired")).is_some(), "another reason");
        assert_eq!(said.transition_line(true, Some("expired")).as_deref(), Some("session established"));
        assert_eq!(said.transition_line(true, Some("expired")), None);
        assert_eq!(said.transition_line(true, Some("disk full")).as_deref(), Some("disk full"));
        assert_eq!(said.transition_line(true, Some("disk full")), None);
        assert!(said.transition_line(false, Some("disk full")).is_some(), "lost for the same reason");
        assert_eq!(said.transition_line(false, Some("disk full")), None);
    }

    #[test]
    fn alerts_have_the_numbers_of_the_controller() {
        let in_force = InForce::default();
        let mut joined = join(&ControllerGeneration::default()).unwrap();
        joined.tenants = vec![("acme".to_owned(), 33)].into();
        in_force.note(
            RunningGeneration::default(),
            Some(&joined),
            &[("acme".to_owned(), TenantId(1))],
            LeftOut::default(),
        );
        let key = AlertKey {
            tenant: TenantId(1),
            rule: RuleId { gid: 1, sid: 2001, rev: 3 },
            source: Some("10.0.0.1".parse().unwrap()),
            destination: None,
        };
        let event = br#"{"timestamp":"t","bartizan":{"tenant":1,"link":"wan"}}"#.to_vec();
        let at = Timestamp::from_nanos;
        let tapped = Tapped { key, message: "m".into(), count: 4, first: at(5), last: at(9), event };
        let alert = alert(tapped, &in_force);
        assert_eq!(
            (alert.key.as_str(), alert.tenant, alert.rule.as_str()),
            ("33/1:2001:3/10.0.0.1/-", 33, "1:2001:3")
        );
        assert_eq!(Value::Object(alert.event), serde_json::json!({"timestamp": "t", "link": "wan"}));
        assert_eq!((alert.count, alert.first, alert.last), (4, 5, 9));
    }
}

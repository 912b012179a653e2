// SPDX-License-Identifier: Apache-2.0
//! Traces of rules on running workers: `trace` of the command socket.
//!
//! * `plan`: the rule set of a generation that has the rule, and the classes of flows that use it;
//! * [`live`]: a trace in progress, on the workers.
//!
//! Without a trace workers have no extra work: a trace is put around detection between two batches
//! ([`bartizan_stages::observers`]) and removed in the same way. It evaluates the conditions of `bartizan
//! explain rule` with the same code.

pub mod live;
mod plan;

use crate::queries::lock;
use bartizan_base::TenantId;
use bartizan_config::policy::did_you_mean;
use bartizan_dataplane::driver::Control;
use bartizan_dataplane::driver::inquiry::{Collector, FlowsWanted, Question};
use bartizan_detect::explain::trace::{AttemptSummary, Trace};
use bartizan_stages::chain::Chains;
use bartizan_stages::observers::{FunctionObserver, Observers};
use live::{LiveTrace, TraceEndReason, TraceObserver, TraceReport, TraceScope};
use plan::{NoRule, TracePlan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use plan::{Keywords, RuleLabel, RuleNumber};

/// Most traces at once.
pub const TRACES_MAX: usize = 4;
/// Default number of packets of a trace.
pub const PACKETS: u64 = 100;
/// Most packets of a trace.
pub const PACKETS_MAX: u64 = 10_000;
/// Default seconds of a trace.
pub const SECONDS: u64 = 60;
/// Most seconds of a trace.
pub const SECONDS_MAX: u64 = 600;
/// Interval between two checks whether a trace has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest wait for workers to continue without a trace.
const WORKERS: Duration = Duration::from_secs(1);

/// A requested trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// The rule.
    pub rule: RuleNumber,
    /// Number of packets with a matching head after which the trace ends.
    pub packets: u64,
    /// Time after which the trace ends in any case.
    pub time: Duration,
    /// Number of attempts that are described.
    pub attempts: usize,
    /// The flows to trace; `None`: all.
    pub flows: Option<FlowsWanted>,
    /// The tenant whose traffic is traced; `None`: all.
    pub tenant: Option<String>,
}

/// The result of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceAnswer {
    /// The rules that were traced: several where rule sets have different ones.
    pub rules: BTreeSet<RuleLabel>,
    /// Reason of the end: `packets`, `time`, `rule_gone`, `client_gone`, `shutdown`, `failed`.
    pub ended: String,
    /// The end in a sentence.
    pub reason: String,
    /// Generations in which the rule was traced.
    pub generations: BTreeSet<u64>,
    /// Packets on which the rule was evaluated.
    pub packets: u64,
    /// Packets on which the rule's head held.
    pub fitting: u64,
    /// Reports of workers that could not be taken in time: attempts and alerts that are missing below.
    pub lost: u64,
    /// Workers that had not begun the trace when it ended.
    pub late_workers: Vec<u16>,
    /// The report, in the form of `bartizan explain rule`.
    pub trace: Trace,
}

/// State of a trace's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// The client waits.
    Waits,
    /// The client has closed its end.
    Gone,
    /// The program is about to end.
    Ending,
}

/// Reasons why a rule is not traced.
#[derive(Debug, PartialEq, Eq)]
pub enum TraceError {
    /// The rule is not in force; a sentence with the reason.
    Unknown(String),
    /// Another reason.
    Other(String),
}

/// Counters of traces, for `control-stats`.
#[derive(Debug, Default)]
pub struct TraceCounters {
    /// Traces begun.
    pub begun: AtomicU64,
    /// Traces refused because [`TRACES_MAX`] were active.
    pub refused: AtomicU64,
    /// Reports that were lost.
    pub lost: AtomicU64,
}

/// The traces of a run; see the module.
pub struct Traces {
    control: Arc<Control>,
    keywords: Keywords,
    state: Mutex<TraceRegistry>,
    /// The counters.
    pub counters: TraceCounters,
}

struct TraceRegistry {
    /// The chains that run, or that workers are about to enter.
    chains: Arc<Chains>,
    /// Numbers of the tenants, by name.
    tenants: Vec<(String, TenantId)>,
    active: Vec<Arc<LiveTrace>>,
}

impl Traces {
    /// The traces of the workers of `control`, which run these chains.
    pub fn new(
        control: &Arc<Control>,
        keywords: Keywords,
        chains: &Arc<Chains>,
        tenants: Vec<(String, TenantId)>,
    ) -> Self {
        let state = TraceRegistry { chains: Arc::clone(chains), tenants, active: Vec::new() };
        Traces {
            control: Arc::clone(control),
            keywords,
            state: Mutex::new(state),
            counters: TraceCounters::default(),
        }
    }

    /// Continues traces in another generation, or ends them. Called before workers enter it.
    pub fn enter(&self, chains: &Arc<Chains>, tenants: Vec<(String, TenantId)>) {
        let mut state = lock(&self.state);
        (state.chains, state.tenants) = (Arc::clone(chains), tenants);
        for trace in &state.active {
            let Some(rule) = trace.all_plans().last().map(|plan| plan.wanted) else { continue };
            match TracePlan::new(chains, rule, &self.keywords) {
                Ok(plan) => trace.enter(plan),
                Err(why) => trace
                    .end(Some(TraceEndReason::RuleGone(chains.generation, reason_not_traced(rule, &why)))),
            }
        }
    }

    /// Number of active traces.
    pub fn now(&self) -> usize {
        lock(&self.state).active.len()
    }

    /// Traces a rule until the trace has ended. `client` is called from time to time.
    pub fn trace(
        &self,
        wanted: &TraceRequest,
        client: &dyn Fn() -> ClientState,
    ) -> Result<TraceAnswer, TraceError> {
        let (trace, from, begun) = self.begin(wanted)?;
        let ends = TraceGuard(self, &trace);
        let mut summary = AttemptSummary::keeping(wanted.attempts);
        let (ended, reason) = collect(&trace, &from, wanted, client, &mut summary);
        drop(ends);
        let late_workers = late(begun);
        // Reports of the workers up to the end.
        from.try_iter().for_each(|report| add(&mut summary, report));
        let counts = &trace.counts;
        let of = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        summary.add_head_failures(counts.head_failures.each_ref().map(of));
        self.counters.lost.fetch_add(trace.lost(), Ordering::Relaxed);
        let plans = trace.all_plans();
        Ok(TraceAnswer {
            rules: plans.iter().flat_map(|plan| plan.labels()).collect(),
            ended: ended.to_owned(),
            reason,
            generations: plans.iter().map(|plan| plan.generation.0).collect(),
            packets: of(&counts.packets),
            fitting: of(&counts.fitting),
            lost: trace.lost(),
            late_workers,
            trace: summary.finish(),
        })
    }

    fn begin(
        &self,
        wanted: &TraceRequest,
    ) -> Result<(Arc<LiveTrace>, Receiver<TraceReport>, Collector), TraceError> {
        let mut state = lock(&self.state);
        let other = TraceError::Other;
        if state.active.len() >= TRACES_MAX {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return Err(other(format!(
                "{TRACES_MAX} rules are already traced; retry when one of these traces has ended"
            )));
        }
        let tenant = wanted.tenant.as_deref().map(|name| tenant(&state.tenants, name));
        let scope = TraceScope { flows: wanted.flows, tenant: tenant.transpose().map_err(other)? };
        let plan = TracePlan::new(&state.chains, wanted.rule, &self.keywords).map_err(|why| {
            let said = reason_not_traced(wanted.rule, &why);
            match why {
                NoRule::Unknown(..) => TraceError::Unknown(said),
                NoRule::NoDetection | NoRule::Ambiguous(_) => TraceError::Other(said),
            }
        })?;
        let (trace, from) = LiveTrace::new(plan, scope, wanted.packets, wanted.attempts);
        let trace = Arc::new(trace);
        state.active.push(Arc::clone(&trace));
        let Some(begun) = self.install(&state) else {
            state.active.pop();
            return Err(other("the workers' queue of queries is full; retry later".to_owned()));
        };
        self.counters.begun.fetch_add(1, Ordering::Relaxed);
        Ok((trace, from, begun))
    }

    /// Puts the active traces around detection on the workers. `None`: their queues of queries are full; an
    /// ended trace evaluates nothing there any more, and is removed with the next change or generation.
    fn install(&self, state: &TraceRegistry) -> Option<Collector> {
        let observer =
            |trace: &Arc<LiveTrace>| Arc::new(TraceObserver(Arc::clone(trace))) as Arc<dyn FunctionObserver>;
        let observers = Observers::new(state.active.iter().map(observer).collect());
        self.control.query(Question::Observe(observers))
    }
}

/// Ends a trace when dropped.
struct TraceGuard<'t>(&'t Traces, &'t Arc<LiveTrace>);

impl Drop for TraceGuard<'_> {
    fn drop(&mut self) {
        let TraceGuard(traces, trace) = self;
        trace.end(None);
        let mut state = lock(&traces.state);
        state.active.retain(|other| !Arc::ptr_eq(other, trace));
        let without = traces.install(&state);
        drop(state);
        // Workers that have ended with the program have sent everything, and do not answer any more.
        if let Some(mut without) = without.filter(|_| !traces.control.stopping()) {
            let end = Instant::now() + WORKERS;
            without.collect(|| end.saturating_duration_since(Instant::now()));
        }
    }
}

fn tenant(known: &[(String, TenantId)], name: &str) -> Result<TenantId, String> {
    let found = known.iter().find(|(of, _)| of == name).map(|(_, id)| *id);
    found.ok_or_else(|| match known.is_empty() {
        true => {
            format!("there is no tenant `{name}`: this run has no policy with tenants; remove the tenant")
        }
        false => format!(
            "there is no tenant `{name}`; {}",
            did_you_mean(name, known.iter().map(|(of, _)| of.as_str()))
        ),
    })
}

/// Takes reports until a trace has ended. Returns the reason, as a word and a sentence.
fn collect(
    trace: &LiveTrace,
    from: &Receiver<TraceReport>,
    wanted: &TraceRequest,
    client: &dyn Fn() -> ClientState,
    summary: &mut AttemptSummary,
) -> (&'static str, String) {
    let end = Instant::now() + wanted.time;
    let mut looked = Instant::now();
    loop {
        match from.recv_timeout(POLL_INTERVAL) {
            Ok(report) => add(summary, report),
            Err(RecvTimeoutError::Timeout) => {}
            // The trace itself holds the other end.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL_INTERVAL),
        }
        if trace.is_over() {
            return words(trace.ended());
        }
        if looked.elapsed() < POLL_INTERVAL {
            continue;
        }
        looked = Instant::now();
        if looked >= end {
            return ("time", format!("{} seconds are over", wanted.time.as_secs()));
        }
        match client() {
            ClientState::Waits => {}
            ClientState::Gone => return ("client_gone", "the client disconnected".to_owned()),
            ClientState::Ending => return ("shutdown", "the program is stopping".to_owned()),
        }
    }
}

fn words(end: Option<TraceEndReason>) -> (&'static str, String) {
    match end {
        Some(TraceEndReason::Packets) => {
            ("packets", "the requested number of packets has matched the rule's header".to_owned())
        }
        Some(TraceEndReason::RuleGone(generation, why)) => {
            ("rule_gone", format!("generation {} does not have the rule: {why}", generation.0))
        }
        Some(TraceEndReason::Failed(what)) => {
            ("failed", format!("tracing failed, {what}; please report this defect"))
        }
        None => ("shutdown", "the trace was stopped".to_owned()),
    }
}

fn add(summary: &mut AttemptSummary, report: TraceReport) {
    match report {
        TraceReport::Attempt(attempt) => summary.add(attempt),
        TraceReport::Alerts(packet, alerts) => summary.add_alerts(packet, alerts),
    }
}

/// The workers that have not begun a trace.
fn late(mut begun: Collector) -> Vec<u16> {
    begun.collect(|| Duration::ZERO);
    begun.finish().1.iter().map(|worker| worker.0).collect()
}

/// The reason why a rule cannot be traced, as a sentence.
fn reason_not_traced(rule: RuleNumber, why: &NoRule) -> String {
    match why {
        NoRule::NoDetection => "no chain of the running generation has detection (`ids`)".to_owned(),
        NoRule::Unknown(0, _) => format!("no rule with sid {rule} is in force: no rules are loaded"),
        NoRule::Unknown(count, nearest) => {
            let nearest = nearest.map(|sid| format!("; the nearest is {sid}")).unwrap_or_default();
            format!("no rule with sid {rule} among the {count} in force{nearest}")
        }
        NoRule::Ambiguous(all) => {
            format!("several rules have this sid: {}; name one of them as gid:sid", all.join(", "))
        }
    }
}
/// Parses the number of a rule: a sid, or gid:sid.
///
/// # Errors
/// The text is no number.
pub fn parse_sid(text: &str) -> Result<(Option<u32>, u32), String> {
    let number = |text: &str| {
        text.parse::<u32>()
            .map_err(|_| format!("`{text}` is not a number; write the sid, for example 2019284"))
    };
    match text.split_once(':') {
        Some((gid, sid)) => Ok((Some(number(gid)?), number(sid)?)),
        None => Ok((None, number(text)?)),
    }
}

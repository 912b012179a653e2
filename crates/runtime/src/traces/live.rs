// SPDX-License-Identifier: Apache-2.0
//! A trace in progress: workers evaluate the rule on their packets and pass the outcome on; they never wait
//! for the thread that collects it.

use super::plan::TracePlan;
use bartizan_base::{Generation, TenantId, WorkerId};
use bartizan_dataplane::driver::inquiry::FlowsWanted;
use bartizan_detect::explain::trace::{AppliedRule, Attempt, LiveOrigin, PacketTrace, TraceSession, Traced};
use bartizan_events::time_text;
use bartizan_function::contain::Panicked;
use bartizan_function::{Function, PacketContext};
use bartizan_stages::observers::{FunctionObserver, ObservedPlace};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Most attempts that wait to be collected.
pub const ATTEMPTS_WAITING: usize = 1024;
/// Generations in which a trace has its rule: the running one and the one that workers are about to leave.
const GENERATIONS: usize = 2;

/// Selection of the packets of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceScope {
    /// Packets of these flows; `None`: all, also packets without a flow.
    pub flows: Option<FlowsWanted>,
    /// Packets of this tenant.
    pub tenant: Option<TenantId>,
}

impl TraceScope {
    fn fits(&self, context: &PacketContext<'_>) -> bool {
        let is_meant = |flows: &FlowsWanted| {
            context.facts.flow.is_some_and(|flow| {
                flows.number.is_none_or(|number| number == flow.id)
                    && flows.fits_ends(flow.protocol, [flow.client, flow.server])
            })
        };
        self.tenant.is_none_or(|tenant| tenant == context.notes.tenant)
            && self.flows.as_ref().is_none_or(is_meant)
    }
}

/// Reasons for the end of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEndReason {
    /// The rule's head has held for the requested number of packets.
    Packets,
    /// The rule is not in a new generation, for this reason.
    RuleGone(Generation, String),
    /// Tracing has panicked.
    Failed(String),
}

/// A part of the outcome on its way from a worker.
pub enum TraceReport {
    /// An attempt.
    Attempt(Attempt),
    /// Alerts of a packet.
    Alerts(u64, u64),
}

/// The queue of reports to the collecting thread. Workers never wait for it.
struct Reports {
    to: SyncSender<TraceReport>,
    /// Attempts for which there was no room.
    lost: AtomicU64,
}

impl Reports {
    fn open() -> (Self, Receiver<TraceReport>) {
        let (to, from) = sync_channel(ATTEMPTS_WAITING);
        (Reports { to, lost: AtomicU64::new(0) }, from)
    }

    fn send(&self, report: TraceReport) {
        if self.to.try_send(report).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Counters of a trace at the workers.
#[derive(Debug, Default)]
pub struct TraceTally {
    /// Packets on which the rule was evaluated.
    pub packets: AtomicU64,
    /// Packets on which the rule's head held.
    pub fitting: AtomicU64,
    /// Attempts that failed at each condition of the head and are not described.
    pub head_failures: [AtomicU64; 3],
}

/// The trace; see the module.
pub struct LiveTrace {
    scope: TraceScope,
    /// Number of packets with a matching head after which the trace ends.
    most: u64,
    /// Most attempts of a kind that fail at the head and that workers describe.
    kept: usize,
    plans: Mutex<Vec<Arc<TracePlan>>>,
    is_over: AtomicBool,
    end: Mutex<Option<TraceEndReason>>,
    reports: Reports,
    /// Counters of the workers.
    pub counts: TraceTally,
}

impl LiveTrace {
    /// A trace that begins in a generation, and the receiver of its reports.
    pub fn new(plan: TracePlan, scope: TraceScope, most: u64, kept: usize) -> (Self, Receiver<TraceReport>) {
        let (reports, from) = Reports::open();
        let plans = Mutex::new(vec![Arc::new(plan)]);
        let (is_over, end, counts) = (AtomicBool::new(false), Mutex::default(), TraceTally::default());
        (LiveTrace { scope, most, kept, plans, is_over, end, reports, counts }, from)
    }

    /// Ends the trace; the first reason counts.
    pub fn end(&self, why: Option<TraceEndReason>) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_over.swap(true, Ordering::AcqRel) {
            *end = why;
        }
    }

    /// Whether the trace has ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The reason why the trace has ended without a request.
    pub fn ended(&self) -> Option<TraceEndReason> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn plans(&self) -> std::sync::MutexGuard<'_, Vec<Arc<TracePlan>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues in a new generation.
    pub fn enter(&self, plan: TracePlan) {
        let mut plans = self.plans();
        plans.push(Arc::new(plan));
        let old = plans.len().saturating_sub(GENERATIONS);
        plans.drain(..old);
    }

    /// The plans, the latest last.
    pub fn all_plans(&self) -> Vec<Arc<TracePlan>> {
        self.plans().clone()
    }

    fn plan(&self, generation: Generation) -> Option<Arc<TracePlan>> {
        self.plans().iter().find(|plan| plan.generation == generation).cloned()
    }

    /// Number of reports that could not be taken in time.
    pub fn lost(&self) -> u64 {
        self.reports.lost.load(Ordering::Acquire)
    }
}

/// Puts a trace around detection on workers.
pub struct TraceObserver(pub Arc<LiveTrace>);

impl FunctionObserver for TraceObserver {
    fn around(&self, function: &Arc<dyn Function>, place: ObservedPlace) -> Option<Arc<dyn Function>> {
        let trace = &self.0;
        if trace.is_over() || function.spec().name != bartizan_functions::ids::SPEC.name {
            return None;
        }
        let plan = trace.plan(place.generation)?;
        let session =
            WorkerSession { trace: Arc::clone(trace), plan, worker: place.worker, packet: AtomicU64::new(0) };
        Some(Arc::new(Traced::new(Arc::clone(function), Arc::new(session))))
    }
}

/// A trace on one worker, in one generation.
struct WorkerSession {
    trace: Arc<LiveTrace>,
    plan: Arc<TracePlan>,
    worker: WorkerId,
    /// Number of the current packet.
    packet: AtomicU64,
}

impl TraceSession for WorkerSession {
    fn rule(&self, context: &PacketContext<'_>) -> Option<AppliedRule<'_>> {
        if self.trace.is_over() || !self.trace.scope.fits(context) {
            return None;
        }
        self.plan.rule(context)
    }

    fn kept(&self) -> usize {
        self.trace.kept
    }

    fn take(&self, context: &PacketContext<'_>, rule: &AppliedRule<'_>, outcome: PacketTrace) {
        let counts = &self.trace.counts;
        if outcome.head_held && !context.facts.again {
            // Several workers may count at once: packets beyond the last one are not reported.
            let before = counts.fitting.fetch_add(1, Ordering::AcqRel);
            if before >= self.trace.most {
                counts.fitting.fetch_sub(1, Ordering::AcqRel);
                return;
            }
            if before + 1 == self.trace.most {
                self.trace.end(Some(TraceEndReason::Packets));
            }
        }
        if !context.facts.again {
            self.packet.store(counts.packets.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        for (counter, count) in counts.head_failures.iter().zip(outcome.head_failures) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
        let packet = self.packet.load(Ordering::Relaxed);
        if outcome.alerts > 0 {
            self.trace.reports.send(TraceReport::Alerts(packet, outcome.alerts));
        }
        for attempt in outcome.attempts {
            let live = Some(LiveOrigin {
                timestamp: time_text(context.facts.now),
                worker: self.worker.0,
                generation: self.plan.generation.0,
                flow_id: context.facts.flow.map(|flow| flow.id),
                rule: rule.rule.signature().map(|s| s.id.to_string()).unwrap_or_default(),
            });
            self.trace.reports.send(TraceReport::Attempt(Attempt { packet, live, ..attempt }));
        }
    }

    fn fail(&self, panicked: &Panicked) {
        self.trace.end(Some(TraceEndReason::Failed(panicked.to_string())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_collects_is_counted_and_waited_for_by_nobody() {
        let (reports, from) = Reports::open();
        for packet in 0..ATTEMPTS_WAITING as u64 + 7 {
            reports.send(TraceReport::Alerts(packet, 1));
        }
        assert_eq!(reports.lost.load(Ordering::Relaxed), 7);
        assert_eq!(from.try_iter().count(), ATTEMPTS_WAITING);
        reports.send(TraceReport::Alerts(0, 1));
        assert_eq!((from.try_iter().count(), reports.lost.load(Ordering::Relaxed)), (1, 7));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The condition of functions on a worker: running, stopped by an order, or failed, with its history
//! (docs/functions.md). Each worker keeps this for itself; packets need no shared state.

use bartizan_base::{FunctionId, PacketDuration, Path, Timestamp};
use bartizan_function::contain::Panicked;
use std::sync::Arc;

/// The condition of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FunctionCondition {
    /// The function is called.
    #[default]
    Running,
    /// An order has stopped the function.
    Stopped,
    /// The function has panicked and is not called until it is started again.
    Failed,
}

impl FunctionCondition {
    /// Name in answers, events and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FunctionCondition::Running => "running",
            FunctionCondition::Stopped => "stopped",
            FunctionCondition::Failed => "failed",
        }
    }
}

/// An order for a function, which a worker carries out between two batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleCommand {
    /// Starts the function without its earlier state; no effect on a running one.
    Start,
    /// Stops calling the function: packets are forwarded without it or refused, by policy.
    Stop,
    /// Starts the function without its earlier state, even if it is running.
    Restart,
}

/// Bounds on automatic restarts of a failed function. All times are of the packet clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartBounds {
    /// Most restarts in a row; then the function stays failed until an order or another generation starts it.
    /// 0: none.
    pub attempts: u32,
    /// Delay of the first restart; doubled with each further failure.
    pub first: PacketDuration,
    /// Longest delay.
    pub longest: PacketDuration,
    /// A function that has run for this time has all its attempts again.
    pub steady: PacketDuration,
}

impl Default for RestartBounds {
    fn default() -> Self {
        RestartBounds {
            attempts: 5,
            first: PacketDuration::from_secs(1),
            longest: PacketDuration::from_secs(60),
            steady: PacketDuration::from_secs(600),
        }
    }
}

impl RestartBounds {
    /// The delay before an attempt, the first being 0. `None`: there are no further attempts.
    #[must_use]
    pub fn wait(&self, attempt: u32) -> Option<PacketDuration> {
        if attempt >= self.attempts {
            return None;
        }
        let doubled = self.first.as_nanos().saturating_mul(1u64.checked_shl(attempt).unwrap_or(u64::MAX));
        Some(PacketDuration::from_nanos(doubled.min(self.longest.as_nanos())))
    }
}

/// The condition of a function of the running generation on a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionNow {
    /// The function.
    pub function: &'static str,
    /// The function's bit in paths.
    pub id: FunctionId,
    /// Condition.
    pub condition: FunctionCondition,
    /// Start of this condition by the packet clock; 0: the start of the worker.
    pub since: Timestamp,
    /// Number of failures.
    pub failures: u64,
    /// Number of restarts, automatic or by order.
    pub restarts: u64,
    /// Time of the next automatic restart, if there is one.
    pub restart_at: Option<Timestamp>,
    /// The latest panic.
    pub panicked: Option<Arc<Panicked>>,
}

/// A change in the condition of a function on a worker: a line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionEvent {
    /// The function.
    pub function: &'static str,
    /// The change.
    pub what: FunctionEventKind,
}

/// The kind of change in the condition of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionEventKind {
    /// The function has failed; the delay until its restart, if it is restarted.
    Failed(Arc<Panicked>, Option<PacketDuration>),
    /// The function has been started.
    Started,
    /// The function has been stopped.
    Stopped,
}

impl core::fmt::Display for FunctionEvent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = self.function;
        match &self.what {
            FunctionEventKind::Failed(panicked, Some(wait)) => {
                let seconds = wait.as_nanos() as f64 / 1e9;
                write!(
                    f,
                    "function `{name}` failed: {panicked}; it restarts in {seconds} s; please report this defect"
                )
            }
            FunctionEventKind::Failed(panicked, None) => write!(
                f,
                "function `{name}` failed: {panicked}; it stays stopped until `bartizan ctl function start {name}`; please report this defect"
            ),
            FunctionEventKind::Started => write!(f, "function `{name}` is running again"),
            FunctionEventKind::Stopped => write!(f, "function `{name}` was stopped"),
        }
    }
}

/// Most events kept for the log; further ones are not logged (counters and answers include them).
pub const NEWS_MAX: usize = 64;

/// The history of a function that has failed or got an order.
#[derive(Clone, Debug, Default)]
struct LifecycleRecord {
    condition: FunctionCondition,
    since: Timestamp,
    failures: u64,
    restarts: u64,
    /// Restarts in a row.
    attempts: u32,
    restart_at: Option<Timestamp>,
    panicked: Option<Arc<Panicked>>,
    /// State of flows that is older than this start of the function does not count.
    begun: u32,
}

/// The conditions of a worker's functions.
#[derive(Debug)]
pub struct Lifecycle {
    bounds: RestartBounds,
    /// Functions that are not called.
    away: Path,
    /// Functions that an order has stopped; a part of `away`.
    stopped: Path,
    /// By bit, as far as there is a history.
    records: Vec<LifecycleRecord>,
    /// Number of starts of functions; slots of flows that were checked at a lower number may be out of date.
    begun: u32,
    /// Time of the next restart.
    due: Timestamp,
    events: Vec<FunctionEvent>,
    /// The events with their times, for the recorder.
    unrecorded: Vec<(Timestamp, FunctionEvent)>,
}

/// Later than all packets.
const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

impl Lifecycle {
    /// With all functions running.
    pub const fn new(bounds: RestartBounds) -> Self {
        Lifecycle {
            bounds,
            away: Path::EMPTY,
            stopped: Path::EMPTY,
            records: Vec::new(),
            begun: 0,
            due: NEVER,
            events: Vec::new(),
            unrecorded: Vec::new(),
        }
    }

    /// Functions that are not called.
    #[inline]
    pub const fn away(&self) -> Path {
        self.away
    }

    /// Whether an order has stopped a function.
    pub const fn is_stopped(&self, id: FunctionId) -> bool {
        self.stopped.contains(id)
    }

    /// The number of starts of functions so far.
    #[inline]
    pub const fn begun(&self) -> u32 {
        self.begun
    }

    /// Whether a function has been started after the start number `begun`.
    pub fn has_begun_since(&self, id: FunctionId, begun: u32) -> bool {
        self.records.get(usize::from(id.0)).is_some_and(|record| record.begun > begun)
    }

    /// Whether a restart is due.
    #[inline]
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due
    }

    /// The functions whose restart is due.
    pub fn due(&self, now: Timestamp) -> Path {
        let bits = (0u8..).map(FunctionId).zip(&self.records);
        bits.filter(|(_, record)| record.restart_at.is_some_and(|at| now >= at))
            .fold(Path::EMPTY, |path, (id, _)| path.with(id))
    }

    fn record(&mut self, id: FunctionId) -> Option<&mut LifecycleRecord> {
        let place = usize::from(id.0);
        if self.records.len() <= place {
            self.records.resize(place + 1, LifecycleRecord::default());
        }
        self.records.get_mut(place)
    }

    /// Stops calling a function whose panic [`Lifecycle::failed`] notes afterwards.
    pub const fn leave(&mut self, id: FunctionId) {
        self.away = self.away.with(id);
    }

    /// Notes that a function has panicked.
    pub fn failed(&mut self, id: FunctionId, function: &'static str, panicked: Panicked, now: Timestamp) {
        self.leave(id);
        let bounds = self.bounds;
        let Some(record) = self.record(id) else { return };
        if now.since(record.since) >= bounds.steady {
            record.attempts = 0;
        }
        let wait = bounds.wait(record.attempts);
        let panicked = Arc::new(panicked);
        record.attempts += u32::from(wait.is_some());
        record.failures += 1;
        record.panicked = Some(Arc::clone(&panicked));
        record.restart_at = wait.map(|wait| now + wait);
        (record.condition, record.since) = (FunctionCondition::Failed, now);
        self.note_due();
        self.report(function, FunctionEventKind::Failed(panicked, wait), now);
    }

    /// Notes that a function is started without its earlier state. `forgives`: by an order, which resets the
    /// number of attempts.
    pub fn started(&mut self, id: FunctionId, function: &'static str, now: Timestamp, forgives: bool) {
        self.away = self.away.without(id);
        self.stopped = self.stopped.without(id);
        self.begun = self.begun.saturating_add(1);
        let begun = self.begun;
        let Some(record) = self.record(id) else { return };
        record.begun = begun;
        record.restarts += 1;
        record.restart_at = None;
        if forgives {
            record.attempts = 0;
        }
        (record.condition, record.since) = (FunctionCondition::Running, now);
        self.note_due();
        self.report(function, FunctionEventKind::Started, now);
    }

    /// Notes that no chain has a failed function any more: if it returns, it starts without its earlier
    /// state.
    pub fn forget(&mut self, id: FunctionId) {
        self.away = self.away.without(id);
        self.begun = self.begun.saturating_add(1);
        let begun = self.begun;
        let Some(record) = self.record(id) else { return };
        (record.begun, record.restart_at, record.attempts) = (begun, None, 0);
        record.condition = FunctionCondition::Running;
        self.note_due();
    }

    /// Notes that an order stops a function.
    pub fn stopped(&mut self, id: FunctionId, function: &'static str, now: Timestamp) {
        self.leave(id);
        self.stopped = self.stopped.with(id);
        let Some(record) = self.record(id) else { return };
        record.restart_at = None;
        (record.condition, record.since) = (FunctionCondition::Stopped, now);
        self.note_due();
        self.report(function, FunctionEventKind::Stopped, now);
    }

    fn note_due(&mut self) {
        self.due = self.records.iter().filter_map(|record| record.restart_at).min().unwrap_or(NEVER);
    }

    fn report(&mut self, function: &'static str, what: FunctionEventKind, now: Timestamp) {
        let news = FunctionEvent { function, what };
        if self.unrecorded.len() < NEWS_MAX {
            self.unrecorded.push((now, news.clone()));
        }
        if self.events.len() < NEWS_MAX {
            self.events.push(news);
        }
    }

    /// Whether there are events for the recorder. Tested for each frame.
    #[inline]
    pub const fn is_unrecorded(&self) -> bool {
        !self.unrecorded.is_empty()
    }

    /// Takes the events for the recorder.
    pub fn take_unrecorded(&mut self) -> Vec<(Timestamp, FunctionEvent)> {
        core::mem::take(&mut self.unrecorded)
    }

    /// Takes the events since the last call.
    pub fn take_events(&mut self) -> Vec<FunctionEvent> {
        core::mem::take(&mut self.events)
    }

    /// Whether there are events since the last call of [`Lifecycle::take_events`].
    #[inline]
    pub const fn has_news(&self) -> bool {
        !self.events.is_empty()
    }

    /// The condition of a function.
    pub fn now(&self, id: FunctionId, function: &'static str) -> FunctionNow {
        let record = self.records.get(usize::from(id.0)).cloned().unwrap_or_default();
        FunctionNow {
            function,
            id,
            condition: record.condition,
            since: record.since,
            failures: record.failures,
            restarts: record.restarts,
            restart_at: record.restart_at,
            panicked: record.panicked,
        }
    }

    /// Failures and restarts of all functions, and the number of functions that are failed now.
    pub fn sums(&self) -> (u64, u64, u64) {
        let sum = |of: fn(&LifecycleRecord) -> u64| self.records.iter().map(of).sum();
        let failed = |record: &LifecycleRecord| u64::from(record.condition == FunctionCondition::Failed);
        (sum(|record| record.failures), sum(|record| record.restarts), sum(failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PFW: (FunctionId, &str) = (FunctionId(3), "pfw");

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_parts(seconds, 0)
    }

    #[test]
    fn a_function_is_started_again_later_and_later_and_then_no_more() {
        let bounds = RestartBounds { attempts: 3, ..RestartBounds::default() };
        let mut lifecycle = Lifecycle::new(bounds);
        let mut now = at(1_000);
        for wait in [1, 2, 4] {
            lifecycle.failed(PFW.0, PFW.1, Panicked::default(), now);
            assert!(lifecycle.away().contains(PFW.0) && !lifecycle.is_due(now));
            now = now + PacketDuration::from_secs(wait);
            assert!(lifecycle.is_due(now) && lifecycle.due(now).contains(PFW.0), "{wait}");
            lifecycle.started(PFW.0, PFW.1, now, false);
            assert!(lifecycle.away().is_empty() && !lifecycle.is_due(now));
        }
        lifecycle.failed(PFW.0, PFW.1, Panicked::default(), now);
        assert!(!lifecycle.is_due(now + PacketDuration::from_secs(100_000)));
        // An order resets the attempts.
        lifecycle.started(PFW.0, PFW.1, now, true);
        lifecycle.failed(PFW.0, PFW.1, Panicked::default(), now);
        assert!(lifecycle.is_due(now + bounds.first));
        let said = lifecycle.now(PFW.0, PFW.1);
        assert_eq!((said.condition, said.failures, said.restarts), (FunctionCondition::Failed, 5, 4));
        assert_eq!(lifecycle.take_events().len(), 9);
    }

    #[test]
    fn who_has_run_for_long_has_its_attempts_anew_and_waits_have_a_bound() {
        let bounds =
            RestartBounds { attempts: 40, longest: PacketDuration::from_secs(7), ..RestartBounds::default() };
        assert_eq!(bounds.wait(39), Some(PacketDuration::from_secs(7)));
        assert_eq!(bounds.wait(40), None);
        assert_eq!(RestartBounds { attempts: 0, ..bounds }.wait(0), None);
        let mut lifecycle = Lifecycle::new(RestartBounds { attempts: 1, ..bounds });
        lifecycle.failed(PFW.0, PFW.1, Panicked::default(), at(1_000));
        lifecycle.started(PFW.0, PFW.1, at(1_001), false);
        lifecycle.failed(PFW.0, PFW.1, Panicked::default(), at(1_001 + 600));
        assert!(lifecycle.is_due(at(1_602)));
    }

    #[test]
    fn a_stopped_function_is_not_started_by_itself() {
        let mut lifecycle = Lifecycle::new(RestartBounds::default());
        lifecycle.failed(PFW.0, PFW.1, Panicked::default(), at(1));
        lifecycle.stopped(PFW.0, PFW.1, at(1));
        assert!(!lifecycle.is_due(at(1_000_000)) && lifecycle.is_stopped(PFW.0));
        lifecycle.started(PFW.0, PFW.1, at(2), true);
        assert!(!lifecycle.is_stopped(PFW.0) && lifecycle.has_begun_since(PFW.0, 0));
        assert!(!lifecycle.has_begun_since(FunctionId(2), 0));
    }

    #[test]
    fn news_have_a_bound() {
        let mut lifecycle = Lifecycle::new(RestartBounds::default());
        (0..100).for_each(|_| lifecycle.stopped(PFW.0, PFW.1, at(1)));
        assert_eq!(lifecycle.take_events().len(), NEWS_MAX);
        assert!(!lifecycle.has_news());
    }
}

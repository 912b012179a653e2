// SPDX-License-Identifier: Apache-2.0
//! How functions stand on a worker: running, stopped by an order, or failed, and what is known of that
//! (docs/functions.md). A worker has its own word on each function; nobody else is asked while packets go on.

use bartizan_base::{FunctionId, PacketDuration, Path, Timestamp};
use bartizan_function::contain::Panicked;
use std::sync::Arc;

/// How a function stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// It is called.
    #[default]
    Running,
    /// An order has stopped it.
    Stopped,
    /// It has panicked, and is not called until it is started again.
    Failed,
}

impl Condition {
    /// Name in answers, events and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Condition::Running => "running",
            Condition::Stopped => "stopped",
            Condition::Failed => "failed",
        }
    }
}

/// What a worker is told to do with a function, between two batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Calls it again, with nothing that it knew before. Of one that runs nothing changes.
    Start,
    /// Calls it no more: chains go on without it, as policies say.
    Stop,
    /// Calls it with nothing that it knew before, also if it runs.
    Restart,
}

/// When a function that has failed is started again by itself. All by the packet clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartBounds {
    /// So many times in a row; then it stays failed until an order or another generation starts it. 0: never.
    pub attempts: u32,
    /// After its first failure in so much time, after each further one in twice the time of the one before.
    pub first: PacketDuration,
    /// In so much at most.
    pub longest: PacketDuration,
    /// One that has run for so long has its attempts anew.
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
    /// The time before an attempt, the first being 0. `None`: there is none.
    #[must_use]
    pub fn wait(&self, attempt: u32) -> Option<PacketDuration> {
        if attempt >= self.attempts {
            return None;
        }
        let doubled = self.first.as_nanos().saturating_mul(1u64.checked_shl(attempt).unwrap_or(u64::MAX));
        Some(PacketDuration::from_nanos(doubled.min(self.longest.as_nanos())))
    }
}

/// How a function of the running generation stands on a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionNow {
    /// The function.
    pub function: &'static str,
    /// Its bit in paths.
    pub id: FunctionId,
    /// How it stands.
    pub condition: Condition,
    /// Since when, by the packet clock; 0: since the worker began.
    pub since: Timestamp,
    /// How often it has failed.
    pub failures: u64,
    /// How often it was started again, by itself or by an order.
    pub restarts: u64,
    /// When it is started again by itself, if it is.
    pub restart_at: Option<Timestamp>,
    /// The latest panic.
    pub panicked: Option<Arc<Panicked>>,
}

/// Something that has happened to a function on a worker: a line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionEvent {
    /// The function.
    pub function: &'static str,
    /// What.
    pub what: FunctionEventKind,
}

/// What has happened to a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionEventKind {
    /// It has failed; in how much time it is started again, if it is.
    Failed(Arc<Panicked>, Option<PacketDuration>),
    /// It is called again.
    Started,
    /// It is called no more.
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
                    "function `{name}` has failed: {panicked}; it is started again in {seconds} s, please report it"
                )
            }
            FunctionEventKind::Failed(panicked, None) => write!(
                f,
                "function `{name}` has failed: {panicked}; it stays failed: `bartizan ctl function start {name}` starts it, please report it"
            ),
            FunctionEventKind::Started => write!(f, "function `{name}` runs again"),
            FunctionEventKind::Stopped => write!(f, "function `{name}` is stopped"),
        }
    }
}

/// News that wait to be told, at most; more are not told (counters and answers say them all the same).
pub const NEWS_MAX: usize = 64;

/// What is kept of a function that has failed once, or was told to do something.
#[derive(Clone, Debug, Default)]
struct Record {
    condition: Condition,
    since: Timestamp,
    failures: u64,
    restarts: u64,
    /// Attempts since it was steady.
    attempts: u32,
    restart_at: Option<Timestamp>,
    panicked: Option<Arc<Panicked>>,
    /// What it keeps of a flow counts from this beginning on.
    begun: u32,
}

/// A worker's word on its functions.
#[derive(Debug)]
pub struct Lifecycle {
    bounds: RestartBounds,
    /// Functions that are not called.
    away: Path,
    /// Those of them that an order has stopped.
    stopped: Path,
    /// By bit, as far as there is something to keep.
    records: Vec<Record>,
    /// Grows with each beginning of a function; slots of flows that were looked at before it may be out of
    /// date.
    begun: u32,
    /// The next restart.
    due: Timestamp,
    news: Vec<FunctionEvent>,
    /// The same with their times, for the recorder.
    unrecorded: Vec<(Timestamp, FunctionEvent)>,
}

/// After all packets.
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
            news: Vec::new(),
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

    /// The latest beginning.
    #[inline]
    pub const fn begun(&self) -> u32 {
        self.begun
    }

    /// Whether a function has begun anew since a beginning.
    pub fn has_begun_since(&self, id: FunctionId, begun: u32) -> bool {
        self.records.get(usize::from(id.0)).is_some_and(|record| record.begun > begun)
    }

    /// Whether a restart is due.
    #[inline]
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due
    }

    /// The functions that are to be started again.
    pub fn due(&self, now: Timestamp) -> Path {
        let bits = (0u8..).map(FunctionId).zip(&self.records);
        bits.filter(|(_, record)| record.restart_at.is_some_and(|at| now >= at))
            .fold(Path::EMPTY, |path, (id, _)| path.with(id))
    }

    fn record(&mut self, id: FunctionId) -> Option<&mut Record> {
        let place = usize::from(id.0);
        if self.records.len() <= place {
            self.records.resize(place + 1, Record::default());
        }
        self.records.get_mut(place)
    }

    /// From here on a function is not called, before what has happened is told by [`Lifecycle::failed`].
    pub const fn leave(&mut self, id: FunctionId) {
        self.away = self.away.with(id);
    }

    /// A function has panicked.
    pub fn failed(&mut self, (id, function): (FunctionId, &'static str), panicked: Panicked, now: Timestamp) {
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
        (record.condition, record.since) = (Condition::Failed, now);
        self.note_due();
        self.tell(function, FunctionEventKind::Failed(panicked, wait), now);
    }

    /// A function is called again, with nothing that it knew. `forgives`: somebody wants it so, and its
    /// attempts count anew.
    pub fn started(&mut self, (id, function): (FunctionId, &'static str), now: Timestamp, forgives: bool) {
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
        (record.condition, record.since) = (Condition::Running, now);
        self.note_due();
        self.tell(function, FunctionEventKind::Started, now);
    }

    /// No chain has a function any more that had failed: should it come back, it begins anew.
    pub fn forget(&mut self, id: FunctionId) {
        self.away = self.away.without(id);
        self.begun = self.begun.saturating_add(1);
        let begun = self.begun;
        let Some(record) = self.record(id) else { return };
        (record.begun, record.restart_at, record.attempts) = (begun, None, 0);
        record.condition = Condition::Running;
        self.note_due();
    }

    /// A function is stopped.
    pub fn stopped(&mut self, (id, function): (FunctionId, &'static str), now: Timestamp) {
        self.leave(id);
        self.stopped = self.stopped.with(id);
        let Some(record) = self.record(id) else { return };
        record.restart_at = None;
        (record.condition, record.since) = (Condition::Stopped, now);
        self.note_due();
        self.tell(function, FunctionEventKind::Stopped, now);
    }

    fn note_due(&mut self) {
        self.due = self.records.iter().filter_map(|record| record.restart_at).min().unwrap_or(NEVER);
    }

    fn tell(&mut self, function: &'static str, what: FunctionEventKind, now: Timestamp) {
        let news = FunctionEvent { function, what };
        if self.unrecorded.len() < NEWS_MAX {
            self.unrecorded.push((now, news.clone()));
        }
        if self.news.len() < NEWS_MAX {
            self.news.push(news);
        }
    }

    /// Whether the recorder was not told of something yet. Asked of each frame.
    #[inline]
    pub const fn is_unrecorded(&self) -> bool {
        !self.unrecorded.is_empty()
    }

    /// What the recorder was not told of yet.
    pub fn take_unrecorded(&mut self) -> Vec<(Timestamp, FunctionEvent)> {
        core::mem::take(&mut self.unrecorded)
    }

    /// What has happened since the last call.
    pub fn take_news(&mut self) -> Vec<FunctionEvent> {
        core::mem::take(&mut self.news)
    }

    /// Whether something has happened since that was asked last.
    #[inline]
    pub const fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// How a function stands.
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

    /// Failures and restarts of all functions, and how many are failed now.
    pub fn sums(&self) -> (u64, u64, u64) {
        let sum = |of: fn(&Record) -> u64| self.records.iter().map(of).sum();
        let failed = |record: &Record| u64::from(record.condition == Condition::Failed);
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
            lifecycle.failed(PFW, Panicked::default(), now);
            assert!(lifecycle.away().contains(PFW.0) && !lifecycle.is_due(now));
            now = now + PacketDuration::from_secs(wait);
            assert!(lifecycle.is_due(now) && lifecycle.due(now).contains(PFW.0), "{wait}");
            lifecycle.started(PFW, now, false);
            assert!(lifecycle.away().is_empty() && !lifecycle.is_due(now));
        }
        lifecycle.failed(PFW, Panicked::default(), now);
        assert!(!lifecycle.is_due(now + PacketDuration::from_secs(100_000)));
        // Who wants it so gives it its attempts anew.
        lifecycle.started(PFW, now, true);
        lifecycle.failed(PFW, Panicked::default(), now);
        assert!(lifecycle.is_due(now + bounds.first));
        let said = lifecycle.now(PFW.0, PFW.1);
        assert_eq!((said.condition, said.failures, said.restarts), (Condition::Failed, 5, 4));
        assert_eq!(lifecycle.take_news().len(), 9);
    }

    #[test]
    fn who_has_run_for_long_has_its_attempts_anew_and_waits_have_a_bound() {
        let bounds =
            RestartBounds { attempts: 40, longest: PacketDuration::from_secs(7), ..RestartBounds::default() };
        assert_eq!(bounds.wait(39), Some(PacketDuration::from_secs(7)));
        assert_eq!(bounds.wait(40), None);
        assert_eq!(RestartBounds { attempts: 0, ..bounds }.wait(0), None);
        let mut lifecycle = Lifecycle::new(RestartBounds { attempts: 1, ..bounds });
        lifecycle.failed(PFW, Panicked::default(), at(1_000));
        lifecycle.started(PFW, at(1_001), false);
        lifecycle.failed(PFW, Panicked::default(), at(1_001 + 600));
        assert!(lifecycle.is_due(at(1_602)));
    }

    #[test]
    fn a_stopped_function_is_not_started_by_itself() {
        let mut lifecycle = Lifecycle::new(RestartBounds::default());
        lifecycle.failed(PFW, Panicked::default(), at(1));
        lifecycle.stopped(PFW, at(1));
        assert!(!lifecycle.is_due(at(1_000_000)) && lifecycle.is_stopped(PFW.0));
        lifecycle.started(PFW, at(2), true);
        assert!(!lifecycle.is_stopped(PFW.0) && lifecycle.has_begun_since(PFW.0, 0));
        assert!(!lifecycle.has_begun_since(FunctionId(2), 0));
    }

    #[test]
    fn news_have_a_bound() {
        let mut lifecycle = Lifecycle::new(RestartBounds::default());
        (0..100).for_each(|_| lifecycle.stopped(PFW, at(1)));
        assert_eq!(lifecycle.take_news().len(), NEWS_MAX);
        assert!(!lifecycle.has_news());
    }
}

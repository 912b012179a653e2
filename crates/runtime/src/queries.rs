// SPDX-License-Identifier: Apache-2.0
//! The view of a running program: queries that it can answer at once, whatever it is busy with: counters and
//! state of workers, statistics, the rules in force. A query blocks only its caller, even while a reload is
//! being built.

use crate::channel::CommandOutcome;
use crate::guests::GuestView;
use crate::metrics::MetricsSource;
use crate::southbound::InForce;
use crate::stats::{ANSWER, Statistics};
use bartizan_base::Generation;
use bartizan_dataplane::driver::Control;
use bartizan_dataplane::driver::inquiry::{self, FlowsWanted};
use bartizan_stages::lifecycle::LifecycleCommand;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval in which the arrival of the workers' counters is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A query of the command socket.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlQuery {
    /// All counters.
    Counters,
    /// Packets of an interface.
    Interface(String),
    /// The interfaces.
    Interfaces,
    /// Counts of the rules.
    Rules,
    /// The running generation, its contents, version and uptime.
    Status,
    /// Seconds since the start.
    Uptime,
    /// Flows by level.
    Levels,
    /// Description of selected flows.
    Flows(FlowsWanted),
    /// State of the connection to a controller.
    Controller,
    /// The guests.
    Guests,
    /// Streams of a guest, or of all.
    GuestStreams(Option<String>),
    /// Health of functions.
    Functions,
    /// An order about a function.
    Order(Arc<str>, LifecycleCommand),
}

/// The view; see the module.
#[derive(Clone)]
pub struct View {
    /// The workers.
    pub control: Arc<Control>,
    /// The source of the workers' counters.
    pub source: Arc<MetricsSource>,
    /// Statistics of the run.
    pub statistics: Arc<Mutex<Statistics>>,
    /// The generation that runs.
    pub in_force: Arc<InForce>,
    /// Names of the interfaces.
    pub interfaces: Vec<String>,
    /// The state of guests, if the run has any.
    pub guests: Option<Arc<GuestView>>,
}

/// Locks state that several threads share, such as statistics.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl View {
    /// The view of a run with these guests.
    pub fn of_guests(self, guests: Option<Arc<GuestView>>) -> Self {
        View { guests, ..self }
    }

    /// Answers a query of the command socket.
    pub fn answer(&self, question: &ControlQuery) -> CommandOutcome {
        match question {
            ControlQuery::Counters => {
                self.wait_for_counters();
                CommandOutcome::Counters(lock(&self.statistics).show())
            }
            ControlQuery::Interface(name) => self.interface(name),
            ControlQuery::Interfaces => CommandOutcome::Names(self.interfaces.clone()),
            ControlQuery::Rules => CommandOutcome::Rules(lock(&self.statistics).rules()),
            ControlQuery::Status => CommandOutcome::Told(self.status()),
            ControlQuery::Uptime => CommandOutcome::Number(lock(&self.statistics).uptime()),
            ControlQuery::Controller => match self.source.controller() {
                Some(shown) => CommandOutcome::Told(shown.to_json()),
                None => CommandOutcome::Refused(
                    "this run has no controller; set `controller` in the host file".to_owned(),
                ),
            },
            ControlQuery::Guests => self.query_guests(GuestView::list),
            ControlQuery::GuestStreams(guest) => self.query_guests(|guests| guests.status(guest.as_deref())),
            ControlQuery::Levels => self.query_workers(inquiry::Question::Levels),
            ControlQuery::Flows(wanted) => self.query_workers(inquiry::Question::Flows(*wanted)),
            ControlQuery::Functions => self.query_workers(inquiry::Question::Functions),
            ControlQuery::Order(function, act) => {
                self.query_workers(inquiry::Question::Order(Arc::clone(function), *act))
            }
        }
    }

    fn query_guests(
        &self,
        query: impl FnOnce(&GuestView) -> Result<Map<String, Value>, String>,
    ) -> CommandOutcome {
        let Some(guests) = &self.guests else {
            return CommandOutcome::Refused(
                "this run has no guests; set `guest: {}` at a link of the host file".to_owned(),
            );
        };
        match query(guests) {
            Ok(told) => CommandOutcome::Told(told),
            Err(why) => CommandOutcome::Refused(why),
        }
    }

    /// Waits at most `patience` until all workers run `generation` or a later one; returns whether they do.
    pub fn wait_for(&self, generation: Generation, patience: Duration) -> bool {
        self.control.wait_running(generation, patience)
    }

    fn status(&self) -> Map<String, Value> {
        let mut told = self.in_force.newest().to_json();
        let statistics = lock(&self.statistics);
        let rules = statistics.rules();
        let counts = json!({"loaded": rules.loaded, "failed": rules.failed, "skipped": rules.skipped});
        told.insert("rules".to_owned(), counts);
        told.insert("last_reload".to_owned(), bartizan_events::time_text(rules.since).into());
        told.insert("uptime".to_owned(), statistics.uptime().into());
        told.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
        told
    }

    fn query_workers(&self, question: inquiry::Question) -> CommandOutcome {
        match self.control.query(question) {
            Some(collector) => CommandOutcome::Workers(collector),
            None => CommandOutcome::Refused("the workers' queue of queries is full; retry later".to_owned()),
        }
    }

    /// Waits until workers have shown their counters, or are late.
    fn wait_for_counters(&self) {
        self.source.request_worker_counters();
        let asked = Instant::now();
        while !self.source.have_workers_shown() && asked.elapsed() < ANSWER {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn interface(&self, name: &str) -> CommandOutcome {
        if !self.interfaces.iter().any(|known| known == name) {
            let known = self.interfaces.join(", ");
            return CommandOutcome::Refused(format!(
                "`{name}` is not an interface of this run; interfaces are {known}"
            ));
        }
        self.wait_for_counters();
        let mut stat = lock(&self.statistics).interface(name);
        stat.bypassed = self.source.handled_below(name);
        CommandOutcome::Interface(stat)
    }
}

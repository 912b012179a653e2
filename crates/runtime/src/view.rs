// SPDX-License-Identifier: Apache-2.0
//! What a running program can tell at once, whatever it is busy with: what workers show and say, statistics,
//! the rules in force. Who asks waits here for workers, and nobody else does; also while a reload is built.

use crate::channel::Answer;
use crate::metrics::Source;
use crate::southbound::InForce;
use crate::stats::{ANSWER, Statistics};
use bartizan_base::Generation;
use bartizan_dataplane::driver::Control;
use bartizan_dataplane::driver::inquiry::{self, FlowsWanted};
use bartizan_stages::lifecycle::Act;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked whether workers have shown their counters.
const LOOK: Duration = Duration::from_millis(2);

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// All counters.
    Counters,
    /// What came by an interface.
    Interface(String),
    /// The interfaces.
    Interfaces,
    /// What became of the rules.
    Rules,
    /// The running generation, its contents, version and uptime.
    Status,
    /// For how many seconds it runs.
    Uptime,
    /// How flows are handled.
    Levels,
    /// How some flows stand.
    Flows(FlowsWanted),
    /// How the way to a controller stands.
    Controller,
    /// How functions stand.
    Functions,
    /// To do something with a function.
    Order(Arc<str>, Act),
}

/// See the module.
#[derive(Clone)]
pub struct View {
    /// The workers.
    pub control: Arc<Control>,
    /// What they show.
    pub source: Arc<Source>,
    /// Statistics of the run.
    pub statistics: Arc<Mutex<Statistics>>,
    /// The generation that runs.
    pub in_force: Arc<InForce>,
    /// Names of the interfaces.
    pub interfaces: Vec<String>,
}

/// What several threads use, statistics for one.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl View {
    /// Answers.
    pub fn tell(&self, question: &Question) -> Answer {
        match question {
            Question::Counters => {
                self.wait_for_counters();
                Answer::Counters(lock(&self.statistics).show())
            }
            Question::Interface(name) => self.interface(name),
            Question::Interfaces => Answer::Names(self.interfaces.clone()),
            Question::Rules => Answer::Rules(lock(&self.statistics).rules()),
            Question::Status => Answer::Told(self.status()),
            Question::Uptime => Answer::Number(lock(&self.statistics).uptime()),
            Question::Controller => match self.source.controller() {
                Some(shown) => Answer::Told(shown.told()),
                None => Answer::Refused(
                    "this run belongs to no controller; say `controller` in the host file".to_owned(),
                ),
            },
            Question::Levels => self.ask(inquiry::Question::Levels),
            Question::Flows(wanted) => self.ask(inquiry::Question::Flows(*wanted)),
            Question::Functions => self.ask(inquiry::Question::Functions),
            Question::Order(function, act) => self.ask(inquiry::Question::Order(Arc::clone(function), *act)),
        }
    }

    /// Waits for some time until all workers run a generation, or a later one. Whether they do.
    pub fn wait_for(&self, generation: Generation, patience: Duration) -> bool {
        self.control.wait_running(generation, patience)
    }

    fn status(&self) -> Map<String, Value> {
        let mut told = self.in_force.newest().told();
        let statistics = lock(&self.statistics);
        let rules = statistics.rules();
        let counts = json!({"loaded": rules.loaded, "failed": rules.failed, "skipped": rules.skipped});
        told.insert("rules".to_owned(), counts);
        told.insert("last_reload".to_owned(), bartizan_events::time_text(rules.since).into());
        told.insert("uptime".to_owned(), statistics.uptime().into());
        told.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
        told
    }

    fn ask(&self, question: inquiry::Question) -> Answer {
        match self.control.ask(question) {
            Some(collector) => Answer::Workers(collector),
            None => {
                Answer::Refused("workers have as many questions as they take; ask again later".to_owned())
            }
        }
    }

    /// Until workers have shown their counters, or are late.
    fn wait_for_counters(&self) {
        self.source.ask_workers();
        let asked = Instant::now();
        while !self.source.have_workers_shown() && asked.elapsed() < ANSWER {
            std::thread::sleep(LOOK);
        }
    }

    fn interface(&self, name: &str) -> Answer {
        if !self.interfaces.iter().any(|known| known == name) {
            let known = self.interfaces.join(", ");
            return Answer::Refused(format!("`{name}` is no interface of this run; there are {known}"));
        }
        self.wait_for_counters();
        let mut stat = lock(&self.statistics).interface(name);
        stat.bypassed = self.source.handled_below(name);
        Answer::Interface(stat)
    }
}

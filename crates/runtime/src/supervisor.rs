// SPDX-License-Identifier: Apache-2.0
//! The supervisor of a run: carries out the commands of the [`crate::channel`], one after the other, and
//! updates statistics and outputs between them. A thread of its own watches links and the level below.
//!
//! This thread builds reloads: commands and signals that arrive meanwhile wait. Workers, queries
//! ([`crate::queries`]) and links do not: the state of a killed run is taken over, a changed MTU is followed,
//! and a program that was detached is attached again, however long a build takes.

use crate::channel::{Asked, COMMANDS_WAITING, CommandOutcome, ControlCommand, Inbox, RunningGeneration};
use crate::engines::Engines;
use crate::error::Failure;
use crate::generation::{Builder, Built, reported};
use crate::health::Health;
use crate::links::Links;
use crate::log;
use crate::metrics::MetricsSource;
use crate::notify::Notifier;
use crate::offload::Below;
use crate::plan::{self, RunOptions};
use crate::queries;
use crate::reload::Inventory;
use crate::sets;
use crate::southbound::InForce;
use crate::southbound::device::refused;
use crate::stats::{self, Statistics};
use crate::traces::Traces;
use bartizan_agent::joined::JoinedPolicy;
use bartizan_base::Generation;
use bartizan_dataplane::driver::Control;
use bartizan_events::output::Rights;
use bartizan_events::sink::SinkProblem;
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Interval in which links, statistics and outputs are checked while no command arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval in which counters that workers do not have are read, for queries.
const BESIDE: Duration = Duration::from_secs(1);

/// Longest wait of a reload for workers to begin with the previous generation, where the level below refuses
/// packets without a flow.
pub const ENTERED: Duration = Duration::from_secs(3);

/// Objects that commands act on.
pub struct Steering<'r> {
    /// The workers.
    pub control: &'r Control,
    /// The board of their counters.
    pub source: &'r MetricsSource,
    /// The application layers of the links.
    pub engines: &'r Engines,
    /// The options of the command line.
    pub given: &'r RunOptions,
    /// Access rights of written files.
    pub rights: &'r Rights,
    /// Statistics of the run.
    pub statistics: &'r Mutex<Statistics>,
    /// A controller's numbers of generations and tenants.
    pub in_force: &'r InForce,
    /// Traces of rules.
    pub traces: &'r Traces,
    /// The service manager.
    pub notifier: Notifier,
}

/// State that changes while commands are carried out.
struct SteeringState<'s> {
    builder: &'s mut Builder,
    below: &'s Mutex<Below>,
    running: Arc<Inventory>,
    number: u64,
    /// A controller's generation that is built, and runs once it is stored.
    ready: Option<(Arc<JoinedPolicy>, Built)>,
    /// Reloads that wait for this generation: a number belongs to one generation.
    waiting: Vec<Asked>,
}

impl Steering<'_> {
    /// Carries out commands until the workers have ended. Logs the problems of outputs, once each.
    pub fn run(
        &self,
        builder: &mut Builder,
        running: Arc<Inventory>,
        inbox: Inbox,
        links: &mut Links,
        below: &Mutex<Below>,
        finished: &dyn Fn() -> bool,
    ) {
        let (ready, waiting) = (None, Vec::new());
        let course = SteeringState { builder, below, running, number: 1, ready, waiting };
        let ends = AtomicBool::new(false);
        self.notifier.ready("runs");
        std::thread::scope(|scope| {
            let keeper = scope.spawn(|| self.keep(links, below, &ends));
            let over = Over(&ends);
            // A panic of the keeper becomes one of this thread, once both have ended.
            self.steer(course, inbox, &|| finished() || keeper.is_finished());
            drop(over);
            keeper.thread().unpark();
        });
    }

    fn steer(&self, mut course: SteeringState<'_>, mut inbox: Inbox, finished: &dyn Fn() -> bool) {
        let mut read_beside = Instant::now();
        let mut health = Health::default();
        while !finished() {
            self.run_commands(&mut inbox, &mut course);
            self.source.problems().for_each(|problem| log_problem(&problem));
            for (worker, news) in self.control.take_events() {
                info!("worker {}: {news}", worker.0);
                health.note(worker, &news);
            }
            if let Some(controller) = self.source.controller() {
                health.report(|state| controller.handle.health(state));
            }
            if self.control.free_left() {
                course.builder.generation_freed();
            }
            self.update_statistics(&mut read_beside, course.below);
        }
    }

    /// Updates statistics when it is time.
    fn update_statistics(&self, read_beside: &mut Instant, below: &Mutex<Below>) {
        let mut statistics = queries::lock(self.statistics);
        if statistics.is_due() || read_beside.elapsed() > BESIDE {
            statistics.counted_beside(queries::lock(below).beside());
            *read_beside = Instant::now();
        }
        statistics.poll();
    }

    /// Carries out arriving commands until the next check.
    fn run_commands(&self, inbox: &mut Inbox, course: &mut SteeringState<'_>) {
        let end = Instant::now() + POLL_INTERVAL;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            if let Some(asked) = inbox.next(left) {
                self.carry_out(asked, course);
            }
        }
    }

    fn carry_out(&self, request: Asked, course: &mut SteeringState<'_>) {
        let no = |why: &str| CommandOutcome::Refused(why.to_owned());
        let reloads = matches!(request.command, ControlCommand::Reload | ControlCommand::ReloadLater);
        if reloads && course.ready.is_some() && course.waiting.len() < COMMANDS_WAITING {
            course.waiting.push(request);
            return;
        }
        let answer = match &request.command {
            ControlCommand::ReloadLater => {
                request.answer_early(CommandOutcome::Done);
                self.reload(course);
                return;
            }
            ControlCommand::Reload => self.reload(course),
            ControlCommand::Reopen => {
                self.source.request_reopen();
                match request.is_by_signal() {
                    true => {
                        info!("outputs are reopened (SIGHUP); SIGUSR2 reloads rules and policy")
                    }
                    false => info!("outputs are reopened"),
                }
                CommandOutcome::Done
            }
            ControlCommand::Stop => {
                // Before the socket closes with the end of the workers.
                request.answer_early(CommandOutcome::Done);
                self.notifier.stopping();
                queries::lock(course.below).end_watch();
                self.control.stop();
                return;
            }
            ControlCommand::FailedRules => {
                let (rules, more) = course.running.failed();
                CommandOutcome::FailedRules(rules, more)
            }
            ControlCommand::Setting(key) => match course.builder.settings().get(key) {
                Some(value) => CommandOutcome::Text(value.to_owned()),
                None => no("Unable to get value"),
            },
            ControlCommand::Configure(function, settings) => self.configure(function, settings, course),
            ControlCommand::Set(command) => sets::carry_out(command, course.builder.shared(), self.rights),
            ControlCommand::Build(joined) => self.build_held(joined, course),
            ControlCommand::Swap => match course.ready.take() {
                Some((joined, built)) => self.run_held(joined, built, course),
                None => no("nothing is ready"),
            },
            ControlCommand::Abandon => {
                course.ready = None;
                CommandOutcome::Done
            }
        };
        request.answer(answer);
        if course.ready.is_none() {
            std::mem::take(&mut course.waiting).into_iter().for_each(|asked| self.carry_out(asked, course));
        }
    }

    /// Builds a controller's generation beside the running one. Weaker rules are intended.
    fn build_held(&self, joined: &Arc<JoinedPolicy>, course: &mut SteeringState<'_>) -> CommandOutcome {
        course.ready = None;
        let number = Generation(course.number + 1);
        match reported(course.builder, |builder| builder.build_held(joined, number)) {
            Ok(built) => {
                course.ready = Some((Arc::clone(joined), built));
                CommandOutcome::Done
            }
            Err(error) => CommandOutcome::NotBuilt(Box::new(refused(joined, error))),
        }
    }

    /// Passes a controller's generation to the workers.
    fn run_held(
        &self,
        joined: Arc<JoinedPolicy>,
        built: Built,
        course: &mut SteeringState<'_>,
    ) -> CommandOutcome {
        let generation = joined.generation;
        course.builder.hold(Some(joined));
        self.source.reloaded(true);
        let said = self.swap(built, course);
        info!("generation {generation} of the controller is running: {said}");
        CommandOutcome::Reloaded(self.in_force.newest())
    }

    /// Lets workers run a generation. Returns the log line.
    fn swap(&self, built: Built, course: &mut SteeringState<'_>) -> String {
        let SteeringState { builder, below, running, number, .. } = course;
        let before = Generation(*number);
        *number += 1;
        // The level has room for the lists of two generations: while it still uses the one before the last,
        // its table must not be overwritten.
        let is_read = || queries::lock(below).is_behind(before);
        let begun = Instant::now();
        while is_read() && begun.elapsed() < ENTERED && !self.control.stopping() {
            std::thread::sleep(POLL_INTERVAL);
        }
        let free = !is_read();
        let said = queries::lock(below).prepare(&built.chains, &built.function_names, free);
        if let Some(said) = said {
            warn!("{said}");
        }
        // A new policy alone does not change the rules of libraries.
        let left_out = match Arc::ptr_eq(running, &built.inventory) {
            true => self.in_force.left_out(),
            false => built.inventory.left_out_report(),
        };
        let content = built.contents.hashes();
        let controller = builder.held().map_or(0, |held| held.generation);
        let newest = RunningGeneration { generation: built.chains.generation, controller, content };
        self.in_force.note(newest, builder.held(), &builder.tenants(), left_out);
        self.engines.enable_parsing(&built);
        self.traces.enter(&built.chains, builder.tenants());
        self.control.swap(built.chains);
        self.source.loaded(&built.report, builder.cache());
        queries::lock(self.statistics).loaded(stats::rules_of(&built.report));
        let (loaded, refused) = (built.report.loaded, built.report.refused_total());
        for left_out in running.left_out(&built.inventory) {
            warn!("{left_out}");
        }
        *running = built.inventory;
        let malformed = match running.malformed() {
            0 => String::new(),
            some => format!(", {some} of them malformed lines"),
        };
        format!("{loaded} rules loaded, {refused} refused{malformed}; {content}")
    }

    /// Builds a generation beside the running one, and swaps it if it is complete and does not weaken
    /// protection.
    fn reload(&self, course: &mut SteeringState<'_>) -> CommandOutcome {
        let SteeringState { builder, running, number, .. } = course;
        self.notifier.reloading();
        let built = self.build(builder, Generation(*number + 1), running);
        self.notifier.ready("runs");
        self.source.reloaded(built.is_ok());
        match built {
            Ok(built) => {
                let said = self.swap(built, course);
                info!("generation {}: {said}", course.number);
                CommandOutcome::Reloaded(self.in_force.newest())
            }
            Err(error) => {
                let content = self.in_force.newest().content;
                let said = format!("reload refused, generation {number} keeps running ({content}): {error}");
                info!("{said}");
                CommandOutcome::Refused(said)
            }
        }
    }

    /// Changes the settings of a function: a generation is built with them as by a reload, from the present
    /// files. A refused one has no effect.
    fn configure(
        &self,
        function: &str,
        settings: &Map<String, Value>,
        course: &mut SteeringState<'_>,
    ) -> CommandOutcome {
        let before = match course.builder.configure(function, settings) {
            Ok(before) => before,
            Err(why) => return CommandOutcome::Refused(why),
        };
        let answer = self.reload(course);
        if matches!(answer, CommandOutcome::Refused(_)) {
            course.builder.restore(before);
        }
        answer
    }

    /// Watches links and the level below until the end, and gives signs of life to the service manager while
    /// all workers answer.
    fn keep(&self, links: &mut Links, below: &Mutex<Below>, ends: &AtomicBool) {
        while !ends.load(Ordering::Acquire) {
            let mut said = links.check(self.control);
            said.extend(queries::lock(below).check(links));
            said.iter().for_each(|said| log::line(said));
            if self.notifier.sign_of_life(|| self.source.have_workers_shown()) {
                self.source.request_worker_counters();
            }
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// The next generation, if it may replace the running one.
    fn build(
        &self,
        builder: &mut Builder,
        number: Generation,
        running: &Inventory,
    ) -> Result<Built, Failure> {
        let terms = plan::terms(self.given)?;
        let built = reported(builder, |builder| builder.build(number))?;
        running.may_become(&built.inventory, &terms).map_err(Failure::input)?;
        Ok(built)
    }
}

/// Ends the watching thread, however steering ends.
struct Over<'e>(&'e AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Logs a problem of an output.
pub fn log_problem(problem: &SinkProblem) {
    let kind = if problem.is_error() { "error" } else { "note" };
    info!("{kind}: {problem}");
}

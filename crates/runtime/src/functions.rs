// SPDX-License-Identifier: Apache-2.0
//! Lifecycle of functions in a running program: orders, and health, over all workers. The command socket and
//! the southbound protocol use it.
//!
//! Start, stop, restart and health queries go to the workers, which handle them between two batches, also
//! while a reload is built. New settings need a new generation, so they go to the supervisor.

use crate::channel::{Channel, CommandOutcome, ControlCommand};
use crate::queries::{ControlQuery, View};
use bartizan_api::southbound::{FunctionOrder, FunctionState};
use bartizan_base::WorkerId;
use bartizan_dataplane::driver::inquiry::Collector;
use bartizan_stages::lifecycle::{FunctionCondition, FunctionNow, LifecycleCommand};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Longest wait for the workers; an idle one is woken.
const WORKERS: Duration = Duration::from_secs(5);

/// Sends orders about functions.
#[derive(Clone)]
pub struct Functions {
    channel: Channel,
    view: View,
}

/// Health of a function on the workers.
type OnWorkers<'f> = (&'static str, Vec<&'f (WorkerId, FunctionNow)>);

/// Answers of workers, and the workers that have not answered.
type Answered = (Vec<(WorkerId, FunctionNow)>, Vec<WorkerId>);

impl Functions {
    /// Functions of the program that these handles lead to.
    pub const fn new(channel: Channel, view: View) -> Self {
        Functions { channel, view }
    }

    /// Carries out an order about a function; returns the function's health afterwards. `settings`: by name,
    /// for [`FunctionOrder::Configure`] only.
    pub fn carry_out(
        &self,
        order: FunctionOrder,
        function: &str,
        settings: &Map<String, Value>,
    ) -> FunctionState {
        let asked = match order {
            FunctionOrder::Configure => {
                if let Err(why) = self.configure(function, settings) {
                    return FunctionState { done: false, ..self.state(function, None, &why) };
                }
                return self.state(function, None, "");
            }
            FunctionOrder::Health => None,
            FunctionOrder::Start => Some(LifecycleCommand::Start),
            FunctionOrder::Stop => Some(LifecycleCommand::Stop),
            FunctionOrder::Restart => Some(LifecycleCommand::Restart),
        };
        self.state(function, asked, "")
    }

    /// Sends an order to the workers (`None`: only a query), and returns the joint health. `why`: text that
    /// precedes the reason.
    fn state(&self, function: &str, act: Option<LifecycleCommand>, why: &str) -> FunctionState {
        let refused = |reason: String| FunctionState {
            function: function.to_owned(),
            done: false,
            state: "unknown".to_owned(),
            reason,
        };
        let question = act.map_or(ControlQuery::Functions, |act| ControlQuery::Order(function.into(), act));
        let (said, late) = match self.query(&question) {
            Ok(answered) => answered,
            Err(why) => return refused(why),
        };
        let own: Vec<&(WorkerId, FunctionNow)> =
            said.iter().filter(|(_, now)| now.function == function).collect();
        let mut reasons: Vec<String> = if why.is_empty() { Vec::new() } else { vec![why.to_owned()] };
        if own.is_empty() && late.is_empty() {
            let known = self.names().join(", ");
            reasons.push(format!(
                "no chain of the running generation has the function `{function}`; functions are {known}"
            ));
            return refused(reasons.join("; "));
        }
        reasons.extend(own.iter().filter_map(|(worker, now)| reason_not_running(*worker, now)));
        reasons.extend(late.iter().map(|worker| {
            format!("worker {} has not answered yet and may hang (see the log); the order is carried out when it answers", worker.0)
        }));
        let wanted = match act {
            Some(LifecycleCommand::Start | LifecycleCommand::Restart) => Some(FunctionCondition::Running),
            Some(LifecycleCommand::Stop) => Some(FunctionCondition::Stopped),
            None => None,
        };
        let is_done =
            |(_, now): &&(WorkerId, FunctionNow)| wanted.is_none_or(|wanted| now.condition == wanted);
        FunctionState {
            function: function.to_owned(),
            done: late.is_empty() && own.iter().all(is_done),
            state: worst(&own).name().to_owned(),
            reason: reasons.join("; "),
        }
    }

    fn query(&self, question: &ControlQuery) -> Result<Answered, String> {
        match self.view.answer(question) {
            CommandOutcome::Workers(collector) => Ok(collect(collector)),
            CommandOutcome::Refused(why) => Err(why),
            _ => Err("the answer belongs to another query; please report this defect".to_owned()),
        }
    }

    fn configure(&self, function: &str, settings: &Map<String, Value>) -> Result<(), String> {
        match self.channel.execute(ControlCommand::Configure(function.to_owned(), settings.clone())) {
            CommandOutcome::Reloaded(now) if self.view.wait_for(now.generation, WORKERS) => Ok(()),
            CommandOutcome::Reloaded(now) => Err(format!(
                "generation {} has the settings, but a worker does not run it yet",
                now.generation.0
            )),
            CommandOutcome::Refused(why) => Err(why),
            _ => Err("the answer belongs to another query; please report this defect".to_owned()),
        }
    }

    fn names(&self) -> Vec<&'static str> {
        let Ok((said, _)) = self.query(&ControlQuery::Functions) else { return Vec::new() };
        by_function(&said).into_iter().map(|(name, _)| name).collect()
    }

    /// All functions of the running generation.
    ///
    /// # Errors
    /// Workers cannot be queried at present.
    pub fn list(&self) -> Result<Value, String> {
        let (said, late) = self.query(&ControlQuery::Functions)?;
        let functions: Vec<Value> = by_function(&said).iter().map(to_json).collect();
        let late: Vec<u16> = late.iter().map(|worker| worker.0).collect();
        Ok(json!({"count": functions.len(), "functions": functions, "late_workers": late}))
    }
}

fn collect(mut collector: Collector) -> Answered {
    let end = Instant::now() + WORKERS;
    collector.collect(|| end.saturating_duration_since(Instant::now()));
    let (answer, late) = collector.finish();
    (answer.functions, late)
}

/// Groups answers by function, in the order of their bits.
fn by_function(reports: &[(WorkerId, FunctionNow)]) -> Vec<OnWorkers<'_>> {
    let mut all: Vec<OnWorkers<'_>> = Vec::new();
    for one in reports {
        match all.iter_mut().find(|(name, _)| *name == one.1.function) {
            Some((_, known)) => known.push(one),
            None => all.push((one.1.function, vec![one])),
        }
    }
    all
}

fn worst(on_workers: &[&(WorkerId, FunctionNow)]) -> FunctionCondition {
    on_workers.iter().map(|(_, now)| now.condition).max().unwrap_or_default()
}

/// The reason why a function does not run on a worker.
fn reason_not_running(worker: WorkerId, now: &FunctionNow) -> Option<String> {
    let on = worker.0;
    match (now.condition, now.panicked.as_deref()) {
        (FunctionCondition::Running, _) => None,
        (FunctionCondition::Stopped, _) => Some(format!("worker {on}: stopped by an order")),
        (FunctionCondition::Failed, panicked) => {
            let what = panicked.map(ToString::to_string).unwrap_or_default();
            let then = if now.restart_at.is_some() {
                "it restarts by itself"
            } else {
                "`bartizan ctl function start` restarts it"
            };
            Some(format!("worker {on}: failed {} times; {what}; {then}", now.failures))
        }
    }
}

fn to_json((name, on_workers): &OnWorkers<'_>) -> Value {
    let sum = |of: fn(&FunctionNow) -> u64| on_workers.iter().map(|(_, now)| of(now)).sum::<u64>();
    let workers: Vec<Value> = on_workers
        .iter()
        .map(|(worker, now)| {
            json!({
                "worker": worker.0,
                "state": now.condition.name(),
                "since": now.since.as_nanos() / 1_000_000_000,
                "failures": now.failures,
                "restarts": now.restarts,
                "latest_failure": now.panicked.as_deref().map(ToString::to_string),
            })
        })
        .collect();
    let reasons: Vec<String> =
        on_workers.iter().filter_map(|(worker, now)| reason_not_running(*worker, now)).collect();
    json!({
        "function": name,
        "state": worst(on_workers).name(),
        "reason": reasons.join("; "),
        "failures": sum(|now| now.failures),
        "restarts": sum(|now| now.restarts),
        "workers": workers,
    })
}

/// Parses settings in their form on a command line: `ports=5 action=drop window=30s`; a setting without a
/// value takes the policy's value again.
///
/// # Errors
/// A word is malformed; the message shows the right form.
pub fn settings(words: &str) -> Result<Map<String, Value>, String> {
    let mut settings = Map::new();
    for word in words.split_whitespace() {
        let (name, value) =
            word.split_once('=').ok_or_else(|| format!("`{word}` is not a setting; write NAME=VALUE"))?;
        let value = match value {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        };
        if settings.insert(name.to_owned(), value).is_some() {
            return Err(format!("`{name}` is set twice; remove one"));
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_settings() {
        let read = settings("ports=5 action=drop  window=30s block=").unwrap();
        assert_eq!(Value::from(read), json!({"ports": 5, "action": "drop", "window": "30s", "block": null}));
        assert!(settings("ports").unwrap_err().contains("NAME=VALUE"));
        assert!(settings("ports=5 action=drop ports=6").unwrap_err().contains("`ports` is set twice"));
    }

    #[test]
    fn a_function_is_as_well_as_on_its_worst_worker() {
        let now = |condition| FunctionNow {
            function: "ids",
            id: bartizan_base::FunctionId(3),
            condition,
            since: bartizan_base::Timestamp::ZERO,
            failures: 1,
            restarts: 0,
            restart_at: None,
            panicked: None,
        };
        let said =
            [(WorkerId(0), now(FunctionCondition::Running)), (WorkerId(1), now(FunctionCondition::Failed))];
        let all = by_function(&said);
        let told = to_json(&all[0]);
        assert_eq!((&told["state"], &told["failures"]), (&json!("failed"), &json!(2)));
        assert!(told["reason"].as_str().unwrap().starts_with("worker 1: failed 1 times"), "{told}");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Health of functions over all workers, from their lifecycle events: for a controller.

use bartizan_api::southbound::FunctionState;
use bartizan_base::WorkerId;
use bartizan_stages::lifecycle::{FunctionCondition, FunctionEvent, FunctionEventKind};
use std::collections::BTreeMap;

/// Functions that do not run, by worker.
#[derive(Debug, Default)]
pub struct Health {
    away: BTreeMap<(&'static str, u16), (FunctionCondition, String)>,
    /// States that are not reported to a controller yet, the newest of each function.
    unreported: BTreeMap<&'static str, FunctionState>,
}

impl Health {
    /// Notes a lifecycle event of a worker.
    pub fn note(&mut self, worker: WorkerId, news: &FunctionEvent) {
        let at = (news.function, worker.0);
        let condition = match news.what {
            FunctionEventKind::Failed(..) => FunctionCondition::Failed,
            FunctionEventKind::Stopped => FunctionCondition::Stopped,
            FunctionEventKind::Started => FunctionCondition::Running,
        };
        match condition {
            FunctionCondition::Running => drop(self.away.remove(&at)),
            _ => drop(self.away.insert(at, (condition, format!("worker {}: {news}", worker.0)))),
        }
        self.unreported.insert(news.function, self.of(news.function));
    }

    /// The health of a function: that of the worker with the worst one.
    fn of(&self, function: &'static str) -> FunctionState {
        let own = self.away.range((function, 0)..=(function, u16::MAX));
        let worst = own.map(|(_, away)| away).max_by_key(|(condition, _)| *condition);
        let (state, reason) = worst
            .map_or((FunctionCondition::Running, String::new()), |(condition, why)| {
                (*condition, why.clone())
            });
        FunctionState { function: function.to_owned(), done: true, state: state.name().to_owned(), reason }
    }

    /// Reports pending states, as far as `take` accepts them.
    pub fn report(&mut self, mut take: impl FnMut(FunctionState) -> bool) {
        self.unreported.retain(|_, state| !take(state.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_function_stands_as_on_its_worst_worker() {
        let mut health = Health::default();
        let mut note = |worker, what| {
            health.note(WorkerId(worker), &FunctionEvent { function: "ids", what });
            let mut told = Vec::new();
            health.report(|state| {
                told.push((state.state, state.reason));
                true
            });
            assert_eq!(told.len(), 1);
            told.remove(0)
        };
        let failed = || FunctionEventKind::Failed(Arc::default(), None);
        assert_eq!(note(1, FunctionEventKind::Stopped).0, "stopped");
        let (state, reason) = note(0, failed());
        assert!(state == "failed" && reason.starts_with("worker 0: function `ids` failed"), "{reason}");
        assert_eq!(note(0, FunctionEventKind::Started).0, "stopped", "still, on the other");
        assert_eq!(note(1, FunctionEventKind::Started), ("running".to_owned(), String::new()));
    }

    #[test]
    fn what_is_not_taken_waits() {
        let mut health = Health::default();
        health.note(WorkerId(0), &FunctionEvent { function: "ids", what: FunctionEventKind::Stopped });
        health.report(|_| false);
        let mut told = 0;
        health.report(|_| {
            told += 1;
            true
        });
        health.report(|_| panic!("told twice"));
        assert_eq!(told, 1);
    }
}

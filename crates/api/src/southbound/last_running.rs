// SPDX-License-Identifier: Apache-2.0
//! The short acknowledgement: both sides remember the last full one of a connection, so that workers and
//! manifest are not repeated with each change.

use super::ids::Hash;
use super::limits;
use super::policy::{ApplyTimings, GenerationAck, WorkerRuns};
use super::stands::LevelStatus;

/// The remembered parts of the last [`GenerationAck`].
#[derive(Clone, Debug)]
struct Last {
    workers: Vec<WorkerRuns>,
    stands: Option<LevelStatus>,
}

/// The workers of the last [`GenerationAck`] of a connection; `None` before the first, and if they exceed the
/// bound.
#[derive(Clone, Debug, Default)]
pub struct LastRunning(Option<Last>);

impl LastRunning {
    /// Remembers a full acknowledgement.
    pub fn note(&mut self, running: &GenerationAck) {
        let levels = running.workers.iter().map(|worker| worker.levels.len().max(1)).sum::<usize>();
        self.0 = (levels <= limits::TOLD_LEVELS)
            .then(|| Last { workers: running.workers.clone(), stands: running.stands.clone() });
    }

    /// The short form of an acknowledgement, if the generation runs at all levels of exactly the remembered
    /// workers.
    #[must_use]
    pub fn in_short(&self, generation: u64, running: &GenerationAck) -> Option<ApplyTimings> {
        let same = |(told, now): (&WorkerRuns, &WorkerRuns)| {
            (&told.link, told.worker) == (&now.link, now.worker)
                && told.levels.keys().eq(now.levels.keys())
                && now.levels.values().all(|runs| *runs == generation)
        };
        let Last { workers: told, stands } = self.0.as_ref()?;
        let all = told.len() == running.workers.len() && told.iter().zip(&running.workers).all(same);
        let stand = match (&running.stands, stands) {
            (Some(now), Some(before)) => now.is_of(generation, before),
            (now, before) => now.is_none() && before.is_none(),
        };
        running.took.filter(|_| all && stand)
    }

    /// Expands a short acknowledgement; `None` if no workers are remembered.
    #[must_use]
    pub fn in_full(&self, generation: u64, manifest: Hash, took: ApplyTimings) -> Option<GenerationAck> {
        let Last { mut workers, mut stands } = self.0.clone()?;
        let levels = workers.iter_mut().flat_map(|worker| worker.levels.values_mut());
        levels.for_each(|runs| *runs = generation);
        stands.iter_mut().for_each(|stands| stands.advance(generation));
        Some(GenerationAck { manifest, workers, took: Some(took), stands })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn running(workers: u16, levels: &[(&str, u64)], took: Option<ApplyTimings>) -> GenerationAck {
        let levels: BTreeMap<String, u64> =
            levels.iter().map(|(level, runs)| ((*level).to_owned(), *runs)).collect();
        let worker = |worker| WorkerRuns { link: "wan".into(), worker, levels: levels.clone() };
        GenerationAck {
            manifest: Hash([7; 32]),
            workers: (0..workers).map(worker).collect(),
            took,
            stands: None,
        }
    }

    #[test]
    fn what_is_said_in_short_is_the_same_in_full() {
        let took = ApplyTimings { build: 1, store: 2, swap: 3 };
        let mut told = LastRunning::default();
        let now = running(2, &[("host", 6), ("xdp", 6)], Some(took));
        assert_eq!((told.in_short(6, &now), told.in_full(6, now.manifest, took)), (None, None));
        told.note(&running(2, &[("host", 4), ("xdp", 5)], None));
        assert_eq!(told.in_short(6, &now), Some(took));
        assert_eq!(told.in_full(6, now.manifest, took), Some(now));
    }

    #[test]
    fn what_levels_do_is_said_in_short_only_if_it_is_the_same() {
        use crate::southbound::{LeftOut, LevelStands, LevelState, LocalContent, RulesAtLevel};
        let took = ApplyTimings { build: 1, store: 2, swap: 3 };
        let level = |level: &str, generation| LevelStands {
            link: "wan".into(),
            level: level.into(),
            generation,
            state: if generation == 0 { LevelState::Off } else { LevelState::On },
            why: String::new(),
            rules: (level == "xdp").then(RulesAtLevel::default),
        };
        let stands = |generation, below| {
            let levels = vec![level("host", generation), level("xdp", below)];
            LevelStatus { levels, left_out: LeftOut::default(), content: None }
        };
        let running = |stands| GenerationAck { stands, ..running(1, &[("host", 6)], Some(took)) };
        let in_short = |told: &LastRunning, stands| {
            let now = running(Some(stands));
            told.in_short(6, &now)
                .map(|took| assert_eq!(told.in_full(6, now.manifest, took), Some(now)))
                .is_some()
        };
        let mut told = LastRunning::default();
        told.note(&running(Some(stands(5, 5))));
        assert!(in_short(&told, stands(6, 6)));
        // A level with an older generation, that is off, or with other rules; other rules that are not
        // evaluated; a device without this report.
        assert!(!in_short(&told, stands(6, 5)) && !in_short(&told, stands(6, 0)));
        let mut other = stands(6, 6);
        other.levels[1].rules.as_mut().unwrap().evaluates.insert("pfw".into(), 1);
        assert!(!in_short(&told, other));
        let left_out = LeftOut { count: 1, first: Vec::new() };
        assert!(!in_short(&told, LevelStatus { left_out, ..stands(6, 6) }));
        assert_eq!(told.in_short(6, &running(None)), None);
        // Other hashes of the device's own files.
        let content = Some(LocalContent { lists: Hash([1; 32]), settings: Hash([2; 32]) });
        assert!(!in_short(&told, LevelStatus { content, ..stands(6, 6) }));
        told.note(&running(Some(LevelStatus { content, ..stands(5, 5) })));
        assert!(in_short(&told, LevelStatus { content, ..stands(6, 6) }));
        // A level that was off and is off.
        told.note(&running(Some(stands(5, 0))));
        assert!(in_short(&told, stands(6, 0)) && !in_short(&told, stands(6, 6)));
    }

    #[test]
    fn what_is_not_as_it_was_is_said_in_full() {
        let took = Some(ApplyTimings::default());
        let mut told = LastRunning::default();
        told.note(&running(2, &[("host", 4), ("xdp", 5)], took));
        let others = [
            running(1, &[("host", 6), ("xdp", 6)], took),
            running(3, &[("host", 6), ("xdp", 6)], took),
            running(2, &[("host", 6)], took),
            running(2, &[("host", 6), ("rtl", 6)], took),
            running(2, &[("host", 6), ("xdp", 5)], took),
            running(2, &[("host", 6), ("xdp", 6)], None),
        ];
        assert!(others.iter().all(|other| told.in_short(6, other).is_none()));
        let many = u16::try_from(limits::TOLD_LEVELS / 2).unwrap();
        told.note(&running(many, &[("host", 4), ("xdp", 4)], took));
        assert!(told.in_short(6, &running(many, &[("host", 6), ("xdp", 6)], took)).is_some());
        told.note(&running(many + 1, &[("host", 4), ("xdp", 4)], took));
        assert!(told.in_short(6, &running(many + 1, &[("host", 6), ("xdp", 6)], took)).is_none());
    }
}

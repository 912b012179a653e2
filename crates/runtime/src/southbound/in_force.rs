// SPDX-License-Identifier: Apache-2.0
//! The generations of this program that workers and levels may run, each with the controller's number
//! beside its own and its content; and the controller's numbers of tenants. This program numbers both
//! itself, anew with each start.

use crate::channel::RunningGeneration;
use bartizan_agent::joined::JoinedPolicy;
use bartizan_api::southbound::LeftOut;
use bartizan_base::{Generation, TenantId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of generations that are kept: late workers run one of the last.
const REMEMBERED: usize = 16;

/// The generations and tenants; see the module.
#[derive(Debug, Default)]
pub struct InForce(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The generations, the newest first.
    generations: VecDeque<RunningGeneration>,
    /// A tenant's number is never given to another one.
    tenants: BTreeMap<TenantId, u16>,
    /// Rules of the newest generation that are not evaluated.
    left_out: LeftOut,
}

impl InForce {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a generation that is about to run: one of a controller, or one of this host's own. `tenants`:
    /// this program's numbers; `left_out`: rules of its libraries that are not evaluated.
    pub fn note(
        &self,
        newest: RunningGeneration,
        held: Option<&JoinedPolicy>,
        tenants: &[(String, TenantId)],
        left_out: LeftOut,
    ) {
        let mut inner = self.inner();
        inner.left_out = left_out;
        inner.generations.truncate(REMEMBERED - 1);
        inner.generations.push_front(newest);
        let Some(held) = held else { return };
        let own: HashMap<&str, TenantId> = tenants.iter().map(|(name, own)| (name.as_str(), *own)).collect();
        for (name, theirs) in held.tenants.iter() {
            if let Some(own) = own.get(name.as_str()) {
                inner.tenants.insert(*own, *theirs);
            }
        }
    }

    /// The generation of this number, with what goes with it. One that no worker has reached yet, or that
    /// is too old, is none of a controller.
    pub fn generation(&self, number: Generation) -> RunningGeneration {
        let known = self.inner().generations.iter().find(|known| known.generation == number).copied();
        known.unwrap_or_default()
    }

    /// Rules of the newest generation that are not evaluated.
    pub fn left_out(&self) -> LeftOut {
        self.inner().left_out.clone()
    }

    /// The newest generation, by this program's number, with the content that it was built from.
    pub fn newest(&self) -> RunningGeneration {
        self.inner().generations.front().copied().unwrap_or_default()
    }

    /// The controller's number of a tenant; 0 for traffic without one.
    pub fn tenant(&self, tenant: TenantId) -> u16 {
        self.inner().tenants.get(&tenant).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_agent::joined::join;
    use bartizan_agent::session::ControllerGeneration;

    #[test]
    fn numbers_are_those_of_the_controller() {
        let in_force = InForce::default();
        let own = |number, controller| RunningGeneration {
            generation: Generation(number),
            controller,
            ..RunningGeneration::default()
        };
        let joined = |generation, tenant: u16| {
            let mut joined = join(&ControllerGeneration::default()).unwrap();
            joined.generation = generation;
            joined.tenants = vec![("acme".to_owned(), tenant), ("gone".to_owned(), 9)].into();
            joined
        };
        in_force.note(own(1, 0), None, &[], LeftOut::default());
        let tenants = [("default".to_owned(), TenantId(0)), ("acme".to_owned(), TenantId(1))];
        in_force.note(own(2, 70), Some(&joined(70, 33)), &tenants, LeftOut::default());
        in_force.note(own(3, 70), Some(&joined(70, 33)), &tenants, LeftOut::default());
        let known = [1, 2, 3, 4].map(|number| in_force.generation(Generation(number)).controller);
        assert_eq!(known, [0, 70, 70, 0]);
        assert_eq!([0, 1, 2].map(|id| in_force.tenant(TenantId(id))), [0, 33, 0]);
        for number in 10..30 {
            in_force.note(own(number, number), Some(&joined(number, 33)), &tenants, LeftOut::default());
        }
        let known = [2, 14, 29].map(|number| in_force.generation(Generation(number)).controller);
        assert_eq!(known, [0, 14, 29]);
    }
}

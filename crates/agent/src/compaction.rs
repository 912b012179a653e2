// SPDX-License-Identifier: Apache-2.0
//! Compiles whole what generations have as differences to the tables of earlier ones, in a thread of its own,
//! once changes rest.
//!
//! It changes how fast flows are looked up, never what is found: so its time is the machine's, and where the
//! system gives no thread nothing is lost but speed.

use bartizan_classify::Layered;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How long no change may have come.
const QUIET: Duration = Duration::from_secs(1);
/// After compiling it is quiet for so many times as long as that took, at least: changes that go on take a
/// tenth of a core at most.
const REST: u32 = 10;
/// Rules added to tables with which they are compiled at once: about half of what can be added.
const URGENT: usize = 128;

type Tables = Vec<Weak<Layered>>;

/// See the module. Dropping it ends the thread.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    asked: Option<Sender<Tables>>,
    behind: Option<fn()>,
}

impl Compaction {
    /// Lets these tables be compiled in some time, unless others are asked for.
    pub(crate) fn ask<'a>(&mut self, tables: impl Iterator<Item = &'a Arc<Layered>>) {
        let tables: Tables = tables.filter(|tables| !tables.is_compact()).map(Arc::downgrade).collect();
        // What was asked for before is of no use any more, either.
        if tables.is_empty() && self.asked.is_none() {
            return;
        }
        if self.asked.is_none() {
            let (send, asked) = channel();
            let behind = self.behind.unwrap_or(|| {});
            let work = move || compile_when_quiet(&asked, behind);
            let spawned = thread::Builder::new().name("tables".to_owned()).spawn(work);
            self.asked = spawned.is_ok().then_some(send);
        }
        if self.asked.as_ref().is_some_and(|send| send.send(tables).is_err()) {
            self.asked = None;
        }
    }

    /// What its thread calls each time that it has compiled something, from its next start on.
    pub(crate) fn set_behind(&mut self, behind: fn()) {
        self.behind = Some(behind);
    }
}

fn compile_when_quiet(asked: &Receiver<Tables>, behind: fn()) {
    let mut quiet = QUIET;
    while let Ok(mut tables) = asked.recv() {
        while !is_urgent(&tables) {
            match asked.recv_timeout(quiet) {
                Ok(newer) => tables = newer,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        tables = asked.try_iter().last().unwrap_or(tables);
        let begun = Instant::now();
        tables.iter().filter_map(Weak::upgrade).for_each(|tables| tables.compact());
        behind();
        quiet = QUIET.max(begun.elapsed() * REST);
    }
}

fn is_urgent(tables: &Tables) -> bool {
    tables.iter().filter_map(Weak::upgrade).any(|tables| tables.added() >= URGENT)
}

// SPDX-License-Identifier: Apache-2.0
//! Recompiles classification tables that consist of a base and differences, in a thread of its own, once no
//! changes come for a while.
//!
//! Compaction changes the speed of lookups, never their result, so it uses the machine's clock; where the
//! system provides no thread, only speed is lost.

use bartizan_classify::Layered;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Time without a change before tables are compiled.
const QUIET: Duration = Duration::from_secs(1);
/// Pause after a compilation, as a multiple of its duration: continuous changes use at most a tenth of a
/// core.
const REST: u32 = 10;
/// Rules added to tables from which they are compiled at once: about half of the possible number.
const URGENT: usize = 128;

type LayeredTables = Vec<Weak<Layered>>;

/// The compaction thread's handle; dropping it ends the thread.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    requests: Option<Sender<LayeredTables>>,
    behind: Option<fn()>,
}

impl Compaction {
    /// Schedules these tables for compilation, in place of those scheduled before.
    pub(crate) fn schedule<'a>(&mut self, tables: impl Iterator<Item = &'a Arc<Layered>>) {
        let tables: LayeredTables =
            tables.filter(|tables| !tables.is_compact()).map(Arc::downgrade).collect();
        // Tables scheduled before are not in use any more.
        if tables.is_empty() && self.requests.is_none() {
            return;
        }
        if self.requests.is_none() {
            let (send, asked) = channel();
            let behind = self.behind.unwrap_or(|| {});
            let work = move || compile_when_quiet(&asked, behind);
            let spawned = thread::Builder::new().name("tables".to_owned()).spawn(work);
            self.requests = spawned.is_ok().then_some(send);
        }
        if self.requests.as_ref().is_some_and(|send| send.send(tables).is_err()) {
            self.requests = None;
        }
    }

    /// Sets a hook that the thread calls after each compilation, from its next start on.
    pub(crate) fn set_behind(&mut self, behind: fn()) {
        self.behind = Some(behind);
    }
}

fn compile_when_quiet(asked: &Receiver<LayeredTables>, behind: fn()) {
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

fn is_urgent(tables: &LayeredTables) -> bool {
    tables.iter().filter_map(Weak::upgrade).any(|tables| tables.added() >= URGENT)
}

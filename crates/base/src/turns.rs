// SPDX-License-Identifier: Apache-2.0
//! Workers that inspect one capture in parallel access shared state in the order of the packets, so that the
//! result is that of a single worker: thresholds, host bits, data sets.
//!
//! Each worker publishes its place in the capture ([`CaptureTurn::at`]). A worker that needs shared state
//! waits until every other one is ahead ([`wait_for_turn`]); the last one never waits, so there is always
//! progress. On live links no worker takes part, and the call costs a look at a thread-local variable.
//!
//! Memory ordering: a place is two words. Its owner stores the second as 0, then the first (`Release`), then
//! the second for each step within it (`Release`). A reader loads the first, then the second (both
//! `Acquire`). If it sees the current first word, it sees a second word at least as new as the 0 stored
//! before it: never one of an earlier first word. So a place never reads as ahead of its owner, and
//! everything that the owner did before it advanced is visible.

use core::cell::RefCell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Polls before a waiting worker yields its processor, and before it sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 1_024;
/// Sleep between two checks after the spins and yields.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

thread_local! {
    static MINE: RefCell<Option<(Arc<CaptureTurns>, usize)>> = const { RefCell::new(None) };
}

/// The places of a run's workers.
#[derive(Debug)]
pub struct CaptureTurns {
    places: Vec<TurnPosition>,
}

/// On a cache line of its own: others read it rarely.
#[derive(Debug, Default)]
#[repr(align(64))]
struct TurnPosition {
    frame: AtomicU64,
    step: AtomicU64,
}

impl TurnPosition {
    fn read(&self) -> (u64, u64) {
        let frame = self.frame.load(Ordering::Acquire);
        (frame, self.step.load(Ordering::Acquire))
    }

    fn set(&self, frame: u64, step: u64) {
        if self.frame.load(Ordering::Relaxed) != frame {
            self.step.store(0, Ordering::Release);
            self.frame.store(frame, Ordering::Release);
        }
        self.step.store(step, Ordering::Release);
    }
}

impl CaptureTurns {
    /// The positions of `workers` workers, all at the first turn.
    #[must_use]
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(CaptureTurns { places: (0..workers).map(|_| TurnPosition::default()).collect() })
    }

    /// Registers the calling thread as this worker.
    #[must_use]
    pub fn take_part(self: &Arc<Self>, worker: usize) -> CaptureTurn {
        MINE.with_borrow_mut(|mine| *mine = Some((Arc::clone(self), worker)));
        CaptureTurn { turns: Arc::clone(self), worker }
    }

    /// Whether a worker has ended or failed.
    #[must_use]
    pub fn has_ended(&self, worker: usize) -> bool {
        self.places.get(worker).is_none_or(|place| place.read().0 == u64::MAX)
    }

    fn wait(&self, worker: usize) {
        let Some(mine) = self.places.get(worker).map(TurnPosition::read) else { return };
        for (index, place) in self.places.iter().enumerate() {
            let mut looks = 0u32;
            // Two workers at one place access different state: the order of workers is as good as any.
            while index != worker && (place.read(), index) < (mine, worker) {
                looks = looks.saturating_add(1);
                match looks {
                    0..SPINS => core::hint::spin_loop(),
                    SPINS..YIELDS => std::thread::yield_now(),
                    _ => std::thread::sleep(POLL_INTERVAL),
                }
            }
        }
    }
}

/// A worker's part in the order. Dropping it ends the worker's part, and no other worker waits for it any
/// more.
#[derive(Debug)]
pub struct CaptureTurn {
    turns: Arc<CaptureTurns>,
    worker: usize,
}

impl CaptureTurn {
    /// Publishes that the worker has finished everything before this step of this frame. Never goes back.
    #[inline]
    pub fn at(&self, frame: u64, step: u64) {
        if let Some(place) = self.turns.places.get(self.worker) {
            place.set(frame, step);
        }
    }
}

impl Drop for CaptureTurn {
    fn drop(&mut self) {
        self.at(u64::MAX, u64::MAX);
        // While the thread ends there is nothing to clear.
        let _ = MINE.try_with(|mine| mine.take());
    }
}

/// Waits until all other workers are ahead of the calling one; returns at once in a thread that takes no
/// part.
#[inline]
pub fn wait_for_turn() {
    // While a thread ends it takes no part.
    let _ = MINE.try_with(|mine| {
        if let Ok(mine) = mine.try_borrow()
            && let Some((turns, worker)) = mine.as_ref()
        {
            turns.wait(*worker);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn shared_state_is_touched_in_the_order_of_the_frames() {
        const WORKERS: usize = 3;
        const FRAMES: u64 = 600;
        for _ in 0..5 {
            let turns = CaptureTurns::new(WORKERS);
            let touched = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                for worker in 0..WORKERS {
                    let (turns, touched) = (&turns, &touched);
                    scope.spawn(move || {
                        let turn = turns.take_part(worker);
                        for frame in 1..=FRAMES {
                            turn.at(frame, 0);
                            // Uneven parts: two workers access some frames, at different steps.
                            let steps: &[u64] = match (frame % 7) as usize {
                                0 if worker == 2 => &[1, 3],
                                0 if worker == 0 => &[2],
                                own if own % WORKERS == worker && own != 0 => &[1],
                                _ => &[],
                            };
                            for step in steps {
                                turn.at(frame, *step);
                                wait_for_turn();
                                touched.lock().unwrap().push((frame, *step));
                            }
                        }
                    });
                }
            });
            let touched = touched.into_inner().unwrap();
            assert!(touched.is_sorted(), "{touched:?}");
            assert_eq!(touched.len() as u64, FRAMES - FRAMES / 7 + 3 * (FRAMES / 7));
        }
    }

    #[test]
    fn nobody_waits_for_a_worker_that_ended_and_outside_of_an_order() {
        wait_for_turn();
        let turns = CaptureTurns::new(2);
        let gone = turns.take_part(1);
        drop(gone);
        wait_for_turn();
        assert_eq!([turns.has_ended(0), turns.has_ended(1)], [false, true]);
        let turn = turns.take_part(0);
        turn.at(9, 9);
        wait_for_turn();
    }
}

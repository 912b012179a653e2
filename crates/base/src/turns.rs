// SPDX-License-Identifier: Apache-2.0
//! Workers that inspect one capture side by side and share state touch that state in the order of the
//! packets, so that the result is that of a single worker: thresholds, host bits, data sets.
//!
//! Each worker says where in the capture it is ([`Turn::at`]). Who wants shared state waits until every other
//! worker is further on ([`wait_for_turn`]); the one that is furthest back never waits, so somebody always
//! goes on. On live links nobody takes part, and asking costs a look at a thread's own variable.
//!
//! Memory ordering: a place is two words. Its owner stores the second as 0, then the first (`Release`), then
//! the second for each step within it (`Release`). A reader loads the first, then the second (both
//! `Acquire`). If it sees the first of now, it sees a second that is at least that of now's beginning, or a
//! later one: never one of an earlier first. So a place never reads as further on than it is, and what its
//! owner did before it moved on is seen.

use core::cell::RefCell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Looks before a waiting worker gives its processor away, and before it sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 1_024;
const NAP: Duration = Duration::from_micros(50);

thread_local! {
    static MINE: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
}

/// Where the workers of a run are.
#[derive(Debug)]
pub struct Turns {
    places: Vec<Place>,
}

/// On a cache line of its own: others read it seldom.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    frame: AtomicU64,
    step: AtomicU64,
}

impl Place {
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

impl Turns {
    /// For so many workers, all at the beginning.
    #[must_use]
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Turns { places: (0..workers).map(|_| Place::default()).collect() })
    }

    /// The calling thread is this worker from here on.
    #[must_use]
    pub fn take_part(self: &Arc<Self>, worker: usize) -> Turn {
        MINE.with_borrow_mut(|mine| *mine = Some((Arc::clone(self), worker)));
        Turn { turns: Arc::clone(self), worker }
    }

    /// Whether a worker takes part no more: it has ended, or failed.
    #[must_use]
    pub fn has_ended(&self, worker: usize) -> bool {
        self.places.get(worker).is_none_or(|place| place.read().0 == u64::MAX)
    }

    fn wait(&self, worker: usize) {
        let Some(mine) = self.places.get(worker).map(Place::read) else { return };
        for (index, place) in self.places.iter().enumerate() {
            let mut looks = 0u32;
            // Two at one place do not touch the same: the order of workers is as good as any.
            while index != worker && (place.read(), index) < (mine, worker) {
                looks = looks.saturating_add(1);
                match looks {
                    0..SPINS => core::hint::spin_loop(),
                    SPINS..YIELDS => std::thread::yield_now(),
                    _ => std::thread::sleep(NAP),
                }
            }
        }
    }
}

/// A worker's part in the order. When it is dropped the worker is done, and nobody waits for it any more.
#[derive(Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    worker: usize,
}

impl Turn {
    /// The worker has done all before this step of this frame. Never goes back.
    #[inline]
    pub fn at(&self, frame: u64, step: u64) {
        if let Some(place) = self.turns.places.get(self.worker) {
            place.set(frame, step);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.at(u64::MAX, u64::MAX);
        // While the thread ends there is nothing to be taken back.
        let _ = MINE.try_with(|mine| mine.take());
    }
}

/// Waits until all other workers are further on than the calling one; returns at once where the thread takes
/// part in no order.
#[inline]
pub fn wait_for_turn() {
    // While a thread ends it takes part in nothing.
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
            let turns = Turns::new(WORKERS);
            let touched = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                for worker in 0..WORKERS {
                    let (turns, touched) = (&turns, &touched);
                    scope.spawn(move || {
                        let turn = turns.take_part(worker);
                        for frame in 1..=FRAMES {
                            turn.at(frame, 0);
                            // Uneven parts: some frames are touched by two workers, at different steps.
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
        let turns = Turns::new(2);
        let gone = turns.take_part(1);
        drop(gone);
        wait_for_turn();
        assert_eq!([turns.has_ended(0), turns.has_ended(1)], [false, true]);
        let turn = turns.take_part(0);
        turn.at(9, 9);
        wait_for_turn();
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A card: a device with its driver, in a thread of its own, and handles by which workers reach it.
//!
//! A model of Verilator belongs to the thread that made it, and a bus takes one access at a time. So one
//! thread owns the driver, and the holders of a handle send it jobs, each of which is done as a whole.

use crate::driver::{DriverError, LogicCapabilities, RegisterBus, TableDriver};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The content of a card's thread.
#[derive(Debug)]
pub struct CardState<B> {
    /// Driver of the tables.
    pub driver: TableDriver<B>,
    /// When a packet was last seen to have counted for an entry of the flow cache, by its place, in
    /// nanoseconds.
    touched_at: Vec<u64>,
    looked_at: u64,
}

type Job<B> = Box<dyn FnOnce(&mut CardState<B>) + Send>;

/// The thread, which ends with its last handle.
#[derive(Debug)]
struct CardThread<B> {
    jobs: Option<Sender<Job<B>>>,
    thread: Option<JoinHandle<()>>,
}

impl<B> Drop for CardThread<B> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A job that panics is reported by whoever waits for its result.
            let _ = thread.join();
        }
    }
}

/// A handle of a card.
#[derive(Debug)]
pub struct Card<B> {
    thread: Arc<CardThread<B>>,
    capabilities: LogicCapabilities,
    flow_entries: usize,
}

impl<B> Clone for Card<B> {
    fn clone(&self) -> Self {
        Card { thread: Arc::clone(&self.thread), ..*self }
    }
}

impl<B> Card<B> {
    /// Configuration of its logic.
    #[must_use]
    pub const fn capabilities(&self) -> &LogicCapabilities {
        &self.capabilities
    }

    /// Number of entries of its flow cache.
    #[must_use]
    pub const fn flow_entries(&self) -> usize {
        self.flow_entries
    }
}

/// Interval at which silence of entries is looked for, in nanoseconds.
const LOOK_INTERVAL: u64 = 1_000_000_000;

impl<B: RegisterBus> CardState<B> {
    /// The times of the latest packets by entry, which are at most a second old.
    ///
    /// # Errors
    /// The bus fails.
    pub fn touched_at(&mut self, now: u64) -> Result<&[u64], DriverError> {
        if now.saturating_sub(self.looked_at) >= LOOK_INTERVAL {
            self.looked_at = now;
            let CardState { driver, touched_at, .. } = self;
            driver.touched_flows(&mut |place| {
                if let Some(at) = touched_at.get_mut(place) {
                    *at = now;
                }
            })?;
        }
        Ok(&self.touched_at)
    }

    /// Notes that an entry was made.
    pub fn touch(&mut self, place: usize, now: u64) {
        if let Some(at) = self.touched_at.get_mut(place) {
            *at = now;
        }
    }
}

impl<B: RegisterBus + 'static> Card<B> {
    /// Starts the thread of a card. `make` makes its bus there; `seed`: see [`TableDriver::new`].
    ///
    /// # Errors
    /// No device of this kind answers.
    pub fn start(make: impl FnOnce() -> B + Send + 'static, seed: u64) -> Result<Self, DriverError> {
        let (jobs, work): (Sender<Job<B>>, Receiver<Job<B>>) = channel();
        let (ready, begun) = channel();
        let run = move || {
            let driver = match TableDriver::new(make(), seed) {
                Ok(driver) => driver,
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            let (capabilities, entries) = (*driver.capabilities(), driver.flow_entries());
            let mut state = CardState { driver, touched_at: vec![0; entries], looked_at: 0 };
            // Nobody waits for a card that was given up meanwhile.
            let _ = ready.send(Ok((capabilities, entries)));
            for job in work {
                job(&mut state);
            }
        };
        let thread = std::thread::Builder::new()
            .name("smartnic".into())
            .spawn(run)
            .map_err(|_| DriverError::NoThread)?;
        let (capabilities, flow_entries) = begun.recv().unwrap_or(Err(DriverError::Gone))?;
        let thread = Arc::new(CardThread { jobs: Some(jobs), thread: Some(thread) });
        Ok(Card { thread, capabilities, flow_entries })
    }

    /// Does a job in the card's thread, and waits for its result.
    ///
    /// # Errors
    /// The job fails, or the thread is gone.
    pub fn with<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut CardState<B>) -> Result<R, DriverError> + Send + 'static,
    ) -> Result<R, DriverError> {
        let (done, result) = channel();
        let job: Job<B> = Box::new(move |state| drop(done.send(job(state))));
        let jobs = self.thread.jobs.as_ref().ok_or(DriverError::Gone)?;
        jobs.send(job).map_err(|_| DriverError::Gone)?;
        result.recv().unwrap_or(Err(DriverError::Gone))
    }
}

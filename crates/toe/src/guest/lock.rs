// SPDX-License-Identifier: Apache-2.0
//! Locks of a stream's program side, shared by the threads and processes that have its descriptor. A lock
//! whose owner was killed is taken over.

use rustix::process::{Pid, test_kill_process};
use rustix::thread::futex;
use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Bit beside the owner: somebody sleeps.
const SLEEPERS: u32 = 1 << 31;
/// Time after which a sleeper looks whether the owner still lives, in nanoseconds.
const POLL_INTERVAL_NS: i64 = 20_000_000;

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// Forgets the thread's number: called in the child after `fork`.
pub fn forget_thread() {
    let _ = THREAD.try_with(|thread| thread.set(0));
}

fn thread() -> u32 {
    let own = || rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    THREAD
        .try_with(|thread| {
            if thread.get() == 0 {
                thread.set(own());
            }
            thread.get()
        })
        .unwrap_or_else(|_| own())
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct SharedLock<'s> {
    word: &'s AtomicU32,
}

impl<'s> SharedLock<'s> {
    /// Takes the lock; waits while another thread has it and lives.
    #[must_use]
    pub fn take(word: &'s AtomicU32) -> SharedLock<'s> {
        let own = thread();
        if word.compare_exchange(0, own, Acquire, Relaxed).is_err() {
            Self::wait(word, own);
        }
        SharedLock { word }
    }

    #[cold]
    fn wait(word: &AtomicU32, own: u32) {
        loop {
            let held = word.load(Relaxed);
            let owner = held & !SLEEPERS;
            if owner == 0 || !lives(owner) {
                // It stays marked: others may sleep.
                if word.compare_exchange(held, own | SLEEPERS, Acquire, Relaxed).is_ok() {
                    return;
                }
                continue;
            }
            if held & SLEEPERS == 0 && word.compare_exchange(held, held | SLEEPERS, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            let pause = futex::Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL_NS };
            let _ = futex::wait(word, futex::Flags::empty(), held | SLEEPERS, Some(&pause));
        }
    }
}

fn lives(thread: u32) -> bool {
    let Some(pid) = i32::try_from(thread).ok().and_then(Pid::from_raw) else { return false };
    test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

impl Drop for SharedLock<'_> {
    fn drop(&mut self) {
        if self.word.swap(0, Release) & SLEEPERS != 0 {
            let _ = futex::wake(self.word, futex::Flags::empty(), 1);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Pins a worker's thread to one processor: its tables stay in that processor's cache.
//!
//! Not done: placement by the distance of memory and device (NUMA).

use crate::sys;

/// The number of processors that this process may use; at least one.
#[must_use]
pub fn processors() -> usize {
    sys::allowed_processors().len().max(1)
}

/// Pins the calling thread to the `index`-th of the processors that it may use. `false`: it does not exist,
/// or the kernel refuses; the thread then runs where the kernel schedules it.
pub fn stay_on_processor(index: usize) -> bool {
    sys::allowed_processors().get(index).is_some_and(|processor| sys::stay_on(*processor).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_put() {
        let before = processors();
        let alone = std::thread::spawn(|| (stay_on_processor(0), processors(), stay_on_processor(1)));
        assert_eq!(alone.join().unwrap(), (true, 1, false));
        assert_eq!(processors(), before, "other threads are not concerned");
        assert!(!stay_on_processor(usize::MAX));
    }
}

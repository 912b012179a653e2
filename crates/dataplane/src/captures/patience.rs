// SPDX-License-Identifier: Apache-2.0
//! Waiting for another worker of a capture: shortly awake, then giving the processor away, then asleep for
//! moments.

use std::time::Duration;

/// Looks before who waits gives its processor away, and before it sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 1_024;
/// Sleep between two checks after the spins and yields.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Returns once `is_over` says so.
pub(super) fn wait_until(mut is_over: impl FnMut() -> bool) {
    let mut looks = 0u32;
    while !is_over() {
        looks = looks.saturating_add(1);
        match looks {
            0..SPINS => core::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

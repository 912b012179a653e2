// SPDX-License-Identifier: Apache-2.0
//! Waiting for another worker of a capture: first spinning, then yielding the processor, then sleeping
//! briefly.

use std::time::Duration;

/// Checks before a waiting thread yields its processor, and before it sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 1_024;
const NAP: Duration = Duration::from_micros(50);

/// Returns once `is_over` holds.
pub(super) fn wait_until(mut is_over: impl FnMut() -> bool) {
    let mut looks = 0u32;
    while !is_over() {
        looks = looks.saturating_add(1);
        match looks {
            0..SPINS => core::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
    }
}

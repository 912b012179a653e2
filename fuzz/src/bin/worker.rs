// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: packets through a whole worker with rules.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::worker::run(data));

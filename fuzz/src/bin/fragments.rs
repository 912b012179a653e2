// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: bad fragments through a worker to models of receivers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::fragments::run(data));

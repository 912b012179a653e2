// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: segments through TCP tracking and reassembly, passive and inline.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::tcp::run(data));

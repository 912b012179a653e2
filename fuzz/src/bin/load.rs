// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: rule files through the loader of the detection engine.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::load::run(data));

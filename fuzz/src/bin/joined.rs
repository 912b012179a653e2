// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: parts of a policy file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::joined::run(data));

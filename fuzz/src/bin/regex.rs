// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: regular expressions, single and as sets.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::regex::run(data));

// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: policy files.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::policy::run(data));

// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: flow records of EVE.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::record::run(data));

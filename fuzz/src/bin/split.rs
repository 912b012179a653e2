// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: a stream parser has the same results however its input is cut.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::split::run(data));

// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: fragments through the defragmenter.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::defrag::run(data));

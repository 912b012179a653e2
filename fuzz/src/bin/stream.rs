// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: descriptors of the stream path.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::stream::run(data));

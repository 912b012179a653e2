// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: frames of every link type through the packet decoder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::decode::run(data));

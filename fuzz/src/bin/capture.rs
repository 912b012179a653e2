// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: files through the capture reader.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::capture::run(data));

// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: no byte is lost before a flow's protocol is detected, in whatever order both sides' bytes
//! come.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::open::run(data));

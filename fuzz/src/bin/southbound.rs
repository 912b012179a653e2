// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: messages of the southbound protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::southbound::run(data));

// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: messages on the command socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::control::run(data));

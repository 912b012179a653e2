// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: conversations through the parser of every protocol of the table.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::protocol::run(data));

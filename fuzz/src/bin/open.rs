// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: while a flow's protocol is open no byte is lost, however both sides' bytes come.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::open::run(data));

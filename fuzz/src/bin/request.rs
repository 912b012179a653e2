// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: requests to the controller.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::request::run(data));

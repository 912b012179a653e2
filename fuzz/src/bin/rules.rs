// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: rule files, threshold files, classifications and references through the rule language.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::rules::run(data));

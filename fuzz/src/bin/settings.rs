// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: suricata.yaml and the host file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::settings::run(data));

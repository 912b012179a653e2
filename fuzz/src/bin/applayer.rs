// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: conversations of SMTP, FTP, SMB, DCERPC, SSH and HTTP/2, passively and in prevention.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bartizan_fuzz::applayer::run(data));

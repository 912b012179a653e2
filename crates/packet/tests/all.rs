// SPDX-License-Identifier: Apache-2.0
//! All tests of decoding and packets in one program: each further program is linked with all code under test.
//! A file here is a module; `cargo xtask tidy` finds one that is not named. A test that has to be alone in
//! its process is a program of its own in `Cargo.toml`, with the reason.

// What they share.
mod build;
mod headers;
mod tables;

mod captures;
mod cut;
mod ip;
mod link;
mod metadata_headers;
mod properties;
mod slot_headers;
mod table_headers;
mod tunnels;

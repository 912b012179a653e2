// SPDX-License-Identifier: Apache-2.0
//! All tests of patterns in one program, which links the tested crates only once. Each file here is a module;
//! `cargo xtask tidy` finds a file that is not named. A test that must be alone in its process is a program
//! of its own in `Cargo.toml`, with the reason.

// Shared by the tests.
mod common;

mod cache;
mod literals;
mod regexes;

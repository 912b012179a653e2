// SPDX-License-Identifier: Apache-2.0
//! All tests of detection in one program, which links the tested crates only once. Each file here is a
//! module; `cargo xtask tidy` finds a file that is not named. A test that must be alone in its process is a
//! program of its own in `Cargo.toml`, with the reason.

// Shared by the tests.
mod common;

mod absent;
mod actions;
mod addresses;
mod app;
mod conflicts;
mod content;
mod firewall;
mod groups;
mod known;
mod loading;
mod meaning;
mod numbers;
mod properties;
mod published;
mod reference_pages;
mod state;
mod visibility;

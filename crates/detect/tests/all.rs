// SPDX-License-Identifier: Apache-2.0
//! All tests of detection in one program: each program more is linked with all that is tested. A file here is
//! a module; `cargo xtask tidy` finds one that is not named. What has to be alone in its process is a program
//! of its own in `Cargo.toml`, with the reason.

// What they share.
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

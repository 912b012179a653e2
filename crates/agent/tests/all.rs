// SPDX-License-Identifier: Apache-2.0
//! All tests of the agent in one program: each program more is linked with all that is tested. A file here is
//! a module; `cargo xtask tidy` finds one that is not named. What has to be alone in its process is a program
//! of its own in `Cargo.toml`, with the reason.

// What they share.
mod common;
#[path = "../../functions/tests/common/mod.rs"]
mod functions_bench;

mod build;
#[path = "conformance/main.rs"]
mod conformance;
#[path = "early/main.rs"]
mod early;
mod explain;
mod generations;
mod many_policies;
mod matches;
mod names;
mod one_lookup;
mod portscan;
mod quotas;
mod readers;
mod rest;
mod rule_counters;

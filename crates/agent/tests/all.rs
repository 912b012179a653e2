// SPDX-License-Identifier: Apache-2.0
//! All tests of the agent in one program, since each program is linked with everything under test. A file
//! here is a module; `cargo xtask tidy` finds files that are not. Tests that need a process of their own are
//! programs in `Cargo.toml`, with the reason.

// Shared parts.
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
mod policy_sources;
mod portscan;
mod quotas;
mod readers;
mod rest;
mod rule_counters;

// SPDX-License-Identifier: Apache-2.0
//! All tests of the controller in one program, since each program is linked with everything under test. A
//! file here is a module; `cargo xtask tidy` finds files that are not. Tests that need a process of their own
//! are programs in `Cargo.toml`, with the reason.

// Shared parts.
mod common;

mod block;
mod group_commit;
mod history;
mod interfaces;
mod isolation;
mod notes;
mod openapi;
mod parts;
mod resources;
mod scopes;
mod store;
mod tenant_statistics;
mod transport;

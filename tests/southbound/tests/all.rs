// SPDX-License-Identifier: Apache-2.0
//! All tests of both sides of the southbound protocol in one program, because each further program links all
//! tested crates again. A file here is a module; `cargo xtask tidy` finds a file that is not named. A test
//! that needs a process of its own is a program of its own in `Cargo.toml`, with the reason.

#[path = "planes/main.rs"]
mod planes;
mod southbound_sessions;
mod southbound_simulation;
mod southbound_tls;

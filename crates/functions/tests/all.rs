// SPDX-License-Identifier: Apache-2.0
//! All tests of the security functions in one program, since each program is linked with everything under
//! test. A file here is a module; `cargo xtask tidy` finds one that is not named. A test that needs its own
//! process is a program of its own in `Cargo.toml`, with the reason.

// Shared helpers.
mod common;
mod transitions;

mod gate;
mod pfw;
mod reference_page;
mod sfw;
mod transition_headers;
mod tutorial;

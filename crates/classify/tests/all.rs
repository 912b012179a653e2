// SPDX-License-Identifier: Apache-2.0
//! All tests of classification in one program: each further program is linked with all code under test. A
//! file here is a module; `cargo xtask tidy` finds one that is not named. A test that has to be alone in its
//! process is a program of its own in `Cargo.toml`, with the reason.

mod compiled;
mod equal;
mod generate;
mod golden;
mod layered;

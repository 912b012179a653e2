// SPDX-License-Identifier: Apache-2.0
//! All tests of the repository in one program: each program more is linked with all that is tested. A file
//! here is a module; `cargo xtask tidy` finds one that is not named. What has to be alone in its process is a
//! program of its own in `Cargo.toml`, with the reason.

mod readme;
mod reference;
mod tidy;

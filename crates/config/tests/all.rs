// SPDX-License-Identifier: Apache-2.0
//! All tests of the crate in one program: each program more is linked with all that is tested. A file here is
//! a module; `cargo xtask tidy` finds
//! one that is not named.

mod docs;

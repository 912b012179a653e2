// SPDX-License-Identifier: Apache-2.0
//! All tests of the crate in one program, since each program is linked with everything under test. A file
//! here is a module; `cargo xtask tidy` finds files that are not.

mod docs;

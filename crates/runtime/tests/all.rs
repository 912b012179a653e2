// SPDX-License-Identifier: Apache-2.0
//! All tests of this folder, in one program.

mod embed;
mod levels;
mod questions;
#[cfg(feature = "rtl")]
mod smartnic;

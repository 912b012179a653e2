// SPDX-License-Identifier: Apache-2.0
//! Golden models of header classification: structures that the product does not run, to compare with.
//!
//! [`StrideBv`] is the twin of the hardware's table, [`Hsm`] the structure of the IPP paper. Both answer as
//! [`bartizan_classify::Linear`] does, which tests of crate `classify` show.

mod hsm;
mod line;
mod stride;

pub use hsm::{Hsm, Segmentation};
pub use stride::{StrideBv, Ternary};

// SPDX-License-Identifier: Apache-2.0
//! Golden models of header classification: structures that the product does not use, for comparison.
//!
//! [`StrideBv`] is the twin of the hardware's table, [`Hsm`] the structure of the IPP paper. Both return
//! the results of [`bartizan_classify::Linear`], as tests of crate `classify` show. [`classbench`] has the
//! rule sets that the field measures with.

pub mod classbench;
mod hsm;
mod line;
mod stride;

pub use hsm::{Hsm, Segmentation};
pub use stride::{StrideBv, Ternary};

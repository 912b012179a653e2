// SPDX-License-Identifier: Apache-2.0
//! Running a rule set.

pub mod candidates;
pub mod explain;
pub mod header;
pub mod inspect;
pub mod txstate;
pub mod window;

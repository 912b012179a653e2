// SPDX-License-Identifier: Apache-2.0
//! Chores of the repository: `tidy`, the rules of the house as tests, and pages made from schemas and
//! records.

pub mod records;
pub mod reference;
pub mod scaffold;
pub mod tidy;

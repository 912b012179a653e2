// SPDX-License-Identifier: Apache-2.0
//! Chores of the repository: `tidy`, the rules of the house as tests.

pub mod tidy;

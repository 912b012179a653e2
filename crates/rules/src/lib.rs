// SPDX-License-Identifier: Apache-2.0
//! The rule language: text to syntax tree with positions, variables and diagnostics.

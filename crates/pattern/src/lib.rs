// SPDX-License-Identifier: Apache-2.0
//! Exact and regular-expression sets, and single regular expressions.

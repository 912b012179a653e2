// SPDX-License-Identifier: Apache-2.0
//! What is told of flows, as plain values that anybody may print: of live ones, and of those of a capture.

pub mod history;
pub mod live;

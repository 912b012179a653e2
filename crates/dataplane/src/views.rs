// SPDX-License-Identifier: Apache-2.0
//! Views of flows as plain, printable values: of live flows, and of flows of a capture.

pub mod history;
pub mod live;

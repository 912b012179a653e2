// SPDX-License-Identifier: Apache-2.0
//! Explanation of flows, for `bartizan explain flow`.
//!
//! Decisions are not computed a second time. Packets run through a [`crate::worker::Worker`] as usual, and
//! each function of the chain is wrapped in an [`observe::Observed`], which records the inputs and results of
//! its calls. [`first`] runs a packet that is built from a 5-tuple, [`history`] the frames of a capture.
//!
//! The structures are serialisable and grow by adding fields; `--json` prints them.
//!
//! Not done: flows of a running program (they are in that program's tables).

pub mod first;
pub mod history;
mod notes;
pub mod observe;
mod probe;

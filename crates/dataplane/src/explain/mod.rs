// SPDX-License-Identifier: Apache-2.0
//! What happens to a flow, told: for `bartizan explain flow`.
//!
//! Nothing here decides anything a second time. The packets run through a [`crate::worker::Worker`] as
//! always, and each function of the chain is wrapped in an [`observe::Observed`], which writes down what it
//! was asked and what it said. [`first`] does so with a packet that is made for a 5-tuple, [`history`] with
//! the frames of a capture.
//!
//! The structures are serialisable and grow by adding fields; that is what `--json` prints.
//!
//! Not done: flows of a running program (they are in its own tables, not in these).

pub mod first;
pub mod history;
mod notes;
pub mod observe;
mod probe;

// SPDX-License-Identifier: Apache-2.0
//! Evaluates a generation on recorded traffic: the outcome of each flow, compared to the recorded one or to
//! that of another generation.
//!
//! * [`outcome`]: the outcome of a flow;
//! * [`record`]: the fields of an EVE flow record that a replay needs;
//! * [`headers`]: evaluates a generation on flow records, by headers alone;
//! * [`fates`]: records the outcomes of flows in a capture;
//! * [`report`]: compares outcomes.

pub mod fates;
pub mod headers;
pub mod outcome;
pub mod record;
pub mod report;

pub use fates::{FlowVerdicts, ReplayFlow};
pub use headers::Headers;
pub use outcome::{Amounts, FlowName, ReplayOutcome, ReplayVerdict};
pub use record::{NotRead, Record};
pub use report::{Case, ReplayReport};

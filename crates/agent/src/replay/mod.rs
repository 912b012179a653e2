// SPDX-License-Identifier: Apache-2.0
//! A generation over traffic that was: what would become of each flow, beside what became of it or what
//! another generation says.
//!
//! * [`outcome`]: what becomes of a flow;
//! * [`record`]: a flow record of EVE, as far as it is needed;
//! * [`headers`]: a generation asked about flows by their headers alone, as records have them;
//! * [`fates`]: what became of the flows of a capture that went through the engine;
//! * [`report`]: all of it beside one another.

pub mod fates;
pub mod headers;
pub mod outcome;
pub mod record;
pub mod report;

pub use fates::{Fates, Seen};
pub use headers::Headers;
pub use outcome::{Amounts, Fate, FlowName, Outcome};
pub use record::{NotRead, Record};
pub use report::{Case, Report};

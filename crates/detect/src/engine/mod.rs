// SPDX-License-Identifier: Apache-2.0
//! Runs a rule set.
//!
//! [`inspect`] is called once per packet: [`prefilter`] and [`payloads`] name the [`candidates`], [`header`]
//! and [`evaluate`] decide whether a rule holds, [`txstate`] keeps the progress of rules in a flow, `request`
//! carries out the requests of matches. [`explain`] describes rules and their evaluation.

pub mod candidates;
pub(crate) mod composed;
pub mod evaluate;
pub mod explain;
pub(crate) mod guards;
pub(crate) mod head_answers;
pub mod header;
pub mod inspect;
pub mod payloads;
pub mod prefilter;
pub(crate) mod request;
pub mod txstate;
pub mod window;

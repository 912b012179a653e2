// SPDX-License-Identifier: Apache-2.0
//! State and look-ups of rules beside the traffic: per flow ([`FlowRuleState`]), per host and by name
//! ([`shared`]), in sets of values and files ([`dataset`], [`locations`]).
//!
//! State that outlives a generation is keyed by interned name or gid:sid, never by position in a rule set.

pub mod dataset;
mod flow;
pub mod locations;
pub(crate) mod refused;
pub mod shared;

pub use flow::{FlowCount, FlowRuleState, Names, VARIABLES_PER_FLOW_MAX};

// SPDX-License-Identifier: Apache-2.0
//! What a rule is once compiled.
//!
//! Plain values: who makes them is `compile`, what they ask for say the keywords, who runs them is `engine`.
//! Nothing here knows of these.

pub mod action;
pub mod addresses;
pub mod basis;
pub mod buffers;
pub mod condition;
pub mod content;
pub mod detection;
pub mod ends;
pub mod firewall;
pub mod guards;
pub mod heads;
pub mod hook;
pub mod left;
pub mod ordering;
pub mod prefilter;
pub mod request;
pub mod signature;
pub mod visibility;

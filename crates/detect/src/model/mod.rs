// SPDX-License-Identifier: Apache-2.0
//! The compiled form of rules.
//!
//! These are plain values: `compile` makes them, the keywords implement their conditions, `engine` runs them.
//! This module uses none of these.

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
pub mod places;
pub mod prefilter;
pub mod request;
pub mod signature;
pub mod visibility;

// SPDX-License-Identifier: Apache-2.0
//! Compiles rules from their text to the model.
//!
//! For one rule: its head ([`protocol`], [`heads`], [`hook`], [`firewall`]), then its keywords, which add to
//! the [`builder`], then checks of the whole (`validate`, `conflicts`, `fast_pattern`). For all rules of a
//! set: [`groups`] of heads, and [`prefilter`].

pub(crate) mod addresses;
pub mod builder;
mod check;
pub(crate) mod conflicts;
pub mod environment;
pub(crate) mod fast_pattern;
pub mod firewall;
pub mod groups;
pub(crate) mod guards;
pub mod heads;
pub mod hook;
pub mod keyword;
pub mod known;
mod literals;
pub mod magic;
mod payloads;
mod places;
pub mod prefilter;
pub mod protocol;
pub mod refusal;
pub(crate) mod skipped_entries;
pub(crate) mod unknown_classes;
mod validate;

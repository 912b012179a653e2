// SPDX-License-Identifier: Apache-2.0
//! From rules as they are written to the model.
//!
//! One rule: its head ([`protocol`], [`hook`], [`firewall`]), then its keywords, which add to the [`builder`]; then what holds
//! of the whole (`validate`, `conflicts`, `fast_pattern`). All rules of a set: [`groups`] of heads, and [`prefilter`].

pub mod builder;
pub(crate) mod conflicts;
pub(crate) mod fast_pattern;
pub mod firewall;
pub mod groups;
pub mod hook;
pub mod keyword;
pub mod known;
pub mod payloads;
pub mod prefilter;
pub mod protocol;
pub(crate) mod unknown_classes;
pub(crate) mod validate;

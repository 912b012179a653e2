// SPDX-License-Identifier: Apache-2.0
//! Running a rule set.
//!
//! [`inspect`] is called once per packet: [`prefilter`] and [`payloads`] name the [`candidates`], [`header`]
//! and [`evaluate`] say whether a rule holds, [`txstate`] remembers of a flow how far its rules are,
//! `request` carries out what matches ask for. [`explain`] tells of it.

pub mod candidates;
pub mod evaluate;
pub mod explain;
pub(crate) mod guards;
pub mod header;
pub mod inspect;
pub mod payloads;
pub mod prefilter;
pub(crate) mod request;
pub mod txstate;
pub mod window;

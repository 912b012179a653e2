// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets, one module each; the programs in `bin/` only call them. `seed` writes the first inputs.
//!
//! The findings of a target are in `regressions/TARGET/`, and `cargo test` runs them.
//!
//! Built with the feature `planted` each target has a fault that is deep enough to be missed by a target that
//! does not work: `scripts/fuzz-planted.sh` checks that each is found.

pub mod applayer;
pub mod capture;
pub mod control;
pub mod decode;
pub mod defrag;
pub mod fragments;
pub mod joined;
pub mod load;
pub mod open;
mod planted;
pub mod policy;
pub mod protocol;
mod receivers;
pub mod record;
pub mod regex;
pub mod request;
pub mod rules;
pub mod settings;
pub mod southbound;
pub mod split;
pub mod stream;
pub mod take;
pub mod tcp;
pub mod worker;

/// A target: it panics when it finds a fault.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("applayer", applayer::run),
    ("capture", capture::run),
    ("control", control::run),
    ("decode", decode::run),
    ("defrag", defrag::run),
    ("fragments", fragments::run),
    ("joined", joined::run),
    ("load", load::run),
    ("open", open::run),
    ("policy", policy::run),
    ("protocol", protocol::run),
    ("record", record::run),
    ("regex", regex::run),
    ("request", request::run),
    ("rules", rules::run),
    ("settings", settings::run),
    ("southbound", southbound::run),
    ("split", split::run),
    ("stream", stream::run),
    ("tcp", tcp::run),
    ("worker", worker::run),
];

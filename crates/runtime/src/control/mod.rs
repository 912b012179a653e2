// SPDX-License-Identifier: Apache-2.0
//! The command socket of a running program: `bartizan ctl` and Suricata's tools speak to it
//! ([`bartizan_api::control`]).
//!
//! * `place`: where it lies, and who may use it;
//! * [`server`]: clients, and their bounds;
//! * [`client`]: the other side: a command given, and its answer;
//! * `translate`: from messages to commands of the [`crate::channel`], and from what comes of them to
//!   answers.

pub mod client;
mod flow_words;
mod place;
pub mod server;
mod trace_words;
mod translate;

pub use place::{Place, Wanted, of_settings, usual};
pub use server::Server;
pub use translate::Desk;

use crate::error::Failure;
use bartizan_base::Settings;
use place::Choice;

/// What became of the socket.
pub enum Opened {
    /// It is there.
    Place(Place),
    /// Nobody wants one.
    None,
    /// Nobody asked for one, and the usual one cannot be had: what is to be said of it.
    Without(String),
}

/// Takes the place of the socket, if there is to be one.
///
/// # Errors
/// It is wanted, and cannot be had: what, where, why, what to do.
pub fn open(wanted: &Wanted, settings: &Settings) -> Result<Opened, Failure> {
    let group = wanted.group_id().map_err(Failure::input)?;
    let (path, is_usual) = match wanted.choice(settings).map_err(Failure::setting(settings))? {
        Choice::None => return Ok(Opened::None),
        Choice::Named(path) => (path, false),
        Choice::Usual(path) => (path, true),
    };
    match place::take(&path, group) {
        Ok(place) => Ok(Opened::Place(place)),
        Err(why) if is_usual => Ok(Opened::Without(format!(
            "no command socket for `bartizan ctl`: {why}; this run gets its own with --control PATH"
        ))),
        Err(why) => Err(Failure::stopped(format!(
            "no command socket: {why}; or choose another with --control PATH, or none with --control none"
        ))),
    }
}

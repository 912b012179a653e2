// SPDX-License-Identifier: Apache-2.0
//! The command socket of a running program: `bartizan ctl` and Suricata's tools speak to it ([`bartizan_api::control`]).
//!
//! * [`place`]: where it lies, and who may use it;
//! * [`server`]: clients, and their bounds;
//! * [`translate`]: from messages to commands of the [`crate::channel`], and from what comes of them to answers.

mod flow_words;
#[cfg(test)]
pub mod limits;
mod place;
mod server;
mod translate;

pub use place::{Place, Wanted, usual};
pub use server::Server;
pub use translate::Desk;

use crate::error::Failure;
use bartizan_base::Settings;
use place::Choice;

/// Takes the place of the socket, if there is to be one. What is to be said of it goes to `notes`.
///
/// # Errors
/// It is wanted, and cannot be had: what, where, why, what to do.
pub fn open(wanted: &Wanted, settings: &Settings, notes: &mut Vec<String>) -> Result<Option<Place>, Failure> {
    let group = wanted.group_id().map_err(Failure::input)?;
    match wanted.choice(settings).map_err(Failure::setting(settings))? {
        Choice::None => Ok(None),
        Choice::Named(path) => place::take(&path, group).map(Some).map_err(|why| {
            Failure::stopped(format!(
                "no command socket: {why}; or choose another with --control PATH, or none with --control none"
            ))
        }),
        Choice::Usual(path) => match place::take(&path, group) {
            Ok(place) => Ok(Some(place)),
            // Nobody has asked for it, and signals do the most.
            Err(why) => {
                notes.push(format!(
                    "no command socket for `bartizan ctl`: {why}; this one gets its own with --control PATH"
                ));
                Ok(None)
            }
        },
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The command socket of a running program, for `bartizan ctl` and Suricata's tools
//! ([`bartizan_api::control`]).
//!
//! * `place`: path and access rights;
//! * [`server`]: clients, and their bounds;
//! * [`client`]: sends a command, and reads its answer;
//! * `translate`: messages to commands of the [`crate::channel`], and results to answers.

pub mod client;
mod flow_words;
mod place;
pub mod server;
mod trace_words;
mod translate;

pub use place::{ControlSocketSpec, Place, of_run, of_settings, running_of, usual};
pub use server::ControlServer;
pub use translate::Desk;

use crate::error::Failure;
use bartizan_base::SettingsMap;
use place::SocketChoice;

/// Result of opening the socket.
pub enum Opened {
    /// The socket exists.
    Place(Place),
    /// The socket is disabled.
    None,
    /// The default socket, which was not requested, cannot be opened: a message for the user.
    Without(String),
}

/// Opens the socket, unless it is disabled.
///
/// # Errors
/// The socket is requested, and cannot be opened: problem, place, reason, remedy.
pub fn open(wanted: &ControlSocketSpec, settings: &SettingsMap) -> Result<Opened, Failure> {
    let group = wanted.group_id().map_err(Failure::input)?;
    let (path, is_usual) = match wanted.choice(settings).map_err(Failure::setting(settings))? {
        SocketChoice::None => return Ok(Opened::None),
        SocketChoice::Named(path) => (path, false),
        SocketChoice::Usual(path) => (path, true),
    };
    match place::take(&path, group) {
        Ok(place) => Ok(Opened::Place(place)),
        Err(why) if is_usual => Ok(Opened::Without(format!(
            "no command socket for `bartizan ctl`: {why}; give this run a socket with --control PATH"
        ))),
        Err(why) => Err(Failure::stopped(format!(
            "no command socket: {why}; or choose another with --control PATH, or run without one (--control \
             none)"
        ))),
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A controller in this process: that of `bartizan controller`, and that of a run that has all planes in one.

use crate::error::Failure;
use crate::load;
use bartizan_controller::Settings;
use bartizan_controller::start::{Config, Plane, Southbound, StartError};
use bartizan_flow::host::HostTable;
use bartizan_functions::reference;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Starts one, and says what is to be known of it.
///
/// # Errors
/// Something that it needs is not there, or taken.
pub fn start(state: &Path, listen: SocketAddr, southbound: Option<Southbound>) -> Result<Plane, Failure> {
    let config = Config {
        state: state.to_owned(),
        listen,
        southbound,
        settings: Settings { functions: functions(), ..Settings::default() },
        say,
    };
    let plane = bartizan_controller::start::start(&config).map_err(failure)?;
    plane.said.iter().for_each(|line| say(line));
    Ok(plane)
}

/// Says something of it while it runs.
pub fn say(line: &str) {
    eprintln!("bartizan: {line}");
}

/// The names that chains may have: those of this program's functions. A device of another version says itself what it lacks.
fn functions() -> Vec<String> {
    let hosts = Arc::new(HostTable::new(&load::hosts(1)));
    reference::specs(&hosts).iter().map(|spec| spec.name.to_owned()).collect()
}

fn failure(error: StartError) -> Failure {
    let StartError::Listen { source, .. } = &error else { return Failure::stopped(error) };
    let advice = match source.kind() {
        ErrorKind::AddrInUse => "another program (or another controller) listens there; give another port",
        ErrorKind::AddrNotAvailable => "this machine has no such address; `ip address` lists those it has",
        ErrorKind::PermissionDenied => "ports below 1024 are for root; give a higher one",
        _ => "give another address",
    };
    Failure::stopped(format!("{error}; {advice}"))
}

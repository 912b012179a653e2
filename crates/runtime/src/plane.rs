// SPDX-License-Identifier: Apache-2.0
//! A controller in this process: that of `bartizan controller`, and that of a run with all planes in one
//! process.

use crate::error::Failure;
use crate::{descriptors, load, sections};
use bartizan_agent::{AGENTS_OWN, order};
use bartizan_controller::Settings;
use bartizan_controller::server::CONNECTIONS_MAX;
use bartizan_controller::start::{ControllerConfig, Plane, Southbound, StartError};
use bartizan_flow::host::HostTable;
use bartizan_functions::reference;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tracing::info;

/// Descriptors of the controller besides those of connections: its store, libraries, workers of a run in the
/// same process.
const OWN_DESCRIPTORS: u64 = 512;

/// Starts a controller, and logs its facts. `bootstrap`: also a token that makes an administrator's.
///
/// # Errors
/// A resource is missing or in use.
pub fn start(
    state: &Path,
    listen: SocketAddr,
    southbound: Option<Southbound>,
    bootstrap: bool,
) -> Result<Plane, Failure> {
    let connections = CONNECTIONS_MAX + southbound.as_ref().map_or(0, |of| of.server.connections);
    let wanted = connections as u64 + OWN_DESCRIPTORS;
    if let Some(most) = descriptors::raise(wanted).filter(|most| *most < wanted) {
        log_line(&format!(
            "this process may open {most} files, and {wanted} are needed for the greatest number of connections; raise the limit (`LimitNOFILE=` of systemd, `ulimit -n`)"
        ));
    }
    let config = ControllerConfig {
        state: state.to_owned(),
        listen,
        southbound,
        bootstrap,
        settings: Settings { functions: functions(), sections: sections::check(), ..Settings::default() },
        log: log_line,
    };
    let plane = bartizan_controller::start::start(&config).map_err(failure)?;
    plane.messages.iter().for_each(|line| log_line(line));
    Ok(plane)
}

/// Logs a line of the controller.
pub fn log_line(line: &str) {
    info!("bartizan: {line}");
}

/// The names that chains may have, in the order of execution: those of this program's functions. A device of
/// another version reports itself what it lacks.
fn functions() -> Vec<String> {
    let hosts = Arc::new(HostTable::new(&load::hosts(1)));
    let specs = reference::specs(&hosts);
    // This program's own functions have an order; a run reports if they had none.
    let order = order::order(&specs).unwrap_or_default();
    let mut ordered: Vec<_> = specs.iter().enumerate().map(|(at, spec)| (order.get(at), spec.name)).collect();
    ordered.sort_unstable();
    let names = ordered.into_iter().map(|(_, name)| name).filter(|name| !AGENTS_OWN.contains(name));
    names.map(str::to_owned).collect()
}

fn failure(error: StartError) -> Failure {
    let StartError::Listen { source, .. } = &error else { return Failure::stopped(error) };
    let advice = match source.kind() {
        ErrorKind::AddrInUse => "another program (or another controller) listens there; use another port",
        ErrorKind::AddrNotAvailable => "this machine has no such address; `ip address` lists its addresses",
        ErrorKind::PermissionDenied => "ports below 1024 need root; use a higher one",
        _ => "use another address",
    };
    Failure::stopped(format!("{error}; {advice}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn chains_name_functions_in_the_order_in_which_they_run() {
        let functions = super::functions();
        let at = |name: &str| functions.iter().position(|known| known == name).expect(name);
        assert!(at("pfw") < at("sfw") && at("sfw") < at("ids"), "{functions:?}");
        assert!(!functions.iter().any(|name| name == "gate" || name == "names"), "{functions:?}");
    }
}

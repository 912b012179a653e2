// SPDX-License-Identifier: Apache-2.0
//! All planes in one process: a run that contains its controller, and is the controller's first device.

use crate::error::Failure;
use crate::plane;
use bartizan_agent::session::client::{self, wall_clock};
use bartizan_api::southbound::DeviceId;
use bartizan_channel::identity::DeviceIdentity;
use bartizan_config::host::{self, Here};
use bartizan_controller::southbound::ServerConfig;
use bartizan_controller::start::{Plane, Southbound};
use std::path::Path;
use tracing::info;

/// Starts the controller that a host file configures in this process, if any, and enrols this device with it.
/// Puts its address for agents into the configuration. The returned plane must be dropped after the device's
/// client.
///
/// # Errors
/// The controller cannot be started, or the device not enrolled.
pub fn start(config: Option<&mut host::ControllerSection>) -> Result<Option<Plane>, Failure> {
    let Some(config) = config else { return Ok(None) };
    let Some(here) = config.here.clone() else { return Ok(None) };
    let southbound = Southbound {
        listen: here.agents.unwrap_or(host::HERE_AGENTS),
        authority: None,
        server: ServerConfig::default(),
    };
    let plane = plane::start(&here.state, here.listen.unwrap_or(host::HERE_LISTEN), Some(southbound), false)?;
    let Some(agents) = plane.agents else {
        return Err(Failure::stopped("the controller of this process has no listener for agents"));
    };
    // A listener on all addresses is reachable by loopback as well.
    let address = match (agents.ip().is_unspecified(), agents.is_ipv4()) {
        (false, _) => agents.to_string(),
        (true, true) => format!("127.0.0.1:{}", agents.port()),
        (true, false) => format!("[::1]:{}", agents.port()),
    };
    join(&plane, &here, &config.identity, &address)?;
    config.address = Some(address);
    Ok(Some(plane))
}

/// Enrols this device, with a certificate of the controller's authority.
fn join(plane: &Plane, here: &Here, identity: &Path, address: &str) -> Result<(), Failure> {
    let name = here.device.as_deref().unwrap_or(host::HERE_DEVICE);
    let device = DeviceId::new(name)
        .map_err(|error| Failure::input(format!("controller/here/device: `{name}`: {error}")))?;
    plane.controller.has_device(name).map_err(Failure::stopped)?;
    if DeviceIdentity::load(identity).is_ok() {
        return Ok(());
    }
    let failed = |error: String| {
        Failure::stopped(format!(
            "this device cannot be enrolled with the controller of its own process: {error}"
        ))
    };
    std::fs::create_dir_all(identity).map_err(|error| {
        failed(format!("{}: {error}; choose another folder with controller/identity", identity.display()))
    })?;
    let invitation = plane.controller.fleet().invite(name).map_err(|error| failed(error.to_string()))?;
    client::enrol(address, &invitation.token, &device, identity, &wall_clock())
        .map_err(|error| failed(error.to_string()))?;
    info!("controller: this device is enrolled as `{name}`, with a certificate in {}", identity.display());
    Ok(())
}

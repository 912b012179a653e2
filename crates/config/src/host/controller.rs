// SPDX-License-Identifier: Apache-2.0
//! The section of a host file for the device's controller.

use super::address::read_some_listen_address;
use crate::policy::values::Seconds;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The controller that this device belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Controller")]
pub struct ControllerSection {
    /// Name or address, and port: `controller.example:9444`. Give either this or `here`.
    pub address: Option<String>,
    /// A controller in this process.
    pub here: Option<Here>,
    /// Folder with the device's key and certificate (`bartizan ca enrol`), beside this file or absolute. The
    /// certificate contains the device's id.
    pub identity: PathBuf,
    /// Folder that stores the controller's generation over restarts, beside this file or absolute; made if it
    /// does not exist.
    pub state: PathBuf,
    /// Interval between reports of counters, from 1s to 1h; 10s unless given.
    pub statistics_every: Option<Seconds>,
}

impl ControllerSection {
    /// The folders in this section.
    pub(super) fn folders(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let here = self.here.as_mut().map(|here| &mut here.state);
        [&mut self.identity, &mut self.state].into_iter().chain(here)
    }

    /// Problems of single values: path and message.
    pub(super) fn wrong(&self) -> impl Iterator<Item = (&'static str, String)> {
        let out = self.statistics_every.filter(|every| !STATISTICS_EVERY.contains(&every.0));
        let every = out.map(|Seconds(seconds)| {
            let message = format!("{seconds} seconds are out of range; give 1 to 3600");
            ("controller/statistics-every", message)
        });
        address_of(self).into_iter().chain(every)
    }
}

/// A controller in the process of a run; the run is its first device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Here {
    /// Folder of its state, beside this file or absolute; made if it does not exist.
    pub state: PathBuf,
    /// Address of its REST API; `127.0.0.1:9443` unless given.
    #[schemars(with = "Option<String>")]
    #[serde(default, deserialize_with = "read_some_listen_address")]
    pub listen: Option<SocketAddr>,
    /// Address of its listener for agents, also those of other hosts; `127.0.0.1:7443` unless given.
    #[schemars(with = "Option<String>")]
    #[serde(default, deserialize_with = "read_some_listen_address")]
    pub agents: Option<SocketAddr>,
    /// Name of this device at the controller; `local` unless given. The device serves all tenants unless the
    /// controller has another setting.
    pub device: Option<String>,
}

/// Default address of the REST API of a controller in a run.
pub const HERE_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9443);
/// Default address of its listener for agents.
pub const HERE_AGENTS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7443);
/// Default name of the device of a controller in a run.
pub const HERE_DEVICE: &str = "local";

/// Shortest and longest interval, in seconds, between two reports of counters.
pub const STATISTICS_EVERY: core::ops::RangeInclusive<u64> = 1..=3_600;
/// Default of that interval.
pub const STATISTICS_EVERY_USUAL: Seconds = Seconds(10);

/// Problem with the address of the controller.
fn address_of(controller: &ControllerSection) -> Option<(&'static str, String)> {
    let address = match (&controller.address, &controller.here) {
        (Some(address), None) => address,
        (None, Some(_)) => return None,
        (None, None) => {
            let message = "the controller has no place: give `address` (controller.example:9444), or `here` for one in this process";
            return Some(("controller", message.to_owned()));
        }
        (Some(_), Some(_)) => {
            let message =
                "`address` and `here` are both given, but a device belongs to one controller; remove one";
            return Some(("controller", message.to_owned()));
        }
    };
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    (port.is_none_or(|port| port == 0) || address.starts_with(':')).then(|| {
        let message = format!(
            "`{address}` is not a name or address with a port; write it like controller.example:9444"
        );
        ("controller/address", message)
    })
}

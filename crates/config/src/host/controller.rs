// SPDX-License-Identifier: Apache-2.0
//! The section of a host file about the controller that the device belongs to.

use super::address::read_some_listen_address;
use crate::policy::values::Seconds;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The controller that this device belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Controller {
    /// Name or address, and port: `controller.example:9444`. Either this or `here` is given.
    pub address: Option<String>,
    /// The controller runs in this process.
    pub here: Option<Here>,
    /// Folder with the device's key and certificate (`bartizan ca enrol`), beside this file or absolute. The
    /// device's id stands in the certificate.
    pub identity: PathBuf,
    /// Folder where what the controller has sent is kept over restarts, beside this file or absolute; made if
    /// it is not there.
    pub state: PathBuf,
    /// How often counters are sent, from 1s to 1h; 10s unless given.
    pub statistics_every: Option<Seconds>,
}

impl Controller {
    /// Folders that it names.
    pub(super) fn folders(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let here = self.here.as_mut().map(|here| &mut here.state);
        [&mut self.identity, &mut self.state].into_iter().chain(here)
    }

    /// What is wrong with single values: path and message.
    pub(super) fn wrong(&self) -> impl Iterator<Item = (&'static str, String)> {
        let out = self.statistics_every.filter(|every| !STATISTICS_EVERY.contains(&every.0));
        let every = out.map(|Seconds(seconds)| {
            let message = format!("{seconds} seconds are out of range; give 1 to 3600");
            ("controller/statistics-every", message)
        });
        address_of(self).into_iter().chain(every)
    }
}

/// A controller in the process of a run, whose first device that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Here {
    /// Folder of its state, beside this file or absolute; made if it is not there.
    pub state: PathBuf,
    /// Where its REST API listens; `127.0.0.1:9443` unless given.
    #[schemars(with = "Option<String>")]
    #[serde(default, deserialize_with = "read_some_listen_address")]
    pub listen: Option<SocketAddr>,
    /// Where it listens for agents, also those of other hosts; `127.0.0.1:7443` unless given.
    #[schemars(with = "Option<String>")]
    #[serde(default, deserialize_with = "read_some_listen_address")]
    pub agents: Option<SocketAddr>,
    /// The name of this device at the controller; `local` unless given. It serves all tenants unless the
    /// controller is told otherwise.
    pub device: Option<String>,
}

/// Where the REST API of a controller in a run listens unless given.
pub const HERE_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9443);
/// Where it listens for agents unless given.
pub const HERE_AGENTS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7443);
/// The name of its device unless given.
pub const HERE_DEVICE: &str = "local";

/// Shortest and longest time, in seconds, between two statistics to a controller.
pub const STATISTICS_EVERY: core::ops::RangeInclusive<u64> = 1..=3_600;
/// That time unless given.
pub const STATISTICS_EVERY_USUAL: Seconds = Seconds(10);

/// What is wrong with where a controller is.
fn address_of(controller: &Controller) -> Option<(&'static str, String)> {
    let address = match (&controller.address, &controller.here) {
        (Some(address), None) => address,
        (None, Some(_)) => return None,
        (None, None) => {
            let message =
                "where is it? give `address` (controller.example:9444), or `here` for one in this process";
            return Some(("controller", message.to_owned()));
        }
        (Some(_), Some(_)) => {
            let message = "`address` and `here` are given; leave one out: a device belongs to one controller";
            return Some(("controller", message.to_owned()));
        }
    };
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    (port.is_none_or(|port| port == 0) || address.starts_with(':')).then(|| {
        let message =
            format!("`{address}` is no name or address with a port; write it like controller.example:9444");
        ("controller/address", message)
    })
}

// SPDX-License-Identifier: Apache-2.0
//! `bartizan controller`: runs the control plane until a signal ends it.

use crate::log::LogArgs;
use crate::signals;
use bartizan_controller::resources;
use bartizan_controller::rest::openapi;
use bartizan_controller::southbound::ServerConfig;
use bartizan_controller::start::Southbound;
use bartizan_runtime::error::{Exit, Failure};
use bartizan_runtime::plane;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  bartizan controller --state /var/lib/bartizan
  bartizan controller --southbound 0.0.0.0:7443       agents connect there; an authority is made if there is none
  bartizan controller --openapi                       the document that clients are generated from
  curl --cacert STATE/tls-certificate.pem -H \"Authorization: Bearer $(cat STATE/bootstrap-token)\" \\
       --json '{\"name\": \"me\", \"scope\": \"admin\"}' https://localhost:9443/v1/tokens";

/// Arguments.
#[derive(clap::Args)]
pub struct ControllerArgs {
    /// Folder of the state; made if missing.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/bartizan/controller")]
    state: PathBuf,
    /// The address of the REST API; port 0 for any that is free.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9443")]
    listen: SocketAddr,
    /// Log lines.
    #[command(flatten)]
    pub log: LogArgs,
    /// The address where devices' agents connect; without this option, none can.
    #[arg(long, value_name = "ADDR")]
    southbound: Option<SocketAddr>,
    /// Folder of the authority for agents' certificates, made if missing; by default `ca` in the folder of
    /// the state.
    #[arg(long, value_name = "DIR")]
    ca: Option<PathBuf>,
    /// Print the OpenAPI document of the REST API, and exit.
    #[arg(long)]
    openapi: bool,
    /// Make a bootstrap token even though there are administrators: for the case that their tokens are lost.
    #[arg(long)]
    bootstrap: bool,
}

/// The interval at which the controller looks for a request to end.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until SIGTERM or SIGINT.
pub fn run(args: &ControllerArgs) -> Result<Exit, Failure> {
    if args.openapi {
        println!("{:#}", openapi::document(&resources::routes()));
        return Ok(Exit::Done);
    }
    let requests = signals::install()?;
    let southbound = args.southbound.map(|listen| {
        let (authority, server) = (args.ca.clone(), ServerConfig::default());
        Southbound { listen, authority, server }
    });
    if southbound.is_none() && args.ca.is_some() {
        return Err(Failure::usage("`--ca` applies to the listener for agents; add `--southbound ADDR`"));
    }
    let plane = plane::start(&args.state, args.listen, southbound, args.bootstrap)?;
    while !requests.is_stopped() {
        if !plane.is_running() {
            return Err(Failure::stopped("the listener for agents has ended; start the controller again"));
        }
        std::thread::sleep(PAUSE);
    }
    drop(plane);
    Ok(Exit::Done)
}

// SPDX-License-Identifier: Apache-2.0
//! `bartizan controller`: the control plane, until it is told to end.

use crate::error::{Exit, Failure};
use crate::{load, signals};
use bartizan_controller::access::Secret;
use bartizan_controller::clock::WallClock;
use bartizan_controller::fleet::MemoryFleet;
use bartizan_controller::store::SqliteStore;
use bartizan_controller::{Api, Controller, Server, Settings, resources, state};
use bartizan_flow::host::HostTable;
use bartizan_functions::reference;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Examples for the help.
pub const EXAMPLES: &str = "\
Examples:
  bartizan controller --state /var/lib/bartizan
  curl --cacert STATE/tls-certificate.pem -H \"Authorization: Bearer $(cat STATE/bootstrap-token)\" \\
       --json '{\"name\": \"me\", \"scope\": \"admin\"}' https://localhost:9443/v1/tokens";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of the state; it is made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/bartizan/controller")]
    state: PathBuf,
    /// Where the REST API listens; port 0 for any that is free.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9443")]
    listen: SocketAddr,
}

/// How often a request to end is looked for.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until SIGTERM or SIGINT.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    signals::install();
    state::make(&args.state).map_err(Failure::stopped)?;
    let listener = listen(args.listen)?;
    let store = SqliteStore::open(&args.state.join(state::STORE)).map_err(Failure::stopped)?;
    let settings = Settings { functions: functions(), ..Settings::default() };
    let controller =
        Controller::new(Box::new(store), Arc::new(WallClock), Arc::new(MemoryFleet::default()), settings)
            .map_err(Failure::stopped)?;
    let identity = state::identity(&args.state).map_err(Failure::stopped)?;
    let fingerprint = identity.fingerprint();
    first_token(&args.state, &controller)?;
    let api = Arc::new(Api::new(Arc::new(controller), resources::routes()));
    let server = Server::start(listener, api, identity).map_err(Failure::stopped)?;
    eprintln!("bartizan: certificate {}", args.state.join(state::CERTIFICATE).display());
    eprintln!("bartizan: its SHA-256 {fingerprint}");
    eprintln!("bartizan: controller listens on https://{}", server.address());
    while !signals::stop_asked() {
        std::thread::sleep(PAUSE);
    }
    drop(server);
    Ok(Exit::Done)
}

/// The names that chains may have: those of this program's functions. A device of another version says itself what it lacks.
fn functions() -> Vec<String> {
    let hosts = Arc::new(HostTable::new(&load::hosts(1)));
    reference::specs(&hosts).iter().map(|spec| spec.name.to_owned()).collect()
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse => {
                "another program (or another controller) listens there; give another port"
            }
            ErrorKind::AddrNotAvailable => {
                "this machine has no such address; `ip address` lists those it has"
            }
            ErrorKind::PermissionDenied => "ports below 1024 are for root; give a higher one",
            _ => "give another address",
        };
        Failure::stopped(format!("cannot listen on {address}: {error}; {advice}"))
    })
}

/// The bootstrap token: made with the first start; its file goes once it is used up.
fn first_token(folder: &Path, controller: &Controller) -> Result<(), Failure> {
    // In the file first: a token that is known to the store and to nobody else would be of no use.
    let put = |secret: &Secret| state::put_bootstrap(folder, secret).map_err(Failure::stopped);
    match controller.bootstrap(put).map_err(Failure::stopped)? {
        Some(path) => eprintln!("bartizan: bootstrap token, to be used once: {}", path?.display()),
        None if !controller.bootstraps() => state::clear_bootstrap(folder),
        None => {}
    }
    Ok(())
}

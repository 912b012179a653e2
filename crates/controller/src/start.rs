// SPDX-License-Identifier: Apache-2.0
//! Starts a whole controller in this process: the REST API, and the listener for agents.

use crate::access::Secret;
use crate::bridge::{DeviceBackend, FleetNotifier, Own};
use crate::clock::{Clock, WallClock};
use crate::fleet::{Fleet, MemoryFleet};
use crate::problem::Refusal;
use crate::server::{Bounds, ServerError};
use crate::southbound::ServerConfig;
use crate::southbound::enrolment::Revocations;
use crate::southbound::listener::{Listener, ListenerHandle};
use crate::state::{self, StateError};
use crate::store::{SqliteStore, StoreError};
use crate::{Api, Controller, Server, Settings, resources};
use bartizan_channel::ChannelError;
use bartizan_channel::tls;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Configuration of a controller.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// The state folder; made if it does not exist.
    pub state: PathBuf,
    /// Address of the REST API; port 0 for any free port.
    pub listen: SocketAddr,
    /// The listener for agents, if there should be one.
    pub southbound: Option<Southbound>,
    /// Whether to make a bootstrap token even if there are administrators, because their tokens are lost.
    pub bootstrap: bool,
    /// Settings of the controller.
    pub settings: Settings,
    /// Receives messages for the operator while the controller runs.
    pub log: fn(&str),
}

/// Configuration of the listener for agents.
#[derive(Clone, Debug)]
pub struct Southbound {
    /// Address of the listener; port 0 for any free port.
    pub listen: SocketAddr,
    /// Folder of the authority, made if it does not exist; `ca` in the state folder unless given.
    pub authority: Option<PathBuf>,
    /// Settings of sessions.
    pub server: ServerConfig,
}

/// The default folder of the authority within the state folder.
pub const AUTHORITY: &str = "ca";

/// Why the controller did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state folder failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The bootstrap token could not be made.
    #[error("the first token: {0}")]
    Token(#[from] Refusal),
    /// The certificates for agents failed.
    #[error("certificates for agents: {0}")]
    Certificates(#[from] ChannelError),
    /// The HTTP server failed.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The system refuses to listen on an address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// A running controller. Dropping it stops it; answered changes are durable.
pub struct Plane {
    /// The controller.
    pub controller: Arc<Controller>,
    /// Address of the REST API.
    pub address: SocketAddr,
    /// Address of the listener for agents.
    pub agents: Option<SocketAddr>,
    /// Messages about the start, for operators, one line each.
    pub messages: Vec<String>,
    server: Option<Server>,
    listener: Option<(ListenerHandle, JoinHandle<io::Result<()>>)>,
}

impl Plane {
    /// The listener for agents, for its counters.
    #[must_use]
    pub fn listener(&self) -> Option<&ListenerHandle> {
        self.listener.as_ref().map(|(handle, _)| handle)
    }

    /// Whether all parts still run: a listener ends if its system calls fail.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.listener.as_ref().is_none_or(|(_, thread)| !thread.is_finished())
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        drop(self.server.take());
        if let Some((handle, thread)) = self.listener.take() {
            handle.stop();
            let _ = thread.join();
        }
    }
}

/// Starts a controller.
///
/// # Errors
/// A resource is missing, or in use.
pub fn start(config: &ControllerConfig) -> Result<Plane, StartError> {
    state::make(&config.state)?;
    let listen =
        |address| TcpListener::bind(address).map_err(|source| StartError::Listen { address, source });
    let listener = listen(config.listen)?;
    let store = SqliteStore::open(&config.state.join(state::STORE))?;
    let clock: Arc<dyn Clock> = Arc::new(WallClock);
    let seconds = seconds(&clock);
    let mut said = Vec::new();
    let own = config.southbound.as_ref().map(|southbound| own(config, southbound, &seconds)).transpose()?;
    let way = own.map(|(own, lines)| {
        said.extend(lines);
        (Arc::new(FleetNotifier::new(own.clone(), seconds.clone())), own)
    });
    let fleet: Arc<dyn Fleet> = match &way {
        Some((way, _)) => way.clone(),
        None => Arc::new(MemoryFleet::default()),
    };
    let controller = Arc::new(Controller::new(Box::new(store), clock, fleet, config.settings.clone())?);
    said.extend(first_token(config, &controller)?);
    let identity = state::identity(&config.state)?;
    said.push(format!("certificate {}", config.state.join(state::CERTIFICATE).display()));
    said.push(format!("its SHA-256 {}", identity.fingerprint()));
    let (agents, listener_of_agents) = match (way, &config.southbound) {
        (Some((way, own)), Some(southbound)) => {
            let (address, handle, thread) = agents(config, southbound, &controller, own, &way, seconds)?;
            (Some(address), Some((handle, thread)))
        }
        _ => (None, None),
    };
    let api = Arc::new(Api::new(controller.clone(), resources::routes()));
    let server = Server::start(listener, api, identity, Bounds::default())?;
    let address = server.address();
    said.push(format!("controller listens on https://{address}"));
    said.extend(agents.map(|agents| format!("controller listens for agents on {agents}")));
    Ok(Plane {
        controller,
        address,
        agents,
        messages: said,
        server: Some(server),
        listener: listener_of_agents,
    })
}

/// The wall clock in seconds, for certificates.
fn seconds(clock: &Arc<dyn Clock>) -> tls::HandshakeClock {
    let clock = clock.clone();
    Arc::new(move || clock.now() / 1_000_000)
}

fn own(
    config: &ControllerConfig,
    southbound: &Southbound,
    clock: &tls::HandshakeClock,
) -> Result<(Own, Vec<String>), ChannelError> {
    let authority = southbound.authority.clone().unwrap_or_else(|| config.state.join(AUTHORITY));
    Own::open(&config.state, &authority, &southbound.server.name, clock())
}

/// Makes the bootstrap token at the first start, and when no valid administrator's token is left; removes its
/// file once the token is used up.
fn first_token(config: &ControllerConfig, controller: &Controller) -> Result<Option<String>, StartError> {
    // The file is written first: a token that only the store knows would be useless.
    let put = |secret: &Secret| state::put_bootstrap(&config.state, secret);
    match controller.bootstrap(config.bootstrap, put)? {
        Some(path) => Ok(Some(format!("bootstrap token, to be used once: {}", path?.display()))),
        None => {
            if !controller.bootstraps() {
                state::clear_bootstrap(&config.state);
            }
            Ok(None)
        }
    }
}

type Agents = (SocketAddr, ListenerHandle, JoinHandle<io::Result<()>>);

/// Starts the listener for agents in a thread.
fn agents(
    config: &ControllerConfig,
    southbound: &Southbound,
    controller: &Arc<Controller>,
    own: Own,
    way: &FleetNotifier,
    clock: tls::HandshakeClock,
) -> Result<Agents, StartError> {
    let address = southbound.listen;
    let wrong = |source| StartError::Listen { address, source };
    let revocations = Revocations::new(own.authority.clone())?;
    let tls = own.tls_material(clock())?.tls(&clock, &revocations)?;
    let later = Arc::new(OnceLock::new());
    let office =
        DeviceBackend::new(controller.clone(), own, revocations, clock.clone(), later.clone(), config.log)?;
    let listener = Listener::new(address, tls, clock, southbound.server.clone(), office).map_err(wrong)?;
    let (address, handle) = (listener.address().map_err(wrong)?, listener.handle());
    let _ = later.set(handle.clone());
    way.set_listener(handle.clone(), address.port());
    let thread =
        std::thread::Builder::new().name("agents".to_owned()).spawn(move || listener.run()).map_err(wrong)?;
    Ok((address, handle, thread))
}

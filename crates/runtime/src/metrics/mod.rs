// SPDX-License-Identifier: Apache-2.0
//! The metrics endpoint: counters of workers, outputs and rules in the format of Prometheus.

pub mod collect;
pub mod http;

pub use collect::MetricsSource;
pub use http::MetricsServer;

use crate::error::Failure;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tracing::info;

/// Binds the address, before anything is started that would have to be undone.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse => "another program (or another bartizan) listens there; use another port",
            ErrorKind::AddrNotAvailable => {
                "this machine has no such address; `ip address` lists its addresses"
            }
            ErrorKind::PermissionDenied => "ports below 1024 need root; use a higher one",
            _ => "use another address, or run without metrics",
        };
        Failure::stopped(format!("cannot listen on {address} for metrics: {error}; {advice}"))
    })
}

/// Serves the metrics of a run.
pub fn serve(listener: TcpListener, source: Arc<MetricsSource>) -> Result<MetricsServer, Failure> {
    let server = MetricsServer::start(listener, Arc::new(move || source.page()))
        .map_err(|error| Failure::stopped(format!("cannot serve metrics: {error}; run without metrics")))?;
    info!("metrics: http://{}/metrics", server.address());
    Ok(server)
}

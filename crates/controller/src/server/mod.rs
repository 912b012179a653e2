// SPDX-License-Identifier: Apache-2.0
//! HTTP/1.1 over TLS: the transport of the API. Each running handler has a thread of its own, since a change
//! waits for the disk.
//!
//! Bounded: connections (in total, by address, by token), the time for a handshake, for a head and for the
//! client to accept part of a reply, the rate of a body, and the sizes of head and body. A client that
//! exceeds a bound gets a refusal in the common format, and is counted; its remaining input is read for a
//! while, so that the reply arrives.
//!
//! * `seats`: places for connections;
//! * `turns`: the bound of running requests;
//! * `exchange`: one request and its reply;
//! * `filter`: the output filter of a connection;
//! * `pace`: the minimum rate of a body;
//! * `patient`: streams with a time limit for writes.
//!
//! Source: RFC 9110, RFC 9112.

mod exchange;
mod filter;
mod pace;
mod patient;
mod seats;
mod turns;

use crate::counters::count;
use crate::problem::Refusal;
use crate::rest::Api;
use crate::state::Identity;
use exchange::RestConnection;
pub use filter::{Exchange, ResponseFilter};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
pub use patient::Patient;
pub use seats::SeatBounds;
use seats::{Leaves, Seats};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
pub use turns::TurnBounds;
use turns::Turns;

/// Most open connections.
pub const CONNECTIONS_MAX: usize = 512;
/// Most connections of one address that have shown no token; loopback has no such bound.
pub const BY_SOURCE: usize = 64;
/// Most connections of one token.
pub const BY_TOKEN: usize = 64;
/// Connections reserved for administrators and for clients that have shown no token.
pub const CONNECTIONS_KEPT: usize = 128;
/// Most requests that run at once; others wait.
pub const HANDLERS_MAX: usize = 64;
/// Running requests reserved for administrators.
pub const HANDLERS_KEPT: usize = 16;
/// Most running requests of one token that is no administrator's.
pub const HANDLERS_BY_TOKEN: usize = 16;
/// Time for a handshake, for a request's head (and between requests), for a client to accept part of a reply,
/// and for a body beyond the time that [`RATE_MIN`] gives it.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Minimum rate of a body, in bytes a second.
pub const RATE_MIN: u64 = 64 * 1024;
/// Time for which a refused client's input is still read, so that the reply reaches it.
pub const LINGER: Duration = Duration::from_secs(30);
/// Within [`LINGER`], the longest silence of the client.
const LINGER_SILENCE: Duration = Duration::from_secs(2);
/// Most bytes of a request's head.
pub const HEAD_MAX: usize = 16 * 1024;

/// Bounds of a server: connections, requests, times.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bounds of connections.
    pub seats: SeatBounds,
    /// Bounds of running requests.
    pub turns: TurnBounds,
    /// See [`PATIENCE`].
    pub patience: Duration,
    /// See [`RATE_MIN`].
    pub rate_min: u64,
    /// See [`LINGER`].
    pub linger: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let (by_source, by_token, reserved) = (BY_SOURCE, BY_TOKEN, CONNECTIONS_KEPT);
        Bounds {
            seats: SeatBounds { all: CONNECTIONS_MAX, by_source, by_token, reserved },
            turns: TurnBounds { all: HANDLERS_MAX, reserved: HANDLERS_KEPT, by_token: HANDLERS_BY_TOKEN },
            patience: PATIENCE,
            rate_min: RATE_MIN,
            linger: LINGER,
        }
    }
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve: {0}")]
pub struct ServerError(String);

/// A running server. Dropping it stops it: running requests are cut off, answered changes are durable.
pub struct Server {
    address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Server {
    /// Serves an API on a listener.
    ///
    /// # Errors
    /// The certificate does not fit its key, or the system provides no threads.
    pub fn start(
        listener: TcpListener,
        api: Arc<Api>,
        identity: Identity,
        bounds: Bounds,
    ) -> Result<Self, ServerError> {
        let wrong = |error: &dyn std::fmt::Display| ServerError(error.to_string());
        let address = listener.local_addr().map_err(|e| wrong(&e))?;
        listener.set_nonblocking(true).map_err(|e| wrong(&e))?;
        let acceptor = TlsAcceptor::from(Arc::new(tls(identity)?));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(bounds.turns.all)
            .thread_name("rest")
            .enable_all()
            .build()
            .map_err(|e| wrong(&e))?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(|e| wrong(&e))?
        };
        runtime.spawn(accept(listener, acceptor, api, bounds));
        Ok(Server { address, runtime: Some(runtime) })
    }

    /// The address on which the server listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(2));
        }
    }
}

fn tls(identity: Identity) -> Result<rustls::ServerConfig, ServerError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ServerError(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate], identity.key)
        .map_err(|error| ServerError(format!("the certificate and its key: {error}")))?;
    Ok(config)
}

async fn accept(listener: tokio::net::TcpListener, tls: TlsAcceptor, api: Arc<Api>, bounds: Bounds) {
    let seats = Arc::new(Seats::new(bounds.seats));
    let turns = Arc::new(Turns::new(bounds.turns));
    for number in 0.. {
        let Ok((stream, peer)) = listener.accept().await else {
            // No descriptor is left, or the client is gone: later connections may succeed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let exchange = Arc::new(Exchange::default());
        let given = seats.take(number, peer.ip(), &exchange.busy);
        let (api, turns) = (Arc::clone(&api), Arc::clone(&turns));
        let client = RestConnection::new(number, peer, bounds, api, Arc::clone(&seats), turns, exchange);
        if !client.counts(&given) {
            continue;
        }
        // Small replies are sent at once.
        let _ = stream.set_nodelay(true);
        let (tls, leaves) = (tls.clone(), Leaves(Arc::clone(&seats), number));
        let task = tokio::spawn(async move {
            let _leaves = leaves;
            let stream = Patient::new(stream, bounds.patience);
            match timeout(bounds.patience, tls.accept(stream)).await {
                Ok(Ok(stream)) => connection(stream, Arc::new(client)).await,
                Ok(Err(_)) | Err(_) => count(&client.api.controller.counters.tls),
            }
        });
        seats.serves(number, task.abort_handle());
    }
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, client: Arc<RestConnection>) {
    let filter = ResponseFilter::new(&mut stream, Arc::clone(&client.exchange));
    let service = {
        let client = Arc::clone(&client);
        service_fn(move |request| {
            let client = Arc::clone(&client);
            async move { Ok::<_, Infallible>(exchange::respond(request, &client).await) }
        })
    };
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(client.bounds.patience)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(filter), service)
        .await;
    match served.as_ref().map_err(|error| end(error, &client)) {
        Ok(()) => linger(&mut stream, client.bounds.linger).await,
        Err(ConnectionEnd::Gone) => {}
        Err(ConnectionEnd::Silent) => _ = timeout(client.bounds.patience, stream.shutdown()).await,
        Err(ConnectionEnd::Refused(refusal)) => {
            let reply = client.api.refuse(&refusal);
            if stream.write_all(&exchange::bytes(&reply, client.api.controller.now())).await.is_ok() {
                linger(&mut stream, client.bounds.linger).await;
            }
        }
    }
}

/// The end of hyper's part of a connection.
enum ConnectionEnd {
    /// The client is gone, or accepts no data.
    Gone,
    /// The client has sent nothing since its last reply.
    Silent,
    /// The client gets a refusal.
    Refused(Refusal),
}

fn end(error: &hyper::Error, client: &RestConnection) -> ConnectionEnd {
    let io = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    if io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut) {
        count(&client.api.controller.counters.timeout);
        return ConnectionEnd::Gone;
    }
    if error.is_timeout() {
        return match client.exchange.has_begun() {
            true => ConnectionEnd::Refused(Refusal::Slow(
                "the head of the request did not arrive in time".to_owned(),
            )),
            false => ConnectionEnd::Silent,
        };
    }
    if error.is_parse_too_large() {
        return ConnectionEnd::Refused(Refusal::HeadTooLarge(HEAD_MAX));
    }
    match error.is_parse() {
        true => {
            ConnectionEnd::Refused(Refusal::Malformed(format!("this is not an HTTP/1.1 request: {error}")))
        }
        false => ConnectionEnd::Gone,
    }
}

/// Closes a connection so that the last reply arrives: reads on for a while, since a close with unread bytes
/// would discard the reply.
pub async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, most: Duration) {
    let end = Instant::now() + most;
    if !matches!(timeout_at(end, stream.shutdown()).await, Ok(Ok(()))) {
        return;
    }
    let mut rest = vec![0; 16 * 1024];
    loop {
        let silence = end.min(Instant::now() + LINGER_SILENCE);
        match timeout_at(silence, stream.read(&mut rest)).await {
            Ok(Ok(read)) if read > 0 => {}
            _ => return,
        }
    }
}

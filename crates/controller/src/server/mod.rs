// SPDX-License-Identifier: Apache-2.0
//! HTTP/1.1 over TLS: the transport of the API. A handler has its thread for itself, since a change waits for
//! the disk.
//!
//! Bounded: connections (of all, of an address, of a token), the time of a handshake, of a head and until
//! something of an answer is taken, the rate of a body, bytes of head and body. What goes beyond is answered
//! in the form of all refusals, and counted; what a client still sends is read on for a while, so that the
//! answer arrives.
//!
//! * `seats`: places for connections;
//! * `turns`: which requests are worked on;
//! * `exchange`: one request and its answer;
//! * `filter`: what leaves a connection;
//! * `pace`: how slowly a body may come;
//! * `patient`: streams whose peers have to take what they are sent.
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
use exchange::Client;
use filter::{Exchange, ResponseFilter};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use patient::Patient;
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

/// Connections that are open at once.
pub const CONNECTIONS_MAX: usize = 512;
/// Most connections of one address that have shown no token; loopback has no bound of its own.
pub const BY_SOURCE: usize = 64;
/// Most connections of one token.
pub const BY_TOKEN: usize = 64;
/// Connections kept for administrators and for clients that have shown no token.
pub const CONNECTIONS_KEPT: usize = 128;
/// Requests that are worked on at once; others wait.
pub const HANDLERS_MAX: usize = 64;
/// Requests kept for administrators.
pub const HANDLERS_KEPT: usize = 16;
/// Most requests of one token that is no administrator's.
pub const HANDLERS_BY_TOKEN: usize = 16;
/// Time for a handshake, for a request's head (and between requests), until a client takes something of an
/// answer, and for a body beyond [`RATE_MIN`].
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a body in a second, at least.
pub const RATE_MIN: u64 = 64 * 1024;
/// The time that a refused client is read on for, so that the answer reaches it.
pub const LINGER: Duration = Duration::from_secs(30);
/// Within that time, how long it may say nothing.
const LINGER_SILENCE: Duration = Duration::from_secs(2);
/// Bytes of a request's head.
pub const HEAD_MAX: usize = 16 * 1024;

/// Bounds of a server: connections, requests, times.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections.
    pub seats: SeatBounds,
    /// Requests that are worked on.
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

/// Why it cannot serve.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve: {0}")]
pub struct ServerError(String);

/// A running server. Dropping it ends it: requests that have begun are cut off, changes that were answered
/// stand.
pub struct Server {
    address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Server {
    /// Serves an API on a listener.
    ///
    /// # Errors
    /// The certificate does not fit its key, or the system gives no threads.
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

    /// The address that it listens on.
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
            // No descriptor left, or the client is gone already: others may come.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let exchange = Arc::new(Exchange::default());
        let given = seats.take(number, peer.ip(), &exchange.busy);
        let client = Client::new(number, peer, bounds, Arc::clone(&api), (&seats, &turns), exchange);
        if !client.counts(&given) {
            continue;
        }
        // A small answer leaves at once.
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

async fn connection<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, client: Arc<Client>) {
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
        Err(End::Gone) => {}
        Err(End::Silent) => _ = timeout(client.bounds.patience, stream.shutdown()).await,
        Err(End::Refused(refusal)) => {
            let reply = client.api.refuse(&refusal);
            if stream.write_all(&exchange::bytes(&reply, client.api.controller.now())).await.is_ok() {
                linger(&mut stream, client.bounds.linger).await;
            }
        }
    }
}

/// The end of a connection that hyper does not serve any more.
enum End {
    /// Nobody is at the other end, or takes what is sent.
    Gone,
    /// The client has said nothing since its last answer.
    Silent,
    /// The client is told why.
    Refused(Refusal),
}

fn end(error: &hyper::Error, client: &Client) -> End {
    let io = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    if io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut) {
        count(&client.api.controller.counters.timeout);
        return End::Gone;
    }
    if error.is_timeout() {
        return match client.exchange.has_begun() {
            true => End::Refused(Refusal::Slow("the head of the request did not come in in time".to_owned())),
            false => End::Silent,
        };
    }
    if error.is_parse_too_large() {
        return End::Refused(Refusal::HeadTooLarge(HEAD_MAX));
    }
    match error.is_parse() {
        true => End::Refused(Refusal::Malformed(format!("this is no HTTP/1.1 request: {error}"))),
        false => End::Gone,
    }
}

/// Ends a connection so that what was answered arrives: a close with unread bytes would take it back. Reads
/// on for a while.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, most: Duration) {
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

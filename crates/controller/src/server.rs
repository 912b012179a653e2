// SPDX-License-Identifier: Apache-2.0
//! HTTP/1.1 over TLS: the transport of the API. A handler has its thread for itself, since a change waits for the disk.
//!
//! Bounded: connections (of all, and of an address), the time of a handshake, of a head, of a body and until something of an answer is
//! taken, bytes of head and body. What goes beyond is answered where that is possible, and counted.

use crate::counters::count;
use crate::patient::Patient;
use crate::rest::http::FIELDS;
use crate::rest::{Api, Head, Reply};
use crate::seats::{Given, Leaves, Seats};
use crate::state::Identity;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::block_in_place;
use tokio_rustls::TlsAcceptor;

/// Connections that are open at once.
pub const CONNECTIONS_MAX: usize = 512;
/// Of these, connections of one address; of loopback as many as there are.
pub const BY_SOURCE: usize = 64;
/// Requests that are worked on at once; others wait.
pub const HANDLERS_MAX: usize = 64;
/// Time for a handshake, for a request's head (and between requests), for a body, and until a client takes something of an answer.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a request's head.
pub const HEAD_MAX: usize = 16 * 1024;

/// Why it cannot serve.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve: {0}")]
pub struct ServerError(String);

/// A running server. Dropping it ends it: requests that have begun are cut off, changes that were answered stand.
pub struct Server {
    address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Server {
    /// Serves an API on a listener.
    ///
    /// # Errors
    /// The certificate does not fit its key, or the system gives no threads.
    pub fn start(listener: TcpListener, api: Arc<Api>, identity: Identity) -> Result<Self, ServerError> {
        let wrong = |error: &dyn std::fmt::Display| ServerError(error.to_string());
        let address = listener.local_addr().map_err(|e| wrong(&e))?;
        listener.set_nonblocking(true).map_err(|e| wrong(&e))?;
        let acceptor = TlsAcceptor::from(Arc::new(tls(identity)?));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(HANDLERS_MAX)
            .thread_name("rest")
            .enable_all()
            .build()
            .map_err(|e| wrong(&e))?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(|e| wrong(&e))?
        };
        runtime.spawn(accept(listener, acceptor, api));
        Ok(Server { address, runtime: Some(runtime) })
    }

    /// Where it listens.
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

async fn accept(listener: tokio::net::TcpListener, tls: TlsAcceptor, api: Arc<Api>) {
    let seats = Arc::new(Seats::new(CONNECTIONS_MAX, BY_SOURCE));
    // As many as there are threads beyond those that serve connections.
    let turns = Arc::new(Semaphore::new(HANDLERS_MAX));
    for number in 0.. {
        let Ok((stream, peer)) = listener.accept().await else {
            // No descriptor left, or the client is gone already: others may come.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (api, turns) = (Arc::clone(&api), Arc::clone(&turns));
        let client = Arc::new(Client { peer, known: Arc::default(), api, turns });
        match seats.take(number, peer.ip(), &client.known) {
            Given::Free => {}
            Given::InPlaceOf(_) => count(&client.api.controller.counters.gave_way),
            Given::Nothing => {
                count(&client.api.controller.counters.busy);
                continue;
            }
        }
        // A small answer leaves at once.
        let _ = stream.set_nodelay(true);
        let (tls, leaves) = (tls.clone(), Leaves(Arc::clone(&seats), number));
        let task = tokio::spawn(async move {
            let _leaves = leaves;
            let stream = Patient::new(stream, PATIENCE);
            match tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
                Ok(Ok(stream)) => connection(stream, client).await,
                Ok(Err(_)) | Err(_) => count(&client.api.controller.counters.tls),
            }
        });
        seats.serves(number, task.abort_handle());
    }
}

/// Who is at the other end.
struct Client {
    peer: SocketAddr,
    /// It has shown a token that is known here.
    known: Arc<AtomicBool>,
    api: Arc<Api>,
    /// For requests that are worked on.
    turns: Arc<Semaphore>,
}

async fn connection(
    stream: tokio_rustls::server::TlsStream<Patient<tokio::net::TcpStream>>,
    client: Arc<Client>,
) {
    let counters = Arc::clone(&client.api.controller);
    let service = service_fn(move |request| {
        let client = Arc::clone(&client);
        async move { Ok::<_, Infallible>(respond(request, &client).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        let counters = &counters.counters;
        let io = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
        if error.is_timeout() || io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut) {
            count(&counters.timeout);
        } else if error.is_parse() {
            count(&counters.malformed);
        }
    }
}

fn head(request: &Request<Incoming>, peer: SocketAddr) -> Head {
    // Two fields of one name are joined as RFC 9110 says; a value that is no text is none that is known here.
    let field = |name: &'static str| {
        let values = request.headers().get_all(name);
        let texts: Vec<&str> = values.iter().map(|value| value.to_str().unwrap_or("?")).collect();
        (!texts.is_empty()).then(|| (name, texts.join(", ")))
    };
    Head {
        method: request.method().as_str().to_owned(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        fields: FIELDS.iter().filter_map(|name| field(name)).collect(),
        source: peer.ip(),
    }
}

async fn respond(request: Request<Incoming>, client: &Client) -> Response<Full<Bytes>> {
    let api = Arc::clone(&client.api);
    let head = head(&request, client.peer);
    let max = match api.admit(head.clone()) {
        Ok(admitted) => {
            client.known.fetch_or(admitted.is_known(), Ordering::AcqRel);
            admitted.body_max
        }
        Err(reply) => return on_the_wire(reply, true),
    };
    let read = Limited::new(request.into_body(), max).collect();
    let body = match tokio::time::timeout(PATIENCE, read).await {
        Ok(Ok(body)) => body.to_bytes().to_vec(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return on_the_wire(api.too_large(max), true),
        Ok(Err(_)) | Err(_) => {
            count(&api.controller.counters.timeout);
            let reply = Reply { status: 408, fields: Vec::new(), body: Vec::new() };
            return on_the_wire(reply, true);
        }
    };
    // Admitted once more, where the answer is made: a token may have been revoked while the body came in.
    let answered = {
        // Closed with the server only.
        let _turn = client.turns.acquire().await;
        // In this thread, which hands connections to another one meanwhile: the request and its answer need no thread to be woken.
        block_in_place(|| catch_unwind(AssertUnwindSafe(|| api.handle(head, body))))
    };
    match answered {
        Ok(reply) => on_the_wire(reply, false),
        Err(_) => on_the_wire(Reply { status: 500, fields: Vec::new(), body: Vec::new() }, true),
    }
}

fn on_the_wire(reply: Reply, close: bool) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(reply.body)));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = reply.fields.iter().map(|(name, value)| (*name, value.as_str()));
    // A body that was not read stands between this request and the next.
    let more = close.then_some(("connection", "close"));
    let fixed = [("x-content-type-options", "nosniff")];
    for (name, value) in fields.chain(more).chain(fixed) {
        if let Ok(value) = hyper::header::HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

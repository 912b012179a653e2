// SPDX-License-Identifier: Apache-2.0
//! `GET /metrics` over HTTP/1, served by hyper.
//!
//! Source: RFC 9110, RFC 9112. A request is read up to the end of its head, within bounds of bytes and time;
//! every answer closes the connection. No thread here touches packets: one thread serves all connections, and
//! the page of each is made in a thread of its own, since it waits for locks.
//!
//! Not done: TLS, authentication (bind it to loopback, or put a proxy before it), keep-alive, compression,
//! bodies of requests.

use bartizan_controller::server::{Exchange, Patient, ResponseFilter, linger};
use http_body_util::Full;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

/// Most bytes of a request's head.
pub const REQUEST_MAX: usize = 8 * 1024;
/// Most open connections; a further one is refused with a hint to come later.
pub const CONNECTIONS_MAX: usize = 8;
/// Time limit for a request's arrival, and for the client to accept part of its answer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit for reading after the answer, so that data of the client does not reset the connection before
/// the answer arrives.
const LINGER: Duration = Duration::from_millis(300);
/// Content type of the page, as Prometheus requires it.
const KIND: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Makes the page.
pub type MetricsPage = dyn Fn() -> String + Send + Sync;

/// A running server; dropping it ends it.
pub struct MetricsServer {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl MetricsServer {
    /// Serves the page on a listener.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(listener: std::net::TcpListener, page: Arc<MetricsPage>) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(CONNECTIONS_MAX)
            .thread_name("metrics")
            .enable_all()
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        runtime.spawn(accept(listener, page));
        Ok(MetricsServer { address, runtime: Some(runtime) })
    }

    /// Address of the listener.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(500));
        }
    }
}

async fn accept(listener: TcpListener, page: Arc<MetricsPage>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is left, or the client is gone already: later connections may succeed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            refuse(stream);
            continue;
        };
        let page = Arc::clone(&page);
        tokio::spawn(async move {
            let _place = place;
            serve(stream, page).await;
        });
    }
}

/// Refuses a connection beyond the limit, without waiting; the answer may be lost.
fn refuse(stream: TcpStream) {
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write_all(&refusal("503 Service Unavailable", "Retry-After: 5\r\n", "busy\n"));
    }
}

async fn serve(stream: TcpStream, page: Arc<MetricsPage>) {
    let mut stream = Patient::new(stream, PATIENCE);
    let exchange = Arc::new(Exchange::default());
    let filter = ResponseFilter::new(&mut stream, Arc::clone(&exchange));
    let service = service_fn(|request: Request<Incoming>| {
        let (page, exchange) = (Arc::clone(&page), Arc::clone(&exchange));
        async move {
            let reply = respond(&request, page).await;
            let length = reply.body().size_hint().exact().unwrap_or_default();
            exchange.announce_reply(if request.method() == Method::HEAD { 0 } else { length as usize });
            Ok::<_, Infallible>(reply)
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(REQUEST_MAX)
        .keep_alive(false)
        // A client that has nothing more to send still gets its answer.
        .half_close(true)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(filter), service)
        .await;
    let refused = match served {
        Ok(()) => return linger(&mut stream, LINGER).await,
        Err(error) => refusal_of(&error, exchange.has_begun()),
    };
    if let Some(bytes) = refused
        && stream.write_all(&bytes).await.is_ok()
    {
        linger(&mut stream, LINGER).await;
    }
}

/// The reply to a request whose head is complete; hyper leaves the body of a reply to HEAD out.
async fn respond(request: &Request<Incoming>, page: Arc<MetricsPage>) -> Response<Full<Bytes>> {
    match (request.uri().path(), request.method()) {
        ("/metrics", &Method::GET | &Method::HEAD) => {
            match tokio::task::spawn_blocking(move || page()).await {
                Ok(page) => reply(StatusCode::OK, page.into()),
                Err(_) => {
                    reply(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be rendered\n".into())
                }
            }
        }
        (_, &Method::GET | &Method::HEAD) => {
            reply(StatusCode::NOT_FOUND, "the metrics are at /metrics\n".into())
        }
        _ => {
            let mut reply = reply(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported\n".into());
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            reply
        }
    }
}

fn reply(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, KIND);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}

/// The reply to a client whose request hyper cannot read; `None` if the client sent nothing or is gone.
fn refusal_of(error: &hyper::Error, has_begun: bool) -> Option<Vec<u8>> {
    let (status, body) = if error.is_timeout() {
        if !has_begun {
            return None;
        }
        ("408 Request Timeout", "the request did not arrive in time\n")
    } else if error.is_parse_too_large() {
        ("431 Request Header Fields Too Large", "the request is too large\n")
    } else if !error.is_parse() {
        return None;
    } else if error.to_string().contains("version") {
        // hyper distinguishes this kind in its text only.
        ("505 HTTP Version Not Supported", "only HTTP/1\n")
    } else {
        ("400 Bad Request", "this is not an HTTP request\n")
    };
    Some(refusal(status, "", body))
}

/// A reply that hyper has no part in.
fn refusal(status: &str, more: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n{more}Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests;

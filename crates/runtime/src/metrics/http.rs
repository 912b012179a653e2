// SPDX-License-Identifier: Apache-2.0
//! The part of HTTP/1 that `GET /metrics` needs.
//!
//! Source: RFC 9110, RFC 9112. A request is read up to the end of its head, within bounds of bytes and time;
//! every answer closes the connection. No thread here touches packets: one thread accepts, and one more runs
//! per open connection, up to a limit.
//!
//! Not done: TLS, authentication (bind it to loopback, or put a proxy before it), keep-alive, compression,
//! bodies of requests.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most bytes of a request's head.
pub const REQUEST_MAX: usize = 8 * 1024;
/// Most open connections; a further one is refused with a hint to come later.
pub const CONNECTIONS_MAX: usize = 8;
/// Time limit for a request's arrival, and for sending its answer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes and time limit for reading after the answer, so that data of the client does not reset the
/// connection before the answer arrives.
const LINGER: (u64, Duration) = (64 * 1024, Duration::from_millis(300));
/// Content type of the page, as Prometheus requires it.
const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Makes the page.
pub type MetricsPage = dyn Fn() -> String + Send + Sync;

/// A running server; dropping it ends it.
pub struct MetricsServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Serves the page on a listener.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(listener: TcpListener, page: Arc<MetricsPage>) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || accept(&listener, &page, &stopped))?;
        Ok(MetricsServer { address, stop, thread: Some(thread) })
    }

    /// Address of the listener.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A connection wakes the thread.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        if TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// A place among the open connections, freed when dropped.
struct MetricsPermit(Arc<AtomicUsize>);

impl MetricsPermit {
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let before = open.fetch_add(1, Ordering::AcqRel);
        let seat = MetricsPermit(Arc::clone(open));
        (before < CONNECTIONS_MAX).then_some(seat)
    }
}

impl Drop for MetricsPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn accept(listener: &TcpListener, page: &Arc<MetricsPage>, stop: &AtomicBool) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(_) => {
                // No descriptor left, or the client is gone already: others may come.
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        let Some(seat) = MetricsPermit::take(&open) else {
            refuse(stream);
            continue;
        };
        let page = Arc::clone(page);
        let serve = move || {
            let _seat = seat;
            serve(stream, &page);
        };
        // Without a thread the connection is closed, and the scraper tries again.
        let _ = std::thread::Builder::new().name("metrics-answer".to_owned()).spawn(serve);
    }
}

/// Refuses a connection beyond the limit, without a thread; the answer may be lost.
fn refuse(mut stream: TcpStream) {
    let _ = stream.set_nonblocking(true);
    let _ = stream.write_all(&answer("503 Service Unavailable", "Retry-After: 5\r\n", "busy\n", true));
}

fn serve(mut stream: TcpStream, page: &Arc<MetricsPage>) {
    let _ = stream.set_write_timeout(Some(PATIENCE));
    if let Some(bytes) = respond(&mut stream, page, Instant::now()) {
        let _ = stream.write_all(&bytes);
        finish(&mut stream);
    }
}

/// The answer to a client's request; `None` if the client sent nothing.
fn respond(stream: &mut TcpStream, page: &Arc<MetricsPage>, begun: Instant) -> Option<Vec<u8>> {
    let head = match read_head(stream, begun) {
        Ok(head) => head,
        Err(Trouble::Gone) => return None,
        Err(Trouble::Slow) => {
            return Some(answer("408 Request Timeout", "", "the request did not come in time\n", true));
        }
        Err(Trouble::Large) => {
            return Some(answer(
                "431 Request Header Fields Too Large",
                "",
                "the request is too large\n",
                true,
            ));
        }
    };
    Some(match judge(&head) {
        MetricsRequest::Page { body } => answer("200 OK", "", &page(), body),
        MetricsRequest::Other => answer("404 Not Found", "", "the metrics are at /metrics\n", true),
        MetricsRequest::Method => {
            answer("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "only GET and HEAD\n", true)
        }
        MetricsRequest::Version => answer("505 HTTP Version Not Supported", "", "only HTTP/1\n", true),
        MetricsRequest::Garbage => answer("400 Bad Request", "", "this is no HTTP request\n", true),
    })
}

/// The content of a request.
#[derive(Debug, PartialEq, Eq)]
enum MetricsRequest {
    Page { body: bool },
    Other,
    Method,
    Version,
    Garbage,
}

fn judge(head: &[u8]) -> MetricsRequest {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Ok(line) = core::str::from_utf8(line) else { return MetricsRequest::Garbage };
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return MetricsRequest::Garbage;
    };
    let is_token =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-');
    if !is_token(method) || !version.starts_with("HTTP/") {
        return MetricsRequest::Garbage;
    }
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        return MetricsRequest::Version;
    }
    let path = target.split(['?', '#']).next().unwrap_or_default();
    match (path, method) {
        ("/metrics", "GET") => MetricsRequest::Page { body: true },
        ("/metrics", "HEAD") => MetricsRequest::Page { body: false },
        (_, "GET" | "HEAD") => MetricsRequest::Other,
        _ => MetricsRequest::Method,
    }
}

enum Trouble {
    /// The client is gone, or sent nothing.
    Gone,
    Slow,
    Large,
}

/// Reads up to the empty line.
fn read_head(stream: &mut TcpStream, begun: Instant) -> Result<Vec<u8>, Trouble> {
    let mut head = Vec::new();
    let mut chunk = [0u8; 1024];
    loop {
        let Some(left) = PATIENCE.checked_sub(begun.elapsed()) else {
            return Err(if head.is_empty() { Trouble::Gone } else { Trouble::Slow });
        };
        // The system refuses a timeout of zero.
        let _ = stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
        let read = match stream.read(&mut chunk) {
            Ok(0) => return Err(Trouble::Gone),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // The beginning of the loop detects the end of the time.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => return Err(Trouble::Gone),
        };
        // The end of the head may begin in earlier bytes.
        let from = head.len().saturating_sub(3);
        head.extend(chunk.iter().take(read));
        let ends =
            |tail: &[u8]| tail.windows(4).any(|w| w == b"\r\n\r\n") || tail.windows(2).any(|w| w == b"\n\n");
        if head.get(from..).is_some_and(ends) {
            return Ok(head);
        }
        if head.len() > REQUEST_MAX {
            return Err(Trouble::Large);
        }
    }
}

fn answer(status: &str, more: &str, body: &str, with_body: bool) -> Vec<u8> {
    let length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {KIND}\r\nContent-Length: {length}\r\n{more}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    );
    if with_body {
        text.push_str(body);
    }
    text.into_bytes()
}

/// Closes the connection so that the answer arrives: a close with unread bytes would discard it.
fn finish(stream: &mut TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(LINGER.1));
    let mut rest = stream.take(LINGER.0);
    let end = Instant::now() + LINGER.1;
    let mut chunk = [0u8; 4096];
    while Instant::now() < end && matches!(rest.read(&mut chunk), Ok(read) if read > 0) {}
}

#[cfg(test)]
mod tests;

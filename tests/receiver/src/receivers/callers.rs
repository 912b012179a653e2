// SPDX-License-Identifier: Apache-2.0
//! Clients on the receivers' side: kernel sockets that send a request and record the answer, and curl, which
//! decodes answers. They call servers that exist in the generator only.

use super::{Key, Records, Service};
use crate::server::Call;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Concurrent calls.
const TOGETHER: usize = 64;
/// Time limit for a connection to be established.
const OPENS: Duration = Duration::from_millis(900);
/// Time limit for an answer, from establishment on.
const ANSWERS: Duration = Duration::from_millis(1200);

/// The clients' threads; they end with the sender.
#[derive(Clone, Debug)]
pub struct Callers(mpsc::Sender<Call>);

impl Callers {
    /// Starts the threads in this thread's network namespace.
    #[must_use]
    pub fn start(records: &Arc<Records>) -> Self {
        let (calls, todo) = mpsc::channel::<Call>();
        let todo = Arc::new(Mutex::new(todo));
        for _ in 0..TOGETHER {
            let (todo, records) = (Arc::clone(&todo), Arc::clone(records));
            std::thread::spawn(move || {
                loop {
                    let call = todo.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(call) = call else { return };
                    let key: Key = (call.to.ip(), call.to.port(), call.to.port());
                    if call.browser { browse(&call, key, &records) } else { ask(&call, key, &records) }
                }
            });
        }
        Callers(calls)
    }

    /// Queues a call.
    pub fn call(&self, call: Call) {
        let _ = self.0.send(call);
    }
}

fn ask(call: &Call, key: Key, records: &Records) {
    let Ok(mut socket) = TcpStream::connect_timeout(&call.to, OPENS) else { return };
    let begun = Instant::now();
    if socket.set_read_timeout(Some(ANSWERS)).is_err() || socket.write_all(&call.request).is_err() {
        return;
    }
    let (mut buffer, mut heard) = (vec![0; 16_384], Vec::new());
    while let Ok(length @ 1..) = socket.read(&mut buffer) {
        heard.extend_from_slice(&buffer[..length]);
        if begun.elapsed() > ANSWERS {
            break;
        }
    }
    if key.2 != Service::WebAnswers.port() || has_body(&heard) {
        records.add(key, |read| read.stream.extend_from_slice(&heard));
    }
}

/// Whether a client finds a body in the bytes received: they begin as an HTTP answer, and an empty line ends
/// the headers, with any kind of line end. Header content does not count.
fn has_body(heard: &[u8]) -> bool {
    let ends: [&[u8]; 4] = [b"\n\n", b"\n\r", b"\r\r", b"\r\n\r\n"];
    heard.starts_with(b"HTTP/1.") && ends.iter().any(|end| heard.windows(end.len()).any(|some| some == *end))
}

fn browse(call: &Call, key: Key, records: &Records) {
    let host = match call.to.ip() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let port = Service::WebAnswers.port();
    let path = String::from_utf8_lossy(&call.request);
    let said = Command::new("curl")
        .args(["-s", "-q", "--compressed", "--noproxy", "*", "-N", "--max-time", "1.2"])
        .arg(format!("http://{host}:{port}{path}"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    if let Ok(output) = said {
        records.add(key, |read| read.stream.extend_from_slice(&output.stdout));
    }
}

#[cfg(test)]
mod tests {
    use super::has_body;

    #[test]
    fn answers_whose_headers_do_not_end_have_no_body() {
        for whole in ["HTTP/1.1 200 OK\r\n\r\nevil", "HTTP/1.0 200\n\nevil", "HTTP/1.1 200\r\nA: b\n\r\nevil"]
        {
            assert!(has_body(whole.as_bytes()), "{whole:?}");
        }
        for none in ["HTTP/1.1 200 OK\r\nContjunk and evil", "evil\r\n\r\nevil", ""] {
            assert!(!has_body(none.as_bytes()), "{none:?}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A listening controller, and clients that send exactly the bytes of a test.

use super::World;
use bartizan_controller::server::Bounds;
use bartizan_controller::state::Identity;
use bartizan_controller::{Api, Server, resources};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A controller in memory that listens on loopback.
pub struct Wire {
    pub world: World,
    pub server: Server,
    config: Arc<ClientConfig>,
}

/// A connection.
pub struct Line(StreamOwned<ClientConnection, TcpStream>);

/// An answer as received.
#[derive(Debug)]
pub struct Came {
    pub status: u16,
    /// The head, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl Came {
    pub fn field(&self, name: &str) -> Option<&str> {
        let is_name = |line: &&str| line.split_once(':').is_some_and(|(key, _)| key == name);
        self.head.lines().find(is_name).and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Wire {
    pub fn new(bounds: Bounds) -> Self {
        Wire::of(World::new(), bounds)
    }

    pub fn of(world: World, bounds: Bounds) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate: CertificateDer<'static> = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let api = Arc::new(Api::new(world.api.controller.clone(), resources::routes()));
        let identity = Identity { certificate: certificate.clone(), key };
        let server = Server::start(TcpListener::bind("127.0.0.1:0").unwrap(), api, identity, bounds).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        Wire { world, server, config }
    }

    pub fn open(&self) -> Line {
        let stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        Line(StreamOwned::new(ClientConnection::new(self.config.clone(), name).unwrap(), stream))
    }

    /// The head of a request with the administrator's token, without its end.
    pub fn head(&self, method: &str, path: &str) -> String {
        head(method, path, &self.world.token)
    }

    /// Sends a request over a connection of its own.
    pub fn ask(&self, request: impl AsRef<[u8]>) -> Came {
        let mut line = self.open();
        line.say(request.as_ref()).unwrap();
        line.hear().unwrap()
    }

    /// A counter of the controller.
    pub fn counted(&self, what: &str) -> u64 {
        let counters = &self.world.api.controller.counters;
        counters.rows().find(|(name, _)| *name == what).unwrap().1
    }
}

/// The head of a request, without its end.
pub fn head(method: &str, path: &str, token: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n")
}

impl Line {
    pub fn say(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    fn more(&mut self, into: &mut Vec<u8>) -> std::io::Result<()> {
        let mut piece = [0; 16 * 1024];
        match self.0.read(&mut piece)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            read => {
                into.extend_from_slice(&piece[..read]);
                Ok(())
            }
        }
    }

    /// The next answer.
    pub fn hear(&mut self) -> std::io::Result<Came> {
        self.hear_of(false)
    }

    /// The next answer; without a body for HEAD.
    pub fn hear_of(&mut self, is_head: bool) -> std::io::Result<Came> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.more(&mut bytes)?;
        };
        let mut body = bytes.split_off(end);
        let head = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut came = Came { status, head, body: Vec::new() };
        let length: usize = came.field("content-length").map_or(0, |length| length.parse().unwrap());
        let length = if is_head || matches!(status, 100..=199 | 204 | 304) { 0 } else { length };
        while body.len() < length {
            self.more(&mut body)?;
        }
        came.body = body;
        assert_eq!(came.body.len(), length, "{came:?}");
        Ok(came)
    }

    /// Whether the server closes the connection regularly, without further bytes.
    pub fn is_over(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0))
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A client of the REST API, with one connection that is reopened when it breaks. Trusts only the given
//! certificate of the controller, or certificates that it signed.
//!
//! Not supported: proxies, redirects, several requests at once.

use crate::rest::Method;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

/// Time limit of a request with its answer.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// Most bytes of an answer.
pub(crate) const ANSWER_MAX: usize = 256 << 20;

/// Why a request has no answer. Whether a change was made is then unknown: read the resource again.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The certificate cannot be read.
    #[error("the certificate {path}: {message}; it is `tls-certificate.pem` of the controller's state")]
    Certificate {
        /// The file.
        path: String,
        /// The error.
        message: String,
    },
    /// No controller answers at the address, or one with another certificate.
    #[error("cannot reach the controller at {address}: {message}")]
    Unreachable {
        /// The address.
        address: String,
        /// The error.
        message: String,
    },
    /// The connection ended before the answer.
    #[error("no answer: {0}")]
    Broken(String),
}

/// An answer.
#[derive(Clone, Debug)]
pub struct ClientResponse {
    /// Status code.
    pub status: u16,
    /// The document's tag, for `If-Match`.
    pub tag: Option<String>,
    /// The body: JSON as it is, text as a string.
    pub body: Value,
}

impl ClientResponse {
    /// Whether the request succeeded.
    #[must_use]
    pub const fn done(&self) -> bool {
        self.status / 100 == 2
    }
}

/// A client of the REST API.
pub struct Client {
    /// Addresses of the controller, in the order in which they are tried.
    addresses: Vec<SocketAddr>,
    /// The name that the controller's certificate must have.
    name: ServerName<'static>,
    token: Option<String>,
    tls: TlsConnector,
    runtime: tokio::runtime::Runtime,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// A client of the controller at an address, with the certificate to trust and a token.
    ///
    /// # Errors
    /// The certificate cannot be read.
    pub fn new(address: SocketAddr, certificate: &Path, token: Option<String>) -> Result<Self, ClientError> {
        Client::at(vec![address], ServerName::from(address.ip()), certificate, token)
    }

    /// A client of a controller by its host name or address; its certificate must be for that name.
    ///
    /// # Errors
    /// The certificate cannot be read, or the host name does not resolve.
    pub fn of(host: &str, port: u16, certificate: &Path, token: Option<String>) -> Result<Self, ClientError> {
        let unreachable = |message: String| ClientError::Unreachable { address: host.to_owned(), message };
        let name = ServerName::try_from(host.to_owned()).map_err(|e| unreachable(e.to_string()))?;
        let found = (host, port).to_socket_addrs().map_err(|e| unreachable(e.to_string()))?;
        Client::at(found.collect(), name, certificate, token)
    }

    fn at(
        addresses: Vec<SocketAddr>,
        name: ServerName<'static>,
        certificate: &Path,
        token: Option<String>,
    ) -> Result<Self, ClientError> {
        let wrong =
            |message: String| ClientError::Certificate { path: certificate.display().to_string(), message };
        let mut roots = rustls::RootCertStore::empty();
        for trusted in CertificateDer::pem_file_iter(certificate).map_err(|e| wrong(e.to_string()))? {
            let trusted = trusted.map_err(|e| wrong(e.to_string()))?;
            roots.add(trusted).map_err(|e| wrong(e.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("the file has no certificate".to_owned()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| ClientError::Broken(e.to_string()))?;
        let tls = TlsConnector::from(Arc::new(config));
        Ok(Client { addresses, name, token, tls, runtime, connection: None })
    }

    /// Uses another token from now on.
    pub fn set_token(&mut self, token: Option<String>) {
        self.token = token;
    }

    /// Sends a request and returns the answer. `path` includes the query; `body` is JSON; `fields` are header
    /// fields beside those of the token and the body.
    ///
    /// # Errors
    /// There is no answer.
    pub fn request(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        fields: &[(&str, &str)],
    ) -> Result<ClientResponse, ClientError> {
        let bytes = body.map(|body| Bytes::from(body.to_string()));
        self.request_bytes(method, path, bytes, fields)
    }

    /// As [`Client::request`], with the bytes of the body; its content type is JSON unless `fields` names
    /// another.
    ///
    /// # Errors
    /// There is no answer.
    pub fn request_bytes(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        fields: &[(&str, &str)],
    ) -> Result<ClientResponse, ClientError> {
        let host = self.name.to_str();
        let mut request = Request::builder().method(method.name()).uri(path).header(HOST, host.as_ref());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() && !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|error| ClientError::Broken(error.to_string()))?;
        let (addresses, name) = (self.addresses.clone(), self.name.clone());
        let (tls, connection) = (self.tls.clone(), self.connection.take());
        let asked = async {
            let mut sender = match connection.filter(|sender| !sender.is_closed()) {
                Some(sender) => sender,
                None => connect(&addresses, name, tls).await?,
            };
            let broken = |error: &dyn std::fmt::Display| ClientError::Broken(error.to_string());
            sender.ready().await.map_err(|e| broken(&e))?;
            let response = sender.send_request(request).await.map_err(|e| broken(&e))?;
            Ok::<_, ClientError>((answer(response).await?, sender))
        };
        let slow = || ClientError::Broken(format!("nothing for {} s", ANSWER_PATIENCE.as_secs()));
        let patient = async { tokio::time::timeout(ANSWER_PATIENCE, asked).await.map_err(|_| slow())? };
        let (answer, sender) = self.runtime.block_on(patient)?;
        self.connection = Some(sender);
        Ok(answer)
    }
}

/// Explains a failed TLS handshake.
fn untrusted(error: &std::io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(why)) => format!(
            "its certificate is not trusted ({why:?}): it has to be the one that is named here (`--ca`; `tls-certificate.pem` of the \
             controller's state), or signed by it, and to have the name in the address"
        ),
        _ => format!("{error}; is this the address of a controller's REST API?"),
    }
}

async fn connect(
    addresses: &[SocketAddr],
    name: ServerName<'static>,
    tls: TlsConnector,
) -> Result<SendRequest<Full<Bytes>>, ClientError> {
    let shown = addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
    let unreachable = |error: &dyn std::fmt::Display| ClientError::Unreachable {
        address: shown.clone(),
        message: error.to_string(),
    };
    let refused =
        |error: std::io::Error| format!("{error}; does a controller run, and listen at this address?");
    let stream =
        tokio::net::TcpStream::connect(addresses).await.map_err(|error| unreachable(&refused(error)))?;
    let _ = stream.set_nodelay(true);
    let stream = tls.connect(name, stream).await.map_err(|error| unreachable(&untrusted(&error)))?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| unreachable(&e))?;
    // Errors of the connection reach the caller that waits for the answer.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

async fn answer(response: Response<hyper::body::Incoming>) -> Result<ClientResponse, ClientError> {
    let status = response.status().as_u16();
    let tag = response.headers().get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    let bytes = body.map_err(|error| ClientError::Broken(error.to_string()))?.to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
    Ok(ClientResponse { status, tag, body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()) })
}

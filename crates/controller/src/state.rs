// SPDX-License-Identifier: Apache-2.0
//! The state folder of a controller: the store, the TLS certificate, the bootstrap token.

use crate::access::Secret;
use crate::store::hex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File name of the store.
pub const STORE: &str = "controller.db";
/// File name of the certificate, for clients to trust.
pub const CERTIFICATE: &str = "tls-certificate.pem";
/// File name of the certificate's key.
pub const KEY: &str = "tls-key.pem";
/// File name of the bootstrap token, which makes the first administrator's token.
pub const BOOTSTRAP: &str = "bootstrap-token";

/// An error of the state folder.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {message}")]
pub struct StateError {
    path: String,
    message: String,
}

impl StateError {
    fn new(path: &Path, message: impl std::fmt::Display) -> Self {
        StateError { path: path.display().to_string(), message: message.to_string() }
    }
}

/// A certificate and its key.
pub struct Identity {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// The certificate's key.
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    /// SHA-256 of the certificate, in the format of other tools.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let text = hex(&Sha256::digest(&self.certificate));
        let pairs = (0..text.len()).step_by(2).filter_map(|at| text.get(at..at + 2));
        pairs.map(str::to_ascii_uppercase).collect::<Vec<_>>().join(":")
    }
}

/// Makes the folder, accessible to its owner only.
///
/// # Errors
/// The folder cannot be made.
pub fn make(folder: &Path) -> Result<(), StateError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| StateError::new(folder, format!("cannot make the folder: {error}")))
}

/// Writes a file atomically, readable by its owner only.
fn write(path: &Path, content: &str) -> Result<(), StateError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let attempt = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    attempt().map_err(|error: std::io::Error| StateError::new(path, format!("cannot write it: {error}")))
}

/// Reads the folder's certificate; if there is none, makes a self-signed one for `localhost` and the loopback
/// addresses.
///
/// # Errors
/// The certificate cannot be read or made.
pub fn identity(folder: &Path) -> Result<Identity, StateError> {
    let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
    if !certificate.exists() && !key.exists() {
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        let made = rcgen::generate_simple_self_signed(names).map_err(|e| StateError::new(&certificate, e))?;
        // The key is written first: a certificate without a key is useless.
        write(&key, &made.signing_key.serialize_pem())?;
        write(&certificate, &made.cert.pem())?;
    }
    let advice = "put the certificate and its key there, or remove both for new ones";
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |error| StateError::new(&path, format!("{error}; {advice}"))
    };
    Ok(Identity {
        certificate: CertificateDer::from_pem_file(&certificate).map_err(unusable(&certificate))?,
        key: PrivateKeyDer::from_pem_file(&key).map_err(unusable(&key))?,
    })
}

/// Writes the bootstrap token to its file.
///
/// # Errors
/// The file cannot be written.
pub fn put_bootstrap(folder: &Path, secret: &Secret) -> Result<PathBuf, StateError> {
    let path = folder.join(BOOTSTRAP);
    write(&path, &format!("{}\n", secret.reveal()))?;
    Ok(path)
}

/// Removes the file of a bootstrap token that is used up.
pub fn clear_bootstrap(folder: &Path) {
    match fs::remove_file(folder.join(BOOTSTRAP)) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        // The token in the file is no longer valid.
        Err(_) => {}
    }
}

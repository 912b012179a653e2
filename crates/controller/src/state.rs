// SPDX-License-Identifier: Apache-2.0
//! The folder of a controller's state: the store, the certificate, the bootstrap token.

use crate::access::Secret;
use crate::store::hex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The store.
pub const STORE: &str = "controller.db";
/// The certificate, for clients to trust.
pub const CERTIFICATE: &str = "tls-certificate.pem";
/// Its key.
pub const KEY: &str = "tls-key.pem";
/// The token that makes the first administrator's.
pub const BOOTSTRAP: &str = "bootstrap-token";

/// What is wrong with the folder.
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
    /// Its key.
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    /// SHA-256 of the certificate, as other tools print it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let text = hex(&Sha256::digest(&self.certificate));
        let pairs = (0..text.len()).step_by(2).filter_map(|at| text.get(at..at + 2));
        pairs.map(str::to_ascii_uppercase).collect::<Vec<_>>().join(":")
    }
}

/// Makes the folder, for its owner only.
///
/// # Errors
/// It cannot be made.
pub fn make(folder: &Path) -> Result<(), StateError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| StateError::new(folder, format!("cannot make the folder: {error}")))
}

/// Writes a file for its owner only, all of it or not at all.
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

/// The certificate of the folder; with none, one is made that signs itself, for `localhost` and the loopback
/// addresses.
///
/// # Errors
/// It cannot be read or made.
pub fn identity(folder: &Path) -> Result<Identity, StateError> {
    let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
    if !certificate.exists() && !key.exists() {
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        let made = rcgen::generate_simple_self_signed(names).map_err(|e| StateError::new(&certificate, e))?;
        // The key first: a certificate without a key is of no use.
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

/// Puts the bootstrap token into its file.
///
/// # Errors
/// It cannot be written.
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
        // The token in it is worth nothing any more.
        Err(_) => {}
    }
}

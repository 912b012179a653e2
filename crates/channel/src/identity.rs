// SPDX-License-Identifier: Apache-2.0
//! A device's key and certificate. The key is made on the device and never leaves it: only a certificate
//! request goes to the controller.

use crate::ChannelError;
use crate::certificate::{Facts, chain, facts};
use crate::files::{self, PUBLIC, SECRET};
use rcgen::{CertificateParams, KeyPair};
use std::path::Path;

/// A key that has no certificate yet.
#[derive(Debug)]
pub struct NewKey {
    key: KeyPair,
}

impl NewKey {
    /// Makes a key (ECDSA, P-256).
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn make() -> Result<Self, ChannelError> {
        Ok(NewKey { key: KeyPair::generate().map_err(ChannelError::certificate("cannot make a key"))? })
    }

    /// The certificate request (PKCS #10, PEM). The issuer chooses the certificate's subject.
    ///
    /// # Errors
    /// The request cannot be signed.
    pub fn request(&self) -> Result<String, ChannelError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let request = params.serialize_request(&self.key).and_then(|request| request.pem());
        request.map_err(ChannelError::certificate("cannot make a certificate request"))
    }

    /// The identity with the certificate issued for the key.
    ///
    /// # Errors
    /// The certificate cannot be parsed, or is for another key.
    pub fn with(self, certificate: &str, authorities: &str) -> Result<DeviceIdentity, ChannelError> {
        let identity = DeviceIdentity {
            key: self.key.serialize_pem(),
            certificate: certificate.to_owned(),
            authorities: authorities.to_owned(),
        };
        // rustls refuses a certificate of another key.
        crate::tls::certified(&identity.certificate, &identity.key)?;
        chain(authorities)?;
        Ok(identity)
    }
}

/// Key, certificate, and the authorities of controllers; all in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// The private key.
    pub key: String,
    /// The certificate and that of its issuer.
    pub certificate: String,
    /// Authorities by which to verify controllers.
    pub authorities: String,
}

impl std::fmt::Debug for DeviceIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

const KEY: &str = "device.key";
const CERTIFICATE: &str = "device.pem";
const AUTHORITIES: &str = "authorities.pem";

impl DeviceIdentity {
    /// The facts in its certificate.
    ///
    /// # Errors
    /// The certificate cannot be parsed.
    pub fn facts(&self) -> Result<Facts, ChannelError> {
        chain(&self.certificate)?.first().map_or_else(
            || Err(ChannelError::Certificate("the device has no certificate".to_owned())),
            |certificate| facts(certificate),
        )
    }

    /// Stores the identity in a folder, which is made if it does not exist. Key and certificate are one file,
    /// so that a crash cannot separate them.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), ChannelError> {
        files::make_folder(folder)?;
        files::replace(folder, AUTHORITIES, PUBLIC, self.authorities.as_bytes())?;
        files::replace(folder, KEY, SECRET, format!("{}{}", self.key, self.certificate).as_bytes())?;
        files::replace(folder, CERTIFICATE, PUBLIC, self.certificate.as_bytes())
    }

    /// Loads a stored identity.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn load(folder: &Path) -> Result<Self, ChannelError> {
        let both = files::read(folder, KEY)?;
        let authorities = files::read(folder, AUTHORITIES)?;
        match both.find("-----BEGIN CERTIFICATE-----") {
            Some(at) => {
                let (key, certificate) = both.split_at(at);
                Ok(DeviceIdentity { key: key.to_owned(), certificate: certificate.to_owned(), authorities })
            }
            None => {
                let what = "there is no certificate after the key; enrol the device again".to_owned();
                Err(ChannelError::Content { path: folder.join(KEY), what })
            }
        }
    }
}

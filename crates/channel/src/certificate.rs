// SPDX-License-Identifier: Apache-2.0
//! Facts read from certificates.

use crate::ChannelError;
use crate::files::hex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Prefix of a device's id in its certificate's subject alternative name (a URI).
pub const DEVICE_URI: &str = "bartizan:device:";

/// The name in controllers' certificates, which agents expect: all controllers have the same.
pub const CONTROLLER_NAME: &str = "controller.bartizan";

/// The facts read from a certificate, which is not verified here: TLS does that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Serial number, in hexadecimal digits without leading zeros.
    pub serial: String,
    /// The device that the certificate is for; `None` for a controller's or an authority's.
    pub device: Option<String>,
    /// Begin of the validity, in seconds since 1970.
    pub valid_from: u64,
    /// End of the validity, in seconds since 1970.
    pub valid_until: u64,
}

/// Parses a certificate.
///
/// # Errors
/// The bytes are not a certificate, or it names several devices.
pub fn facts(der: &[u8]) -> Result<Facts, ChannelError> {
    let wrong = |what: &str| ChannelError::Certificate(format!("a certificate {what}"));
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| wrong("that cannot be read"))?;
    let names = certificate.subject_alternative_name().map_err(|_| wrong("whose names cannot be read"))?;
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let mut devices = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => uri.strip_prefix(DEVICE_URI),
        _ => None,
    });
    let device = devices.next().map(str::to_owned);
    if devices.next().is_some() {
        return Err(wrong("that names several devices"));
    }
    let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
    Ok(Facts {
        serial: serial(certificate.raw_serial()),
        device,
        valid_from: seconds(certificate.validity().not_before),
        valid_until: seconds(certificate.validity().not_after),
    })
}

pub(crate) fn serial(bytes: &[u8]) -> String {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    hex(bytes.get(zeros..).unwrap_or_default())
}

/// SHA-256 of a certificate, which tokens pin.
#[must_use]
pub fn fingerprint(der: &[u8]) -> [u8; 32] {
    Sha256::digest(der).into()
}

/// The certificates of a PEM text.
///
/// # Errors
/// There are none, or one cannot be parsed.
pub fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, ChannelError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(ChannelError::Certificate("there is no certificate in the PEM text".to_owned())),
        Err(error) => Err(ChannelError::Certificate(format!("a certificate cannot be read: {error}"))),
    }
}

/// The private key of a PEM text.
///
/// # Errors
/// There is no valid one.
pub fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, ChannelError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| ChannelError::Certificate(format!("the private key cannot be read: {error}")))
}

// SPDX-License-Identifier: Apache-2.0
//! The certificate message (RFC 5246 section 7.4.2) and the fields of its first certificate.
//!
//! Names are written as Suricata does: `C=US, O=Example, CN=host`, in the order of the certificate, values
//! unescaped.
//!
//! Not supported: verification of any kind; the certificate message of TLS 1.3 (it is encrypted).

use super::events;
use super::tx::TlsTx;
use crate::memory::Held;
use bartizan_base::{Cursor, Direction};
use sha1::{Digest as _, Sha1};
use x509_parser::error::X509Error;
use x509_parser::extensions::GeneralName;
use x509_parser::nom;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Limit of alternative names; further ones are dropped.
const NAMES_MAX: usize = 4096;

/// The fields of a certificate for rules and records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    pub(super) subject: String,
    pub(super) issuer: String,
    /// Serial number, `0A:FF:...`
    pub(super) serial: String,
    /// Start of validity, in seconds since 1970; negative before.
    pub(super) not_before: i64,
    /// End of validity, in seconds since 1970; negative before.
    pub(super) not_after: i64,
    /// SHA-1 of the certificate, `0a:ff:...`
    pub(super) fingerprint: String,
    pub(super) names: Vec<String>,
    /// Bytes of memory held by all fields.
    held: usize,
}

impl Certificate {
    /// Bytes of memory held, the structure itself included.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Sums up the memory of the fields, which do not change any more.
    fn measured(mut self) -> Self {
        let texts = [&self.subject, &self.issuer, &self.serial, &self.fingerprint];
        let held = texts.into_iter().chain(&self.names).map(Held::held);
        self.held = held.sum::<usize>().saturating_add(self.names.held()).saturating_add(size_of::<Self>());
        self
    }
}

/// The certificates of one side: all bytes once, and the position of each.
#[derive(Debug, Default)]
pub(super) struct Chain {
    data: Vec<u8>,
    /// Offset and length of each certificate.
    entries: Vec<(u32, u32)>,
    /// A certificate message was read; later ones are ignored.
    seen: bool,
}

impl Chain {
    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        self.data.held().saturating_add(self.entries.held())
    }

    /// Number of certificates.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// A certificate in DER; 0 is the peer's own.
    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        let (offset, length) = *self.entries.get(index)?;
        let offset = usize::try_from(offset).ok()?;
        self.data.get(offset..)?.get(..usize::try_from(length).ok()?)
    }

    /// All certificates in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

/// Reads a certificate message of a direction.
pub(super) fn decode(tx: &mut TlsTx, direction: Direction, body: &[u8]) {
    let mut cursor = Cursor::new(body);
    let list = cursor.u24().and_then(|length| cursor.take(usize::try_from(length).ok()?));
    let Some(list) = list else { return };
    if tx.sides[direction].chain.seen {
        return;
    }
    let mut chain = Chain { data: list.to_vec(), entries: Vec::new(), seen: true };
    let mut cursor = Cursor::new(list);
    while !cursor.is_empty() {
        let der = cursor.u24().and_then(|length| cursor.take(usize::try_from(length).ok()?));
        let Some(der) = der else {
            tx.event(events::INVALID_CERTIFICATE);
            break;
        };
        if tx.sides[direction].certificate.is_none() {
            match parse(der) {
                Ok((certificate, too_many)) => {
                    if too_many {
                        tx.event(events::TOO_MANY_SUBJECT_ALTERNATIVE_NAMES);
                    }
                    tx.sides[direction].certificate = Some(Box::new(certificate));
                }
                Err(event) => {
                    tx.event(event);
                    continue;
                }
            }
        }
        let start = cursor.position().saturating_sub(der.len());
        if let (Ok(start), Ok(length)) = (u32::try_from(start), u32::try_from(der.len())) {
            chain.entries.push((start, length));
        }
    }
    tx.sides[direction].chain = chain;
}

/// Reads a certificate. Also returns whether it has more alternative names than the limit.
fn parse(der: &[u8]) -> Result<(Certificate, bool), u8> {
    let (_, x509) = X509Certificate::from_der(der).map_err(|e| event_of(&e))?;
    let validity = x509.validity();
    let mut names = Vec::new();
    let mut too_many = false;
    if let Ok(Some(extension)) = x509.subject_alternative_name() {
        let all = &extension.value.general_names;
        too_many = all.len() > NAMES_MAX;
        names.extend(all.iter().take(NAMES_MAX).map(general_name));
    }
    let certificate = Certificate {
        subject: x509.subject().to_string(),
        issuer: x509.issuer().to_string(),
        serial: joined(x509.raw_serial(), true),
        not_before: validity.not_before.timestamp(),
        not_after: validity.not_after.timestamp(),
        fingerprint: joined(&Sha1::digest(der), false),
        names,
        held: 0,
    };
    Ok((certificate.measured(), too_many))
}

/// An alternative name without its type; addresses in their usual form.
fn general_name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => {
            (*text).to_owned()
        }
        GeneralName::IPAddress(bytes) => {
            if let Ok(v4) = <[u8; 4]>::try_from(*bytes) {
                core::net::Ipv4Addr::from(v4).to_string()
            } else if let Ok(v6) = <[u8; 16]>::try_from(*bytes) {
                core::net::Ipv6Addr::from(v6).to_string()
            } else {
                joined(bytes, false)
            }
        }
        GeneralName::DirectoryName(name) => name.to_string(),
        other => other.to_string(),
    }
}

fn joined(bytes: &[u8], upper: bool) -> String {
    let mut text = String::with_capacity(bytes.len().saturating_mul(3));
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 {
            text.push(':');
        }
        text.push_str(&if upper { format!("{byte:02X}") } else { format!("{byte:02x}") });
    }
    text
}

fn event_of(error: &nom::Err<X509Error>) -> u8 {
    match error {
        nom::Err::Incomplete(_) => events::CERTIFICATE_INVALID_LENGTH,
        nom::Err::Error(e) | nom::Err::Failure(e) => match e {
            X509Error::InvalidVersion => events::CERTIFICATE_INVALID_VERSION,
            X509Error::InvalidSerial => events::CERTIFICATE_INVALID_SERIAL,
            X509Error::InvalidAlgorithmIdentifier => events::CERTIFICATE_INVALID_ALGORITHMIDENTIFIER,
            X509Error::InvalidX509Name => events::CERTIFICATE_INVALID_X509NAME,
            X509Error::InvalidDate => events::CERTIFICATE_INVALID_DATE,
            X509Error::InvalidExtensions => events::CERTIFICATE_INVALID_EXTENSIONS,
            X509Error::Der(_) => events::CERTIFICATE_INVALID_DER,
            _ => events::INVALID_CERTIFICATE,
        },
    }
}

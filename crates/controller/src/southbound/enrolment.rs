// SPDX-License-Identifier: Apache-2.0
//! Certificates for devices: the first is issued for a token, later ones for the previous certificate. And
//! the set of revoked certificates.

use super::backend::EnrolRefusal;
use bartizan_api::southbound::{DeviceId, Enrol, Enrolled, Now, RefuseCode};
use bartizan_channel::authority::{Authority, IssuanceError, Issued};
use bartizan_channel::tls::RevocationCheck;
use bartizan_channel::token::{Attempts, EnrolmentTokenError};
use bartizan_channel::{ChannelError, authority};
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, RwLock};

/// Most bytes of a certificate request.
const REQUEST_BYTES: usize = 16 << 10;

/// Milliseconds between two renewals of a device, so that the holder of its key cannot fill the register.
const RENEWALS_APART: u64 = 3_600_000;

/// Issues certificates to devices.
#[derive(Debug)]
pub struct Enroller {
    authority: Authority,
    attempts: Attempts,
    days: u64,
    /// Time of each device's last renewal, in milliseconds of a monotonic clock; at most one entry per
    /// device.
    renewed: HashMap<DeviceId, u64>,
}

impl Enroller {
    /// An enroller with the authority and its folder's tokens. Certificates are valid for `days`.
    #[must_use]
    pub fn new(authority: Authority, days: u64) -> Self {
        Enroller { authority, attempts: Attempts::new(0), days, renewed: HashMap::new() }
    }

    /// Answers a certificate request.
    ///
    /// # Errors
    /// The request is refused.
    pub fn enrol(
        &mut self,
        now: Now,
        source: &str,
        enrol: &Enrol,
        certified: Option<&DeviceId>,
    ) -> Result<Enrolled, EnrolRefusal> {
        let refusal = |code, message: String, retry_ms| EnrolRefusal { code, message, retry_ms };
        let wait = self.attempts.wait(source, now.ms);
        if wait > 0 {
            let what = format!("too many attempts failed; wait {} s", wait.div_ceil(1_000));
            return Err(refusal(RefuseCode::Rate, what, u32::try_from(wait).unwrap_or(u32::MAX)));
        }
        if enrol.csr.len() > REQUEST_BYTES {
            self.attempts.failed(source);
            return Err(refusal(RefuseCode::Token, "the request is too long".to_owned(), 0));
        }
        let device = enrol.device.as_str();
        let issued = match (&enrol.token, certified) {
            (Some(token), _) => match self.authority.enrol(token, device, &enrol.csr, now.unix, self.days) {
                Ok(issued) => Ok(issued),
                Err(IssuanceError::Certificate(error)) => Err(error),
                Err(IssuanceError::Token(error)) => {
                    self.attempts.failed(source);
                    let code = if error == EnrolmentTokenError::Bad {
                        RefuseCode::Token
                    } else {
                        RefuseCode::Unavailable
                    };
                    return Err(refusal(code, error.to_string(), 0));
                }
            },
            (None, Some(device)) if *device == enrol.device => {
                let last = self.renewed.get(device).copied();
                if last.is_some_and(|last| now.ms < last.saturating_add(RENEWALS_APART)) {
                    let what = "the device received a certificate a moment ago".to_owned();
                    return Err(refusal(RefuseCode::Rate, what, 60_000));
                }
                self.renewed.insert(device.clone(), now.ms);
                match self.authority.renew(device.as_str(), &enrol.csr, now.unix, self.days) {
                    Err(ChannelError::Unknown(what)) => return Err(refusal(RefuseCode::Revoked, what, 0)),
                    issued => issued,
                }
            }
            (None, _) => {
                self.attempts.failed(source);
                let what = format!(
                    "only `{}` itself, or a valid token for it, can get its certificate",
                    enrol.device
                );
                return Err(refusal(RefuseCode::Identity, what, 0));
            }
        };
        let enrolled = issued.and_then(|issued| self.enrolled(now, issued));
        enrolled.map_err(|error| refusal(RefuseCode::Unavailable, error.to_string(), 60_000))
    }

    fn enrolled(&self, now: Now, issued: Issued) -> Result<Enrolled, ChannelError> {
        Ok(Enrolled { certificate: issued.certificate, authorities: self.authority.trusted(now.unix)? })
    }
}

/// The revoked certificates of the authority's register, for handshakes and sessions.
#[derive(Clone, Debug)]
pub struct Revocations {
    authority: Authority,
    known: Arc<RwLock<(HashSet<String>, Option<Stamp>)>>,
}

/// Identifies a version of the register file: it is replaced on change, so inode or times differ.
type Stamp = (u64, i64, i64, u64);

impl Revocations {
    /// Reads the register.
    ///
    /// # Errors
    /// The register cannot be read.
    pub fn new(authority: Authority) -> Result<Self, ChannelError> {
        let revocations = Revocations { authority, known: Arc::default() };
        revocations.refresh()?;
        Ok(revocations)
    }

    /// Reads the register again if it has changed. If it cannot be read, the revocations read before still
    /// apply.
    ///
    /// # Errors
    /// The register cannot be read.
    pub fn refresh(&self) -> Result<(), ChannelError> {
        let path = self.authority.folder().join(authority::REGISTER);
        let stamp = std::fs::metadata(path)
            .ok()
            .map(|data| (data.ino(), data.mtime(), data.mtime_nsec(), data.len()));
        if stamp.is_some() && self.known.read().is_ok_and(|known| known.1 == stamp) {
            return Ok(());
        }
        let revoked = self.authority.revoked()?;
        if let Ok(mut known) = self.known.write() {
            *known = (revoked, stamp);
        }
        Ok(())
    }

    /// Whether a certificate is revoked.
    #[must_use]
    pub fn has(&self, serial: &str) -> bool {
        self.known.read().is_ok_and(|known| known.0.contains(serial))
    }

    /// The check of revocation for TLS handshakes.
    #[must_use]
    pub fn for_tls(&self) -> RevocationCheck {
        let revocations = self.clone();
        Arc::new(move |serial| revocations.has(serial))
    }
}

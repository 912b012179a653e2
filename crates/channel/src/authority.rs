// SPDX-License-Identifier: Apache-2.0
//! The certificate authority, in a folder: `ca.key` and `ca.pem`, `trusted.pem` (with former authorities that
//! are still trusted after a rotation), `register.json` (every issued certificate, with its revocation).
//! Several processes may use it: each change holds a lock, and begins by reading the disk.

use crate::ChannelError;
use crate::certificate::{CONTROLLER_NAME, DEVICE_URI, chain, facts, fingerprint, serial};
use crate::files::{self, PUBLIC, SECRET, hex};
use crate::token::{EnrolmentTokenError, Tokens};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Seconds of a day.
pub const DAY: u64 = 86_400;

/// Tolerated difference of clocks, in seconds: certificates are valid from that much earlier.
const SLACK: u64 = 300;

/// Seconds for which expired certificates stay in the register.
const KEPT: u64 = 90 * DAY;

/// Role of devices in the register.
const DEVICE: &str = "device";

const KEY: &str = "ca.key";
const CERTIFICATE: &str = "ca.pem";
const TRUSTED: &str = "trusted.pem";
/// The file with all issued certificates.
pub const REGISTER: &str = "register.json";

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuedCertificate {
    /// Serial number, in hexadecimal digits.
    pub serial: String,
    /// `device` or `controller`.
    pub role: String,
    /// Id or name of the holder.
    pub name: String,
    /// Expiry, in seconds since 1970.
    pub valid_until: u64,
    /// Time of the revocation, in seconds since 1970.
    pub revoked: Option<u64>,
}

/// A former authority, trusted until its expiry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Retired {
    certificate: String,
    until: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Register {
    certificates: Vec<IssuedCertificate>,
    retired: Vec<Retired>,
}

/// Key and certificate chain, in PEM.
#[derive(Clone)]
pub struct Issued {
    /// The private key, if the authority made it.
    pub key: Option<String>,
    /// The certificate, followed by the authority's.
    pub certificate: String,
    /// The certificate's serial number.
    pub serial: String,
}

/// Certificates and tokens of a device that were revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdrawn {
    /// Number of certificates that were not revoked before.
    pub certificates: usize,
    /// Number of one-time tokens that were still usable.
    pub tokens: usize,
}

/// Why a device gets no certificate for its token.
#[derive(Debug, thiserror::Error)]
pub enum IssuanceError {
    /// The token is refused.
    #[error(transparent)]
    Token(#[from] EnrolmentTokenError),
    /// The certificate cannot be made or registered.
    #[error(transparent)]
    Certificate(#[from] ChannelError),
}

/// A certificate authority.
#[derive(Clone, Debug)]
pub struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Makes a new authority in a folder without one.
    ///
    /// # Errors
    /// The folder has an authority, or cannot be written.
    pub fn make(folder: &Path, now: u64, days: u64) -> Result<Self, ChannelError> {
        files::make_folder(folder)?;
        let _held = files::hold(folder)?;
        if folder.join(KEY).exists() || folder.join(REGISTER).exists() {
            let what = "the folder has an authority already; `rotate` makes a new key for it".to_owned();
            return Err(ChannelError::Content { path: folder.to_owned(), what });
        }
        let authority = Authority { folder: folder.to_owned() };
        authority.save(&Register::default())?;
        authority.new_key(now, days)?;
        authority.save_trusted(&Register::default(), now)?;
        Ok(authority)
    }

    /// Opens the authority in a folder.
    ///
    /// # Errors
    /// The folder has no authority.
    pub fn open(folder: &Path) -> Result<Self, ChannelError> {
        let authority = Authority { folder: folder.to_owned() };
        authority.register()?;
        files::read(folder, CERTIFICATE)?;
        Ok(authority)
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn new_key(&self, now: u64, days: u64) -> Result<(), ChannelError> {
        let key = KeyPair::generate().map_err(ChannelError::certificate("cannot make a key"))?;
        let (mut params, _) = params(&format!("Bartizan authority {now}"), now, days)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let made = params
            .self_signed(&key)
            .map_err(ChannelError::certificate("cannot make the authority's certificate"))?;
        files::replace(&self.folder, KEY, SECRET, key.serialize_pem().as_bytes())?;
        files::replace(&self.folder, CERTIFICATE, PUBLIC, made.pem().as_bytes())
    }

    fn register(&self) -> Result<Register, ChannelError> {
        let text = files::read(&self.folder, REGISTER)?;
        serde_json::from_str(&text).map_err(|error| ChannelError::Content {
            path: self.folder.join(REGISTER),
            what: error.to_string(),
        })
    }

    fn save(&self, register: &Register) -> Result<(), ChannelError> {
        let text = serde_json::to_vec_pretty(register)
            .map_err(|error| ChannelError::Certificate(error.to_string()))?;
        files::replace(&self.folder, REGISTER, SECRET, &text)
    }

    fn save_trusted(&self, register: &Register, now: u64) -> Result<(), ChannelError> {
        let mut text = files::read(&self.folder, CERTIFICATE)?;
        let hold = register.retired.iter().filter(|retired| retired.until > now);
        hold.for_each(|retired| text.push_str(&retired.certificate));
        files::replace(&self.folder, TRUSTED, PUBLIC, text.as_bytes())
    }

    /// The authorities trusted at `now`, in PEM.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn trusted(&self, now: u64) -> Result<String, ChannelError> {
        let mut text = files::read(&self.folder, CERTIFICATE)?;
        let register = self.register()?;
        let hold = register.retired.iter().filter(|retired| retired.until > now);
        hold.for_each(|retired| text.push_str(&retired.certificate));
        Ok(text)
    }

    /// Issues a new key and certificate for a controller.
    ///
    /// # Errors
    /// The certificate cannot be made or registered.
    pub fn issue_controller(&self, name: &str, now: u64, days: u64) -> Result<Issued, ChannelError> {
        let key = KeyPair::generate().map_err(ChannelError::certificate("cannot make a key"))?;
        let (mut params, serial) = params(name, now, days)?;
        let dns = CONTROLLER_NAME.try_into().map_err(ChannelError::certificate("the controller's name"))?;
        params.subject_alt_names = vec![SanType::DnsName(dns)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let _held = files::hold(&self.folder)?;
        let (issuer, authority) = self.issuer()?;
        let made = params
            .signed_by(&key, &issuer)
            .map_err(ChannelError::certificate("the certificate cannot be signed"))?;
        self.note("controller", name, &serial, now, now.saturating_add(days.saturating_mul(DAY)))?;
        let certificate = format!("{}{authority}", made.pem());
        Ok(Issued { key: Some(key.serialize_pem()), certificate, serial })
    }

    /// Issues a certificate for a device. Of the request, only the public key is used.
    ///
    /// # Errors
    /// The request cannot be read or is not signed by its key; or the certificate cannot be made or
    /// registered.
    pub fn issue_device(
        &self,
        device: &str,
        request: &str,
        now: u64,
        days: u64,
    ) -> Result<Issued, ChannelError> {
        let _held = files::hold(&self.folder)?;
        self.issue_held(device, request, now, days)
    }

    /// Issues a certificate for a one-time token, which is used up. Both happen under one lock: if the device
    /// is revoked meanwhile, either the certificate is revoked or the token is gone.
    ///
    /// # Errors
    /// The token is refused; or as for [`Authority::issue_device`].
    pub fn enrol(
        &self,
        token: &str,
        device: &str,
        request: &str,
        now: u64,
        days: u64,
    ) -> Result<Issued, IssuanceError> {
        let _held = files::hold(&self.folder)?;
        Tokens::new(&self.folder).spend_held(token, device, request, now)?;
        Ok(self.issue_held(device, request, now, days)?)
    }

    /// Issues a certificate for a device that presents its current one: its session may be older than a
    /// revocation a moment ago.
    ///
    /// # Errors
    /// All certificates of the device are revoked; or as for [`Authority::issue_device`].
    pub fn renew(&self, device: &str, request: &str, now: u64, days: u64) -> Result<Issued, ChannelError> {
        let _held = files::hold(&self.folder)?;
        let register = self.register()?;
        let mut own =
            register.certificates.iter().filter(|e| e.role == DEVICE && e.name == device).peekable();
        // A certificate that is not in the register may be newer than a register restored from a backup.
        if own.peek().is_some() && own.all(|entry| entry.revoked.is_some()) {
            let what = format!("the certificates of `{device}` are revoked; enrol it again with a new token");
            return Err(ChannelError::Unknown(what));
        }
        self.issue_held(device, request, now, days)
    }

    /// Issues a device's certificate; the caller holds the lock.
    fn issue_held(&self, device: &str, request: &str, now: u64, days: u64) -> Result<Issued, ChannelError> {
        let mut request = CertificateSigningRequestParams::from_pem(request)
            .map_err(ChannelError::certificate("the request for a certificate cannot be read"))?;
        let (mut params, serial) = params(device, now, days)?;
        let uri = format!("{DEVICE_URI}{device}");
        let uri = uri.try_into().map_err(ChannelError::certificate("the device's id"))?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        request.params = params;
        let (issuer, authority) = self.issuer()?;
        let made = request
            .signed_by(&issuer)
            .map_err(ChannelError::certificate("the certificate cannot be signed"))?;
        self.note(DEVICE, device, &serial, now, now.saturating_add(days.saturating_mul(DAY)))?;
        Ok(Issued { key: None, certificate: format!("{}{authority}", made.pem()), serial })
    }

    fn issuer(&self) -> Result<(Issuer<'static, KeyPair>, String), ChannelError> {
        let key = KeyPair::from_pem(&files::read(&self.folder, KEY)?)
            .map_err(ChannelError::certificate("the authority's key cannot be read"))?;
        let pem = files::read(&self.folder, CERTIFICATE)?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key)
            .map_err(ChannelError::certificate("the authority's certificate cannot be read"))?;
        Ok((issuer, pem))
    }

    /// Registers a certificate before it is handed out; the caller holds the lock.
    fn note(
        &self,
        role: &str,
        name: &str,
        serial: &str,
        now: u64,
        valid_until: u64,
    ) -> Result<(), ChannelError> {
        let mut register = self.register()?;
        register.certificates.retain(|entry| entry.valid_until.saturating_add(KEPT) > now);
        let (serial, role, name) = (serial.to_owned(), role.to_owned(), name.to_owned());
        register.certificates.push(IssuedCertificate { serial, role, name, valid_until, revoked: None });
        self.save(&register)
    }

    /// Makes a new key for the authority; certificates of the old one stay valid for `overlap_days`. Agents
    /// get the new authority when they renew their certificates, so the overlap must be longer than these are
    /// valid.
    ///
    /// # Errors
    /// The key cannot be made or written.
    pub fn rotate(&self, now: u64, days: u64, overlap_days: u64) -> Result<(), ChannelError> {
        let _held = files::hold(&self.folder)?;
        let mut register = self.register()?;
        register.retired.retain(|retired| retired.until > now);
        let until = now.saturating_add(overlap_days.saturating_mul(DAY));
        register.retired.push(Retired { certificate: files::read(&self.folder, CERTIFICATE)?, until });
        // The old authority is saved first: a crash between the two steps invalidates no certificate.
        self.save(&register)?;
        self.new_key(now, days)?;
        self.save_trusted(&register, now)
    }

    /// Revokes a device's certificate by serial number, or all certificates of a device by its id; and
    /// removes the device's one-time tokens, with which the holder of its key could get another certificate.
    /// Controllers check revocations, agents do not, so a controller's certificate cannot be revoked: after
    /// the theft of its key the authority has to be rotated.
    ///
    /// # Errors
    /// There is neither certificate nor token, the certificate is a controller's, or the register cannot be
    /// written.
    pub fn revoke(&self, which: &str, now: u64) -> Result<Withdrawn, ChannelError> {
        let _held = files::hold(&self.folder)?;
        let mut register = self.register()?;
        let named = |entry: &&mut IssuedCertificate| entry.serial == which || entry.name == which;
        let mut found: Vec<&mut IssuedCertificate> = register.certificates.iter_mut().filter(named).collect();
        let known = !found.is_empty();
        found.retain(|entry| entry.role == DEVICE);
        let device = found.first().map_or(which, |entry| &entry.name).to_owned();
        // Tokens first: if the next step fails, the caller repeats the call, and no certificate was issued
        // meanwhile.
        let tokens = Tokens::new(&self.folder).drop_held(&device, now)?;
        if found.is_empty() && tokens == 0 {
            return Err(nothing_to_revoke(which, known));
        }
        found.retain(|entry| entry.revoked.is_none());
        let certificates = found.len();
        found.into_iter().for_each(|entry| entry.revoked = Some(now));
        self.save(&register)?;
        Ok(Withdrawn { certificates, tokens })
    }

    /// All issued certificates.
    ///
    /// # Errors
    /// The register cannot be read.
    pub fn list(&self) -> Result<Vec<IssuedCertificate>, ChannelError> {
        Ok(self.register()?.certificates)
    }

    /// Serial numbers of the revoked certificates.
    ///
    /// # Errors
    /// The register cannot be read.
    pub fn revoked(&self) -> Result<std::collections::HashSet<String>, ChannelError> {
        let revoked = self.list()?.into_iter().filter(|entry| entry.revoked.is_some());
        Ok(revoked.map(|entry| entry.serial).collect())
    }

    /// SHA-256 of the authority's certificate, in hexadecimal digits.
    ///
    /// # Errors
    /// The certificate cannot be read.
    pub fn fingerprint(&self) -> Result<String, ChannelError> {
        let chain = chain(&files::read(&self.folder, CERTIFICATE)?)?;
        Ok(chain.first().map(|der| hex(&fingerprint(der))).unwrap_or_default())
    }
}

/// The error if there is nothing to revoke, or only a controller's certificate (`known`).
fn nothing_to_revoke(which: &str, known: bool) -> ChannelError {
    ChannelError::Unknown(if known {
        format!(
            "`{which}` is a controller's: agents do not check revocations. If its key was stolen, rotate the authority \
             without an overlap and enrol devices again"
        )
    } else {
        format!(
            "no certificate has the serial number or name `{which}`, and no token is for it; `ca list` shows all"
        )
    })
}

/// The parameters that all certificates share, and the serial number.
fn params(name: &str, now: u64, days: u64) -> Result<(CertificateParams, String), ChannelError> {
    let time = |unix: u64| {
        time::OffsetDateTime::from_unix_timestamp(i64::try_from(unix).unwrap_or(i64::MAX)).map_err(|_| {
            ChannelError::Certificate(format!("a certificate cannot be valid for {days} days; give fewer"))
        })
    };
    let mut number: [u8; 16] = files::random()?;
    if let Some(first) = number.first_mut() {
        // Positive, and without leading zeros.
        *first = *first & 0x7f | 1;
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from_slice(&number));
    params.not_before = time(now.saturating_sub(SLACK))?;
    params.not_after = time(now.saturating_add(days.saturating_mul(DAY)))?;
    params.use_authority_key_identifier_extension = true;
    Ok((params, serial(&number)))
}

/// Parses the first certificate of a PEM text.
///
/// # Errors
/// The text has no valid certificate.
pub fn facts_of(pem: &str) -> Result<crate::certificate::Facts, ChannelError> {
    let chain = chain(pem)?;
    let first = chain.first().map_or(&[][..], |der| der.as_ref());
    facts(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::NewKey;

    const NOW: u64 = 1_767_225_600;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("authority-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn request(key: &NewKey) -> String {
        key.request().expect("a request")
    }

    fn taken(result: Result<Issued, IssuanceError>) -> Result<(), EnrolmentTokenError> {
        match result {
            Ok(_) => Ok(()),
            Err(IssuanceError::Token(error)) => Err(error),
            Err(IssuanceError::Certificate(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn who_is_revoked_gets_no_certificate_for_a_token_of_before() {
        let folder = Folder::new("tokens");
        let authority = Authority::make(&folder.0, NOW, 10).expect("an authority");
        let tokens = Tokens::new(&folder.0);
        let token = |device| tokens.make(device, [0; 32], NOW, 3_600).expect("a token").text();
        let (used, unused, others) = (token("edge-1"), token("edge-1"), token("edge-2"));
        let key = NewKey::make().expect("a key");
        let enrol =
            |token: &str, device: &str| taken(authority.enrol(token, device, &request(&key), NOW + 1, 10));
        assert_eq!(enrol(&used, "edge-1"), Ok(()));
        assert_eq!(enrol(&used, "edge-1"), Ok(()), "its answer may have been lost");
        let withdrawn = authority.revoke("edge-1", NOW + 2).expect("revoked");
        assert_eq!(withdrawn, Withdrawn { certificates: 2, tokens: 2 });
        assert_eq!(enrol(&used, "edge-1"), Err(EnrolmentTokenError::Bad));
        assert_eq!(enrol(&unused, "edge-1"), Err(EnrolmentTokenError::Bad));
        // Also not over its open session.
        let again = authority.renew("edge-1", &request(&key), NOW + 3, 10).err().expect("it is revoked");
        assert!(again.to_string().contains("revoked"), "{again}");
        // A new token is valid again, and tokens of other devices are unchanged.
        assert_eq!(enrol(&token("edge-1"), "edge-1"), Ok(()));
        assert_eq!(enrol(&others, "edge-2"), Ok(()));
        assert!(authority.renew("edge-1", &request(&key), NOW + 4, 10).is_ok());
        // Also by its serial number.
        let (serial, unused) =
            (authority.list().expect("a list").last().expect("one").serial.clone(), token("edge-1"));
        assert_eq!(authority.revoke(&serial, NOW + 5).expect("revoked").tokens, 2);
        assert_eq!(enrol(&unused, "edge-1"), Err(EnrolmentTokenError::Bad));
    }

    #[test]
    fn a_token_of_a_device_that_was_never_enrolled_can_be_cancelled() {
        let folder = Folder::new("never");
        let authority = Authority::make(&folder.0, NOW, 10).expect("an authority");
        assert!(authority.revoke("edge-1", NOW).is_err());
        let tokens = Tokens::new(&folder.0);
        let token = tokens.make("edge-1", [0; 32], NOW, 3_600).expect("a token").text();
        assert_eq!(
            authority.revoke("edge-1", NOW).expect("cancelled"),
            Withdrawn { certificates: 0, tokens: 1 }
        );
        let key = NewKey::make().expect("a key");
        assert_eq!(
            taken(authority.enrol(&token, "edge-1", &request(&key), NOW, 10)),
            Err(EnrolmentTokenError::Bad)
        );
        // An expired token cannot be revoked.
        tokens.make("edge-1", [0; 32], NOW, 1).expect("a token");
        assert!(authority.revoke("edge-1", NOW + 1).is_err());
    }
}

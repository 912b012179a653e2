// SPDX-License-Identifier: Apache-2.0
//! The certificate that the controller presents to agents, and the authority that issued it: both are made at
//! the first start, and the certificate is renewed before it expires.

use crate::southbound::enrolment::Revocations;
use bartizan_channel::ChannelError;
use bartizan_channel::authority::{Authority, DAY, REGISTER, facts_of};
use bartizan_channel::certificate::{chain, fingerprint};
use bartizan_channel::tls::{self, HandshakeClock, ServerTls};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// File name of the certificate, as `bartizan ca controller` writes it.
pub const CERTIFICATE: &str = "controller.pem";
/// File name of the certificate's key.
pub const KEY: &str = "controller.key";
/// Validity of an authority that is made here, in days.
const AUTHORITY_DAYS: u64 = 3_650;
/// Validity of a certificate that is made here, in days.
const DAYS: u64 = 365;

/// The controller's certificate and the authority that issued it.
#[derive(Clone)]
pub struct Own {
    /// The authority.
    pub authority: Authority,
    folder: PathBuf,
    name: String,
}

/// The material of the listener's TLS settings; when it differs, new connections get new settings.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsMaterial {
    certificate: String,
    key: String,
    authorities: String,
}

impl TlsMaterial {
    /// SHA-256 of the certificate, which tokens pin.
    ///
    /// # Errors
    /// The certificate cannot be read.
    pub fn pin(&self) -> Result<[u8; 32], ChannelError> {
        Ok(chain(&self.certificate)?.first().map_or([0; 32], |first| fingerprint(first)))
    }

    /// The TLS settings of the listener.
    ///
    /// # Errors
    /// Certificate and key do not fit, or cannot be used.
    pub fn tls(
        &self,
        clock: &HandshakeClock,
        revocations: &Revocations,
    ) -> Result<Arc<ServerTls>, ChannelError> {
        tls::server(clock.clone(), &self.certificate, &self.key, &self.authorities, revocations.for_tls())
    }
}

impl Own {
    /// Opens or makes the authority in its folder, and the certificate in the state folder. Also returns
    /// messages about certificates that were created or renewed.
    ///
    /// # Errors
    /// A file cannot be made, read or written.
    pub fn open(
        state: &Path,
        authority: &Path,
        name: &str,
        now: u64,
    ) -> Result<(Self, Vec<String>), ChannelError> {
        let mut said = Vec::new();
        let there = authority.join(REGISTER).exists();
        let authority = if there {
            Authority::open(authority)?
        } else {
            let made = Authority::make(authority, now, AUTHORITY_DAYS)?;
            let (folder, fingerprint) = (authority.display(), made.fingerprint()?);
            said.push(format!(
                "made an authority in {folder} (SHA-256 {fingerprint}); keep a copy of ca.key"
            ));
            made
        };
        let own = Own { authority, folder: state.to_owned(), name: name.to_owned() };
        match own.renew(now) {
            Ok(done) => said.extend(done),
            // On a full disk, for example: with the present certificate the API answers, and agents whose
            // clocks are right connect. The renewal is tried again while the controller runs.
            Err(error) if own.is_whole() => said.push(format!(
                "the controller's certificate for agents could not be renewed, so the current one stays in use: {error}"
            )),
            Err(error) => return Err(error),
        }
        Ok((own, said))
    }

    /// Makes a certificate if there is none, if less than a third of its validity is left, or if it is not
    /// valid yet: the clock was ahead when it was made, and agents with a right clock would reject it.
    /// Returns a message if one was made.
    ///
    /// # Errors
    /// The certificate cannot be made, read or written.
    pub fn renew(&self, now: u64) -> Result<Option<String>, ChannelError> {
        let path = self.folder.join(CERTIFICATE);
        if path.exists() {
            let facts = facts_of(&read(&path)?)?;
            if facts.valid_from <= now && now.saturating_add(DAYS * DAY / 3) < facts.valid_until {
                return Ok(None);
            }
        }
        let issued = self.authority.issue_controller(&self.name, now, DAYS)?;
        let key = self.folder.join(KEY);
        // Both new files are written beside the present ones first, so that a full disk leaves these usable.
        let new_key = beside(&key, 0o600, issued.key.as_deref().unwrap_or_default())?;
        let new = beside(&path, 0o644, &issued.certificate)?;
        // A certificate without its key is useless: if the next step fails, another is made.
        let _ = fs::remove_file(&path);
        fs::rename(new_key, &key).map_err(wrong(&key))?;
        fs::rename(new, &path).map_err(wrong(&path))?;
        Ok(Some(format!("made the controller's certificate for agents, {}", path.display())))
    }

    /// Whether certificate and key exist.
    fn is_whole(&self) -> bool {
        [CERTIFICATE, KEY].iter().all(|name| self.folder.join(name).exists())
    }

    /// The certificate, key and trusted authorities to present now.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn tls_material(&self, now: u64) -> Result<TlsMaterial, ChannelError> {
        let [certificate, key] = [CERTIFICATE, KEY].map(|name| read(&self.folder.join(name)));
        Ok(TlsMaterial { certificate: certificate?, key: key?, authorities: self.authority.trusted(now)? })
    }
}

fn wrong(path: &Path) -> impl Fn(io::Error) -> ChannelError + '_ {
    move |error| ChannelError::Content { path: path.to_owned(), what: error.to_string() }
}

fn read(path: &Path) -> Result<String, ChannelError> {
    fs::read_to_string(path).map_err(wrong(path))
}

/// Writes the new content of a file beside it. Returns the path of the new file.
fn beside(path: &Path, mode: u32, text: &str) -> Result<PathBuf, ChannelError> {
    let new = path.with_added_extension("new");
    let attempt = || {
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    attempt().map_err(wrong(path))?;
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds since 1970 at which the test begins.
    const NOW: u64 = 1_800_000_000;

    #[test]
    fn a_certificate_of_a_clock_that_was_ahead_is_made_again() {
        let folder = std::env::temp_dir().join(format!("bartizan-own-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let (own, _) = Own::open(&folder, &folder.join("ca"), "main", NOW).unwrap();
        assert_eq!(own.renew(NOW + DAY).unwrap(), None);
        // The clock is ahead for a while: agents with a right clock would reject the certificate made then.
        assert!(own.renew(NOW + 300 * DAY).unwrap().is_some());
        assert!(own.renew(NOW + DAY).unwrap().is_some());
        let facts = facts_of(&own.tls_material(NOW + DAY).unwrap().certificate).unwrap();
        assert!(facts.valid_from <= NOW + DAY && facts.valid_until > NOW + 300 * DAY);
        assert_eq!(own.renew(NOW + 2 * DAY).unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_cannot_be_renewed_goes_on() {
        let folder = std::env::temp_dir().join(format!("bartizan-own-full-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let authority = folder.join("ca");
        let (own, _) = Own::open(&folder, &authority, "main", NOW).unwrap();
        let before = own.tls_material(NOW).unwrap();
        // Nothing can be written beside the files, as on a full disk.
        for name in [KEY, CERTIFICATE] {
            let new = folder.join(name).with_added_extension("new");
            fs::create_dir_all(new.join("in the way")).unwrap();
            let (own, said) = Own::open(&folder, &authority, "main", NOW + 300 * DAY).unwrap();
            assert!(said.len() == 1 && said[0].contains("could not be renewed"), "{said:?}");
            assert!(
                own.renew(NOW + 300 * DAY).is_err() && own.tls_material(NOW).unwrap() == before,
                "{name}"
            );
            fs::remove_dir_all(new).unwrap();
        }
        assert!(own.renew(NOW + 300 * DAY).unwrap().is_some());
        // Without a key the start fails.
        fs::remove_file(folder.join(KEY)).unwrap();
        fs::create_dir_all(folder.join(KEY).with_added_extension("new").join("in the way")).unwrap();
        assert!(Own::open(&folder, &authority, "main", NOW + 600 * DAY).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}

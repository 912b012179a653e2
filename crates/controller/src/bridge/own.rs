// SPDX-License-Identifier: Apache-2.0
//! The certificate that the controller shows to agents, and the authority that gave it: made with the first start, renewed before its time
//! is over.

use crate::southbound::enrolment::Revocations;
use bartizan_channel::ChannelError;
use bartizan_channel::authority::{Authority, DAY, REGISTER, facts_of};
use bartizan_channel::certificate::{chain, fingerprint};
use bartizan_channel::tls::{self, Clock, ServerTls};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The certificate, as `bartizan ca controller` names it.
pub const CERTIFICATE: &str = "controller.pem";
/// Its key.
pub const KEY: &str = "controller.key";
/// Days that an authority is valid which is made here.
const AUTHORITY_DAYS: u64 = 3_650;
/// Days that a certificate is valid which is made here.
const DAYS: u64 = 365;

/// Certificate, authority, and what was done to have them.
#[derive(Clone)]
pub struct Own {
    /// The authority.
    pub authority: Authority,
    folder: PathBuf,
    name: String,
}

/// What TLS is made of; another one means that connections get another TLS.
#[derive(Clone, PartialEq, Eq)]
pub struct Shown {
    certificate: String,
    key: String,
    authorities: String,
}

impl Shown {
    /// SHA-256 of the certificate, which tokens pin.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn pin(&self) -> Result<[u8; 32], ChannelError> {
        Ok(chain(&self.certificate)?.first().map_or([0; 32], |first| fingerprint(first)))
    }

    /// How the listener does TLS.
    ///
    /// # Errors
    /// Certificate and key do not fit, or cannot be used.
    pub fn tls(&self, clock: &Clock, revocations: &Revocations) -> Result<Arc<ServerTls>, ChannelError> {
        tls::server(clock.clone(), &self.certificate, &self.key, &self.authorities, revocations.for_tls())
    }
}

impl Own {
    /// With the authority in a folder, which is made if it is not there, and the certificate in the folder of the state. Says what it did.
    ///
    /// # Errors
    /// Something cannot be made, read or written.
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
        said.extend(own.renew(now)?);
        Ok((own, said))
    }

    /// Makes a certificate if there is none, if less than a third of its time is left, or if it is not valid yet: the clock was ahead when it was made, and agents with a right one
    /// would not take it. Says what it did.
    ///
    /// # Errors
    /// It cannot be made, read or written.
    pub fn renew(&self, now: u64) -> Result<Option<String>, ChannelError> {
        let path = self.folder.join(CERTIFICATE);
        if path.exists() {
            let facts = facts_of(&read(&path)?)?;
            if facts.valid_from <= now && now.saturating_add(DAYS * DAY / 3) < facts.valid_until {
                return Ok(None);
            }
        }
        let issued = self.authority.issue_controller(&self.name, now, DAYS)?;
        // The key first: a certificate without its key is of no use, and is made again.
        let _ = fs::remove_file(&path);
        write(&self.folder.join(KEY), 0o600, issued.key.as_deref().unwrap_or_default())?;
        write(&path, 0o644, &issued.certificate)?;
        Ok(Some(format!("made the controller's certificate for agents, {}", path.display())))
    }

    /// What there is to show now.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn shown(&self, now: u64) -> Result<Shown, ChannelError> {
        let [certificate, key] = [CERTIFICATE, KEY].map(|name| read(&self.folder.join(name)));
        Ok(Shown { certificate: certificate?, key: key?, authorities: self.authority.trusted(now)? })
    }
}

fn wrong(path: &Path) -> impl Fn(io::Error) -> ChannelError + '_ {
    move |error| ChannelError::Content { path: path.to_owned(), what: error.to_string() }
}

fn read(path: &Path) -> Result<String, ChannelError> {
    fs::read_to_string(path).map_err(wrong(path))
}

/// Writes a file, all of it or not at all.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), ChannelError> {
    let new = path.with_extension("new");
    let attempt = || {
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    attempt().map_err(wrong(path))
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
        // The clock is ahead for a while: agents with a right one would not take what it makes.
        assert!(own.renew(NOW + 300 * DAY).unwrap().is_some());
        assert!(own.renew(NOW + DAY).unwrap().is_some());
        let facts = facts_of(&own.shown(NOW + DAY).unwrap().certificate).unwrap();
        assert!(facts.valid_from <= NOW + DAY && facts.valid_until > NOW + 300 * DAY);
        assert_eq!(own.renew(NOW + 2 * DAY).unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}

// SPDX-License-Identifier: Apache-2.0
//! One-time tokens for a device's first certificate: `bzt1.ID.SECRET.PIN`, all hexadecimal. The secret is
//! stored hashed; the pin is the SHA-256 of the controller's certificate, so that no man in the middle can
//! use the token.

use crate::ChannelError;
use crate::files::{self, SECRET, hex, random};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Prefix of tokens.
const MARK: &str = "bzt1";

const FILE: &str = "tokens.json";

/// A token as the device has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: String,
    secret: String,
    pin: [u8; 32],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({})", self.id)
    }
}

impl Token {
    /// Parses a token.
    ///
    /// # Errors
    /// The text is not a token.
    pub fn parse(text: &str) -> Result<Self, ChannelError> {
        let wrong = || {
            let what = "this is not a token: it has the form bzt1.ID.SECRET.PIN; copy all of it".to_owned();
            ChannelError::Certificate(what)
        };
        let mut parts = text.trim().split('.');
        let (Some(MARK), Some(id), Some(secret), Some(pin), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let digits = |text: &str, number| text.len() == number && text.bytes().all(|c| c.is_ascii_hexdigit());
        if !digits(id, 16) || !digits(secret, 64) || !digits(pin, 64) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(pin.as_bytes().as_chunks::<2>().0) {
            let pair = std::str::from_utf8(pair).unwrap_or_default();
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Token { id: id.to_owned(), secret: secret.to_owned(), pin: bytes })
    }

    /// SHA-256 of the controller's certificate.
    #[must_use]
    pub fn pin(&self) -> [u8; 32] {
        self.pin
    }

    /// The text of the token, which the controller receives.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{MARK}.{}.{}.{}", self.id, self.secret, hex(&self.pin))
    }
}

/// A token as the controller stores it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRecord {
    id: String,
    /// SHA-256 of the secret. The secret has 256 random bits, so a slow hash is not needed, and the duration
    /// of a comparison does not reveal the secret.
    hash: String,
    device: String,
    /// Expiry, in seconds since 1970.
    expires: u64,
    /// SHA-256 of the public key of the request that used the token. The same device may repeat its request:
    /// the answer may have been lost.
    used_by: Option<String>,
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrolmentTokenError {
    /// The token does not exist, is used, has expired, or is another device's. Only the log tells which.
    #[error("the token is not valid for this device: it is unknown, used or expired; make another one")]
    Bad,
    /// The store cannot be read or written.
    #[error("the controller cannot read or write its tokens; correct that there and try again")]
    Unavailable,
}

/// The tokens in a folder.
#[derive(Clone, Debug)]
pub struct Tokens {
    folder: PathBuf,
}

impl Tokens {
    /// The tokens in a folder.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Tokens { folder: folder.to_owned() }
    }

    fn load(&self) -> Result<Vec<TokenRecord>, ChannelError> {
        let path = self.folder.join(FILE);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = files::read(&self.folder, FILE)?;
        serde_json::from_str(&text).map_err(|error| ChannelError::Content { path, what: error.to_string() })
    }

    fn save(&self, records: &[TokenRecord]) -> Result<(), ChannelError> {
        let text = serde_json::to_vec_pretty(records)
            .map_err(|error| ChannelError::Certificate(error.to_string()))?;
        files::replace(&self.folder, FILE, SECRET, &text)
    }

    /// Makes a token for a device, valid for `seconds`. It is shown once: only its hash is stored.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn make(&self, device: &str, pin: [u8; 32], now: u64, seconds: u64) -> Result<Token, ChannelError> {
        let _held = files::hold(&self.folder)?;
        let (id, secret) = (hex(&random::<8>()?), hex(&random::<32>()?));
        let mut records = self.load()?;
        records.retain(|record| record.expires > now);
        let (device, hash) = (device.to_owned(), hex(&Sha256::digest(secret.as_bytes())));
        records.push(TokenRecord {
            id: id.clone(),
            hash,
            device,
            expires: now.saturating_add(seconds),
            used_by: None,
        });
        self.save(&records)?;
        Ok(Token { id, secret, pin })
    }

    /// Uses a token up, for a device and its request. After `Ok`, no other request can use it. The caller
    /// holds the folder's lock.
    ///
    /// # Errors
    /// The token is invalid, or the store fails.
    pub(crate) fn spend_held(
        &self,
        text: &str,
        device: &str,
        request: &str,
        now: u64,
    ) -> Result<(), EnrolmentTokenError> {
        let token = Token::parse(text).map_err(|_| EnrolmentTokenError::Bad)?;
        let key = public_key(request).ok_or(EnrolmentTokenError::Bad)?;
        let mut records = self.load().map_err(|_| EnrolmentTokenError::Unavailable)?;
        let hash = hex(&Sha256::digest(token.secret.as_bytes()));
        let good = |record: &&mut TokenRecord| {
            record.id == token.id
                && record.hash == hash
                && record.device == device
                && record.expires > now
                && record.used_by.as_ref().is_none_or(|used| *used == key)
        };
        let record = records.iter_mut().find(good).ok_or(EnrolmentTokenError::Bad)?;
        record.used_by = Some(key);
        self.save(&records).map_err(|_| EnrolmentTokenError::Unavailable)
    }

    /// Removes the tokens of a device, used or not. Returns how many were still usable. The caller holds the
    /// folder's lock.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn drop_held(&self, device: &str, now: u64) -> Result<usize, ChannelError> {
        let mut records = self.load()?;
        let good = records.iter().filter(|record| record.device == device && record.expires > now).count();
        if good > 0 {
            records.retain(|record| record.device != device);
            self.save(&records)?;
        }
        Ok(good)
    }
}

/// SHA-256 of the public key in a request.
fn public_key(request: &str) -> Option<String> {
    let request = rcgen::CertificateSigningRequestParams::from_pem(request).ok()?;
    Some(hex(&Sha256::digest(rcgen::PublicKeyData::der_bytes(&request.public_key))))
}

/// Limits failures per source and minute. This bounds the work that guesses cause, not their success: a token
/// cannot be guessed, and only own failures delay a source.
#[derive(Debug)]
pub struct Attempts {
    by_source: HashMap<String, u32>,
    /// Begin of the minute, in milliseconds.
    since: u64,
}

/// Most failures of one source in a minute.
pub const FAILURES: u32 = 5;

/// Most sources whose failures are remembered in a minute; failures of further ones are not counted.
pub const SOURCES: usize = 4_096;

const MINUTE: u64 = 60_000;

impl Attempts {
    /// A limit whose first minute begins at `now`, in milliseconds.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Attempts { by_source: HashMap::new(), since: now }
    }

    /// Milliseconds that a source has to wait; 0 if it may try.
    pub fn wait(&mut self, source: &str, now: u64) -> u64 {
        if now.saturating_sub(self.since) >= MINUTE {
            (self.by_source, self.since) = (HashMap::new(), now);
        }
        let failures = self.by_source.get(source).copied().unwrap_or(0);
        if failures >= FAILURES { self.since + MINUTE - now } else { 0 }
    }

    /// Counts a failure of a source. The table holds at most [`SOURCES`].
    pub fn failed(&mut self, source: &str) {
        if self.by_source.len() < SOURCES || self.by_source.contains_key(source) {
            *self.by_source.entry(source.to_owned()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_failed_waits_and_holds_up_nobody_else() {
        let mut attempts = Attempts::new(0);
        for source in 0..2 * SOURCES {
            for _ in 0..FAILURES {
                attempts.failed(&source.to_string());
            }
        }
        assert_eq!(attempts.by_source.len(), SOURCES);
        assert_eq!((attempts.wait("0", 1_000), attempts.wait("another", 1_000)), (MINUTE - 1_000, 0));
        assert_eq!(attempts.wait("0", MINUTE), 0, "the next minute");
    }
}

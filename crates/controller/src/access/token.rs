// SPDX-License-Identifier: Apache-2.0
//! Bearer tokens: `btz_ID_SECRET`, the id of 8 random bytes and the secret of 32, both in hex.
//!
//! Only the SHA-256 of the secret is kept. A plain digest is enough: nobody can try 2^256 secrets, so there
//! is nothing that a slow one would slow down. The id is no secret; it names the token in the audit log.

use crate::store::hex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const PREFIX: &str = "btz_";
const ID: usize = 16;
const SECRET: usize = 64;

/// A token as its holder has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    id: String,
    secret: String,
}

/// The system gives no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("the system gives no random numbers ({0}); without them there are no tokens")]
pub struct TokenError(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({}, ...)", self.id)
    }
}

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn random() -> Result<Self, TokenError> {
        let mut bytes = [0u8; (ID + SECRET) / 2];
        getrandom::fill(&mut bytes).map_err(|error| TokenError(error.to_string()))?;
        let (id, secret) = bytes.split_at(ID / 2);
        Ok(Secret { id: hex(id), secret: hex(secret) })
    }

    /// Reads a token; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let fits = id.len() == ID && secret.len() == SECRET && is_hex(id) && is_hex(secret);
        fits.then(|| Secret { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// The token, to be shown once.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is kept of its secret.
    #[must_use]
    pub fn hash(&self) -> String {
        hex(&Sha256::digest(self.secret.as_bytes()))
    }

    /// Whether this is the secret of which the hash was kept; takes the same time either way.
    #[must_use]
    pub fn fits(&self, kept: &str) -> bool {
        self.hash().as_bytes().ct_eq(kept.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_written_and_nothing_else_is() {
        let token = Secret::random().expect("random");
        let text = token.reveal();
        assert_eq!(text.len(), 4 + 16 + 1 + 64);
        assert_eq!(Secret::parse(&text).expect("token"), token);
        assert!(token.fits(&token.hash()));
        assert!(!token.fits(&Secret::random().expect("random").hash()));
        assert!(!token.fits(""));
        let other = [&text[..84], &text[..3], "", "btz__", &text.to_uppercase(), &format!("{text}0")]
            .map(str::to_owned);
        for wrong in other {
            assert!(Secret::parse(&wrong).is_none(), "{wrong}");
        }
        assert!(!format!("{token:?}").contains(&token.secret));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Bearer tokens: `btz_ID_SECRET`, the id of 8 random bytes and the secret of 32, both in hex.
//!
//! Only the SHA-256 of the secret is stored. A plain digest suffices: the secret has 256 random bits, so a
//! slow password hash would add nothing. The id is not secret; the audit log names tokens by it.

use crate::store::hex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const PREFIX: &str = "btz_";
const ID: usize = 16;
const SECRET: usize = 64;

/// A token with its secret, as the holder has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    id: String,
    secret: String,
}

/// The system provides no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("the system provides no random numbers ({0}); without them there are no tokens")]
pub struct TokenError(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({}, ...)", self.id)
    }
}

impl Secret {
    /// Makes a new random token.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn random() -> Result<Self, TokenError> {
        let mut bytes = [0u8; (ID + SECRET) / 2];
        getrandom::fill(&mut bytes).map_err(|error| TokenError(error.to_string()))?;
        let (id, secret) = bytes.split_at(ID / 2);
        Ok(Secret { id: hex(id), secret: hex(secret) })
    }

    /// Parses a token; `None` if the text is not a token.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let fits = id.len() == ID && secret.len() == SECRET && is_hex(id) && is_hex(secret);
        fits.then(|| Secret { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// The full text of the token, to be shown once.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }

    /// The id of the token.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The SHA-256 of the secret, in hex, as the store keeps it.
    #[must_use]
    pub fn hash(&self) -> String {
        hex(&Sha256::digest(self.secret.as_bytes()))
    }

    /// Whether a stored hash is that of this secret; compares in constant time.
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

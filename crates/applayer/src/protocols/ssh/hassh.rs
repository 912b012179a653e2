// SPDX-License-Identifier: Apache-2.0
//! HASSH and HASSHServer: MD5 over lists of algorithms in SSH_MSG_KEXINIT (RFC 4253 section 7.1).
//!
//! Source: the description at <https://github.com/salesforce/hassh> (BSD-3-Clause). The text has the methods
//! of key exchange, and the sender's direction's ciphers, MACs and compression, with `;` between them.

use crate::memory::Held as _;
use bartizan_base::Direction;
use md5::{Digest as _, Md5};

/// Length of the random bytes before the lists.
const COOKIE: usize = 16;
/// Number of lists.
const LISTS: usize = 10;
/// Length of what follows the lists: a flag and a reserved number.
const TRAILER: usize = 5;

/// A fingerprint.
#[derive(Debug)]
pub(super) struct Hassh {
    /// The lists.
    pub(super) text: Vec<u8>,
    /// MD5 of the text, in hexadecimal digits.
    pub(super) hash: String,
}

impl Hassh {
    /// Makes the fingerprint of the side that sends to `direction`, of a message without its number. `None`:
    /// the message is malformed.
    pub(super) fn of(message: &[u8], direction: Direction) -> Option<Self> {
        let mut rest = message.get(COOKIE..)?;
        let mut lists = [&[][..]; LISTS];
        for list in &mut lists {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            (*list, rest) = behind.split_at_checked(length)?;
        }
        if rest.len() < TRAILER {
            return None;
        }
        let [methods, _, to_server_cipher, to_client_cipher, to_server_mac, to_client_mac, compression @ ..] =
            lists;
        let [to_server_compression, to_client_compression, ..] = compression;
        let parts = match direction {
            Direction::ToServer => [methods, to_server_cipher, to_server_mac, to_server_compression],
            Direction::ToClient => [methods, to_client_cipher, to_client_mac, to_client_compression],
        };
        let text = parts.join(&b';');
        let digest = Md5::digest(&text);
        let hash = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Hassh { text, hash })
    }

    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        self.text.held().saturating_add(self.hash.held())
    }
}

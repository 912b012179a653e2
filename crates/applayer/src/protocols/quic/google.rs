// SPDX-License-Identifier: Apache-2.0
//! Handshake messages of Google's versions (QUIC Crypto), and their fingerprint CYU.
//!
//! Source: the QUIC Crypto document of Google, and for CYU the description in Salesforce's GQUIC analyzer
//! (BSD-3-Clause): the version and the names of the tags in order, and the MD5 of that text.

use super::header::fingerprint_version;
use crate::memory::Held as _;
use bartizan_base::Cursor;
use md5::{Digest as _, Md5};

/// Tags with a name; a message with another one is not read, as in Suricata.
const TAGS: [&[u8; 4]; 30] = [
    b"AEAD", b"CCRT", b"CCS\0", b"CETV", b"CFCW", b"CHLO", b"COPT", b"CSCT", b"CTIM", b"ICSL", b"IRTT",
    b"KEXS", b"MIDS", b"MSPC", b"NONC", b"NONP", b"PAD\0", b"PDMD", b"PUBS", b"SCID", b"SCLS", b"SFCW",
    b"SMHL", b"SNI\0", b"SNO\0", b"STK\0", b"TCID", b"UAID", b"VER\0", b"XLCT",
];

const SERVER_NAME: &[u8; 4] = b"SNI\0";
const USER_AGENT: &[u8; 4] = b"UAID";

/// The fingerprint of a client hello.
#[derive(Debug)]
pub(super) struct Cyu {
    pub(super) text: String,
    pub(super) hash: String,
}

impl Cyu {
    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        self.text.held().saturating_add(self.hash.held())
    }
}

/// Name of the server and agent of the client in a client hello.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientNames<'a> {
    pub(super) server: Option<&'a [u8]>,
    pub(super) agent: Option<&'a [u8]>,
}

/// A handshake message.
#[derive(Debug, Default)]
pub(super) struct GoogleMessage<'a> {
    tags: Vec<(&'static [u8; 4], &'a [u8])>,
}

fn tag(cursor: &mut Cursor<'_>) -> Option<&'static [u8; 4]> {
    let bytes = cursor.array::<4>()?;
    TAGS.iter().find(|tag| ***tag == bytes).copied()
}

impl<'a> GoogleMessage<'a> {
    /// Reads a message that fills `bytes`: the message's tag, the number of entries, two bytes of padding,
    /// tags with the ends of their values, values.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        tag(&mut cursor)?;
        let entries = cursor.u16_le()?;
        cursor.skip(2)?;
        let mut values = Cursor::new(cursor.rest().get(usize::from(entries).checked_mul(8)?..)?);
        let mut tags = Vec::new();
        let mut start = 0;
        for _ in 0..entries {
            let name = tag(&mut cursor)?;
            let end = cursor.u32_le()?;
            let value = values.take(usize::try_from(end.checked_sub(start)?).ok()?)?;
            start = end;
            tags.push((name, value));
        }
        values.is_empty().then_some(GoogleMessage { tags })
    }

    /// The server's name and the client's program. As in Suricata, the last value of a repeated tag counts
    /// until both are known.
    pub(super) fn names(&self) -> ClientNames<'a> {
        let mut names = ClientNames::default();
        for (tag, value) in &self.tags {
            match *tag {
                SERVER_NAME => names.server = Some(value),
                USER_AGENT => names.agent = Some(value),
                _ => {}
            }
            if names.server.is_some() && names.agent.is_some() {
                break;
            }
        }
        names
    }

    /// The fingerprint, for a version that has one.
    pub(super) fn cyu(&self, version: u32) -> Option<Cyu> {
        let mut text = fingerprint_version(version)?.to_owned();
        for (position, (tag, _)) in self.tags.iter().enumerate() {
            text.push(if position == 0 { ',' } else { '-' });
            text.extend(tag.iter().filter(|byte| **byte != 0).map(|byte| char::from(*byte)));
        }
        if self.tags.is_empty() {
            text.push(',');
        }
        let hash = Md5::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Cyu { text, hash })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(entries: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
        let mut bytes = [&b"CHLO"[..], &(entries.len() as u16).to_le_bytes(), &[0, 0]].concat();
        let mut end = 0u32;
        for (tag, value) in entries {
            end += value.len() as u32;
            bytes.extend_from_slice(*tag);
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        entries.iter().for_each(|(_, value)| bytes.extend_from_slice(value));
        bytes
    }

    #[test]
    fn published_fingerprint() {
        // An example of the analyzer's description.
        let names: [&[u8; 4]; 9] =
            [b"PAD\0", b"SNI\0", b"VER\0", b"CCS\0", b"PDMD", b"ICSL", b"MIDS", b"CFCW", b"SFCW"];
        let entries: Vec<(&[u8; 4], &[u8])> = names.iter().map(|name| (*name, &b"v"[..])).collect();
        let bytes = message(&entries);
        let cyu =
            GoogleMessage::read(&bytes).and_then(|message| message.cyu(0x5130_3433)).expect("a fingerprint");
        assert_eq!(cyu.text, "43,PAD-SNI-VER-CCS-PDMD-ICSL-MIDS-CFCW-SFCW");
        assert_eq!(cyu.hash, "e030dea1f2eea44ac7db5fe4de792acd");
    }

    #[test]
    fn broken_messages_are_refused() {
        let good = message(&[(b"SNI\0", b"a.test"), (b"UAID", b"agent")]);
        let read = GoogleMessage::read(&good).expect("a message");
        assert_eq!(read.names(), ClientNames { server: Some(b"a.test"), agent: Some(b"agent") });
        let repeated = message(&[(b"SNI\0", b"a"), (b"SNI\0", b"b"), (b"UAID", b"c"), (b"UAID", b"d")]);
        let read_again = GoogleMessage::read(&repeated).expect("a message");
        assert_eq!(read_again.names(), ClientNames { server: Some(b"b"), agent: Some(b"c") });
        assert!(read.cyu(1).is_none());
        for end in 0..good.len() {
            assert!(GoogleMessage::read(&good[..end]).is_none(), "{end}");
        }
        let mut falling = good.clone();
        falling[20] = 1;
        assert!(GoogleMessage::read(&falling).is_none());
        assert!(GoogleMessage::read(&message(&[(b"NEW\0", b"x")])).is_none());
        assert!(GoogleMessage::read(&[good.as_slice(), b"x"].concat()).is_none());
    }
}

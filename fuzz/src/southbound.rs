// SPDX-License-Identifier: Apache-2.0
//! Messages of the southbound protocol.

use crate::planted::planted;
use bartizan_api::southbound::{
    DecodeError, FIRST_VERSION, MessageDecoder, PolicyMessage, SouthboundMessage, VERSIONS,
};

/// Decodes the bytes whole and in pieces: the results are equal, and a message is equal after being written
/// and read again.
pub fn run(data: &[u8]) {
    // The version in the first head is the agreed one.
    let version = data.first().copied().filter(|first| VERSIONS.contains(first)).unwrap_or(FIRST_VERSION);
    let (whole, end) = decode(version, &mut data.chunks(data.len().max(1)));
    let (pieces, piecewise) = decode(version, &mut data.chunks(7));
    assert_eq!(whole, pieces);
    assert_eq!(end, piecewise);
    for message in whole {
        planted(
            matches!(&message, SouthboundMessage::Policy(_, PolicyMessage::Delete(key)) if key.as_str() == "x"),
        );
        // A compressed message, or one with spaces, may be too long when it is written plainly; no other may
        // fail.
        let Ok(bytes) = message.encode(version) else { continue };
        let (again, end) = decode(version, &mut bytes.chunks(bytes.len()));
        assert_eq!((again, end), (vec![message], None));
    }
}

fn decode(
    version: u8,
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> (Vec<SouthboundMessage>, Option<DecodeError>) {
    let mut decoder = MessageDecoder::default();
    decoder.agree(version);
    let mut messages = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

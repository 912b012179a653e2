// SPDX-License-Identifier: Apache-2.0
//! Frames of Initial packets (RFC 9000 section 19) and of Google's versions.

use super::header::varint;
use bartizan_base::Cursor;

const PADDING: u64 = 0x00;
const PING: u64 = 0x01;
const ACK: u64 = 0x02;
const ACK_ECN: u64 = 0x03;
const CRYPTO: u64 = 0x06;
/// Google's CRYPTO frame; in versions 1 and 2 a STREAM frame, which Initial packets may not have.
const GOOGLE_CRYPTO: u64 = 0x08;
const CONNECTION_CLOSE: u64 = 0x1c;

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuicFrame<'a> {
    /// Handshake bytes.
    Crypto { offset: u64, data: &'a [u8] },
    /// A frame of Google's versions that may contain a handshake message.
    Google(&'a [u8]),
    /// A frame without content for rules.
    Other,
}

/// The frames of a packet, until the end or a frame that cannot be read.
pub(super) struct FrameReader<'a> {
    cursor: Cursor<'a>,
    strict: bool,
    /// A frame could not be read.
    pub(super) broken: bool,
}

impl<'a> FrameReader<'a> {
    /// `strict`: frames are read as receivers of versions 1 and 2 do, with types of any length; else as
    /// Suricata does, with Google's frames and types of one byte.
    pub(super) fn new(bytes: &'a [u8], strict: bool) -> Self {
        FrameReader { cursor: Cursor::new(bytes), strict, broken: false }
    }

    fn frame(&mut self) -> Option<QuicFrame<'a>> {
        let cursor = &mut self.cursor;
        let kind = if self.strict { varint(cursor)? } else { u64::from(cursor.u8()?) };
        match kind {
            _ if !self.strict && kind & 0x80 != 0 => google_stream(kind as u8, cursor),
            PADDING => {
                let zeros = cursor.rest().iter().take_while(|byte| **byte == 0).count();
                cursor.skip(zeros)?;
                Some(QuicFrame::Other)
            }
            PING => Some(QuicFrame::Other),
            ACK | ACK_ECN => acknowledgement(kind, cursor),
            CRYPTO => {
                let offset = varint(cursor)?;
                let length = usize::try_from(varint(cursor)?).ok()?;
                Some(QuicFrame::Crypto { offset, data: cursor.take(length)? })
            }
            GOOGLE_CRYPTO if !self.strict => {
                varint(cursor)?;
                let length = usize::try_from(varint(cursor)?).ok()?;
                Some(QuicFrame::Google(cursor.take(length)?))
            }
            CONNECTION_CLOSE if self.strict => {
                varint(cursor)?;
                varint(cursor)?;
                let length = usize::try_from(varint(cursor)?).ok()?;
                cursor.skip(length)?;
                Some(QuicFrame::Other)
            }
            // The length of other frames is not known. A receiver closes the connection.
            _ => {
                cursor.skip(cursor.len())?;
                Some(QuicFrame::Other)
            }
        }
    }
}

impl<'a> Iterator for FrameReader<'a> {
    type Item = QuicFrame<'a>;

    fn next(&mut self) -> Option<QuicFrame<'a>> {
        if self.broken || self.cursor.is_empty() {
            return None;
        }
        let frame = self.frame();
        self.broken = frame.is_none();
        frame
    }
}

fn acknowledgement<'a>(kind: u64, cursor: &mut Cursor<'a>) -> Option<QuicFrame<'a>> {
    // The largest number and the delay.
    varint(cursor)?;
    varint(cursor)?;
    let ranges = varint(cursor)?;
    varint(cursor)?;
    // Each range takes at least two bytes: the loop ends with the packet.
    for _ in 0..ranges {
        varint(cursor)?;
        varint(cursor)?;
    }
    if kind == ACK_ECN {
        for _ in 0..3 {
            varint(cursor)?;
        }
    }
    Some(QuicFrame::Other)
}

/// A STREAM frame of Google's versions; its type has the bits 1fdoooss.
fn google_stream<'a>(kind: u8, cursor: &mut Cursor<'a>) -> Option<QuicFrame<'a>> {
    cursor.skip(usize::from(kind & 3).saturating_add(1))?;
    let offset = usize::from(kind >> 2 & 7);
    cursor.skip(if offset == 0 { 0 } else { offset.saturating_add(1) })?;
    let length = if kind & 0x20 != 0 { usize::from(cursor.u16()?) } else { cursor.len() };
    Some(QuicFrame::Google(cursor.take(length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], strict: bool) -> (Vec<QuicFrame<'_>>, bool) {
        let mut reader = FrameReader::new(bytes, strict);
        let frames = reader.by_ref().collect();
        (frames, reader.broken)
    }

    #[test]
    fn frames_of_initial_packets() {
        let bytes = [
            &[0, 0, 0][..],
            &[1],
            &[2, 0x40, 9, 0, 1, 3, 0, 2],
            &[3, 9, 0, 0, 3, 1, 2, 3],
            &[6, 0x40, 5, 2, b'h', b'i'],
            &[0x1c, 0, 6, 2, b'n', b'o'],
            &[1],
        ]
        .concat();
        let crypto = QuicFrame::Crypto { offset: 5, data: b"hi" };
        let other = QuicFrame::Other;
        assert_eq!(read(&bytes, true), (vec![other, other, other, other, crypto, other, other], false));
        // Suricata does not read behind the end of the connection.
        assert_eq!(read(&bytes, false).0.len(), 6);
        for (broken, strict) in
            [(&[6, 0, 3, 1, 2][..], true), (&[2, 0, 0, 9, 0, 1, 1], false), (&[0x86, 1], false)]
        {
            assert!(read(broken, strict).1, "{broken:x?}");
        }
    }

    #[test]
    fn types_of_two_bytes_are_read_as_receivers_do() {
        let long = [0x40, 6, 0, 1, b'x'];
        assert_eq!(read(&long, true).0, [QuicFrame::Crypto { offset: 0, data: b"x" }]);
        assert_eq!(read(&long, false).0, [QuicFrame::Other]);
    }

    #[test]
    fn frames_of_google() {
        assert_eq!(read(&[0x80, 1, b'a', b'b'], false).0, [QuicFrame::Google(b"ab")]);
        assert_eq!(
            read(&[0xa4, 1, 0, 0, 0, 1, b'a', 1], false).0,
            [QuicFrame::Google(b"a"), QuicFrame::Other]
        );
        assert_eq!(read(&[8, 0, 1, b'c', 1], false).0, [QuicFrame::Google(b"c"), QuicFrame::Other]);
    }
}

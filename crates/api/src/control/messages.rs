// SPDX-License-Identifier: Apache-2.0
//! Splits a stream of bytes into messages: finds where each object ends, without parsing it.

/// Why a stream yields no further message: the connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The message does not begin with an object.
    #[error(
        "a message is one JSON object, and this one begins with the byte {0:#04x}; send {{\"command\": \"command-list\"}}"
    )]
    NoObject(u8),
    /// A control character, such as a line end, is within a text.
    #[error(
        "the message has the control character {0:#04x} in a string; write it as JSON does (\\n, \\t, \\u0000)"
    )]
    Control(u8),
    /// The message exceeds the bound.
    #[error("the message has more than {0} bytes; send a shorter one")]
    TooLong(usize),
}

/// Joins pieces of a stream and yields whole messages. Holds at most one message of the longest size and one
/// piece.
#[derive(Debug)]
pub struct Messages {
    held: Vec<u8>,
    /// Number of held bytes that were scanned.
    scanned: usize,
    /// Number of open objects at that place.
    depth: usize,
    in_text: bool,
    /// Whether the previous byte was a backslash within a text.
    escaped: bool,
    most: usize,
}

impl Messages {
    /// A splitter for messages of at most `most` bytes.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Messages { held: Vec::new(), scanned: 0, depth: 0, in_text: false, escaped: false, most }
    }

    /// Adds the next piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
    }

    /// Whether an incomplete message has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.held.iter().any(|byte| !is_blank(*byte))
    }

    /// The next whole message. Call until there is none before pushing the next piece.
    ///
    /// # Errors
    /// [`Broken`]; no further message will come.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        if self.scanned == 0 {
            let blanks = self.held.iter().take_while(|byte| is_blank(**byte)).count();
            self.held.drain(..blanks);
        }
        while let Some(byte) = self.held.get(self.scanned).copied() {
            if self.scanned >= self.most {
                return Err(Broken::TooLong(self.most));
            }
            self.take(byte)?;
            self.scanned += 1;
            if self.depth == 0 {
                let rest = self.held.split_off(self.scanned);
                self.scanned = 0;
                return Ok(Some(core::mem::replace(&mut self.held, rest)));
            }
        }
        Ok(None)
    }

    fn take(&mut self, byte: u8) -> Result<(), Broken> {
        if self.depth == 0 && byte != b'{' {
            return Err(Broken::NoObject(byte));
        }
        if self.in_text {
            let escaped = core::mem::take(&mut self.escaped);
            match byte {
                0..0x20 => return Err(Broken::Control(byte)),
                b'\\' if !escaped => self.escaped = true,
                b'"' if !escaped => self.in_text = false,
                _ => {}
            }
            return Ok(());
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' => self.depth += 1,
            // An object is open, or the message would not have begun with one.
            b'}' => self.depth -= 1,
            _ => {}
        }
        Ok(())
    }
}

/// Whether JSON allows the byte between values.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All messages of a stream in pieces, and its end state.
    fn read(pieces: &[&[u8]], most: usize) -> (Vec<String>, Result<bool, Broken>) {
        let mut messages = Messages::new(most);
        let mut whole = Vec::new();
        for piece in pieces {
            messages.push(piece);
            loop {
                match messages.next_message() {
                    Ok(Some(message)) => whole.push(String::from_utf8(message).unwrap()),
                    Ok(None) => break,
                    Err(broken) => return (whole, Err(broken)),
                }
            }
        }
        (whole, Ok(messages.has_begun()))
    }

    #[test]
    fn messages_end_where_their_objects_do() {
        let two = br#"{"version": "0.2"}{"command": "x", "arguments": {"a": "}\"{\\"}}"#;
        let expected = [r#"{"version": "0.2"}"#, r#"{"command": "x", "arguments": {"a": "}\"{\\"}}"#];
        let (whole, rest) = read(&[two], 100);
        assert_eq!((whole.as_slice(), rest), (&expected.map(String::from)[..], Ok(false)));
        let bytes: Vec<&[u8]> = two.chunks(1).collect();
        assert_eq!(read(&bytes, 100).0, expected);
        // With line ends, over several lines, and with an incomplete message.
        let (whole, rest) = read(&[b"\r\n {\n}\n\n", b"{\"a\"", b":1}\n{"], 100);
        assert_eq!((whole, rest), (vec!["{\n}".to_owned(), "{\"a\":1}".to_owned()], Ok(true)));
        assert_eq!(read(&[b" \n\t"], 100), (Vec::new(), Ok(false)));
    }

    #[test]
    fn what_is_no_message_is_told_at_once() {
        for (text, broken) in [
            (&b"GET / HTTP/1.1"[..], Broken::NoObject(b'G')),
            (b"{} x", Broken::NoObject(b'x')),
            (b"}", Broken::NoObject(b'}')),
            (b"[1]", Broken::NoObject(b'[')),
            (b"\0", Broken::NoObject(0)),
            // A text without its end does not swallow the following messages.
            (b"{\"command: 1}\n{\"command\": \"x\"}", Broken::Control(b'\n')),
        ] {
            assert_eq!(read(&[text], 100).1, Err(broken), "{text:?}");
        }
        assert_eq!(read(&[b"{       }"], 8).1, Err(Broken::TooLong(8)));
        assert_eq!(read(&[b"{      }{     }"], 8).0.len(), 2, "as long as may be");
    }

    proptest! {
        #[test]
        fn pieces_change_nothing(text in "[{}\"\\\\a \n]{0,40}", cut in 0usize..40) {
            let whole = read(&[text.as_bytes()], 30);
            let (first, second) = text.as_bytes().split_at(cut.min(text.len()));
            prop_assert_eq!(read(&[first, second], 30), whole.clone());
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            prop_assert_eq!(read(&bytes, 30), whole);
        }

        #[test]
        fn every_object_is_one_message(objects in prop::collection::vec("[a-z{}\"\\\\\n]{0,9}", 0..5)) {
            let texts: Vec<String> =
                objects.iter().map(|text| serde_json::json!({text: {"b": [text]}}).to_string()).collect();
            let stream = texts.join("\n");
            prop_assert_eq!(read(&[stream.as_bytes()], 1000), (texts, Ok(false)));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Messages out of a stream of bytes: where each object ends. What is in it is not looked at here.

/// Why no message comes out of a stream any more: the connection is of no use from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Something else than an object begins.
    #[error(
        "a message is one JSON object, and this one begins with the byte {0:#04x}; send {{\"command\": \"command-list\"}}"
    )]
    NoObject(u8),
    /// A line ends inside of a text.
    #[error(
        "the message has the control character {0:#04x} inside of a text; write it as JSON does (\\n, \\t, \\u0000)"
    )]
    Control(u8),
    /// It does not end.
    #[error("the message has more than {0} bytes; send a shorter one")]
    TooLong(usize),
}

/// Puts pieces of a stream together and gives out whole messages. Holds no more than one message of the
/// longest and one piece.
#[derive(Debug)]
pub struct Messages {
    held: Vec<u8>,
    /// So many bytes of what is held were looked at.
    looked: usize,
    /// Objects that are open there.
    depth: usize,
    in_text: bool,
    /// The byte before was a backslash inside of a text.
    escaped: bool,
    most: usize,
}

impl Messages {
    /// Of a stream whose messages have `most` bytes at most.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Messages { held: Vec::new(), looked: 0, depth: 0, in_text: false, escaped: false, most }
    }

    /// The next piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
    }

    /// Whether a message has begun that is not whole.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.held.iter().any(|byte| !is_blank(*byte))
    }

    /// The next whole message. To be called until there is none before the next piece is pushed.
    ///
    /// # Errors
    /// [`Broken`], and nothing will come any more.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        if self.looked == 0 {
            let blanks = self.held.iter().take_while(|byte| is_blank(**byte)).count();
            self.held.drain(..blanks);
        }
        while let Some(byte) = self.held.get(self.looked).copied() {
            if self.looked >= self.most {
                return Err(Broken::TooLong(self.most));
            }
            self.take(byte)?;
            self.looked += 1;
            if self.depth == 0 {
                let rest = self.held.split_off(self.looked);
                self.looked = 0;
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
            // One is open: else something else than an object began.
            b'}' => self.depth -= 1,
            _ => {}
        }
        Ok(())
    }
}

/// What JSON has between values.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All messages of a stream that comes in pieces, and how it ends.
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
        // With line ends, in several lines, and with what is no message yet.
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
            // A text without its end does not swallow what follows.
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

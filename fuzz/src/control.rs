// SPDX-License-Identifier: Apache-2.0
//! Messages on the command socket: a stream of them in pieces, as a client may send it, and answers as
//! `bartizan ctl` reads them. The first byte chooses the length of the pieces.

use crate::planted::planted;
use bartizan_api::control::{self, Broken, ControlReply, Messages, Version};

/// The most bytes of a message: few, so that the bound is met.
const MOST: usize = 256;

/// All whole messages, and the error that ends the stream.
fn read(bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<Broken>) {
    let mut messages = Messages::new(MOST);
    let mut whole = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        messages.push(piece);
        loop {
            match messages.next_message() {
                Ok(Some(message)) => {
                    assert!(message.len() <= MOST && message.starts_with(b"{") && message.ends_with(b"}"));
                    whole.push(message);
                }
                Ok(None) => break,
                Err(broken) => return (whole, Some(broken)),
            }
        }
    }
    (whole, None)
}

/// Reads the stream in pieces and at once, with equal results; and handles each message as program and client
/// do.
pub fn run(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else { return };
    let (whole, broken) = read(bytes, usize::from(*piece));
    assert_eq!((&whole, broken), (&read(bytes, bytes.len()).0, read(bytes, bytes.len()).1));
    for message in &whole {
        let _ = control::version(message);
        if let Ok(request) = control::request(message) {
            // An accepted request is accepted again, as this program writes it. Fractions are equal to about
            // their last digit.
            let again = control::request(&request.to_message()).expect("it was understood before");
            assert_eq!(again.command, request.command);
            assert!(again.arguments.keys().eq(request.arguments.keys()));
            planted(request.command == "up" && !request.arguments.is_empty());
            for argument in control::command(&request.command).map_or(&[][..], |spec| spec.arguments) {
                let _ = (request.text(argument.name), request.number(argument.name));
            }
        }
        if let Ok(reply) = ControlReply::parse(message) {
            let again =
                ControlReply::parse(&reply.to_message(Version::V2)).expect("it was understood before");
            assert_eq!((again.ok, again.message.is_null()), (reply.ok, reply.message.is_null()));
        }
    }
}

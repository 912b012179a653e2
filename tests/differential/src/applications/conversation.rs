// SPDX-License-Identifier: Apache-2.0
//! A conversation of an application protocol in the making, and the addresses in its messages.

use crate::pair::address;
use crate::scene::{Scene, Target};
use crate::talk::Message;
use bartizan_testkit::random::Random;
use std::net::IpAddr;

/// A conversation in the making.
#[derive(Default)]
pub(crate) struct Talk {
    pub messages: Vec<Message>,
    pub targets: Vec<Target>,
}

impl Talk {
    /// The client's next message.
    pub fn client(&mut self, data: impl AsRef<[u8]>) {
        self.messages.push(Message::new(true, data.as_ref().to_vec()));
    }

    /// The server's next message.
    pub fn server(&mut self, data: impl AsRef<[u8]>) {
        self.messages.push(Message::new(false, data.as_ref().to_vec()));
    }

    /// Bytes for rules to match.
    pub fn target(
        &mut self,
        proto: &'static str,
        buffer: &'static str,
        data: impl AsRef<[u8]>,
        to_server: bool,
    ) {
        self.targets.push(Target { proto, buffer, data: data.as_ref().to_vec(), to_server });
    }

    /// The messages and targets of another conversation, in the same connection.
    pub fn append(&mut self, scene: Scene) {
        self.messages.extend(scene.messages);
        self.targets.extend(scene.targets);
    }

    /// Changes some message as broken programs and networks do: cut, doubled, left out, two in one.
    pub fn disturb(&mut self, random: &mut Random) {
        if self.messages.is_empty() {
            return;
        }
        let at = random.below(self.messages.len());
        match random.below(7) {
            0 => {
                let keep = random.below(self.messages[at].data.len().max(1));
                self.messages[at].data.truncate(keep);
            }
            1 => self.messages.insert(at, self.messages[at].clone()),
            2 if self.messages.len() > 2 => drop(self.messages.remove(at)),
            3 if at + 1 < self.messages.len() => self.messages.swap(at, at + 1),
            4 => self.messages.truncate(at + 1),
            5 => {
                let length = self.messages[at].data.len();
                if length > 0 {
                    self.messages[at].data[random.below(length)] = random.below(256) as u8;
                }
            }
            _ => {
                let length = random.within(1, 12);
                let bytes = random.bytes(length);
                self.messages[at].data.extend(bytes);
            }
        }
        self.messages.retain(|message| !message.data.is_empty());
    }
}

/// Placeholders for the addresses of a pair, in the forms of FTP: replaced by [`place`].
pub(crate) const CLIENT_COMMAS: &str = "\u{1}c,";
pub(crate) const SERVER_COMMAS: &str = "\u{1}s,";
pub(crate) const CLIENT_TEXT: &str = "\u{1}c.";
pub(crate) const SERVER_TEXT: &str = "\u{1}s.";
pub(crate) const FAMILY_NUMBER: &str = "\u{1}f.";

/// Writes the addresses of a pair into its messages and targets.
pub(crate) fn place(scene: &mut Scene, number: u32, v6: bool) {
    let [client, server] = [1, 2].map(|host| address(number, v6, host));
    let commas = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().map(|byte| byte.to_string()).join(","),
        IpAddr::V6(_) => "0,0,0,0".into(),
    };
    let words = [
        (CLIENT_COMMAS, commas(client)),
        (SERVER_COMMAS, commas(server)),
        (CLIENT_TEXT, client.to_string()),
        (SERVER_TEXT, server.to_string()),
        (FAMILY_NUMBER, if v6 { "2".into() } else { "1".into() }),
    ];
    let texts = scene.messages.iter_mut().map(|message| &mut message.data);
    for text in texts.chain(scene.targets.iter_mut().map(|target| &mut target.data)) {
        if !text.contains(&1) {
            continue;
        }
        for (from, to) in &words {
            while let Some(at) = text.windows(3).position(|three| three == from.as_bytes()) {
                text.splice(at..at + 3, to.bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_pair_stand_in_messages() {
        let mut talk = Talk::default();
        talk.client(format!("PORT {CLIENT_COMMAS},1,2 {CLIENT_TEXT} {FAMILY_NUMBER}"));
        let way = crate::talk::Way::default();
        let mut scene = Scene { messages: talk.messages, way, targets: Vec::new(), beside: Vec::new() };
        place(&mut scene, 258, false);
        assert_eq!(scene.messages[0].data, b"PORT 10,1,2,1,1,2 10.1.2.1 1");
    }
}

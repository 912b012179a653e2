// SPDX-License-Identifier: Apache-2.0
//! The grammar of application protocols: conversations of SMTP, FTP, SSH, SMB and DCERPC, and rules on all of
//! their buffers, frames, states, events and numbers.
//!
//! Its pairs have numbers of their own (`--protocols smtp,ftp`), so that those of the other grammars stay.

pub(crate) mod causes;
mod dcerpc;
mod ftp;
mod mail;
mod rule;
mod smb;
mod smb_one;
mod smtp;
mod ssh;
mod writer;

use crate::make::{GROUP, pair};
use crate::order::Family;
use crate::pair::{Pair, address};
use crate::scene::{Scene, Target};
use crate::talk::Message;
use bartizan_testkit::random::Random;
use rule::by_application;
use std::net::IpAddr;

/// The protocols of the grammar.
pub const APPLICATIONS: &[Family] = &[
    Family { name: "smtp", scene: smtp::scene, conditions: smtp::CONDITIONS, rule: by_application },
    Family { name: "ftp", scene: ftp::scene, conditions: ftp::CONDITIONS, rule: by_application },
    Family { name: "ssh", scene: ssh::scene, conditions: ssh::CONDITIONS, rule: by_application },
    Family { name: "smb", scene: smb::scene, conditions: smb::CONDITIONS, rule: by_application },
    Family { name: "dcerpc", scene: dcerpc::scene, conditions: dcerpc::CONDITIONS, rule: by_application },
];

/// The grammar that makes pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grammar {
    /// Protocols of [`APPLICATIONS`] by name, whose groups alternate; none: the grammars of [`crate::make`].
    protocols: Vec<String>,
}

impl Grammar {
    /// Parses names that are separated by commas.
    ///
    /// # Errors
    ///
    /// A name that is not in [`APPLICATIONS`].
    pub fn read(names: &str) -> Result<Self, String> {
        let protocols: Vec<String> =
            names.split(',').filter(|name| !name.is_empty()).map(Into::into).collect();
        let known: Vec<&str> = APPLICATIONS.iter().map(|family| family.name).collect();
        match protocols.iter().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(format!("`{name}` has no grammar; these have one: {}", known.join(", "))),
            None => Ok(Grammar { protocols }),
        }
    }

    /// The names of the protocols, separated by commas.
    #[must_use]
    pub fn names(&self) -> String {
        self.protocols.join(",")
    }

    /// The pair with this number.
    #[must_use]
    pub fn pair(&self, seed: u64, number: u32) -> Pair {
        let count = self.protocols.len() as u32;
        if count == 0 {
            return pair(seed, number);
        }
        let group = number / GROUP;
        let name = &self.protocols[(group % count) as usize];
        let at = APPLICATIONS.iter().position(|family| family.name == name).unwrap_or_default();
        // A pair of a protocol stays the same beside other protocols, but for its number.
        let words = [1_000 + at as u64, u64::from(group / count)];
        crate::make::application(seed, &words, number, &APPLICATIONS[at])
    }
}

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
    fn protocols_have_pairs_of_their_own() {
        let both = Grammar::read("smtp,ftp").unwrap();
        let (smtp, ftp) = (Grammar::read("smtp").unwrap(), Grammar::read("ftp").unwrap());
        let loads = |pair: &Pair| pair.packets.iter().map(|one| one.describe()).collect::<Vec<_>>();
        assert!(both.pair(3, 0).name.starts_with("smtp/") && both.pair(3, 9).name.starts_with("ftp/"));
        assert_eq!(loads(&both.pair(3, 5)), loads(&smtp.pair(3, 5)));
        assert_eq!(both.pair(3, 9).name, ftp.pair(3, 1).name);
        assert_eq!(Grammar::default().pair(1, 350).digest(), pair(1, 350).digest());
        assert!(Grammar::read("smtp,gopher").unwrap_err().contains("`gopher`"));
    }

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

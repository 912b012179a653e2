// SPDX-License-Identifier: Apache-2.0
//! The grammar of application protocols: conversations of SMTP, FTP, SSH, SMB and DCERPC, and rules on all of
//! their buffers, frames, states, events and numbers.
//!
//! Its pairs have numbers of their own (`--protocols smtp,ftp`), so that those of the other grammars stay.

pub(crate) mod causes;
pub(crate) mod conversation;
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
use crate::pair::Pair;
use rule::by_application;

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
}

// SPDX-License-Identifier: Apache-2.0
//! SSH: the older keywords for the versions in an identification line. The sticky buffers (`ssh.proto`,
//! `ssh.software`, `ssh.hassh`) come from the table of the protocol.

use super::text::utf8;
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{Answer, BufferCondition, ConditionContext};
use crate::model::content::{Item, Literal};
use std::sync::Arc;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "ssh.protoversion",
        aliases: &[],
        summary: "The version of the protocol in the direction's identification line: one version, or `2_compat` for all versions that support SSH 2 (older form of `ssh.proto`).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "ssh.protoversion:VERSION|2_compat",
        example: r#"alert ssh any any -> any any (msg:"ssh.protoversion"; ssh.protoversion:2_compat; sid:1;)"#,
        note: "",
        parse: protocol_version,
    },
    Keyword {
        name: "ssh.softwareversion",
        aliases: &[],
        summary: "The software in the direction's identification line contains this (older form of `ssh.software`).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "ssh.softwareversion:TEXT",
        example: r#"alert ssh any any -> any any (msg:"ssh.softwareversion"; ssh.softwareversion:OpenSSH; sid:1;)"#,
        note: "",
        parse: software_version,
    },
];

/// The versions of a protocol that a rule accepts.
#[derive(Debug, PartialEq, Eq)]
enum SshVersionCheck {
    /// SSH 2, and 1.99, by which a server of both says that it speaks SSH 2 (RFC 4253 section 5.1).
    Two,
    /// This version.
    Exactly(Vec<u8>),
}

impl BufferCondition for SshVersionCheck {
    fn matches(&self, data: &[u8], _complete: bool, _scene: &ConditionContext<'_>) -> Answer {
        self.accepts(data).into()
    }
}

impl SshVersionCheck {
    fn accepts(&self, version: &[u8]) -> bool {
        match self {
            SshVersionCheck::Two => version.starts_with(b"2") || version.starts_with(b"1.99"),
            SshVersionCheck::Exactly(wanted) => version == wanted,
        }
    }

    fn read(text: &str) -> Result<Self, KeywordError> {
        if text.eq_ignore_ascii_case("2_compat") {
            return Ok(SshVersionCheck::Two);
        }
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(KeywordError::argument(format!("`{text}` is not a version of SSH"))
                .help("write digits and dots, as `2.0`, or `2_compat`"));
        }
        Ok(SshVersionCheck::Exactly(text.into()))
    }
}

fn protocol_version(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let check = SshVersionCheck::read(utf8(argument)?)?;
    builder.push_aside("ssh.proto", Item::Custom(Arc::new(check)))
}

fn software_version(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    builder.push_aside("ssh.software", Item::Literal(Literal::new(argument, false)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{build, refused_in};

    #[test]
    fn versions() {
        for (rule, version, holds) in [
            ("2_compat", "2.0", true),
            ("2_Compat", "1.99", true),
            ("2_compat", "1.5", false),
            ("2.0", "2.0", true),
            ("2.0", "1.99", false),
            ("1.5", "1.5", true),
        ] {
            let check = SshVersionCheck::read(rule).expect(rule);
            assert_eq!(check.accepts(version.as_bytes()), holds, "{rule} {version}");
        }
    }

    #[test]
    fn what_is_refused() {
        for (keyword, argument) in [("ssh.protoversion", "two"), ("ssh.protoversion", "")] {
            assert_eq!(
                refused_in("ssh", &[(keyword, argument)]),
                Some(RefusalCode::BadArgument),
                "{keyword}:{argument}"
            );
        }
        assert_eq!(refused_in("http", &[("ssh.softwareversion", "PuTTY")]), Some(RefusalCode::BadContext));
        let parts = build("ssh", &[("ssh.softwareversion", "PuTTY"), ("ssh.protoversion", "2.0")]);
        assert!(parts.is_ok());
    }
}

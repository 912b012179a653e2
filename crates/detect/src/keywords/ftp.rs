// SPDX-License-Identifier: Apache-2.0
//! FTP: ports and modes of data connections, replies, the command of a transfer, and announced addresses of
//! third hosts. The sticky buffers (`ftp.command`) come from the table of the protocol.

use super::number::{NumberRef, later, tx_number};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::condition::{Answer, ConditionContext, TxCondition};
use bartizan_applayer::protocols::ftp::{MODES, data};
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, PerDirection};
use core::net::IpAddr;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "ftp.dynamic_port",
        aliases: &[],
        summary: "The port of the data connection on which command and reply have agreed.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "ftp.dynamic_port:[<|>|!]N or N-M",
        example: r#"alert ftp any any -> any any (msg:"ftp.dynamic_port"; ftp.dynamic_port:<1024; sid:1;)"#,
        note: "",
        parse: |builder, argument| tx_number::<u16>(builder, "ftp.dynamic_port", argument, BOTH, &[]),
    },
    Keyword {
        name: "ftp.mode",
        aliases: &[],
        summary: "The side that opens the data connection: `active` is the server, `passive` the client.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "ftp.mode:active|passive",
        example: r#"alert ftp any any -> any any (msg:"ftp.mode"; ftp.mode:active; sid:1;)"#,
        note: "",
        parse: |builder, argument| named(builder, "ftp.mode", argument, BOTH, MODES),
    },
    Keyword {
        name: "ftp.reply_received",
        aliases: &[],
        summary: "Whether the command has a final reply.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "ftp.reply_received:yes|no",
        example: r#"alert ftp any any -> any any (msg:"ftp.reply_received"; ftp.reply_received:yes; sid:1;)"#,
        note: "Greetings, and replies to commands that have no name here, have no value.",
        parse: |builder, argument| named(builder, "ftp.reply_received", argument, TO_CLIENT, ANSWERS),
    },
    Keyword {
        name: "ftpdata_command",
        aliases: &[],
        summary: "The direction of the transfer: `retr` from the server, `stor` to the server.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "ftpdata_command:retr|stor",
        example: r#"alert ftp-data any any -> any any (msg:"ftpdata_command"; ftpdata_command:stor; sid:1;)"#,
        note: "STOU and APPE are `stor` as well. Suricata does not find their data connections.",
        parse: |builder, argument| named(builder, "ftpdata_command", argument, BOTH, data::COMMANDS),
    },
    Keyword {
        name: "ftpbounce",
        aliases: &[],
        summary: "The client announces another host's address for the data connection (PORT, EPRT).",
        argument: Argument::None,
        role: Role::Condition,
        syntax: "ftpbounce",
        example: r#"alert ftp any any -> any any (msg:"ftpbounce"; ftpbounce; sid:1;)"#,
        note: "EPRT, and so IPv6, matches as well. Suricata does not parse the address of EPRT.",
        parse: bounce,
    },
];

const BOTH: PerDirection<bool> = PerDirection::new(true, true);
const TO_SERVER: PerDirection<bool> = PerDirection::new(true, false);
const TO_CLIENT: PerDirection<bool> = PerDirection::new(false, true);

/// Names of the values of `ftp.reply_received`.
const ANSWERS: &[(&str, u64)] = &[("yes", 1), ("no", 0), ("true", 1), ("false", 0), ("on", 1), ("off", 0)];

/// Adds a condition on a number that rules know by names only.
fn named(
    builder: &mut SignatureBuilder<'_>,
    number: &str,
    argument: &[u8],
    directions: PerDirection<bool>,
    names: &[(&str, u64)],
) -> Result<(), KeywordError> {
    let is_known = names.iter().any(|(name, _)| name.as_bytes().eq_ignore_ascii_case(argument));
    if !is_known {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        let text = String::from_utf8_lossy(argument);
        return Err(KeywordError::argument(format!("`{number}` has no value `{text}`"))
            .help(format!("write one of: {}", known.join(", "))));
    }
    tx_number::<u16>(builder, number, argument, directions, names)
}

/// Matches a command that announces an address other than the client's.
struct BounceCondition {
    /// A number of FTP's transactions, which names the protocol.
    number: NumberRef,
}

impl TxCondition for BounceCondition {
    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &ConditionContext<'_>) -> Answer {
        let Some(client) = scene.facts.flow.map(|flow| flow.client.0) else { return Answer::NotYet };
        match tx.announced_address() {
            Some(address) if is_other(address, client) => Answer::Yes,
            Some(_) => Answer::No,
            None => later(tx, direction, self.number.spec.complete, scene),
        }
    }
}

/// Whether two addresses are of different hosts.
fn is_other(announced: IpAddr, client: IpAddr) -> bool {
    announced.to_canonical() != client.to_canonical()
}

fn bounce(builder: &mut SignatureBuilder<'_>, _argument: &[u8]) -> Result<(), KeywordError> {
    let number = NumberRef::named("ftp.mode")?;
    builder.push_tx(number.protocol, "ftpbounce", TO_SERVER, None, Box::new(BounceCondition { number }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{build, refused_in};

    #[test]
    fn names_of_values() {
        for (protocol, keyword, argument) in [
            ("ftp", "ftp.mode", "Active"),
            ("ftp", "ftp.reply_received", "no"),
            ("ftp-data", "ftpdata_command", "STOR"),
            ("tcp", "ftpbounce", ""),
            ("ftp", "ftp.dynamic_port", "1024-65535"),
        ] {
            assert!(build(protocol, &[(keyword, argument)]).is_ok(), "{keyword}:{argument}");
        }
        for (protocol, keyword, argument) in [
            ("ftp", "ftp.mode", "1"),
            ("ftp", "ftp.reply_received", "perhaps"),
            ("ftp-data", "ftpdata_command", "list"),
            ("ftp", "ftp.dynamic_port", "65536"),
        ] {
            assert_eq!(
                refused_in(protocol, &[(keyword, argument)]),
                Some(RefusalCode::BadArgument),
                "{keyword}:{argument}"
            );
        }
        assert_eq!(refused_in("ftp-data", &[("ftpbounce", "")]), Some(RefusalCode::BadContext));
    }

    #[test]
    fn addresses_of_other_hosts() {
        let of = |text: &str| text.parse::<IpAddr>().expect(text);
        assert!(is_other(of("10.0.0.1"), of("10.0.0.2")) && is_other(of("::1"), of("::2")));
        assert!(!is_other(of("10.0.0.1"), of("::ffff:10.0.0.1")));
    }
}

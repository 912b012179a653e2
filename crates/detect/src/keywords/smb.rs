// SPDX-License-Identifier: Apache-2.0
//! `smb.version`: the generation of a message of SMB. The sticky buffers (`smb.share`, `smb.named_pipe`) come
//! from the table of the protocol.

use super::number::{plain, tx_number};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use bartizan_base::PerDirection;

/// The keyword.
pub const KEYWORDS: &[Keyword] = &[Keyword {
    name: "smb.version",
    aliases: &[],
    summary: "The generation of the messages: 1, or 2 for SMB2 and SMB3.",
    argument: Argument::Required,
    role: Role::Condition,
    syntax: "smb.version:1|2",
    example: r#"alert smb any any -> any any (msg:"smb.version"; smb.version:1; sid:1;)"#,
    note: "",
    parse: version,
}];

fn version(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    if !matches!(plain::<u8>(argument), Ok(1 | 2)) {
        return Err(KeywordError::argument(format!("`{}` is not a version of SMB", argument.escape_ascii()))
            .help("write 1, or 2 for SMB2 and SMB3"));
    }
    tx_number::<u8>(builder, "smb.version", argument, PerDirection::new(true, true), &[])
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::{build, refused_in};

    #[test]
    fn generations() {
        for argument in ["1", "2"] {
            assert!(build("smb", &[("smb.version", argument)]).is_ok(), "{argument}");
        }
        for argument in ["0", "3", "2.1", ">1", ""] {
            let refused = refused_in("smb", &[("smb.version", argument)]);
            assert_eq!(refused, Some(RefusalCode::BadArgument), "{argument}");
        }
        assert_eq!(refused_in("http", &[("smb.version", "1")]), Some(RefusalCode::BadContext));
    }
}

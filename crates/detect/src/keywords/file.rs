// SPDX-License-Identifier: Apache-2.0
//! Files in transactions: `filename`, `filemagic`, `fileext`, `filesize`, `filemd5`, `filesha1`,
//! `filesha256`, `filestore`. `file.data` and `file.name` are sticky buffers of the protocols.
//!
//! `filestore` holds if there is a file, and marks the file; the writer of files reads the mark.

use super::number::{later, text};
use super::path::{PathSearchOrder, read};
use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, RefusalCode, Role};
use crate::compile::magic;
pub use crate::compile::magic::libmagic;
use crate::encoding::hex::from_hex;
use crate::model::buffers::BufferRef;
use crate::model::condition::{Answer, ConditionContext, TxCondition};
use crate::model::content::{Item, Literal};
use crate::model::request::{Request, StoreFiles, StoreScope};
use crate::model::signature::TxCheck;
use crate::state::dataset::SkippedEntries;
use bartizan_applayer::file::{FileState, FileTrack};
use bartizan_applayer::protocol::ProtocolId;
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::Transaction;
use bartizan_base::{Direction, PerDirection};
use bartizan_function::view::FlowView;
use bartizan_rules::UintMatch;
use std::collections::HashSet;
use std::path::Path;

/// The keywords.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "filename",
        aliases: &[],
        summary: "The file's name contains this text in any letter case (sticky: `file.name`).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: r#"filename:[!]"TEXT""#,
        example: r#"alert http any any -> any any (msg:"filename"; filename:"invoice"; sid:1;)"#,
        note: "",
        parse: name,
    },
    Keyword {
        name: "fileext",
        aliases: &[],
        summary: "The file's name ends in a dot and this text, in any letter case.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: r#"fileext:[!]"TEXT""#,
        example: r#"alert http any any -> any any (msg:"fileext"; fileext:"exe"; sid:1;)"#,
        note: "",
        parse: extension,
    },
    Keyword {
        name: "filemagic",
        aliases: &[],
        summary: "The description of the file by libmagic contains this text in any letter case (sticky: `file.magic`).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: r#"filemagic:[!]"TEXT""#,
        example: r#"alert http any any -> any any (msg:"filemagic"; filemagic:"PDF"; sid:1;)"#,
        note: "Needs libmagic (Debian: libmagic1), which is loaded when a rule or an output (`force-magic`) needs it; `magic-file` names its \
               database. It inspects the first bytes of a file, after 512 bytes or at the file's end.",
        parse: kind,
    },
    Keyword {
        name: "filesize",
        aliases: &[],
        summary: "The file's size in bytes; only `>` and `>=` match a file that was not inspected whole.",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "filesize:[<|>]N or N<>M",
        example: r#"alert http any any -> any any (msg:"filesize"; filesize:>10000; sid:1;)"#,
        note: "",
        parse: size,
    },
    Keyword {
        name: "filemd5",
        aliases: &[],
        summary: "The file's MD5 is in a list file (with `!`: is not).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "filemd5:[!]FILE",
        example: r#"alert http any any -> any any (msg:"filemd5"; filemd5:keywords.md5; sid:1;)"#,
        note: "Lines of the list that begin with no digest are left out, with a warning; lines that begin with `#` or white space are remarks.",
        parse: |builder, argument| hash(builder, "filemd5", Digest::Md5, argument),
    },
    Keyword {
        name: "filesha1",
        aliases: &[],
        summary: "The file's SHA-1 is in a list file (with `!`: is not).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "filesha1:[!]FILE",
        example: r#"alert http any any -> any any (msg:"filesha1"; filesha1:keywords.sha1; sid:1;)"#,
        note: "Lines of the list that begin with no digest are left out, with a warning; lines that begin with `#` or white space are remarks.",
        parse: |builder, argument| hash(builder, "filesha1", Digest::Sha1, argument),
    },
    Keyword {
        name: "filesha256",
        aliases: &[],
        summary: "The file's SHA-256 is in a list file (with `!`: is not).",
        argument: Argument::Required,
        role: Role::Condition,
        syntax: "filesha256:[!]FILE",
        example: r#"alert http any any -> any any (msg:"filesha256"; filesha256:keywords.sha256; sid:1;)"#,
        note: "Lines of the list that begin with no digest are left out, with a warning; lines that begin with `#` or white space are remarks.",
        parse: |builder, argument| hash(builder, "filesha256", Digest::Sha256, argument),
    },
    Keyword {
        name: "filestore",
        aliases: &[],
        summary: "Matches a transaction with a file and stores it: direction (request, response, both) and scope (file, tx, flow).",
        argument: Argument::Optional,
        role: Role::Effect,
        syntax: "filestore[:request|response|both[,file|tx|flow]]",
        example: r#"alert http any any -> any any (msg:"filestore"; filestore; sid:1;)"#,
        note: "Needs the output `file-store`; without it the rule matches and no file is stored, with a warning when rules load. If a rule matches after more than 16 MiB of a file, the file is not stored and is counted in `file_store.too_late`.",
        parse: store,
    },
];

fn named(
    builder: &mut SignatureBuilder<'_>,
    bytes: &[u8],
    negated: bool,
    end: bool,
) -> Result<(), KeywordError> {
    let mut literal = Literal::new(bytes, negated);
    literal.set_nocase();
    literal.endswith = end;
    builder.push_named("file.name", Item::Literal(literal))
}

fn name(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let pattern = bartizan_rules::parse_content(argument)?;
    named(builder, &pattern.bytes, pattern.negated, false)
}

fn extension(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let pattern = bartizan_rules::parse_content(argument)?;
    let dotted = [b".", pattern.bytes.as_slice()].concat();
    named(builder, &dotted, pattern.negated, true)
}

fn kind(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let pattern = bartizan_rules::parse_content(argument)?;
    let mut literal = Literal::new(&pattern.bytes, pattern.negated);
    literal.set_nocase();
    builder.push_named(magic::BUFFER, Item::Literal(literal))
}

/// The application protocol of a flow's transactions.
fn current_app(flow: &FlowView<'_>) -> Option<ProtocolId> {
    flow.app.current()
}

/// A condition on one of the files of a transaction.
struct OnFile<F> {
    holds: F,
    complete: Vec<(ProtocolId, PerDirection<u8>)>,
}

impl<F: Fn(&FileTrack) -> bool + Send + Sync> TxCondition for OnFile<F> {
    fn holds_for(&self, file: &FileTrack) -> Option<bool> {
        Some((self.holds)(file))
    }

    fn matches(&self, tx: &dyn Transaction, direction: Direction, scene: &ConditionContext<'_>) -> Answer {
        if tx.files_of(direction).iter().any(&self.holds) {
            return Answer::Yes;
        }
        let protocol = scene.facts.flow.and_then(current_app);
        let complete = protocol.and_then(|p| self.complete.iter().find(|(id, _)| *id == p));
        match complete {
            Some((_, complete)) => later(tx, direction, *complete, scene),
            None => Answer::NotYet,
        }
    }
}

/// Adds a condition on files to a rule about protocols that have files.
fn on_file(
    builder: &mut SignatureBuilder<'_>,
    keyword: &str,
    directions: PerDirection<bool>,
    holds: impl Fn(&FileTrack) -> bool + Send + Sync + 'static,
) -> Result<(), KeywordError> {
    let buffers = builder.environment.buffers;
    let Some(BufferRef::Tx(index)) = buffers.find("file.data") else {
        return Err(KeywordError::new(
            RefusalCode::UnsupportedKeyword,
            format!("`{keyword}`: no protocol parser of this build extracts files"),
        ));
    };
    let with_files: Vec<ProtocolId> =
        buffers.tx(index).map(|b| b.providers.iter().map(|(p, _)| *p).collect()).unwrap_or_default();
    builder.narrow_app(&with_files, keyword)?;
    let protocols = builder.protocol.app.clone();
    let complete = protocols.iter().filter_map(|id| Some((*id, protocols::spec(*id)?.complete))).collect();
    let condition = Box::new(OnFile { holds, complete });
    builder.tx.push(TxCheck { protocols, directions, state: None, condition });
    Ok(())
}

const BOTH: PerDirection<bool> = PerDirection::new(true, true);

fn size_holds(check: UintMatch<u64>, file: &FileTrack) -> bool {
    match file.state {
        FileState::Closed => check.matches(file.size),
        FileState::Open => false,
        // The size so far is a lower bound.
        FileState::Truncated | FileState::Error => {
            matches!(check, UintMatch::Greater(_) | UintMatch::GreaterEqual(_)) && check.matches(file.size)
        }
    }
}

fn size(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let check = UintMatch::<u64>::parse(argument)?;
    on_file(builder, "filesize", BOTH, move |file| size_holds(check, file))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Digest {
    Md5,
    Sha1,
    Sha256,
}

impl Digest {
    const fn length(self) -> usize {
        match self {
            Digest::Md5 => 16,
            Digest::Sha1 => 20,
            Digest::Sha256 => 32,
        }
    }

    fn of(self, file: &FileTrack) -> Option<&[u8]> {
        match self {
            Digest::Md5 => file.md5.as_ref().map(|d| d.as_slice()),
            Digest::Sha1 => file.sha1.as_ref().map(|d| d.as_slice()),
            Digest::Sha256 => file.sha256.as_ref().map(|d| d.as_slice()),
        }
    }
}

/// The digests of a list file: hexadecimal at the beginning of each line. Lines that begin with `#` or white
/// space are remarks; all other lines are left out.
fn digests(path: &Path, text: &[u8], digest: Digest, skipped: &mut SkippedEntries) -> HashSet<Box<[u8]>> {
    let mut all = HashSet::new();
    for (number, line) in text.split(|b| *b == b'\n').enumerate() {
        if matches!(line.first(), None | Some(b'#' | b' ' | b'\t' | b'\r')) {
            continue;
        }
        let end = line.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(line.len());
        let hex = line.get(..end).unwrap_or_default();
        match from_hex(hex).filter(|bytes| bytes.len() == digest.length()) {
            Some(bytes) => {
                all.insert(bytes.into_boxed_slice());
            }
            None => {
                let (has, wanted) = (hex.len(), digest.length() * 2);
                let what = format!("the line begins with {has} hexadecimal digits instead of {wanted}");
                skipped.add(path, number + 1, line, what);
            }
        }
    }
    all
}

fn hash(
    builder: &mut SignatureBuilder<'_>,
    keyword: &'static str,
    digest: Digest,
    argument: &[u8],
) -> Result<(), KeywordError> {
    let (negated, list) = match argument {
        [b'!', rest @ ..] => (true, rest.trim_ascii_start()),
        _ => (false, argument),
    };
    let (path, list) = read(builder.environment, text(list)?, PathSearchOrder::SettingsFirst)?;
    let mut skipped = SkippedEntries::default();
    let wanted = digests(&path, &list, digest, &mut skipped);
    builder.environment.outside().note_skipped(skipped);
    if let Some(asked) = builder.file_hashes.get_mut(digest as usize) {
        *asked = true;
    }
    on_file(builder, keyword, BOTH, move |file| {
        file.state == FileState::Closed
            && digest.of(file).is_some_and(|have| wanted.contains(have) != negated)
    })
}

fn store(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    if builder.bypass {
        return Err(KeywordError::context(
            "`filestore` cannot be used with `bypass`: after it no file is inspected",
        ));
    }
    let mut directions = None;
    let mut scope = None;
    for word in text(argument)?.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "request" | "to_server" => directions = Some(PerDirection::new(true, false)),
            "response" | "to_client" => directions = Some(PerDirection::new(false, true)),
            "both" => directions = Some(BOTH),
            "file" => scope = Some(StoreScope::File),
            "tx" => scope = Some(StoreScope::Transaction),
            "ssn" | "flow" => scope = Some(StoreScope::Flow),
            _ => {
                return Err(KeywordError::argument(format!("`{word}` is neither a direction nor a scope"))
                    .help("use request, response or both, and file, tx or flow"));
            }
        }
    }
    // With a direction and no scope, the option concerns the transaction.
    let alone = if directions.is_some() { StoreScope::Transaction } else { StoreScope::File };
    let scope = scope.unwrap_or(alone);
    builder.requests.push(Request::StoreFiles(StoreFiles { directions, scope }));
    on_file(builder, "filestore", BOTH, |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_applayer::file::FileSettings;

    #[test]
    fn sizes() {
        let file = |state| {
            let mut file = FileTrack::open(0, b"x", &FileSettings::default());
            file.append(b"0123456789");
            file.close(state);
            file
        };
        let (closed, cut) = (file(FileState::Closed), file(FileState::Truncated));
        assert!(size_holds(UintMatch::Equal(10), &closed) && size_holds(UintMatch::Less(11), &closed));
        assert!(size_holds(UintMatch::Greater(9), &cut) && !size_holds(UintMatch::Less(11), &cut));
        assert!(!size_holds(UintMatch::Greater(1), &FileTrack::open(0, b"x", &FileSettings::default())));
    }

    #[test]
    fn lists_of_digests() {
        let list = b"# remark\n00112233445566778899aabbccddeeff  some file\r\n\nFF112233445566778899AABBCCDDEEFF,1\n";
        let mut skipped = SkippedEntries::default();
        let all = digests(Path::new("list"), list, Digest::Md5, &mut skipped);
        assert!(skipped.entries().is_empty());
        assert_eq!(all.len(), 2);
        assert!(
            all.contains(
                [
                    0xff_u8, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd,
                    0xee, 0xff
                ]
                .as_slice()
            )
        );
        // A line that is neither digest nor remark is left out.
        let list =
            b"\n0011\nbad line\nzz\n00112233445566778899aabbccddeeff\n00112233445566778899aabbccddeeff00\n";
        let all = digests(Path::new("list"), list, Digest::Md5, &mut skipped);
        let lines: Vec<_> = skipped.entries().iter().map(|entry| entry.line).collect();
        assert_eq!((all.len(), lines), (1, vec![2, 3, 4, 6]));
    }
}

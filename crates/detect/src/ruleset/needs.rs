// SPDX-License-Identifier: Apache-2.0
//! What a rule set asks of the parsers.

use crate::compile::magic;
use crate::model::buffers::BufferRef;
use crate::model::request::Request;
use crate::model::signature::RuleAction;
use crate::ruleset::RuleSet;
use bartizan_applayer::protocols;

/// What rules ask of parsers beyond what the settings say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Hashes of files: MD5, SHA-1, SHA-256.
    pub hashes: [bool; 3],
    /// Some rule looks at JA3 (`ja3-fingerprints: auto` is then on).
    pub ja3: bool,
    /// Some rule asks for files to be kept.
    pub store: bool,
    /// Some rule asks for certificates to be stored.
    pub certificates: bool,
    /// Some rule asks what kind of file it is.
    pub magic: bool,
    /// Some rule looks at frames.
    pub frames: bool,
    /// Some rule looks at the frame of a whole stream.
    pub stream_frames: bool,
    /// Rules that refuse transactions of a protocol with a relative that is recognised and not parsed
    /// (HTTP/1).
    pub refuse_parsed: usize,
}

impl Needs {
    /// Of a rule set.
    #[must_use]
    pub fn of(rules: &RuleSet) -> Self {
        let mut needs = Needs::default();
        for signature in &rules.signatures {
            for (have, want) in needs.hashes.iter_mut().zip(signature.file_hashes) {
                *have |= want;
            }
            needs.ja3 |= signature.values.iter().any(|v| rules.buffers.name(v.buffer).starts_with("ja3"));
            for value in &signature.values {
                let BufferRef::Frame(index) = value.buffer else { continue };
                needs.frames = true;
                let is_stream =
                    |f: &crate::model::buffers::FrameBuffer| f.kind == bartizan_applayer::frames::STREAM;
                needs.stream_frames |= rules.buffers.frame(index).is_some_and(is_stream);
            }
            let kind =
                |v: &crate::model::signature::ValueCheck| rules.buffers.name(v.buffer) == magic::BUFFER;
            needs.magic |= signature.values.iter().any(kind);
            needs.certificates |= signature.requests.contains(&Request::StoreCertificates);
            let parsed = signature.protocol.app.iter().any(|id| protocols::has_unparsed_relative(*id));
            needs.refuse_parsed +=
                usize::from(parsed && matches!(signature.action, RuleAction::Drop | RuleAction::Reject(_)));
            needs.store |= signature.requests.iter().any(|r| matches!(r, Request::StoreFiles(_)));
        }
        needs
    }

    /// What either asks for.
    #[must_use]
    pub fn and(mut self, other: Needs) -> Self {
        for (have, want) in self.hashes.iter_mut().zip(other.hashes) {
            *have |= want;
        }
        self.ja3 |= other.ja3;
        self.store |= other.store;
        self.certificates |= other.certificates;
        self.magic |= other.magic;
        self.frames |= other.frames;
        self.stream_frames |= other.stream_frames;
        self.refuse_parsed += other.refuse_parsed;
        self
    }
}

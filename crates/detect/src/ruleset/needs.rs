// SPDX-License-Identifier: Apache-2.0
//! Requirements of a rule set on the parsers.

use crate::compile::magic;
use crate::model::buffers::BufferRef;
use crate::model::request::Request;
use crate::model::signature::RuleAction;
use crate::ruleset::RuleSet;
use bartizan_applayer::protocols;

/// Requirements of rules on the parsers, beyond the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Hashes of files: MD5, SHA-1, SHA-256.
    pub hashes: [bool; 3],
    /// Some rule inspects JA3 (this enables `ja3-fingerprints: auto`).
    pub ja3: bool,
    /// Some rule inspects a HASSH (this enables `hassh: auto`).
    pub hassh: bool,
    /// Some rule stores files.
    pub store: bool,
    /// Some rule stores certificates.
    pub certificates: bool,
    /// Some rule inspects the type of a file (libmagic).
    pub magic: bool,
    /// Some rule inspects protocol frames.
    pub frames: bool,
    /// Some rule inspects the frame of a whole stream.
    pub stream_frames: bool,
    /// Number of rules that refuse transactions of a protocol which has a related protocol that is recognised
    /// and not parsed (HTTP/1).
    pub refuse_parsed: usize,
}

impl Needs {
    /// The requirements of a rule set.
    #[must_use]
    pub fn of(rules: &RuleSet) -> Self {
        let mut needs = Needs::default();
        for signature in &rules.signatures {
            for (have, want) in needs.hashes.iter_mut().zip(signature.file_hashes) {
                *have |= want;
            }
            let inspects =
                |prefix| signature.values.iter().any(|v| rules.buffers.name(v.buffer).starts_with(prefix));
            needs.ja3 |= inspects("ja3");
            needs.hassh |= inspects("ssh.hassh");
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

    /// The requirements of both.
    #[must_use]
    pub fn and(mut self, other: Needs) -> Self {
        for (have, want) in self.hashes.iter_mut().zip(other.hashes) {
            *have |= want;
        }
        self.ja3 |= other.ja3;
        self.hassh |= other.hassh;
        self.store |= other.store;
        self.certificates |= other.certificates;
        self.magic |= other.magic;
        self.frames |= other.frames;
        self.stream_frames |= other.stream_frames;
        self.refuse_parsed += other.refuse_parsed;
        self
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Requirements of a rule set on the parsers.

use crate::compile::magic;
use crate::model::buffers::BufferRef;
use crate::model::request::Request;
use crate::model::signature::RuleAction;
use crate::ruleset::RuleSet;
use bartizan_applayer::protocol::ProtocolSpec;
use bartizan_applayer::protocols;
use std::collections::HashMap;

/// Requirements of rules on the parsers, beyond the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Hashes of files: MD5, SHA-1, SHA-256.
    pub hashes: [bool; 3],
    /// Settings of protocols on which buffers are computed that some rule inspects (this enables their value
    /// `auto`): a bit for each, by its place in [`protocols::computing_settings`].
    pub computed: u32,
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
    /// Number of rules that refuse transactions of a protocol within whose connections a later one of its
    /// family may begin (HTTP/1).
    pub refuse_parsed: usize,
}

impl Needs {
    /// The requirements of a rule set.
    #[must_use]
    pub fn of(rules: &RuleSet) -> Self {
        let mut needs = Needs::default();
        let computed = computed_buffers();
        for signature in &rules.signatures {
            for (have, want) in needs.hashes.iter_mut().zip(signature.file_hashes) {
                *have |= want;
            }
            for value in &signature.values {
                needs.computed |= computed.get(rules.buffers.name(value.buffer)).copied().unwrap_or(0);
            }
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
            let parsed = signature.protocol.app.iter().any(|id| protocols::has_later_relative(*id));
            needs.refuse_parsed +=
                usize::from(parsed && matches!(signature.action, RuleAction::Drop | RuleAction::Reject(_)));
            needs.store |= signature.requests.iter().any(|r| matches!(r, Request::StoreFiles(_)));
        }
        needs
    }

    /// The settings that a rule makes necessary: protocol and key.
    pub fn computing_settings(self) -> impl Iterator<Item = (&'static ProtocolSpec, &'static str)> {
        let places = (0..).zip(protocols::computing_settings());
        places
            .filter(move |(place, _)| self.computed.checked_shr(*place).unwrap_or(0) & 1 == 1)
            .map(|(_, of)| of)
    }

    /// The requirements of both.
    #[must_use]
    pub fn and(mut self, other: Needs) -> Self {
        for (have, want) in self.hashes.iter_mut().zip(other.hashes) {
            *have |= want;
        }
        self.computed |= other.computed;
        self.store |= other.store;
        self.certificates |= other.certificates;
        self.magic |= other.magic;
        self.frames |= other.frames;
        self.stream_frames |= other.stream_frames;
        self.refuse_parsed += other.refuse_parsed;
        self
    }
}

/// The buffers that are computed on a setting, by name, each with the bit of its setting.
fn computed_buffers() -> HashMap<&'static str, u32> {
    let mut buffers = HashMap::new();
    for (place, (spec, setting)) in (0u32..).zip(protocols::computing_settings()) {
        for buffer in spec.buffers.iter().filter(|buffer| buffer.computed_by == Some(setting)) {
            *buffers.entry(buffer.name).or_default() |= 1u32.checked_shl(place).unwrap_or(0);
        }
    }
    buffers
}

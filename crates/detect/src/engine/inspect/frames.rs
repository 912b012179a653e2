// SPDX-License-Identifier: Apache-2.0
//! Rules on frames: evaluated once for each frame, when it is complete or enough of it is new.

use super::InspectionRun;
use crate::engine::evaluate::ProgramOutcome;
use crate::model::buffers::BufferRef;
use crate::model::content::VARIABLES_MAX;
use crate::model::signature::{Signature, ValueCheck};
use bartizan_applayer::frames::Frames;
use bartizan_function::{AppView, RecordMark};

impl InspectionRun<'_, '_> {
    /// Inspects the frames of the packet's direction that are complete or have enough new bytes.
    pub(super) fn frames(&mut self, app: &mut AppView<'_>) {
        let rules = self.rules;
        if rules.prefilters.frames.is_empty() {
            return;
        }
        let direction = self.scene.facts.direction;
        let layer = app.layer();
        let Some(protocol) = layer.protocol().protocol().or(layer.original()) else { return };
        let Some(frames) = layer.frames() else { return };
        let due = frames.due(direction, self.prevention);
        for id in &due {
            let Some(frame) = frames.get(direction, *id) else { continue };
            let (kind, tx) = (frame.kind, frame.tx);
            let Some(of_kind) = rules.prefilters.frames.get(&(protocol, kind)) else { continue };
            for rule in of_kind[direction].iter().copied() {
                if !self.due().has(rule) {
                    continue;
                }
                let known = frames.get(direction, *id).is_none_or(|frame| frame.matched.contains(&rule));
                let Some(signature) = rules.signatures.get(rule as usize).filter(|_| !known) else {
                    continue;
                };
                if !self.header_holds(signature) || !self.frame_holds(signature, frames, *id) {
                    continue;
                }
                app.mark(RecordMark::FrameMatched { frame: *id, rule });
                let before = self.worker.hits.len();
                self.hit(rule, signature, tx, true);
                if let Some(hit) = self.worker.hits.get_mut(before) {
                    hit.frame = Some(*id);
                }
            }
        }
        app.mark(RecordMark::FramesSeen { at_once: self.prevention });
    }

    /// Whether a rule's conditions on frames hold: on this frame, and on any other frame for other kinds that
    /// the rule names.
    fn frame_holds(&mut self, signature: &Signature, frames: &Frames, id: u64) -> bool {
        let direction = self.scene.facts.direction;
        let Some(kind) = frames.get(direction, id).map(|frame| frame.kind) else { return false };
        self.worker.variables = [0; VARIABLES_MAX];
        self.worker.captured.clear();
        signature.values.iter().all(|check| match check.buffer {
            BufferRef::Frame(buffer) => match self.rules.buffers.frame(buffer).map(|f| f.kind) {
                Some(wanted) if wanted == kind => self.in_frame(check, frames, id),
                Some(wanted) => {
                    let mut others = frames.of_kind(direction, wanted).into_iter();
                    others.any(|other| self.in_frame(check, frames, other))
                }
                None => false,
            },
            BufferRef::Payload => {
                let payload = self.scene.payload;
                let stream = self.stream;
                stream.is_some_and(|data| self.run(check, data, true) == ProgramOutcome::Match)
                    || self.run(check, payload, true) == ProgramOutcome::Match
            }
            BufferRef::Packet(_) | BufferRef::Tx(_) => false,
        })
    }

    /// Whether a part of a frame meets a check.
    fn in_frame(&mut self, check: &ValueCheck, frames: &Frames, id: u64) -> bool {
        let direction = self.scene.facts.direction;
        let Some(frame) = frames.get(direction, id) else { return false };
        frames
            .chunks(direction, frame)
            .any(|chunk| self.run(check, chunk.bytes, chunk.last) == ProgramOutcome::Match)
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Searches payloads of packets and the beginning of streams for the literals of rules.

use crate::compile::groups::HeadGroup;
use crate::engine::candidates::Candidates;
use crate::model::prefilter::{HeadSet, PayloadSets, SHORT_MAX};
use bartizan_pattern::Scratch;

impl HeadSet {
    /// Whether a flow of this group can meet one of the rules.
    #[must_use]
    pub fn is_met(&self, group: Option<HeadGroup<'_>>) -> bool {
        self.set.is_met(group)
    }

    /// Adds the rules whose literal occurs near the beginning of some data to `candidates`.
    pub fn scan(&self, scratch: &mut Scratch, data: &[u8], candidates: &mut Candidates) {
        self.set.scan(scratch, data.get(..self.within).unwrap_or(data), candidates);
    }
}

impl PayloadSets {
    /// Adds the rules whose literal occurs in the part of a payload where it may lie to `candidates`.
    /// `in_stream`: rules on streams inspect these bytes in the stream; `group`: the heads that the packet
    /// can meet.
    pub fn scan(
        &self,
        scratch: &mut Scratch,
        payload: &[u8],
        in_stream: bool,
        group: Option<HeadGroup<'_>>,
        candidates: &mut Candidates,
    ) {
        if payload.is_empty() {
            return;
        }
        let short = payload.len() <= SHORT_MAX;
        let (inside, outside) =
            if short { (&self.short, &self.short_outside) } else { (&self.whole, &self.outside) };
        let sets = if in_stream || outside.is_empty() { inside } else { outside };
        for set in sets.iter().filter(|set| set.is_met(group)) {
            set.scan(scratch, payload, candidates);
        }
        if let Some(head) = self.head.as_ref().filter(|head| !short && head.is_met(group)) {
            head.scan(scratch, payload, candidates);
        }
    }
}

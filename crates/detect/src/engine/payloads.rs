// SPDX-License-Identifier: Apache-2.0
//! Searches payloads of packets and the beginning of streams for the literals of rules.

use crate::compile::groups::HeadGroup;
use crate::engine::candidates::Candidates;
use crate::model::places::{FixedPlace, FixedPlaces};
use crate::model::prefilter::{HeadSet, PayloadSets, SHORT_MAX, ShortSets, TINY_MAX};
use bartizan_pattern::Scratch;

impl FixedPlace {
    fn is_met(&self, group: Option<HeadGroup<'_>>) -> bool {
        group.is_none_or(|group| self.heads.iter().any(|head| group.has(*head)))
    }

    /// The rules whose key lies at the place.
    fn rules_of(&self, data: &[u8]) -> &[u32] {
        let end = self.offset.saturating_add(self.length);
        let Some(bytes) = data.get(self.offset..end) else { return &[] };
        let key = bytes.iter().fold(0u16, |key, byte| key << 8 | u16::from(*byte));
        match self.keys.binary_search_by_key(&key, |(of, _)| *of) {
            Ok(at) => {
                self.keys.get(at).and_then(|(_, rules)| self.rules.get(rules.clone())).unwrap_or_default()
            }
            Err(_) => &[],
        }
    }
}

impl FixedPlaces {
    /// Whether a flow of this group can meet the head of one of the rules.
    #[must_use]
    pub fn is_met(&self, group: Option<HeadGroup<'_>>) -> bool {
        self.0.iter().any(|place| place.is_met(group))
    }

    /// Adds the rules whose bytes lie at their place to `candidates`. `group`: the heads that the packet can
    /// meet.
    pub fn add_to(&self, data: &[u8], group: Option<HeadGroup<'_>>, candidates: &mut Candidates) {
        for place in &self.0 {
            let rules = place.rules_of(data);
            if !rules.is_empty() && place.is_met(group) {
                candidates.extend(rules);
            }
        }
    }
}

impl HeadSet {
    /// Whether a flow of this group can meet one of the rules.
    #[must_use]
    pub fn is_met(&self, group: Option<HeadGroup<'_>>) -> bool {
        self.fixed.is_met(group) || self.set.as_ref().is_some_and(|set| set.is_met(group))
    }

    /// Adds the rules whose literal occurs near the beginning of some data to `candidates`. `group`: the
    /// heads that the packet can meet.
    pub fn scan(
        &self,
        scratch: &mut Scratch,
        data: &[u8],
        group: Option<HeadGroup<'_>>,
        candidates: &mut Candidates,
    ) {
        self.fixed.add_to(data, group, candidates);
        if let Some(set) = self.set.as_ref().filter(|set| set.is_met(group)) {
            set.scan(scratch, data.get(..self.within).unwrap_or(data), candidates);
        }
    }
}

impl ShortSets {
    fn scan(
        &self,
        scratch: &mut Scratch,
        payload: &[u8],
        group: Option<HeadGroup<'_>>,
        candidates: &mut Candidates,
    ) {
        if let Some(head) = &self.head {
            head.scan(scratch, payload, group, candidates);
        }
        let tiny = self.tiny.as_ref().filter(|_| payload.len() <= TINY_MAX);
        for set in tiny.into_iter().chain(&self.all).filter(|set| set.is_met(group)) {
            set.scan(scratch, payload, candidates);
        }
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
        if payload.len() <= SHORT_MAX {
            let outside = self.short_outside.as_ref().filter(|_| !in_stream);
            outside.unwrap_or(&self.short).scan(scratch, payload, group, candidates);
            return;
        }
        let sets = if in_stream || self.outside.is_empty() { &self.whole } else { &self.outside };
        for set in sets.iter().filter(|set| set.is_met(group)) {
            set.scan(scratch, payload, candidates);
        }
        if let Some(head) = &self.head {
            head.scan(scratch, payload, group, candidates);
        }
    }
}

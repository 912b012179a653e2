// SPDX-License-Identifier: Apache-2.0
//! Finds candidates without a literal: rules that are always candidates, and rules with a prefilter key.

use crate::compile::groups::HeadGroup;
use crate::engine::candidates::Candidates;
use crate::model::condition::PrefilterKey;
use crate::model::prefilter::Always;

impl Always {
    /// Adds the rules of a flow's group to `candidates`; without a group, all.
    pub fn add_to(&self, group: Option<HeadGroup<'_>>, candidates: &mut Candidates) {
        self.add_where(group, |_| true, candidates);
    }

    /// Adds the rules of heads that were found by an address.
    pub(crate) fn add_heads(&self, heads: &[u32], candidates: &mut Candidates) {
        for head in heads {
            let first = self.by_address.partition_point(|(other, _)| other < head);
            let rules = self.by_address.get(first..).unwrap_or_default().iter();
            rules.take_while(|(other, _)| other == head).for_each(|(_, rule)| candidates.add(*rule));
        }
    }

    /// Adds the rules of a flow's group whose guards `pass`.
    pub(crate) fn add_where(
        &self,
        group: Option<HeadGroup<'_>>,
        mut pass: impl FnMut(u64) -> bool,
        candidates: &mut Candidates,
    ) {
        for (word, heads, first) in &self.words {
            let met = group.map_or(u64::MAX, |g| g.word(*word)) & heads;
            if met == 0 {
                continue;
            }
            let rules = self.rules.get(*first as usize..).unwrap_or_default();
            let wants = self.wants.get(*first as usize..).unwrap_or_default();
            let wants = wants.iter().copied().chain(core::iter::repeat(0));
            for ((head, rule), wanted) in
                rules.iter().zip(wants).take_while(|((head, _), _)| head / 64 == *word)
            {
                if met >> (head % 64) & 1 == 1 && pass(wanted) {
                    candidates.add(*rule);
                }
            }
        }
    }
}

/// The keys of a packet.
pub struct PrefilterKeys;

impl PrefilterKeys {
    /// Decode events, stream events and the ICMP type of a packet.
    pub fn of<'k>(
        packet: &'k bartizan_packet::PacketView<'_>,
        stream_events: &'k [bartizan_flow::tcp::StreamEvent],
    ) -> impl Iterator<Item = PrefilterKey> + 'k {
        let decoded = packet.decoded();
        let icmp = match &decoded.transport {
            bartizan_packet::TransportLayer::Icmp(icmp) | bartizan_packet::TransportLayer::Icmpv6(icmp) => {
                Some(PrefilterKey::IcmpType(icmp.kind))
            }
            _ => None,
        };
        decoded
            .events
            .as_slice()
            .iter()
            .map(|event| PrefilterKey::DecodeEvent(*event as u16))
            .chain(stream_events.iter().map(|event| PrefilterKey::StreamEvent(*event as u16)))
            .chain(icmp)
    }
}

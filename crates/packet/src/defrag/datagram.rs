// SPDX-License-Identifier: Apache-2.0
//! One incomplete datagram: its ordered list of fragments, the effects of overlaps, and reassembly.
//!
//! Sources: RFC 791 section 3.2, RFC 8200 section 4.5, RFC 1624 (checksum update). The checksum is updated,
//! not recomputed, so that a first fragment with a wrong one gives a datagram with a wrong one.

use super::counters::DropReason;
use super::fragment::{Fragment, FragmentKey, IPV6_HEADER, MAX_DATAGRAM, announcing_byte};
use super::likeness::Likeness;
use super::policy::{self, HeldSpan, Incoming, OverlapPolicy, OverlapStep};
use super::shares::{DatagramLink, LISTS, Usage};
use super::store::{FragmentNode, FragmentQueue, FragmentStore, NIL};
use bartizan_base::Timestamp;

/// The identity of a datagram, until it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramId {
    pub(super) index: u32,
    pub(super) serial: u32,
}

/// A datagram's fragments, its places in the orders of use, and its share of the bounds.
pub(super) struct Datagram {
    pub(super) key: FragmentKey,
    pub(super) policy: OverlapPolicy,
    pub(super) expires: Timestamp,
    head: u32,
    tail: u32,
    pub(super) fragments: u32,
    /// The largest end of any fragment seen: a fragment that starts at it or later overlaps nothing.
    reach: u32,
    /// Bytes of all fragments held: fewer than `reach` means that some are missing.
    bytes: u32,
    last_seen: bool,
    overlapped: bool,
    /// The hop limit and likeness of the first fragment that arrived: see [`Self::admit`].
    first: Option<(u8, Likeness)>,
    pub(super) state: DatagramState,
    /// Distinguishes datagrams that use the same place one after the other.
    pub(super) serial: u32,
    /// Accepted fragments whose frames are not settled: neither kept in `frames`, nor sent, nor refused.
    pub(super) unsettled: u32,
    /// Frames that wait with it.
    pub(super) frames: FragmentQueue,
    /// Usage of its fragments, and of the frames that wait with it.
    pub(super) held: Usage,
    pub(super) frames_held: Usage,
    /// The share of its tenant and of its source, and its weight in them.
    pub(super) tenant: u32,
    pub(super) source: u32,
    pub(super) weight: u64,
    pub(super) links: [DatagramLink; LISTS],
}

/// The state of a datagram. All but `Open` only with [`super::DefragConfig::strict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatagramState {
    /// Fragments are missing.
    Open,
    /// It is whole, and a decision is pending.
    Judged,
    /// It is allowed; frames of it are still under way.
    Passed,
    /// It is refused.
    Refused,
}

/// The result of comparing a fragment with those held.
pub(super) struct Resolved {
    /// Bytes to cut off its front; `None` when no byte of it is kept.
    pub(super) trim: Option<u32>,
    pub(super) overlap: bool,
}

/// Whether a datagram is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Assembly {
    Waiting,
    Done,
    /// All fragments are there, but the datagram would be longer than IP allows.
    TooLarge,
}

impl Datagram {
    pub(super) fn new(key: FragmentKey, policy: OverlapPolicy) -> Self {
        Self {
            key,
            policy,
            expires: Timestamp::ZERO,
            head: NIL,
            tail: NIL,
            fragments: 0,
            reach: 0,
            bytes: 0,
            last_seen: false,
            overlapped: false,
            first: None,
            state: DatagramState::Open,
            serial: 0,
            unsettled: 0,
            frames: FragmentQueue::EMPTY,
            held: Usage::default(),
            frames_held: Usage::default(),
            tenant: NIL,
            source: NIL,
            weight: 0,
            links: [DatagramLink::NONE; LISTS],
        }
    }

    /// Whether receivers agree on the meaning of the fragment that ends at `end`: all strict rules except
    /// that on overlaps.
    pub(super) fn admit(
        &mut self,
        fragment: &Fragment<'_>,
        likeness: Likeness,
        end: u32,
    ) -> Result<(), DropReason> {
        if self.state != DatagramState::Open {
            return Err(DropReason::Refused);
        }
        // A fragment that runs out of hops on its way, or that the receiver discards, would leave room for
        // another in its place.
        let (hop_limit, first) = *self.first.get_or_insert((fragment.hop_limit, likeness));
        if hop_limit != fragment.hop_limit {
            return Err(DropReason::HopLimit);
        }
        if first != likeness {
            return Err(DropReason::Unlike);
        }
        let uneven = fragment.more && !end.is_multiple_of(8);
        let behind_the_end = self.last_seen && end > self.reach || !fragment.more && end < self.reach;
        if uneven || behind_the_end { Err(DropReason::Length) } else { Ok(()) }
    }

    /// Whether a fragment has bytes in common with one that is held.
    pub(super) fn overlaps(&self, store: &FragmentStore, start: u32, end: u32) -> bool {
        if start >= self.reach {
            return false;
        }
        let mut at = self.head;
        while let Some(node) = store.node(at) {
            if node.offset >= end {
                return false;
            }
            if start < node.end() {
                return true;
            }
            at = node.next;
        }
        false
    }

    /// Lets the policy decide between the new fragment and those held, and trims the latter.
    pub(super) fn resolve(&mut self, store: &mut FragmentStore, start: u32, end: u32) -> Resolved {
        let mut new = Incoming { start, end, trim: 0 };
        let mut overlap = false;
        let mut at = if start >= self.reach { NIL } else { self.first_to_compare(store, start) };
        while let Some(node) = store.node(at).copied() {
            if node.offset >= end {
                if self.policy.decides_at_disjoint() && node.live >= node.end() {
                    self.remove(store, at);
                }
                break;
            }
            overlap |= start < node.end();
            self.overlapped |= overlap;
            let held = HeldSpan { start: node.offset, end: node.end(), live: node.live };
            let next = store.node(node.next).map(|next| next.offset);
            let ruling = policy::compare(self.policy, new, held, next);
            new.trim = ruling.trim;
            if let Some(node) = store.node_mut(at) {
                node.live = ruling.live;
            }
            if let (Some(live), Some(next)) = (ruling.next_live, store.node_mut(node.next)) {
                next.live = live;
            }
            match ruling.step {
                OverlapStep::Next => at = node.next,
                OverlapStep::Refuse => return Resolved { trim: None, overlap },
                OverlapStep::Settled => {
                    if ruling.live >= held.end {
                        self.remove(store, at);
                    }
                    break;
                }
            }
        }
        let wanted = new.trim < end.saturating_sub(start);
        Resolved { trim: wanted.then_some(new.trim), overlap }
    }

    /// The fragment before the first one that starts at `start` or later; the very first one when there is
    /// none before, or none later.
    fn first_to_compare(&self, store: &FragmentStore, start: u32) -> u32 {
        if store.node(self.head).is_some_and(|head| head.offset >= start) {
            return self.head;
        }
        let mut at = self.tail;
        while let Some(node) = store.node(at) {
            if node.offset < start {
                return if at == self.tail { self.head } else { at };
            }
            at = node.prev;
        }
        self.head
    }

    /// Puts a stored fragment into the list, after those of the same offset.
    pub(super) fn link(&mut self, store: &mut FragmentStore, index: u32, offset: u32, trim: u32) {
        let start = offset.saturating_add(trim);
        self.held.add(store.usage_of(index));
        let mut before = self.tail;
        while let Some(node) = store.node(before)
            && node.offset > start
        {
            before = node.prev;
        }
        let behind = store.node(before).map_or(self.head, |node| node.next);
        let Some(node) = store.node_mut(index) else { return };
        node.offset = start;
        node.live = start;
        node.len = node.len.saturating_sub(trim);
        node.data_at = node.data_at.saturating_add(trim);
        (node.prev, node.next) = (before, behind);
        self.reach = self.reach.max(node.end());
        self.bytes = self.bytes.saturating_add(node.len);
        self.last_seen |= !node.more;
        match store.node_mut(before) {
            Some(node) => node.next = index,
            None => self.head = index,
        }
        match store.node_mut(behind) {
            Some(node) => node.prev = index,
            None => self.tail = index,
        }
        self.fragments = self.fragments.saturating_add(1);
    }

    fn remove(&mut self, store: &mut FragmentStore, index: u32) {
        let Some(FragmentNode { prev, next, len, .. }) = store.node(index).copied() else { return };
        self.bytes = self.bytes.saturating_sub(len);
        self.held.subtract(store.usage_of(index));
        match store.node_mut(prev) {
            Some(node) => node.next = next,
            None => self.head = next,
        }
        match store.node_mut(next) {
            Some(node) => node.prev = prev,
            None => self.tail = prev,
        }
        store.free(index);
        self.fragments = self.fragments.saturating_sub(1);
    }

    /// Takes the waiting frames out of it, with their usage.
    pub(super) fn take_frames(&mut self) -> (FragmentQueue, Usage) {
        let frames = core::mem::replace(&mut self.frames, FragmentQueue::EMPTY);
        (frames, core::mem::take(&mut self.frames_held))
    }

    /// Frees all fragments.
    pub(super) fn clear(&mut self, store: &mut FragmentStore) {
        let mut at = self.head;
        while let Some(node) = store.node(at) {
            let next = node.next;
            store.free(at);
            at = next;
        }
        (self.head, self.tail, self.fragments, self.held) = (NIL, NIL, 0, Usage::default());
        (self.reach, self.bytes, self.last_seen) = (0, 0, false);
    }

    /// Writes the datagram to `out` if no fragment is missing.
    pub(super) fn assemble(&self, store: &FragmentStore, out: &mut Vec<u8>) -> Assembly {
        let Some(first) = store.node(self.head).copied() else { return Assembly::Waiting };
        if !self.last_seen || first.offset != 0 || self.bytes < self.reach || !self.without_gap(store) {
            return Assembly::Waiting;
        }
        let header = self.header(store, first);
        let header_len = header.header_len as usize;
        out.clear();
        out.resize(header_len.saturating_add(self.reach as usize), 0);
        let Some(data) = out.get_mut(header_len..) else { return Assembly::Waiting };
        if self.overlapped {
            // Some orders of overlaps trim a byte away in every fragment. Such a byte is copied untrimmed,
            // so that a datagram never has bytes that were not sent.
            self.copy_fragments(store, true, data);
        }
        let length = self.copy_fragments(store, false, data);
        let total = header_len.saturating_add(length as usize);
        out.truncate(total);
        if let Some(head) = out.get_mut(..header_len) {
            store.copy(&header, 0, head);
            let fits = if self.key.is_ipv4() {
                finish_ipv4(head, total)
            } else {
                finish_ipv6(head, total, header.next_header)
            };
            if fits.is_some() {
                return Assembly::Done;
            }
        }
        out.clear();
        Assembly::TooLarge
    }

    /// The fragment whose header counts: of several that start the datagram, the one that is copied last.
    fn header(&self, store: &FragmentStore, first: FragmentNode) -> FragmentNode {
        let mut header = first;
        let mut at = self.head;
        while let Some(node) = store.node(at)
            && node.offset == 0
        {
            if node.live < node.end() {
                header = *node;
            }
            at = node.next;
        }
        header
    }

    /// Copies the fragments in order to their offsets; returns the length of the data.
    fn copy_fragments(&self, store: &FragmentStore, untrimmed: bool, data: &mut [u8]) -> u32 {
        let (mut length, mut more, mut before) = (0_u32, true, 0);
        let mut at = self.head;
        while let Some(node) = store.node(at) {
            // The last fragment ends the datagram, but one that starts with it may replace its bytes.
            if !more && node.offset > before && !untrimmed {
                break;
            }
            at = node.next;
            if node.live >= node.end() && !untrimmed {
                continue;
            }
            length = if node.offset == 0 { node.len } else { length.max(node.end()) };
            let from = if node.offset == 0 || untrimmed { node.offset } else { node.live };
            if let Some(to) = data.get_mut(from as usize..node.end() as usize) {
                store.copy(node, node.data_at.saturating_add(from.saturating_sub(node.offset)), to);
            }
            (more, before) = (node.more, node.offset);
        }
        length
    }

    fn without_gap(&self, store: &FragmentStore) -> bool {
        let mut reached = 0;
        let mut at = self.head;
        while let Some(node) = store.node(at) {
            if node.offset > reached {
                return false;
            }
            reached = reached.max(node.end());
            at = node.next;
        }
        true
    }
}

/// Sets the total length, no fragment bits, and the checksum. `None` when the length does not fit.
fn finish_ipv4(header: &mut [u8], total: usize) -> Option<()> {
    let total = u16::try_from(total).ok()?.to_be_bytes();
    let word = |header: &[u8], at: usize| {
        header
            .get(at..)
            .and_then(|rest| rest.first_chunk::<2>())
            .map_or(0, |bytes| u32::from(u16::from_be_bytes(*bytes)))
    };
    let old = [word(header, 2), word(header, 6)];
    let new = [u32::from(u16::from_be_bytes(total)), 0];
    let mut sum = !word(header, 10) & 0xffff;
    for (old, new) in old.into_iter().zip(new) {
        sum = sum.saturating_add(!old & 0xffff).saturating_add(new);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff).saturating_add(sum >> 16);
    }
    let checksum = (!sum as u16).to_be_bytes();
    header.get_mut(2..4)?.copy_from_slice(&total);
    header.get_mut(6..8)?.copy_from_slice(&[0, 0]);
    header.get_mut(10..12)?.copy_from_slice(&checksum);
    Some(())
}

/// Sets the payload length, and the next header where the fragment header was named. `None` when the length
/// does not fit.
fn finish_ipv6(header: &mut [u8], total: usize, next_header: u8) -> Option<()> {
    let payload = total.checked_sub(IPV6_HEADER).filter(|len| *len <= MAX_DATAGRAM as usize)?;
    header.get_mut(4..6)?.copy_from_slice(&(payload as u16).to_be_bytes());
    let at = announcing_byte(header)?;
    *header.get_mut(at)? = next_header;
    Some(())
}
